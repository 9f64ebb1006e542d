# N nodes, E edges.
import numpy as np
import torch
from scipy.sparse import coo_array, csr_array, eye_array
from torch import Tensor

from torch_geometric_lgt.functional.tracing import is_tracing, is_transformed, to_list


def degrees(edge_index: Tensor, num_nodes: int) -> Tensor:
    r"""Counts the distinct neighbours of each node along edges ``[2, E]`` in either direction,
    without the node itself, ``[N]``."""
    (row, col), first = distinct_pairs(torch.cat([edge_index, edge_index.flip(0)], 1), num_nodes)
    return row.new_zeros(num_nodes).scatter_add_(0, row, (first & (row != col)).long())


def distinct_pairs(pairs: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    r"""Returns the pairs ``[2, E]`` of node ids sorted by first, then by second node, and bools
    ``[E]`` that mark the first of equal pairs. The shapes do not depend on the ids."""
    key = (pairs[0] * num_nodes + pairs[1]).sort().values
    first = key != torch.cat([key.new_full((1,), -1), key])[:-1]
    row = key // max(num_nodes, 1)
    return torch.stack([row, key - row * num_nodes]), first


def hops(edge_index: Tensor, num_nodes: int, order: int, self_loops: bool = True) -> list[Tensor]:
    r"""Returns a list with the pairs ``[2, E_p]`` (sources, targets) that paths of :math:`p` edges
    connect, for :math:`p` from 1 to :obj:`order`.

    Pairs are distinct and sorted by target. With :obj:`self_loops` shorter paths count, too, and
    each node is paired with itself. The number of pairs may grow fast with :math:`p`.

    Raises:
        ValueError: If a program with a higher order than 1 is exported.
    """
    if order > 1:
        return _paths(edge_index, num_nodes, order, self_loops)
    pairs, first = first_hop(edge_index, num_nodes, self_loops)
    return [pairs[:, first]] * order


def first_hop(edge_index: Tensor, num_nodes: int, self_loops: bool) -> tuple[Tensor, Tensor]:
    r"""Returns the edges ``[2, E]`` sorted by target, and bools ``[E]`` that mark the first of
    equal edges. With :obj:`self_loops` both include a self loop of each node: they have N more
    entries."""
    loops = torch.arange(num_nodes if self_loops else 0, device=edge_index.device).expand(2, -1)
    pairs, first = distinct_pairs(torch.cat([edge_index.flip(0), loops], 1), num_nodes)
    return pairs.flip(0), first


@torch.compiler.disable(
    reason=(
        "the pairs of 'hops' are found by SciPy; give a compiled model what its method 'hops' "
        'returns'
    )
)
def _paths(edge_index: Tensor, num_nodes: int, order: int, self_loops: bool) -> list[Tensor]:
    r"""Returns the result of :meth:`hops` for an order above 1, computed by products of the
    adjacency matrix on the CPU."""
    if is_tracing():
        raise ValueError(
            "'relational_order' must be at most 1 to be exported with edges: pass what the method "
            "'hops' returns"
        )
    row, col = _array_of(edge_index)
    adjacency = csr_array((np.ones(row.size, bool), (row, col)), shape=(num_nodes, num_nodes))
    if self_loops:
        adjacency = csr_array(adjacency + eye_array(num_nodes, dtype=bool))
    power = adjacency
    orders = []
    for p in range(order):
        power = power if p == 0 else csr_array(power @ adjacency)
        by_target = coo_array(csr_array(power.T))
        pairs = torch.from_numpy(np.stack([by_target.col, by_target.row]))
        orders.append(pairs.long().to(edge_index.device))
    return orders


def _array_of(edge_index: Tensor) -> np.ndarray:
    r"""Returns the edges ``[2, E]`` as an array, also within a transform of :mod:`torch.func`, in
    which a tensor has no memory of its own."""
    if is_transformed((edge_index,)):
        return np.array(to_list(edge_index), dtype=np.int64)
    return edge_index.cpu().numpy()


def weighted_hop(
    edge_index: Tensor, num_nodes: int, self_loops: bool, weight: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Returns edges ``[2, E]`` and weights ``[E]`` of the weighted adjacency matrix: the pairs
    that one edge connects, :math:`p = 1` in :meth:`hops`.

    If a pair of nodes has several edges, each weight is divided by their number; together they have
    the mean weight. If :obj:`self_loops`, a self loop of weight 1 is appended for each node, and
    self loops among :obj:`edge_index` get the weight 0.
    """
    source, target = edge_index
    pair = target * num_nodes + source
    known = pair.sort().values
    count = torch.searchsorted(known, pair, right=True) - torch.searchsorted(known, pair)
    weight = weight / count
    if not self_loops:
        return edge_index, weight
    loops = torch.arange(num_nodes, device=edge_index.device).expand(2, -1)
    weight = weight.masked_fill(source == target, 0)
    weight = torch.cat([weight, weight.new_ones(num_nodes)])
    return torch.cat([edge_index, loops], 1), weight


def edges_into(
    nodes: Tensor, edge_index: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    r"""Returns the edges into some nodes, ``[2, E']``, and their weights ``[E']``.

    Sources are node ids, and targets are positions in :obj:`nodes`, in which an id may occur
    several times. If :obj:`edge_index` is sorted by target, it is not sorted again.
    """
    if not bool((edge_index[1, 1:] >= edge_index[1, :-1]).all()):
        order = edge_index[1].argsort()
        edge_index, weight = edge_index[:, order], None if weight is None else weight[order]
    source, target = edge_index.contiguous()
    start = torch.searchsorted(target, nodes)
    index, edge = ranges(start, torch.searchsorted(target, nodes, right=True) - start)
    return torch.stack([source[edge], index]), None if weight is None else weight[edge]


def ranges(start: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    r"""Concatenates the integers from :math:`s` to :math:`s + l - 1` for each :math:`s` in
    :obj:`start` and :math:`l` in :obj:`length`. Returns for each integer the index of its range,
    then the integers."""
    index = torch.repeat_interleave(length)
    first = length.cumsum(0) - length
    return index, torch.arange(index.numel(), device=index.device) + (start - first)[index]
