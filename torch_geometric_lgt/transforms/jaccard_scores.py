# N nodes, E edges.
import os

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform
from torch_geometric.typing import EdgeType

from torch_geometric_lgt._arguments import check_choice, check_whole
from torch_geometric_lgt.functional.neighbors.jaccard import NEIGHBORS, jaccard, minhash_jaccard
from torch_geometric_lgt.transforms._attributes import add_attr, check_name, check_no_input
from torch_geometric_lgt.transforms._cache import cached
from torch_geometric_lgt.transforms._stores import (
    check_edge_type,
    edges_of,
    homogeneous,
    num_nodes_of,
    type_repr,
)


@functional_transform('jaccard_scores')
class JaccardScores(BaseTransform):
    r"""Adds the Jaccard index of the neighbourhoods of the two nodes of each edge (Eq. 7 of `LiteGT
    <https://doi.org/10.1145/3459637.3482272>`_; functional name: :obj:`jaccard_scores`).

    See :meth:`~torch_geometric_lgt.functional.jaccard` for the index. A neighbourhood is a set of
    nodes without the node itself, so that repeated edges count once; each of them gets the index. A
    self loop has the index 1, or 0 if its node has no neighbour.
    In a bipartite graph, such as one of users and items, all indices are 0: the ends of an edge
    share no neighbour.

    The indices follow the order of :obj:`edge_index`. Those of an :obj:`adj_t`, in any sparse
    format, are sorted by target, then by source: row by row, as layers read its edges. Loaders
    slice the attribute, so a sampled batch carries the indices of the full graph.

    Apply it after the transforms that change nodes or edges: PyG's ``ToUndirected`` adds up the
    indices of the edges that it merges, and ``VirtualNode`` gives its edges the index 0.

    Args:
        attr_name (str, optional): Name of the indices, an edge attribute ``[E]`` in the default
            dtype. Where a graph has as many edges as nodes, PyG takes a name without ``edge`` for
            that of a node attribute. (default: :obj:`"edge_jaccard"`)
        neighbors (str, optional): Which nodes are neighbours in a directed graph. :obj:`"in"`:
            sources of a node's incoming edges. :obj:`"out"`: targets of its outgoing edges.
            :obj:`"all"`: both. (default: :obj:`"all"`)
        num_hashes (int, optional): Number of hash functions that estimate the indices, see
            :meth:`~torch_geometric_lgt.functional.minhash_jaccard`. (default: :obj:`None`, exact
            indices)
        generator (torch.Generator, optional): Draws the hash functions. (default: :obj:`None`,
            torch's global generator)
        edge_type (tuple, optional): The edges to use in :class:`~torch_geometric.data.HeteroData`,
            such as ``('user', 'knows', 'user')``. They must join nodes of one type. The store of
            these edges gets the indices. (default: :obj:`None`, for
            :class:`~torch_geometric.data.Data`)
        cache_dir (str, optional): Folder in which exact indices are stored and found again. The
            name of a file is a checksum of the edges and the arguments. (default: :obj:`None`, no
            cache)

    Raises:
        TypeError: If the data is no graph of PyG.
        ValueError: If an argument is out of range, or :obj:`attr_name` is no name. If
            :obj:`cache_dir` is set with :obj:`num_hashes`, whose scores are random. If the data has
            neither edges nor ``adj_t``, or an edge names a node that does not exist. If ``adj_t``
            has values other than 1, which are not used: apply the transform to the edges. If
            :obj:`edge_type` is bipartite, not in the data, or not set for
            :class:`~torch_geometric.data.HeteroData`.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_lgt.transforms import JaccardScores
        >>> edge_index = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 3]])  # a triangle and one more edge
        >>> data = Data(edge_index=edge_index, num_nodes=4)
        >>> JaccardScores()(data).edge_jaccard
        tensor([0.3333, 0.2500, 0.2500, 0.0000])
    """

    def __init__(
        self,
        attr_name: str = 'edge_jaccard',
        neighbors: str = 'all',
        num_hashes: int | None = None,
        generator: torch.Generator | None = None,
        edge_type: EdgeType | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
    ) -> None:
        check_choice('neighbors', neighbors, NEIGHBORS)
        if num_hashes is not None:
            check_whole('num_hashes', num_hashes, 1)
        if num_hashes is not None and cache_dir is not None:
            raise ValueError(
                "'cache_dir' must be None with 'num_hashes', whose scores are random (got "
                f'{str(cache_dir)!r})'
            )
        check_name(attr_name, optional=False)
        check_edge_type(edge_type)
        self.attr_name = attr_name
        self.neighbors = neighbors
        self.num_hashes = num_hashes
        self.generator = generator
        self.edge_type, self.cache_dir = edge_type, cache_dir

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        r"""Adds the Jaccard index of each edge ``[E]`` to the graph as :obj:`attr_name`, and
        returns the graph."""
        check_no_input(data, self.attr_name)
        nodes, store = homogeneous(data, self.edge_type)
        num_nodes = num_nodes_of(nodes)
        edges = edges_of(store, num_nodes, num_nodes)
        if self.num_hashes is None:
            scores = self._exact(edges, num_nodes)
        else:
            scores = minhash_jaccard(
                edges, num_nodes, self.num_hashes, None, self.neighbors, self.generator
            )
        add_attr(data, store, scores, self.attr_name, 'edge')
        return data

    def _exact(self, edges: Tensor, num_nodes: int) -> Tensor:
        tensors = cached(
            self.cache_dir,
            'jaccard_scores',
            parts=[edges, [num_nodes, NEIGHBORS.index(self.neighbors)]],
            build=lambda: {'scores': jaccard(edges, num_nodes, neighbors=self.neighbors)},
            expected={'scores': (torch.get_default_dtype(), (edges.size(1),))},
        )
        return tensors['scores'].to(edges.device)

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.attr_name!r}, neighbors={self.neighbors!r}, '
            f'num_hashes={self.num_hashes}{type_repr(self.edge_type)})'
        )
