"""The set-up of the environment, with a stand-in for its interpreter that writes down how it is
called."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / 'tools' / 'environment.py'
STAND_IN = """#!/bin/sh
echo "PIP_RETRIES=$PIP_RETRIES $*" >> {calls}
case "$*" in
    *version\\(*torch*) echo '{torch}' ;;
    *"{failing}"*) echo '{error}' >&2; exit 1 ;;
esac
"""
NO_WHEELS = (
    'No wheels of torch-scatter and torch-sparse for this PyTorch in PIP_FIND_LINKS or at '
    'https://data.pyg.org/whl/torch-9.9.html'
)


@pytest.fixture
def tool():
    spec = importlib.util.spec_from_file_location('environment', TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def run(tool, tmp_path, monkeypatch):
    """Runs the tool in an environment whose interpreter fails at one command, and returns the
    commands."""
    calls = tmp_path / 'calls'

    def go(*arguments, failing='nothing', error='', torch='9.9'):
        python = tmp_path / 'env' / 'bin' / 'python'
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text(STAND_IN.format(calls=calls, failing=failing, error=error, torch=torch))
        python.chmod(0o755)
        monkeypatch.setattr(sys, 'argv', ['environment.py', str(tmp_path / 'env'), *arguments])
        tool.main()
        return [
            line.partition(' ')[2]
            for line in calls.read_text().splitlines()
            if ' install ' in line or 'uninstall' in line
        ]

    return go


def installed(commands):
    return [
        command.partition('--no-compile ')[2] for command in commands if '--no-compile' in command
    ]


def test_one_command_installs_pytorch_and_the_package(run):
    commands = run(
        '--torch', 'torch==2.13.0', '--extras', 'dev,fast', '--also', 'numpy==2.2.6', torch=''
    )
    assert installed(commands) == [
        'pip>=21.3',
        'setuptools>=77 wheel torch==2.13.0 numpy==2.2.6 -e .[dev,fast]',
    ]


def test_an_installed_pytorch_stays(run):
    assert installed(run('--torch', 'torch==2.13.0', '--extras', 'dev')) == [
        'pip>=21.3',
        '-e .[dev]',
    ]
    assert installed(run('--torch', 'torch==2.13.0'))[2:] == ['pip>=21.3']


def test_sparse_packages_come_from_wheels_or_are_compiled(run, capsys):
    page = '--find-links https://data.pyg.org/whl/torch-9.9.html'
    quickly = (
        f'--retries 0 --timeout 5 --no-deps --only-binary :all: {page} torch-scatter torch-sparse'
    )
    assert installed(run('--sparse', 'wheel')) == ['pip>=21.3', quickly]
    assert installed(run('--sparse', 'source'))[2:] == [
        'pip>=21.3',
        '--no-build-isolation torch-scatter torch-sparse',
    ]
    assert capsys.readouterr().out == ''


@pytest.mark.parametrize(
    'failing',
    ['--only-binary', 'import torch_scatter'],
    ids=['no wheel', 'a wheel of another PyTorch'],
)
def test_missing_wheels_end_in_one_line(failing, run, capsys):
    commands = run('--sparse', 'wheel', failing=failing)
    assert commands[-1] == '-m pip uninstall -q -y torch-scatter torch-sparse'
    assert capsys.readouterr().out == (
        f'{NO_WHEELS}: tests that need them are skipped; "make test SPARSE=source" compiles them.\n'
    )


@pytest.mark.parametrize(
    ('error', 'reason'),
    [
        (
            'ERROR: Could not find a version\nERROR: No matching distribution found for six',
            'No matching distribution found for six',
        ),
        (
            '  WARNING: Retrying after connection broken by x: /simple/\n  ERROR: No match',
            'the package index cannot be reached',
        ),
        ('killed', 'pip gave no reason'),
    ],
)
def test_a_failing_pip_ends_in_one_line(error, reason, run, tmp_path):
    message = (
        f'environment.py: pip could not install .[dev]: {reason}; the whole output is in '
        f'{tmp_path}/env/setup.log. '
    )
    message += 'PIP_INDEX_URL and PIP_FIND_LINKS name other places for packages'
    with pytest.raises(SystemExit, match=f'^{re.escape(message)}$'):
        run('--extras', 'dev', failing='.[dev]', error=error)


@pytest.mark.parametrize(('of_user', 'expected'), [(None, '2'), ('7', '7')])
def test_an_index_without_an_answer_is_not_asked_for_long(
    of_user, expected, run, tmp_path, monkeypatch
):
    monkeypatch.delenv('PIP_RETRIES', raising=False)
    if of_user is not None:
        monkeypatch.setenv('PIP_RETRIES', of_user)
    run('--extras', 'dev')
    lines = (tmp_path / 'calls').read_text().splitlines()
    assert [line.split()[0] for line in lines if ' install ' in line] == [
        f'PIP_RETRIES={expected}'
    ] * 2


def test_an_environment_that_was_interrupted_is_made_again(tool, tmp_path, monkeypatch):
    folder, executable = tmp_path / 'env', tmp_path / 'python'
    (folder / 'bin').mkdir(parents=True)
    (folder / 'bin' / 'python').symlink_to('/bin/false')
    executable.write_text(f'#!/bin/sh\necho "$*" > {tmp_path}/calls\n')
    executable.chmod(0o755)
    monkeypatch.setattr(sys, 'executable', str(executable))
    tool.Environment(folder)
    assert (tmp_path / 'calls').read_text() == f'-m venv --clear {folder}\n'


@pytest.mark.parametrize(
    ('reason', 'advice'),
    [
        ('No module named venv', 'on Debian, apt install python3-venv'),
        ('Error: [Errno 30] Read-only file system: /x', 'choose a folder that can be written to'),
    ],
)
def test_an_environment_that_cannot_be_made_ends_in_one_line(
    reason, advice, tool, tmp_path, monkeypatch
):
    executable = tmp_path / 'python'
    executable.write_text(f'#!/bin/sh\necho "Traceback"; echo "{reason}"; exit 1\n')
    executable.chmod(0o755)
    monkeypatch.setattr(sys, 'executable', str(executable))
    message = (
        f'environment.py: no virtual environment could be made in {tmp_path / "env"} ({reason}); '
        f'{advice}'
    )
    with pytest.raises(SystemExit, match=f'^{re.escape(message)}$'):
        tool.Environment(tmp_path / 'env')


def test_an_old_python_ends_in_one_line(run, monkeypatch):
    monkeypatch.setattr(sys, 'version_info', (3, 9, 18))
    monkeypatch.setattr(sys, 'version', '3.9.18 (main)')
    message = (
        'environment.py: Python 3.10 or newer is needed (got 3.9.18); name another with "make '
        'PYTHON=python3.12 .."'
    )
    with pytest.raises(SystemExit, match=f'^{re.escape(message)}$'):
        run('--extras', 'dev')
