# N nodes, B graphs, K eigenvectors.
import os

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch.utils.data import get_worker_info
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform
from torch_geometric.typing import EdgeType

from torch_geometric_lgt._arguments import check_choice, check_whole
from torch_geometric_lgt.functional.neighbors.jaccard import neighborhoods
from torch_geometric_lgt.functional.segment import Segments, node_to_graph, segments
from torch_geometric_lgt.transforms._attributes import (
    add_attr,
    add_node_attr,
    check_name,
    check_no_input,
)
from torch_geometric_lgt.transforms._cache import cached
from torch_geometric_lgt.transforms._laplacian import laplacian_eigenpairs
from torch_geometric_lgt.transforms._stores import (
    check_edge_type,
    check_inside_graphs,
    edges_of,
    graphs_of,
    homogeneous,
    nodes_by_graph,
    nodes_of,
    num_nodes_of,
    type_repr,
)

VERSION = 3  # of the encodings in a cache


@functional_transform('laplacian_pe')
class LaplacianPE(BaseTransform):
    r"""Adds the first :math:`k` non-trivial eigenvectors of the normalised Laplacian as positional
    encodings (functional name: :obj:`laplacian_pe`).

    The encodings are from `"A Generalization of Transformer Networks to Graphs"
    <https://arxiv.org/abs/2012.09699>`_:

    .. math::
        \mathbf{L} = \mathbf{I} - \mathbf{D}^{-1/2} \mathbf{A} \mathbf{D}^{-1/2}
        \quad \text{or} \quad \mathbf{I} - \mathbf{D}^{-1} \mathbf{A}

    :math:`\mathbf{A}` is the adjacency matrix of the undirected simple graph: weights, directions
    and repetitions of edges and self loops do not matter. The row of :math:`\mathbf{L}` is 0 for a
    node without edges. Each connected component, also such a node, therefore has one trivial
    eigenvector, of eigenvalue 0, which is left out. The columns belong to the smallest non-trivial
    eigenvalues of all components together, in ascending order. Each column is 0 outside of its
    component. Columns beyond the last non-trivial eigenvector are 0, and the mask is :obj:`False`
    for them. A column has length 1, so that the mean square of its entries is :math:`1 / N`:
    multiply by :math:`\sqrt{N}` to add the columns to other features of a large graph.

    The solver is chosen by the size of the graph; all solvers return the same columns, up to
    rounding. The sum of the cubes of a column is positive. If this sum is 0, up to a ten-thousandth
    of the sum of the absolute cubes, the first entry of the largest absolute value is positive. The
    columns of a repeated eigenvalue are chosen one by one: each is the projection of a node's unit
    vector onto the rest of the eigenspace, scaled to length 1. The node with the longest projection
    is taken, the first one of equally long projections. So these columns depend on the order of the
    nodes, and so does the sign of a column that a symmetry of the graph reverses, as in a path.
    Absolute values and squared lengths are equal if they differ by at most a thousandth,
    eigenvalues :math:`\lambda` by at most the smaller of :math:`10^{-8}` and :math:`10^{-4}
    \lambda`. If column :math:`k` cuts through an eigenspace with more than 64 further eigenvectors,
    its columns depend on the solver. With ``"rw"``, signs and these columns are chosen before the
    columns are rescaled.

    A small change of the graph may flip signs, or rotate the columns of close eigenvalues. To train
    a model that does not depend on the signs, add :class:`RandomSignFlip`. All eigenpairs are
    checked before ``"rw"`` rescales them: their residuals, their orthogonality, and that no smaller
    eigenvalue is left out. If the default dtype is float64, solvers compute in double precision.
    Otherwise a solver may compute in single precision, and its result must pass the same checks.

    Differs from :class:`torch_geometric.transforms.AddLaplacianEigenvectorPE`, which drops one
    column for any number of components, and flips signs at random. That transform uses weights,
    directions and repetitions of edges, and its :math:`\mathbf{L}` has a 1 on the diagonal for a
    node without edges. It computes in the precision of the weights, by default single, and fails if
    a graph has fewer than :math:`k + 1` nodes.

    Args:
        k (int): Number of columns.
        normalization (str, optional): :obj:`"sym"` for the eigenvectors of the first matrix above,
            or :obj:`"rw"` for the second. The latter are :math:`\mathbf{D}^{-1/2}` times the
            former, scaled to length 1. (default: :obj:`"sym"`)
        attr_name (str, optional): Name of the columns, a node attribute ``[N, k]`` in the default
            dtype. With ``_mask`` appended, it is the name of the mask, ``[1, k]`` for each graph.
            If set to :obj:`None`, the columns are appended to :obj:`x`, or become :obj:`x` if the
            data has none, and no mask is stored. (default: :obj:`"laplacian_pe"`)
        cache_dir (str, optional): Folder in which results are stored and found again. The name of a
            file is a checksum of the graph and the arguments. (default: :obj:`None`, no cache)
        edge_type (tuple, optional): The edges to use in :class:`~torch_geometric.data.HeteroData`,
            such as ``('user', 'knows', 'user')``. They must join nodes of one type. The
            store of these nodes gets the columns and the mask.
            (default: :obj:`None`, for :class:`~torch_geometric.data.Data`)

    Raises:
        TypeError: If the data is no graph of PyG.
        ValueError: If :obj:`k` is no positive whole number, or :obj:`normalization` is unknown. If
            the data has neither edges nor ``adj_t``, or an edge names a node that does not exist.
            If ``adj_t`` has values other than 1, which are not used: apply the transform to the
            edges. If :obj:`attr_name` is an input of the data, such as :obj:`"x"`, or columns
            cannot be appended to :obj:`x`. If :obj:`edge_type` is bipartite, not in the data, or
            not set for :class:`~torch_geometric.data.HeteroData`. If an edge joins two graphs of a
            batch.
        RuntimeError: If no solver converges.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_lgt.transforms import LaplacianPE
        >>> path = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
        >>> data = LaplacianPE(k=4)(path)
        >>> data.laplacian_pe[:, 0]
        tensor([ 0.5774,  0.4082, -0.4082, -0.5774])
        >>> data.laplacian_pe_mask
        tensor([[ True,  True,  True, False]])
    """

    def __init__(
        self,
        k: int,
        normalization: str = 'sym',
        attr_name: str | None = 'laplacian_pe',
        cache_dir: str | os.PathLike[str] | None = None,
        edge_type: EdgeType | None = None,
    ) -> None:
        check_whole('k', k, 1)
        check_choice('normalization', normalization, ('sym', 'rw'))
        check_name(attr_name, optional=True)
        self.k = k
        self.normalization = normalization
        self.attr_name = attr_name
        self.cache_dir = cache_dir
        check_edge_type(edge_type)
        self.edge_type = edge_type

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        r"""Adds the columns ``[N, k]`` and the mask ``[B, k]`` to a graph or a batch of :math:`B`
        graphs, and returns the graph or batch."""
        check_no_input(data, self.attr_name, has_mask=True)
        node_store, edge_store = homogeneous(data, self.edge_type)
        num_nodes, nodes = num_nodes_of(node_store), graphs_of(data, node_store)
        edges = edges_of(edge_store, num_nodes, num_nodes)
        check_inside_graphs(edges, nodes, nodes)
        num_graphs = nodes.sizes.numel()
        encodings = cached(
            self.cache_dir,
            'laplacian_pe',
            parts=[
                edges,
                node_to_graph(nodes, num_nodes),
                [VERSION, num_nodes, num_graphs, self.k, self.normalization == 'rw'],
            ],
            build=lambda: self._encode(edges, nodes),
            expected={
                'vectors': (torch.get_default_dtype(), (num_nodes, self.k)),
                'mask': (torch.bool, (num_graphs, self.k)),
            },
        )
        add_node_attr(data, node_store, encodings['vectors'].to(edges.device), self.attr_name)
        if self.attr_name is not None:
            mask = encodings['mask'].to(edges.device)
            add_attr(data, node_store, mask, f'{self.attr_name}_mask', 'graph')
        return data

    def _encode(self, edges: Tensor, graphs: Segments) -> dict[str, Tensor]:
        r"""Computes the columns, ``'vectors'`` ``[N, k]`` in the default dtype, and the mask,
        ``'mask'`` ``[B, k]`` in bool, one graph at a time.

        :obj:`edges` ``[2, E]`` are the edges of all graphs, and :obj:`graphs` lists which nodes
        belong to which graph.
        """
        num_nodes, dtype = int(graphs.sizes.sum()), torch.get_default_dtype()
        pointer, neighbor = neighborhoods(edges, num_nodes)
        adjacency = csr_array(
            (np.ones(neighbor.size), neighbor, pointer), shape=(num_nodes, num_nodes)
        )
        vectors = np.zeros((num_nodes, self.k))
        mask = np.zeros((graphs.sizes.numel(), self.k), bool)
        for graph, nodes in enumerate(nodes_by_graph(graphs)):
            subgraph = adjacency if nodes.size == num_nodes else adjacency[nodes][:, nodes]
            values, columns = laplacian_eigenpairs(
                subgraph, self.k, np.float64 if dtype == torch.float64 else np.float32
            )
            if self.normalization == 'rw':
                columns = columns / np.sqrt(np.maximum(subgraph.sum(1), 1))[:, None]
                columns = columns / np.linalg.norm(columns, axis=0)
            vectors[nodes, : values.size] = columns
            mask[graph, : values.size] = True
        return {'vectors': torch.from_numpy(vectors).to(dtype), 'mask': torch.from_numpy(mask)}

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.k}, normalization={self.normalization!r}, '
            f'attr_name={self.attr_name!r}{type_repr(self.edge_type)})'
        )


