r"""Writes tables and formats their cells."""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common.files import say, write_file

Rows = Sequence[Mapping[str, str]]


def write_table(path: Path, rows: Rows) -> str:
    r"""Writes a table as Markdown and as CSV and returns the Markdown. The path has no suffix.
    Without rows no file is written."""
    if not rows:
        say(f'there are no results for the table {path}')
        return ''
    write_file(path.with_suffix('.md'), as_markdown(rows).encode(), 'tables')
    write_file(path.with_suffix('.csv'), as_csv(rows).encode(), 'tables')
    return as_markdown(rows)


def as_csv(rows: Rows) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator='\n')
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_markdown(rows: Rows) -> str:
    names = list(rows[0])
    lines = [names, ['---'] * len(names), *(list(row.values()) for row in rows)]
    return ''.join(f'| {" | ".join(line)} |\n' for line in lines)


def mean(record: Mapping[str, Any], metric: str) -> float:
    return record['metrics'][metric]['mean']


def model_and_variant(record: Mapping[str, Any]) -> str:
    r"""Names the model of a result, with its variant in brackets if it has one."""
    return record['model'] + (f' ({record["variant"]})' if record['variant'] else '')


def spread(record: Mapping[str, Any], metric: str, scale: float = 1.0, digits: int = 4) -> str:
    r"""Formats the mean of a metric, with the standard deviation if there are several seeds."""
    value = record['metrics'][metric]
    text = f'{scale * value["mean"]:.{digits}f}'
    return f'{text} ± {scale * value["std"]:.{digits}f}' if len(value['values']) > 1 else text
