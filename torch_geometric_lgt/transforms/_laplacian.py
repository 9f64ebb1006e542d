# N nodes, K eigenvectors.
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.linalg import eigh
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackError

from torch_geometric_lgt.transforms._eigensolvers import (
    COARSE,
    DENSE_RETRY_NODES,
    PRECISE,
    Search,
    single,
    solvers,
)
from torch_geometric_lgt.transforms._threads import blas_threads

DENSE_NODES, DENSE_SINGLE_NODES = 350, 500
SPARE, MOST_SPARE = 1, 64
SAME, SAME_SHARE = 1e-8, 1e-4
SAME_SIZE, SAME_SUM = 1e-3, 1e-4  # far above the errors of single precision
RESIDUAL, ORTHOGONALITY = 1e-4, 1e-6
# last: LOBPCG for a fifth of all vectors
FAILURES = (
    ArpackError,
    np.linalg.LinAlgError,
    ImportError,
    MemoryError,
    NotImplementedError,
)

Pairs = tuple[np.ndarray, np.ndarray]
Finder = Callable[[int], Pairs]


def laplacian_eigenpairs(adjacency: csr_array, k: int, dtype: type = np.float64) -> Pairs:
    r"""Computes the smallest non-trivial eigenvalues ``[K]`` of the normalised Laplacian,
    ascending, and their orthonormal eigenvectors ``[N, K]``, in float64.

    :obj:`adjacency` ``[N, N]`` is symmetric, with ones and an empty diagonal. :math:`K` is
    :obj:`k`, or the number of non-trivial eigenvectors if that is smaller. The eigenvalue 0 that
    each connected component has once is trivial and left out. Components are solved one by one.
    :meth:`canonical` chooses signs, and the basis of a repeated eigenvalue. If :obj:`dtype` is
    float32, a solver may compute in single precision; its result must pass :meth:`defect`.

    Raises:
        RuntimeError: If no solver converges.
    """
    num_components, component = connected_components(adjacency, directed=False)
    nodes = np.argsort(component, kind='stable')
    stop = np.bincount(component, minlength=num_components).cumsum()
    blocks = adjacency if num_components == 1 else adjacency[nodes][:, nodes]
    components = (
        (a, b, blocks if b - a == nodes.size else blocks[a:b, a:b])
        for a, b in pairwise([0, *map(int, stop)])
        if b - a > 1
    )
    with blas_threads(nodes.size):
        pairs = [(nodes[a:b], *component_eigenpairs(part, k, dtype)) for a, b, part in components]
    values = np.concatenate([np.zeros(0), *(value for _, value, _ in pairs)])
    order = np.argsort(values, kind='stable')
    order = order[: min(_count(k, values[order]), k + MOST_SPARE)]
    vectors = np.zeros((adjacency.shape[0], order.size))
    start = 0
    for part, value, vector in pairs:
        columns = np.flatnonzero((order >= start) & (order < start + value.size))
        vectors[np.ix_(part, columns)] = vector[:, order[columns] - start]
        start += value.size
    return values[order][:k], canonical(values[order], vectors)[:, :k]


