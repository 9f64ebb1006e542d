import math
from typing import Any, cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.chunked_keys import KeyGrads, Keys
from torch_geometric_lgt.functional._engine.chunked_queries import Queries, QueryGrads
from torch_geometric_lgt.functional._engine.layout import Nodes, take
from torch_geometric_lgt.functional._triton.blocks import (
    build,
    key_grads,
    query_grads,
    read,
    sums_grads,
)
from torch_geometric_lgt.functional.inputs import KernelInput
from torch_geometric_lgt.functional.numerics import neutral

SPANS = 64  # spans of nodes of a chunk: programs for each head and block of features


def precision(dtype: torch.dtype) -> str:
    r"""Returns how a kernel multiplies numbers of :obj:`dtype`. Products of float32 are computed in
    three parts with the error of float32, or in one with that of TF32 if matrix products of PyTorch
    have it (:func:`torch.set_float32_matmul_precision`). TF32 rounds as float16 does, and less than
    bfloat16."""
    is_exact = torch.backends.cuda.matmul.fp32_precision != 'tf32'
    return 'tf32x3' if dtype == torch.float32 and is_exact else 'tf32'


def power_of_2(size: int) -> int:
    r"""Returns the least power of 2 that is at least :obj:`size`, and at least 1."""
    return 1 << max(0, size - 1).bit_length()


def padded(size: int) -> int:
    r"""Returns the width of a kernel's block for :obj:`size` columns: a power of 2, at least 16."""
    return max(16, power_of_2(size))


