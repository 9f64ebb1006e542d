import csv
import json
import sys

from benchmarks.runtime import epochs


def test_from_a_data_set_to_the_table(root, monkeypatch, tmp_path):
    steps = {}

    def prepare(task, model, config, seed, path):
        training = prepared(task, model, config | {'epochs': 3, 'batch_size': 4}, seed, path)
        steps[config.get('refresh'), config.get('key_channels')] = model
        return training

    prepared = epochs.prepare
    monkeypatch.setattr(epochs, 'prepare', prepare)
    place = ['--root', root, '--dataset', 'own', '--output', str(tmp_path / 'results')]
    monkeypatch.setattr(sys, 'argv', ['x', *place, '--rounds', '2'])
    epochs.main()
    folder = tmp_path / 'results' / 'runtime'
    assert steps == {
        (8, 0): 'mgformer',
        (1, 0): 'mgformer',
        (1, 64): 'mgformer',
        (None, None): 'directau-lightgcn',
    }
    metrics = json.loads((folder / 'epochs-own.json').read_text())['metrics']
    assert {model: len(values['values']) for model, values in metrics.items()} == {
        'mgformer': 2,
        'mgformer-fresh-keys': 2,
        'mgformer-narrow-keys': 2,
        'directau-lightgcn': 2,
    }
    rows = list(csv.DictReader((folder / 'epochs.csv').read_text().splitlines()))
    assert [row['model'] for row in rows] == list(metrics)
    assert rows[3]['times directau-lightgcn'] == '1.00'

    monkeypatch.setattr(sys, 'argv', ['x', *place, '--table'])
    monkeypatch.delattr(epochs, 'prepare')
    (folder / 'epochs.csv').unlink()
    epochs.main()
    assert list(csv.DictReader((folder / 'epochs.csv').read_text().splitlines())) == rows
