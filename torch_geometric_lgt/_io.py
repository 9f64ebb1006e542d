import contextlib
import hashlib
import json
import os
import secrets
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from filelock import FileLock
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

FORMAT_VERSION = 1


def write_atomically(path: str | os.PathLike, content: bytes) -> None:
    r"""Writes a file so that :obj:`path` holds either what it held before or all of :obj:`content`, whatever happens in between.

    Raises:
        OSError: If the folder is missing or read-only, or the disk is full; no partial file is left.
    """
    path = Path(path)
    name = path.parent / f'.{path.name}.{secrets.token_hex(8)}.tmp'
    try:
        with open(name, 'xb') as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    if os.name == 'posix':
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def allocate(path: str | os.PathLike, num_bytes: int) -> None:
    r"""Makes a file of zeros whose blocks are there, to be mapped: where a mapped file has none, a full disk kills the process that writes.

    Raises:
        OSError: If the folder is read-only, or the disk is full; no file is left.
    """
    try:
        with open(path, 'wb') as file:
            if hasattr(os, 'posix_fallocate'):
                os.posix_fallocate(file.fileno(), 0, num_bytes)
            else:
                file.truncate(num_bytes)
    except OSError:
        Path(path).unlink(missing_ok=True)
        raise


def is_unfinished(other: Path, path: Path) -> bool:
    r"""Whether :obj:`other` is what a process that was killed while it wrote :obj:`path` has left."""
    return other.name.startswith(f'.{path.name}.') and other.suffix == '.tmp'


def write_tensors(path: str | os.PathLike, tensors: Mapping[str, Tensor], kind: str) -> None:
    r"""Writes tensors as safetensors with a format version and a checksum, atomically."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    owners = {tensor.untyped_storage().data_ptr(): name for name, tensor in tensors.items()}
    tensors = {name: x if owners[x.untyped_storage().data_ptr()] == name else x.clone() for name, x in tensors.items()}
    metadata = {'kind': kind, 'version': str(FORMAT_VERSION), 'sha256': checksum(tensors)}
    write_atomically(path, save(tensors, metadata))


def read_tensors(path: str | os.PathLike, kind: str) -> dict[str, Tensor]:
    r"""Reads what :meth:`write_tensors` wrote. Nothing is unpickled.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is no safetensors file, holds something else, has another version, or is damaged.
    """
    try:
        with safe_open(path, framework='pt') as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(f"'path' must be an intact safetensors file (got {str(path)!r}: {error}); write it again") from error
    if metadata.get('kind') != kind or metadata.get('version') != str(FORMAT_VERSION):
        held = f'{metadata.get("kind")!r} of version {metadata.get("version")!r}'
        raise ValueError(f"'path' must hold {kind!r} of version {str(FORMAT_VERSION)!r} (got {held} in {str(path)!r}); write it again")
    if metadata.get('sha256') != checksum(tensors):
        raise ValueError(f"'path' is damaged: the checksum of {str(path)!r} does not fit its content; write it again")
    return tensors


def cached_tensors(path: str | os.PathLike, kind: str, build: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    r"""What :obj:`path` holds, or what :obj:`build` returns, kept in :obj:`path`. A damaged file is built again, with a warning; of several
    processes that need the same file, one builds it and the others wait. To read it the folder need not be writable."""
    path = Path(path)
    with contextlib.suppress(FileNotFoundError, ValueError):
        return read_tensors(path, kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f'{path}.lock'):
        if path.exists():
            try:
                return read_tensors(path, kind)
            except ValueError as error:
                warnings.warn(f'{str(path)!r} is built again: {error}', stacklevel=2)
        tensors = build()
        write_tensors(path, tensors, kind)
    return tensors


def checksum(tensors: Mapping[str, Tensor]) -> str:
    r"""SHA-256 over names, dtypes, shapes and bytes."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
