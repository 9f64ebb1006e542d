r"""Layers against their formulas written out and against the bare matrix products, each in fresh processes, in turn.

python -m benchmarks.runtime.layers                 # measure, write results/runtime/*.json, then the table
python -m benchmarks.runtime.layers --table         # the table alone, from the results that are there
"""

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Callable
from itertools import product

import torch
from tqdm import tqdm

from benchmarks.common.results import RESULTS, write_result
from benchmarks.common.tables import as_csv
from benchmarks.runtime.formulas import degree_masked_attention, kernel_attention
from benchmarks.runtime.measure import peak_memory_mib, seconds
from torch_geometric_lgt._io import write_atomically
from torch_geometric_lgt.nn import DegreeMaskedAttention, KernelAttentionConv

CASES = ('degree-masked-attention', 'kernel-attention')
METHODS = ('ours', 'formula', 'products')
MAX_DEGREE = 512


def make(case: str, num_nodes: int, channels: int, num_features: int) -> dict[str, Callable[[], torch.Tensor]]:
    r"""The layer and its formula on the same input, as functions of no argument that return the output."""
    torch.manual_seed(0)
    x = torch.randn(num_nodes, channels, requires_grad=True)
    if case == 'kernel-attention':
        conv = KernelAttentionConv(channels, channels, num_features=num_features)
        return {'ours': lambda: conv(x), 'formula': lambda: kernel_attention(conv, x)}
    layer = DegreeMaskedAttention(channels, num_features=num_features, max_degree=MAX_DEGREE, value_projection=True)
    degree = torch.randint(0, MAX_DEGREE + 1, (num_nodes,))
    return {'ours': lambda: layer(x, degree), 'formula': lambda: degree_masked_attention(layer, x, degree)}


def products(case: str, num_nodes: int, channels: int, num_features: int) -> Callable[[], None]:
    r"""The matrix products of one forward and backward pass that no method avoids, at full size, into memory that is there already."""
    n, m, width = num_nodes, num_features, (2 if case == 'degree-masked-attention' else 1) * (channels + 1)
    inner = {'x': channels, 'qkv': m + 2 * channels, 'kv': 2 * channels, 'k': channels, 'phi': m, 'columns': width}
    wide = {name: torch.rand(n, size) for name, size in inner.items()}
    forward = [('x', 'qkv'), ('k', 'phi'), ('phi', 'columns')]
    backward = [('columns', 'phi'), ('phi', 'x'), ('phi', 'columns'), ('columns', 'phi'), ('phi', 'k'), ('kv', 'x')]
    sums = [('phi', 'columns'), ('phi', 'columns'), ('phi', 'x'), ('kv', 'x')]
    square = {(a, b): torch.rand(inner[a], inner[b]) for a, b in forward + backward + sums}

    def run() -> None:
        for a, b in forward + backward:
            torch.mm(wide[a], square[a, b], out=wide[b])
        for a, b in sums:
            torch.mm(wide[a].t(), wide[b], out=square[a, b])

    return run


def check(case: str, channels: int, num_features: int) -> None:
    r"""The peer computes what the layer computes."""
    out = {name: function().detach() for name, function in make(case, 1000, channels, num_features).items()}
    error = float((out['ours'] - out['formula']).norm() / out['formula'].norm())
    if not error < 1e-4:
        raise RuntimeError(f'the formula of {case} differs from the layer by {error:.1e}')


def work(case: str, method: str, num_nodes: int, channels: int, num_features: int, repeats: int) -> dict[str, list[float]]:
    if method == 'products':
        run = products(case, num_nodes, channels, num_features)
        run()
        return {'forward_backward': seconds(run, repeats)}
    make(case, 1000, channels, num_features)[method]().sum().backward()  # libraries are loaded and their buffers are there
    forward = make(case, num_nodes, channels, num_features)[method]
    grad = torch.randn(num_nodes, channels)
    out = {'peak_memory_mib': [peak_memory_mib(lambda: forward().backward(grad))]}
    with torch.no_grad():
        out['forward'] = seconds(forward, repeats)
    out['forward_backward'] = seconds(lambda: forward().backward(grad), repeats)
    return out


