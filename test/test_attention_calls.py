import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch_geometric.nn import GCNConv, GPSConv, to_hetero
from torch_geometric.utils import to_dense_batch

from torch_geometric_lgt._attention_calls import recorded_calls
from torch_geometric_lgt.diagnostics import attention_report
from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    DIFFormer,
    DIFFormerConv,
    GlobalAttention,
    GraphTransformer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    LiteGT,
    MeanAttention,
    MGFormer,
    SGFormer,
    SGFormerConv,
)
from torch_geometric_lgt.nn import GPSConv as GPS

BATCH = torch.tensor([0, 1, 0, 0, 2, 2, 2, 1, 1, 2, 0, 0])
EDGES = torch.randint(12, (2, 40), generator=torch.Generator().manual_seed(0))
INTO = EDGES[:, EDGES[1] < 5]  # into the first five nodes
WEIGHT = torch.rand(40, generator=torch.Generator().manual_seed(0)).double()
MASK = torch.arange(12) % 2 == 0
DEGREE = torch.arange(12) % 4
LAYERS = {
    'kernel': (KernelAttentionConv(6, 8, 2), {'batch': BATCH}),
    'averaged heads': (KernelAttentionConv(6, 8, 2, concat=False), {'edge_index': EDGES}),
    'a module as map': (KernelAttentionConv(6, 8, feature_map=torch.nn.Softplus()), {}),
    'simple diffusion': (DIFFormerConv(6, 8, 2, use_graph=False), {'batch': BATCH}),
    'sigmoid': (DIFFormerConv(6, 8, 2, 'sigmoid', use_graph=False), {'batch': BATCH}),
    'SGFormer': (SGFormerConv(6, 8, 2), {'batch': BATCH}),
    'degrees': (DegreeMaskedAttention(6, 2, max_degree=9), {'degree': DEGREE, 'batch': BATCH}),
    'degrees of edges': (DegreeMaskedAttention(6, 2), {'edge_index': EDGES}),
    'mean': (MeanAttention(6, 8), {'batch': BATCH}),
    'adjacency': (AdjacencyMaskedAttention(6, 2), {'edge_index': EDGES, 'edge_weight': WEIGHT}),
    'jaccard': (
        JaccardSubtractorConv(6, 8, 4, normalize=False),
        {'edge_index': EDGES, 'edge_jaccard': WEIGHT, 'sampled_mask': MASK},
    ),
    'subtractor': (
        JaccardSubtractorConv(6, 8, 4, ('subtractor', 'softmax')),
        {'edge_index': EDGES, 'edge_weight': WEIGHT},
    ),
}
PAIRS = {
    'kernel': (KernelAttentionConv((6, 3), 8, 2), {'batch': (BATCH, BATCH[:5])}),
    'SGFormer': (SGFormerConv(6, 8, 2, norm='row'), {'batch': (BATCH, BATCH[:5])}),
    'degrees': (DegreeMaskedAttention(6, 2), {'degree': (DEGREE, DEGREE[:5])}),
    'adjacency': (AdjacencyMaskedAttention(6, 2), {'edge_index': INTO}),
}


class Model(torch.nn.Module):
    """A linear part, and one attention layer that is called twice, with dropout even in
    evaluation."""

    def __init__(self):
        super().__init__()
        self.lin = torch.nn.Linear(6, 8)
        self.blocks = torch.nn.ModuleList(
            [torch.nn.ModuleDict({'attn': KernelAttentionConv(8, 8)})]
        )

    def forward(self, x, edge_index=None, batch=None):
        attention = self.blocks[0]['attn']
        z = torch.nn.functional.dropout(self.lin(x), 0.2, training=True)
        return attention(z + attention(z, edge_index, batch), batch=batch, batch_size=3)


def weighted_sums(call):
    """The output of a call, from the weights and the values of all its targets."""
    rows = call.rows(torch.randperm(call.num_targets))
    out = torch.zeros(call.num_targets, *rows.value.shape[1:]).double()
    out[rows.targets] = torch.einsum('iph,phd->ihd', rows.weight, rows.value)
    return out.flatten(1) if getattr(call.layer, 'concat', True) else out.mean(1)


