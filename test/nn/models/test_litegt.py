from functools import partial

import pytest
import torch
from definitions import defined
from gradients import gradients, leaves_of
from torch_geometric.utils import barabasi_albert_graph

from torch_geometric_lgt.functional import jaccard
from torch_geometric_lgt.nn import LiteGT

EDGES = barabasi_albert_graph(30, 3)
JACCARD = jaccard(EDGES, 30)
MASK = torch.arange(30) % 3 == 0


@pytest.mark.parametrize(
    ('options', 'count', 'published'),
    [
        ({'kernel': ('softmax', 'softmax'), 'num_layers': 10}, 523_062, 522_982),
        ({'kernel': 'jaccard'}, 368_182, 368_150),
        ({'kernel': 'jaccard', 'reduce': True}, 218_424, 218_392),
        ({'kernel': 'subtractor'}, 419_382, 419_430),
        ({'kernel': 'subtractor', 'reduce': True}, 248_376, 248_424),
    ],
    ids=str,
)
def test_as_many_parameters_as_published_for_pattern(options, count, published):
    """The 80 more are the bias of the input layer, an embedding of tokens without bias there. The
    authors' code has a matrix of the scores of heads, 4 x 4 or 8 x 8, that it does not use, and the
    published counts have one number more for each head with scores in each of 8 layers."""
    model = LiteGT(3, 80, 2, pe_channels=2, **{'num_layers': 8, **options})
    heads = {'jaccard': 4, 'subtractor': 8}.get(options['kernel'], 0)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert count == published + 80 - heads**2 - 8 * heads


@pytest.mark.parametrize(
    ('options', 'count', 'published'),
    [
        ({'kernel': ('softmax', 'softmax'), 'num_layers': 10}, 524_106, 524_026),
        ({'kernel': 'jaccard'}, 550_986, 550_970),
        ({'kernel': 'jaccard', 'reduce': True}, 401_172, 401_156),
        ({'kernel': 'subtractor'}, 627_786, 627_866),
        ({'kernel': 'subtractor', 'reduce': True}, 456_724, 456_804),
    ],
    ids=str,
)
def test_as_many_parameters_as_published_for_cluster(options, count, published):
    model = LiteGT(7, 80, 6, pe_channels=10, **{'num_layers': 12, **options})
    heads = {'jaccard': 4, 'subtractor': 8}.get(options['kernel'], 0)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert count == published + 80 - heads**2 - 12 * heads


@pytest.mark.parametrize(
    ('options', 'count', 'published'),
    [
        ({'kernel': ('softmax', 'softmax'), 'num_layers': 10}, 893_482, 932_602),
        ({'kernel': 'jaccard'}, 744_522, 760_970),
        ({'kernel': 'jaccard', 'reduce': True}, 544_150, 547_214),
        ({'kernel': 'subtractor'}, 1_075_242, 1_114_378),
        ({'kernel': 'subtractor', 'reduce': True}, 798_014, 807_582),
    ],
    ids=str,
)
def test_as_many_parameters_as_published_for_tsp(options, count, published):
    """Fewer than published by the update of the edges in the last layer, which the output does not
    read, by a matrix of the scores of all channels that the authors' code does not use, and by one
    number for each head with scores in each layer. GT has a linear map of 80 channels more."""
    model = LiteGT(
        2, 80, 2, pe_channels=8, level='edge', edge_channels=1, **{'num_layers': 12, **options}
    )
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    last = sum(parameter.numel() for parameter in model.layers[-2].edge_update.parameters())
    unused = {'jaccard': 40 * 40 + 12 * 4, 'subtractor': 80 * 80 + 12 * 8}
    assert published == count + last + unused.get(options['kernel'], 80 * 80 + 80)


@pytest.mark.parametrize('kernel', ['jaccard', 'subtractor', ('softmax', 'softmax')], ids=str)
def test_edges_match_the_dense_layers(kernel):
    """Outputs, attention scores and all gradients, in training, with dropout switched off."""
    model = LiteGT(5, 16, 3, 4, 4, kernel, reduce=True, level='edge', edge_channels=2).double()
    dense_model = defined(model)
    x, edge_attr = torch.randn(30, 5).double(), torch.randn(EDGES.size(1), 2).double()
    inputs = {'edge_jaccard': JACCARD.double(), 'sampled_mask': MASK}
    results = []
    for network in (model, dense_model):
        node, edge = (part.clone().requires_grad_() for part in (x, edge_attr))
        out = network(node, EDGES, edge_attr=edge, **inputs)
        grads = gradients(out.square().sum(), leaves_of(network, x=node, edge_attr=edge))
        results.append({'out': out, **grads})
    torch.testing.assert_close(*results, rtol=1e-8, atol=1e-8)
    scores = model.eval().attention_scores(x, EDGES, edge_attr=edge_attr, **inputs)
    assert [score.shape for score in scores] == [(EDGES.size(1), 4)] * 4
    others = model.attention_scores(x, EDGES, edge_attr=2 * edge_attr, **inputs)
    assert not any(torch.equal(*pair) for pair in zip(scores, others, strict=True))


