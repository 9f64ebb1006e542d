# N nodes, K eigenvectors.
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from itertools import pairwise
from threading import Lock

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackError
from threadpoolctl import ThreadpoolController

from torch_geometric_lgt.transforms._eigensolvers import (
    COARSE,
    DENSE_RETRY_NODES,
    PRECISE,
    Search,
    single,
    solvers,
)

DENSE_NODES, DENSE_SINGLE_NODES = 350, 500
PARALLEL_NODES = 50_000  # below, a second thread of BLAS makes Lanczos iteration slower, not faster
LIMITED = Lock()
SPARE, MOST_SPARE = 1, 64
SAME = 1e-8
RESIDUAL, ORTHOGONALITY = 1e-4, 1e-6
FAILURES = (
    ArpackError,
    np.linalg.LinAlgError,
    ImportError,
    MemoryError,
    NotImplementedError,
)  # last: LOBPCG for a fifth of all vectors

Pairs = tuple[np.ndarray, np.ndarray]
Finder = Callable[[int], Pairs]


def laplacian_eigenpairs(adjacency: csr_array, k: int, dtype: type = np.float64) -> Pairs:
    r"""The at most :obj:`k` smallest eigenvalues ``[K]`` of the symmetrically normalised Laplacian
    beyond the one 0 of each connected component, in ascending order, and their orthonormal
    eigenvectors ``[N, K]``.

    Components are solved one by one. Eigenvectors of one eigenvalue are those of :meth:`canonical`.
    With :obj:`dtype` single precision may be used where it passes :meth:`defect`.

    Raises:
        RuntimeError: If no solver converges.
    """
    num_components, component = connected_components(adjacency, directed=False)
    nodes, stop = (
        np.argsort(component, kind='stable'),
        np.bincount(component, minlength=num_components).cumsum(),
    )
    together, bounds = (
        adjacency if num_components == 1 else adjacency[nodes][:, nodes],
        pairwise([0, *map(int, stop)]),
    )
    parts = (
        (a, b, together if b - a == nodes.size else together[a:b, a:b])
        for a, b in bounds
        if b - a > 1
    )
    with _one_thread() if nodes.size < PARALLEL_NODES else nullcontext():
        found = [(nodes[a:b], *component_eigenpairs(part, k, dtype)) for a, b, part in parts]
    values = np.concatenate([np.zeros(0), *(value for _, value, _ in found)])
    order = np.argsort(values, kind='stable')
    order = order[: min(_count(k, values[order]), k + MOST_SPARE)]
    vectors, start = np.zeros((adjacency.shape[0], order.size)), 0
    for part, value, vector in found:
        own = np.flatnonzero((order >= start) & (order < start + value.size))
        vectors[np.ix_(part, own)] = vector[:, order[own] - start]
        start += value.size
    return values[order][:k], canonical(values[order], vectors)[:, :k]


def component_eigenpairs(adjacency: csr_array, k: int, dtype: type) -> Pairs:
    r"""Those of a connected graph, the last eigenvalue with all its eigenvectors unless there are
    more than ``MOST_SPARE`` of them.

    Small graphs are decomposed as they are, larger ones in single precision where :meth:`solvers`
    finds that it may do. Where narrow layers of a breadth-first search promise little fill-in,
    others go to Lanczos iteration on the inverse of the Laplacian by a sparse factorisation; where
    the smallest eigenvalue is tiny, to LOBPCG with algebraic multigrid; else to Lanczos iteration
    on the adjacency matrix. Where one fails or its result does not pass :meth:`defect`, graphs of a
    few thousand nodes are decomposed as they are, larger ones go to the next.
    """
    num_nodes, degree = adjacency.shape[0], adjacency.sum(1)
    null = np.sqrt(degree / degree.sum())
    scale = 1 / np.sqrt(degree)
    weight = adjacency.data * np.repeat(scale, np.diff(adjacency.indptr)) * scale[adjacency.indices]
    matrix = csr_array((weight, adjacency.indices, adjacency.indptr), shape=adjacency.shape)
    most = min(num_nodes - 1, k + MOST_SPARE)
    if num_nodes <= DENSE_NODES or 3 * (k + SPARE) >= num_nodes:
        return ended(k, most, partial(dense, matrix, null))
    makers = solvers(adjacency, matrix, null, dtype)
    if num_nodes <= DENSE_SINGLE_NODES and single in makers:
        found = ended(k, most, partial(dense_single, matrix, null))
        if defect(matrix, null, *found) <= 1:
            return found
    reasons = []
    for make in makers:
        try:
            return ended(k, most, partial(complete, matrix, null, make(adjacency, matrix, null)))
        except FAILURES as error:
            reasons.append(f'{make.__name__}: {error}')
        if num_nodes <= DENSE_RETRY_NODES:
            break
    if num_nodes <= DENSE_RETRY_NODES:
        values, vectors = dense(matrix, null, most)
        return ended(k, most, lambda size: (values[:size], vectors[:, :size]))
    raise RuntimeError(
        f'the {k} smallest eigenvalues of a component of {num_nodes} nodes did not converge '
        f"({'; '.join(reasons)}); choose another 'k'"
    )


