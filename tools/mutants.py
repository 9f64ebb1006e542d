r"""Changes ``torch_geometric_lgt/functional`` a bit at a time, in a copy, and prints how many of
the changes the tests noticed, and those that they did not. mutmut makes the changes and finds out
which tests run them; the tests are collected once, and each change gets a fork of that process, or
a new one if it is in what runs at import only. Tests run until one fails: those that noticed
changes of the module first, then from the shortest on.

python tools/mutants.py segment neighbors.edges --tests test/functional   # two modules
python tools/mutants.py --copy FOLDER                                     # all modules

The folder of ``--copy`` is not removed: the same command goes on where it was killed. ``--sample
N`` tries N changes, drawn at random in the same order each time, in place of all.

Changes that do the same, or that only a GPU could tell, are explained in ``survivors.toml``. Needs
Python 3.11 and mutmut 3.8; tests of torch.compile and tests that count calls cannot run with it.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from bisect import bisect
from collections import Counter, defaultdict
from importlib.metadata import version
from itertools import accumulate
from pathlib import Path

import pytest
import tomllib
from mutmut.mutation.trampoline import set_mutant_under_test
from mutmut.state import state
from tqdm import tqdm

ROOT = Path(__file__).resolve().parents[1]
FUNCTIONAL = 'torch_geometric_lgt/functional'
SELECTED = ['-m', 'not (compiled or counted or cuda or nccl)', '-p', 'no:cacheprovider']
MEMORY = 12 * 2**30
SURVIVORS = ROOT / 'tools' / 'survivors.toml'
OUTCOMES = {0: 'survived', 1: 'noticed', -signal.SIGALRM: 'without an end'}


def path_of(module: str) -> Path:
    r"""Returns the file of a module, by its dotted name below ``functional``."""
    return Path(FUNCTIONAL, *module.split('.')).with_suffix('.py')


def prepare(copy: Path, modules: list[str], tests: list[str]) -> None:
    subprocess.run(['git', 'clone', '-q', str(ROOT), str(copy)], check=True)
    lists = {
        'source_paths': [str(path_of(name)) for name in modules],
        'pytest_add_cli_args': SELECTED,
        'pytest_add_cli_args_test_selection': tests,
        'also_copy': [
            'tools',
            'test',
            'benchmarks',
            'torch_geometric_lgt',
            'pyproject.toml',
            'docs',
            'examples',
        ],
    }
    with (copy / 'pyproject.toml').open('a') as file:
        print(
            '\n[tool.mutmut]',
            *(f'{name} = {json.dumps(value)}' for name, value in lists.items()),
            sep='\n',
            file=file,
        )
    code = (
        'import os; from mutmut import __main__ as m; '
        'm.set_mutant_under_test("mutant_generation"); os.makedirs("mutants");'
        'm.copy_src_dir(); m.copy_also_copy_files(); m.setup_source_paths(); m.create_mutants(1);'
        'm.collect_or_load_stats(m.get_mutant_runner(1))'
    )
    subprocess.run([sys.executable, '-c', code], cwd=copy, check=True)


def drawn(folder: Path, sample: int | None) -> list[str]:
    r"""Returns the names of the changes below the folder that are tried."""
    names = [
        name
        for path in sorted(folder.joinpath(FUNCTIONAL).rglob('*.meta'))
        for name in json.loads(path.read_text())['exit_code_by_key']
    ]
    if sample is None:
        return names
    random.Random(0).shuffle(names)
    return sorted(names[:sample])


class Forks:
    r"""Plugin of pytest that runs, in place of the tests, each change in forks of the process that
    collected them."""

    def __init__(self, children: int, limit: float, sample: int | None) -> None:
        self.children, self.limit, self.sample, self.running = children, limit, sample, {}
        self.noticed = defaultdict(Counter)
        self.results = Path('results.txt')

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        at_import = set(state()._stats)
        set_mutant_under_test('')
        stats = json.loads(Path('mutmut-stats.json').read_text())
        seconds, by_function = stats['duration_by_test'], stats['tests_by_mangled_function_name']
        recorded = set().union(*by_function.values())
        items = sorted(session.items, key=lambda item: seconds[item.nodeid])
        first = next(iter(seconds))  # it counts as a test of what ran when it was imported
        elsewhere = [item for item in items if item.nodeid not in recorded]
        done = (
            {line.split(' ')[0] for line in self.results.read_text().splitlines()}
            if self.results.exists()
            else set()
        )
        names = drawn(Path(), self.sample)
        for afresh in (False, True):
            self.fork('', items[:200] if afresh else items, 3600, afresh)
            self.wait()
            if self.results.read_text().splitlines()[-1] != ' survived':
                pytest.exit('a test fails without a change')
        for name in tqdm([name for name in names if name not in done]):
            function = name.rpartition('__mutmut_')[0]
            module, tests = function.rpartition('.')[0], set(by_function.get(function, ()))
            if function in at_import:
                tests.discard(first)
            if afresh := not tests and function in at_import:
                tests.update(
                    *(
                        found
                        for other, found in by_function.items()
                        if other.startswith(f'{module}.')
                    )
                )
            chosen = [item for item in items if item.nodeid in tests] or elsewhere
            chosen.sort(key=lambda item: -self.noticed[module][item.nodeid])
            until = list(accumulate(seconds[item.nodeid] for item in chosen))
            chosen = chosen[: 1 + bisect(until, self.limit)]
            self.fork(name, chosen, 60 + 5 * until[len(chosen) - 1], afresh)
        while self.running:
            self.wait()
        return True

    def fork(self, name: str, items: list[pytest.Item], limit: float, afresh: bool) -> None:
        while len(self.running) >= self.children:
            self.wait()
        child = os.fork()
        if child:
            self.running[child] = name
            return
        set_mutant_under_test(name)
        signal.alarm(round(limit))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        folder = Path(tempfile.gettempdir()) / f'mutant-{os.getpid()}'
        items[0].config.option.tbstyle = 'native'  # by far the cheapest
        if afresh:  # what a function did when it was imported stays without the change in a fork
            python = [sys.executable, '-m', 'pytest', '-xq', *SELECTED, f'--basetemp={folder}']
            os.execv(sys.executable, [*python, *(item.nodeid for item in items)])
        for item, following in zip(items, [*items[1:], None], strict=True):
            folder.mkdir(exist_ok=True)
            item.config._tmp_path_factory._basetemp = folder
            failed = [report for report in pytest_reports(item, following) if report.failed]
            if failed and not name:
                print(failed[0].longreprtext, file=sys.stderr)
            if failed:
                folder.with_suffix('.noticed').write_text(item.nodeid)
                os._exit(1)
        os._exit(0)

    def wait(self) -> None:
        child, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        folder, name = Path(tempfile.gettempdir()) / f'mutant-{child}', self.running.pop(child)
        shutil.rmtree(folder, ignore_errors=True)
        if (noticed := folder.with_suffix('.noticed')).exists():
            self.noticed[name.rpartition('__mutmut_')[0].rpartition('.')[0]][
                noticed.read_text()
            ] += 1
            noticed.unlink()
        with self.results.open('a') as file:
            print(name, OUTCOMES.get(code, f'noticed ({code})'), file=file)


def pytest_reports(item: pytest.Item, following: pytest.Item | None) -> list[pytest.TestReport]:
    from _pytest.runner import runtestprotocol
    from _pytest.warnings import catch_warnings_for_item

    with catch_warnings_for_item(item.config, item.ihook, when='runtest', item=item):
        return runtestprotocol(item, log=False, nextitem=following)


def pattern(change: str) -> re.Pattern[str]:
    r"""The changes of lines by ``WHERE: FROM -> TO``, in each of which ``...`` stands for
    anything."""
    parts = re.fullmatch('(.*?): ?(.*) -> ?(.*)', change).groups()
    where, removed, added = (re.escape(part).replace(re.escape('...'), '.*') for part in parts)
    return re.compile(
        f'{where}: (?P<before>.*){removed}(?P<after>.*) -> (?P=before){added}(?P=after)'
    )


def report(copy: Path, sample: int | None, record: Path | None) -> int:
    r"""Prints the changes that were not noticed and that nothing in ``survivors.toml`` explains,
    and returns their number."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    kinds = [
        (kind['why'], pattern(change))
        for kind in tomllib.loads(SURVIVORS.read_text())['kinds']
        for change in kind['changes']
    ]
    lines = (copy / 'mutants' / 'results.txt').read_text().splitlines()
    outcomes = dict(line.split(' ', 1) for line in lines if not line.startswith(' '))
    outcomes = {name: outcomes[name] for name in drawn(copy / 'mutants', sample)}
    os.chdir(copy)
    modules, survived = {}, []
    for name, outcome in sorted(outcomes.items()):
        *rooms, function = name.rpartition('__mutmut_')[0].split('.')[2:]
        module = '.'.join(rooms)
        modules.setdefault(module, Counter())[outcome.partition(' (')[0]] += 1
        if outcome == 'survived':
            diff = [
                line
                for line in get_diff_for_mutant(name, path=str(path_of(module))).splitlines()[3:]
                if line[0] in '+-'
            ]
            removed, added = (
                ' '.join(line[1:].strip() for line in diff if line[0] == sign) for sign in '-+'
            )
            function = function.removeprefix('x_').removeprefix('xǁ').replace('ǁ', '.')
            change = f'{module}.{function}: {removed} -> {added}'
            why = next((why for why, explained in kinds if explained.fullmatch(change)), None)
            survived.append({'change': change, 'why': why})
    unexplained = [each['change'] for each in survived if each['why'] is None]
    for change in unexplained:
        print(change)
    print(
        Counter(outcome.partition(' (')[0] for outcome in outcomes.values()),
        len(unexplained),
        'survived without an explanation',
    )
    if record:
        commit = subprocess.run(
            ['git', 'rev-parse', 'HEAD'], capture_output=True, text=True, check=True
        ).stdout.strip()
        versions = {package: version(package) for package in ('mutmut', 'torch', 'torch-geometric')}
        record.write_text(
            json.dumps(
                {
                    'commit': commit,
                    'versions': versions,
                    'changes': len(drawn(Path('mutants'), None)),
                    'modules': modules,
                    'survived': survived,
                },
                indent=1,
            )
            + '\n'
        )
    return len(unexplained)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    paths = [
        path.relative_to(ROOT / FUNCTIONAL)
        for path in (ROOT / FUNCTIONAL).rglob('*.py')
        if path.stem != '__init__'
    ]
    every = sorted('.'.join(path.with_suffix('').parts) for path in paths)
    parser.add_argument('modules', nargs='*', default=every)
    parser.add_argument(
        '--tests', nargs='+', default=['test/functional', 'test/nn', 'test/test_distributed.py']
    )
    parser.add_argument('--copy', type=Path, help='folder of the copy, which is kept')
    parser.add_argument('--children', type=int, default=os.cpu_count())
    parser.add_argument('--seconds', type=float, default=30, help='of tests at most for a change')
    parser.add_argument('--sample', type=int, help='of changes, in place of all')
    parser.add_argument(
        '--record', type=Path, help='file for the results, which the documentation shows'
    )
    parser.add_argument('--forks', action='store_true', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.forks:
        forks = Forks(args.children, args.seconds, args.sample)
        sys.exit(pytest.main([*args.tests, '-qs', *SELECTED], [forks]))
    os.environ |= {'OMP_NUM_THREADS': '1', 'NUMBA_DISABLE_JIT': '1', 'MUTANT_UNDER_TEST': 'stats'}
    with tempfile.TemporaryDirectory() as temporary:
        copy = args.copy or Path(temporary) / 'copy'
        if not (copy / 'mutants' / 'mutmut-stats.json').exists():
            prepare(copy, args.modules, args.tests)
        command = [
            sys.executable,
            'tools/mutants.py',
            '--forks',
            '--children',
            str(args.children),
            '--seconds',
            str(args.seconds),
        ]
        command += ['--sample', str(args.sample)] if args.sample else []
        command += ['--tests', *args.tests]
        subprocess.run(
            command,
            cwd=copy / 'mutants',
            env=os.environ | {'PYTHONPATH': '.'},
            stdout=subprocess.DEVNULL,
            check=True,
        )
        sys.exit(min(1, report(copy, args.sample, args.record and args.record.resolve())))


if __name__ == '__main__':
    main()
