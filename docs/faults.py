"""The faults that the package is held against, and what the tests say of each."""

import ast
from pathlib import Path
from typing import NamedTuple

FAULTS = {
    1: 'No nodes, or no edges',
    2: 'Nodes without neighbours',
    3: 'A graph without nodes in a batch, or a gap in its ids',
    4: 'An unsorted batch vector',
    5: 'A batch vector with negative ids, of another dtype, length or device',
    6: 'Ids of no node, negative or one-based ones',
    7: 'Ids with gaps in files of users',
    8: 'edge_index of int32, of other dtypes, or transposed',
    9: 'Edges that occur again',
    10: 'Self loops',
    11: 'A directed graph where a method takes an undirected one',
    12: 'Several components, or a bipartite graph, in LaplacianPE',
    13: 'More columns than nodes in an encoding',
    14: 'A solver that does not converge',
    15: 'NaN or infinite numbers in features or weights',
    16: 'Rows of zeros',
    17: 'A normaliser of zero',
    18: 'Exponentials and sums beyond the range of a dtype',
    19: 'A degree above the table of embeddings',
    20: 'Sizes that do not fit each other or a checkpoint',
    21: 'Scores and encodings of a graph that has changed',
    22: 'A node with a million neighbours in JaccardScores',
    23: 'More pairs of nodes than int32 counts',
    24: 'One row, or identical rows, in the uniformity loss',
    25: 'Users with nothing to rank, or fewer than K items left',
    26: 'Pairs in two parts of a split',
    27: 'No negative item to draw',
    28: 'NeighborLoader without a compiled sampler',
    29: 'Seed nodes that are not the first of a batch',
    30: 'A kill while files are written',
    31: 'Two processes that build one cache',
    32: 'Files that are cut off, changed or of another version',
    33: 'A full disk, a read-only folder',
    34: 'A pickle planted in a cache, data set, state or checkpoint',
    35: 'No network, or a download that is cut off',
    36: 'A graph larger than memory',
    37: 'Mixed devices or dtypes, autocast',
    38: 'A process without nodes, uneven parts',
    39: 'No compiled extension, no GPU',
    40: 'The random state after an evaluation',
}


class Outcome(NamedTuple):
    """What is promised for a fault, and the test that provokes it."""

    fault: int
    text: str
    test: str


def outcomes(tests: Path) -> list[Outcome]:
    """Those that the marks ``fault(number, text)`` of the tests in a folder name, by number."""
    found = []
    for path in sorted(tests.rglob('test_*.py')):
        for function in ast.parse(path.read_text(encoding='utf-8')).body:
            for mark in getattr(function, 'decorator_list', []):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == 'pytest.mark.fault':
                    number, text = (ast.literal_eval(part) for part in mark.args)
                    found.append(Outcome(number, text, function.name))
    return sorted(found)


def list_table(rows: list[tuple], widths: str) -> list[str]:
    """The lines of a table, its first row the header."""
    lines = ['', '.. list-table::', '   :header-rows: 1', f'   :widths: {widths}', '']
    for first, *cells in rows:
        lines += [f'   * - {first}', *(f'     - {cell}' for cell in cells)]
    return lines


def page(tests: Path) -> str:
    """The table of all faults."""
    title, found = 'Faults and their outcomes', outcomes(tests)
    lines = [
        title,
        '=' * len(title),
        '',
        (
            'What happens with odd input, damaged files and broken machines, and the tests that '
            'provoke it.'
        ),
    ]
    rows = [('', 'Fault', 'Outcome', 'Tests')]
    for number, fault in FAULTS.items():
        own = [outcome for outcome in found if outcome.fault == number]
        texts = ' '.join(dict.fromkeys(outcome.text for outcome in own))
        rows.append(
            (str(number), fault, texts, ', '.join(f'``{outcome.test}``' for outcome in own))
        )
    return '\n'.join(lines + list_table(rows, '5 30 40 25')) + '\n'
