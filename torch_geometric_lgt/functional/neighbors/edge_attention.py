# N nodes (N_s source, N_t target), E edges, H heads, F input width, C channels per head.
from torch import Tensor

from torch_geometric_lgt.functional._engine.arguments import Arguments
from torch_geometric_lgt.functional._engine.custom_op import operator
from torch_geometric_lgt.functional.inputs import LinearInput
from torch_geometric_lgt.functional.neighbors.edge_rows import (
    EdgeOrders,
    Rows,
    SortedEdges,
    stored_rows,
)
from torch_geometric_lgt.functional.neighbors.edge_sums import (
    centered,
    distance_grads,
    distances,
    products,
    recorded_products,
    recorded_sums,
    softmax_over,
    sums,
)
from torch_geometric_lgt.functional.neighbors.edge_weights import softmax_share, softmax_weight
from torch_geometric_lgt.functional.neighbors.neighbor_sum import scaled_weight
from torch_geometric_lgt.functional.neighbors.subgraph import (
    Subgraph,
    expand_rows,
    linear_flops,
    linear_grads,
    select_rows,
)
from torch_geometric_lgt.functional.numerics import (
    compute_dtype,
)
from torch_geometric_lgt.functional.tracing import is_capturing
from torch_geometric_lgt.typing import Differentiable, DifferentiableOrNone


class EdgeAttentionArguments(Arguments):
    r"""Holds the arguments of the operator behind :meth:`edge_attention`."""

    keys: LinearInput
    queries: LinearInput
    v: Differentiable
    edge_weight: DifferentiableOrNone
    edge_index: Tensor
    mask: Tensor | None
    heads: int
    orders: EdgeOrders


class LogitArguments(Arguments):
    r"""Holds the arguments of the operator behind :meth:`edge_logits`."""

    k: Differentiable
    q: Differentiable
    edge_index: Tensor
    heads: int
    orders: EdgeOrders


class DistanceArguments(Arguments):
    r"""Holds the arguments of the operator behind :meth:`edge_distances`."""

    k: Differentiable
    q: Differentiable
    edge_index: Tensor
    heads: int


def edge_attention(
    queries: LinearInput,
    keys: LinearInput,
    v: Tensor,
    edges: SortedEdges,
    mask: Tensor | None,
    heads: int,
) -> Tensor:
    r"""Computes the softmax attention of target nodes to their neighbours (Eq. 3-4 of LiteGT)

    .. math::
        \mathbf{h}_i = \sum_{j \in \mathcal{N}_i} \underset{j \in \mathcal{N}_i}{\mathrm{softmax}}
            \left(
        \frac{\mathbf{q}_i^{\top} \mathbf{k}_j}{\sqrt{C}} \right) \mathbf{v}_j, \qquad
        \mathbf{q}_i = \mathbf{W}_Q \mathbf{x}_i, \quad \mathbf{k}_j = \mathbf{W}_K \mathbf{x}_j

    Targets that :obj:`mask` leaves out have the output 0. Queries are computed for the other
    targets, keys for their neighbours and scores for the edges between. No tensor of the size
    ``[E, C]`` is stored. Repeated edges count repeatedly; the weight of an edge multiplies its
    exponential.

    Args:
        queries (LinearInput): The linear part of the queries ``[N_t, H * C]``.
        keys (LinearInput): The linear part of the keys ``[N_s, H * C]``.
        v (torch.Tensor): Values ``[N_s, H * C]``.
        edges (SortedEdges): ``[2, E]``, sources and targets, with weights if there are any.
        mask (torch.Tensor, optional): Bools ``[N_t]``, the targets that attend; :obj:`None` means
            all targets.
        heads (int): :math:`H`.

    Returns:
        ``[N_t, H * C]``
    """
    if mask is not None and is_capturing():  # the number of targets that attend is not known
        out = edge_attention(queries, keys, v, edges, None, heads)
        return out.masked_fill(~mask[:, None], 0)
    arguments = EdgeAttentionArguments(
        keys=keys,
        queries=queries,
        v=v,
        edge_weight=edges.weight,
        edge_index=edges.edge_index,
        mask=mask,
        heads=heads,
        orders=edges.orders(),
    )
    return _edge_attention(arguments)


