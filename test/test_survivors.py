"""The explanations of tools/survivors.toml belong to lines that exist."""

import re
from pathlib import Path

import pytest

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10, where pytest brings its predecessor
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
FUNCTIONAL = ROOT / 'torch_geometric_lgt' / 'functional'
CHANGES = [
    change
    for kind in tomllib.loads((ROOT / 'tools' / 'survivors.toml').read_text())['kinds']
    for change in kind['changes']
]


def without_spaces(text):
    return re.sub(r'\s', '', text)


def module_and_names(where):
    """The files of the module, and the names of the class and the function in it. A dotted name
    that starts with '...' stands for all modules."""
    parts = [part for part in where.replace('...', '').split('.') if part]
    for length in range(len(parts), 0, -1):
        path = FUNCTIONAL.joinpath(*parts[:length]).with_suffix('.py')
        if path.exists():
            return [path], parts[length:]
    assert where.startswith('...'), f'no module {where}'
    return FUNCTIONAL.rglob('*.py'), parts


@pytest.mark.parametrize('change', CHANGES)
def test_an_explained_change_is_one_of_a_line_that_exists(change):
    where, before = re.fullmatch('(.*?): ?(.*) -> ?.*', change).groups()
    paths, names = module_and_names(where)
    source = ''.join(path.read_text() for path in paths)
    for name in names:
        assert re.search(rf'(def|class) {name}\b', source)
    for part in before.split('...'):
        assert without_spaces(part) in without_spaces(source)
