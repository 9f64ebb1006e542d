r"""Measures what a program waits for at first: the import and the first calls.

python -m benchmarks.runtime.startup           # write runtime/startup-random.json, then the table
python -m benchmarks.runtime.startup --table   # only write the table of the existing result

The first call is beside the second one. Calls run in fresh processes, in turn with PyG's.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader as PyGNeighborLoader
from torch_geometric.transforms import AddLaplacianEigenvectorPE
from tqdm import tqdm

from benchmarks.common.arguments import add_table, positive, script_parser
from benchmarks.common.results import write_result
from benchmarks.common.scripts import run_script, source
from benchmarks.common.tables import write_table
from benchmarks.runtime.measure import fresh, seconds
from benchmarks.runtime.models import CHANNELS, MODELS, graph
from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.transforms import JaccardScores, LaplacianPE

PARTS = ('nn', 'functional', 'transforms', 'loader', 'data', 'datasets')
IMPORTS = {
    'ours': f'import torch_geometric, {", ".join(f"torch_geometric_lgt.{part}" for part in PARTS)}',
    'pyg': 'import torch_geometric',
}
IMPORT = 'import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)'
NODES = 1000


def model_step(name: str) -> Callable[[Data], Callable[[], object]]:
    def prepared(data: Data) -> Callable[[], object]:
        forward = MODELS[name](data)
        return lambda: forward().square().mean().backward()

    return prepared


# For each first call how ours and PyG's, where there is one, are made.
CALLS: dict[str, dict[str, Callable[[Data], Callable[[], object]]]] = {
    'sgformer': {'ours': model_step('sgformer'), 'pyg': model_step('pyg-sgformer')},
    **{
        name: {'ours': model_step(name)}
        for name in ('nodeformer', 'difformer', 'mgformer', 'litegt')
    },
    'jaccard-scores': {'ours': lambda data: lambda: JaccardScores()(data)},
    'laplacian-pe': {
        'ours': lambda data: lambda: LaplacianPE(8)(data),
        'pyg': lambda data: lambda: AddLaplacianEigenvectorPE(8, is_undirected=True)(data),
    },
    'neighbor-loader': {
        'ours': lambda data: lambda: next(iter(NeighborLoader(data, [10, 10], batch_size=64))),
        'pyg': lambda data: lambda: next(iter(PyGNeighborLoader(data, [10, 10], batch_size=64))),
    },
}


def work(case: str, method: str) -> dict[str, list[float]]:
    r"""Times the first and the second call in this process."""
    torch.manual_seed(0)
    call = CALLS[case][method](graph(NODES))
    return {'first': seconds(call, 1), 'second': seconds(call, 1)}


def imported(method: str) -> float:
    out = subprocess.run(
        [sys.executable, '-c', IMPORT.format(IMPORTS[method])],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(out.stdout)


def measure(rounds: int) -> dict[str, list[float]]:
    r"""Times all rounds, by case, method and call."""
    times: dict[str, list[float]] = {}
    pairs = [(case, method) for case, methods in CALLS.items() for method in methods]
    with tqdm(total=rounds * (len(IMPORTS) + len(pairs))) as bar:
        for _ in range(rounds):
            for method in IMPORTS:
                times.setdefault(f'import/{method}/first', []).append(imported(method))
                bar.update()
            for case, method in pairs:
                for name, values in fresh(
                    'benchmarks.runtime.startup', {'case': case, 'method': method}
                ).items():
                    times.setdefault(f'{case}/{method}/{name}', []).extend(values)
                bar.update()
    return times


def rows(metrics: dict[str, Any]) -> Iterator[dict[str, str]]:
    r"""Formats the medians in milliseconds."""
    for case in ('import', *CALLS):
        row = {'what': case}
        for method in ('ours', 'pyg'):
            for name in ('first', 'second'):
                call = metrics.get(f'{case}/{method}/{name}')
                row[f'{method}, {name} (ms)'] = (
                    '' if call is None else f'{1e3 * call["median"]:.0f}'
                )
        yield row


def main() -> None:
    parser = script_parser(__doc__)
    parser.groups['measurement'].add_argument(
        '--rounds', type=positive, default=5, help='fresh processes for each'
    )
    add_table(parser)
    args = parser.parse_args()
    if not args.table:
        config = {'nodes': NODES, 'channels': CHANNELS, 'rounds': args.rounds}
        labels = {'variant': '', 'protocol': 'fresh-processes-alternating', 'seeds': [0]}
        write_result(
            'runtime',
            'random',
            'startup',
            metrics=measure(args.rounds),
            config=config,
            folder=args.output,
            **labels,
        )
    name = 'startup-random.json'
    record = json.loads((source(args, 'runtime', name) / name).read_text(encoding='utf-8'))
    print(write_table(args.output / 'runtime' / 'startup', [*rows(record['metrics'])]))


if __name__ == '__main__':
    run_script(main)
