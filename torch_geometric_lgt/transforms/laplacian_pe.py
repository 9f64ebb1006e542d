# N nodes, B graphs, K eigenvectors.
import hashlib
import os
from pathlib import Path

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch_geometric.data import Batch, Data
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform

from torch_geometric_lgt._arguments import check_whole
from torch_geometric_lgt._io import cached_tensors
from torch_geometric_lgt.functional.neighbors.jaccard import neighborhoods
from torch_geometric_lgt.functional.segment import Segments, node_to_graph, segments
from torch_geometric_lgt.transforms._laplacian import laplacian_eigenpairs
from torch_geometric_lgt.transforms._stores import (
    add_node_attr,
    check_name,
    edges_of,
    homogeneous,
    num_nodes_of,
)


@functional_transform('laplacian_pe')
class LaplacianPE(BaseTransform):
    r"""Adds the first :math:`k` non-trivial eigenvectors of the normalised Laplacian as positional
    encodings (functional name: :obj:`laplacian_pe`).

    The encodings are from `"A Generalization of Transformer Networks to Graphs"
    <https://arxiv.org/abs/2012.09699>`_:

    .. math::
        \mathbf{L} = \mathbf{I} - \mathbf{D}^{-1/2} \mathbf{A} \mathbf{D}^{-1/2}
        \quad \text{or} \quad \mathbf{I} - \mathbf{D}^{-1} \mathbf{A}

    :math:`\mathbf{A}` is the adjacency matrix of the undirected simple graph: the direction of
    edges, repeated edges and self loops do not matter. Each connected component has one trivial
    eigenvector, of eigenvalue 0, which is left out. With several components, the columns belong to
    the smallest non-trivial eigenvalues of all components together. Each column is 0 outside of its
    component. Columns beyond the last non-trivial eigenvector are 0, and the mask is :obj:`False`
    for them.

    Columns depend on the graph, not on the solver, up to the precision of the solver. The sum of
    the cubes of a column is positive; where this sum is 0, the first of the largest entries is
    positive. The basis of a repeated eigenvalue depends on its eigenspace, and on the order of
    nodes where these are alike. If an eigenvalue repeats more than 64 times beyond the last column,
    its basis depends on the solver.

    No rule of signs or bases is continuous in the graph. To train a model that does not depend on
    the signs, add :class:`RandomSignFlip`. All eigenpairs are checked: their residuals, their
    orthogonality, and that no smaller eigenvalue is left out.

    Differs from :class:`torch_geometric.transforms.AddLaplacianEigenvectorPE`, which drops one
    column whatever the number of components, and flips signs at random. It also fails where a graph
    has fewer than :math:`k + 2` nodes, and computes in single precision throughout. Here single
    precision is used with a single default dtype only, and only where the result passes the checks.

    Args:
        k (int): Number of columns.
        normalization (str, optional): :obj:`"sym"` or :obj:`"rw"`, whose eigenvectors are
            :math:`\mathbf{D}^{-1/2}` times the symmetric ones, scaled to length 1. (default:
            :obj:`"sym"`)
        attr_name (str, optional): Name of the attribute, ``[N, k]``; with ``_mask`` appended, of
            the mask ``[1, k]`` of a graph. If set to :obj:`None`, the columns are appended to
            :obj:`x`, or become :obj:`x` where the data has none, and no mask is stored. (default:
            :obj:`"laplacian_pe"`)
        cache_dir (str, optional): Folder for results, named by a checksum of the graph and the
            arguments. (default: :obj:`None`, no cache)

    Raises:
        ValueError: If :obj:`k` is no positive whole number, or :obj:`normalization` is unknown. If
            the data has no edges, or an edge names a node that does not exist. If columns cannot be
            appended to :obj:`x`.
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
        cache_dir: str | os.PathLike | None = None,
    ) -> None:
        check_whole('k', k, 1)
        if normalization not in ('sym', 'rw'):
            raise ValueError(f"'normalization' must be 'sym' or 'rw' (got {normalization!r})")
        check_name(attr_name, optional=True)
        self.k, self.normalization, self.attr_name, self.cache_dir = (
            k,
            normalization,
            attr_name,
            cache_dir,
        )

    def forward(self, data: Data) -> Data:
        r"""Returns the graph, or the batch of graphs, with the eigenvectors and their mask."""
        num_nodes = num_nodes_of(homogeneous(data)._store)
        edges = edges_of(data.edge_stores[0], num_nodes, num_nodes)
        size = data.num_graphs if isinstance(data, Batch) else None
        nodes = segments(None if data.batch is None else data.batch.cpu(), num_nodes, size)
        if self.cache_dir is None:
            encodings = self._encode(edges, nodes)
        else:
            parts = (
                edges.cpu(),
                node_to_graph(nodes, num_nodes),
                torch.tensor([num_nodes, nodes.sizes.numel(), self.k, self.normalization == 'rw']),
            )
            digests = [hashlib.sha256(part.numpy().tobytes()).digest() for part in parts]
            key = hashlib.sha256(
                b''.join(digests) + str(torch.get_default_dtype()).encode()
            ).hexdigest()
            path = Path(self.cache_dir) / f'laplacian_pe-{key[:32]}.safetensors'
            expected = {
                'vectors': (torch.get_default_dtype(), (num_nodes, self.k)),
                'mask': (torch.bool, (nodes.sizes.numel(), self.k)),
            }
            encodings = cached_tensors(
                path, 'laplacian_pe', lambda: self._encode(edges, nodes), expected
            )
        add_node_attr(data._store, encodings['vectors'].to(edges.device), self.attr_name)
        if self.attr_name is not None:
            data[f'{self.attr_name}_mask'] = encodings['mask'].to(edges.device)
        return data

    def _encode(self, edges: Tensor, graphs: Segments) -> dict[str, Tensor]:
        r"""Computes the columns ``[N, k]`` and the mask ``[B, k]`` of all graphs, one graph at a
        time."""
        num_nodes, dtype = int(graphs.sizes.sum()), torch.get_default_dtype()
        pointer, neighbor = neighborhoods(edges, num_nodes)
        adjacency = csr_array(
            (np.ones(neighbor.size), neighbor, pointer), shape=(num_nodes, num_nodes)
        )
        vectors, mask = (
            np.zeros((num_nodes, self.k)),
            np.zeros((graphs.sizes.numel(), self.k), bool),
        )
        order = torch.arange(num_nodes) if graphs.order is None else graphs.order
        for graph, part in enumerate(order.split(graphs.sizes.tolist())):
            nodes = part.numpy()
            subgraph = adjacency if nodes.size == num_nodes else adjacency[nodes][:, nodes]
            values, columns = laplacian_eigenpairs(
                subgraph, self.k, np.float64 if dtype == torch.float64 else np.float32
            )
            if self.normalization == 'rw':
                columns = columns / np.sqrt(np.maximum(subgraph.sum(1), 1))[:, None]
                columns = columns / np.linalg.norm(columns, axis=0)
            vectors[nodes, : values.size], mask[graph, : values.size] = columns, True
        return {'vectors': torch.from_numpy(vectors).to(dtype), 'mask': torch.from_numpy(mask)}

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.k}, normalization={self.normalization!r}, '
            f'attr_name={self.attr_name!r})'
        )


@functional_transform('random_sign_flip')
class RandomSignFlip(BaseTransform):
    r"""Multiplies each column of a node attribute by 1 or -1 at random, separately in each graph of
    a batch (functional name: :obj:`random_sign_flip`).

    This is an augmentation for eigenvectors, whose signs have no meaning. Apply it to each batch,
    so that each step sees new signs.

    Args:
        attr_name (str, optional): Name of the attribute ``[N, k]``. (default:
            :obj:`"laplacian_pe"`)
        generator (torch.Generator, optional): Draws the signs. (default: :obj:`None`, torch's
            global generator)

    Raises:
        ValueError: If :obj:`attr_name` is no name, or the data has no such attribute.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.transforms import Compose
        >>> from torch_geometric_lgt.transforms import LaplacianPE, RandomSignFlip
        >>> path = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 3]]), num_nodes=4)
        >>> data = Compose([LaplacianPE(k=3), RandomSignFlip()])(path)
        >>> data.laplacian_pe.abs()[:, 0]
        tensor([0.5774, 0.4082, 0.4082, 0.5774])
    """

    def __init__(
        self, attr_name: str = 'laplacian_pe', generator: torch.Generator | None = None
    ) -> None:
        check_name(attr_name, optional=False)
        self.attr_name, self.generator = attr_name, generator

    def forward(self, data: Data) -> Data:
        r"""Returns the graph, or the batch of graphs, with the attribute under new signs."""
        if self.attr_name not in data:
            raise ValueError(
                f"'data' must have the attribute {self.attr_name!r} (got {data}); add it with "
                'LaplacianPE'
            )
        pe = data[self.attr_name]
        nodes = segments(data.batch, pe.size(0), None, pe.device)
        device = None if self.generator is None else self.generator.device
        sign = (
            2
            * torch.randint(
                2, (nodes.sizes.numel(), pe.size(1)), generator=self.generator, device=device
            )
            - 1
        )
        data[self.attr_name] = pe * sign.to(pe.device, pe.dtype)[node_to_graph(nodes, pe.size(0))]
        return data

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}({self.attr_name!r})'
