r"""Measures the evaluation of the full ranking beside that of RecBole 1.2.

pip install --no-deps recbole && pip install colorlog colorama texttable pandas scikit-learn pyyaml
python -m benchmarks.runtime.ranking --root DATA --datasets amazon-beauty gowalla
python -m benchmarks.runtime.ranking --table   # only write the table of results

Both compute Recall@20 and NDCG@20 over all items for all users from the same embeddings, in turn in
one process. RecBole runs with as many users at once as its default has, and with 1024.
"""

# U users, I items.
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import trange

from benchmarks.common.arguments import add_root, add_table, positive, script_parser
from benchmarks.common.results import read_results, write_result
from benchmarks.common.scripts import INTERACTIONS, data_from, run_script, source
from benchmarks.common.tables import write_table
from benchmarks.recommendation.datasets import load
from benchmarks.recommendation.ranking import History, Scoring, evaluate
from benchmarks.runtime.measure import seconds

K = 20
CELLS, USERS = 4096, 1024  # RecBole's eval_batch_size, in scores; many users
RECBOLE = {
    'metrics': ['Recall', 'NDCG'],
    'topk': [K],
    'metric_decimal_place': 10,
    'device': 'cpu',
    'eval_args': {'mode': 'full'},
}
Found = dict[str, float]


def recbole(
    score: Callable[[Tensor], Tensor], wanted: History, seen: History, at_once: int
) -> Found:
    r"""Evaluates batches of users as RecBole's trainer does, with its collector and its
    evaluator."""
    from recbole.evaluator import Collector, Evaluator

    collector = Collector(RECBOLE)
    for part in wanted.ptr.diff().nonzero().flatten().split(at_once):
        scores = score(part)
        scores[tuple(seen[part])] = -np.inf
        collector.eval_batch_collect(scores, None, *wanted[part])
    return dict(Evaluator(RECBOLE).evaluate(collector.get_data_struct()))


def methods(root: str, name: str, channels: int) -> dict[str, Callable[[], Found]]:
    r"""Returns the evaluations of random embeddings on the test part."""
    torch.manual_seed(0)
    data = load(root, name)[0]
    users, items = (torch.randn(data[side].num_nodes, channels) for side in ('user', 'item'))
    train, test = (
        data['user', 'rates', 'item'][f'{part}_edge_label_index'] for part in ('train', 'test')
    )
    wanted, seen = (History.of(pairs, users.size(0)) for pairs in (test, train))

    def score(part: Tensor) -> Tensor:
        return users[part] @ items.t()

    scoring = Scoring(score, {'inner': torch.ones(items.size(0))})
    return {
        'ours': lambda: evaluate(scoring, test, train, users.size(0), K)['inner'],
        'recbole': lambda: recbole(score, wanted, seen, max(CELLS // items.size(0), 1)),
        'recbole_many': lambda: recbole(score, wanted, seen, USERS),
    }


def measure(root: str, name: str, channels: int, rounds: int) -> dict[str, list[float]]:
    r"""Times each round, after a first one in which all evaluations must agree.

    Raises:
        RuntimeError: If they do not.
    """
    runs, times = methods(root, name, channels), {}
    ours, *others = (run() for run in runs.values())
    if any(
        abs(ours[f'{metric}@{K}'] - other[f'{metric}@{K}']) > 1e-6
        for other in others
        for metric in ('recall', 'ndcg')
    ):
        raise RuntimeError(f'the evaluations differ: {ours} and {others}')
    for _ in trange(rounds, desc=name):
        for method, run in runs.items():
            times.setdefault(f'{method}_seconds', []).extend(seconds(run, 1))
    return times


def rows(folder: Path) -> list[dict[str, str]]:
    out = []
    for record in read_results(folder, 'ranking-*.json'):
        ours, default, many = (
            record['metrics'][f'{method}_seconds']['median']
            for method in ('ours', 'recbole', 'recbole_many')
        )
        row = {'data set': record['dataset'], 'ours (s)': f'{ours:.2f}'}
        for name, other in (
            ("RecBole's default", default),
            (f'RecBole, {USERS} users at once', many),
        ):
            row |= {f'{name} (s)': f'{other:.2f}', f'ours over {name}': f'{other / ours:.1f}'}
        out.append(row)
    return out


def main() -> None:
    parser = script_parser(__doc__)
    add_root(parser, INTERACTIONS)
    parser.groups['data'].add_argument(
        '--datasets', nargs='+', default=['amazon-beauty', 'gowalla'], help='the folders in --root'
    )
    parser.groups['model'].add_argument(
        '--channels', type=positive, default=64, help='channels of the embeddings'
    )
    parser.groups['measurement'].add_argument(
        '--rounds', type=positive, default=5, help='evaluations of each, in turn'
    )
    add_table(parser)
    args = parser.parse_args()
    if not hasattr(np, 'float'):
        np.float = float  # noqa: NPY001 (RecBole's metrics use the name that NumPy has given up)
    datasets = [] if args.table else args.datasets
    for name in datasets:
        with data_from(args.root, INTERACTIONS):
            load(args.root, name)
    for name in datasets:
        times = measure(args.root, name, args.channels, args.rounds)
        config = {
            'channels': args.channels,
            'rounds': args.rounds,
            'cells': CELLS,
            'users': USERS,
            'k': K,
        }
        labels = {'variant': '', 'protocol': 'in-turn', 'seeds': [0], 'folder': args.output}
        write_result('runtime', name, 'ranking', metrics=times, config=config, **labels)
    results = source(args, 'runtime', 'ranking-*.json')
    print(write_table(args.output / 'runtime' / 'ranking', rows(results)))


if __name__ == '__main__':
    run_script(main)
