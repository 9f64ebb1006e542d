r"""Counts the work of LiteGT's attention layers beside Table 2 of the paper.

python -m benchmarks.runtime.edge_attention   # write runtime/edge-attention-*.json and a table

The layers are also timed, edge by edge (section 5.3 of the paper) and as they run.
"""

# N nodes, E edges, R neighbours of a node, T heads, d channels of a head.
import json
import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.flop_counter import FlopCounterMode
from torch_geometric.data import Data
from tqdm import tqdm

from benchmarks.common.arguments import positive, script_parser
from benchmarks.common.results import write_result
from benchmarks.common.scripts import run_script
from benchmarks.common.tables import write_table
from benchmarks.many_graphs.models import TRANSFORMERS
from benchmarks.runtime import transform_cases
from benchmarks.runtime.measure import seconds
from benchmarks.runtime.transform_cases import cluster
from torch_geometric_lgt.functional import sorted_edges
from torch_geometric_lgt.nn import JaccardSubtractorConv, LiteGT
from torch_geometric_lgt.testing._saved import SavedStorages
from torch_geometric_lgt.transforms import AttentionNodeSampling, JaccardScores

WIDTH, HEADS, LAYERS, HALVINGS = 80, 8, 12, 2
FIGURES = (
    'multiplications',
    'score_multiplications',
    'kept_numbers',
    'forward_seconds',
    'edge_by_edge_seconds',
)
MODELS = [name for name in TRANSFORMERS if name == 'gt' or name.startswith('litegt')]
GRAPHS: dict[str, Callable[[], Data]] = {
    'cluster-graph': lambda: cluster(1)[0],
    'regular-100k-nodes': transform_cases.GRAPHS['regular-100k-nodes'],
}


class Table2(NamedTuple):
    r"""Holds the printed formulas of one layer: multiplications and stored numbers."""

    multiplications: Callable[[float, float, float, float], float]
    numbers: Callable[[float, float, float, float], float]


def table_2() -> dict[str, Table2]:
    n, log = HALVINGS, math.log

    def sampled(values: float, keys: float) -> Table2:
        return Table2(
            lambda N, R, T, d: T * R * d * log(N) / 2 + values * T * N * d**2 + T * d**2 * log(N),
            lambda N, R, T, d: T * N * d + keys * T * d * log(N) + (1 + keys) * T * d**2,
        )

    def reduced(values: float, keys: float) -> Table2:
        return Table2(
            lambda N, R, T, d: (
                T * R * d * log(N) / n
                + values * 4 / n**2 * T * N * d**2
                + 4 / n**2 * T * d**2 * log(N)
            ),
            lambda N, R, T, d: (
                2 / n * (T * N * d + keys * T * d * log(N)) + (4 + 4 * keys) / n**2 * T * d**2
            ),
        )

    return {
        'gt': Table2(
            lambda N, R, T, d: T * N * R * d + 3 * T * N * d**2,
            lambda N, R, T, d: 3 * T * N * d + 3 * T * d**2,
        ),
        'litegt-jaccard': Table2(
            lambda N, R, T, d: T * N * R * d / 2 + 2 * T * N * d**2,
            lambda N, R, T, d: 2 * T * N * d + 2 * T * d**2,
        ),
        'litegt-subtractor': Table2(
            lambda N, R, T, d: T * N * R * d / 2 + 3 * T * N * d**2,
            lambda N, R, T, d: 3 * T * N * d + 3 * T * d**2,
        ),
        'litegt-jaccard-sampling': sampled(1, 1),
        'litegt-subtractor-sampling': sampled(2, 2),
        'litegt-jaccard-sampling-reduced': reduced(1, 1),
        'litegt-subtractor-sampling-reduced': reduced(2, 2),
    }


def layers(name: str) -> list[JaccardSubtractorConv]:
    torch.manual_seed(0)
    kernel, step = TRANSFORMERS[name]
    return [
        layer.conv
        for layer in LiteGT(1, WIDTH, 1, LAYERS, HEADS, kernel, reduce='reduced' in step).layers
    ]


