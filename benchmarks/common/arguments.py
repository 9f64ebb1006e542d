r"""Provides the parser of all scripts, and the options that several scripts have."""

import argparse
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import torch

from benchmarks.common.command import invocation, program
from benchmarks.common.files import DataError, check_folder
from benchmarks.common.names import unknown
from benchmarks.common.results import OUTPUT

GROUPS = ('data', 'model', 'training', 'measurement', 'output')
ROOT_HELP = 'the folder that holds all data sets'
FORBIDDEN = frozenset('<>:"/\\|?*')  # in file names on Windows


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    r"""Shows the names that an option takes and its default in the help."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        text, mark, default = (action.help or '').partition(' (default: ')
        if action.choices is not None and action.help is not argparse.SUPPRESS:
            text += f' [{", ".join(map(str, action.choices))}]'
        if not mark and action.default not in (None, False, '', [], argparse.SUPPRESS):
            mark, default = ' (default: ', f'{format_default(action)})'
        return text + mark + default

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        if action.choices is not None:
            return 'NAME'
        metavars: dict[Any, str] = {
            **dict.fromkeys((int, positive, natural), 'N'),
            **dict.fromkeys((float, not_negative, above_zero, share), 'X'),
            device: 'DEVICE',
        }
        return metavars.get(action.type, action.dest.upper())

    def _metavar_formatter(
        self, action: argparse.Action, default_metavar: str
    ) -> Callable[[int], tuple[str, ...]]:
        metavar = action.metavar or default_metavar
        return lambda size: metavar if isinstance(metavar, tuple) else (metavar,) * size


def format_default(action: argparse.Action) -> str:
    r"""Formats the default of an option. A list of all names is ``all``."""
    if not isinstance(action.default, list | tuple):
        return str(action.default)
    if action.choices is not None and [*action.default] == [*action.choices]:
        return 'all'
    return ' '.join(map(str, action.default))


class Parser(argparse.ArgumentParser):
    r"""Parses the options of a script, each in one of the :obj:`groups`. The help starts with the
    first line of the text. A wrong option or name ends the script with one line, which suggests
    the nearest one. So does an option of several values that is given twice: :mod:`argparse` would
    drop the first values."""

    def __init__(self, text: str | None) -> None:
        self.summary, _, rest = (text or '').partition('\n')
        super().__init__(
            program(),
            usage=f'{invocation()} [options]',
            description=rest.strip(),
            formatter_class=HelpFormatter,
        )
        self.groups = {title: self.add_argument_group(title) for title in GROUPS}
        self.given: set[str] = set()

    def format_help(self) -> str:
        return f'{self.summary}\n\n{super().format_help()}'

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.given.clear()
        known, rest = self.parse_known_args(args, namespace)
        if rest:
            name = rest[0].partition('=')[0]
            options = [
                option
                for option, action in self._option_string_actions.items()
                if option[:2] == '--' and action.help is not argparse.SUPPRESS
            ]
            self.error(unknown(name, options, 'option'))
        return known

    def error(self, message: str) -> NoReturn:
        self.exit(2, f'{self.prog}: error: {message}\n')

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        if action.dest in self.given:
            raise argparse.ArgumentError(action, 'give it once, with all of its values')
        if action.nargs == '+':
            self.given.add(action.dest)
        return super()._get_values(action, arg_strings)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, unknown(value, action.choices))


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


def script_parser(text: str | None, writes: bool = True) -> Parser:
    r"""Makes the parser of a script; a script that writes results gets ``--output``."""
    parser = Parser(text)
    if writes:
        parser.groups['output'].add_argument(
            '--output',
            type=output_folder,
            default=str(OUTPUT),
            metavar='DIR',
            help='folder for results, tables and pictures',
        )
    return parser


def add_root(parser: Parser, layout: str) -> None:
    r"""Adds ``--root``; :obj:`layout` describes the content of the folder."""
    parser.groups['data'].add_argument(
        '--root', default='data', metavar='DIR', help=f'{ROOT_HELP}: {layout}'
    )


def add_seeds(parser: Parser, default: list[int], text: str = 'a training for each') -> None:
    r"""Adds ``--seeds``."""
    parser.groups['training'].add_argument(
        '--seeds', nargs='+', type=int, action=Seeds, default=default, help=text
    )


def add_device(parser: Parser) -> None:
    r"""Adds ``--device`` for a training."""
    parser.groups['training'].add_argument(
        '--device',
        type=device,
        default=torch.device('cuda' if torch.cuda.is_available() else 'cpu'),
        help='where to train (default: the GPU where there is one)',
    )


def add_measured_device(parser: Parser) -> None:
    r"""Adds ``--device`` for a measurement, which is on the CPU by default."""
    parser.groups['measurement'].add_argument(
        '--device',
        type=lambda text: str(device(text)),
        default='cpu',
        metavar='DEVICE',
        help='cpu or a CUDA device',
    )


def add_table(parser: Parser) -> None:
    r"""Adds ``--table``."""
    parser.groups['output'].add_argument(
        '--table',
        action='store_true',
        help=(
            'run nothing: write the tables and pictures of the results in --output, or of the '
            'published ones where it has none'
        ),
    )


def positive(text: str) -> int:
    r"""Reads a number of things, at least one."""
    return _integer(text, 1)


def natural(text: str) -> int:
    r"""Reads a number of things, which may be 0."""
    return _integer(text, 0)


def probability(text: str) -> float:
    r"""Reads a probability, at least 0 and below 1."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < 1:
        raise argparse.ArgumentTypeError(f'{text!r} must be a number from 0 to below 1')
    return value


def _integer(text: str, least: int) -> int:
    if not text.isdecimal() or int(text) < least:
        raise argparse.ArgumentTypeError(f'{text!r} must be an integer of at least {least}')
    return int(text)


def not_negative(text: str) -> float:
    r"""Reads a finite number of at least 0."""
    return _number(text, lambda value: 0 <= value < math.inf, 'of at least 0')


def above_zero(text: str) -> float:
    r"""Reads a finite number above 0."""
    return _number(text, lambda value: 0 < value < math.inf, 'above 0')


def share(text: str) -> float:
    r"""Reads a share of less than all."""
    return _number(text, lambda value: 0 <= value < 1, 'of at least 0 and below 1')


def _number(text: str, fits: Callable[[float], bool], rule: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not fits(value):
        raise argparse.ArgumentTypeError(f'{text!r} must be a number {rule}')
    return value


def device(text: str) -> torch.device:
    r"""Reads the name of a device that this machine has."""
    try:
        torch.empty(0, device=text)
        return torch.device(text)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        there = ['cpu', *(f'cuda:{index}' for index in range(torch.cuda.device_count()))]
        raise argparse.ArgumentTypeError(
            f'{text!r} is no device of this machine (there are {", ".join(there)})'
        ) from error


def output_folder(text: str) -> Path:
    r"""Returns the path of a folder to write to, which need not exist."""
    path = Path(text)
    try:
        check_folder(path)
    except DataError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    return path


def file_name_part(text: str) -> str:
    r"""Reads a part of the names of files, such as the name of a variant."""
    if Path(text).name != text or not FORBIDDEN.isdisjoint(text):
        raise argparse.ArgumentTypeError(
            f'{text!r} must be a part of a file name, without {" ".join(sorted(FORBIDDEN))}'
        )
    return text
