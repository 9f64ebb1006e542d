# N nodes, n nodes of a part, S nodes with an edge into them.
import hashlib
import json
import re
import stat
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor
from torch.nn import Module
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Data, TensorAttr
from torch_geometric.sampler import NodeSamplerInput
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.utils import scatter
from tqdm import tqdm

from torch_geometric_lgt._io import (
    allocate,
    is_unfinished,
    map_array,
    open_regular,
    read_tensors,
    write_atomically,
    write_tensors,
)
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.neighbors.edges import weighted_edges
from torch_geometric_lgt.nn.models._keys import graph_key, model_key

VERSION, KIND, RESULT, LOCK, SAVE_SECONDS = 3, 'streamed_state', 'scores', '.lock', 20.0
PROGRESS = 'progress.json'
FILE_NAME = re.compile(
    r'((layer|local|noise|state|memory)-\d+|degrees|local-degrees|scores)\.(bin|safetensors)'
)


class Progress(NamedTuple):
    r"""What a run notes of its folder: what its arrays follow from, the number of rows and the
    checksum of each array and state, and the names of all files that were made."""

    key: str
    done: dict[str, int]
    sums: dict[str, str]
    files: list[str]


class Part(NamedTuple):
    r"""Consecutive nodes; if neighbours were asked for also their ids and those of the sources of
    all edges into them, ``[n + S]``, the edges between places among these, the edges' ids and, if
    the graph has some, weights."""

    nodes: slice
    n_id: Tensor
    edge_index: Tensor
    e_id: Tensor
    edge_weight: Tensor | None = None

    @property
    def size(self) -> int:
        return self.nodes.stop - self.nodes.start

    def to(self, device: torch.device) -> 'Part':
        r"""The part with its edges on another device."""
        weight = None if self.edge_weight is None else self.edge_weight.to(device)
        return self._replace(edge_index=self.edge_index.to(device), edge_weight=weight)


