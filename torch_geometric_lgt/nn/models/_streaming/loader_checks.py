# N nodes, E edges.
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler.base import SubgraphType

from torch_geometric_lgt.functional.neighbors.edges import weighted_edges

CHUNK = 1 << 20


def check_loader(loader: Any) -> None:
    r"""Raises a ValueError unless :obj:`loader` is of one type of nodes and has a batch size, no
    transform, and a sampler that returns all neighbours of one hop: with ``num_neighbors=[-1]``,
    directed subgraphs and no times."""
    if not hasattr(loader, 'node_sampler'):
        raise ValueError(
            "'loader' must be a NeighborLoader with num_neighbors=[-1] (got "
            f'{type(loader).__name__})'
        )
    if isinstance(loader.data, HeteroData):
        raise ValueError(
            "'loader' must be of nodes of one type (got a HeteroData); load that of "
            'to_homogeneous()'
        )
    sampler = loader.node_sampler
    numbers = sampler.num_neighbors
    numbers = next(iter(numbers.values())) if isinstance(numbers, dict) else numbers.get_values()
    if list(numbers) != [-1]:
        raise ValueError(
            f"'loader' must have num_neighbors=[-1], all neighbours of one hop (got {numbers})"
        )
    if getattr(sampler, 'is_temporal', False):
        raise ValueError(
            "'loader' must have time_attr=None: with times it returns the earlier neighbours only"
        )
    if loader.transform is not None:
        raise ValueError(
            "'loader' must have transform=None, as its data are read without batches (got "
            f'{loader.transform}); transform the data before'
        )
    kind = getattr(sampler, 'subgraph_type', SubgraphType.directional)
    if loader.batch_size is None:
        wrong = 'a batch sampler'
    elif kind != SubgraphType.directional:
        wrong = f'subgraph_type={kind.value!r}'
    else:
        return
    raise ValueError(
        f"'loader' must have subgraph_type='directional' and a batch_size (got {wrong})"
    )


def check_loader_edges(sampler: Any, data: Data, num_nodes: int) -> None:
    r"""Checks that a loader's :obj:`sampler`, which sorted the edges when the loader was made, has
    the edges of :obj:`data`, a graph of :obj:`num_nodes` nodes. Data whose edges were removed, and
    samplers without sorted edges, are not checked.

    Raises:
        ValueError: If the data has other edges, or another number of nodes.
    """
    name = 'edge_index' if data.get('edge_index') is not None else 'adj_t'
    sorted_edges = sorted_by_target(sampler)
    if data.get(name) is None or sorted_edges is None:
        return
    pointer, source = sorted_edges
    edges = weighted_edges(data[name], num_nodes, num_nodes, argument=name)[0].cpu()
    sizes, sampled_sizes = (num_nodes, edges.size(1)), (pointer.numel() - 1, source.numel())
    got = 'one of {} nodes and {} edges, the data now has {} and {}'.format(*sampled_sizes, *sizes)
    if sizes == sampled_sizes:
        if _are_equal(edges, sampler.edge_permutation, pointer, source):
            return
        got = 'one of other edges, or in another order'
    raise ValueError(
        f"'loader' must be of the graph that its data is now (got {got}); make a new loader after "
        'each change of the edges'
    )


def _are_equal(edges: Tensor, permutation: Tensor | None, pointer: Tensor, source: Tensor) -> bool:
    r"""Tells whether the edges ``[2, E]`` in the order of :obj:`permutation` are those that
    :obj:`pointer` and :obj:`source` sort by target. Reads :obj:`CHUNK` edges at a time."""
    for start in range(0, source.numel(), CHUNK):
        positions = torch.arange(start, min(start + CHUNK, source.numel()), device='cpu')
        ids = positions if permutation is None else permutation[start : start + CHUNK]
        target = torch.searchsorted(pointer, positions, right=True) - 1
        sampled = torch.stack([source[start : start + CHUNK], target])
        if not torch.equal(edges[:, ids].long(), sampled.long()):
            return False
    return True


def sorted_by_target(sampler: Any) -> tuple[Tensor, Tensor] | None:
    r"""Returns the pointers ``[N + 1]`` and the sources ``[E]`` of the edges that a sampler of this
    package or of PyG sorted by target, or :obj:`None` for another sampler."""
    if hasattr(sampler, 'colptr'):
        return sampler.colptr, sampler.row
    kinds = getattr(sampler, 'edges', None)
    return next(iter(kinds.values()))[:2] if isinstance(kinds, dict) else None
