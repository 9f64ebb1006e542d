"""Every command in a result file or a text runs a script."""

import json
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from benchmarks.gpu.report import BESIDE

ROOT = Path(__file__).parents[2]
RESULTS = [
    path
    for path in sorted((ROOT / 'benchmarks' / 'results').rglob('*.json'))
    if path.name not in BESIDE
]
TEXTS = [
    *(ROOT / name for name in ('README.md', 'CONTRIBUTING.md', 'Makefile')),
    *sorted((ROOT / 'benchmarks').rglob('README.md')),
    *sorted((ROOT / 'docs').glob('*.rst')),
    *sorted((ROOT / 'docs').glob('*.py')),
    *sorted((ROOT / 'docs' / 'gallery').glob('*.*')),
    *(
        path
        for folder in ('benchmarks', 'extend', 'migrate', 'theory')
        for path in sorted((ROOT / 'docs' / folder).glob('*.rst'))
    ),
]
SCRIPTS = sorted((ROOT / 'benchmarks').rglob('*.py'))
COMMAND = re.compile(r'(?:-m\s+|``|RUN=\')(benchmarks(?:\.\w+)+)(?=\s|`)')
MODULE = re.compile(r'(?<![\w/.])benchmarks(?:\.[a-z_]\w*)+')
FILE = re.compile(r'(?<![\w/-])benchmarks/[\w/]+\.py')


def source_of(name):
    """Returns the file that ``python -m`` runs."""
    spec = find_spec(name)
    assert spec is not None, name
    if spec.submodule_search_locations is not None:
        spec = find_spec(f'{name}.__main__')
        assert spec is not None, name
    return Path(spec.origin)


def recorded_modules():
    """Returns the modules of the commands in the result files."""
    commands = [
        command.split()
        for path in RESULTS
        for command in json.loads(path.read_text())['command'].split(' && ')
    ]
    assert all(words[:2] == ['python', '-m'] for words in commands)
    return {words[2] for words in commands}


def documented_modules():
    """Returns the modules of the commands in texts and scripts."""
    texts = (path.read_text() for path in [*TEXTS, *SCRIPTS])
    return {name for text in texts for name in COMMAND.findall(text)}


def test_commands_are_collected():
    assert {'benchmarks.node_classification', 'benchmarks.tsp'} < recorded_modules()
    assert {'benchmarks.gpu', 'benchmarks.one_layer', 'benchmarks.sbm'} < documented_modules()
    assert len(recorded_modules()) > 15
    assert len(documented_modules()) > 20


@pytest.mark.parametrize('name', sorted(recorded_modules() | documented_modules()))
def test_a_command_runs_a_script(name):
    source = source_of(name).read_text()
    assert '\ndef main() -> None:\n' in source
    assert source.endswith("if __name__ == '__main__':\n    run_script(main)\n")


@pytest.mark.parametrize('path', TEXTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_files_in_a_text_exist(path):
    text = path.read_text()
    for name in MODULE.findall(text):
        assert find_spec(name) is not None, name
    for name in FILE.findall(text):
        assert (ROOT / name).exists(), name
