import json

import pytest

from benchmarks.common import training


def test_runs_from_data_to_table(run, monkeypatch, tmp_path, capsys):
    run(monkeypatch, tmp_path, '--dataset', 'CLUSTER', '--models', 'gt', 'gcn')
    record = json.loads((tmp_path / 'sbm' / 'gt-cluster-small.json').read_text())
    assert record['protocol'] == 'small'
    assert record['config']['train_graphs'] == 6
    assert len(record['metrics']['accuracy']['values']) == 2
    table = capsys.readouterr().out
    assert '| cluster | small | gt |' in table
    assert '| 73.17 |' in table
    assert table.endswith((tmp_path / 'sbm' / 'sbm.md').read_text() + '\n')
    monkeypatch.setattr(training.Training, 'run_epoch', lambda self: pytest.fail('trained again'))
    run(monkeypatch, tmp_path, '--dataset', 'CLUSTER', '--models', 'gt')
    again = json.loads((tmp_path / 'sbm' / 'gt-cluster-small.json').read_text())
    assert again['metrics']['accuracy'] == record['metrics']['accuracy']


def test_another_number_of_layers_is_a_variant(run, monkeypatch, tmp_path):
    run(monkeypatch, tmp_path, '--dataset', 'CLUSTER', '--models', 'gcn', '--layers', '2')
    record = json.loads((tmp_path / 'sbm' / 'gcn-cluster-small-2-layers.json').read_text())
    assert record['protocol'] == 'small-2-layers'
    assert record['config']['options'] == {'num_layers': 2}


def test_reduced_layers_have_as_many_heads_as_divide_their_channels(run, monkeypatch, tmp_path):
    name = 'litegt-jaccard-sampling-reduced'
    run(monkeypatch, tmp_path, '--dataset', 'PATTERN', '--models', name, '--layers', '4')
    record = json.loads((tmp_path / 'sbm' / f'{name}-pattern-small-4-layers.json').read_text())
    assert record['config']['options'] == {'num_layers': 4, 'heads': 4}
