"""What all scripts promise: they start by name and by path, without the modules of extras, and end
a user's mistake with one line."""

import argparse
import runpy
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import aiohttp
import pytest

from benchmarks import tsp
from benchmarks.common import figures, files, scripts
from benchmarks.common.arguments import GROUPS, Parser, format_default, output_folder
from benchmarks.common.files import DataError
from benchmarks.common.scripts import data_from, run_script, variant_name
from benchmarks.node_classification import __main__ as node_classification
from benchmarks.recommendation import __main__ as recommendation

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted(
    path
    for path in (ROOT / 'benchmarks').rglob('*.py')
    if '\n    run_script(main)' in path.read_text()
)
NAMES = ['.'.join(path.relative_to(ROOT).with_suffix('').parts) for path in SCRIPTS]
BY_NAME = f"""
import importlib, sys
sys.path[0] = {str(ROOT)!r}
for name in {NAMES}:
    sys.argv = [name, '--help']
    try:
        importlib.import_module(name).main()
    except SystemExit as end:
        print(name, end.code)
"""
BY_PATH = [
    'benchmarks/sbm.py',
    'benchmarks/ogb/ogbn_arxiv.py',
    'benchmarks/runtime/loaders.py',
    'benchmarks/node_classification',
    'benchmarks/recommendation/__main__.py',
    'benchmarks/gpu',
]
EXAMPLES = [
    'examples/distributed.py',
    'examples/distributed_edges.py',
    'examples/distributed_batches.py',
]
VERBS = ('Measures', 'Searches', 'Trains')
EXTRAS = 'matplotlib optuna ogb pandas sklearn networkx networkit igraph tensorboard'
POSIX = 'fcntl grp pwd resource termios'  # which Windows lacks
# Forks of a process that has imported what is installed, without extras, modules of POSIX and
# nothing of this folder, do what an interpreter does with a path. What is frozen takes no time at
# the end of a fork.
FORKS = f"""
import atexit, gc, os, runpy, signal, sys, traceback, warnings
def end(code):
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what is frozen would count as leaked
sys.modules |= dict.fromkeys('{EXTRAS}'.split())
import aiohttp, filelock, scipy.sparse.linalg, torch_geometric
sys.modules |= dict.fromkeys('{POSIX}'.split())
gc.freeze()
folder, *scripts = sys.argv[1:]
for number, script in enumerate(scripts):
    with warnings.catch_warnings():
        # Some warn of threads, which scripts do not use before their arguments are parsed.
        warnings.simplefilter('ignore')
        process = os.fork()
    if process == 0:
        for descriptor, stream in ((1, 'out'), (2, 'err')):
            path = f'{{folder}}/{{number}}.{{stream}}'
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), descriptor)
        sys.path[0] = script if os.path.isdir(script) else os.path.dirname(script)
        sys.argv = [script, *([] if 'examples' in script else ['--help'])]
        code = 0
        del signal.SIGKILL, signal.SIGALRM
        try:
            runpy.run_path(script, run_name='__main__')
        except SystemExit as error:
            code = error.code or 0
            if isinstance(code, str):
                code = print(code, file=sys.stderr) or 1
        except BaseException:
            code = traceback.print_exc() or 1
        end(code)
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
end(0)
"""


class Parsed(Exception):
    pass


@pytest.fixture(params=NAMES)
def parser(request, monkeypatch):
    def stop(self, *_):
        raise Parsed(self)

    monkeypatch.setattr(Parser, 'parse_args', stop)
    with pytest.raises(Parsed) as parsed:
        import_module(request.param).main()
    return parsed.value.args[0]


def test_every_script_has_the_handler():
    assert len(SCRIPTS) > 20
    for path in (ROOT / 'benchmarks').rglob('*.py'):
        assert ("if __name__ == '__main__':" in path.read_text()) == (path in SCRIPTS), path


def test_every_option_says_what_it_is_and_its_default(parser):
    text = ''.join(parser.format_help().split())  # lines are broken at hyphens, too
    for action in parser._actions:
        assert action.help, action.option_strings
        if action.help is not argparse.SUPPRESS and action.default not in (
            *(None, False, '', argparse.SUPPRESS),
            [],
        ):
            default = ''.join(format_default(action).split())
            assert '(default: ' in action.help or f'(default:{default})' in text, (
                action.option_strings
            )
    options = {option for action in parser._actions for option in action.option_strings}
    assert '--output' in options or parser.summary.startswith('Searches')


def test_every_option_is_in_a_group(parser):
    grouped = {id(action) for title in GROUPS for action in parser.groups[title]._group_actions}
    rest = [action for action in parser._actions if id(action) not in grouped]
    assert [action.dest for action in rest if action.help is not argparse.SUPPRESS] == ['help']


