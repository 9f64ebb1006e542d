# N nodes, E edges, B graphs.
import numpy as np
import torch
from torch import Tensor

from torch_geometric_lgt.functional.neighbors.edges import edge_list
from torch_geometric_lgt.functional.neighbors.jaccard import jaccard_of, neighborhoods
from torch_geometric_lgt.functional.segment import node_to_graph, segments
from torch_geometric_lgt.typing import Adj

MEASURES = ('jaccard', 'lse')


def attention_distance(edge_index: Adj, num_nodes: int, measure: str = 'jaccard') -> Tensor:
    r"""How far the attention of each node over its neighbours may be from a plain mean, ``[N]`` in
    float64:

    .. math::
        D_i = \max_j J_{ij} - \frac{1}{|\mathcal{N}_i|} \sum_j J_{ij} - \log |\mathcal{N}_i|

    over the distinct neighbours :math:`j \in \mathcal{N}_i` in either direction, with the Jaccard
    index :math:`J_{ij}` (Eq. 10 of LiteGT). With :obj:`measure="lse"`, :math:`\log \sum_j \exp
    J_{ij}` stands for the maximum, as in Eq. 9: then :math:`D_i \ge 0`, and 0 where all
    :math:`J_{ij}` are equal. Values are rounded to 12 decimals, so that equal neighbourhoods tie; a
    node without neighbours gets :math:`-\infty`.

    Raises:
        ValueError: If :obj:`measure` is another, or a node does not exist.
    """
    if measure not in MEASURES:
        raise ValueError(f"'measure' must be 'jaccard' or 'lse' (got {measure!r})")
    pointer, neighbor = neighborhoods(edge_list(edge_index, num_nodes, num_nodes), num_nodes)
    degree, out = np.diff(pointer), np.full(num_nodes, -np.inf)
    node, filled = np.repeat(np.arange(num_nodes), degree), np.flatnonzero(degree)
    index = jaccard_of(pointer, neighbor, node, neighbor.astype(np.int64))
    first = pointer[filled]
    top = (
        np.maximum.reduceat(index, first)
        if measure == 'jaccard'
        else np.log(np.add.reduceat(np.exp(index), first))
    )
    mean = np.add.reduceat(index, first) / degree[filled]
    out[filled] = np.round(top - mean - np.log(degree[filled]), 12)
    return torch.from_numpy(out)


def largest_per_graph(score: Tensor, batch: Tensor | None, factor: float) -> Tensor:
    r"""The mask ``[N]`` of the :math:`\min(n, \max(1, \lceil \mathrm{factor} \cdot \ln n \rceil))`
    nodes with the largest score in each graph of :math:`n` nodes; of equal ones those with the
    smaller ids."""
    nodes = segments(batch, score.numel(), None, score.device)
    graph = node_to_graph(nodes, score.numel())
    order = score.argsort(descending=True, stable=True)
    order = order[graph[order].argsort(stable=True)]
    size = torch.bincount(graph)
    count = (
        (factor * size.clamp(min=1).double().log())
        .nan_to_num(1)
        .ceil()
        .clamp(min=1)
        .minimum(size)
        .long()
    )
    first = size.cumsum(0) - size
    rank = torch.arange(order.numel(), device=order.device) - first[graph[order]]
    mask = torch.empty_like(order, dtype=torch.bool)
    mask[order] = rank < count[graph[order]]
    return mask
