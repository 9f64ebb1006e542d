# N = U + I nodes (U users, I items), S size of the structural encoding.
from collections.abc import Iterable

import torch
from torch import Tensor
from torch_geometric.data import HeteroData

from torch_geometric_lgt._arguments import check_choice, nearest_name
from torch_geometric_lgt.functional.neighbors.edges import weighted_edges
from torch_geometric_lgt.functional.neighbors.hops import degrees
from torch_geometric_lgt.nn._layers.input_checks import check_tensor

ENCODING = 'svd_pe'  # the name that SVDEncoding gives by default


def users_and_items(data: HeteroData, user_type: str | None) -> dict[str, int]:
    r"""Returns the numbers of users and of items by their node types, users first: the type
    :obj:`user_type`, by default the first node type.

    Raises:
        ValueError: If :obj:`data` is not a HeteroData of two node types with nodes and edges, or
            :obj:`user_type` is no node type, or is missing where the first edges do not start at
            the first node type.
    """
    if not isinstance(data, HeteroData):
        raise ValueError(
            "'data' must be a HeteroData of users and items, such as dataset[0] of an "
            f'InteractionDataset (got {type(data).__name__})'
        )
    names = list(data.node_types)
    ends = {name for source, _, target in data.edge_types for name in (source, target)}
    hint = '; set num_nodes of both node types' if len(names) < 2 and len(ends) == 2 else ''
    if len(names) != 2 or not ends or not ends <= set(names):
        raise ValueError(
            "'data' must have two node types, users and items, and edges of these types only "
            f'(got {names} and {data.edge_types}){hint}'
        )
    first = next((s for s, _, t in data.edge_types if s != t), names[0])
    if user_type is None and first != names[0]:
        raise ValueError(
            f"'user_type' must name the users where the first node type, {names[0]!r}, is not "
            f'the source of the first edges (got {data.edge_types}); give one of {names}'
        )
    if user_type is not None:
        check_choice('user_type', user_type, names)
        names.sort(key=lambda name: name != user_type)
    sizes = {name: data[name].num_nodes for name in names}
    if not all(sizes.values()):
        raise ValueError(
            f"'data' must have users and items (got {sizes}); set num_nodes of both node types"
        )
    return sizes


def joint_encoding(data: HeteroData, names: Iterable[str], attr_name: str) -> Tensor | None:
    r"""Joins the attribute :obj:`attr_name` of both node types :obj:`names`, ``[N, S]``, or returns
    :obj:`None` if neither has it.

    Raises:
        ValueError: If only one node type has the attribute. If neither has it, and it is not the
            one that :class:`SVDEncoding` adds by default.
    """
    encodings = {name: data[name][attr_name] for name in names if attr_name in data[name]}
    if len(encodings) == 1:
        raise ValueError(
            f"'attr_name' must be an attribute of both node types, or of neither (got "
            f'{attr_name!r}, which only {next(iter(encodings))!r} has)'
        )
    if not encodings and attr_name != ENCODING:
        known = {key for store in data.node_stores for key in store}
        raise ValueError(
            f"'attr_name' must be an attribute of both node types (got {attr_name!r}, which "
            f'neither has){nearest_name(attr_name, known)}'
        )
    return torch.cat([*encodings.values()]) if encodings else None


def joint_degrees(data: HeteroData, sizes: dict[str, int]) -> Tensor:
    r"""Counts the distinct neighbours of each node over all edge types in either direction,
    ``[N]``, for two node types of the given :obj:`sizes`.

    Raises:
        TypeError: If an edge type has neither :obj:`edge_index` nor :obj:`adj_t`.
        ValueError: If an id is outside the nodes of its type.
    """
    first, second = sizes
    start = {first: 0, second: sizes[first]}
    pairs = []
    for (source, _, target), store in zip(data.edge_types, data.edge_stores, strict=True):
        name = 'adj_t' if 'adj_t' in store and 'edge_index' not in store else 'edge_index'
        edges, _ = weighted_edges(store.get(name), sizes[source], sizes[target], argument=name)
        pairs.append(edges + edges.new_tensor([[start[source]], [start[target]]]))
    return degrees(torch.cat(pairs, 1), sum(sizes.values()))


def check_node_rows(name: str, value: Tensor | None, num_nodes: int, dim: int) -> None:
    r"""Checks that the argument :obj:`name`, unless it is :obj:`None`, is a tensor of :obj:`dim`
    dimensions, 1 or 2, with one row for each of the :obj:`num_nodes` nodes.

    Raises:
        TypeError: If it is no tensor.
        ValueError: If it has another shape.
    """
    if value is None:
        return
    check_tensor(value, name)
    if value.dim() != dim or value.size(0) != num_nodes:
        shape = f'[{num_nodes}, S]' if dim == 2 else f'[{num_nodes}]'
        raise ValueError(
            f"'{name}' must have shape {shape}, users before items (got {tuple(value.shape)})"
        )