@pytest.mark.parametrize('name', LAYERS)
def test_weights_are_those_of_the_output(name):
    layer, arguments = LAYERS[name]
    x = torch.randn(12, 6).double()
    with recorded_calls(layer.double(), (x,), arguments) as (calls, out):
        torch.testing.assert_close(weighted_sums(calls[0]), out, rtol=1e-9, atol=1e-12)
    assert not out.requires_grad


@pytest.mark.parametrize('name', PAIRS)
def test_weights_of_a_pair_are_those_of_the_output(name):
    layer, arguments = PAIRS[name]
    x = torch.randn(12, 6).double(), torch.randn(5, layer.target_channels).double()
    with recorded_calls(layer.double(), (x,), arguments) as (calls, out):
        torch.testing.assert_close(weighted_sums(calls[0]), out, rtol=1e-9, atol=1e-12)
    (row,) = attention_report(layer, x, **arguments)
    assert (row['others'] is None) == (name != 'SGFormer')


def test_a_model_of_ones_own():
    """Batches by position and by name, two calls of one layer, and weights within graphs only."""
    model, x = Model(), torch.randn(12, 6)
    report = attention_report(model, x, None, BATCH, num_rows=12)
    assert [row['layer'] for row in report] == ['blocks.0.attn'] * 2
    assert report[0]['query'] != report[1]['query']
    with recorded_calls(model, (x,), {'batch': BATCH}) as (calls, _):
        for call in calls:
            rows = call.rows(torch.arange(12))
            assert (rows.is_candidate == (BATCH[:, None] == BATCH)).all()
            assert (rows.weight[~rows.is_candidate] == 0).all()
            torch.testing.assert_close(rows.weight.sum(1), torch.ones(12, 1).double())


class Residual(torch.nn.Module):
    def __init__(self, make_attention, is_in_place):
        super().__init__()
        self.lin, self.attn = torch.nn.Linear(6, 8), make_attention(8, 8, 2)
        self.is_in_place = is_in_place

    def forward(self, x):
        h = self.lin(x)
        out = self.attn(h, EDGES)
        if not self.is_in_place:
            return (h + out).relu()
        h += out
        out.zero_()
        return h.relu_()


@pytest.mark.parametrize('make_attention', [KernelAttentionConv, DIFFormerConv, SGFormerConv])
def test_models_that_change_features_in_place(make_attention):
    """The report read the changed features as the input of the layer."""
    models = [Residual(make_attention, is_in_place) for is_in_place in (False, True)]
    models[1].load_state_dict(models[0].state_dict())
    x, reports, outputs = torch.randn(12, 6), [], []
    for model in models:
        reports.append(attention_report(model, x, generator=torch.Generator().manual_seed(0)))
        with recorded_calls(model, (x,), {}) as ((call,), _):
            outputs.append(call.output)
    assert reports[0] == reports[1]
    assert torch.equal(*outputs)


def test_calls_of_other_threads_are_not_recorded():
    """Such as the requests of a server, which come during the report."""
    attention = KernelAttentionConv(6, 8)
    x, requests = torch.randn(12, 6), []

    def answer(*_):
        if not requests:
            requests.append(torch.randn(5, 6))
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(attention, requests[0]).result().shape == (5, 8)

    attention.lin_value.register_forward_pre_hook(answer)
    with recorded_calls(attention, (x,), {}) as ((call,), _):
        assert torch.equal(call.x_src, x)
    assert len(requests) == 1


def test_the_model_is_left_as_it_was():
    model, x = Model(), torch.randn(12, 6)
    model.lin.eval()
    attention = model.blocks[0]['attn']
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    attention_report(model, x, batch=BATCH, generator=torch.Generator())
    with pytest.raises(RuntimeError, match='shapes cannot be multiplied'):
        attention_report(model, x[:, :3], batch=BATCH)
    assert torch.equal(torch.get_rng_state(), state)
    assert model.training
    assert attention.training
    assert not model.lin.training
    assert not attention._forward_hooks
    assert not attention._forward_pre_hooks
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    attention_report(model.eval(), x, batch=BATCH)
    assert not model.training


