"""What a user does with a model or a graph on a GPU: the results are those of the CPU."""

import copy

import pytest
import torch
from cuda_cases import DEGREE, EDGES, F, N, X, mgformer
from gradients import gradients
from torch_geometric.data import Data

from torch_geometric_lgt import transforms
from torch_geometric_lgt.diagnostics import attention_report
from torch_geometric_lgt.functional import alignment_uniformity, sorted_edges
from torch_geometric_lgt.init import kmeans_
from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    DIFFormer,
    DIFFormerConv,
    GraphTransformer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    NodeFormer,
    SGFormer,
    SGFormerConv,
)

pytestmark = pytest.mark.cuda
MODELS = {
    'NodeFormer': lambda: NodeFormer(F, 8, 3, 2, 2, num_features=8, num_gumbel_samples=0),
    'DIFFormer': lambda: DIFFormer(F, 8, 3),
    'SGFormer': lambda: SGFormer(F, 8, 3),
    'GraphTransformer': lambda: GraphTransformer(F, 8, 3, 1, 2, 1, dropout=0.0),
}
STATES = {
    'kernel': (lambda: KernelAttentionConv(F, 8, 2), ()),
    'degree': (lambda: DegreeMaskedAttention(F, 2, max_degree=64), (DEGREE,)),
    'sgformer': (lambda: SGFormerConv(F, 8), ()),
    'difformer': (lambda: DIFFormerConv(F, 8, use_graph=False), ()),
}
SCORES = {
    'kernel': lambda: KernelAttentionConv(F, 8, 2),
    'adjacency': lambda: AdjacencyMaskedAttention(F, 2),
    'sgformer': lambda: SGFormerConv(F, 8),
    'difformer': lambda: DIFFormerConv(F, 8),
    'jaccard': lambda: JaccardSubtractorConv(F, 8, 4),
}
TRANSFORMS = {
    'jaccard': lambda: transforms.JaccardScores(),
    'sampling': lambda: transforms.AttentionNodeSampling(),
    'degree': lambda: transforms.NodeDegree(),
    'laplacian': lambda: transforms.LaplacianPE(3),
    'svd': lambda: transforms.SVDEncoding(3),
}


def both(build, device):
    """A module on the CPU and its copy on the device."""
    torch.manual_seed(0)
    module = build().eval()
    return module, copy.deepcopy(module).to(device)


def assert_same(actual, expected):
    torch.testing.assert_close(actual.cpu(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize('name', MODELS)
def test_inference_over_batches_of_the_host(name, device):
    expected, actual = both(MODELS[name], device)
    loader = NeighborLoader(Data(x=X, edge_index=EDGES), [-1], batch_size=16)
    scores = actual.inference(loader)
    with torch.no_grad():
        assert_same(scores, expected(X, EDGES))


@pytest.mark.parametrize('form', ['transposed', 'CSR', 'CSC', 'COO', 'sorted'])
def test_edges_in_every_format(form, device):
    expected, actual = both(MODELS['SGFormer'], device)
    on_device = EDGES.to(device)
    matrix = torch.sparse_coo_tensor(on_device.flip(0), torch.ones(EDGES.size(1), device=device))
    matrix = matrix.sparse_resize_((N, N), 2, 0).coalesce()
    edges = {
        'transposed': lambda: on_device.t().contiguous().t(),
        'CSR': matrix.to_sparse_csr,
        'CSC': matrix.to_sparse_csc,
        'COO': lambda: matrix,
        'sorted': lambda: sorted_edges(on_device, N, N, backward=True),
    }[form]()
    results = []
    for model, x, adj in ((actual, X.to(device), edges), (expected, X, EDGES)):
        leaf = x.clone().requires_grad_()
        out = model(leaf, adj)
        results.append({'out': out, **gradients(out.square().sum(), {'x': leaf})})
    on_cpu = {name: value.cpu() for name, value in results[0].items()}
    torch.testing.assert_close(on_cpu, results[1], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize('name', STATES)
def test_merged_states_are_read_as_the_whole(name, device):
    build, beside = STATES[name]
    expected, actual = both(build, device)
    parts = slice(0, 30), slice(30, N)

    def of(module, place, part):
        return [tensor[part].to(place) for tensor in (X, *beside)]

    states = [actual.attention_state(*of(actual, device, part)) for part in parts]
    state = states[0].merge(states[1])
    out = actual(*of(actual, device, slice(None)), state=state)
    whole = expected.attention_state(X, *beside)
    assert_same(out, expected(X, *beside, state=whole))
    assert_same(state.sums, whole.sums)


@pytest.mark.parametrize('name', SCORES)
def test_attention_scores_are_those_of_the_cpu(name, device):
    expected, actual = both(SCORES[name], device)
    jaccard = transforms.JaccardScores()(Data(edge_index=EDGES, num_nodes=N)).edge_jaccard
    beside = (jaccard,) if name == 'jaccard' else ()
    scores = actual.attention_scores(
        X.to(device), EDGES.to(device), *(part.to(device) for part in beside)
    )
    assert_same(scores, expected.attention_scores(X, EDGES, *beside))


@pytest.mark.parametrize('name', TRANSFORMS)
def test_transforms_of_a_graph_on_the_device(name, place):
    data = Data(x=X, edge_index=EDGES, num_nodes=N)
    if name == 'sampling':
        data = transforms.JaccardScores()(data)
    expected = TRANSFORMS[name]()(copy.copy(data))
    actual = TRANSFORMS[name]()(copy.copy(data).to(place))
    assert sorted(actual.keys()) == sorted(expected.keys())
    for key in set(expected.keys()) - {'num_nodes'}:
        assert actual[key].device.type == place.type, key
        value, other = actual[key].cpu(), expected[key]
        if name in {'laplacian', 'svd'} and value.is_floating_point():  # signs are free
            value, other = value.abs(), other.abs()
        torch.testing.assert_close(value, other, rtol=1e-3, atol=1e-4)


def test_recommendations_are_those_of_the_cpu(device):
    expected, actual = both(mgformer, device)
    users = torch.arange(30)
    exclude = torch.stack([users, users])
    for k in (1, 5):
        items = actual.recommend(src_index=users.to(device), k=k, exclude=exclude.to(device))
        assert torch.equal(items.cpu(), expected.recommend(src_index=users, k=k, exclude=exclude))


def test_report_of_a_model_on_the_device(device):
    expected, actual = both(MODELS['NodeFormer'], device)
    reports = []
    for model, place in ((actual, device), (expected, 'cpu')):
        torch.manual_seed(0)
        reports.append(attention_report(model, X.to(place), EDGES.to(place), num_rows=N))
    for row, other in zip(*reports, strict=True):
        assert row.pop('layer') == other.pop('layer')
        assert row == pytest.approx(other, rel=1e-2, abs=1e-3)


def test_losses_are_those_of_the_cpu(place):
    x, y = torch.randn(2, 1500, 8)
    actual = alignment_uniformity(x.to(place), y.to(place))
    assert_same(actual, alignment_uniformity(x, y))


def test_learned_map_starts_at_groups_of_nodes_on_the_device(device):
    layer = KernelAttentionConv(F, 8, 2, feature_map='learned', num_features=4).to(device)
    kmeans_(layer, X.to(device))
    out = layer(X.to(device))
    assert out.isfinite().all()
    assert layer.feature_map.weight.device.type == device.type
