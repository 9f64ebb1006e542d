import json

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch_geometric.nn import LightGCN

from benchmarks.common import training
from benchmarks.recommendation import __main__ as recommendation
from benchmarks.recommendation import run as recommendation_run
from benchmarks.recommendation.datasets import Task
from benchmarks.recommendation.models import RULES, GraphEncoder, ease, item_knn
from benchmarks.recommendation.ranking import History, rank
from benchmarks.runtime import epochs


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Two groups of users, each with items of its own."""
    generator = np.random.default_rng(0)
    lines = [
        f'{user} ' + ' '.join(map(str, 10 * (user % 2) + generator.permutation(10)[:8]))
        for user in range(40)
    ]
    (tmp_path / 'data' / 'tiny').mkdir(parents=True)
    (tmp_path / 'data' / 'tiny' / 'raw.txt').write_text('\n'.join(lines))
    for module in (recommendation_run, training):
        monkeypatch.setattr(module, 'CHECKPOINTS', tmp_path / 'checkpoints')
    return tmp_path


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
    found = {rule: run(world, *options, '--scoring', rule, '--variant', rule)[0] for rule in rules}
    valid = {rule: record['metrics']['valid_ndcg@20']['values'] for rule, record in found.items()}
    for rule in ('inner', 'cosine'):  # popularity has both among its ways
        assert all(high >= low for high, low in zip(valid['popularity'], valid[rule], strict=True))
    assert len({tuple(values) for values in valid.values()}) > 1
    assert found['inner']['seeds'] == [0, 1]


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
    assert training.model.scoring == RULES[way]
    top = (
        training.model.recommend(training.model.edge_index, k=8, exclude=task.nodes)
        - task.num_users
    )
    users, seen = torch.arange(task.num_users), History.of(task.train, task.num_users)
    assert torch.equal(top, rank(scoring.only(way), users, seen, 8)[way])
    resumed = recommendation_run.prepare(task, 'mgformer', config, 0, world / 'run.safetensors')
    assert torch.equal(resumed.best['scoring_rule'], training.model.scoring_rule)


def test_keys_are_computed_every_few_steps(world):
    """Between, gradients reach the batch's own rows only; after an evaluation the keys are new."""
    task = Task(str(world / 'data'), 'tiny', torch.device('cpu'))
    model = recommendation_run.build_encoder(
        task,
        'mgformer',
        recommendation.DEFAULTS['mgformer'] | {'refresh': 3, 'dim': 4, 'encoding': 2},
    )
    nodes, reached = torch.tensor([0, 41]), []
    for step in range(6):
        (gradient,) = torch.autograd.grad(model.encode(nodes).sum(), model.embedding.weight)
        reached.append(int((gradient.abs().sum(1) > 0).sum()))
        with torch.no_grad():
            model.embedding.weight.add_(0.1)
            if step == 3:
                model.encode()
    assert reached == [60, 2, 2, 60, 60, 2]


def test_what_the_attention_adds(world):
    task = Task(str(world / 'data'), 'tiny', torch.device('cpu'))
    config = recommendation.DEFAULTS['mgformer'] | {'dim': 4, 'encoding': 0}
    model = recommendation_run.build_encoder(task, 'mgformer', config)
    with torch.no_grad():
        for parameter in (
            *model.layers[0].lin_query.parameters(),
            *model.layers[0].lin_key.parameters(),
        ):
            # queries and keys of 0: every node reads the mean of all, weighed by the mask
            parameter.zero_()
        model.embedding.weight.add_(3.0)
        found = model.diagnosis()
    assert found['attention_share'] == pytest.approx(1, abs=0.01)
    assert found['attention_spread'] < 0.01
    assert found['query_length'] == found['key_length'] == 0
    assert (
        recommendation_run.build_encoder(task, 'mgformer', config | {'layers': 0}).diagnosis() == {}
    )


def test_graph_encoder_views():
    pairs = torch.tensor([[2, 0, 1, 0], [0, 1, 1, 0]])
    encoder = GraphEncoder(pairs, 3, 2, 4, 2)
    edges = torch.cat(
        [pairs + torch.tensor([[0], [3]]), pairs.flip(0) + torch.tensor([[3], [0]])], 1
    )
    reference = LightGCN(5, 4, 2)
    reference.load_state_dict(encoder.state_dict())
    torch.testing.assert_close(encoder.encode(), reference.get_embedding(edges))
    torch.testing.assert_close(
        encoder.propagate_layers(encoder.normalized_adjacency(torch.tensor([1.0, 0, 1, 1]))),
        reference.get_embedding(edges[:, [0, 2, 3, 4, 6, 7]]),
    )
    for out in (encoder.encode(), reference.get_embedding(edges)):
        (out * torch.arange(20.0).view(5, 4)).sum().backward()
    torch.testing.assert_close(encoder.embedding.weight.grad, reference.embedding.weight.grad)
    torch.testing.assert_close(encoder.encode_dropped(0.0), encoder.encode())
    torch.testing.assert_close(encoder.encode_perturbed(0.0), encoder.encode())
    noise = GraphEncoder(pairs, 3, 2, 4, 1, skip_input=True)
    torch.testing.assert_close(
        (noise.encode_perturbed(0.1) - noise.encode()).norm(dim=1), torch.full((5,), 0.1)
    )


def test_closed_forms_by_hand():
    matrix = csr_array(np.array([[1, 1, 0], [0, 1, 1], [1, 1, 0]], dtype=np.float32))
    users = torch.arange(3)
    expected = torch.tensor([[2.0, 2, 1], [2, 1, 1], [2, 2, 1]])
    torch.testing.assert_close(item_knn(matrix, 0.0)(users), expected)
    gram = torch.tensor(matrix.toarray()).double().t() @ torch.tensor(
        matrix.toarray()
    ).double() + 0.5 * torch.eye(3)
    inverse = gram.inverse()
    weight = torch.eye(3) - inverse / inverse.diagonal()
    torch.testing.assert_close(
        ease(matrix, 0.5)(users), (torch.tensor(matrix.toarray()).double() @ weight).float()
    )


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
    found = epochs.measure(str(world / 'data'), 'tiny', models, 2)
    assert list(found) == models
    assert all(len(values) == 2 and min(values) > 0 for values in found.values())


def test_variants_of_a_study_differ_in_one_respect_from_what_they_have_in_common():
    common = recommendation.DEFAULTS['mgformer'] | recommendation.STUDY
    for name, study in recommendation.STUDIES.items():
        _, configs = recommendation.parse(['--study', name])
        assert list(configs) == ['study', *study]
        assert configs.pop('study') == common
        for variant, config in configs.items():
            assert set(config) == set(common)
            assert config != common, variant


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ('--model ease --gamma 1', 'ease has no option gamma'),
        ('--study heads --gamma 1', 'a study names its own variants'),
    ],
)
def test_bad_options_are_refused(options, message, capsys):
    with pytest.raises(SystemExit):
        recommendation.parse(options.split())
    assert message in capsys.readouterr().err
