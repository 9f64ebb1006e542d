# N nodes (N_s source, N_t target), G graphs walked together, H heads, C channels of a key, D of a value.
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from torch_geometric_lgt.functional._chunked_map import chunked_map
from torch_geometric_lgt.functional._ops import call, differentiable, operator
from torch_geometric_lgt.functional._sides import Nodes, compute_dtype, inverse_of, join, split, take
from torch_geometric_lgt.functional.segment import Segments, groups

SIDES = 'Tensor q, Tensor k, Tensor v, int heads, Tensor q_sizes, Tensor? q_order, Tensor k_sizes, Tensor? k_order'
CHUNK_ELEMENTS, MIN_ROWS = 1 << 20, 64
MAX_PAIRS = 1 << 33


def sigmoid_sums(q: Tensor, k: Tensor, v: Tensor, heads: int, sources: Segments, targets: Segments) -> tuple[Tensor, Tensor]:
    r"""The sums of DIFFormer's attention with the sigmoid kernel over the nodes of each graph,

    .. math::
        \sum_j \sigma(\mathbf{q}_i^{\top} \mathbf{k}_j) \, \mathbf{v}_j \qquad \textrm{and} \qquad
        \sum_j \sigma(\mathbf{q}_i^{\top} \mathbf{k}_j),

    in :math:`O(N^2)` time and :math:`O(N)` memory: pairs are taken block by block, in the backward pass again.

    Args:
        q (torch.Tensor): Queries ``[N_t, H * C]``.
        k (torch.Tensor): Keys ``[N_s, H * C]``.
        v (torch.Tensor): Values ``[N_s, H * D]``.
        heads (int): :math:`H`.
        sources (Segments): The graphs of the keys.
        targets (Segments): The graphs of the queries.

    Returns:
        ``[N_t, H, D]`` and ``[N_t, H, 1]``

    Raises:
        ValueError: If there are more than :math:`2^{33}` pairs.
    """
    if not torch.compiler.is_compiling():
        pairs = int((sources.sizes * targets.sizes).sum())
        if pairs > MAX_PAIRS:
            raise ValueError(f"'kernel' = 'sigmoid' compares all pairs, {pairs} of them here, of at most {MAX_PAIRS}; use 'simple'")
    sums = call(_sums, q, k, v, heads, *targets, *sources).unflatten(1, (heads, -1))
    return sums[..., :-1], sums[..., -1:]


def sigmoid_scores(q: Tensor, k: Tensor, total: Tensor, heads: int, pairs: Tensor) -> Tensor:
    r"""``[E, H]``: the weight of each pair of a key and a query, chunk by chunk, with :obj:`total` the second of :meth:`sigmoid_sums`."""
    source, target = pairs

    def score(_at: slice, q: Tensor, k: Tensor, total: Tensor) -> Tensor:
        dtype = compute_dtype(q.dtype)
        logits = (q.to(dtype) * k.to(dtype)).unflatten(1, (heads, -1)).sum(-1)
        return logits.sigmoid() * inverse_of(total.squeeze(2))

    return chunked_map(score, max(1, CHUNK_ELEMENTS // q.size(1)), [(q, target), (k, source), (total, target)])


def _blocks(q: Tensor, k: Tensor, v: Tensor, heads: int, *axes) -> Iterator[tuple[Nodes, Nodes, Tensor, Tensor, Tensor, Tensor]]:
    r"""Node positions of a block, its queries ``[G, H, n, C]``, keys, values with a 1 behind ``[G, H, n, D + 1]``, and sigmoids."""
    rows = max(MIN_ROWS, int((CHUNK_ELEMENTS / heads) ** 0.5))
    for graphs, (to, of) in groups(rows, rows, Segments(*axes[:2]), Segments(*axes[2:])):
        for nodes in to:
            query = split(take(q, nodes), graphs.numel(), heads)
            for others in of:
                key, value = (split(take(x, others), graphs.numel(), heads) for x in (k, v))
                value = torch.cat([value, value.new_ones(()).expand(*value.shape[:-1], 1)], -1)
                yield nodes, others, query, key, value, (query @ key.transpose(2, 3)).sigmoid_()


@operator('sigmoid_sums', SIDES, 'Tensor')
def _sums(q, k, v, heads, *axes):
    out = q.new_zeros((q.size(0), v.size(1) + heads), dtype=compute_dtype(q.dtype))
    for nodes, _, _, _, value, weight in _blocks(q, k, v, heads, *axes):
        out[nodes] += join(weight @ value)
    return out


@operator('sigmoid_sums_backward', f'Tensor grad, {SIDES}', 'Tensor[]')
def _sums_backward(grad, q, k, v, heads, *axes):
    grads = [torch.zeros_like(x, dtype=compute_dtype(x.dtype)) for x in (q, k, v)]
    for nodes, others, query, key, value, weight in _blocks(q, k, v, heads, *axes):
        g = split(grad[nodes], query.size(0), heads)
        grads[2][others] += join(weight.transpose(2, 3) @ g[..., :-1])
        slope = (g @ value.transpose(2, 3)).mul_(weight).mul_(1 - weight)
        grads[0][nodes] += join(slope @ key)
        grads[1][others] += join(slope.transpose(2, 3) @ query)
    return [part.to(x.dtype) for part, x in zip(grads, (q, k, v), strict=True)]


@_sums.register_fake
def _(q, _k, v, heads, *_axes):
    return q.new_empty((q.shape[0], v.shape[1] + heads), dtype=compute_dtype(q.dtype))


@_sums_backward.register_fake
def _(_grad, q, k, v, *_args):
    return [torch.empty_like(x) for x in (q, k, v)]


differentiable(_sums, _sums_backward, (0, 1, 2), (0,), ())


@register_flop_formula(torch.ops.torch_geometric_lgt.sigmoid_sums, get_raw=True)
def _flops(q, _k, v, heads, q_sizes, _q_order, k_sizes, *_args, **_):
    return 2 * int((q_sizes * k_sizes).sum()) * (q.shape[1] + v.shape[1] + heads)


@register_flop_formula(torch.ops.torch_geometric_lgt.sigmoid_sums_backward, get_raw=True)
def _backward_flops(_grad, q, _k, v, heads, q_sizes, _q_order, k_sizes, *_args, **_):
    return 2 * int((q_sizes * k_sizes).sum()) * (3 * q.shape[1] + 2 * v.shape[1] + heads)
