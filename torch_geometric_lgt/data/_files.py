# N nodes, E edges.
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from torch_geometric_lgt._io import allocate, write_atomically

VERSION, DESCRIPTION = 2, 'graph.json'
ROW, POINTER = 'edges.row', 'edges.colptr'
CHUNK_BYTES = 1 << 26


class Held(NamedTuple):
    r"""What a file holds: an array in C order without a header."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def num_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * np.dtype(self.dtype).itemsize


def mapped(path: Path, dtype: str, shape: tuple[int, ...], mode: Literal['c', 'w+']) -> np.ndarray:
    r"""The array of a file, of which nothing is read before it is used. One without elements is an empty file, which no system maps."""
    if 0 in shape:
        path.touch()
        return np.empty(shape, dtype)
    if mode == 'w+':
        allocate(path, int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
    return np.memmap(path, dtype, 'c' if mode == 'c' else 'r+', shape=shape)


def digest(path: Path) -> str:
    r"""SHA-256 of a file, read piece by piece."""
    found = hashlib.sha256()
    with open(path, 'rb') as file:
        while piece := file.read(CHUNK_BYTES):
            found.update(piece)
    return found.hexdigest()


def describe(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    r"""Writes what the files of a folder hold, the last of them."""
    held = {name: Held(array.dtype.str, array.shape, digest(folder / name))._asdict() for name, array in arrays.items()}
    content = {'version': VERSION, 'files': held, 'sha256': _checksum(held)}
    write_atomically(folder / DESCRIPTION, json.dumps(content, indent=2).encode())


def description(folder: Path) -> dict[str, Held]:
    r"""What the files of a folder hold.

    Raises:
        FileNotFoundError: If there is no description.
        ValueError: If it is of another version or damaged, or a file is missing or of another length.
    """
    path = folder / DESCRIPTION
    try:
        content = json.loads(path.read_text())
        version = content['version']
        fits = version != VERSION or content['sha256'] == _checksum(content['files'])
        files = {name: Held(value['dtype'], tuple(value['shape']), value['sha256']) for name, value in content['files'].items()}
        plain = all(np.dtype(held.dtype).kind in 'biuf' for held in files.values())
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"'folder' must hold an intact {DESCRIPTION} (got {str(path)!r}: {error!r}); write the graph again") from error
    if not fits:
        raise ValueError(f"'folder' must hold an intact {DESCRIPTION} (the checksum in {str(path)!r} does not fit); write the graph again")
    if version != VERSION or not plain or not {ROW, POINTER} <= files.keys():
        raise ValueError(f"'folder' must hold a graph of version {VERSION} (got version {version!r} with {sorted(files)}); write it again")
    for name, held in files.items():
        if Path(name).name != name:
            raise ValueError(f"'folder' must hold its files itself (got {name!r})")
        size = (folder / name).stat().st_size if (folder / name).exists() else -1
        if size != held.num_bytes:
            raise ValueError(f"'folder' is damaged: {name!r} must have {held.num_bytes} bytes (got {size}); write the graph again")
    return files


def _checksum(files: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def pieces(length: int, width: int) -> Iterator[slice]:
    r"""Ranges of rows with :obj:`width` bytes each, in order."""
    step = max(1, CHUNK_BYTES // max(1, width))
    return (slice(start, min(start + step, length)) for start in range(0, length, step))
