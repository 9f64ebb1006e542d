r"""Measures layers beside their peers: PyG's layer, or the formula written out.

python -m benchmarks.runtime.layers           # write runtime/*.json, the table and the picture
python -m benchmarks.runtime.layers --table   # only write the table and the picture of results
python -m benchmarks.runtime.layers --public CLONES --cases public-sgformer

Methods run in fresh processes, in turn. The table also has the bare matrix products of the peer.
``--public`` measures beside the authors' programs, cloned into a folder.
"""

import statistics
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from tqdm import tqdm

from benchmarks.common.arguments import add_measured_device, add_table, positive, script_parser
from benchmarks.common.figures import can_draw, save_figure
from benchmarks.common.files import say
from benchmarks.common.memory import limit_memory, require_linux
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import run_script, source
from benchmarks.common.tables import write_table
from benchmarks.runtime import cases
from benchmarks.runtime.measure import fresh, peak_memory_mib, seconds
from benchmarks.runtime.public_cases import PUBLIC_CASES
from benchmarks.runtime.roofline import PROBE, matrix_products, replay
from benchmarks.runtime.scaling import FIGURES, Line, comparison_figure, scaling_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CASES = cases.CASES | PUBLIC_CASES
METHODS = ('ours', 'formula', 'products')
MEASURED = 'forward_backward', 'peak_memory_mib'
MEMORY_GIB, LIMIT_SECONDS = 16, 300.0
DEFAULTS = {'heads': 1, 'channels': 64, 'device': 'cpu'}
# The layer and its peer in words, for the pictures.
TITLES = {
    'kernel-attention': ('kernel attention', 'its formula'),
    'ragged-batch': ('kernel attention, a batch', 'one graph'),
    'exact-softmax': ('kernel attention', 'exact softmax'),
    'learned-map': ('kernel attention, learned map', 'random features'),
    'degree-masked-attention': ('degree-masked attention', 'its formula'),
    'difformer': ('DIFFormer, row norms', 'its formula'),
    'difformer-frobenius': ('DIFFormer', 'its formula'),
    'sgformer': ('SGFormer, row norms', "PyG's layer"),
    'sgformer-frobenius': ('SGFormer', 'its formula'),
    'nodeformer': ('NodeFormer', 'its formula'),
    'edge-probability': ("NodeFormer's edge loss", 'its formula'),
    'performer': ('kernel attention', "PyG's Performer"),
    'polynormer': ("Polynormer's attention", "PyG's layer"),
    'gps': ('GPSConv', "PyG's with Performer"),
    'edge-softmax': ('softmax over neighbours', "PyG's TransformerConv"),
    'jaccard-subtractor': ("LiteGT's layer", "PyG's TransformerConv"),
    'public-difformer': ('DIFFormer', "the authors' layer"),
    'public-nodeformer': ('NodeFormer', "the authors' layer"),
    'public-sgformer': ('SGFormer', "the authors' layer"),
}
GROWING = 'kernel-attention', 'degree-masked-attention', 'difformer', 'sgformer'
PEER = ('peer (ms)', 'peer (MiB)', 'ours / peer', 'best / best', 'forward only', 'memory ratio')


def make(case: str, config: dict[str, Any]) -> dict[str, Callable[[], torch.Tensor]]:
    r"""Makes the layer and its peer on the same input, as functions that return the output."""
    with torch.device(config['device']):
        return dict(zip(METHODS, CASES[case].make(features(config), config), strict=False))


def features(config: dict[str, Any]) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(
        config['num_nodes'], config['channels'], device=config['device'], requires_grad=True
    )


def check(case: str, config: dict[str, Any]) -> None:
    r"""Checks that the peer computes the same output as the layer, or else as its own claim,
    from the same random numbers."""
    small = config | {'num_nodes': 1000}
    outputs: list[torch.Tensor] = []
    with torch.device(config['device']):
        functions = (CASES[case].claim or CASES[case].make)(features(small), small)
    for function in functions:
        torch.manual_seed(1)
        outputs.append(function().detach())
    error = float((outputs[0] - outputs[1]).norm() / outputs[1].norm())
    if not error < CASES[case].tolerance:
        raise RuntimeError(f'the peer of {case} differs from what it should compute by {error:.1e}')


