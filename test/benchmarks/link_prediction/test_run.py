import csv
import json
import sys

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from benchmarks.link_prediction import __main__ as link_prediction
from benchmarks.link_prediction import run as link_run
from benchmarks.link_prediction.settings import (
    CONTROLS,
    ENCODERS,
    HEURISTIC,
    TRAINING,
    make_config,
)


def blocks(*_):
    """Two groups of nodes, which their features tell; most edges are within a group."""
    generator = torch.Generator().manual_seed(0)
    group = torch.arange(60) % 2
    source, target = torch.randint(60, (2, 500), generator=generator)
    keep = (group[source] == group[target]) & (source != target)
    edges = to_undirected(torch.stack([source, target])[:, keep], num_nodes=60)
    x = torch.rand(60, 8, generator=generator)
    x[:, 0] += 3 * group
    return Data(x=x, edge_index=edges, y=group)


@pytest.fixture
def script(monkeypatch, constants, tmp_path):
    constants(checkpoints=tmp_path / 'checkpoints')
    monkeypatch.setattr(link_run, 'load', blocks)

    def call(*words):
        argv = ['x', '--dataset', 'toy.npz', '--output', str(tmp_path), *words]
        monkeypatch.setattr(sys, 'argv', argv)
        link_prediction.main()
        folder = tmp_path / 'link_prediction'
        records = [json.loads(path.read_text()) for path in sorted(folder.glob('*.json'))]
        return {(record['model'], record['variant']): record for record in records}

    return call


@pytest.mark.parametrize('model', ENCODERS)
def test_encoders_read_the_training_edges_only(model, script, monkeypatch):
    monkeypatch.setitem(TRAINING, 'epochs', 10)
    seen, make = [], link_run.make

    def record(*arguments):
        seen.append(arguments[3])
        return make(*arguments)

    monkeypatch.setattr(link_run, 'make', record)
    result = script('--model', model, '--seeds', '0', '1')[model, '']
    assert result['metrics']['best_epoch']['values'] == [10, 10]
    assert result['protocol'] == 'random-85-5-10'
    cpu = torch.device('cpu')
    splits = [link_run.Split(blocks(), seed, cpu) for seed in (0, 1)]
    assert all(torch.equal(edges, split.train) for edges, split in zip(seen, splits, strict=True))


def test_three_encoders_learn_slowly():
    configs = {model: make_config(model, None) for model in ENCODERS}
    found = {model: (config['lr'], config['patience']) for model, config in configs.items()}
    slow = dict.fromkeys(('difformer', 'nodeformer'), (0.001, 50)) | {'mlp': (0.01, 50)}
    assert found == dict.fromkeys(ENCODERS, (0.01, 10)) | slow


def test_controls_differ_in_the_attention(script, monkeypatch):
    monkeypatch.setitem(TRAINING, 'epochs', 10)
    wanted = {}
    for model, controls in CONTROLS.items():
        plain = script('--model', model, '--seeds', '0')[model, '']['config']['options']
        for control, changes in controls.items():
            results = script('--model', model, '--control', control, '--seeds', '0')
            wanted[model, control] = plain | changes
            assert results[model, control]['config']['options'] == plain | changes
    assert wanted['graphtransformer', 'mean']['attention'] == 'mean'
    assert wanted['sgformer', 'no-attention']['beta'] == 0.0


def test_a_trained_encoder_finds_the_groups(script, capsys, tmp_path):
    results = script('--model', 'gcn', '--seeds', '0', '1')
    results = script('--model', HEURISTIC, '--seeds', '0', '1')
    trained, heuristic = results['gcn', ''], results[HEURISTIC, '']
    # half of the nodes are in the group of a node
    assert min(trained['metrics']['recall@20']['values']) > 0.5
    assert heuristic['seeds'] == [0, 1]
    assert heuristic['parameters'] is None
    table = (tmp_path / 'link_prediction' / 'link_prediction.csv').read_text()
    rows = {row['model']: row for row in csv.DictReader(table.splitlines())}
    assert set(rows) == {'gcn', HEURISTIC}
    assert rows[HEURISTIC]['validation NDCG@20'] == ''
    capsys.readouterr()
    script('--model', 'gcn', '--seeds', '0', '1')
    assert 'finished before' in ''.join(capsys.readouterr())


@pytest.mark.parametrize(('model', 'control'), [('sgformer', 'mean'), ('gcn', 'no-attention')])
def test_a_control_of_another_model(model, control, script, capsys):
    with pytest.raises(SystemExit):
        script('--model', model, '--control', control)
    assert f'--control {control} is not for --model {model}' in capsys.readouterr().err
