# N nodes, n nodes of a part, S nodes with an edge into them.
import hashlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Data, TensorAttr
from torch_geometric.sampler import NodeSamplerInput
from torch_geometric.utils import scatter
from tqdm import tqdm

from torch_geometric_lgt._graph_checks import has_several_graphs
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.neighbors.edges import weighted_edges
from torch_geometric_lgt.functional.numerics import widest_dtype
from torch_geometric_lgt.nn.models._streaming.keys import graph_key, model_key
from torch_geometric_lgt.nn.models._streaming.loader_checks import (
    check_loader,
    check_loader_edges,
    sorted_by_target,
)
from torch_geometric_lgt.nn.models._streaming.workspace import RESULT, Workspace

VERSION = 3


class Part(NamedTuple):
    r"""Stores consecutive nodes of a graph, with all edges into them if the neighbours are read
    too.

    Attributes:
        nodes (slice): The range of the ids of the :math:`n` nodes.
        n_id (torch.Tensor): The ids of the nodes, then the ids of all other sources ``[n + S]``.
        edge_index (torch.Tensor): All edges into the nodes ``[2, E]``, as positions in :obj:`n_id`.
        e_id (torch.Tensor): The ids of these edges in the graph ``[E]``.
        edge_weight (torch.Tensor, optional): The weights of these edges ``[E]``.
    """

    nodes: slice
    n_id: Tensor
    edge_index: Tensor
    e_id: Tensor
    edge_weight: Tensor | None = None

    @property
    def size(self) -> int:
        return self.nodes.stop - self.nodes.start

    def ids(self, device: torch.device) -> Tensor:
        r"""Returns the ids of the nodes ``[n]`` as a tensor on :obj:`device`."""
        return torch.arange(self.nodes.start, self.nodes.stop, device=device)

    def to(self, device: torch.device) -> 'Part':
        r"""Returns the part with :obj:`edge_index` and :obj:`edge_weight` on :obj:`device`; ids
        stay where they are."""
        weight = None if self.edge_weight is None else to_device(self.edge_weight, device)
        return self._replace(edge_index=self.edge_index.to(device), edge_weight=weight)


