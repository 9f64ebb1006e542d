# N nodes, K eigenvectors.
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from scipy.linalg.blas import get_blas_funcs
from scipy.sparse import csr_array, diags_array
from scipy.sparse.csgraph import breadth_first_order
from scipy.sparse.linalg import LinearOperator, eigsh, lobpcg, splu

PRECISE, SINGLE, COARSE = 1e-10, 1e-6, 1e-2
SMALL, FULL = 2e-3, 1 / 8
DENSE_RETRY_NODES = 4_000  # half a minute on one thread, and half a gigabyte

Product = Callable[[np.ndarray], np.ndarray]
Search = Callable[[np.ndarray, int, float], np.ndarray]
Solver = Callable[[csr_array, csr_array, np.ndarray], Search]


def solvers(
    adjacency: csr_array, matrix: csr_array, null: np.ndarray, dtype: type
) -> tuple[Solver, ...]:
    r"""Chooses solvers for the smallest non-trivial eigenvectors of a connected graph's Laplacian,
    the most promising one first.

    A solver takes the :obj:`adjacency` matrix ``[N, N]``, its normalised :obj:`matrix`, and the
    trivial eigenvector :obj:`null` ``[N]`` of length 1. The result of a solver is a search: a
    function of known eigenvectors, as columns, a number :math:`K` and a tolerance. A search returns
    the next :math:`K` eigenvectors ``[N, K]`` without a check.

    The choice depends on a breadth-first search from node 0. If no layer of this search has more
    than :math:`4 \sqrt{N}` nodes, a sparse factorisation is cheap. If the distance from node 0 has
    a small Rayleigh quotient, the graph has many small eigenvalues. Single precision is among the
    choices only if :obj:`dtype` is float32. No solver is returned if a dense decomposition is
    cheaper.
    """
    distance = hops(adjacency)
    if np.bincount(distance).max() <= 4 * np.sqrt(distance.size):
        return _inverse, _lanczos, _multigrid
    smooth = null * (distance - null**2 @ distance)
    if 1 - smooth @ (matrix @ smooth) / (smooth @ smooth) < SMALL:
        full = distance.size <= DENSE_RETRY_NODES and matrix.nnz >= FULL * distance.size**2
        return () if full else (_multigrid, _lanczos)
    return (*((single,) if dtype == np.float32 else ()), _lanczos, _multigrid)


def hops(adjacency: csr_array) -> np.ndarray:
    r"""Computes the number of hops ``[N]`` from node 0 to each node of a connected graph. Each edge
    must occur in both directions."""
    order, parent = breadth_first_order(adjacency, 0)
    place, distance = np.empty_like(order), np.zeros_like(order)
    place[order] = np.arange(order.size)
    above = place[parent[order[1:]]].astype(int)  # as 'stop', or each search converts it
    start = 0
    stop = 1
    layer = 0
    while stop < order.size:
        start, stop, layer = stop, 1 + int(np.searchsorted(above, stop)), layer + 1
        distance[order[start:stop]] = layer
    return distance


def _krylov(
    product: Product,
    seeds: Iterator[int],
    known: np.ndarray,
    size: int,
    tolerance: float,
    dtype: type = np.float64,
) -> np.ndarray:
    r"""Computes the eigenvectors ``[N, size]`` of the largest eigenvalues of a symmetric operator
    by Lanczos iteration, beyond the :obj:`known` ones.

    The columns of :obj:`known` are orthonormal eigenvectors. In the iteration these eigenvectors
    have the eigenvalue -2, below all others. Each call takes the next of :obj:`seeds` for a new
    random start vector. The old start vector would find only one eigenvector of a repeated
    eigenvalue.

    Args:
        product: Multiplies a vector ``[N]`` by the operator.
        seeds: The seeds of the start vectors.
        known: The eigenvectors that are left out.
    """
    known = np.asfortranarray(known, dtype)
    (gemv,) = get_blas_funcs(('gemv',), (known,))
    moved = np.array([vector @ product(vector) + 2 for vector in known.T], dtype)

    def rest(x: np.ndarray) -> np.ndarray:
        return gemv(-1, known, moved * gemv(1, known, x, trans=1), 1, product(x))

    shape = (known.shape[0],) * 2
    operator: Any = LinearOperator(shape, matvec=rest, dtype=dtype)
    # without the checks of each product, which take as long as one with a small matrix
    operator.matvec = rest
    start = _random(shape[0], 1, next(seeds)).astype(dtype)
    return eigsh(
        operator,
        size,
        which='LA',
        v0=start[:, 0],
        ncv=min(max(3 * size, 24), shape[0]),
        tol=tolerance,
    )[1]


