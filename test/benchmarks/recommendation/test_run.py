import json

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from benchmarks.common.files import DataError
from benchmarks.recommendation import __main__ as recommendation
from benchmarks.recommendation import run as recommendation_run
from benchmarks.recommendation.datasets import Task
from benchmarks.recommendation.ranking import History, rank_by_rules
from benchmarks.runtime import epochs


def run(world, *options):
    """The records of the runs that the options ask for."""
    args, configs = recommendation.parse(
        [
            '--root',
            str(world / 'data'),
            '--output',
            str(world / 'results'),
            '--dataset',
            'tiny',
            *options,
        ]
    )
    return [
        json.loads(recommendation.run(args, variant, config).read_text())
        for variant, config in configs.items()
    ]


@pytest.mark.parametrize(
    'model',
    [
        'mgformer',
        'directau-lightgcn',
        'directau-mf',
        'lightgcn',
        'bprmf',
        'sgl',
        'simgcl',
        'ease',
        'itemknn',
    ],
)
def test_every_model_learns_the_groups(world, model):
    trained = 'epochs' in recommendation.DEFAULTS[model]
    options = (
        [
            '--epochs',
            '30',
            '--lr',
            '0.05',
            '--every',
            '5',
            '--batch-size',
            '64',
            '--dim',
            '8',
            '--seeds',
            '0',
        ]
        if trained
        else []
    )
    options += {'mgformer': ['--encoding', '4'], 'simgcl': ['--weight', '0.02']}.get(model, [])
    (record,) = run(world, '--model', model, '--variant', 'test' if options else '', *options)
    metrics = {name: value['mean'] for name, value in record['metrics'].items()}
    assert metrics['recall@20'] == 1.0  # no more than 12 items are left for anyone
    assert record['protocol'] == 'ratio-80-10-10'
    assert metrics['ndcg@20'] > 0.6  # by chance 0.41 over all items, 0.71 over those of the group
    assert (
        metrics['recall@20_unpopular']
        == metrics['recall@20_popular']
        == metrics['recall@20_inner']
        == 1.0
    )


@pytest.mark.parametrize('mask', ['none', 'adjacency'])
def test_masks_and_scoring_rules(world, mask):
    options = (
        f'--mask {mask} --epochs 20 --lr 0.05 --every 10 --batch-size 256 --dim 8 --seeds 0 1 '
        '--encoding 0 --refresh 1'
    ).split()
    rules = ('inner', 'cosine', 'popularity')
    results = {
        rule: run(world, *options, '--scoring', rule, '--variant', rule)[0] for rule in rules
    }
    valid = {rule: record['metrics']['valid_ndcg@20']['values'] for rule, record in results.items()}
    for rule in ('inner', 'cosine'):  # popularity has both among its ways
        assert all(high >= low for high, low in zip(valid['popularity'], valid[rule], strict=True))
    assert len({tuple(values) for values in valid.values()}) > 1
    assert results['inner']['seeds'] == [0, 1]
    parameters = {
        rule: record['metrics']['scoring_parameter']['values'] for rule, record in results.items()
    }
    assert parameters['inner'] == [-1, -1]
    assert parameters['cosine'] == [0, 0]
    assert {*parameters['popularity']} <= {-1, 0, 0.1, 0.2, 0.3}


@pytest.mark.parametrize('rule', ['cosine', 'popularity'])
def test_the_chosen_rule_stays_with_the_weights_and_ranks_as_the_benchmark_does(world, rule):
    task = Task(str(world / 'data'), 'tiny', torch.device('cpu'))
    config = recommendation.DEFAULTS['mgformer'] | {
        'scoring': rule,
        'dim': 8,
        'encoding': 0,
        'lr': 0.05,
        'batch_size': 64,
    }
    training = recommendation_run.prepare(task, 'mgformer', config, 0, world / 'run.safetensors')
    training.fit(6, 10, 2, 'test', lambda *_: None)
    with torch.no_grad():
        scoring = task.scoring(training.model.eval(), rule)
    way, _ = task.choose(scoring)
    assert training.model.scoring == way
    top = (
        training.model.recommend(training.model.edge_index, k=8, exclude=task.nodes)
        - task.num_users
    )
    users, seen = torch.arange(task.num_users), History.of(task.train, task.num_users)
    assert torch.equal(top, rank_by_rules(scoring.only(way), users, seen, 8)[way])
    resumed = recommendation_run.prepare(task, 'mgformer', config, 0, world / 'run.safetensors')
    assert torch.equal(resumed.best['scoring_rule'], training.model.scoring_rule)


def test_curves_for_tensorboard(world):
    options = [
        '--model',
        'directau-mf',
        '--epochs',
        '4',
        '--every',
        '2',
        '--seeds',
        '0',
        '--variant',
        'short',
    ]
    run(world, *options, '--tensorboard', str(world / 'curves'))
    (folder,) = (world / 'curves').iterdir()
    events = EventAccumulator(str(folder)).Reload()
    assert [event.step for event in events.Scalars('loss')] == [1, 2, 3, 4]
    assert [event.step for event in events.Scalars('score')] == [2, 4]


def test_seconds_of_epochs_in_turn(world):
    models = ['mgformer', 'directau-lightgcn']
    seconds = epochs.measure(str(world / 'data'), 'tiny', models, 2)
    assert list(seconds) == models
    assert all(len(values) == 2 and min(values) > 0 for values in seconds.values())


@pytest.mark.parametrize(
    ('lines', 'got'),
    [
        (['0 0 1 2 3 4', '1 0 5 6 7'], "8 items and {'train': 5, 'valid': 2, 'test': 2}"),
        (
            [f'{user} {user} {user + 1}' for user in range(30)],
            "31 items and {'train': 30, 'valid': 0",
        ),
        (
            [f'{user} {user}' for user in range(30)],
            "30 items and {'train': 30, 'valid': 0, 'test': 0}",
        ),
    ],
)
def test_data_that_no_metric_can_be_computed_from(world, lines, got):
    """Metrics over no users were written as 0, and few items ended in a traceback."""
    (world / 'data' / 'tiny' / 'raw.txt').write_text('\n'.join(lines))
    with pytest.raises(DataError, match=rf"'tiny' must have at least 20 items, .*\(got {got}"):
        run(world, '--model', 'itemknn')
