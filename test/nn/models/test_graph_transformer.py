import copy
from collections import UserDict
from functools import partial

import pytest
import torch
import torch_geometric.nn as pyg
from torch.nn.functional import dropout
from torch.testing import assert_close
from torch_geometric.data import Data
from torch_geometric.nn import GATv2Conv, GCNConv, GINConv, ResGatedGraphConv, SAGEConv
from torch_geometric.nn.aggr import (
    AttentionalAggregation,
    MLPAggregation,
    MultiAggregation,
    SetTransformerAggregation,
)

from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.nn import (
    DIFFormerConv,
    GraphTransformer,
    KernelAttentionConv,
    MeanAttention,
    SGFormerConv,
)
from torch_geometric_lgt.nn.models._graph_context import GraphContext
from torch_geometric_lgt.nn.models._sparse_gcn import SparseGCNConv

SIZES = (4, 1, 0, 7)
BATCH = torch.arange(4).repeat_interleave(torch.tensor(SIZES))
EDGES = torch.tensor([[0, 1, 2, 5, 6, 7, 8, 11], [1, 2, 0, 6, 5, 8, 9, 5]])


def features(channels=6):
    generator = torch.Generator().manual_seed(0)
    return torch.randn(12, channels, dtype=torch.double, generator=generator)


def test_layers_follow_the_formula():
    model = GraphTransformer(6, 8, 3, 2, 2, encodings={'laplacian_pe': 2, 'svd_pe': 4})
    model, x = model.double().eval(), features()
    pe = {'laplacian_pe': features(2), 'svd_pe': features(4)}
    z = model.lin_in(x)
    for name, value in pe.items():
        z = z + model.lin_encodings[name](value)
    first, *blocks = model.blocks
    z = first.norm(z).relu()
    for block in blocks:
        gcn = GCNConv(8, 8).double()
        gcn.load_state_dict(block.conv.state_dict())
        local = block.norm1(z + gcn(z, EDGES))
        summed = local + block.norm2(z + block.attn(z, batch=BATCH))
        z = block.norm3(summed + block.mlp(summed))
    actual = model(x, EDGES, BATCH, svd_pe=pe['svd_pe'], laplacian_pe=pe['laplacian_pe'])
    assert_close(actual, model.lin_out(z), rtol=1e-10, atol=1e-12)


def test_layers_without_attention_come_first():
    model = GraphTransformer(6, 8, 3, 1, 2, num_local_layers=3)
    assert [conv is not None for conv in model.attentions] == [False] * 4 + [True]
    without = GraphTransformer(6, 8, 3, attn_type=None)
    assert without.attentions == [None] * 5


def test_gated_layers_follow_the_formula():
    options = {'num_local_layers': 2, 'gate': True}
    model = GraphTransformer(6, 8, 3, 2, 2, encodings={'pe': 2}, **options)
    model, x, pe = model.double().eval(), features(), features(2)
    z = model.blocks[0].norm(model.lin_in(x) + model.lin_encodings['pe'](pe)).relu()
    for block in model.blocks[1:3]:
        gcn = GCNConv(8, 8).double()
        gcn.load_state_dict(block.conv.state_dict())
        z = z + block.norm(gcn(z, EDGES) + block.lin(z)).relu()
    z = model.blocks[2].output_norm(z)
    for block in model.blocks[3:]:
        attended = block.norm(block.attn(z, batch=BATCH))
        z = block.lin_out(attended * (1 + block.lin(z))).relu()
    actual = model(x, EDGES, BATCH, pe=pe)
    assert_close(actual, model.lin_out(z), rtol=1e-10, atol=1e-12)
    model.train()
    assert not torch.equal(model(x, EDGES, BATCH, pe=pe), model(x, EDGES, BATCH, pe=pe))


def test_gated_layers_have_attention_or_are_left_out():
    options = {'num_local_layers': 2, 'gate': True}
    without = GraphTransformer(6, 8, 3, 2, 2, attn_type=None, **options)
    assert without.attentions == [None] * 3
    assert [block.output_norm is None for block in without.blocks[1:]] == [True, False]
    assert without(features().float(), EDGES).shape == (12, 3)
    exact = GraphTransformer(6, 8, 3, 1, 2, attn_type='multihead', **options).eval()
    x = features().float()
    parts = [exact(x[graph == BATCH], torch.empty(2, 0).long()) for graph in (0, 1, 3)]
    whole = exact(x, torch.empty(2, 0).long(), BATCH)
    assert_close(torch.cat(parts), whole, rtol=1e-5, atol=1e-6)
    alone = GraphTransformer(6, 8, 3, 1, 2, gate=True, conv=None)
    assert not alone.uses_edges
    assert alone(x, None).shape == (12, 3)


def test_dropout_of_the_blocks_by_hand():
    options = {'num_local_layers': 1, 'gate': True, 'conv': SAGEConv}
    model = GraphTransformer(6, 8, 3, 1, 2, **options)
    x, (first, local, gated) = torch.randn(12, 6), model.blocks
    torch.manual_seed(1)
    actual = model(x, EDGES)
    torch.manual_seed(1)
    z = dropout(first.norm(model.lin_in(x)).relu())
    z = z + dropout(local.norm(local.conv(z, EDGES) + local.lin(z)).relu())
    z = local.output_norm(z)
    z = dropout(gated.lin_out(gated.norm(gated.attn(z)) * (1 + gated.lin(z))).relu())
    assert_close(actual, model.lin_out(z))


