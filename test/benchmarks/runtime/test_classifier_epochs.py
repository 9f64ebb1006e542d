import csv
import json
import sys

import numpy as np

from benchmarks.runtime import classifier_epochs


def test_from_a_graph_to_the_table(monkeypatch, tmp_path):
    """Polynormer is measured with its attention."""
    path = np.arange(20)
    edges = np.stack([path, (path + 1) % 20], 1)
    np.savez(tmp_path / 'ring.npz', x=np.eye(20, dtype=np.float32), y=path % 3, edges=edges)
    runs = []

    def start(*arguments):
        runs.append(started(*arguments))
        return runs[-1]

    started = classifier_epochs.start
    monkeypatch.setattr(classifier_epochs, 'start', start)
    place = ['--root', str(tmp_path), '--datasets', 'ring.npz', '--output', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', ['x', *place, '--rounds', '2'])
    classifier_epochs.main()
    folder = tmp_path / 'runtime'
    models = ['graphtransformer', 'sgformer', 'gcn', 'polynormer']
    assert [run.model.name for run in runs] == models
    assert [run.epoch for run in runs] == [3, 3, 3, 103]
    assert runs[-1].model.model._global
    metrics = json.loads((folder / 'classifier-epochs-ring.json').read_text())['metrics']
    assert {model: len(part['values']) for model, part in metrics.items()} == dict.fromkeys(
        models, 2
    )
    rows = list(csv.DictReader((folder / 'classifier-epochs.csv').read_text().splitlines()))
    assert [row['model'] for row in rows] == models
    assert rows[-1]['times polynormer'] == '1.00'

    monkeypatch.setattr(sys, 'argv', ['x', *place, '--table'])
    monkeypatch.delattr(classifier_epochs, 'start')
    (folder / 'classifier-epochs.csv').unlink()
    classifier_epochs.main()
    assert list(csv.DictReader((folder / 'classifier-epochs.csv').read_text().splitlines())) == rows
