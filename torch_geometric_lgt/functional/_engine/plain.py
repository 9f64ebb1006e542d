# B graphs, N nodes, n positions of a graph (m of sources), H heads, P = B * H pairs of a graph and
# a head, C channels of a key, D channels of a value, K samples, M features of one, R rank of the
# mask.
r"""Computes the attention of small graphs in one chunk, which autograd records: features are
stored, and the backward pass does not compute them again."""

from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.linalg import vecdot
from torch.nn.functional import linear

from torch_geometric_lgt.functional._engine.dispatch import is_paired
from torch_geometric_lgt.functional._engine.features import (
    cancellation_bound,
    largest,
    sampled,
    scaled,
)
from torch_geometric_lgt.functional._engine.layout import both_masks, split
from torch_geometric_lgt.functional._engine.operator_arguments import AttendArguments
from torch_geometric_lgt.functional._engine.ratio import ratio
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput
from torch_geometric_lgt.functional.numerics import (
    compute_dtype,
    widest_dtype,
    without_autocast,
)
from torch_geometric_lgt.functional.segment import Segments, node_to_graph
from torch_geometric_lgt.functional.tracing import recording, to_list
from torch_geometric_lgt.functional.unit_rows import to_unit_rows


class Positions(NamedTuple):
    r"""Stores the positions of nodes in an array with as many positions for each graph as the
    largest graph has nodes. All entries are :obj:`None` if each position has one node, in order.

    Attributes:
        node (torch.Tensor, optional): The node at each position, ``[B * n]``. Behind the last node
            of a graph this node is repeated.
        is_repeated (torch.Tensor, optional): Whether the position repeats a node, ``[B, n]``.
        of_node (torch.Tensor, optional): The position of each node, ``[N]``.
        is_empty (torch.Tensor, optional): Whether the position is in a graph without nodes,
            ``[B * n, 1]``. Also :obj:`None` if each graph has nodes.
    """

    node: Tensor | None = None
    is_repeated: Tensor | None = None
    of_node: Tensor | None = None
    is_empty: Tensor | None = None

    def take(self, x: Tensor | None) -> Any:
        r"""Returns the row of :obj:`x` ``[N, *]`` at each position, ``[B * n, *]``, and zeros in a
        graph without nodes."""
        if x is None or self.node is None:
            return x
        rows = x.index_select(0, self.node)
        return rows if self.is_empty is None else rows.masked_fill(self.is_empty, 0)

    def without_repeated(self, x: Tensor, heads: int) -> Tensor:
        r"""Returns :obj:`x` ``[P, n, *]`` with 0 at positions that repeat a node."""
        if self.is_repeated is None:
            return x
        return x.masked_fill(_for_heads(self.is_repeated[..., None], heads), 0)


def positions(nodes: Segments, x: Tensor) -> Positions:
    r"""Returns the positions of the nodes with the features :obj:`x` ``[N, F]``; :obj:`nodes` says
    which belongs to which graph."""
    (sizes, order), num_nodes = nodes, x.size(0)
    num_graphs = sizes.size(0)
    least = largest = num_nodes
    if num_graphs > 1:
        least, largest = to_list(torch.stack(sizes.aminmax()))
        if order is not None and bool((order[1:] > order[:-1]).all()):
            order = None  # of nodes that compiled code has sorted without need
    if order is None and largest * num_graphs == num_nodes:
        return Positions()
    offset = torch.arange(largest, device=sizes.device)
    last = (sizes - 1).clamp(min=0)[:, None]
    node = (sizes.cumsum(0) - sizes)[:, None] + torch.minimum(offset, last)
    node = node.clamp(max=num_nodes - 1).view(-1)
    is_repeated = offset >= sizes[:, None]
    of_node = is_repeated.logical_not().view(-1).nonzero().view(-1)
    if order is not None:
        node, of_node = order[node], torch.empty_like(of_node).scatter_(0, order, of_node)
    is_empty = None
    if least == 0:  # the node of another graph, which may be NaN, is at these positions
        is_empty = (sizes == 0).repeat_interleave(largest)[:, None]
    return Positions(node, is_repeated, of_node, is_empty)


