# N nodes (N_s source, N_t target), E edges, H heads, F input width, C channels per head.
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch_geometric.utils import scatter, softmax

from torch_geometric_lgt.functional._engine.arguments import Arguments
from torch_geometric_lgt.functional._engine.custom_op import operator
from torch_geometric_lgt.functional.neighbors.edge_sums import (
    distance_grads,
    distances,
    products,
    sums,
)
from torch_geometric_lgt.functional.neighbors.edges import (
    EdgeOrders,
    Rows,
    SortedEdges,
    stored_rows,
)
from torch_geometric_lgt.functional.neighbors.neighbor_sum import weighted_degree
from torch_geometric_lgt.functional.numerics import (
    compute_dtype,
    convert,
    inverse_of,
    largest_power,
)
from torch_geometric_lgt.typing import Differentiable, DifferentiableOrNone


class EdgeAttentionArguments(Arguments):
    r"""The arguments of the operator of :meth:`edge_attention`."""

    x_src: Differentiable
    x_dst: Differentiable
    query_weight: DifferentiableOrNone
    query_bias: DifferentiableOrNone
    key_weight: DifferentiableOrNone
    key_bias: DifferentiableOrNone
    v: Differentiable
    edge_weight: DifferentiableOrNone
    edge_index: Tensor
    mask: Tensor | None
    heads: int
    orders: EdgeOrders


class DistanceArguments(Arguments):
    r"""The arguments of the operator of :meth:`edge_distances`."""

    k: Differentiable
    q: Differentiable
    edge_index: Tensor
    heads: int


def edge_attention(
    query: tuple[Tensor, Tensor | None, Tensor | None],
    key: tuple[Tensor, Tensor | None, Tensor | None],
    v: Tensor,
    edges: SortedEdges,
    mask: Tensor | None,
    heads: int,
) -> Tensor:
    r"""The softmax attention of nodes to their neighbours (Eq. 3-4 of LiteGT)

    .. math::
        \mathbf{h}_i = \sum_{j \in \mathcal{N}_i} \underset{j \in \mathcal{N}_i}{\mathrm{softmax}}
            \left(
        \frac{\mathbf{q}_i^{\top} \mathbf{k}_j}{\sqrt{C}} \right) \mathbf{v}_j, \qquad
        \mathbf{q}_i = \mathbf{W}_Q \mathbf{x}_i, \quad \mathbf{k}_j = \mathbf{W}_K \mathbf{x}_j

    of the targets in :obj:`mask`, 0 for all others. Queries are computed for these targets, keys
    for their neighbours, scores for the edges between, and nothing of the size ``[E, C]`` is kept.
    Edges that occur again count again; the weight of an edge, if there is one, multiplies its
    exponential.

    Args:
        query (tuple): Input ``[N_t, F]``, weight ``[H * C, F]`` and bias of the queries; without a
            weight the input is the queries.
        key (tuple): Input ``[N_s, F]``, weight and bias of the keys, likewise.
        v (torch.Tensor): ``[N_s, H * C]``.
        edges (SortedEdges): ``[2, E]``, sources and targets.
        mask (torch.Tensor, optional): ``[N_t]``; :obj:`None` are all targets.
        heads (int): :math:`H`.

    Returns:
        ``[N_t, H * C]``
    """
    (x_dst, query_weight, query_bias), (x_src, key_weight, key_bias) = query, key
    arguments = EdgeAttentionArguments(
        x_src=x_src,
        x_dst=x_dst,
        query_weight=query_weight,
        query_bias=query_bias,
        key_weight=key_weight,
        key_bias=key_bias,
        v=v,
        edge_weight=edges.weight,
        edge_index=edges.edge_index,
        mask=mask,
        heads=heads,
        orders=edges.orders(),
    )
    return _edge_attention(arguments)