def test_the_help_starts_with_what_the_script_does(parser):
    first, blank, usage, *_ = parser.format_help().splitlines()
    assert first.split()[0] in ('Checks', 'Compares', 'Compiles', 'Counts', *VERBS)
    assert first.endswith('.')
    assert blank == ''
    assert usage.endswith(' [options]')


@pytest.fixture(scope='module')
def started(tmp_path_factory):
    """The exit code, output and errors of scripts by their path."""
    folder = tmp_path_factory.mktemp('started')
    (folder / 'by_name.py').write_text(BY_NAME)
    scripts = [*BY_PATH, *EXAMPLES, folder / 'by_name.py']
    command = [sys.executable, '-c', FORKS, folder, *(ROOT / path for path in scripts)]
    # PyTorch 2.14 and newer warn of what PyG does
    env = {'PYTHONWARNINGS': 'ignore:`torch.jit:FutureWarning'}
    out = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
    assert out.stderr == ''
    texts = (
        (folder / f'{number}.{stream}').read_text()
        for number in range(len(scripts))
        for stream in ('out', 'err')
    )
    return {
        path if isinstance(path, str) else path.name: (int(code), next(texts), next(texts))
        for path, code in zip(scripts, out.stdout.split(), strict=True)
    }


@pytest.mark.parametrize('folder', sorted({path.parent for path in SCRIPTS}), ids=lambda p: p.name)
def test_every_folder_of_scripts_leads_to_the_package(folder):
    assert (folder / 'benchmarks.py').exists()


@pytest.mark.xdist_group('started')  # which starts an interpreter once
@pytest.mark.parametrize('path', BY_PATH)
def test_scripts_start_by_their_path_from_any_folder(path, started):
    code, text, errors = started[path]
    assert (code, errors) == (0, '')
    assert '--output DIR' in text


@pytest.mark.xdist_group('started')  # which starts an interpreter once
def test_help_without_the_modules_of_extras(started):
    code, text, errors = started['by_name.py']
    assert code == 0, errors
    lines = [line.split() for line in text.splitlines() if line.split(' ')[0] in NAMES]
    assert lines == [[name, '0'] for name in NAMES]


def test_a_missing_module_names_its_extra(monkeypatch):
    def main():
        raise ModuleNotFoundError("No module named 'optuna.trial'", name='optuna.trial')

    monkeypatch.setattr(sys, 'argv', ['/some/where/search.py'])
    with pytest.raises(
        SystemExit,
        match=r'^search.py: error: optuna is missing: pip install "torch-geometric-lgt\[tune\]"$',
    ):
        run_script(main)
    extras = set(
        (ROOT / 'pyproject.toml')
        .read_text()
        .split('[project.optional-dependencies]')[1]
        .split('[tool')[0]
        .split()
    )
    assert set(scripts.EXTRAS.values()) <= {*extras, None}

    def without_recbole():
        raise ModuleNotFoundError("No module named 'recbole'", name='recbole.evaluator')

    with pytest.raises(
        SystemExit, match=r'^search.py: error: recbole is missing: --help has the command$'
    ):
        run_script(without_recbole)

    def broken():
        raise ModuleNotFoundError("No module named 'benchmarks.other'", name='benchmarks.other')

    with pytest.raises(ModuleNotFoundError, match=r'benchmarks\.other'):
        run_script(broken)


