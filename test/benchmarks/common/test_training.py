import os

import pytest
import torch
from torch.nn import Dropout, Linear, Sequential

from benchmarks.common import training as module
from benchmarks.common.files import DataError
from benchmarks.common.rates import Cosine, Plateau
from benchmarks.common.training import SecondPhase, Training, checkpoint, fingerprint

TARGET = torch.tensor([[1.0], [-2.0], [0.5]])


class Killed(Exception):
    pass


def training(path, kill_at=None):
    torch.manual_seed(0)
    model = Sequential(Dropout(0.2), Linear(3, 1))
    steps = []

    def batches():
        return torch.randn(4, 8, 3).unbind()

    def loss(model, batch):
        steps.append(None)
        if len(steps) == kill_at:
            raise Killed
        return (model(batch) - batch @ TARGET).square().mean()

    def score(model):
        return -float((model[1].weight - TARGET.t()).abs().sum().detach())

    return Training(
        model, torch.optim.Adam(model.parameters(), lr=0.05), loss, batches, score, path
    )


def test_goes_on_after_a_kill_as_if_nothing_had_happened(tmp_path, constants):
    constants(checkpoint_seconds=0.0)
    whole = training(tmp_path / 'whole')
    curve = []
    whole.fit(20, 3, 2, 'whole', lambda *values: curve.append(values))
    for kill_at in (3, 17, 20, 31):  # in the first epoch, just after a checkpoint, between two
        try:
            training(tmp_path / 'parts', kill_at).fit(20, 3, 2, 'parts', lambda *_: None)
        except Killed:
            continue
    parts = training(tmp_path / 'parts')
    parts.fit(20, 3, 2, 'parts', lambda *_: None)
    assert (parts.epoch, parts.best_epoch, parts.best_score) == (
        whole.epoch,
        whole.best_epoch,
        whole.best_score,
    )
    assert [epoch for name, _, epoch in curve if name == 'loss'] == list(range(1, whole.epoch + 1))
    assert [epoch for name, _, epoch in curve if name == 'score'] == [
        epoch for epoch in range(1, 21) if epoch % 2 == 0
    ][: whole.epoch // 2]
    assert max(value for name, value, _ in curve if name == 'score') == whole.best_score
    assert all(
        torch.equal(a, b)
        for a, b in zip(
            parts.model.state_dict().values(), whole.model.state_dict().values(), strict=True
        )
    )


def test_a_finished_run_says_so_and_from_where(tmp_path, capsys):
    path = tmp_path / 'run'
    training(path).fit(20, 1, 1, 'ours, seed 0', lambda *_: None)
    first = capsys.readouterr().err
    assert 'read back' not in first
    ended = training(path).epoch
    assert ended < 20
    assert f'{ended}/{ended}' in first  # the bar of a training that stops early is full
    again = training(path)
    again.run_epoch = None
    again.fit(20, 1, 1, 'ours, seed 0', lambda *_: None)
    assert (
        capsys.readouterr().err
        == f'ours, seed 0: finished before after {ended} epochs, read back from {path}\n'
    )


@pytest.mark.parametrize(
    'content',
    [
        lambda whole: whole[:-20],
        lambda whole: b'',
        lambda whole: whole[:-1] + bytes([whole[-1] ^ 1]),
    ],
)
def test_a_damaged_checkpoint_is_trained_anew(content, tmp_path, capsys):
    path = tmp_path / 'run'
    first = training(path)
    first.fit(5, 5, 1, 'ours', lambda *_: None)
    whole = path.read_bytes()
    path.write_bytes(content(whole))
    capsys.readouterr()
    again = training(path)
    assert again.epoch == 0
    again.fit(5, 5, 1, 'ours', lambda *_: None)
    assert f'{path} is no intact checkpoint: the training starts anew\n' in capsys.readouterr().err
    assert torch.equal(again.model[1].weight, first.model[1].weight)
    assert training(path).epoch == 5


@pytest.mark.parametrize('place', [os.mkdir, os.mkfifo])
def test_what_is_no_file_is_not_trained_over(place, tmp_path):
    place(tmp_path / 'run')
    with pytest.raises(DataError, match=r"must be a regular file .*run'.*; remove it$"):
        training(tmp_path / 'run')


def test_a_folder_that_cannot_be_written_is_refused_before_the_training(tmp_path, monkeypatch):
    first = training(tmp_path / 'done')
    first.fit(5, 5, 1, 'ours', lambda *_: None)
    monkeypatch.setattr(os, 'access', lambda *_: False)
    message = rf"^'{tmp_path}' must be a folder that can be written for checkpoints; .* checkout$"
    with pytest.raises(DataError, match=message):
        training(tmp_path / 'new' / 'run', kill_at=1).fit(5, 5, 1, 'ours', lambda *_: None)
    again = training(tmp_path / 'done', kill_at=1)  # is read only
    again.fit(5, 5, 1, 'ours', lambda *_: None)
    assert torch.equal(again.model[1].weight, first.model[1].weight)


def test_a_resumed_run_says_so(tmp_path, capsys, constants):
    constants(checkpoint_seconds=0.0)
    with pytest.raises(Killed):
        training(tmp_path / 'run', 9).fit(20, 100, 1, 'ours', lambda *_: None)
    capsys.readouterr()
    training(tmp_path / 'run').fit(20, 100, 1, 'ours', lambda *_: None)
    assert (
        f'ours: goes on after 2 epochs, read from {tmp_path / "run"}\n' in capsys.readouterr().err
    )


def test_a_checkpoint_is_named_after_settings_data_and_version(
    tmp_path, monkeypatch, constants, capsys
):
    constants(checkpoints=tmp_path)
    data = {
        'x': torch.randn(4, 2),
        'edge_index': torch.tensor([[0, 1], [1, 2]]),
        'none': torch.empty(2, 0),
    }
    path = checkpoint('ours', 'mine', ['lr', 0.1], fingerprint(data))
    assert (
        checkpoint(
            'ours',
            'mine',
            ['lr', 0.1],
            fingerprint({name: value.clone() for name, value in data.items()}),
        )
        == path
    )
    path.touch()
    assert capsys.readouterr().err == ''
    assert checkpoint('ours', 'mine', ['lr', 0.2], fingerprint(data)) != path
    assert capsys.readouterr().err == ''
    edges = {'edge_index': data['edge_index'].flip(0)}
    for changed in (
        {'x': data['x'] + 1e-6},
        edges,
        {'x': data['x'].double()},
        {'x': data['x'].view(2, 4)},
        {'y': data['x']},
    ):
        other = checkpoint('ours', 'mine', ['lr', 0.1], fingerprint({**data, **changed}))
        assert other != path
        assert capsys.readouterr().err == f'{path} is of other data: the training starts anew\n'
    monkeypatch.setattr(module, '__version__', '9.9')
    assert checkpoint('ours', 'mine', ['lr', 0.1], fingerprint(data)) != path
    assert (
        capsys.readouterr().err
        == f'{path} is of another version of the package: the training starts anew\n'
    )


def test_batches_come_to_the_device_and_products_in_the_precision(tmp_path):
    class Recorded:
        def __init__(self):
            self.devices = []

        def to(self, device):
            self.devices.append(device)
            return torch.ones(2, 3)

    seen, batch, model = [], Recorded(), Linear(3, 1)

    def loss(model, x):
        seen.append(model(x).dtype)
        return model(x).sum()

    run = Training(
        model,
        torch.optim.SGD(model.parameters()),
        loss,
        lambda: [batch],
        lambda _: 0.0,
        tmp_path / 'run',
        precision='bfloat16',
    )
    run.run_epoch()
    assert batch.devices == [torch.device('cpu')]
    assert seen == [torch.bfloat16]


def test_stops_and_returns_the_best_weights(tmp_path):
    run = training(tmp_path / 'run')
    seen = []

    def score(model):
        seen.append(model[1].weight.clone())
        return -abs(len(seen) - 3.0)  # the third score is the best

    run.score = score
    run.fit(100, 4, 1, 'run', lambda *_: None)
    assert (run.epoch, run.best_epoch) == (7, 3)
    assert torch.equal(run.model[1].weight, seen[2])


def in_two_phases(path, kill_at=None):
    run = training(path, kill_at)
    run.begun, run.seen = [], []
    run.second_phase = SecondPhase(5, lambda: run.begun.append(run.epoch))

    def score(model):
        run.seen.append(model[1].weight.clone())
        return 10.0 - run.epoch if run.epoch <= 5 else -abs(run.epoch - 8.0)

    run.score = score
    return run


def test_the_second_phase_starts_from_the_best_weights_of_the_first(tmp_path):
    run = in_two_phases(tmp_path / 'run')
    starts, run_epoch = [], run.run_epoch

    def watched():
        hook = run.model.register_forward_pre_hook(
            lambda model, _: starts.append(model[1].weight.detach().clone())
        )
        loss = run_epoch()
        hook.remove()
        return loss

    run.run_epoch = watched
    run.fit(100, 2, 1, 'run', lambda *_: None)
    # four batches an epoch; the patience of 2 ended neither the first phase nor its wait
    assert run.begun == [5]
    assert torch.equal(starts[5 * 4], run.seen[0])
    assert (run.epoch, run.best_epoch, run.best_score) == (10, 8, 0.0)
    assert torch.equal(run.model[1].weight, run.seen[7])


@pytest.mark.parametrize('kill_at', [9, 20, 21, 30])
def test_both_phases_go_on_after_a_kill(kill_at, tmp_path, constants):
    constants(checkpoint_seconds=0.0)
    whole = in_two_phases(tmp_path / 'whole')
    whole.fit(100, 2, 1, 'whole', lambda *_: None)
    with pytest.raises(Killed):
        in_two_phases(tmp_path / 'parts', kill_at).fit(100, 2, 1, 'parts', lambda *_: None)
    parts = in_two_phases(tmp_path / 'parts')
    parts.fit(100, 2, 1, 'parts', lambda *_: None)
    assert (parts.epoch, parts.best_epoch) == (10, 8)
    assert torch.equal(parts.model[1].weight, whole.model[1].weight)


def test_a_training_read_back_in_its_second_phase_begins_it(tmp_path):
    first = in_two_phases(tmp_path / 'run')
    first.fit(100, 2, 1, 'run', lambda *_: None)
    begun = []
    Training(
        first.model,
        first.optimizer,
        first.loss,
        first.batches,
        first.score,
        tmp_path / 'run',
        second_phase=SecondPhase(5, lambda: begun.append('again')),
    )
    assert begun == ['again']


def test_spike_of_the_loss(tmp_path):
    run = training(tmp_path / 'run')
    run.history = torch.tensor([[1.0, 3.0, 0.0], [2.0, 1.0, 0.0], [3.0, 2.5, 0.0], [4.0, 0.5, 0.0]])
    assert run.loss_spike == 1.5


def test_learning_rate_on_a_plateau():
    plateau = Plateau(0.8, 1, 0.1)
    losses = [3.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0]
    assert [plateau.rate(losses[:i]) for i in range(9)] == [
        0.8,
        0.8,
        0.8,
        0.8,
        0.4,
        0.4,
        0.2,
        0.2,
        0.2,
    ]


def test_learning_rate_rises_then_falls_along_a_cosine():
    cosine = Cosine(0.8, 6, 2)
    rates = [cosine.rate([0.0] * epoch) for epoch in range(7)]
    half = 0.5**0.5 / 2
    expected = [0.8 / 3, 1.6 / 3, 0.8, 0.8 * (0.5 + half), 0.4, 0.8 * (0.5 - half), 0.0]
    assert rates == pytest.approx(expected, abs=1e-15)


def test_ends_on_the_plateau_and_resumes_its_rate(tmp_path, constants):
    constants(checkpoint_seconds=0.0)

    def make(path):
        run, rates = training(path), []
        run.rates = Plateau(0.05, 1, 0.01)
        run.history = torch.empty(0, 4) if not len(run.history) else run.history
        run.score = lambda model: (float(len(run.history)), 1.0)
        run.loss = lambda model, batch: (
            rates.append(run.optimizer.param_groups[0]['lr'])
            or (model(batch) - batch @ TARGET).square().mean()
        )
        return run, rates

    whole, expected = make(tmp_path / 'whole')
    whole.fit(100, 100, 1, 'whole', lambda *_: None)
    assert whole.epoch == 7
    assert expected[::4] == [0.05, 0.05, 0.05, 0.025, 0.025, 0.0125, 0.0125]
    first, _ = make(tmp_path / 'parts')
    first.fit(4, 100, 1, 'parts', lambda *_: None)
    second, rates = make(tmp_path / 'parts')
    second.fit(100, 100, 1, 'parts', lambda *_: None)
    assert rates == expected[16:]


def test_a_checkpoint_tells_which_commits_trained_it(tmp_path, monkeypatch, constants):
    constants(checkpoint_seconds=0.0)
    monkeypatch.setattr(module, 'commit', lambda: 'first')
    with pytest.raises(Killed):
        training(tmp_path / 'run', 9).fit(4, 100, 1, 'ours', lambda *_: None)
    monkeypatch.setattr(module, 'commit', lambda: 'second')
    resumed = training(tmp_path / 'run')
    resumed.fit(4, 100, 1, 'ours', lambda *_: None)
    assert resumed.commits == ['first', 'second']
    monkeypatch.setattr(module, 'commit', lambda: 'third')
    finished = training(tmp_path / 'run')
    finished.fit(4, 100, 1, 'ours', lambda *_: None)
    assert finished.commits == ['first', 'second']


def test_a_checkpoint_without_a_commit_is_of_an_unknown_one(tmp_path):
    training(tmp_path / 'run').fit(2, 100, 1, 'ours', lambda *_: None)
    tensors = module.read_tensors(tmp_path / 'run', module.KIND)
    del tensors['commits'], tensors['peak_memory_mib']
    module.write_tensors(tmp_path / 'run', tensors, module.KIND)
    assert training(tmp_path / 'run').commits == ['unknown']


def test_the_peak_of_a_training_outlives_its_process(tmp_path, monkeypatch):
    monkeypatch.setattr(module, 'peak_mib', lambda: 900.0)
    training(tmp_path / 'run').fit(2, 100, 1, 'ours', lambda *_: None)
    monkeypatch.setattr(module, 'peak_mib', lambda: 100.0)
    assert training(tmp_path / 'run').peak_memory_mib == 900.0
    assert training(tmp_path / 'other').peak_memory_mib == 100.0


@pytest.mark.parametrize(
    ('losses', 'expected'),
    [
        ([3.0, 1.0, 2.5, 0.5], 1.5),
        ([1.0, float('nan'), 0.5], torch.finfo(torch.float32).max),
        ([float('nan')], torch.finfo(torch.float32).max),
        ([1.0, float('inf')], torch.finfo(torch.float32).max),
    ],
)
def test_loss_spike_is_a_number_after_a_loss_that_is_none(losses, expected, tmp_path):
    diverged = training(tmp_path / 'run')
    diverged.history = torch.tensor([[0.0, loss, 0.0] for loss in losses])
    assert diverged.loss_spike == expected
