r"""Measures calls whose overhead counts: small graphs, and batches of them.

python -m benchmarks.runtime.small_graphs           # write runtime/small-graphs-*.json, the table
python -m benchmarks.runtime.small_graphs --table   # only write the table of results

``call`` is kernel attention with four heads on one graph of 16 nodes, eager and compiled, beside a
linear layer; ``citations`` is the same on as many nodes as Cora has. ``molecules`` is a GPS block
on 128 graphs of 25 nodes, with this package's attention, eager and compiled, and with both
attentions of PyG. ``unequal-molecules`` is the same with graphs of 15 to 35 nodes. All methods of a
case run in turn in one process.
"""

import statistics
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import Linear
from torch_geometric.nn import MLP, GINConv
from torch_geometric.nn import GPSConv as PyGGPSConv
from tqdm import trange

from benchmarks.common.arguments import add_table, positive, script_parser
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import run_script, source
from benchmarks.common.tables import write_table
from benchmarks.runtime.measure import fresh, seconds
from torch_geometric_lgt.nn import GPSConv, KernelAttentionConv

CHANNELS, HEADS = 64, 4
GRAPHS, BONDS = 128, 54
WARM, CALLS = 3, 10
Forward = Callable[[], Tensor]


def call(nodes: int) -> dict[str, Forward]:
    torch.manual_seed(0)
    x = torch.randn(nodes, CHANNELS, requires_grad=True)
    conv, linear = KernelAttentionConv(CHANNELS, CHANNELS, HEADS), Linear(CHANNELS, CHANNELS)
    compiled = torch.compile(conv, dynamic=True)
    return {
        'ours': lambda: conv(x),
        'ours compiled': lambda: compiled(x),
        'linear layer': lambda: linear(x),
    }


def molecules(least: int, most: int) -> dict[str, Forward]:
    r"""Returns the methods for graphs of :obj:`least` to :obj:`most` nodes."""
    torch.manual_seed(0)
    sizes = torch.randint(least, most + 1, (GRAPHS,))
    batch = torch.arange(GRAPHS).repeat_interleave(sizes)
    x = torch.randn(batch.numel(), CHANNELS, requires_grad=True)
    first = sizes.cumsum(0) - sizes
    edges = (torch.rand(2, BONDS, GRAPHS) * sizes).long() + first
    edges = edges.transpose(1, 2).flatten(1)

    def local() -> GINConv:
        return GINConv(MLP([CHANNELS, CHANNELS, CHANNELS]))

    ours = GPSConv(CHANNELS, local(), HEADS)
    compiled = torch.compile(ours, dynamic=True)
    peers = {
        name: PyGGPSConv(CHANNELS, local(), HEADS, attn_type=name)
        for name in ('multihead', 'performer')
    }
    return {
        'ours': lambda: ours(x, edges, batch, batch_size=GRAPHS),
        'ours compiled': lambda: compiled(x, edges, batch, batch_size=GRAPHS),
        'pyg multihead': lambda: peers['multihead'](x, edges, batch),
        'pyg performer': lambda: peers['performer'](x, edges, batch),
    }


CASES = {
    'call': lambda: call(16),
    'citations': lambda: call(2708),
    'molecules': lambda: molecules(25, 25),
    'unequal-molecules': lambda: molecules(15, 35),
}
# The peer of the ratios of a case.
PEERS = {name: 'pyg multihead' if 'molecules' in name else 'linear layer' for name in CASES}
KINDS = {'forward': 'forward', 'forward_backward': 'forward and backward'}


def work(case: str, rounds: int) -> dict[str, list[float]]:
    r"""Times the methods of a case in turn: the mean of some calls for each round."""
    methods = CASES[case]()
    grad = torch.ones_like(next(iter(methods.values()))())
    steps: dict[str, Callable[[], object]] = {}
    for name, forward in methods.items():
        steps[f'{name}/forward'] = torch.no_grad()(forward)
        steps[f'{name}/forward_backward'] = lambda forward=forward: forward().backward(grad)
    for step in steps.values():
        seconds(step, WARM)
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            times[name].append(statistics.fmean(seconds(step, CALLS)))
    return times


def rows(folder: Path) -> list[dict[str, str]]:
    r"""Formats the medians in milliseconds, and their ratios to the peer of the case."""
    out = []
    for record in read_results(folder, 'small-graphs-*.json'):
        case, metrics = record['dataset'], record['metrics']
        for method in dict.fromkeys(name.rpartition('/')[0] for name in metrics):
            row = {'case': case, 'method': method, 'peer': PEERS[case]}
            for kind, title in KINDS.items():
                value, peer = (
                    metrics[f'{name}/{kind}']['median'] for name in (method, PEERS[case])
                )
                row |= {
                    f'{title} (ms)': f'{1e3 * value:.3g}',
                    f'{title} / peer': f'{value / peer:.2f}',
                }
            out.append(row)
    return out


def main() -> None:
    parser = script_parser(__doc__)
    parser.groups['model'].add_argument(
        '--cases', nargs='+', choices=CASES, default=[*CASES], help='what is measured'
    )
    parser.groups['measurement'].add_argument(
        '--rounds', type=positive, default=30, help='rounds of ten calls of each method, in turn'
    )
    add_table(parser)
    args = parser.parse_args()
    for place in trange(0 if args.table else len(args.cases), disable=args.table):
        case = args.cases[place]
        metrics = fresh('benchmarks.runtime.small_graphs', {'case': case, 'rounds': args.rounds})
        config = {'channels': CHANNELS, 'heads': HEADS, 'calls': CALLS, 'rounds': args.rounds}
        labels = {'variant': '', 'protocol': 'in-turn', 'seeds': [0], 'folder': args.output}
        write_result('runtime', case, 'small-graphs', metrics=metrics, config=config, **labels)
    results = source(args, 'runtime', 'small-graphs-*.json')
    print(write_table(args.output / 'runtime' / 'small-graphs', rows(results)))


if __name__ == '__main__':
    run_script(main)