def test_the_score_of_an_edge_reads_its_ends_and_of_a_graph_the_mean():
    for level in ('edge', 'graph'):
        torch.manual_seed(0)
        model = GraphTransformer(6, 8, 3, 1, 2, level=level).double().eval()
        x = features()
        readout = model.lin_out
        model.lin_out = torch.nn.Identity()
        model.level = 'node'
        z = model(x, EDGES, BATCH)
        model.level, model.lin_out = level, readout
        scores = model(x, EDGES, BATCH, batch_size=4)
        if level == 'edge':
            expected = readout(torch.cat([z[EDGES[0]], z[EDGES[1]]], 1))
        else:
            means = [z[graph == BATCH].mean(0) for graph in (0, 1, 3)]
            means.insert(2, torch.zeros(8, dtype=torch.double))
            expected = readout(torch.stack(means))
        assert_close(scores, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize('order', [torch.arange(12), torch.arange(11, -1, -1)])
@pytest.mark.parametrize('aggr', ['mean', 'sum', 'add', 'max'])
def test_the_nodes_of_a_graph_are_aggregated(aggr, order):
    """The third of four graphs is empty and reads zeros."""
    model = GraphTransformer(6, 8, 3, 1, 2, conv=None, level='graph', aggr=aggr).double().eval()
    x, batch, nodes = features(), BATCH[order], GraphTransformer(6, 8, 8, 1, 2, conv=None).double()
    nodes.lin_in.load_state_dict(model.lin_in.state_dict())
    nodes.blocks.load_state_dict(model.blocks.state_dict())
    torch.nn.init.eye_(nodes.eval().lin_out.weight)
    torch.nn.init.zeros_(nodes.lin_out.bias)
    z = nodes(x, None, batch)
    expected = torch.zeros(4, 8, dtype=torch.double)
    for graph in (0, 1, 3):
        rows = z[batch == graph]
        results = {'mean': rows.mean(0), 'max': rows.amax(0)}
        expected[graph] = results.get(aggr, rows.sum(0))
    assert_close(model(x, None, batch, 4), model.lin_out(expected), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    'pool', [SetTransformerAggregation(8), MLPAggregation(8, 8, 6, num_layers=1)]
)
def test_modules_that_pad_graphs_take_nodes_in_any_order(pool):
    model = GraphTransformer(6, 8, 3, 1, 2, conv=None, level='graph', aggr=pool).double().eval()
    x, batch = features(), BATCH.flip(0).roll(3)
    order = batch.argsort(stable=True)
    expected = model(x[order], None, batch[order], 4)
    assert_close(model(x, None, batch, 4), expected, rtol=1e-12, atol=1e-12)


def test_a_module_aggregates_the_nodes_and_learns():
    pool = AttentionalAggregation(torch.nn.Linear(8, 1))
    model = GraphTransformer(6, 8, 3, 1, 2, level='graph', aggr=pool).double()
    before = pool.gate_nn.weight.detach().clone()
    model.reset_parameters()
    assert not torch.equal(pool.gate_nn.weight, before)
    model(features(), EDGES, BATCH).sum().backward()
    assert bool((pool.gate_nn.weight.grad != 0).any())
    model.aggr = MultiAggregation(['mean', 'max'])
    with pytest.raises(ValueError, match=r"'aggr' must return the 8 channels .* \(got 16\)"):
        model(features(), EDGES, BATCH)


@pytest.mark.parametrize(
    ('conv', 'kind'),
    [
        ('GCNConv', SparseGCNConv),
        ('SAGEConv', SAGEConv),
        ('GATv2Conv', GATv2Conv),
        ('GINConv', GINConv),
        ('ResGatedGraphConv', ResGatedGraphConv),
        (lambda size_in, size_out: SAGEConv(size_in, size_out, aggr='max'), SAGEConv),
    ],
)
def test_message_passing_by_name_or_function(conv, kind):
    model = GraphTransformer(6, 8, 3, 2, 2, conv=conv)
    assert [type(block.conv) for block in model.blocks[1:]] == [kind, kind]
    model(features().float(), EDGES).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ('attn_type', 'kind'),
    [
        ('kernel', KernelAttentionConv),
        ('difformer', DIFFormerConv),
        ('sgformer', SGFormerConv),
        ('mean', MeanAttention),
        ('multihead', torch.nn.MultiheadAttention),
        (lambda channels, heads: SGFormerConv(channels, channels, heads, 'row'), SGFormerConv),
    ],
)
def test_attention_by_name_or_function(attn_type, kind):
    model = GraphTransformer(6, 8, 3, 2, 2, attn_type=attn_type)
    assert [type(conv) for conv in model.attentions[1:]] == [kind, kind]


class NormedByGraph(torch.nn.Module):
    """Message passing whose norm mixes the nodes of a graph."""

    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.conv, self.norm = SAGEConv(in_channels, out_channels), pyg.GraphNorm(out_channels)

    def forward(self, x, edge_index, batch=None):
        num_nodes = x.size(0)  # as many graphs at most: PyG would read their number from the ids
        return self.norm(self.conv(x, edge_index), batch, num_nodes)


def test_message_passing_gets_the_batch_vector():
    model = GraphTransformer(5, 8, 3, 1, 2, 1, conv=NormedByGraph, norm=None).double().eval()
    x, batch = torch.randn(6, 5, dtype=torch.double), torch.tensor([0, 1, 0, 1, 0, 0])
    edges, nodes = torch.tensor([[0, 2, 4, 1], [2, 4, 5, 3]]), torch.tensor([0, 2, 4, 5])
    alone = torch.tensor([[0, 1, 2], [1, 2, 3]])
    assert_close(model(x, edges, batch)[nodes], model(x[nodes], alone))
    pairs = torch.tensor([[0, 2], [5, 4]])
    found = model.attention_scores(x, edges, pairs, batch)
    expected = model.attention_scores(x[nodes], alone, torch.tensor([[0, 1], [3, 2]]))
    assert_close(found, expected)
    compiled = torch.compile(model, fullgraph=True, backend='eager')
    assert_close(compiled(x, edges, batch, 2), model(x, edges, batch))


def test_message_passing_by_a_network_of_pyg():
    """It takes a batch vector for its norms, as attention does, but reads neighbours only."""

    def network(*channels):
        return pyg.GCN(*channels, num_layers=2, norm='graph_norm')

    model = GraphTransformer(5, 8, 3, 1, 2, conv=network).double().eval()
    x, batch = torch.randn(6, 5, dtype=torch.double), torch.tensor([0, 1, 0, 1, 0, 0])
    edges, nodes = torch.tensor([[0, 2, 4, 1], [2, 4, 5, 3]]), torch.tensor([0, 2, 4, 5])
    alone = torch.tensor([[0, 1, 2], [1, 2, 3]])
    assert_close(model(x, edges, batch)[nodes], model(x[nodes], alone))
    weight = torch.rand(4, dtype=torch.double)
    weighted = model(x, edges, batch, edge_weight=weight)
    assert (weighted - model(x, edges, batch)).abs().max() > 1e-3
    assert_close(weighted[nodes], model(x[nodes], alone, edge_weight=weight[:3]))


