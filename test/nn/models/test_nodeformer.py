import pytest
import torch
from gradients import gradients, leaves_of

from torch_geometric_lgt.functional import edge_regularization, sorted_edges
from torch_geometric_lgt.nn import NodeFormer
from torch_geometric_lgt.nn.models._graph_context import GraphContext

EDGES = torch.tensor([[0, 2, 3, 1, 4, 5], [2, 3, 7, 4, 5, 6]])
EDGES = torch.cat([EDGES, EDGES.flip(0)], 1)


def make(**options):
    return NodeFormer(6, 4, 3, heads=2, num_features=8, **options).double()


def test_layers_by_hand():
    """Input layer, attention, projection, residual and normalisation, and the output layer over all
    layers."""
    model = make(num_layers=1, jumping_knowledge=True).eval()
    x = torch.randn(8, 6, dtype=torch.float64)
    z0 = torch.nn.functional.elu(model.norms[0](model.lin_in(x)))
    z1 = model.norms[1](model.lin_heads[0](model.convs[0](z0, EDGES)) + z0)
    torch.testing.assert_close(model(x, EDGES), model.lin_out(torch.cat([z0, z1], 1)))
    for one, other in zip(
        model.layers(x, GraphContext(model.hops(EDGES, 8))), (z0, z1), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_switches_by_hand():
    model = make(
        num_layers=1,
        residual=False,
        layer_norm=False,
        activate_layers=True,
        relational_order=0,
        act='relu',
    ).eval()
    x = torch.randn(8, 6, dtype=torch.float64)
    expected = model.lin_out(model.lin_heads[0](model.convs[0](model.lin_in(x).relu())).relu())
    torch.testing.assert_close(model(x, EDGES), expected)


def test_output_and_logits_of_the_paper_by_hand():
    """The scores are an MLP of the outputs of all layers side by side; the logits are q.k."""
    model = make(jumping_knowledge=True, num_readout_layers=3, scale=1.0, dropout=0.5).eval()
    x = torch.randn(8, 6, dtype=torch.float64)
    layers = model.layers(x, GraphContext(model.hops(EDGES, 8)))
    z = torch.cat(layers, 1)
    assert [(lin.in_channels, lin.out_channels) for lin in model.lin_out.lins] == [
        (12, 4),
        (4, 4),
        (4, 3),
    ]
    for lin in model.lin_out.lins[:-1]:
        z = torch.nn.functional.elu(z @ lin.weight.t() + lin.bias)
    last = model.lin_out.lins[-1]
    torch.testing.assert_close(model(x, EDGES), z @ last.weight.t() + last.bias)
    assert all(conv.scale == 1.0 for conv in model.convs)
    assert model.lin_out.dropout[:2] == [0.5, 0.5]


def test_without_a_graph():
    model, plain = (make(relational_order=order).eval() for order in (2, 0))
    plain.load_state_dict(model.state_dict(), strict=False)
    x = torch.randn(8, 6, dtype=torch.float64)
    torch.testing.assert_close(model(x, None), plain(x, None))
    assert not torch.allclose(model(x, None), model(x, EDGES))


@pytest.mark.parametrize('order', [0, 1])
def test_no_graph_is_a_graph_without_edges(order):
    model, x = make(relational_order=order).eval(), torch.randn(8, 6, dtype=torch.float64)
    expected = model(x, torch.empty(2, 0, dtype=torch.long)) if order == 0 else model(x, None)
    out, loss = model(x, None, return_edge_loss=True)
    torch.testing.assert_close(out, expected)
    assert loss == 0


@pytest.mark.parametrize('order', [0, 2])
def test_edge_loss_is_the_mean_over_layers(order):
    """Of the graph's edges without a relational bias, with one of those of its first order."""
    model = make(relational_order=order).eval()
    x = torch.randn(8, 6, dtype=torch.float64, requires_grad=True)
    batch = torch.tensor([0, 1, 0, 0, 1, 1, 1, 0])
    out, loss = model(x, EDGES, batch, return_edge_loss=True)
    torch.testing.assert_close(out, model(x, EDGES, batch))
    edges = model.hops(EDGES, 8)[0].edge_index if order > 0 else EDGES
    layers = model.layers(x, GraphContext(model.hops(EDGES, 8) if order > 0 else EDGES, batch))
    parts = []
    for conv, z in zip(model.convs, layers, strict=False):
        q, k = (lin(z).unflatten(1, (2, 4)) for lin in (conv.lin_query, conv.lin_key))
        phi = [conv.feature_map(part * 4**-0.25) for part in (q, k)]
        weight = torch.einsum('ihm,jhm->ijh', *phi) * (batch[:, None] == batch[None])[..., None]
        log = (weight / weight.sum(1, keepdim=True))[edges[1], edges[0]].log()
        parts.append(edge_regularization(log, edges, 8))
    torch.testing.assert_close(loss, torch.stack(parts).mean())
    assert torch.autograd.grad(loss, x)[0].abs().max() > 0


@pytest.mark.parametrize('order', [0, 1])
def test_repeated_edges_count_once_in_the_edge_loss(order):
    model, x = make(relational_order=order).eval(), torch.randn(8, 6, dtype=torch.float64)
    expected = model(x, EDGES, return_edge_loss=True)
    repeated = torch.cat([EDGES[:, :3], EDGES, EDGES[:, 2:4]], 1)
    for edges in (repeated, sorted_edges(repeated, 8, 8)):
        torch.testing.assert_close(model(x, edges, return_edge_loss=True), expected)


def test_noise_in_training_only():
    model, x = make(), torch.randn(8, 6, dtype=torch.float64)
    assert not torch.equal(model(x, EDGES), model(x, EDGES))
    model.eval()
    assert torch.equal(model(x, EDGES), model(x, EDGES))


def test_attention_scores_of_each_layer():
    model, x = make().eval(), torch.randn(8, 6, dtype=torch.float64)
    pairs = torch.cartesian_prod(torch.arange(8), torch.arange(8)).t()
    scores = model.attention_scores(x, EDGES, pairs)
    assert [score.shape for score in scores] == [(64, 2), (64, 2)]
    for score in scores:
        torch.testing.assert_close(
            score.view(8, 8, 2).sum(0), torch.ones(8, 2, dtype=torch.float64)
        )


def test_trains_on_separable_classes():
    model, x = NodeFormer(6, 8, 2, num_features=16, dropout=0.1), torch.randn(60, 6)
    y, edges = (x[:, 0] > 0).long(), torch.randint(60, (2, 200))
    edges = edges[:, y[edges[0]] == y[edges[1]]]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(60):
        optimizer.zero_grad()
        out, loss = model(x, edges, return_edge_loss=True)
        (torch.nn.functional.cross_entropy(out, y) + 0.1 * loss).backward()
        optimizer.step()
    assert (model.eval()(x, edges).argmax(1) == y).float().mean() > 0.95


def test_repr_and_errors():
    assert repr(make()) == 'NodeFormer(6, 4, 3, num_layers=2)'
    with pytest.raises(ValueError, match="'num_layers' must be at least 1"):
        make(num_layers=0)
    with pytest.raises(ValueError, match="'num_readout_layers' must be at least 1"):
        make(num_readout_layers=0)
    with pytest.raises(ValueError, match="'dropout' must be at least 0"):
        make(dropout=1.0)
    with pytest.raises(ValueError, match="'hidden_channels' must be at least 1"):
        NodeFormer(6, 0, 3)
    with pytest.raises(ValueError, match="'x' must have shape"):
        make()(torch.randn(8, 5), EDGES)


@pytest.mark.parametrize('order', [1, 2])
@pytest.mark.compiled
# numbers as symbols would trace each graph twice
@torch._dynamo.config.patch(specialize_float=True)
def test_compiles_with_given_hops_and_without_at_the_first_order(order):
    model = NodeFormer(8, 8, 3, num_layers=1, relational_order=order)
    x, edge_index = torch.randn(12, 8), torch.randint(12, (2, 30))
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend='aot_eager')
    model.eval()
    torch.testing.assert_close(compiled(x, model.hops(edge_index, 12)), model(x, edge_index))
    if order == 1:
        torch.testing.assert_close(compiled(x, edge_index), model(x, edge_index))
    else:
        with pytest.raises(
            torch._dynamo.exc.Unsupported,
            match="give a compiled model what its method 'hops' returns",
        ):
            compiled(x, edge_index)
    torch.testing.assert_close(
        torch.compile(model, backend='aot_eager')(x, edge_index), model(x, edge_index)
    )


