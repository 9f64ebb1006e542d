r"""Measures the package's neighbour sampler beside PyG's compiled one.

python -m benchmarks.runtime.loaders           # measure, write runtime/*.json, then the table
python -m benchmarks.runtime.loaders --table   # only write the table of existing results

The compiled sampler is that of pyg-lib or torch-sparse. Both run in turn in one process,
on a graph of one million nodes and ten million edges.
"""

import warnings
from pathlib import Path

import torch
import torch_geometric.sampler
import torch_geometric.typing
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput
from tqdm import trange

from benchmarks.common.arguments import add_table, positive, script_parser
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import run_script, source
from benchmarks.common.tables import write_table
from benchmarks.runtime import transform_cases
from benchmarks.runtime.measure import seconds
from torch_geometric_lgt.loader import NeighborSampler

GRAPHS = {name: transform_cases.GRAPHS[name] for name in ('regular-1M-nodes', 'rmat-10M-edges')}


def measure(
    data: Data, fan_out: list[int], batch_size: int, batches: int, rounds: int
) -> dict[str, list[float]]:
    r"""Times the batches of each sampler, with and without replacement."""
    times: dict[str, list[float]] = {}
    for replace in (False, True):
        samplers = {
            'ours': NeighborSampler(data, fan_out, replace=replace),
            'compiled': torch_geometric.sampler.NeighborSampler(data, fan_out, replace=replace),
        }
        for _ in trange(rounds, desc='with replacement' if replace else 'without replacement'):
            seeds = torch.randperm(data.num_nodes)[: batch_size * batches].split(batch_size)
            for name, sampler in samplers.items():

                def run(sampler=sampler, seeds=seeds) -> None:
                    for part in seeds:
                        sampler.sample_from_nodes(NodeSamplerInput(part, part))

                times.setdefault(f'{name}{"_replace" if replace else ""}', []).extend(
                    time / batches for time in seconds(run, 1)
                )
    return times


def table(folder: Path) -> list[dict[str, str]]:
    r"""Formats the medians of the time of a batch, with a row per graph and replacement."""
    rows = []
    for record in read_results(folder, 'neighbor-sampler-*.json'):
        for replacement, suffix in (('without replacement', ''), ('with replacement', '_replace')):
            ours, compiled = (
                1e3 * record['metrics'][f'{name}{suffix}']['median']
                for name in ('ours', 'compiled')
            )
            columns = {
                'ours (ms)': f'{ours:.1f}',
                f'{record["config"]["compiled"]} (ms)': f'{compiled:.1f}',
            }
            rows.append(
                {
                    'graph': record['dataset'],
                    'drawn': replacement,
                    **columns,
                    'ours / compiled': f'{ours / compiled:.2f}',
                }
            )
    return rows


def main() -> None:
    parser = script_parser(__doc__)
    parser.groups['data'].add_argument(
        '--graphs', nargs='+', choices=GRAPHS, default=[*GRAPHS], help='the graphs that are sampled'
    )
    parser.groups['measurement'].add_argument(
        '--fan-out',
        nargs='+',
        type=int,
        default=[15, 10, 5],
        help='neighbours of a node in each hop',
    )
    parser.groups['measurement'].add_argument(
        '--batch-size', type=positive, default=1024, help='nodes of a batch'
    )
    parser.groups['measurement'].add_argument(
        '--batches', type=positive, default=10, help='batches of a round'
    )
    parser.groups['measurement'].add_argument(
        '--rounds', type=positive, default=5, help='rounds of each sampler, in turn'
    )
    add_table(parser)
    args = parser.parse_args()
    warnings.filterwarnings('ignore', "Using 'NeighborSampler' without")
    compiled = 'pyg-lib' if torch_geometric.typing.WITH_PYG_LIB else 'torch-sparse'
    for graph in [] if args.table else args.graphs:
        data = GRAPHS[graph]()
        times = measure(data, args.fan_out, args.batch_size, args.batches, args.rounds)
        sizes = {'nodes': data.num_nodes, 'edges': data.num_edges, 'compiled': compiled}
        config = {'fan_out': args.fan_out, 'batch_size': args.batch_size, **sizes}
        labels = {'variant': '', 'protocol': 'in-turn', 'seeds': [0], 'folder': args.output}
        write_result('runtime', graph, 'neighbor-sampler', metrics=times, config=config, **labels)
    print(
        write_table(
            args.output / 'runtime' / 'loaders',
            table(source(args, 'runtime', 'neighbor-sampler-*.json')),
        )
    )


if __name__ == '__main__':
    run_script(main)