@pytest.mark.parametrize('cls', [pyg.GraphSAGE, pyg.GIN])
def test_a_network_of_pyg_drops_no_weights_or_features(cls):
    def network(*channels):
        return cls(*channels, num_layers=2)

    model = GraphTransformer(6, 8, 3, conv=network)
    with pytest.raises(ValueError, match=f"'edge_weight' must be None for 'conv' = {cls.__name__}"):
        model(features().float(), EDGES, edge_weight=torch.rand(8))
    with pytest.raises(ValueError, match=f"'conv' must take features of .* .got {cls.__name__}"):
        GraphTransformer(6, 8, 3, conv=network, edge_channels=2)


def test_layers_of_a_network_of_pyg_read_features_of_edges():
    def network(*channels, **options):
        return pyg.GAT(*channels, num_layers=2, **options)

    with pytest.raises(ValueError, match="'conv' must make GATConv with edge_dim=2"):
        GraphTransformer(6, 8, 3, conv=network, edge_channels=2)
    model = GraphTransformer(6, 8, 3, 1, conv=partial(network, edge_dim=2), edge_channels=2)
    x, edge_attr = features().float(), torch.randn(8, 2)
    difference = model.eval()(x, EDGES, edge_attr=edge_attr) - model(x, EDGES, edge_attr=-edge_attr)
    assert difference.abs().max() > 1e-3


def test_compiled_message_passing_is_that_of_the_original():
    """Networks were refused, and features of edges that the layer drops were not."""

    def make(cls, *arguments, **options):
        def conv(*channels):
            return torch.compile(cls(*channels, *arguments))

        return GraphTransformer(6, 8, 3, 1, conv=conv, **options).double().eval()

    with pytest.raises(ValueError, match="'conv' must make GATConv with edge_dim=2"):
        make(pyg.GATConv, edge_channels=2)
    model = make(pyg.GCN, 2)
    with torch.compiler.set_stance('force_eager'):
        found = model(features(), EDGES, BATCH)
    model.blocks[1].conv = model.conv._orig_mod
    assert torch.equal(found, model(features(), EDGES, BATCH))


@pytest.mark.parametrize('index', [0, 1])
def test_the_message_passing_of_one_layer_may_not_be_another(index):
    """The others then added up their neighbours without the weights of GCN."""
    model = GraphTransformer(6, 8, 3, 2, 2).double().eval()
    convs = [GINConv(torch.nn.Linear(8, 8)).double() for _ in range(2)]
    blocks = model.blocks[1:]
    blocks[index].conv = convs[index]
    message = r"^'conv' must be 'GCNConv' in all layers or in none, .* \(got G\w+Conv, G\w+Conv\); "
    message = f"{message}replace the 'conv' of all 'blocks' that have one$"
    with pytest.raises(ValueError, match=message):
        model(features(), EDGES)
    loader = NeighborLoader(Data(x=features(), edge_index=EDGES), [-1], batch_size=5)
    with pytest.raises(ValueError, match=message):
        model.inference(loader)
    for block, conv in zip(blocks, convs, strict=True):
        block.conv = conv
    made = GraphTransformer(6, 8, 3, 2, 2, conv=lambda *_: convs.pop(0)).double().eval()
    made.load_state_dict(model.state_dict())
    assert torch.equal(model(features(), EDGES), made(features(), EDGES))


def test_the_learned_map_is_the_default():
    assert GraphTransformer(6, 8, 3).blocks[1].attn.feature_map.kind == 'learned'
    plain = GraphTransformer(6, 8, 3, attn_kwargs={'feature_map': 'elu'})
    assert plain.blocks[1].attn.feature_map.kind == 'elu'


def test_edge_features_reach_the_message_passing_in_parts_too():
    model = GraphTransformer(6, 8, 3, 2, 2, conv='GATv2Conv', edge_channels=3).double().eval()
    x, edge_attr = features(), torch.randn(8, 3, dtype=torch.double)
    whole = model(x, EDGES, edge_attr=edge_attr)
    assert (whole - model(x, EDGES, edge_attr=-edge_attr)).abs().max() > 1e-3
    data = Data(x=x, edge_index=EDGES, edge_attr=edge_attr)
    found = model.inference(NeighborLoader(data, [-1], batch_size=5))
    assert_close(found, whole.detach(), rtol=1e-10, atol=1e-12)


def test_encodings_are_read_in_parts_too():
    model = GraphTransformer(6, 8, 3, 2, 2, encodings={'laplacian_pe': 2}).double().eval()
    data = Data(x=features(), edge_index=EDGES, laplacian_pe=features(2))
    whole = model(data.x, EDGES, laplacian_pe=data.laplacian_pe)
    found = model.inference(NeighborLoader(data, [-1], batch_size=5))
    assert_close(found, whole.detach(), rtol=1e-10, atol=1e-12)
    del data.laplacian_pe
    with pytest.raises(ValueError, match="'loader' must be of data with the attribute 'laplacian"):
        model.inference(NeighborLoader(data, [-1], batch_size=5))


def test_sparse_features_are_those_of_a_dense_matrix():
    model, x = GraphTransformer(6, 8, 3).double().eval(), features().relu()
    for sparse in (x.to_sparse_csr(), x.to_sparse_coo()):
        assert_close(model(sparse, EDGES), model(x, EDGES), rtol=1e-12, atol=1e-12)
    dropped = GraphTransformer(6, 8, 3, input_dropout=0.5).double()._dropped_features
    sparse = dropped(x.to_sparse_csr()).to_dense()
    assert bool(((sparse == 0) | (sparse == 2 * x)).all())
    assert 0 < int((sparse > 0).sum()) < int((x > 0).sum())


