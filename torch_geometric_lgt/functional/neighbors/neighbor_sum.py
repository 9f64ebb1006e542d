# N nodes (N_s source, N_t target), E edges, H heads, C channels per head.
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.utils import degree as counts
from torch_geometric.utils import scatter

from torch_geometric_lgt.functional._engine.arguments import Arguments, Size
from torch_geometric_lgt.functional._engine.custom_op import operator
from torch_geometric_lgt.functional.neighbors.edge_rows import (
    EdgeOrders,
    SortedEdges,
    rows_of,
    stored_rows,
)
from torch_geometric_lgt.functional.neighbors.edge_sums import products, recorded_sums, sums
from torch_geometric_lgt.functional.tracing import is_jit_tracing, may_read_values
from torch_geometric_lgt.typing import Differentiable, DifferentiableOrNone, PairTensor


class SumArguments(Arguments):
    r"""Holds the arguments of the operator behind :meth:`neighbor_sum`. Weights are
    :obj:`learned_weight` if they get a gradient, otherwise :obj:`constant_weight`; the other one is
    :obj:`None`."""

    x: Differentiable
    edge_index: Tensor
    learned_weight: DifferentiableOrNone
    constant_weight: Tensor | None
    num_targets: Size
    orders: EdgeOrders

    @property
    def weight(self) -> Tensor:
        r"""Returns the weights ``[E, H]``, learned or constant."""
        learned, constant = self.learned_weight, self.constant_weight
        return cast(Tensor, constant if learned is None else learned)


def neighbor_sum(
    x: Tensor, edges: Tensor | SortedEdges, weight: Tensor, num_targets: int
) -> Tensor:
    r"""Computes weighted sums over the neighbours

    .. math::
        \mathbf{h}_i = \sum_{(j, i) \in \mathcal{E}} w_{ji} \, \mathbf{x}_j

    head by head, as products with a sparse matrix. No tensor of the size ``[E, C]`` is stored.
    Repeated edges count repeatedly.

    Args:
        x (torch.Tensor): ``[N_s, H * C]``.
        edges (torch.Tensor or SortedEdges): ``[2, E]``, sources and targets, in int64.
        weight (torch.Tensor): ``[E, H]``, in the order of the edges before sorting.
        num_targets (int): :math:`N_t`.

    Returns:
        ``[N_t, H * C]``
    """
    if isinstance(edges, SortedEdges):
        edge_index, orders = edges.edge_index, edges.orders()
    elif is_jit_tracing():  # which makes the sizes that an operator gets constants
        edge_index, orders = edges, EdgeOrders(*rows_of(edges, num_targets))
    else:
        edge_index, orders = edges, EdgeOrders()
    learned = weight.requires_grad or is_jit_tracing()
    arguments = SumArguments(
        x=x,
        edge_index=edge_index,
        learned_weight=weight if learned else None,
        constant_weight=None if learned else weight,
        num_targets=num_targets,
        orders=orders,
    )
    return _neighbor_sum(arguments)


def symmetric_weight(
    edge_index: Tensor,
    num_src: int,
    num_dst: int,
    dtype: torch.dtype,
    degree: Tensor | PairTensor | None = None,
    edge_weight: Tensor | None = None,
) -> Tensor:
    r"""Computes the weights :math:`w_{ji} / \sqrt{d_j d_i}` of edges, ``[E, 1]``, with the
    out-degree :math:`d_j` of the source and the in-degree :math:`d_i` of the target.

    Degrees are sums of :obj:`edge_weight` (default: 1 each). :obj:`degree` replaces them by degrees
    in a larger graph: one tensor ``[N]``, or a pair for sources and targets. Without :obj:`degree`,
    an edge gets 0 if one of its two degrees is 0 and NaN if one is negative, as in PyG's
    :meth:`gcn_norm`.

    Raises:
        ValueError: If :obj:`degree` does not have one number for each node, or is not positive for
            a node that has edges of other weights than 0.
    """
    weight = None if edge_weight is None else edge_weight.to(dtype)
    if degree is None:
        source, target = edge_index
        pair = (
            weighted_degree(source, num_src, dtype, weight),
            weighted_degree(target, num_dst, dtype, weight),
        )
    else:
        pair = degree_pair(degree)
        _check_degrees(pair, (num_src, num_dst))
        _check_positive(pair, edge_index, weight)
    return weight_of_degrees(edge_index, pair, dtype, 1.0 if weight is None else weight)


