# E interactions.
import csv
import gzip
import re
import zlib
from array import array
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np

from torch_geometric_lgt.datasets._interaction_ids import WHOLE, Column, Ids
from torch_geometric_lgt.datasets._interaction_times import time_order

SUFFIXES = ('.txt', '.txt.gz', '.csv', '.csv.gz', '.parquet')
VALID = re.compile(r'(val|valid|validation|dev)\.(txt|csv|tsv|inter|dat|json|parquet)(\.gz|\.zip)?')
HEADER = re.compile(r'([#%]|user|uid|id|user\w*|\w+_id|\w*user)(:\w+)?', re.IGNORECASE)


class Interactions(NamedTuple):
    r"""Stores the ids of the user and of the item of each interaction."""

    user: Ids
    item: Ids

    def sorted_by(self, order: np.ndarray) -> 'Interactions':
        r"""Returns the interactions in another :obj:`order` ``[E]``."""
        return Interactions(*(ids._replace(number=ids.number[order]) for ids in self))


def find(folders: list[Path], name: str) -> Path | None:
    r"""Returns the path of the file ``name`` with a suffix that :meth:`read` supports in one of the
    :obj:`folders`, or :obj:`None`.

    Raises:
        ValueError: If there are several such files.
    """
    paths = [
        path
        for folder in folders
        for suffix in SUFFIXES
        if (path := folder / f'{name}{suffix}').is_file()
    ]
    if len(paths) > 1:
        raise ValueError(
            f'{name!r} must be one file (got {" and ".join(repr(str(path)) for path in paths)}); '
            'remove all but one'
        )
    return paths[0] if paths else None


def check_valid_name(folders: list[Path]) -> None:
    r"""Checks that the :obj:`folders`, which have no validation file, have none with another name
    or suffix, such as ``val.csv`` or ``valid.tsv``.

    Raises:
        ValueError: If they have one, which would not be read.
    """
    paths = (path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir()))
    for path in paths:
        if VALID.fullmatch(path.name.casefold()) and path.is_file():
            raise ValueError(
                f"'root' must have its validation file as 'valid' and one of {', '.join(SUFFIXES)} "
                f'(got {str(path)!r}, which is not read); rename it, or take it out of the folder'
            )


def other_files(folders: list[Path]) -> str:
    r"""Returns the part of a message that says which files the :obj:`folders` have under other
    names. It is empty if they have none."""
    if folders[0].is_file():
        return f' (got a file; make a folder and call the file raw{"".join(folders[0].suffixes)})'
    names = sorted(
        path.name
        for folder in folders
        if folder.is_dir()
        for path in folder.iterdir()
        if path.is_file()
    )
    if not names:
        return ''
    return f' (got {", ".join(map(repr, names[:5]))}{", .." if len(names) > 5 else ""})'


def read(path: Path, columns: Sequence[str]) -> Interactions:
    r"""Reads interactions from LightGCN text (``user item item ..`` in each line), or from the
    :obj:`columns` of a csv file with a header or of a parquet file: users, items, and optionally
    times, by which the rows are sorted. Rows of the same time keep their order.

    An id of a text or csv file may be any word. A floating-point column of a parquet file must have
    whole numbers, which are read as integers.

    Raises:
        ValueError: If the file is damaged, a column is missing or repeated, or an id is empty. If a
            floating-point id is NaN, infinite or no whole number. If a row of a csv file has
            another number of fields than its header, or repeats the header. If a text file has a
            header above whole numbers, has commas between its ids, has the rows of a table, or
            should have times.
        ImportError: If the file is a parquet file and pyarrow is not installed.
    """
    if path.suffix == '.parquet':
        return _read_parquet(path, columns)
    is_csv = '.csv' in path.suffixes
    if not is_csv and len(columns) > 2:
        raise ValueError(
            f"'columns' must be two names for {str(path)!r}, which has no times (got {columns})"
        )
    users, items, times, lines = Column(), Column(), [], array('q')
    try:
        with (
            gzip.open(path, 'rt', encoding='utf-8-sig', newline='')
            if path.suffix == '.gz'
            else open(path, encoding='utf-8-sig', newline='') as file
        ):
            for line, row in _csv_rows(file, columns, path) if is_csv else _text_rows(file):
                lines.append(line)
                users.append(row[0])
                items.append(row[1])
                times += row[2:]
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        raise ValueError(f'{str(path)!r} is damaged ({error}); fetch or write it again') from error
    if not is_csv:
        _check_text(users, items, path)
        _check_no_table(users, np.array(lines), path)
    interactions = Interactions(users.ids(path), items.ids(path))
    if len(columns) == 2:
        return interactions
    return interactions.sorted_by(time_order(times, path, lambda row: f'line {lines[row]}'))


def _text_rows(file: TextIO) -> Iterator[tuple[int, tuple[str, str]]]:
    r"""Yields the line number and the pair of a user id and an item id, as strings, of each
    interaction in an open LightGCN text file."""
    for number, line in enumerate(file, 1):
        user, *items = line.split() or ('',)
        yield from ((number, (user, item)) for item in items)


