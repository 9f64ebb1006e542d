import argparse

import pytest
import torch

from benchmarks.common.files import DataError
from benchmarks.node_classification import __main__ as node_classification
from benchmarks.node_classification import search
from benchmarks.node_classification import settings as node_classification_settings
from benchmarks.node_classification.datasets import with_wrong_edges
from benchmarks.node_classification.models import (
    MODELS,
)
from benchmarks.node_classification.settings import (
    settings,
)


def search_arguments(root, model, trials, changes):
    shared = {'protocol': None, 'seeds': [0], 'patience': 9, 'device': torch.device('cpu')}
    return argparse.Namespace(
        dataset='toy.npz', root=str(root), model=model, trials=trials, set=changes, **shared
    )


@pytest.mark.parametrize('model', MODELS)
def test_search_goes_on_and_names_the_command(write_graph, model, monkeypatch, tmp_path, constants):
    write_graph(tmp_path / 'toy.npz')
    constants(checkpoints=tmp_path / 'checkpoints')
    monkeypatch.setitem(node_classification_settings.COMMON, 'epochs', 2)
    monkeypatch.setitem(
        node_classification_settings.MODEL_SETTINGS, 'polynormer', {'local_epochs': 1}
    )
    args = search_arguments(tmp_path, model, 1, [])
    (first,) = search.search(args).trials
    default = settings('toy.npz', None, model)[1]
    assert {name: first.params[name] for name in ('lr', 'weight_decay')} == {
        name: default[name] for name in ('lr', 'weight_decay')
    }
    for name in first.params.keys() & default['options'].keys():
        assert first.params[name] == default['options'][name]
    assert ('hidden_channels' in first.params) == ('hidden_channels' in default['options'])
    args.trials = 2
    study = search.search(args)
    assert len(study.trials) == 2
    words = search.command(args, study).split()
    assert words[:3] == ['python', '-m', 'benchmarks.node_classification']
    _, (plan,) = node_classification.parse(words[3:])
    assert plan.variant == 'searched-2-trials'
    config = plan.config
    assert config['options'].get('hidden_channels') == study.best_params.get('hidden_channels')
    assert config['lr'] == pytest.approx(study.best_params['lr'], rel=1e-5)
    assert config['normalize_features'] is study.best_params['normalize_features']


def test_a_search_that_goes_on_tries_other_settings(write_graph, tmp_path, constants):
    """Each call drew the same random settings again."""
    write_graph(tmp_path / 'toy.npz')
    constants(checkpoints=tmp_path / 'checkpoints')
    for trials in (2, 3, 4):
        args = search_arguments(tmp_path, 'mlp', trials, ['epochs=1'])
        study = search.search(args)
    assert len({trial.params['lr'] for trial in study.trials}) == 4


def test_one_process_searches_at_a_time(write_graph, tmp_path, constants, monkeypatch):
    """The second one took the trial of the first one for that of a killed process, which ended the
    first one in a traceback."""
    write_graph(tmp_path / 'toy.npz')
    constants(checkpoints=tmp_path / 'checkpoints')
    args = search_arguments(tmp_path, 'mlp', 1, ['epochs=1'])
    run_trials, refused = search.run_trials, []

    def run_twice(study, *rest):
        with pytest.raises(DataError, match='another process runs the same search; wait') as error:
            search.search(args)
        refused.append(error.value)
        run_trials(study, *rest)

    monkeypatch.setattr(search, 'run_trials', run_twice)
    study = search.search(args)
    assert (len(refused), len(study.trials)) == (1, 1)


def test_search_keeps_what_is_given(write_graph, tmp_path, constants):
    """In every trial and in the command, be it a part of the space, ``gnn``, or not, ``epochs``."""
    write_graph(tmp_path / 'toy.npz')
    constants(checkpoints=tmp_path / 'checkpoints')
    changes = ['epochs=2', 'options.gnn=sage', 'options.gnn_input=hidden']
    args = search_arguments(tmp_path, 'sgformer', 3, changes)
    study = search.search(args)
    assert [trial.params['gnn'] for trial in study.trials] == ['sage'] * 3
    assert len({trial.params['lr'] for trial in study.trials}) == 3
    _, (plan,) = node_classification.parse(search.command(args, study).split()[3:])
    assert plan.config['epochs'] == 2
    assert (plan.config['options']['gnn'], plan.config['options']['gnn_input']) == (
        'sage',
        'hidden',
    )


def test_search_keeps_what_a_trial_would_ask_for(write_graph, tmp_path, constants, monkeypatch):
    """Trials with ``gnn=sage`` had the input of the hidden layer instead."""
    write_graph(tmp_path / 'toy.npz')
    constants(checkpoints=tmp_path / 'checkpoints')
    prepare, inputs = search.prepare, []

    def recorded(data, parts, model, config, *rest):
        inputs.append(config['options']['gnn_input'])
        return prepare(data, parts, model, config, *rest)

    monkeypatch.setattr(search, 'prepare', recorded)
    changes = ['epochs=1', 'options.gnn=sage', 'options.gnn_input=input']
    args = search_arguments(tmp_path, 'sgformer', 1, changes)
    study = search.search(args)
    assert set(inputs) == {'input'}
    _, (plan,) = node_classification.parse(search.command(args, study).split()[3:])
    assert plan.config['options']['gnn_input'] == 'input'


def test_search_reads_the_graph_with_wrong_edges(write_graph, tmp_path, constants, monkeypatch):
    """The trials had the right edges, and the command to measure their result had wrong ones."""
    write_graph(tmp_path / 'toy.npz')
    constants(checkpoints=tmp_path / 'checkpoints')
    graphs = []
    monkeypatch.setattr(search, 'run_trials', lambda *args: graphs.append(args[3].edge_index))
    for changes in ([], ['wrong_edges=0.5']):
        search.search(search_arguments(tmp_path, 'sgformer', 1, changes))
    right, wrong = graphs
    assert torch.equal(wrong, with_wrong_edges(right, int(right.max()) + 1, 0.5))
    assert right.shape != wrong.shape or not torch.equal(right, wrong)


def test_a_model_without_norm_is_named_by_the_command(write_graph, tmp_path, constants):
    """The command had the text None, which is no norm."""
    write_graph(tmp_path / 'toy.npz')
    constants(checkpoints=tmp_path / 'checkpoints')
    changes = ['epochs=1', 'options.norm=null']
    args = search_arguments(tmp_path, 'graphtransformer', 1, changes)
    study = search.search(args)
    _, (plan,) = node_classification.parse(search.command(args, study).split()[3:])
    assert plan.config['options']['norm'] is None
