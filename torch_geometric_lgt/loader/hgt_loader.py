from typing import Any

from torch_geometric.data import HeteroData
from torch_geometric.loader import NodeLoader

from torch_geometric_lgt.loader._attributes import check_layouts
from torch_geometric_lgt.loader._hgt_sampler import HGTSampler
from torch_geometric_lgt.loader._seeds import checked_seeds
from torch_geometric_lgt.loader._transformed import check_node_batch
from torch_geometric_lgt.loader._workers import SeedLoader


class HGTLoader(SeedLoader, NodeLoader):
    r"""Loads batches of seed nodes with about equally many sampled nodes of each type, without a
    compiled sampler.

    The sampling is that of `"Heterogeneous Graph Transformer" <https://arxiv.org/abs/2003.01332>`_
    (Algorithm 1), as in :class:`torch_geometric.loader.HGTLoader`, which needs ``torch-sparse``.
    For each type of edges, each sampled node gives a weight of 1, in equal shares, to the sources
    of its incoming edges. Each hop draws nodes of each type that were not sampled yet, one after
    another in proportion to the square of the sum of the shares that they were given. A batch has
    the edges between its nodes. As in PyG, at most 50 incoming edges of a node and type count,
    drawn uniformly if there are more, each time they are needed.

    Args:
        data (HeteroData): The graph.
        num_samples (list or dict): Number of nodes of each type that each hop draws, or a
            dictionary of such lists by node type.
        input_nodes (str or tuple): The type of the seed nodes, or a pair of the type and the ids.
        **kwargs (optional): Further arguments of :class:`torch_geometric.loader.NodeLoader`.

    Raises:
        ValueError: If :obj:`data` is not a :class:`HeteroData`, or :obj:`num_samples` lacks a node
            type, has lists of different lengths, or a negative number. If there are times of seed
            nodes (:obj:`input_time`), which the sampling does not read. If a seed node does not
            exist, or :obj:`transform` reorders or drops the seed nodes of a batch. If edges are
            neither in :obj:`edge_index` nor in a :class:`torch_sparse.SparseTensor` called
            :obj:`adj_t`, or those two list them in different orders. If features are sparse in
            another layout than COO, or in COO with workers.

    Example:
        >>> import torch
        >>> from torch_geometric.data import HeteroData
        >>> from torch_geometric_lgt.loader import HGTLoader
        >>> data = HeteroData()
        >>> data['user'].num_nodes, data['item'].num_nodes = 2, 3
        >>> data['item', 'of', 'user'].edge_index = torch.tensor([[0, 1, 2], [0, 0, 1]])
        >>> loader = HGTLoader(data, num_samples=[2], input_nodes='user', batch_size=1)
        >>> for batch in loader:
        ...     print(batch['user'].n_id.tolist(), batch['item'].n_id.tolist())
        [0] [0, 1]
        [1] [2]
    """

    def __init__(
        self,
        data: HeteroData,
        num_samples: list[int] | dict[str, list[int]],
        input_nodes: Any,
        **kwargs: Any,
    ) -> None:
        workers = kwargs.get('num_workers', 0) > 0
        kwargs.pop('is_sorted', None)
        if kwargs.get('input_time') is not None:
            raise ValueError(
                "'input_time' must be None: HGTLoader draws edges of any time (got times of seed "
                'nodes); use NeighborLoader with time_attr'
            )
        sampler = HGTSampler(data, num_samples, workers)
        input_nodes = checked_seeds(data, input_nodes)
        check_layouts(data, kwargs)
        super().__init__(data, sampler, input_nodes, **kwargs)

    def filter_fn(self, out: Any) -> Any:
        r"""Builds the batch from a sampler's output and checks that :obj:`transform` leaves its
        seed nodes first.

        Raises:
            ValueError: If :obj:`transform` reorders or drops seed nodes.
        """
        batch = super().filter_fn(out)
        check_node_batch(self, out, batch)
        return batch
