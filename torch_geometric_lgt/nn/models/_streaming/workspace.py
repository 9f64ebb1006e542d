# N nodes.
import contextlib
import hashlib
import json
import os
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

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
from torch_geometric_lgt.nn.models._streaming.progress import PROGRESS, Progress, parse_progress

KIND = 'streamed_state'
RESULT = 'scores'
REMEDY = 'delete the folder if its files are no longer needed, or give another one'
LOCK = '.lock'
SAVE_SECONDS = 20.0
_OPENING = threading.Lock()
_OPEN: 'weakref.WeakSet[Workspace]' = weakref.WeakSet()


class Workspace:
    r"""Stores the arrays and states of a run: in memory, or in the files of a folder, in which an
    interrupted run resumes.

    Arrays have one row for each node. States are sums over the keys of all nodes.

    Args:
        folder (Path, optional): The folder; :obj:`None` stores everything in memory.
        key (str): A text that identifies the model and the graph. A run resumes only with the same
            text.
        num_nodes (int): The number of rows of each array.
        resume (bool): If :obj:`False`, arrays of an earlier run are computed again.

    Raises:
        ValueError: If another process or thread writes to the folder, or the folder belongs to
            another model or graph. If it contains links, folders, damaged files, or files that no
            run has created. Without :obj:`resume`, if it contains scores.
    """

    def __init__(self, folder: Path | None, key: str, num_nodes: int, resume: bool) -> None:
        self.folder, self.key, self.num_nodes = folder, key, num_nodes
        self.saved = time.perf_counter()
        self.done: dict[str, int] = {}
        self.sums: dict[str, str] = {}
        self.files: set[str] = set()
        self.hashes: dict[str, tuple[Any, int]] = {}
        self.opened: set[str] = set()
        self.lock: FileLock | None = None
        self.thread = threading.current_thread()
        if folder is not None:
            self._open(folder, resume)

    def _open(self, folder: Path, resume: bool) -> None:
        if folder.exists() and not folder.is_dir():
            raise ValueError(
                f"'folder' must be a folder, or not exist (got the file {str(folder)!r})"
            )
        folder.mkdir(parents=True, exist_ok=True)
        lock = folder / LOCK
        if not _has_lock(lock):
            try:
                self._read_progress(folder, resume)  # before the first write to a new folder
            except (OSError, ValueError):
                if not _has_lock(lock):
                    raise  # and no run that began meanwhile is the reason
        # any thread may drop what keeps the folder locked
        self.lock = FileLock(lock, is_singleton=True, thread_local=False)
        try:
            release = self.keep_locked(self)
        except Timeout:
            raise ValueError(
                f"'folder' is used by another process (got {str(folder)!r}); wait for it or give "
                'another one'
            ) from None
        try:
            self._exclude_threads(folder)
            progress = self._read_progress(folder, resume)
            if not resume and progress is not None and RESULT in progress.done:
                raise ValueError(
                    "'folder' must not hold the scores of 'inference' (got "
                    f'{str(folder)!r}); {REMEDY}'
                )
        except BaseException:
            release()
            _OPEN.discard(self)
            raise
        if resume and progress is not None:
            self.done, self.sums = progress.done, progress.sums
        self.files = set() if progress is None else {*progress.files}
        self.save_progress()

    def _exclude_threads(self, folder: Path) -> None:
        r"""Notes that this thread writes to the folder; the lock tells processes apart only.

        Raises:
            ValueError: If another thread writes to the folder.
        """
        with _OPENING:
            for other in _OPEN:
                is_alive = other.thread is not self.thread and other.thread.is_alive()
                if is_alive and other.lock is self.lock:
                    raise ValueError(
                        f"'folder' is used by another thread (got {str(folder)!r}); wait for it or "
                        'give another one'
                    )
            _OPEN.add(self)

    def keep_locked(self, user: Any) -> Callable[[], Any]:
        r"""Locks the folder against other processes until :obj:`user`, any object, is
        garbage-collected. Returns a function that releases the lock earlier.

        Raises:
            filelock.Timeout: If another process has locked the folder.
        """
        if self.lock is None:
            return lambda: None
        self.lock.acquire(timeout=0)
        return weakref.finalize(user, self.lock.release)

    def _read_progress(self, folder: Path, resume: bool) -> Progress | None:
        r"""Reads the progress of an earlier run from the folder, :obj:`None` if there is none.
        Nothing is written.

        Raises:
            ValueError: If the progress is damaged, a file is not from a run or not a regular file,
                or with :obj:`resume` the run has another key.
        """
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
            if not _is_regular(other):
                raise ValueError(
                    f"'folder' must hold regular files only (got {str(other)!r}, a link, a folder, "
                    'a pipe or a device); remove it'
                )
        if resume and progress is not None and progress.key != self.key:
            raise ValueError(
                "'folder' must be empty or of a run with the same model and graph (got "
                f'{str(folder)!r}, of a run with other parameters, settings or data); {REMEDY}'
            )
        return progress

    @staticmethod
    def _is_created(path: Path, files: Iterable[str]) -> bool:
        r"""Tells whether a run has created the file :obj:`path`: its name is among :obj:`files` or
        the progress file, or is the temporary name of one of these."""
        return any(
            path.name == name or is_unfinished(path, path.with_name(name))
            for name in (PROGRESS, *files)
        )

    def array(self, name: str, width: int, dtype: torch.dtype) -> tuple[Tensor, Callable[[], None]]:
        r"""Opens the array :obj:`name`, or creates it with arbitrary content.

        Without finished rows the file is a new one, which takes the place of an earlier file of
        this name. Arrays that map the earlier file keep their values. Windows removes no mapped
        file; the new one then has a number in its name.

        Args:
            name (str): The name of the array; the file is ``name.bin`` or ``name.1.bin``.
            width (int): The number of columns.
            dtype (torch.dtype): The dtype of the array.

        Returns:
            The array ``[N, width]``, memory-mapped if there is a folder, and a function that
            flushes it to the file.

        Raises:
            ValueError: If the finished rows of an earlier run do not have their checksum.
        """
        shape = (self.num_nodes, width)
        if self.folder is None:
            return torch.empty(shape, dtype=dtype, device='cpu'), lambda: None
        kind = _stored(torch.empty(0, dtype=dtype, device='cpu')).dtype
        size = kind.itemsize * shape[0] * shape[1]
        path = self._newest_file(name)
        is_resumed = self.done.get(name, 0) > 0 or name in self.opened
        if not is_resumed or not path.exists() or path.lstat().st_size != size:
            path = self._free_file(name)
            self._add_file(path)
            self.done.pop(name, None)
            allocate(path, size)
        self.opened.add(name)
        array = map_array(path, kind, shape, 'r+')
        self.hashes.pop(name, None)
        done = self.done.get(name, 0)
        if done > 0 and self._checksum(name, array, done) != self.sums.get(name):
            raise ValueError(
                f"'folder' is damaged: the checksum of {str(path)!r} does not fit its rows; empty "
                'it'
            )
        flush = array.flush if isinstance(array, np.memmap) else lambda: None
        return torch.from_numpy(array).view(dtype), flush

    def _newest_file(self, name: str) -> Path:
        r"""Returns the existing file of the array :obj:`name` with the largest number, or else the
        file without a number."""
        return max(self._files_of(name), key=_number, default=self._file(name, 0))

    def _free_file(self, name: str) -> Path:
        r"""Removes the files of the array :obj:`name`, and returns the path of a new one, whose
        number is above those of the files that cannot be removed."""
        number = 0
        for path in self._files_of(name):
            try:
                path.unlink()
            except PermissionError:
                number = max(number, _number(path) + 1)
        return self._file(name, number)

    def _files_of(self, name: str) -> list[Path]:
        r"""Returns the existing files of the array :obj:`name` that the run has created."""
        paths = [cast(Path, self.folder) / file for file in self.files]
        return [path for path in paths if path == self._file(name, _number(path)) and path.exists()]

    def _file(self, name: str, number: int) -> Path:
        return cast(Path, self.folder) / (f'{name}.{number}.bin' if number else f'{name}.bin')

    def _checksum(self, name: str, array: np.ndarray, done: int) -> str:
        r"""Returns the SHA-256 of the first :obj:`done` rows of the array :obj:`name`, as
        hexadecimal digits. Rows that an earlier call has read are not read again."""
        digest, start = self.hashes.get(name, (hashlib.sha256(), 0))
        digest.update(array[start:done])
        self.hashes[name] = digest, done
        return digest.hexdigest()

    def read_state(self, name: str) -> dict[str, Tensor]:
        r"""Reads the tensors of the state :obj:`name`, by their names, from its file, and sets
        ``done[name]`` to the number of nodes in it.

        Returns an empty dict and sets 0 if an earlier run has not written the state.

        Raises:
            ValueError: If the file is damaged.
        """
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
        r"""Records in the progress file that the run creates the file :obj:`path`; :obj:`None` is
        ignored. To be called before the file is created."""
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
        r"""Writes an array or state to its file and records its progress, if this is due.

        It is due if :obj:`now` is set, all nodes are done, or the last save is at least
        :obj:`SAVE_SECONDS` ago. Without a folder nothing is written.

        Args:
            name (str): The name of the array or state.
            done (int): The number of its finished first nodes.
            write (callable): Writes the file.
            array (torch.Tensor, optional): The array ``[N, width]``, for its checksum; :obj:`None`
                for a state.
            now (bool): If :obj:`True`, writes in any case.
        """
        if self.folder is None or not (
            now or done == self.num_nodes or time.perf_counter() - self.saved >= SAVE_SECONDS
        ):
            return
        write()
        self.done[name] = done
        if array is not None:
            self.sums[name] = self._checksum(name, _stored(array), done)
        self.save_progress()

    def save_progress(self) -> None:
        r"""Writes the progress to the file ``progress.json``, atomically; without a folder only the
        time is recorded."""
        if self.folder is not None:
            progress = Progress(self.key, self.done, self.sums, sorted(self.files))
            write_atomically(self.folder / PROGRESS, json.dumps(progress._asdict()).encode())
        self.saved = time.perf_counter()

    def finish(self, name: str) -> None:
        r"""Records in the progress file that the array :obj:`name` is complete, and forgets the
        progress of all other arrays and states."""
        self.done, self.sums = {name: self.num_nodes}, {name: self.sums.get(name, '')}
        self.save_progress()

    def remove_others(self, name: str) -> None:
        r"""Deletes all files that the run has created, except the file of the array :obj:`name` and
        the progress file. On Windows files stay that an array maps."""
        if self.folder is None:
            return
        remaining = (PROGRESS, self._newest_file(name).name)
        for path in self.folder.iterdir():
            if path.name not in remaining and self._is_created(path, self.files):
                with contextlib.suppress(PermissionError):
                    path.unlink()


def _has_lock(lock: Path) -> bool:
    r"""Tells whether a run has made the file :obj:`lock` that keeps its folder locked."""
    return os.path.lexists(lock) and _is_regular(lock)


def _is_regular(path: Path) -> bool:
    r"""Tells whether :obj:`path` is a regular file without a second name (a hard link)."""
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and status.st_nlink == 1


def _number(path: Path) -> int:
    r"""Returns the number in the name of an array's file, 0 if it has none."""
    _, *number, _ = path.name.split('.')
    return int(number[0]) if number else 0


def _stored(array: Tensor) -> np.ndarray:
    r"""Returns the array as its file stores it: bfloat16, which NumPy lacks, as int16 of the same
    bits."""
    return (array.view(torch.int16) if array.dtype == torch.bfloat16 else array).numpy()
