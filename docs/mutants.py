"""Which changes of the functions' code the tests notice, and why the others are none."""

import json
from pathlib import Path

from faults import list_table


def page(results: Path) -> str:
    """The table of all modules, and the changes that no test notices by why."""
    found = json.loads(results.read_text(encoding='utf-8'))
    title = 'Changes that the tests notice'
    of = ', '.join(f'{package} {version}' for package, version in found['versions'].items())
    text = (
        'The code of ``torch_geometric_lgt.functional`` changed one operator, number, name or '
        'argument at a time'
    )
    lines = [title, '=' * len(title), '', f'{text} ({of}), and the tests run with each change:']
    outcomes = ('noticed', 'without an end', 'survived')
    counts = {
        f'``{module}``': [each.get(outcome, 0) for outcome in outcomes]
        for module, each in found['modules'].items()
    }
    counts['**all**'] = [sum(column) for column in zip(*counts.values(), strict=True)]
    rows = [(module, sum(each), *each) for module, each in counts.items()]
    lines += list_table(
        [('Module', 'Changes', 'Noticed', 'Without an end', 'Not noticed'), *rows], '40 15 15 15 15'
    )
    lines += [
        '',
        (
            'A change without an end is noticed, too. Functions with decorators are not changed, '
            'the '
            'kernels for GPUs among them.'
        ),
    ]
    lines += ['Why the changes that are not noticed make no difference that a test could tell:']
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
