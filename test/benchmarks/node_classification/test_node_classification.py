import argparse
import json
import sys

import numpy as np
import pytest
import torch
from torch_geometric.utils import to_undirected

from benchmarks.common import training
from benchmarks.node_classification import __main__ as node_classification
from benchmarks.node_classification import plots as node_classification_pictures
from benchmarks.node_classification import search as node_classification_search
from benchmarks.node_classification import settings as node_classification_settings
from benchmarks.node_classification.models import (
    BY_MATRIX,
    MODELS,
    NETWORKS,
    OURS,
    SPARSE_INPUT,
    make,
    parameter_groups,
)
from benchmarks.node_classification.report import report
from benchmarks.node_classification.settings import (
    CONFIGS,
    OPTIONS,
    PUBLISHED,
    merged,
    settings,
    studies,
)


def write_graph(path):
    """Three classes that the features give away, edges mostly within."""
    generator = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 60)
    edges = generator.integers(180, size=(900, 2))
    x = generator.standard_normal((180, 8)) + 2 * np.eye(3, 8)[y]
    np.savez(path, edges=edges[y[edges[:, 0]] == y[edges[:, 1]]], y=y, x=x)


def run(monkeypatch, tmp_path, *arguments):
    monkeypatch.setattr(training, 'CHECKPOINTS', tmp_path / 'checkpoints')
    command = [
        'x',
        '--root',
        str(tmp_path),
        '--output',
        str(tmp_path),
        '--dataset',
        'toy.npz',
        *arguments,
    ]
    monkeypatch.setattr(sys, 'argv', command)
    node_classification.main()


@pytest.mark.parametrize('model', MODELS)
def test_every_model_learns(model, monkeypatch, tmp_path, capsys):
    write_graph(tmp_path / 'toy.npz')
    changes = ['epochs=15', 'edge_loss_weight=0.1'] if model == 'nodeformer' else ['epochs=15']
    run(
        monkeypatch,
        tmp_path,
        '--model',
        model,
        '--seeds',
        '0',
        '1',
        '--variant',
        'short',
        '--set',
        *changes,
    )
    record = json.loads(
        (tmp_path / 'node_classification' / f'{model}-toy-random-60-20-20-short.json').read_text()
    )
    assert record['protocol'] == 'random-60-20-20'
    assert len(record['metrics']['accuracy']['values']) == 2
    assert record['metrics']['accuracy']['mean'] > 0.8
    assert record['config']['epochs'] == 15
    assert f'| toy | random-60-20-20 | {model} (short) |' in capsys.readouterr().out


@pytest.mark.parametrize('model', OURS)
def test_half_precision_learns_as_well(model, monkeypatch, tmp_path):
    write_graph(tmp_path / 'toy.npz')
    for precision in ('float32', 'bfloat16'):
        changes = ['epochs=15', f'precision={precision}']
        run(
            monkeypatch,
            tmp_path,
            '--model',
            model,
            '--seeds',
            '0',
            '--variant',
            precision,
            '--set',
            *changes,
        )
        record = json.loads(
            (
                tmp_path / 'node_classification' / f'{model}-toy-random-60-20-20-{precision}.json'
            ).read_text()
        )
        assert record['metrics']['accuracy']['mean'] > 0.8
        assert 0 <= record['metrics']['loss_spike']['mean'] < 0.5


