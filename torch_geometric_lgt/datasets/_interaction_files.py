# E interactions.
import csv
import gzip
import math
import zlib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

LARGEST_FLOAT = 2**53  # from it on, whole numbers are rounded to it
FRACTIONS = (float, Decimal, np.floating)
SUFFIXES = ('.txt', '.txt.gz', '.csv', '.csv.gz', '.parquet')


class Interactions(NamedTuple):
    r"""Stores the user id and the item id ``[E]`` of each interaction, in the order of the file.

    Each array is int64 if all its ids are whole numbers, else it is text. If a text has a NUL
    character, the array is of objects.
    """

    user: np.ndarray
    item: np.ndarray


def find(folders: list[Path], name: str) -> Path | None:
    r"""Returns the path of the first file ``name`` with a suffix that :meth:`read` supports, or
    :obj:`None`. Folders are searched in order, and suffixes in the order of ``SUFFIXES``."""
    return next(
        (
            path
            for folder in folders
            for suffix in SUFFIXES
            if (path := folder / f'{name}{suffix}').is_file()
        ),
        None,
    )


def read(path: Path, columns: tuple[str, str]) -> Interactions:
    r"""Reads interactions from LightGCN text (``user item item ..`` in each line), or from two
    :obj:`columns` of a csv file with a header or of a parquet file.

    An id of a text or csv file may be any word. A floating-point column of a parquet file must have
    whole numbers, which are read as integers.

    Raises:
        ValueError: If the file is damaged, a column is missing or repeated, or an id is empty. If a
            floating-point id is NaN, infinite or no whole number.
        ImportError: If the file is a parquet file and pyarrow is not installed.
    """
    if path.suffix == '.parquet':
        return _read_parquet(path, columns)
    try:
        with (
            gzip.open(path, 'rt', encoding='utf-8-sig')
            if path.suffix == '.gz'
            else open(path, encoding='utf-8-sig', newline='') as file
        ):
            pairs = (
                _csv_pairs(file, columns, path) if '.csv' in path.suffixes else _text_pairs(file)
            )
            users, items = [], []
            for user, item in pairs:
                users.append(user)
                items.append(item)
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(
            f"'root' holds a damaged file {str(path)!r} ({error}); fetch or write it again"
        ) from error
    return Interactions(_ids(users, path), _ids(items, path))


def _text_pairs(file: TextIO) -> Iterator[tuple[str, str]]:
    r"""Yields the pairs of a user id and an item id, as strings, of an open LightGCN text file."""
    for line in file:
        user, *items = line.split() or ('',)
        yield from ((user, item) for item in items)


def _csv_pairs(file: TextIO, columns: tuple[str, str], path: Path) -> Iterator[tuple[str, str]]:
    r"""Yields the pairs of a user id and an item id, as strings, from two columns of an open csv
    file. Error messages name the :obj:`path`.

    Raises:
        ValueError: If a column is missing or repeated.
    """
    rows = csv.DictReader(file)
    _check_columns(rows.fieldnames or (), columns, path)
    yield from ((row[columns[0]], row[columns[1]]) for row in rows)


def _read_parquet(path: Path, columns: tuple[str, str]) -> Interactions:
    r"""Reads the interactions from two columns of a parquet file.

    Raises:
        ValueError: If the file is damaged, a column is missing or repeated, or an id is invalid.
        ImportError: If pyarrow is not installed.
    """
    try:
        from pyarrow import ArrowException, parquet
    except ImportError as error:
        raise ImportError(
            f"reading {str(path)!r} needs pyarrow; pip install 'torch-geometric-lgt[recommend]'"
        ) from error
    try:
        _check_columns(parquet.read_schema(path).names, columns, path)
        table = parquet.read_table(path, columns=list(columns))
    except (ArrowException, OSError) as error:
        raise ValueError(
            f"'root' holds a damaged file {str(path)!r} ({error}); write it again"
        ) from error
    return Interactions(*(_ids(table.column(name).to_pylist(), path) for name in columns))


def _check_columns(names, columns: tuple[str, str], path: Path) -> None:
    r"""Checks that the column :obj:`names` of a file have each of :obj:`columns` once.

    Raises:
        ValueError: If a column is missing or repeated. The error names the :obj:`path`.
    """
    if not set(columns) <= set(names):
        raise ValueError(
            f"'columns' must name columns of {str(path)!r} (got {columns}, it has {list(names)})"
        )
    repeated = [name for name in columns if list(names).count(name) > 1]
    if repeated:
        raise ValueError(
            f"'columns' must name columns that {str(path)!r} has once (got {repeated[0]!r}, which "
            'occurs again)'
        )


def _ids(values: list, path: Path) -> np.ndarray:
    r"""Converts the ids of a column to an array: int64 if all ids are whole numbers written without
    leading zeros, else text.

    Raises:
        ValueError: If an id is empty, NaN, infinite, or a fraction. The error names the
            :obj:`path`.
    """
    if any(
        value is None
        or (isinstance(value, str | bytes) and not value)
        or (isinstance(value, FRACTIONS) and not math.isfinite(value))
        for value in values
    ):
        raise ValueError(
            f"'root' holds a file with an empty id, NaN or an infinite number: {str(path)!r}; "
            'remove those rows'
        )
    strings = [_text(value, path) for value in values]
    if any('\0' in string for string in strings):  # arrays of text drop it at the end
        return np.array(strings, dtype=object)
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
                f"'root' holds a file with an id that is no UTF-8 text: {str(path)!r} (got "
                f'{value!r})'
            ) from error
    if not isinstance(value, FRACTIONS):
        return str(value)
    if value != int(value) or (not isinstance(value, Decimal) and abs(value) >= LARGEST_FLOAT):
        raise ValueError(
            f"'root' holds a file with an id that is no exact whole number: {str(path)!r} (got "
            f'{value}); write ids as integers'
        )
    return str(int(value))
