"""Reads the written tables of pages, and formats figures of result files for them."""

import csv
import json
import re
from pathlib import Path

from benchmarks.common.tables import spread

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / 'benchmarks' / 'results'


def words(page):
    return ' '.join((ROOT / page).read_text(encoding='utf-8').split())


def list_tables(page):
    """Returns the rows of each written table by the first cell of its header, without markup."""
    text = (ROOT / page).read_text(encoding='utf-8')
    found = {}
    for directive in re.finditer(r'^ *\.\. list-table::.*$', text, re.M):
        _, body = text[directive.end() :].split('\n\n')[:2]
        (title, *header), *rows = (
            [re.sub(r'[*`]', '', ' '.join(cell.split())) for cell in re.split(r'\n +- ', row)]
            for row in re.split(r'(?:^|\n) +\* - ', body)[1:]
        )
        assert title not in found
        assert all(len(row) == 1 + len(header) for row in rows)
        found[title] = rows
    return found


def csv_rows(task, name):
    with open(RESULTS / task / f'{name}.csv', newline='') as file:
        return list(csv.DictReader(file))


def has_result(task, name):
    return (RESULTS / task / f'{name}.json').exists()


def result(task, name):
    return json.loads((RESULTS / task / f'{name}.json').read_text())


def compare(record, other, metric):
    """Returns 1 or -1 if the first result is better or worse in each run of both, otherwise 0."""
    scores, others = (
        dict(zip(each['seeds'], each['metrics'][metric]['values'], strict=True))
        for each in (record, other)
    )
    common = scores.keys() & others.keys()
    assert common  # results without a seed of both tell nothing
    signs = {(scores[seed] > others[seed]) - (scores[seed] < others[seed]) for seed in common}
    return signs.pop() if len(signs) == 1 else 0


def verdict(record, others, metric):
    """Compares a result with others by their names, in the words of the column *Result*."""
    signs = {name: compare(record, other, metric) for name, other in others.items()}
    equal = ', '.join(name for name, sign in signs.items() if sign == 0)
    ahead = ', '.join(name for name, sign in signs.items() if sign < 0)
    parts = [equal and f'equal to {equal}', ahead and f'behind {ahead}']
    return '; '.join(filter(None, parts)) or 'ahead'


def percent(record, metric='accuracy'):
    return spread(record, metric, 100, 1)