def edge_distances(k: Tensor, q: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    r"""``[E, H]``: :math:`\|\mathbf{q}_i - \mathbf{k}_j\|_1` of each edge, head by head (Eq. 8 of
    LiteGT)."""
    return _edge_distances(DistanceArguments(k=k, q=q, edge_index=edge_index, heads=heads))


def edge_softmax(
    k: Tensor, q: Tensor, edge_index: Tensor, heads: int, edge_weight: Tensor | None = None
) -> Tensor:
    r"""``[E, H]``: the weights of :meth:`edge_attention` from keys ``[N_s, H * C]`` and queries
    ``[N_t, H * C]``."""
    if edge_weight is None:
        return softmax(_logits(k, q, edge_index, heads), edge_index[1], num_nodes=q.size(0))
    share = _softmax_share(_logits(k, q, edge_index, heads), edge_index[1], q.size(0), edge_weight)
    return share * edge_weight.to(share.dtype)[:, None]


def mean_weight(
    edge_index: Tensor,
    num_targets: int,
    dtype: torch.dtype,
    left_out: Tensor | None = None,
    edge_weight: Tensor | None = None,
) -> Tensor:
    r"""``[E, 1]``: the weight of each edge (default: 1) over the sum of those into its target, and
    0 for the targets in :obj:`left_out` ``[N_t]``, and where the sum is 0."""
    weight = None if edge_weight is None else edge_weight.to(dtype)
    total = weighted_degree(edge_index[1], num_targets, dtype, weight)
    total = total.masked_fill(
        total == 0 if left_out is None else (total == 0) | left_out, torch.inf
    )[edge_index[1]]
    return ((1.0 if weight is None else weight) / total)[:, None]


def row_normalized(
    score: Tensor, edge_index: Tensor, num_targets: int, edge_weight: Tensor | None = None
) -> Tensor:
    r"""Scores ``[E, H]``, times the weights of the edges, divided by their sum over the edges into
    a target; where that is 0, its edges have the weights of a mean."""
    score = score if edge_weight is None else score * edge_weight.to(score.dtype)[:, None]
    total = scatter(score, edge_index[1], 0, num_targets, 'sum')[edge_index[1]]
    dead = total == 0
    mean = mean_weight(edge_index, num_targets, score.dtype, edge_weight=edge_weight)
    return torch.where(dead, mean, score / total.masked_fill(dead, 1))


def _logits(k: Tensor, q: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    return products(k, q, edge_index, heads) * (q.size(1) // heads) ** -0.5


def _softmax_share(logits: Tensor, target: Tensor, num_targets: int, edge_weight: Tensor) -> Tensor:
    r"""``[E, H]``: the exponential of each edge over the weighted sum of those into its target, 0
    where all weights are 0. The maximum is that of the weighted exponentials, so that edges of
    weight 0 have no part in it."""
    weight = edge_weight.to(logits.dtype)[:, None]
    with torch.no_grad():
        top = scatter(logits + weight.log(), target, 0, num_targets, 'max')[target]
    power = (
        (logits - top.masked_fill(top == -torch.inf, 0))
        .clamp(max=largest_power(logits.dtype))
        .exp()
    )
    total = scatter(power * weight, target, 0, num_targets, 'sum')[target]
    return power * inverse_of(total)


class _Part(NamedTuple):
    r"""The targets that attend and the sources they attend to, by their ids (none: all), and the
    edges between, by their places."""

    sources: Tensor | None
    targets: Tensor | None
    edges: Tensor

    @classmethod
    def of(cls, edge_index: Tensor, mask: Tensor | None, num_sources: int) -> '_Part':
        if mask is None:
            return cls(None, None, edge_index)
        edges = edge_index[:, mask[edge_index[1]]]
        used = mask.new_zeros(num_sources)
        used[edges[0]] = True
        places = torch.stack(
            [(part.cumsum(0) - 1)[ids] for part, ids in zip((used, mask), edges, strict=True)]
        )
        return cls(used.nonzero().flatten(), mask.nonzero().flatten(), places)

    def rows(self, orders: EdgeOrders, num_targets: int, by_source: bool = False) -> Rows:
        r"""Returns the order of the edges: that of :obj:`orders` where these are all edges."""
        return stored_rows(
            orders if self.targets is None else EdgeOrders(), self.edges, num_targets, by_source
        )


def _taken(x: Tensor, nodes: Tensor | None) -> Tensor:
    return x if nodes is None else x[nodes]


def _given_back(x: Tensor, nodes: Tensor | None, like: Tensor) -> Tensor:
    x = x.to(like.dtype)
    return x if nodes is None else x.new_zeros(like.size(0), x.size(1)).index_copy_(0, nodes, x)


def _chosen(edge_weight: Tensor | None, edge_index: Tensor, mask: Tensor | None) -> Tensor | None:
    r"""The weights of the edges into the targets that attend."""
    return edge_weight if edge_weight is None or mask is None else edge_weight[mask[edge_index[1]]]


def _spread(grad: Tensor, edge_weight: Tensor, edge_index: Tensor, mask: Tensor | None) -> Tensor:
    return (
        grad
        if mask is None
        else torch.zeros_like(edge_weight).masked_scatter_(mask[edge_index[1]], grad)
    )


def _projected(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    dtype = compute_dtype(x.dtype)
    return (
        x.to(dtype)
        if weight is None
        else linear(x.to(dtype), weight.to(dtype), convert(bias, dtype))
    )


@operator(EdgeAttentionArguments, returns=('out',))
def _edge_attention(arguments: EdgeAttentionArguments) -> Tensor:
    x_src, x_dst, v, edge_index, mask = (
        arguments.x_src,
        arguments.x_dst,
        arguments.v,
        arguments.edge_index,
        arguments.mask,
    )
    part = _Part.of(edge_index, mask, x_src.size(0))
    k = _projected(_taken(x_src, part.sources), arguments.key_weight, arguments.key_bias)
    q = _projected(_taken(x_dst, part.targets), arguments.query_weight, arguments.query_bias)
    weight = edge_softmax(
        k, q, part.edges, arguments.heads, _chosen(arguments.edge_weight, edge_index, mask)
    )
    out = sums(_taken(v, part.sources), part.rows(arguments.orders, q.size(0)), weight)
    return _given_back(out, part.targets, v.new_empty(x_dst.size(0), 0))


@_edge_attention.backward(outputs=('out',))
def _(arguments: EdgeAttentionArguments, grad, _saved):
    x_src, x_dst, v = arguments.x_src, arguments.x_dst, arguments.v
    edge_weight, edge_index, mask, heads = (
        arguments.edge_weight,
        arguments.edge_index,
        arguments.mask,
        arguments.heads,
    )
    part = _Part.of(edge_index, mask, x_src.size(0))
    source, value = (_taken(x, part.sources) for x in (x_src, v))
    target, grad_out = (_taken(x, part.targets) for x in (x_dst, grad.out))
    k = _projected(source, arguments.key_weight, arguments.key_bias)
    q = _projected(target, arguments.query_weight, arguments.query_bias)
    by_target = part.rows(arguments.orders, q.size(0))
    by_source = part.rows(arguments.orders, k.size(0), by_source=True)
    edge_part = _chosen(edge_weight, edge_index, mask)
    weight = edge_softmax(k, q, part.edges, heads, edge_part)
    grad_weight = products(value, grad_out, part.edges, heads)
    grad_weight = (
        grad_weight
        - scatter(grad_weight * weight, part.edges[1], 0, q.size(0), 'sum')[part.edges[1]]
    )
    grad_edge_weight = None
    if edge_weight is not None and edge_part is not None:
        share = _softmax_share(
            _logits(k, q, part.edges, heads), part.edges[1], q.size(0), edge_part
        )
        grad_edge_weight = _spread(
            (grad_weight * share).sum(1).to(edge_weight.dtype), edge_weight, edge_index, mask
        )
    grad_score = grad_weight.mul_(weight).mul_((q.size(1) // heads) ** -0.5)
    grad_k, grad_q = sums(q, by_source, grad_score), sums(k, by_target, grad_score)
    of_keys = _projection_grads(grad_k, source, arguments.key_weight, arguments.key_bias)
    of_queries = _projection_grads(grad_q, target, arguments.query_weight, arguments.query_bias)
    return {
        'x_src': _given_back(of_keys[0], part.sources, x_src),
        'x_dst': _given_back(of_queries[0], part.targets, x_dst),
        'query_weight': of_queries[1],
        'query_bias': of_queries[2],
        'key_weight': of_keys[1],
        'key_bias': of_keys[2],
        'v': _given_back(sums(grad_out, by_source, weight), part.sources, v),
        'edge_weight': grad_edge_weight,
    }


def _projection_grads(
    grad: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    r"""Returns the gradients of the input, weight and bias of a linear part from that of its
    output."""
    if weight is None:
        return grad, None, None
    grad_weight = (grad.t() @ x.to(grad.dtype)).to(weight.dtype)
    return (
        grad @ weight.to(grad.dtype),
        grad_weight,
        None if bias is None else grad.sum(0).to(bias.dtype),
    )


@_edge_attention.fake
def _(arguments: EdgeAttentionArguments):
    return arguments.v.new_empty((arguments.x_dst.shape[0], arguments.v.shape[1]))


@operator(DistanceArguments, returns=('distance',))
def _edge_distances(arguments: DistanceArguments) -> Tensor:
    return distances(arguments.k, arguments.q, arguments.edge_index, arguments.heads)


@_edge_distances.backward(outputs=('distance',))
def _(arguments: DistanceArguments, grad, _saved):
    grad_k, grad_q = distance_grads(grad.distance, arguments.k, arguments.q, arguments.edge_index)
    return {'k': grad_k, 'q': grad_q}


@_edge_distances.fake
def _(arguments: DistanceArguments):
    k = arguments.k
    return k.new_empty(
        (arguments.edge_index.shape[1], arguments.heads), dtype=compute_dtype(k.dtype)
    )


def _attend_flops(arguments: EdgeAttentionArguments, backward: bool = False) -> int:
    x_src, x_dst, v, query_weight = (
        arguments.x_src,
        arguments.x_dst,
        arguments.v,
        arguments.query_weight,
    )
    part = _Part.of(arguments.edge_index, arguments.mask, x_src.size(0))
    sides = (x_src, part.sources, arguments.key_weight), (x_dst, part.targets, query_weight)
    projections = sum(
        2 * (x if nodes is None else nodes).size(0) * weight.numel()
        for x, nodes, weight in sides
        if weight is not None
    )
    width = x_dst.size(1) if query_weight is None else query_weight.size(0)
    score, read = (2 * part.edges.size(1) * size for size in (width, v.size(1)))
    return 3 * projections + 3 * score + 2 * read if backward else projections + score + read


def _distance_flops(arguments: DistanceArguments) -> int:
    return 2 * arguments.edge_index.shape[1] * arguments.k.shape[1]


_edge_attention.flops(_attend_flops, lambda arguments: _attend_flops(arguments, backward=True))
_edge_distances.flops(_distance_flops, _distance_flops)
