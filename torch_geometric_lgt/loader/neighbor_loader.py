import logging
from typing import Any

import torch
import torch_geometric.loader
import torch_geometric.typing
from torch_geometric.data import Data, HeteroData

from torch_geometric_lgt.loader._edge_order import check_edges, order_edges
from torch_geometric_lgt.loader.neighbor_sampler import NeighborSampler

COMPILED_ONLY = ('time_attr', 'weight_attr')


class NeighborLoader(torch_geometric.loader.NeighborLoader):
    r""":class:`torch_geometric.loader.NeighborLoader`, also without a compiled sampler: unless
    ``pyg-lib`` is installed, :class:`~torch_geometric_lgt.loader.NeighborSampler` draws the
    neighbours, with the same distribution. Node and edge attributes of a batch are those of the
    full graph, also where the edges are an :obj:`adj_t`, whose order those of a batch have (PyG's
    loader gives them other edges' attributes).

    Of a :class:`~torch_geometric_lgt.data.MappedGraph`, given twice, :obj:`input_nodes` are all
    nodes unless others are named, and the ids of its edges may be of int32, which no compiled
    sampler takes.

    It also takes the place of ``torch-sparse``, which PyG's loader would use: that one is slower,
    and does not draw uniformly without replacement: of 12 neighbours, 4 of which are taken, the
    last comes up a quarter less often than the first.

    Args:
        data (Data, HeteroData or tuple): As in PyG's loader.
        num_neighbors (list or dict): As in PyG's loader.
        input_nodes (optional): As in PyG's loader. (default: :obj:`None`, all nodes)
        **kwargs (optional): Further arguments of PyG's loader.

    Raises:
        ValueError: If :obj:`time_attr` or :obj:`weight_attr` is given and only a compiled sampler
            that is not installed can use it, or :obj:`transform` moves or drops the seed nodes of a
            batch, or the edges are neither in :obj:`edge_index` nor in a
            :class:`torch_sparse.SparseTensor` called :obj:`adj_t`, or those two list them in
            different orders.
    """

    def __init__(
        self, data: Any, num_neighbors: list[int] | dict, input_nodes: Any = None, **kwargs
    ) -> None:
        compiled = torch_geometric.typing.WITH_PYG_LIB and not _has_short_ids(data)
        if isinstance(data, tuple) and input_nodes is None:
            input_nodes = torch.arange(max(data[1].get_all_edge_attrs()[0].size))
        if kwargs.get('neighbor_sampler') is None and not compiled:
            given = [name for name in COMPILED_ONLY if kwargs.get(name) is not None]
            if given:
                raise ValueError(
                    f"'{given[0]}' needs pyg-lib, which is not installed "
                    '(https://github.com/pyg-team/pyg-lib)'
                )
            names = ('replace', 'subgraph_type', 'disjoint')
            options = {name: kwargs.pop(name) for name in names if name in kwargs}
            if not kwargs.get('directed', True):  # PyG's older name of it
                options.setdefault('subgraph_type', 'induced')
            workers = kwargs.get('num_workers', 0) > 0
            logging.getLogger(__name__).info(
                'our own sampler draws neighbours: pyg-lib is not installed, or the graph is '
                'mapped in int32'
            )
            kwargs['neighbor_sampler'] = NeighborSampler(
                data, num_neighbors, **options, share_memory=workers
            )
        foreign = not isinstance(kwargs.get('neighbor_sampler'), NeighborSampler)
        types_to_order = (
            check_edges(data) if foreign and isinstance(data, (Data, HeteroData)) else []
        )
        super().__init__(data, num_neighbors, input_nodes, **kwargs)
        self.types_to_order = types_to_order

    def filter_fn(self, out: Any) -> Any:
        out = order_edges(out, self.types_to_order)
        batch = super().filter_fn(out)
        if self.transform is not None and isinstance(batch, (Data, HeteroData)):
            name = self.input_data.input_type
            store, seeds = (
                (batch, out.node)
                if name is None
                else (batch.to_dict().get(name, {}), out.node[name])
            )
            size, held = store.get('batch_size'), store.get('n_id')
            if (
                size is None
                or held is None
                or not torch.equal(held[:size], seeds[: out.metadata[0].numel()])
            ):
                raise ValueError(
                    "'transform' must leave the seed nodes of a batch first, with 'n_id' and "
                    "'batch_size' (it moves or drops them)"
                )
        return batch


def _has_short_ids(data: Any) -> bool:
    if not isinstance(data, tuple):
        return False
    ids = (data[1].get_edge_index(attr)[0] for attr in data[1].get_all_edge_attrs())
    return any(row.dtype == torch.int32 for row in ids)