def degree_pair(degree: Any) -> PairTensor:
    r"""Returns the degrees of sources and targets; one tensor stands for both.

    Raises:
        ValueError: If :obj:`degree` is neither a tensor nor a pair of tensors.
    """
    pair = tuple(degree) if isinstance(degree, (tuple, list)) else (degree, degree)
    if len(pair) != 2 or not all(isinstance(part, Tensor) for part in pair):
        raise ValueError(
            "'degree' must be a tensor with one number for each node, or a pair of tensors with "
            f'out- and in-degrees (got {type(degree).__name__})'
        )
    return pair


def weighted_degree(
    ids: Tensor, num_nodes: int, dtype: torch.dtype, weight: Tensor | None
) -> Tensor:
    r"""Adds up the weights ``[E]`` of the edges of each node, ``[N]``; without weights it counts
    the edges. :obj:`ids` ``[E]`` says the node of each edge."""
    if weight is None:
        return counts(ids, num_nodes, dtype)
    return scatter(weight, ids, 0, num_nodes, 'sum')


def scaled_weight(weight: Tensor, factor: Tensor | None) -> Tensor:
    r"""Multiplies the weights of edges ``[E, 1]`` or ``[E, H]`` by a :obj:`factor` ``[E]`` for each
    edge, if there is one."""
    return weight if factor is None else weight * factor.to(weight.dtype)[:, None]


def root(degree: Tensor) -> Tensor:
    r"""Computes :math:`\sqrt{d}` of degrees. A degree of 0 gives infinity without a gradient: a
    number divided by it is 0."""
    return degree.masked_fill(degree == 0, torch.inf).sqrt()


def weight_of_degrees(
    edge_index: Tensor, pair: Sequence[Tensor], dtype: torch.dtype, weight: Tensor | float
) -> Tensor:
    out_degree, in_degree = pair
    source, target = edge_index
    weight = weight / root(out_degree.to(dtype))[source] / root(in_degree.to(dtype))[target]
    return weight[:, None]


def _check_positive(pair: Sequence[Tensor], edge_index: Tensor, weight: Tensor | None) -> None:
    if not may_read_values() or (weight is not None and bool((weight < 0).any())):
        return
    counted = edge_index if weight is None else edge_index[:, weight != 0]
    if any(not bool((part[ids] > 0).all()) for part, ids in zip(pair, counted, strict=True)):
        raise ValueError(
            "'degree' must be positive for nodes with edges (got less): give that of the graph "
            'the edges are from; NodeDegree counts no self loops'
        )


def _check_degrees(pair: Sequence[Tensor], sizes: tuple[int, int]) -> None:
    if any(part.shape != (size,) for part, size in zip(pair, sizes, strict=True)):
        shapes = [tuple(part.shape) for part in pair]
        raise ValueError(
            f"'degree' must hold one number per node, {sizes[0]} for sources and {sizes[1]} for "
            f'targets (got {shapes})'
        )


@operator(SumArguments, returns=('out',))
def _neighbor_sum(arguments: SumArguments) -> Tensor:
    rows = stored_rows(arguments.orders, arguments.edge_index, arguments.num_targets)
    return sums(arguments.x, rows, arguments.weight)


@_neighbor_sum.backward(outputs=('out',))
def _(arguments: SumArguments, grad, _saved):
    x, edge_index, weight = arguments.x, arguments.edge_index, arguments.weight
    rows = stored_rows(arguments.orders, edge_index, x.size(0), by_source=True)
    grad_x = sums(grad.out, rows, weight)
    if arguments.learned_weight is None:
        return {'x': grad_x}
    grad_weight = products(x, grad.out, edge_index, weight.size(1)).to(weight.dtype)
    return {'x': grad_x, 'learned_weight': grad_weight}


@_neighbor_sum.formula
def _(arguments: SumArguments, _saved):
    x, weight = arguments.x, arguments.weight
    return (recorded_sums(x, arguments.edge_index, weight, arguments.num_targets),)


@_neighbor_sum.fake
def _(arguments: SumArguments):
    return arguments.x.new_empty((arguments.num_targets, arguments.x.shape[1]))


def _flops(arguments: SumArguments) -> int:
    return 2 * arguments.edge_index.shape[1] * arguments.x.shape[1]


_neighbor_sum.flops(
    _flops, lambda arguments: _flops(arguments) * (1 if arguments.learned_weight is None else 2)
)
