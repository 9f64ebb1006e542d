"""Layers and models on a device that has neither numbers in double precision nor sparse matrices,
as ``'mps'`` of a Mac. No test has the device, which is emulated."""

import copy

import pytest
import torch
from constants import BY_OPERATORS
from cuda_cases import (
    CASES,
    EDGES,
    JACCARD,
    LAYERS,
    SAMPLED,
    F,
    N,
    X,
    make,
    mgformer,
    results,
)
from emulated_device import emulated
from torch_geometric.data import Data
from torch_geometric.explain.algorithm.utils import set_masks

from torch_geometric_lgt import transforms
from torch_geometric_lgt.diagnostics import attention_report
from torch_geometric_lgt.functional import attention_distance
from torch_geometric_lgt.init import kmeans_
from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.nn import (
    DIFFormer,
    GraphTransformer,
    KernelAttentionConv,
    LiteGT,
    NodeFormer,
    SGFormer,
)

WEIGHT = torch.rand(EDGES.size(1), generator=torch.Generator().manual_seed(3)).double()


@pytest.fixture
def device(monkeypatch):
    with emulated(monkeypatch.setattr) as device:
        yield device


def on_both(build, device):
    """A module on the CPU and its copy on the device."""
    torch.manual_seed(0)
    module = build().eval()
    return module, copy.deepcopy(module).to(device)


def assert_same(actual, expected):
    assert actual.dtype == expected.dtype
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ('name', 'is_small'), [*((name, True) for name in CASES), *((name, False) for name in LAYERS)]
)
def test_outputs_and_gradients_are_those_of_the_definition(name, is_small, device, constants):
    if not is_small:
        constants(plain_elements=BY_OPERATORS)
    actual, expected, call = make(name, device, torch.float32)
    found, wanted = results(actual, call, X.to(device)), results(expected, call, X.double())
    largest = max(float(part.abs().max()) for name, part in wanted.items() if name != 'output')
    for name, part in wanted.items():
        assert found[name].device == device, name
        size = float(part.abs().max()) if name == 'output' else largest
        error = float((found[name].cpu().double() - part).abs().max())
        assert error <= 1e-4 * size, f'{name}: {error / size:.1e}'


MODELS = {
    'NodeFormer': lambda: NodeFormer(F, 8, 3, 2, 2, num_features=8, num_gumbel_samples=0),
    'DIFFormer': lambda: DIFFormer(F, 8, 3),
    'SGFormer': lambda: SGFormer(F, 8, 3),
    'GraphTransformer': lambda: GraphTransformer(F, 8, 3, 1, 2, 1),
}
UNWEIGHTED = {
    'GINEConv': lambda: GraphTransformer(F, 8, 3, conv='GINEConv', edge_channels=1),
    'LiteGT': lambda: LiteGT(F, 16, 3, heads=4, edge_channels=1),
}


def loader_of(name):
    """Parts of a graph whose numbers are in double precision."""
    weight = WEIGHT if name in MODELS else None
    data = Data(x=X.double(), edge_index=EDGES, edge_weight=weight, edge_attr=WEIGHT[:, None])
    data.edge_jaccard, data.attention_mask = JACCARD, SAMPLED
    return NeighborLoader(data, [-1], batch_size=40)


@pytest.mark.parametrize('name', MODELS | UNWEIGHTED)
def test_scores_of_parts_of_a_graph(name, device):
    expected, actual = on_both((MODELS | UNWEIGHTED)[name], device)
    assert_same(actual.inference(loader_of(name)), expected.inference(loader_of(name)))


@pytest.mark.parametrize('name', MODELS)
def test_part_of_a_graph_beside_a_memory(name, device):
    outs = []
    for model, place in zip(on_both(MODELS[name], device), ('cpu', device), strict=True):
        memory = model.attention_memory(loader_of(name))
        assert memory.states[0].sums.dtype == torch.double
        x = X[:30].to(place)
        edges = EDGES[:, (EDGES < 30).all(0)].to(place)
        states = memory.without(torch.arange(30).to(place))
        outs.append(model(x, edges, states=states, num_keys=30).detach())
    assert_same(outs[1], outs[0])


@pytest.mark.parametrize('name', ['NodeFormer', 'SGFormer', 'DIFFormer'])
def test_report_of_attention(name, device):
    expected, actual = on_both(MODELS[name], device)
    for row, other in zip(
        attention_report(actual, X.to(device), EDGES.to(device), num_rows=N),
        attention_report(expected, X, EDGES, num_rows=N),
        strict=True,
    ):
        assert row.pop('layer') == other.pop('layer')
        assert row == pytest.approx(other, rel=1e-3, abs=1e-4)


def test_explanation_of_a_relational_bias(device):
    layers = on_both(lambda: KernelAttentionConv(F, 8, 2, relational_order=1), device)
    mask = torch.linspace(-1, 1, EDGES.size(1))
    outs = []
    for layer, place in zip(layers, ('cpu', device), strict=True):
        set_masks(layer, torch.nn.Parameter(mask.to(place)), EDGES.to(place))
        outs.append(layer(X.to(place), EDGES.to(place)).detach())
    assert_same(outs[1], outs[0])


def test_transforms_of_a_graph(device):
    chain = [
        transforms.JaccardScores(),
        transforms.AttentionNodeSampling(factor=2),
        transforms.NodeDegree(),
        transforms.LaplacianPE(3),
        transforms.SVDEncoding(3),
    ]
    actual, expected = Data(edge_index=EDGES.to(device), num_nodes=N), Data(edge_index=EDGES)
    expected.num_nodes = N
    for transform in chain:
        actual, expected = transform(actual), transform(expected)
    assert torch.equal(actual.attention_mask.cpu(), expected.attention_mask)
    for name in ('edge_jaccard', 'degree', 'laplacian_pe', 'svd_pe'):
        assert actual[name].device == device
        assert_same(actual[name].abs(), expected[name].abs())  # signs are free
    distance = attention_distance(EDGES.to(device), N)
    assert_same(distance, attention_distance(EDGES, N).float())


def test_modules_are_made_on_the_device(device):
    with device:
        layer, model = KernelAttentionConv(F, 8), mgformer()
    assert layer.feature_map.projection.device == device
    assert model.scoring == 'inner'


def test_learned_map_starts_at_groups_of_nodes(device):
    layer = KernelAttentionConv(F, 8, 2, feature_map='learned', num_features=4).to(device)
    kmeans_(layer, X.to(device))
    assert layer(X.to(device)).cpu().isfinite().all()
