# R rows, C columns, K singular triplets.
from typing import Final

import numpy as np
from scipy.linalg import svd
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackError, LinearOperator, svds

from torch_geometric_lgt.transforms._threads import blas_threads

DENSE_ELEMENTS = 1 << 20
DENSE_RETRY_ELEMENTS = 1 << 22  # a quarter of a minute on one thread
TOLERANCE, SAME = 1e-6, 1e-10
ABSENT = 1e-8  # share of a vector's length; parts were above 1e-7, rounding errors below 1e-9
ROUGH, PRECISE = 1e-3, 1e-5  # SciPy squares them
SOLVERS: Final = ('propack', 'arpack')

Triplets = tuple[np.ndarray, np.ndarray, np.ndarray]


def truncated_svd(matrix: csr_array, k: int) -> Triplets:
    r"""Computes the largest singular triplets of a matrix ``[R, C]``: left vectors ``[R, K]``,
    values ``[K]`` in descending order, and right vectors ``[C, K]``.

    :math:`K` is at most :obj:`k`, because triplets of value 0 are left out. Signs are fixed: among
    the entries of a left vector and its right vector, the one of largest magnitude is positive. If
    the two vectors tie, the entry of the left one is positive. Entries that are rounding errors
    only are 0, see :meth:`without_rounding`.

    PROPACK computes the triplets, or ARPACK if PROPACK fails. Both may miss some of many equal
    values, so :meth:`complete` searches for missing ones. A small matrix is decomposed as a dense
    matrix, and so is any matrix if :obj:`k` is more than half of its smaller side. If neither
    solver converges, so is a matrix of at most ``DENSE_RETRY_ELEMENTS`` entries.

    Raises:
        RuntimeError: If neither solver converges for a larger matrix.
    """
    limit = min(matrix.shape)
    if matrix.nnz == 0:
        return np.zeros((matrix.shape[0], 0)), np.zeros(0), np.zeros((matrix.shape[1], 0))
    if 2 * k > limit or matrix.shape[0] * matrix.shape[1] <= DENSE_ELEMENTS:
        return _dense(matrix, k)
    try:
        with blas_threads(max(matrix.shape)):
            return _iterative(matrix, k)
    except np.linalg.LinAlgError as error:
        if matrix.shape[0] * matrix.shape[1] <= DENSE_RETRY_ELEMENTS:
            return _dense(matrix, k)
        raise RuntimeError(
            f'the {k} largest singular values of a {matrix.shape} matrix did not converge '
            f"({error}); choose another 'k'"
        ) from error


def _iterative(matrix: csr_array, k: int) -> Triplets:
    r"""Computes the result of :meth:`truncated_svd` by the first solver whose triplets pass the
    checks.

    Raises:
        numpy.linalg.LinAlgError: If no solver finds such triplets.
    """
    reasons = []
    for solver in SOLVERS:
        generator = np.random.default_rng(0)
        size = matrix.shape[0] if solver == 'propack' else min(matrix.shape)
        start = generator.standard_normal(size)
        try:
            u, s, vt = svds(matrix, k=k, solver=solver, v0=start, rng=generator)
            u, s, v = complete(matrix, k, *_canonical(u, s, vt.T, k))
        except (np.linalg.LinAlgError, ArpackError) as failure:
            reasons.append(f'{solver}: {failure}')
            continue
        u, v = orthonormal(u), orthonormal(v)
        error = defect(matrix, u, s, v)
        if error <= TOLERANCE:
            return without_rounding(matrix, u, s, v)
        reasons.append(f'{solver}: a residual of {error:.1e}, above {TOLERANCE:.0e}')
    raise np.linalg.LinAlgError('; '.join(reasons))


def _dense(matrix: csr_array, k: int) -> Triplets:
    r"""Computes the result of :meth:`truncated_svd` by a decomposition of the dense matrix."""
    u, s, vt = svd(matrix.toarray(), full_matrices=False)
    return without_rounding(matrix, *_canonical(u, s, vt.T, k))


