# N nodes, G graphs walked together, n nodes of each, F input width, H heads, C channels of a key, D of a value, M features, R rank,
# W = R * (D + 1) columns of the state: R times D values, then R weights.
import math
from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_lgt.functional.feature_maps import log_features, log_features_vjp
from torch_geometric_lgt.functional.segment import Segments, groups

LINEAR_KINDS = ('elu', 'relu', 'focused', 'values')
CHUNK_ELEMENTS = 1 << 17
STATE_ELEMENTS = 1 << 20


class Side(NamedTuple):
    r"""What makes queries or keys: the linear part of :obj:`x` (none: :obj:`x` itself), the feature map, and the mask weights ``[N, R]``."""

    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    mask: Tensor | None
    projection: Tensor | None
    kind: str
    scale: float
    power: float
    heads: int

    @property
    def rank(self) -> int:
        return 1 if self.mask is None else self.mask.size(1)

    @property
    def channels(self) -> int:
        return (self.x.size(1) if self.weight is None else self.weight.size(0)) // self.heads

    @property
    def num_features(self) -> int:
        if self.kind == 'softmax':
            return self.projection.size(0)  # type: ignore[union-attr]
        return 2 * self.projection.size(0) if self.kind == 'fourier' else self.channels  # type: ignore[union-attr]


class Values(NamedTuple):
    r"""What makes the values: the linear part of :obj:`x` (none: :obj:`x` itself); :obj:`x` is :obj:`None` where it is that of the keys."""

    x: Tensor | None
    weight: Tensor | None
    bias: Tensor | None


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def aligned(side: Side) -> Side:
    r"""The same side with its parameters in the dtype that the sums are computed in."""
    dtype = compute_dtype(side.x.dtype)
    weight, bias, mask, projection = (None if t is None else t.to(dtype) for t in (side.weight, side.bias, side.mask, side.projection))
    return side._replace(weight=weight, bias=bias, mask=mask, projection=projection)


def neutral(dtype: torch.dtype) -> float:
    r"""The maximum of no key: finite, so that differences of maxima stay numbers."""
    return torch.finfo(dtype).min / 4


