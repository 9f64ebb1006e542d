from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, Dataset, HeteroData
from torch_geometric.data.storage import BaseStorage, EdgeStorage, NodeStorage
from torch_geometric.typing import EdgeType

from torch_geometric_lgt._arguments import check_attribute_name
from torch_geometric_lgt._graph_checks import graph_of_events
from torch_geometric_lgt.functional.neighbors.edges import (
    edge_list,
    sparse_entries,
    weighted_edges,
)
from torch_geometric_lgt.functional.segment import (
    Segments,
    node_to_graph,
    segments,
    split_graphs,
)

# names of PyG that transforms store values under only where the data has none
INPUTS = ('x', 'y', 'pos', 'edge_attr', 'edge_weight', 'train_mask', 'val_mask', 'test_mask')


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

    Weights are the attribute :obj:`edge_weight`, or the values of an adjacency matrix. The weights
    are :obj:`None` if the store has neither, or if all values of the matrix are 1.

    Raises:
        ValueError: If the store has neither :obj:`edge_index` nor :obj:`adj_t`, or there are
            weights in both places. If an id is outside the nodes, or the number of weights differs
            from that of the edges.
    """
    name = _name_of(store)
    return weighted_edges(store[name], num_src, num_dst, store.get('edge_weight'), name)


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


def check_name(attr_name: str | None, optional: bool) -> None:
    r"""Checks that :obj:`attr_name` is a string that is not empty, or :obj:`None` if
    :obj:`optional`.

    Raises:
        ValueError: If :obj:`attr_name` is neither, or a name from which PyG reads a meaning.
    """
    if not (optional and attr_name is None) and not (isinstance(attr_name, str) and attr_name):
        raise ValueError(
            f"'attr_name' must be a name{', or None for columns of x' if optional else ''} (got "
            f'{attr_name!r})'
        )
    if attr_name is not None:
        check_attribute_name("'attr_name'", attr_name)


def check_no_input(data: Data | HeteroData, attr_name: str | None, has_mask: bool = False) -> None:
    r"""Checks that a transform does not replace an input of the user, such as features or labels.
    With :obj:`has_mask`, the transform also stores a mask, whose name ends in ``_mask``.

    Raises:
        ValueError: If :obj:`attr_name` or the name of the mask is a usual name of inputs, and the
            data has this attribute.
    """
    check_graph(data)
    for name in (attr_name, f'{attr_name}_mask') if has_mask else (attr_name,):
        if name in INPUTS and any(name in store for store in data.stores):
            mask = '' if name == attr_name else f' with the mask {name!r}'
            raise ValueError(
                f"'attr_name' must be no input of the data (got {attr_name!r}{mask}, which the "
                'data has already); choose another name'
            )


def split_in_batch(
    data: Data | HeteroData, store: Any, attr_name: str | None, level: str = 'node'
) -> None:
    r"""Notes which values of the attribute :obj:`attr_name` of :obj:`store` belong to which graph
    of a batch, so that :meth:`to_data_list` and an index return them. Does nothing for one graph.

    Args:
        data (Data or HeteroData): The graph or batch.
        store: The store of the attribute, or :obj:`data` itself.
        attr_name (str, optional): The name; :obj:`None` for :obj:`x`.
        level (str, optional): What has a value: a :obj:`"node"`, an :obj:`"edge"` or a
            :obj:`"graph"`. (default: :obj:`"node"`)
    """
    batch: Any = data
    if not isinstance(data, Batch) or not hasattr(batch, '_slice_dict'):
        return
    num_graphs, key = data.num_graphs, store._key if isinstance(store, BaseStorage) else None
    # the input of a transform has the same dictionaries
    slices, steps = batch._slice_dict, batch._inc_dict = {**batch._slice_dict}, {**batch._inc_dict}
    if key is not None:
        slices[key], steps[key] = {**slices.get(key, {})}, {**steps.get(key, {})}
        slices, steps = slices[key], steps[key]
    pointer = {
        'node': lambda: store.get('ptr'),
        'edge': lambda: _edge_pointer(store, slices),
        'graph': lambda: torch.arange(num_graphs + 1, device='cpu'),
    }[level]()
    if pointer is not None:
        slices[attr_name or 'x'] = pointer.cpu()
        steps[attr_name or 'x'] = torch.zeros(num_graphs, dtype=torch.long, device='cpu')


def _edge_pointer(store: Any, slices: dict[str, Any]) -> Tensor | None:
    r"""Returns the positions ``[B + 1]`` at which the edges of each graph of a batch begin and end:
    the :obj:`slices` of :obj:`edge_index`, or the rows of :obj:`adj_t`, which are the targets.
    Returns :obj:`None` if the batch knows neither."""
    if 'edge_index' in slices or 'adj_t' not in slices:
        return slices.get('edge_index')
    entries = sparse_entries(store['adj_t'])
    first_rows = slices['adj_t'][:, 0].contiguous()
    return None if entries is None else torch.searchsorted(entries[0].cpu(), first_rows)


def add_node_attr(store: NodeStorage, value: Tensor, attr_name: str | None) -> None:
    r"""Stores node values, ``[N]`` or ``[N, K]``, in :obj:`store` under a name or as columns of
    :obj:`x`.

    If the name is :obj:`None`, the values are appended to :obj:`x` in the dtype of :obj:`x`. If the
    store has no :obj:`x`, they become :obj:`x`, in floating point.
    :meth:`torch_geometric.transforms.add_positional_encoding.add_node_attr` does the same.

    Raises:
        ValueError: If :obj:`x` is sparse, has more than two dimensions or other rows than there are
            nodes, or its dtype cannot hold the values.
    """
    if attr_name is not None:
        store[attr_name] = value
        return
    value, x = value if value.dim() == 2 else value[:, None], store.get('x')
    if x is None:
        store.x = value if value.is_floating_point() else value.to(torch.get_default_dtype())
        return
    if (
        not isinstance(x, Tensor)
        or x.layout != torch.strided
        or x.dim() > 2
        or not (x.is_floating_point() or not value.is_floating_point())
    ):
        form = type(x).__name__
        if isinstance(x, Tensor):
            form = f'{x.layout} of shape {tuple(x.shape)} in {x.dtype}'
        raise ValueError(
            "'x' must be dense, of at most two dimensions and of a dtype that holds "
            f"{value.dtype} to append columns (got {form}); set 'attr_name'"
        )
    if x.size(0) != value.size(0):
        raise ValueError(
            f"'x' must have a row for each of {value.size(0)} nodes of the data (got {x.size(0)}); "
            "correct 'x' or 'num_nodes'"
        )
    columns = value.to(x.device, x.dtype)
    restored = columns.to(value.device)
    changed = (
        value.isfinite() & ~restored.isfinite()
        if x.is_floating_point()
        else restored.to(value.dtype) != value
    )
    if bool(changed.any()):
        raise ValueError(
            f"'x' must have a dtype that holds the new columns (got {x.dtype} for "
            f"{value[changed][0].item()}); set 'attr_name'"
        )
    store.x = torch.cat([x if x.dim() > 1 else x[:, None], columns], 1)
