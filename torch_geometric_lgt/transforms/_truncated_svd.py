# R rows, C columns, K singular triplets.
from functools import partial
from typing import Final

import numpy as np
from scipy.linalg import svd
from scipy.sparse import csr_array
from scipy.sparse.linalg import ArpackError, LinearOperator, svds

DENSE_ELEMENTS = 1 << 20
TOLERANCE, SAME = 1e-6, 1e-10
ROUGH, PRECISE = 1e-3, 1e-5  # SciPy squares them
SOLVERS: Final = ('propack', 'arpack')

Triplets = tuple[np.ndarray, np.ndarray, np.ndarray]


def truncated_svd(matrix: csr_array, k: int) -> Triplets:
    r"""Returns at most :obj:`k` largest singular triplets: vectors ``[R, K]``, values ``[K]`` in
    descending order, vectors ``[C, K]``.

    Triplets of value 0 are left out. The largest entry of each pair of vectors is positive; if it
    occurs in both vectors, the entry of :math:`\mathbf{U}` is.

    PROPACK computes them, or ARPACK if PROPACK fails. Both may miss some of many equal values, so
    :meth:`complete` searches the rest of the matrix for larger ones. Small matrices, and :obj:`k`
    near the full rank, are decomposed as dense matrices.

    Raises:
        RuntimeError: If neither solver converges.
    """
    limit = min(matrix.shape)
    if matrix.nnz == 0:
        return np.zeros((matrix.shape[0], 0)), np.zeros(0), np.zeros((matrix.shape[1], 0))
    if 2 * k > limit or matrix.shape[0] * matrix.shape[1] <= DENSE_ELEMENTS:
        u, s, vt = svd(matrix.toarray(), full_matrices=False)
        return _canonical(u, s, vt.T, k)
    reasons = []
    for solver in SOLVERS:
        generator = np.random.default_rng(0)
        start = generator.standard_normal(matrix.shape[0] if solver == 'propack' else limit)
        try:
            u, s, vt = svds(matrix, k=k, solver=solver, v0=start, rng=generator)
            triplets = complete(matrix, k, *_canonical(u, s, vt.T, k))
        except (np.linalg.LinAlgError, ArpackError) as failure:
            reasons.append(f'{solver}: {failure}')
            continue
        error = defect(matrix, *triplets)
        if error <= TOLERANCE:
            return triplets
        reasons.append(f'{solver}: a residual of {error:.1e}, above {TOLERANCE:.0e}')
    raise RuntimeError(
        f'the {k} largest singular values of a {matrix.shape} matrix did not converge '
        f"({'; '.join(reasons)}); choose another 'k'"
    )


def complete(matrix: csr_array, k: int, u: np.ndarray, s: np.ndarray, v: np.ndarray) -> Triplets:
    r"""Replaces the smallest triplets by larger ones of the rest of the matrix, until the rest has
    none.

    Each search starts from a new vector: a search from an earlier vector cannot see what that
    vector left over of an eigenspace.

    Raises:
        numpy.linalg.LinAlgError: If each of :math:`k + 1` searches returns a larger one.
    """
    generator = np.random.default_rng(1)
    for _ in range(k + 1):
        rest, start = _rest(matrix, u, s, v), generator.standard_normal(min(matrix.shape))
        smallest = s[-1] if s.size == k else 0.0
        if (
            np.linalg.norm(rest @ start if matrix.shape[1] <= matrix.shape[0] else rest.T @ start)
            <= _rounding(s, u, v) * s.size
        ):
            return u, s, v
        search = partial(svds, rest, k=1, v0=start, rng=generator)
        if search(tol=ROUGH, return_singular_vectors=False)[0] < max(
            smallest - TOLERANCE * s[0], SAME * s[0]
        ):
            return u, s, v
        one, value, other = search(tol=PRECISE)
        if value[0] <= smallest + SAME * s[0]:
            return u, s, v
        u, s, v = _canonical(np.c_[u, one], np.r_[s, value], np.c_[v, other.T], k)
    raise np.linalg.LinAlgError('each search returned a larger singular value')


def _rest(matrix: csr_array, u: np.ndarray, s: np.ndarray, v: np.ndarray) -> LinearOperator:
    r"""Returns the matrix without its part in the span of the triplets."""
    return LinearOperator(
        matrix.shape,
        matvec=lambda x: matrix @ x.ravel() - u @ (s * (v.T @ x.ravel())),
        rmatvec=lambda y: matrix.T @ y.ravel() - v @ (s * (u.T @ y.ravel())),
        dtype=matrix.dtype,
    )


def defect(matrix: csr_array, u: np.ndarray, s: np.ndarray, v: np.ndarray) -> float:
    r"""Returns the largest residual of singular triplets over the largest value, or their departure
    from orthogonality if that is larger."""
    residual = max(np.abs(matrix @ v - u * s).max(), np.abs(matrix.T @ u - v * s).max()) / s[0]
    return float(max(residual, *(np.abs(part.T @ part - np.eye(s.size)).max() for part in (u, v))))


def _canonical(u: np.ndarray, s: np.ndarray, v: np.ndarray, k: int) -> Triplets:
    r"""Sorts triplets by value, drops those of value 0 and beyond :obj:`k`, and fixes their
    signs."""
    order = np.argsort(-s, kind='stable')[:k]
    order = order[s[order] > _rounding(s, u, v)]
    u, s, v = u[:, order], s[order], v[:, order]
    both = np.concatenate([u * (1 + TOLERANCE), v])
    sign = np.sign(both[np.abs(both).argmax(0), np.arange(s.size)])
    return u * sign, s, v * sign


def _rounding(s: np.ndarray, u: np.ndarray, v: np.ndarray) -> float:
    r"""Returns the bound below which a singular value is 0 up to rounding."""
    return float(s.max() * max(u.shape[0], v.shape[0]) * np.finfo(s.dtype).eps)
