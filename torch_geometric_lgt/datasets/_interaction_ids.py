# E interactions.
import math
import re
from array import array
from collections import defaultdict
from collections.abc import Sequence
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

LARGEST_FLOAT = 2**53  # from it on, whole numbers are rounded to it
FRACTIONS = (float, Decimal, np.floating)
WHOLE = re.compile(r'(0|-?[1-9][0-9]*)(\.0+)?')


class Ids(NamedTuple):
    r"""Stores the ids of a column: interaction :math:`e` has the id ``names[number[e]]``.

    :obj:`number` is ``[E]``. :obj:`names` has each id once, or several spellings of a whole number.
    It is int64 if all ids are whole numbers, else it is text. If a text has a NUL character, it is
    an array of objects.
    """

    names: np.ndarray
    number: np.ndarray


class Column:
    r"""Collects the ids of a column, and stores each distinct id once."""

    def __init__(self, values: Sequence[Any] = ()) -> None:
        self.numbers: defaultdict[Any, int] = defaultdict(count().__next__)
        self.number = array('q', map(self.numbers.__getitem__, values))

    def append(self, value: str) -> None:
        self.number.append(self.numbers[value])

    def ids(self, path: Path) -> Ids:
        r"""Converts the ids: to int64 if all are whole numbers written without leading zeros, with
        or without ``.0``, else to text.

        Raises:
            ValueError: If an id is empty, NaN, infinite, or a fraction. The error names the
                :obj:`path`.
        """
        for value in self.numbers:
            if (
                value is None
                or (isinstance(value, str | bytes) and not value)
                or (isinstance(value, FRACTIONS) and not math.isfinite(value))
            ):
                row = self.number.index(self.numbers[value]) + 1
                raise ValueError(
                    f'{str(path)!r} must have two ids in each row (got an empty id, NaN or an '
                    f'infinite number in row {row}); remove the row'
                )
        names = _names([_text(value, path) for value in self.numbers])
        return Ids(names, np.array(self.number))


def _names(strings: list[str]) -> np.ndarray:
    r"""Converts distinct ids to an array, as :class:`Ids` describes it."""
    if any('\0' in string for string in strings):  # arrays of text drop it at the end
        return np.array(strings, dtype=object)
    if all(map(WHOLE.fullmatch, strings)):
        strings = [string.partition('.')[0] for string in strings]
    text = np.array(strings)
    try:
        numbers = text.astype(np.int64)
    except (ValueError, OverflowError):
        return text
    return numbers if np.array_equal(numbers.astype(text.dtype), text) else text  # '07' is not '7'


def _text(value: Any, path: Path) -> str:
    r"""Converts an id to text: bytes are decoded, and a floating-point number is written as a whole
    number.

    Raises:
        ValueError: If bytes are no UTF-8 text, or a floating-point number is no exact whole number.
            The error names the :obj:`path`.
    """
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f'{str(path)!r} must have ids of UTF-8 text (got {value!r})'
            ) from error
    if not isinstance(value, FRACTIONS):
        return str(value)
    if value != int(value) or (not isinstance(value, Decimal) and abs(value) >= LARGEST_FLOAT):
        raise ValueError(
            f'{str(path)!r} must have exact whole numbers as ids (got {value}); write ids as '
            'integers'
        )
    return str(int(value))
