# N nodes (N_s source, N_t target), E edges, H heads, F input width, C channels per head.
import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.arguments import Arguments
from torch_geometric_lgt.functional._engine.custom_op import operator
from torch_geometric_lgt.functional.inputs import LinearInput
from torch_geometric_lgt.functional.neighbors.edge_sums import factor_grads, multiplied
from torch_geometric_lgt.functional.neighbors.subgraph import (
    Subgraph,
    linear_flops,
    linear_grads,
    select_rows,
)
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.functional.tracing import is_capturing
from torch_geometric_lgt.typing import Differentiable


class EdgeScoreArguments(Arguments):
    r"""Holds the arguments of the operator behind :meth:`edge_scores`."""

    keys: LinearInput
    queries: LinearInput
    value: Differentiable
    edge_index: Tensor
    mask: Tensor | None
    heads: int
    is_distance: bool


def edge_scores(
    queries: LinearInput,
    keys: LinearInput,
    value: Tensor,
    edge_index: Tensor,
    mask: Tensor | None,
    heads: int,
    is_distance: bool,
) -> Tensor:
    r"""Computes the scores of edges with features, channel by channel, as in the layer with edge
    features of `"A Generalization of Transformer Networks to Graphs"
    <https://arxiv.org/abs/2012.09699>`_,

    .. math::
        \mathbf{s}_{ij} = \frac{\mathbf{q}_i \odot \mathbf{k}_j}{\sqrt{C}} \odot \mathbf{e}_{ij}
        \quad \text{or} \quad
        \mathbf{s}_{ij} = \frac{|\mathbf{q}_i - \mathbf{k}_j|}{\sqrt{C}} \odot \mathbf{e}_{ij}.

    Edges into targets that :obj:`mask` leaves out have the score :math:`\mathbf{e}_{ij}`. Queries
    are computed for the other targets and keys for their neighbours. The backward pass computes
    both again.

    Args:
        queries (LinearInput): The linear part of the queries ``[N_t, H * C]``.
        keys (LinearInput): The linear part of the keys ``[N_s, H * C]``.
        value (torch.Tensor): The projected features of the edges ``[E, H * C]``.
        edge_index (torch.Tensor): ``[2, E]``, sources and targets.
        mask (torch.Tensor, optional): Bools ``[N_t]``, the targets that attend; :obj:`None` means
            all targets.
        heads (int): :math:`H`.
        is_distance (bool): If :obj:`True`, absolute differences replace the products of queries
            and keys.

    Returns:
        ``[E, H * C]``, in at least single precision
    """
    if mask is not None and is_capturing():  # the number of edges with scores is not known
        score = edge_scores(queries, keys, value, edge_index, None, heads, is_distance)
        return torch.where(mask[edge_index[1]][:, None], score, value.to(score.dtype))
    arguments = EdgeScoreArguments(
        keys=keys,
        queries=queries,
        value=value,
        edge_index=edge_index,
        mask=mask,
        heads=heads,
        is_distance=is_distance,
    )
    return _edge_scores(arguments)


def _scale(arguments: EdgeScoreArguments) -> float:
    return (arguments.value.size(1) // arguments.heads) ** -0.5


@operator(EdgeScoreArguments, returns=('score',))
def _edge_scores(arguments: EdgeScoreArguments) -> Tensor:
    value = arguments.value
    part = Subgraph.into(arguments.edge_index, arguments.mask, arguments.keys.x.size(0))
    queries, keys = part.select(arguments.queries, arguments.keys)
    q, k = queries.output(), keys.output()
    edges = part.edge_ids
    scale = _scale(arguments)
    score = multiplied(k, q, select_rows(value, edges), part.edges, scale, arguments.is_distance)
    if edges is None:
        return score
    return value.to(score.dtype, copy=True).index_copy_(0, edges, score)


@_edge_scores.backward(outputs=('score',))
def _(arguments: EdgeScoreArguments, grad, _saved):
    value = arguments.value
    part = Subgraph.into(arguments.edge_index, arguments.mask, arguments.keys.x.size(0))
    queries, keys = part.select(arguments.queries, arguments.keys)
    q, k = queries.output(), keys.output()
    edges = part.edge_ids
    scale = _scale(arguments)
    grad_k, grad_q, grad_value = factor_grads(
        select_rows(grad.score, edges),
        k,
        q,
        select_rows(value, edges),
        part.edges,
        scale,
        arguments.is_distance,
    )
    if edges is not None:
        grad_value = grad.score.to(value.dtype, copy=True).index_copy_(0, edges, grad_value)
    return {
        'queries': linear_grads(grad_q, queries, part.targets, arguments.queries.x),
        'keys': linear_grads(grad_k, keys, part.sources, arguments.keys.x),
        'value': grad_value,
    }


@_edge_scores.formula
def _(arguments: EdgeScoreArguments, _saved):
    value, mask, (source, target) = arguments.value, arguments.mask, arguments.edge_index
    k, q = arguments.keys.output()[source], arguments.queries.output()[target]
    factor = (k - q).abs() if arguments.is_distance else k * q
    score = value * factor * _scale(arguments)
    return (score if mask is None else torch.where(mask[target][:, None], score, value),)


@_edge_scores.fake
def _(arguments: EdgeScoreArguments):
    value = arguments.value
    return value.new_empty(value.shape, dtype=compute_dtype(value.dtype))


def _flops(arguments: EdgeScoreArguments, backward: bool = False) -> int:
    queries, keys = arguments.queries, arguments.keys
    part = Subgraph.into(arguments.edge_index, arguments.mask, keys.x.size(0))
    projections = linear_flops(queries, part.targets) + linear_flops(keys, part.sources)
    score = 2 * part.edges.size(1) * arguments.value.size(1)
    return 3 * (projections + score) if backward else projections + score


_edge_scores.flops(_flops, lambda arguments: _flops(arguments, backward=True))
