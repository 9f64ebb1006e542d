# The backward pass has the symbols of docs/theory/attention_state.rst.
import math
from typing import cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.affine import (
    Affine,
    AffineGrad,
    HeadProjection,
    HeadProjectionGrad,
)
from torch_geometric_lgt.functional._engine.layout import (
    Nodes,
    count_nodes,
    defers_values,
    join,
    mask_of,
    noise_of,
    self_value_of,
    split,
    take,
)
from torch_geometric_lgt.functional.inputs import KernelInput, ValueInput, rounding_share
from torch_geometric_lgt.functional.numerics import (
    compute_dtype,
    inverse_of,
    neutral,
    without_cancellation,
)


def spread(v: Tensor, last: Tensor, mask: Tensor | None) -> Tensor:
    r"""Returns ``[G, H, n, W]``: :obj:`v` ``[G, H, n, D]`` times each of the :math:`R` mask weights
    ``[G, 1, n, R]``, then :obj:`last` ``[G, H, n, 1]`` times each. Without a mask it appends
    :obj:`last` to :obj:`v`."""
    if mask is None:
        return torch.cat([v, last], -1)
    rank, channels = mask.size(-1), v.size(-1)
    out = v.new_empty((*v.shape[:-1], rank * (channels + 1)))
    for r in range(rank):
        torch.mul(v, mask[..., r : r + 1], out=out[..., r * channels : (r + 1) * channels])
    torch.mul(last, mask, out=out[..., rank * channels :])
    return out


def fold(columns: Tensor, mask: Tensor | None, rank: int) -> Tensor:
    r"""Returns ``[G, H, n, D]``: the sum over :math:`r` of mask weight :math:`r` times the value
    columns :math:`r` of :obj:`columns` ``[G, H, n, W]``. This is the transpose of :meth:`spread`
    with respect to :obj:`v`."""
    channels = columns.size(-1) // rank - 1
    if mask is None:
        return columns[..., :channels]
    total = columns[..., :channels] * mask[..., :1]
    for r in range(1, rank):
        total.addcmul_(columns[..., r * channels : (r + 1) * channels], mask[..., r : r + 1])
    return total


def inner(columns: Tensor, v: Tensor, rank: int) -> Tensor:
    r"""Returns ``[G, H, n, R]``: the inner product of :obj:`v` ``[G, H, n, D]`` with the value
    columns :math:`r` of :obj:`columns` ``[G, H, n, W]``, for each :math:`r` up to :obj:`rank`."""
    return (columns[..., :-rank].unflatten(-1, (rank, -1)) * v[..., None, :]).sum(-1)


def scaled(log: Tensor | None, value: Tensor | None, maximum: Tensor) -> Tensor:
    r"""Returns the features :math:`s \exp(l)` divided by :math:`\exp(c)` from the logarithms
    :obj:`log`, the factors :obj:`value` and the :obj:`maximum` :math:`c`. Exponentials below the
    smallest normal number become 0, because denormal numbers are slow."""
    if log is None:
        return cast(Tensor, value)
    log_tiny = math.log(torch.finfo(log.dtype).tiny)
    power = log - maximum
    # not recorded: the gradient of an exponential that is 0 is 0
    torch.threshold_(power.detach(), log_tiny, -math.inf)
    feature = power.exp_()
    return feature if value is None else feature * value


def largest(log: Tensor, dim: int) -> Tensor:
    r"""Returns the maximum of :obj:`log` along :obj:`dim`, which is kept with size 1. The result
    has no gradient and is at least :meth:`neutral`, so that it is finite even if all entries are
    :math:`-\infty`."""
    return log.detach().amax(dim, keepdim=True).clamp_(min=neutral(log.dtype))


def sampled(log: Tensor | None, noise: Tensor | None) -> Tensor | None:
    r"""Returns the log-features of weighted keys, ``[G, H, n, K * M]``: :obj:`log` ``[G, H, n, M]``
    plus the log-weight :obj:`noise` ``[G, H, n, K]`` of each sample. Returns :obj:`log` if either
    is :obj:`None`."""
    if log is None or noise is None:
        return log
    return (log[..., None, :] + noise[..., None]).flatten(-2)


