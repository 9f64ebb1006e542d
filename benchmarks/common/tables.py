import csv
import io
from collections.abc import Mapping, Sequence

Rows = Sequence[Mapping[str, str]]


def as_csv(rows: Rows) -> str:
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator='\n')
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_markdown(rows: Rows) -> str:
    names = list(rows[0])
    lines = [names, ['---'] * len(names), *(list(row.values()) for row in rows)]
    return ''.join(f'| {" | ".join(line)} |\n' for line in lines)
