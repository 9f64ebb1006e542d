# N nodes, K eigenvectors.
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

import numpy as np
from scipy.linalg.blas import get_blas_funcs
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import breadth_first_order
from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg, splu

PRECISE, COARSE = 1e-10, 1e-2
SMALL = 2e-3

Product = Callable[[np.ndarray], np.ndarray]
Search = Callable[[np.ndarray, int, float], np.ndarray]
Solver = Callable[[csr_array, csr_array, np.ndarray], Search]


def solvers(adjacency: csr_array, matrix: csr_array, null: np.ndarray, dtype: type) -> tuple[Solver, ...]:
    r"""The solvers to try, the most promising one first."""
    if is_narrow(adjacency):
        return _inverse, _lanczos, _multigrid
    vector = _lanczos(adjacency, matrix, null)(null[:, None], 1, COARSE)[:, 0]
    if 1 - vector @ (matrix @ vector) < SMALL:
        return _multigrid, _lanczos
    return (*((_single,) if dtype == np.float32 else ()), _lanczos, _multigrid)


def is_narrow(adjacency: csr_array) -> bool:
    r"""Whether no layer of a breadth-first search holds more nodes than a few lines of a square grid of the same size: the factors of such
    a graph stay sparse."""
    order, parent = breadth_first_order(adjacency, 0, directed=False)
    place = np.empty_like(order)
    place[order] = np.arange(order.size)
    above, start, stop = place[parent[order[1:]]], 0, 1
    while stop < order.size:
        start, stop = stop, 1 + int(np.searchsorted(above, stop))
        if stop - start > 4 * np.sqrt(order.size):
            return False
    return True


def _krylov(product: Product, seeds: Iterator[int], known: np.ndarray, size: int, tolerance: float, dtype: type = np.float64) -> np.ndarray:
    r"""The eigenvectors of the largest eigenvalues of a product that are orthogonal to those known. Each search starts from another vector:
    from the one before it would not see what that one left over of a repeated eigenvalue."""
    known = np.asfortranarray(known, dtype)
    (gemv,) = get_blas_funcs(('gemv',), (known,))

    def rest(x: np.ndarray) -> np.ndarray:
        x = x.ravel()
        inside = gemv(1, known, x, trans=1)
        out = product(gemv(-1, known, inside, 1, x))
        return gemv(-1, known, gemv(1, known, out, trans=1) + 2 * inside, 1, out)

    shape = (known.shape[0],) * 2
    operator, start = LinearOperator(shape, matvec=rest, dtype=dtype), _random(shape[0], 1, next(seeds)).astype(dtype)
    return eigsh(operator, size, which='LA', v0=start[:, 0], ncv=max(2 * size, 40), tol=tolerance)[1]


def _lanczos(_adjacency: csr_array, matrix: csr_array, _null: np.ndarray) -> Search:
    return partial(_krylov, lambda x: matrix @ x, count())


def _single(adjacency: csr_array, matrix: csr_array, null: np.ndarray) -> Search:
    r"""Lanczos iteration in single precision, single vectors in double."""
    half, double = matrix.astype(np.float32), _lanczos(adjacency, matrix, null)
    single = partial(_krylov, lambda x: half @ x, count(), dtype=np.float32)
    return lambda known, size, tolerance: (double if size == 1 else single)(known, size, tolerance)


def _inverse(adjacency: csr_array, _matrix: csr_array, null: np.ndarray) -> Search:
    r"""The pseudo-inverse by way of the combinatorial Laplacian without its last node, which is positive definite."""
    degree = adjacency.sum(1)
    root, grounded = np.sqrt(degree), (diags_array(degree) - adjacency).tocsc()[:-1, :-1]
    factor = splu(grounded, 'MMD_AT_PLUS_A', diag_pivot_thresh=0.0, options={'SymmetricMode': True})
    return partial(_krylov, lambda x: np.append(factor.solve((root * x)[:-1]), 0) * root, count())


def _multigrid(_adjacency: csr_array, matrix: csr_array, null: np.ndarray) -> Search:
    from pyamg import smoothed_aggregation_solver

    laplacian = csr_array(diags_array(np.ones(null.size)) - matrix)
    levels, seeds = smoothed_aggregation_solver(laplacian, B=null[:, None], max_coarse=500), count()

    def search(known: np.ndarray, size: int, tolerance: float) -> np.ndarray:
        start = _random(null.size, size, next(seeds))
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')  # what has not converged does not pass as an eigenvector
            return lobpcg(laplacian, start, M=levels.aspreconditioner(), Y=known, tol=tolerance, maxiter=200, largest=False)[1]

    return search


def _random(num_nodes: int, size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((num_nodes, size))
