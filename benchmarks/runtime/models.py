r"""Measures a pass of each model over growing graphs, beside exact softmax attention.

python -m benchmarks.runtime.models           # write runtime/models-*.json, table and picture
python -m benchmarks.runtime.models --table   # only write the table and the picture of results

The table has the seconds and the peak memory of a forward and backward pass over random graphs.
Each figure comes from fresh processes, with the models in turn.
"""

# N nodes, 10 N edges.
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Linear, Module, ModuleList
from torch.nn.functional import scaled_dot_product_attention
from torch_geometric.data import Data
from torch_geometric.nn.models import SGFormer as PyGSGFormer
from torch_geometric.nn.models.sgformer import GraphModule
from torch_geometric.transforms import ToSparseTensor
from tqdm import tqdm

from benchmarks.common.arguments import add_measured_device, add_table, positive, script_parser
from benchmarks.common.figures import can_draw, save_figure
from benchmarks.common.memory import require_linux
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import run_script, source
from benchmarks.common.tables import write_table
from benchmarks.runtime.measure import fresh, peak_memory_mib, seconds
from benchmarks.runtime.scaling import FIGURES, growth_figure, slope
from torch_geometric_lgt.nn import DIFFormer, LiteGT, MGFormer, NodeFormer, SGFormer
from torch_geometric_lgt.transforms import AttentionNodeSampling, JaccardScores, NodeDegree

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CHANNELS, CLASSES, DEGREE = 64, 16, 10
SIZES = CHANNELS, CHANNELS, CLASSES
NODES = [1000, 4000, 16_000, 64_000, 256_000, 1_000_000]
LIMIT_SECONDS = 120.0
# The layers of our SGFormer.
PYG = {'trans_num_layers': 1, 'trans_dropout': 0.0, 'gnn_num_layers': 2, 'gnn_dropout': 0.0}
Step = Callable[[], Tensor]