@pytest.mark.parametrize('training', [False, True])
@pytest.mark.parametrize('model', SPARSE_INPUT)
def test_sparse_features_give_what_dense_ones_give(model, training):
    torch.manual_seed(0)
    x = torch.rand(30, 12) * (torch.rand(30, 12) < 0.2)
    edges = torch.randint(30, (2, 90))
    classifier, found = make(model, 12, 3, edges, 30, OPTIONS[model]).train(training), []
    for features in (x, x.to_sparse_csr()):
        torch.manual_seed(1)
        out, _ = classifier(features)
        found.append(
            [
                out,
                *torch.autograd.grad(
                    out.square().sum(), list(classifier.parameters()), allow_unused=True
                ),
            ]
        )
    for dense, sparse in zip(*found, strict=True):
        torch.testing.assert_close(sparse, dense, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('model', BY_MATRIX)
def test_networks_give_with_a_matrix_what_they_give_with_edges(model):
    x, edges = torch.randn(30, 12), torch.randint(30, (2, 90))
    edges = to_undirected(edges[:, edges[0] != edges[1]])
    classifier = make(model, 12, 3, edges, 30, OPTIONS[model]).eval()
    plain = NETWORKS[model](12, 64, 2, 3).eval()
    plain.load_state_dict(classifier.model.state_dict())
    torch.testing.assert_close(classifier(x)[0], plain(x, edges))


def test_a_finished_run_is_read_again(monkeypatch, tmp_path):
    write_graph(tmp_path / 'toy.npz')
    arguments = [
        '--model',
        'sgformer',
        '--seeds',
        '3',
        '--variant',
        'short',
        '--set',
        'epochs=5',
        'options.norm=row',
    ]
    run(monkeypatch, tmp_path, *arguments, '--curves', str(tmp_path / 'curves.png'))
    path = tmp_path / 'node_classification' / 'sgformer-toy-random-60-20-20-short.json'
    first = json.loads(path.read_text())['metrics']
    assert (tmp_path / 'curves.png').read_bytes().startswith(b'\x89PNG')
    monkeypatch.setattr(training.Training, 'run_epoch', lambda self: pytest.fail('trained again'))
    run(monkeypatch, tmp_path, *arguments)
    second = json.loads(path.read_text())['metrics']
    for name in ('accuracy', 'valid_accuracy', 'best_epoch', 'epoch_ms'):
        assert first[name] == second[name]


def test_changes_of_the_configuration(capsys):
    command = ['--dataset', 'cora', '--model', 'sgformer']
    _, (plan,) = node_classification.parse(
        [*command, '--variant', 'v', '--set', 'lr=0.5', 'options.norm=row']
    )
    assert (plan.variant, plan.protocol, plan.neighbors) == ('v', 'published-20-per-class', None)
    assert (plan.config['lr'], plan.config['options']['norm'], plan.config['options']['alpha']) == (
        0.5,
        'row',
        0.8,
    )
    faults = {
        'no such setting: rate': ['--set', 'rate=1'],
        'a study of sgformer is one of ablation, depth, neighbors, precision, labels': [
            '--study',
            'temperature',
        ],
        '--pictures is for nodeformer, difformer, sgformer': ['--model', 'gcn', '--pictures'],
    }
    for message, given in faults.items():
        with pytest.raises(SystemExit):
            node_classification.parse([*command, *given])
        assert message in capsys.readouterr().err


FAULTS = {
    'epochs': '--set takes NAME=VALUE',
    '=3': '--set takes NAME=VALUE',
    'options=3': '--set takes NAME=VALUE',
    'lr.x=3': '--set takes NAME=VALUE',
    'options.a.b=3': '--set takes NAME=VALUE',
    'rate=1': 'no such setting: rate',
    'epochs=abc': "'epochs' must be an integer of at least 1 (got 'abc')",
    'epochs=0': "'epochs' must be an integer of at least 1 (got 0)",
    'epochs=2.0': "'epochs' must be an integer of at least 1 (got 2.0)",
    'patience=true': "'patience' must be an integer of at least 1 (got True)",
    'lr=-1': "'lr' must be a number above 0 (got -1)",
    'lr=NaN': "'lr' must be a number above 0 (got nan)",
    'lr=Infinity': "'lr' must be a number above 0 (got inf)",
    'lr=null': "'lr' must be a number above 0 (got None)",
    'weight_decay=-1': "'weight_decay' must be a number of at least 0 (got -1)",
    'edge_loss_weight=x': "'edge_loss_weight' must be a number of at least 0 (got 'x')",
    'attention_weight_decay=x': (
        "'attention_weight_decay' must be null or a number of at least 0 (got 'x')"
    ),
    'normalize_features=1': "'normalize_features' must be true or false (got 1)",
    'precision=half': "'precision' must be float32 or bfloat16 (got 'half')",
    'options.nrom=row': 'does not take options.nrom',
    'options.hidden_channels=64.0': "'options.hidden_channels' must be of the type of",
    'options.hidden_channels=0': (
        "'options.hidden_channels' must be an integer of at least 1 (got 0)"
    ),
    'options.dropout=high': "'options.dropout' must be of the type of",
    'options.num_layers=0': "'options.num_layers' must be an integer of at least 1 (got 0)",
}


@pytest.mark.parametrize('script', [node_classification, node_classification_search])
@pytest.mark.parametrize('fault', FAULTS)
def test_faults_of_the_configuration_are_named(fault, script, monkeypatch, capsys):
    for model in ('sgformer', 'gcn', 'nodeformer'):
        monkeypatch.setattr(sys, 'argv', ['x', '--model', model, '--set', fault])
        with pytest.raises(SystemExit) as end:
            script.main()
        assert end.value.code == 2
        assert f'x: error: {FAULTS[fault]}' in capsys.readouterr().err.replace(
            f'{model} does', 'does'
        )


@pytest.mark.parametrize(
    ('model', 'fault', 'message'),
    [
        ('sgformer', 'options.norm=rows', "does not take options.norm=rows ('norm' must be"),
        ('sgformer', 'options.norm=3', "'options.norm' must be of the type of 'frobenius' (got 3)"),
        (
            'sgformer',
            'options.gnn=gin',
            "'options.gnn' is gcn, sage or gat, for sgformer (got 'gin' for sgformer)",
        ),
        (
            'gcn',
            'options.gnn=sage',
            "'options.gnn' is gcn, sage or gat, for sgformer (got 'sage' for gcn)",
        ),
        (
            'nodeformer',
            'options.relational_order=-1',
            'does not take options.relational_order=-1 (',
        ),
        ('mlp', 'options.heads=2', 'mlp does not take options.heads (there are channel_list, '),
        ('mlp', 'options.norm=nonsense', 'does not take options.norm=nonsense ('),
        (
            'gcn',
            'attention_weight_decay=0.1',
            "'attention_weight_decay' is a setting of sgformer (got 0.1 for gcn)",
        ),
    ],
)
def test_faults_of_the_options_of_a_model_are_named(model, fault, message, capsys):
    with pytest.raises(SystemExit):
        node_classification.parse(['--model', model, '--set', fault])
    assert message in capsys.readouterr().err


def test_studies_name_options_that_exist():
    for model in MODELS:
        for name in studies(model):
            _, plans = node_classification.parse(
                ['--dataset', 'cora', '--model', model, '--study', name]
            )
            assert len({plan.variant for plan in plans}) == len(plans)
            assert all(
                plan[1:] != ('published-20-per-class', None, settings('cora', None, model)[1])
                for plan in plans
            )
            for plan in plans:
                assert plan.protocol in node_classification.PROTOCOLS
                make(model, 5, 3, torch.tensor([[0], [1]]), 4, plan.config['options'])


def test_a_study_with_its_picture(monkeypatch, tmp_path):
    write_graph(tmp_path / 'toy.npz')
    monkeypatch.setitem(node_classification_settings.COMMON, 'epochs', 3)
    run(monkeypatch, tmp_path, '--model', 'sgformer', '--seeds', '0')
    run(monkeypatch, tmp_path, '--model', 'sgformer', '--seeds', '0', '--study', 'depth')
    folder = tmp_path / 'node_classification'
    records = [json.loads(path.read_text()) for path in folder.glob('*.json')]
    assert sorted(record['config']['options'].get('num_layers', 1) for record in records) == [
        1,
        2,
        3,
    ]
    line = node_classification_pictures.lines('sgformer', records)
    assert [value for value, _ in line['num_layers']] == [1, 2, 3]
    assert (folder / 'sgformer-toy-sweeps.png').read_bytes().startswith(b'\x89PNG')
    tables = [
        (folder / f'{name}.csv').read_text().splitlines()[1:] for name in ('accuracy', 'variants')
    ]
    assert [sorted(line.split(',')[2] for line in table) for table in tables] == [
        ['sgformer'],
        ['sgformer (num_layers-2)', 'sgformer (num_layers-3)'],
    ]


@pytest.mark.parametrize('model', OURS)
def test_pictures_of_the_attention(model, monkeypatch, tmp_path):
    write_graph(tmp_path / 'toy.npz')
    run(
        monkeypatch,
        tmp_path,
        '--model',
        model,
        '--seeds',
        '0',
        '--pictures',
        '--variant',
        'short',
        '--set',
        'epochs=2',
    )
    name, ends = (
        f'{model}-toy-random-60-20-20-short',
        ('attention.csv', 'attention.png', 'structure.csv', 'structure.png'),
    )
    assert sorted(path.name for path in (tmp_path / 'node_classification').glob(f'{name}-*')) == [
        f'{name}-{end}' for end in ends
    ]
    layers = (tmp_path / 'node_classification' / f'{name}-attention.csv').read_text().splitlines()
    assert len(layers) == 1 + (1 if model == 'sgformer' else 2)


def test_settings_files_name_what_exists():
    made = []
    for path in CONFIGS.glob('*.json'):
        for protocol in (None, *json.loads(path.read_text())):
            for model in MODELS:
                found, config = settings(
                    path.stem,
                    protocol if protocol in node_classification.PROTOCOLS else None,
                    model,
                )
                assert found in node_classification.PROTOCOLS
                if (model, config['options']) not in made:
                    make(model, 5, 3, torch.tensor([[0], [1]]), 4, config['options'])
                    made.append((model, config['options']))
    assert (
        {model for figures in PUBLISHED.values() for model in figures}
        <= set(OPTIONS)
        == set(MODELS)
    )
    with pytest.raises(ValueError, match='no such setting: rate'):
        merged({'lr': 1, 'options': {}}, {'rate': 2})


def test_the_attention_branch_has_a_weight_decay_of_its_own():
    classifier = make('sgformer', 5, 3, torch.tensor([[0], [1]]), 4, OPTIONS['sgformer'])
    local, attention = parameter_groups(classifier, 0.1, 0.2)
    assert (local['weight_decay'], attention['weight_decay']) == (0.1, 0.2)
    ids = [{id(parameter) for parameter in group['params']} for group in (local, attention)]
    assert not ids[0] & ids[1]
    assert len(ids[0] | ids[1]) == len(list(classifier.parameters()))
    assert {id(parameter) for parameter in classifier.model.convs.parameters()} <= ids[1]
    assert [group['weight_decay'] for group in parameter_groups(classifier, 0.1, None)] == [0.1]


def test_no_result_at_all(tmp_path):
    assert report(tmp_path, tmp_path) == ''
    assert list(tmp_path.iterdir()) == []


def search_arguments(root, model, trials, given):
    shared = {'protocol': None, 'seeds': [0], 'patience': 9, 'device': torch.device('cpu')}
    return argparse.Namespace(
        dataset='toy.npz', root=str(root), model=model, trials=trials, set=given, **shared
    )


@pytest.mark.parametrize('model', MODELS)
def test_search_goes_on_and_names_the_command(model, monkeypatch, tmp_path):
    write_graph(tmp_path / 'toy.npz')
    monkeypatch.setattr(training, 'CHECKPOINTS', tmp_path / 'checkpoints')
    monkeypatch.setitem(node_classification_settings.COMMON, 'epochs', 2)
    args = search_arguments(tmp_path, model, 1, [])
    (first,) = node_classification_search.search(args).trials
    default = settings('toy.npz', None, model)[1]
    assert {name: first.params[name] for name in ('lr', 'weight_decay')} == {
        name: default[name] for name in ('lr', 'weight_decay')
    }
    assert first.params['hidden_channels'] == default['options']['hidden_channels']
    args.trials = 2
    study = node_classification_search.search(args)
    assert len(study.trials) == 2
    words = node_classification_search.command(args, study).split()
    assert words[:3] == ['python', '-m', 'benchmarks.node_classification']
    _, (plan,) = node_classification.parse(words[3:])
    assert plan.variant == 'searched-2-trials'
    config = plan.config
    assert config['options']['hidden_channels'] == study.best_params['hidden_channels']
    assert config['lr'] == pytest.approx(study.best_params['lr'], rel=1e-5)
    assert config['normalize_features'] is study.best_params['normalize_features']


def test_search_keeps_what_is_given(monkeypatch, tmp_path):
    """In every trial and in the command, be it a part of the space, ``gnn``, or not, ``epochs``."""
    write_graph(tmp_path / 'toy.npz')
    monkeypatch.setattr(training, 'CHECKPOINTS', tmp_path / 'checkpoints')
    given = ['epochs=2', 'options.gnn=sage', 'options.gnn_input=hidden']
    args = search_arguments(tmp_path, 'sgformer', 3, given)
    study = node_classification_search.search(args)
    assert [trial.params['gnn'] for trial in study.trials] == ['sage'] * 3
    assert len({trial.params['lr'] for trial in study.trials}) == 3
    _, (plan,) = node_classification.parse(
        node_classification_search.command(args, study).split()[3:]
    )
    assert plan.config['epochs'] == 2
    assert (plan.config['options']['gnn'], plan.config['options']['gnn_input']) == (
        'sage',
        'hidden',
    )