def test_edge_updates_by_hand():
    model = LiteGT(5, 8, 3, 2, 4, edge_channels=2).eval()
    x, edge_attr = torch.randn(30, 5), torch.randn(EDGES.size(1), 2)
    x_1, e_1 = model.lin_in(x), model.lin_edge(edge_attr)
    assert e_1.shape == (EDGES.size(1), 4)
    first, second = model.layers
    out, score = first.conv(x_1, EDGES, JACCARD, edge_attr=e_1, return_edge_scores=True)
    x_2 = first.norms[0](x_1 + first.lin_attention(out))
    x_2 = first.norms[1](x_2 + first.feed_forward(x_2))
    update = first.edge_update
    e_2 = update.norms[0](e_1 + update.lin_scores(score))
    e_2 = update.norms[1](e_2 + update.feed_forward(e_2))
    assert second.edge_update is None
    assert update.feed_forward.channel_list == [4, 16, 4]
    scores = model.attention_scores(x, EDGES, edge_jaccard=JACCARD, edge_attr=edge_attr)
    for actual, layer, z, e in zip(scores, model.layers, (x_1, x_2), (e_1, e_2), strict=True):
        expected = layer.conv.attention_scores(z, EDGES, JACCARD, edge_attr=e)
        torch.testing.assert_close(actual, expected)


def test_features_of_edges_reach_all_parameters_and_stay_in_their_graph():
    x, batch = torch.randn(30, 5), torch.arange(30) // 10
    inside = EDGES[:, batch[EDGES[0]] == batch[EDGES[1]]]
    index, edge_attr = jaccard(inside, 30), torch.randn(inside.size(1), 2)
    model = LiteGT(5, 16, 3, 4, 4, reduce=True, level='graph', edge_channels=2, dropout=0.1)
    inputs = {'edge_jaccard': index, 'edge_attr': edge_attr}
    model(x, inside, batch, **inputs).square().sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    together = model.eval()(x, inside, batch, **inputs)
    order = torch.randperm(inside.size(1))
    shuffled = {name: value[order] for name, value in inputs.items()}
    torch.testing.assert_close(model(x, inside[:, order], batch, **shuffled), together)
    for graph in range(3):
        mine = batch[inside[0]] == graph
        alone = model(
            x[batch == graph],
            inside[:, mine] - 10 * graph,
            **{name: value[mine] for name, value in inputs.items()},
        )
        torch.testing.assert_close(alone[0], together[graph])


@pytest.mark.compiled
# numbers as symbols would trace each graph twice
@torch._dynamo.config.patch(specialize_float=True)
def test_features_of_edges_compile_without_a_break():
    model = LiteGT(5, 8, 3, 2, 2, edge_channels=2).eval()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend='aot_eager')
    x, edge_attr = torch.randn(30, 5), torch.randn(EDGES.size(1), 2)
    inputs = {'edge_jaccard': JACCARD, 'edge_attr': edge_attr, 'sampled_mask': MASK}
    expected = model(x, EDGES, None, 1, **inputs)
    torch.testing.assert_close(compiled(x, EDGES, None, 1, **inputs), expected)


def test_layers_by_hand():
    model = LiteGT(5, 8, 3, 2, 4, pe_channels=2).eval()
    x = torch.randn(30, 5)
    pe = torch.randn(30, 2)
    out = model.lin_in(x) + model.lin_pe(pe)
    for layer in model.layers:
        out = layer.norms[0](out + layer.lin_attention(layer.conv(out, EDGES, JACCARD, MASK)))
        first, second = layer.feed_forward.lins
        out = layer.norms[1](out + second(torch.relu(first(out))))
    for lin in model.lin_out.lins[:-1]:
        out = torch.relu(lin(out))
    out = model.lin_out.lins[-1](out)
    torch.testing.assert_close(
        model(x, EDGES, laplacian_pe=pe, edge_jaccard=JACCARD, sampled_mask=MASK), out
    )


