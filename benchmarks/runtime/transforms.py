r"""Measures transforms beside the libraries that compute the same.

pip install ".[peers]"
python -m benchmarks.runtime.transforms              # measure, write runtime/*.json, then the table
python -m benchmarks.runtime.transforms --table      # only write the table of existing results

Methods run in fresh processes, in turn. The graph of each library is built beforehand.
"""

import warnings
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.common.arguments import add_root, add_table, positive, script_parser
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import data_from, run_script, source
from benchmarks.common.tables import write_table
from benchmarks.runtime.measure import fresh, peak_memory_mib, seconds
from benchmarks.runtime.transform_cases import (
    BIPARTITE,
    GRAPHS,
    METHODS,
    ON,
    QUALITY,
    REAL,
    SMALL,
    graph_of,
)

LAYOUT = 'DIR/amazon-beauty has train.txt and test.txt, or is downloaded'
NAMES = {'jaccard': 'JaccardScores', 'laplacian-pe': 'LaplacianPE', 'svd': 'SVDEncoding'}
MEASURED = {
    'jaccard': 'mean score',
    'laplacian-pe': 'sum of eigenvalues',
    'svd': 'sum of singular values',
}


def work(case: str, method: str, graph: str, root: str = 'data') -> dict[str, list[float]]:
    r"""Measures the seconds, the memory and the quality of one call. An earlier call on a small
    graph loads libraries and compiles loops."""
    METHODS[case][method](graph_of(SMALL[case], root))()
    data = graph_of(graph, root)
    run = METHODS[case][method](data)
    results: list[Any] = []
    times: list[float] = []
    memory = peak_memory_mib(lambda: times.extend(seconds(lambda: results.append(run()), 1)))
    return {
        'seconds': times,
        'peak_memory_mib': [memory],
        'quality': [QUALITY[case](data, results[0])],
    }


def measure(
    case: str, graph: str, root: str, rounds: int, limit: float, bar: tqdm, folder: Path
) -> None:
    r"""Measures all methods and writes the result. A method that exceeds the limit is not run
    again."""
    metrics: dict[str, list[float]] = {}
    late: set[str] = set()
    for _ in range(rounds):
        for method in METHODS[case]:
            bar.set_postfix_str(f'{case} on {graph}, {method}')
            settings = {'case': case, 'method': method, 'graph': graph, 'root': root}
            part = {} if method in late else fresh('benchmarks.runtime.transforms', settings, limit)
            for name, values in part.items():
                metrics.setdefault(f'{method}_{name}', []).extend(values)
            late |= set() if part else {method}
            bar.update()
    config = {'graph': graph, 'rounds': rounds, 'limit': limit}
    labels = {
        'variant': '',
        'protocol': 'fresh-processes-alternating',
        'seeds': [0],
        'folder': folder,
    }
    write_result('runtime', graph, case, metrics=metrics, config=config, **labels)


def rows(record: dict[str, Any]) -> list[dict[str, str]]:
    r"""Formats the medians of each method, and its time over that of the package."""
    case, metric, out = record['model'], record['metrics'], []
    for method in METHODS[case]:
        row = {'transform': NAMES[case], 'graph': record['dataset'], 'by': method}
        if f'{method}_seconds' in metric:
            time, memory, quality = (
                metric[f'{method}_{name}']['median']
                for name in ('seconds', 'peak_memory_mib', 'quality')
            )
            ours = metric.get('ours_seconds', {}).get('median')
            row |= {
                'seconds': f'{time:.2f}',
                'over ours': f'{time / ours:.2f}' if ours else '',
                'MiB': f'{memory:.0f}',
                'result': f'{MEASURED[case]} {quality:.6g}',
            }
        else:
            row |= {
                'seconds': f'more than {record["config"]["limit"]:.0f}',
                'over ours': '',
                'MiB': '',
                'result': '',
            }
        out.append(row)
    return out


def table(folder: Path) -> list[dict[str, str]]:
    r"""Formats the rows of all results."""
    records = read_results(folder)
    return [row for record in records if record['model'] in METHODS for row in rows(record)]


def main() -> None:
    parser = script_parser(__doc__)
    parser.groups['model'].add_argument(
        '--cases',
        nargs='+',
        choices=METHODS,
        help='the transforms that are measured (default: all that take the graphs)',
    )
    parser.groups['data'].add_argument(
        '--graphs', nargs='+', choices=[*GRAPHS, *REAL], help='graphs (default: those of the case)'
    )
    add_root(parser, LAYOUT)
    parser.groups['measurement'].add_argument(
        '--rounds', type=positive, default=3, help='fresh processes per method'
    )
    parser.groups['measurement'].add_argument(
        '--limit', type=float, default=300.0, help='seconds for a process, its graph included'
    )
    add_table(parser)
    args = parser.parse_args()
    warnings.filterwarnings('ignore', 'Sparse CSR tensor support is in beta')
    if not args.table:
        pairs = [
            (case, graph)
            for case in args.cases or METHODS
            for graph in args.graphs or ON[case]
            if (case == 'svd') == (graph in BIPARTITE)
        ]
        idle = {*(args.cases or ())} - {case for case, _ in pairs}
        if idle:
            parser.error(
                '--graphs must have one for each of --cases (got none for '
                f'{", ".join(sorted(idle))}): svd takes {", ".join(BIPARTITE)}, other cases other '
                'graphs'
            )
        for graph in {graph for _, graph in pairs if graph in REAL}:
            with data_from(args.root, LAYOUT):
                graph_of(graph, args.root)
        with tqdm(total=sum(len(METHODS[case]) for case, _ in pairs) * args.rounds) as bar:
            for case, graph in pairs:
                measure(case, graph, args.root, args.rounds, args.limit, bar, args.output)
    print(write_table(args.output / 'runtime' / 'transforms', table(source(args, 'runtime'))))


if __name__ == '__main__':
    run_script(main)
