r"""Checks and measures everything that needs a GPU.

make gpu                                           # the same as the next line
python -m benchmarks.gpu                           # at most 40 minutes; the same command continues
python -m benchmarks.gpu --only bounds layers --public CLONES
python -m benchmarks.gpu --device cpu --rehearse   # tiny sizes, to try the command itself
python -m benchmarks.gpu --only                    # only write tables and pictures of results

The steps are the bounds of the device, the tests of the kernels, the speed of layers and models,
and trainings at the published size.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.common.arguments import add_root, script_parser
from benchmarks.common.files import say, write_file
from benchmarks.common.scripts import run_script
from benchmarks.gpu.device import measure_bounds
from benchmarks.gpu.layers import autotuned, measure_layers
from benchmarks.gpu.models import measure_models
from benchmarks.gpu.report import read_list, write_report
from benchmarks.gpu.run import OutOfTimeError, Run, first_line
from benchmarks.gpu.trainings import run_tests, train

STEPS: dict[str, Callable[[Run], None]] = {
    'bounds': measure_bounds,
    'tests': run_tests,
    'layers': measure_layers,
    'models': measure_models,
    'trainings': train,
}


def outcome(step: Callable[[Run], None], run: Run) -> str:
    r"""Runs one step and returns its outcome. A failed step or measurement does not stop the
    others."""
    run.failures.clear()
    late = []
    try:
        step(run)
    except OutOfTimeError:
        late = ['out of time: the same command goes on']
    except Exception as error:
        run.failures.append(first_line(error))
    failed = [f'failed: {"; ".join(run.failures)}'] if run.failures else []
    return '; '.join([*failed, *late]) or 'done'


def write_list(path: Path, rows: list[dict[str, str]]) -> None:
    write_file(path, (json.dumps(rows, indent=2) + '\n').encode(), 'results')


def main() -> None:
    parser = script_parser(__doc__)
    add_root(parser, 'of amazon-beauty; without it random interactions take its place')
    parser.groups['measurement'].add_argument(
        '--device',
        type=torch.device,
        default=torch.device('cuda'),
        help='a CUDA device, or with --rehearse cpu',
    )
    parser.groups['measurement'].add_argument(
        '--rehearse', action='store_true', help='tiny sizes, whose figures mean nothing'
    )
    parser.groups['measurement'].add_argument(
        '--limit', type=float, default=40.0, metavar='MINUTES', help='no measurement starts later'
    )
    parser.groups['measurement'].add_argument(
        '--only',
        nargs='*',
        choices=STEPS,
        default=[*STEPS],
        metavar='STEP',
        help='the steps that are run',
    )
    parser.groups['measurement'].add_argument(
        '--public',
        metavar='CLONES',
        help="folder with clones of the authors' programs, which are measured too",
    )
    args = parser.parse_args()
    if args.only and args.device.type == 'cuda' and not torch.cuda.is_available():
        parser.error('no CUDA device is there; --device cpu --rehearse tries the command itself')
    if args.device.type == 'cpu' and not args.rehearse:
        parser.error('--device cpu is for --rehearse only')
    run = Run(args.device, args.output, Path(args.root), args.public, args.rehearse, args.limit)
    outcomes = {row['step']: row['outcome'] for row in read_list(run.folder / 'summary.json')}
    for name in args.only:
        say(f'{name}, {max(0.0, run.seconds_left()) / 60:.0f} minutes left')
        outcomes[name] = outcome(STEPS[name], run)
        say(f'{name}: {outcomes[name]}')
        write_list(
            run.folder / 'summary.json',
            [{'step': name, 'outcome': outcomes[name]} for name in STEPS if name in outcomes],
        )
    chosen = autotuned()
    if chosen:
        choices = {
            (row['kernel'], row['sizes']): row
            for row in [*read_list(run.folder / 'autotuning.json'), *chosen]
        }
        write_list(run.folder / 'autotuning.json', list(choices.values()))
    print(write_report(run.folder))
    if any(outcomes[name].startswith('failed') for name in args.only):
        sys.exit(1)


if __name__ == '__main__':
    run_script(main)
