r"""Compares what a node attends to in training.

python -m benchmarks.attention_domains --root DATA --dataset computers --model nodeformer \
    --batch-size 256

The same model is trained on the whole graph, on random parts, and on sampled batches. Batches are
used without and with the states of all other nodes. Attention is over the whole graph in all
measurements.
"""

from pathlib import Path
from typing import Any

from benchmarks.common.arguments import (
    add_device,
    add_seeds,
    add_table,
    natural,
    positive,
    script_parser,
)
from benchmarks.common.results import read_results
from benchmarks.common.scripts import data_from, run_script, source
from benchmarks.common.seeds import with_progress
from benchmarks.common.tables import spread, write_table
from benchmarks.large_graphs.datasets import NodeTask, accuracy
from benchmarks.large_graphs.models import MODELS
from benchmarks.large_graphs.run import run
from benchmarks.large_graphs.settings import BASE, DOMAINS
from benchmarks.node_classification.datasets import (
    LAYOUT,
    PROTOCOLS,
    add_dataset,
    load,
    split,
)

OPTIONS: dict[str, dict[str, Any]] = {
    'nodeformer': {'num_layers': 2, 'num_gumbel_samples': 5},
    'difformer': {'num_layers': 2, 'dropout': 0.2},
    'sgformer': {'norm': 'row', 'dropout': 0.5},
}


def rows(folder: Path) -> list[dict[str, str]]:
    r"""Formats each result as a row, in the order of the domains."""
    records = read_results(folder)
    records.sort(
        key=lambda record: (
            record['dataset'],
            record['model'],
            [*DOMAINS].index(record['config']['domain']),
        )
    )
    return [
        {
            'data set': record['dataset'],
            'protocol': record['protocol'],
            'model': record['model'],
            'attention in training over': record['config']['attention_over'],
            'batch': ''
            if record['config']['domain'] == 'graph'
            else str(record['config']['batch_size']),
            'test accuracy': spread(record, 'accuracy', 100, 2),
            'validation accuracy': spread(record, 'valid_accuracy', 100, 2),
            's / epoch': f'{record["epoch_seconds"]:.2f}',
            'seeds': str(len(record['seeds'])),
        }
        for record in records
    ]


def main() -> None:
    parser = script_parser(__doc__)
    add_dataset(parser, 'computers')
    parser.groups['data'].add_argument(
        '--protocol', choices=PROTOCOLS, default='random-60-20-20', help='the rule of the split'
    )
    parser.groups['model'].add_argument(
        '--model', choices=MODELS, default='nodeformer', help='the model that is trained'
    )
    parser.groups['model'].add_argument(
        '--domains',
        nargs='+',
        choices=DOMAINS,
        default=[*DOMAINS],
        help='what a node attends to in training',
    )
    parser.groups['training'].add_argument(
        '--batch-size', type=positive, default=256, help='nodes of a batch'
    )
    parser.groups['training'].add_argument(
        '--refresh',
        type=natural,
        default=4,
        help='steps between two updates of the states of all nodes; 0: once an epoch',
    )
    parser.groups['training'].add_argument(
        '--epochs', type=positive, default=60, help='epochs at most'
    )
    add_seeds(parser, [0, 1, 2])
    add_device(parser)
    add_table(parser)
    args = parser.parse_args()
    for domain in with_progress([] if args.table else args.domains, 'domains'):
        with data_from(args.root, LAYOUT):
            data = load(args.root, args.dataset)
            parts = split(data, args.protocol, 0)
        num_classes = int(data.y.max()) + 1
        data.y = data.y[:, None]
        task = NodeTask(data, parts, num_classes, False, 'accuracy', accuracy)
        config = {
            **BASE,
            'model': args.model,
            'domain': domain,
            'hidden_channels': 64,
            'lr': 1e-3,
            'options': OPTIONS[args.model],
        }
        # The whole graph is one step; more epochs give it as many steps as there are batches.
        steps = -(-task.split['train'].numel() // args.batch_size) if domain == 'graph' else 1
        config |= {
            'batch_size': args.batch_size,
            'fan_out': [10, 10],
            'epochs': args.epochs * steps,
            'every': 2 * steps,
            'patience': 10,
        }
        config |= {'refresh': args.refresh if domain == 'memory' else 0}
        args.variant = domain
        run(Path(args.dataset).stem, task, config, args, 'domains')
    print(write_table(args.output / 'domains' / 'domains', rows(source(args, 'domains'))))


if __name__ == '__main__':
    run_script(main)
