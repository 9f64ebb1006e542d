# N nodes, K eigenvectors.
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from typing import Any, cast

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
    r"""Chooses the solvers to try, the most promising one first.

    The choice depends on the layers of a breadth-first search. If no layer has more nodes than a
    few lines of a square grid of the same size, sparse factors stay sparse. If the distance from
    the first node has a small Rayleigh quotient, the graph has many small eigenvalues. No solver is
    returned if a decomposition of the whole matrix is less work.
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
    r"""Returns the distance of each node of a connected graph from the first node.

    Each edge must occur in both directions.
    """
    order, parent = breadth_first_order(adjacency, 0)
    place, distance = np.empty_like(order), np.zeros_like(order)
    place[order] = np.arange(order.size)
    above, start, stop, layer = place[parent[order[1:]]], 0, 1, 0
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
    r"""Computes the eigenvectors of the largest eigenvalues of an operator, beyond the known ones.

    The eigenvalues of the known vectors are moved to -2. Each search starts from another vector: a
    search from an earlier vector cannot see what that vector left over of a repeated eigenvalue.
    """
    known = np.asfortranarray(known, dtype)
    (gemv,) = get_blas_funcs(('gemv',), (known,))
    moved = np.array([vector @ product(vector) + 2 for vector in known.T], dtype)

    def rest(x: np.ndarray) -> np.ndarray:
        return gemv(-1, known, moved * gemv(1, known, x, trans=1), 1, product(x))

    shape = (known.shape[0],) * 2
    operator, start = (
        LinearOperator(shape, matvec=rest, dtype=dtype),
        _random(shape[0], 1, next(seeds)).astype(dtype),
    )
    cast(
        Any, operator
    ).matvec = (
        rest  # without the checks of each product, which take as long as one with a small matrix
    )
    return eigsh(
        operator,
        size,
        which='LA',
        v0=start[:, 0],
        ncv=min(max(3 * size, 24), shape[0]),
        tol=tolerance,
    )[1]


def _lanczos(_adjacency: csr_array, matrix: csr_array, _null: np.ndarray) -> Search:
    r"""Returns a search by Lanczos iteration on the normalised adjacency matrix."""
    return partial(_krylov, lambda x: matrix @ x, count())


def single(adjacency: csr_array, matrix: csr_array, null: np.ndarray) -> Search:
    r"""Returns a search by Lanczos iteration in single precision; a search for one precise vector
    uses double precision."""
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
    r"""Returns a search by Lanczos iteration on the pseudo-inverse of the Laplacian.

    The pseudo-inverse is applied with a factorisation of the combinatorial Laplacian without its
    last node, which is positive definite.
    """
    degree = adjacency.sum(1)
    root, grounded = np.sqrt(degree), (diags_array(degree) - adjacency).tocsc()[:-1, :-1]
    factor = splu(grounded, 'MMD_AT_PLUS_A', diag_pivot_thresh=0.0, options={'SymmetricMode': True})

    def product(x: np.ndarray) -> np.ndarray:
        x = np.append(factor.solve((root * (x - null * (null @ x)))[:-1]), 0) * root
        return x - null * (null @ x)

    return partial(_krylov, product, count())


def _multigrid(_adjacency: csr_array, matrix: csr_array, null: np.ndarray) -> Search:
    r"""Returns a search by LOBPCG with algebraic multigrid as preconditioner."""
    from pyamg import smoothed_aggregation_solver

    laplacian = csr_array(diags_array(np.ones(null.size)) - matrix)
    levels, seeds = smoothed_aggregation_solver(laplacian, B=null[:, None], max_coarse=500), count()

    def search(known: np.ndarray, size: int, tolerance: float) -> np.ndarray:
        start = _random(null.size, size, next(seeds))
        with warnings.catch_warnings():
            warnings.simplefilter(
                'ignore'
            )  # what has not converged does not pass as an eigenvector
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
    r"""Draws random start vectors ``[N, K]`` from a seed."""
    return np.random.default_rng(seed).standard_normal((num_nodes, size))
