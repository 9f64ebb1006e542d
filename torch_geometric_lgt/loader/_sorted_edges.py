# N nodes, E edges.
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset
from torch_geometric.data import Data, FeatureStore, GraphStore, HeteroData
from torch_geometric.data.remote_backend_utils import num_nodes
from torch_geometric.sampler.utils import to_csc, to_hetero_csc
from torch_geometric.utils import lexsort

from torch_geometric_lgt._graph_checks import check_node_types, graph_of_events
from torch_geometric_lgt.loader._edge_order import SINGLE_EDGE_TYPE, SINGLE_NODE_TYPE
from torch_geometric_lgt.loader._neighborhoods import NeighborEdges


class SortedGraph(NamedTuple):
    r"""Holds the edges of a graph, sorted by target within each edge type.

    :obj:`sizes` has the number of nodes by node type, :obj:`edges` the sorted
    :class:`NeighborEdges` by edge type. :obj:`permutation` has, by edge type, the permutation
    ``[E]`` that sorts the edges, or :obj:`None` if they are sorted. A homogeneous graph has the
    node type ``SINGLE_NODE_TYPE`` and the edge type ``SINGLE_EDGE_TYPE``. :obj:`node_time` has the
    times ``[N]`` of nodes by node type, and is :obj:`None` if edges have times or nothing has.
    """

    sizes: dict[str, int]
    edges: dict[Any, NeighborEdges]
    permutation: dict[Any, Tensor | None]
    node_time: dict[str, Tensor] | None = None


def pair_of_stores(data: Any) -> Any:
    r"""Returns a store of features and edges, such as a MappedGraph, as PyG's pair of stores.
    A Data, a HeteroData and a pair are returned unchanged.

    Raises:
        ValueError: If :obj:`data` is nothing of these.
    """
    if isinstance(data, (Data, HeteroData)):
        return data
    if isinstance(data, FeatureStore) and isinstance(data, GraphStore):
        return data, data
    kinds = (FeatureStore, GraphStore)
    if isinstance(data, tuple) and len(data) == 2 and all(map(isinstance, data, kinds)):
        return data
    parts = data if isinstance(data, tuple) else (data,)
    hint = graph_of_events(data)
    if isinstance(data, Dataset):
        hint = '; give one of its graphs, such as dataset[0]'
    raise ValueError(
        "'data' must be a Data, a HeteroData, a MappedGraph or a pair of a feature store and a "
        f'graph store (got {", ".join(type(part).__name__ for part in parts)}){hint}'
    )


def sorted_graph(
    data: Any, time_attr: str | None, weight_attr: str | None, share_memory: bool
) -> SortedGraph:
    r"""Sorts the edges of each edge type by target. The times of nodes or edges and the weights of
    edges are the attributes of the names :obj:`time_attr` and :obj:`weight_attr`.

    Raises:
        ValueError: If no attribute has such a name, nodes and edges both have times, or times or
            weights are not one valid number for each node or edge.
    """
    device = torch.device('cpu')
    pointer: dict[Any, Tensor]
    row: dict[Any, Tensor]
    permutation: dict[Any, Tensor | None]
    if isinstance(data, Data):
        sizes = {SINGLE_NODE_TYPE: data.num_nodes or 0}
        csc = to_csc(data, device=device, share_memory=share_memory)
        pointer, row = {SINGLE_EDGE_TYPE: csc[0]}, {SINGLE_EDGE_TYPE: csc[1]}
        permutation = {SINGLE_EDGE_TYPE: csc[2]}
    else:
        check_node_types(data)
        sizes = {kind: data[kind].num_nodes or 0 for kind in data.node_types}
        pointer, row, permutation = to_hetero_csc(data, device=device, share_memory=share_memory)
    edges = {kind: NeighborEdges(pointer[kind], row[kind]) for kind in pointer}
    node_time, edge_time = _times(data, sizes, edges, time_attr)
    weights = {} if weight_attr is None else _edge_values(data, edges, 'weight_attr', weight_attr)
    for kind, part in edges.items():
        weight, time = weights.get(kind), edge_time.get(kind)
        if weight is not None:
            part = part._replace(weight=_permuted(weight, permutation[kind]))
        if time is not None:
            part = _with_time(part, _permuted(time, permutation[kind]), permutation[kind])
        elif kind[0] in node_time:
            part = _with_time(part, node_time[kind[0]][part.source.long()], permutation[kind])
        if share_memory:
            for values in part[2:]:
                if values is not None:
                    values.share_memory_()
        edges[kind] = part
    return SortedGraph(sizes, edges, permutation, node_time or None)


def stored_graph(features: FeatureStore, store: GraphStore) -> SortedGraph:
    r"""Reads sorted edges from a pair of a feature store and a graph store.

    Raises:
        ValueError: If only some of the edges have a type, or the number of nodes is not known.
    """
    edges, permutation = stored_edges(store)
    largest = 0
    for attribute in store.get_all_edge_attrs():
        if attribute.size is None or None in attribute.size:
            raise ValueError(
                "'size' must be set for the edges of a graph store, to the numbers of sources and "
                f'targets (got {attribute.size} for the edge type {attribute.edge_type})'
            )
        largest = max(largest, *attribute.size)
    kinds = stored_node_types(features, store)
    typed = {kind: num_nodes(features, store, kind) for kind in kinds}
    sizes = typed or {SINGLE_NODE_TYPE: largest}
    return SortedGraph(sizes, edges, permutation)