def _lanczos(_adjacency: csr_array, matrix: csr_array, _null: np.ndarray) -> Search:
    r"""Builds a search by Lanczos iteration on the normalised adjacency :obj:`matrix`: the largest
    eigenvalues of this matrix belong to the smallest of the Laplacian."""
    return partial(_krylov, lambda x: matrix @ x, count())


def single(adjacency: csr_array, matrix: csr_array, null: np.ndarray) -> Search:
    r"""Builds a search by Lanczos iteration in single precision. For one vector with a tolerance
    below ``SINGLE``, the search uses double precision."""
    short, double = matrix.astype(np.float32), _lanczos(adjacency, matrix, null)
    rough = partial(_krylov, lambda x: short @ x, count(), dtype=np.float32)

    def search(known: np.ndarray, size: int, tolerance: float) -> np.ndarray:
        return (
            double(known, 1, tolerance)
            if size == 1 and tolerance < SINGLE
            else rough(known, size, max(tolerance, SINGLE))
        )

    return search


def _inverse(adjacency: csr_array, _matrix: csr_array, null: np.ndarray) -> Search:
    r"""Builds a search by Lanczos iteration on the pseudo-inverse of the Laplacian: the largest
    eigenvalues of this operator belong to the smallest of the Laplacian.

    The pseudo-inverse is applied with a sparse factorisation of :math:`\mathbf{D} - \mathbf{A}`
    without its last row and column. This matrix is positive definite.
    """
    degree = adjacency.sum(1)
    root, grounded = np.sqrt(degree), (diags_array(degree) - adjacency).tocsc()[:-1, :-1]
    factor = splu(grounded, 'MMD_AT_PLUS_A', diag_pivot_thresh=0.0, options={'SymmetricMode': True})

    def product(x: np.ndarray) -> np.ndarray:
        x = np.append(factor.solve((root * (x - null * (null @ x)))[:-1]), 0) * root
        return x - null * (null @ x)

    return partial(_krylov, product, count())


def _multigrid(_adjacency: csr_array, matrix: csr_array, null: np.ndarray) -> Search:
    r"""Builds a search by LOBPCG on the Laplacian, with algebraic multigrid as preconditioner.
    Vectors that have not converged are returned, too, without a warning.

    Raises:
        ImportError: If pyamg is not installed.
    """
    from pyamg import smoothed_aggregation_solver

    laplacian = csr_array(diags_array(np.ones(null.size)) - matrix)
    levels, seeds = smoothed_aggregation_solver(laplacian, B=null[:, None], max_coarse=500), count()

    def search(known: np.ndarray, size: int, tolerance: float) -> np.ndarray:
        start = _random(null.size, size, next(seeds))
        with warnings.catch_warnings():
            # what has not converged does not pass as an eigenvector
            warnings.simplefilter('ignore')
            return lobpcg(
                laplacian,
                start,
                M=levels.aspreconditioner(),
                Y=known,
                tol=tolerance,
                maxiter=200,
                largest=False,
            )[1]

    return search


def _random(num_nodes: int, size: int, seed: int) -> np.ndarray:
    r"""Draws start vectors ``[num_nodes, size]`` from a normal distribution with a seed."""
    return np.random.default_rng(seed).standard_normal((num_nodes, size))
