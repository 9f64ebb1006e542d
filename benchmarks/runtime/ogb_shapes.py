r"""Measures the trainings of ``benchmarks/ogb`` on random graphs of the same sizes.

python -m benchmarks.runtime.ogb_shapes --shapes arxiv proteins --models sgformer nodeformer

The table has the seconds of an epoch and of an inference, and the peak of memory.
"""

import argparse
import json
import resource
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch_geometric.data import Data
from tqdm import tqdm

from benchmarks.common.arguments import add_measured_device, script_parser
from benchmarks.common.results import write_result
from benchmarks.common.scripts import run_script
from benchmarks.common.tables import write_table
from benchmarks.large_graphs.batches import Batches, scores_of
from benchmarks.large_graphs.datasets import NodeTask
from benchmarks.large_graphs.models import MODELS, loss_of, network
from benchmarks.large_graphs.settings import BASE, DOMAINS
from benchmarks.runtime.measure import fresh, seconds


class Shape(NamedTuple):
    r"""Describes the sizes of a data set: edges count in one direction, and ``trained`` is the
    share of nodes for training."""

    nodes: int
    edges: int
    features: int
    outputs: int
    binary: bool
    trained: float
    config: dict[str, Any]


SHAPES = {
    'arxiv': Shape(
        169_343, 1_157_799, 128, 40, False, 0.54, {'domain': 'graph', 'hidden_channels': 256}
    ),
    'products': Shape(
        2_449_029, 61_859_140, 100, 47, False, 0.08, {'domain': 'partition', 'hidden_channels': 256}
    ),
    'proteins': Shape(
        132_534, 39_561_252, 8, 112, True, 0.65, {'domain': 'partition', 'hidden_channels': 64}
    ),
}
OPTIONS: dict[str, dict[str, Any]] = {
    'sgformer': {'options': {'gnn_num_layers': 3, 'dropout': 0.5}},
    'nodeformer': {'hidden_channels': 64, 'options': {'num_layers': 2, 'num_gumbel_samples': 5}},
    'difformer': {'options': {'num_layers': 3}},
}


def task(shape: Shape, fraction: float = 1.0) -> NodeTask:
    r"""Makes a random graph with a fraction of the nodes and edges."""
    shape = shape._replace(nodes=int(fraction * shape.nodes), edges=int(fraction * shape.edges))
    pairs = torch.randint(shape.nodes, (2, shape.edges))
    outputs = (
        torch.randint(2, (shape.nodes, shape.outputs))
        if shape.binary
        else torch.randint(shape.outputs, (shape.nodes, 1))
    )
    data = Data(
        x=torch.randn(shape.nodes, shape.features),
        edge_index=torch.cat([pairs, pairs.flip(0)], 1),
        y=outputs,
    )
    data.train_mask = torch.rand(shape.nodes) < shape.trained
    return NodeTask(data, {}, shape.outputs, shape.binary, '', lambda *_: 0.0)


def work(
    name: str,
    model: str,
    device: str = 'cpu',
    domain: str | None = None,
    fraction: float = 1.0,
    rounds: int = 1,
) -> dict[str, list[float]]:
    r"""Measures one model. An epoch or inference of one step, on the whole graph, is measured after
    a first one that does not count. Memory in GiB is the peak of the process, or of the device. A
    :obj:`domain` replaces that of the script."""
    shape, config = SHAPES[name], {**BASE, **SHAPES[name].config, **OPTIONS[model], 'model': model}
    config['domain'] = config['domain'] if domain is None else domain
    torch.manual_seed(0)
    data = task(shape, fraction)
    net = network(data, config).to(device)
    batches, optimizer = Batches(data, net, config), torch.optim.Adam(net.parameters())

    def epoch() -> None:
        for batch in batches:
            optimizer.zero_grad()
            loss_of(net, batch.to(torch.device(device)), shape.binary, 0.0).backward()
            optimizer.step()

    def inference() -> None:
        net.eval()
        with torch.no_grad():
            scores_of(net, batches)

    metrics = {}
    for step in (epoch, inference):
        if config['domain'] == 'graph':
            step()
        metrics[f'{step.__name__}_seconds'] = seconds(step, rounds, device)
    if device == 'cpu':
        return metrics | {'gib': [resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20]}
    return metrics | {'gib': [torch.cuda.max_memory_allocated(device) / 2**30]}


def rows(folder: Path) -> list[dict[str, str]]:
    records = [json.loads(path.read_text()) for path in sorted(folder.glob('ogb-shape-*.json'))]
    return [
        {
            'shape of': f'ogbn-{record["dataset"]}',
            'model': record['config']['model'],
            'attention in training over': DOMAINS[record['config']['domain']],
            's / epoch': f'{record["metrics"]["epoch_seconds"]["median"]:.1f}',
            's inference': f'{record["metrics"]["inference_seconds"]["median"]:.1f}',
            'GiB': f'{record["metrics"]["gib"]["median"]:.1f}',
        }
        for record in records
    ]


def main() -> None:
    parser = script_parser(__doc__)
    parser.groups['data'].add_argument(
        '--shapes',
        nargs='+',
        choices=SHAPES,
        default=['arxiv', 'proteins'],
        help='the data sets whose sizes are taken',
    )
    parser.groups['model'].add_argument(
        '--models',
        nargs='+',
        choices=MODELS,
        default=['sgformer', 'nodeformer'],
        help='the models that are measured',
    )
    add_measured_device(parser)
    parser.add_argument('--worker', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker is not None:
        print(json.dumps(work(**json.loads(args.worker))))
        return
    for name, model in tqdm([*product(args.shapes, args.models)]):
        metrics = fresh(
            'benchmarks.runtime.ogb_shapes', {'name': name, 'model': model, 'device': args.device}
        )
        config = {
            **SHAPES[name].config,
            **OPTIONS[model],
            'model': model,
            'nodes': SHAPES[name].nodes,
            'edges': 2 * SHAPES[name].edges,
        }
        variant = model if args.device == 'cpu' else f'{model}-{args.device}'
        labels = {
            'variant': variant,
            'protocol': 'random-content',
            'seeds': [0],
            'folder': args.output,
        }
        write_result('runtime', name, 'ogb-shape', metrics=metrics, config=config, **labels)
    print(write_table(args.output / 'runtime' / 'ogb-shapes', rows(args.output / 'runtime')))


if __name__ == '__main__':
    run_script(main)