class Stream:
    r"""Reads a graph part by part, and fills arrays with one row for each node.

    The arrays are in memory, or memory-mapped in files of a folder, in which an interrupted run
    resumes.

    Args:
        loader (torch_geometric.loader.NeighborLoader): A loader of the graph and its features with
            ``num_neighbors=[-1]``; its batch size is the number of nodes in a part.
        folder (str or Path, optional): The folder of the files. (default: :obj:`None`, in memory)
        model (torch.nn.Module): The model that computes the arrays. A run resumes only with the
            same parameters and settings, under the same autocast.
        progress_bar (bool): If :obj:`True`, shows a progress bar for each array.
        resume (bool): If :obj:`False`, arrays of an earlier run are computed again.

    Raises:
        TypeError: If :obj:`folder` is no path.
        ValueError: If :obj:`loader` does not pass :meth:`check_loader` or
            :meth:`check_loader_edges`, features are missing, or :obj:`folder` cannot be used, see
            :class:`Workspace`.
    """

    def __init__(
        self,
        loader: Any,
        folder: str | Path | None,
        model: Module,
        progress_bar: bool,
        resume: bool = True,
    ) -> None:
        check_loader(loader)
        if folder is not None and not isinstance(folder, (str, os.PathLike)):
            raise TypeError(
                f"'folder' must be a path (got {type(folder).__name__}); the model computes on the "
                'device of its parameters'
            )
        self.loader, self.progress_bar = loader, progress_bar
        self.store = loader.data if isinstance(loader.data, Data) else loader.data[0]
        self.num_nodes = self._count()
        if isinstance(self.store, Data):
            check_loader_edges(loader.node_sampler, self.store, self.num_nodes)
        self.size = loader.batch_size
        self.edge_weight = self._weights()
        self.device = next(model.parameters()).device
        folder = None if folder is None else Path(folder)
        key = ''
        if folder is not None:
            stores = loader.data if isinstance(loader.data, tuple) else (loader.data,)
            identity = (VERSION, self.num_nodes, model_key(model), *map(graph_key, stores))
            if torch.is_autocast_enabled(self.device.type):
                identity = (*identity, torch.get_autocast_dtype(self.device.type))
            key = hashlib.sha256(repr(identity).encode()).hexdigest()
        self.workspace = Workspace(folder, key, self.num_nodes, resume)

    def _count(self) -> int:
        if isinstance(self.store, Data):
            return self.store.num_nodes or 0
        size = self.store.get_tensor_size(TensorAttr(group_name=None, attr_name='x'))
        if size is None:  # a model with embeddings reads no features
            size = self.loader.data[1].get_all_edge_attrs()[0].size
        if size is None:
            raise ValueError(
                "'loader' must be of data with the attribute 'x', or whose edges have a size (got "
                f'{self.store})'
            )
        return size[0]

    def _weights(self) -> Tensor | None:
        r"""Returns the edge weights ``[E]`` of the graph on the CPU: the attribute
        :obj:`edge_weight`, or the values of :obj:`adj_t`. Returns :obj:`None` without weights, and
        if all values of :obj:`adj_t` are 1.

        Raises:
            ValueError: If the attribute does not contain one floating-point number per edge.
        """
        if not isinstance(self.store, Data):
            return None
        weight = self.store.get('edge_weight')
        matrix = self.store.get('adj_t')
        if matrix is not None:
            weight = weighted_edges(matrix, self.num_nodes, self.num_nodes, weight, 'adj_t')[1]
        elif weight is not None and (
            weight.shape != (self.store.num_edges,) or not weight.is_floating_point()
        ):
            raise ValueError(
                "'edge_weight' must hold a floating-point number for each edge (got "
                f'{weight.dtype}, {tuple(weight.shape)})'
            )
        return None if weight is None else weight.detach().cpu()

    def check_one_graph(self) -> None:
        r"""Raises a ValueError if the data are a batch of several graphs: a state has no sums of
        single graphs."""
        if isinstance(self.store, Data) and has_several_graphs(self.store):
            raise ValueError(
                "'loader' must be of one graph (got a batch of several in 'batch'); make a loader "
                "for each graph of to_data_list(), or delete 'batch' if the nodes of all graphs "
                'attend to each other'
            )

    def node_values(self, name: str, nodes: slice | Tensor) -> Tensor:
        r"""Returns the rows ``[n, *]`` of the node attribute :obj:`name` for a range of ids or a
        tensor of ids :obj:`nodes` ``[n]``.

        Raises:
            ValueError: If the graph has no such attribute, or the attribute is sparse or no tensor.
                If it has another number of rows than the graph has nodes.
        """
        if not self.has(name):
            raise ValueError(
                f"'loader' must be of data with the attribute {name!r} (got {self.store})"
            )
        if isinstance(self.store, Data):
            value = self.store[name]
            _check_rows(name, value)
            if value.layout != torch.strided:
                raise ValueError(
                    f'{name!r} must be dense to be read in parts (got {value.layout}); use '
                    'to_dense()'
                )
            if value.size(0) != self.num_nodes:
                raise ValueError(
                    f'{name!r} must have a row for each of {self.num_nodes} nodes of the data (got '
                    f"{value.size(0)}); set its 'num_nodes' and {name!r} to one number"
                )
            return node_rows(value, nodes)
        index = _ids(nodes) if isinstance(nodes, slice) else nodes
        return cast(Tensor, self.store.get_tensor(group_name=None, attr_name=name, index=index))

    def has(self, name: str) -> bool:
        r"""Tells whether the graph has an attribute :obj:`name`."""
        if isinstance(self.store, Data):
            return self.store.get(name) is not None
        return any(attr.attr_name == name for attr in self.store.get_all_tensor_attrs())

    def edge_values(self, name: str, part: Part) -> Tensor | None:
        r"""Returns the rows ``[E, *]`` of the edge attribute :obj:`name` for the edges of
        :obj:`part`, or :obj:`None` if the graph has no such attribute.

        Raises:
            ValueError: If the attribute is no tensor, or has another number of rows than the graph
                has edges.
        """
        value = self.store.get(name) if isinstance(self.store, Data) else None
        if value is None:
            return None
        _check_rows(name, value)
        sorted_edges = sorted_by_target(self.loader.node_sampler)
        num_edges = value.size(0) if sorted_edges is None else sorted_edges[1].numel()
        if value.size(0) != num_edges:
            raise ValueError(
                f'{name!r} must have a row for each of {num_edges} edges of the data (got '
                f'{value.size(0)})'
            )
        return value[part.e_id]

    def result(
        self, width: int, dtype: torch.dtype, prepare: Callable[[], Callable[[Part], Tensor]]
    ) -> Tensor:
        r"""Computes the final array ``[N, width]`` of a run, removes the files of all other arrays,
        and returns the array.

        The function :obj:`prepare` computes the other arrays and returns a function from a part to
        its rows ``[n, width]``. It is not called if an earlier run has finished the array."""
        out, _ = self.workspace.array(RESULT, width, dtype)
        if self.workspace.done.get(RESULT) != self.num_nodes:
            out = self.fill(RESULT, width, dtype, prepare())
            self.workspace.finish(RESULT)
        self.workspace.remove_others(RESULT)
        return out

    def fill(
        self,
        name: str,
        width: int,
        dtype: torch.dtype,
        rows: Callable[[Part], Tensor],
        neighbors: bool = False,
    ) -> Tensor:
        r"""Computes the array ``[N, width]`` part by part and returns it, in memory or
        memory-mapped.

        Args:
            name (str): The name of the array, and of its file.
            width (int): The number of columns.
            dtype (torch.dtype): The dtype of the array.
            rows (callable): Computes the rows ``[n, width]`` of a part.
            neighbors (bool): If :obj:`True`, the parts have all edges into their nodes.
        """
        array, flush = self.workspace.array(name, width, dtype)
        for part in self._parts(name, neighbors):
            array[part.nodes] = rows(part).to('cpu', dtype)
            self.workspace.save(name, part.nodes.stop, flush, array)
        return array

    def state(self, name: str, state_of: Callable[[Part], AttentionState]) -> AttentionState:
        r"""Builds the state (sums over the keys) of all nodes: merges the states that
        :obj:`state_of` returns for each part. An earlier run's state in the file :obj:`name` is
        continued."""
        tensors = self.workspace.read_state(name)
        state = AttentionState.from_state_dict(tensors).to(self.device) if tensors else None
        for part in self._parts(name, False):
            part_state = state_of(part)
            done = part.nodes.stop
            state = part_state if state is None else state.merge(part_state)
            tensors = state.state_dict() | {'done': torch.tensor(done, device='cpu')}
            write = partial(self.workspace.write_state, name, tensors)
            self.workspace.save(name, done, write, None)
        return state_of(_without_edges(slice(0, 0))) if state is None else state

    def degrees(
        self, name: str, degree_edges: Callable[[Part], tuple[Tensor, Tensor | None]]
    ) -> Tensor:
        r"""Computes the out- and in-degrees ``[N, 2]`` of all nodes, part by part, into the array
        :obj:`name`.

        The function :obj:`degree_edges` returns the edges of a part that count, as positions in
        ``part.n_id``, and their weights or :obj:`None`. Degrees are sums of weights in double
        precision if the graph has weights, else int64 numbers of edges."""
        dtype = torch.long if self.edge_weight is None else torch.double
        array, flush = self.workspace.array(name, 2, dtype)
        if self.workspace.done.get(name) == self.num_nodes:
            return array
        self.workspace.done.pop(name, None)
        array.zero_()
        for part in self._parts(name, True):
            (source, target), weight = degree_edges(part)
            weight = torch.ones_like(source) if weight is None else weight.to(array.dtype)
            array[:, 0].index_add_(0, part.n_id[source], weight)
            array[part.nodes, 1] = scatter(weight, target, 0, part.size, 'sum')
        self.workspace.save(name, self.num_nodes, flush, array, now=True)
        return array

    def _parts(self, name: str, neighbors: bool) -> Iterator[Part]:
        starts = range(self.workspace.done.get(name, 0), self.num_nodes, self.size)
        slices = [slice(start, min(start + self.size, self.num_nodes)) for start in starts]
        # workers get what they use: the loader may hold what cannot be pickled
        part_of = (
            partial(neighborhood, self.loader.node_sampler, self.edge_weight)
            if neighbors
            else _without_edges
        )
        parts = map(part_of, slices)
        if neighbors and getattr(self.loader, 'num_workers', 0) > 0:
            parts = self._parts_of_workers(slices, part_of)
        yield from tqdm(parts, name, len(slices), disable=not self.progress_bar)

    def _parts_of_workers(
        self, slices: list[slice], part_of: Callable[[slice], Part]
    ) -> Iterator[Part]:
        r"""Returns the parts of ranges of ids, which the worker processes of the loader compute by
        :obj:`part_of`."""
        loader = DataLoader(
            cast(Dataset, slices),
            batch_size=None,
            collate_fn=cast(Any, part_of),
            generator=torch.Generator(),
            num_workers=self.loader.num_workers,
            multiprocessing_context=self.loader.multiprocessing_context,
        )
        with torch.device('cpu'):  # where the generator draws the seeds of the workers
            return iter(loader)


