# N nodes.
import hashlib
import json
import re
import stat
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from torch_geometric_lgt._io import (
    allocate,
    is_unfinished,
    map_array,
    open_regular,
    read_tensors,
    write_atomically,
    write_tensors,
)

KIND = 'streamed_state'
RESULT = 'scores'
LOCK = '.lock'
PROGRESS = 'progress.json'
SAVE_SECONDS = 20.0
FILE_NAME = re.compile(
    r'((layer|local|noise|state|memory)-\d+|degrees|local-degrees|scores)\.(bin|safetensors)'
)


class Progress(NamedTuple):
    r"""Describes how far a run is, as its folder records it.

    Attributes:
        key (str): Identifies the model and the graph that all arrays are computed from.
        done (dict): The number of finished rows of each array and state.
        sums (dict): The checksum of the finished rows of each array.
        files (list): The names of all files that the run has created.
    """

    key: str
    done: dict[str, int]
    sums: dict[str, str]
    files: list[str]


class Workspace:
    r"""Stores the arrays and states of a run: in memory, or in the files of a folder, where a run
    that was interrupted resumes.

    Args:
        folder (Path, optional): The folder; :obj:`None` stores everything in memory.
        key (str): Identifies the model and the graph that all arrays are computed from.
        num_nodes (int): The number of rows of each array.
        resume (bool): If :obj:`False`, arrays of an earlier run are computed again.

    Raises:
        ValueError: If another process uses the folder, or the folder holds files that no run has
            created, links, folders, damaged files, or arrays of another model or graph.
    """

    def __init__(self, folder: Path | None, key: str, num_nodes: int, resume: bool) -> None:
        self.folder, self.key, self.num_nodes = folder, key, num_nodes
        self.saved = time.perf_counter()
        self.done: dict[str, int] = {}
        self.sums: dict[str, str] = {}
        self.files: set[str] = set()
        self.hashes: dict[str, tuple[Any, int]] = {}
        self.lock: FileLock | None = None
        if folder is not None:
            self._open(folder, resume)

    def _open(self, folder: Path, resume: bool) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        lock = folder / LOCK
        if lock.is_symlink() or not lock.is_file():
            self._read_progress(folder, resume)  # before the first write to a new folder
        self.lock = FileLock(lock, is_singleton=True)
        try:
            release = self.keep_locked(self)
        except Timeout:
            raise ValueError(
                f"'folder' is used by another process (got {str(folder)!r}); wait for it or give "
                'another one'
            ) from None
        try:
            progress = self._read_progress(folder, resume)
        except BaseException:
            release()
            raise
        if resume and progress is not None:
            self.done, self.sums = progress.done, progress.sums
        self.files = set() if progress is None else {*progress.files}
        self.save_progress()

    def keep_locked(self, user: Any) -> Callable[[], Any]:
        r"""Locks the folder against other processes until :obj:`user` is deleted, or until the
        returned function is called."""
        if self.lock is None:
            return lambda: None
        self.lock.acquire(timeout=0)
        return weakref.finalize(user, self.lock.release)

    def _read_progress(self, folder: Path, resume: bool) -> Progress | None:
        r"""Reads the progress of an earlier run, and checks all files of the folder without
        changing one."""
        path = folder / PROGRESS
        try:
            with open_regular(path) as file:
                progress = parse_progress(file.read(), self.num_nodes)
        except FileNotFoundError:
            progress = None
        except (RecursionError, TypeError, ValueError) as error:
            raise ValueError(
                f"'folder' must hold an intact {PROGRESS} (got {str(path)!r}: {error}); empty it"
            ) from error
        for other in folder.iterdir():
            if other.name != LOCK and not self._is_created(
                other, [] if progress is None else progress.files
            ):
                raise ValueError(
                    "'folder' must be empty or of a run with the same model and graph (got "
                    f'{str(other)!r}, which no run has made); give another one'
                )
            status = other.lstat()
            if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
                raise ValueError(
                    f"'folder' must hold regular files only (got {str(other)!r}, a link, a folder, "
                    'a pipe or a device); remove it'
                )
        if resume and progress is not None and progress.key != self.key:
            raise ValueError(
                "'folder' must be empty or of a run with the same model and graph (got "
                f'{str(folder)!r}); give another one'
            )
        return progress

    @staticmethod
    def _is_created(path: Path, files: Iterable[str]) -> bool:
        r"""Whether a run has created a file: one of :obj:`files`, or one of these before it was
        renamed."""
        return any(
            path.name == name or is_unfinished(path, path.with_name(name))
            for name in (PROGRESS, *files)
        )

    def array(self, name: str, width: int, dtype: torch.dtype) -> tuple[Tensor, Callable[[], None]]:
        r"""Opens or creates the array ``[N, width]``, and returns it with the function that writes
        its rows to the file.

        Raises:
            ValueError: If the checksum of the finished rows does not fit.
        """
        shape = (self.num_nodes, width)
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
        self.hashes.pop(name, None)
        done = self.done.get(name, 0)
        if done > 0 and self._checksum(name, array, done) != self.sums.get(name):
            raise ValueError(
                f"'folder' is damaged: the checksum of {str(path)!r} does not fit its rows; empty "
                'it'
            )
        flush = array.flush if isinstance(array, np.memmap) else lambda: None
        return torch.from_numpy(array), flush

    def _checksum(self, name: str, array: np.ndarray, done: int) -> str:
        r"""Returns the SHA-256 of the first :obj:`done` rows; each call hashes new rows only."""
        digest, start = self.hashes.get(name, (hashlib.sha256(), 0))
        digest.update(array[start:done])
        self.hashes[name] = digest, done
        return digest.hexdigest()

    def read_state(self, name: str) -> dict[str, Tensor]:
        r"""Returns the tensors of a state that an earlier run has written, none if it has not, and
        sets the number of nodes in it."""
        path = None if self.folder is None else self.folder / f'{name}.safetensors'
        self._add_file(path)
        if path is None or name not in self.done or not path.exists():
            self.done[name] = 0
            return {}
        tensors = read_tensors(path, KIND)
        done = tensors['done']
        if done.numel() != 1 or not 0 <= int(done) <= self.num_nodes:
            raise ValueError(
                f"'folder' is damaged: {str(path)!r} must be of at most {self.num_nodes} nodes "
                f'(got {done}); empty it'
            )
        self.done[name] = int(done)
        return {part: tensor for part, tensor in tensors.items() if part != 'done'}

    def write_state(self, name: str, tensors: dict[str, Tensor]) -> None:
        write_tensors(cast(Path, self.folder) / f'{name}.safetensors', tensors, KIND)

    def _add_file(self, path: Path | None) -> None:
        r"""Records the name of a file before the file is created."""
        if path is not None and path.name not in self.files:
            self.files.add(path.name)
            self.save_progress()

    def save(
        self,
        name: str,
        done: int,
        write: Callable[[], None],
        array: Tensor | None,
        now: bool = False,
    ) -> None:
        r"""Writes an array or a state with its first :obj:`done` nodes, if the last time is long
        ago, the array or state is complete, or :obj:`now` is set."""
        if self.folder is None or not (
            now or done == self.num_nodes or time.perf_counter() - self.saved >= SAVE_SECONDS
        ):
            return
        write()
        self.done[name] = done
        if array is not None:
            self.sums[name] = self._checksum(name, array.numpy(), done)
        self.save_progress()

    def save_progress(self) -> None:
        r"""Writes the progress to the folder."""
        if self.folder is not None:
            progress = Progress(self.key, self.done, self.sums, sorted(self.files))
            write_atomically(self.folder / PROGRESS, json.dumps(progress._asdict()).encode())
        self.saved = time.perf_counter()

    def finish(self, name: str) -> None:
        r"""Records that the array :obj:`name` is complete and that the others are not needed."""
        self.done, self.sums = {name: self.num_nodes}, {name: self.sums.get(name, '')}
        self.save_progress()

    def remove_others(self, name: str) -> None:
        r"""Removes all files that the run has created, except the array :obj:`name`."""
        for path in [] if self.folder is None else self.folder.iterdir():
            if path.name not in (f'{name}.bin', PROGRESS) and self._is_created(path, self.files):
                path.unlink()


def parse_progress(content: bytes, num_nodes: int) -> Progress:
    r"""Returns the progress that a file describes.

    Raises:
        ValueError: If a value is missing, of another type or out of range, or a file has a name
            that no run uses.
    """
    values = json.loads(content)
    if not isinstance(values, dict) or values.keys() != {*Progress._fields}:
        raise ValueError(f'it must be an object with {", ".join(Progress._fields)}')
    progress = Progress(**values)
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
