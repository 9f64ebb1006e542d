r"""Measures each layer and model with and without ``torch.compile(dynamic=True)``.

python -m benchmarks.runtime.compiled           # write runtime/compiled-*.json, then the table
python -m benchmarks.runtime.compiled --table   # only write the table of existing results

The table has graph breaks, compilations over three sizes of the graph, and seconds until the first
pass is done. Passes of both are timed in turn in one process.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.utils import counters
from torch.nn import Module
from torch_geometric.data import Data
from tqdm import tqdm

from benchmarks.common.arguments import add_table, positive, script_parser
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import run_script, source
from benchmarks.common.tables import write_table
from benchmarks.runtime.measure import fresh, seconds
from benchmarks.runtime.models import CHANNELS, SIZES, graph
from torch_geometric_lgt.nn import (
    DegreeMaskedAttention,
    DIFFormer,
    DIFFormerConv,
    JaccardSubtractorConv,
    KernelAttentionConv,
    LiteGT,
    MGFormer,
    NodeFormer,
    SGFormer,
    SGFormerConv,
)
from torch_geometric_lgt.transforms import AttentionNodeSampling, JaccardScores, NodeDegree

NODES = 20_000
OTHER_NODES = (15_000, 23_000)
WARM = 3
Call = Callable[[Module, Data], Tensor]


def prepared(num_nodes: int) -> Data:
    r"""Makes a random graph with degrees, Jaccard indices, sampled nodes and the edges of the
    relational bias."""
    data = AttentionNodeSampling()(JaccardScores()(NodeDegree()(graph(num_nodes))))
    data.hops = NodeFormer(*SIZES).hops(data.edge_index, num_nodes)
    return data


def scored(model: Module, data: Data) -> Tensor:
    return model(
        data.x, data.edge_index, edge_jaccard=data.edge_jaccard, sampled_mask=data.attention_mask
    )


def nodes(model: Module, data: Data) -> Tensor:
    return model(data.x)


def edges(model: Module, data: Data) -> Tensor:
    return model(data.x, data.edge_index)


class Embedding(MGFormer):
    r"""Gives MGFormer, whose graph has one size, the embeddings of all nodes as its output."""

    def __init__(self) -> None:
        degree = NodeDegree()(graph(NODES)).degree
        super().__init__(
            NODES // 2, NODES // 2, CHANNELS, degree=degree, max_degree=int(degree.max())
        )

    def forward(self) -> Tensor:
        return self.get_embedding()


# How each is made and called.
CASES: dict[str, tuple[Callable[[], Module], Call]] = {
    'KernelAttentionConv': (partial(KernelAttentionConv, CHANNELS, CHANNELS, heads=4), nodes),
    'DegreeMaskedAttention': (
        partial(DegreeMaskedAttention, CHANNELS, max_degree=100),
        lambda model, data: model(data.x, degree=data.degree),
    ),
    'JaccardSubtractorConv': (partial(JaccardSubtractorConv, CHANNELS, CHANNELS, heads=4), scored),
    'DIFFormerConv': (partial(DIFFormerConv, CHANNELS, CHANNELS), edges),
    'SGFormerConv': (partial(SGFormerConv, CHANNELS, CHANNELS), nodes),
    'NodeFormer': (
        partial(NodeFormer, *SIZES, num_layers=2),
        lambda model, data: model(data.x, data.hops),
    ),
    'DIFFormer': (partial(DIFFormer, *SIZES, num_layers=2), edges),
    'SGFormer': (partial(SGFormer, *SIZES), edges),
    'LiteGT': (partial(LiteGT, *SIZES, num_layers=2), scored),
    'MGFormer': (Embedding, lambda model, data: model()),
}


def work(case: str, repeats: int) -> dict[str, list[float]]:
    r"""Measures one layer or model in this process. Graphs of later sizes must run the code that
    was compiled for the first size."""
    torch.manual_seed(0)
    torch.compiler.reset()
    counters.clear()
    make, call = CASES[case]
    module, data = make(), prepared(NODES)
    compiled: Any = torch.compile(module, dynamic=True)

    def run(function: Module, data: Data) -> None:
        call(function, data).square().mean().backward()

    first = seconds(lambda: run(compiled, data), 1)
    graphs = counters['stats']['unique_graphs']
    for size in OTHER_NODES:
        run(compiled, prepared(size))
    again = counters['stats']['unique_graphs'] - graphs
    metrics: dict[str, list[float]] = {'eager': [], 'compiled': []}
    for _ in range(WARM):
        run(module, data)
        run(compiled, data)
    for _ in range(repeats):
        metrics['eager'] += seconds(lambda: run(module, data), 1)
        metrics['compiled'] += seconds(lambda: run(compiled, data), 1)
    return metrics | {
        'first': first,
        'graph_breaks': [float(sum(counters['graph_break'].values()))],
        'recompilations': [float(again)],
    }


def row(record: dict[str, Any]) -> dict[str, str]:
    metric = record['metrics']
    median = {name: values['median'] for name, values in metric.items()}
    return {
        'layer or model': record['variant'],
        'graph breaks': f'{median["graph_breaks"]:.0f}',
        'compiled again for other sizes': ''
        if record['variant'] == 'MGFormer'
        else f'{median["recompilations"]:.0f}',
        'first pass (s)': f'{median["first"]:.1f}',
        'eager (ms)': f'{1e3 * median["eager"]:.0f}',
        'compiled (ms)': f'{1e3 * median["compiled"]:.0f}',
        'compiled / eager': f'{median["compiled"] / median["eager"]:.2f}',
        'best / best': f'{metric["compiled"]["min"] / metric["eager"]["min"]:.2f}',
    }


def main() -> None:
    parser = script_parser(__doc__)
    parser.groups['model'].add_argument(
        '--cases',
        nargs='+',
        choices=CASES,
        default=[*CASES],
        help='the layers and models that are measured',
    )
    parser.groups['measurement'].add_argument(
        '--repeats', type=positive, default=10, help='passes of each, in turn'
    )
    add_table(parser)
    args = parser.parse_args()
    for case in tqdm([] if args.table else args.cases):
        metrics = fresh('benchmarks.runtime.compiled', {'case': case, 'repeats': args.repeats})
        config = {
            'num_nodes': NODES,
            'other_nodes': OTHER_NODES,
            'channels': CHANNELS,
            'repeats': args.repeats,
        }
        labels = {'variant': case, 'protocol': 'in-turn', 'seeds': [0], 'folder': args.output}
        write_result('runtime', 'random', 'compiled', metrics=metrics, config=config, **labels)
    pattern = 'compiled-random-*.json'
    records = read_results(source(args, 'runtime', pattern), pattern)
    records.sort(key=lambda record: [*CASES].index(record['variant']))
    print(write_table(args.output / 'runtime' / 'compiled', [row(record) for record in records]))


if __name__ == '__main__':
    run_script(main)
