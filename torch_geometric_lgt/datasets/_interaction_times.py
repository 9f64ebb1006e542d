# E interactions.
import math
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np


def time_order(values: Sequence[Any], path: Path, place: Callable[[int], str]) -> np.ndarray:
    r"""Returns the order ``[E]`` that sorts interactions by their times. Equal times keep their
    order.

    Args:
        values: The times ``[E]``: all numbers, or all dates as in ISO 8601, as texts or not.
        path: The file, for error messages.
        place: Names the place of a time in the file, for error messages.

    Raises:
        ValueError: If a time is neither, or not of the kind of the others.
    """
    texts = [str(value) for value in values]
    for parse in (int, _number, _date):
        try:
            times = [parse(text) for text in texts]
        except ValueError:
            continue
        return np.array(sorted(range(len(times)), key=times.__getitem__), dtype=np.int64)
    parse = _number if _parses(_number, texts[0]) else _date
    wrong = next(row for row, text in enumerate(texts) if not _parses(parse, text))
    raise ValueError(
        f'{str(path)!r} must have times that are all numbers or all dates such as '
        f'2024-05-31T18:00:00 (got {texts[wrong]!r} in {place(wrong)})'
    )


def _number(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _date(text: str) -> datetime:
    r"""Reads a date, which is in UTC unless it names a time zone."""
    date = datetime.fromisoformat(text[:-1] + '+00:00' if text.endswith('Z') else text)
    return date if date.tzinfo is not None else date.replace(tzinfo=timezone.utc)


def _parses(parse: Any, text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True
