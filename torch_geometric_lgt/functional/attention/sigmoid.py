# N nodes (N_s source, N_t target), E pairs, G graphs of a block, n and m nodes of each, H heads, C
# channels of a key, D of a value.
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from torch_geometric_lgt.functional._engine.arguments import Arguments
from torch_geometric_lgt.functional._engine.chunked_map import chunked_map
from torch_geometric_lgt.functional._engine.custom_op import operator
from torch_geometric_lgt.functional._engine.features import largest, scaled
from torch_geometric_lgt.functional._engine.layout import Nodes, join, split, take
from torch_geometric_lgt.functional.numerics import (
    chunk_elements,
    compute_dtype,
    inverse_of,
    neutral,
)
from torch_geometric_lgt.functional.segment import (
    Segments,
    iterate_groups,
    join_graphs,
    split_graphs,
)
from torch_geometric_lgt.functional.tracing import may_read_values
from torch_geometric_lgt.typing import Differentiable

CHUNK_ELEMENTS, MIN_ROWS = 1 << 20, 64
MAX_PAIRS = 1 << 33


class SigmoidArguments(Arguments):
    r"""Holds the arguments of the operator behind :meth:`sigmoid_attention`."""

    q: Differentiable
    k: Differentiable
    v: Differentiable
    heads: int
    targets: Segments
    sources: Segments

    def blocks(self) -> Iterator[tuple[int, Nodes, list[Nodes]]]:
        r"""Yields blocks that are computed together: the number of graphs (of equal size),
        positions of some of their targets, and a list of the positions of all their sources in
        chunks."""
        elements = chunk_elements(CHUNK_ELEMENTS, self.q.device)
        rows = max(MIN_ROWS, int((elements / self.heads) ** 0.5))
        lengths = self.q.size(0), self.k.size(0)
        for graphs, (target_chunks, source_chunks) in iterate_groups(
            rows, rows, lengths, self.targets, self.sources
        ):
            for nodes in target_chunks:
                yield graphs.numel(), nodes, source_chunks