def attend(arguments: AttendArguments) -> Tensor:
    r"""Computes the attention outputs ``[N_t, H * D]`` of all queries over the keys of their
    graphs, as :meth:`operators.attend` does."""
    x, of_query, of_key = arguments.queries.x, arguments.targets, arguments.sources
    same = of_query.sizes is of_key.sizes and of_query.order is of_key.order
    with without_autocast(x.device.type):
        sources = positions(of_key, arguments.keys.x)
        targets = sources if same else positions(of_query, x)
        out = _attend_positions(arguments, targets, sources)
        out = out if targets.of_node is None else out.index_select(0, targets.of_node)
    return out if out.dtype == x.dtype else out.to(x.dtype)


def attend_grads(arguments: AttendArguments, grad: Tensor) -> dict[str, Any]:
    r"""Computes the gradients of the arguments of :meth:`attend` for the gradient :obj:`grad` of
    its outputs, which are computed again: a dict by argument name, with a dict for a record."""
    values, slots = arguments.pack(), arguments.slots
    chosen = [
        i for i, slot in enumerate(slots) if slot.has_gradient and isinstance(values[i], Tensor)
    ]
    inputs = [values[i] for i in chosen]
    with recording():
        for i in chosen:
            values[i] = values[i].detach().requires_grad_()
        leaves = [values[i] for i in chosen]
        out = attend(arguments.unpack(values))
        grads = torch.autograd.grad(out, leaves, grad)
    by_argument: dict[str, Any] = {}
    for i, x, gradient in zip(chosen, inputs, grads, strict=True):
        field, _, name = slots[i].path.partition('.')
        gradient = torch.empty_like(x).copy_(gradient)  # with the strides of the input
        record = by_argument.setdefault(field, {}) if name else by_argument
        record[name or field] = gradient
    return by_argument


def _attend_positions(arguments: AttendArguments, targets: Positions, sources: Positions) -> Tensor:
    r"""Computes the outputs ``[B * n, H * D]`` at all positions of the targets."""
    queries, keys, values = arguments.queries, arguments.keys, arguments.values
    num_graphs, heads, kind = arguments.sources.sizes.size(0), keys.heads, keys.map
    # one conversion, so that the gradients of queries, keys and values are added in the new dtype
    query_x = _converted(targets.take(queries.x))
    is_shared = keys.x is queries.x and targets is sources
    key_x = query_x if is_shared else _converted(sources.take(keys.x))
    value_x = key_x if values.x is keys.x else _converted(sources.take(values.x))
    v = _per_head(_evaluate(values, value_x, heads), num_graphs)
    key_feature, maximum = _key_features(keys, key_x, num_graphs, sources)
    num_nodes = query_x.size(0) // num_graphs, key_x.size(0) // num_graphs
    # a graph that is traced may have any number of nodes
    is_traced = torch.compiler.is_compiling()
    by_pairs = not is_traced and is_paired(keys, v.size(2), max(num_nodes), *num_nodes)
    log, value = _log_features(queries, query_x, num_graphs)
    masks = _masks(arguments, targets, sources, num_nodes)
    if kind.has_finite_logits and masks is None and queries.self_value is None:
        may_be_empty = sources.is_repeated is not None or keys.noise is not None
        log = cast(Tensor, log)
        if by_pairs:
            out = _pair_mean(log, maximum, key_feature, v, may_be_empty)
        else:
            out = _state_mean(log, maximum, key_feature, v, may_be_empty, keys.samples)
    else:
        if kind.is_exponential:
            log = maximum if log is None else log + maximum
            value = scaled(log, value, largest(log, -1))
        sums = _pair_sums if by_pairs else _state_sums
        factor = _factor(arguments)
        numerator, denominator = sums(cast(Tensor, value), key_feature, v, masks, factor)
        num_keys, added = 0, None
        if kind.has_constant:
            num_keys, added = _constant_sums(arguments, sources, v)
            denominator = denominator.add_(num_keys)
        if queries.self_value is not None:
            self_value = targets.take(queries.self_value).to(v.dtype)
            added = _per_head(self_value.unflatten(1, (heads, -1)), num_graphs)
            denominator = denominator + 1
        out = ratio(numerator, added, denominator, cancellation_bound(queries, num_keys))
    return _joined(out, num_graphs)


