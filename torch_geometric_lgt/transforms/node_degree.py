import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform
from torch_geometric.utils import scatter

from torch_geometric_lgt.functional.neighbors.edges import degrees
from torch_geometric_lgt.transforms._stores import (
    add_node_attr,
    check_name,
    edges_of,
    num_nodes_of,
    weighted_edges_of,
)


@functional_transform('node_degree')
class NodeDegree(BaseTransform):
    r"""Adds the number of distinct neighbours of each node, in whichever direction the edges run
    and without the node itself (functional name: :obj:`node_degree`). Repeated edges count once. On
    :class:`~torch_geometric.data.HeteroData` the neighbours over all edge types count, each node
    once. Loaders slice the attribute, so that a sampled batch carries the degrees in the full
    graph: those that layers divide by, where every edge is there once and in both directions and
    none joins a node to itself.

    With :obj:`weighted` it is the sum of the weights of the edges into a node, self loops left out.
    Weights are the attribute :obj:`edge_weight` of the edges or the values of :obj:`adj_t`, else 1,
    and repeated edges count again. Layers divide by these sums where every edge is there once and
    in both directions with one weight.

    Args:
        attr_name (str, optional): Name of the attribute, ``[N]`` in int64, or with :obj:`weighted`
            in floating point. If set to :obj:`None`, the degrees are appended to :obj:`x` as a
            column in its dtype, or become :obj:`x` where there is none. (default: :obj:`"degree"`)
        weighted (bool, optional): If :obj:`True`, weights are summed up. (default: :obj:`False`)

    Raises:
        ValueError: If the data has no edges, an edge names a node that does not exist, :obj:`x` is
            sparse and takes no column, or without :obj:`weighted` an adjacency matrix has values
            other than 1.
    """

    def __init__(self, attr_name: str | None = 'degree', weighted: bool = False) -> None:
        check_name(attr_name, optional=True)
        self.attr_name, self.weighted = attr_name, weighted

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        start, count, total = {}, {}, 0
        for store in data.node_stores:
            start[store._key], count[store._key] = total, num_nodes_of(store)
            total += count[store._key]
        edges, weights = [torch.empty((2, 0), dtype=torch.long)], [torch.empty(0)]
        for store in data.edge_stores:
            src, dst = (
                (store._key[0], store._key[2]) if isinstance(data, HeteroData) else (None, None)
            )
            if self.weighted:
                edge_index, weight = weighted_edges_of(store, count[src], count[dst])
                weights.append(
                    torch.ones(edge_index.size(1), device=edge_index.device)
                    if weight is None
                    else weight
                )
            else:
                edge_index = edges_of(store, count[src], count[dst])
            edges.append(edge_index + edge_index.new_tensor([[start[src]], [start[dst]]]))
        edge_index = torch.cat([edge.to(edges[-1].device) for edge in edges], 1)
        if len(edges) == 1:
            raise ValueError("'data' must have an 'edge_index' or an 'adj_t' (got neither)")
        if self.weighted:
            weight = torch.cat([weight.to(edge_index.device) for weight in weights])
            degree = scatter(
                weight.masked_fill(edge_index[0] == edge_index[1], 0),
                edge_index[1],
                0,
                total,
                'sum',
            )
        else:
            degree = degrees(edge_index, total)
        for store in data.node_stores:
            add_node_attr(
                store,
                degree[start[store._key] : start[store._key] + count[store._key]],
                self.attr_name,
            )
        return data

    def __repr__(self) -> str:
        weighted = ', weighted=True' if self.weighted else ''
        return f'{self.__class__.__name__}({self.attr_name!r}{weighted})'
