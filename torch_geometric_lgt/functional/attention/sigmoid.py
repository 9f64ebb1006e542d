# N nodes (N_s source, N_t target), E pairs, G graphs of a block, n and m nodes of each, H heads, C channels of a key, D of a value.
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from torch.utils.flop_counter import register_flop_formula

from torch_geometric_lgt.functional._engine.chunked import scaled
from torch_geometric_lgt.functional._engine.chunked_map import chunked_map
from torch_geometric_lgt.functional._engine.custom_op import call, differentiable, operator
from torch_geometric_lgt.functional._engine.layout import Nodes, join, split, take
from torch_geometric_lgt.functional.numerics import compute_dtype, inverse_of, neutral
from torch_geometric_lgt.functional.segment import Segments, groups
from torch_geometric_lgt.functional.tracing import may_read_values

SIDES = 'Tensor q, Tensor k, Tensor v, int heads, Tensor q_sizes, Tensor? q_order, Tensor k_sizes, Tensor? k_order'
CHUNK_ELEMENTS, MIN_ROWS = 1 << 20, 64
MAX_PAIRS = 1 << 33


def sigmoid_attention(q: Tensor, k: Tensor, v: Tensor, heads: int, sources: Segments, targets: Segments) -> tuple[Tensor, Tensor, Tensor]:
    r"""Applies DIFFormer's attention with the sigmoid kernel over the nodes of each graph,

    .. math::
        \mathbf{h}_i = \frac{\sum_j \sigma(\mathbf{q}_i^{\top} \mathbf{k}_j) \, \mathbf{v}_j}
        {\sum_j \sigma(\mathbf{q}_i^{\top} \mathbf{k}_j)}, \qquad
        c_i = \max_j \log \sigma(\mathbf{q}_i^{\top} \mathbf{k}_j), \qquad
        z_i = \sum_j \exp(\log \sigma(\mathbf{q}_i^{\top} \mathbf{k}_j) - c_i),

    in :math:`O(N^2)` time and :math:`O(N)` memory. It is a softmax of logarithms of sigmoids: the maximum :math:`c_i` of each row is
    subtracted before the exponential, so that no logit is too small. Pairs are taken block by block, in the backward pass again.

    Args:
        q (torch.Tensor): Queries ``[N_t, H * C]``.
        k (torch.Tensor): Keys ``[N_s, H * C]``.
        v (torch.Tensor): Values ``[N_s, H * D]``.
        heads (int): :math:`H`.
        sources (Segments): The graphs of the keys.
        targets (Segments): The graphs of the queries.

    Returns:
        The outputs ``[N_t, H * D]``, the maxima ``[N_t, H]``, without gradient, and the sums :math:`z_i` ``[N_t, H]``; outputs and sums
        are 0 for a query without keys.

    Raises:
        ValueError: If there are more than :math:`2^{33}` pairs.
    """
    if may_read_values():
        pairs = int((sources.sizes * targets.sizes).sum())
        if pairs > MAX_PAIRS:
            raise ValueError(f"'kernel' = 'sigmoid' compares all pairs, {pairs} of them here, of at most {MAX_PAIRS}; use 'simple'")
    out, maximum, total = call(_attend, q, k, v, heads, *targets, *sources)
    return out.to(v.dtype), maximum, total


