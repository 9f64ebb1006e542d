"""Makes the virtual environment that ``make`` works in. Only the standard library is needed.

python tools/environment.py .venv --torch torch==2.13.0 --extras dev,fast --sparse wheel
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OLDEST_PIP = 'pip>=21.3'  # the first that installs this package as editable
SPARSE = ('torch-scatter', 'torch-sparse')
WHEELS = 'https://data.pyg.org/whl/torch-{version}.html'
PATIENCE = {
    'PIP_RETRIES': '2',
    'PIP_DEFAULT_TIMEOUT': '10',
}  # an index that never answers ends in half a minute
QUICKLY = ('--retries', '0', '--timeout', '5')


def stop(text: str) -> None:
    raise SystemExit(f'{Path(__file__).name}: {text}')


class Environment:
    r"""A virtual environment in a folder. The errors of pip go to a log, its progress to the
    terminal."""

    def __init__(self, folder: Path) -> None:
        self.python, self.log = folder / 'bin' / 'python', folder / 'setup.log'
        if self.works():
            return
        command = [sys.executable, '-m', 'venv', '--clear', str(folder)]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            reason = (done.stdout.strip().splitlines() or ['no reason'])[-1]
            advice = (
                'choose a folder that can be written to'
                if 'Errno' in reason
                else 'on Debian, apt install python3-venv'
            )
            stop(f'no virtual environment could be made in {folder} ({reason}); {advice}')

    def works(self) -> bool:
        r"""Tells whether the folder holds an environment that was not interrupted while it was
        made."""
        command = [str(self.python), '-m', 'pip', '--version']
        return self.python.exists() and subprocess.run(command, capture_output=True).returncode == 0

    def pip(self, *arguments: str) -> bool:
        r"""Runs ``pip install`` and tells whether it succeeded. Modules are compiled when they are
        imported."""
        command = [
            str(self.python),
            '-m',
            'pip',
            '--disable-pip-version-check',
            'install',
            '--no-compile',
            *arguments,
        ]
        with self.log.open('ab') as log:
            log.write(f'{" ".join(arguments)}\n'.encode())
            log.flush()
            return (
                subprocess.run(
                    command, cwd=ROOT, env={**PATIENCE, **os.environ}, stderr=log
                ).returncode
                == 0
            )

    def install(self, *arguments: str) -> None:
        start = self.log.stat().st_size if self.log.exists() else 0
        if not self.pip(*arguments):
            stop(
                f'pip could not install {arguments[-1]}: {self.reason(start)}; the whole output is '
                f'in {self.log}. '
                'PIP_INDEX_URL and PIP_FIND_LINKS name other places for packages'
            )

    def reason(self, start: int) -> str:
        r"""The reason of the last failure, from the log behind :obj:`start`."""
        lines = [
            line.strip()
            for line in self.log.read_bytes()[start:].decode(errors='replace').splitlines()
        ]
        if any('after connection broken by' in line for line in lines):
            return 'the package index cannot be reached'
        errors = [line.partition(' ')[2] for line in lines if line.startswith('ERROR:')]
        return errors[-1] if errors else 'pip gave no reason'

    def run(self, code: str) -> 'subprocess.CompletedProcess[str]':
        command = [str(self.python), '-W', 'ignore', '-c', code]
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def version(self, package: str) -> str:
        r"""The version of an installed package, empty where there is none."""
        return self.run(
            f'from importlib.metadata import version; print(version({package!r}))'
        ).stdout.strip()

    def has_sparse(self) -> bool:
        r"""Tells whether torch-scatter and torch-sparse fit the PyTorch that is installed: whether
        they can be imported."""
        return self.run('import torch_scatter, torch_sparse').returncode == 0


def install_sparse(environment: Environment, kind: str) -> None:
    r"""Installs torch-scatter and torch-sparse from wheels, or compiles them, against the PyTorch
    that is installed."""
    if kind == 'source':
        environment.install('--no-build-isolation', *SPARSE)
        return
    page = WHEELS.format(version=environment.version('torch'))
    if not (
        environment.pip(
            *QUICKLY, '--no-deps', '--only-binary', ':all:', '--find-links', page, *SPARSE
        )
        and environment.has_sparse()
    ):
        subprocess.run(
            [str(environment.python), '-m', 'pip', 'uninstall', '-q', '-y', *SPARSE],
            stderr=subprocess.DEVNULL,
        )
        print(
            f'No wheels of {" and ".join(SPARSE)} for this PyTorch in PIP_FIND_LINKS or at '
            f'{page}: tests that need them are skipped; '
        
              f'"make test SPARSE=source" compiles them.')  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        'folder', type=Path, help='folder of the environment, made if it is missing'
    )
    parser.add_argument('--torch', default='torch', help='the PyTorch to install, as pip names it')
    parser.add_argument(
        '--extras',
        default='',
        help='extras of this package, separated by commas; none: PyTorch only',
    )
    parser.add_argument('--also', nargs='*', default=[], help='further packages, as pip names them')
    parser.add_argument(
        '--sparse',
        choices=('none', 'wheel', 'source'),
        default='none',
        help='what torch-scatter and torch-sparse come from',
    )
    args = parser.parse_args()
    if sys.version_info < (3, 10):  # noqa: UP036
        stop(
            f'Python 3.10 or newer is needed (got {sys.version.split()[0]}); name another with '
            '"make PYTHON=python3.12 .."'
        )
    environment = Environment(args.folder)
    environment.install(OLDEST_PIP)
    torch = [] if environment.version('torch') else ['setuptools>=77', 'wheel', args.torch]
    package = ['-e', f'.[{args.extras}]'] if args.extras else []
    if torch or package:
        environment.install(*torch, *args.also, *package)
    if args.sparse != 'none':
        install_sparse(environment, args.sparse)


if __name__ == '__main__':
    main()
