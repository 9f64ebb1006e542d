import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from torch_geometric.data import HeteroData

from torch_geometric_lgt.nn import MGFormer
from torch_geometric_lgt.testing import dense
from torch_geometric_lgt.transforms import SVDEncoding

USERS, ITEMS, N = 7, 5, 12
EDGES = torch.tensor([[0, 0, 1, 2, 3, 3, 4, 5], [7, 8, 7, 9, 10, 7, 8, 11]])


def make(**arguments):
    arguments = {'structural_encoding': torch.randn(N, 4), 'degree': torch.arange(N) % 4, 'embedding_dim': 4, **arguments}
    return MGFormer(USERS, ITEMS, **arguments).double()


def definition(model):
    """One layer, one head: Eq. 4-12 as they read, plus the residual."""
    (layer,) = model.layers
    x = model.embedding.weight
    if model.structural_encoding is not None:
        x = torch.cat([x, model.structural_encoding.double()], 1)
    scale = layer.head_key_channels**-0.25
    phi_q, phi_k = (
        dense.feature_map('softmax', scale * lin(x)[:, None], layer.feature_map.projection) for lin in (layer.lin_query, layer.lin_key)
    )
    mask = None
    if model.mask == 'degree':
        z = layer.lin_degree(layer.degree_embedding(model.degree)).sigmoid().squeeze(1)
        mask = dense.degree_mask(z, z)
    elif model.mask == 'adjacency':
        mask = torch.zeros(N, N, dtype=torch.float64)
        mask[EDGES[1], EDGES[0]] = 1
    return dense.kernel_attention(phi_q, phi_k, x[:, None], mask).squeeze(1) + (x if model.residual else 0)


@pytest.mark.parametrize('residual', [True, False])
@pytest.mark.parametrize('arguments', [{}, {'structural_encoding': None}, {'key_channels': 3}])
@pytest.mark.parametrize('mask', ['degree', 'adjacency', 'none'])
def test_matches_the_definition_with_gradients(mask, arguments, residual):
    model = make(mask=mask, residual=residual, **arguments)
    nodes = torch.tensor([3, 11, 0, 7, 3])
    actual, expected = model.get_embedding(EDGES, nodes), definition(model)[nodes]
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(model.get_embedding(EDGES)[nodes], actual, rtol=1e-10, atol=1e-10)
    grad = torch.randn_like(actual)
    parameters = list(model.parameters())
    for one, other in zip(*(torch.autograd.grad(out, parameters, grad) for out in (actual, expected)), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize('mask', ['degree', 'none'])
def test_states_give_the_same_rows(mask):
    model = make(mask=mask, num_layers=3)
    states, expected = model.attention_states(), model.get_embedding()
    nodes = torch.tensor([9, 2, 2])
    torch.testing.assert_close(model.get_embedding(states=states), expected)
    actual = model.get_embedding(nodes=nodes, states=states)
    torch.testing.assert_close(actual, expected[nodes])
    grad, parameters = torch.randn_like(actual), list(model.parameters())
    for one, other in zip(*(torch.autograd.grad(out, parameters, grad) for out in (actual, expected[nodes])), strict=True):
        torch.testing.assert_close(one, other)
    cut = model.get_embedding(nodes=nodes, states=[state.detach() for state in states])
    (gradient,) = torch.autograd.grad(cut.sum(), model.embedding.weight)
    assert gradient.abs().sum(1).nonzero().flatten().tolist() == [2, 9]
    with pytest.raises(ValueError, match="'mask' must be 'degree' or 'none' for states"):
        make(mask='adjacency').attention_states(EDGES)


def test_without_layers():
    model = make(num_layers=0)
    x = torch.cat([model.embedding.weight, model.structural_encoding], 1)
    nodes = torch.tensor([4, 4, 0])
    assert torch.equal(model.get_embedding(), x)
    assert torch.equal(model.get_embedding(nodes=nodes), x[nodes])
    assert model.attention_states() == []
    assert torch.equal(model.get_embedding(nodes=nodes, states=[]), x[nodes])


def test_scores_and_recommendations():
    model = make(num_layers=2, heads=2)
    out = model.get_embedding()
    scores = out[:USERS] @ out[USERS:].t()
    pairs = torch.tensor([[0, 6, 0], [7, 11, 9]])
    torch.testing.assert_close(model(edge_label_index=pairs), scores[pairs[0], pairs[1] - USERS])
    torch.testing.assert_close(model(EDGES), scores[EDGES[0], EDGES[1] - USERS])
    torch.testing.assert_close(model.predict_link(EDGES, prob=True), model(EDGES).sigmoid())
    assert set(model.predict_link(EDGES).tolist()) <= {0.0, 1.0}
    assert torch.equal(model.recommend(k=3), scores.topk(3).indices + USERS)
    chosen = torch.tensor([11, 8])
    assert torch.equal(
        model.recommend(src_index=torch.tensor([2]), dst_index=chosen, k=2)[0], chosen[scores[2, chosen - USERS].argsort(descending=True)]
    )
    loss = model.recommendation_loss(torch.tensor([2.0]), torch.tensor([1.0]), torch.tensor([0]), 0.5)
    expected = torch.log1p(torch.tensor(-1.0).exp()).item() + 0.5 * model.embedding.weight[0].square().sum().item()
    assert loss.item() == pytest.approx(expected)
    assert model.link_pred_loss(torch.zeros(2), torch.tensor([0, 1])).item() == pytest.approx(0.693147, abs=1e-6)


def test_degrees_are_counted_from_edges():
    model = make(degree=None)
    reference = make(degree=torch.bincount(EDGES.flatten(), minlength=N), structural_encoding=model.structural_encoding)
    reference.load_state_dict(model.state_dict(), strict=False)
    torch.testing.assert_close(model.get_embedding(EDGES), reference.get_embedding())


def test_from_data():
    data = HeteroData()
    data['user'].num_nodes, data['item'].num_nodes = USERS, ITEMS
    edges = EDGES - torch.tensor([[0], [USERS]])
    data['user', 'rates', 'item'].edge_index = torch.cat([edges, edges[:, :1]], 1)
    data['item', 'rev_rates', 'user'].edge_index = edges.flip(0)
    model = MGFormer.from_data(SVDEncoding(3)(data), 4, mask='degree')
    assert repr(model) == 'MGFormer(7, 5, 4, num_layers=1)'
    assert torch.equal(model.degree, torch.bincount(EDGES.flatten(), minlength=N))
    assert model.layers[0].max_degree == 3
    data = SVDEncoding(3)(data)
    encoding = torch.cat([store.svd_pe for store in data.node_stores])
    lengths = encoding.norm(dim=1, keepdim=True)
    torch.testing.assert_close(model.structural_encoding, torch.where(lengths > 0, 0.6 * encoding / lengths, 0))
    assert torch.equal(MGFormer.from_data(data, 4, encoding_scale=None).structural_encoding, encoding)
    assert MGFormer.from_data(data, 4, attr_name='other').structural_encoding is None


def test_queries_of_a_batch_only():
    """The last layer's query side costs as many flops as the nodes asked for."""
    model = make().float()
    flops = {}
    for count in (2, 4, 12):
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model.get_embedding(nodes=torch.arange(count))
        flops[count] = counter.get_total_flops()
    assert flops[12] - flops[4] == 4 * (flops[4] - flops[2])
    assert flops[4] > flops[2]


@pytest.mark.parametrize('mask', ['degree', 'none'])
@pytest.mark.compiled
def test_compiles_whole(mask):
    model = make(mask=mask).float()
    nodes = torch.tensor([1, 8])
    compiled = torch.compile(model.get_embedding, fullgraph=True)
    torch.testing.assert_close(compiled(nodes=nodes), model.get_embedding(nodes=nodes))


def test_reset_and_state_dict():
    torch.manual_seed(0)
    one = make()
    torch.manual_seed(0)
    other = make()
    assert all(torch.equal(a, b) for a, b in zip(one.state_dict().values(), other.state_dict().values(), strict=True))
    other.reset_parameters()
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.get_embedding(), other.get_embedding())


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({'embedding_dim': 0}, "'embedding_dim' must be at least 1"),
        ({'num_layers': -1}, "'num_layers' must be at least 0"),
        ({'mask': 'distance'}, "'mask' must be one of"),
        ({'structural_encoding': torch.ones(N - 1, 2)}, r"'structural_encoding' must have shape \[12, S\]"),
        ({'degree': torch.ones(N, 1, dtype=torch.long)}, r"'degree' must have shape \[12\]"),
    ],
)
def test_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        make(**arguments)