# the mean over layers is that of either source
@pytest.mark.parametrize(('source', 'num_layers'), [('value', 2), ('output', 1)])
@pytest.mark.compiled
# numbers as symbols would trace each graph twice
@torch._dynamo.config.patch(specialize_float=True)
def test_compiles_whole_with_edges_that_occur_again_in_batches_with_the_edge_loss(
    source, num_layers
):
    """Gradients too, over edges with self loops and pairs that occur again, in graphs of which one
    is empty."""
    model = make(num_layers=num_layers, relational_input=source).eval()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend='aot_eager')
    for num_nodes in (9, 14, 31):
        batch = torch.tensor([0, 1, 3])[torch.randint(3, (num_nodes,))]
        edges = torch.randint(num_nodes, (2, 5 * num_nodes))
        edges = edges[:, batch[edges[0]] == batch[edges[1]]]
        edges = torch.cat([edges, edges[:, :4], torch.zeros(2, 3, dtype=torch.long)], 1)
        x = torch.randn(num_nodes, 6, dtype=torch.float64, requires_grad=True)
        results = []
        for run in (model, compiled):
            out, loss = run(x, edges, batch, 4, return_edge_loss=True)
            grads = gradients(out.square().sum() + loss, leaves_of(model, x=x))
            results.append({'out': out, 'loss': loss, **grads})
        torch.testing.assert_close(*results)