def test_layers_in_the_layers_of_others():
    gps, x = GPSConv(8, GCNConv(8, 8)), torch.randn(12, 8)
    gps.attn = GlobalAttention(KernelAttentionConv(8, 8, heads=2))
    batch = BATCH.sort().values
    (row,) = attention_report(gps, x, EDGES, batch=batch, num_rows=12)
    assert row['layer'] == 'attn.conv'
    with recorded_calls(gps, (x, EDGES), {'batch': batch}) as (calls, _):
        assert (calls[0].rows(torch.arange(12)).is_candidate == (batch[:, None] == batch)).all()
    local, attention = attention_report(GPSConv(8, DIFFormerConv(8, 8)), x, EDGES)
    assert (local['layer'], attention['layer']) == ('conv', 'attn')


def test_layers_of_a_heterogeneous_model():
    """The layer of each edge type, called with a pair."""

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = KernelAttentionConv((-1, -1), 8)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    types = [('user', 'buys', 'item'), ('item', 'sold', 'user')]
    model = to_hetero(Network(), (['user', 'item'], types))
    x = {'user': torch.randn(7, 3), 'item': torch.randn(9, 4)}
    edges = {kind: torch.zeros(2, 1, dtype=torch.long) for kind in types}
    report = attention_report(model, x, edges)
    assert [row['layer'] for row in report] == [f'conv.{"__".join(kind)}' for kind in types]
    assert all(row['others'] is None and 0 < row['entropy'] <= 1 for row in report)


def test_models_of_the_package():
    x = torch.randn(12, 6)
    lite = LiteGT(6, 8, 3, num_layers=2, heads=2)
    report = attention_report(lite, x, EDGES, edge_jaccard=WEIGHT.float(), sampled_mask=MASK)
    assert [row['layer'] for row in report] == ['layers.0.conv', 'layers.1.conv']
    lite = LiteGT(6, 8, 3, num_layers=2, heads=2, edge_channels=1)
    inputs = {'edge_jaccard': WEIGHT.float(), 'edge_attr': WEIGHT.float()[:, None]}
    report = attention_report(lite, x, EDGES, **inputs)
    assert [row['layer'] for row in report] == ['layers.0.conv', 'layers.1.conv']
    model = GraphTransformer(6, 8, 3, num_layers=2, num_local_layers=1)
    report = attention_report(model, x, EDGES, BATCH)
    assert [row['layer'] for row in report] == ['blocks.2.attn', 'blocks.3.attn']
    model = GraphTransformer(
        6, 8, 3, encodings={'svd_pe': 2}, position='svd_pe', attn_type='sgformer', num_layers=1
    )
    report = attention_report(model, x, EDGES, BATCH, svd_pe=torch.randn(12, 2))
    assert [row['layer'] for row in report] == ['blocks.1.attn.conv']
    assert 0 < report[0]['query'] < 10
    edges = torch.stack([torch.arange(12) % 5, 5 + torch.arange(12) % 7])
    for mask in ('degree', 'adjacency', 'none'):
        model = MGFormer(5, 7, 8, num_layers=2, mask=mask)
        report = attention_report(model, edges)
        assert [row['layer'] for row in report] == ['layers.0', 'layers.1']
        assert all(0 < row['feature error'] < 1 for row in report)


