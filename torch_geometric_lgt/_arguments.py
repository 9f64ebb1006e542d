import operator
from typing import Any


def check_whole(name: str, value: Any, least: int) -> None:
    r"""Checks that the argument called :obj:`name` is a whole number of at least :obj:`least`. A
    boolean is no number.

    Raises:
        ValueError: If :obj:`value` is anything else.
    """
    try:
        fits = not isinstance(value, bool) and operator.index(value) >= least
    except TypeError:
        fits = False
    if not fits:
        raise ValueError(f"'{name}' must be at least {least}, a whole number (got {value!r})")