def test_the_last_layers_are_narrower():
    model = LiteGT(5, 80, 3, num_layers=6, reduce=True)
    assert [layer.conv.out_channels for layer in model.layers] == [80, 80, 40, 40, 24, 24]
    assert [layer.conv.heads for layer in model.layers] == [8] * 6
    out = model(torch.randn(30, 5), EDGES, edge_jaccard=JACCARD)
    assert out.shape == (30, 3)
    out.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_scores_of_edges_and_graphs():
    x, batch = torch.randn(30, 5), torch.arange(30) // 10
    inside = EDGES[:, batch[EDGES[0]] == batch[EDGES[1]]]
    index = jaccard(inside, 30)
    model = LiteGT(5, 8, 3, 2, 4, level='graph').eval()
    together = model(x, inside, batch, edge_jaccard=index)
    for graph in range(3):
        mine = batch[inside[0]] == graph
        alone = model(x[batch == graph], inside[:, mine] - 10 * graph, edge_jaccard=index[mine])
        torch.testing.assert_close(alone[0], together[graph])
    largest = LiteGT(5, 8, 3, 2, 4, level='graph', aggr='max').eval()
    largest.load_state_dict(model.state_dict())
    summed = LiteGT(5, 8, 3, 2, 4, level='graph', aggr='sum').eval()
    summed.load_state_dict(model.state_dict())
    for pooled in (largest, summed):
        assert not torch.allclose(pooled(x, inside, batch, edge_jaccard=index), together)
    with pytest.raises(ValueError, match="'aggr' must be 'mean' unless 'level' is 'graph'"):
        LiteGT(5, 8, 3, 2, 4, aggr='max')
    model = LiteGT(5, 8, 3, 2, 4, level='edge').eval()
    out = model(x, EDGES, edge_jaccard=JACCARD)
    assert out.shape == (EDGES.size(1), 3)
    reverse = {(int(i), int(j)): value for i, j, value in zip(*EDGES, out, strict=True)}
    one, other = EDGES[:, 0].tolist()
    assert not torch.allclose(reverse[one, other], reverse[other, one])


def test_attention_scores_of_each_layer():
    model, x = LiteGT(5, 80, 3, 4, reduce=True).eval(), torch.randn(30, 5)
    scores = model.attention_scores(x, EDGES, edge_jaccard=JACCARD, sampled_mask=MASK)
    assert [score.size(1) for score in scores] == [8] * 4
    first = model.reductions[0](model.lin_in(x))
    torch.testing.assert_close(
        scores[0], model.layers[0].conv.attention_scores(first, EDGES, JACCARD, MASK)
    )
    for score in scores:
        total = torch.zeros(30, score.size(1)).index_add_(0, EDGES[1], score)
        torch.testing.assert_close(total, torch.ones_like(total))


@pytest.mark.parametrize('name', ['forward', 'attention_scores'])
@pytest.mark.parametrize(
    ('x', 'edge_index', 'message'),
    [
        ([1.0], torch.zeros(2, 1).long(), r"'x' must be a torch.Tensor \(got list\)"),
        (torch.ones(3, 4), None, "'edge_index' must be given; each node attends to its"),
        (
            torch.ones(3, 4),
            torch.zeros(3).long(),
            r'\(got \(3,\)\); give the batch vector as batch=',
        ),
    ],
)
def test_scores_check_features_and_edges_as_forward_does(name, x, edge_index, message):
    model = LiteGT(4, 16, 2, num_layers=1, heads=2, kernel='subtractor')
    with pytest.raises((TypeError, ValueError), match=message):
        getattr(model, name)(x, edge_index)


def test_dropout_acts_in_training_only():
    model, x = LiteGT(5, 8, 3, 2, 4, dropout=0.5), torch.randn(30, 5)
    results = [model(x, EDGES, edge_jaccard=JACCARD) for _ in range(2)]
    assert not torch.equal(*results)
    model.eval()
    assert torch.equal(*[model(x, EDGES, edge_jaccard=JACCARD) for _ in range(2)])


def test_dropout_by_hand():
    dropout = partial(torch.nn.functional.dropout, p=0.5)

    def feed_forward(part, z):
        return dropout(part.lins[1](dropout(part.lins[0](z).relu())))

    layer = LiteGT(5, 8, 3, 2, 4, edge_channels=2, dropout=0.5).layers[0]
    update, x, e = layer.edge_update, torch.randn(30, 8), torch.randn(EDGES.size(1), 4)
    torch.manual_seed(1)
    actual = layer(x, EDGES, JACCARD, None, e)
    torch.manual_seed(1)
    out, scores = layer.conv(x, EDGES, JACCARD, edge_attr=e, return_edge_scores=True)
    e = update.norms[0](e + dropout(update.lin_scores(dropout(scores))))
    e = update.norms[1](e + feed_forward(update.feed_forward, e))
    x = layer.norms[0](x + dropout(layer.lin_attention(dropout(out))))
    x = layer.norms[1](x + feed_forward(layer.feed_forward, x))
    torch.testing.assert_close(actual, (x, e))


