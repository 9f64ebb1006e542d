import importlib.util
import json
import shutil
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch
from constants import set_constants
from module_worker import run_module

from benchmarks.common.command import ROOT
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import layers, models, report, trainings
from benchmarks.gpu.run import OutOfTimeError, Run
from benchmarks.runtime.public_cases import PUBLIC_CASES

CASES = ('kernel-attention', 'sgformer')


def run(tmp_path, monkeypatch, *arguments):
    set_constants(monkeypatch.setattr, checkpoints=tmp_path / 'checkpoints')
    monkeypatch.setattr(
        'sys.argv', ['gpu', '--device', 'cpu', '--rehearse', '--output', str(tmp_path), *arguments]
    )
    gpu.main()


def page(results):
    spec = importlib.util.spec_from_file_location('gpu_page', ROOT / 'docs' / 'gpu.py')
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.page(results)


def test_the_page_without_results_says_so(tmp_path):
    assert 'No result of a GPU is published yet' in page(tmp_path)


@pytest.fixture
def few(constants):
    """Two layers instead of all."""
    constants(gpu_layer_cases={name: layers.CASES[name] for name in CASES})


@pytest.fixture
def forked(monkeypatch, start, exit_code):
    """Runs pytest in a fork of a process that has imported PyTorch."""

    def run(command, cwd, env, stdout, stderr, timeout, check):
        assert command[:3] == [sys.executable, '-m', 'pytest']
        assert stderr == stdout
        assert 0 < timeout <= 40 * 60
        assert not check
        assert exit_code(start(run_module, command[2:], cwd, env, stdout.name)) == 0

    monkeypatch.setattr(trainings, 'subprocess', SimpleNamespace(run=run, TimeoutExpired=OSError))


def test_the_whole_run_rehearsed(tmp_path, monkeypatch, capsys, forked):
    run(tmp_path, monkeypatch)
    summary = json.loads((tmp_path / 'gpu' / 'summary.json').read_text())
    assert summary == [{'step': step, 'outcome': 'done'} for step in gpu.STEPS]
    measured = [path.stem for path in (tmp_path / 'gpu').glob('*.json')]
    public = {name for name in layers.CASES if name in PUBLIC_CASES}
    expected = {
        f'{name}-random-200-{dtype}'
        for name in layers.CASES.keys() - public
        for dtype in ('float32', 'bfloat16')
    }
    assert expected < {*measured}
    tables = {path.stem for path in (tmp_path / 'gpu').glob('*.csv')}
    assert tables == {'device', 'layers', 'models', 'summary'}
    assert {path.stem for path in (tmp_path / 'gpu').glob('*.png')} == {'times', 'shares'}
    text = page(tmp_path / 'gpu')
    assert [
        f'{name}.csv' in text for name in ('summary', 'device', 'layers', 'models', 'autotuning')
    ] == [True] * 4 + [False]
    assert [f'{name}.png' in text for name in ('times', 'shares')] == [True] * 2
    sbm = json.loads((tmp_path / 'sbm' / 'litegt-jaccard-sampling-cluster.json').read_text())
    assert sbm['config']['epochs'] == 1
    tests = json.loads((tmp_path / 'gpu' / 'tests-pytest.json').read_text())['metrics']
    assert tests['tests']['values'][0] > 0
    assert tests['failures']['values'] == tests['errors']['values'] == [0.0]


def test_the_same_command_goes_on(tmp_path, monkeypatch, few, capsys):
    run(tmp_path, monkeypatch, '--only', 'bounds', 'layers')
    before = {path: path.read_bytes() for path in (tmp_path / 'gpu').glob('*-*.json')}
    capsys.readouterr()
    run(tmp_path, monkeypatch, '--only', 'bounds', 'layers')
    assert capsys.readouterr().err.count(': measured before') == len(before) == 1 + 2 * len(CASES)
    assert {path: path.read_bytes() for path in before} == before
    monkeypatch.setitem(layers.SETTINGS, 'channels', 32)
    run(tmp_path, monkeypatch, '--only', 'layers')
    assert capsys.readouterr().err.count(': measured before') == 0


