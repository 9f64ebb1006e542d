import operator
from typing import Any


def check_whole(name: str, value: Any, least: int) -> None:
    r"""Checks an argument that counts something.

    Raises:
        ValueError: If the value is no whole number or below :obj:`least`.
    """
    try:
        fits = not isinstance(value, bool) and operator.index(value) >= least
    except TypeError:
        fits = False
    if not fits:
        raise ValueError(f"'{name}' must be at least {least}, a whole number (got {value!r})")