@pytest.mark.compiled
@pytest.mark.parametrize('inplace', [False, True])
def test_compiled_models(inplace):
    """Compiled code that ran before, and calls no hooks that are added later."""
    model, x = DIFFormer(6, 8, 3), torch.randn(12, 6)
    expected = attention_report(model, x, EDGES, num_rows=12)
    compiled = torch.compile(model, backend='eager')
    if inplace:
        model.compile(backend='eager')
        compiled = model
    compiled(x, EDGES)
    report = attention_report(compiled, x, EDGES, num_rows=12)
    assert [row['layer'] for row in report] == ['convs.0', 'convs.1']
    assert report[0]['entropy'] == pytest.approx(expected[0]['entropy'], rel=1e-6)
    torch.compiler.reset()


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float64])
def test_models_of_another_dtype(dtype):
    report = attention_report(DIFFormer(6, 8, 3).to(dtype), torch.randn(12, 6, dtype=dtype), EDGES)
    assert all(0 < row['others'] < 1 and math.isfinite(row['query']) for row in report)


class Mixed(torch.nn.Module):
    """Enters autocast itself, so that its attention gets features in half precision."""

    def __init__(self, attention, is_pair=False):
        super().__init__()
        self.lin, self.attention, self.is_pair = torch.nn.Linear(6, 6), attention, is_pair

    def forward(self, x, **arguments):
        with torch.autocast('cpu', torch.bfloat16):
            z = self.lin(x)
            return self.attention((z, z) if self.is_pair else z, **arguments)


@pytest.mark.parametrize('is_pair', [False, True])
@pytest.mark.parametrize(
    ('make_attention', 'names'),
    [
        (lambda: KernelAttentionConv(6, 8, position_channels=6), ('position',)),
        (lambda: SGFormerConv(6, 8), ()),
        (lambda: JaccardSubtractorConv(6, 8, 2, 'subtractor'), ('edge_index',)),
    ],
    ids=['kernel', 'SGFormer', 'subtractor'],
)
def test_models_that_enter_autocast(make_attention, names, is_pair):
    """Weights are computed after the call, outside autocast, where the dtypes did not fit."""
    attention = make_attention()
    model, x = Mixed(attention, is_pair), torch.randn(12, 6)
    arguments = {'position': x.bfloat16(), 'edge_index': EDGES}
    arguments = {name: arguments[name] for name in names}
    (row,) = attention_report(model, x, num_rows=12, **arguments)
    z = model.lin(x)
    arguments = {name: x if name == 'position' else EDGES for name in names}
    (expected,) = attention_report(attention, (z, z) if is_pair else z, num_rows=12, **arguments)
    for measure in ('others', 'entropy', 'key'):
        assert row[measure] == pytest.approx(expected[measure], rel=0.02), measure


@pytest.mark.cuda
def test_models_on_a_gpu():
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    x, edges, degree = torch.randn(12, 6).to(device), EDGES.to(device), DEGREE.to(device)
    state = torch.cuda.get_rng_state_all()
    for model, arguments in (
        (Model(), {'batch': BATCH.to(device)}),
        (DIFFormer(6, 8, 3), {'edge_index': edges}),
        (LiteGT(6, 8, 3, 2, 2, kernel='subtractor'), {'edge_index': edges}),
        (AdjacencyMaskedAttention(6), {'edge_index': edges}),
        (DegreeMaskedAttention(6, max_degree=9), {'degree': degree}),
    ):
        for row in attention_report(model.to(device), x, **arguments):
            assert 0 < row['entropy'] <= 1 + 1e-6
    assert all(map(torch.equal, torch.cuda.get_rng_state_all(), state))
    (row,) = attention_report(SGFormerConv(6, 8).to(device), (x, x[:5]))
    assert math.isfinite(row['others'])


