import contextlib
import hashlib
import json
import os
import secrets
import stat
import struct
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from io import FileIO
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from torch import Tensor

FORMAT_VERSION = 2
CHUNK_ELEMENTS = 1 << 24
DTYPES = {
    torch.float64: 'F64',
    torch.float32: 'F32',
    torch.float16: 'F16',
    torch.bfloat16: 'BF16',
    torch.int64: 'I64',
    torch.int32: 'I32',
    torch.int16: 'I16',
    torch.int8: 'I8',
    torch.uint8: 'U8',
    torch.bool: 'BOOL',
}
# 0 where a system has none
NO_WAIT, NO_LINK = (getattr(os, name, 0) for name in ('O_NONBLOCK', 'O_NOFOLLOW'))


class Tensors(dict[str, Tensor]):
    r"""Stores the tensors of a file by name. Reading a missing name raises a ValueError with the
    path of the file."""

    def __init__(self, path: str | os.PathLike[str], tensors: Mapping[str, Tensor]) -> None:
        super().__init__(tensors)
        self.path = path

    def __missing__(self, name: str) -> Tensor:
        raise ValueError(
            f"'path' must hold {name!r} (got {sorted(self)} in {str(self.path)!r}); remove the "
            'file and write it again'
        )


def open_regular(path: str | os.PathLike[str], mode: Literal['rb', 'r+b'] = 'rb') -> FileIO:
    r"""Opens an existing regular file in binary mode, without waiting for the other end of a pipe.
    For writing (``'r+b'``), the file must not be a link.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the path is a folder, a pipe, a device or a socket, or a link to write
            through.
    """
    extra_flags = NO_WAIT if mode == 'rb' else NO_WAIT | NO_LINK
    if mode == 'r+b' and not NO_LINK and os.path.islink(path):  # on Windows
        raise ValueError(f"'path' must be a regular file (got {str(path)!r}, a link); remove it")
    try:
        file = FileIO(path, mode, opener=lambda name, flags: os.open(name, flags | extra_flags))
    except FileNotFoundError:
        raise
    except OSError as error:
        if stat.S_ISREG(os.lstat(path).st_mode):
            raise
        raise ValueError(
            f"'path' must be a regular file (got {str(path)!r}: {error.strerror}); remove it"
        ) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(
            f"'path' must be a regular file (got {str(path)!r}, a pipe, device or socket); remove "
            'it'
        )
    return file


def write_atomically(path: str | os.PathLike[str], content: bytes | Iterable[Any]) -> None:
    r"""Writes :obj:`content`, bytes or an iterable of pieces in bytes, to a file. If the process is
    killed, :obj:`path` has either its old content or all of the new content.

    Raises:
        OSError: If the folder is missing or read-only, or the disk is full. The message names the
            file, and no partial file is left.
    """
    path = Path(path)
    name = path.parent / f'.{path.name}.{secrets.token_hex(8)}.tmp'
    try:
        with open(name, 'xb') as file:
            for piece in [content] if isinstance(content, bytes) else content:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException as error:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        names = None, str(name)
        if isinstance(error, OSError) and error.errno is not None and error.filename in names:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    if os.name == 'posix':
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def allocate(path: str | os.PathLike[str], num_bytes: int) -> None:
    r"""Makes a new file of :obj:`num_bytes` zeros whose disk blocks are allocated, so that the file
    can be memory-mapped.

    Without allocated blocks, a full disk kills the process that writes to the mapped file. A file
    or a link of this name is removed first; the target of a link does not change.

    Raises:
        OSError: If the folder is read-only, or the disk is full; the message then has the number of
            bytes. No file is left.
    """
    Path(path).unlink(missing_ok=True)
    try:
        with open(path, 'xb') as file:
            if hasattr(os, 'posix_fallocate') and num_bytes > 0:
                os.posix_fallocate(file.fileno(), 0, num_bytes)
            else:
                zeros = bytes(min(num_bytes, CHUNK_ELEMENTS))
                for start in range(0, num_bytes, CHUNK_ELEMENTS):
                    file.write(zeros[: num_bytes - start])
    except OSError as error:
        Path(path).unlink(missing_ok=True)
        if error.filename is not None:
            raise
        message = f'{error.strerror}; the file needs {num_bytes} bytes'
        raise OSError(error.errno, message, str(path)) from error


def map_array(
    path: str | os.PathLike[str],
    dtype: str | np.dtype,
    shape: tuple[int, ...],
    mode: Literal['c', 'r+'],
) -> np.ndarray:
    r"""Memory-maps an array of :obj:`dtype` and :obj:`shape` from a file. With mode ``'c'``,
    changes of the array do not reach the file. With ``'r+'``, changes are written to the file.

    With ``'r+'`` the file must not be a link. An array without elements is an ordinary array,
    because an empty file cannot be mapped.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the path is no regular file, or a link to write through.
    """
    with open_regular(path, 'rb' if mode == 'c' else 'r+b') as file:
        return np.empty(shape, dtype) if 0 in shape else np.memmap(file, dtype, mode, shape=shape)


def is_unfinished(other: Path, path: Path) -> bool:
    r"""Returns whether :obj:`other` is called like a temporary file of :meth:`write_atomically` for
    :obj:`path`, which a killed process may leave."""
    return other.name.startswith(f'.{path.name}.') and other.suffix == '.tmp'


