# N nodes (N_s source, N_t target), B graphs, H heads, C channels per head, D channels of a value, M
# features.
from dataclasses import replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import linear

from torch_geometric_lgt._arguments import check_choice
from torch_geometric_lgt.functional._engine import plain
from torch_geometric_lgt.functional._engine.dispatch import is_plain, may_record, saves_products
from torch_geometric_lgt.functional.attention.gram import gram_read, gram_state
from torch_geometric_lgt.functional.attention.kernel import attend, check_alike, node_pair
from torch_geometric_lgt.functional.attention.state import (
    AttentionState,
    build_state,
    read_state,
    sums_of_squares,
)
from torch_geometric_lgt.functional.attention.state_checks import check_readable
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput
from torch_geometric_lgt.functional.numerics import compute_dtype, is_complete, without_autocast
from torch_geometric_lgt.functional.segment import Segments, count_graphs
from torch_geometric_lgt.functional.tensor_inputs import check_by_head, value_input
from torch_geometric_lgt.functional.tracing import is_exporting

NORMS = ('row', 'frobenius')


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    batch: Tensor | tuple[Tensor | None, Tensor | None] | None = None,
    batch_size: int | None = None,
    *,
    norm: str = 'row',
    self_value: Tensor | None = None,
) -> Tensor:
    r"""Computes attention with the inner products of normalised queries and keys as weights, in
    :math:`O(N)` time.

    Without :obj:`self_value` it is the attention with the simple kernel of `DIFFormer
    <https://arxiv.org/abs/2301.09474>`_,

    .. math::
        \mathbf{h}_i = \frac{\sum_j (1 + \tilde{\mathbf{q}}_i^{\top} \tilde{\mathbf{k}}_j) \,
            \mathbf{v}_j}
        {\sum_j (1 + \tilde{\mathbf{q}}_i^{\top} \tilde{\mathbf{k}}_j)},

    and with :obj:`self_value`, the values :math:`\mathbf{v}_i` of the queries, it is the attention
    of `SGFormer <https://arxiv.org/abs/2306.10759>`_,

    .. math::
        \mathbf{h}_i = \frac{\mathbf{v}_i + \frac{1}{N} \sum_j \tilde{\mathbf{q}}_i^{\top}
            \tilde{\mathbf{k}}_j \, \mathbf{v}_j}
        {1 + \frac{1}{N} \sum_j \tilde{\mathbf{q}}_i^{\top} \tilde{\mathbf{k}}_j},

    with sums over the :math:`N` nodes of the graph, and :math:`\tilde{\mathbf{q}}_i` and
    :math:`\tilde{\mathbf{k}}_j` the queries and keys divided by the :obj:`norm`. A row whose
    denominator is 0 up to rounding errors gives 0. With ``norm="row"`` this happens if every key of
    the graph has the direction opposite to the query. With ``norm="frobenius"`` it can happen only
    in a graph of one node.

    Args:
        q (torch.Tensor): Queries ``[N_t, H, C]``.
        k (torch.Tensor): Keys ``[N_s, H, C]``.
        v (torch.Tensor): Values ``[N_s, H, D]``.
        batch (torch.Tensor or tuple, optional): The graph id of each node, ``[N]``, or a pair of
            such vectors: first for the keys, then for the queries. (default: :obj:`None`, one
            graph)
        batch_size (int, optional): The number of graphs. (default: :obj:`None`, one more than the
            largest graph id)
        norm (str, optional): The norm that queries and keys are divided by: the length of the
            vector (:obj:`"row"`), or the Frobenius norm of all queries (keys) of its graph and head
            (:obj:`"frobenius"`, as in the authors' code and by default in
            :class:`~torch_geometric_lgt.nn.SGFormerConv`). (default: :obj:`"row"`, as in
            DIFFormer's paper)
        self_value (torch.Tensor, optional): The values :math:`\mathbf{v}_i` of the queries, ``[N_t,
            H, D]``. (default: :obj:`None`, DIFFormer's attention)

    Returns:
        ``[N_t, H, D]``

    Raises:
        TypeError: If :obj:`q`, :obj:`k`, :obj:`v` or :obj:`batch` is no tensor.
        ValueError: If a shape, dtype, device, :obj:`norm` or :obj:`batch` does not fit.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.functional import linear_attention
        >>> q = k = torch.tensor([[[1.0, 0.0]], [[3.0, 4.0]]])  # 2 nodes, 1 head, 2 channels
        >>> v = torch.tensor([[[3.0]], [[6.0]]])
        >>> linear_attention(q, k, v).flatten()
        tensor([4.3333, 4.6667])
        >>> linear_attention(q, k, v, self_value=v).flatten()
        tensor([3.5000, 5.5000])
    """
    batch_size = count_graphs(batch, batch_size)
    check_by_head(q)
    check_by_head(k)
    if self_value is not None and self_value.shape != (*q.shape[:2], v.size(-1)):
        raise ValueError(
            f"'self_value' must have shape {(*q.shape[:2], v.size(-1))} beside the queries and "
            f'values (got {tuple(self_value.shape)})'
        )
    kind = linear_kind(norm, self_value is not None)
    queries, keys = (KernelInput(x=x.flatten(1), heads=q.size(1), kind=kind) for x in (q, k))
    check_alike(q, k, v, self_value)
    sources, targets = node_pair(batch, k.size(0), q.size(0), batch_size, q.device)
    self_values = None if self_value is None else LinearInput(x=self_value.flatten(1))
    form = LinearForm(LinearQueries(queries, self_values, norm), keys, value_input(v, k))
    return linear_attend(form, sources, targets).unflatten(1, (q.size(1), -1))