def sums_of_squares(inputs: KernelInput, nodes: Segments) -> Tensor:
    r"""Computes the sums of squares ``[B, H]`` of the queries or keys of each graph."""
    part = LinearInput(x=inputs.x, weight=inputs.weight, bias=inputs.bias)
    with without_autocast(inputs.x.device.type):
        x = part.output()
        squares = x.double().square().unflatten(1, (inputs.heads, -1)).sum(2)
    sizes, order = nodes
    squares = squares if order is None else squares[order]
    return torch.segment_reduce(squares, 'sum', lengths=sizes).to(x.dtype)


def normalized(inputs: KernelInput, nodes: Segments) -> KernelInput:
    r"""Evaluates the linear part of queries or keys in the dtype of sums, outside autocast, and
    divides them by the Frobenius norm of their graph and head. :obj:`nodes` says which of them
    belongs to which graph."""
    inputs, num_graphs = inputs.aligned(), nodes.sizes.size(0)
    places = positions(nodes, inputs.x)
    with without_autocast(inputs.x.device.type):
        x = _evaluate(inputs, _converted(inputs.x), inputs.heads)
        dtype = widest_dtype(x.device)  # of sums of many squares
        if places.is_repeated is None:
            rows = _per_head(x, num_graphs)
            x = _joined(to_unit_rows(rows.flatten(1), dtype).view(rows.shape), num_graphs)
        else:  # only the sums of squares of the nodes are arranged by graph
            wide = x.to(dtype)
            squares = places.take(vecdot(wide, wide)).unflatten(0, (num_graphs, -1))
            squares = squares.masked_fill(places.is_repeated[..., None], 0).sum(1)
            inverse = squares.masked_fill(squares == 0, torch.inf).rsqrt().to(x.dtype)
            inverse = inverse.index_select(0, node_to_graph(nodes, x.size(0)))
            x = (x * inverse[..., None]).flatten(1)
    return replace(inputs, x=x, weight=None, bias=None)


def _per_head(x: Tensor, num_graphs: int) -> Tensor:
    r"""Returns the rows :obj:`x` ``[B * n, H, C]`` as ``[P, n, C]``."""
    if num_graphs == 1:
        return x.transpose(0, 1)
    return x.unflatten(0, (num_graphs, -1)).transpose(1, 2).flatten(0, 1)


def _joined(x: Tensor, num_graphs: int) -> Tensor:
    r"""Returns :obj:`x` ``[P, n, C]`` as ``[B * n, H * C]``."""
    if num_graphs == 1:
        return x.transpose(0, 1).flatten(1)
    return x.unflatten(0, (num_graphs, -1)).transpose(1, 2).flatten(2).flatten(0, 1)


def _for_heads(x: Tensor, heads: int) -> Tensor:
    r"""Repeats the part of each graph in :obj:`x` ``[B, n, *]`` for each head. The result is
    ``[P, n, *]``, or ``[1, n, *]`` for one graph."""
    return x if heads == 1 or x.size(0) == 1 else x.repeat_interleave(heads, 0)


