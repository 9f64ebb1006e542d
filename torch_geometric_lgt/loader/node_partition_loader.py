# N nodes, E edges.
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Data
from torch_geometric.loader.utils import filter_data

from torch_geometric_lgt._arguments import check_flags, check_ids, check_whole
from torch_geometric_lgt.functional.neighbors.edges import edge_list
from torch_geometric_lgt.loader._attributes import check_layouts
from torch_geometric_lgt.loader._edge_order import check_store, sort_by_target

CHUNK_EDGES = 1 << 24


class NodePartitionLoader(DataLoader):
    r"""Splits the nodes at random into batches, anew in each epoch, and loads the subgraph that
    each batch induces.

    The authors of DIFFormer and SGFormer train their models in this way on large graphs. The
    authors of NodeFormer do so with only the training nodes as :obj:`input_nodes`. An epoch takes
    :math:`O(N + E)` time for all batches together. In addition to the data, whose tensors may be
    memory-mapped, the loader takes :math:`O(N + E b / N)` memory for batches of :math:`b` nodes.

    A batch has the attributes of its nodes, in the order of their ids, and of the edges between
    these nodes. :obj:`n_id` and :obj:`e_id` are the ids of its nodes and edges in the full graph,
    unless the data has attributes of these names.

    Args:
        data (torch_geometric.data.Data): The graph, with :obj:`edge_index`.
        batch_size (int): The largest number :math:`b` of nodes in a batch.
        shuffle (bool, optional): If :obj:`False`, batches consist of consecutive nodes in the order
            of their ids. (default: :obj:`True`)
        transform (callable, optional): Applied to each batch. (default: :obj:`None`)
        generator (torch.Generator, optional): Draws the partition. (default: :obj:`None`, torch's
            global generator)
        input_nodes (torch.Tensor, optional): The nodes that are split, as distinct ids or a mask
            ``[N]`` of bools. Batches have no other nodes. (default: :obj:`None`, all nodes)
        equal_sizes (bool, optional): If :obj:`True`, sizes of batches differ by at most one, so
            that no batch is much smaller than the others. If :obj:`False`, all batches but the last
            have :math:`b` nodes. (default: :obj:`True`)
        **kwargs (optional): Further arguments of :class:`torch.utils.data.DataLoader`, such as
            :obj:`num_workers`.

    Raises:
        ValueError: If :obj:`data` is not a :class:`Data` with :obj:`edge_index`, or
            :obj:`edge_index` and :obj:`adj_t` list the edges in different orders. If
            :obj:`batch_size` is no positive whole number, :obj:`shuffle` or :obj:`equal_sizes` no
            boolean, or :obj:`input_nodes` are not distinct nodes of the graph. If :obj:`drop_last`
            is set, or :obj:`persistent_workers`, because workers receive the partition when they
            start. If features are sparse in another layout than COO, or in COO with workers.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_lgt.loader import NodePartitionLoader
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> data = Data(x=torch.arange(4.0)[:, None], edge_index=ring)
        >>> loader = NodePartitionLoader(data, batch_size=2)
        >>> len(loader)
        2
        >>> nodes = torch.cat([batch.n_id for batch in loader])
        >>> nodes.sort().values
        tensor([0, 1, 2, 3])
    """

    def __init__(
        self,
        data: Data,
        batch_size: int,
        shuffle: bool = True,
        transform: Callable | None = None,
        generator: torch.Generator | None = None,
        *,
        input_nodes: Tensor | None = None,
        equal_sizes: bool = True,
        **kwargs: Any,
    ) -> None:
        if not isinstance(data, Data) or data.edge_index is None:
            raise ValueError(
                f"'data' must be a Data with 'edge_index' (got {data}); convert it with "
                'to_homogeneous() or to_edge_index()'
            )
        check_whole('batch_size', batch_size, 1)
        check_flags(shuffle=shuffle or False, equal_sizes=equal_sizes)
        if kwargs.get('persistent_workers'):
            raise ValueError(
                "'persistent_workers' must be False (got True): workers receive the partition of "
                'an epoch when they start'
            )
        if kwargs.get('drop_last'):
            raise ValueError(
                "'drop_last' must be False (got True): by equal_sizes=True the sizes of batches "
                'differ by at most one node'
            )
        self.data, self.num_nodes = data, data.num_nodes or 0
        check_store(data._store, self.num_nodes, self.num_nodes)
        check_layouts(data, kwargs)
        self.edge_index = edge_list(data.edge_index, self.num_nodes, self.num_nodes)
        self.nodes_per_batch, self.shuffled, self.transform = batch_size, shuffle, transform
        self.input_nodes = None if input_nodes is None else _ids(input_nodes, self.num_nodes)
        self.num_inputs = self.num_nodes if self.input_nodes is None else self.input_nodes.numel()
        self.equal_sizes = equal_sizes
        self.num_batches = -(-self.num_inputs // batch_size)
        kwargs['collate_fn'] = _refuse  # no other one is called, as in PyG's loaders
        super().__init__(
            cast(Dataset, range(self.num_batches)), batch_size=None, generator=generator, **kwargs
        )

    def __iter__(self) -> Iterator[Any]:
        r"""Draws a partition of the nodes, finds the edges inside each part, and iterates over the
        batches of the parts."""
        edges, number = self.edge_index, self.num_batches
        part_of_input = self._draw_parts()
        part, order = part_of_input, part_of_input.argsort(stable=True)
        if self.input_nodes is not None:
            part = torch.full((self.num_nodes,), -1, device='cpu')
            part = part.index_put((self.input_nodes,), part_of_input)
            order = self.input_nodes[order]
        nodes = order.split(torch.bincount(part_of_input, minlength=number).tolist())
        inner, parts = [], []
        for start in range(0, edges.size(1), CHUNK_EDGES):
            ends = part[edges[:, start : start + CHUNK_EDGES].cpu()]
            same_part = ((ends[0] == ends[1]) & (ends[0] >= 0)).nonzero().flatten()
            inner.append(same_part + start)
            parts.append(ends[0, same_part])
        edge, edge_part = torch.cat([*inner, part[:0]]), torch.cat([*parts, part[:0]])
        edges_by_part = edge[edge_part.argsort(stable=True)].split(
            torch.bincount(edge_part, minlength=number).tolist()
        )
        # of the iterator that is made now, without what workers cannot have, as a generator
        batch = partial(_batch, self.data, self.edge_index, self.transform, nodes, edges_by_part)
        self.collate_fn = cast(Any, batch)
        return super().__iter__()

    def _draw_parts(self) -> Tensor:
        r"""Draws the part of each input node, in the order of their ids."""
        place = (
            torch.randperm(self.num_inputs, generator=self.generator, device='cpu')
            if self.shuffled
            else torch.arange(self.num_inputs, device='cpu')
        )
        if self.equal_sizes:
            return place * self.num_batches // max(1, self.num_inputs)
        return place // self.nodes_per_batch

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}({self.nodes_per_batch} nodes, {len(self)} batches)'


