"""Makes the virtual environment that ``make`` works in. Only the standard library is needed.

python tools/environment.py .venv --torch torch==2.13.0 --extras dev,fast --sparse wheel
"""

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SPARSE = ('torch-scatter', 'torch-sparse')
WHEELS = 'https://data.pyg.org/whl/torch-{version}.html'
QUICKLY = ('--retries', '0', '--timeout', '5')


def stop(text: str) -> None:
    raise SystemExit(f'{Path(__file__).name}: {text}')


class Environment:
    r"""A virtual environment in a folder. The errors of pip go to a log, its progress to the terminal."""

    def __init__(self, folder: Path) -> None:
        self.python, self.log = folder / 'bin' / 'python', folder / 'setup.log'
        if self.python.exists():
            return
        done = subprocess.run([sys.executable, '-m', 'venv', str(folder)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode != 0:
            reason = (done.stdout.strip().splitlines() or ['no reason'])[-1]
            stop(f'no virtual environment could be made in {folder} ({reason}); on Debian, apt install python3-venv')

    def pip(self, *arguments: str) -> bool:
        r"""Runs ``pip install`` and tells whether it succeeded."""
        command = [str(self.python), '-m', 'pip', '--disable-pip-version-check', 'install', *arguments]
        with self.log.open('ab') as log:
            log.write(f'{" ".join(arguments)}\n'.encode())
            log.flush()
            return subprocess.run(command, cwd=ROOT, stderr=log).returncode == 0

    def install(self, *arguments: str) -> None:
        if not self.pip(*arguments):
            stop(
                f'pip could not install {arguments[-1]}: {self.reason()}; see {self.log}, and PIP_INDEX_URL or PIP_FIND_LINKS for a mirror'
            )

    def reason(self) -> str:
        r"""The last error in the log."""
        errors = [line for line in self.log.read_text(errors='replace').splitlines() if line.startswith('ERROR')]
        return errors[-1].partition(' ')[2] if errors else 'no reason'

    def version(self, module: str):
        r"""The version of an installed module, or :obj:`None` where it cannot be imported."""
        code = f'import {module} as module; print(module.__version__)'
        done = subprocess.run([str(self.python), '-W', 'ignore', '-c', code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return done.stdout.strip() if done.returncode == 0 else None

    def imported(self) -> bool:
        return all(self.version(name.replace('-', '_')) is not None for name in SPARSE)


def install_sparse(environment: Environment, kind: str) -> None:
    r"""Installs torch-scatter and torch-sparse from wheels, or compiles them, against the PyTorch that is installed."""
    if kind == 'source':
        environment.install('--no-build-isolation', *SPARSE)
        return
    page = WHEELS.format(version=environment.version('torch'))
    if not (environment.pip(*QUICKLY, '--no-deps', '--only-binary', ':all:', '--find-links', page, *SPARSE) and environment.imported()):
        subprocess.run([str(environment.python), '-m', 'pip', 'uninstall', '-q', '-y', *SPARSE], stderr=subprocess.DEVNULL)
        print(f'No wheels of {" and ".join(SPARSE)} for this PyTorch in PIP_FIND_LINKS or at {page}: tests that need them are skipped; '
              f'"make test SPARSE=source" compiles them.')  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('folder', type=Path, help='folder of the environment, made if it is missing')
    parser.add_argument('--torch', default='torch', help='the PyTorch to install, as pip names it')
    parser.add_argument('--extras', default='', help='extras of this package, separated by commas; none: PyTorch only')
    parser.add_argument('--also', nargs='*', default=[], help='further packages, as pip names them')
    parser.add_argument(
        '--sparse', choices=('none', 'wheel', 'source'), default='none', help='what torch-scatter and torch-sparse come from'
    )
    args = parser.parse_args()
    if sys.version_info < (3, 10):  # noqa: UP036
        stop(f'Python 3.10 or newer is needed (got {sys.version.split()[0]}); name another with "make PYTHON=python3.12 .."')
    environment = Environment(args.folder)
    if environment.version('torch') is None:
        environment.install('setuptools>=77', 'wheel', args.torch)
    if args.extras:
        environment.install(*args.also, '-e', f'.[{args.extras}]')
    if args.sparse != 'none':
        install_sparse(environment, args.sparse)


if __name__ == '__main__':
    main()
