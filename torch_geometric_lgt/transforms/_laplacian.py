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
    r"""Returns the smallest non-trivial eigenvalues ``[K]`` of the normalised Laplacian, ascending,
    and their orthonormal eigenvectors ``[N, K]``.

    :math:`K` is at most :obj:`k`. The one eigenvalue 0 of each connected component is left out.
    Components are solved one by one. The basis of a repeated eigenvalue is that of
    :meth:`canonical`. If :obj:`dtype` is single precision, a solver may use it where the result
    passes :meth:`defect`.

    Raises:
        RuntimeError: If no solver converges.
    """
    num_components, component = connected_components(adjacency, directed=False)
    nodes, stop = (
        np.argsort(component, kind='stable'),
        np.bincount(component, minlength=num_components).cumsum(),
    )
    blocks = adjacency if num_components == 1 else adjacency[nodes][:, nodes]
    components = (
        (a, b, blocks if b - a == nodes.size else blocks[a:b, a:b])
        for a, b in pairwise([0, *map(int, stop)])
        if b - a > 1
    )
    with _one_thread() if nodes.size < PARALLEL_NODES else nullcontext():
        pairs = [(nodes[a:b], *component_eigenpairs(part, k, dtype)) for a, b, part in components]
    values = np.concatenate([np.zeros(0), *(value for _, value, _ in pairs)])
    order = np.argsort(values, kind='stable')
    order = order[: min(_count(k, values[order]), k + MOST_SPARE)]
    vectors, start = np.zeros((adjacency.shape[0], order.size)), 0
    for part, value, vector in pairs:
        columns = np.flatnonzero((order >= start) & (order < start + value.size))
        vectors[np.ix_(part, columns)] = vector[:, order[columns] - start]
        start += value.size
    return values[order][:k], canonical(values[order], vectors)[:, :k]


def component_eigenpairs(adjacency: csr_array, k: int, dtype: type) -> Pairs:
    r"""Returns the smallest non-trivial eigenpairs of a connected graph, with all eigenvectors of
    the last eigenvalue.

    Of these eigenvectors, at most ``MOST_SPARE`` lie beyond the :obj:`k`-th.

    Small graphs are decomposed as dense matrices, somewhat larger ones in single precision if
    :meth:`solvers` allows it. Others are searched iteratively. If narrow layers of a breadth-first
    search promise little fill-in, the search is Lanczos iteration on the inverse of the Laplacian
    with a sparse factorisation. If the smallest eigenvalue is tiny, it is LOBPCG with algebraic
    multigrid. Else it is Lanczos iteration on the adjacency matrix.

    If a search fails or its result does not pass :meth:`defect`, graphs of a few thousand nodes are
    decomposed as dense matrices; larger ones go to the next solver.
    """
    num_nodes, degree = adjacency.shape[0], adjacency.sum(1)
    null = np.sqrt(degree / degree.sum())
    scale = 1 / np.sqrt(degree)
    weight = adjacency.data * np.repeat(scale, np.diff(adjacency.indptr)) * scale[adjacency.indices]
    matrix = csr_array((weight, adjacency.indices, adjacency.indptr), shape=adjacency.shape)
    most = min(num_nodes - 1, k + MOST_SPARE)
    if num_nodes <= DENSE_NODES or 3 * (k + SPARE) >= num_nodes:
        return whole_eigenspace(k, most, partial(dense, matrix, null))
    makers = solvers(adjacency, matrix, null, dtype)
    if num_nodes <= DENSE_SINGLE_NODES and single in makers:
        pairs = whole_eigenspace(k, most, partial(dense_single, matrix, null))
        if defect(matrix, null, *pairs) <= 1:
            return pairs
    reasons = []
    for make in makers:
        try:
            return whole_eigenspace(
                k, most, partial(complete, matrix, null, make(adjacency, matrix, null))
            )
        except FAILURES as error:
            reasons.append(f'{make.__name__}: {error}')
        if num_nodes <= DENSE_RETRY_NODES:
            break
    if num_nodes <= DENSE_RETRY_NODES:
        values, vectors = dense(matrix, null, most)
        return whole_eigenspace(k, most, lambda size: (values[:size], vectors[:, :size]))
    raise RuntimeError(
        f'the {k} smallest eigenvalues of a component of {num_nodes} nodes did not converge '
        f"({'; '.join(reasons)}); choose another 'k'"
    )


