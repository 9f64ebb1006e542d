# N nodes, E edges.
import os
import re
import secrets
import shutil
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor
from torch_geometric.data import Data
from tqdm import tqdm

from torch_geometric_lgt._arguments import check_flags, check_ids, check_whole
from torch_geometric_lgt.data._files import POINTER, RESERVED, ROW, describe, mapped, pieces


def write_graph(
    folder: str | Path,
    edge_index: Any,
    num_nodes: int,
    attributes: Mapping[str, Any] | None = None,
    undirected: bool = False,
    progress_bar: bool = False,
) -> Path:
    r"""Writes a graph to files that :class:`~torch_geometric_lgt.data.MappedGraph` maps.

    Edges are stored sorted by target, as int32 if all node ids fit in it. Each node attribute is a
    file. In addition to the arguments, which may be memory-mapped, writing takes :math:`O(N)`
    memory. The folder appears when it is complete, with a checksum for each file. An empty file,
    ``.NAME.lock`` beside a folder ``NAME``, keeps two processes from writing it at once. It stays,
    and may be deleted when no process writes.

    Args:
        folder (str or Path): The folder to write: a path where nothing is yet, or an empty folder
            (not a link to one).
        edge_index (torch.Tensor or numpy.ndarray): Sources and targets ``[2, E]``, integers.
        num_nodes (int): Number of nodes, :math:`N`.
        attributes (dict, optional): Node attributes by name, arrays or tensors with :math:`N` rows,
            in bool, integers or floating-point numbers of at most 64 bits, not bfloat16. (default:
            :obj:`None`, none)
        undirected (bool, optional): If :obj:`True`, write each edge in both directions, a self loop
            therefore twice; repeated edges stay. (default: :obj:`False`)
        progress_bar (bool, optional): If :obj:`True`, show progress. (default: :obj:`False`)

    Returns:
        The folder.

    Raises:
        TypeError: If :obj:`attributes` is not a dictionary.
        ValueError: If the folder is not empty or another process writes it. If :obj:`edge_index` is
            not ``[2, E]`` of an integer dtype, :obj:`num_nodes` is negative or not a whole number,
            :obj:`undirected` or :obj:`progress_bar` is no boolean, or an edge names a node that
            does not exist. If an attribute has another number of rows or an unsupported dtype. If
            an attribute name is not a Python identifier, begins with ``_``, is reserved by loaders,
            such as ``n_id``, or is a method of :class:`~torch_geometric.data.Data`, such as
            ``size``, which a batch would return.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.data import MappedGraph, write_graph
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> x = torch.arange(4.0)[:, None]
        >>> MappedGraph(write_graph('ring', ring, 4, {'x': x}, undirected=True))
        MappedGraph(4 nodes, 8 edges, attributes=['x'])
    """
    check_whole('num_nodes', num_nodes, 0)
    check_flags(undirected=undirected, progress_bar=progress_bar)
    if not isinstance(attributes, Mapping | None):
        raise TypeError(
            "'attributes' must be a dictionary of node attributes, such as {'x': x} (got "
            f'{type(attributes).__name__})'
        )
    folder, edges = Path(folder), _array(edge_index, "'edge_index'")
    arrays = {
        name: _array(value, f"'attributes' {name!r}") for name, value in (attributes or {}).items()
    }
    if edges.ndim != 2 or edges.shape[0] != 2 or edges.dtype.kind not in 'iu':
        raise ValueError(
            f"'edge_index' must have shape [2, E] and hold node ids (got {edges.shape}, "
            f'{edges.dtype})'
        )
    for name, array in arrays.items():
        is_name = isinstance(name, str) and name.isidentifier() and not name.startswith('_')
        if not is_name or name in RESERVED or callable(getattr(Data, name, None)):
            raise ValueError(
                f"'attributes' must have names that a batch can hold, none of {sorted(RESERVED)} "
                f'nor of the methods of Data (got {name!r})'
            )
        if (
            array.ndim == 0
            or array.shape[0] != num_nodes
            or array.dtype.kind not in 'biuf'
            or array.dtype.itemsize > 8
        ):
            raise ValueError(
                f"'attributes' must have {num_nodes} rows of numbers each, one for each node (got "
                f'{array.shape}, {array.dtype} for {name!r}); attributes of edges are not stored'
            )
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(folder.parent / f'.{folder.name}.lock', timeout=0):
            if folder.is_symlink() or (
                folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
            ):
                raise ValueError(
                    f"'folder' must not exist or be empty, and be no link (got {str(folder)!r}); "
                    'open a written graph with MappedGraph, or delete it to write it again'
                )
            _write(folder, edges, num_nodes, arrays, undirected, progress_bar)
    except Timeout:
        raise ValueError(
            f"'folder' is written by another process (got {str(folder)!r}); wait for it or give "
            'another one'
        ) from None
    return folder


