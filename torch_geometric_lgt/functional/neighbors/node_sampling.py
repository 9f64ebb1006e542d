# N nodes, E edges, B graphs.
import numpy as np
import torch
from torch import Tensor

from torch_geometric_lgt._arguments import check_choice, check_whole
from torch_geometric_lgt.functional.neighbors.edges import edge_list
from torch_geometric_lgt.functional.neighbors.jaccard import jaccard_of, neighborhoods
from torch_geometric_lgt.functional.numerics import widest_dtype
from torch_geometric_lgt.functional.segment import node_to_graph, segments
from torch_geometric_lgt.typing import Adj

MEASURES = ('jaccard', 'lse')


def attention_distance(
    edge_index: Adj, num_nodes: int, measure: str = 'jaccard', neighbors: str = 'in'
) -> Tensor:
    r"""Estimates how far the attention of each node to its neighbours is from a plain mean (Eq. 10
    of `LiteGT <https://doi.org/10.1145/3459637.3482272>`_):

    .. math::
        D_i = \max_j J_{ij} - \frac{1}{|\mathcal{N}_i|} \sum_j J_{ij} - \log |\mathcal{N}_i|

    over the distinct neighbours :math:`j \in \mathcal{N}_i` without :math:`i` itself, with the
    Jaccard index :math:`J_{ij}` of :math:`\mathcal{N}_i` and :math:`\mathcal{N}_j`. The argument
    :obj:`neighbors` defines all of these sets. By default they are the sources of the edges into a
    node, over which the attention sums (Eq. 3); in a directed graph these are other Jaccard indices
    than the default ones of :meth:`jaccard`.

    With :obj:`measure="lse"`, :math:`\log \sum_j \exp J_{ij}` replaces the maximum, as in Eq. 9.
    Then :math:`D_i \ge 0`, and :math:`D_i = 0` where all :math:`J_{ij}` are equal. With the
    maximum, the term :math:`-\log |\mathcal{N}_i|` dominates: nodes of low degree have the largest
    :math:`D_i`. Values are rounded to 12 decimals, so that equal neighbourhoods tie. A node without
    neighbours gets :math:`-\infty`. Differs from the authors' code, which first divides the indices
    of a node by their sum.

    Args:
        edge_index (torch.Tensor or SparseTensor): The edges ``[2, E]``, or a sparse matrix whose
            rows are the targets, such as :obj:`adj_t`. Repeated edges count once.
        num_nodes (int): :math:`N`.
        measure (str, optional): :obj:`"jaccard"` for the maximum, or :obj:`"lse"`. (default:
            :obj:`"jaccard"`)
        neighbors (str, optional): The neighbours that count: the sources of the edges into a node
            (:obj:`"in"`), the targets of the edges out of a node (:obj:`"out"`), or both
            (:obj:`"all"`). (default: :obj:`"in"`)

    Returns:
        ``[N]`` in float64, or in float32 on a device without float64

    Raises:
        TypeError: If :obj:`edge_index` is in no format of edges.
        ValueError: If :obj:`measure` or :obj:`neighbors` is unknown, :obj:`num_nodes` is no whole
            number, or a node does not exist. If a sparse matrix has values other than 1, which are
            not used.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.functional import attention_distance
        >>> edge_index = torch.tensor([[0, 0, 1, 2], [1, 2, 2, 3]])
        >>> attention_distance(edge_index, num_nodes=5)
        tensor([   -inf,  0.0000, -0.4431,  0.0000,    -inf], dtype=torch.float64)
    """
    check_choice('measure', measure, MEASURES)
    check_whole('num_nodes', num_nodes, 0)
    edges = edge_list(edge_index, num_nodes, num_nodes)
    pointer, neighbor = neighborhoods(edges, num_nodes, neighbors)
    degree = np.diff(pointer)
    node = np.repeat(np.arange(num_nodes), degree)
    index = jaccard_of(pointer, neighbor, node, neighbor.astype(np.int64))
    filled = np.flatnonzero(degree)
    first = pointer[filled]
    top = np.maximum.reduceat(index, first)
    if measure == 'lse':
        top = np.log(np.add.reduceat(np.exp(index), first))
    out = np.full(num_nodes, -np.inf)
    mean = np.add.reduceat(index, first) / degree[filled]
    out[filled] = np.round(top - mean - np.log(degree[filled]), 12)
    return torch.from_numpy(out).to(edges.device, widest_dtype(edges.device))


def largest_per_graph(score: Tensor, batch: Tensor | None, factor: float) -> Tensor:
    r"""Marks the nodes with the largest scores in each graph, ``[N]`` bools.

    In a graph of :math:`n` nodes it marks
    :math:`\min(n, \max(1, \lceil \mathrm{factor} \cdot \ln n \rceil))` nodes. Among nodes with
    equal scores the smaller ids are marked first. :obj:`batch` is the batch vector ``[N]``,
    :obj:`None` for one graph.
    """
    nodes = segments(batch, score.numel(), None, score.device)
    graph = node_to_graph(nodes, score.numel())
    order = score.argsort(descending=True, stable=True)
    order = order[graph[order].argsort(stable=True)]
    size = torch.bincount(graph)
    count = (factor * size.clamp(min=1).double().log()).nan_to_num(1).ceil()
    count = count.clamp(min=1).minimum(size).long()
    first = size.cumsum(0) - size
    rank = torch.arange(order.numel(), device=order.device) - first[graph[order]]
    mask = torch.empty_like(order, dtype=torch.bool)
    mask[order] = rank < count[graph[order]]
    return mask
