r"""Runs scripts: where results are read, and errors of one line."""

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

from benchmarks.common.arguments import ROOT_HELP
from benchmarks.common.command import program
from benchmarks.common.files import DataError, say, say_files
from benchmarks.common.results import PUBLISHED

EXTRAS = {  # the extra that has a module, or none where the help of the script tells the command
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
    'recbole': None,
    'sklearn': 'examples',
    'tensorboard': 'dev',
}
INTERACTIONS = (
    'DIR/NAME has train.txt and test.txt, or raw.txt, .csv or .parquet (columns user_id and '
    'item_id), or is downloaded'
)
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
    r"""Runs a script, which ends with the names of the files that it wrote. Errors that the user
    can mend end it with one line."""
    try:
        main()
    except DataError as error:
        message = str(error)
    except ModuleNotFoundError as error:
        module = (error.name or '').partition('.')[0]
        if module not in EXTRAS:
            raise
        extra = EXTRAS[module]
        command = (
            f'pip install "torch-geometric-lgt[{extra}]"' if extra else '--help has the command'
        )
        message = f'{module} is missing: {command}'
    except KeyboardInterrupt:
        message = 'stopped: the same command continues a training, and starts a measurement anew'
    else:
        say_files()
        return
    sys.exit(f'{program()}: error: {message}')
