# N nodes, E edges, P pairs.
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import pairwise

import numpy as np
import torch

CHUNK_ELEMENTS = 1 << 22
PART_ELEMENTS = 1 << 26  # lookups of a part of the loop, a quarter of a second
SEARCHED_ELEMENTS = 1 << 22  # lookups of a process that take no longer than to compile the loop

_lookups = 0


def common_neighbors(
    pointer: np.ndarray, neighbor: np.ndarray, one: np.ndarray, other: np.ndarray
) -> np.ndarray:
    r"""Counts the neighbours that both nodes of each pair have in common.

    The time of a pair is the smaller of both degrees, and memory is :math:`O(N + E + P)`. A pair
    that is repeated, in either order, is computed once.

    Args:
        pointer (numpy.ndarray): ``[N + 1]``, the position of the first neighbour of each node.
        neighbor (numpy.ndarray): ``[E]``, the neighbours, distinct and sorted for each node.
        one (numpy.ndarray): The first node of each pair, ``[P]`` in int64.
        other (numpy.ndarray): The second node of each pair, ``[P]`` in int64.

    Returns:
        ``[P]`` in int64
    """
    degree = np.diff(pointer)
    num_nodes = max(1, pointer.size - 1)
    swap = (degree[one] < degree[other]) | ((degree[one] == degree[other]) & (one < other))
    pairs, place = np.unique(
        np.where(swap, other, one) * num_nodes + np.where(swap, one, other), return_inverse=True
    )
    large, small = np.divmod(pairs, num_nodes)
    loop = _compiled() if _worth_compiling(int(degree[small].sum())) else None
    count = _search if loop is None else partial(_mark, loop)
    return count(pointer, neighbor, large, small)[place]


def _worth_compiling(lookups: int) -> bool:
    r"""Adds :obj:`lookups` to the lookups of this process. Returns whether all of them take longer
    than to compile the loop."""
    global _lookups
    _lookups += lookups
    return _lookups > SEARCHED_ELEMENTS


def _mark(
    loop: Callable, pointer: np.ndarray, neighbor: np.ndarray, large: np.ndarray, small: np.ndarray
) -> np.ndarray:
    r"""Counts the common neighbours ``[P]`` of the pairs (:obj:`large`, :obj:`small`) by the
    compiled :obj:`loop`, on all threads. It marks the neighbours of each larger node once, then
    looks up the neighbours of all smaller nodes that are paired with it. An interrupt takes effect
    when the parts of the loop end that have begun."""
    start = np.zeros(1, np.int64)
    if large.size > 0:
        start = np.flatnonzero(np.concatenate([[True], large[1:] != large[:-1], [True]]))
    out = np.empty(large.size, np.int64)
    threads, lookups = torch.get_num_threads(), int(np.diff(pointer)[small].sum())
    parts = max(threads, lookups // max(PART_ELEMENTS, pointer.size))
    run = partial(loop, pointer, neighbor, large, small, start, out, parts)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(run, range(parts)))
    return out


def _search(
    pointer: np.ndarray, neighbor: np.ndarray, large: np.ndarray, small: np.ndarray
) -> np.ndarray:
    r"""Counts the common neighbours ``[P]`` of the pairs (:obj:`large`, :obj:`small`) without a
    compiler. Each neighbour of the smaller node is looked up by bisection among all sorted (node,
    neighbour) pairs."""
    degree = np.diff(pointer)
    num_nodes = max(1, pointer.size - 1)
    known = np.repeat(np.arange(degree.size), degree) * num_nodes + neighbor
    length = degree[small]
    work = np.concatenate([[0], length.cumsum()])
    out = np.zeros(large.size, np.int64)
    cuts = [*np.searchsorted(work, np.arange(0, work[-1], CHUNK_ELEMENTS)), large.size]
    for first, last in pairwise(map(int, cuts)):
        pair = np.repeat(np.arange(first, last), length[first:last])
        position = pointer[small[pair]] + np.arange(int(work[first]), int(work[last])) - work[pair]
        wanted = large[pair] * num_nodes + neighbor[position]
        candidate = np.searchsorted(known, wanted).clip(max=known.size - 1)
        is_shared = known[candidate] == wanted
        out[first:last] = np.bincount(pair[is_shared] - first, minlength=last - first)
    return out


@cache
def _compiled() -> Callable | None:
    r"""Returns the compiled loop that :meth:`_mark` runs, or :obj:`None` without numba. Each
    process compiles the loop, because numba would read its cache on disk as a pickle."""
    try:
        from numba import njit
    except ImportError:
        return None
    return njit(nogil=True)(_count)


def _count(pointer, neighbor, large, small, start, out, parts, part):
    marked = np.zeros(pointer.size - 1, np.uint8)
    for group in range(part, start.size - 1, parts):
        node = large[start[group]]
        for position in range(pointer[node], pointer[node + 1]):
            marked[neighbor[position]] = 1
        for pair in range(start[group], start[group + 1]):
            shared = np.int64(0)
            for position in range(pointer[small[pair]], pointer[small[pair] + 1]):
                shared += marked[neighbor[position]]
            out[pair] = shared
        for position in range(pointer[node], pointer[node + 1]):
            marked[neighbor[position]] = 0