def test_attention_scores_are_those_of_the_layers():
    model, x = GraphTransformer(6, 8, 3, 2, 2, num_local_layers=1).double().eval(), features()
    pairs = torch.cartesian_prod(torch.arange(12), torch.arange(12)).T
    scores = model.attention_scores(x, EDGES, pairs, BATCH)
    assert len(scores) == 2
    for weight in scores:
        total = torch.zeros(12, 2, dtype=torch.double).index_add(0, pairs[1], weight)
        assert_close(total, torch.ones_like(total), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ('message', 'options'),
    [
        ("'in_channels' must be a positive whole number", {'in_channels': 0}),
        ("'hidden_channels' must be at least 1", {'hidden_channels': 0}),
        ("'num_layers' must be at least 1", {'num_layers': 0}),
        (r"'conv' must be the name .* did you mean 'GCNConv'\?", {'conv': 'gcnconv'}),
        (r"'conv' must be the name .* did you mean 'SAGEConv'\?", {'conv': 'SageConv'}),
        (r"'conv' must be the name .* \(got 'GCN'\); did you mean 'GCNConv'\?", {'conv': 'GCN'}),
        *(
            (
                rf"\(got '{name}'\); for {name} give a function that returns the layer$",
                {'conv': name},
            )
            for name in ('APPNP', 'AntiSymmetricConv')
        ),
        (
            r"^'conv' must be a function of the input and output channels \(got <lambda>: too many",
            {'conv': lambda channels: GCNConv(channels, channels)},
        ),
        (
            r"'conv' must be a function .* \(got GINConv: missing a required argument: 'eps'\)$",
            {'conv': type('GINConv', (GINConv,), {'__init__': lambda self, i, o, eps: None})},
        ),
        (
            r"^'attn_type' must be a function of channels and heads \(got <lambda>: too many pos",
            {'attn_type': lambda channels: MeanAttention(channels, channels)},
        ),
        (
            "'conv_kwargs' must have the arguments of HypergraphConv",
            {'conv': 'HypergraphConv', 'conv_kwargs': {'no': 1}},
        ),
        ("'conv_kwargs' must be None unless", {'conv': None, 'conv_kwargs': {'bias': False}}),
        ("'conv' must not be None", {'conv': None, 'attn_type': None}),
        ("'conv' must not be None", {'conv': None, 'num_local_layers': 1}),
        (r"'attn_type' .* did you mean 'kernel'\?", {'attn_type': 'kernell'}),
        (
            r"'attn_type' must be one of 'kernel', 'difformer', 'sgformer', 'mean', 'multihead', "
            r"None or a function of channels and heads \(got 'performer'\); did you mean 'kernel',",
            {'attn_type': 'performer'},
        ),
        (
            r"'attn_type' must be a function, .* lambda channels, heads: MeanAttention\(..\)",
            {'attn_type': MeanAttention(8, 8)},
        ),
        (
            r"'conv' must be a function, .* lambda in_channels, out_channels: GCNConv\(..\)",
            {'conv': GCNConv(8, 8)},
        ),
        ("'attn_type' must not be 'degree_masked'", {'attn_type': 'degree_masked'}),
        ("'num_local_layers' must be at least 1", {'gate': True, 'attn_type': None}),
        ("'num_local_layers' must be at least 0", {'num_local_layers': -1}),
        ("'edge_channels' must be at least 0", {'edge_channels': -1}),
        (r"encodings\['pe'\]' must be at least 1", {'encodings': {'pe': 0}}),
        (
            r"'encodings' must be a dictionary .*, such as {'laplacian_pe': 10} \(got \['pe'\]\)",
            {'encodings': ['pe']},
        ),
        (
            r"'conv' must take features of edges with 'edge_channels' = 2, .* \(got GCNConv\)",
            {'edge_channels': 2},
        ),
        (
            r"'conv' must take features of edges .* \(got SAGEConv\)",
            {'edge_channels': 2, 'conv': SAGEConv, 'num_local_layers': 1, 'gate': True},
        ),
        (
            r"'conv' must be a layer that needs only .* \(got GINEConv, .*; set 'edge_channels'",
            {'conv': 'GINEConv'},
        ),
        (
            "'conv' must be a layer that is called with node features and 'edge_index' "
            r'\(got PointTransformerConv\)',
            {'conv': 'PointTransformerConv'},
        ),
        (r"'conv' must return 'hidden_channels' = 8 channels \(got 24", {'conv': 'MixHopConv'}),
        (
            r"^'conv' must be a function that returns a layer \(got 'GCNConv' from it\)$",
            {'conv': lambda *channels: 'GCNConv'},
        ),
        (r"^'conv_kwargs' must be a dictionary of arguments \(got 3\)$", {'conv_kwargs': 3}),
        (r"^'attn_kwargs' must be a dictionary of arguments \(got 3\)$", {'attn_kwargs': 3}),
        (
            r"^'attn_kwargs' must not have 'position_channels' in a model, .* as 'position'$",
            {'attn_type': 'difformer', 'attn_kwargs': {'position_channels': 2}},
        ),
        (
            r"^'attn_kwargs' must not have 'position_channels' in a model, ",
            {
                'encodings': {'svd_pe': 3},
                'position': 'svd_pe',
                'attn_kwargs': {'position_channels': 2},
            },
        ),
        pytest.param(
            r"'conv' must return 'hidden_channels' = 8 channels \(got tuple",
            {'conv': 'PANConv', 'conv_kwargs': {'filter_size': 2}},
            marks=pytest.mark.sparse,
        ),
        ("'edge_channels' must be positive with conv='NNConv'", {'conv': 'NNConv'}),
        (
            r'KernelAttentionConv\(channels, channels, heads=heads\) \(got the class Kern',
            {'attn_type': KernelAttentionConv},
        ),
        (r"'gate' must be True or False \(got 'False'\)", {'gate': 'False'}),
        ("'input_norm' must be True or False", {'input_norm': 1}),
        (
            r"reads neighbours only \(got DIFFormerConv\); give .* as 'attn_type'",
            {'conv': DIFFormerConv},
        ),
        (
            r'needs only .* \(got GATConv, which raises RuntimeError',
            {'conv': 'GATConv', 'edge_channels': 2, 'conv_kwargs': {'edge_dim': 3}},
        ),
        (
            r"^'conv' must make GATConv with edge_dim=2, the 'edge_channels', to read the features "
            r'of edges \(got edge_dim=None\)$',
            {'conv': pyg.GATConv, 'edge_channels': 2},
        ),
        (
            r"'conv' must make GeneralConv with in_edge_channels=2, .* \(got in_edge_channels=None",
            {'conv': pyg.GeneralConv, 'edge_channels': 2},
        ),
        ("'level' must be one of", {'level': 'nodes'}),
        (r"'aggr' must be one of .* \(got 'median'\)", {'level': 'graph', 'aggr': 'median'}),
        ("'aggr' must be one of .*; did you mean 'mean'", {'level': 'graph', 'aggr': 'meen'}),
        ("'aggr' must be one of", {'level': 'graph', 'aggr': torch.nn.Identity()}),
        ("'aggr' must be 'mean' unless 'level' is 'graph'", {'aggr': 'sum'}),
        ("'dropout' must be", {'dropout': 1.0}),
        ("'input_dropout' must be", {'input_dropout': -0.1}),
        ("'norm' must be", {'norm': 'graph_norm'}),
        ("'heads' must divide", {'heads': 3}),
    ],
)
def test_wrong_options_are_named(message, options):
    sizes = {'in_channels': 6, 'hidden_channels': 8, 'out_channels': 3}
    with pytest.raises(ValueError, match=message):
        GraphTransformer(**{**sizes, **options})


