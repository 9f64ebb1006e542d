"""The tables of the page that helps to choose say what the layers and models do."""

import inspect
import json
import re
from functools import partial
from pathlib import Path

import pytest
import torch
from constants import set_constants
from torch_geometric.nn import GraphConv, ResGatedGraphConv

from torch_geometric_lgt import nn
from torch_geometric_lgt.functional import jaccard
from torch_geometric_lgt.functional._engine import dispatch
from torch_geometric_lgt.testing._samples import sample

PAGE = Path(__file__).parents[1] / 'docs' / 'which.rst'
X, EDGES, _ = sample(40, 8)
X, EDGES, INDEX = X.float(), EDGES.contiguous(), jaccard(EDGES, 40)
FEATURES = torch.linspace(-1, 1, EDGES.size(1))[:, None]


def degree_masked(layer, x, edges, **weights):
    return layer(x, edge_index=edges, **weights)


def with_jaccard(layer, x, edges, **weights):
    return layer(x, edges, edge_jaccard=INDEX[: edges.size(1)], **weights)


def embedded(model, x, edges, **weights):
    return model.get_embedding(edges, **weights)


def called(layer, x, edges, **weights):
    return layer(x, edges, **weights)


GRAPH_TRANSFORMER = partial(nn.GraphTransformer, 8, 8, 3, num_layers=1)
KERNEL = partial(nn.KernelAttentionConv, 8, 8, 2)
ROWS = {
    'KernelAttentionConv': (called, [KERNEL, partial(KERNEL, relational_order=1)]),
    'DegreeMaskedAttention': (degree_masked, [partial(nn.DegreeMaskedAttention, 8, 2)]),
    'AdjacencyMaskedAttention': (called, [partial(nn.AdjacencyMaskedAttention, 8, 2)]),
    'SGFormerConv': (called, [partial(nn.SGFormerConv, 8, 8, 2)]),
    'DIFFormerConv': (called, [partial(nn.DIFFormerConv, 8, 8, 2)]),
    'JaccardSubtractorConv': (with_jaccard, [partial(nn.JaccardSubtractorConv, 8, 8, 2)]),
    'MeanAttention': (called, [partial(nn.MeanAttention, 8, 8)]),
    'GPSConv': (called, [partial(nn.GPSConv, 8, GraphConv(8, 8), 2, norm=None)]),
    'NodeFormer': (
        called,
        [partial(nn.NodeFormer, 8, 8, 3), partial(nn.NodeFormer, 8, 8, 3, num_gumbel_samples=0)],
    ),
    'DIFFormer': (called, [partial(nn.DIFFormer, 8, 8, 3)]),
    'SGFormer': (called, [partial(nn.SGFormer, 8, 8, 3)]),
    'LiteGT': (with_jaccard, [partial(nn.LiteGT, 8, 8, 3, num_layers=2)]),
    'GraphTransformer': (
        called,
        [GRAPH_TRANSFORMER, partial(GRAPH_TRANSFORMER, attn_kwargs={'feature_map': 'simplex'})],
    ),
    'MGFormer': (
        embedded,
        [partial(nn.MGFormer, 20, 20, 8), partial(nn.MGFormer, 20, 20, 8, mask='adjacency')],
    ),
}
FEATURED = {
    'JaccardSubtractorConv': partial(nn.JaccardSubtractorConv, 8, 8, 2, edge_channels=1),
    'GPSConv': partial(nn.GPSConv, 8, ResGatedGraphConv(8, 8, edge_dim=1), 2, norm=None),
    'LiteGT': partial(nn.LiteGT, 8, 8, 3, num_layers=2, edge_channels=1),
    'GraphTransformer': partial(GRAPH_TRANSFORMER, conv='ResGatedGraphConv', edge_channels=1),
}  # layers and models that are made for features of edges


def output(call, layer, edges=EDGES, **weights):
    torch.manual_seed(0)
    return call(layer, X, edges, **weights)