def stored_edges(store: GraphStore) -> tuple[dict[Any, NeighborEdges], dict[Any, Tensor | None]]:
    r"""Reads the edges of a graph store, sorted by target, and the permutation that sorts them,
    both by edge type.

    Raises:
        ValueError: If only some of the edges have a type.
    """
    kinds = {attribute.edge_type for attribute in store.get_all_edge_attrs()}
    if None in kinds and len(kinds) > 1:
        raise ValueError(
            "'data' must have a graph store in which all edges have a type, or none has one (got "
            'both)'
        )
    csc: Any = store.csc()
    if kinds == {None}:
        csc = [{SINGLE_EDGE_TYPE: part} for part in csc]
    row, pointer, permutation = csc
    return {kind: NeighborEdges(pointer[kind], row[kind]) for kind in row}, permutation


def stored_node_types(features: FeatureStore, store: GraphStore) -> list[str]:
    r"""Returns the node types of a pair of stores, none if its edges have no types."""
    kinds = [attribute.edge_type for attribute in store.get_all_edge_attrs()]
    ends = [kind[i] for kind in kinds if kind is not None for i in (0, -1)]
    groups = [attribute.group_name for attribute in features.get_all_tensor_attrs()]
    names = [name for name in ends + groups if isinstance(name, str)]  # edges have features, too
    return list(dict.fromkeys(names)) if ends else []


def _times(
    data: Data | HeteroData,
    sizes: dict[str, int],
    edges: dict[Any, NeighborEdges],
    name: str | None,
) -> tuple[dict[str, Tensor], dict[Any, Tensor]]:
    r"""Reads the times of the attribute :obj:`name`: ``[N]`` by node type and ``[E]`` by edge
    type. One of the two dictionaries is empty.

    Raises:
        ValueError: If nodes and edges both have the attribute, or neither.
    """
    if name is None:
        return {}, {}
    if isinstance(data, Data):
        on_nodes = name in data and data.is_node_attr(name)
        nodes = {SINGLE_NODE_TYPE: data[name]} if on_nodes else {}
    else:
        nodes = {store._key: store[name] for store in data.node_stores if name in store}
        if nodes and any(name in store for store in data.edge_stores):
            raise ValueError(
                f"'time_attr' must name an attribute of nodes or of edges (got {name!r}, which "
                'both have); rename one'
            )
    if not nodes:
        return {}, _edge_values(data, edges, 'time_attr', name)
    return {
        kind: _checked('time_attr', name, value, sizes[kind], 'node')
        for kind, value in nodes.items()
    }, {}


def _edge_values(
    data: Data | HeteroData, edges: dict[Any, NeighborEdges], argument: str, name: str
) -> dict[Any, Tensor]:
    r"""Reads the values ``[E]`` of the edge attribute :obj:`name` by edge type.

    Raises:
        ValueError: If no edge type has the attribute, or weights are negative or not finite.
    """
    if isinstance(data, Data):
        # an attribute with one value for each node and each edge counts as one of nodes for PyG
        on_edges = name in data and (argument == 'weight_attr' or data.is_edge_attr(name))
        attributes = {SINGLE_EDGE_TYPE: data[name]} if on_edges else {}
    else:
        attributes = {store._key: store[name] for store in data.edge_stores if name in store}
    if not attributes:
        of = 'edges' if argument == 'weight_attr' else 'nodes or edges'
        raise ValueError(f"'{argument}' must name an attribute of {of} (got {name!r})")
    values = {
        kind: _checked(argument, name, value, edges[kind].source.numel(), 'edge')
        for kind, value in attributes.items()
    }
    if argument == 'time_attr':
        return values
    weights = {kind: value.double() for kind, value in values.items()}
    for value in weights.values():
        wrong = value[~(value.isfinite() & (value >= 0))]
        if wrong.numel() > 0:
            raise ValueError(
                "'weight_attr' must have weights that are finite and not negative (got "
                f'{wrong[0].item()} in {name!r})'
            )
    return weights


def _checked(argument: str, name: str, value: Any, size: int, what: str) -> Tensor:
    r"""Checks that an attribute has one number for each of :obj:`size` nodes or edges, and returns
    it on the CPU.

    Raises:
        ValueError: If it has not, or one of the numbers is NaN.
    """
    if not isinstance(value, Tensor) or value.shape != (size,) or value.is_complex():
        form = f'shape {list(value.shape)}' if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"'{argument}' must name one number for each {what}, {[size]} (got {form} in {name!r})"
        )
    if bool(value.isnan().any()):
        raise ValueError(f"'{argument}' must name an attribute without NaN (got NaN in {name!r})")
    return value.cpu()


def _permuted(value: Tensor, permutation: Tensor | None) -> Tensor:
    return value if permutation is None else value[permutation]


def _with_time(edges: NeighborEdges, time: Tensor, permutation: Tensor | None) -> NeighborEdges:
    r"""Sorts the times ``[E]`` of the edge ids within each target, and adds them to the edges.
    Weights get the same order. Edges of equal time keep the order they have in the data."""
    keys = [time, torch.repeat_interleave(edges.pointer.diff())]
    order = lexsort(keys if permutation is None else [permutation, *keys])
    weight = None if edges.weight is None else edges.weight[order]
    return edges._replace(time=time[order], by_time=order, weight=weight)
