# N nodes (N_s source, N_t target), E edges, H heads, F input width, C channels per head.
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.utils.flop_counter import register_flop_formula
from torch_geometric.utils import scatter, softmax

from torch_geometric_lgt.functional._engine.custom_op import call, differentiable, given, operator
from torch_geometric_lgt.functional.neighbors.edge_sums import distance_grads, distances, products, sums
from torch_geometric_lgt.functional.neighbors.edges import NO_ROWS, ROWS, Rows, SortedEdges, given_rows
from torch_geometric_lgt.functional.neighbors.neighbor_sum import weighted_degree
from torch_geometric_lgt.functional.numerics import compute_dtype, convert, inverse_of, largest_power

ATTENTION = 'Tensor x_src, Tensor x_dst, Tensor? q_weight, Tensor? q_bias, Tensor? k_weight, Tensor? k_bias, Tensor v'
ATTENTION += f', Tensor? edge_weight, Tensor edge_index, Tensor? mask, int heads, {ROWS}'
DISTANCE = 'Tensor k, Tensor q, Tensor edge_index, int heads'


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
        \mathbf{h}_i = \sum_{j \in \mathcal{N}_i} \underset{j \in \mathcal{N}_i}{\mathrm{softmax}} \left(
        \frac{\mathbf{q}_i^{\top} \mathbf{k}_j}{\sqrt{C}} \right) \mathbf{v}_j, \qquad
        \mathbf{q}_i = \mathbf{W}_Q \mathbf{x}_i, \quad \mathbf{k}_j = \mathbf{W}_K \mathbf{x}_j

    of the targets in :obj:`mask`, 0 for all others. Queries are computed for these targets, keys for their neighbours, scores for the edges
    between, and nothing of the size ``[E, C]`` is kept. Edges that occur again count again; the weight of an edge, if there is one,
    multiplies its exponential.

    Args:
        query (tuple): Input ``[N_t, F]``, weight ``[H * C, F]`` and bias of the queries; without a weight the input is the queries.
        key (tuple): Input ``[N_s, F]``, weight and bias of the keys, likewise.
        v (torch.Tensor): ``[N_s, H * C]``.
        edges (SortedEdges): ``[2, E]``, sources and targets.
        mask (torch.Tensor, optional): ``[N_t]``; :obj:`None` are all targets.
        heads (int): :math:`H`.

    Returns:
        ``[N_t, H * C]``
    """
    (x_dst, *q_part), (x_src, *k_part) = query, key
    return call(_attend, x_src, x_dst, *q_part, *k_part, v, edges.weight, edges.edge_index, mask, heads, *edges.rows())


def edge_distances(k: Tensor, q: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    r"""``[E, H]``: :math:`\|\mathbf{q}_i - \mathbf{k}_j\|_1` of each edge, head by head (Eq. 8 of LiteGT)."""
    return call(_distances, k, q, edge_index, heads)


def edge_softmax(k: Tensor, q: Tensor, edge_index: Tensor, heads: int, edge_weight: Tensor | None = None) -> Tensor:
    r"""``[E, H]``: the weights of :meth:`edge_attention` from keys ``[N_s, H * C]`` and queries ``[N_t, H * C]``."""
    if edge_weight is None:
        return softmax(_logits(k, q, edge_index, heads), edge_index[1], num_nodes=q.size(0))
    share = _softmax_share(_logits(k, q, edge_index, heads), edge_index[1], q.size(0), edge_weight)
    return share * edge_weight.to(share.dtype)[:, None]


def mean_weight(
    edge_index: Tensor, num_targets: int, dtype: torch.dtype, left_out: Tensor | None = None, edge_weight: Tensor | None = None
) -> Tensor:
    r"""``[E, 1]``: the weight of each edge (default: 1) over the sum of those into its target, and 0 for the targets in :obj:`left_out`
    ``[N_t]``, and where the sum is 0."""
    weight = None if edge_weight is None else edge_weight.to(dtype)
    total = weighted_degree(edge_index[1], num_targets, dtype, weight)
    total = total.masked_fill(total == 0 if left_out is None else (total == 0) | left_out, torch.inf)[edge_index[1]]
    return ((1.0 if weight is None else weight) / total)[:, None]


def row_normalized(score: Tensor, edge_index: Tensor, num_targets: int, edge_weight: Tensor | None = None) -> Tensor:
    r"""Scores ``[E, H]``, times the weights of the edges, divided by their sum over the edges into a target; where that is 0, its edges
    have the weights of a mean."""
    score = score if edge_weight is None else score * edge_weight.to(score.dtype)[:, None]
    total = scatter(score, edge_index[1], 0, num_targets, 'sum')[edge_index[1]]
    dead = total == 0
    mean = mean_weight(edge_index, num_targets, score.dtype, edge_weight=edge_weight)
    return torch.where(dead, mean, score / total.masked_fill(dead, 1))


def _logits(k: Tensor, q: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    return products(k, q, edge_index, heads) * (q.size(1) // heads) ** -0.5


def _softmax_share(logits: Tensor, target: Tensor, num_targets: int, edge_weight: Tensor) -> Tensor:
    r"""``[E, H]``: the exponential of each edge over the weighted sum of those into its target, 0 where all weights are 0. The maximum is
    that of the weighted exponentials, so that edges of weight 0 have no part in it."""
    weight = edge_weight.to(logits.dtype)[:, None]
    with torch.no_grad():
        top = scatter(logits + weight.log(), target, 0, num_targets, 'max')[target]
    power = (logits - top.masked_fill(top == -torch.inf, 0)).clamp(max=largest_power(logits.dtype)).exp()
    total = scatter(power * weight, target, 0, num_targets, 'sum')[target]
    return power * inverse_of(total)


class _Part(NamedTuple):
    r"""The targets that attend and the sources they attend to, by their ids (none: all), and the edges between, by their places."""

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
        places = torch.stack([(part.cumsum(0) - 1)[ids] for part, ids in zip((used, mask), edges, strict=True)])
        return cls(used.nonzero().flatten(), mask.nonzero().flatten(), places)

    def rows(self, rows: tuple[Tensor | None, ...], num_targets: int, back: bool = False) -> Rows:
        r"""The order of the edges: of all edges the one given."""
        return given_rows(rows if self.targets is None else NO_ROWS, self.edges, num_targets, back)


def _taken(x: Tensor, nodes: Tensor | None) -> Tensor:
    return x if nodes is None else x[nodes]


def _given_back(x: Tensor, nodes: Tensor | None, like: Tensor) -> Tensor:
    x = x.to(like.dtype)
    return x if nodes is None else x.new_zeros(like.size(0), x.size(1)).index_copy_(0, nodes, x)


def _chosen(edge_weight: Tensor | None, edge_index: Tensor, mask: Tensor | None) -> Tensor | None:
    r"""The weights of the edges into the targets that attend."""
    return edge_weight if edge_weight is None or mask is None else edge_weight[mask[edge_index[1]]]


def _spread(grad: Tensor, edge_weight: Tensor, edge_index: Tensor, mask: Tensor | None) -> Tensor:
    return grad if mask is None else torch.zeros_like(edge_weight).masked_scatter_(mask[edge_index[1]], grad)


def _projected(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    dtype = compute_dtype(x.dtype)
    return x.to(dtype) if weight is None else linear(x.to(dtype), weight.to(dtype), convert(bias, dtype))


@operator('edge_attention', ATTENTION, 'Tensor')
def _attend(x_src, x_dst, q_weight, q_bias, k_weight, k_bias, v, edge_weight, edge_index, mask, heads, *rows):
    part = _Part.of(edge_index, mask, x_src.size(0))
    k, q = _projected(_taken(x_src, part.sources), k_weight, k_bias), _projected(_taken(x_dst, part.targets), q_weight, q_bias)
    weight = edge_softmax(k, q, part.edges, heads, _chosen(edge_weight, edge_index, mask))
    out = sums(_taken(v, part.sources), part.rows(rows, q.size(0)), weight)
    return _given_back(out, part.targets, v.new_empty(x_dst.size(0), 0))


@operator('edge_attention_backward', f'Tensor grad, {ATTENTION}', 'Tensor[]')
def _attend_backward(grad, x_src, x_dst, q_weight, q_bias, k_weight, k_bias, v, edge_weight, edge_index, mask, heads, *rows):
    part = _Part.of(edge_index, mask, x_src.size(0))
    source, target, value, grad = (
        _taken(x, nodes) for x, nodes in zip((x_src, x_dst, v, grad), (part.sources, part.targets) * 2, strict=True)
    )
    k, q = _projected(source, k_weight, k_bias), _projected(target, q_weight, q_bias)
    forth, back = part.rows(rows, q.size(0)), part.rows(rows, k.size(0), back=True)
    edge_part = _chosen(edge_weight, edge_index, mask)
    weight = edge_softmax(k, q, part.edges, heads, edge_part)
    grad_v = sums(grad, back, weight)
    slope = products(value, grad, part.edges, heads)
    slope = slope - scatter(slope * weight, part.edges[1], 0, q.size(0), 'sum')[part.edges[1]]
    grad_edge = None
    if edge_weight is not None and edge_part is not None:
        share = _softmax_share(_logits(k, q, part.edges, heads), part.edges[1], q.size(0), edge_part)
        grad_edge = _spread((slope * share).sum(1).to(edge_weight.dtype), edge_weight, edge_index, mask)
    grad_score = slope.mul_(weight).mul_((q.size(1) // heads) ** -0.5)
    found = []
    for grad_y, x, weight_, bias, nodes, whole in (
        (sums(q, back, grad_score), source, k_weight, k_bias, part.sources, x_src),
        (sums(k, forth, grad_score), target, q_weight, q_bias, part.targets, x_dst),
    ):
        if weight_ is None:
            found.append((_given_back(grad_y, nodes, whole), None, None))
            continue
        grad_x = _given_back(grad_y @ weight_.to(grad_y.dtype), nodes, whole)
        grad_weight = (grad_y.t() @ x.to(grad_y.dtype)).to(weight_.dtype)
        found.append((grad_x, grad_weight, None if bias is None else grad_y.sum(0).to(bias.dtype)))
    (grad_src, grad_k, grad_k_bias), (grad_dst, grad_q, grad_q_bias) = found
    return given([grad_src, grad_dst, grad_q, grad_q_bias, grad_k, grad_k_bias, _given_back(grad_v, part.sources, v), grad_edge], grad)


@operator('edge_distances', DISTANCE, 'Tensor')
def _distances(k, q, edge_index, heads):
    return distances(k, q, edge_index, heads)


@operator('edge_distances_backward', f'Tensor grad, {DISTANCE}', 'Tensor[]')
def _distances_backward(grad, k, q, edge_index, _heads):
    return list(distance_grads(grad, k, q, edge_index))


@_attend.register_fake
def _(_x_src, x_dst, _q_weight, _q_bias, _k_weight, _k_bias, v, *_):
    return v.new_empty((x_dst.shape[0], v.shape[1]))


@_attend_backward.register_fake
def _(grad, *args):
    return given([value if value is None else torch.empty_like(value) for value in args[:8]], grad)


@_distances.register_fake
def _(k, _q, edge_index, heads):
    return k.new_empty((edge_index.shape[1], heads), dtype=compute_dtype(k.dtype))


@_distances_backward.register_fake
def _(_grad, k, q, *_):
    return [torch.empty_like(k), torch.empty_like(q)]


differentiable(_attend, _attend_backward, tuple(range(8)), (0,), ())
differentiable(_distances, _distances_backward, (0, 1), (0,), ())


def _attend_flops(args: tuple, backward: bool = False) -> int:
    x_src, x_dst, q_weight, _, k_weight, _, v, _, edge_index, mask = args[:10]
    part = _Part.of(edge_index, mask, x_src.size(0))
    sides = (x_src, part.sources, k_weight), (x_dst, part.targets, q_weight)
    projections = sum(2 * (x if nodes is None else nodes).size(0) * weight.numel() for x, nodes, weight in sides if weight is not None)
    width = x_dst.size(1) if q_weight is None else q_weight.size(0)
    score, read = (2 * part.edges.size(1) * size for size in (width, v.size(1)))
    return 3 * projections + 3 * score + 2 * read if backward else projections + score + read


@register_flop_formula(torch.ops.torch_geometric_lgt.edge_attention, get_raw=True)
def _flops(*args, **_):
    return _attend_flops(args)


@register_flop_formula(torch.ops.torch_geometric_lgt.edge_attention_backward, get_raw=True)
def _backward_flops(_grad, *args, **_):
    return _attend_flops(args, backward=True)


@register_flop_formula([torch.ops.torch_geometric_lgt.edge_distances, torch.ops.torch_geometric_lgt.edge_distances_backward], get_raw=True)
def _distance_flops(*args, **_):
    k, edge_index = args[-4], args[-2]
    return 2 * edge_index.shape[1] * k.shape[1]
