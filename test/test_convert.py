"""Converted parameters give the outputs of the models that they come from."""

import contextlib

import pytest
import torch
import torch_geometric
from torch.nn import BatchNorm1d, LayerNorm, Linear, Module, ModuleDict, ModuleList
from torch_geometric.nn.models.sgformer import GraphModule

from torch_geometric_lgt.convert import from_difformer, from_pyg_sgformer, from_sgformer
from torch_geometric_lgt.nn import DIFFormer, SGFormer

PAIRS = torch.randint(20, (2, 60))
EDGES = torch.cat([PAIRS, PAIRS.flip(0)], 1)
EDGES = EDGES[:, EDGES[0] != EDGES[1]].unique(dim=1)
X = torch.randn(20, 6, dtype=torch.double)


@contextlib.contextmanager
def double_by_default():
    """PyG's attention adds up keys by ones of the default dtype."""
    torch.set_default_dtype(torch.double)
    yield
    torch.set_default_dtype(torch.float)


def assert_same(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def randomize(model):
    """Gives norms other values than those that they start with."""
    for name, value in model.state_dict().items():
        if 'num_batches' not in name:
            value.copy_(torch.rand_like(value) if 'var' in name else 0.5 * torch.randn_like(value))
    return model.double().eval()


def matrix(loops):
    """The symmetrically normalised adjacency matrix of the graph."""
    adjacency = torch.zeros(20, 20, dtype=torch.double)
    adjacency[EDGES[1], EDGES[0]] = 1
    adjacency += loops * torch.eye(20)
    degree = adjacency.sum(1).clamp(min=1)
    return adjacency / degree.sqrt() / degree[:, None].sqrt()


class Attention(Module):
    """The parameters of one layer under the authors' names."""

    def __init__(self, values=True):
        super().__init__()
        self.Wq, self.Wk = Linear(8, 8), Linear(8, 8)
        if values:
            self.Wv = Linear(8, 8)

    def parts(self, x):
        value = self.Wv(x) if hasattr(self, 'Wv') else x
        return self.Wq(x), self.Wk(x), value


def backbone(num_layers, values=True):
    return ModuleDict(
        {
            'fcs': ModuleList([Linear(6, 8)]),
            'bns': ModuleList([LayerNorm(8) for _ in range(num_layers + 1)]),
            'convs': ModuleList([Attention(values) for _ in range(num_layers)]),
        }
    )


def run_backbone(part, layer, share, is_normalised=True):
    norm = (lambda i, z: part['bns'][i](z)) if is_normalised else (lambda i, z: z)
    first = z = norm(0, part['fcs'][0](X)).relu()
    for index, conv in enumerate(part['convs']):
        z = norm(index + 1, share * layer(*conv.parts(z), first) + (1 - share) * z)
    return z


def simple_attention(q, k, v, _):
    """SGFormer's, by a matrix of all pairs."""
    weight = (q / q.norm()) @ (k / k.norm()).t() + 20 * torch.eye(20)
    return weight @ v / weight.sum(1, keepdim=True)


@pytest.mark.parametrize('aggregate', ['add', 'cat'])
def test_sgformer_of_pyg(aggregate):
    """With 32 channels, of which no node has only zeros: PyG replaces zeros of queries and keys."""
    theirs = randomize(
        torch_geometric.nn.SGFormer(
            6, 32, 3, trans_num_layers=2, gnn_num_layers=3, graph_weight=0.7, aggregate=aggregate
        )
    )
    ours = SGFormer(
        6,
        32,
        3,
        num_layers=2,
        norm='row',
        alpha=0.7,
        aggregate=aggregate,
        gnn=GraphModule(6, 32, 3),
        gnn_input='input',
        activate_layers=True,
    ).double()
    ours.load_state_dict(from_pyg_sgformer(theirs.state_dict()))
    with double_by_default():
        expected = theirs(X, EDGES, torch.zeros(20, dtype=torch.long))
    assert_same(ours.eval()(X, EDGES).log_softmax(1), expected)


@pytest.mark.parametrize('is_normalised', [True, False])
@pytest.mark.parametrize('values', [True, False])
def test_sgformer_of_the_authors_for_medium_graphs(is_normalised, values):
    theirs = Module()
    theirs.trans_conv = backbone(2, values)
    theirs.gnn = Module()
    theirs.gnn.convs = ModuleList([torch_geometric.nn.GCNConv(n, 8) for n in (6, 8, 8)])
    theirs.gnn.bns = ModuleList([BatchNorm1d(8), BatchNorm1d(8)])
    theirs.fc = Linear(8, 3)
    randomize(theirs)
    local = X
    for index, conv in enumerate(theirs.gnn.convs):
        local = matrix(True) @ local @ conv.lin.weight.t() + conv.bias
        if index < 2:
            local = (theirs.gnn.bns[index](local) if is_normalised else local).relu()
    z = run_backbone(theirs.trans_conv, simple_attention, 0.4, is_normalised)
    ours = SGFormer(
        6,
        8,
        3,
        num_layers=2,
        alpha=0.8,
        beta=0.4,
        gnn_num_layers=3,
        gnn_input='input',
        layer_norm=is_normalised,
        value_projection=values,
    ).double()
    ours.load_state_dict(from_sgformer(theirs.state_dict(), layer_norm=is_normalised))
    assert_same(ours.eval()(X, EDGES), theirs.fc(0.8 * local + 0.2 * z))


@pytest.mark.parametrize('is_normalised', [True, False])
def test_sgformer_of_the_authors_for_large_graphs(is_normalised):
    theirs = Module()
    theirs.trans_conv, theirs.fc = backbone(1), Linear(8, 3)
    theirs.graph_conv = Module()
    theirs.graph_conv.fcs = ModuleList([Linear(6, 8)])
    theirs.graph_conv.bns = ModuleList([BatchNorm1d(8) for _ in range(3)])
    theirs.graph_conv.convs = ModuleList([ModuleDict({'W': Linear(8, 8)}) for _ in range(2)])
    randomize(theirs)
    part = theirs.graph_conv
    first = local = part.bns[0](part.fcs[0](X)).relu()
    for conv, norm in zip(part.convs, part.bns[1:], strict=True):
        local = norm(conv['W'](matrix(True) @ local)).relu() + first
    z = run_backbone(theirs.trans_conv, simple_attention, 0.5, is_normalised)
    ours = SGFormer(
        6, 8, 3, gnn=GraphModule(6, 8, 2), gnn_input='input', layer_norm=is_normalised
    ).double()
    ours.load_state_dict(from_sgformer(theirs.state_dict(), layer_norm=is_normalised))
    loops = torch.arange(20).expand(2, -1)
    for edges in (EDGES, torch.cat([EDGES, loops], 1)):
        assert_same(ours.eval()(X, edges), theirs.fc(0.5 * local + 0.5 * z))


@pytest.mark.parametrize('kernel', ['simple', 'sigmoid'])
@pytest.mark.parametrize(
    ('graph_weight', 'use_source', 'is_normalised', 'values'),
    [(-1.0, False, True, True), (0.3, True, False, True), (-1.0, True, False, False)],
)
def test_difformer_of_the_authors(kernel, graph_weight, use_source, is_normalised, values):
    theirs = randomize(backbone(2, values).requires_grad_(False))
    theirs['fcs'].append(Linear(8, 3).double())

    def layer(q, k, v, first):
        if kernel == 'simple':
            weight = 1 + (q / q.norm()) @ (k / k.norm()).t()
        else:
            weight = (q @ k.t()).sigmoid()
        attention, sums = weight @ v / weight.sum(1, keepdim=True), matrix(False) @ v
        out = attention + sums
        if graph_weight > 0:
            out = (1 - graph_weight) * attention + graph_weight * sums
        return out + use_source * first

    z = run_backbone(theirs, layer, 0.6, is_normalised)
    ours = DIFFormer(
        6,
        8,
        3,
        kernel=kernel,
        norm='frobenius',
        graph_weight=1.0 if graph_weight < 0 else graph_weight / (1 - graph_weight),
        tau=0.6,
        use_source=use_source,
        layer_norm=is_normalised,
        value_projection=values,
    ).double()
    converted = from_difformer(theirs.state_dict(), is_normalised, graph_weight)
    ours.load_state_dict(converted)
    assert_same(ours.eval()(X, EDGES), theirs['fcs'][1](z))


def test_difformer_of_the_authors_on_directed_weighted_graphs():
    """Their degrees count the edges into a node, for sources too."""
    edges = torch.cat([PAIRS.unique(dim=1), torch.arange(20).expand(2, -1)], 1).unique(dim=1)
    weight = torch.rand(edges.size(1), dtype=torch.double)
    degree = torch.bincount(edges[1], minlength=20).double()
    norm = weight / (degree[edges[0]] * degree[edges[1]]).sqrt()
    model = DIFFormer(6, 8, 3, num_layers=1, norm='frobenius').double()
    z = model.input_layer(X)
    conv = model.convs[0]
    q, k, v = (lin(z) for lin in (conv.lin_query, conv.lin_key, conv.lin_value))
    attention = 1 + (q / q.norm()) @ (k / k.norm()).t()
    sums = torch.zeros(20, 20, dtype=torch.double).index_put((edges[1], edges[0]), norm) @ v
    out = attention @ v / attention.sum(1, keepdim=True) + sums
    expected = model.lin_out(model.norms[1](0.5 * out + 0.5 * z))
    assert_same(model(X, edges, degree=degree, edge_weight=weight), expected)


@pytest.mark.parametrize(
    'setting', [{'norm': 'row'}, {'activate_layers': True}, {'alpha': 0.9}, {'beta': 0.9}], ids=str
)
def test_parameters_do_not_tell_the_settings(setting):
    """As the page about PyG says."""
    model = SGFormer(6, 8, 3).double().eval()
    other = SGFormer(6, 8, 3, **setting).double().eval()
    other.load_state_dict(model.state_dict())
    assert not torch.allclose(other(X, EDGES), model(X, EDGES))


def test_checkpoints_of_data_parallel():
    """DataParallel puts a prefix before the names."""
    ones = torch.ones(8, 8)
    assert list(from_difformer({'module.convs.0.Wq.weight': ones})) == ['convs.0.lin_query.weight']
    assert list(from_sgformer({'module.graph_conv.convs.1.W.weight': ones})) == [
        'gnn.convs.1.lin.weight'
    ]
    assert list(from_pyg_sgformer({'module.fc.weight': ones})) == ['lin_out.weight']
    with pytest.raises(ValueError, match=r"'use_init' .got module.graph_conv.convs.1.W.weight"):
        from_sgformer({'module.graph_conv.convs.1.W.weight': torch.ones(8, 16)})


def test_what_does_not_fit_is_named():
    two_heads = torch_geometric.nn.SGFormer(6, 8, 3, trans_num_heads=2).state_dict()
    with pytest.raises(ValueError, match=r'one head .got trans_conv.attns.0.q.weight of shape'):
        from_pyg_sgformer(two_heads)
    with pytest.raises(ValueError, match=r'one head .got convs.0.Wq.weight of shape .16, 8.'):
        from_difformer({'convs.0.Wq.weight': torch.ones(16, 8)})
    with pytest.raises(ValueError, match=r'no other parameters .* .got convs.0.b, bias.'):
        from_difformer({'convs.0.b': torch.ones(1), 'fcs.0.bias': torch.ones(1), 'bias': X})
    with pytest.raises(ValueError, match=r"; a model of this package takes these by 'load_state_d"):
        from_difformer(DIFFormer(6, 8, 3).state_dict())
    with pytest.raises(ValueError, match=r"without 'use_init' .got graph_conv.convs.1.W.weight"):
        from_sgformer({'graph_conv.convs.1.W.weight': torch.ones(8, 16)})
    for weight, names in ((1.0, ['Wv']), (0.5, ['Wk'])):
        parameters = {f'convs.0.{name}.bias': torch.ones(8) for name in names}
        with pytest.raises(ValueError, match=f"'graph_weight' must be below 1, .* .got {weight}"):
            from_difformer(parameters, graph_weight=weight)
    with pytest.raises(ValueError, match=r"'graph_weight' must be below 1, .* .got nan"):
        from_difformer({'convs.0.Wv.bias': torch.ones(8)}, graph_weight=torch.nan)
    with pytest.raises(ValueError, match=r"'graph_weight' must be a number .got '0.5'"):
        from_difformer({}, graph_weight='0.5')
    for convert in (from_difformer, from_sgformer):  # the place of layer_norm, without an error
        with pytest.raises(ValueError, match=r"'layer_norm' must be True or False .got 0.75"):
            convert({}, 0.75)


@pytest.mark.parametrize('aggregate', ['add', 'cat'])
def test_model_of_pyg_with_its_settings(aggregate):
    theirs = torch_geometric.nn.SGFormer(
        6,
        8,
        3,
        trans_num_layers=3,
        trans_dropout=0.3,
        gnn_num_layers=1,
        gnn_dropout=0.2,
        graph_weight=0.7,
        aggregate=aggregate,
    )
    theirs.graph_conv.bns[0].running_mean.fill_(0.3)
    ours = SGFormer.from_pyg(theirs)
    assert ours.training
    assert (ours.dropout, ours.gnn.dropout) == (0.3, 0.2)
    ours, theirs = ours.double().eval(), theirs.double().eval()
    again = SGFormer.from_pyg(theirs)
    assert again.lin_out.weight.dtype == torch.double
    assert not any(part.training for part in again.modules())
    x, edges = torch.randn(9, 6, dtype=torch.double), torch.randint(9, (2, 30))
    try:
        torch.set_default_dtype(torch.double)  # of PyG's normalisation
        expected = theirs(x, edges, torch.zeros(9, dtype=torch.long))
    finally:
        torch.set_default_dtype(torch.float)
    torch.testing.assert_close(ours(x, edges).log_softmax(1), expected, rtol=1e-10, atol=1e-12)
    assert ours.gnn.convs[0].lin.weight is not theirs.graph_conv.convs[0].lin.weight


def test_other_models_than_that_of_pyg_are_refused():
    with pytest.raises(ValueError, match=r"'model' must be .*SGFormer \(got Linear\)"):
        SGFormer.from_pyg(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match='a model with one head'):
        SGFormer.from_pyg(torch_geometric.nn.SGFormer(6, 8, 3, trans_num_heads=2))


@pytest.mark.parametrize('convert', [from_pyg_sgformer, from_sgformer, from_difformer])
def test_what_is_no_state_dict_is_named(convert):
    for wrong, fix in (
        ('model.pt', r'torch.load\(path, weights_only=True\) \(got str\)'),
        (torch.nn.Linear(2, 2), r'model.state_dict\(\) \(got Linear\)'),
    ):
        with pytest.raises(TypeError, match=f"'state_dict' must be a dictionary .*{fix}"):
            convert(wrong)
