# R rows, C columns, K singular values.
import os

import numpy as np
import torch
from scipy.sparse import csr_array, diags_array
from torch import Tensor
from torch.nn.functional import pad
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.data.storage import EdgeStorage, NodeStorage
from torch_geometric.transforms import BaseTransform
from torch_geometric.typing import EdgeType

from torch_geometric_lgt._arguments import check_flags, check_whole
from torch_geometric_lgt._graph_checks import check_node_types
from torch_geometric_lgt.transforms._attributes import (
    add_attr,
    add_node_attr,
    check_name,
    check_no_input,
)
from torch_geometric_lgt.transforms._cache import cached
from torch_geometric_lgt.transforms._stores import (
    check_edge_type,
    check_inside_graphs,
    edges_of,
    graphs_of,
    homogeneous,
    nodes_by_graph,
    num_nodes_of,
    type_repr,
)
from torch_geometric_lgt.transforms._truncated_svd import truncated_svd

VERSION = 2  # of the encodings in a cache


@functional_transform('svd_encoding')
class SVDEncoding(BaseTransform):
    r"""Adds structural encodings from the :math:`k` largest singular triplets of the interaction
    matrix (functional name: :obj:`svd_encoding`).

    The encodings are Eq. 3 of `"Masked Graph Transformer for Large-Scale Recommendation"
    <https://arxiv.org/abs/2405.04028>`_. With :math:`\mathbf{R} \approx \mathbf{U} \mathbf{\Sigma}
    \mathbf{V}^{\top}`, a user gets a row of :math:`\mathbf{U} \sqrt{\mathbf{\Sigma}}`, and an item
    gets a row of :math:`\mathbf{V} \sqrt{\mathbf{\Sigma}}`.

    On :class:`~torch_geometric.data.HeteroData` with two node types, :math:`\mathbf{R}` has a 1 for
    each pair that an edge joins, in either direction. Users are the first type, items the second.
    On :class:`~torch_geometric.data.Data`, :math:`\mathbf{R}` is the adjacency matrix,
    :math:`R_{ij} = 1` for each edge from :math:`i` to :math:`j`. Every node gets its row of
    :math:`\mathbf{U} \sqrt{\mathbf{\Sigma}}`. Add reverse edges first if both directions count.
    Repeated edges count once. In a batch of graphs the matrix of each graph is decomposed on its
    own.

    Signs are fixed: of all entries of a singular vector of :math:`\mathbf{U}` and its partner of
    :math:`\mathbf{V}`, the one of largest magnitude is positive. If an entry of each has this
    magnitude, that of :math:`\mathbf{U}` is positive. If two entries of one vector have it with
    opposite signs, rounding decides. Columns of a repeated singular value are determined up to a
    rotation only. In a tree or another bipartite undirected graph all singular values but 0 come in
    equal pairs, so the columns depend on the numbering of the nodes: for molecules and other small
    undirected graphs take :class:`LaplacianPE` or PyG's
    :class:`~torch_geometric.transforms.AddRandomWalkPE`. A node is 0 in each column whose singular
    value its connected component does not have. Columns beyond the rank are 0; the mask (see
    :obj:`attr_name`) is :obj:`False` for them. All triplets are checked against the matrix: their
    residuals, their orthogonality, and that no larger singular value is left out. If a check fails,
    the next solver tries. The last one decomposes a dense matrix, of at most four million entries.

    Args:
        k (int): Number of columns.
        attr_name (str, optional): Name of the encodings, a node attribute ``[N, k]`` in the default
            dtype. With ``_mask`` appended, it is the name of the mask, ``[1, k]`` for each graph.
            If set to :obj:`None`, the columns are appended to :obj:`x`, or become :obj:`x` if the
            data has none, and no mask is stored. (default: :obj:`"svd_pe"`)
        normalize (bool, optional): If :obj:`True`, decompose
            :math:`\mathbf{D}_u^{-1/2} \mathbf{R} \mathbf{D}_i^{-1/2}` instead, with the row and
            column sums of :math:`\mathbf{R}`. (default: :obj:`False`)
        cache_dir (str, optional): Folder in which results are stored and found again. The name of a
            file is a checksum of the matrix and the arguments. (default: :obj:`None`, no cache)
        edge_type (tuple, optional): Edges of :class:`~torch_geometric.data.HeteroData` that join
            nodes of one type, such as ``('user', 'knows', 'user')``. :math:`\mathbf{R}` is their
            adjacency matrix, as for :class:`~torch_geometric.data.Data`, and the store of these
            nodes gets the encodings and the mask. For some of the edges between two types, apply
            the transform to ``data.edge_type_subgraph([..])``. (default: :obj:`None`, all edges)

    Raises:
        TypeError: If the data is no graph of PyG.
        ValueError: If :obj:`k` is no positive whole number, or :obj:`normalize` is no boolean. If
            the data has more than two node types, or has two and edges within one of them. If the
            number of nodes of a type is unknown. If ``adj_t`` has values other than 1, which are
            not used: apply the transform to the edges. If columns cannot be appended to :obj:`x`.
            If :obj:`edge_type` is bipartite or not in the data. If an edge joins two graphs of a
            batch.
        RuntimeError: If no solver finds triplets that pass the checks.

    Example:
        >>> import torch
        >>> from torch_geometric.data import HeteroData
        >>> from torch_geometric_lgt.transforms import SVDEncoding
        >>> data = HeteroData()
        >>> data['user'].num_nodes, data['item'].num_nodes = 2, 2
        >>> data['user', 'rates', 'item'].edge_index = torch.tensor([[0, 0, 1, 1], [0, 1, 0, 1]])
        >>> data = SVDEncoding(k=2)(data)
        >>> data['user'].svd_pe
        tensor([[1., 0.],
                [1., 0.]])
        >>> data.svd_pe_mask
        tensor([[ True, False]])
    """

    def __init__(
        self,
        k: int,
        attr_name: str | None = 'svd_pe',
        normalize: bool = False,
        cache_dir: str | os.PathLike[str] | None = None,
        edge_type: EdgeType | None = None,
    ) -> None:
        check_whole('k', k, 1)
        check_flags(normalize=normalize)
        check_name(attr_name, optional=True)
        check_edge_type(edge_type)
        self.k, self.attr_name, self.normalize, self.cache_dir = k, attr_name, normalize, cache_dir
        self.edge_type = edge_type

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        r"""Adds the encodings ``[N, k]`` of each node type to a graph or a batch of :math:`B`
        graphs, and the mask ``[B, k]``, which is :obj:`False` for columns beyond the rank of a
        graph's matrix. Returns the graph or batch."""
        check_no_input(data, self.attr_name, has_mask=True)
        if self.edge_type is None:
            if isinstance(data, HeteroData):
                check_node_types(data)
            node_stores, edge_stores, graph = data.node_stores, data.edge_stores, data
        else:
            nodes, edges = homogeneous(data, self.edge_type)
            node_stores, edge_stores, graph = [nodes], [edges], nodes
        matrix, device = self._matrix(node_stores, edge_stores)
        sides = [graphs_of(data, store) for store in (node_stores[0], node_stores[-1])]
        rows, columns = map(nodes_by_graph, sides)
        if len(rows) != len(columns):
            raise ValueError(
                "'data' must have as many graphs in the 'batch' of both node types (got "
                f'{[len(rows), len(columns)]})'
            )
        if len(rows) > 1:
            pairs = np.stack(matrix.nonzero()).astype(np.int64)
            check_inside_graphs(torch.from_numpy(pairs), *sides)
        num_rows, num_columns = matrix.shape
        encodings = cached(
            self.cache_dir,
            'svd_encoding',
            parts=[
                matrix.indptr,
                matrix.indices,
                [VERSION, num_rows, num_columns, self.k, self.normalize],
                *([*rows, *columns] if len(rows) != 1 else []),
            ],
            build=lambda: self._encode(matrix, rows, columns),
            expected={
                'row': (torch.get_default_dtype(), (num_rows, self.k)),
                'column': (torch.get_default_dtype(), (num_columns, self.k)),
            },
        )
        for store, side in zip(node_stores, ('row', 'column'), strict=False):
            add_node_attr(data, store, encodings[side].to(device), self.attr_name)
        if self.attr_name is not None:
            mask = torch.zeros(len(rows), self.k, dtype=torch.bool, device='cpu')
            for index, nodes in enumerate(rows):
                mask[index] = encodings['row'][nodes].any(0)
            add_attr(data, graph, mask.to(device), f'{self.attr_name}_mask', 'graph')
        return data

    def _matrix(
        self, node_stores: list[NodeStorage], edge_stores: list[EdgeStorage]
    ) -> tuple[csr_array, torch.device]:
        r"""Builds the interaction matrix ``[R, C]`` with a 1 for each pair that an edge joins, and
        returns the matrix with the device of the edges.

        Rows and columns are the first and the second node type, or both all nodes if there is one
        type.

        Raises:
            ValueError: If there are no or more than two node types, or an edge type does not join
                the two.
        """
        names = [store._key for store in node_stores]
        if len(names) not in (1, 2) or any(
            len(names) == 2 and store._key[0] == store._key[2] for store in edge_stores
        ):
            raise ValueError(
                "'data' must have one node type, or two that every edge type joins (got "
                f"{(names, [store._key for store in edge_stores])}); set 'edge_type' to edges "
                'within one type, or give data.edge_type_subgraph([..]) with the edges between two'
            )
        sizes = [num_nodes_of(store) for store in node_stores]
        shape = (sizes[0], sizes[-1])
        edges, device = [np.empty((2, 0), np.int64)], torch.device('cpu')
        for store in edge_stores:
            backward = len(names) == 2 and store._key[0] == names[1]
            edge_index = edges_of(store, *(shape[::-1] if backward else shape))
            device, pairs = edge_index.device, edge_index.cpu().numpy()
            edges.append(pairs[::-1] if backward else pairs)
        row, column = np.concatenate(edges, 1)
        matrix = csr_array((np.ones(row.size), (row, column)), shape=shape)
        matrix.data[:] = 1  # repeated edges were summed up
        return matrix, device

    def _encode(
        self, matrix: csr_array, rows: list[np.ndarray], columns: list[np.ndarray]
    ) -> dict[str, Tensor]:
        r"""Computes the encodings of a matrix ``[R, C]`` in the default dtype, for the ids of the
        rows and columns of each graph: ``'row'`` ``[R, k]`` of its rows and ``'column'`` ``[C, k]``
        of its columns."""
        if len(rows) == 1:
            return self._encode_graph(matrix)
        encodings = {
            name: torch.zeros(size, self.k, dtype=torch.get_default_dtype(), device='cpu')
            for name, size in zip(('row', 'column'), matrix.shape, strict=True)
        }
        for row, column in zip(rows, columns, strict=True):
            part = self._encode_graph(matrix[row][:, column])
            encodings['row'][row], encodings['column'][column] = part['row'], part['column']
        return encodings

    def _encode_graph(self, matrix: csr_array) -> dict[str, Tensor]:
        r"""Computes the encodings of one graph as :meth:`_encode` returns them. Columns beyond the
        rank are 0."""
        if self.normalize:
            left, right = (np.maximum(matrix.sum(axis), 1) ** -0.5 for axis in (1, 0))
            matrix = (diags_array(left) @ matrix @ diags_array(right)).tocsr()
        u, s, v = truncated_svd(matrix, self.k)
        sides = {'row': u * np.sqrt(s), 'column': v * np.sqrt(s)}
        return {
            name: pad(torch.from_numpy(side), (0, self.k - s.size)).to(torch.get_default_dtype())
            for name, side in sides.items()
        }

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.k}, attr_name={self.attr_name!r}, '
            f'normalize={self.normalize}{type_repr(self.edge_type)})'
        )
