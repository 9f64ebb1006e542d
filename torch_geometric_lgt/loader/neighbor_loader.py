from typing import Any

import torch_geometric.loader
import torch_geometric.typing

from torch_geometric_lgt.loader.neighbor_sampler import NeighborSampler

COMPILED_ONLY = ('time_attr', 'weight_attr')


class NeighborLoader(torch_geometric.loader.NeighborLoader):
    r""":class:`torch_geometric.loader.NeighborLoader`, also where neither ``pyg-lib`` nor ``torch-sparse`` is installed: then
    :class:`~torch_geometric_lgt.loader.NeighborSampler` draws the neighbours, with the same distribution. It also takes over from
    ``torch-sparse`` for :obj:`disjoint=True`, which that one refuses. Node and edge attributes of a batch are those of the full graph.

    ``torch-sparse`` does not draw uniformly without replacement: of 12 neighbours, 4 of which are taken, the last comes up a quarter less
    often than the first. Pass a :class:`~torch_geometric_lgt.loader.NeighborSampler` as :obj:`neighbor_sampler` where that matters.

    Args:
        data (Data, HeteroData or tuple): As in PyG's loader.
        num_neighbors (list or dict): As in PyG's loader.
        **kwargs (optional): Further arguments of PyG's loader.

    Raises:
        ValueError: If :obj:`time_attr` or :obj:`weight_attr` is given and only a compiled sampler that is not installed can use it.
    """

    def __init__(self, data: Any, num_neighbors: list[int] | dict, **kwargs) -> None:
        disjoint = kwargs.get('disjoint', False)
        compiled = torch_geometric.typing.WITH_PYG_LIB or (torch_geometric.typing.WITH_TORCH_SPARSE and not disjoint)
        if kwargs.get('neighbor_sampler') is None and not compiled:
            given = [name for name in COMPILED_ONLY if kwargs.get(name) is not None]
            if given:
                raise ValueError(f"'{given[0]}' needs pyg-lib, which is not installed (https://github.com/pyg-team/pyg-lib)")
            names = ('replace', 'subgraph_type', 'disjoint')
            options = {name: kwargs.pop(name) for name in names if name in kwargs}
            workers = kwargs.get('num_workers', 0) > 0
            kwargs['neighbor_sampler'] = NeighborSampler(data, num_neighbors, **options, share_memory=workers)
        super().__init__(data, num_neighbors, **kwargs)