def measure(name: str, data: Data, repeats: int) -> dict[str, float]:
    r"""Measures the forward pass of all layers: all multiplications, those of scores, numbers
    stored for the backward pass, and seconds."""
    convs, mask = layers(name), data.attention_mask if 'sampling' in name else None
    edges = sorted_edges(data.edge_index, data.num_nodes, data.num_nodes)
    x = torch.randn(data.num_nodes, WIDTH)

    def run(requires_grad: bool = False) -> list[torch.Tensor]:
        return [
            conv(
                x[:, : conv.in_channels].requires_grad_(requires_grad),
                edges,
                data.edge_jaccard,
                mask,
            )
            for conv in convs
        ]

    with FlopCounterMode(display=False) as counter:
        run()
    counts = {
        str(op).split('.')[1]: count // 2
        for op, count in counter.get_flop_counts()['Global'].items()
    }
    with SavedStorages([x, *(part for part in edges if isinstance(part, torch.Tensor))]) as stored:
        alive = run(True)
    del alive
    with torch.no_grad():
        times = sorted(seconds(run, repeats))
        one_by_one = sum(edge_by_edge(conv, data, x[:, : conv.in_channels], mask) for conv in convs)
    return {
        'multiplications': sum(count for op, count in counts.items() if op != 'edge_distances'),
        'score_multiplications': sum(scores(conv, data, mask) for conv in convs),
        'kept_numbers': sum(stored.sizes) // 4,
        'forward_seconds': times[len(times) // 2],
        'edge_by_edge_seconds': one_by_one,
    }


def scores(conv: JaccardSubtractorConv, data: Data, mask: torch.Tensor | None) -> int:
    r"""Counts the multiplications of queries with keys."""
    attending = data.num_edges if mask is None else int(mask[data.edge_index[1]].sum())
    return attending * conv.head_channels * conv.heads // 2 * conv.kernels.count('softmax')


def edge_by_edge(
    conv: JaccardSubtractorConv,
    data: Data,
    x: torch.Tensor,
    mask: torch.Tensor | None,
    most: int = 5000,
) -> float:
    r"""Times the scores of edges one after the other. Of more than :obj:`most` edges a sample is
    timed."""
    half, total = conv.heads // 2, 0.0
    query, key = (
        lin(x).unflatten(1, (-1, conv.head_channels)) for lin in (conv.lin_query, conv.lin_key)
    )
    for branch, kernel in enumerate(conv.kernels):
        heads = slice(branch * half, branch * half + half)
        pairs = (
            data.edge_index
            if mask is None or branch == 1
            else data.edge_index[:, mask[data.edge_index[1]]]
        )
        number = pairs.size(1)
        sample = pairs[:, torch.randperm(number)[:most]].t().tolist()
        q, k = query[:, heads], key[:, heads]
        start = time.perf_counter()
        for edge, (j, i) in enumerate(sample):
            if kernel == 'softmax':
                (q[i] * k[j]).sum(1)
            elif kernel == 'subtractor':
                (q[i] - k[j]).abs().sum(1)
            else:
                data.edge_jaccard[edge]
        total += (time.perf_counter() - start) * number / max(1, len(sample))
    return total


def row(record: dict[str, Any], model: str) -> dict[str, str]:
    r"""Formats the counts of a model beside the formulas."""
    value, gt = (
        {figure: record['metrics'][f'{name}_{figure}']['median'] for figure in FIGURES}
        for name in (model, 'gt')
    )
    below = {figure: gt[figure] / value[figure] for figure in FIGURES}
    nodes, formula = record['config']['nodes'], table_2()[model]
    sizes = nodes, record['config']['edges'] / nodes, HEADS, WIDTH / HEADS
    return {
        'graph': record['dataset'],
        'model': model,
        'multiplications (M)': f'{value["multiplications"] / 1e6:.3g}',
        'by Table 2': f'{LAYERS * formula.multiplications(*sizes) / 1e6:.3g}',
        'of scores (M)': f'{value["score_multiplications"] / 1e6:.3g}',
        'below gt': f'{below["score_multiplications"]:.1f}',
        'numbers kept (M)': f'{value["kept_numbers"] / 1e6:.3g}',
        'by Table 2 ': f'{LAYERS * formula.numbers(*sizes) / 1e6:.3g}',
        'edge by edge (s)': f'{value["edge_by_edge_seconds"]:.3g}',
        'below gt ': f'{below["edge_by_edge_seconds"]:.1f}',
        'as it runs (ms)': f'{1e3 * value["forward_seconds"]:.3g}',
    }


def main() -> None:
    parser = script_parser(__doc__)
    parser.groups['data'].add_argument(
        '--graphs',
        nargs='+',
        choices=GRAPHS,
        default=[*GRAPHS],
        help='the graphs that are attended over',
    )
    parser.groups['measurement'].add_argument(
        '--repeats', type=positive, default=5, help='passes of each'
    )
    args = parser.parse_args()
    rows = []
    for graph in args.graphs:
        data = AttentionNodeSampling()(JaccardScores()(GRAPHS[graph]()))
        metrics: dict[str, list[float]] = {}
        for model in tqdm(MODELS, desc=graph):
            metrics |= {
                f'{model}_{name}': [float(value)]
                for name, value in measure(model, data, args.repeats).items()
            }
        config = {
            'nodes': data.num_nodes,
            'edges': data.num_edges,
            'channels': WIDTH,
            'heads': HEADS,
            'layers': LAYERS,
        }
        labels = {'variant': '', 'protocol': 'counted', 'seeds': [0], 'folder': args.output}
        path = write_result(
            'runtime', graph, 'edge-attention', metrics=metrics, config=config, **labels
        )
        rows += [row(json.loads(path.read_text(encoding='utf-8')), model) for model in MODELS]
    print(write_table(args.output / 'runtime' / 'edge-attention', rows))


if __name__ == '__main__':
    run_script(main)