@functional_transform('random_sign_flip')
class RandomSignFlip(BaseTransform):
    r"""Multiplies each column of a node attribute by 1 or -1 at random, separately in each graph of
    a batch (functional name: :obj:`random_sign_flip`).

    This is an augmentation for eigenvectors, whose signs have no meaning. Apply it to each batch,
    so that each step sees new signs. Do not apply it to batches that read an
    :class:`~torch_geometric_lgt.nn.AttentionMemory`: its keys have the signs of the stored data.

    Args:
        attr_name (str, optional): Name of the node attribute ``[N, k]``. (default:
            :obj:`"laplacian_pe"`)
        generator (torch.Generator, optional): Draws the signs, in the main process only.
            (default: :obj:`None`, torch's global generator)
        node_type (str, optional): The nodes with the attribute in
            :class:`~torch_geometric.data.HeteroData`. If only products of two types have a meaning,
            as with :class:`SVDEncoding` of bipartite edges, both types need equal signs: apply two
            transforms whose generators have the same seed. (default: :obj:`None`, for
            :class:`~torch_geometric.data.Data`)

    Raises:
        ValueError: If :obj:`attr_name` is no name, or the data has no such columns. If
            :obj:`node_type` is not in the data, or not set for
            :class:`~torch_geometric.data.HeteroData`. If a worker process of a loader applies a
            transform with a :obj:`generator`: each worker would draw the same signs, again in each
            epoch.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_lgt.transforms import LaplacianPE, RandomSignFlip
        >>> path = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
        >>> data = LaplacianPE(k=3)(path)
        >>> flipped = RandomSignFlip(generator=torch.Generator().manual_seed(1))(data)
        >>> flipped.laplacian_pe / data.laplacian_pe
        tensor([[ 1.,  1., -1.],
                [ 1.,  1., -1.],
                [ 1.,  1., -1.],
                [ 1.,  1., -1.]])
    """

    def __init__(
        self,
        attr_name: str = 'laplacian_pe',
        generator: torch.Generator | None = None,
        node_type: str | None = None,
    ) -> None:
        check_name(attr_name, optional=False)
        self.attr_name, self.generator, self.node_type = attr_name, generator, node_type

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        r"""Multiplies the attribute ``[N, k]`` by new signs, one for each column and graph, and
        returns the graph or the batch of graphs.

        Raises:
            ValueError: If the data has no such nodes or attribute, or a worker process of a loader
                calls a transform that has a :obj:`generator`.
        """
        if self.generator is not None and get_worker_info() is not None:
            raise ValueError(
                "'generator' must be None in worker processes, which would all draw the same signs "
                'in each epoch; leave it out and call torch.manual_seed before the loop'
            )
        store = nodes_of(data, self.node_type)
        if self.attr_name not in store:
            raise ValueError(
                f"'data' must have the attribute {self.attr_name!r} (got {[*store.keys()]}); add "
                'it with LaplacianPE'
            )
        pe = store[self.attr_name]
        if not isinstance(pe, Tensor) or pe.dim() != 2:
            form = tuple(pe.shape) if isinstance(pe, Tensor) else type(pe).__name__
            raise ValueError(
                f"'attr_name' must name columns of shape [N, k] (got {self.attr_name!r} of {form})"
            )
        nodes = segments(store.get('batch'), pe.size(0), None, pe.device)
        size = nodes.sizes.numel(), pe.size(1)
        device = 'cpu' if self.generator is None else self.generator.device
        sign = 2 * torch.randint(2, size, generator=self.generator, device=device) - 1
        store[self.attr_name] = pe * sign.to(pe.device, pe.dtype)[node_to_graph(nodes, pe.size(0))]
        return data

    def __repr__(self) -> str:
        node_type = '' if self.node_type is None else f', node_type={self.node_type!r}'
        return f'{self.__class__.__name__}({self.attr_name!r}{node_type})'
