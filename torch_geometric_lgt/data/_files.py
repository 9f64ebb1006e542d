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
    'adj_t',
    'n_id',
    'e_id',
    'input_id',
    'batch',
    'batch_size',
    'num_nodes',
    'num_sampled_nodes',
    'num_sampled_edges',
    'seed_time',
    'edge_label',
    'edge_label_index',
    'edge_label_time',
    'src_index',
    'dst_pos_index',
    'dst_neg_index',
}


class ArrayFile(NamedTuple):
    r"""Describes a file of one array in C order without a header: NumPy's name of the dtype
    (``'<f4'``), the shape, and the SHA-256 of the file."""

    dtype: str
    shape: tuple[int, ...]
    sha256: str

    @property
    def num_bytes(self) -> int:
        r"""Returns the length of the file in bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def mapped(path: Path, dtype: str, shape: tuple[int, ...], mode: Literal['c', 'w+']) -> np.ndarray:
    r"""Memory-maps the array of a file. Mode ``'c'`` maps an existing file, and changes of the
    array do not reach the file. Mode ``'w+'`` makes a new file of zeros, to which changes are
    written.

    An array without elements is an ordinary array, because an empty file cannot be mapped.
    """
    if mode == 'w+':
        allocate(path, math.prod(shape) * np.dtype(dtype).itemsize)
    return map_array(path, dtype, shape, 'c' if mode == 'c' else 'r+')


def digest(path: Path) -> str:
    r"""Computes the SHA-256 of a file in hexadecimal, reading the file in chunks."""
    result = hashlib.sha256()
    with open_regular(path) as file:
        while piece := file.read(CHUNK_BYTES):
            result.update(piece)
    return result.hexdigest()


def describe(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    r"""Writes ``graph.json``, the description of a folder's files: dtype, shape and checksum of
    each of the :obj:`arrays` by name.

    The description is written last, so a folder with a description is complete.
    """
    files = {
        name: ArrayFile(array.dtype.str, array.shape, digest(folder / name))._asdict()
        for name, array in arrays.items()
    }
    content = {'version': VERSION, 'files': files, 'sha256': _checksum(files)}
    write_atomically(folder / DESCRIPTION, json.dumps(content, indent=2).encode())


def description(folder: Path) -> dict[str, ArrayFile]:
    r"""Reads ``graph.json``, the description of a folder's files, checks it against the lengths of
    the files, and returns an :class:`ArrayFile` for each name.

    Raises:
        FileNotFoundError: If the folder has no description, or is a file.
        ValueError: If the description is of another version or damaged, a file is missing or has
            another length, or the pointers do not fit the edges.
    """
    path = folder / DESCRIPTION
    try:
        with open_regular(path) as file:
            content = json.loads(file.read())
        version, listed = content['version'], content['files']
        fits = version != VERSION or content['sha256'] == _checksum(listed)
    except (FileNotFoundError, NotADirectoryError) as error:
        message = "'folder' must hold a graph that 'write_graph' wrote"
        raise FileNotFoundError(error.errno, message, str(path)) from error
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
    files = {name: _checked_file(name, value, path) for name, value in listed.items()}
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
    for name, file in files.items():
        if name not in (ROW, POINTER) and file.shape[0] != num_nodes:
            raise ValueError(
                f"'folder' must hold {num_nodes} rows of {name!r} (got {file.shape} in "
                f'{str(path)!r}); write it again'
            )
        try:
            size: int | str = (folder / name).stat().st_size
        except OSError:
            size = 'no file'
        if size != file.num_bytes:
            raise ValueError(
                f"'folder' is damaged: {name!r} must have {file.num_bytes} bytes (got {size}); "
                'write the graph again'
            )
    first, last = mapped(folder / POINTER, pointer.dtype, pointer.shape, 'c')[[0, -1]]
    if first != 0 or last != row.shape[0]:
        raise ValueError(
            f"'folder' is damaged: {POINTER!r} must go from 0 to {row.shape[0]} (got {first} to "
            f'{last}); write the graph again'
        )
    return files


def _checked_file(name: str, value: Any, path: Path) -> ArrayFile:
    r"""Checks the entry of one file in a description, :obj:`value` as read from JSON, and returns
    it as :class:`ArrayFile`. Error messages name the description's :obj:`path`.

    Raises:
        ValueError: If :obj:`name` is no name of an attribute, or the entry is malformed.
    """
    if name not in (ROW, POINTER) and (not name.isidentifier() or name in RESERVED):
        raise ValueError(
            f"'folder' must hold its files itself, under names of attributes (got {name!r} in "
            f'{str(path)!r})'
        )
    file = (
        ArrayFile(**value)
        if isinstance(value, dict) and value.keys() == {*ArrayFile._fields}
        else ArrayFile('', (), '')
    )
    shape = (
        file.shape if isinstance(file.shape, list) and 0 < len(file.shape) <= MAX_DIMENSIONS else ()
    )
    sizes = len(shape) > 0 and all(type(size) is int and size >= 0 for size in shape)
    fits = sizes and math.prod(max(size, 1) for size in shape) <= MAX_ELEMENTS
    if (
        not fits
        or not isinstance(file.dtype, str)
        or file.dtype not in DTYPES
        or not isinstance(file.sha256, str)
    ):
        raise ValueError(
            f"'folder' must hold a graph of version {VERSION} (got {value!r} for {name!r} in "
            f'{str(path)!r}); write it again'
        )
    return file._replace(shape=tuple(shape))


def _checksum(files: dict[str, Any]) -> str:
    r"""Computes the SHA-256 of the descriptions of all files in hexadecimal."""
    return hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()


def pieces(length: int, width: int) -> Iterator[slice]:
    r"""Splits :obj:`length` rows into consecutive slices of at most :obj:`CHUNK_BYTES`, at least
    one row each, and yields the slices in order. Each row has :obj:`width` bytes."""
    step = max(1, CHUNK_BYTES // max(1, width))
    return (slice(start, min(start + step, length)) for start in range(0, length, step))