def neighborhood(sampler: Any, edge_weight: Tensor | None, nodes: slice) -> Part:
    r"""Returns the part of a range of ids :obj:`nodes` with all edges into it, which
    :obj:`sampler` finds, and their weights among the weights :obj:`edge_weight` ``[E]`` of the
    graph."""
    out = sampler.sample_from_nodes(NodeSamplerInput(None, _ids(nodes)))
    edge = out.edge if sampler.edge_permutation is None else sampler.edge_permutation[out.edge]
    weight = None if edge_weight is None else edge_weight[edge].detach()
    return Part(nodes, out.node, torch.stack([out.row, out.col]), edge, weight)


def _without_edges(nodes: slice) -> Part:
    return Part(nodes, *[torch.empty(0, device='cpu')] * 3)


def _ids(nodes: slice) -> Tensor:
    r"""Returns a range of ids as a tensor on the CPU."""
    return torch.arange(nodes.start, nodes.stop, device='cpu')


def _check_rows(name: str, value: Any) -> None:
    if not isinstance(value, Tensor) or value.dim() == 0:
        shown = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f'{name!r} must be a tensor with rows to be read in parts (got {shown}); convert an '
            'array with torch.as_tensor'
        )


def node_rows(x: Tensor, nodes: slice | Tensor) -> Tensor:
    r"""Returns the rows ``[n, *]`` of :obj:`x` ``[N, *]`` for a range of ids or a tensor of ids
    :obj:`nodes` ``[n]``. On a processor PyTorch selects rows faster than it indexes them."""
    return x[nodes] if isinstance(nodes, slice) else x.index_select(0, nodes.to(x.device))


def to_device(x: Tensor, device: torch.device) -> Tensor:
    r"""Copies the tensor :obj:`x` to :obj:`device`. Copies from the CPU to a CUDA GPU use pinned
    memory and do not block, so that the CPU prepares the next part meanwhile. Numbers in float64
    become float32 on a device that has no float64."""
    if x.dtype == torch.double:
        x = x.to(widest_dtype(device))
    if device.type != 'cuda' or x.is_cuda:
        return x.to(device)
    return x.pin_memory().to(device, non_blocking=True)
