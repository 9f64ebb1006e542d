r"""Restricts what readers of other packages may unpickle to plain content: numbers, texts,
arrays, matrices and collections of these."""

import contextlib
import os
import pickle
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from scipy.sparse import csr_matrix

from torch_geometric_lgt._io import open_regular

DTYPE = re.compile(r'[<>|=]?(b1|[iu][1248]|f[248]|[SU][0-9]{1,9}|O8?)')


class Kind:
    r"""Stands for :obj:`numpy.dtype`, whose own state may claim that addresses in memory are
    objects."""

    def __init__(self, text: str, *_: bool) -> None:
        if not isinstance(text, str) or not DTYPE.fullmatch(text):
            raise pickle.UnpicklingError(f'{text!r} is no dtype of numbers, texts or objects')
        self.dtype = np.dtype(text)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        order = state[1]
        self.dtype = self.dtype.newbyteorder(order) if order in ('<', '>') else self.dtype


class Array(np.ndarray):
    r"""Stands for :obj:`numpy.ndarray`. It is filled once, with as many bytes as its dtype and its
    shape take."""

    def __new__(cls) -> 'Array':
        return super().__new__(cls, (0,), np.uint8)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        version, shape, kind, is_fortran, content = state
        if (
            self.size > 0
            or not isinstance(kind, Kind)
            or any(type(size) is not int or size < 0 for size in shape)
        ):
            raise pickle.UnpicklingError(
                f'an array must be filled once and have sizes of at least 0 (got {shape})'
            )
        super().__setstate__((version, shape, kind.dtype, is_fortran, content))


class Matrix(csr_matrix):
    r"""Stands for :obj:`scipy.sparse.csr_matrix`. No index leads out of it."""

    def __init__(self) -> None:
        super().__init__((0, 0))

    def __setstate__(self, state: dict[str, Any]) -> None:
        parts = [np.array(state[name]) for name in ('data', 'indices', 'indptr')]
        if any(part.dtype.kind not in 'biuf' for part in parts):
            raise pickle.UnpicklingError('a matrix must hold numbers')
        super().__init__(tuple(parts), shape=tuple(int(size) for size in state['_shape']))
        self.check_format(full_check=True)


def _array(*_: Any) -> Array:
    return Array()


def _scalar(kind: Kind, content: Any = b'') -> Any:
    return _from_buffer(
        content.encode('latin1') if isinstance(content, str) else content, kind, (), 'C'
    )[()]


def _from_buffer(
    content: bytes, kind: Kind, shape: tuple[int, ...], order: str, *_: Any
) -> np.ndarray:
    if kind.dtype.hasobject:
        raise pickle.UnpicklingError('objects must not be read from memory')
    return np.frombuffer(bytearray(content), kind.dtype).reshape(
        shape, order='F' if order == 'F' else 'C'
    )


ARRAYS: dict[str, Any] = {
    'numpy.ndarray': Array,
    'numpy.dtype': Kind,
    **{f'numpy.{core}.multiarray._reconstruct': _array for core in ('core', '_core')},
    **{f'numpy.{core}.multiarray.scalar': _scalar for core in ('core', '_core')},
}
PLAIN: dict[str, Any] = {
    **ARRAYS,
    **{f'numpy.{core}.numeric._frombuffer': _from_buffer for core in ('core', '_core')},
    **{f'scipy.sparse.{module}.csr_matrix': Matrix for module in ('csr', '_csr')},
    **{f'{module}.list': list for module in ('builtins', '__builtin__')},
    'collections.defaultdict': defaultdict,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if name == 'Bunch' and module.startswith('sklearn.'):
            from sklearn.utils import Bunch

            return Bunch
        if f'{module}.{name}' not in PLAIN:
            raise pickle.UnpicklingError(
                f'{module}.{name} is neither an array, a matrix nor a collection'
            )
        return PLAIN[f'{module}.{name}']


def _load(file: Any, **options: Any) -> Any:
    return _Unpickler(file, **options).load()


def _loads(content: bytes, **options: Any) -> Any:
    return _load(BytesIO(content), **options)


def _torch_load(load: Any, file: Any, *args: Any, **options: Any) -> Any:
    r"""Reads a file. Errors name the file and leave out the advice to read it without the
    restriction."""
    name = repr(str(getattr(file, 'name', file)))
    try:
        return load(file, *args, **options)
    except pickle.UnpicklingError as error:
        refused = re.search(r'GLOBAL (\S+)', str(error))
        reason = (
            f'{refused.group(1)} is no array' if refused else 'an instruction that builds no array'
        )
        raise pickle.UnpicklingError(
            f'{name}: {reason}'
        ) from None  # PyTorch advises to run the file
    except (RuntimeError, EOFError, OSError) as error:
        reason = str(error).partition('. ')[0] or 'it is empty'
        raise ValueError(f'{name} cannot be read ({reason}); remove it') from error


def require_regular(path: str | Path) -> None:
    r"""Opens a file, or all files in a folder, to check its kind. Opening never waits for the
    other end of a pipe.

    Raises:
        ValueError: If one is a pipe, a device or a socket.
    """
    for file in (Path(path), *sorted(Path(path).rglob('*'))):
        if file.exists() and not file.is_dir():
            open_regular(file).close()


@contextlib.contextmanager
def arrays_only(folder: str | Path, classes: tuple[Any, ...] = ()) -> Iterator[None]:
    r"""Restricts :obj:`torch.load`, :obj:`pickle.load`, :obj:`pickle.loads` and, through these,
    :obj:`numpy.load` to plain content, whatever options their callers pass. :obj:`torch.load`
    also reads :obj:`classes`.

    Raises:
        pickle.UnpicklingError: If a file holds anything else. No code in it runs.
    """
    environment = {'TORCH_FORCE_WEIGHTS_ONLY_LOAD': '1', 'TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD': '0'}
    before = torch.serialization.get_safe_globals()  # they stay safe afterwards
    safe = [value for value in classes if value not in before] + [
        (stand_in, name) for name, stand_in in ARRAYS.items()
    ]
    try:
        with (
            mock.patch.dict(os.environ, environment),
            mock.patch.multiple(pickle, load=_load, loads=_loads),
            mock.patch.object(torch, 'load', partial(_torch_load, torch.load)),
            torch.serialization.safe_globals(safe),
        ):
            yield
    except pickle.UnpicklingError as error:
        reason = str(error).splitlines()[0]
        raise pickle.UnpicklingError(
            f'a file in {str(folder)!r} holds more than arrays, and was not run ({reason}); remove '
            "the folders 'processed' in it, "
            'and fetch the data again if that does not help'
        ) from error
