import json
from types import SimpleNamespace

import pytest

from benchmarks.common import training
from benchmarks.node_classification import run as run_module
from benchmarks.node_classification.metrics import METRICS, Metric
from benchmarks.node_classification.models import (
    MODELS,
    OURS,
)
from benchmarks.node_classification.settings import STUDIES


@pytest.mark.parametrize('model', MODELS)
def test_every_model_learns(write_graph, run, model, monkeypatch, tmp_path, capsys):
    write_graph(tmp_path / 'toy.npz')
    others = {'nodeformer': ['edge_loss_weight=0.1'], 'polynormer': ['local_epochs=5']}
    changes = ['epochs=15', *others.get(model, [])]
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
def test_half_precision_learns_as_well(write_graph, run, model, monkeypatch, tmp_path):
    write_graph(tmp_path / 'toy.npz')
    for precision in ('float32', 'bfloat16'):
        changes = ['epochs=30', f'precision={precision}']
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


def test_a_finished_run_is_read_again(write_graph, run, monkeypatch, tmp_path):
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
    titles = []
    monkeypatch.setattr(
        'benchmarks.node_classification.run.save_curves', lambda *values: titles.append(values[2])
    )
    run(monkeypatch, tmp_path, *arguments, '--curves', str(tmp_path / 'curves.png'))
    assert titles == ['SGFormer on toy, short, seed 3']
    second = json.loads(path.read_text())['metrics']
    for name in ('accuracy', 'valid_accuracy', 'best_epoch', 'epoch_ms'):
        assert first[name] == second[name]


def test_the_time_of_the_inference_is_that_of_the_scores(write_graph, run, monkeypatch, tmp_path):
    """ROC-AUC of 12,000 nodes takes as long as the scores of some models."""
    write_graph(tmp_path / 'toy.npz')
    events = []
    accuracy, measure = METRICS['accuracy'], run_module.measure
    clock = SimpleNamespace(perf_counter=lambda: events.append('clock') or len(events))
    compute = Metric('accuracy', lambda *args: events.append('metric') or accuracy.compute(*args))

    def watched(*args):
        monkeypatch.setattr(run_module, 'time', clock)
        monkeypatch.setitem(METRICS, 'accuracy', compute)
        return measure(*args)

    monkeypatch.setattr(run_module, 'measure', watched)
    run(monkeypatch, tmp_path, '--model', 'mlp', '--seeds', '0', '--set', 'epochs=1')
    assert events == ['clock'] * 10 + ['metric']


def test_a_run_with_wrong_edges_reads_another_graph(write_graph, run, monkeypatch, tmp_path):
    """Message passing has the graph, a multilayer perceptron the features only."""
    write_graph(tmp_path / 'toy.npz')
    scores = {}
    for share in (0, 1):
        for model in ('gcn', 'mlp'):
            changes = ['epochs=30', f'wrong_edges={share}']
            arguments = '--model', model, '--seeds', '0', '--variant', 'short', '--set', *changes
            run(monkeypatch, tmp_path, *arguments)
            name = f'{model}-toy-random-60-20-20-short.json'
            record = json.loads((tmp_path / 'node_classification' / name).read_text())
            assert record['config']['wrong_edges'] == share
            scores[model, share] = record['data'], record['metrics']['accuracy']['mean']
            (tmp_path / 'node_classification' / name).unlink()
    assert scores['gcn', 0][0] == scores['mlp', 0][0] != scores['gcn', 1][0]
    assert scores['gcn', 0][1] > scores['gcn', 1][1]
    assert scores['mlp', 0][1] == scores['mlp', 1][1]


@pytest.mark.parametrize('attention', STUDIES['graphtransformer']['attention'])
def test_every_attention_of_the_graph_transformer_learns(
    write_graph, run, attention, monkeypatch, tmp_path
):
    write_graph(tmp_path / 'toy.npz')
    changes = ['epochs=20', 'laplacian_pe=4', f'options.attention={attention}']
    arguments = '--model', 'graphtransformer', '--seeds', '0', '--variant', 'short', '--set'
    run(monkeypatch, tmp_path, *arguments, *changes, 'options.num_local_layers=1')
    name = 'graphtransformer-toy-random-60-20-20-short.json'
    record = json.loads((tmp_path / 'node_classification' / name).read_text())
    assert record['metrics']['accuracy']['mean'] > 0.8