def write_tensors(path: str | os.PathLike[str], tensors: Mapping[str, Tensor], kind: str) -> None:
    r"""Writes named tensors to a safetensors file, atomically, with :obj:`kind`, a format version
    and a checksum as metadata. :obj:`kind` is the name of the content, which :meth:`read_tensors`
    compares. Tensors are written in chunks, so that mapped ones need not fit into memory."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    metadata = {'kind': kind, 'version': str(FORMAT_VERSION), 'sha256': checksum(tensors)}
    write_atomically(path, _safetensors(tensors, metadata))


def _safetensors(tensors: Mapping[str, Tensor], metadata: dict[str, str]) -> Iterator[Any]:
    r"""Yields a safetensors file in pieces: the length of its header, the header in JSON, and the
    bytes of the tensors. Those with the longest elements come first, so that all are aligned."""
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header: dict[str, Any] = {'__metadata__': metadata}
    end = 0
    for name in names:
        x = tensors[name]
        start, end = end, end + x.numel() * x.element_size()
        shape = list(x.shape)
        header[name] = {'dtype': DTYPES[x.dtype], 'shape': shape, 'data_offsets': [start, end]}
    text = json.dumps(header).encode()
    text += b' ' * (-len(text) % 8)
    yield struct.pack('<Q', len(text))
    yield text
    for name in names:
        yield from _byte_pieces(tensors[name])


def read_tensors(
    path: str | os.PathLike[str], kind: str, mapped: bool = False
) -> dict[str, Tensor]:
    r"""Reads a file of :meth:`write_tensors` into memory and returns its tensors by name.

    Later changes of the file do not change the tensors. Nothing is unpickled. With :obj:`mapped`,
    the tensors are memory-mapped: they need no memory, and the file must not be changed in place.
    :meth:`write_tensors` may replace it.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the path is no regular file or no safetensors file, or the file is damaged.
            If its content is of another :obj:`kind` or version.
    """
    open_regular(path).close()
    try:
        with torch.device('cpu'), safe_open(path, framework='pt') as file:
            metadata = file.metadata() or {}
            names = file.keys()
            tensors = {name: file.get_tensor(name) for name in names}
            if not mapped:
                tensors = {name: tensor.clone() for name, tensor in tensors.items()}
    except SafetensorError as error:
        raise ValueError(
            f"'path' must be an intact safetensors file (got {str(path)!r}: {error}); write it "
            'again'
        ) from error
    if metadata.get('kind') != kind or metadata.get('version') != str(FORMAT_VERSION):
        content = f'{metadata.get("kind")!r} of version {metadata.get("version")!r}'
        raise ValueError(
            f"'path' must hold {kind!r} of version {str(FORMAT_VERSION)!r} (got {content} in "
            f'{str(path)!r}); write it again'
        )
    if metadata.get('sha256') != checksum(tensors):
        raise ValueError(
            f"'path' is damaged: the checksum of {str(path)!r} does not fit its content; write it "
            'again'
        )
    return Tensors(path, tensors)


def cached_tensors(
    path: str | os.PathLike[str],
    kind: str,
    build: Callable[[], dict[str, Tensor]],
    expected: Mapping[str, tuple[torch.dtype, tuple[int, ...]]] = MappingProxyType({}),
) -> dict[str, Tensor]:
    r"""Returns the tensors of :obj:`path`, or builds them and writes them to :obj:`path`.

    A damaged file is built again, with a warning. The same is done if a tensor has another dtype or
    shape than :obj:`expected`. If several processes need the same file, one builds it and the
    others wait. Reading does not need a writable folder.

    Args:
        path: The safetensors file.
        kind: The name of the content, see :meth:`write_tensors`.
        build: Computes the tensors by name.
        expected: The dtype and shape of tensors by name.

    Raises:
        ValueError: If :obj:`path` is a folder, a pipe, a device or a socket.
    """
    path = Path(path)

    def read() -> dict[str, Tensor]:
        tensors = read_tensors(path, kind)
        for name in tensors.keys() & expected.keys():
            form = (tensors[name].dtype, tuple(tensors[name].shape))
            if form != expected[name]:
                raise ValueError(
                    f"'path' must hold {name!r} of {expected[name]} (got {form} in {str(path)!r}); "
                    'write it again'
                )
        return tensors

    with contextlib.suppress(FileNotFoundError):
        open_regular(path).close()
    with contextlib.suppress(FileNotFoundError, ValueError):
        return read()
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f'{path}.lock'):
        if path.exists():
            try:
                return read()
            except ValueError as error:
                reason = str(error).removesuffix('; write it again')
                warnings.warn(f'{str(path)!r} is built again: {reason}', stacklevel=2)
        tensors = build()
        write_tensors(path, tensors, kind)
    return tensors


def raw_bytes(tensor: Tensor) -> np.ndarray:
    r"""Returns the bytes of a tensor as an array in uint8, in the order of the tensor's elements
    for any strides."""
    return (
        tensor.detach()
        .new_empty(tensor.numel())
        .copy_(tensor.detach().reshape(-1))
        .cpu()
        .view(torch.uint8)
        .numpy()
    )


def checksum(tensors: Mapping[str, Tensor]) -> str:
    r"""Computes the SHA-256 of the names, dtypes, shapes and bytes of tensors, in hexadecimal."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        for piece in _byte_pieces(tensor):
            digest.update(piece)
    return digest.hexdigest()


def _byte_pieces(tensor: Tensor) -> Iterator[Any]:
    r"""Yields the bytes of a tensor in pieces, so that a mapped tensor need not fit into memory."""
    for piece in tensor.detach().reshape(-1).split(CHUNK_ELEMENTS):
        yield raw_bytes(piece).data
