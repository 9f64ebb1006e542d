r"""Measures training and inference on a graph in mapped files.

python -m benchmarks.runtime.out_of_core --nodes 1000000 3000000 10000000 --folder SCRATCH

The graph has the shape of ogbn-papers100M at a fraction of its nodes. The table has the seconds to
write it, of an epoch by neighbour sampling, and of inference layer by layer. The memory is that
outside the page cache.
"""

import math
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from benchmarks.common.arguments import add_table, output_folder, positive, script_parser
from benchmarks.common.memory import process_peak_mib, require_linux, resident_mib
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import run_script, source
from benchmarks.common.tables import write_table
from benchmarks.runtime.measure import fresh
from torch_geometric_lgt.data import MappedGraph, write_graph
from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.nn import SGFormer

# of ogbn-papers100M
WHOLE = 111_059_956
EDGES_PER_NODE = 15  # 14.5 in the data set
FEATURES = 128
CLASSES = 172
TRAINED = 0.011  # share of the nodes
CHUNK = 1 << 20
STEPS = {'write': 'write', 'epoch': 'epoch of training', 'inference': 'inference'}


class Memory(threading.Thread):
    r"""Samples the memory of this process that no file backs, every 50 ms, and records the peak
    in MiB."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak, self.ended = resident_mib('RssAnon'), threading.Event()

    def run(self) -> None:
        while not self.ended.wait(0.05):
            self.peak = max(self.peak, resident_mib('RssAnon'))


def write(folder: Path, num_nodes: int) -> None:
    r"""Writes a graph whose sources have heavy-tailed degrees, with random features and labels,
    chunk by chunk."""
    random, raw = np.random.default_rng(0), folder / 'raw'
    raw.mkdir(parents=True)
    edges = np.lib.format.open_memmap(
        raw / 'edges.npy', 'w+', np.int32, (2, EDGES_PER_NODE * num_nodes)
    )
    x = np.lib.format.open_memmap(raw / 'x.npy', 'w+', np.float16, (num_nodes, FEATURES))
    for start in range(0, edges.shape[1], CHUNK):
        part = slice(start, min(start + CHUNK, edges.shape[1]))
        count = part.stop - start
        edges[0, part] = (num_nodes * random.random(count) ** 3).astype(np.int32)
        edges[1, part] = random.integers(0, num_nodes, count, np.int32)
    for start in range(0, num_nodes, CHUNK):
        part = slice(start, min(start + CHUNK, num_nodes))
        x[part] = random.standard_normal((part.stop - start, FEATURES), np.float32)
    attributes = {
        'x': x,
        'y': random.integers(0, CLASSES, (num_nodes, 1)),
        'train_mask': random.random(num_nodes) < TRAINED,
    }
    write_graph(folder / 'graph', edges, num_nodes, attributes)
    shutil.rmtree(raw)


def epoch(graph: MappedGraph, model: SGFormer) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    nodes = graph['train_mask'].nonzero().flatten()
    for batch in tqdm(
        NeighborLoader((graph, graph), [10, 10], input_nodes=nodes, batch_size=1024, shuffle=True),
        'training',
    ):
        optimizer.zero_grad()
        num_seeds = batch.batch_size
        cross_entropy(
            model(batch.x.float(), batch.edge_index)[:num_seeds], batch.y[:num_seeds, 0]
        ).backward()
        optimizer.step()


def work(folder: str, num_nodes: int, step: str) -> dict[str, list[float]]:
    r"""Measures the seconds and the peak memory in GiB of one step."""
    graph_folder, memory = Path(folder), Memory()
    memory.start()
    start = time.perf_counter()
    if step == 'write':
        write(graph_folder, num_nodes)
    else:
        graph, model = MappedGraph(graph_folder / 'graph'), SGFormer(FEATURES, 64, CLASSES)
        if step == 'epoch':
            epoch(graph, model)
        else:
            model.inference(
                NeighborLoader((graph, graph), [-1], batch_size=100_000),
                graph_folder / 'scores',
                progress_bar=True,
            )
    seconds = time.perf_counter() - start
    memory.ended.set()
    gib = {'gib': [memory.peak / 1024], 'with_mapped_gib': [process_peak_mib() / 1024]}
    return {'seconds': [seconds]} | gib


def rows(folder: Path) -> list[dict[str, str]]:
    r"""Formats a row per number of nodes and step. A last row extrapolates the two largest sizes
    to all nodes of ogbn-papers100M."""
    records = read_results(folder, 'out-of-core-*.json')
    records.sort(key=lambda record: record['config']['nodes'])
    out = [
        row(f'{record["config"]["nodes"]:,}', step, *figures(record, step))
        for record in records
        for step in STEPS
    ]
    for step in STEPS if len(records) > 1 else []:
        (few, less), (many, more) = (
            (record['config']['nodes'], figures(record, step)) for record in records[-2:]
        )
        slopes = [math.log(b / a) / math.log(many / few) for a, b in zip(less, more, strict=True)]
        whole = [b * (WHOLE / many) ** slope for b, slope in zip(more, slopes, strict=True)]
        estimated = {
            'GiB with mapped pages': 'what there is',
            'seconds grow as N to the': f'{slopes[0]:.2f}',
        }
        out.append(row(f'{WHOLE:,} (estimated)', step, *whole) | estimated)
    return out


def figures(record: dict[str, Any], step: str) -> list[float]:
    return [
        record['metrics'][f'{step}_{name}']['median']
        for name in ('seconds', 'gib', 'with_mapped_gib')
    ]


def row(nodes: str, step: str, seconds: float, gib: float, mapped: float) -> dict[str, str]:
    sizes = {'GiB': f'{gib:.2f}', 'GiB with mapped pages': f'{mapped:.2f}'}
    return {
        'nodes': nodes,
        'step': STEPS[step],
        'seconds': f'{seconds:.0f}',
        **sizes,
        'seconds grow as N to the': '',
    }


def main() -> None:
    parser = script_parser(__doc__)
    parser.groups['measurement'].add_argument(
        '--nodes',
        nargs='+',
        type=positive,
        default=[1_000_000, 3_000_000, 10_000_000],
        help='numbers of nodes',
    )
    parser.groups['output'].add_argument(
        '--folder',
        type=output_folder,
        metavar='DIR',
        help='for files of some 3.5 kB for each node, removed at the end',
    )
    add_table(parser)
    args = parser.parse_args()
    if args.folder is None and not args.table:
        parser.error('--folder must name a folder for the files of the graph')
    if not args.table:
        require_linux()
    for num_nodes in [] if args.table else args.nodes:
        graph_folder = args.folder / f'out-of-core-{num_nodes}'
        metrics: dict[str, list[float]] = {}
        for step in tqdm(STEPS, desc=f'{num_nodes:,} nodes'):
            figures = fresh(
                'benchmarks.runtime.out_of_core',
                {'folder': str(graph_folder), 'num_nodes': num_nodes, 'step': step},
            )
            metrics |= {f'{step}_{name}': values for name, values in figures.items()}
        shutil.rmtree(graph_folder)
        config = {
            'nodes': num_nodes,
            'edges': EDGES_PER_NODE * num_nodes,
            'features': FEATURES,
            'hidden_channels': 64,
        }
        labels = {'variant': '', 'protocol': '', 'seeds': [0], 'folder': args.output}
        write_result(
            'runtime', str(num_nodes), 'out-of-core', metrics=metrics, config=config, **labels
        )
    print(
        write_table(
            args.output / 'runtime' / 'out-of-core',
            rows(source(args, 'runtime', 'out-of-core-*.json')),
        )
    )


if __name__ == '__main__':
    run_script(main)
