r"""Provides what all scripts share: the parser, common arguments, and errors of one line."""

import argparse
import asyncio
import contextlib
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from pickle import UnpicklingError
from typing import Any
from zipfile import BadZipFile

from aiohttp import ClientError

from benchmarks.common.results import OUTPUT, PUBLISHED, DataError, say

EXTRAS = {  # what to install for a module that the core does not need
    'elkai': 'tsp',
    'joblib': 'tsp',
    'igraph': 'peers',
    'networkit': 'peers',
    'networkx': 'peers',
    'matplotlib': 'visualization',
    'numba': 'fast',
    'ogb': 'ogb',
    'pandas': 'ogb',
    'optuna': 'tune',
    'pyarrow': 'recommend',
    'sklearn': 'examples',
    'tensorboard': 'dev',
}
ROOT_HELP = 'the folder that holds all data sets'
INTERACTIONS = 'DIR/NAME has train.txt and test.txt, or raw.txt, .csv or .parquet, or is downloaded'
FAILURES = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    UnpicklingError,
    BadZipFile,
    zlib.error,
    ClientError,
    asyncio.TimeoutError,
)


def output_folder(text: str) -> Path:
    r"""Returns the path of a folder, which need not exist."""
    path = Path(text)
    first = next((part for part in (path, *path.parents) if part.exists()), path)
    if first.exists() and not first.is_dir():
        raise argparse.ArgumentTypeError(f'{str(first)!r} must be a folder')
    return path


def positive_integer(text: str) -> int:
    r"""Reads an integer of at least 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'{text!r} must be an integer of at least 1')
    return int(text)


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    r"""Shows the default of each option that has one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        default = (
            ' '.join(map(str, action.default))
            if isinstance(action.default, list)
            else action.default
        )
        if (
            not action.help
            or '(default' in action.help
            or default is None
            or default is False
            or default in ('', argparse.SUPPRESS)
        ):
            return action.help
        return f'{action.help} (default: {default})'


def script_parser(description: str | None, writes: bool = True) -> argparse.ArgumentParser:
    r"""Makes the parser of a script; a script that writes results gets ``--output``."""
    parser = argparse.ArgumentParser(
        program(), description=description, formatter_class=HelpFormatter
    )
    if writes:
        parser.add_argument(
            '--output',
            type=output_folder,
            default=OUTPUT,
            metavar='DIR',
            help='folder for results, tables and pictures',
        )
    return parser


def add_root(parser: argparse.ArgumentParser, layout: str) -> None:
    r"""Adds ``--root``; :obj:`layout` describes the content of the folder."""
    parser.add_argument('--root', default='data', metavar='DIR', help=f'{ROOT_HELP}: {layout}')


class Seeds(argparse.Action):
    r"""Refuses repeated seeds, which would count one run twice, and seeds that PyTorch does not
    take."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if len(set(values)) < len(values) or not all(0 <= seed < 2**64 for seed in values):
            parser.error(
                f'{option_string} must be different integers from 0 to 2^64 - 1 (got '
                f'{" ".join(map(str, values))})'
            )
        setattr(namespace, self.dest, values)


def add_seeds(
    parser: argparse.ArgumentParser, default: list[int], text: str = 'a training for each'
) -> None:
    parser.add_argument('--seeds', nargs='+', type=int, action=Seeds, default=default, help=text)


def add_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--table',
        action='store_true',
        help=(
            'run nothing: write the tables and pictures of the results in --output, or of the '
            'published ones where it has none'
        ),
    )


def source(args: argparse.Namespace, task: str, pattern: str = '*.json') -> Path:
    r"""Returns the folder of the results for the tables: that of the user, or with ``--table``
    the published results if the user has none."""
    folders = [args.output / task, *([PUBLISHED / task] if args.table else [])]
    for folder in folders:
        if any(folder.glob(pattern)):
            if folder != folders[0]:
                say(f'{folders[0]} has no results: these are the published ones')
            return folder
    if args.table:
        say(f'there are no results in {args.output / task}')
    return folders[0]


def variant_name(changes: Mapping[str, Any]) -> str:
    r"""Names a variant after the settings that differ from the default:
    ``dim16-norm-row-no-residual``."""
    return '-'.join(_named(name.rpartition('.')[2], value) for name, value in changes.items())


def _named(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return name if value else f'no-{name}'
    text = (
        re.sub(r'[^\w.+-]+', '-', str(value)).strip('-.')
        if not isinstance(value, int | float)
        else str(value)
    )
    return f'{name}{text}' if isinstance(value, int | float) else f'{name}-{text}'


@contextlib.contextmanager
def data_from(root: str | Path, layout: str) -> Iterator[None]:
    r"""Turns a failure to read or download data into one line that says what to do.

    Raises:
        DataError: If the data cannot be read.
    """
    missing = '' if Path(root).exists() else ', which did not exist,'
    try:
        yield
    except FAILURES as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(
            f'{reason}; --root {str(root)!r}{missing} must be {ROOT_HELP}: {layout}'
        ) from error


def run_script(main: Callable[[], object]) -> None:
    r"""Runs a script. Errors that the user can mend end it with one line."""
    try:
        main()
    except DataError as error:
        message = str(error)
    except ModuleNotFoundError as error:
        module = (error.name or '').partition('.')[0]
        if module not in EXTRAS:
            raise
        message = f"{module} is missing: pip install 'torch-geometric-lgt[{EXTRAS[module]}]'"
    else:
        return
    sys.exit(f'{program()}: error: {message}')


def program() -> str:
    r"""Returns the name of the script that runs: its file, or the folder of a package."""
    path = Path(sys.argv[0])
    return path.parent.name if path.name == '__main__.py' else path.name
