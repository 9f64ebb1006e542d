"""The Python examples of README and of pages run as they stand, one after another."""

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def blocks(path):
    text = (ROOT / path).read_text(encoding='utf-8')
    if path.endswith('.md'):
        return re.findall(r'```python\n(.*?)```', text, re.DOTALL)
    found = re.findall(r'\.\. code-block:: python\n\n((?: +.*\n|\n)+)', text)
    return [textwrap.dedent(block) for block in found]


def write_ratings(folder):
    """A file in place of the public data set, which would be downloaded."""
    folder.mkdir(parents=True)
    pairs = [f'{user},{(7 * user + 3 * k) % 150}' for user in range(200) for k in range(20)]
    (folder / 'raw.csv').write_text('\n'.join(['user_id,item_id', *pairs, '']))


@pytest.mark.parametrize(
    ('page', 'number'), [('README.md', 6), ('docs/attention.rst', 2), ('docs/index.rst', 1)]
)
def test_examples_run(page, number, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    write_ratings(tmp_path / 'data' / 'movielens-100k')
    examples = blocks(page)
    assert len(examples) == number
    exec('\n'.join(examples), {})