def work(case: str, method: str, config: dict[str, Any]) -> dict[str, list[float]]:
    r"""Measures the seconds and memory of one method in this process. The result is empty if the
    method needs more memory than allowed."""
    repeats, device = config['repeats'], config['device']
    if device == 'cpu':
        limit_memory(MEMORY_GIB)
    small = make(case, config | {'num_nodes': 1000})['ours' if method == 'products' else method]()
    small.sum().backward()  # libraries are loaded and their buffers are there
    try:
        if method == 'products':
            formula = make(cases.PRODUCTS_OF.get(case, case), config | {'num_nodes': PROBE})[
                'formula'
            ]
            with torch.device(device):
                run = replay(matrix_products(formula), config['num_nodes'], config['channels'])
            run()
            return {'forward_backward': seconds(run, repeats, device)}
        forward = make(case, config)[method]
        grad = torch.randn(config['num_nodes'], small.size(1), device=device)
        out = {'peak_memory_mib': [peak_memory_mib(lambda: forward().backward(grad), device)]}
        with torch.no_grad():
            out['forward'] = seconds(forward, repeats, device)
        out['forward_backward'] = seconds(lambda: forward().backward(grad), repeats, device)
    except RuntimeError as error:
        if 'allocate memory' not in str(error) and not isinstance(error, torch.OutOfMemoryError):
            raise
        return {}
    return out


def measure(case: str, rounds: int, config: dict[str, Any], bar: tqdm, folder: Path) -> None:
    check(case, config)
    metrics: dict[str, list[float]] = {}
    late: set[str] = set()
    for _ in range(rounds):
        for method in METHODS:
            bar.set_postfix_str(f'{case}, {config["num_nodes"]} nodes, {method}')
            work = {'case': case, 'method': method, 'config': config}
            values = (
                {} if method in late else fresh('benchmarks.runtime.layers', work, LIMIT_SECONDS)
            )
            late |= set() if values else {method}
            for name, value in values.items():
                metrics.setdefault(f'{method}_{name}', []).extend(value)
            bar.update()
    if 'ours_peak_memory_mib' not in metrics:
        say(
            f'{case} at {config["num_nodes"]} nodes has no result: our layer took more than '
            f'{MEMORY_GIB} GiB or {LIMIT_SECONDS:.0f} s'
        )
        return
    write_result(
        'runtime',
        f'random-{config["num_nodes"]}',
        case,
        variant='-'.join(
            f'{name}-{config[name]}'
            for name, default in DEFAULTS.items()
            if config[name] != default
        ),
        protocol='fresh-processes-alternating',
        seeds=[0],
        metrics=metrics,
        peak_memory_mib=statistics.median(metrics['ours_peak_memory_mib']),
        config={name: value for name, value in config.items() if name != 'public'}
        | {'dtype': 'float32', 'rounds': rounds},
        folder=folder,
    )


def row(record: dict[str, Any]) -> dict[str, str]:
    metric, nodes = record['metrics'], record['config']['num_nodes']
    setting = {**DEFAULTS, **record['config']}
    setting['heads'] = CASES[record['model']].heads or setting['heads']
    out = {
        'layer': record['model'],
        **{name: str(setting[name]) for name in DEFAULTS},
        'nodes': f'{nodes:,}',
    }
    ours, memory = metric['ours_forward_backward'], metric['ours_peak_memory_mib']['median']
    out |= {'ours (ms)': f'{1e3 * ours["median"]:.0f}', 'ours (MiB)': f'{memory:.0f}'}
    bare = metric.get('products_forward_backward')
    products = {'ours / products': f'{ours["median"] / bare["median"]:.2f}' if bare else ''}
    if 'formula_forward_backward' not in metric:
        return (
            out
            | dict.fromkeys(PEER, '')
            | {'peer (ms)': f'more than {MEMORY_GIB} GiB or {LIMIT_SECONDS:.0f} s'}
            | products
        )
    peer = metric['formula_forward_backward']
    peer_memory = metric['formula_peak_memory_mib']['median']
    values = [
        f'{1e3 * peer["median"]:.0f}',
        f'{peer_memory:.0f}',
        f'{ours["median"] / peer["median"]:.2f}',
        f'{ours["min"] / peer["min"]:.2f}',
        f'{metric["ours_forward"]["median"] / metric["formula_forward"]["median"]:.2f}',
        f'{memory / peer_memory:.3f}',
    ]
    return out | dict(zip(PEER, values, strict=True)) | products


def records(folder: Path) -> list[dict[str, Any]]:
    results = read_results(folder)
    return sorted(
        (record for record in results if record['model'] in CASES),
        key=lambda record: (record['variant'], record['model'], record['config']['num_nodes']),
    )