class Unused(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attn = SGFormerConv(6, 8)

    def forward(self, x):
        return x


def test_what_cannot_be_measured_is_named():
    x = torch.randn(12, 6)
    names = sorted({type(layer).__name__ for layer, _ in LAYERS.values()})
    layers = ', '.join([*names, 'MultiheadAttention'])
    for model in (torch.nn.Linear(6, 8), None):
        with pytest.raises(ValueError, match=f"'model' must have an .* one of {layers} .got"):
            attention_report(model, x)
    with pytest.raises(ValueError, match="'model' must call one of its attention layers, attn, in"):
        attention_report(Unused(), x)
    layer = SGFormerConv(6, 8)
    message = "'state' must be None in the call of SGFormerConv"
    with pytest.raises(ValueError, match=message):
        attention_report(layer, x, state=layer.attention_state(x))
    model = SGFormer(6, 8, 3)
    states = [model.convs[0].attention_state(model.input_layer(x)).detach()]
    with pytest.raises(ValueError, match="'state' must be None in the call of convs"):
        attention_report(model, x, EDGES, states=states)


class PlainNetwork(torch.nn.Module):
    """Torch's layer on the nodes of one graph, without padding."""

    def __init__(self, batch_first=True):
        super().__init__()
        self.attn = torch.nn.MultiheadAttention(6, 2, bias=False, batch_first=batch_first)

    def forward(self, x):
        z = x if self.attn.batch_first else x[:, None]
        return self.attn(z, z, z)[0].view_as(x)


class Encoder(torch.nn.Module):
    """Torch's encoder on padded graphs, which it may make nested tensors of."""

    def __init__(self, is_nested):
        super().__init__()
        layer = torch.nn.TransformerEncoderLayer(6, 2, 8, batch_first=True)
        self.encoder = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=is_nested)

    def forward(self, x, batch):
        padded, mask = to_dense_batch(x, batch)
        return self.encoder(padded, src_key_padding_mask=~mask)[mask]


SORTED = BATCH.sort().values
MULTIHEAD = {
    'GraphTransformer': (
        lambda: GraphTransformer(6, 8, 3, heads=2, attn_type='multihead'),
        (EDGES, BATCH),
    ),
    'gated': (lambda: GraphTransformer(6, 8, 3, attn_type='multihead', gate=True), (EDGES,)),
    'GPSConv': (lambda: GPS(6, None, 2, attn_type='multihead'), (EDGES, BATCH)),
    "PyG's GPSConv": (lambda: GPSConv(6, GCNConv(6, 6), 2), (EDGES, SORTED)),
    'encoder': (lambda: Encoder(is_nested=False), (SORTED,)),
    'nested': (lambda: Encoder(is_nested=True), (SORTED,)),
    'own': (PlainNetwork, ()),
    'own, nodes first': (lambda: PlainNetwork(batch_first=False), ()),
}


@pytest.mark.filterwarnings('ignore:The PyTorch API of nested tensors')
@pytest.mark.parametrize('name', MULTIHEAD)
def test_calls_of_multihead_attention(name):
    """Weights and values give the output of torch's layer before its output projection."""
    make_model, args = MULTIHEAD[name]
    model = make_model().double()
    x = torch.randn(12, 6).double()
    with torch.no_grad(), recorded_calls(model, (x, *args), {}) as (calls, _):
        assert len(calls) == sum(
            isinstance(layer, torch.nn.MultiheadAttention) for layer in model.modules()
        )
        for call in calls:
            out = call.layer.module.out_proj(weighted_sums(call))
            torch.testing.assert_close(out, call.output)
    row = attention_report(model, x, *args)[0]
    assert row['feature error'] is None
    assert 0 < row['others'] < 1
    assert 0 < row['entropy'] < 1
    assert row['query'] > 0


def test_a_length_of_multihead_attention():
    model = PlainNetwork().double()
    x = torch.randn(12, 6).double()
    q = torch.nn.functional.linear(x, model.attn.in_proj_weight[:6]).unflatten(1, (2, 3))
    expected = (q / 3**0.25).norm(dim=2).mean()
    assert attention_report(model, x)[0]['query'] == pytest.approx(float(expected.detach()))


def test_multihead_attention_to_other_nodes_is_no_call():
    class Pooling(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = torch.nn.MultiheadAttention(6, 2, batch_first=True)

        def forward(self, x):
            return self.attn(x[:1], x, x)[0]

    with pytest.raises(ValueError, match=r"'model' must call one of its attention layers, attn"):
        attention_report(Pooling(), torch.randn(12, 6))