NAMED = {  # with the arguments that they need
    'AGNNConv': {},
    'CGConv': {},
    'ChebConv': {'K': 2},
    'EdgeConv': {},
    'FiLMConv': {},
    'GATConv': {},
    'GINConv': {},
    'LGConv': {},
    'SimpleConv': {},
}


@pytest.mark.parametrize('conv', NAMED)
def test_named_layers(conv):
    model = GraphTransformer(6, 8, 3, 2, 2, conv=conv, conv_kwargs=NAMED[conv]).double()
    assert model(features(), EDGES).isfinite().all()


@pytest.mark.parametrize('norm', ['batch_norm', 'layer_norm', None])
@pytest.mark.parametrize(
    ('conv', 'edge_channels'), [('GINConv', 0), ('GINEConv', 3), ('GENConv', 0)]
)
def test_networks_of_named_layers_have_the_norm_of_the_model(conv, edge_channels, norm):
    """Their batch normalisation mixed the nodes of a model without one."""
    sizes = {'edge_channels': edge_channels, 'dropout': 0.0}
    model = GraphTransformer(6, 8, 3, 2, 2, conv=conv, norm=norm, **sizes)
    edges = {'edge_attr': torch.ones(EDGES.size(1), 3).double()} if edge_channels else {}
    model, x = model.double(), features()
    training, evaluation = (model.train(mode)(x, EDGES, **edges) for mode in (True, False))
    assert torch.equal(training, evaluation) == (norm != 'batch_norm')
    beside = model.train()(x, EDGES, BATCH, **edges)[:5]  # the first five nodes are two graphs
    alone = model(x[:5], EDGES[:, :3], BATCH[:5], **{name: v[:3] for name, v in edges.items()})
    assert torch.allclose(beside, alone, rtol=1e-10, atol=1e-12) == (norm != 'batch_norm')


def test_a_network_with_batch_normalisation_over_the_nodes_of_one_process():
    message = "'conv' must not normalise over nodes .*; make the model with norm='layer_norm'"
    model = GraphTransformer(6, 8, 3, conv='GINConv')
    with pytest.raises(ValueError, match=message):
        model(features().float(), EDGES, process_group=object())


@pytest.mark.parametrize(
    ('conv', 'options'),
    [
        ('CGConv', {}),
        ('GATv2Conv', {}),
        ('GENConv', {}),
        ('GINEConv', {}),
        ('GMMConv', {'kernel_size': 2}),
        ('GeneralConv', {}),
        ('NNConv', {}),
        ('PDNConv', {'hidden_channels': 4}),
        ('ResGatedGraphConv', {}),
        ('TransformerConv', {}),
    ],
)
def test_named_layers_with_features_of_edges(conv, options):
    options = {'conv': conv, 'edge_channels': 3, 'conv_kwargs': options}
    model = GraphTransformer(6, 8, 3, 2, 2, **options).double().eval()
    edge_attr = torch.rand(EDGES.size(1), 3, dtype=torch.double, requires_grad=True)
    model(features(), EDGES, edge_attr=edge_attr).sum().backward()
    assert edge_attr.grad.abs().sum(0).min() > 0


def test_trying_a_named_layer_leaves_no_trace():
    """It draws no random numbers, and leaves neither caches nor batch statistics."""
    drawn = []
    for conv in ('SAGEConv', lambda channels, width: SAGEConv(channels, width)):
        torch.manual_seed(5)
        GraphTransformer(6, 8, 3, conv=conv)
        drawn.append(torch.rand(3))
    assert torch.equal(*drawn)
    conv = GraphTransformer(6, 8, 3, conv='SGConv', conv_kwargs={'cached': True}).conv
    assert conv._cached_x is None
    with torch.device('meta'):
        GraphTransformer(6, 8, 3, conv='SAGEConv')


def in_parts(**options):
    data = Data(x=features(), edge_index=EDGES)
    model = GraphTransformer(6, 8, 3, 2, 2, **options).double()
    return model.inference(NeighborLoader(data, [-1], batch_size=5))


