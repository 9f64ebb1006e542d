from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def promise(what: str, names_failures: bool = False, fix: str = '') -> Iterator[None]:
    r"""Turns an error within this context manager into an AssertionError, which says that
    :obj:`what` ends in this error, and then the :obj:`fix`. An AssertionError is raised as it is,
    or with :obj:`names_failures` as one whose message begins with :obj:`what`."""
    try:
        yield
    except AssertionError as error:
        if names_failures:
            raise AssertionError(f'{what}: {error}') from error
        raise
    except Exception as error:
        raise AssertionError(f'{what} ends in {error!r}{fix}') from error