def linear(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    return x if weight is None else torch.nn.functional.linear(x, weight, bias)


def rows(side: Side) -> int:
    return min(4096, max(64, CHUNK_ELEMENTS // (side.heads * side.num_features)))


def max_graphs(side: Side, width: int) -> int:
    return max(1, STATE_ELEMENTS // (side.heads * side.num_features * width))


def take(x: Tensor, nodes: Tensor | slice) -> Tensor:
    x = x[nodes]
    return x.to(compute_dtype(x.dtype))


def split(x: Tensor, graphs: int, heads: int) -> Tensor:
    r"""``[G * n, H * C]`` as ``[G, H, n, C]``, a view."""
    return x.view(graphs, -1, heads, x.size(1) // heads).transpose(1, 2)


def join(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.size(0) * x.size(2), -1)


def mask_of(side: Side, nodes: Tensor | slice, graphs: int) -> Tensor | None:
    r"""``[G, 1, n, R]``."""
    return None if side.mask is None else take(side.mask, nodes).view(graphs, 1, -1, side.rank)


def weighted(v: Tensor, mask: Tensor | None) -> Tensor:
    r"""``[G, H, n, W]``: the values under each mask weight, then the weights."""
    if mask is None:
        return torch.nn.functional.pad(v, (0, 1), value=1.0)
    columns = [v * mask[..., r : r + 1] for r in range(mask.size(-1))]
    return torch.cat([*columns, mask.expand(-1, v.size(1), -1, -1)], -1)


def exponential(log: Tensor, value: Tensor | None, shift: Tensor) -> Tensor:
    feature = (log - shift).clamp_(min=math.log(torch.finfo(log.dtype).tiny)).exp_()
    return feature if value is None else feature.mul(value)


def key_features(side: Side, k: Tensor, maximum: Tensor) -> Tensor:
    log, value = log_features(side.kind, k, side.projection, side.power, True)
    return value if log is None else exponential(log, value, maximum[:, :, None])  # type: ignore[return-value]


def query_features(side: Side, q: Tensor, maximum: Tensor) -> Tensor:
    log, value = log_features(side.kind, q, side.projection, side.power, False)
    if side.kind in LINEAR_KINDS:
        return value  # type: ignore[return-value]
    log = maximum[:, :, None] if log is None else log + maximum[:, :, None]
    return exponential(log, value, log.amax(-1, keepdim=True))


def value_channels(side: Side, values: Values) -> int:
    x = side.x if values.x is None else values.x
    return (x.size(1) if values.weight is None else values.weight.size(0)) // side.heads


def keys_of(side: Side, x: Tensor, graphs: int) -> Tensor:
    a = linear(x, side.weight, side.bias)
    return split(a if side.scale == 1.0 else a * side.scale, graphs, side.heads)


def build_group(side: Side, values: Values, graphs: int, chunks: list[Tensor | slice]) -> tuple[Tensor, Tensor, Tensor]:
    r"""The sums ``[G, H, M, W]``, the maximum ``[G, H, M]`` and the sums of squares of the keys ``[G, H]``."""
    dtype = compute_dtype(side.x.dtype)
    start = 0.0 if side.kind in LINEAR_KINDS else neutral(dtype)
    maximum = side.x.new_full((graphs, side.heads, side.num_features), start, dtype=dtype)
    sums = side.x.new_zeros((*maximum.shape, side.rank * (value_channels(side, values) + 1)), dtype=dtype)
    squares = sums.new_zeros((graphs, side.heads))
    for nodes in chunks:
        x = take(side.x, nodes)
        k = keys_of(side, x, graphs)
        v = split(linear(x if values.x is None else take(values.x, nodes), values.weight, values.bias), graphs, side.heads)
        squares += k.square().sum((2, 3))
        log, value = log_features(side.kind, k, side.projection, side.power, True)
        if log is None:
            feature = value
        else:
            new = torch.maximum(maximum, log.amax(2))
            sums *= (maximum - new).exp_()[..., None]
            maximum = new
            feature = exponential(log, value, maximum[:, :, None])
        sums += feature.transpose(2, 3) @ weighted(v, mask_of(side, nodes, graphs))  # type: ignore[union-attr]
    return sums, maximum, squares


def read_group(side: Side, sums: Tensor, maximum: Tensor, chunks: list[Tensor | slice], out: Tensor, normaliser: Tensor) -> None:
    r"""Writes the rows of :obj:`chunks` of :obj:`out` ``[N, H * D]`` and of its denominators ``[N, H]``."""
    graphs, width = sums.size(0), sums.size(3) // side.rank - 1
    for nodes in chunks:
        q = keys_of(side, take(side.x, nodes), graphs)
        product = query_features(side, q, maximum) @ sums
        mask = mask_of(side, nodes, graphs)
        if mask is None:
            total, den = product[..., :width], product[..., width:]
        else:
            den = (product[..., -side.rank :] * mask).sum(-1, keepdim=True)
            total = product[..., :width] * mask[..., :1]
            for r in range(1, side.rank):
                total.addcmul_(product[..., r * width : (r + 1) * width], mask[..., r : r + 1])
        result = (total / den).masked_fill_(den == 0, 0)
        out[nodes] = join(result).to(out.dtype)
        normaliser[nodes] = join(den)


def read_group_backward(
    side: Side, sums: Tensor, maximum: Tensor, chunks: list[Tensor | slice], out: Tensor, normaliser: Tensor, grad: Tensor, to: 'SideGrad'
) -> Tensor:
    r"""Adds to the gradients of the queries and returns those of :obj:`sums`."""
    graphs, rank = sums.size(0), side.rank
    width = sums.size(3) // rank - 1
    grad_sums = torch.zeros_like(sums)
    columns = [
        torch.cat([sums[..., r * width : (r + 1) * width], sums[..., rank * width + r :][..., :1]], -1).transpose(2, 3) for r in range(rank)
    ]
    for nodes in chunks:
        x = take(side.x, nodes)
        q = keys_of(side, x, graphs)
        feature = query_features(side, q, maximum)
        den = split(take(normaliser, nodes), graphs, side.heads)
        inverse = den.reciprocal().masked_fill_(den == 0, 0)
        g = split(take(grad, nodes), graphs, side.heads) * inverse
        slope = -(g * split(take(out, nodes), graphs, side.heads)).sum(-1, keepdim=True)
        mask = mask_of(side, nodes, graphs)
        both = torch.cat([g, slope], -1)
        if mask is None:
            grad_sums += feature.transpose(2, 3) @ both
            grad_feature = both @ columns[0]
        else:
            grad_sums += feature.transpose(2, 3) @ torch.cat([*(g * mask[..., r : r + 1] for r in range(rank)), slope * mask], -1)
            parts = [both @ column for column in columns]
            to.mask[nodes] = torch.cat([(part * feature).sum((1, 3)).view(-1, 1) for part in parts], 1).to(to.mask.dtype)
            grad_feature = parts[0] * mask[..., :1]
            for r in range(1, rank):
                grad_feature.addcmul_(parts[r], mask[..., r : r + 1])
        to.add(side, x, nodes, log_features_vjp(side.kind, q, side.projection, side.power, False, feature, grad_feature))
    return grad_sums


def build_group_backward(
    side: Side,
    values: Values,
    maximum: Tensor,
    chunks: list[Tensor | slice],
    grad_sums: Tensor,
    grad_squares: Tensor | None,
    to: 'SideGrad',
    to_value: 'SideGrad',
) -> None:
    graphs, rank = grad_sums.size(0), side.rank
    width = grad_sums.size(3) // rank - 1
    for nodes in chunks:
        x = take(side.x, nodes)
        x_value = x if values.x is None else take(values.x, nodes)
        k = keys_of(side, x, graphs)
        v = split(linear(x_value, values.weight, values.bias), graphs, side.heads)
        mask = mask_of(side, nodes, graphs)
        feature = key_features(side, k, maximum)
        grad_weighted = feature @ grad_sums
        grad_feature = weighted(v, mask) @ grad_sums.transpose(2, 3)
        if mask is None:
            grad_v = grad_weighted[..., :width]
        else:
            pieces = [grad_weighted[..., r * width : (r + 1) * width] for r in range(rank)]
            grad_v = pieces[0] * mask[..., :1]
            for r in range(1, rank):
                grad_v.addcmul_(pieces[r], mask[..., r : r + 1])
            grad_mask = [(pieces[r] * v).sum((1, 3)) + grad_weighted[..., rank * width + r].sum(1) for r in range(rank)]
            to.mask[nodes] = torch.stack(grad_mask, -1).view(-1, rank).to(to.mask.dtype)
        grad_k = log_features_vjp(side.kind, k, side.projection, side.power, True, feature, grad_feature)
        if grad_squares is not None:
            grad_k = grad_k + 2 * k * grad_squares[..., None, None]
        to.add(side, x, nodes, grad_k)
        to_value.add_linear(x_value, nodes, join(grad_v), values.weight)


class SideGrad:
    r"""Where the gradients of an input, its linear part and its mask are collected."""

    def __init__(
        self, x: Tensor, weight: Tensor | None, bias: Tensor | None, mask: Tensor | None, shared: 'SideGrad | None' = None
    ) -> None:
        dtype = compute_dtype(x.dtype)
        self.x = torch.zeros_like(x, dtype=dtype) if shared is None else shared.x
        self.weight = x.new_zeros(0, dtype=dtype) if weight is None else torch.zeros_like(weight)
        self.bias = x.new_zeros(0, dtype=dtype) if bias is None else torch.zeros_like(bias)
        self.mask = x.new_zeros(0) if mask is None else torch.zeros_like(mask)

    def add(self, side: Side, x: Tensor, nodes: Tensor | slice, grad: Tensor) -> None:
        grad = join(grad)
        self.add_linear(x, nodes, grad if side.scale == 1.0 else grad * side.scale, side.weight)

    def add_linear(self, x: Tensor, nodes: Tensor | slice, grad: Tensor, weight: Tensor | None) -> None:
        if weight is None:
            self.x[nodes] += grad
            return
        self.x[nodes] += grad @ weight
        self.weight.addmm_(grad.t(), x)
        if self.bias.numel() > 0:
            self.bias += grad.sum(0)


def walk(key: Side, *axes: Segments, width: int) -> list:
    return list(groups(rows(key), max_graphs(key, width), *axes))


@torch.library.custom_op('torch_geometric_lgt::build_state', mutates_args=())
def build_state(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    projection: Tensor | None,
    value: Tensor | None,
    value_weight: Tensor | None,
    value_bias: Tensor | None,
    sizes: Tensor,
    order: Tensor | None,
    kind: str,
    scale: float,
    power: float,
    heads: int,
) -> tuple[Tensor, Tensor, Tensor]:
    side, values = Side(x, weight, bias, mask, projection, kind, scale, power, heads), Values(value, value_weight, value_bias)
    sums, maximum, squares = empty_state(side, values, sizes.numel())
    for group in walk(side, Segments(sizes, order), width=sums.size(3)):
        graphs = group.graphs
        sums[graphs], maximum[graphs], squares[graphs] = build_group(side, values, graphs.numel(), group.chunks[0])
    return sums, maximum, squares


def empty_state(side: Side, values: Values, graphs: int) -> tuple[Tensor, Tensor, Tensor]:
    dtype = compute_dtype(side.x.dtype)
    start = 0.0 if side.kind in LINEAR_KINDS else neutral(dtype)
    maximum = side.x.new_full((graphs, side.heads, side.num_features), start, dtype=dtype)
    sums = side.x.new_zeros((*maximum.shape, side.rank * (value_channels(side, values) + 1)), dtype=dtype)
    return sums, maximum, sums.new_zeros((graphs, side.heads))


@build_state.register_fake
def _(x, weight, bias, mask, projection, value, value_weight, value_bias, sizes, order, kind, scale, power, heads):
    side, values = Side(x, weight, bias, mask, projection, kind, scale, power, heads), Values(value, value_weight, value_bias)
    return empty_state(side, values, sizes.shape[0])


@torch.library.custom_op('torch_geometric_lgt::build_state_backward', mutates_args=())
def build_state_backward(
    grad_sums: Tensor,
    grad_squares: Tensor,
    maximum: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    projection: Tensor | None,
    value: Tensor | None,
    value_weight: Tensor | None,
    value_bias: Tensor | None,
    sizes: Tensor,
    order: Tensor | None,
    kind: str,
    scale: float,
    power: float,
    heads: int,
) -> list[Tensor]:
    side, values = Side(x, weight, bias, mask, projection, kind, scale, power, heads), Values(value, value_weight, value_bias)
    to, to_value = key_gradients(side, values)
    for group in walk(side, Segments(sizes, order), width=grad_sums.size(3)):
        graphs = group.graphs
        build_group_backward(side, values, maximum[graphs], group.chunks[0], grad_sums[graphs], grad_squares[graphs], to, to_value)
    return key_outputs(side, to, to_value, value)


def key_gradients(side: Side, values: Values) -> tuple[SideGrad, SideGrad]:
    to = SideGrad(side.x, side.weight, side.bias, side.mask)
    if values.x is None:
        return to, SideGrad(side.x, values.weight, values.bias, None, shared=to)
    return to, SideGrad(values.x, values.weight, values.bias, None)


def key_outputs(side: Side, to: SideGrad, to_value: SideGrad, value: Tensor | None) -> list[Tensor]:
    grad_value = side.x.new_zeros(0) if value is None else to_value.x.to(value.dtype)
    return [to.x.to(side.x.dtype), to.weight, to.bias, to.mask, grad_value, to_value.weight, to_value.bias]


@build_state_backward.register_fake
def _(
    grad_sums, grad_squares, maximum, x, weight, bias, mask, projection, value, value_weight, value_bias,
    sizes, order, kind, scale, power, heads,
):  # fmt: skip
    side, values = Side(x, weight, bias, mask, projection, kind, scale, power, heads), Values(value, value_weight, value_bias)
    return key_outputs(side, *key_gradients(side, values), value)


@torch.library.custom_op('torch_geometric_lgt::read_state', mutates_args=())
def read_state(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    projection: Tensor | None,
    sums: Tensor,
    maximum: Tensor,
    sizes: Tensor,
    order: Tensor | None,
    kind: str,
    scale: float,
    power: float,
    heads: int,
) -> tuple[Tensor, Tensor]:
    side = Side(x, weight, bias, mask, projection, kind, scale, power, heads)
    out, normaliser = empty_read(side, sums)
    for group in walk(side, Segments(sizes, order), width=sums.size(3)):
        read_group(side, sums[group.graphs], maximum[group.graphs], group.chunks[0], out, normaliser)
    return out, normaliser


def empty_read(side: Side, sums: Tensor) -> tuple[Tensor, Tensor]:
    width = sums.shape[3] // side.rank - 1
    return side.x.new_empty((side.x.shape[0], side.heads * width)), sums.new_empty((side.x.shape[0], side.heads))


@read_state.register_fake
def _(x, weight, bias, mask, projection, sums, maximum, sizes, order, kind, scale, power, heads):
    return empty_read(Side(x, weight, bias, mask, projection, kind, scale, power, heads), sums)


@torch.library.custom_op('torch_geometric_lgt::read_state_backward', mutates_args=())
def read_state_backward(
    grad: Tensor,
    out: Tensor,
    normaliser: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mask: Tensor | None,
    projection: Tensor | None,
    sums: Tensor,
    maximum: Tensor,
    sizes: Tensor,
    order: Tensor | None,
    kind: str,
    scale: float,
    power: float,
    heads: int,
) -> list[Tensor]:
    side = Side(x, weight, bias, mask, projection, kind, scale, power, heads)
    to, grad_sums = SideGrad(x, weight, bias, mask), torch.zeros_like(sums)
    for group in walk(side, Segments(sizes, order), width=sums.size(3)):
        graphs = group.graphs
        grad_sums[graphs] = read_group_backward(side, sums[graphs], maximum[graphs], group.chunks[0], out, normaliser, grad, to)
    return [to.x.to(x.dtype), to.weight, to.bias, to.mask, grad_sums]


@read_state_backward.register_fake
def _(grad, out, normaliser, x, weight, bias, mask, projection, sums, maximum, sizes, order, kind, scale, power, heads):
    to = SideGrad(x, weight, bias, mask)
    return [to.x.to(x.dtype), to.weight, to.bias, to.mask, torch.zeros_like(sums)]


def present(grad: Tensor, given: Tensor | None) -> Tensor | None:
    return None if given is None else grad


def _build_setup(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[:10], output[1])
    ctx.settings = inputs[10:]
    ctx.set_materialize_grads(True)
    ctx.mark_non_differentiable(output[1])


def _build_backward(ctx, grad_sums, _grad_maximum, grad_squares):
    *inputs, maximum = ctx.saved_tensors
    grads = build_state_backward(grad_sums.contiguous(), grad_squares.contiguous(), maximum, *inputs, *ctx.settings)
    x, weight, bias, mask, _projection, value, value_weight, value_bias = inputs[:8]
    given = [x, weight, bias, mask, value, value_weight, value_bias]
    grads = [present(grad, tensor) for grad, tensor in zip(grads, given, strict=True)]
    return (*grads[:4], None, *grads[4:], *[None] * 6)


def _read_setup(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs[:9], *output)
    ctx.settings = inputs[9:]
    ctx.mark_non_differentiable(output[1])


def _read_backward(ctx, grad, _grad_normaliser):
    *inputs, out, normaliser = ctx.saved_tensors
    grads = read_state_backward(grad.contiguous(), out, normaliser, *inputs, *ctx.settings)
    *side, grad_sums = [present(grad, tensor) for grad, tensor in zip(grads, [*inputs[:4], inputs[5]], strict=True)]
    return (*side, None, grad_sums, *[None] * 7)


build_state.register_autograd(_build_backward, setup_context=_build_setup)
read_state.register_autograd(_read_backward, setup_context=_read_setup)
