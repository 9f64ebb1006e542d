"""Runs the examples of the docstrings."""

import doctest
import inspect

import pytest

from torch_geometric_lgt import testing
from torch_geometric_lgt.testing import checks, dense

FLAGS = doctest.ELLIPSIS
DENSE = {
    name: value
    for name, value in vars(dense).items()
    if inspect.isfunction(value) and value.__module__ == dense.__name__
}
PUBLIC = {'testing': testing, **{name: getattr(checks, name) for name in checks.__all__}, **DENSE}


@pytest.mark.parametrize(
    'name',
    [
        pytest.param(name, marks=pytest.mark.compiled) if name == 'check_layer' else name
        for name in PUBLIC
    ],
)
def test_the_example_runs(name):
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(PUBLIC[name], name, globs=dict(DENSE, torch=dense.torch))
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    output = []
    runner.run(example, out=output.append)
    assert example.examples
    assert runner.failures == 0, ''.join(output)
