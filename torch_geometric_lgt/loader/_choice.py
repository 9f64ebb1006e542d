import logging
from typing import Any

import torch
import torch_geometric.typing

from torch_geometric_lgt.loader._temporal import check_strategy
from torch_geometric_lgt.loader.neighbor_sampler import NeighborSampler

OPTIONS = (
    'replace',
    'subgraph_type',
    'disjoint',
    'temporal_strategy',
    'time_attr',
    'weight_attr',
)


def own_sampler(
    data: Any, num_neighbors: list[int] | dict, arguments: dict[str, Any]
) -> NeighborSampler | None:
    r"""Makes the sampler of a loader that has PyG's :obj:`arguments`, or returns :obj:`None` if
    the loader must use another one: a given sampler, or that of ``pyg-lib``.

    Raises:
        ValueError: If an argument of the sampler is not valid.
    """
    check_strategy(arguments.get('temporal_strategy', 'uniform'))
    compiled = torch_geometric.typing.WITH_PYG_LIB and not _has_short_ids(data)
    if arguments.get('neighbor_sampler') is not None or compiled:
        return None
    options = {name: arguments[name] for name in OPTIONS if name in arguments}
    if not arguments.get('directed', True):  # PyG's older name of it
        options.setdefault('subgraph_type', 'induced')
    logging.getLogger(__name__).info(
        'NeighborSampler draws neighbours: pyg-lib is not installed, or the graph is mapped in '
        'int32'
    )
    workers = arguments.get('num_workers', 0) > 0
    return NeighborSampler(data, num_neighbors, **options, share_memory=workers)


def _has_short_ids(data: Any) -> bool:
    r"""Returns whether :obj:`data` is a pair of stores whose graph store has node ids in int32."""
    if not isinstance(data, tuple):
        return False
    ids = (data[1].get_edge_index(attr)[0] for attr in data[1].get_all_edge_attrs())
    return any(row.dtype == torch.int32 for row in ids)
