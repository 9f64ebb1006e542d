"""Every public name is documented, with an example that runs as it is printed."""

import ast
import doctest
import importlib
import inspect
import re
import socket
import warnings
from functools import cache
from itertools import chain
from types import FunctionType

import pytest
import torch

MODULES = (
    'convert',
    'data',
    'datasets',
    'diagnostics',
    'distributed',
    'functional',
    'graphgym',
    'info',
    'init',
    'loader',
    'nn',
    'testing.checks',
    'testing.dense',
    'transforms',
    'visualization',
)
EXTRAS = {
    'datasets.TSPDataset': ('elkai', 'joblib'),
    'visualization.plot_attention_report': ('matplotlib',),
    'visualization.plot_latent_structure': ('matplotlib',),
}
MAX_WORDS = 25
PACKAGE = 'torch_geometric_lgt'
DEFAULT = r'\(default:\s+:obj:`([^`]+)`'
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@cache
def public_objects():
    """The public classes and functions by name, without modules whose extra is missing."""
    objects = {}
    for name in MODULES:
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings('ignore', 'To use GraphGym, install')
                module = importlib.import_module(f'torch_geometric_lgt.{name}')
        except ImportError:
            if name != 'graphgym':
                raise
            continue
        exported = getattr(module, '__all__', None) or [
            key
            for key, value in vars(module).items()
            if not key.startswith('_') and getattr(value, '__module__', None) == module.__name__
        ]
        values = {f'{name}.{key}': getattr(module, key) for key in exported}
        objects |= {key: value for key, value in values.items() if callable(value)}
    return objects


def first_sentence(text):
    """The first sentence of a docstring, in which a link, a role or a code literal is one word."""
    paragraph = inspect.cleandoc(text).split('\n\n')[0]
    paragraph = re.sub(r'(:[\w:]+:)?(`+)[^`]+\2_?', 'name', paragraph)
    return re.split(r'(?<!\bEqs)(?<!\bEq)(?<!\bSec)[.!?:](?=\s|$)', paragraph)[0]


def public_members(cls):
    """The methods and properties that a class defines itself, by name."""
    members = {name: getattr(value, '__func__', value) for name, value in vars(cls).items()}
    return {
        name: value
        for name, value in members.items()
        if isinstance(value, (FunctionType, property)) and not name.startswith('_')
    }


def missing_parts(obj):
    """What a class or function lacks: a docstring, a short first sentence, an example."""
    text = obj.__doc__ if not inspect.isclass(obj) else vars(obj).get('__doc__')
    if not text:
        return ['a docstring']
    missing = []
    words = len(first_sentence(text).split())
    if not 0 < words <= MAX_WORDS:
        missing.append(f'a first sentence of at most {MAX_WORDS} words (got {words})')
    if '>>> ' not in text:
        missing.append("an example ('>>> ')")
    members = public_members(obj) if inspect.isclass(obj) else {}
    for name, value in members.items():
        line = (value.__doc__ or '').partition('\n')[0]
        if isinstance(value, property) and ':' in re.sub(r'(:[\w:]+:)?(`+)[^`]+\2', '', line):
            missing.append(f'{name!r} without a colon in its first line, which Sphinx splits there')
    return missing + [
        f'a docstring of {name!r}' for name, value in members.items() if not value.__doc__
    ]


def wrong_defaults(function, text):
    """The arguments whose default is another one than a docstring says, with both."""
    parameters = inspect.signature(function).parameters
    section = re.search(r'^Args:\n(.*?)(\n\n|\Z)', inspect.cleandoc(text), re.DOTALL | re.MULTILINE)
    entries = re.split(r'\n(?= {4}\S)', section[1]) if section else []
    defaults = {}
    for entry in entries:
        name, default = re.match(r' {4}(\w+) \(', entry), re.search(DEFAULT, entry)
        if name and default:
            defaults[name[1]] = ast.literal_eval(default[1]), parameters[name[1]].default
    return {name: pair for name, pair in defaults.items() if pair[0] != pair[1]}