def test_narrow_heads_have_weights():
    model = LiteGT(5, 2, 3, 1, 2)
    assert [lin.out_channels for lin in model.lin_out.lins] == [1, 1, 3]
    assert all(parameter.abs().max() <= 1 for parameter in model.lin_out.parameters())


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'level': 'pair'}, "'level' must be one of"),
        ({'num_layers': 0}, "'num_layers' must be at least 1"),
        ({'num_layers': 3, 'reduce': True}, "'num_layers' must be at least 4"),
        ({'heads': 6}, r"^'heads' must divide 'hidden_channels' \(got 6 and 16\)"),
        ({'reduce': True}, r"'heads' must divide .* 8 and 4 of 'hidden_channels' \(got 8 and 16\)"),
        ({'hidden_channels': 2, 'heads': 1, 'reduce': True}, r'1 and 0 .* \(got 1 and 2\)'),
        ({'dropout': 1.0}, "'dropout' must be"),
        ({'pe_channels': -1}, "'pe_channels' must be at least 0"),
        ({'edge_channels': -1}, "'edge_channels' must be at least 0"),
        ({'kernel': ('mean', 'jaccard'), 'edge_channels': 1}, "'edge_channels' must be 0"),
        ({'out_channels': 0}, "'out_channels' must be at least 1"),
    ],
)
def test_raises_when_made(options, message):
    with pytest.raises(ValueError, match=message):
        LiteGT(**{'in_channels': 5, 'hidden_channels': 16, 'out_channels': 3, **options})


def test_raises_when_run():
    model, x = LiteGT(5, 8, 3, 2, 4, pe_channels=2), torch.randn(30, 5)
    with pytest.raises(ValueError, match=r'add it to the data with LaplacianPE\(2\)'):
        model(x, EDGES, edge_jaccard=JACCARD)
    with pytest.raises(ValueError, match=r"'x' must have shape \[N, 5\]"):
        model(x[:, 1:], EDGES, edge_jaccard=JACCARD)
    with pytest.raises(
        ValueError, match="'laplacian_pe' must be None for a model with 'pe_channels' = 0"
    ):
        LiteGT(5, 8, 3)(x, EDGES, laplacian_pe=torch.randn(30, 2), edge_jaccard=JACCARD)
    with pytest.raises(TypeError, match=r"^'laplacian_pe' must be a torch.Tensor \(got ndarray\);"):
        model(x, EDGES, laplacian_pe=torch.randn(30, 2).numpy(), edge_jaccard=JACCARD)
    edges = {'edge_jaccard': JACCARD, 'edge_attr': torch.randn(EDGES.size(1), 2)}
    with pytest.raises(ValueError, match="'edge_attr' must be None for a model"):
        LiteGT(5, 8, 3)(x, EDGES, **edges)
    with pytest.raises(ValueError, match=r"'edge_attr' must have shape \(\d+, 3\)"):
        LiteGT(5, 8, 3, edge_channels=3)(x, EDGES, **edges)
    assert repr(model) == "LiteGT(5, 8, 3, num_layers=2, kernel='jaccard')"


@pytest.mark.parametrize('level', ['node', 'edge', 'graph'])
@pytest.mark.parametrize(
    ('batch', 'error'),
    [
        (torch.rand(EDGES.size(1)), ValueError),
        (torch.rand(30), ValueError),
        (torch.zeros(29, dtype=torch.long), ValueError),
        (torch.arange(30) - 1, ValueError),
        ([0] * 30, TypeError),
    ],
    ids=['weights', 'fractions', 'short', 'negative', 'list'],
)
def test_a_batch_vector_that_is_none_is_refused_at_every_level(level, batch, error):
    """Also where it makes no difference: weights of edges as the third argument are a slip."""
    model = LiteGT(5, 8, 3, 1, 2, level=level)
    with pytest.raises(error, match="'batch'"):
        model(torch.randn(30, 5), EDGES, batch, edge_jaccard=JACCARD)


def test_a_graph_without_nodes_is_the_same_in_a_batch():
    model = LiteGT(5, 8, 3, 1, 2, level='graph').eval()
    x = torch.empty(0, 5)
    none = torch.empty(2, 0, dtype=torch.long)
    alone = model(x, none, edge_jaccard=torch.empty(0))
    assert alone.isfinite().all()
    torch.testing.assert_close(
        alone, model(x, none, torch.empty(0, dtype=torch.long), 1, edge_jaccard=torch.empty(0))
    )
