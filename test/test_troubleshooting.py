"""The messages that the page of errors quotes are those of the code."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest
import torch
import torch_geometric

import torch_geometric_lgt

PAGE = Path(__file__).parents[1] / 'docs' / 'troubleshooting.rst'
SOURCES = (
    *sorted(Path(torch_geometric_lgt.__file__).parent.rglob('*.py')),
    Path(torch_geometric.__file__).parent / 'sampler' / 'neighbor_sampler.py',
    Path(torch.__file__).parent / '_dynamo' / 'convert_frame.py',
    Path(torch.__file__).parent / 'cuda' / '__init__.py',
    Path(torch.__file__).parent / 'export' / '__init__.py',
    Path(torch.__file__).parent / 'nn' / 'functional.py',
    Path(torch.__file__).parent / 'nn' / 'modules' / 'module.py',
    Path(torch.__file__).parent / 'serialization.py',
)


def pattern_of(node):
    """A regular expression of the texts that an expression or a logger makes of it, or None for no
    text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        text = re.escape(re.sub(r'\s+', ' ', node.value))
        return text.replace('%s', '.*?').replace(re.escape('{}'), '.*?')
    if isinstance(node, ast.JoinedStr):
        parts = [pattern_of(part) for part in node.values]
        return ''.join('.*?' if part is None else part for part in parts)
    return None


@cache
def patterns():
    """Patterns of all texts of the sources."""
    found = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
            pattern = pattern_of(node)
            if pattern is not None and len(pattern.replace('.*?', '')) > 20:
                found.add(pattern.removesuffix(re.escape(' ')))
    return [re.compile(pattern) for pattern in sorted(found)]


def messages():
    text = PAGE.read_text(encoding='utf-8')
    blocks = re.findall(r'^\.\. code-block:: text\n\n((?: {3}.*\n)+)', text, re.M)
    cells = re.findall(r'^ {3}\* - ``(.+)``$', text, re.M)
    return [' '.join(block.split()) for block in (*blocks, *cells)]


@pytest.mark.parametrize('message', messages())
def test_message_is_one_of_the_code(message):
    assert any(pattern.fullmatch(message) for pattern in patterns())


def test_no_message_is_quoted_twice():
    assert len(messages()) == len(set(messages())) > 60