def grad_key_features(
    inputs: KernelInput, left: Tensor, right: Tensor, product: Tensor, maximum: Tensor
) -> Tensor:
    r"""Returns the gradient :math:`\mathbf{g}` of the features of keys, ``[G, H, n, M]``, as the
    product of :obj:`left` ``[G, H, n, W]`` and :obj:`right` ``[G, H, W, M]``.

    If features :math:`\mathbf{f}` have unit sums (:class:`Map`), their gradient is
    :math:`\mathbf{g} - e^{\mathbf{c}} \, \mathbf{f}^{\top} \mathbf{g}`. The second term is one more
    column of the product: :obj:`product` ``[G, H, n, W]``, the features times the transpose of
    :obj:`right`, gives :math:`\mathbf{f}^{\top} \mathbf{g}`. :obj:`maximum` ``[G, H, 1, M]`` is
    :math:`\mathbf{c}`.
    """
    if inputs.map.has_unit_sums:
        inner_product = (left * product).sum(-1, keepdim=True)
        left = torch.cat([left, -inner_product], -1)
        right = torch.cat([right, maximum.exp()], -2)
    return left @ right


def guarded(denominator: Tensor, queries: KernelInput, num_keys: Tensor | float) -> Tensor:
    r"""Returns the denominators ``[G, H, n, 1]`` with the weight 1 of the queries' self values, if
    they have some, and 0 in place of sums whose terms cancel: those of maps with a constant, and
    those with self values. Without self values the largest term is :obj:`num_keys`, broadcast to
    ``[G, H, 1, 1]``."""
    if queries.self_value is not None:
        return without_cancellation(denominator + 1, rounding_share(queries))
    if queries.map.has_constant:
        return without_cancellation(denominator, num_keys * rounding_share(queries))
    return denominator


def sums_of_values(sums: Tensor, values: ValueInput, rank: int) -> Tensor:
    r"""Returns the sums over the keys of one head ``[G, 1, M, R * (D + 1)]`` from those of the
    input of the values, ``[G, 1, M, R * (F + 1)]``, by the linear part of :obj:`values`."""
    totals = sums[..., -rank:]
    columns = sums[..., :-rank].unflatten(-1, (rank, -1)) @ cast(Tensor, values.weight).t()
    if values.bias is not None:
        columns = columns.addcmul_(totals[..., None], values.bias)
    return torch.cat([columns.flatten(-2), totals], -1)


