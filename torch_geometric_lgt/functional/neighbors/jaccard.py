# N nodes, E edges, P pairs, K hash functions.
import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor

from torch_geometric_lgt._arguments import check_choice, check_whole
from torch_geometric_lgt.functional.neighbors.common_neighbors import common_neighbors
from torch_geometric_lgt.functional.neighbors.edges import edge_list
from torch_geometric_lgt.typing import Adj

NEIGHBORS = ('all', 'in', 'out')


def jaccard(
    edge_index: Adj, num_nodes: int, pairs: Tensor | None = None, neighbors: str = 'all'
) -> Tensor:
    r"""Computes the Jaccard index of the neighbourhoods of each pair (Eq. 7 of `LiteGT
    <https://doi.org/10.1145/3459637.3482272>`_):

    .. math::
        J_{ij} = \frac{|\mathcal{N}_i \cap \mathcal{N}_j|}{|\mathcal{N}_i \cup \mathcal{N}_j|}

    with :math:`\mathcal{N}_i` the distinct neighbours of :math:`i` without :math:`i` itself. The
    index is 0 if neither node has a neighbour, and 1 for a node with neighbours paired with itself.

    A pair takes as many steps as the smaller of its two degrees, and equal pairs are computed once;
    memory is :math:`O(N + E + P)`. With numba installed, a process compiles the function as soon as
    all of its calls together have taken about four million such steps; from then on it uses all
    threads.

    Args:
        edge_index (torch.Tensor or SparseTensor): The edges ``[2, E]``, or a sparse matrix whose
            rows are the targets, such as :obj:`adj_t`. Repeated edges count once.
        num_nodes (int): :math:`N`.
        pairs (torch.Tensor, optional): Node ids ``[2, P]``, which need not be edges. (default:
            :obj:`None`, the edges in their order, for a sparse matrix row by row: by target, then
            by source)
        neighbors (str, optional): The neighbours that count: the sources of the edges into a node
            (:obj:`"in"`), the targets of the edges out of a node (:obj:`"out"`), or both
            (:obj:`"all"`). (default: :obj:`"all"`)

    Returns:
        ``[P]`` in the default dtype, one number for each pair or edge, repeated ones included

    Raises:
        TypeError: If :obj:`edge_index` is in no format of edges.
        ValueError: If :obj:`num_nodes` is no whole number, :obj:`neighbors` is none of the three,
            or a node does not exist. If a sparse matrix has values other than 1, which are not
            used.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.functional import jaccard
        >>> edge_index = torch.tensor([[0, 0, 1, 1], [2, 3, 2, 4]])
        >>> jaccard(edge_index, num_nodes=5, pairs=torch.tensor([[0, 0], [1, 4]]))
        tensor([0.3333, 0.0000])
    """
    edges, pairs = _checked(edge_index, pairs, num_nodes)
    pointer, neighbor = neighborhoods(edges, num_nodes, neighbors)
    index = jaccard_of(pointer, neighbor, *pairs.cpu().numpy())
    return torch.from_numpy(index).to(edges.device, torch.get_default_dtype())


def jaccard_of(
    pointer: np.ndarray, neighbor: np.ndarray, one: np.ndarray, other: np.ndarray
) -> np.ndarray:
    r"""Computes the Jaccard index ``[P]`` in float64 of each pair of nodes from the neighbours
    that :meth:`neighborhoods` returns. :obj:`one` and :obj:`other` ``[P]`` are the nodes of the
    pairs."""
    shared = common_neighbors(pointer, neighbor, one, other)
    degree = np.diff(pointer)
    return shared / np.maximum(degree[one] + degree[other] - shared, 1)


