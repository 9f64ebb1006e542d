# N nodes, E edges.
import hashlib
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from torch_geometric_lgt._io import allocate, map_array, open_regular, write_atomically

VERSION, DESCRIPTION = 2, 'graph.json'
ROW, POINTER = 'edges.row', 'edges.colptr'
CHUNK_BYTES = 1 << 26
DTYPES = {
    '|b1',
    '|i1',
    '|u1',
    *(f'<{kind}{size}' for kind in 'iu' for size in (2, 4, 8)),
    '<f2',
    '<f4',
    '<f8',
}
MAX_DIMENSIONS, MAX_ELEMENTS = 32, 1 << 60
RESERVED = {
    'edge_index',
    'n_id',
    'e_id',
    'input_id',
    'batch_size',
    'num_nodes',
    'num_sampled_nodes',
    'num_sampled_edges',
}


class Held(NamedTuple):
    r"""What a file holds: an array in C order without a header."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def mapped(path: Path, dtype: str, shape: tuple[int, ...], mode: Literal['c', 'w+']) -> np.ndarray:
    r"""The array of a file, of which nothing is read before it is used. One without elements is an
    empty file, which no system maps."""
    if mode == 'w+':
        allocate(path, math.prod(shape) * np.dtype(dtype).itemsize)
    return map_array(path, dtype, shape, 'c' if mode == 'c' else 'r+')


def digest(path: Path) -> str:
    r"""SHA-256 of a file, read piece by piece."""
    found = hashlib.sha256()
    with open_regular(path) as file:
        while piece := file.read(CHUNK_BYTES):
            found.update(piece)
    return found.hexdigest()


def describe(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    r"""Writes what the files of a folder hold, the last of them."""
    held = {
        name: Held(array.dtype.str, array.shape, digest(folder / name))._asdict()
        for name, array in arrays.items()
    }
    content = {'version': VERSION, 'files': held, 'sha256': _checksum(held)}
    write_atomically(folder / DESCRIPTION, json.dumps(content, indent=2).encode())


def description(folder: Path) -> dict[str, Held]:
    r"""What the files of a folder hold.

    Raises:
        FileNotFoundError: If there is no description.
        ValueError: If it is of another version or damaged, a file is missing or of another length,
            or the edges do not fill theirs.
    """
    path = folder / DESCRIPTION
    try:
        with open_regular(path) as file:
            content = json.loads(file.read())
        version, listed = content['version'], content['files']
        fits = version != VERSION or content['sha256'] == _checksum(listed)
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(
            f"'folder' must hold an intact {DESCRIPTION} (got {str(path)!r}: {error!r}); write the "
            'graph again'
        ) from error
    if not fits:
        raise ValueError(
            f"'folder' must hold an intact {DESCRIPTION} (the checksum in {str(path)!r} does not "
            'fit); write the graph again'
        )
    if version != VERSION or not isinstance(listed, dict) or not {ROW, POINTER} <= listed.keys():
        names = (
            f'version {version!r} with {sorted(listed) if isinstance(listed, dict) else listed!r}'
        )
        raise ValueError(
            f"'folder' must hold a graph of version {VERSION} (got {names} in {str(path)!r}); "
            'write it again'
        )
    files = {name: _held(name, value, path) for name, value in listed.items()}
    pointer, row = files[POINTER], files[ROW]
    num_nodes = pointer.shape[0] - 1
    if (
        pointer.dtype != '<i8'
        or len(pointer.shape) != 1
        or num_nodes < 0
        or row.dtype not in ('<i4', '<i8')
        or len(row.shape) != 1
    ):
        raise ValueError(
            f"'folder' must hold a graph of version {VERSION} (got {row} and {pointer} in "
            f'{str(path)!r}); write it again'
        )
    for name, held in files.items():
        if name not in (ROW, POINTER) and held.shape[0] != num_nodes:
            raise ValueError(
                f"'folder' must hold {num_nodes} rows of {name!r} (got {held.shape} in "
                f'{str(path)!r}); write it again'
            )
        try:
            size = (folder / name).stat().st_size
        except OSError:
            size = -1
        if size != held.num_bytes:
            raise ValueError(
                f"'folder' is damaged: {name!r} must have {held.num_bytes} bytes (got {size}); "
                'write the graph again'
            )
    first, last = mapped(folder / POINTER, pointer.dtype, pointer.shape, 'c')[[0, -1]]
    if first != 0 or last != row.shape[0]:
        raise ValueError(
            f"'folder' is damaged: {POINTER!r} must go from 0 to {row.shape[0]} (got {first} to "
            f'{last}); write the graph again'
        )
    return files


def _held(name: str, value: Any, path: Path) -> Held:
    r"""The checked description of one file."""
    if name not in (ROW, POINTER) and (not name.isidentifier() or name in RESERVED):
        raise ValueError(
            f"'folder' must hold its files itself, under names of attributes (got {name!r} in "
            f'{str(path)!r})'
        )
    held = (
        Held(**value)
        if isinstance(value, dict) and value.keys() == {*Held._fields}
        else Held('', (), '')
    )
    shape = (
        held.shape if isinstance(held.shape, list) and 0 < len(held.shape) <= MAX_DIMENSIONS else ()
    )
    sizes = len(shape) > 0 and all(type(size) is int and size >= 0 for size in shape)
    fits = sizes and math.prod(max(size, 1) for size in shape) <= MAX_ELEMENTS
    if (
        not fits
        or not isinstance(held.dtype, str)
        or held.dtype not in DTYPES
        or not isinstance(held.sha256, str)
    ):
        raise ValueError(
            f"'folder' must hold a graph of version {VERSION} (got {value!r} for {name!r} in "
            f'{str(path)!r}); write it again'
        )
    return held._replace(shape=tuple(shape))


def _checksum(files: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def pieces(length: int, width: int) -> Iterator[slice]:
    r"""Ranges of rows with :obj:`width` bytes each, in order."""
    step = max(1, CHUNK_BYTES // max(1, width))
    return (slice(start, min(start + step, length)) for start in range(0, length, step))