def measure(case: str, rounds: int, config: dict[str, int], bar: tqdm) -> None:
    check(case, config['channels'], config['num_features'])
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        for method in METHODS:
            bar.set_postfix_str(f'{case}, {config["num_nodes"]} nodes, {method}')
            worker = ['--worker', json.dumps({'case': case, 'method': method, **config})]
            done = subprocess.run([sys.executable, '-m', 'benchmarks.runtime.layers', *worker], capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise RuntimeError(f'{method} of {case} with {config} failed:\n{done.stderr}')
            for name, values in json.loads(done.stdout).items():
                found.setdefault(f'{method}_{name}', []).extend(values)
            bar.update()
    write_result(
        'runtime',
        f'random-{config["num_nodes"]}',
        case,
        variant='',
        protocol='fresh-processes-alternating',
        seeds=[0],
        metrics=found,
        peak_memory_mib=statistics.median(found['ours_peak_memory_mib']),
        config={**config, 'heads': 1, 'dtype': 'float32', 'rounds': rounds},
    )


def row(record: dict) -> dict[str, str]:
    metric, nodes = record['metrics'], record['config']['num_nodes']
    ours, formula, bare = (metric[f'{method}_forward_backward'] for method in METHODS)
    memory, peer_memory = (metric[f'{method}_peak_memory_mib']['median'] for method in METHODS[:2])
    return {
        'layer': record['model'],
        'nodes': f'{nodes:,}',
        'ours (ms)': f'{1e3 * ours["median"]:.0f}',
        'formula (ms)': f'{1e3 * formula["median"]:.0f}',
        'ours / formula': f'{ours["median"] / formula["median"]:.2f}',
        'best / best': f'{ours["min"] / formula["min"]:.2f}',
        'forward only': f'{metric["ours_forward"]["median"] / metric["formula_forward"]["median"]:.2f}',
        'ours / products': f'{ours["median"] / bare["median"]:.2f}',
        'ours (MiB)': f'{memory:.0f}',
        'formula (MiB)': f'{peer_memory:.0f}',
        'memory ratio': f'{memory / peer_memory:.3f}',
    }


def table() -> str:
    r"""One row per result, as CSV: medians of forward and backward together, ratios, peak memory above that of the inputs."""
    records = [json.loads(path.read_text()) for path in (RESULTS / 'runtime').glob('*.json')]
    return as_csv([row(r) for r in sorted(records, key=lambda r: (r['model'], r['config'].get('num_nodes', 0))) if r['model'] in CASES])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--cases', nargs='+', choices=CASES, default=CASES)
    parser.add_argument('--nodes', nargs='+', type=int, default=[35_000, 160_000, 1_000_000])
    parser.add_argument('--rounds', type=int, default=5, help='fresh processes per method')
    parser.add_argument('--repeats', type=int, default=3, help='calls per process')
    parser.add_argument('--channels', type=int, default=64)
    parser.add_argument('--num-features', type=int, default=128)
    parser.add_argument('--table', action='store_true', help='write the table from the results that are there, measure nothing')
    parser.add_argument('--worker', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker is not None:
        print(json.dumps(work(**json.loads(args.worker))))
        return
    if not args.table:
        with tqdm(total=len(args.cases) * len(args.nodes) * args.rounds * len(METHODS)) as bar:
            for case, num_nodes in product(args.cases, args.nodes):
                sizes = {'num_nodes': num_nodes, 'channels': args.channels, 'num_features': args.num_features}
                measure(case, args.rounds, {**sizes, 'repeats': args.repeats}, bar)
    content = table()
    write_atomically(RESULTS / 'runtime' / 'layers.csv', content.encode())
    print(content)


if __name__ == '__main__':
    main()