def _batch(
    data: Data,
    edge_index: Tensor,
    transform: Callable | None,
    parts: tuple[Tensor, ...],
    inner: tuple[Tensor, ...],
    number: int,
) -> Any:
    r"""Builds the batch of part :obj:`number` of a partition of :obj:`data`, and applies
    :obj:`transform` if there is one. :obj:`edge_index` ``[2, E]`` has the edges of the graph,
    :obj:`parts` the node ids of each part, and :obj:`inner` the ids of the edges inside each
    part."""
    nodes, edge = parts[number], inner[number]
    row, col = torch.searchsorted(nodes, edge_index[:, edge].cpu().contiguous())
    if 'adj_t' in data:
        row, col, edge = sort_by_target(row, col, edge)
    batch = filter_data(data, nodes, row, col, edge)
    for name, ids in (('n_id', nodes), ('e_id', edge)):
        if name not in batch:  # PyG's loaders keep those of the data, too
            batch[name] = ids
    return batch if transform is None else transform(batch)


def _refuse(number: Any) -> None:
    r"""Raises an error in a loader that another package has made of the parts of this one: it has
    no partition, which :meth:`__iter__` draws."""
    raise ValueError(
        'a NodePartitionLoader must be iterated itself, which draws the partition (got a loader of '
        "its parts, as of Accelerate's prepare); leave it out there, and move each batch with "
        'batch.to(device)'
    )


def _ids(input_nodes: Tensor, num_nodes: int) -> Tensor:
    r"""Returns the ids of :obj:`input_nodes`, which may be a mask, in ascending order.

    Raises:
        ValueError: If they are neither a mask of all nodes nor distinct ids of nodes.
    """
    if not isinstance(input_nodes, Tensor) or input_nodes.is_floating_point():
        raise ValueError(
            f"'input_nodes' must be a tensor of ids or a mask of bools (got {input_nodes!r})"
        )
    if input_nodes.dtype == torch.bool:
        if input_nodes.shape != (num_nodes,):
            raise ValueError(
                f"'input_nodes' must have a bool for each of {num_nodes} nodes (got shape "
                f'{list(input_nodes.shape)})'
            )
        return input_nodes.cpu().nonzero().flatten()
    ids = input_nodes.cpu().long().flatten().sort().values
    check_ids('input_nodes', ids, num_nodes)
    num_repeated = int((ids[1:] == ids[:-1]).sum())
    if num_repeated > 0:
        raise ValueError(f"'input_nodes' must be distinct ids (got {num_repeated} repeated)")
    return ids
