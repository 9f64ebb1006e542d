# N nodes, E edges.
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import scatter

from torch_geometric_lgt._arguments import check_flags
from torch_geometric_lgt._graph_checks import check_node_types
from torch_geometric_lgt.functional.neighbors.hops import degrees
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.transforms._attributes import add_node_attr, check_name, check_no_input
from torch_geometric_lgt.transforms._stores import edges_of, num_nodes_of, weighted_edges_of


@functional_transform('node_degree')
class NodeDegree(BaseTransform):
    r"""Adds the number of distinct neighbours of each node, in either direction and without the
    node itself (functional name: :obj:`node_degree`).

    Repeated edges count once. On :class:`~torch_geometric.data.HeteroData` the neighbours over all
    edge types count, each node once. Loaders slice the attribute, so a sampled batch carries the
    degrees of the full graph, which are what the argument :obj:`degree` of layers and models
    expects. On a graph that has each edge once in both directions and no self loops, a layer
    without this argument counts the same degrees. On a directed graph they are neither the
    in-degrees nor the out-degrees. There :class:`~torch_geometric_lgt.nn.SGFormer` needs
    ``weighted=True``, and :class:`~torch_geometric_lgt.nn.DIFFormer` the pair that
    :meth:`DIFFormer.forward` describes.

    With :obj:`weighted`, the degree is the sum of the weights of a node's incoming edges over all
    edge types, without self loops; repeated edges count each time. Weights are the edge attribute
    :obj:`edge_weight` or the values of :obj:`adj_t`, else 1, so that the sums are in-degrees. On a
    graph that has each edge once in both directions, with one weight for both, a layer with weights
    computes the same sums.

    Args:
        attr_name (str, optional): Name of the degrees, a node attribute ``[N]`` in int64. With
            :obj:`weighted` they are in the dtype of the weights and in at least single precision,
            or in the default dtype without weights. If set to :obj:`None`, the degrees are appended
            to :obj:`x` as a column in the dtype of :obj:`x`. If the data has no :obj:`x`, they
            become :obj:`x`. (default: :obj:`"degree"`)
        weighted (bool, optional): If :obj:`True`, sum up weights instead of counting neighbours.
            (default: :obj:`False`)

    Raises:
        TypeError: If the data is no graph of PyG.
        ValueError: If the data has neither edges nor ``adj_t``, or an edge names a node that does
            not exist. If the number of nodes of a type is unknown. If the degrees cannot be
            appended to :obj:`x`, because :obj:`x` is sparse or of a dtype that cannot hold them. If
            ``adj_t`` has values other than 1, which only ``weighted=True`` uses. (The attribute
            :obj:`edge_weight` raises no error without :obj:`weighted`; it is ignored.) With
            :obj:`weighted`, if :obj:`edge_weight` is not one floating-point number for each edge.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_lgt.transforms import NodeDegree
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
        >>> weight = torch.tensor([0.5, 0.5, 2.0, 2.0, 1.0, 1.0])
        >>> data = Data(edge_index=edge_index, edge_weight=weight, num_nodes=4)
        >>> NodeDegree()(data).degree
        tensor([1, 2, 2, 1])
        >>> NodeDegree(weighted=True)(data).degree
        tensor([0.5000, 2.5000, 3.0000, 1.0000])
    """

    def __init__(self, attr_name: str | None = 'degree', weighted: bool = False) -> None:
        check_name(attr_name, optional=True)
        check_flags(weighted=weighted)
        self.attr_name, self.weighted = attr_name, weighted

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        r"""Adds one degree for each node of each type to the graph, and returns the graph."""
        check_no_input(data, self.attr_name)
        if isinstance(data, HeteroData):
            check_node_types(data)
        rows, total = {}, 0  # the nodes of each type among those of all types
        for store in data.node_stores:
            rows[store._key] = slice(total, total + num_nodes_of(store))
            total = rows[store._key].stop
        edge_index, weight = self._joint_edges(data, rows)
        if weight is None:
            degree = degrees(edge_index, total)
        else:
            weight = weight.masked_fill(edge_index[0] == edge_index[1], 0)
            degree = scatter(weight, edge_index[1], 0, total, 'sum')
        for store in data.node_stores:
            add_node_attr(data, store, degree[rows[store._key]], self.attr_name)
        return data

    def _joint_edges(
        self, data: Data | HeteroData, rows: dict[Any, slice]
    ) -> tuple[Tensor, Tensor | None]:
        r"""Joins the edges of all types. Returns them as ``[2, E]``, with ids among the nodes of
        all types, and their weights ``[E]`` if the transform adds up weights, else :obj:`None`.

        Args:
            data (Data or HeteroData): The graph.
            rows (dict): The range of ids of each node type.

        Raises:
            ValueError: If the data has no edges.
        """
        edges, weights = [], []
        for store in data.edge_stores:
            ends = store._key[::2] if isinstance(data, HeteroData) else (None, None)
            source, target = (rows[kind] for kind in ends)
            sizes = source.stop - source.start, target.stop - target.start
            if self.weighted:
                edge_index, weight = weighted_edges_of(store, *sizes)
                if weight is None:
                    weight = torch.ones(edge_index.size(1), device=edge_index.device)
                weights.append(weight.to(compute_dtype(weight.dtype)))
            else:
                edge_index = edges_of(store, *sizes)
            edges.append(edge_index + edge_index.new_tensor([[source.start], [target.start]]))
        if not edges:
            raise ValueError("'data' must have an 'edge_index' or an 'adj_t' (got neither)")
        device = edges[-1].device
        joint = torch.cat([edge.to(device) for edge in edges], 1)
        if not self.weighted:
            return joint, None
        return joint, torch.cat([weight.to(device) for weight in weights])

    def __repr__(self) -> str:
        weighted = ', weighted=True' if self.weighted else ''
        return f'{self.__class__.__name__}({self.attr_name!r}{weighted})'
