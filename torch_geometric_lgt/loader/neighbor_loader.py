from typing import Any

import torch
import torch_geometric.loader

from torch_geometric_lgt.loader._choice import with_sampler
from torch_geometric_lgt.loader._edge_order import order_edges
from torch_geometric_lgt.loader._seeds import checked_seeds
from torch_geometric_lgt.loader._sorted_edges import pair_of_stores
from torch_geometric_lgt.loader._temporal import check_times
from torch_geometric_lgt.loader._transformed import check_node_batch
from torch_geometric_lgt.loader._workers import SeedLoader


class NeighborLoader(SeedLoader, torch_geometric.loader.NeighborLoader):
    r"""Loads batches of seed nodes with sampled neighbours, also without a compiled sampler.

    Subclass of :class:`torch_geometric.loader.NeighborLoader`. If ``pyg-lib`` is not installed,
    :class:`~torch_geometric_lgt.loader.NeighborSampler` draws the neighbours, from the distribution
    of ``pyg-lib`` and with all options of PyG's loader. It always draws induced subgraphs, which
    ``pyg-lib`` does not draw. A batch contains the rows of all node and edge attributes that belong
    to its nodes and edges. If the data has an :obj:`adj_t`, edge attributes follow the order of the
    batch's :obj:`adj_t`; PyG's loader attaches the edge attributes of such data to the wrong edges.

    As in PyG, the :obj:`batch` of a sampled batch numbers disjoint subgraphs, and is missing
    without them. If the data is a batch of several graphs, store the graph id of each node under
    another name, as in ``data.graph = data.batch``, and give it to the model:
    ``model(batch.x, batch.edge_index, batch.graph)``. Without these ids nodes attend across graphs.

    A :class:`~torch_geometric_lgt.data.MappedGraph` may be passed alone, or twice as ``(graph,
    graph)``: as feature store and as graph store. All its nodes are seeds if :obj:`input_nodes` is
    :obj:`None`. Node ids in its edges may be int32, which no compiled sampler takes: then
    :class:`~torch_geometric_lgt.loader.NeighborSampler` draws the neighbours also if ``pyg-lib`` is
    installed.

    PyG's loader would use ``torch-sparse`` if that is installed. This loader does not, because
    ``torch-sparse`` is slower and does not draw uniformly without replacement. If ``torch-sparse``
    draws 4 of 12 neighbours, the last one occurs a quarter less often than the first.

    Args:
        data (Data, HeteroData or tuple): As in PyG's loader.
        num_neighbors (list or dict): As in PyG's loader.
        input_nodes (optional): As in PyG's loader. (default: :obj:`None`, all nodes)
        **kwargs (optional): Further arguments of PyG's loader.

    Raises:
        ValueError: If :obj:`num_neighbors`, :obj:`time_attr`, :obj:`weight_attr` or another option
            of :class:`~torch_geometric_lgt.loader.NeighborSampler` is not valid. If
            :obj:`input_time` does not have one time for each seed node. If :obj:`transform`
            reorders or drops the seed nodes of a batch. If edges of a type are neither in
            :obj:`edge_index` nor in a :class:`torch_sparse.SparseTensor` :obj:`adj_t`, or those two
            list them in different orders. If features are sparse in another layout than COO, or in
            COO with workers.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_lgt.loader import NeighborLoader
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> data = Data(x=torch.arange(4.0)[:, None], edge_index=ring)
        >>> loader = NeighborLoader(data, num_neighbors=[-1, -1], batch_size=2)
        >>> for batch in loader:
        ...     print(batch.batch_size, 'seeds:', batch.n_id.tolist())
        2 seeds: [0, 1, 3, 2]
        2 seeds: [2, 3, 1, 0]
    """

    def __init__(
        self, data: Any, num_neighbors: list[int] | dict, input_nodes: Any = None, **kwargs
    ) -> None:
        data = pair_of_stores(data)
        input_nodes = checked_seeds(data, input_nodes)
        if isinstance(data, tuple) and input_nodes is None:
            num_nodes = max(data[1].get_all_edge_attrs()[0].size)
            input_nodes = torch.arange(num_nodes, device='cpu')
        kwargs, types_to_order = with_sampler(data, num_neighbors, kwargs)
        super().__init__(data, num_neighbors, input_nodes, **kwargs)
        seeds = self.input_data
        check_times('input_time', seeds.time, seeds.node.numel(), 'seed nodes')
        self.types_to_order = types_to_order

    def filter_fn(self, out: Any) -> Any:
        r"""Builds the batch from a sampler's output and checks that :obj:`transform` leaves its
        seed nodes first.

        Raises:
            ValueError: If :obj:`transform` reorders or drops seed nodes.
        """
        out = order_edges(out, self.types_to_order)
        batch = super().filter_fn(out)
        check_node_batch(self, out, batch)
        return batch
