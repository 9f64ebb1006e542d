from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, Dataset, HeteroData
from torch_geometric.data.storage import EdgeStorage, NodeStorage
from torch_geometric.typing import EdgeType

from torch_geometric_lgt._graph_checks import graph_of_events
from torch_geometric_lgt.functional.neighbors.edges import edge_list, weighted_edges
from torch_geometric_lgt.functional.segment import Segments, node_to_graph, segments, split_graphs


def homogeneous(
    data: Data | HeteroData, edge_type: EdgeType | None = None
) -> tuple[NodeStorage, EdgeStorage]:
    r"""Returns the stores of the nodes and of the edges of a graph of one type, or of the part of
    :obj:`data` with the edges :obj:`edge_type`.

    Raises:
        ValueError: If :obj:`edge_type` is not set for :class:`torch_geometric.data.HeteroData`, or
            the data has no such edges.
    """
    check_graph(data)
    if isinstance(data, Data) and edge_type is None:
        return data._store, data._store
    if isinstance(data, Data) or edge_type not in data.edge_types:
        types = 'None for a Data' if isinstance(data, Data) else f'one of {data.edge_types}'
        raise ValueError(
            f"'edge_type' must be {types} (got {edge_type}); use to_homogeneous() for all types "
            'together'
        )
    return data[edge_type[0]], data[edge_type]


def check_graph(data: Any) -> None:
    r"""Raises a TypeError unless :obj:`data` is a graph or a batch."""
    if not isinstance(data, (Data, HeteroData)):
        fix = graph_of_events(data) or '; call the transform for each graph of a list'
        if isinstance(data, Dataset):
            fix = '; give a graph of the data set, such as dataset[0]'
        raise TypeError(
            f"'data' must be a Data, HeteroData or Batch (got {type(data).__name__}){fix}"
        )


def nodes_of(data: Data | HeteroData, node_type: str | None = None) -> NodeStorage:
    r"""Returns the store of the nodes of a graph of one type, or of the nodes :obj:`node_type`.

    Raises:
        ValueError: If :obj:`node_type` is not set for :class:`torch_geometric.data.HeteroData`, or
            the data has no such nodes.
    """
    check_graph(data)
    if isinstance(data, Data) and node_type is None:
        return data._store
    if isinstance(data, Data) or node_type not in data.node_types:
        types = 'None for a Data' if isinstance(data, Data) else f'one of {data.node_types}'
        raise ValueError(f"'node_type' must be {types} (got {node_type!r})")
    return data[node_type]


def check_edge_type(edge_type: EdgeType | None) -> None:
    r"""Checks that :obj:`edge_type` is :obj:`None`, or a triplet whose edges join nodes of one
    type.

    Raises:
        ValueError: If it is neither.
    """
    if edge_type is None:
        return
    names = edge_type if isinstance(edge_type, tuple) else ()
    if len(names) != 3 or not all(isinstance(name, str) for name in names):
        raise ValueError(
            "'edge_type' must be a triplet of names, as ('user', 'knows', 'user') (got "
            f'{edge_type!r})'
        )
    if names[0] != names[2]:
        raise ValueError(
            f"'edge_type' must join nodes of one type (got {edge_type}, which is bipartite)"
        )


def type_repr(edge_type: EdgeType | None) -> str:
    r"""Returns the end of a transform's representation: the edge type, if it is set."""
    return '' if edge_type is None else f', edge_type={edge_type}'


def num_nodes_of(store: NodeStorage) -> int:
    r"""Returns the number of nodes of a store.

    Raises:
        ValueError: If the store does not know its number of nodes.
    """
    if store.num_nodes is None:
        raise ValueError("'data' must know its number of nodes (got None); set 'num_nodes'")
    return store.num_nodes


def graphs_of(data: Data | HeteroData, store: NodeStorage) -> Segments:
    r"""Returns which nodes of :obj:`store` belong to which graph of a batch, on the CPU; all belong
    to one graph if the store has no :obj:`batch`."""
    batch = store.get('batch')
    size = data.num_graphs if isinstance(data, Batch) else None
    batch = None if batch is None else batch.cpu()
    return segments(batch, num_nodes_of(store), size, torch.device('cpu'))


def nodes_by_graph(graphs: Segments) -> list[np.ndarray]:
    r"""Returns the ids of the nodes of each graph."""
    every = torch.arange(int(graphs.sizes.sum()), device=graphs.sizes.device)
    return [nodes.numpy() for nodes in split_graphs(every, graphs)]


def check_inside_graphs(edges: Tensor, sources: Segments, targets: Segments) -> None:
    r"""Checks that each of the :obj:`edges` ``[2, E]`` of a batch has both ends in one graph.

    Raises:
        ValueError: If an edge joins two graphs, which no encoding of single graphs counts.
    """
    if sources.sizes.numel() == targets.sizes.numel() == 1:
        return
    graph = torch.stack(
        [
            node_to_graph(side, int(side.sizes.sum()))[nodes]
            for side, nodes in zip((sources, targets), edges.cpu(), strict=True)
        ]
    )
    between = (graph[0] != graph[1]).nonzero().flatten()
    if between.numel() > 0:
        (source, target), (first, other) = edges[:, between[0]], graph[:, between[0]]
        raise ValueError(
            "'data' must have edges within the graphs of its 'batch' (got "
            f'{between.numel()} between two, such as that from node {source} of graph {first} to '
            f'node {target} of graph {other}); remove these edges, or give a Data without '
            "'batch' to encode all nodes as one graph"
        )


def edges_of(store: EdgeStorage, num_src: int, num_dst: int) -> Tensor:
    r"""Reads the edges ``[2, E]`` of a store from :obj:`edge_index`, or else from :obj:`adj_t`.
    Rows are sources and targets, in int64.

    Raises:
        ValueError: If the store has neither, or an adjacency matrix has values other than 1. If an
            id is outside the :obj:`num_src` sources or the :obj:`num_dst` targets.
    """
    name = _name_of(store)
    return edge_list(store[name], num_src, num_dst, name)


def weighted_edges_of(
    store: EdgeStorage, num_src: int, num_dst: int
) -> tuple[Tensor, Tensor | None]:
    r"""Reads the edges ``[2, E]`` of a store as :meth:`edges_of` does, and their weights ``[E]``.

    Weights are the attribute :obj:`edge_weight`, or the values of :obj:`adj_t`, which is then read
    also beside an :obj:`edge_index`. The weights are :obj:`None` if the store has neither, or if
    all values of the matrix are 1.

    Raises:
        ValueError: If the store has neither :obj:`edge_index` nor :obj:`adj_t`, or without an
            :obj:`edge_index` has weights in both places. If an id is outside the nodes, or the
            number of weights differs from that of the edges.
    """
    weight = store.get('edge_weight')
    name = 'adj_t' if weight is None and 'adj_t' in store else _name_of(store)
    return weighted_edges(store[name], num_src, num_dst, weight, name)


def _name_of(store: EdgeStorage) -> str:
    r"""Returns the name of the attribute with the edges: ``'edge_index'``, or ``'adj_t'`` if the
    store lacks the former.

    Raises:
        ValueError: If the store has neither.
    """
    for name in ('edge_index', 'adj_t'):
        if name in store:
            return name
    raise ValueError("'data' must have an 'edge_index' or an 'adj_t' (got neither)")