class Quadratic(Module):
    r"""Stacks two layers of exact softmax attention over all nodes, with residuals."""

    def __init__(self) -> None:
        super().__init__()
        self.lin_in, self.lin_out = Linear(CHANNELS, CHANNELS), Linear(CHANNELS, CLASSES)
        self.layers = ModuleList(Linear(CHANNELS, 3 * CHANNELS) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.lin_in(x).relu()
        for layer in self.layers:
            q, k, v = layer(x)[None, None].chunk(3, -1)
            x = x + scaled_dot_product_attention(q, k, v)[0, 0]
        return self.lin_out(x)


def mgformer(data: Data) -> Step:
    half, degree = (data.num_nodes or 0) // 2, NodeDegree()(data).degree
    model = MGFormer(half, half, CHANNELS, degree=degree, max_degree=int(degree.max()))
    return model.get_embedding


def litegt(data: Data) -> Step:
    data = AttentionNodeSampling()(JaccardScores()(data))
    model = LiteGT(*SIZES, num_layers=2)
    return lambda: model(
        data.x, data.edge_index, edge_jaccard=data.edge_jaccard, sampled_mask=data.attention_mask
    )


def pyg_sgformer(data: Data) -> Step:
    return pyg_step(data, data.edge_index)


def pyg_sgformer_sparse(data: Data) -> Step:
    r"""Gives the edges as a sparse matrix of torch-sparse, for which PyG's graph network does not
    gather the rows of edges."""
    return pyg_step(data, ToSparseTensor()(data).adj_t)


def pyg_step(data: Data, edges: Any) -> Step:
    model = PyGSGFormer(*SIZES, **PYG)
    batch = torch.zeros(data.num_nodes or 0, dtype=torch.long)
    return lambda: model(data.x, edges, batch)


def sgformer_as_pyg(sizes: tuple[int, int, int], num_layers: int, dropout: float) -> SGFormer:
    r"""Builds the model that computes what PyG's computes, with PyG's own graph network of
    :obj:`num_layers`. The :obj:`sizes` are those of input, hidden layers and scores."""
    gnn = GraphModule(*sizes[:2], num_layers=num_layers, dropout=dropout)
    as_pyg = {'norm': 'row', 'gnn': gnn, 'gnn_input': 'input', 'activate_layers': True}
    return SGFormer(*sizes, dropout=dropout, **as_pyg)


def quadratic(data: Data) -> Step:
    model = Quadratic()
    return lambda: model(data.x)


def over_edges(make: Callable[[], Module]) -> Callable[[Data], Step]:
    def prepared(data: Data) -> Step:
        model = make()
        return lambda: model(data.x, data.edge_index)

    return prepared


MODELS: dict[str, Callable[[Data], Step]] = {
    'nodeformer': over_edges(lambda: NodeFormer(*SIZES, num_layers=2, num_gumbel_samples=5)),
    'difformer': over_edges(lambda: DIFFormer(*SIZES, num_layers=2)),
    'sgformer': over_edges(lambda: SGFormer(*SIZES)),
    'sgformer-as-pyg': over_edges(lambda: sgformer_as_pyg(SIZES, 2, 0.0)),
    'mgformer': mgformer,
    'litegt': litegt,
    'pyg-sgformer': pyg_sgformer,
    'pyg-sgformer-sparse': pyg_sgformer_sparse,
    'quadratic': quadratic,
}

# The models in words, for the pictures.
TITLES = {
    'nodeformer': 'NodeFormer',
    'difformer': 'DIFFormer',
    'sgformer': 'SGFormer',
    'sgformer-as-pyg': "SGFormer as PyG's",
    'mgformer': 'MGFormer',
    'litegt': 'LiteGT',
    'pyg-sgformer': 'SGFormer of PyG',
    'pyg-sgformer-sparse': "PyG's, sparse",
    'quadratic': 'exact attention',
}


def graph(num_nodes: int) -> Data:
    pairs = torch.randint(num_nodes, (2, DEGREE * num_nodes // 2))
    return Data(
        x=torch.randn(num_nodes, CHANNELS),
        edge_index=torch.cat([pairs, pairs.flip(0)], 1),
        num_nodes=num_nodes,
    )


def work(model: str, num_nodes: int, device: str) -> dict[str, list[float]]:
    r"""Measures the seconds and memory of one pass in this process, after a pass over a small
    graph and one for the memory."""
    torch.manual_seed(0)
    with torch.device(device):
        MODELS[model](
            graph(200)
        )().square().mean().backward()  # libraries are loaded and their buffers are there
        forward = MODELS[model](graph(num_nodes))

    def step() -> None:
        forward().square().mean().backward()

    memory = peak_memory_mib(step, device)
    return {'seconds': seconds(step, 1, device), 'peak_memory_mib': [memory]}


def measure(models: list[str], nodes: list[int], rounds: int, device: str, folder: Path) -> None:
    r"""Writes one result for each model, with the metrics of each size by the number of nodes. A
    size that does not fit into memory, or whose process takes too long, ends the sizes of the
    model."""
    metrics_of: dict[str, dict[str, list[float]]] = {model: {} for model in models}
    late: set[str] = set()
    with tqdm(total=len(models) * len(nodes) * rounds) as bar:
        for size in nodes:
            for _ in range(rounds):
                for model in models:
                    bar.set_postfix_str(f'{model}, {size} nodes')
                    bar.update()
                    settings = {'model': model, 'num_nodes': size, 'device': device}
                    values = (
                        {}
                        if model in late
                        else fresh('benchmarks.runtime.models', settings, LIMIT_SECONDS)
                    )
                    late |= set() if values else {model}
                    for name, value in values.items():
                        metrics_of[model].setdefault(f'{name}-{size}', []).extend(value)
            for model, metrics in metrics_of.items():
                config = {
                    'channels': CHANNELS,
                    'degree': DEGREE,
                    'nodes': nodes,
                    'rounds': rounds,
                    'limit_seconds': LIMIT_SECONDS,
                }
                config |= {'device': device, 'model': model}
                labels = {
                    'variant': model if device == 'cpu' else f'{model}-{device}',
                    'protocol': 'fresh-processes-alternating',
                    'seeds': [0],
                    'folder': folder,
                }
                write_result(
                    'runtime', 'random', 'models', metrics=metrics, config=config, **labels
                )


def records(folder: Path) -> dict[str, dict[str, Any]]:
    results = read_results(folder, 'models-random-*.json')
    results.sort(
        key=lambda record: (record['config']['device'], [*MODELS].index(record['config']['model']))
    )
    return {record['variant']: record for record in results}


def curve(record: dict[str, Any], name: str) -> dict[int, float]:
    r"""Returns the medians of a metric by the number of nodes."""
    return {
        n: record['metrics'][f'{name}-{n}']['median']
        for n in record['config']['nodes']
        if f'{name}-{n}' in record['metrics']
    }


def table(results: dict[str, dict[str, Any]]) -> list[dict[str, str]]:
    r"""Formats the seconds and MiB of each model at each size, and the slopes."""
    rows, sizes = [], sorted({n for record in results.values() for n in record['config']['nodes']})
    for model, record in results.items():
        times, memory = curve(record, 'seconds'), curve(record, 'peak_memory_mib')
        cells = {
            f'{n:,}': f'{times[n]:.3g} s, {memory[n]:.0f} MiB' if n in times else '' for n in sizes
        }
        rows.append(
            {'model': model}
            | cells
            | {'slope of time': slope(times), 'slope of memory': slope(memory)}
        )
    return rows


def figure(results: dict[str, dict[str, Any]]) -> 'Figure':
    r"""Draws the seconds and memory of a pass against the number of nodes."""
    return growth_figure(
        {
            kind: {
                TITLES.get(model, model): curve(record, kind) for model, record in results.items()
            }
            for kind in FIGURES
        }
    )


def main() -> None:
    parser = script_parser(__doc__)
    parser.groups['model'].add_argument(
        '--models',
        nargs='+',
        choices=MODELS,
        default=[*MODELS],
        help='the models that are measured',
    )
    parser.groups['measurement'].add_argument(
        '--nodes', nargs='+', type=positive, default=NODES, help='numbers of nodes'
    )
    parser.groups['measurement'].add_argument(
        '--rounds', type=positive, default=5, help='fresh processes for each model and size'
    )
    add_measured_device(parser)
    add_table(parser)
    args = parser.parse_args()
    if not args.table and args.device == 'cpu':
        require_linux()
    if not args.table:
        measure(args.models, args.nodes, args.rounds, args.device, args.output)
    results = records(source(args, 'runtime', 'models-random-*.json'))
    print(write_table(args.output / 'runtime' / 'models', table(results)))
    if can_draw():
        save_figure(figure(results), args.output / 'runtime' / 'models.png')


if __name__ == '__main__':
    run_script(main)