def test_without_matplotlib_results_are_written_and_pictures_are_not(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(figures, 'find_spec', lambda name: None)
    monkeypatch.setattr(sys, 'argv', ['x', '--table', '--output', str(tmp_path)])
    node_classification.main()
    assert 'no pictures are drawn: matplotlib is missing, pip install' in capsys.readouterr().err
    assert sorted(path.name for path in (tmp_path / 'node_classification').iterdir()) == [
        *('accuracy.csv', 'accuracy.md', 'variants.csv', 'variants.md')
    ]


def test_a_script_ends_with_the_names_of_its_files(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(files, 'WRITTEN', {})

    def main():
        for name in ('a.json', 'b.json', 'a.json'):
            files.write_file(tmp_path / 'new' / name, b'{}', 'results')
        files.write_file(tmp_path / 'scores.png', b'', 'pictures')
        print('| row |')

    run_script(main)
    out, err = capsys.readouterr()
    assert out == '| row |\n'
    assert err == (
        f'results in {tmp_path / "new"}: a.json, b.json\npictures in {tmp_path}: scores.png\n'
    )


def test_a_stopped_script_says_how_it_goes_on(monkeypatch):
    def main():
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, 'argv', ['sbm.py'])
    with pytest.raises(
        SystemExit,
        match=r'^sbm.py: error: stopped: the same command continues a training, and starts a ',
    ):
        run_script(main)


def test_errors_name_the_file_or_the_folder_of_a_package(monkeypatch):
    def main():
        raise DataError('no data')

    for path, name in (('a/sbm.py', 'sbm.py'), ('a/gpu/__main__.py', 'gpu'), ('a/gpu', 'gpu')):
        monkeypatch.setattr(sys, 'argv', [path])
        with pytest.raises(SystemExit, match=f'^{name}: error: no data$'):
            run_script(main)


@pytest.mark.parametrize(
    ('error', 'reason'),
    [
        (aiohttp.ClientConnectionError('no server'), 'no server'),
        (FileNotFoundError('x.txt is missing'), 'x.txt is missing'),
        (ValueError("'dataset' must be one of a, b\nand more"), "'dataset' must be one of a, b"),
        (TimeoutError(), 'TimeoutError'),
    ],
)
def test_data_that_cannot_be_read_end_in_one_line(error, reason, monkeypatch, tmp_path):
    def main(root):
        with data_from(root, 'DIR/a is a file'):
            raise error

    monkeypatch.setattr(sys, 'argv', ['script.py'])
    for root, state in ((tmp_path, ''), (tmp_path / 'none', ', which did not exist,')):
        with pytest.raises(SystemExit) as end:
            run_script(lambda root=root: main(root))
        what = 'must be the folder that holds all data sets: DIR/a is a file'
        assert end.value.code == f'script.py: error: {reason}; --root {str(root)!r}{state} {what}'


LOADING = (
    'node_classification.__main__',
    'node_classification.search',
    'one_layer',
    'attention_domains',
    'link_prediction.__main__',
    'pokec',
    'recommendation.__main__',
)


@pytest.mark.parametrize('name', LOADING)
def test_a_wrong_root(name, monkeypatch, tmp_path):
    script = import_module(f'benchmarks.{name}')
    named = {'pokec': [], 'recommendation.__main__': ['--dataset', 'mine']}.get(
        name, ['--dataset', 'mine.npz']
    )
    monkeypatch.setattr(
        sys, 'argv', ['x', '--root', str(tmp_path / 'wrong'), '--output', str(tmp_path), *named]
    )
    if name == 'node_classification.search':
        monkeypatch.setattr(sys, 'argv', ['x', '--root', str(tmp_path / 'wrong'), *named])
    with pytest.raises(DataError, match=r"wrong', which did not exist, must be the folder"):
        script.main()


def test_names_of_variants():
    changes = {
        'dim': 16,
        'lr': 0.001,
        'norm': 'row',
        'residual': False,
        'normalize': True,
        'power': -0.3,
        'gnn': '../a b',
        'decay': None,
    }
    assert (
        variant_name(changes)
        == 'dim16-lr0.001-norm-row-no-residual-normalize-power-0.3-gnn-a-b-decay-None'
    )
    assert variant_name({}) == ''
    _, configs = recommendation.parse(
        ['--encoding', '8', '--dim', '16', '--no-residual', '--gamma', '1']
    )
    (name,) = configs
    assert name == 'dim16-no-residual-encoding8'  # gamma is that of the default
    assert list(recommendation.parse(['--dim', '16', '--variant', 'mine'])[1]) == ['mine']
    _, (plan,) = node_classification.parse(
        ['--set', 'options.norm=row', 'lr=0.5', '--neighbors', '5']
    )
    assert plan.variant == 'lr0.5-norm-row-neighbors5'
    _, (plan,) = node_classification.parse(['--set', 'epochs=500'])
    assert plan.variant == ''


def test_folders_that_cannot_be_written_are_refused_before_a_run(monkeypatch, tmp_path):
    monkeypatch.setattr('os.access', lambda *_: False)
    with pytest.raises(argparse.ArgumentTypeError, match=rf"^'{tmp_path}' must be .* be written$"):
        output_folder(str(tmp_path / 'new'))


def test_default_folder_is_not_that_of_the_published_results(monkeypatch):
    monkeypatch.setattr(sys, 'argv', ['x'])
    monkeypatch.setattr(
        Parser,
        'parse_args',
        lambda self, *_: pytest.fail(Path(self.get_default('output')).name),
    )
    with pytest.raises(pytest.fail.Exception, match='benchmark-results'):
        tsp.main()
    assert scripts.PUBLISHED == ROOT / 'benchmarks' / 'results'


@pytest.mark.xdist_group('started')  # which starts an interpreter once
@pytest.mark.parametrize('example', EXAMPLES)
def test_examples_end_in_one_line(example, started):
    code, _, errors = started[example]
    assert code == 2
    assert errors.splitlines()[-1].endswith(
        f'start them with torchrun --nproc-per-node 2 {example}'
    )
    assert 'Traceback' not in errors


def test_the_quickstart_tells_at_once_where_its_picture_cannot_be(tmp_path, monkeypatch, capsys):
    (tmp_path / 'file').touch()
    monkeypatch.setattr(
        'sys.argv', ['quickstart.py', '--output', str(tmp_path / 'file' / 'picture.png')]
    )
    with pytest.raises(SystemExit):
        runpy.run_path(str(ROOT / 'examples' / 'quickstart.py'), run_name='__main__')
    *_, last = capsys.readouterr().err.splitlines()
    picture = f"'{tmp_path / 'file' / 'picture.png'}'"
    assert last.endswith(
        f'the picture cannot be written to {picture} (File exists): name another place with '
        '--output'
    )


def test_the_quickstart_prints_its_table_and_draws_its_picture(tmp_path, monkeypatch, capsys):
    pytest.importorskip('matplotlib')
    picture = tmp_path / 'new' / 'picture.png'
    arguments = ['--seeds', '1', '--epochs', '1', '--graphs', '8', '--output', str(picture)]
    monkeypatch.setattr('sys.argv', ['quickstart.py', *arguments])
    runpy.run_path(str(ROOT / 'examples' / 'quickstart.py'), run_name='__main__')
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith('40 test graphs of 4 communities, one labelled node each')
    methods = ['no attention', 'mean of the graph', 'attention']
    assert [line[:18].strip() for line in lines[2:5]] == methods
    assert [line.count('±') for line in lines[2:5]] == [4, 4, 4]
    assert lines[-2].startswith('blocks.1.attn')
    assert picture.read_bytes().startswith(b'\x89PNG')


SEEDED = [
    *(
        'attention_domains',
        'link_prediction.__main__',
        'node_classification.__main__',
        'node_classification.search',
        'pokec',
        'recommendation.__main__',
        'sbm',
        'tsp',
    ),
    *('ogb.ogbn_arxiv', 'ogb.ogbn_papers100m', 'ogb.ogbn_products', 'ogb.ogbn_proteins'),
]


@pytest.mark.parametrize('seeds', [['0', '0'], ['3', '1', '3'], ['-1'], [str(2**64)]])
@pytest.mark.parametrize('name', SEEDED)
def test_seeds_are_different_numbers_that_are_not_negative(name, seeds, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['x', '--seeds', *seeds])
    with pytest.raises(SystemExit) as end:
        import_module(f'benchmarks.{name}').main()
    assert end.value.code == 2
    assert (
        f'--seeds must be different integers from 0 to 2^64 - 1 (got {" ".join(seeds)})'
        in capsys.readouterr().err
    )


RUNS = {
    'node_classification.__main__': [
        '--dataset',
        'digits',
        '--model',
        'mlp',
        '--set',
        'epochs=1',
        '--seeds',
        '0',
    ],
    'attention_domains': [
        '--dataset',
        'digits',
        '--domains',
        'batch',
        '--epochs',
        '1',
        '--seeds',
        '0',
    ],
    'link_prediction.__main__': ['--dataset', 'digits', '--seeds', '0'],
    'recommendation.__main__': ['--model', 'itemknn'],
    'sbm': [],
}


@pytest.mark.parametrize('name', RUNS)
def test_results_are_looked_at_before_the_training(name, monkeypatch, constants, tmp_path):
    script = import_module(f'benchmarks.{name}')
    folder = tmp_path / {'attention_domains': 'domains'}.get(name, name.removesuffix('.__main__'))
    folder.mkdir()
    (folder / 'other.json').write_text('[')
    constants(checkpoints=tmp_path / 'checkpoints')
    monkeypatch.setattr(
        'benchmarks.common.training.Training.__init__',
        lambda *_, **__: pytest.fail('a training began'),
    )
    monkeypatch.setattr(
        sys, 'argv', ['x', '--root', str(tmp_path), '--output', str(tmp_path), *RUNS[name]]
    )
    with pytest.raises(
        SystemExit, match=f'^x: error: {folder / "other.json"} is no result .*; remove it$'
    ):
        run_script(script.main)


def test_output_is_a_folder(monkeypatch, tmp_path, capsys):
    (tmp_path / 'file').touch()
    for path in (tmp_path / 'file', tmp_path / 'file' / 'below'):
        monkeypatch.setattr(sys, 'argv', ['x', '--output', str(path)])
        with pytest.raises(SystemExit):
            tsp.main()
        assert (
            f"argument --output: '{tmp_path / 'file'}' must be a folder" in capsys.readouterr().err
        )