def _check_text(users: Column, items: Column, path: Path) -> None:
    r"""Checks that a text file has white space between its ids, and no header.

    Raises:
        ValueError: If each of several users ends in a comma or semicolon, or the first line has
            names of columns alone, such as ``user_id``, and all other ids are whole numbers.
    """
    user_names, item_names = [*users.numbers], [*items.numbers]
    if len(user_names) > 1 and all(name.endswith((',', ';')) for name in user_names):
        raise ValueError(
            f'{str(path)!r} must have white space between ids (got {user_names[0]!r}); replace the '
            'commas, or call a table with a header .csv'
        )
    if not user_names or not HEADER.fullmatch(user_names[0]):
        return
    in_first_line = max(items.number[: users.number.count(0)]) + 1
    titles, others = item_names[:in_first_line], user_names[1:] + item_names[in_first_line:]
    if others and all(map(WHOLE.fullmatch, others)) and not any(map(WHOLE.fullmatch, titles)):
        raise ValueError(
            f'{str(path)!r} must have no header (got the line '
            f'{" ".join([user_names[0], *titles])!r}); remove it where the '
            "other lines are 'user item item ..', else write a csv file"
        )


def _check_no_table(users: Column, lines: np.ndarray, path: Path) -> None:
    r"""Checks that a text file is no table of users, items and other columns, which would be read
    as items. :obj:`lines` ``[E]`` has the line of each interaction.

    Raises:
        ValueError: If users are repeated, and all lines have the same number of items, at least
            two.
    """
    starts = np.flatnonzero(np.diff(lines, prepend=0))
    sizes = np.diff(starts, append=lines.size)
    if starts.size > len(users.numbers) and sizes[0] > 1 and (sizes == sizes[0]).all():
        raise ValueError(
            f'{str(path)!r} must have all items of a user in one line, or one item in each line '
            f'(got {sizes[0] + 1} words in each line and several lines of a user, as in a table '
            'with ratings or times); write a table as csv with a header'
        )


def _csv_rows(
    file: TextIO, columns: Sequence[str], path: Path
) -> Iterator[tuple[int, tuple[str, ...]]]:
    r"""Yields the number of the first line and the fields of :obj:`columns`, as strings, of each
    row of an open csv file. Error messages name the :obj:`path` and the line.

    Raises:
        ValueError: If a column is missing or repeated, or a row is no csv, has another number of
            fields than the header, repeats the header, or has an empty id.
    """
    rows = csv.reader(file, strict=True)
    line = 1
    try:
        header = next(rows, [])
        _check_columns(header, columns, path)
        places = [header.index(column) for column in columns]
        line = rows.line_num + 1
        user, item, fields = *places[:2], itemgetter(*places)
        for row in rows:
            if row:
                if len(row) != len(header) or row == header or not (row[user] and row[item]):
                    raise _row_error(row, header, f'{str(path)!r} must have', line)
                yield line, fields(row)
            line = rows.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f'{str(path)!r} must be csv (got a row from line {line} on with the error: {error}); '
            'close each quote, and write a quote within an id twice'
        ) from error


def _row_error(row: list[str], header: list[str], subject: str, line: int) -> ValueError:
    r"""Returns the error, which begins with :obj:`subject` and names the :obj:`line`, for a csv row
    that has another number of fields than the :obj:`header`, repeats it, or has an empty id."""
    if len(row) != len(header):
        return ValueError(
            f'{subject} {len(header)} fields in each row, as in its header (got {len(row)} in line '
            f'{line}); put a field with a comma in quotes'
        )
    if row == header:
        return ValueError(f'{subject} one header (got another in line {line}); remove it')
    return ValueError(
        f'{subject} two ids in each row (got an empty id in line {line}); remove the row'
    )


def _read_parquet(path: Path, columns: Sequence[str]) -> Interactions:
    r"""Reads the interactions from columns of a parquet file.

    Raises:
        ValueError: If the file is damaged, a column is missing or repeated, or has lists, or an id
            is invalid.
        ImportError: If pyarrow is not installed.
    """
    try:
        from pyarrow import ArrowException, parquet, types
    except ImportError as error:
        raise ImportError(
            f'reading {str(path)!r} needs pyarrow; pip install "torch-geometric-lgt[recommend]"'
        ) from error
    try:
        _check_columns(parquet.read_schema(path).names, columns, path)
        table = parquet.read_table(path, columns=list(columns))
    except (ArrowException, OSError) as error:
        raise ValueError(f'{str(path)!r} is damaged ({error}); write it again') from error
    fields = [table.column(name) for name in columns]
    for name, field in zip(columns, fields, strict=True):
        if types.is_nested(field.type):
            raise ValueError(
                f"'columns' must name columns of {str(path)!r} with one value in each row (got "
                f'{name!r} of type {field.type}); write a row for each interaction'
            )
    if len(fields) > 2 and types.is_temporal(fields[2].type):
        width = fields[2].type.bit_width
        fields[2] = fields[2].cast(f'int{width}')
    users, items, *times = (field.to_pylist() for field in fields)
    interactions = Interactions(Column(users).ids(path), Column(items).ids(path))
    if not times:
        return interactions
    return interactions.sorted_by(time_order(times[0], path, lambda row: f'row {row + 1}'))


def _check_columns(names: Sequence[str], columns: Sequence[str], path: Path) -> None:
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
