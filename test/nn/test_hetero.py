import pytest
import torch
from torch_geometric.nn import HeteroConv, MessagePassing, to_hetero, to_hetero_with_bases

from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    DIFFormer,
    DIFFormerConv,
    GraphTransformer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    LiteGT,
    NodeFormer,
    SGFormer,
    SGFormerConv,
)

KINDS = [('user', 'rates', 'item'), ('item', 'rated_by', 'user'), ('user', 'knows', 'user')]


@pytest.mark.parametrize('layer', [KernelAttentionConv, DIFFormerConv, SGFormerConv])
def test_layers_in_heterogeneous_models(layer):
    """Each edge type has a layer of its own, from all its sources to all its targets; the results
    of a target type add up."""
    convs = {kind: layer(6, 8, heads=2) for kind in KINDS}
    x = {'user': torch.randn(7, 6), 'item': torch.randn(5, 6)}
    edges = {
        kind: torch.stack(
            [torch.randint(x[kind[0]].size(0), (9,)), torch.randint(x[kind[2]].size(0), (9,))]
        )
        for kind in KINDS
    }
    out = HeteroConv(convs, aggr='sum')(x, edges)
    for name in x:
        parts = [
            convs[kind]((x[kind[0]], x[name]), edges[kind]) for kind in KINDS if kind[2] == name
        ]
        torch.testing.assert_close(out[name], torch.stack(parts).sum(0))


class Net(torch.nn.Module):
    def __init__(self, att):
        super().__init__()
        self.lin_in, self.att, self.lin_out = torch.nn.Linear(6, 8), att, torch.nn.Linear(8, 3)

    def forward(self, x, edge_index):
        h = self.lin_in(x).relu()
        h = self.att(h, edge_index) + h
        return self.lin_out(h)


def graph(widths=(6, 6)):
    x = {'user': torch.randn(7, widths[0]), 'item': torch.randn(5, widths[1])}
    return x, {
        kind: torch.stack(
            [torch.randint(x[kind[0]].size(0), (9,)), torch.randint(x[kind[2]].size(0), (9,))]
        )
        for kind in KINDS
    }


@pytest.mark.parametrize(
    'make',
    [
        lambda: KernelAttentionConv(8, 8, heads=2),
        lambda: KernelAttentionConv(-1, 8),
        lambda: KernelAttentionConv((-1, -1), 8),
        lambda: SGFormerConv(8, 8),
        lambda: DIFFormerConv(8, 8),
        lambda: AdjacencyMaskedAttention(8),
        lambda: JaccardSubtractorConv(8, 8, heads=2, kernel='subtractor'),
    ],
)
def test_to_hetero_copies_layers_for_each_edge_type(make):
    """Each edge type has a layer of its own, and the results of a target type add up, within a
    network that PyG turns."""
    net, (x, edges) = to_hetero(Net(make()), (['user', 'item'], KINDS)), graph()
    out = net(x, edges)
    assert {name: value.shape for name, value in out.items()} == {'user': (7, 3), 'item': (5, 3)}
    hidden = {name: net.lin_in[name](value).relu() for name, value in x.items()}
    for name, value in hidden.items():
        parts = []
        for kind in KINDS:
            if kind[2] == name:
                pair = value if kind[0] == name else (hidden[kind[0]], value)
                parts.append(net.att['__'.join(kind)](pair, edges[kind]))
        torch.testing.assert_close(out[name], net.lin_out[name](torch.stack(parts).sum(0) + value))
    sum(value.sum() for value in out.values()).backward()
    assert all(parameter.grad is not None for parameter in net.lin_in.parameters())


@pytest.mark.parametrize('make', [KernelAttentionConv, DIFFormerConv])
def test_to_hetero_of_unequal_widths(make):
    """Each copy takes the sizes of its node types from the first input."""

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.att = make((-1, -1), 8)

        def forward(self, x, edge_index):
            return self.att(x, edge_index)

    net, (x, edges) = to_hetero(Layer(), (['user', 'item'], KINDS)), graph((6, 9))
    assert {name: value.shape for name, value in net(x, edges).items()} == {
        'user': (7, 8),
        'item': (5, 8),
    }
    layer = net.att['user__rates__item']
    assert (
        layer.lin_query.in_features,
        layer.lin_key.in_features,
        layer.lin_value.in_features,
    ) == (9, 6, 6)


def test_sgformer_takes_one_width_of_both_node_types():
    x, edges = graph((6, 9))
    convs = {kind: SGFormerConv((-1, -1), 8) for kind in KINDS}
    message = (
        r"'x' must have one width, .* 'lin_value' \(got \(7, 6\) and \(5, 9\)\); .* DIFFormerConv$"
    )
    with pytest.raises(ValueError, match=message):
        HeteroConv(convs)(x, edges)


def test_edges_in_the_place_of_degrees():
    """``to_hetero`` and ``Sequential`` pass edges as the second argument."""
    edge_index = graph()[1]['user', 'knows', 'user']
    with pytest.raises(ValueError, match=r'for 7 nodes.*; give edges as edge_index=edge_index$'):
        DegreeMaskedAttention(8)(torch.randn(7, 8), edge_index)


def test_degrees_of_hetero_graphs_are_asked_for():
    class Layer(Net):
        def forward(self, x, edge_index):
            return self.att(self.lin_in(x), edge_index=edge_index)

    net, (x, edges) = to_hetero(Layer(DegreeMaskedAttention(8)), (['user', 'item'], KINDS)), graph()
    with pytest.raises(ValueError, match="'degree' must be given for a pair 'x'"):
        net(x, edges)


@pytest.mark.parametrize(
    'model',
    [
        NodeFormer(6, 8, 3),
        DIFFormer(6, 8, 3),
        SGFormer(6, 8, 3),
        LiteGT(6, 8, 3),
        GraphTransformer(6, 8, 3),
    ],
    ids=lambda m: type(m).__name__,
)
def test_models_name_what_to_use_in_place_of_to_hetero(model):
    with pytest.raises(
        ValueError,
        match=f'{type(model).__name__} cannot be traced .* to_hetero and HeteroConv take',
    ):
        to_hetero(model, (['user', 'item'], KINDS))


@pytest.mark.parametrize('model', [SGFormer, GraphTransformer])
def test_models_within_a_network_take_no_pair(model):
    """``to_hetero`` copies such a model for each edge type, and passes it sources and targets."""

    class Wrapped(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lin, self.model = torch.nn.Linear(6, 8), model(8, 8, 3)

        def forward(self, x, edge_index):
            return self.model(self.lin(x), edge_index)

    net = to_hetero(Wrapped(), (['user', 'item'], KINDS))
    with pytest.raises(TypeError, match=r"'x' .*got tuple\); only attention layers take a pair"):
        net(*graph())


def test_bases_are_refused():
    """They change messages, which the layers do not have; the weights of edge types would have no
    effect."""
    with pytest.raises(NotImplementedError, match=r'^KernelAttentionConv has no messages, '):
        to_hetero_with_bases(Net(KernelAttentionConv(8, 8)), (['user', 'item'], KINDS), 2)


@pytest.mark.parametrize('name', [name for name in vars(MessagePassing) if 'register' in name])
def test_hooks_that_would_never_run_are_refused(name):
    with pytest.raises(NotImplementedError, match=r'^SGFormerConv has no messages, '):
        getattr(SGFormerConv(8, 8), name)(print)
