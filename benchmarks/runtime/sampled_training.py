r"""Measures the training of ``benchmarks.ogb.ogbn_papers100m`` on a random graph.

python -m benchmarks.runtime.sampled_training --nodes 10000000 --batches 3 --folder SCRATCH
python -m benchmarks.runtime.sampled_training --table   # only write the table of results

The graph has the shape of ogbn-papers100M at a fraction of its nodes, in mapped files. The table
has the time of a batch, and what it is for all batches of an epoch. Memory is that outside the page
cache.
"""

import shutil
import statistics
import time
from itertools import chain, islice, repeat
from pathlib import Path

import torch

from benchmarks.common.arguments import add_table, output_folder, positive, script_parser
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import run_script, source
from benchmarks.common.tables import write_table
from benchmarks.large_graphs.batches import Batches
from benchmarks.large_graphs.datasets import NodeTask
from benchmarks.large_graphs.models import MODELS, loss_of, network
from benchmarks.large_graphs.settings import BASE, PAPERS100M
from benchmarks.runtime.measure import fresh
from benchmarks.runtime.out_of_core import CLASSES, EDGES_PER_NODE, Memory, write
from torch_geometric_lgt.data import MappedGraph


def work(folder: str, model: str, number: int) -> dict[str, list[float]]:
    r"""Trains a model on :obj:`number` batches after one that does not count. Returns the sizes
    and seconds of each, the number of batches of an epoch and the peak of memory in GiB."""
    graph, config = MappedGraph(folder), {**BASE, **PAPERS100M[model], 'model': model}
    nodes = graph['train_mask'].nonzero().flatten()
    task = NodeTask(graph, {'train': nodes, 'valid': nodes}, CLASSES, False, '', lambda *_: 0.0)
    torch.manual_seed(0)
    net, memory = network(task, config), Memory()
    batches, optimizer = Batches(task, net, config), torch.optim.Adam(net.parameters())
    memory.start()
    metrics: dict[str, list[float]] = {'nodes': [], 'edges': [], 'seconds': []}
    start = time.perf_counter()
    epochs = chain.from_iterable(repeat(batches))
    for step, batch in enumerate(islice(epochs, number + 1)):
        optimizer.zero_grad()
        loss_of(net, batch, False, 0.0).backward()
        optimizer.step()
        end = time.perf_counter()
        if step > 0:
            values = batch.data.num_nodes, batch.data.num_edges, end - start
            for name, value in zip(metrics, values, strict=True):
                metrics[name].append(float(value))
        start = end
    memory.ended.set()
    return metrics | {'batches': [float(len(batches))], 'gib': [memory.peak / 1024]}


def rows(folder: Path) -> list[dict[str, str]]:
    records = read_results(folder, 'sampled-training-*.json')
    out = []
    for record in sorted(records, key=lambda record: record['config']['nodes']):
        metrics = {name: part['median'] for name, part in record['metrics'].items()}
        mean = statistics.fmean(record['metrics']['seconds']['values'])
        out.append(
            {
                'nodes': f'{record["config"]["nodes"]:,}',
                'model': record['config']['model'],
                'nodes of a batch': f'{metrics["nodes"]:,.0f}',
                'edges of a batch': f'{metrics["edges"]:,.0f}',
                's / batch': f'{mean:.1f}',
                'batches measured': str(len(record['metrics']['seconds']['values'])),
                'batches of an epoch': f'{metrics["batches"]:.0f}',
                'min / epoch': f'{mean * metrics["batches"] / 60:.0f}',
                'GiB': f'{metrics["gib"]:.1f}',
            }
        )
    return out


def main() -> None:
    parser = script_parser(__doc__)
    groups = parser.groups
    groups['data'].add_argument(
        '--nodes', type=positive, default=10_000_000, help='number of nodes'
    )
    groups['model'].add_argument(
        '--model', choices=MODELS, default='sgformer', help='the model that is trained'
    )
    groups['measurement'].add_argument(
        '--batches', type=positive, default=3, help='batches that are measured'
    )
    groups['output'].add_argument(
        '--folder',
        type=output_folder,
        metavar='DIR',
        help='for files of some 700 bytes for each node, removed at the end',
    )
    add_table(parser)
    args = parser.parse_args()
    if args.folder is None and not args.table:
        parser.error('--folder must name a folder for the files of the graph')
    if not args.table:
        scratch = args.folder / f'sampled-training-{args.nodes}'
        try:
            write(scratch, args.nodes)
            metrics = fresh(
                'benchmarks.runtime.sampled_training',
                {'folder': str(scratch / 'graph'), 'model': args.model, 'number': args.batches},
            )
        finally:
            shutil.rmtree(scratch)
        write_result(
            'runtime',
            str(args.nodes),
            'sampled-training',
            variant=args.model,
            protocol='',
            seeds=[0],
            metrics=metrics,
            config={
                **PAPERS100M[args.model],
                'model': args.model,
                'nodes': args.nodes,
                'edges': EDGES_PER_NODE * args.nodes,
            },
            folder=args.output,
        )
    print(
        write_table(
            args.output / 'runtime' / 'sampled-training',
            rows(source(args, 'runtime', 'sampled-training-*.json')),
        )
    )


if __name__ == '__main__':
    run_script(main)