def failing_examples(obj, name):
    """The report of the examples that fail, in the docstrings of an object and its methods."""
    runner, report = doctest.DocTestRunner(verbose=False, optionflags=FLAGS), []
    for test in doctest.DocTestFinder().find(obj, name, globs={}):
        runner.run(test, out=report.append)
    return ''.join(report)


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """A temporary working directory, fixed random numbers, and no screen and no network."""

    def refuse(_, address):
        raise OSError(f'an example must not open a connection (got {address!r})')

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv('MPLBACKEND', 'Agg')
    monkeypatch.setattr(socket.socket, 'connect', refuse)
    torch.manual_seed(0)


@pytest.mark.parametrize('name', public_objects())
def test_public_name_is_documented(name):
    missing = missing_parts(public_objects()[name])
    assert not missing, f'torch_geometric_lgt.{name} lacks {", ".join(missing)}'


@pytest.mark.parametrize('name', public_objects())
def test_defaults_are_those_of_the_docstring(name):
    obj = public_objects()[name]
    assert wrong_defaults(obj, obj.__doc__) == {}
    bases = [base for base in getattr(obj, '__mro__', ()) if base.__module__.startswith(PACKAGE)]
    for member in chain.from_iterable(public_members(base).values() for base in bases):
        if isinstance(member, FunctionType):
            assert wrong_defaults(member, member.__doc__ or '') == {}


@pytest.mark.usefixtures('scratch')
@pytest.mark.parametrize('name', public_objects())
def test_examples_run(name):
    for extra in EXTRAS.get(name, ()):
        pytest.importorskip(extra)
    report = failing_examples(public_objects()[name], name)
    assert not report, report


def test_missing_parts_are_reported():
    def undocumented():
        pass

    def without_example():
        """Returns nothing (Eq. 3 of a paper)."""

    class Documented:
        """Holds nothing, as in `"A Title" <https://example.org>`_:

        >>> 1
        1
        """

        def method(self):
            pass

        @property
        def size(self):
            pass

        @classmethod
        def make(cls):
            """Makes one."""

        def _private(self):
            pass

    class Inherited(Documented):
        pass

    assert missing_parts(undocumented) == ['a docstring']
    assert missing_parts(without_example) == ["an example ('>>> ')"]
    assert missing_parts(Documented) == ["a docstring of 'method'", "a docstring of 'size'"]
    assert missing_parts(Inherited) == ['a docstring']


def test_other_defaults_are_reported():
    def function(size=3, name='a', *, flag=True, other=None):
        """Returns nothing.

        Args:
            size (int, optional): A size. (default: :obj:`2`)
            name (str, optional): A name, of which there
                are several. (default:
                :obj:`"b"`, the second)
            flag (bool, optional): A flag. (default: :obj:`True`)
            other: Anything.

        Returns:
            int: Nothing. (default: :obj:`4`)
        """

    expected = {'size': (2, 3), 'name': ('b', 'a')}
    assert wrong_defaults(function, function.__doc__) == expected


@pytest.mark.parametrize(('words', 'accepted'), [(25, True), (26, False)])
def test_long_first_sentences_are_reported(words, accepted):
    def function():
        pass

    function.__doc__ = f'{" ".join(["Word"] * words)}. {"More " * 30}\n\n>>> 1\n1\n'
    expected = [f'a first sentence of at most 25 words (got {words})']
    assert missing_parts(function) == ([] if accepted else expected)


@pytest.mark.usefixtures('scratch')
def test_failing_examples_are_reported():
    def wrong():
        """Returns nothing.

        >>> 1 + 1
        3
        """

    def without_import():
        """Returns nothing.

        >>> torch.ones(1)
        tensor([1.])
        """

    def connecting():
        """Returns nothing.

        >>> import urllib.request
        >>> urllib.request.urlopen('http://127.0.0.1:9')
        """

    class Fine:
        """Holds nothing.

        >>> import torch
        >>> torch.rand(2)
        tensor([0.49..., 0.76...])
        """

        def method(self):
            """Returns nothing.

            >>> 0
            1
            """

    assert 'Expected:\n    3\nGot:\n    2\n' in failing_examples(wrong, 'wrong')
    assert "NameError: name 'torch' is not defined" in failing_examples(without_import, 'name')
    assert 'an example must not open a connection' in failing_examples(connecting, 'connecting')
    report = failing_examples(Fine, 'Fine')
    assert 'Fine.method' in report
    assert report.count('Failed example:') == 1