class Queries:
    r"""Computes the attention outputs of queries from states (sums over all keys of a graph), and
    the features of the queries."""

    def __init__(self, inputs: KernelInput) -> None:
        self.inputs = inputs
        self.affine = Affine(inputs.x, (inputs.weight, inputs.bias, inputs.scale))
        self.project = HeadProjection(inputs.head_projection)

    def evaluate(self, nodes: Nodes, graphs: int) -> tuple[Tensor, Tensor, Tensor]:
        r"""Evaluates the linear parts at the positions :obj:`nodes` of :obj:`graphs` = G graphs of
        equal size. Returns the input ``[G * n, F]``, the queries ``[G, H, n, C]`` and the input of
        the feature map: the queries, or their products ``[G, H, n, M]`` with a matrix per head."""
        x, q = self.affine(nodes)
        q = split(q, graphs, self.inputs.heads)
        return x, q, self.project(q)

    def features(self, nodes: Nodes, maximum: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        r"""Computes the queries at the positions :obj:`nodes` of :math:`G` graphs of equal size,
        and their features.

        :obj:`maximum` ``[G, H, M]`` is added to the logarithms, since the features of keys were
        divided by its exponential. Features are divided by the largest exponential of their row.

        Returns:
            The three results of :meth:`evaluate` and the features ``[G, H, n, M]``
        """
        inputs = self.inputs
        x, q, map_input = self.evaluate(nodes, maximum.size(0))
        log, value = inputs.map.log_features(map_input, inputs.projection, inputs.power, None)
        if not inputs.map.is_exponential:
            return x, q, map_input, cast(Tensor, value)
        log = maximum[:, :, None] if log is None else log + maximum[:, :, None]
        return x, q, map_input, scaled(log, value, largest(log, -1))

    def read(
        self, sums: Tensor, maximum: Tensor, chunks: list[Nodes], out: Tensor, denominators: Tensor
    ) -> None:
        r"""Computes the outputs and denominators of some queries and writes them to :obj:`out` and
        :obj:`denominators`.

        Args:
            sums (torch.Tensor): The sums over the keys of :math:`G` graphs of equal size,
                ``[G, H, M, W]``.
            maximum (torch.Tensor): ``[G, H, M]``; :obj:`sums` are divided by its exponential.
            chunks (list): Positions of the queries: slices or index tensors, each a chunk that is
                computed together.
            out (torch.Tensor): ``[N, H * D]``; only the rows in :obj:`chunks` are written.
            denominators (torch.Tensor): ``[N, H]`` (with samples ``[N, H * K]``), likewise.
        """
        inputs, graphs = self.inputs, sums.size(0)
        rank = inputs.rank()
        for nodes in chunks:
            product = self.features(nodes, maximum)[-1] @ sums  # [G, H, n, W]
            mask = mask_of(inputs, nodes, graphs)
            self_value = self_value_of(inputs, nodes, graphs)
            denominator = product[..., -rank:]
            if mask is not None:
                denominator = (denominator * mask).sum(-1, keepdim=True)
            denominator = guarded(denominator, inputs, sums[:, :, :1, -1:])
            inverse = inverse_of(denominator)
            rows = fold(product, inverse if mask is None else mask * inverse, rank)
            if self_value is not None:
                rows = rows.addcmul_(self_value, inverse)
            out[nodes] = join(rows).to(out.dtype)
            denominators[nodes] = join(denominator)


class QueryGrads(Queries):
    r"""Accumulates the gradients of queries: of their input, weight, bias, mask weights and self
    values."""

    def __init__(self, inputs: KernelInput) -> None:
        super().__init__(inputs)
        self.grad = AffineGrad(self.affine)
        self.head_grad = HeadProjectionGrad(self.project)
        self.grad_mask = None if inputs.mask is None else torch.zeros_like(inputs.mask)
        self.grad_self_value = (
            None if inputs.self_value is None else torch.empty_like(inputs.self_value)
        )

    def add(
        self,
        sums: Tensor,
        maximum: Tensor,
        chunks: list[Nodes],
        denominators: Tensor,
        grad_out: Tensor,
    ) -> Tensor:
        r"""Adds the gradients of the queries in :obj:`chunks` and returns the gradient of
        :obj:`sums`, ``[G, H, M, W]``.

        Arguments and shapes are as in :meth:`Queries.read`. :obj:`denominators` are its result, and
        :obj:`grad_out` ``[N, H * D]`` is the gradient of its outputs.
        """
        inputs, graphs = self.inputs, sums.size(0)
        transposed = sums.transpose(2, 3).contiguous()
        # [G, H, W, M], wide by features: the faster shape of the product
        grad_sums = torch.zeros_like(transposed)
        for nodes in chunks:
            x, q, map_input, feature = self.features(nodes, maximum)
            mask = mask_of(inputs, nodes, graphs)
            self_value = self_value_of(inputs, nodes, graphs)
            denominator, grad_rows = (
                split(take(rows, nodes), graphs, inputs.heads) for rows in (denominators, grad_out)
            )
            inverse = inverse_of(denominator)
            grad_numerator = grad_rows * inverse
            if mask is None or self.grad_mask is None:
                grad_feature = grad_numerator @ transposed[:, :, :-1]
                inner_product = (feature * grad_feature).sum(-1, keepdim=True)
                if self_value is not None and self.grad_self_value is not None:
                    inner_product += (grad_numerator * self_value).sum(-1, keepdim=True)
                    self.grad_self_value[nodes] = join(grad_numerator).to(
                        self.grad_self_value.dtype
                    )
                grad_denominator = inner_product.mul_(inverse).neg_()
                grad_feature.addcmul_(grad_denominator, transposed[:, :, -1:])
                grad_product = torch.cat([grad_numerator, grad_denominator], -1)
            else:
                # numerator and denominator nearly cancel in the gradient of the mask: both come
                # from one product, so that they are rounded alike
                product = feature @ sums
                grad_mask = inner(product, grad_numerator, inputs.rank())
                grad_denominator = -(grad_mask * mask).sum(-1, keepdim=True) * inverse
                grad_mask.addcmul_(product[..., -inputs.rank() :], grad_denominator)
                self.grad_mask[nodes] = grad_mask.sum(1).flatten(0, 1)
                grad_product = spread(grad_numerator, grad_denominator, mask)
                grad_feature = grad_product @ transposed
            grad_sums += grad_product.transpose(2, 3) @ feature
            grad_map_input = inputs.map.vjp(
                map_input, inputs.projection, inputs.power, False, feature, grad_feature
            )
            self.collect(nodes, x, q, grad_map_input)
        return grad_sums.transpose(2, 3)

    def collect(self, nodes: Nodes, x: Tensor, q: Tensor, grad_map_input: Tensor) -> None:
        r"""Adds the gradients of the linear parts of the queries at the positions :obj:`nodes`.

        :obj:`x` and :obj:`q` are the first results of :meth:`evaluate`, and :obj:`grad_map_input`
        is the gradient of the third.
        """
        self.grad.add(nodes, x, join(self.head_grad.add(q, grad_map_input)))

    def result(self) -> dict[str, Tensor | None]:
        r"""Returns the gradients by name: x, weight, bias, mask, head_projection and self_value,
        :obj:`None` where there is none. If keys share the input, call it after
        :meth:`KeyGrads.add`, which adds to the same gradient."""
        weight, bias = self.grad.parameters(self.inputs.heads * self.inputs.channels())
        return {
            'x': self.grad.x.to(self.inputs.x.dtype),
            'weight': weight,
            'bias': bias,
            'mask': self.grad_mask,
            'head_projection': self.head_grad.result(),
            'self_value': self.grad_self_value,
        }


class Keys:
    r"""Computes the features of keys and builds states: for each graph the sums of the features of
    all keys, times their values and alone."""

    def __init__(self, inputs: KernelInput, values: ValueInput) -> None:
        self.inputs, self.values = inputs, values
        heads = inputs.heads
        self.widths = heads * inputs.channels(), heads * values.channels(heads)
        key_part = inputs.weight, inputs.bias, inputs.scale
        value_part = values.weight, values.bias, 1.0
        both_linear = inputs.weight is not None and values.weight is not None
        same_bias = (inputs.bias is None) == (values.bias is None)
        self.joint = values.x is inputs.x and both_linear and same_bias
        self.affine = Affine(inputs.x, key_part, *([value_part] if self.joint else []))
        self.value_affine = self.affine if self.joint else Affine(values.x, value_part)
        self.project = HeadProjection(inputs.head_projection)

    def flat(self, nodes: Nodes) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        r"""Evaluates the linear parts of keys and values at the positions :obj:`nodes`. Returns the
        input of the keys ``[n, F]``, the keys ``[n, H * C]``, the input of the values and the
        values ``[n, H * D]``."""
        x, k = self.affine(nodes)
        if self.joint:
            return x, k[:, : self.widths[0]], x, k[:, self.widths[0] :]
        return x, k, *self.value_affine(nodes)

    def evaluate(self, nodes: Nodes, graphs: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        r"""Returns the results of :meth:`flat` with keys ``[G, H, n, C]`` and values
        ``[G, H, n, D]``. The positions :obj:`nodes` belong to :obj:`graphs` = G graphs of equal
        size."""
        x, k, value_x, v = self.flat(nodes)
        return x, split(k, graphs, self.inputs.heads), value_x, split(v, graphs, self.inputs.heads)

    def log_features(
        self, k: Tensor, needs_squares: bool = True
    ) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
        r"""Returns the input of the feature map for keys :obj:`k` ``[G, H, n, C]``: the keys, or
        their products ``[G, H, n, M]`` with a matrix per head. Also returns the sums of squares
        ``[G, H, n, 1]`` of the keys, if they are needed, and the two results of
        :meth:`Map.log_features`."""
        inputs = self.inputs
        squared = k.square().sum(-1, keepdim=True) if needs_squares else None
        map_input = self.project(k)
        features = inputs.map.log_features(map_input, inputs.projection, inputs.power, squared)
        return map_input, squared, *features

    def weighed(
        self, log: Tensor | None, value: Tensor | None, nodes: Nodes, maximum: Tensor
    ) -> Tensor:
        r"""Returns the features of weighted keys, ``[G, H, n, K * M]``, divided by the exponential
        of :obj:`maximum` ``[G, H, K * M]``.

        :obj:`log` and :obj:`value` are the results of :meth:`Map.log_features` for the keys
        :obj:`nodes`. Without samples :math:`K` is 1 and the weights are 1.
        """
        noise = noise_of(self.inputs, nodes, maximum.size(0))
        return scaled(sampled(log, noise), value, maximum[:, :, None])

    def empty_state(self, graphs: int) -> tuple[Tensor, Tensor, Tensor]:
        r"""Returns the state (sums over all keys) of :obj:`graphs` = B graphs without keys: the
        sums ``[B, H, M, W]``, the maximum ``[B, H, M]`` of log-features and the sums of squares
        ``[B, H]`` of keys."""
        inputs, dtype = self.inputs, compute_dtype(self.inputs.x.dtype)
        start = neutral(dtype) if inputs.map.is_exponential else 0.0
        shape = (graphs, inputs.heads, inputs.num_features())
        maximum = inputs.x.new_full(shape, start, dtype=dtype)
        width = inputs.rank() * (self.values.channels(inputs.heads) + 1)
        sums = maximum.new_zeros((*maximum.shape, width))
        return sums, maximum, sums.new_zeros((graphs, inputs.heads))

    def build(self, graphs: int, chunks: list[Nodes]) -> tuple[Tensor, Tensor, Tensor]:
        r"""Returns the state (sums over all keys) of :obj:`graphs` = G graphs of equal size, in the
        order of :meth:`empty_state`. :obj:`chunks` are the positions of the keys: slices or index
        tensors, each a chunk that is computed together."""
        inputs, values = self.inputs, self.values
        if graphs > 0 and defers_values(inputs, values, count_nodes(chunks) // graphs):
            of_inputs, maximum, squares = Keys(inputs, ValueInput(x=values.x)).build(graphs, chunks)
            return sums_of_values(of_inputs, values, inputs.rank()), maximum, squares
        sums, maximum, squares = self.empty_state(graphs)
        # [G, H, W, M], wide by features: the faster shape of the product
        sums = sums.transpose(2, 3).contiguous()
        for nodes in chunks:
            _, k, _, v = self.evaluate(nodes, graphs)
            _, squared, log, value = self.log_features(k)
            squares += cast(Tensor, squared).sum((2, 3))
            weighted = sampled(log, noise_of(inputs, nodes, graphs))
            if weighted is not None:
                new_maximum = torch.maximum(maximum, weighted.amax(2))
                sums *= (maximum - new_maximum).exp_()[:, :, None]
                maximum = new_maximum
            mask = mask_of(inputs, nodes, graphs)
            columns = spread(v, v.new_ones(()).expand(*v.shape[:-1], 1), mask)
            feature = self.weighed(log, value, nodes, maximum)
            product = columns.transpose(2, 3) @ feature
            if not inputs.map.is_exponential and mask is None:
                # terms may cancel in these sums, and a product has larger rounding errors
                product[:, :, -1] = feature.sum(2)
            sums += product
        return sums.transpose(2, 3).contiguous(), maximum, squares


class KeyGrads(Keys):
    r"""Accumulates the gradients of keys and values. The gradient of the input is added to
    :obj:`shared` ``[N, F]``, if given: the gradient of queries with the same input."""

    def __init__(
        self, inputs: KernelInput, values: ValueInput, shared: Tensor | None = None
    ) -> None:
        super().__init__(inputs, values)
        self.shared, self.grad = shared is not None, AffineGrad(self.affine, shared)
        self.head_grad = HeadProjectionGrad(self.project)
        self.value_grad = self.grad
        if not self.joint:
            value_shared = self.grad.x if values.x is inputs.x else None
            self.value_grad = AffineGrad(self.value_affine, value_shared)
        self.grad_mask = None if inputs.mask is None else torch.zeros_like(inputs.mask)

    def add(
        self, maximum: Tensor, chunks: list[Nodes], grad_sums: Tensor, grad_squares: Tensor | None
    ) -> None:
        r"""Adds the gradients of the keys and values in :obj:`chunks`, given the gradients of the
        results of :meth:`Keys.build`.

        Args:
            maximum (torch.Tensor): ``[G, H, M]``, a result of :meth:`Keys.build`.
            chunks (list): Positions of the keys: slices or index tensors, each a chunk that is
                computed together.
            grad_sums (torch.Tensor): The gradient of the sums, ``[G, H, M, W]``.
            grad_squares (torch.Tensor, optional): The gradient of the sums of squares, ``[G, H]``.
        """
        inputs, graphs = self.inputs, grad_sums.size(0)
        transposed = grad_sums.transpose(2, 3).contiguous()
        for nodes in chunks:
            x, k, value_x, v = self.evaluate(nodes, graphs)
            mask = mask_of(inputs, nodes, graphs)
            map_input, _, log, value = self.log_features(k)
            feature = self.weighed(log, value, nodes, maximum)
            grad_columns = feature @ grad_sums  # [G, H, n, W]
            if self.grad_mask is not None:
                grad_mask = inner(grad_columns, v, inputs.rank())
                grad_mask.add_(grad_columns[..., -inputs.rank() :])
                self.grad_mask[nodes] = grad_mask.sum(1).flatten(0, 1)
            one = v.new_ones(()).expand(*v.shape[:-1], 1)
            columns = spread(v, one, mask)
            grad_feature = grad_key_features(
                inputs, columns, transposed, grad_columns, maximum[:, :, None]
            )
            if inputs.noise is not None:  # all samples share one key
                grad_log = (grad_feature * feature).unflatten(-1, (inputs.samples, -1)).sum(-2)
                feature, grad_feature = grad_log.new_ones(()), grad_log
            grad_map_input = inputs.map.vjp(
                map_input, inputs.projection, inputs.power, True, feature, grad_feature
            )
            grad_k = self.head_grad.add(k, grad_map_input)
            if grad_squares is not None:
                grad_square = grad_squares[..., None, None]
                # keys may be infinite
                product = torch.where(grad_square == 0, 0, k * grad_square)
                grad_k.add_(product, alpha=2)
            grad_v = fold(grad_columns, mask, inputs.rank())
            self.collect(nodes, x, join(grad_k), value_x, join(grad_v))

    def collect(
        self, nodes: Nodes, x: Tensor, grad_k: Tensor, value_x: Tensor, grad_v: Tensor
    ) -> None:
        r"""Adds the gradients of input, weight and bias of the keys and values at the positions
        :obj:`nodes`.

        :obj:`x` and :obj:`value_x` are the inputs as :meth:`Keys.flat` returns them. :obj:`grad_k`
        ``[n, H * C]`` and :obj:`grad_v` ``[n, H * D]`` are the gradients of keys and values.
        """
        if self.joint:
            self.grad.add(nodes, x, torch.cat([grad_k, grad_v], 1))
        else:
            self.grad.add(nodes, x, grad_k)
            self.value_grad.add(nodes, value_x, grad_v)

    def result(self) -> dict[str, Tensor | None]:
        r"""Returns the gradients of the keys by name: x, weight, bias, mask and head_projection,
        :obj:`None` where there is none. The gradient of x is also :obj:`None` if it was added to
        the gradient of the queries."""
        widths = self.widths if self.joint else self.widths[:1]
        weight, bias = self.grad.parameters(*widths)[:2]
        x = None if self.shared else self.grad.x.to(self.inputs.x.dtype)
        return {
            'x': x,
            'weight': weight,
            'bias': bias,
            'mask': self.grad_mask,
            'head_projection': self.head_grad.result(),
        }

    def value_result(self) -> dict[str, Tensor | None]:
        r"""Returns the gradients of the values by name: x, weight and bias, :obj:`None` where
        there is none. The gradient of x is also :obj:`None` if it was added to the gradient of
        the keys."""
        widths = self.widths if self.joint else self.widths[1:]
        weight, bias = self.value_grad.parameters(*widths)[-2:]
        shared = self.values.x is self.inputs.x
        x = None if shared else self.value_grad.x.to(self.values.x.dtype)
        return {'x': x, 'weight': weight, 'bias': bias}
