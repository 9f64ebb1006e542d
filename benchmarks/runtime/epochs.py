r"""Measures the training epochs of recommenders with default settings.

python -m benchmarks.runtime.epochs --root DATA --models mgformer directau-lightgcn

Models run in turn in one process.
"""

import statistics
import tempfile
import warnings
from pathlib import Path

import torch
from tqdm import trange

from benchmarks.common.arguments import add_root, positive, script_parser
from benchmarks.common.results import write_result
from benchmarks.common.scripts import INTERACTIONS, data_from, run_script
from benchmarks.recommendation.datasets import Task
from benchmarks.recommendation.run import prepare
from benchmarks.recommendation.settings import DEFAULTS

CPU = torch.device('cpu')
TRAINED = [model for model, config in DEFAULTS.items() if 'epochs' in config]


def measure(
    root: str, dataset: str, models: list[str], rounds: int, device: torch.device = CPU
) -> dict[str, list[float]]:
    r"""Times each round, after one epoch that does not count."""
    with data_from(root, INTERACTIONS):
        task = Task(root, dataset, device)
    seconds: dict[str, list[float]] = {model: [] for model in models}
    with tempfile.TemporaryDirectory() as folder:
        runs = {
            model: prepare(task, model, DEFAULTS[model], 0, Path(folder) / model)
            for model in models
        }
    for _ in trange(rounds + 1, desc='epochs'):
        for model, training in runs.items():
            before = training.seconds
            training.run_epoch()
            seconds[model].append(training.seconds - before)
    return {model: values[1:] for model, values in seconds.items()}


def main() -> None:
    parser = script_parser(__doc__)
    add_root(parser, INTERACTIONS)
    parser.groups['data'].add_argument(
        '--dataset', default='amazon-beauty', help='the folder in --root'
    )
    parser.groups['model'].add_argument(
        '--models',
        nargs='+',
        choices=TRAINED,
        default=['mgformer', 'directau-lightgcn'],
        help='the recommenders that are measured',
    )
    parser.groups['measurement'].add_argument(
        '--rounds', type=positive, default=3, help='epochs of each, in turn'
    )
    args = parser.parse_args()
    warnings.filterwarnings('ignore', 'Sparse CSR tensor support is in beta')
    seconds = measure(args.root, args.dataset, args.models, args.rounds)
    config = {model: DEFAULTS[model] for model in args.models}
    labels = {'variant': '', 'protocol': 'in-turn', 'seeds': [0], 'folder': args.output}
    write_result('runtime', args.dataset, 'epochs', metrics=seconds, config=config, **labels)
    for model, values in seconds.items():
        ratio = statistics.median(values) / statistics.median(seconds[args.models[-1]])
        print(f'{model}: {statistics.median(values):.1f} s, {ratio:.2f} times {args.models[-1]}')


if __name__ == '__main__':
    run_script(main)