def test_raises_without_edges():
    model = make(degree=None)
    with pytest.raises(ValueError, match=r"'degree' must be in the model, from MGFormer\.from_data or as an argument"):
        model.get_embedding()
    with pytest.raises(ValueError, match="'mask' = 'adjacency'"):
        make(mask='adjacency').get_embedding()
    with pytest.raises(ValueError, match="'edge_label_index' must be given"):
        model()
    with pytest.raises(ValueError, match='two node types'):
        MGFormer.from_data(HeteroData())


@pytest.mark.parametrize('mask', ['degree', 'adjacency', 'none'])
def test_ids_and_masks_of_nodes(mask):
    model = make(mask=mask).eval()
    edges = torch.cat([EDGES, EDGES.flip(0)], 1)
    full = model.get_embedding(edges)
    chosen = torch.arange(N) % 5 == 3
    torch.testing.assert_close(model.get_embedding(edges, chosen), full[chosen])
    top = model.recommend(edges, torch.tensor([2]), chosen, k=2)
    assert sorted(top[0].tolist()) == [3, 8]
    for nodes in (torch.tensor([-1]), torch.tensor([N])):
        for method, name in ((model.get_embedding, 'nodes'), (model.recommend, 'src_index'), (model.recommend, 'dst_index')):
            with pytest.raises(ValueError, match=rf"'{name}' must hold ids from 0 to {N - 1} \(got {int(nodes)} to {int(nodes)}\)"):
                method(edges, **{name: nodes})
    for nodes in (chosen[1:], torch.ones(2), torch.ones(2, 1, dtype=torch.long)):
        with pytest.raises(ValueError, match="'nodes' must hold ids of nodes or be a mask of all"):
            model.get_embedding(edges, nodes)
