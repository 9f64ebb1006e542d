"""Lists the faults that the tests provoke, with the outcome that is promised for each."""

import ast
from pathlib import Path
from typing import NamedTuple

FAULTS = {
    'no-nodes': 'No nodes, or no edges',
    'isolated-nodes': 'Nodes without neighbours',
    'empty-graph': 'A graph without nodes in a batch, or a gap in its ids',
    'unsorted-batch': 'An unsorted batch vector',
    'invalid-batch': (
        'A batch vector with negative ids, of a dtype other than int64 and int32, of another '
        'length or device'
    ),
    'invalid-ids': 'Ids of no node, negative or one-based ones',
    'id-gaps': 'Ids with gaps in files of users',
    'edge-dtype': 'edge_index of int32, of other dtypes, or transposed',
    'repeated-edges': 'Edges that occur again',
    'self-loops': 'Self loops',
    'directed-graph': 'A directed graph where a method takes an undirected one',
    'components': 'Several components, or a bipartite graph, in LaplacianPE',
    'too-many-columns': 'More columns than nodes in an encoding',
    'no-convergence': 'A solver that does not converge',
    'not-finite': 'NaN or infinite numbers in features or weights',
    'zero-rows': 'Rows of zeros',
    'zero-normaliser': 'A normaliser of zero',
    'overflow': 'Exponentials and sums beyond the range of a dtype',
    'large-degree': 'A degree above the table of embeddings',
    'wrong-sizes': 'Sizes that do not fit each other or a checkpoint',
    'stale-scores': 'Scores and encodings of a graph that has changed',
    'hub': 'A node with a million neighbours in JaccardScores',
    'many-pairs': 'More pairs of nodes than int32 counts',
    'identical-rows': 'One row, or identical rows, in the uniformity loss',
    'short-ranking': 'Users with nothing to rank, or fewer than K items left',
    'split-overlap': 'Pairs in two parts of a split',
    'no-negatives': 'No negative item to draw',
    'no-sampler': 'NeighborLoader without a compiled sampler',
    'seed-order': 'Seed nodes that are not the first of a batch',
    'kill': 'A kill while files are written',
    'two-writers': 'Two processes that build one cache',
    'damaged-file': 'Files that are cut off, changed or of another version',
    'no-space': 'A full disk, a read-only folder',
    'planted-pickle': 'A pickle planted in a cache, data set, state or checkpoint',
    'no-network': 'No network, or a download that is cut off',
    'out-of-memory': 'A graph larger than memory',
    'mixed-dtypes': 'Mixed devices or dtypes, autocast',
    'uneven-processes': 'A process without nodes, uneven parts',
    'no-extension': 'No compiled extension, no GPU',
    'random-state': 'The random state after an evaluation',
}


class Outcome(NamedTuple):
    """Names a fault, the outcome that is promised for it, and the test that provokes it."""

    fault: str
    text: str
    test: str


def outcomes(tests: Path) -> list[Outcome]:
    """Reads the marks ``fault(name, text)`` of the tests in a folder, in the order of the table."""
    marked = []
    for path in sorted(tests.rglob('test_*.py')):
        for function in ast.parse(path.read_text(encoding='utf-8')).body:
            for mark in getattr(function, 'decorator_list', []):
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == 'pytest.mark.fault':
                    name, text = (ast.literal_eval(part) for part in mark.args)
                    marked.append(Outcome(name, text, function.name))
    unknown = {outcome.fault for outcome in marked} - {*FAULTS}
    if unknown:
        raise ValueError(f'docs/faults.py does not describe {", ".join(sorted(unknown))}')
    order = [*FAULTS]
    return sorted(marked, key=lambda outcome: (order.index(outcome.fault), *outcome[1:]))


def list_table(rows: list[tuple], widths: str) -> list[str]:
    """Returns the lines of a table whose first row is the header."""
    lines = ['', '.. list-table::', '   :header-rows: 1', f'   :widths: {widths}', '']
    for first, *cells in rows:
        lines += [f'   * - {first}', *(f'     - {cell}' for cell in cells)]
    return lines


def page(tests: Path) -> str:
    """Returns the page with the table of all faults."""
    title, marked = 'Faults and their outcomes', outcomes(tests)
    lines = [
        title,
        '=' * len(title),
        '',
        (
            'What happens with odd input, damaged files and broken machines, and the tests that '
            'provoke it.'
        ),
    ]
    rows = [('Name', 'Fault', 'Outcome', 'Tests')]
    for name, fault in FAULTS.items():
        matching = [outcome for outcome in marked if outcome.fault == name]
        texts = ' '.join(dict.fromkeys(outcome.text for outcome in matching))
        rows.append(
            (f'``{name}``', fault, texts, ', '.join(f'``{outcome.test}``' for outcome in matching))
        )
    return '\n'.join(lines + list_table(rows, '15 25 35 25')) + '\n'