class LinearQueries(NamedTuple):
    r"""Describes the queries of an attention whose weights are inner products: how they are
    computed, the values that each query includes with weight 1 (or :obj:`None`), and the norm."""

    inputs: KernelInput
    self_values: LinearInput | None
    norm: str

    def affine(self, nodes: Segments) -> bool:
        r"""Returns whether the outputs of a state are read as ratios of affine maps of the input,
        without evaluating the queries: under the conditions of :meth:`LinearForm.affine` for
        queries and self values. :obj:`nodes` says which query belongs to which graph."""
        return _products_take_less(self.inputs, self.self_values, nodes)

    def with_values(self, is_autocast: bool = True) -> KernelInput:
        r"""Returns the queries with evaluated self values, if there are any. If :obj:`is_autocast`
        is :obj:`False`, they are evaluated outside autocast in the dtype of sums."""
        part = self.self_values
        if part is None:
            return self.inputs
        if part.weight is None:
            evaluated = part.x
        elif is_autocast:
            evaluated = linear(part.x, part.weight, part.bias)
        else:
            with without_autocast(part.x.device.type):
                evaluated = part.output()
        return replace(self.inputs, self_value=evaluated)

    def scaled(self, state: AttentionState) -> AttentionState:
        r"""Multiplies the features of a state (sums over all keys of a graph) by the
        :meth:`state_factor`."""
        factor = self.state_factor(state)
        return state if factor is None else state.scaled(factor)

    def state_factor(self, state: AttentionState) -> Tensor | None:
        r"""Computes the :meth:`factor` from the counts and sums of squares in a state (sums over
        all keys of a graph)."""
        if self.norm == 'row':
            return self.factor(state.count)
        return self.factor(state.count, state.squares, state.query_squares)

    def factor(self, count: Tensor, *squares: Tensor) -> Tensor | None:
        r"""Computes the factor ``[B, H, M]`` of the features of a state (sums over all keys of a
        graph), :obj:`None` if all factors are 1.

        The factor is the product of the inverse roots of :obj:`squares` ``[B, H]``. With self
        values it is divided by the number of keys, :obj:`count` ``[B]``. The constant feature keeps
        the factor 1.
        """
        if not squares and self.self_values is None:
            return None
        inputs = self.inputs
        dtype = compute_dtype(inputs.x.dtype)
        factor = inputs.x.new_ones((count.size(0), inputs.heads), dtype=dtype)
        for square in squares:
            factor = factor * square.masked_fill(square == 0, torch.inf).rsqrt()
        if self.self_values is not None:
            factor = factor / count.clamp(min=1)[:, None]
        factor = factor[..., None].expand(-1, -1, inputs.channels())
        if self.self_values is not None:
            return factor.contiguous()
        return torch.cat([torch.ones_like(factor[..., :1]), factor], -1)


class LinearForm(NamedTuple):
    r"""Describes an attention whose weights are inner products: its queries, and how keys and
    values are computed."""

    queries: LinearQueries
    keys: KernelInput
    values: LinearInput

    def affine(self, nodes: Segments) -> bool:
        r"""Returns whether the state (sums over all keys of a graph) is computed from the products
        :math:`\mathbf{X}^{\top} \mathbf{X}` of the input.

        This requires that keys and values are linear parts (Linear layers) of the same input. The
        products must fit the memory of the input and take less work than evaluating the keys. They
        are in double precision, which the device must support and the input must not have. In an
        exported program the result is :obj:`False`. :obj:`nodes` says which key belongs to which
        graph.
        """
        return _products_take_less(self.keys, self.values, nodes)

    def is_small(self, sources: Segments, targets: Segments) -> bool:
        r"""Returns whether an attention with Frobenius norms is computed by formulas that autograd
        records (:meth:`may_record`): for small graphs (:meth:`is_plain`), unless products of
        columns take less time."""
        queries = self.queries.inputs
        parts = queries, self.keys, self.values
        tensors = [tensor for part in parts for tensor in (part.x, part.weight, part.bias)]
        channels = self.values.channels(self.keys.heads)
        if not may_record(tensors, sources) or (
            self.affine(sources) and not saves_products(queries)
        ):
            return False
        return is_plain(queries, self.keys, channels, targets, sources)

    def with_values(self, is_autocast: bool = True) -> tuple[KernelInput, LinearInput]:
        r"""Returns the queries with evaluated self values (:meth:`LinearQueries.with_values`), and
        the values. If both have the same values, they share one evaluated tensor."""
        queries = self.queries.with_values(is_autocast)
        shared = self.queries.self_values is self.values and queries.x is self.keys.x
        return queries, LinearInput(x=cast(Tensor, queries.self_value)) if shared else self.values

    def converted(self) -> 'LinearForm':
        r"""Returns the form with the input of the queries, and what shares it, in the dtype of
        sums. It is converted once, so that the gradients of all parts are added in that dtype."""
        queries, x = self.queries, self.queries.inputs.x
        dtype = compute_dtype(x.dtype)
        if x.dtype == dtype:
            return self
        new = x.to(dtype)

        def convert(part: Any) -> Any:
            return replace(part, x=new) if part is not None and part.x is x else part

        values, self_values = convert(self.values), queries.self_values
        self_values = values if self_values is self.values else convert(self_values)
        queries = LinearQueries(convert(queries.inputs), self_values, queries.norm)
        return LinearForm(queries, convert(self.keys), values)


