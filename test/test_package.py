import ast
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import torch
from torch.overrides import TorchFunctionMode

import torch_geometric_lgt
from torch_geometric_lgt.nn import KernelAttentionConv

PACKAGE = Path(torch_geometric_lgt.__file__).parent


CODE = """
import sys, torch_geometric_lgt as t
print('torch' in sys.modules)
t.testing.dense.jaccard
print('torch_geometric' in sys.modules, 'nm' in dir(t.testing))
print(t.testing.checks.check_layer.__name__)
print('nn' in vars(t), t.nn.NodeFormer.__name__, 'nn' in vars(t))
import gc
gc.freeze()  # the end of the process would look through all objects
"""


@pytest.fixture(scope='module')
def printed():
    """By a fresh interpreter that uses one submodule after another."""
    process = subprocess.run(
        [sys.executable, '-c', CODE],
        capture_output=True,
        text=True,
        cwd=PACKAGE.parent,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    return [line.split() for line in process.stdout.splitlines()]


@pytest.mark.xdist_group('printed')  # which starts an interpreter once
def test_submodules_are_imported_when_they_are_used(printed):
    """The package itself imports nothing, and a submodule what it needs."""
    assert printed[0] == ['False']
    assert printed[3] == ['False', 'NodeFormer', 'True']


@pytest.mark.parametrize(
    'name',
    [name for name in torch_geometric_lgt.SUBMODULES if name not in ('graphgym', 'visualization')],
)
def test_every_submodule_is_an_attribute(name):
    assert getattr(torch_geometric_lgt, name).__name__ == f'torch_geometric_lgt.{name}'
    assert name in dir(torch_geometric_lgt)


def test_public_submodules_are_all_listed():
    modules = {
        path.stem
        for path in PACKAGE.iterdir()
        if path.suffix == '.py' or (path / '__init__.py').exists()
    }
    assert set(torch_geometric_lgt.SUBMODULES) == {
        name for name in modules if not name.startswith('_')
    } - {'typing'}
    assert all(
        f'``{name}``' in torch_geometric_lgt.__doc__ for name in torch_geometric_lgt.SUBMODULES
    )
    assert {'__version__', *torch_geometric_lgt.SUBMODULES} <= set(dir(torch_geometric_lgt))
    with pytest.raises(AttributeError, match="module 'torch_geometric_lgt' has no attribute 'nm'"):
        _ = torch_geometric_lgt.nm


@pytest.mark.xdist_group('printed')  # which starts an interpreter once
def test_definitions_import_torch_only(printed):
    assert printed[1] == ['False', 'False']
    assert printed[2] == ['check_layer']
    with pytest.raises(
        AttributeError, match=r"module 'torch_geometric_lgt\.testing' has no attribute 'nm'"
    ):
        _ = torch_geometric_lgt.testing.nm


def test_few_files_lie_between_a_layer_and_its_products():
    """Whoever follows the input of a layer to a matrix product reads at most seven files."""
    conv, paths = KernelAttentionConv(16, 16, heads=2), []

    class Recorded(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function is torch.nn.functional.linear:
                files = {Path(frame.filename) for frame in traceback.extract_stack()}
                paths.append({file for file in files if PACKAGE in file.parents})
            return function(*args, **(kwargs or {}))

    with Recorded():
        conv(torch.randn(50, 16))
    assert len(paths) >= 2  # keys and queries
    assert max(map(len, paths)) <= 7


def test_parallel_assignments_fit_one_line():
    """Over several lines the reader would have to count names and values."""
    for folder in ('torch_geometric_lgt', 'benchmarks', 'test', 'tools', 'examples'):
        paths = [*(PACKAGE.parent / folder).rglob('*.py')]
        assert paths, folder
        for path in paths:
            for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
                    is_parallel = isinstance(node.targets[0], ast.Tuple)
                    assert not is_parallel or node.lineno == node.end_lineno, (path, node.lineno)
