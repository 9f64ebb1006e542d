r"""Measures the training epochs of node classifiers with their settings of the benchmark.

python -m benchmarks.runtime.classifier_epochs --root DATA --datasets chameleon-filtered computers
python -m benchmarks.runtime.classifier_epochs --table   # only write the table of results

Models run in turn in one process, with one thread for each core. An epoch is one step on the whole
graph. ``polynormer`` is PyG's model with its attention.
"""

import tempfile
from pathlib import Path

import torch
from tqdm import tqdm

from benchmarks.common.arguments import add_root, add_table, positive, script_parser
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import data_from, run_script, source
from benchmarks.common.tables import write_table
from benchmarks.common.training import Training
from benchmarks.node_classification.datasets import LAYOUT, load, split
from benchmarks.node_classification.models import MODELS
from benchmarks.node_classification.run import model_input, prepare
from benchmarks.node_classification.settings import settings
from benchmarks.runtime.measure import epoch_rows, epochs_in_turn

CPU = torch.device('cpu')
PEER = 'polynormer'


def start(root: str, dataset: str, model: str, folder: Path) -> Training:
    r"""Prepares the training of a model, in its second phase if there is one."""
    protocol, config = settings(dataset, None, model)
    graph = load(root, dataset, wrong_edges=config['wrong_edges'])
    data = model_input(graph, model, config, CPU)
    training = prepare(data, split(graph, protocol, 0), model, config, 0, folder / model)
    if training.second_phase is not None:
        training.epoch = training.second_phase.epochs
    return training


def measure(root: str, dataset: str, models: list[str], rounds: int) -> dict[str, list[float]]:
    r"""Times each round, after one epoch that does not count."""
    with data_from(root, LAYOUT), tempfile.TemporaryDirectory() as folder:
        runs = {model: start(root, dataset, model, Path(folder)) for model in models}
    return epochs_in_turn(runs, rounds, dataset)


def rows(folder: Path) -> list[dict[str, str]]:
    r"""Formats a row for each data set and model."""
    records = read_results(folder, 'classifier-epochs-*.json')
    return epoch_rows(records, PEER, 'ms / epoch', lambda seconds: f'{1e3 * seconds:.0f}')


def main() -> None:
    parser = script_parser(__doc__)
    add_root(parser, LAYOUT)
    parser.groups['data'].add_argument(
        '--datasets', nargs='+', default=['chameleon-filtered'], help='the graphs'
    )
    parser.groups['model'].add_argument(
        '--models',
        nargs='+',
        choices=MODELS,
        default=['graphtransformer', 'sgformer', 'gcn', PEER],
        help='the models that are measured',
    )
    parser.groups['measurement'].add_argument(
        '--rounds', type=positive, default=9, help='epochs of each, in turn'
    )
    add_table(parser)
    args = parser.parse_args()
    for dataset in [] if args.table else tqdm(args.datasets):
        write_result(
            'runtime',
            Path(dataset).stem,
            'classifier-epochs',
            variant='',
            protocol='in-turn',
            seeds=[0],
            metrics=measure(args.root, dataset, args.models, args.rounds),
            config={model: settings(dataset, None, model)[1] for model in args.models},
            folder=args.output,
        )
    results = source(args, 'runtime', 'classifier-epochs-*.json')
    print(write_table(args.output / 'runtime' / 'classifier-epochs', rows(results)))


if __name__ == '__main__':
    run_script(main)