def sigmoid_scores(q: Tensor, k: Tensor, maximum: Tensor, total: Tensor, heads: int, pairs: Tensor, same_graph: Tensor) -> Tensor:
    r"""Computes the weight ``[E, H]`` of each pair of a key and a query, chunk by chunk, 0 unless :obj:`same_graph` ``[E]``;
    :obj:`maximum` and :obj:`total` are results of :meth:`sigmoid_attention`."""
    source, target = pairs

    def score(at: slice, q: Tensor, k: Tensor, maximum: Tensor, total: Tensor, same_graph: Tensor) -> Tensor:
        dtype = compute_dtype(q.dtype)
        logits = (q.to(dtype) * k.to(dtype)).unflatten(1, (heads, -1)).sum(-1)
        log_weight = (logsigmoid(logits) - maximum).masked_fill(~same_graph[at, None], -torch.inf)
        return log_weight.exp() * inverse_of(total)

    of_targets = [(part, target) for part in (maximum, total)]
    return chunked_map(score, max(1, CHUNK_ELEMENTS // q.size(1)), [(q, target), (k, source), *of_targets], [same_graph])


def _blocks(heads: int, lengths: tuple[int, int], *axes) -> Iterator[tuple[int, Nodes, list[Nodes]]]:
    r"""Yields the number of graphs, some of their targets, and all of their sources in blocks."""
    rows = max(MIN_ROWS, int((CHUNK_ELEMENTS / heads) ** 0.5))
    for graphs, (target_chunks, source_chunks) in groups(rows, rows, lengths, Segments(*axes[:2]), Segments(*axes[2:])):
        for nodes in target_chunks:
            yield graphs.numel(), nodes, source_chunks


@operator('sigmoid_attention', SIDES, '(Tensor, Tensor, Tensor)')
def _attend(q, k, v, heads, *axes):
    out, maximum, total = _empty(q, v, heads)
    for graphs, targets, source_chunks in _blocks(heads, (q.size(0), k.size(0)), *axes):
        query = split(take(q, targets), graphs, heads)
        row_maximum = query.new_full((*query.shape[:3], 1), neutral(query.dtype))
        row_total, value_sum = torch.zeros_like(row_maximum), query.new_zeros((*query.shape[:3], v.size(1) // heads))
        for sources in source_chunks:
            key, value = (split(take(x, sources), graphs, heads) for x in (k, v))
            log_weight = logsigmoid(query @ key.transpose(2, 3))
            new_maximum = torch.maximum(row_maximum, log_weight.amax(-1, keepdim=True))
            weight, rescale = scaled(log_weight, None, new_maximum), (row_maximum - new_maximum).exp_()
            row_total = row_total * rescale + weight.sum(-1, keepdim=True)
            value_sum = value_sum * rescale + weight @ value
            row_maximum = new_maximum
        out[targets] = join(value_sum * inverse_of(row_total))
        maximum[targets], total[targets] = join(row_maximum), join(row_total)
    return out, maximum, total


@operator('sigmoid_attention_backward', f'Tensor grad, Tensor grad_total, Tensor out, Tensor maximum, Tensor total, {SIDES}', 'Tensor[]')
def _attend_backward(grad, grad_total, out, maximum, total, q, k, v, heads, *axes):
    grad_q, grad_k, grad_v = (torch.zeros_like(x, dtype=compute_dtype(x.dtype)) for x in (q, k, v))
    for graphs, targets, source_chunks in _blocks(heads, (q.size(0), k.size(0)), *axes):
        query, grad_out, grad_row, result, row_maximum, row_total = (
            split(take(x, targets), graphs, heads) for x in (q, grad, grad_total, out, maximum, total)
        )
        grad_out = grad_out * inverse_of(row_total)
        grad_row = grad_row - (grad_out * result).sum(-1, keepdim=True)
        for sources in source_chunks:
            key, value = (split(take(x, sources), graphs, heads) for x in (k, v))
            logits = query @ key.transpose(2, 3)
            weight = scaled(logsigmoid(logits), None, row_maximum)
            grad_v[sources] += join(weight.transpose(2, 3) @ grad_out)
            grad_logits = (grad_out @ value.transpose(2, 3)).add_(grad_row).mul_(weight).mul_(logits.neg_().sigmoid_())
            grad_q[targets] += join(grad_logits @ key)
            grad_k[sources] += join(grad_logits.transpose(2, 3) @ query)
    return [part.to(x.dtype) for part, x in ((grad_q, q), (grad_k, k), (grad_v, v))]


def _empty(q: Tensor, v: Tensor, heads: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""Makes the results of queries without keys."""
    dtype, num_nodes = compute_dtype(q.dtype), q.shape[0]
    maximum = q.new_full((num_nodes, heads), neutral(dtype), dtype=dtype)
    return q.new_zeros((num_nodes, v.shape[1]), dtype=dtype), maximum, torch.zeros_like(maximum)


@_attend.register_fake
def _(q, _k, v, heads, *_axes):
    return _empty(q, v, heads)


@_attend_backward.register_fake
def _(_grad, _grad_total, _out, _maximum, _total, q, k, v, *_args):
    return [torch.empty_like(x) for x in (q, k, v)]


differentiable(_attend, _attend_backward, (0, 1, 2), (0, 2), (0, 1, 2))


@register_flop_formula(torch.ops.torch_geometric_lgt.sigmoid_attention, get_raw=True)
def _flops(q, _k, v, _heads, q_sizes, _q_order, k_sizes, *_args, **_):
    return 2 * int((q_sizes * k_sizes).sum()) * (q.shape[1] + v.shape[1])


@register_flop_formula(torch.ops.torch_geometric_lgt.sigmoid_attention_backward, get_raw=True)
def _backward_flops(_grad, _grad_total, _out, _maximum, _total, q, _k, v, _heads, q_sizes, _q_order, k_sizes, *_args, **_):
    return 2 * int((q_sizes * k_sizes).sum()) * (3 * q.shape[1] + 2 * v.shape[1])
