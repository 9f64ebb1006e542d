"""Applies each diff of docs/extend to copies of the files that it changes, and runs what it adds.

The checks leave out torch.compile, which takes most of their time."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch.utils.data import IterDataPipe

from torch_geometric_lgt import nn, transforms
from torch_geometric_lgt.functional import kernel_attention
from torch_geometric_lgt.functional.feature_maps import MAPS
from torch_geometric_lgt.nn import KernelAttentionConv, feature_map
from torch_geometric_lgt.nn.models._layerwise_model import LayerwiseModel
from torch_geometric_lgt.nn.models._streamed_model import StreamedModel
from torch_geometric_lgt.testing import _layer_checks, dense
from torch_geometric_lgt.testing._saved import SavedStorages

ROOT = Path(__file__).parents[1]
EXTEND = ROOT / 'docs' / 'extend'
FILES = re.compile(r'^--- (\S+)\n\+\+\+ b/(\S+)\n', re.MULTILINE)
HUNKS = re.compile(r'^@@ .*\n', re.MULTILINE)


class Patch:
    """The files of a diff in a folder, and their modules."""

    def __init__(self, name, folder, monkeypatch):
        self.folder, self.monkeypatch = folder, monkeypatch
        _, *parts = FILES.split((EXTEND / f'{name}.diff').read_text())
        for source, path, hunks in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
            old = '' if source == '/dev/null' else (ROOT / path).read_text()
            assert old or not (ROOT / path).exists(), f'{path} exists'
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(patched(old, hunks, path))

    def load(self, path, name=None):
        """Imports a patched file under a name, by default one of its own."""
        return load(self.folder / path, name or f'extended.{path}')

    def add(self, path):
        """Imports a new module of the package as if it lay there."""
        name = path.removesuffix('.py').replace('/', '.')
        self.monkeypatch.setitem(sys.modules, name, self.load(path, name))

    def export(self, *packages):
        """Exports what the patched packages export, the innermost first."""
        for package in packages:
            patched_package = self.load(f'{package.replace(".", "/")}/__init__.py')
            for name in {*patched_package.__all__, '__all__'}:
                value = getattr(patched_package, name)
                self.monkeypatch.setattr(sys.modules[package], name, value, raising=False)

    def check_docstring(self, value):
        """Holds a new class against the rules of public docstrings, and runs its example."""
        rules = load(ROOT / 'test' / 'test_docstrings.py', 'docstring_rules')
        assert rules.missing_parts(value) == []
        assert rules.failing_examples(value, value.__name__) == ''

    def check_tables(self):
        """Holds a row of a class in the page of all layers and models against the class."""
        rules = self.load('test/test_which_page.py')
        rules.test_all_layers_and_models_are_in_both_tables()
        for column in rules.MEASURES:
            rules.test_properties(column)
        rules.test_default_heads()
        rules.test_kernels(self.monkeypatch)

    def run(self, path):
        """Runs all tests of a new file."""
        tests = {name: test for name, test in vars(self.load(path)).items() if name[:5] == 'test_'}
        assert tests
        for test in tests.values():
            test()


def patched(text, hunks, path):
    """Replaces the lines of each hunk, which must occur once, wherever they are by now."""
    for hunk in HUNKS.split(hunks)[1:]:
        lines = hunk.splitlines(keepends=True)
        before = ''.join(line[1:] for line in lines if line[0] in ' -')
        after = ''.join(line[1:] for line in lines if line[0] in ' +')
        if text:
            places = re.findall(f'^(?={re.escape(before)})', text, re.MULTILINE)
            assert len(places) == 1, f'{path} has changed:\n{before}'
            after = f'\n{text}'.replace(f'\n{before}', f'\n{after}')[1:]
        text = after
    return text


def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def patch(tmp_path, monkeypatch):
    monkeypatch.setattr(_layer_checks, '_check_compile', lambda *_: None)
    return lambda name: Patch(name, tmp_path, monkeypatch)


def test_every_page_has_a_diff_and_is_listed():
    pages = {path.stem for path in EXTEND.glob('*.rst')} - {'index'}
    assert pages == {path.stem for path in EXTEND.glob('*.diff')}
    listed = re.findall(r'^   (\w+)$', (EXTEND / 'index.rst').read_text(), re.MULTILINE)
    assert pages == set(listed)
    for page in pages:
        assert f'.. literalinclude:: {page}.diff' in (EXTEND / f'{page}.rst').read_text()


@pytest.mark.parametrize('name', sorted(path.stem for path in EXTEND.glob('*.diff')))
def test_diffs_pass_the_linter(name, patch):
    """The first page asks for ``make lint``, which fails on a line that is too long."""
    folder = patch(name).folder
    ruff = [sys.executable, '-m', 'ruff']
    for path in folder.rglob('*.py'):
        text, place = path.read_text(), str(path.relative_to(folder))
        for command in (['check'], ['format', '--diff']):
            arguments = [*ruff, *command, '--quiet', '--stdin-filename', place, '-']
            done = subprocess.run(arguments, input=text, text=True, capture_output=True, cwd=ROOT)
            assert done.returncode == 0, done.stdout + done.stderr


def test_a_diff_of_changed_lines_is_refused():
    hunks = '@@ -1,2 +1,2 @@\n a\n-b\n+c\n'
    assert patched('a\nb\n', hunks, 'file') == 'a\nc\n'
    for text in ('a\nd\n', 'aa\nb\n', 'a\nb\na\nb\n'):
        with pytest.raises(AssertionError, match='file has changed'):
            patched(text, hunks, 'file')


def test_feature_map(patch, monkeypatch):
    patch = patch('feature_map')
    maps = patch.load('torch_geometric_lgt/functional/feature_maps.py').MAPS
    maps = {name: MAPS.get(name, each) for name, each in maps.items()}
    plain = patch.load('torch_geometric_lgt/nn/feature_map.py').PLAIN_MAPS
    definition = patch.load('torch_geometric_lgt/testing/dense/kernel.py').feature_map
    monkeypatch.setattr(feature_map, 'PLAIN_MAPS', plain)
    monkeypatch.setattr(dense, 'feature_map', definition)
    with mock.patch.dict(MAPS, maps, clear=True):
        tests = patch.load('test/functional/test_feature_maps.py')
        (mark,) = tests.test_features_match_dense_with_gradient.pytestmark
        assert 'relu2' in mark.args[1]
        tests.test_features_match_dense_with_gradient('relu2')
        known = patch.load('test/functional/engine/test_inputs.py').KNOWN
        with pytest.raises(ValueError, match=re.escape(f'must be one of {known}')):
            kernel_attention(*torch.randn(3, 5, 2, 4), 'cosine')
        choices = patch.load('test/test_choices.py')
        for name in ('feature_map', 'kind'):
            choices.test_the_most_similar_name_is_asked_for(name)
        checks = patch.load('test/testing/test_checks.py')
        checks.test_layers_keep_every_promise('kernel-relu2')
        check_range(lambda: KernelAttentionConv(6, 8, heads=2, feature_map='relu2'))


def test_layer(patch):
    patch = patch('layer')
    patch.add('torch_geometric_lgt/nn/conv/gated_attention_conv.py')
    patch.export('torch_geometric_lgt.nn.conv', 'torch_geometric_lgt.nn')
    assert 'GatedAttentionConv' in nn.__all__
    patch.check_docstring(nn.GatedAttentionConv)
    patch.run('test/nn/conv/test_gated_attention_conv.py')
    patch.check_tables()
    checks = patch.load('test/testing/test_checks.py')
    checks.test_layers_keep_every_promise('gated')
    checks.test_no_exported_class_is_left_out()


def test_a_layer_in_a_file_of_a_user(monkeypatch):
    monkeypatch.setattr(_layer_checks, '_check_compile', lambda *_: None)
    example = load(EXTEND / 'layer_module.py', 'layer_module')
    monkeypatch.setitem(sys.modules, example.__name__, example)
    code = (EXTEND / 'layer_module.py').read_text()
    assert re.findall(r'^ *(?:from|import) \S*\._', code, re.MULTILINE) == []
    example.check_layer(lambda: example.GatedAttention(6, 8, heads=2), in_channels=6)
    layer, x = example.GatedAttention(8, 8, heads=2), torch.randn(5, 8)
    for block in (nn.GPSConv(8, None, attn_type=layer), nn.GlobalAttention(layer)):
        out = block(x) if isinstance(block, nn.GPSConv) else block(x[None])
        assert out.shape[-2:] == (5, 8)


def test_model(patch):
    patch = patch('model')
    patch.add('torch_geometric_lgt/nn/models/kernel_transformer.py')
    patch.export('torch_geometric_lgt.nn.models', 'torch_geometric_lgt.nn')
    assert 'KernelTransformer' in nn.__all__
    patch.check_docstring(nn.KernelTransformer)
    patch.run('test/nn/models/test_kernel_transformer.py')
    patch.check_tables()
    checks = patch.load('test/testing/test_checks.py')
    checks.test_models_keep_every_promise('KernelTransformer')
    checks.test_no_exported_class_is_left_out()


def test_hooks_of_models_are_public_and_on_the_page():
    page = (EXTEND / 'model.rst').read_text()
    hooks = set()
    for model in (value for value in vars(nn).values() if isinstance(value, type)):
        for base in (LayerwiseModel, StreamedModel):
            if issubclass(model, base):
                parts = model.__mro__[: model.__mro__.index(base)]
                hooks |= {name for part in parts for name in vars(part) if name in vars(base)}
    hooks = {name for name in hooks if not name.startswith('__')}
    assert {'layer', 'prepare_edges', 'readout', 'stream_layers', 'stream_scores'} <= hooks
    assert [name for name in hooks if name.startswith('_') or f'``{name}``' not in page] == []


def test_transform(patch):
    patch = patch('transform')
    with mock.patch.dict(IterDataPipe.functions):  # a name can be registered once
        patch.add('torch_geometric_lgt/transforms/neighbor_degree.py')
    patch.export('torch_geometric_lgt.transforms')
    assert 'NeighborDegree' in transforms.__all__
    patch.check_docstring(transforms.NeighborDegree)
    patch.run('test/transforms/test_neighbor_degree.py')
    checks = patch.load('test/testing/test_checks.py')
    checks.test_transforms_keep_every_promise('NeighborDegree')
    checks.test_no_exported_class_is_left_out()


def test_dataset(patch, monkeypatch, tmp_path):
    from benchmarks.node_classification import datasets, settings

    patch = patch('dataset')
    monkeypatch.setattr(
        datasets, 'SOURCES', patch.load('benchmarks/node_classification/datasets.py').SOURCES
    )
    configs = tmp_path / 'benchmarks' / 'node_classification' / 'configs'
    monkeypatch.setattr(settings, 'CONFIGS', configs)
    tests = patch.load('test/benchmarks/node_classification/test_dblp.py')
    tests.test_dblp(tmp_path)
    tests.test_settings_of_dblp()


def test_peer(patch, constants):
    from benchmarks.runtime import layers

    cases = patch('peer').load('benchmarks/runtime/cases.py').CASES
    constants(layer_cases=cases)
    config = {'num_nodes': 300, 'channels': 16, 'device': 'cpu'}
    layers.check('sgformer-heads', config)
    peer = layers.make('sgformer-heads', config)['formula']()
    assert peer.shape == (300, 16)


def test_a_module_as_feature_map(monkeypatch):
    monkeypatch.setattr(_layer_checks, '_check_compile', lambda *_: None)
    example = load(EXTEND / 'feature_map_module.py', 'feature_map_module')
    monkeypatch.setitem(sys.modules, example.__name__, example)
    assert example.out.shape == (100, 32)

    def make():
        return KernelAttentionConv(6, 8, heads=2, feature_map=example.LearnedMap(4, 5))

    _layer_checks.check_layer(make, 6)
    check_range(make)


def check_range(make):
    """Holds layers of many seeds against the check of large features, which some of them passed."""
    batch = torch.arange(30) % 3
    for seed in range(12):
        torch.manual_seed(seed)
        layer, x = make(), torch.randn(30, 6)
        _layer_checks._check_range(layer, lambda layer, x, *_: layer(x, batch=batch), x, x, batch)


class LaplaceMap(torch.nn.Module):
    """Has the features of the layer in logits_module.py, with a floor."""

    def __init__(self, floor):
        super().__init__()
        self.floor = floor

    def forward(self, x):
        return torch.exp(-x.abs()) + self.floor


def test_features_that_vanish(monkeypatch):
    """A floor or logits keep gradients finite, as the page of feature maps says."""
    monkeypatch.setattr(_layer_checks, '_check_compile', lambda *_: None)

    def make(floor):
        torch.manual_seed(0)
        return KernelAttentionConv(6, 8, heads=2, feature_map=LaplaceMap(floor))

    with pytest.raises(
        AssertionError, match=r"not finite; keep .* 'logits' of torch_geometric_lgt"
    ):
        _layer_checks.check_layer(lambda: make(0.0), 6)
    _layer_checks.check_layer(lambda: make(1e-4), 6)

    example = load(EXTEND / 'logits_module.py', 'logits_module')
    monkeypatch.setitem(sys.modules, example.__name__, example)
    example.check_layer(lambda: example.LaplaceAttention(6, 8, heads=2), in_channels=6)
    layer, other, x = example.LaplaceAttention(6, 8, heads=2), make(0.0), torch.randn(9, 6)
    for name in ('lin_query', 'lin_key', 'lin_value'):
        setattr(layer, name, getattr(other, name))
    torch.testing.assert_close(layer(x), other(x))


@pytest.mark.parametrize(
    ('phi', 'matrices'), [('elu', 1), (torch.nn.ReLU(), 3), (torch.nn.Softplus(), 5)], ids=str
)
def test_memory_of_a_feature_map(phi, matrices):
    """In matrices of the size of the input, up to a tenth."""
    conv = KernelAttentionConv(64, 64, heads=4, feature_map=phi)
    x = torch.randn(40_000, 64)
    with SavedStorages(conv.parameters()) as saved:
        conv(x).sum().backward()
    assert sum(saved.sizes) / (x.numel() * x.element_size()) == pytest.approx(matrices, abs=0.2)
