# G graphs walked together, n nodes of each, H heads, C channels of a key, D of a value, M features,
# R rank, W = R * (D + 1).
import math
from typing import Any, cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.chunked import KeyGrads, Keys, Queries, QueryGrads
from torch_geometric_lgt.functional._engine.layout import Nodes, take
from torch_geometric_lgt.functional._engine.triton.blocks import (
    build,
    key_grads,
    query_grads,
    read,
    sums_grads,
)
from torch_geometric_lgt.functional.inputs import KernelInput
from torch_geometric_lgt.functional.numerics import neutral

SPANS = (
    64  # programs for each head and block of features among which the nodes of a chunk are divided
)
PRECISION = 'tf32x3'  # products of float32 parts with the error of float32


def power_of_2(size: int) -> int:
    r"""Returns the least power of 2 that is no smaller than :obj:`size`."""
    return 1 << max(0, size - 1).bit_length()


def padded(size: int) -> int:
    return max(16, power_of_2(size))


def ceil_div(number: int, divisor: int) -> int:
    return -(-number // divisor)


class Sizes:
    r"""What all kernels of a call are told of its sizes."""

    def __init__(self, side: KernelInput, graphs: int, nodes: int, channels: int) -> None:
        self.graphs, self.heads, self.nodes, self.rank, self.features = (
            graphs,
            side.heads,
            nodes,
            side.rank(),
            side.num_features(),
        )
        self.counts = nodes, side.heads, side.num_features()
        self.projection = cast(Tensor, side.projection).contiguous()
        self.constants: dict[str, Any] = {
            'C': side.channels(),
            'D': channels,
            'R': side.rank(),
            'CP': padded(side.channels()),
            'DP': padded(channels),
            'MASKED': side.mask is not None,
            'LOG_TINY': math.log(torch.finfo(torch.float32).tiny),
            'PRECISION': PRECISION,
        }
        self.least = {'LEAST': neutral(torch.float32)}
        self.padded_rank = {'RP': power_of_2(side.rank())}

    @property
    def spans(self) -> tuple[int, int]:
        r"""The number of spans and the nodes of each."""
        span = ceil_div(ceil_div(self.nodes, SPANS), 64) * 64
        return ceil_div(self.nodes, span), span

    def by_nodes(self, meta: dict[str, int]) -> tuple[int, int]:
        return ceil_div(self.nodes, meta['BN']), self.graphs * self.heads

    def by_features(self, meta: dict[str, int]) -> tuple[int, int, int]:
        return (
            self.spans[0],
            self.graphs * self.heads,
            ceil_div(self.features, meta['BM']) * self.rank,
        )


class FusedKeys(Keys):
    r"""The keys and values of a call with softmax features, for which nothing of the size of the
    features reaches memory."""

    def build(self, graphs: int, chunks: list[Nodes]) -> tuple[Tensor, Tensor, Tensor]:
        sums, maximum, squares = self.empty_state(graphs)
        for nodes in chunks:
            _, k, _, v = (part.contiguous() for part in self.flat(nodes))
            sizes = Sizes(
                self.side, graphs, k.size(0) // graphs, self.values.channels(self.side.heads)
            )
            count, span = sizes.spans
            parts = [
                tensor.new_empty((count, *tensor.shape)) for tensor in (sums, maximum, squares)
            ]
            mask = _mask(self.side, nodes, k)
            build[sizes.by_features](
                k,
                v,
                mask,
                sizes.projection,
                *parts,
                *_spanned(sizes, span),
                **sizes.constants,
                **sizes.least,
            )
            new = torch.maximum(maximum, parts[1].amax(0))
            shrunk = parts[0].mul_((parts[1] - new).exp_().unsqueeze(-1))
            sums = sums.mul_((maximum - new).exp_().unsqueeze(-1)).add_(shrunk.sum(0))
            maximum, squares = new, squares + parts[2].sum(0)
        return sums, maximum, squares


class FusedKeyGrads(KeyGrads, FusedKeys):
    r"""Their gradients."""

    def add(
        self, maximum: Tensor, chunks: list[Nodes], grad_sums: Tensor, grad_squares: Tensor | None
    ) -> None:
        side, graphs = self.side, grad_sums.size(0)
        for nodes in chunks:
            x, k, x_value, v = self.flat(nodes)
            k, v = k.contiguous(), v.contiguous()
            sizes = Sizes(side, graphs, k.size(0) // graphs, self.values.channels(side.heads))
            grad_k, grad_v, mask = torch.empty_like(k), torch.empty_like(v), _mask(side, nodes, k)
            grad_mask = k.new_empty((k.size(0), side.heads, side.rank()))
            tensors = (
                k,
                v,
                mask,
                sizes.projection,
                maximum.contiguous(),
                grad_sums.contiguous(),
                grad_k,
                grad_v,
                grad_mask,
            )
            key_grads[sizes.by_nodes](
                *tensors, *sizes.counts, **sizes.constants, **sizes.padded_rank
            )
            if self.grad_mask is not None:
                self.grad_mask[nodes] = grad_mask.sum(1)
            if grad_squares is not None:
                slope = grad_squares.repeat_interleave(k.size(0) // graphs, 0).repeat_interleave(
                    side.channels(), 1
                )
                grad_k.addcmul_(k, slope, value=2)
            self.collect(nodes, x, grad_k, x_value, grad_v)


class FusedQueries(Queries):
    r"""The query side of a call with softmax features."""

    def read(
        self, sums: Tensor, maximum: Tensor, chunks: list[Nodes], out: Tensor, normaliser: Tensor
    ) -> None:
        for nodes in chunks:
            q = self.affine(nodes)[1].contiguous()
            sizes = Sizes(
                self.side,
                sums.size(0),
                q.size(0) // sums.size(0),
                sums.size(3) // self.side.rank() - 1,
            )
            rows, den = (
                q.new_empty((q.size(0), out.size(1))),
                q.new_empty((q.size(0), self.side.heads)),
            )
            tensors = (
                q,
                _mask(self.side, nodes, q),
                sizes.projection,
                sums.contiguous(),
                maximum.contiguous(),
                rows,
                den,
            )
            read[sizes.by_nodes](*tensors, *sizes.counts, **sizes.constants, **sizes.least)
            out[nodes], normaliser[nodes] = rows.to(out.dtype), den


class FusedQueryGrads(QueryGrads, FusedQueries):
    r"""Its gradients."""

    def add(
        self, sums: Tensor, maximum: Tensor, chunks: list[Nodes], normaliser: Tensor, grad: Tensor
    ) -> Tensor:
        side, graphs = self.side, sums.size(0)
        sums, maximum, grad_sums = sums.contiguous(), maximum.contiguous(), torch.zeros_like(sums)
        for nodes in chunks:
            x, q = self.affine(nodes)
            q, g, den = (
                q.contiguous(),
                take(grad, nodes).contiguous(),
                normaliser[nodes].contiguous(),
            )
            sizes = Sizes(side, graphs, q.size(0) // graphs, sums.size(3) // side.rank() - 1)
            mask, grad_q, grad_mask = (
                _mask(side, nodes, q),
                torch.empty_like(q),
                q.new_empty((q.size(0), side.heads, side.rank())),
            )
            peaks, slopes = torch.empty_like(den), torch.empty_like(den)
            tensors = (
                q,
                g,
                mask,
                sizes.projection,
                sums,
                maximum,
                den,
                grad_q,
                grad_mask,
                peaks,
                slopes,
            )
            query_grads[sizes.by_nodes](
                *tensors, *sizes.counts, **sizes.constants, **sizes.least, **sizes.padded_rank
            )
            count, span = sizes.spans
            parts = sums.new_empty((count, *sums.shape))
            tensors = q, g, mask, sizes.projection, maximum, den, peaks, slopes, parts
            sums_grads[sizes.by_features](*tensors, *_spanned(sizes, span), **sizes.constants)
            grad_sums += parts.sum(0)
            if self.grad_mask is not None:
                self.grad_mask[nodes] = grad_mask.sum(1)
            self.grad.add(nodes, x, grad_q)
        return grad_sums


def _mask(side: KernelInput, nodes: Nodes, like: Tensor) -> Tensor:
    return like if side.mask is None else take(side.mask, nodes).contiguous()


def _spanned(sizes: Sizes, span: int) -> tuple[int, ...]:
    return sizes.nodes, span, sizes.heads, sizes.features