def depends_on_edges(make, call):
    layer = make()
    return not torch.equal(output(call, layer), output(call, layer, EDGES[:, :20]))


def takes_weights(make, call):
    layer, weight = make(), torch.linspace(0.5, 1.5, EDGES.size(1))
    if not depends_on_edges(make, call):
        return False
    try:
        out = output(call, layer, edge_weight=weight)
    except (TypeError, ValueError):
        return False
    return not torch.allclose(out, output(call, layer))


def takes_features(make, call):
    layer = make()
    try:
        out = output(call, layer, edge_attr=FEATURES)
    except (TypeError, ValueError):
        return False
    return not torch.allclose(out, output(call, layer, edge_attr=FEATURES.flip(0)))


def arguments_of(make):
    return inspect.signature(make.func).parameters


def is_random(make, call):
    """Whether two calls in training differ, for one of five initialisations: the activations of a
    narrow output network may all be 0."""
    layers = [make().train() for _ in range(5)]
    return any(not torch.equal(call(one, X, EDGES), call(one, X, EDGES)) for one in layers)


def random_option(make):
    """The same layer with an argument that makes it random in training, or itself."""
    for option, value in {'num_gumbel_samples': 2, 'dropout': 0.5}.items():
        if option in arguments_of(make):
            return partial(make, **{option: value})
    return make


def takes_batch(make, call):
    return 'batch' in inspect.signature(make().forward).parameters


def has_state(make, call):
    """A layer reads a state and a model a memory of all nodes in place of keys."""
    layer = make()
    forward = getattr(layer, 'get_embedding', layer.forward)
    names = inspect.signature(forward).parameters
    return 'state' in names or 'states' in names


def has_inference(make, call):
    return hasattr(make(), 'inference')


def compiles(make, call):
    torch.compiler.reset()
    layer = make().eval()
    # without AOTAutograd, whose passes over each of them are compared by the checks
    compiled = torch.compile(partial(call, layer), fullgraph=True, dynamic=True, backend='eager')
    return torch.allclose(compiled(X, EDGES), call(layer, X, EDGES), rtol=1e-4, atol=1e-5)


def has_kernel(make, call, monkeypatch):
    """Whether Triton would compute a call in training, if this device were a GPU and the graph were
    large."""
    found, is_fused = [], dispatch.is_fused

    def record(inputs, channels):
        found.append(is_fused(inputs, channels))
        return False

    with monkeypatch.context() as patch:
        set_constants(patch.setattr, fused_devices=('cpu',))
        patch.setattr(dispatch, 'is_fused', record)
        output(call, make())
    return any(found)


def table(first_column):
    """The cells of the table whose first column has this title, by row and column."""
    lines = PAGE.read_text(encoding='utf-8').split(f'   * - {first_column}\n', 1)[1]
    lines = re.split(r'^\S', lines, flags=re.M)[0]
    rows = re.split(r'^   \* - ', f'   * - {first_column}\n{lines}', flags=re.M)[1:]
    cells = [re.split(r'\n     - ', row.split('\n\n')[0].rstrip()) for row in rows]
    return {name.strip('`'): dict(zip(cells[0][1:], row, strict=True)) for name, *row in cells[1:]}


def expected_cell(name, measure, *arguments):
    call, makes = ROWS[name]
    if measure is takes_features:
        makes = [makes[0], FEATURED.get(name, makes[0])]
    if measure is is_random:
        makes = [makes[0], random_option(makes[0])]
    results = [measure(make, call, *arguments) for make in makes]
    return 'yes' if results[0] else 'option' if any(results) else 'no'


MEASURES = {
    'edges': depends_on_edges,
    'edge weights': takes_weights,
    'edge features': takes_features,
    'random': is_random,
    'batch': takes_batch,
    'state': has_state,
    'inference': has_inference,
}


def properties():
    return table('Properties')


def test_all_layers_and_models_are_in_both_tables():
    # neither layer nor model
    other = {'AttentionMemory', 'FeatureMap', 'GlobalAttention', 'check_features'}
    assert set(ROWS) == set(nn.__all__) - other
    assert set(properties()) == set(table('Formula')) == set(ROWS)


