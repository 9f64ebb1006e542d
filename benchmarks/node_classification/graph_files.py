r"""Reads graphs from .npz files."""

# N nodes, E edges, F features, S splits.
import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from scipy.sparse import csr_array
from torch_geometric.data import Data

from torch_geometric_lgt._io import open_regular

PARTS = ('train_masks', 'val_masks', 'test_masks')


def from_npz(path: Path) -> Data:
    r"""Reads a graph from the arrays :obj:`edges` ``[E, 2]``, :obj:`y` ``[N]`` and :obj:`x` ``[N,
    F]`` of a file. Binary features may be given by :obj:`feat_indptr` and :obj:`feat_indices`, the
    columns of the ones in each row. The splits are :obj:`train_masks`, :obj:`val_masks` and
    :obj:`test_masks` ``[S, N]``, which a file may leave out. Nothing is unpickled.

    The files of `"A Critical Look at the Evaluation of GNNs under Heterophily"
    <https://arxiv.org/abs/2302.11640>`_ have :obj:`node_labels` and :obj:`node_features` in place
    of :obj:`y` and :obj:`x`, and always splits.

    Raises:
        ValueError: If the file is damaged, lacks an array, or one has another shape or type, or ids
            or labels out of range. If a part of a split is empty, has nodes of another part or
            nodes without a label.
    """
    arrays = _arrays(path)
    is_heterophilous = not arrays.keys().isdisjoint(('node_features', 'node_labels'))
    labels, features = ('node_labels', 'node_features') if is_heterophilous else ('y', 'x')
    y = _integers(arrays, labels, (None,), -1, 2**31)
    is_binary = features not in arrays and 'feat_indptr' in arrays
    x = _binary_features(arrays) if is_binary else _features(arrays, features)
    if not 0 < y.size == len(x):
        raise ValueError(
            f'{labels!r} must have a label for each node (got {y.size} for {len(x)} nodes)'
        )
    edges = _integers(arrays, 'edges', (None, 2), 0, y.size)
    data = Data(
        x=torch.from_numpy(x),
        edge_index=torch.from_numpy(edges.T).contiguous(),
        y=torch.from_numpy(y),
    )
    if is_heterophilous or not arrays.keys().isdisjoint(PARTS):
        for name, masks in _splits(arrays, y, labels).items():
            data[name.removesuffix('s')] = torch.from_numpy(masks.T).contiguous()
    return data


def _splits(arrays: dict[str, np.ndarray], y: np.ndarray, labels: str) -> dict[str, np.ndarray]:
    r"""Checks the masks ``[S, N]`` of the parts of S splits and returns them by name."""
    number = len(_array(arrays, PARTS[0], 'b', (None, y.size)))
    splits = {name: _array(arrays, name, 'b', (number, y.size)) for name in PARTS}
    for name, masks in splits.items():
        empty = (~masks.any(1)).nonzero()[0]
        if number == 0 or empty.size > 0:
            raise ValueError(
                f'{name!r} must have a node in each split (got '
                f'{f"none in split {empty[0]}" if number else "no split"})'
            )
        if (masks & (y < 0)).any():
            node = int((masks & (y < 0)).any(0).argmax())
            raise ValueError(
                f'{name!r} must have labelled nodes (got node {node} of {labels!r} -1)'
            )
    shared = np.sum([*splits.values()], axis=0) > 1
    if shared.any():
        split, node = np.argwhere(shared)[0]
        raise ValueError(
            f'{", ".join(map(repr, PARTS))} must not share nodes (got node {node} in two parts of '
            f'split {split})'
        )
    return splits


def _arrays(path: Path) -> dict[str, np.ndarray]:
    r"""Reads all arrays of a file and unpickles nothing."""
    try:
        with open_regular(path) as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as archive:
            return {
                name: np.asarray(value) for name, value in archive.items()
            }  # a member that is no array is read as bytes
    except (
        BadZipFile,
        EOFError,
        NotImplementedError,
        RuntimeError,
        ValueError,
        zlib.error,
    ) as error:
        reason = 'it holds objects' if 'allow_pickle' in str(error) else str(error)
        raise ValueError(
            f'{str(path)!r} must be an intact .npz file of numbers ({reason})'
        ) from error


def _array(
    arrays: dict[str, np.ndarray], name: str, kinds: str, shape: tuple[int | None, ...]
) -> np.ndarray:
    if name not in arrays:
        raise ValueError(f'the file must hold {name!r} (got {", ".join(arrays)})')
    value = arrays[name]
    fits = value.ndim == len(shape) and all(
        size in (None, length) for size, length in zip(shape, value.shape, strict=True)
    )
    if value.dtype.kind not in kinds or not fits:
        text = ', '.join('*' if size is None else str(size) for size in shape)
        numbers = 'numbers' if 'f' in kinds else 'integers' if 'i' in kinds else 'booleans'
        raise ValueError(
            f'{name!r} must be {numbers} of shape [{text}] (got {value.dtype} {list(value.shape)})'
        )
    return value


def _integers(
    arrays: dict[str, np.ndarray], name: str, shape: tuple[int | None, ...], least: int, end: int
) -> np.ndarray:
    r"""Checks an array of integers from :obj:`least` to below :obj:`end`."""
    value = _array(arrays, name, 'iu', shape)
    if value.size > 0 and (int(value.min()) < least or int(value.max()) >= end):
        raise ValueError(
            f'{name!r} must be from {least} to {end - 1} (got {value.min()} to {value.max()})'
        )
    return value.astype(np.int64)


def _features(arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    x = _array(arrays, name, 'biuf', (None, None))
    with np.errstate(over='ignore'):
        single = x.astype(np.float32)
    if not np.isfinite(single).all():
        raise ValueError(
            f'{name!r} must be finite in single precision (got '
            f'{int((~np.isfinite(single)).sum())} numbers that are not)'
        )
    return single


def _binary_features(arrays: dict[str, np.ndarray]) -> np.ndarray:
    pointer = _integers(arrays, 'feat_indptr', (None,), 0, 2**63 - 1)
    column = _integers(arrays, 'feat_indices', (None,), 0, 2**31)
    if (
        pointer.size == 0
        or pointer[0] != 0
        or pointer[-1] != column.size
        or (np.diff(pointer) < 0).any()
    ):
        raise ValueError(
            "'feat_indptr' must not decrease, from 0 to the size of 'feat_indices' (got "
            f'{pointer.tolist()[:5]} ..)'
        )
    shape = (pointer.size - 1, int(column.max(initial=-1)) + 1)
    return csr_array((np.ones(column.size, np.float32), column, pointer), shape=shape).toarray()
