import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_geometric_lgt._io import cached_tensors


def cached(
    cache_dir: str | os.PathLike[str] | None,
    name: str,
    *,
    parts: Sequence[Any],
    build: Callable[[], dict[str, Tensor]],
    expected: Mapping[str, tuple[torch.dtype, tuple[int, ...]]],
) -> dict[str, Tensor]:
    r"""Reads the results of a transform from a file in :obj:`cache_dir`, or computes and writes
    them. Without a folder the results are only computed.

    Args:
        cache_dir: The folder, or :obj:`None`.
        name: The name of the transform.
        parts: Arrays, tensors or lists of whole numbers that determine the results.
        build: Computes the results, tensors by name.
        expected: The dtype and shape of the tensors by name.

    Raises:
        ValueError: If :obj:`cache_dir` is a file.
    """
    if cache_dir is None:
        return build()
    folder = Path(cache_dir).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"'cache_dir' must be a folder (got the file {str(folder)!r})")
    return cached_tensors(_cache_path(folder, name, parts), name, build, expected)


def _cache_path(cache_dir: Path, name: str, parts: Sequence[Any]) -> Path:
    r"""Returns the file for the results of a transform, which is named by a checksum of
    :obj:`parts` and of the default dtype."""
    arrays = [np.asarray(part.cpu() if isinstance(part, Tensor) else part) for part in parts]
    digests = [hashlib.sha256(array.astype(np.int64).tobytes()).digest() for array in arrays]
    key = hashlib.sha256(b''.join(digests) + str(torch.get_default_dtype()).encode()).hexdigest()
    return cache_dir / f'{name}-{key[:32]}.safetensors'