@pytest.mark.parametrize(
    ('message', 'call'),
    [
        (
            "'edge_attr' must be None for a model with 'edge_channels' = 0",
            lambda: GraphTransformer(6, 8, 3).double()(
                features(), EDGES, edge_attr=features(1)[:8]
            ),
        ),
        (
            r"'edge_attr' must have shape \(8, 3\) \(got None\); pass edge_attr=data.edge_attr$",
            lambda: GraphTransformer(6, 8, 3, conv='GATv2Conv', edge_channels=3).double()(
                features(), EDGES
            ),
        ),
        (
            r"'edge_attr' must have shape \(8, 3\) \(got \(8,\)\); encode numbers of kinds",
            lambda: GraphTransformer(6, 8, 3, conv='GATv2Conv', edge_channels=3).double()(
                features(), EDGES, edge_attr=torch.arange(8)
            ),
        ),
        (
            r"'edge_attr' must be of floating point \(got torch.int64\); .* or numbers of kinds",
            lambda: GraphTransformer(6, 8, 3, conv='GATv2Conv', edge_channels=3).double()(
                features(), EDGES, edge_attr=torch.ones(8, 3, dtype=torch.long)
            ),
        ),
        (
            r"'edge_attr' must have shape \(8, 1\) \(got \(8,\)\); give edge_attr\[:, None\]",
            lambda: GraphTransformer(6, 8, 3, conv='GATv2Conv', edge_channels=1).double()(
                features(), EDGES, edge_attr=torch.rand(8)
            ),
        ),
        (
            "'edge_weight' must be None for 'conv' = SAGEConv",
            lambda: GraphTransformer(6, 8, 3, conv='SAGEConv').double()(
                features(), EDGES, edge_weight=torch.rand(8)
            ),
        ),
        (
            "'edge_weight' must be None without message passing",
            lambda: GraphTransformer(6, 8, 3, gate=True).double()(
                features(), EDGES, edge_weight=torch.rand(8)
            ),
        ),
        (
            "'edge_attr' must be None for a model with 'edge_channels' = 0",
            lambda: GraphTransformer(6, 8, 3, conv=None).double()(
                features(), EDGES, edge_attr=features(1)[:8]
            ),
        ),
        (
            "'edge_channels' must be 0 without message passing",
            lambda: GraphTransformer(6, 8, 3, conv=None, edge_channels=3),
        ),
        (
            "'batch' must hold int64 graph ids .*; give weights of edges as 'edge_weight'",
            lambda: GraphTransformer(6, 8, 3, attn_type=None).double()(
                features(), EDGES, torch.rand(8)
            ),
        ),
        (
            "'batch' must hold int64 graph ids .*; give features of edges as 'edge_attr'",
            lambda: GraphTransformer(6, 8, 3, conv='GATv2Conv', edge_channels=3).double()(
                features(), EDGES, features(3)[:8]
            ),
        ),
        (
            r"'pe' must be given, \[N, 2\], .* pass pe=data.pe, which a transform adds to the data",
            lambda: GraphTransformer(6, 8, 3, encodings={'pe': 2}).double()(features(), EDGES),
        ),
        (
            "'edge_index' must be given; for attention alone make the model with conv=None",
            lambda: GraphTransformer(6, 8, 3).double()(features(), None),
        ),
        (
            r"'laplacian_pe' must be given, \[N, 2\], .* pass laplacian_pe=data.laplacian_pe, "
            'which LaplacianPE adds to the data',
            lambda: GraphTransformer(6, 8, 3, encodings={'laplacian_pe': 2}).double()(
                features(), EDGES
            ),
        ),
        (
            r"'laplacian_pe' must be one of the 'encodings' of the model, \[\], or one of x, "
            r'edge_index, .*, process_group \(got laplacian_pe=..\); for an encoding make the '
            r"model with encodings={'laplacian_pe': channels}$",
            lambda: GraphTransformer(6, 8, 3).double()(features(), EDGES, laplacian_pe=features(2)),
        ),
        (
            r"'num_graphs' must be one of the 'encodings' .*; did you mean 'batch_size'\?",
            lambda: GraphTransformer(6, 8, 3).double()(features(), EDGES, num_graphs=1),
        ),
        (
            r"'edge_label_index' must be one of the 'encodings' .*; score pairs by the outputs of",
            lambda: GraphTransformer(6, 8, 3).double()(features(), EDGES, edge_label_index=EDGES),
        ),
        (
            r"'laplacian' must be .*, \['laplacian_pe'\], .*did you mean 'laplacian_pe'\?",
            lambda: GraphTransformer(6, 8, 3, encodings={'laplacian_pe': 2}).double()(
                features(), EDGES, laplacian=features(2)
            ),
        ),
        (
            r"'encodings' must be a tensor .*dictionary\); .* or all of them by \*\*encodings$",
            lambda: GraphTransformer(6, 8, 3, encodings={'laplacian_pe': 2}).double()(
                features(), EDGES, encodings={'laplacian_pe': features(2)}
            ),
        ),
        (
            r"'laplacian_pe' must have shape \(12, 2\)",
            lambda: GraphTransformer(6, 8, 3, encodings={'laplacian_pe': 2}).double()(
                features(), EDGES, laplacian_pe=features(3)
            ),
        ),
        (
            r"'place' must have shape \(12, 1\) \(got \(12,\)\); give place\[:, None\]$",
            lambda: GraphTransformer(6, 8, 3, encodings={'place': 1}).double()(
                features(), EDGES, place=features(1)[:, 0]
            ),
        ),
        ("'conv' must be 'GCNConv', by name", lambda: in_parts(conv=pyg.GCNConv)),
        ("'attn_type' must have sums over keys", lambda: in_parts(attn_type='multihead')),
        ("'level' must be 'node'", lambda: in_parts(level='graph')),
        ("'edge_attr' must have shape", lambda: in_parts(conv='GATv2Conv', edge_channels=3)),
    ],
)
def test_wrong_inputs_are_named(message, call):
    with pytest.raises(ValueError, match=message):
        call()


def test_an_encoding_that_is_no_tensor_is_named():
    model = GraphTransformer(6, 8, 3, encodings={'laplacian_pe': 2})
    with pytest.raises(TypeError, match=r"^'laplacian_pe' must be a torch.Tensor \(got ndarray\);"):
        model(torch.randn(12, 6), EDGES, laplacian_pe=torch.randn(12, 2).numpy())


@pytest.mark.parametrize(
    ('conv', 'conv_kwargs'),
    [('TAGConv', None), ('SGConv', None), ('ChebConv', {'K': 2}), ('EGConv', None)],
)
def test_message_passing_beyond_one_hop_is_not_evaluated_in_parts(conv, conv_kwargs):
    """Of several hops, or by degrees of the neighbours: a part of the graph has neither."""
    with pytest.raises(ValueError, match="'conv' must be 'GCNConv', by name, or a layer whose"):
        in_parts(conv=conv, conv_kwargs=conv_kwargs)


def test_message_passing_that_caches_is_not_evaluated_in_parts():
    """The check of one hop on a small graph must not leave its edges in the layer."""
    model = GraphTransformer(6, 8, 3, 2, 2, conv_kwargs={'cached': True}).eval()
    other, data = copy.deepcopy(model), Data(x=features().float(), edge_index=EDGES)
    with pytest.raises(ValueError, match="'conv' must not have cached=True to be evaluated"):
        model.inference(NeighborLoader(data, [-1], batch_size=5))
    assert_close(model(data.x, EDGES), other(data.x, EDGES))