def ended(k: int, most: int, find: Finder) -> Pairs:
    r"""The eigenpairs up to the :obj:`k`-th and those that share its eigenvalue, as far as they are
    among the first :obj:`most`."""
    size = min(k + SPARE, most)
    values, vectors = find(size)
    while size < most and values[-1] - values[k - 1] <= SAME:
        size = min(2 * size, most)
        values, vectors = find(size)
    number = _count(k, values)
    return values[:number], vectors[:, :number]


def dense(matrix: csr_array, null: np.ndarray, size: int) -> Pairs:
    r"""The smallest eigenpairs of the Laplacian beyond the null vector by a decomposition of the
    whole matrix, in its precision."""
    laplacian = 4 * np.outer(null, null).astype(matrix.dtype) - matrix.toarray()
    laplacian[np.diag_indices(null.size)] += 1
    return eigh(laplacian, subset_by_index=(0, size - 1), overwrite_a=True, check_finite=False)


def dense_single(matrix: csr_array, null: np.ndarray, size: int) -> Pairs:
    r"""Those of the span of the vectors that single precision finds."""
    return _ritz(matrix, null, dense(matrix.astype(np.float32), null, size)[1].astype(np.float64))


def complete(matrix: csr_array, null: np.ndarray, search: Search, size: int) -> Pairs:
    r"""The smallest eigenpairs that a solver finds, the largest of them exchanged for smaller ones
    as long as a search of what they leave over finds any.

    Raises:
        numpy.linalg.LinAlgError: If they do not pass :meth:`defect`.
    """
    values, vectors = _ritz(matrix, null, search(null[:, None], size, PRECISE))
    for _ in range(size + 1):
        left = defect(matrix, null, values, vectors)
        if left > 1:
            raise np.linalg.LinAlgError(f'residuals {left:.1e} times as large as they may be')
        known = np.c_[null, vectors]
        rest = search(known, 1, COARSE * values[-1])[:, 0]
        rest = rest - known @ (known.T @ rest)
        if 1 - rest @ (matrix @ rest) / (rest @ rest) > values[-1] - SAME:
            return values, vectors
        values, vectors = _ritz(matrix, null, np.c_[vectors, search(known, 1, PRECISE)])
        values, vectors = values[:-1], vectors[:, :-1]
    raise np.linalg.LinAlgError('smaller ones were found again and again')


def defect(matrix: csr_array, null: np.ndarray, values: np.ndarray, vectors: np.ndarray) -> float:
    r"""The largest residual relative to the smallest eigenvalue, and to the least distance of two
    that are not the same, and the departure from orthogonality, each over what is allowed."""
    residual, gap = (
        np.linalg.norm(matrix @ vectors - vectors * (1 - values), axis=0).max(),
        np.diff(values),
    )
    basis = np.c_[null, vectors]
    skew = np.abs(basis.T @ basis - np.eye(basis.shape[1])).max()
    return float(
        max(
            residual / values[0] / RESIDUAL,
            residual / gap[gap > SAME].min(initial=np.inf),
            skew / ORTHOGONALITY,
        )
    )


def canonical(values: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    r"""A basis of each eigenspace that depends on the space alone, not on the solver: the
    projections of unit vectors, one after the other that of the node for which it is longest, of
    equal ones the first, each made orthogonal to those before. The sum of cubes of a vector is
    positive, or where it vanishes the first of the largest entries."""
    if vectors.size == 0:
        return vectors
    out, bounds = (
        vectors.copy(),
        pairwise([0, *np.flatnonzero(np.diff(values) > SAME) + 1, values.size]),
    )
    for first, last in (group for group in bounds if group[1] - group[0] > 1):
        rest = vectors[:, first:last]
        for column in range(first, last):
            node = np.argmax(np.round((rest**2).sum(1), 8))
            direction = rest[node] / np.linalg.norm(rest[node])
            out[:, column] = rest @ direction
            rest = rest - np.outer(out[:, column], direction)
    cube = out * out * out  # a power takes many times as long
    sign = cube.sum(0)
    for column in np.flatnonzero(np.abs(sign) <= 1e-8 * np.abs(cube).sum(0)):
        sign[column] = out[np.argmax(np.round(np.abs(out[:, column]), 8)), column]
    return out * np.where(sign < 0, -1.0, 1.0)


@contextmanager
def _one_thread() -> Iterator[None]:
    r"""Limits BLAS to one thread. The limit belongs to the process: of several threads at once the
    first sets it and takes it back, as another one would restore the limit that it found."""
    if not LIMITED.acquire(blocking=False):
        yield
        return
    try:
        with _controller().limit(limits=1, user_api='blas'):
            yield
    finally:
        LIMITED.release()


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def _count(k: int, values: np.ndarray) -> int:
    r"""How many of the ascending values there are up to the :obj:`k`-th, those equal to it
    included."""
    return (
        int(np.searchsorted(values, values[min(k, values.size) - 1] + SAME, 'right'))
        if values.size
        else 0
    )


def _ritz(matrix: csr_array, null: np.ndarray, vectors: np.ndarray) -> Pairs:
    r"""The eigenpairs of the Laplacian within the span of the vectors."""
    basis = np.linalg.qr(vectors - np.outer(null, null @ vectors))[0]
    values, rotation = np.linalg.eigh(basis.T @ (basis - matrix @ basis))
    return values, basis @ rotation
