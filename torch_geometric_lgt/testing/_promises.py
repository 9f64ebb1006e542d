from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from torch.nn import Module

Call = Callable[..., Tensor]  # of a layer or model, by its first argument


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


def check_function(make: Any) -> None:
    r"""Checks that :obj:`make` makes a layer or model each time it is called.

    Raises:
        TypeError: If it is anything but a function or class.
    """
    if isinstance(make, Module) or not callable(make):
        name = type(make).__name__
        raise TypeError(f"'make' must be a function, such as lambda: {name}(..) (got a {name})")
