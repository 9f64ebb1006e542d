# N nodes, G graphs walked together, n nodes of each, F input width, H heads, C channels of a key, D
# of a value, M features, R rank, W = R * (D + 1) columns of the state: R times D values, then R
# weights; K samples.
import math
from typing import cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.affine import Affine, AffineGrad
from torch_geometric_lgt.functional._engine.layout import (
    Nodes,
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
    r"""``[G, H, n, W]``: :obj:`v` under each mask weight, then :obj:`last` ``[G, H, n, 1]`` under
    each."""
    if mask is None:
        return torch.cat([v, last], -1)
    rank, width = mask.size(-1), v.size(-1)
    out = v.new_empty((*v.shape[:-1], rank * (width + 1)))
    for r in range(rank):
        torch.mul(v, mask[..., r : r + 1], out=out[..., r * width : (r + 1) * width])
    torch.mul(last, mask, out=out[..., rank * width :])
    return out


def fold(columns: Tensor, mask: Tensor | None, rank: int) -> Tensor:
    r"""``[G, H, n, D]``: the values of :obj:`columns`, summed under the mask weights; the transpose
    of :meth:`spread`."""
    width = columns.size(-1) // rank - 1
    if mask is None:
        return columns[..., :width]
    total = columns[..., :width] * mask[..., :1]
    for r in range(1, rank):
        total.addcmul_(columns[..., r * width : (r + 1) * width], mask[..., r : r + 1])
    return total


def inner(columns: Tensor, v: Tensor, rank: int) -> Tensor:
    r"""``[G, H, n, R]``: the inner products of :obj:`v` with the values of :obj:`columns` under
    each mask weight."""
    return (columns[..., :-rank].unflatten(-1, (rank, -1)) * v[..., None, :]).sum(-1)


def scaled(log: Tensor | None, value: Tensor | None, maximum: Tensor) -> Tensor:
    r"""Divides the features by :math:`\exp(c)` with :math:`c` the :obj:`maximum`, that of a feature
    or that of a row. Features below the smallest normal number are 0: denormal numbers are slow."""
    if log is None:
        return cast(Tensor, value)
    feature = torch.threshold_(
        log - maximum, math.log(torch.finfo(log.dtype).tiny), -math.inf
    ).exp_()
    return feature if value is None else feature * value


def largest(log: Tensor, dim: int) -> Tensor:
    r"""Returns the maximum along a dimension, which stays, without gradient: finite where all are
    :math:`-\infty`."""
    return log.detach().amax(dim, keepdim=True).clamp_(min=neutral(log.dtype))


def sampled(log: Tensor | None, noise: Tensor | None) -> Tensor | None:
    r"""``[G, H, n, K * M]``: log-features with the log-weight of each sample added."""
    return (
        log if log is None or noise is None else (log[..., None, :] + noise[..., None]).flatten(-2)
    )


class Queries:
    r"""The query side of a call."""

    def __init__(self, side: KernelInput) -> None:
        self.side, self.affine = side, Affine(side.x, (side.weight, side.bias, side.scale))

    def features(self, nodes: Nodes, maximum: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        r"""The input ``[G * n, F]``, the queries ``[G, H, n, C]`` and their features ``[G, H, n,
        M]``, the largest exponential 1."""
        x, q = self.affine(nodes)
        q = split(q, maximum.size(0), self.side.heads)
        log, value = self.side.map.log_features(q, self.side.projection, self.side.power, None)
        if not self.side.map.is_exponential:
            return x, q, cast(Tensor, value)
        log = maximum[:, :, None] if log is None else log + maximum[:, :, None]
        return x, q, scaled(log, value, largest(log, -1))

    def read(
        self, sums: Tensor, maximum: Tensor, chunks: list[Nodes], out: Tensor, normaliser: Tensor
    ) -> None:
        r"""Writes the rows of :obj:`chunks` of :obj:`out` ``[N, H * D]`` and of its denominators
        ``[N, H]``."""
        rank = self.side.rank()
        for nodes in chunks:
            product = self.features(nodes, maximum)[2] @ sums
            mask = mask_of(self.side, nodes, sums.size(0))
            last = product[..., -rank:]
            den = last if mask is None else (last * mask).sum(-1, keepdim=True)
            own = self_value_of(self.side, nodes, sums.size(0))
            den = den if own is None else den + 1
            if own is not None or self.side.map.has_constant:
                constant = sums[:, :, :1, -1:] if own is None else 1.0
                den = without_cancellation(den, constant * rounding_share(self.side))
            inverse = inverse_of(den)
            result = (
                product[..., :-1] * inverse if mask is None else fold(product, mask * inverse, rank)
            )
            result = result if own is None else result.addcmul_(own, inverse)
            out[nodes] = join(result).to(out.dtype)
            normaliser[nodes] = join(den)


class QueryGrads(Queries):
    r"""The gradients of the query side of a call."""

    def __init__(self, side: KernelInput) -> None:
        super().__init__(side)
        self.grad = AffineGrad(self.affine)
        self.grad_mask = None if side.mask is None else torch.zeros_like(side.mask)
        self.grad_self_value = (
            None if side.self_value is None else torch.empty_like(side.self_value)
        )

    def add(
        self, sums: Tensor, maximum: Tensor, chunks: list[Nodes], normaliser: Tensor, grad: Tensor
    ) -> Tensor:
        r"""Adds those of the rows of :obj:`chunks` and returns the gradient of :obj:`sums`."""
        side, graphs = self.side, sums.size(0)
        transposed = sums.transpose(2, 3).contiguous()
        grad_sums = torch.zeros_like(
            transposed
        )  # wide by features: the faster shape of the product
        for nodes in chunks:
            x, q, feature = self.features(nodes, maximum)
            mask = mask_of(side, nodes, graphs)
            den, g = (split(take(t, nodes), graphs, side.heads) for t in (normaliser, grad))
            inverse = inverse_of(den)
            g = g * inverse
            own = self_value_of(side, nodes, graphs)
            if mask is None or self.grad_mask is None:
                read = g @ transposed[:, :, :-1]
                total = (feature * read).sum(-1, keepdim=True)
                if own is not None and self.grad_self_value is not None:
                    total += (g * own).sum(-1, keepdim=True)
                    self.grad_self_value[nodes] = join(g).to(self.grad_self_value.dtype)
                slope = total.mul_(inverse).neg_()
                columns, grad_feature = (
                    torch.cat([g, slope], -1),
                    read.addcmul_(slope, transposed[:, :, -1:]),
                )
            else:
                # the parts that the gradient of the mask sets against each other, and their sum,
                # are rounded alike
                product = feature @ sums
                parts = inner(product, g, side.rank())
                slope = -(parts * mask).sum(-1, keepdim=True) * inverse
                self.grad_mask[nodes] = (
                    parts.addcmul_(product[..., -side.rank() :], slope).sum(1).flatten(0, 1)
                )
                columns = spread(g, slope, mask)
                grad_feature = columns @ transposed
            grad_sums += columns.transpose(2, 3) @ feature
            grad_q = side.map.vjp(q, side.projection, side.power, False, feature, grad_feature)
            self.grad.add(nodes, x, join(grad_q))
        return grad_sums.transpose(2, 3)

    def result(self) -> dict[str, Tensor | None]:
        r"""Returns the gradients by name. Call it after :meth:`KeyGrads.add` of keys that share the
        input."""
        weight, bias = self.grad.parameters(self.side.heads * self.side.channels())
        x = self.grad.x.to(self.side.x.dtype)
        return {
            'x': x,
            'weight': weight,
            'bias': bias,
            'mask': self.grad_mask,
            'self_value': self.grad_self_value,
        }


class Keys:
    r"""The keys and values of a call."""

    def __init__(self, side: KernelInput, values: ValueInput) -> None:
        self.side, self.values = side, values
        self.widths = side.heads * side.channels(), side.heads * values.channels(side.heads)
        of_keys, of_values = (side.weight, side.bias, side.scale), (values.weight, values.bias, 1.0)
        alike = (side.bias is None) == (values.bias is None)
        self.joint = (
            values.x is side.x and side.weight is not None and values.weight is not None and alike
        )
        self.affine = Affine(side.x, of_keys, of_values) if self.joint else Affine(side.x, of_keys)
        self.value_affine = self.affine if self.joint else Affine(values.x, of_values)

    def flat(self, nodes: Nodes) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        r"""The input of the keys ``[G * n, F]``, the keys ``[G * n, H * C]``, the input of the
        values, the values ``[G * n, H * D]``."""
        x, k = self.affine(nodes)
        if self.joint:
            return x, k[:, : self.widths[0]], x, k[:, self.widths[0] :]
        return x, k, *self.value_affine(nodes)

    def evaluate(self, nodes: Nodes, graphs: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        r"""The same with the keys ``[G, H, n, C]`` and the values ``[G, H, n, D]``."""
        x, k, x_value, v = self.flat(nodes)
        return x, split(k, graphs, self.side.heads), x_value, split(v, graphs, self.side.heads)

    def weighed(
        self, log: Tensor | None, value: Tensor | None, nodes: Nodes, maximum: Tensor
    ) -> Tensor:
        r"""The features ``[G, H, n, K * M]`` of keys with the log-weights of the samples, divided
        by the exponential of the maximum."""
        return scaled(
            sampled(log, noise_of(self.side, nodes, maximum.size(0))), value, maximum[:, :, None]
        )

    def empty_state(self, graphs: int) -> tuple[Tensor, Tensor, Tensor]:
        r"""The sums ``[G, H, M, W]``, the maximum ``[G, H, M]`` and the sums of squares of the keys
        ``[G, H]`` of no node."""
        side, dtype = self.side, compute_dtype(self.side.x.dtype)
        start = neutral(dtype) if side.map.is_exponential else 0.0
        maximum = side.x.new_full((graphs, side.heads, side.num_features()), start, dtype=dtype)
        sums = maximum.new_zeros(
            (*maximum.shape, side.rank() * (self.values.channels(side.heads) + 1))
        )
        return sums, maximum, sums.new_zeros((graphs, side.heads))

    def build(self, graphs: int, chunks: list[Nodes]) -> tuple[Tensor, Tensor, Tensor]:
        r"""The state of :obj:`graphs` graphs, in the order of :meth:`empty_state`."""
        side = self.side
        sums, maximum, squares = self.empty_state(graphs)
        sums = sums.transpose(
            2, 3
        ).contiguous()  # wide by features: the faster shape of the product
        for nodes in chunks:
            _, k, _, v = self.evaluate(nodes, graphs)
            squared = k.square().sum(-1, keepdim=True)
            squares += squared.sum((2, 3))
            log, value = side.map.log_features(k, side.projection, side.power, squared)
            weighted = sampled(log, noise_of(side, nodes, graphs))
            if weighted is not None:
                new = torch.maximum(maximum, weighted.amax(2))
                sums *= (maximum - new).exp_()[:, :, None]
                maximum = new
            mask = mask_of(side, nodes, graphs)
            columns = spread(v, v.new_ones(()).expand(*v.shape[:-1], 1), mask)
            feature = self.weighed(log, value, nodes, maximum)
            product = columns.transpose(2, 3) @ feature
            if (
                not side.map.is_exponential and mask is None
            ):  # sums in which terms cancel: those of a product have larger rounding errors
                product[:, :, -1] = feature.sum(2)
            sums += product
        return sums.transpose(2, 3).contiguous(), maximum, squares


class KeyGrads(Keys):
    r"""The gradients of the keys and values of a call; that of the input may go to :obj:`shared`,
    where queries collect theirs."""

    def __init__(self, side: KernelInput, values: ValueInput, shared: Tensor | None = None) -> None:
        super().__init__(side, values)
        self.shared, self.grad = shared is not None, AffineGrad(self.affine, shared)
        self.value_grad = (
            self.grad
            if self.joint
            else AffineGrad(self.value_affine, self.grad.x if values.x is side.x else None)
        )
        self.grad_mask = None if side.mask is None else torch.zeros_like(side.mask)

    def add(
        self, maximum: Tensor, chunks: list[Nodes], grad_sums: Tensor, grad_squares: Tensor | None
    ) -> None:
        r"""Adds those of the nodes of :obj:`chunks`."""
        side, graphs = self.side, grad_sums.size(0)
        transposed = grad_sums.transpose(2, 3).contiguous()
        for nodes in chunks:
            x, k, x_value, v = self.evaluate(nodes, graphs)
            mask = mask_of(side, nodes, graphs)
            squared = k.square().sum(-1, keepdim=True)
            feature = self.weighed(
                *side.map.log_features(k, side.projection, side.power, squared), nodes, maximum
            )
            columns = feature @ grad_sums
            if self.grad_mask is not None:
                self.grad_mask[nodes] = (
                    inner(columns, v, side.rank())
                    .add_(columns[..., -side.rank() :])
                    .sum(1)
                    .flatten(0, 1)
                )
            one = v.new_ones(()).expand(*v.shape[:-1], 1)
            grad_feature = spread(v, one, mask) @ transposed
            if side.noise is not None:  # the samples have one key
                grad_feature = (grad_feature * feature).unflatten(-1, (side.samples, -1)).sum(-2)
                feature = grad_feature.new_ones(())
            grad_k = side.map.vjp(k, side.projection, side.power, True, feature, grad_feature)
            if grad_squares is not None:
                slope = grad_squares[..., None, None]
                grad_k.add_(torch.where(slope == 0, 0, k * slope), alpha=2)  # keys may be infinite
            self.collect(nodes, x, join(grad_k), x_value, join(fold(columns, mask, side.rank())))

    def collect(
        self, nodes: Nodes, x: Tensor, grad_k: Tensor, x_value: Tensor, grad_v: Tensor
    ) -> None:
        r"""Adds the gradients of the keys ``[G * n, H * C]`` and of the values ``[G * n, H * D]``
        to those of what makes them."""
        if self.joint:
            self.grad.add(nodes, x, torch.cat([grad_k, grad_v], 1))
        else:
            self.grad.add(nodes, x, grad_k)
            self.value_grad.add(nodes, x_value, grad_v)

    def result(self) -> dict[str, Tensor | None]:
        r"""Returns the gradients of the keys by name."""
        weight, bias = (
            self.grad.parameters(*self.widths)[:2]
            if self.joint
            else self.grad.parameters(self.widths[0])
        )
        x = None if self.shared else self.grad.x.to(self.side.x.dtype)
        return {'x': x, 'weight': weight, 'bias': bias, 'mask': self.grad_mask}

    def value_result(self) -> dict[str, Tensor | None]:
        r"""Returns the gradients of the values by name."""
        weight, bias = (
            self.grad.parameters(*self.widths)[2:]
            if self.joint
            else self.value_grad.parameters(self.widths[1])
        )
        x = None if self.values.x is self.side.x else self.value_grad.x.to(self.values.x.dtype)
        return {'x': x, 'weight': weight, 'bias': bias}