def figure(results: list[dict[str, Any]]) -> 'Figure | None':
    r"""Draws forward plus backward against the number of nodes, for the layers of
    :obj:`GROWING` with several sizes."""
    columns: dict[str, dict[str, dict[str, Line]]] = {}
    for record in results:
        if record['model'] not in GROWING or record['variant']:
            continue
        nodes = record['config']['num_nodes']
        title = TITLES[record['model']][0]
        for method, name in zip(
            METHODS, ('this package', 'the other program', 'bare matrix products'), strict=True
        ):
            for measured, kind in zip(MEASURED, FIGURES, strict=True):
                if f'{method}_{measured}' in record['metrics']:
                    line = columns.setdefault(title, {}).setdefault(kind, {}).setdefault(name, {})
                    line[nodes] = record['metrics'][f'{method}_{measured}']['median']
    columns = {
        title: kinds
        for title, kinds in columns.items()
        if len(kinds['seconds']['this package']) > 1
    }
    return scaling_figure(columns) if columns else None


def comparisons(results: list[dict[str, Any]]) -> dict[str, list[tuple[str, float, float]]]:
    r"""Collects, for time and memory, our value and the peer's at the largest size that both were
    measured at."""
    largest = {
        record['model']: record
        for record in results
        if record['model'] in TITLES
        and not record['variant']
        and 'formula_forward_backward' in record['metrics']
    }
    out: dict[str, list[tuple[str, float, float]]] = {kind: [] for kind in MEASURED}
    for case, record in largest.items():
        layer, peer = TITLES[case]
        title = f'{layer} beside {peer},\n{record["config"]["num_nodes"]:,} nodes'
        for kind, rows in out.items():
            ours, theirs = (record['metrics'][f'{name}_{kind}']['median'] for name in METHODS[:2])
            if ours > 0 and theirs > 0:
                rows.append((title, ours, theirs))
    return out


def save_pictures(results: list[dict[str, Any]], folder: Path) -> None:
    picture = figure(results)
    if picture is not None:
        save_figure(picture, folder / 'layers-growth.png')
    labels = {'time': 'seconds, forward and backward', 'memory': 'peak memory (MiB)'}
    for (name, label), rows in zip(labels.items(), comparisons(results).values(), strict=True):
        if rows:
            save_figure(comparison_figure(rows, label), folder / f'layers-{name}.png')


def main() -> None:
    parser = script_parser(__doc__)
    parser.groups['model'].add_argument(
        '--cases',
        nargs='+',
        choices=CASES,
        default=[*cases.CASES],
        help='the layers that are measured',
    )
    parser.groups['measurement'].add_argument(
        '--nodes',
        nargs='+',
        type=positive,
        default=[35_000, 160_000, 1_000_000],
        help='numbers of nodes',
    )
    parser.groups['measurement'].add_argument(
        '--rounds', type=positive, default=5, help='fresh processes per method'
    )
    parser.groups['measurement'].add_argument(
        '--repeats', type=positive, default=3, help='calls per process'
    )
    parser.groups['model'].add_argument(
        '--channels',
        type=positive,
        default=DEFAULTS['channels'],
        help='channels of the input and of the layer',
    )
    parser.groups['model'].add_argument(
        '--num-features', type=positive, default=128, help='of the kernel attentions'
    )
    parser.groups['model'].add_argument(
        '--heads', type=positive, default=DEFAULTS['heads'], help='of NodeFormer'
    )
    add_measured_device(parser)
    parser.groups['measurement'].add_argument(
        '--public',
        metavar='CLONES',
        help="folder with clones of the authors' programs, for the public cases",
    )
    add_table(parser)
    args = parser.parse_args()
    if args.public is None and not args.table and not PUBLIC_CASES.keys().isdisjoint(args.cases):
        parser.error(
            "the public cases need --public, a folder with clones of the authors' programs"
        )
    if not args.table:
        if args.device == 'cpu':
            require_linux()
        with tqdm(total=len(METHODS) * len(args.cases) * len(args.nodes) * args.rounds) as bar:
            for case, num_nodes in product(args.cases, args.nodes):
                names = 'channels', 'num_features', 'heads', 'device', 'repeats', 'public'
                measure(
                    case,
                    args.rounds,
                    {'num_nodes': num_nodes} | {name: getattr(args, name) for name in names},
                    bar,
                    args.output,
                )
    results = records(source(args, 'runtime'))
    print(write_table(args.output / 'runtime' / 'layers', [row(record) for record in results]))
    if can_draw():
        save_pictures(results, args.output / 'runtime')


if __name__ == '__main__':
    run_script(main)