def component_eigenpairs(adjacency: csr_array, k: int, dtype: type) -> Pairs:
    r"""Computes the smallest non-trivial eigenvalues ``[K]`` of a connected graph's Laplacian,
    ascending, and their eigenvectors ``[N, K]``.

    The first :obj:`k` are returned, or all if the graph has fewer. Further eigenvectors of the
    :obj:`k`-th eigenvalue follow, at most ``MOST_SPARE``.

    Small graphs are decomposed as dense matrices, somewhat larger ones in single precision if
    :meth:`solvers` allows it. The solvers of larger graphs are iterative. They are tried in the
    order of :meth:`solvers` until a result passes :meth:`defect`. If the first one fails on a graph
    of at most ``DENSE_RETRY_NODES`` nodes, the graph is decomposed as a dense matrix instead.

    Raises:
        RuntimeError: If no solver converges.
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
                k, most, partial(complete, matrix, null, make(adjacency, matrix, null), k, most)
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
    r"""Returns the first :obj:`k` eigenvalues and eigenvectors, and the following ones that belong
    to the :obj:`k`-th eigenvalue.

    ``find(size)`` computes the first :obj:`size` eigenvalues and eigenvectors. :obj:`find` is
    called with larger sizes, up to :obj:`most`, until the last eigenvalue differs from the
    :obj:`k`-th.
    """
    size = min(k + SPARE, most)
    values, vectors = find(size)
    while size < most and values[-1] - values[k - 1] <= same(values[k - 1]):
        size = min(2 * size, most)
        values, vectors = find(size)
    number = _count(k, values)
    return values[:number], vectors[:, :number]


def dense(matrix: csr_array, null: np.ndarray, size: int) -> Pairs:
    r"""Computes the :obj:`size` smallest non-trivial eigenvalues of the Laplacian, ascending, and
    their eigenvectors ``[N, size]``, by a dense decomposition.

    :obj:`matrix` ``[N, N]`` is the normalised adjacency matrix, and its dtype is the precision.
    :obj:`null` ``[N]`` is the trivial eigenvector, which is left out.
    """
    laplacian = 4 * np.outer(null, null).astype(matrix.dtype) - matrix.toarray()
    laplacian[np.diag_indices(null.size)] += 1
    return eigh(laplacian, subset_by_index=(0, size - 1), overwrite_a=True, check_finite=False)


def dense_single(matrix: csr_array, null: np.ndarray, size: int) -> Pairs:
    r"""Computes the same as :meth:`dense` from a decomposition in single precision: eigenvalues and
    eigenvectors in double precision within the span of the rough eigenvectors."""
    return _ritz(matrix, null, dense(matrix.astype(np.float32), null, size)[1].astype(np.float64))


def complete(
    matrix: csr_array, null: np.ndarray, search: Search, k: int, most: int, size: int
) -> Pairs:
    r"""Computes the :obj:`size` smallest non-trivial eigenvalues of the Laplacian and their
    eigenvectors ``[N, size]`` with :obj:`search`, and checks that none is missing up to the
    :obj:`k`-th, nor another one that equals it.

    After each step, a search looks for one more eigenvalue. It is precise enough to tell one that
    follows the last from the :obj:`k`-th. If it cannot, the eigenvector found by a precise search
    replaces the last one. If the last eigenvalue equals the :obj:`k`-th, there is no such search
    unless :obj:`size` is :obj:`most`, because :meth:`whole_eigenspace` asks for more.

    Raises:
        numpy.linalg.LinAlgError: If the result does not pass :meth:`defect`, or an eigenvalue may
            be missing after each of ``size + 1`` steps.
    """
    values, vectors = _ritz(matrix, null, search(null[:, None], size, PRECISE))
    for _ in range(size + 1):
        error = defect(matrix, null, values, vectors)
        if error > 1:
            raise np.linalg.LinAlgError(f'errors are {error:.1e} times the allowed size')
        margin = same(values[k - 1])
        is_equal = values[-1] - values[k - 1] <= margin
        if is_equal and size < most:
            return values, vectors
        limit = values[k - 1] + (-margin if is_equal else margin)
        tolerance = min(COARSE * values[-1], (values[-1] - limit) / 4)
        known = np.c_[null, vectors]
        following, residual = _following(matrix, search, known, max(PRECISE, tolerance))
        if following > limit and (following - residual > limit or tolerance < PRECISE):
            return values, vectors
        values, vectors = _ritz(matrix, null, np.c_[vectors, search(known, 1, PRECISE)])
        values, vectors = values[:-1], vectors[:, :-1]
    raise np.linalg.LinAlgError('each search returned a smaller eigenvalue')


def _following(
    matrix: csr_array, search: Search, known: np.ndarray, tolerance: float
) -> tuple[float, float]:
    r"""Computes the Rayleigh quotient of the vector that :obj:`search` finds beyond the
    :obj:`known` eigenvectors, which is at least the smallest eigenvalue beyond theirs, and the norm
    of its residual."""
    vector = search(known, 1, tolerance)[:, 0]
    vector = vector - known @ (known.T @ vector)
    vector = vector / np.linalg.norm(vector)
    image = vector - matrix @ vector
    value = vector @ image
    return value, float(np.linalg.norm(image - value * vector))


def defect(matrix: csr_array, null: np.ndarray, values: np.ndarray, vectors: np.ndarray) -> float:
    r"""Returns the largest error of eigenvalues ``[K]`` and their eigenvectors ``[N, K]``, divided
    by its limit. A value of at most 1 passes.

    The residual is compared with the smallest eigenvalue, and with the least distance between two
    different eigenvalues. The third error is the departure of the eigenvectors and :obj:`null` from
    orthonormality.
    """
    residual = np.linalg.norm(matrix @ vectors - vectors * (1 - values), axis=0).max()
    gap = np.diff(values)
    basis = np.c_[null, vectors]
    skew = np.abs(basis.T @ basis - np.eye(basis.shape[1])).max()
    return float(
        max(
            residual / values[0] / RESIDUAL,
            residual / gap[gap > same(values[:-1])].min(initial=np.inf),
            skew / ORTHOGONALITY,
        )
    )


def canonical(values: np.ndarray, vectors: np.ndarray) -> np.ndarray:
    r"""Replaces eigenvectors ``[N, K]`` by a basis of each eigenspace that does not depend on the
    solver. Ascending :obj:`values` ``[K]`` that differ by at most :meth:`same` count as one
    eigenvalue.

    The basis vectors are projections of unit vectors onto the eigenspace, scaled to length 1. The
    first one belongs to the node with the longest projection, or to the first of several such
    nodes. The next ones are chosen in the same way from the vectors of the space that are
    orthogonal to the earlier ones. Signs make the sum of the cubes of a vector positive. If this
    sum is at most ``SAME_SUM`` of the sum of the absolute cubes, the first entry of the largest
    absolute value is positive.
    """
    if vectors.size == 0:
        return vectors
    out = vectors.copy()
    bounds = pairwise([0, *np.flatnonzero(np.diff(values) > same(values[:-1])) + 1, values.size])
    for first, last in (group for group in bounds if group[1] - group[0] > 1):
        rest = vectors[:, first:last]
        for column in range(first, last):
            node = _first_largest((rest**2).sum(1))
            direction = rest[node] / np.linalg.norm(rest[node])
            out[:, column] = rest @ direction
            rest = rest - np.outer(out[:, column], direction)
    cube = out * out * out  # a power takes many times as long
    sign = cube.sum(0)
    for column in np.flatnonzero(np.abs(sign) <= SAME_SUM * np.abs(cube).sum(0)):
        sign[column] = out[_first_largest(np.abs(out[:, column])), column]
    return out * np.where(sign < 0, -1.0, 1.0)


def _first_largest(values: np.ndarray) -> int:
    r"""Returns the position of the first of the largest :obj:`values` ``[N]``, which are not
    negative. Values that differ from the largest one by at most ``SAME_SIZE`` of it equal it."""
    return int(np.argmax(values >= (1 - SAME_SIZE) * values.max()))


def same(values: Any) -> Any:
    r"""Computes the largest distance at which a following eigenvalue counts as equal to each of
    :obj:`values`: ``SAME``, or for small eigenvalues, which lie close, ``SAME_SHARE`` of them."""
    return np.minimum(SAME, SAME_SHARE * values)


def _count(k: int, values: np.ndarray) -> int:
    r"""Counts the ascending values up to the :obj:`k`-th, including later ones that equal it. The
    count is 0 if there are no values."""
    if values.size == 0:
        return 0
    last = values[min(k, values.size) - 1]
    return int(np.searchsorted(values, last + same(last), 'right'))


def _ritz(matrix: csr_array, null: np.ndarray, vectors: np.ndarray) -> Pairs:
    r"""Computes the eigenvalues ``[K]`` of the Laplacian, ascending, and orthonormal eigenvectors
    ``[N, K]`` within the span of the :obj:`vectors` ``[N, K]`` (Rayleigh-Ritz). The trivial
    eigenvector :obj:`null` is removed from the span first."""
    basis = np.linalg.qr(vectors - np.outer(null, null @ vectors))[0]
    values, rotation = np.linalg.eigh(basis.T @ (basis - matrix @ basis))
    return values, basis @ rotation