def complete(matrix: csr_array, k: int, u: np.ndarray, s: np.ndarray, v: np.ndarray) -> Triplets:
    r"""Adds singular triplets that a solver missed, keeps the :obj:`k` largest, and returns them as
    :meth:`truncated_svd` does.

    Each step searches the matrix minus :math:`\mathbf{U} \mathbf{S} \mathbf{V}^{\top}` for its
    largest singular value, until that value is not larger than the smallest of :obj:`s`. If fewer
    than :obj:`k` triplets are given, the value must be 0 instead, up to rounding. The search is in
    single precision, and is repeated in double precision if the value may be larger. Each search
    starts from a new random vector: the old one would find only one vector of a repeated value.

    Args:
        matrix: The matrix ``[R, C]``.
        k: The number of triplets to keep.
        u: Left vectors ``[R, K]``.
        s: Values ``[K]``, descending.
        v: Right vectors ``[C, K]``.

    Raises:
        numpy.linalg.LinAlgError: If each of :math:`k + 1` searches returns a larger value.
    """
    generator, rough_matrix = np.random.default_rng(1), matrix.astype(np.float32)
    for _ in range(k + 1):
        rest, start = _rest(matrix, u, s, v), generator.standard_normal(min(matrix.shape))
        smallest = s[-1] if s.size == k else 0.0
        image = rest @ start if matrix.shape[1] <= matrix.shape[0] else rest.T @ start
        if np.linalg.norm(image) <= _rounding(s, u, v) * s.size:
            return u, s, v
        rough_rest = _rest(rough_matrix, *(part.astype(np.float32) for part in (u, s, v)))
        rough_start = start.astype(np.float32)
        bound = svds(rough_rest, k=1, v0=rough_start, tol=ROUGH, return_singular_vectors=False)
        if bound[0] < max(smallest - TOLERANCE * s[0], SAME * s[0]):
            return u, s, v
        one, value, other = svds(rest, k=1, v0=start, tol=PRECISE, rng=generator)
        if value[0] <= smallest + SAME * s[0]:
            return u, s, v
        u, s, v = _canonical(np.c_[u, one], np.r_[s, value], np.c_[v, other.T], k)
    raise np.linalg.LinAlgError('each search returned a larger singular value')


def orthonormal(vectors: np.ndarray) -> np.ndarray:
    r"""Returns the orthonormal vectors that are nearest to almost orthonormal ones ``[N, K]``, as
    solvers return them. A Newton step squares the error, which is up to 1e-7 with PROPACK."""
    return vectors @ (1.5 * np.eye(vectors.shape[1]) - 0.5 * (vectors.T @ vectors))


def without_rounding(matrix: csr_array, u: np.ndarray, s: np.ndarray, v: np.ndarray) -> Triplets:
    r"""Sets the vectors of each singular triplet to 0 in the connected components of the matrix in
    which they have less than :obj:`ABSENT` of their length. A component that does not have the
    singular value has no part in the vectors, and entries there are rounding errors."""
    num_rows, entries = matrix.shape[0], matrix.tocoo()
    num_nodes = sum(matrix.shape)
    edges = csr_array(
        (entries.data, (entries.row, entries.col + num_rows)), shape=(num_nodes, num_nodes)
    )
    count, component = connected_components(edges, directed=False)
    both = np.concatenate([u, v])
    members = csr_array(
        (np.ones(num_nodes), (component, np.arange(num_nodes))), shape=(count, num_nodes)
    )
    both[(members @ both**2 < ABSENT**2)[component]] = 0
    return both[:num_rows], s, both[num_rows:]


def _rest(matrix: csr_array, u: np.ndarray, s: np.ndarray, v: np.ndarray) -> LinearOperator:
    r"""Returns a linear operator that multiplies by the matrix minus
    :math:`\mathbf{U} \mathbf{S} \mathbf{V}^{\top}`, without storing the difference."""
    return LinearOperator(
        matrix.shape,
        matvec=lambda x: matrix @ x.ravel() - u @ (s * (v.T @ x.ravel())),
        rmatvec=lambda y: matrix.T @ y.ravel() - v @ (s * (u.T @ y.ravel())),
        dtype=matrix.dtype,
    )


def defect(matrix: csr_array, u: np.ndarray, s: np.ndarray, v: np.ndarray) -> float:
    r"""Returns the largest error of singular triplets. Errors are the entries of the residuals
    divided by the largest singular value, and the departure of vectors from orthonormality."""
    residual = max(np.abs(matrix @ v - u * s).max(), np.abs(matrix.T @ u - v * s).max()) / s[0]
    return float(max(residual, *(np.abs(part.T @ part - np.eye(s.size)).max() for part in (u, v))))


def _canonical(u: np.ndarray, s: np.ndarray, v: np.ndarray, k: int) -> Triplets:
    r"""Sorts triplets by value, descending, fixes their signs as in :meth:`truncated_svd`, and
    returns at most the first :obj:`k` without triplets of value 0."""
    order = np.argsort(-s, kind='stable')[:k]
    order = order[s[order] > _rounding(s, u, v)]
    u, s, v = u[:, order], s[order], v[:, order]
    both = np.concatenate([u * (1 + TOLERANCE), v])
    sign = np.sign(both[np.abs(both).argmax(0), np.arange(s.size)])
    return u * sign, s, v * sign


def _rounding(s: np.ndarray, u: np.ndarray, v: np.ndarray) -> float:
    r"""Returns the bound up to which a singular value counts as 0: the largest of :obj:`s` times
    the matrix's larger side times the machine epsilon."""
    return float(s.max() * max(u.shape[0], v.shape[0]) * np.finfo(s.dtype).eps)
