"""Linear parts and embeddings with hooks, pruned, normalised, patched or replaced; the checks of
all layers wrap each of them too."""

import pytest
import torch
from quantized import dequantize_, quantize_
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.utils import prune, spectral_norm, weight_norm
from torch.utils.flop_counter import FlopCounterMode
from torch_geometric.nn import GCN

from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    DIFFormerConv,
    GPSConv,
    GraphTransformer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    MGFormer,
    SGFormer,
    SGFormerConv,
)

EDGES = torch.randint(12, (2, 40), generator=torch.Generator().manual_seed(0))
LAYERS = {
    'kernel': lambda: KernelAttentionConv(6, 8, heads=2),
    'degree': lambda: DegreeMaskedAttention(6, max_degree=16),
    'sgformer': lambda: SGFormerConv(6, 8),
    'difformer': lambda: DIFFormerConv(6, 8, norm='frobenius'),
    'subtractor': lambda: JaccardSubtractorConv(6, 8, heads=2, kernel='subtractor'),
    'mgformer': lambda: MGFormer(5, 7, 6, max_degree=16),
}
WRAPPINGS = {
    'pruned': lambda part: prune.l1_unstructured(part, 'weight', 0.3),
    'weight norm': weight_norm,
    'spectral norm': spectral_norm,
    'parametrised weight norm': torch.nn.utils.parametrizations.weight_norm,
    'parametrised spectral norm': torch.nn.utils.parametrizations.spectral_norm,
}


def run(layer, x):
    if isinstance(layer, MGFormer):
        return layer.get_embedding(EDGES)
    return layer(x, edge_index=EDGES)


def parts(layer):
    return [
        (name, part)
        for name, part in layer.named_modules()
        if isinstance(part, (torch.nn.Linear, torch.nn.Embedding))
    ]


@pytest.mark.filterwarnings('ignore:.*weight_norm.* is deprecated')
@pytest.mark.parametrize('wrapping', WRAPPINGS)
@pytest.mark.parametrize('name', LAYERS)
def test_layers_train_with_the_utilities_of_torch(name, wrapping):
    """Their weights are made anew in each call, from parameters that a step changes."""
    layer, x = LAYERS[name](), torch.randn(12, 6)
    for _, part in parts(layer):
        WRAPPINGS[wrapping](part)
    optimizer, results = torch.optim.SGD(layer.parameters(), lr=0.1), []
    for _ in range(3):
        optimizer.zero_grad()
        out = run(layer, x)
        out.square().sum().backward()
        assert all(parameter.grad is not None for parameter in layer.parameters())
        optimizer.step()
        results.append(out.detach())
    assert not torch.allclose(results[1], results[2])


@pytest.mark.filterwarnings('ignore:Full backward hook is firing')
@pytest.mark.parametrize(
    'kind', ['forward_pre_hook', 'forward_hook', 'full_backward_pre_hook', 'full_backward_hook']
)
@pytest.mark.parametrize('name', LAYERS)
def test_every_kind_of_hook_is_called_once(name, kind):
    layer, x, calls = LAYERS[name](), torch.randn(12, 6, requires_grad=True), []
    expected = run(layer, x)
    for key, part in parts(layer):
        getattr(part, f'register_{kind}')(lambda *_, key=key: calls.append(key))
    out = run(layer, x)
    torch.testing.assert_close(out, expected)
    out.square().sum().backward()
    assert sorted(calls) == sorted(key for key, _ in parts(layer))


@pytest.mark.parametrize('name', LAYERS)
def test_hooks_of_all_modules_and_patched_modules(name):
    layer, x = LAYERS[name](), torch.randn(12, 6)
    expected = run(layer, x)
    wanted, calls = dict(parts(layer)), []
    handle = register_module_forward_hook(lambda module, *_: calls.append(module))
    try:
        torch.testing.assert_close(run(layer, x), expected)
    finally:
        handle.remove()
    assert {id(part) for part in wanted.values()} <= {id(module) for module in calls}
    for part in wanted.values():
        part.forward = lambda x, call=part.forward: (calls.append('patched'), call(x))[1]
    torch.testing.assert_close(run(layer, x), expected)
    assert calls.count('patched') == len(wanted)