@pytest.mark.parametrize('conv', ['GATConv', 'GINConv', 'LEConv', 'MFConv', 'TransformerConv'])
def test_message_passing_of_one_hop_is_evaluated_in_parts(conv):
    data = Data(x=features(), edge_index=EDGES)
    model = GraphTransformer(6, 8, 3, 2, 2, conv=conv).double().eval()
    scores = model.inference(NeighborLoader(data, [-1], batch_size=5))
    assert_close(scores, model(data.x, EDGES).detach(), rtol=1e-10, atol=1e-12)


def test_the_memory_of_one_layer_needs_sums_over_keys():
    """The memory reads no output of the last layer, only its state."""
    data = Data(x=features().float(), edge_index=EDGES)
    model = GraphTransformer(6, 8, 3, num_layers=1, heads=2, attn_type='multihead')
    with pytest.raises(ValueError, match=r"'attn_type' must have sums .*MultiheadAttention\)$"):
        model.attention_memory(NeighborLoader(data, [-1], batch_size=5))


def test_a_model_without_attention_has_no_memory():
    data = Data(x=features().float(), edge_index=EDGES)
    with pytest.raises(ValueError, match='the model has no layer with attention'):
        GraphTransformer(6, 8, 3, attn_type=None).attention_memory(
            NeighborLoader(data, [-1], batch_size=5)
        )