def _products_take_less(inputs: KernelInput, values: LinearInput | None, nodes: Segments) -> bool:
    r"""Returns whether :obj:`inputs` and :obj:`values` (if there are any) are linear parts (Linear
    layers) of one input whose products of columns fit its memory and take less work; see
    :meth:`LinearForm.affine`."""
    if inputs.weight is None or is_exporting():
        return False
    if values is not None and (values.weight is None or values.x is not inputs.x):
        return False
    if inputs.x.dtype == torch.double or not is_complete(inputs.x.device):
        return False
    width, channels = inputs.x.size(1), inputs.channels()
    widest = channels if values is None else max(channels, values.channels(inputs.heads))
    num_products = nodes.sizes.size(0) * width * max(width + 1, inputs.heads * widest)
    return num_products <= inputs.x.numel() and width <= 3 * inputs.heads * channels


def linear_kind(norm: str, self_term: bool) -> str:
    r"""Returns the name of the feature map of keys and queries for a norm, without or with self
    values (:obj:`self_term`).

    Raises:
        ValueError: If :obj:`norm` is unknown.
    """
    check_choice('norm', norm, NORMS)
    if self_term:
        return 'unit' if norm == 'row' else 'values'
    return 'biased_unit' if norm == 'row' else 'biased'


def linear_attend(form: LinearForm, sources: Segments, targets: Segments) -> Tensor:
    r"""Computes the attention outputs ``[N_t, H * D]`` of all queries. :obj:`sources` and
    :obj:`targets` say which key and which query belongs to which graph."""
    queries = form.queries
    squares = ()
    if queries.norm == 'frobenius':
        if form.is_small(sources, targets):
            return _attend_small(form, sources, targets)
        if form.affine(sources):
            state = gram_state(queries.inputs, form.keys, form.values, sources, targets)
            return gram_read(queries.scaled(state), queries.inputs, queries.self_values, targets)
        squares = sums_of_squares(form.keys, sources), sums_of_squares(queries.inputs, targets)
    factor = queries.factor(sources.sizes, *squares)
    query_input, values = form.with_values()
    return attend(query_input, form.keys, values, sources, targets, factor)


def _attend_small(form: LinearForm, sources: Segments, targets: Segments) -> Tensor:
    r"""Computes the outputs of an attention with Frobenius norms by formulas that autograd records.
    Queries and keys are evaluated once, for the norms and for the weights."""
    x, form = form.queries.inputs.x, form.converted()
    queries, values = form.with_values(is_autocast=False)
    queries, keys = plain.normalized(queries, targets), plain.normalized(form.keys, sources)
    factor = form.queries.factor(sources.sizes)
    return attend(queries, keys, values, sources, targets, factor).to(x.dtype)


def linear_state(form: LinearForm, sources: Segments, targets: Segments) -> AttentionState:
    r"""Builds the state of each graph (the sums over all its keys). For Frobenius norms the state
    contains the sums of squares of the queries."""
    queries = form.queries
    if queries.norm == 'row':
        return build_state(form.keys, form.values, sources)
    if form.affine(sources):
        state = gram_state(queries.inputs, form.keys, form.values, sources, targets)
        return state.to(compute_dtype(form.keys.x.dtype))
    query_squares = sums_of_squares(queries.inputs, targets)
    return build_state(form.keys, form.values, sources, query_squares)


def linear_read(queries: LinearQueries, state: AttentionState, targets: Segments) -> Tensor:
    r"""Computes the outputs ``[N_t, H * D]`` of :obj:`queries` from the result of
    :meth:`linear_state`. They may be fewer queries than :meth:`linear_state` got."""
    inputs = queries.inputs
    check_readable(state, inputs, targets)
    state = queries.scaled(state)
    if queries.norm == 'frobenius' and queries.affine(targets):
        return gram_read(state, inputs, queries.self_values, targets)
    return read_state(state.to(compute_dtype(inputs.x.dtype)), queries.with_values(), targets)