def _write(
    folder: Path,
    edges: np.ndarray,
    num_nodes: int,
    arrays: dict[str, np.ndarray],
    undirected: bool,
    progress_bar: bool,
) -> None:
    r"""Writes all files of a graph to a temporary folder beside :obj:`folder`, and renames the
    temporary folder at the end, when no array maps a file in it. On an error the temporary folder
    is removed.

    The caller holds the lock of the folder, so no other process writes. Temporary folders of killed
    processes are therefore removed first.
    """
    unfinished = re.compile(rf'\.{re.escape(folder.name)}\.[0-9a-f]{{16}}\.part')
    for other in folder.parent.iterdir():
        if unfinished.fullmatch(other.name) and other.is_dir() and not other.is_symlink():
            shutil.rmtree(other, ignore_errors=True)
    part = folder.parent / f'.{folder.name}.{secrets.token_hex(8)}.part'
    part.mkdir()
    try:
        _write_files(part, edges, num_nodes, arrays, undirected, progress_bar)
        if folder.exists():
            folder.rmdir()
        os.replace(part, folder)
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # Windows removes no file that an array maps
        shutil.rmtree(part, ignore_errors=True)
        raise


def _write_files(
    folder: Path,
    edges: np.ndarray,
    num_nodes: int,
    arrays: dict[str, np.ndarray],
    undirected: bool,
    progress_bar: bool,
) -> None:
    r"""Writes the edges, the node attributes and the description of a graph to :obj:`folder`."""
    written = _write_edges(folder, edges, num_nodes, undirected, progress_bar)
    for name, array in arrays.items():
        written[name] = mapped(folder / name, array.dtype.newbyteorder('<').str, array.shape, 'w+')
        for rows in tqdm(list(pieces(num_nodes, array[:1].nbytes)), name, disable=not progress_bar):
            written[name][rows] = array[rows]
    for array in written.values():
        if isinstance(array, np.memmap):
            array.flush()
    describe(folder, written)


def _array(value: Any, name: str) -> np.ndarray:
    r"""Converts a tensor or array-like to a NumPy array, without a copy if possible. Error messages
    begin with :obj:`name`.

    Raises:
        ValueError: If :obj:`value` is a graph, or a tensor that is sparse or of a dtype that NumPy
            lacks (bfloat16).
    """
    if hasattr(value, 'edge_index'):
        raise ValueError(
            f'{name} must be an array or tensor (got {type(value).__name__}); give '
            "data.edge_index, data.num_nodes and {'x': data.x}"
        )
    if isinstance(value, Tensor) and (
        value.dtype == torch.bfloat16 or value.layout != torch.strided
    ):
        raise ValueError(
            f'{name} must be dense and of a dtype that NumPy has (got {value.dtype}, '
            f'{value.layout}); convert it first'
        )
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asanyarray(value)


def _write_edges(
    folder: Path, edges: np.ndarray, num_nodes: int, undirected: bool, progress_bar: bool
) -> dict[str, np.ndarray]:
    r"""Writes the edges ``[2, E]`` to :obj:`folder` in CSC format, sorted by target, and returns
    the two memory-mapped arrays by file name.

    The arrays are the pointers ``[N + 1]`` in int64 and the sources ``[E]``, in int32 if all ids
    fit. With :obj:`undirected`, each edge is written in both directions, so there are :math:`2 E`
    sources. Edges are read in chunks.

    Raises:
        ValueError: If an id is outside the :obj:`num_nodes` nodes.
    """
    directions = [(0, 1), (1, 0)] if undirected else [(0, 1)]
    parts = [(ends, part) for ends in directions for part in pieces(edges.shape[1], 64)]
    pointer = mapped(folder / POINTER, '<i8', (num_nodes + 1,), 'w+')
    pointer[:] = 0
    for (source, target), part in tqdm(parts, 'counting edges', disable=not progress_bar):
        for side in (source, target):
            ids = edges[side, part]
            check_ids('edge_index', ids, num_nodes)
        # no pass over all nodes for a part of the edges
        np.add.at(np.asarray(pointer), edges[target, part].astype(np.int64) + 1, 1)
    np.cumsum(pointer, out=pointer)
    dtype = '<i4' if num_nodes < 2**31 else '<i8'
    row = mapped(folder / ROW, dtype, (len(directions) * edges.shape[1],), 'w+')
    place = np.array(pointer[:-1])
    for (source, target), part in tqdm(parts, 'sorting edges', disable=not progress_bar):
        order = np.argsort(edges[target, part], kind='stable')
        ids = np.asarray(edges[target, part])[order].astype(np.int64)
        first = np.flatnonzero(np.diff(ids, prepend=-1))
        count = np.diff(first, append=ids.size)
        row[place[ids] + np.arange(ids.size) - np.repeat(first, count)] = np.asarray(
            edges[source, part]
        )[order]
        place[ids[first]] += count
    return {POINTER: pointer, ROW: row}