def test_local_layers_follow_the_formula():
    model, x = GraphTransformer(6, 8, 3, 1, 2, 1, norm='layer_norm').double().eval(), features()
    first, layer, _ = model.blocks
    z = first.norm(model.lin_in(x)).relu()
    gcn = GCNConv(8, 8).double()
    gcn.load_state_dict(layer.conv.state_dict())
    expected = z + layer.norm(gcn(z, EDGES) + layer.lin(z)).relu()
    context = GraphContext(model._message_input(EDGES, x, None, None, None, None))
    assert_close(model.layers(x, context)[2], expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize('attn_type', ['kernel', 'difformer', 'sgformer'])
def test_attention_by_position(attn_type):
    options = {'encodings': {'svd_pe': 3, 'laplacian_pe': 2}, 'position': 'laplacian_pe'}
    model = GraphTransformer(6, 8, 3, 1, 2, attn_type=attn_type, **options).double().eval()
    x, pe = features(), {'svd_pe': features(3), 'laplacian_pe': features(2)}
    (first, block), z = model.blocks, model.lin_in(x)
    for name, value in pe.items():
        z = z + model.lin_encodings[name](value)
    z = first.norm(z).relu()
    gcn = GCNConv(8, 8).double()
    gcn.load_state_dict(block.conv.state_dict())
    attended = block.attn.conv(z, batch=BATCH, position=pe['laplacian_pe'])
    summed = block.norm1(z + gcn(z, EDGES)) + block.norm2(z + attended)
    expected = model.lin_out(block.norm3(summed + block.mlp(summed)))
    assert_close(model(x, EDGES, BATCH, **pe), expected, rtol=1e-10, atol=1e-12)
    data = Data(x=x, edge_index=EDGES, **pe)
    whole = model(x, EDGES, **pe)
    loader = NeighborLoader(data, [-1], batch_size=5)
    assert_close(model.inference(loader), whole.detach(), rtol=1e-10, atol=1e-12)
    states = model.attention_memory(loader).states
    assert_close(
        model(x, EDGES, states=[states[0].without(states[0])], **pe), whole, rtol=1e-9, atol=1e-9
    )


def test_scores_of_graphs_have_no_memory():
    model = GraphTransformer(6, 8, 3, level='graph').double()
    loader = NeighborLoader(Data(x=features(), edge_index=EDGES), [-1], batch_size=5)
    with pytest.raises(ValueError, match="'level' must be 'node' or 'edge' with an 'AttentionM"):
        model.attention_memory(loader)


def test_positions_are_encodings():
    message = (
        r"'position' must be one of 'encodings', \['laplacian_pe'\] \(got 'laplace_pe'\); did you"
    )
    with pytest.raises(ValueError, match=message):
        GraphTransformer(6, 8, 3, encodings={'laplacian_pe': 2}, position='laplace_pe')
    for attn_type in ('mean', None):
        with pytest.raises(
            ValueError, match=r"'attn_type' must be one of .* \(got ('mean'|None)\); lea"
        ):
            GraphTransformer(
                6, 8, 3, attn_type=attn_type, encodings={'laplacian_pe': 2}, position='laplacian_pe'
            )


def test_scores_of_graphs_without_edges():
    model, x = GraphTransformer(6, 8, 3, 2, 2, conv=None, level='graph').double().eval(), features()
    edges = torch.empty(2, 0, dtype=torch.long)
    for batch in (None, BATCH):
        assert_close(model(x, None, batch), model(x, edges, batch), rtol=0, atol=0)


def test_scores_of_graphs_are_not_those_of_a_part():
    """The mean over the nodes of a mini-batch or a process is another one."""
    model, x = GraphTransformer(6, 8, 3, 1, 2, level='graph').double().eval(), features()
    states = [model.attentions[1].attention_state(model.lin_in(x))]
    with pytest.raises(ValueError, match="'level' must be 'node' or 'edge' with 'states'"):
        model(x, EDGES, states=states)


def test_options_of_any_mapping():
    """Configurations such as those of OmegaConf are mappings, and no dictionaries."""
    options = {
        'conv_kwargs': {'negative_slope': 0.5},
        'attn_kwargs': {'feature_map': 'elu'},
        'encodings': {'place': 2},
    }
    models = []
    for kind in (dict, UserDict):
        torch.manual_seed(0)
        copies = {name: kind(option) for name, option in options.items()}
        models.append(GraphTransformer(3, 8, 2, num_layers=1, conv='GATConv', **copies).eval())
    x, place = torch.randn(4, 3), torch.randn(4, 2)
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    first, second = (model(x, edge_index, place=place) for model in models)
    assert torch.equal(first, second)
    assert models[1].blocks[1].conv.negative_slope == 0.5


def test_arguments_of_no_named_attention_are_refused():
    for attn_type in (None, lambda channels, heads: MeanAttention(channels, channels)):
        with pytest.raises(ValueError, match="'attn_kwargs' must be None unless"):
            GraphTransformer(6, 8, 3, attn_type=attn_type, attn_kwargs={'bias': False})


@pytest.mark.parametrize('options', [{'add_self_loops': False}, {'aggr': 'mean'}])
def test_arguments_of_gcn_are_those_of_the_layer_of_pyg(options):
    model = GraphTransformer(6, 8, 3, 1, 2, conv_kwargs=options, norm=None)
    peer = GraphTransformer(6, 8, 3, 1, 2, conv=lambda i, o: GCNConv(i, o, **options), norm=None)
    model, peer = model.double().eval(), peer.double().eval()
    peer.load_state_dict(model.state_dict())
    assert_close(model(features(), EDGES), peer(features(), EDGES), rtol=1e-10, atol=1e-12)


def test_width_of_the_message_passing():
    options = {'conv': 'GATConv', 'conv_kwargs': {'concat': False}}
    model = GraphTransformer(6, 8, 3, 1, heads=8, **options).double()
    assert model.conv.out_channels == 8
    assert model(features(), EDGES).shape == (12, 3)
    narrow = GraphTransformer(6, 8, 3, 1, 2, conv=lambda i, o: GCNConv(i, 1)).double()
    message = r"'conv' must return 'hidden_channels' = 8 channels \(got 1 from GCNConv\(8, 1\)\)"
    with pytest.raises(ValueError, match=message):
        narrow(features(), EDGES)
    narrow = GraphTransformer(6, 8, 3, 1, attn_type=lambda c, h: KernelAttentionConv(c, 4))
    message = (
        r"'attn_type' must return 'hidden_channels' = 8 .*; give a function of the channels and h"
    )
    with pytest.raises(ValueError, match=message):
        narrow.double()(features(), EDGES)


@pytest.mark.parametrize(
    ('name', 'message'),
    [
        *((name, 'must have names that are no arguments') for name in ('x', 'batch', 'type')),
        ('minibatch', "must have neither 'batch' nor 'index'"),
        ('lap.pe', 'must be a name of letters'),
        (3, 'must be a name of letters'),
    ],
)
def test_names_of_encodings_that_mean_something_else_are_refused(name, message):
    with pytest.raises(ValueError, match=f"'encodings' {message}.* .got {name!r}."):
        GraphTransformer(6, 8, 3, encodings={name: 1})


@pytest.mark.parametrize(
    ('degree', 'message'),
    [
        (torch.ones(11), r'have shape \[12\], one for each node'),
        (torch.ones(12, 1), r'have shape \[12\], one for each node'),
        (5, r'be a tensor with one number for each node, or a pair .* \(got int\)'),
    ],
)
def test_degrees_of_another_shape_are_refused(degree, message):
    with pytest.raises(ValueError, match=f"'degree' must {message}"):
        GraphTransformer(6, 8, 3)(features().float(), EDGES, degree=degree)


def test_what_says_that_a_group_of_processes_is_missing():
    model, x = GraphTransformer(6, 8, 3, conv=None, norm=None), features().float()
    with pytest.raises(ValueError, match=r'dist\.group\.WORLD is None before init_process_group'):
        model(x, None, num_keys=3)
    with pytest.raises(TypeError, match=r"'process_group' must be a group, .* \(got 'gloo'\)"):
        model(x, None, process_group='gloo')


def test_reset_of_a_gated_multihead_layer():
    options = {'num_layers': 1, 'num_local_layers': 1, 'gate': True, 'attn_type': 'multihead'}
    model = GraphTransformer(6, 8, 3, heads=2, **options)
    before = model.blocks[2].attn.in_proj_weight.clone()
    model.reset_parameters()
    assert not model.blocks[2].attn.in_proj_weight.equal(before)
    assert not model.blocks[2].attn.out_proj.bias.any()
    with pytest.raises(ValueError, match=r"'attention_scores' \(got MultiheadAttention"):
        model.attention_scores(features().float(), EDGES, EDGES)


@pytest.mark.parametrize(
    'options',
    [
        {'conv_kwargs': {'improved': True}},
        {'conv': partial(pyg.GCN, num_layers=2)},
        {'conv': lambda *channels: torch.compile(GCNConv(*channels))},
    ],
    ids=['layer', 'network', 'compiled'],
)
def test_degrees_that_a_gcn_counts_itself_are_refused(options):
    """Networks and compiled layers ignored them."""
    model = GraphTransformer(6, 8, 3, 1, 2, **options).double()
    with pytest.raises(ValueError, match=r"'degree' must be None unless 'conv' .* GCN\w*\(8, 8"):
        model(features(), EDGES, degree=torch.ones(12))


@pytest.mark.parametrize(
    'options',
    [{}, {'level': 'graph'}, {'num_local_layers': 2, 'gate': True}],
    ids=['node', 'graph', 'gate'],
)
def test_hooks_on_layers_are_called(options):
    """Sharding of parameters and checkpointing per layer rely on such hooks."""
    model, calls = GraphTransformer(6, 8, 3, 2, 2, **options).double(), []
    for block in model.blocks:
        block.register_forward_hook(lambda block, _, out: calls.append((block, out.shape)))
    model(features(), EDGES, BATCH)
    assert calls == [(block, (12, 8)) for block in model.blocks]


@pytest.mark.parametrize('aggr', ['mean', 'sum'])
def test_batch_normalisation_of_one_graph_leaves_no_score_of_its_own(aggr):
    """As the docstring says of training. The norm of each node keeps the scores apart."""
    scores = {}
    for norm in ('batch_norm', 'layer_norm'):
        torch.manual_seed(0)
        model = GraphTransformer(6, 8, 1, 2, 2, level='graph', norm=norm, aggr=aggr).double()
        first, second = (model(factor * features(), EDGES) for factor in (1, 3))
        scores[norm] = float((first - second).detach().abs().max())
    assert scores['batch_norm'] < 1e-6
    assert scores['layer_norm'] > 1e-3
