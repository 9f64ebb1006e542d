from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def promise(what: str) -> Iterator[None]:
    r"""Turns an error within this context manager into an AssertionError, which says that
    :obj:`what` ends in this error. An AssertionError is raised as it is."""
    try:
        yield
    except AssertionError:
        raise
    except Exception as error:
        raise AssertionError(f'{what} ends in {error!r}') from error