def test_counting_flops_leaves_the_path():
    """The counter registers hooks of all modules, which only note names."""
    layer, x = KernelAttentionConv(6, 8), torch.randn(12, 6)
    with FlopCounterMode(display=False) as counter:
        layer(x)
    assert 'aten.addmm' not in {str(op) for op in counter.get_flop_counts()['Global']}


@pytest.mark.compiled
@pytest.mark.parametrize('name', LAYERS)
def test_compiles_with_replaced_parts(name):
    layer, x = LAYERS[name]().eval(), torch.randn(12, 6)
    for key, part in parts(layer):
        parent, _, last = key.rpartition('.')
        setattr(layer.get_submodule(parent), last, torch.nn.Sequential(part, torch.nn.Tanh()))
    expected = run(layer, x)
    compiled = torch.compile(lambda x: run(layer, x), backend='aot_eager', fullgraph=True)
    torch.testing.assert_close(compiled(x), expected)


@pytest.mark.parametrize(
    'rule',
    [{'max_norm': 0.1}, {'padding_idx': 0}, {'sparse': True}, {'scale_grad_by_freq': True}],
    ids=str,
)
def test_rules_of_embeddings_hold(rule):
    """Rows and their gradients are those of the embedding itself."""
    model, embedding = MGFormer(4, 5, 4, mask='none'), torch.nn.Embedding(9, 4, **rule)
    model.embedding, nodes, results = embedding, torch.tensor([0, 3, 3, 8]), []
    for rows in (lambda: model.tokens(nodes), lambda: embedding(nodes)):
        embedding.weight.grad = None
        out = rows()
        out.sin().sum().backward()
        results.append((out.detach(), embedding.weight.grad.to_dense()))
    torch.testing.assert_close(results[0], results[1])


def test_quantised_parts_run():
    layer, x = KernelAttentionConv(6, 8).eval(), torch.randn(12, 6)
    expected = layer(x)
    for name in ('lin_query', 'lin_key', 'lin_value'):
        part = getattr(layer, name)
        rounded = torch.nn.Linear(6, 8)
        rounded.weight = torch.nn.Parameter(part.weight.to(torch.float8_e4m3fn).float())
        rounded.bias = part.bias
        setattr(layer, name, torch.nn.Sequential(rounded))
    assert 0 < (layer(x) - expected).abs().max() < 0.1


@pytest.mark.parametrize('name', LAYERS)
def test_quantized_weights_are_called_by_their_layers(name):
    """Operators of this package got the weights, which define the operation of their layer only."""
    layer, x, results = LAYERS[name]().eval(), torch.randn(12, 6, requires_grad=True), []
    exact = run(layer, x).detach()
    quantize_(layer)
    for change in (lambda _: None, dequantize_):
        change(layer)
        out = run(layer, x)
        grad = x.new_zeros(()) if name == 'mgformer' else torch.autograd.grad(out.sum(), x)[0]
        results.append((out.detach(), grad))
    torch.testing.assert_close(results[0], results[1])
    assert not torch.equal(results[0][0], exact)


LEARNED = {
    'kernel': lambda: KernelAttentionConv(6, 8, heads=2, feature_map='learned'),
    'degree': lambda: DegreeMaskedAttention(6, 2, 'learned', max_degree=16),
    'adjacency': lambda: AdjacencyMaskedAttention(6, 2, 'learned'),
}