class Stream:
    r"""A graph that is walked part by part, and arrays with one row for each node that fill on the
    way: in memory, or mapped from the files of a folder, where a run that was killed goes on.

    Args:
        loader (torch_geometric.loader.NeighborLoader): Has the graph and its features,
            ``num_neighbors=[-1]`` and the size of a part.
        folder (str or Path, optional): Where arrays lie. (default: :obj:`None`, in memory)
        model (torch.nn.Module): What all arrays follow from beside the graph, by its parameters and
            settings.
        progress_bar (bool): If :obj:`True`, a bar for each array.
        resume (bool): If :obj:`False`, arrays of an earlier run are made anew, whatever they follow
            from.

    Raises:
        ValueError: If :obj:`loader` samples, has other subgraphs or a batch sampler, :obj:`folder`
            is used by another process or holds files that no run has made, links, folders, damaged
            files or arrays of another model or graph, or features are missing.
    """

    def __init__(
        self,
        loader: Any,
        folder: str | Path | None,
        model: Module,
        progress_bar: bool,
        resume: bool = True,
    ) -> None:
        if not hasattr(loader, 'node_sampler'):
            raise ValueError(
                "'loader' must be a NeighborLoader with num_neighbors=[-1] (got "
                f'{type(loader).__name__})'
            )
        numbers = loader.node_sampler.num_neighbors
        numbers = (
            next(iter(numbers.values())) if isinstance(numbers, dict) else numbers.get_values()
        )
        if list(numbers) != [-1]:
            raise ValueError(
                f"'loader' must have num_neighbors=[-1], all neighbours of one hop (got {numbers})"
            )
        kind = getattr(loader.node_sampler, 'subgraph_type', SubgraphType.directional)
        if kind != SubgraphType.directional or loader.batch_size is None:
            given = (
                f'subgraph_type={kind.value!r}'
                if loader.batch_size is not None
                else 'a batch sampler'
            )
            raise ValueError(
                f"'loader' must have subgraph_type='directional' and a batch_size (got {given})"
            )
        self.loader, self.progress_bar, self.saved = loader, progress_bar, time.perf_counter()
        self.store = loader.data if isinstance(loader.data, Data) else loader.data[0]
        self.num_nodes, self.size = self._count(), loader.batch_size
        self.edge_weight = self._weights()
        self.folder = None if folder is None else Path(folder)
        self.device = next(model.parameters()).device
        self.done: dict[str, int] = {}
        self.sums: dict[str, str] = {}
        self.files: set[str] = set()
        self.hashed: dict[str, tuple[Any, int]] = {}
        self.lock: FileLock | None = None
        self.key = ''
        if self.folder is not None:
            stores = loader.data if isinstance(loader.data, tuple) else (loader.data,)
            parts = (VERSION, self.num_nodes, model_key(model), *map(graph_key, stores))
            self.key = hashlib.sha256(repr(parts).encode()).hexdigest()
            self._open(self.folder, resume)

    def _count(self) -> int:
        if isinstance(self.store, Data):
            return self.store.num_nodes or 0
        size = self.store.get_tensor_size(TensorAttr(group_name=None, attr_name='x'))
        if size is None:
            raise ValueError(f"'loader' must be of data with the attribute 'x' (got {self.store})")
        return size[0]

    def _weights(self) -> Tensor | None:
        r"""The attribute :obj:`edge_weight` ``[E]``, or the values of the adjacency matrix where it
        has others than 1."""
        if not isinstance(self.store, Data):
            return None
        weight, matrix = self.store.get('edge_weight'), self.store.get('adj_t')
        if matrix is not None:
            return weighted_edges(matrix, self.num_nodes, self.num_nodes, weight, 'adj_t')[1]
        if weight is not None and (
            weight.shape != (self.store.num_edges,) or not weight.is_floating_point()
        ):
            shape = tuple(weight.shape)
            raise ValueError(
                "'edge_weight' must hold a floating-point number for each edge (got "
                f'{weight.dtype}, {shape})'
            )
        return weight

    def _open(self, folder: Path, resume: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        lock = folder / LOCK
        if (
            lock.is_symlink() or not lock.is_file()
        ):  # the folder of no run so far, where nothing is written before it is checked
            self._noted(folder, resume)
        self.lock = FileLock(lock, is_singleton=True)
        try:
            release = self.keep_folder(self)
        except Timeout:
            raise ValueError(
                f"'folder' is used by another process (got {str(folder)!r}); wait for it or give "
                'another one'
            ) from None
        try:
            noted = self._noted(folder, resume)
        except BaseException:
            release()
            raise
        if resume and noted is not None:
            self.done, self.sums = noted.done, noted.sums
        self.files = set() if noted is None else {*noted.files}
        self._note()

    def keep_folder(self, user: Any) -> Callable[[], Any]:
        r"""Other processes may not use the folder as long as :obj:`user` is there, or until the
        function that is returned is called."""
        if self.lock is None:
            return lambda: None
        self.lock.acquire(timeout=0)
        return weakref.finalize(user, self.lock.release)

    def __getstate__(self) -> dict[str, Any]:
        r"""What the workers of a loader need."""
        return self.__dict__ | {'hashed': {}, 'lock': None}

    def _noted(self, folder: Path, resume: bool) -> Progress | None:
        r"""The progress of an earlier run. Nothing is changed in a folder with files that no run
        has made."""
        path = folder / PROGRESS
        try:
            with open_regular(path) as file:
                noted = read_progress(file.read(), self.num_nodes)
        except FileNotFoundError:
            noted = None
        except (RecursionError, TypeError, ValueError) as error:
            raise ValueError(
                f"'folder' must hold an intact {PROGRESS} (got {str(path)!r}: {error}); empty it"
            ) from error
        for other in folder.iterdir():
            if other.name != LOCK and not self._is_made(
                other, [] if noted is None else noted.files
            ):
                raise ValueError(
                    "'folder' must be empty or of a run with the same model and graph (got "
                    f'{str(other)!r}, which no run has made); '
                    'give another one'
                )
            status = other.lstat()
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                raise ValueError(
                    f"'folder' must hold regular files only (got {str(other)!r}, a link, a folder, "
                    'a pipe or a device); remove it'
                )
        if resume and noted is not None and noted.key != self.key:
            raise ValueError(
                "'folder' must be empty or of a run with the same model and graph (got "
                f'{str(folder)!r}); give another one'
            )
        return noted

    @staticmethod
    def _is_made(path: Path, files: Iterable[str]) -> bool:
        r"""Whether a run has made a file of a folder, with the name itself or before it was
        renamed."""
        return any(
            path.name == name or is_unfinished(path, path.with_name(name))
            for name in (PROGRESS, *files)
        )

    def node_values(self, name: str, nodes: slice | Tensor) -> Tensor:
        r"""Rows of an attribute of the nodes."""
        if isinstance(self.store, Data):
            if self.store.get(name) is None:
                raise ValueError(
                    f"'loader' must be of data with the attribute {name!r} (got {self.store})"
                )
            value = self.store[name]
            if value.layout != torch.strided:
                raise ValueError(
                    f'{name!r} must be dense to be read in parts (got {value.layout}); use '
                    'to_dense()'
                )
            return value[nodes]
        index = torch.arange(nodes.start, nodes.stop) if isinstance(nodes, slice) else nodes
        return cast(Tensor, self.store.get_tensor(group_name=None, attr_name=name, index=index))

    def has(self, name: str) -> bool:
        r"""Whether the nodes have the attribute."""
        if isinstance(self.store, Data):
            return self.store.get(name) is not None
        return any(attr.attr_name == name for attr in self.store.get_all_tensor_attrs())

    def edge_values(self, name: str, part: Part) -> Tensor | None:
        r"""An attribute of the edges of a part, where the data have it."""
        value = self.store.get(name) if isinstance(self.store, Data) else None
        return None if value is None else value[part.e_id]

    def result(
        self, width: int, dtype: torch.dtype, prepare: Callable[[], Callable[[Part], Tensor]]
    ) -> Tensor:
        r"""The array ``[N, width]`` that is wanted, of which the function that :obj:`prepare`
        returns makes the parts. Other files that were made for it are removed at the end."""
        out, _ = self._array(RESULT, (self.num_nodes, width), dtype)
        if self.done.get(RESULT) != self.num_nodes:
            out = self.fill(RESULT, width, dtype, prepare())
            self.done, self.sums = {RESULT: self.num_nodes}, {RESULT: self.sums.get(RESULT, '')}
            self._note()
        for path in [] if self.folder is None else self.folder.iterdir():
            if path.name not in (f'{RESULT}.bin', PROGRESS) and self._is_made(path, self.files):
                path.unlink()
        return out

    def fill(
        self,
        name: str,
        width: int,
        dtype: torch.dtype,
        rows: Callable[[Part], Tensor],
        neighbors: bool = False,
    ) -> Tensor:
        r"""The array ``[N, width]`` whose rows :obj:`rows` returns for each part."""
        array, flush = self._array(name, (self.num_nodes, width), dtype)
        for part in self._parts(name, neighbors):
            array[part.nodes] = rows(part).to('cpu', dtype)
            self._mark(name, part.nodes.stop, flush, array)
        return array

    def state(self, name: str, of: Callable[[slice], AttentionState]) -> AttentionState:
        r"""The merged states of all parts."""
        path = None if self.folder is None else self.folder / f'{name}.safetensors'
        held, self.done[name] = self._read_state(name, path)
        state = AttentionState.from_state_dict(held).to(self.device) if held else None
        for part in self._parts(name, False):
            found, done = of(part.nodes), part.nodes.stop
            state = found if state is None else state.merge(found)
            kept = state.state_dict() | {'done': torch.tensor(done)}
            self._mark(
                name, done, lambda kept=kept: write_tensors(cast(Path, path), kept, KIND), None
            )
        return cast(AttentionState, state)

    def _read_state(self, name: str, path: Path | None) -> tuple[dict[str, Tensor], int]:
        r"""A state that was written, if there is one, and the number of nodes in it."""
        self._add_file(path)
        if path is None or name not in self.done or not path.exists():
            return {}, 0
        tensors = read_tensors(path, KIND)
        done = tensors['done']
        if done.numel() != 1 or not 0 <= int(done) <= self.num_nodes:
            raise ValueError(
                f"'folder' is damaged: {str(path)!r} must be of at most {self.num_nodes} nodes "
                f'(got {done}); empty it'
            )
        return {part: value for part, value in tensors.items() if part != 'done'}, int(done)

    def _add_file(self, path: Path | None) -> None:
        r"""Notes the name of a file before it is made."""
        if path is not None and path.name not in self.files:
            self.files.add(path.name)
            self._note()

    def degrees(self, name: str, counted: Callable[[Part], tuple[Tensor, Tensor | None]]) -> Tensor:
        r"""The out- and in-degrees ``[N, 2]`` over the edges that :obj:`counted` returns for each
        part, or the sums of their weights."""
        array, flush = self._array(
            name, (self.num_nodes, 2), torch.long if self.edge_weight is None else torch.double
        )
        if self.done.get(name) != self.num_nodes:
            self.done.pop(name, None)
            array.zero_()
            for part in self._parts(name, True):
                (source, target), weight = counted(part)
                weight = torch.ones_like(source) if weight is None else weight.to(array.dtype)
                array[:, 0].index_add_(0, part.n_id[source], weight)
                array[part.nodes, 1] = scatter(weight, target, 0, part.size, 'sum')
            self._mark(name, self.num_nodes, flush, array, now=True)
        return array

    def _array(
        self, name: str, shape: tuple[int, int], dtype: torch.dtype
    ) -> tuple[Tensor, Callable[[], None]]:
        if self.folder is None:
            return torch.empty(shape, dtype=dtype), lambda: None
        kind = torch.empty(0, dtype=dtype).numpy().dtype
        path = self.folder / f'{name}.bin'
        size = kind.itemsize * shape[0] * shape[1]
        self._add_file(path)
        if not path.exists() or path.lstat().st_size != size:
            self.done.pop(name, None)
            allocate(path, size)
        array = map_array(path, kind, shape, 'r+')
        self.hashed.pop(name, None)
        if self.done.get(name, 0) > 0 and self._checksum(
            name, array, self.done[name]
        ) != self.sums.get(name):
            raise ValueError(
                f"'folder' is damaged: the checksum of {str(path)!r} does not fit its rows; empty "
                'it'
            )
        return torch.from_numpy(array), array.flush if isinstance(
            array, np.memmap
        ) else lambda: None

    def _checksum(self, name: str, array: np.ndarray, done: int) -> str:
        r"""SHA-256 of the first rows, to which those that are new since the last call are added."""
        found, start = self.hashed.get(name, (hashlib.sha256(), 0))
        found.update(array[start:done])
        self.hashed[name] = found, done
        return found.hexdigest()

    def _parts(self, name: str, neighbors: bool) -> Iterator[Part]:
        starts = range(self.done.get(name, 0), self.num_nodes, self.size)
        parts = [slice(start, min(start + self.size, self.num_nodes)) for start in starts]
        if neighbors:
            options: dict[str, Any] = {
                'collate_fn': self._neighborhood,
                'generator': torch.Generator(),
            }
            if getattr(self.loader, 'num_workers', 0) > 0:
                options |= {
                    name: getattr(self.loader, name)
                    for name in ('num_workers', 'multiprocessing_context')
                }
            found = DataLoader(cast(Dataset, parts), batch_size=None, **options)
        else:
            found = (Part(part, *[torch.empty(0)] * 3) for part in parts)
        yield from tqdm(found, name, len(parts), disable=not self.progress_bar)

    def _neighborhood(self, nodes: slice) -> Part:
        sampler = self.loader.node_sampler
        out = sampler.sample_from_nodes(
            NodeSamplerInput(None, torch.arange(nodes.start, nodes.stop))
        )
        edge = out.edge if sampler.edge_permutation is None else sampler.edge_permutation[out.edge]
        weight = None if self.edge_weight is None else self.edge_weight[edge].detach()
        return Part(nodes, out.node, torch.stack([out.row, out.col]), edge, weight)

    def _mark(
        self,
        name: str,
        done: int,
        flush: Callable[[], None],
        array: Tensor | None,
        now: bool = False,
    ) -> None:
        if self.folder is None or not (
            now or done == self.num_nodes or time.perf_counter() - self.saved >= SAVE_SECONDS
        ):
            return
        flush()
        self.done[name] = done
        if array is not None:
            self.sums[name] = self._checksum(name, array.numpy(), done)
        self._note()

    def _note(self) -> None:
        if self.folder is not None:
            progress = Progress(self.key, self.done, self.sums, sorted(self.files))
            write_atomically(self.folder / PROGRESS, json.dumps(progress._asdict()).encode())
        self.saved = time.perf_counter()


def read_progress(content: bytes, num_nodes: int) -> Progress:
    r"""What a run has noted.

    Raises:
        ValueError: If a value is missing, of another type or out of range, or a file has a name
            that no run gives.
    """
    noted = json.loads(content)
    if not isinstance(noted, dict) or noted.keys() != {*Progress._fields}:
        raise ValueError(f'it must be an object with {", ".join(Progress._fields)}')
    progress = Progress(**noted)
    if not isinstance(progress.key, str) or not all(
        isinstance(value, dict) for value in (progress.done, progress.sums)
    ):
        raise ValueError("'key' must be text, 'done' and 'sums' objects")
    if any(type(rows) is not int or not 0 <= rows <= num_nodes for rows in progress.done.values()):
        raise ValueError(f"'done' must have numbers from 0 to {num_nodes} (got {progress.done})")
    if not all(isinstance(value, str) for value in progress.sums.values()):
        raise ValueError(f"'sums' must have texts (got {progress.sums})")
    if not isinstance(progress.files, list) or not all(
        isinstance(name, str) and FILE_NAME.fullmatch(name) for name in progress.files
    ):
        raise ValueError(f"'files' must have names of arrays and states (got {progress.files})")
    return progress