def sigmoid_attention(
    q: Tensor, k: Tensor, v: Tensor, heads: int, sources: Segments, targets: Segments
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Computes DIFFormer's attention with the sigmoid kernel over the nodes of each graph,

    .. math::
        \mathbf{h}_i = \frac{\sum_j \sigma(\mathbf{q}_i^{\top} \mathbf{k}_j) \, \mathbf{v}_j}
        {\sum_j \sigma(\mathbf{q}_i^{\top} \mathbf{k}_j)}, \qquad
        c_i = \max_j \log \sigma(\mathbf{q}_i^{\top} \mathbf{k}_j), \qquad
        z_i = \sum_j \exp(\log \sigma(\mathbf{q}_i^{\top} \mathbf{k}_j) - c_i),

    in :math:`O(N^2)` time and :math:`O(N)` memory (`DIFFormer
    <https://arxiv.org/abs/2301.09474>`_). The maximum :math:`c_i` of each row is subtracted before
    the exponential, so that very negative logits do not vanish. Pairs are computed block by block,
    and again in the backward pass.

    Args:
        q (torch.Tensor): Queries ``[N_t, H * C]``.
        k (torch.Tensor): Keys ``[N_s, H * C]``.
        v (torch.Tensor): Values ``[N_s, H * D]``.
        heads (int): :math:`H`.
        sources (Segments): Which key belongs to which graph.
        targets (Segments): Which query belongs to which graph.

    Returns:
        The outputs ``[N_t, H * D]``, the maxima ``[N_t, H]``, without gradient, and the sums
        :math:`z_i` ``[N_t, H]``; outputs and sums are 0 for a query without keys.

    Raises:
        ValueError: If there are more than :math:`2^{33}` pairs.
    """
    if may_read_values():
        pairs = int((sources.sizes * targets.sizes).sum())
        if pairs > MAX_PAIRS:
            raise ValueError(
                f"'kernel' = 'sigmoid' compares all pairs, {pairs} of them here, of at most "
                f"{MAX_PAIRS}; use 'simple'"
            )
    arguments = SigmoidArguments(q=q, k=k, v=v, heads=heads, targets=targets, sources=sources)
    out, maximum, total = _sigmoid_attention(arguments)
    return out.to(v.dtype), maximum, total


def sigmoid_scores(
    q: Tensor,
    k: Tensor,
    maximum: Tensor,
    total: Tensor,
    heads: int,
    pairs: Tensor,
    same_graph: Tensor,
) -> Tensor:
    r"""Computes the attention weight ``[E, H]`` of each pair (source, target), some pairs at a
    time.

    Args:
        q (torch.Tensor): Queries ``[N_t, H * C]``.
        k (torch.Tensor): Keys ``[N_s, H * C]``.
        maximum (torch.Tensor): ``[N_t, H]``, as :meth:`sigmoid_attention` returns it.
        total (torch.Tensor): ``[N_t, H]``, likewise.
        heads (int): :math:`H`.
        pairs (torch.Tensor): Node ids ``[2, E]``, sources and targets.
        same_graph (torch.Tensor): Bools ``[E]``; a pair with :obj:`False` has the weight 0.
    """
    source, target = pairs

    def score(
        span: slice, q: Tensor, k: Tensor, maximum: Tensor, total: Tensor, same_graph: Tensor
    ) -> Tensor:
        dtype = compute_dtype(q.dtype)
        logits = (q.to(dtype) * k.to(dtype)).unflatten(1, (heads, -1)).sum(-1)
        log_weight = (logsigmoid(logits) - maximum).masked_fill(~same_graph[span, None], -torch.inf)
        return log_weight.exp() * inverse_of(total)

    step = max(1, chunk_elements(CHUNK_ELEMENTS, q.device) // q.size(1))
    gathered = [(q, target), (k, source), (maximum, target), (total, target)]
    return chunked_map(score, step, gathered, [same_graph])


@operator(SigmoidArguments, returns=('out', 'maximum', 'total'))
def _sigmoid_attention(arguments: SigmoidArguments) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v, heads = arguments.q, arguments.k, arguments.v, arguments.heads
    out, maximum, total = _empty(arguments)
    for graphs, targets, source_chunks in arguments.blocks():
        query = split(take(q, targets), graphs, heads)
        row_maximum = query.new_full((*query.shape[:3], 1), neutral(query.dtype))
        row_total = torch.zeros_like(row_maximum)
        value_sum = query.new_zeros((*query.shape[:3], v.size(1) // heads))
        for sources in source_chunks:
            key, value = (split(take(x, sources), graphs, heads) for x in (k, v))
            log_weight = logsigmoid(query @ key.transpose(2, 3))
            new_maximum = torch.maximum(row_maximum, log_weight.amax(-1, keepdim=True))
            weight = scaled(log_weight, None, new_maximum)
            rescale = (row_maximum - new_maximum).exp_()
            row_total = row_total * rescale + weight.sum(-1, keepdim=True)
            value_sum = value_sum * rescale + weight @ value
            row_maximum = new_maximum
        out[targets] = join(value_sum * inverse_of(row_total))
        maximum[targets], total[targets] = join(row_maximum), join(row_total)
    return out, maximum, total


@_sigmoid_attention.backward(outputs=('out', 'total'), saved=('out', 'maximum', 'total'))
def _(arguments: SigmoidArguments, grad, saved):
    q, k, v, heads = arguments.q, arguments.k, arguments.v, arguments.heads
    grad_q, grad_k, grad_v = (torch.zeros_like(x, dtype=compute_dtype(x.dtype)) for x in (q, k, v))
    target_tensors = q, grad.out, grad.total, saved.out, saved.maximum, saved.total
    for graphs, targets, source_chunks in arguments.blocks():
        query, grad_rows, grad_total, out, row_maximum, row_total = (
            split(take(x, targets), graphs, heads) for x in target_tensors
        )
        grad_numerator = grad_rows * inverse_of(row_total)
        grad_denominator = grad_total - (grad_numerator * out).sum(-1, keepdim=True)
        for sources in source_chunks:
            key, value = (split(take(x, sources), graphs, heads) for x in (k, v))
            logits = query @ key.transpose(2, 3)
            weight = scaled(logsigmoid(logits), None, row_maximum)
            grad_v[sources] += join(weight.transpose(2, 3) @ grad_numerator)
            grad_weight = (grad_numerator @ value.transpose(2, 3)).add_(grad_denominator)
            grad_logits = grad_weight.mul_(weight).mul_(logits.neg_().sigmoid_())
            grad_q[targets] += join(grad_logits @ key)
            grad_k[sources] += join(grad_logits.transpose(2, 3) @ query)
    return {'q': grad_q.to(q.dtype), 'k': grad_k.to(k.dtype), 'v': grad_v.to(v.dtype)}


@_sigmoid_attention.formula
def _(arguments: SigmoidArguments, _saved):
    targets, sources = arguments.targets, arguments.sources
    parts = [tuple(result[:0] for result in _empty(arguments))]  # the results without graphs
    queries = split_graphs(arguments.q, targets)
    keys, values = (split_graphs(x, sources) for x in (arguments.k, arguments.v))
    for q, k, v in zip(queries, keys, values, strict=True):
        query, key, value = (
            take(x, slice(None)).unflatten(1, (arguments.heads, -1)) for x in (q, k, v)
        )
        log_weight = logsigmoid(torch.einsum('ihc,jhc->ihj', query, key))
        has_keys = log_weight.size(-1) > 0
        top = largest(log_weight, -1) if has_keys else log_weight.sum(-1, keepdim=True)
        weight = scaled(log_weight, None, top)
        total = weight.sum(-1)
        out = torch.einsum('ihj,jhd->ihd', weight, value) * inverse_of(total)[..., None]
        parts.append((out.flatten(1), top.squeeze(-1), total))
    return [join_graphs(results, targets) for results in zip(*parts, strict=True)]


@_sigmoid_attention.fake
def _empty(arguments: SigmoidArguments) -> tuple[Tensor, Tensor, Tensor]:
    r"""Returns the results for queries without keys: outputs 0, maxima :meth:`neutral` and sums 0.
    It also gives the shapes of results to compiled code."""
    q = arguments.q
    num_nodes = arguments.q.shape[0]
    dtype = compute_dtype(q.dtype)
    out = q.new_zeros((num_nodes, arguments.v.shape[1]), dtype=dtype)
    maximum = q.new_full((num_nodes, arguments.heads), neutral(dtype), dtype=dtype)
    return out, maximum, torch.zeros_like(maximum)


def _num_pairs(arguments: SigmoidArguments) -> int:
    return int((arguments.targets.sizes * arguments.sources.sizes).sum())


_sigmoid_attention.flops(
    lambda arguments: 2 * _num_pairs(arguments) * (arguments.q.shape[1] + arguments.v.shape[1]),
    lambda arguments: (
        2 * _num_pairs(arguments) * (3 * arguments.q.shape[1] + 2 * arguments.v.shape[1])
    ),
)