@pytest.mark.parametrize('name', LEARNED)
def test_pruned_feature_maps_compute_their_weight_in_each_call(name):
    """Hooks of the map did not run: a second backward pass failed, and the weights of a loaded
    state dict had no effect."""
    layer, other = (LEARNED[name]().double() for _ in range(2))
    x = torch.randn(12, 6, dtype=torch.float64)
    for one in (layer, other):
        prune.l1_unstructured(one.feature_map, 'weight', 0.3)
    pruned, optimizer = layer.feature_map, torch.optim.SGD(layer.parameters(), lr=0.01)
    for _ in range(2):
        optimizer.zero_grad()
        run(layer, x).square().sum().backward()
        optimizer.step()
    is_kept = pruned.weight_mask.bool()
    assert pruned.weight_orig.grad[is_kept].all()
    assert not pruned.weight_orig.grad[~is_kept].any()
    other.load_state_dict(layer.state_dict())
    state = {
        key.replace('weight_orig', 'weight'): value
        for key, value in layer.state_dict().items()
        if not key.endswith('_mask')
    }
    state['feature_map.weight'] = pruned.weight_orig * pruned.weight_mask
    plain = LEARNED[name]().double()
    plain.load_state_dict(state)
    for one in (layer, other):
        torch.testing.assert_close(run(one, x), run(plain, x), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize('name', LEARNED)
def test_hooks_of_learned_feature_maps_act(name):
    layer, x = LEARNED[name]().double(), torch.randn(12, 6, dtype=torch.float64)
    before = run(layer, x)
    layer.feature_map.register_forward_hook(lambda _module, _inputs, out: out)
    torch.testing.assert_close(run(layer, x), before, rtol=1e-10, atol=1e-12)
    layer.feature_map.register_forward_hook(lambda _module, _inputs, out: out.square())
    assert not torch.allclose(run(layer, x), before)


class Wrapper(torch.nn.Module):
    """As the wrapper of a checkpoint or of FSDP."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


MESSAGE_PASSING = {
    'GraphTransformer': (lambda: GraphTransformer(6, 4, 3), 'blocks.1.conv'),
    'gate': (lambda: GraphTransformer(6, 4, 3, num_local_layers=2, gate=True), 'blocks.1.conv'),
    'SGFormer': (lambda: SGFormer(6, 4, 3), 'gnn'),
    'initial': (lambda: SGFormer(6, 4, 3, gnn_residual='initial', gnn_use_init=True), 'gnn'),
}


@pytest.mark.parametrize('name', MESSAGE_PASSING)
def test_wrapped_message_passing_keeps_its_weights(name):
    """The models took it for another layer and gave it edges without GCN's weights."""
    make, part = MESSAGE_PASSING[name]
    model, x, weight = make().eval(), torch.randn(12, 6), torch.rand(40)
    degree = torch.arange(12) + 9
    expected = model(x, EDGES, edge_weight=weight, degree=degree)
    parent, _, last = part.rpartition('.')
    setattr(model.get_submodule(parent), last, Wrapper(model.get_submodule(part)))
    torch.testing.assert_close(model(x, EDGES, edge_weight=weight, degree=degree), expected)


def test_wrapped_message_passing_gets_the_batch_vector():
    """It got none, so that a norm within it mixed the graphs."""

    def network(*channels):
        return GCN(*channels, num_layers=2, norm='graph_norm')

    x, batch = torch.randn(12, 6), torch.arange(12) % 2
    edges = EDGES[:, batch[EDGES[0]] == batch[EDGES[1]]]
    model = GraphTransformer(6, 4, 3, 1, conv=network).eval()
    layer = GPSConv(6, network(6, 6), 2).eval()
    expected = model(x, edges, batch), layer(x, edges, batch)
    model.blocks[1].conv = Wrapper(model.blocks[1].conv)
    layer.conv = Wrapper(torch.compile(layer.conv))
    with torch.compiler.set_stance('force_eager'):
        found = model(x, edges, batch), layer(x, edges, batch)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('normalize', [True, False])
def test_a_wrapped_layer_of_a_network_keeps_the_weights_of_gcn(normalize):
    """A wrapper without the attributes of its layer ended in an AttributeError."""
    model = SGFormer(6, 8, 3, gnn=GCN(8, 8, 2, normalize=normalize)).eval()
    x = torch.randn(12, 6)
    expected = model(x, EDGES)
    for index, conv in enumerate(model.gnn.convs):
        model.gnn.convs[index] = Wrapper(conv)
    assert torch.equal(model(x, EDGES), expected)