def minhash_jaccard(
    edge_index: Adj,
    num_nodes: int,
    num_hashes: int,
    pairs: Tensor | None = None,
    neighbors: str = 'all',
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Estimates the result of :meth:`jaccard` without bias
    (`"On the resemblance and containment of documents"
    <https://doi.org/10.1109/SEQUEN.1997.666900>`_):

    .. math::
        \hat{J}_{ij} = \frac{1}{K} \sum_{k=1}^{K} \Bigl[ \arg\min_{u \in \mathcal{N}_i} \pi_k(u) =
            \arg\min_{u \in \mathcal{N}_j} \pi_k(u) \Bigr]

    with :math:`K` random orders :math:`\pi_k` of the nodes, and :math:`\mathcal{N}_i` the distinct
    neighbours of :math:`i` without :math:`i` itself. The estimate is 0 if a node of the pair has no
    neighbour. The standard deviation is :math:`\sqrt{J (1 - J) / K} \le 1 / (2 \sqrt{K})`. An error
    beyond :math:`\epsilon` has a probability of at most :math:`2 \exp(-2 K \epsilon^2)`. Time is
    :math:`O(K (N + E + P))` for :math:`P` pairs and any distribution of the degrees, memory
    :math:`O(N + E + P)`.

    Args:
        edge_index (torch.Tensor or SparseTensor): The edges ``[2, E]``, or a sparse matrix whose
            rows are the targets, such as :obj:`adj_t`. Repeated edges count once.
        num_nodes (int): :math:`N`.
        num_hashes (int): :math:`K`, the number of random orders.
        pairs (torch.Tensor, optional): Node ids ``[2, P]``, which need not be edges. (default:
            :obj:`None`, the edges in their order, as in :meth:`jaccard`)
        neighbors (str, optional): The neighbours that count: the sources of the edges into a node
            (:obj:`"in"`), the targets of the edges out of a node (:obj:`"out"`), or both
            (:obj:`"all"`). (default: :obj:`"all"`)
        generator (torch.Generator, optional): The source of the random orders. (default:
            :obj:`None`, the global generator)

    Returns:
        ``[P]`` in the default dtype

    Raises:
        TypeError: If :obj:`edge_index` is in no format of edges.
        ValueError: If :obj:`num_hashes` or :obj:`num_nodes` is no whole number,
            :obj:`neighbors` is none of the three, or a node does not exist. If a sparse matrix has
            values other than 1, which are not used.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.functional import minhash_jaccard
        >>> edge_index = torch.tensor([[0, 0, 1, 1], [2, 3, 2, 4]])
        >>> generator = torch.Generator().manual_seed(0)
        >>> index = minhash_jaccard(edge_index, 5, 2000, torch.tensor([[0], [1]]), 'all', generator)
        >>> abs(float(index) - 1 / 3) < 0.05
        True
    """
    check_whole('num_hashes', num_hashes, 1)
    edges, pairs = _checked(edge_index, pairs, num_nodes)
    pointer, neighbor = neighborhoods(edges, num_nodes, neighbors)
    filled = np.flatnonzero(np.diff(pointer))
    place = np.full(num_nodes, -1)
    place[filled] = np.arange(filled.size)
    one, other = place[pairs.cpu().numpy()]
    both = (one >= 0) & (other >= 0)
    equal = np.zeros(one.size, np.int64)
    device = 'cpu' if generator is None else generator.device
    keys = torch.randint(1 << 62, (num_hashes,), generator=generator, device=device)
    if filled.size > 0:
        for key in keys.tolist():
            rank = _scrambled(np.arange(num_nodes), key)
            first = np.minimum.reduceat(rank[neighbor], pointer[filled])
            equal += both & (first[one] == first[other])
    return torch.from_numpy(equal / num_hashes).to(edges.device, torch.get_default_dtype())


def neighborhoods(
    edges: Tensor, num_nodes: int, neighbors: str = 'all'
) -> tuple[np.ndarray, np.ndarray]:
    r"""Returns the neighbours of all nodes: node :obj:`i` has
    ``neighbor[pointer[i] : pointer[i + 1]]``, distinct, sorted, without itself.

    The result is the pointer ``[N + 1]`` in int64, then the neighbours. :obj:`neighbors` is
    ``'all'``, ``'in'`` or ``'out'`` as in :meth:`jaccard`.

    Raises:
        ValueError: If :obj:`neighbors` is none of the three.
    """
    check_choice('neighbors', neighbors, NEIGHBORS)
    source, target = edges[:, edges[0] != edges[1]].cpu().numpy()
    row, column = (target, source) if neighbors == 'in' else (source, target)
    if neighbors == 'all':
        row, column = np.r_[source, target], np.r_[target, source]
    matrix = csr_array((np.ones(row.size, bool), (row, column)), shape=(num_nodes, num_nodes))
    matrix.sum_duplicates()
    return matrix.indptr.astype(np.int64), matrix.indices


def _checked(edge_index: Adj, pairs: Tensor | None, num_nodes: int) -> tuple[Tensor, Tensor]:
    check_whole('num_nodes', num_nodes, 0)
    edges = edge_list(edge_index, num_nodes, num_nodes)
    return edges, edges if pairs is None else edge_list(pairs, num_nodes, num_nodes, 'pairs')


def _scrambled(ids: np.ndarray, key: int) -> np.ndarray:
    r"""Maps ids ``[N]`` to distinct pseudo-random numbers in uint64 that depend on :obj:`key`, by
    the finaliser of splitmix64."""
    x = ids.astype(np.uint64) + np.uint64(key)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return x ^ (x >> np.uint64(31))
