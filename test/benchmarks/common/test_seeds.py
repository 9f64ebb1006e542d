import json

import pytest
import torch

from benchmarks.common import training as training_module
from benchmarks.common.seeds import Schedule, train_seeds
from benchmarks.common.training import Training


@pytest.fixture
def run(tmp_path):
    """Trains a small model for each seed."""

    def prepare(seed):
        torch.manual_seed(seed)
        model, x = torch.nn.Linear(2, 1), torch.randn(8, 2)
        return Training(
            model,
            torch.optim.SGD(model.parameters(), lr=0.1),
            lambda model, batch: model(batch).square().mean(),
            lambda: [x],
            lambda model: -float(model(x).square().mean()),
            tmp_path / f'{seed}.safetensors',
        )

    def measure(training, seed):
        return {'seed': float(seed), 'best_epoch': training.best_epoch}

    def train(*seeds, every=1, **options):
        return train_seeds(seeds, prepare, measure, Schedule(6, 6, every), 'linear', **options)

    return train


def test_metrics_have_a_value_for_each_seed_in_order(run, capsys):
    results = run(3, 1)
    assert results.metrics == {'seed': [3.0, 1.0], 'best_epoch': [6, 6]}
    assert results.parameters == 3
    printed = [line.partition(': ') for line in capsys.readouterr().out.splitlines()]
    assert [name for name, _, _ in printed] == ['seed 3', 'seed 1']
    assert [json.loads(metrics)['seed'] for _, _, metrics in printed] == [3.0, 1.0]


def test_commits_and_the_largest_peak_of_all_seeds_are_returned(run, monkeypatch):
    monkeypatch.setattr(training_module, 'commit', lambda: 'first')
    monkeypatch.setattr(training_module, 'peak_mib', lambda: 900.0)
    assert run(0).training_commits == ['first']
    monkeypatch.setattr(training_module, 'commit', lambda: 'second')
    monkeypatch.setattr(training_module, 'peak_mib', lambda: 100.0)
    results = run(1, 0)
    assert results.training_commits == ['second', 'first']
    assert results.peak_memory_mib == 900.0


def test_nothing_is_printed_on_request(run, capsys):
    run(0, print_metrics=False)
    assert capsys.readouterr().out == ''


def test_the_last_training_is_returned_with_its_best_weights(run, tmp_path):
    training = run(3, 1).training
    assert training.path == tmp_path / '1.safetensors'
    weights = training.model.state_dict()
    assert all(torch.equal(weights[name], best) for name, best in training.best.items())


def test_a_seed_trains_alike_alone_and_after_others(run, tmp_path):
    after = run(3, 1).training.model.state_dict()
    (tmp_path / '1.safetensors').unlink()
    alone = run(1).training.model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in alone.items())


def test_scores_come_every_few_epochs(run):
    results = run(0, every=3)
    assert results.training.history[:, 0].tolist() == [3, 6]


def test_curves_are_written_for_each_seed(run, tmp_path):
    run(0, 2, tensorboard=str(tmp_path / 'curves'))
    assert sorted(path.name for path in (tmp_path / 'curves').iterdir()) == ['0', '2']
