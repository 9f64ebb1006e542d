from typing import Any

import torch
import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Data

from torch_geometric_lgt.loader._choice import with_sampler
from torch_geometric_lgt.loader._edge_order import order_edges
from torch_geometric_lgt.loader._seeds import check_labels, check_links
from torch_geometric_lgt.loader._sorted_edges import pair_of_stores
from torch_geometric_lgt.loader._temporal import check_times
from torch_geometric_lgt.loader._transformed import check_link_batch
from torch_geometric_lgt.loader._workers import WorkerLoader


class LinkNeighborLoader(WorkerLoader, torch_geometric.loader.LinkNeighborLoader):
    r"""Loads batches of seed edges with sampled neighbours of their ends, also without a compiled
    sampler.

    Subclass of :class:`torch_geometric.loader.LinkNeighborLoader`. If ``pyg-lib`` is not installed,
    :class:`~torch_geometric_lgt.loader.NeighborSampler` draws the neighbours, from the distribution
    of ``pyg-lib`` and with all options of PyG's loader. Negative edges are sampled as in PyG. With
    an :obj:`adj_t`, edge attributes follow the order of the batch's :obj:`adj_t`, as in
    :class:`~torch_geometric_lgt.loader.NeighborLoader`.

    With times (:obj:`time_attr`), edges up to the time of a pair are sampled, among them the edge
    of the pair itself. To predict a pair from earlier edges alone, reduce its time: by 1, as in
    ``edge_label_time=time - 1``, if times are whole numbers. With times or :obj:`disjoint`, a link
    and its negative pairs have one number in :obj:`batch`, so attention joins their nodes.

    Args:
        data (Data, HeteroData or tuple): As in PyG's loader.
        num_neighbors (list or dict): As in PyG's loader.
        edge_label_index (optional): As in PyG's loader; for a
            :class:`~torch_geometric_lgt.data.MappedGraph` a tensor ``[2, E]``. (default:
            :obj:`None`, all edges of a :class:`Data`)
        **kwargs (optional): Further arguments of PyG's loader.

    Raises:
        ValueError: If :obj:`num_neighbors`, :obj:`time_attr`, :obj:`weight_attr` or another option
            of :class:`~torch_geometric_lgt.loader.NeighborSampler` is not valid. If
            :obj:`edge_label_index` is missing for stores or data without edges, is no tensor
            ``[2, E]`` of ids with as many labels and times, or has no edge type for a graph with
            node types. If :obj:`transform` reorders or drops the ends of the pairs of a
            batch. If edges of a type are neither in :obj:`edge_index` nor in a
            :class:`torch_sparse.SparseTensor` :obj:`adj_t`, or those two list them in different
            orders. If features are sparse in another layout than COO, or in COO with workers.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_lgt.loader import LinkNeighborLoader
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> data = Data(x=torch.arange(4.0)[:, None], edge_index=ring, time=torch.arange(4))
        >>> loader = LinkNeighborLoader(data, [-1], ring[:, :1])
        >>> next(iter(loader)).n_id  # 0 and 1, the ends of the edge, and 3, a neighbour of 0
        tensor([0, 1, 3])
        >>> loader = LinkNeighborLoader(  # the edge has the time 2; node 3 is of time 3
        ...     data, [-1], ring[:, :1], edge_label_time=torch.tensor([2]), time_attr='time'
        ... )
        >>> batch = next(iter(loader))
        >>> batch.n_id  # with times each end has its own subgraph: 0, and 1 with its neighbour 0
        tensor([0, 1, 0])
        >>> batch.edge_label_index
        tensor([[0],
                [1]])
    """

    def __init__(
        self, data: Any, num_neighbors: list[int] | dict, edge_label_index: Any = None, **kwargs
    ) -> None:
        data = pair_of_stores(data)
        check_links(data, edge_label_index, kwargs.get('edge_label'))
        if isinstance(data, tuple) and edge_label_index is None:
            raise ValueError(
                "'edge_label_index' must be given for a feature store and a graph store (got None)"
            )
        if edge_label_index is None and isinstance(data, Data) and 'edge_index' not in data:
            matrix: Any = data.get('adj_t')
            if hasattr(matrix, 'coo'):
                edge_label_index = torch.stack(matrix.coo()[1::-1])
            elif matrix is None:
                raise ValueError(
                    "'edge_label_index' must be given for data without edges (got None)"
                )
        if isinstance(data, tuple) and isinstance(edge_label_index, Tensor):
            edge_label_index = None, edge_label_index  # PyG's form for edges of one type
        kwargs, types_to_order = with_sampler(data, num_neighbors, kwargs)
        super().__init__(data, num_neighbors, edge_label_index, **kwargs)
        links = self.input_data
        check_labels(links)
        check_times('edge_label_time', links.time, links.row.numel(), 'links')
        self.types_to_order = types_to_order

    def filter_fn(self, out: Any) -> Any:
        r"""Builds the batch from a sampler's output and checks that :obj:`transform` leaves the
        ends of its pairs in their places.

        Raises:
            ValueError: If :obj:`transform` reorders or drops ends.
        """
        out = order_edges(out, self.types_to_order)
        batch = super().filter_fn(out)
        check_link_batch(self, out, batch)
        return batch
