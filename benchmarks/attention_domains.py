r"""What it is worth that a mini-batch attends to all nodes: the same model trained on the whole graph, on random parts of it, on sampled
batches, and on these with the states of all other nodes, by what a node attends to. Scores are always those of the whole graph.

python -m benchmarks.attention_domains --root DATA --dataset computers --model nodeformer --batch-size 256
"""

import argparse
import json
from typing import Any

from benchmarks.common.large import BASE, DOMAINS, MODELS, run
from benchmarks.common.ogb_data import NodeTask
from benchmarks.common.results import RESULTS
from benchmarks.common.tables import spread, write_table
from benchmarks.common.training import add_device
from benchmarks.graphs import PROTOCOLS, load, split
from benchmarks.pokec import accuracy

OPTIONS: dict[str, dict[str, Any]] = {
    'nodeformer': {'num_layers': 2, 'num_gumbel_samples': 5},
    'difformer': {'num_layers': 2, 'dropout': 0.2},
    'sgformer': {'norm': 'row', 'dropout': 0.5},
}


def rows() -> list[dict[str, str]]:
    r"""One row per result, the order that of the domains."""
    records = [json.loads(path.read_text()) for path in (RESULTS / 'domains').glob('*.json')]
    records.sort(key=lambda record: (record['dataset'], record['model'], [*DOMAINS].index(record['config']['domain'])))
    return [
        {
            'data set': record['dataset'],
            'protocol': record['protocol'],
            'model': record['model'],
            'attention in training over': record['config']['attention_over'],
            'batch': '' if record['config']['domain'] == 'graph' else str(record['config']['batch_size']),
            'test accuracy': spread(record, 'accuracy', 100, 2),
            'validation accuracy': spread(record, 'valid_accuracy', 100, 2),
            's / epoch': f'{record["epoch_seconds"]:.2f}',
            'seeds': str(len(record['seeds'])),
        }
        for record in records
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--root', default='data', help='folder of data sets')
    parser.add_argument('--dataset', default='computers')
    parser.add_argument('--protocol', choices=PROTOCOLS, default='random-60-20-20')
    parser.add_argument('--model', choices=MODELS, default='nodeformer')
    parser.add_argument('--domains', nargs='+', choices=DOMAINS, default=[*DOMAINS])
    parser.add_argument('--batch-size', type=int, default=256)
    parser.add_argument('--refresh', type=int, default=4, help='steps after which the states of all nodes are found anew')
    parser.add_argument('--epochs', type=int, default=60)
    parser.add_argument('--seeds', nargs='+', type=int, default=[0, 1, 2])
    add_device(parser)
    parser.add_argument('--table', action='store_true', help='write the table from the results that are there, run nothing')
    args = parser.parse_args()
    args.results = RESULTS
    for domain in [] if args.table else args.domains:
        data = load(args.root, args.dataset)
        parts, num_classes = split(data, args.protocol, 0), int(data.y.max()) + 1
        data.y = data.y[:, None]
        task = NodeTask(data, parts, num_classes, False, 'accuracy', accuracy)
        config = {**BASE, 'model': args.model, 'domain': domain, 'hidden_channels': 64, 'lr': 1e-3, 'options': OPTIONS[args.model]}
        # a step for each batch; on the whole graph as many steps as there are batches
        steps = -(-task.split['train'].numel() // args.batch_size) if domain == 'graph' else 1
        config |= {'batch_size': args.batch_size, 'fan_out': [10, 10], 'epochs': args.epochs * steps, 'every': 2 * steps, 'patience': 10}
        config |= {'refresh': args.refresh if domain == 'memory' else 0}
        args.variant = domain
        run(args.dataset, task, config, args, 'domains')
    print(write_table(RESULTS / 'domains' / 'domains', rows()))


if __name__ == '__main__':
    main()
