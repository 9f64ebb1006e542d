"""What holds for every layer over the attention state."""

from copy import deepcopy

import pytest
import torch
from attention_layers import LAYERS
from constants import BY_OPERATORS
from gradients import gradients, leaves_of
from torch_geometric.data import Data

from torch_geometric_lgt.functional import kernel_attention
from torch_geometric_lgt.functional._engine import chunked_keys, chunked_queries
from torch_geometric_lgt.functional._engine.affine import Affine
from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    DIFFormerConv,
    FeatureMap,
    KernelAttentionConv,
    MeanAttention,
    SGFormerConv,
)
from torch_geometric_lgt.transforms import NodeDegree

KINDS = ('plain', 'masked', 'learned')


def make(kind, channels=8, **arguments):
    """The layer and what it takes beside x and batch, by the number of nodes."""
    if kind == 'masked':
        return DegreeMaskedAttention(channels, max_degree=9, **arguments), lambda n: {
            'degree': torch.arange(n) % 10
        }
    if kind == 'learned':
        arguments |= {'feature_map': 'learned', 'num_features': 16}
    return KernelAttentionConv(channels, channels, **arguments), lambda n: {}


def relative(actual, expected):
    return float((actual.detach().double() - expected.detach()).norm() / expected.detach().norm())


@pytest.mark.parametrize(
    ('kind', 'cosine'), [('orthogonal', 0), ('fourier', 0), ('simplex', -1 / 3)]
)
def test_angles_between_the_rows_of_a_projection(kind, cosine):
    rows = torch.nn.functional.normalize(FeatureMap(kind, 4).projection)
    expected = torch.full((4, 4), float(cosine)).fill_diagonal_(1)
    torch.testing.assert_close(rows @ rows.t(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize('kind', KINDS)
def test_nan_of_a_graph_stays_there(kind):
    layer, extra = make(kind)
    x, batch = torch.randn(30, 8), torch.arange(30) % 3
    clean = layer(x, batch=batch, **extra(30))
    x[4] = float('nan')
    out = layer(x, batch=batch, **extra(30))
    assert torch.equal(out[batch != 1], clean[batch != 1])
    assert out[batch == 1].isnan().all()


@pytest.mark.parametrize('kind', KINDS)
def test_zero_rows_and_one_node_graphs_are_finite(kind):
    layer, extra = make(kind, heads=2)
    x, batch = torch.zeros(5, 8, requires_grad=True), torch.tensor([0, 1, 2, 2, 4])
    out = layer(x, batch=batch, **extra(5))
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize(
    ('dtype', 'tolerance', 'norm'), [(torch.float32, 1e-5, 4.0), (torch.bfloat16, 2e-2, 2.0)]
)
@pytest.mark.parametrize('kind', KINDS)
def test_error_of_lower_precision(kind, dtype, tolerance, norm):
    """Root mean squares over ten draws: a gradient of one number can be a sum of 300 terms that
    happens to vanish."""
    layer, extra = make(kind, channels=16, value_projection=True)
    exact, _ = make(kind, channels=16, value_projection=True)
    found, wanted = [], []
    for _ in range(10):
        x = torch.randn(300, 16)
        layer = layer.float()
        layer.reset_parameters()
        with torch.no_grad():
            for lin in (layer.lin_query, layer.lin_key):
                lin.bias.zero_()
                lin.weight *= norm * 16**0.25 / lin(x).norm(dim=1).max()
        layer, x = layer.to(dtype), x.to(dtype).requires_grad_()
        exact, y = exact.double(), x.detach().double().requires_grad_()
        exact.load_state_dict(layer.state_dict())
        out, expected = layer(x, **extra(300)), exact(y, **extra(300))
        assert out.dtype == dtype
        grad = torch.randn(300, 16).to(dtype)
        found.append({'out': out, **gradients(out, leaves_of(layer, x=x), grad)})
        exact_grads = gradients(expected, leaves_of(exact, x=y), grad.double())
        wanted.append({'out': expected, **exact_grads})
    for name in wanted[0]:
        one, other = (torch.stack([part[name] for part in parts]) for parts in (found, wanted))
        if other.norm() > 1e-9:
            assert relative(one, other) < tolerance, name


@pytest.mark.parametrize('kind', KINDS)
def test_autocast_keeps_logits_and_states_in_float32(kind):
    layer, extra = make(kind)
    x = 10 * torch.randn(50, 8)
    with torch.autocast('cpu', torch.bfloat16):
        out = layer(x, **extra(50))
        state = layer.attention_state(x, **extra(50))
    assert state.sums.dtype == state.maximum.dtype == torch.float32
    assert torch.equal(out, layer(x, **extra(50)))
    assert torch.equal(state.sums, layer.attention_state(x, **extra(50)).sums)


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_a_million_nodes_in_half_precision_are_finite(dtype):
    conv = KernelAttentionConv(4, 4).to(dtype)
    x = torch.randn(1_000_000, 4).to(dtype)
    state = conv.attention_state(x)
    assert state.sums.dtype == torch.float32
    assert state.count.tolist() == [1_000_000]
    out = conv(x, state=state)
    assert out.dtype == dtype
    assert out.isfinite().all()


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.compiled
@pytest.mark.inductor
def test_compiled_code_serves_every_size(kind):
    layer, extra = make(kind, heads=2)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True)
    with torch.compiler.set_stance('default'):
        compiled(torch.randn(20, 8), **extra(20))
    with torch.compiler.set_stance('fail_on_recompile'):
        for n in (33, 64, 100):
            x = torch.randn(n, 8)
            torch.testing.assert_close(compiled(x, **extra(n)), layer(x, **extra(n)))


@pytest.mark.parametrize('conv', [KernelAttentionConv(8, 8), SGFormerConv(8, 8, norm='row')])
@pytest.mark.parametrize(
    ('batch', 'num_graphs'), [((None, [0, 1]), '1 and 2'), (([0, 1, 2], None), '3 and 1')]
)
def test_sources_and_targets_have_as_many_graphs(conv, batch, num_graphs):
    batch = tuple(None if ids is None else torch.tensor(ids) for ids in batch)
    match = (
        rf"^'batch' must have as many graphs of sources as of targets \(got {num_graphs}\); give"
    )
    with pytest.raises(ValueError, match=match):
        conv((torch.randn(3, 8), torch.randn(2, 8)), batch=batch)


@pytest.mark.parametrize(
    'conv',
    [
        KernelAttentionConv(8, 8),
        SGFormerConv(8, 8, norm='row'),
        SGFormerConv(8, 8),
        MeanAttention(8, 8),
    ],
)
@pytest.mark.parametrize('batch', [None, torch.zeros(3, dtype=torch.long)])
def test_what_is_no_state_is_refused(conv, batch):
    x = torch.randn(3, 8)
    for wrong, kind in (([conv.attention_state(x)], 'list'), ({}, 'dict')):
        message = rf"'state' must be an AttentionState, .* \(got {kind}\); .*from_state_dict"
        with pytest.raises(TypeError, match=message):
            conv(x, batch=batch, state=wrong)


def test_state_of_other_graphs_is_refused():
    conv, x = KernelAttentionConv(8, 8, heads=2), torch.randn(12, 8)
    batch = torch.arange(12) % 3
    with pytest.raises(
        ValueError,
        match="'state' must have the graphs, heads, features, rank and samples of the queries",
    ):
        conv(x, state=conv.attention_state(x, batch))
    with pytest.raises(
        ValueError,
        match="'state' must have the graphs, heads, features, rank and samples of the queries",
    ):
        conv(x, batch=batch, state=KernelAttentionConv(8, 8).attention_state(x, batch))
    message = (
        "'batch' holds the graph id 2 but 'state' has 1 graphs; build it with a 'batch_size' of at "
        'least 3'
    )
    with pytest.raises(ValueError, match=f'^{message}$'):
        conv(x, batch=batch, state=conv.attention_state(x))
    with pytest.raises(ValueError, match=f'^{message}$'):
        conv((x, x), batch=(batch, batch), state=conv.attention_state(x))


@pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
def test_sampled_batch_attends_to_all_nodes_through_the_state():
    edge_index = torch.randint(0, 60, (2, 300))
    data = NodeDegree()(Data(x=torch.randn(60, 8), edge_index=edge_index))
    layer = DegreeMaskedAttention(8, max_degree=int(data.degree.max()))
    state, full = layer.attention_state(data.x, data.degree), layer(data.x, data.degree)
    seen = 0
    for part in NeighborLoader(data, num_neighbors=[3], batch_size=16):
        assert torch.equal(part.degree, data.degree[part.n_id])
        out = layer(part.x, part.degree, state=state)
        torch.testing.assert_close(out, full[part.n_id])
        seen += part.batch_size
    assert seen == 60


class Doubled(torch.nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


@pytest.mark.parametrize('name', ['lin_query', 'lin_key', 'lin_value'])
@pytest.mark.parametrize(
    'make',
    [
        lambda: KernelAttentionConv(6, 8, heads=2),
        lambda: KernelAttentionConv(6, 8, feature_map=torch.nn.ReLU()),
        lambda: SGFormerConv(6, 8),
        lambda: SGFormerConv(6, 8, norm='row'),
        lambda: DIFFormerConv(6, 8, heads=2, use_graph=False),
        lambda: DIFFormerConv(6, 8, norm='frobenius', use_graph=False),
    ],
)
def test_linear_parts_that_are_more_than_weight_and_bias_run_as_modules(name, make):
    """Modules of another kind, and hooks, alike for all nodes, for pairs and for states; twice the
    weights do what the module does."""
    conv = make().double()
    x = torch.randn(30, 6, dtype=torch.float64)
    y = torch.randn(9, 6, dtype=torch.float64)
    plain = [conv(x), conv((x, y)), conv(x, state=conv.attention_state(x))]
    calls = []
    handle = getattr(conv, name).register_forward_hook(lambda *_: calls.append(name))
    for out, expected in zip(
        (conv(x), conv((x, y)), conv(x, state=conv.attention_state(x))), plain, strict=True
    ):
        torch.testing.assert_close(out, expected)
    assert len(calls) >= 3
    handle.remove()
    lin = getattr(conv, name)
    other = Doubled(6, lin.out_features).double()
    other.load_state_dict(lin.state_dict())
    with torch.no_grad():
        for parameter in lin.parameters():
            parameter *= 2
    twice = [conv(x), conv((x, y)), conv(x, state=conv.attention_state(x))]
    setattr(conv, name, other)
    for out, expected in zip(
        (conv(x), conv((x, y)), conv(x, state=conv.attention_state(x))), twice, strict=True
    ):
        torch.testing.assert_close(out, expected)


@pytest.mark.parametrize(
    ('products', 'make', 'without'),
    [
        ([1, 2], lambda: KernelAttentionConv(6, 6, heads=2), []),
        ([1, 2], lambda: KernelAttentionConv(6, 6, heads=2), ['lin_key', 'lin_value']),
        ([1, 1, 1], lambda: KernelAttentionConv(6, 6, heads=2), ['lin_key']),
        ([1, 1, 1], lambda: KernelAttentionConv(6, 6, heads=2), ['lin_value']),
        ([1, 1, 1], lambda: SGFormerConv(6, 6, norm='row', bias=False, value_projection=False), []),
    ],
)
@pytest.mark.parametrize('num_nodes', [3, 300], ids=['pairs', 'state'])
def test_keys_and_values_of_one_input_take_one_product(
    num_nodes, products, make, without, monkeypatch, constants
):
    """In operators, if both have a bias or none has; the gradients are those of linear parts that
    run as modules."""
    constants(plain_elements=BY_OPERATORS)
    conv, x = make().double(), torch.randn(num_nodes, 6, dtype=torch.float64, requires_grad=True)
    for name in without:
        getattr(conv, name).bias = None
    evaluated = []

    class Counted(Affine):
        def __init__(self, x, *parts):
            evaluated.append(len(parts))
            super().__init__(x, *parts)

    for module in (chunked_keys, chunked_queries):
        monkeypatch.setattr(module, 'Affine', Counted)

    def run():
        return gradients(conv(x).sin().sum(), leaves_of(conv, x=x))

    plain, forward = run(), evaluated[: len(products)]
    assert forward == products
    for name in ('lin_query', 'lin_key', 'lin_value'):
        if (part := getattr(conv, name)) is not None:
            part.register_forward_hook(lambda *_: None)
            torch.testing.assert_close(run(), plain)


@pytest.mark.parametrize('compiling', [False, True])
@pytest.mark.parametrize('kind', KINDS)
def test_scores_of_pairs_of_a_few_nodes(kind, compiling, monkeypatch):
    """Those among the scores of all pairs, with gradients; while torch.compile traces, all nodes
    are evaluated."""
    layer, extra = make(kind)
    layer, x = layer.double(), torch.randn(9, 8, dtype=torch.float64, requires_grad=True)
    pairs = torch.tensor([[8, 2, 8], [2, 5, 8]])
    every = torch.cartesian_prod(torch.arange(9), torch.arange(9)).t()
    expected = layer.attention_scores(x, edge_index=every, **extra(9))[pairs[0] * 9 + pairs[1]]
    monkeypatch.setattr(torch.compiler, 'is_compiling', lambda: compiling)
    actual = layer.attention_scores(x, edge_index=pairs, **extra(9))
    torch.testing.assert_close(actual, expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(out.sin().sum(), x)[0] for out in (actual, expected))
    )


def test_a_feature_map_of_other_channels_is_refused():
    with pytest.raises(
        ValueError, match=r"'feature_map' must be of 4 channels, those of a head \(got 8\)"
    ):
        KernelAttentionConv(8, 8, heads=2, feature_map=FeatureMap('simplex', 8))


def test_a_learned_feature_map_of_other_heads_is_refused():
    message = r"'feature_map' must have 'heads' = 2, as the layer, if it is learned \(got 1\)"
    with pytest.raises(ValueError, match=message):
        KernelAttentionConv(8, 8, heads=2, feature_map=FeatureMap('learned', 4))
    conv = KernelAttentionConv(8, 8, heads=2, feature_map=FeatureMap('learned', 4, heads=2))
    assert conv(torch.randn(3, 8)).shape == (3, 8)


def test_noise_of_other_nodes_is_refused():
    conv, x = KernelAttentionConv(8, 8, heads=2, num_gumbel_samples=3), torch.randn(5, 8)
    assert conv.attention_state(x, noise=torch.zeros(5, 6)).samples == 3
    for shape in ((7, 6), (5, 2, 3), (5, 3)):
        with pytest.raises(ValueError, match=r"'noise' must have shape \(5, 6\)"):
            conv.attention_state(x, noise=torch.zeros(shape))


def test_degrees_of_any_whole_dtype():
    layer, x = DegreeMaskedAttention(8, max_degree=9), torch.randn(5, 8)
    degree = torch.tensor([0, 3, 9, 1, 1])
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        torch.testing.assert_close(layer(x, degree.to(dtype)), layer(x, degree))
    with pytest.raises(
        ValueError, match=r"'degree' must hold one whole number per node \(got torch.bool"
    ):
        layer(x, degree > 2)
    with pytest.raises(ValueError, match=r'float32 .* convert whole numbers with degree.long\(\)$'):
        layer(x, degree.float())
    message = r"^'degree' must be a torch.Tensor \(got int\); convert it with torch.as_tensor\("
    with pytest.raises(TypeError, match=message):
        layer(x, degree.tolist())


@pytest.mark.parametrize('make_layer', [KernelAttentionConv, SGFormerConv, DIFFormerConv])
def test_graph_ids_of_sources_are_checked_beside_a_state(make_layer):
    """A state stands for the sources, whose graph ids then make no difference."""
    layer, x, none = make_layer(6, 8), torch.randn(12, 6), torch.empty(2, 0, dtype=torch.long)
    state, batch = layer.attention_state(x, torch.arange(12) % 2), torch.zeros(5, dtype=torch.long)
    for ids in (torch.arange(12) % 2, None):
        assert layer((x, x[:5]), none, (ids, batch), state=state).shape == (5, 8)
    for ids in (
        torch.rand(12),
        torch.zeros(11, dtype=torch.long),
        torch.arange(12),
        -torch.ones(12, dtype=torch.long),
    ):
        with pytest.raises(ValueError, match="'batch'"):
            layer((x, x[:5]), none, (ids, batch), state=state)
    for pair in ((batch,), (batch, batch, batch)):
        with pytest.raises(ValueError, match="'batch' must be one vector, or a pair"):
            layer(x[:5], none, pair)


class Returns(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def test_a_module_or_class_in_another_place_than_that_of_a_feature_map():
    with pytest.raises(ValueError, match=r'; give a module of this class, such as Softplus\(\)$'):
        KernelAttentionConv(8, 8, feature_map=torch.nn.Softplus)
    x = torch.ones(5, 2, 4)
    message = (
        r"\(got Softplus\(.*\)\); apply the module to queries and keys, and pass 'values' with "
    )
    with pytest.raises(ValueError, match=f'{message}its outputs$'):
        kernel_attention(x, x, x, torch.nn.Softplus())


@pytest.mark.parametrize(
    'function',
    [
        lambda x: x.flatten(1),
        lambda x: x[:2],
        lambda x: x.transpose(0, 1),
        lambda x: x > 0,
        lambda x: [x],
        lambda x: None,
    ],
)
def test_features_of_a_module_have_one_row_for_each_node_and_head(function):
    x, edges = torch.randn(5, 8), torch.tensor([[0, 1], [1, 0]])
    message = r"'feature_map' must return floating-point features \[5, 2, M\]"
    with pytest.raises(ValueError, match=message):
        KernelAttentionConv(8, 8, 2, feature_map=Returns(function))(x)
    with pytest.raises(ValueError, match=message):
        AdjacencyMaskedAttention(8, 2, feature_map=Returns(function))(x, edges)


@pytest.mark.parametrize('is_small', [False, True], ids=['operators', 'formulas'])
@pytest.mark.parametrize('layer_dtype', [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float32, torch.float64])
def test_features_of_a_module_may_have_another_dtype(dtype, layer_dtype, is_small, constants):
    """The output has the dtype of the input, and sums that of other layers. Features in single
    precision keep their range in a layer of half precision."""
    if not is_small:
        constants(plain_elements=BY_OPERATORS)
    factor, x = 1e4 if dtype == torch.float64 else 1.0, torch.randn(30, 8).to(layer_dtype)
    batch = torch.arange(30) % 3

    def features(x):
        return factor * torch.nn.functional.softplus(x.to(dtype).mul(8))

    for make_layer in (KernelAttentionConv, DegreeMaskedAttention):
        sizes = (8, 8) if make_layer is KernelAttentionConv else (8,)
        extra = {} if make_layer is KernelAttentionConv else {'degree': torch.arange(30)}
        layer = make_layer(*sizes, heads=2, feature_map=Returns(features)).to(layer_dtype)
        expected = deepcopy(layer).double()(x.double(), batch=batch, **extra)
        state = layer.attention_state(x, batch=batch, **extra)
        for out in (layer(x, batch=batch, **extra), layer(x, batch=batch, state=state, **extra)):
            assert out.dtype == layer_dtype
            assert relative(out, expected) < (
                0.02 if 16 in (bits(dtype), bits(layer_dtype)) else 1e-5
            )


class Raised(FeatureMap):
    """Adds a constant to the features, as NodeFormer's code does."""

    def forward(self, x):
        return super().forward(x) + 0.5


@pytest.mark.parametrize('kind', ['simplex', 'fourier', 'elu', 'learned'])
def test_a_subclass_of_the_feature_map_computes_the_features(kind):
    """Its method was never called, without an error."""
    phi, x, batch = Raised(kind, 4, heads=2).double(), torch.randn(9, 8).double(), torch.arange(9)
    batch = batch % 2
    layer = KernelAttentionConv(8, 8, 2, feature_map=phi, temperature=0.7).double()
    factor = 1.0 if kind in ('elu', 'learned') else (4**-0.5 / 0.7) ** 0.5
    q, k, v = (
        lin(x).unflatten(-1, (2, 4)) for lin in (layer.lin_query, layer.lin_key, layer.lin_value)
    )
    weight = torch.einsum('ihm,jhm->ijh', phi(factor * q), phi(factor * k))
    weight = weight * (batch[:, None] == batch)[..., None]
    weight = weight / weight.sum(1, keepdim=True)
    expected = torch.einsum('ijh,jhc->ihc', weight, v).flatten(1)
    torch.testing.assert_close(layer(x, batch=batch), expected, rtol=1e-10, atol=1e-12)
    state = layer.attention_state(x, batch)
    torch.testing.assert_close(layer(x, batch=batch, state=state), expected, rtol=1e-10, atol=1e-12)
    pairs = torch.tensor([[0, 1, 4], [2, 3, 5]])
    scores = layer.attention_scores(x, pairs, batch)
    torch.testing.assert_close(scores, weight[pairs[1], pairs[0]], rtol=1e-10, atol=1e-12)
    near = AdjacencyMaskedAttention(8, 2, feature_map=phi).double()
    q, k = (lin(x).unflatten(-1, (2, 4)) for lin in (near.lin_query, near.lin_key))
    factor = 1.0 if kind in ('elu', 'learned') else 4**-0.25
    weight = torch.einsum('hm,jhm->jh', phi(factor * q)[0], phi(factor * k)[:3])
    edges = torch.tensor([[0, 1, 2], [0, 0, 0]])
    torch.testing.assert_close(near.attention_scores(x, edges), weight / weight.sum(0))


def test_a_subclass_of_the_feature_map_has_no_samples():
    phi = Raised('simplex', 4)
    with pytest.raises(ValueError, match=r"'num_gumbel_samples' must be 0 .* \(got 2 and Raised"):
        KernelAttentionConv(8, 8, 2, feature_map=phi, num_gumbel_samples=2)
    layer, x = KernelAttentionConv(8, 8, 2, num_gumbel_samples=2), torch.randn(3, 8)
    layer.feature_map = phi
    with pytest.raises(ValueError, match=r"'num_gumbel_samples' must be 0 .* \(got 2 and Raised"):
        layer(x)
    assert layer.eval()(x).shape == (3, 8)
    layer = KernelAttentionConv(8, 8, 2, feature_map=phi)
    with pytest.raises(ValueError, match="'feature_map' must be 'positive', 'orthogonal' or"):
        layer.log_edge_probability(x, torch.tensor([[0], [1]]))


def bits(dtype):
    return torch.finfo(dtype).bits


@pytest.mark.parametrize('temperature', [0.0, -1.0, 1e-200, float('inf'), float('nan')])
def test_temperatures_that_overflow_are_named(temperature):
    with pytest.raises(ValueError, match="'temperature' must be positive and finite"):
        KernelAttentionConv(8, 8, 2, temperature=temperature)


@pytest.mark.parametrize('is_small', [False, True], ids=['operators', 'formulas'])
@pytest.mark.parametrize('name', [name for name in LAYERS if 'degree' not in name])
def test_shapes_on_the_meta_device(name, is_small, constants):
    """Sizes of a model too large to be made, as layers of PyG compute them. PyTorch knows no
    autocast there, and asking for it was an error."""
    if not is_small:
        constants(plain_elements=BY_OPERATORS)
    layer = LAYERS[name]().to('meta')
    x = torch.empty(100, 6, device='meta', requires_grad=True)
    out = layer(x)
    out.sum().backward()
    assert out.shape == (100, layer.out_channels)
    assert x.grad.shape == x.shape
    assert all(part.grad.shape == part.shape for part in layer.parameters())


@pytest.mark.parametrize('feature_map', ['simplex', 'fourier', 'learned'])
def test_parameters_in_half_precision_beside_buffers_in_single(feature_map):
    """As in FSDP's mixed precision, which converts parameters and inputs only. Sums are in single
    precision, and so is the product of the projection and the weight."""
    layer, x = KernelAttentionConv(6, 8, heads=2, feature_map=feature_map), torch.randn(300, 6)
    half = deepcopy(layer)
    for single, parameter in zip(layer.parameters(), half.parameters(), strict=True):
        parameter.data = parameter.data.bfloat16()
        single.data = parameter.data.float()
    out = half(x.bfloat16())
    assert torch.equal(out, layer(x.bfloat16().float()).bfloat16())
