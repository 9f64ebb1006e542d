from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock

from threadpoolctl import ThreadpoolController

PARALLEL_NODES = 50_000  # below, a second thread of BLAS makes Lanczos iteration slower, not faster
LIMITED = Lock()


@contextmanager
def blas_threads(num_nodes: int) -> Iterator[None]:
    r"""Limits BLAS to one thread within this context manager, for Lanczos iteration with vectors of
    :obj:`num_nodes` entries. Does nothing from ``PARALLEL_NODES`` on.

    The limit holds for the whole process. If several threads enter the context, the first one sets
    the limit and later restores the old one. The others change nothing.
    """
    if num_nodes >= PARALLEL_NODES or not LIMITED.acquire(blocking=False):
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