def _evaluate(inputs: KernelInput | LinearInput, x: Tensor, heads: int) -> Tensor:
    r"""Evaluates the linear part of :obj:`inputs` at the rows :obj:`x` ``[B * n, F]`` of its input,
    which are in the dtype of sums. Returns queries, keys or values ``[B * n, H, C]``."""
    if inputs.weight is not None:
        x = linear(x, inputs.weight, inputs.bias)
    return x.view(x.size(0), heads, x.size(1) // heads)


def _converted(x: Tensor) -> Tensor:
    r"""Returns :obj:`x` in the dtype of sums."""
    return x.to(compute_dtype(x.dtype))


def _log_features(
    inputs: KernelInput, x: Tensor, num_graphs: int, is_key: bool = False
) -> tuple[Tensor | None, Tensor | None]:
    r"""Computes the two results of :meth:`Map.log_features`, ``[P, n, M]`` or broadcast to it, for
    the rows :obj:`x` ``[B * n, F]`` of the input of queries or keys. A constant feature is left
    out."""
    x, kind = _evaluate(inputs, x, inputs.heads), inputs.map
    projection = inputs.projection
    factor = inputs.data_normalizer if projection is not None else 1.0
    if projection is None and inputs.data_normalizer != 1.0:
        x = x * inputs.data_normalizer
    squared = None
    if is_key and kind.is_exponential:
        squared = x.square().sum(-1, keepdim=True)
        squared = squared if factor == 1.0 else squared * factor**2
    if projection is not None and factor != 1.0:  # it has fewer numbers than queries or keys
        projection = projection * factor
    if inputs.head_projection is not None:
        x = torch.bmm(x.transpose(0, 1), inputs.head_projection.transpose(1, 2)).transpose(0, 1)
    log, value = kind.without_constant.log_features(x, projection, inputs.power, squared)
    log = None if log is None else _per_head(log, num_graphs)
    return log, None if value is None else _per_head(value, num_graphs)


def _key_features(
    keys: KernelInput, x: Tensor, num_graphs: int, sources: Positions
) -> tuple[Tensor, Tensor]:
    r"""Computes the features ``[P, m, K * M]`` of keys with the input :obj:`x` ``[B * m, F]``,
    divided by the exponentials of the maxima ``[P, 1, K * M]`` of their logarithms, and the maxima.
    Features of repeated nodes are 0."""
    log, value = _log_features(keys, x, num_graphs, is_key=True)
    if keys.noise is not None:
        noise = sources.take(keys.noise).unflatten(1, (keys.heads, -1))
        log = sampled(log, _per_head(noise, num_graphs))
    maximum = x.new_zeros(()) if log is None else largest(log, 1)
    return sources.without_repeated(scaled(log, value, maximum), keys.heads), maximum


def _masks(
    arguments: AttendArguments, targets: Positions, sources: Positions, num_nodes: tuple[int, int]
) -> tuple[Tensor, Tensor] | None:
    r"""Returns the mask weights ``[P, n, R]`` of queries and keys or broadcast to it, :obj:`None`
    if both have none."""
    num_graphs, heads = arguments.sources.sizes.size(0), arguments.keys.heads
    query_mask, key_mask = (
        None if mask is None else split(nodes.take(mask), num_graphs, 1)
        for mask, nodes in ((arguments.queries.mask, targets), (arguments.keys.mask, sources))
    )
    masks = both_masks(query_mask, key_mask, *num_nodes)
    if masks is None:
        return None
    query_mask, key_mask = masks
    return _for_heads(query_mask.squeeze(1), heads), _for_heads(key_mask.squeeze(1), heads)


def _factor(arguments: AttendArguments) -> Tensor | None:
    r"""Returns the factor ``[P, M, 1]`` of the features, without that of a constant feature, which
    is 1."""
    factor = arguments.factor
    if factor is not None and arguments.keys.map.has_constant:
        factor = factor[..., 1:]
    return None if factor is None else factor.flatten(0, 1)[..., None]


def _constant_sums(
    arguments: AttendArguments, sources: Positions, v: Tensor
) -> tuple[int | Tensor, Tensor]:
    r"""Returns the sums of a constant feature 1 and its products with the values: the number of
    keys ``[P, 1, 1]`` or of all graphs, and the sums ``[P, 1, D]`` of :obj:`v`."""
    heads = arguments.keys.heads
    total = sources.without_repeated(v, heads).sum(1, keepdim=True)
    if sources.is_repeated is None:
        return v.size(1), total
    return _for_heads(arguments.sources.sizes.to(v.dtype).view(-1, 1, 1), heads), total


def _pair_mean(
    log: Tensor, maximum: Tensor, key_feature: Tensor, v: Tensor, may_be_empty: bool
) -> Tensor:
    r"""Returns the attention outputs ``[P, n, D]`` from the weights of all pairs of nodes.

    :obj:`log` ``[P, n, M]`` are the logarithms of the features of queries, and
    :obj:`maximum` those by which the features of keys were divided. :obj:`may_be_empty` tells
    whether graphs or samples may have no keys; their outputs are 0."""
    weight = torch.bmm((log + maximum).softmax(-1), key_feature.transpose(1, 2))
    total = weight.sum(-1, keepdim=True)
    if may_be_empty:
        total = total.clamp(min=0.5)  # is at least 1 up to rounding, but 0 without keys
    return torch.bmm(weight, v) / total


def _state_mean(
    log: Tensor, maximum: Tensor, key_feature: Tensor, v: Tensor, may_be_empty: bool, samples: int
) -> Tensor:
    r"""Returns the results of :meth:`_pair_mean` from sums over the keys: the means of the values
    with the weights of each feature, and their mean with the weights of a query. With several
    :obj:`samples`, whose features are side by side, it is the mean of the results of each."""
    total = key_feature.sum(1)  # [P, K * M]
    if may_be_empty:
        total = total.clamp(min=0.5)  # is at least 1 up to rounding, but 0 without keys
    means = torch.bmm(key_feature.transpose(1, 2), v) / total[..., None]
    shift = maximum + total[:, None].log()
    if samples == 1:
        return torch.bmm((log + shift).softmax(-1), means)
    weight = (log[:, :, None] + shift.unflatten(-1, (samples, -1))).softmax(-1)
    return torch.bmm(weight.flatten(-2), means) / samples


def _pair_sums(
    query_feature: Tensor,
    key_feature: Tensor,
    v: Tensor,
    masks: tuple[Tensor, Tensor] | None,
    factor: Tensor | None,
) -> tuple[Tensor, Tensor]:
    r"""Returns the numerators ``[P, n, D]`` and denominators ``[P, n, 1]`` of the attention from
    the weights of all pairs of nodes. :obj:`factor` ``[P, M, 1]`` multiplies the features."""
    if factor is not None:
        query_feature = query_feature * factor.transpose(1, 2)
    weight = torch.bmm(query_feature, key_feature.transpose(1, 2))
    if masks is not None:
        weight = weight * torch.bmm(masks[0], masks[1].transpose(1, 2))
    return torch.bmm(weight, v), weight.sum(-1, keepdim=True)


def _state_sums(
    query_feature: Tensor,
    key_feature: Tensor,
    v: Tensor,
    masks: tuple[Tensor, Tensor] | None,
    factor: Tensor | None,
) -> tuple[Tensor, Tensor]:
    r"""Returns the results of :meth:`_pair_sums` from sums over the keys."""
    transposed = key_feature.transpose(1, 2)
    if masks is None:
        # a sum of terms that cancel has smaller rounding errors than a product
        sums, total = torch.bmm(transposed, v), transposed.sum(-1, keepdim=True)
        if factor is not None:
            sums, total = sums * factor, total * factor
        return torch.bmm(query_feature, sums), torch.bmm(query_feature, total)
    query_mask, key_mask = masks
    columns = torch.cat([v, v.new_ones(()).expand(*v.shape[:-1], 1)], -1)
    columns = (columns[..., None, :] * key_mask[..., None]).flatten(-2)
    sums = torch.bmm(transposed, columns)
    sums = sums if factor is None else sums * factor
    product = torch.bmm(query_feature, sums).unflatten(-1, (key_mask.size(-1), -1))
    product = (product * query_mask[..., None]).sum(-2)
    return product[..., :-1], product[..., -1:]
