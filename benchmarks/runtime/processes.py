r"""Measures one attention layer over several processes, with one thread each.

python -m benchmarks.runtime.processes --processes 1 2 --nodes 200000 1000000
python -m benchmarks.runtime.processes --table   # only write the table of results

The table has the time of a forward and backward pass over all nodes and the bytes that each process
sends, beside one process.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path

import torch
import torch.distributed as dist
from tqdm import tqdm

from benchmarks.common.arguments import add_table, positive, script_parser
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import run_script, source
from benchmarks.common.tables import write_table
from benchmarks.runtime.measure import environment
from torch_geometric_lgt.nn import KernelAttentionConv

CHANNELS, FEATURES = 64, 64


def work(num_nodes: int, repeats: int, path: str) -> None:
    r"""Runs one process with its share of the nodes and one thread."""
    torch.set_num_threads(1)
    dist.init_process_group('gloo')
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    conv = KernelAttentionConv(CHANNELS, CHANNELS, num_features=FEATURES)
    x = torch.randn(num_nodes, CHANNELS).tensor_split(world)[rank].requires_grad_()
    seconds = []
    for _ in range(repeats + 1):
        dist.barrier()
        start = time.perf_counter()
        state = conv.attention_state(x).all_reduce()
        conv(x, state=state).square().sum().backward()
        dist.barrier()
        seconds.append(time.perf_counter() - start)
    sent = sum(
        part.numel() * part.element_size()
        for part in (state.sums, state.maximum, state.squares, state.query_squares)
    )
    if rank == 0:
        text = json.dumps({'seconds': seconds[1:], 'bytes': [sent]})
        Path(path).write_text(text, encoding='utf-8')
    dist.destroy_process_group()


def launch(world: int, num_nodes: int, repeats: int) -> dict[str, list[float]]:
    r"""Runs the processes under torchrun and returns the metrics."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / 'figures.json'
        command = [
            'torch.distributed.run',
            '--standalone',
            f'--nproc-per-node={world}',
            '-m',
            'benchmarks.runtime.processes',
        ]
        sizes = ['--worker', str(path), '--nodes', str(num_nodes), '--repeats', str(repeats)]
        subprocess.run([sys.executable, '-m', *command, *sizes], check=True, env=environment())
        return json.loads(path.read_text(encoding='utf-8'))


def rows(folder: Path) -> list[dict[str, str]]:
    r"""Formats a row per number of nodes and of processes."""
    records = read_results(folder, 'processes-*.json')
    records.sort(key=lambda record: (record['config']['nodes'], record['config']['processes']))
    alone = {
        r['config']['nodes']: r['metrics']['seconds']['median']
        for r in records
        if r['config']['processes'] == 1
    }
    out = []
    for record in records:
        nodes, seconds = record['config']['nodes'], record['metrics']['seconds']['median']
        faster = f'{alone[nodes] / seconds:.2f}' if nodes in alone else ''
        exchanged = f'{record["metrics"]["bytes"]["median"] / 1000:.1f}'
        sizes = {'nodes': f'{nodes:,}', 'processes': str(record['config']['processes'])}
        out.append(
            sizes
            | {
                'ms': f'{1e3 * seconds:.0f}',
                'times one process': faster,
                'kB exchanged per layer': exchanged,
            }
        )
    return out


def main() -> None:
    parser = script_parser(__doc__)
    parser.groups['measurement'].add_argument(
        '--processes', nargs='+', type=positive, default=[1, 2], help='numbers of processes'
    )
    parser.groups['measurement'].add_argument(
        '--nodes', nargs='+', type=positive, default=[200_000, 1_000_000], help='numbers of nodes'
    )
    parser.groups['measurement'].add_argument(
        '--repeats', type=positive, default=5, help='passes that are timed'
    )
    add_table(parser)
    parser.add_argument('--worker', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker is not None:
        work(args.nodes[0], args.repeats, args.worker)
        return
    runs = [] if args.table else [*product(args.nodes, args.processes)]
    for num_nodes, world in tqdm(runs, disable=not runs):
        metrics = launch(world, num_nodes, args.repeats)
        config = {
            'nodes': num_nodes,
            'processes': world,
            'channels': CHANNELS,
            'features': FEATURES,
        }
        name = f'{num_nodes}-nodes-{world}'
        labels = {'variant': '', 'protocol': 'torchrun', 'seeds': [0], 'folder': args.output}
        write_result('runtime', name, 'processes', metrics=metrics, config=config, **labels)
    results = source(args, 'runtime', 'processes-*.json')
    print(write_table(args.output / 'runtime' / 'processes', rows(results)))


if __name__ == '__main__':
    run_script(main)
