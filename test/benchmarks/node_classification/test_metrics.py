import json
import sys

import numpy as np
import pytest
import torch

from benchmarks.common.files import DataError
from benchmarks.common.scripts import run_script
from benchmarks.node_classification import __main__ as node_classification
from benchmarks.node_classification import run, search
from benchmarks.node_classification.metrics import accuracy, check_classes, metric_of, roc_auc
from benchmarks.node_classification.settings import settings

TWO_CLASSES = ('minesweeper', 'questions', 'tolokers')


def roc_auc_of_pairs(scores, y):
    """The definition: the share of pairs of both classes in the right order."""
    difference = scores[:, 1] - scores[:, 0]
    pairs = torch.sign(difference[y == 1][:, None] - difference[y == 0][None])
    return float((pairs + 1).mean() / 2)


def test_accuracy():
    scores = torch.tensor([[0.2, 0.1, 0.0], [0.0, 0.3, 0.1], [0.0, 0.0, -1.0], [0.0, 0.0, 9.0]])
    assert accuracy(scores, torch.tensor([0, 1, 2, 2])) == 0.75
    assert accuracy(torch.full((3, 2), torch.nan), torch.zeros(3)) == 0


def test_roc_auc_ranks_nodes_by_the_difference_of_scores():
    scores = torch.tensor([[0.0, 1.0], [5.0, 5.5], [0.0, 0.0], [2.0, 2.0], [9.0, 9.9]])
    y = torch.tensor([1, 0, 1, 0, 0])
    # of class 1, 1 is above 0.5, 0 and 0.9, and 0 is equal to 0
    assert roc_auc(scores, y) == pytest.approx(3.5 / 6, abs=1e-15)
    random = torch.randn(50, 2, generator=torch.Generator().manual_seed(0))
    y = torch.arange(50) % 3 % 2
    assert roc_auc(random, y) == pytest.approx(roc_auc_of_pairs(random.double(), y), abs=1e-12)
    assert roc_auc(-random, y) == pytest.approx(1 - roc_auc(random, y), abs=1e-12)
    assert roc_auc(torch.full((50, 2), torch.nan), y) == 0.5


def test_roc_auc_needs_two_classes_in_each_part():
    y = torch.tensor([0, 1, 0, 1, -1])
    parts = {'train': torch.tensor([0, 1]), 'valid': torch.tensor([1, 2, 3])}
    check_classes(y, parts, 'roc_auc')
    with pytest.raises(DataError, match='needs nodes of both classes in the valid part'):
        check_classes(y, parts | {'valid': torch.tensor([0, 2])}, 'roc_auc')
    message = r'needs the classes 0 and 1; use accuracy \(got the classes '
    with pytest.raises(DataError, match=message + r'0, 1, 2, 3, 4 \.\.\)'):
        check_classes(torch.arange(6), {}, 'roc_auc')
    with pytest.raises(DataError, match=message + r'0\)'):
        check_classes(torch.zeros(3, dtype=torch.long), {}, 'roc_auc')
    check_classes(torch.arange(6), {'valid': torch.tensor([0])}, 'accuracy')


def test_metric_of_a_data_set():
    for name in ('deezer', *TWO_CLASSES):
        assert settings(name, None, 'gcn')[1]['metric'] == 'roc_auc'
    for name in ('cora', 'penn94', 'squirrel-filtered', 'graph.npz'):
        assert settings(name, None, 'gcn')[1]['metric'] == 'accuracy'
    assert metric_of({'config': {'metric': 'roc_auc'}}) == 'roc_auc'
    assert metric_of({'config': {}}) == 'accuracy'


@pytest.fixture
def write_two_classes():
    """Writes a data set in the raw format of PyG's class."""

    def write(root, name):
        random = np.random.default_rng(0)
        y, number = random.integers(0, 2, 120), random.random((2, 120))
        masks = {
            'train_masks': number < 0.5,
            'val_masks': (number >= 0.5) & (number < 0.75),
            'test_masks': number >= 0.75,
        }
        folder = root / 'HeterophilousGraphDataset' / name / 'raw'
        folder.mkdir(parents=True)
        x = (random.standard_normal((120, 4)) + y[:, None]).astype(np.float32)
        edges = random.integers(0, 120, (300, 2))
        np.savez(folder / f'{name}.npz', node_features=x, node_labels=y, edges=edges, **masks)

    return write


@pytest.mark.parametrize('name', TWO_CLASSES)
def test_two_classes_are_scored_by_roc_auc(
    name, write_two_classes, monkeypatch, tmp_path, capsys, constants
):
    write_two_classes(tmp_path, name)
    constants(checkpoints=tmp_path / 'checkpoints')
    measure, expected = run.measure, []

    def measured(finished, data, test, metric):
        scores = finished.model.eval()(data.x)[0].detach()[test].double()
        expected.append(roc_auc_of_pairs(scores, data.y[test]))
        assert finished.best_score == pytest.approx(float(finished.history[:, 2].max()))
        return measure(finished, data, test, metric)

    monkeypatch.setattr(run, 'measure', measured)
    folders = ['--root', str(tmp_path), '--output', str(tmp_path)]
    words = ['--dataset', name, '--model', 'gcn', '--seeds', '0', '1', '--variant', 'short']
    monkeypatch.setattr(sys, 'argv', ['x', *folders, *words, '--set', 'epochs=9'])
    node_classification.main()
    path = tmp_path / 'node_classification' / f'gcn-{name}-fixed-splits-short.json'
    record = json.loads(path.read_text())
    assert (record['variant'], record['config']['metric']) == ('short', 'roc_auc')
    assert 'accuracy' not in record['metrics']
    assert record['metrics']['roc_auc']['values'] == pytest.approx(expected, abs=1e-6)
    assert all(0.5 < value <= 1 for value in record['metrics']['valid_roc_auc']['values'])
    assert f'| {name} | fixed-splits | gcn (short) | ROC-AUC |' in capsys.readouterr().out


def test_search_by_roc_auc(write_two_classes, monkeypatch, tmp_path, capsys, constants):
    write_two_classes(tmp_path, 'tolokers')
    constants(checkpoints=tmp_path / 'checkpoints')
    words = ['--root', str(tmp_path), '--dataset', 'tolokers', '--model', 'mlp', '--trials', '1']
    monkeypatch.setattr(sys, 'argv', ['x', *words, '--set', 'epochs=2'])
    search.main()
    assert 'validation ROC-AUC 0.' in capsys.readouterr().out


@pytest.mark.parametrize('script', [node_classification, search])
def test_roc_auc_of_three_classes_ends_in_one_line(
    script, write_graph, monkeypatch, tmp_path, constants
):
    write_graph(tmp_path / 'toy.npz')
    words = ['--root', str(tmp_path), '--dataset', 'toy.npz', '--set', 'metric=roc_auc']
    words += ['--output', str(tmp_path)] if script is node_classification else []
    constants(checkpoints=tmp_path / 'checkpoints')
    monkeypatch.setattr(sys, 'argv', ['x', *words])
    with pytest.raises(SystemExit, match=r"^x: error: 'metric' = 'roc_auc' needs the classes"):
        run_script(script.main)