def edge_distances(k: Tensor, q: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    r"""Computes :math:`\|\mathbf{q}_i - \mathbf{k}_j\|_1` of each edge from :math:`j` to :math:`i`,
    head by head, ``[E, H]`` (Eq. 8 of LiteGT). Keys :obj:`k` are ``[N_s, H * C]``, queries :obj:`q`
    are ``[N_t, H * C]``."""
    return _edge_distances(DistanceArguments(k=k, q=q, edge_index=edge_index, heads=heads))


def edge_logits(k: Tensor, q: Tensor, edges: SortedEdges, heads: int) -> Tensor:
    r"""Computes :math:`\mathbf{q}_i^{\top} \mathbf{k}_j / \sqrt{C}` of each edge from :math:`j` to
    :math:`i`, head by head, ``[E, H]`` (Eq. 4 of LiteGT). Keys :obj:`k` are ``[N_s, H * C]``,
    queries :obj:`q` are ``[N_t, H * C]``."""
    arguments = LogitArguments(
        k=k, q=q, edge_index=edges.edge_index, heads=heads, orders=edges.orders()
    )
    return _edge_logits(arguments)


def _logits(k: Tensor, q: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    r"""Computes :meth:`edge_logits` of the edges :obj:`edge_index` ``[2, E]`` within an operator,
    because kernels record no gradients."""
    return products(k, q, edge_index, heads) * (q.size(1) // heads) ** -0.5


def _softmax(
    k: Tensor, q: Tensor, edges: Tensor, rows: Rows, heads: int, edge_weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    r"""Computes the weights of :meth:`edge_attention`: the softmax of the scores over the edges
    into each target. Also returns their quotients by the weights of the edges, both ``[E, H]``.
    :obj:`edges` ``[2, E]`` are sorted by target in :obj:`rows`, and :obj:`edge_weight` ``[E]``
    multiplies the exponentials."""
    logits = _logits(k, q, edges, heads)
    if edge_weight is None:
        weight = softmax_over(logits, edges[1], rows)
        return weight, weight
    share = softmax_share(logits, edges[1], q.size(0), edge_weight)
    return scaled_weight(share, edge_weight), share


@operator(EdgeAttentionArguments, returns=('out',))
def _edge_attention(arguments: EdgeAttentionArguments) -> Tensor:
    v, edge_index, mask = arguments.v, arguments.edge_index, arguments.mask
    part = Subgraph.into(edge_index, mask, arguments.keys.x.size(0))
    queries, keys = part.select(arguments.queries, arguments.keys)
    q, k = queries.output(), keys.output()
    edge_weight = arguments.edge_weight
    edge_weight = None if edge_weight is None else select_rows(edge_weight, part.edge_ids)
    by_target = part.rows(arguments.orders, q.size(0))
    weight, _ = _softmax(k, q, part.edges, by_target, arguments.heads, edge_weight)
    out = sums(select_rows(v, part.sources), by_target, weight)
    return expand_rows(out, part.targets, v.new_empty(arguments.queries.x.size(0), 0))


@_edge_attention.backward(outputs=('out',))
def _(arguments: EdgeAttentionArguments, grad, _saved):
    v, heads = arguments.v, arguments.heads
    edge_weight, edge_index = arguments.edge_weight, arguments.edge_index
    mask = arguments.mask
    part = Subgraph.into(edge_index, mask, arguments.keys.x.size(0))
    target = part.edges[1]
    value, grad_out = select_rows(v, part.sources), select_rows(grad.out, part.targets)
    queries, keys = part.select(arguments.queries, arguments.keys)
    q, k = queries.output(), keys.output()
    by_target = part.rows(arguments.orders, q.size(0))
    by_source = part.rows(arguments.orders, k.size(0), by_source=True)
    part_weight = None if edge_weight is None else select_rows(edge_weight, part.edge_ids)
    weight, share = _softmax(k, q, part.edges, by_target, heads, part_weight)
    grad_weight = products(value, grad_out, part.edges, heads)
    grad_weight = centered(grad_weight, weight, target, by_target)
    grad_edge_weight = None
    if edge_weight is not None:
        grad_edge_weight = expand_rows((grad_weight * share).sum(1), part.edge_ids, edge_weight)
    grad_score = grad_weight.mul_(weight).mul_((q.size(1) // heads) ** -0.5)
    grad_k, grad_q = sums(q, by_source, grad_score), sums(k, by_target, grad_score)
    return {
        'queries': linear_grads(grad_q, queries, part.targets, arguments.queries.x),
        'keys': linear_grads(grad_k, keys, part.sources, arguments.keys.x),
        'v': expand_rows(sums(grad_out, by_source, weight), part.sources, v),
        'edge_weight': grad_edge_weight,
    }


@_edge_attention.formula
def _(arguments: EdgeAttentionArguments, _saved):
    edge_index, heads, mask = arguments.edge_index, arguments.heads, arguments.mask
    q, k = arguments.queries.output(), arguments.keys.output()
    logits = recorded_products(k, q, edge_index, heads) * (q.size(1) // heads) ** -0.5
    weight = softmax_weight(logits, edge_index, q.size(0), arguments.edge_weight)
    out = recorded_sums(arguments.v, edge_index, weight, q.size(0))
    return (out if mask is None else out.masked_fill(~mask[:, None], 0),)


@_edge_attention.fake
def _(arguments: EdgeAttentionArguments):
    return arguments.v.new_empty((arguments.queries.x.shape[0], arguments.v.shape[1]))


@operator(LogitArguments, returns=('logits',))
def _edge_logits(arguments: LogitArguments) -> Tensor:
    return _logits(arguments.k, arguments.q, arguments.edge_index, arguments.heads)


@_edge_logits.backward(outputs=('logits',))
def _(arguments: LogitArguments, grad, _saved):
    k, q, edge_index = arguments.k, arguments.q, arguments.edge_index
    grad_product = grad.logits * (q.size(1) // arguments.heads) ** -0.5
    by_target = stored_rows(arguments.orders, edge_index, q.size(0))
    by_source = stored_rows(arguments.orders, edge_index, k.size(0), by_source=True)
    return {'k': sums(q, by_source, grad_product), 'q': sums(k, by_target, grad_product)}


@_edge_logits.formula
def _(arguments: LogitArguments, _saved):
    q, heads = arguments.q, arguments.heads
    product = recorded_products(arguments.k, q, arguments.edge_index, heads)
    return (product * (q.size(1) // heads) ** -0.5,)


@operator(DistanceArguments, returns=('distance',))
def _edge_distances(arguments: DistanceArguments) -> Tensor:
    return distances(arguments.k, arguments.q, arguments.edge_index, arguments.heads)


@_edge_distances.backward(outputs=('distance',))
def _(arguments: DistanceArguments, grad, _saved):
    grad_k, grad_q = distance_grads(grad.distance, arguments.k, arguments.q, arguments.edge_index)
    return {'k': grad_k, 'q': grad_q}


@_edge_distances.formula
def _(arguments: DistanceArguments, _saved):
    return (distances(arguments.k, arguments.q, arguments.edge_index, arguments.heads),)


def _empty_scores(arguments: LogitArguments | DistanceArguments) -> Tensor:
    k = arguments.k
    shape = (arguments.edge_index.shape[1], arguments.heads)
    return k.new_empty(shape, dtype=compute_dtype(k.dtype))


_edge_logits.fake(_empty_scores)
_edge_distances.fake(_empty_scores)


def _attend_flops(arguments: EdgeAttentionArguments, backward: bool = False) -> int:
    queries, keys = arguments.queries, arguments.keys
    part = Subgraph.into(arguments.edge_index, arguments.mask, keys.x.size(0))
    projections = linear_flops(queries, part.targets) + linear_flops(keys, part.sources)
    widths = queries.channels(1), arguments.v.size(1)
    score, read = (2 * part.edges.size(1) * width for width in widths)
    return 3 * projections + 3 * score + 2 * read if backward else projections + score + read


def _pair_flops(arguments: LogitArguments | DistanceArguments) -> int:
    return 2 * arguments.edge_index.shape[1] * arguments.k.shape[1]


_edge_attention.flops(_attend_flops, lambda arguments: _attend_flops(arguments, backward=True))
_edge_logits.flops(_pair_flops, lambda arguments: 2 * _pair_flops(arguments))
_edge_distances.flops(_pair_flops, _pair_flops)
