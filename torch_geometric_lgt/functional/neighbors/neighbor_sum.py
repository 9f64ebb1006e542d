# N nodes (N_s source, N_t target), E edges, H heads, C channels per head.
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula
from torch_geometric.utils import degree as counts
from torch_geometric.utils import scatter

from torch_geometric_lgt.functional._engine.custom_op import call, differentiable, given, operator
from torch_geometric_lgt.functional.neighbors.edge_sums import products, sums
from torch_geometric_lgt.functional.neighbors.edges import NO_ROWS, ROWS, SortedEdges, given_rows
from torch_geometric_lgt.functional.tracing import may_read_values
from torch_geometric_lgt.typing import PairTensor

EDGES = f'Tensor x, Tensor edge_index, Tensor weight, SymInt num_targets, bool learned, {ROWS}'


def neighbor_sum(x: Tensor, edges: Tensor | SortedEdges, weight: Tensor, num_targets: int) -> Tensor:
    r"""The weighted sums over the neighbours

    .. math::
        \mathbf{h}_i = \sum_{(j, i) \in \mathcal{E}} w_{ji} \, \mathbf{x}_j

    head by head, as products with a sparse matrix: nothing of the size ``[E, C]`` is kept. Edges that occur again count again.

    Args:
        x (torch.Tensor): ``[N_s, H * C]``.
        edges (torch.Tensor or SortedEdges): ``[2, E]``, sources and targets, in int64.
        weight (torch.Tensor): ``[E, H]``.
        num_targets (int): :math:`N_t`.

    Returns:
        ``[N_t, H * C]``
    """
    edge_index, rows = (edges.edge_index, edges.rows()) if isinstance(edges, SortedEdges) else (edges, NO_ROWS)
    return call(_sum, x, edge_index, weight, num_targets, weight.requires_grad, *rows)


def symmetric_weight(
    edge_index: Tensor,
    num_src: int,
    num_dst: int,
    dtype: torch.dtype,
    degree: Tensor | PairTensor | None = None,
    edge_weight: Tensor | None = None,
) -> Tensor:
    r"""``[E, 1]``: :math:`w_{ji} / \sqrt{d_j d_i}` with the out-degrees of the sources and the in-degrees of the targets, the sums of
    weights (default: 1 each), summed up here unless they are given: those of a graph of which these edges are a part. As in PyG's
    :meth:`gcn_norm`, where weights add up to 0 the edges get 0, and where they add up to less NaN.

    Raises:
        ValueError: If :obj:`degree` has not one number for each node, or a node with edges has degree 0.
    """
    weight = None if edge_weight is None else edge_weight.to(dtype)
    if degree is None:
        pair = [weighted_degree(ids, num, dtype, weight) for ids, num in zip(edge_index, (num_src, num_dst), strict=True)]
    else:
        pair = degree if isinstance(degree, tuple) else (degree, degree)
        _check_degrees(pair, (num_src, num_dst))
        _check_positive(pair, edge_index, weight)
    return weight_of_degrees(edge_index, pair, dtype, 1.0 if weight is None else weight)


def weighted_degree(ids: Tensor, num_nodes: int, dtype: torch.dtype, weight: Tensor | None) -> Tensor:
    r"""``[N]``: the sum of the weights of the edges with each of the :obj:`ids` ``[E]``, or their number."""
    return counts(ids, num_nodes, dtype) if weight is None else scatter(weight, ids, 0, num_nodes, 'sum')


def root(degree: Tensor) -> Tensor:
    r""":math:`\sqrt{d}`, and infinity without a gradient where :math:`d` is 0: what is divided by it is 0."""
    return degree.masked_fill(degree == 0, torch.inf).sqrt()


def weight_of_degrees(edge_index: Tensor, pair: Sequence[Tensor], dtype: torch.dtype, weight: Tensor | float = 1.0) -> Tensor:
    source, target = (root(part.to(dtype))[ids] for part, ids in zip(pair, edge_index, strict=True))
    return (weight / source / target)[:, None]


def _check_positive(pair: Sequence[Tensor], edge_index: Tensor, weight: Tensor | None) -> None:
    if not may_read_values() or (weight is not None and bool((weight < 0).any())):
        return
    counted = edge_index if weight is None else edge_index[:, weight != 0]
    if any(not bool((part[ids] > 0).all()) for part, ids in zip(pair, counted, strict=True)):
        raise ValueError(
            "'degree' must be at least 1 for nodes with edges (got less): give that of the graph the edges are from; "
            'NodeDegree counts no self loops'
        )


def _check_degrees(pair: Sequence[Tensor], sizes: tuple[int, int]) -> None:
    if any(part.shape != (size,) for part, size in zip(pair, sizes, strict=True)):
        shapes = [tuple(part.shape) for part in pair]
        raise ValueError(f"'degree' must hold one number per node, {sizes[0]} for sources and {sizes[1]} for targets (got {shapes})")


@operator('neighbor_sum', EDGES, 'Tensor')
def _sum(x, edge_index, weight, num_targets, _learned, *rows):
    return sums(x, given_rows(rows, edge_index, num_targets), weight)


@operator('neighbor_sum_backward', f'Tensor grad, {EDGES}', 'Tensor[]')
def _sum_backward(grad, x, edge_index, weight, _num_targets, learned, *rows):
    grad_x = sums(grad, given_rows(rows, edge_index, x.size(0), back=True), weight)
    grad_weight = products(x, grad, edge_index, weight.size(1)).to(weight.dtype) if learned else None
    return given([grad_x, grad_weight], grad)


@_sum.register_fake
def _(x, _edge_index, _weight, num_targets, *_):
    return x.new_empty((num_targets, x.shape[1]))


@_sum_backward.register_fake
def _(grad, x, _edge_index, weight, _num_targets, learned, *_):
    return given([torch.empty_like(x), torch.empty_like(weight) if learned else None], grad)


differentiable(_sum, _sum_backward, (0, 2), (0,), ())


@register_flop_formula(torch.ops.torch_geometric_lgt.neighbor_sum, get_raw=True)
def _flops(x, edge_index, *_args, **_):
    return 2 * edge_index.shape[1] * x.shape[1]


@register_flop_formula(torch.ops.torch_geometric_lgt.neighbor_sum_backward, get_raw=True)
def _backward_flops(_grad, *args, **_):
    return _flops(*args) * (1 + args[4])
