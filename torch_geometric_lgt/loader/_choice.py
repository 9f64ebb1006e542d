import logging
from typing import Any

import torch
import torch_geometric.typing
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.typing import EdgeType

from torch_geometric_lgt.loader._attributes import check_layouts
from torch_geometric_lgt.loader._edge_order import check_edges
from torch_geometric_lgt.loader._temporal import check_strategy
from torch_geometric_lgt.loader.neighbor_sampler import NeighborSampler, checked_subgraph_type

OPTIONS = (
    'replace',
    'subgraph_type',
    'disjoint',
    'temporal_strategy',
    'time_attr',
    'weight_attr',
)


def with_sampler(
    data: Any, num_neighbors: list[int] | dict, arguments: dict[str, Any]
) -> tuple[dict[str, Any], list[EdgeType]]:
    r"""Adds a :class:`NeighborSampler` to the :obj:`arguments` of one of PyG's loaders, unless they
    have a sampler or that of ``pyg-lib`` can be used.

    Returns:
        The arguments, and the edge types whose sampled edges the loader must sort: those with an
        :obj:`adj_t`, unless the sampler sorts them.

    Raises:
        ValueError: If an argument of the sampler is not valid, or the loader cannot read the edges
            or attributes.
    """
    sampler = arguments.get('neighbor_sampler')
    if sampler is None:
        check_strategy(arguments.get('temporal_strategy', 'uniform'), arguments.get('time_attr'))
    compiled = torch_geometric.typing.WITH_PYG_LIB and not (
        _has_short_ids(data) or _needs_own_sampler(arguments)
    )
    if sampler is None and not compiled:
        sampler = _make_sampler(data, num_neighbors, arguments)
        arguments = arguments | {'neighbor_sampler': sampler}
    if not isinstance(data, (Data, HeteroData)):
        return arguments, []
    types = [] if isinstance(sampler, NeighborSampler) else check_edges(data)
    check_layouts(data, arguments)
    return arguments, types


def _make_sampler(
    data: Any, num_neighbors: list[int] | dict, arguments: dict[str, Any]
) -> NeighborSampler:
    options = {name: arguments[name] for name in OPTIONS if name in arguments}
    if not arguments.get('directed', True):  # PyG's older name of it
        options.setdefault('subgraph_type', 'induced')
    logging.getLogger(__name__).info(
        'NeighborSampler draws neighbours: pyg-lib is not installed, or does not take the graph or '
        'the options'
    )
    workers = arguments.get('num_workers', 0) > 0
    return NeighborSampler(data, num_neighbors, **options, share_memory=workers)


def _needs_own_sampler(arguments: dict[str, Any]) -> bool:
    r"""Returns whether the arguments have induced subgraphs, or times together with weights, which
    ``pyg-lib`` does not take."""
    kind = checked_subgraph_type(arguments.get('subgraph_type', 'directional'))
    is_induced = kind == SubgraphType.induced or not arguments.get('directed', True)
    names = 'time_attr', 'weight_attr'
    return is_induced or all(arguments.get(name) is not None for name in names)


def _has_short_ids(data: Any) -> bool:
    r"""Returns whether :obj:`data` is a pair of stores whose graph store has node ids in int32."""
    if not isinstance(data, tuple):
        return False
    ids = (data[1].get_edge_index(attr)[0] for attr in data[1].get_all_edge_attrs())
    return any(row.dtype == torch.int32 for row in ids)
