r"""Measures the trainings of ``benchmarks/ogb`` on random graphs of the same sizes.

python -m benchmarks.runtime.ogb_shapes --shapes arxiv proteins --models sgformer nodeformer
python -m benchmarks.runtime.ogb_shapes --shapes arxiv --models sgformer-as-pyg pyg-sgformer
python -m benchmarks.runtime.ogb_shapes --table   # only write the table of results

The table has the seconds of an epoch and of an inference, and the peak of memory. Models run in
fresh processes, in turn. ``pyg-sgformer`` is PyG's model, and ``sgformer-as-pyg`` ours with the
same outputs. Both train on whole graphs only.
"""

import gc
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn.models import SGFormer as PyGSGFormer
from tqdm import tqdm

from benchmarks.common.arguments import add_measured_device, add_table, positive, script_parser
from benchmarks.common.memory import process_peak_mib
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import run_script, source
from benchmarks.common.tables import write_table
from benchmarks.large_graphs.batches import Batches, measure_scores
from benchmarks.large_graphs.datasets import NodeTask
from benchmarks.large_graphs.models import loss_of, network
from benchmarks.large_graphs.settings import BASE, DOMAINS
from benchmarks.runtime.measure import fresh, seconds
from benchmarks.runtime.models import sgformer_as_pyg


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
    'sgformer-as-pyg': {},
    'pyg-sgformer': {},
}
WHOLE = {'sgformer-as-pyg', 'pyg-sgformer'}


class WholeGraphSGFormer(PyGSGFormer):
    r"""Calls PyG's model with one graph, like the other models."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(x, edge_index, edge_index.new_zeros(x.size(0)))


def model_of(data: NodeTask, config: dict[str, Any]) -> torch.nn.Module:
    r"""Builds the model of a configuration, or one of the two that compute what PyG's computes."""
    model, hidden = config['model'], config['hidden_channels']
    sizes = data.data['x'].size(1), hidden, data.num_outputs
    if model == 'pyg-sgformer':
        return WholeGraphSGFormer(*sizes, trans_num_layers=1, gnn_num_layers=3)
    if model == 'sgformer-as-pyg':
        return sgformer_as_pyg(sizes, 3, 0.5)
    return network(data, config)


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
    if device != 'cpu':
        gc.collect()  # models of earlier calls
        torch.cuda.reset_peak_memory_stats(device)
    data = task(shape, fraction)
    net = model_of(data, config).to(device)
    batches, optimizer = Batches(data, net, config), torch.optim.Adam(net.parameters())

    def epoch() -> None:
        for batch in batches:
            optimizer.zero_grad()
            loss_of(net, batch.to(torch.device(device)), shape.binary, 0.0).backward()
            optimizer.step()

    def inference() -> None:
        net.eval()
        with torch.no_grad():
            measure_scores(net, batches, len)

    metrics = {}
    for step in (epoch, inference):
        if config['domain'] == 'graph':
            step()
        metrics[f'{step.__name__}_seconds'] = seconds(step, rounds, device)
    if device == 'cpu':
        return metrics | {'gib': [process_peak_mib() / 1024]}
    return metrics | {'gib': [torch.cuda.max_memory_allocated(device) / 2**30]}


def measure(shapes: list[str], models: list[str], rounds: int, device: str, folder: Path) -> None:
    r"""Writes a result for each shape and model."""
    with tqdm(total=len(shapes) * len(models) * rounds) as bar:
        for name in shapes:
            metrics: dict[str, dict[str, list[float]]] = {model: {} for model in models}
            for _, model in product(range(rounds), models):
                bar.set_postfix_str(f'{name}, {model}')
                work = {'name': name, 'model': model, 'device': device}
                for metric, values in fresh('benchmarks.runtime.ogb_shapes', work).items():
                    metrics[model].setdefault(metric, []).extend(values)
                bar.update()
            for model in models:
                config = {
                    **SHAPES[name].config,
                    **OPTIONS[model],
                    'model': model,
                    'nodes': SHAPES[name].nodes,
                    'edges': 2 * SHAPES[name].edges,
                }
                labels = {
                    'variant': model if device == 'cpu' else f'{model}-{device}',
                    'protocol': 'random-content',
                    'seeds': [0],
                    'folder': folder,
                }
                write_result(
                    'runtime', name, 'ogb-shape', metrics=metrics[model], config=config, **labels
                )


def rows(folder: Path) -> list[dict[str, str]]:
    records = read_results(folder, 'ogb-shape-*.json')
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
        choices=OPTIONS,
        default=['sgformer', 'nodeformer'],
        help='the models that are measured',
    )
    parser.groups['measurement'].add_argument(
        '--rounds', type=positive, default=1, help='fresh processes for each model and shape'
    )
    add_measured_device(parser)
    add_table(parser)
    args = parser.parse_args()
    parts = [shape for shape in args.shapes if SHAPES[shape].config['domain'] != 'graph']
    if parts and not args.table and not WHOLE.isdisjoint(args.models):
        parser.error(
            f'{" and ".join(sorted(WHOLE))} train on whole graphs: give --shapes without '
            f'{" and ".join(parts)}'
        )
    if not args.table:
        measure(args.shapes, args.models, args.rounds, args.device, args.output)
    results = source(args, 'runtime', 'ogb-shape-*.json')
    print(write_table(args.output / 'runtime' / 'ogb-shapes', rows(results)))


if __name__ == '__main__':
    run_script(main)