def whole_eigenspace(k: int, most: int, find: Finder) -> Pairs:
    r"""Returns the first :obj:`k` eigenpairs and the following ones of the same eigenvalue.

    All of them are among the first :obj:`most` eigenpairs.
    """
    size = min(k + SPARE, most)
    values, vectors = find(size)
    while size < most and values[-1] - values[k - 1] <= SAME:
        size = min(2 * size, most)
        values, vectors = find(size)
    number = _count(k, values)
    return values[:number], vectors[:, :number]


def dense(matrix: csr_array, null: np.ndarray, size: int) -> Pairs:
    r"""Computes the smallest non-trivial eigenpairs of the Laplacian by a dense decomposition, in
    the precision of the matrix."""
    laplacian = 4 * np.outer(null, null).astype(matrix.dtype) - matrix.toarray()
    laplacian[np.diag_indices(null.size)] += 1
    return eigh(laplacian, subset_by_index=(0, size - 1), overwrite_a=True, check_finite=False)


def dense_single(matrix: csr_array, null: np.ndarray, size: int) -> Pairs:
    r"""Computes eigenpairs in the span of the vectors of a dense decomposition in single
    precision."""
    return _ritz(matrix, null, dense(matrix.astype(np.float32), null, size)[1].astype(np.float64))


def complete(matrix: csr_array, null: np.ndarray, search: Search, size: int) -> Pairs:
    r"""Computes the smallest eigenpairs by a solver, and checks that it missed none.

    As long as a search of the rest returns a smaller eigenvalue, its eigenpair replaces the largest
    one.

    Raises:
        numpy.linalg.LinAlgError: If the eigenpairs do not pass :meth:`defect`.
    """
    values, vectors = _ritz(matrix, null, search(null[:, None], size, PRECISE))
    for _ in range(size + 1):
        error = defect(matrix, null, values, vectors)
        if error > 1:
            raise np.linalg.LinAlgError(f'errors are {error:.1e} times the allowed size')
        known = np.c_[null, vectors]
        rest = search(known, 1, COARSE * values[-1])[:, 0]
        rest = rest - known @ (known.T @ rest)
        if 1 - rest @ (matrix @ rest) / (rest @ rest) > values[-1] - SAME:
            return values, vectors
        values, vectors = _ritz(matrix, null, np.c_[vectors, search(known, 1, PRECISE)])
        values, vectors = values[:-1], vectors[:, :-1]
    raise np.linalg.LinAlgError('each search returned a smaller eigenvalue')


def defect(matrix: csr_array, null: np.ndarray, values: np.ndarray, vectors: np.ndarray) -> float:
    r"""Returns the largest error of eigenpairs, over what is allowed: at most 1 passes.

    Errors are the residual relative to the smallest eigenvalue, the residual relative to the least
    distance of two different eigenvalues, and the departure from orthogonality.
    """
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
    r"""Chooses a basis of each eigenspace that depends on the space only, not on the solver.

    The basis consists of projections of unit vectors. The first one is that of the node with the
    longest projection, or the first of several such nodes. The next ones are chosen in the same way
    from what is orthogonal to the vectors before. The sum of the cubes of a vector is positive;
    where this sum is 0, the first of the largest entries is positive.
    """
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
    r"""Limits BLAS to one thread.

    The limit belongs to the process. Of several threads, the first one sets the limit and restores
    the old one; a second thread would restore the limit of the first.
    """
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
    r"""Returns the controller of the BLAS libraries of this process."""
    return ThreadpoolController()


def _count(k: int, values: np.ndarray) -> int:
    r"""Returns the number of ascending values up to the :obj:`k`-th, with those equal to it."""
    return (
        int(np.searchsorted(values, values[min(k, values.size) - 1] + SAME, 'right'))
        if values.size
        else 0
    )


def _ritz(matrix: csr_array, null: np.ndarray, vectors: np.ndarray) -> Pairs:
    r"""Computes the eigenpairs of the Laplacian within the span of the vectors."""
    basis = np.linalg.qr(vectors - np.outer(null, null @ vectors))[0]
    values, rotation = np.linalg.eigh(basis.T @ (basis - matrix @ basis))
    return values, basis @ rotation
