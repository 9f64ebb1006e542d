"""Writes the page of mutants: small changes of the code, and how many of them the tests catch."""

import json
from pathlib import Path

from faults import list_table


def page(results: Path) -> str:
    """Returns the page: a table of all modules, and the mutants that no test catches, by reason."""
    found = json.loads(results.read_text(encoding='utf-8'))
    title = 'Mutants that the tests catch'
    of = ', '.join(f'{package} {version}' for package, version in found['versions'].items())
    text = (
        'Each mutant of ``torch_geometric_lgt.functional`` changes one operator, number, name or '
        'argument'
    )
    outcomes = ('noticed', 'without an end', 'survived')
    counts = {
        f'``{module}``': [each.get(outcome, 0) for outcome in outcomes]
        for module, each in found['modules'].items()
    }
    counts['**all**'] = [sum(column) for column in zip(*counts.values(), strict=True)]
    tried = sum(counts['**all**'])
    lines = [title, '=' * len(title), '', f'{text} ({of}), and the tests run with each mutant.']
    if tried < found['changes']:
        lines += [f'These {tried:,} are drawn at random from all {found["changes"]:,}.']
    rows = [(module, sum(each), *each) for module, each in counts.items()]
    lines += list_table(
        [('Module', 'Mutants', 'Caught', 'Timed out', 'Not caught'), *rows], '40 15 15 15 15'
    )
    lines += [
        '',
        (
            'A timeout counts as caught. Functions with decorators have no mutants, among them the '
            'kernels for GPUs.'
        ),
    ]
    lines += ['', 'No test can catch the other mutants, for these reasons:']
    by_why: dict[str, list[str]] = {}
    for survivor in found['survived']:
        by_why.setdefault(survivor['why'], []).append(survivor['change'])
    for why, changes in sorted(by_why.items(), key=lambda item: -len(item[1])):
        lines += [
            '',
            f'{why} ({len(changes)})',
            '',
            '.. code-block:: text',
            '',
            *(f'   {change}' for change in changes),
        ]
    return '\n'.join(lines) + '\n'
