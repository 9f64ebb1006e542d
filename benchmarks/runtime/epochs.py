r"""Measures the training epochs of recommenders with default settings.

python -m benchmarks.runtime.epochs --root DATA --rounds 2
python -m benchmarks.runtime.epochs --table   # only write the table of results

Models run in turn in one process. ``mgformer-fresh-keys`` computes the keys of its attention in
each step; ``mgformer`` keeps them for several steps. ``mgformer-narrow-keys`` computes queries and
keys of 64 channels in each step. The other program of the ratio is DirectAU with LightGCN.
"""

import tempfile
import warnings
from pathlib import Path

import torch

from benchmarks.common.arguments import add_root, add_table, positive, script_parser
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import INTERACTIONS, data_from, run_script, source
from benchmarks.common.tables import write_table
from benchmarks.recommendation.datasets import Task
from benchmarks.recommendation.run import prepare
from benchmarks.recommendation.settings import DEFAULTS
from benchmarks.runtime.measure import epoch_rows, epochs_in_turn

CPU = torch.device('cpu')
PEER = 'directau-lightgcn'
CONFIGS = {model: config for model, config in DEFAULTS.items() if 'epochs' in config}
VARIANTS = {
    'mgformer-fresh-keys': {'refresh': 1},
    'mgformer-narrow-keys': {'refresh': 1, 'key_channels': 64},
}
CONFIGS |= {name: DEFAULTS['mgformer'] | change for name, change in VARIANTS.items()}


def measure(
    root: str, dataset: str, models: list[str], rounds: int, device: torch.device = CPU
) -> dict[str, list[float]]:
    r"""Times each round, after one epoch that does not count."""
    with data_from(root, INTERACTIONS):
        task = Task(root, dataset, device)
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            model: prepare(
                task,
                'mgformer' if model in VARIANTS else model,
                CONFIGS[model],
                0,
                Path(folder) / model,
            )
            for model in models
        }
    return epochs_in_turn(runs, rounds, 'epochs')


def rows(folder: Path) -> list[dict[str, str]]:
    r"""Formats a row for each data set and model."""
    records = read_results(folder, 'epochs-*.json')
    return epoch_rows(records, PEER, 's / epoch', lambda seconds: f'{seconds:.1f}')


def main() -> None:
    parser = script_parser(__doc__)
    add_root(parser, INTERACTIONS)
    parser.groups['data'].add_argument(
        '--dataset', default='amazon-beauty', help='the folder in --root'
    )
    parser.groups['model'].add_argument(
        '--models',
        nargs='+',
        choices=CONFIGS,
        default=['mgformer', *VARIANTS, PEER],
        help='the recommenders that are measured',
    )
    parser.groups['measurement'].add_argument(
        '--rounds', type=positive, default=3, help='epochs of each, in turn'
    )
    add_table(parser)
    args = parser.parse_args()
    if not args.table:
        warnings.filterwarnings('ignore', 'Sparse CSR tensor support is in beta')
        seconds = measure(args.root, args.dataset, args.models, args.rounds)
        config = {model: CONFIGS[model] for model in args.models}
        labels = {'variant': '', 'protocol': 'in-turn', 'seeds': [0], 'folder': args.output}
        write_result('runtime', args.dataset, 'epochs', metrics=seconds, config=config, **labels)
    results = source(args, 'runtime', 'epochs-*.json')
    print(write_table(args.output / 'runtime' / 'epochs', rows(results)))


if __name__ == '__main__':
    run_script(main)