def ceil_div(number: int, divisor: int) -> int:
    r"""Returns :obj:`number` / :obj:`divisor`, rounded up."""
    return -(-number // divisor)


class Sizes:
    r"""Computes the sizes and constants that a Triton kernel takes for one chunk (rows that are
    computed together).

    Args:
        inputs (KernelInput): How the queries or keys are computed.
        num_graphs (int): The number of graphs in the chunk, which have equal sizes.
        nodes (int): The nodes of each graph in the chunk.
        channels (int): The channels of a value per head.
    """

    def __init__(self, inputs: KernelInput, num_graphs: int, nodes: int, channels: int) -> None:
        self.num_graphs, self.heads, self.nodes = num_graphs, inputs.heads, nodes
        self.rank, self.features = inputs.rank(), inputs.num_features()
        self.counts = nodes, inputs.heads, self.features
        self.projection = cast(Tensor, inputs.projection).contiguous()
        self.constants: dict[str, Any] = {
            'C': inputs.channels(),
            'D': channels,
            'R': self.rank,
            'CP': padded(inputs.channels()),
            'DP': padded(channels),
            'MASKED': inputs.mask is not None,
            'LOG_TINY': math.log(torch.finfo(torch.float32).tiny),
            'PRECISION': precision(inputs.x.dtype),
        }
        self.least = {'LEAST': neutral(torch.float32)}
        self.padded_rank = {'RP': power_of_2(self.rank)}

    @property
    def spans(self) -> tuple[int, int]:
        r"""Returns the number of spans and the nodes of a span. A span is the part of a graph's
        nodes that one program adds up."""
        span = ceil_div(ceil_div(self.nodes, SPANS), 64) * 64
        return ceil_div(self.nodes, span), span

    @property
    def span_counts(self) -> tuple[int, int, int, int]:
        r"""Returns the numbers of nodes of a graph, of nodes of a span, of heads and of
        features."""
        return self.nodes, self.spans[1], self.heads, self.features

    def by_nodes(self, meta: dict[str, int]) -> tuple[int, int]:
        r"""Returns the launch grid with a program for each block of nodes and each head of a graph.
        :obj:`meta` has the block sizes."""
        return ceil_div(self.nodes, meta['BN']), self.num_graphs * self.heads

    def by_features(self, meta: dict[str, int]) -> tuple[int, int, int]:
        r"""Returns the launch grid with a program for each span of nodes, head of a graph, block of
        features and mask weight. :obj:`meta` has the block sizes."""
        blocks = ceil_div(self.features, meta['BM']) * self.rank
        return self.spans[0], self.num_graphs * self.heads, blocks


class FusedKeys(Keys):
    r"""Builds states (sums over all keys of a graph) of softmax features by Triton kernels, which
    store no features in memory."""

    def build(self, num_graphs: int, chunks: list[Nodes]) -> tuple[Tensor, Tensor, Tensor]:
        sums, maximum, squares = self.empty_state(num_graphs)
        for nodes in chunks:
            _, k, _, v = (part.contiguous() for part in self.flat(nodes))
            sizes = self._sizes(num_graphs, k)
            num_spans = sizes.spans[0]
            span_sums, span_maximum, span_squares = (
                part.new_empty((num_spans, *part.shape)) for part in (sums, maximum, squares)
            )
            build[sizes.by_features](
                k,
                v,
                _mask(self.inputs, nodes, k),
                sizes.projection,
                span_sums,
                span_maximum,
                span_squares,
                *sizes.span_counts,
                **sizes.constants,
                **sizes.least,
            )
            new_maximum = torch.maximum(maximum, span_maximum.amax(0))
            span_sums.mul_((span_maximum - new_maximum).exp_().unsqueeze(-1))
            sums.mul_((maximum - new_maximum).exp_().unsqueeze(-1)).add_(span_sums.sum(0))
            maximum, squares = new_maximum, squares + span_squares.sum(0)
        return sums, maximum, squares

    def _sizes(self, num_graphs: int, k: Tensor) -> Sizes:
        channels = self.values.channels(self.inputs.heads)
        return Sizes(self.inputs, num_graphs, k.size(0) // num_graphs, channels)


class FusedKeyGrads(KeyGrads, FusedKeys):
    r"""Accumulates the gradients of values and of keys with softmax features by Triton kernels."""

    def add(
        self, maximum: Tensor, chunks: list[Nodes], grad_sums: Tensor, grad_squares: Tensor | None
    ) -> None:
        inputs = self.inputs
        num_graphs = grad_sums.size(0)
        for nodes in chunks:
            x, k, value_x, v = self.flat(nodes)
            k, v = k.contiguous(), v.contiguous()
            sizes = self._sizes(num_graphs, k)
            grad_k, grad_v = torch.empty_like(k), torch.empty_like(v)
            grad_mask = k.new_empty((k.size(0), inputs.heads, inputs.rank()))
            key_grads[sizes.by_nodes](
                k,
                v,
                _mask(inputs, nodes, k),
                sizes.projection,
                maximum.contiguous(),
                grad_sums.contiguous(),
                grad_k,
                grad_v,
                grad_mask,
                *sizes.counts,
                **sizes.constants,
                **sizes.padded_rank,
            )
            if self.grad_mask is not None:
                self.grad_mask[nodes] = grad_mask.sum(1)
            if grad_squares is not None:
                grad_square = grad_squares.repeat_interleave(sizes.nodes, 0)
                grad_square = grad_square.repeat_interleave(inputs.channels(), 1)
                grad_k.addcmul_(k, grad_square, value=2)
            self.collect(nodes, x, grad_k, value_x, grad_v)


class FusedQueries(Queries):
    r"""Computes the outputs of queries with softmax features from states (sums over all keys of a
    graph). Triton kernels do it without storing features in memory."""

    def read(
        self, sums: Tensor, maximum: Tensor, chunks: list[Nodes], out: Tensor, denominators: Tensor
    ) -> None:
        for nodes in chunks:
            q = self.affine(nodes)[1].contiguous()
            sizes = self._sizes(sums, q)
            rows = q.new_empty((q.size(0), out.size(1)))
            denominator = q.new_empty((q.size(0), self.inputs.heads))
            read[sizes.by_nodes](
                q,
                _mask(self.inputs, nodes, q),
                sizes.projection,
                sums.contiguous(),
                maximum.contiguous(),
                rows,
                denominator,
                *sizes.counts,
                **sizes.constants,
                **sizes.least,
            )
            out[nodes], denominators[nodes] = rows.to(out.dtype), denominator

    def _sizes(self, sums: Tensor, q: Tensor) -> Sizes:
        num_graphs, width = sums.size(0), sums.size(3)
        channels = width // self.inputs.rank() - 1
        return Sizes(self.inputs, num_graphs, q.size(0) // num_graphs, channels)


class FusedQueryGrads(QueryGrads, FusedQueries):
    r"""Accumulates the gradients of queries with softmax features by Triton kernels."""

    def add(
        self,
        sums: Tensor,
        maximum: Tensor,
        chunks: list[Nodes],
        denominators: Tensor,
        grad_out: Tensor,
    ) -> Tensor:
        inputs = self.inputs
        sums, maximum = sums.contiguous(), maximum.contiguous()
        grad_sums = torch.zeros_like(sums)
        for nodes in chunks:
            x, q = self.affine(nodes)
            q = q.contiguous()
            sizes = self._sizes(sums, q)
            grad_rows = take(grad_out, nodes).contiguous()
            denominator = denominators[nodes].contiguous()
            mask = _mask(inputs, nodes, q)
            grad_q = torch.empty_like(q)
            grad_mask = q.new_empty((q.size(0), inputs.heads, inputs.rank()))
            row_maximum = torch.empty_like(denominator)
            grad_denominator = torch.empty_like(denominator)
            query_grads[sizes.by_nodes](
                q,
                grad_rows,
                mask,
                sizes.projection,
                sums,
                maximum,
                denominator,
                grad_q,
                grad_mask,
                row_maximum,
                grad_denominator,
                *sizes.counts,
                **sizes.constants,
                **sizes.least,
                **sizes.padded_rank,
            )
            span_grads = sums.new_empty((sizes.spans[0], *sums.shape))
            sums_grads[sizes.by_features](
                q,
                grad_rows,
                mask,
                sizes.projection,
                maximum,
                denominator,
                row_maximum,
                grad_denominator,
                span_grads,
                *sizes.span_counts,
                **sizes.constants,
            )
            grad_sums += span_grads.sum(0)
            if self.grad_mask is not None:
                self.grad_mask[nodes] = grad_mask.sum(1)
            self.grad.add(nodes, x, grad_q)
        return grad_sums


def _mask(inputs: KernelInput, nodes: Nodes, like: Tensor) -> Tensor:
    r"""Returns the mask weights ``[n, R]`` of the rows :obj:`nodes`. Without a mask it returns the
    tensor :obj:`like`, which the kernel takes as a placeholder."""
    return like if inputs.mask is None else take(inputs.mask, nodes).contiguous()