def test_the_end_of_the_time_is_an_outcome_and_failures_end_with_1(
    tmp_path, monkeypatch, few, capsys
):
    run(tmp_path, monkeypatch, '--only', 'layers', '--limit', '0')
    assert json.loads((tmp_path / 'gpu' / 'summary.json').read_text()) == [
        {'step': 'layers', 'outcome': 'out of time: the same command goes on'}
    ]

    def fail(_):
        raise ValueError('first line\nsecond line')

    monkeypatch.setitem(gpu.STEPS, 'bounds', fail)
    with pytest.raises(SystemExit, match=r'^1$'):
        run(tmp_path, monkeypatch, '--only', 'bounds', 'layers')
    outcomes = {
        row['step']: row['outcome']
        for row in json.loads((tmp_path / 'gpu' / 'summary.json').read_text())
    }
    assert outcomes == {'bounds': 'failed: first line', 'layers': 'done'}


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--device', 'cpu'], '--device cpu is for --rehearse only'),
        (['--device', 'cuda'], '--device cpu --rehearse tries the command itself'),
    ],
)
def test_devices_that_cannot_be_measured(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    monkeypatch.setattr('sys.argv', ['gpu', *arguments])
    with pytest.raises(SystemExit, match=r'^2$'):
        gpu.main()
    assert message in capsys.readouterr().err


def test_tables_of_results_need_no_device(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    published, folder = ROOT / 'benchmarks' / 'results' / 'gpu', tmp_path / 'gpu'
    tables = [path.name for path in published.glob('*.md')]
    shutil.copytree(published, folder, ignore=shutil.ignore_patterns('*.md', '*.csv', '*.png'))
    monkeypatch.setattr('sys.argv', ['gpu', '--only', '--output', str(tmp_path)])
    gpu.main()
    written = {path.name: path.read_text() for path in folder.glob('*.md')}
    assert written == {name: (published / name).read_text() for name in tables}


@pytest.mark.parametrize('kind', ['failure', 'error'])
def test_failed_tests_are_named_and_run_again(kind, tmp_path, monkeypatch):
    suite = (
        '<testsuites><testsuite tests="2" failures="1" errors="0" skipped="0" '
        'time="1.5"><testcase name="good"/>'
    )
    suite += '<testcase name="bad"><' + kind + '/></testcase></testsuite></testsuites>'

    def pytest_run(command, **_):
        report_path = next(
            part.partition('=')[2] for part in command if part.startswith('--junitxml=')
        )
        assert command[command.index('-m', 3) + 1] == 'cuda or kernels'
        with open(report_path, 'w') as file:
            file.write(suite)

    monkeypatch.setattr(
        trainings,
        'subprocess',
        SimpleNamespace(run=pytest_run, TimeoutExpired=subprocess.TimeoutExpired),
    )
    monkeypatch.setattr(trainings, 'workers', lambda _: 2)
    now = Run(torch.device('cpu'), tmp_path, tmp_path, None, False, 1.0)
    for _ in range(2):  # the second runs them again
        assert gpu.outcome(trainings.run_tests, now).startswith(
            'failed: tests-pytest: 1 tests failed'
        )
        assert not [*(tmp_path / 'gpu').glob('*.json')]


def test_trainings_get_the_time_that_is_left(tmp_path, monkeypatch):
    commands = []

    def timeout(command, timeout, **_):
        commands.append((command, timeout))
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(
        trainings,
        'subprocess',
        SimpleNamespace(run=timeout, TimeoutExpired=subprocess.TimeoutExpired),
    )
    now = Run(torch.device('cpu'), tmp_path, tmp_path, None, False, 10.0)
    with pytest.raises(OutOfTimeError):
        trainings.train(now)
    ((command, seconds),) = commands
    assert command[command.index('--preset') + 1] == 'full'
    assert 590 < seconds <= 600


def test_random_interactions_have_the_sizes_that_are_asked_for(tmp_path):
    torch.manual_seed(0)
    models.write_interactions(tmp_path / 'x', {'users': 50, 'items': 20, 'pairs': 300})
    rows = [
        [int(number) for number in line.split()]
        for line in (tmp_path / 'x' / 'raw.txt').read_text().splitlines()
    ]
    assert [row[0] for row in rows] == [*range(50)]
    assert {item for row in rows for item in row[1:]} == {*range(20)}
    assert 200 < sum(len(row) - 1 for row in rows) <= 300


def test_the_share_of_the_bound():
    def metrics(**values):
        return {name: {'values': [value]} for name, value in values.items()}

    bounds = {'metrics': metrics(bytes_per_second=1e12, float32_flops_per_second=1e13)}
    layer = {
        'metrics': metrics(ours_seconds=0.01, flops=2e10, fewest_bytes=4e9),
        'config': {'dtype': 'float32'},
    }
    assert report.share(layer, bounds) == pytest.approx(0.4)
    layer['metrics'] |= metrics(flops=5e10)
    assert report.share(layer, bounds) == pytest.approx(0.5)
    assert report.share(layer, None) is None
