"""The wheel, as a user gets it: built, checked, installed into an empty environment, where the
first example of the README runs."""

import re
import subprocess
import sys
import venv
from importlib.metadata import version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run(*command, **options):
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.distribution
def test_wheel_in_an_empty_environment(tmp_path):
    checkout, folder = tmp_path / 'checkout', tmp_path / 'dist'
    run('git', 'clone', '-q', ROOT, checkout)
    run(sys.executable, '-m', 'build', '--no-isolation', '--outdir', folder, checkout)
    wheel, source = next(folder.glob('*.whl')), next(folder.glob('*.tar.gz'))
    run(sys.executable, '-m', 'twine', 'check', '--strict', wheel, source)
    run(sys.executable, '-m', 'check_wheel_contents', wheel)
    venv.create(tmp_path / 'empty', with_pip=True)
    python = tmp_path / 'empty' / 'bin' / 'python'
    run(python, '-m', 'pip', 'install', '-q', f'torch=={version("torch").partition("+")[0]}', wheel)
    example = re.search(
        r'## Use\n.*?```python\n(.*?)```', (ROOT / 'README.md').read_text(), re.DOTALL
    )[1]
    code = f'{example}\nimport torch_geometric_lgt; print(torch_geometric_lgt.__file__)'
    assert str(tmp_path / 'empty') in run(python, '-c', code, cwd=tmp_path)