@pytest.mark.parametrize('column', MEASURES)
def test_properties(column):
    stated = {name: row[column] for name, row in properties().items()}
    assert stated == {name: expected_cell(name, MEASURES[column]) for name in ROWS}


def test_default_heads():
    stated = {name: row['heads'] for name, row in properties().items()}
    found = {name: arguments_of(makes[0]).get('heads') for name, (_, makes) in ROWS.items()}
    assert stated == {
        name: 'no' if heads is None else str(heads.default) for name, heads in found.items()
    }


FIGURES = {
    'Cora, 20 labels per class': ('difformer-cora', 'gcn-cora', 'published-20-per-class'),
    'CiteSeer, 20 labels per class': (
        'difformer-citeseer',
        'gcn-citeseer',
        'published-20-per-class',
    ),
    'Computers, 60 % labels': ('sgformer-computers', 'gcn-computers', 'random-60-20-20'),
    'CS, 60 % labels': ('sgformer-cs', 'mlp-cs', 'random-60-20-20'),
    'Physics, 60 % labels': ('sgformer-physics', 'gcn-physics', 'random-60-20-20'),
    'Chameleon, filtered': (
        'graphtransformer-chameleon-filtered',
        'jknet-chameleon-filtered',
        'fixed-splits',
    ),
    'Squirrel, filtered': (
        'graphtransformer-squirrel-filtered',
        'jknet-squirrel-filtered',
        'fixed-splits',
    ),
    'Actor': ('sgformer-actor', 'mlp-actor', 'fixed-splits'),
    'Digits, no edges, 5 % labels': ('graphtransformer-digits', 'mlp-digits', 'random-5-10-85'),
}
VARIANTS = {', searched,': 'searched-13-trials', ', groups,': 'groups'}
CONTROLS = {'none': 'no-attention', 'mean': 'mean'}


def test_figures_are_those_of_the_results():
    rows = table('Data')
    assert set(rows) == set(FIGURES)
    folder = PAGE.parents[1] / 'benchmarks' / 'results' / 'node_classification'

    def figure(run):
        path = folder / f'{run}.json'
        if not path.exists():
            return None
        score = json.loads(path.read_text())['metrics']['accuracy']
        return f' {100 * score["mean"]:.1f} ± {100 * score["std"]:.1f}'

    for name, (first, control, protocol) in FIGURES.items():
        best, without, other = rows[name].values()
        for model, cell in ((first, best), (control, other)):
            variant = ''.join(f'-{v}' for word, v in VARIANTS.items() if word in cell)
            assert cell.endswith(figure(f'{model}-{protocol}{variant}')), name
        runs = {word: figure(f'{first}-{protocol}-{run}') for word, run in CONTROLS.items()}
        known = [f'{word}{score}' for word, score in runs.items() if score is not None]
        assert without == (', '.join(known) or 'not run'), name


def test_kernels(monkeypatch):
    stated = {name: row['Triton'] for name, row in properties().items()}
    assert stated == {name: expected_cell(name, has_kernel, monkeypatch) for name in ROWS}


@pytest.mark.compiled
@torch._dynamo.config.patch(specialize_float=True)
@pytest.mark.parametrize('name', ROWS)
def test_compiled(name):
    call, makes = ROWS[name]
    assert properties()[name]['compile'] == ('yes' if compiles(makes[0], call) else 'no')


@pytest.mark.parametrize('name', ROWS)
def test_repeats_are_equal_bit_for_bit(name):
    """Outputs and gradients of training on the CPU, with the same random numbers."""
    call, makes = ROWS[name]
    for make in makes:
        layer, results = make(), []
        for _ in range(2):
            layer.zero_grad()
            out = output(call, layer)
            out.square().sum().backward()
            results.append([out, *(p.grad for p in layer.parameters() if p.grad is not None)])
        assert all(map(torch.equal, *results))
