import pytest
import torch
import torch_geometric
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import GCN, BatchNorm
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from torch_geometric_lgt.functional import sorted_edges
from torch_geometric_lgt.nn import SGFormer
from torch_geometric_lgt.nn.models._around import Around

EDGES = torch.tensor([[0, 2, 3, 1, 4, 5], [2, 3, 7, 4, 5, 6]])
BATCH = torch.tensor([0, 0, 0, 0, 1, 1, 1, 0])


@pytest.mark.parametrize('aggregate', ['add', 'cat'])
@pytest.mark.parametrize('gnn_input', ['hidden', 'input'])
def test_branches_by_hand(aggregate, gnn_input):
    options = {'alpha': 0.7, 'beta': 0.4, 'aggregate': aggregate, 'gnn_input': gnn_input}
    model, x = SGFormer(6, 4, 3, **options).double().eval(), torch.randn(8, 6, dtype=torch.float64)
    first = torch.relu(model.norms[0](model.lin_in(x)))
    z = model.norms[1](0.4 * model.convs[0](first) + 0.6 * first)
    local = model.gnn(first if gnn_input == 'hidden' else x, *gcn_norm(EDGES, None, 8, dtype=torch.float64))
    z = torch.cat([z, local], 1) if aggregate == 'cat' else 0.3 * z + 0.7 * local
    torch.testing.assert_close(model(x, EDGES), model.lin_out(z))


def test_default_network_is_the_gcn_of_pyg_without_its_messages():
    """Outputs, gradients and names of parameters; nothing of the size of edges times channels is kept."""
    edges, saved = torch.randint(40, (2, 900)), []
    model = SGFormer(5, 8, 3, gnn_num_layers=3, gnn_dropout=0.0, dropout=0.5).double().eval()
    plain = GCN(8, 8, 3, 8, norm='batch_norm').double().eval()
    plain.load_state_dict(model.gnn.state_dict())
    x = torch.randn(40, 8, dtype=torch.float64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor.numel()) or tensor, lambda tensor: tensor):
        out = model.gnn(x, *model._local_edges(edges, 40, None, x.dtype))
    expected, grad = plain(x, edges), torch.randn(40, 8, dtype=torch.float64)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    leaves = (x, *model.gnn.parameters()), (x, *plain.parameters())
    pairs = zip(torch.autograd.grad(out, leaves[0], grad), torch.autograd.grad(expected, leaves[1], grad), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)
    assert max(saved) < 940 * 8
    assert model.gnn.dropout.p == 0
    assert SGFormer(5, 8, 3, dropout=0.5).gnn.dropout.p == 0.5


@pytest.mark.parametrize(('gnn_input', 'layer_norm'), [('hidden', True), ('input', False)])
def test_residual_local_branch_by_hand(gnn_input, layer_norm):
    options = {'gnn_input': gnn_input, 'layer_norm': layer_norm, 'alpha': 1.0, 'gnn_num_layers': 2, 'dropout': 0.5}
    model = SGFormer(6, 4, 3, gnn_residual=True, **options).double()
    x, weights = torch.randn(8, 6, dtype=torch.float64), gcn_norm(EDGES, None, 8, dtype=torch.float64)
    model(x, EDGES)  # means and variances that are not 0 and 1
    model.eval()
    z = model.layers(x, Around(None))[0] if gnn_input == 'hidden' else x
    assert layer_norm == isinstance(model.gnn.norms[-1], BatchNorm)
    for conv, norm in zip(model.gnn.convs, model.gnn.norms, strict=True):
        out = norm(conv(z, *weights)).relu()
        z = out + z if z.size(1) == 4 else out
    torch.testing.assert_close(model(x, EDGES), model.lin_out(z))


def test_local_branch_ignores_given_self_loops_and_can_be_explained():
    """Each node has one self loop, however many are given, and PyG's mask of an explanation has a place for each edge."""
    edges = torch.tensor([[0, 0, 1, 2, 2, 3], [0, 1, 2, 2, 2, 0]])
    model, x = SGFormer(4, 8, 3, alpha=1.0).eval(), torch.randn(4, 4)
    expected = model(x, edges)
    torch.testing.assert_close(expected, model(x, edges[:, edges[0] != edges[1]]))
    mask = torch.nn.Parameter(torch.full((6,), 40.0))
    set_masks(model, mask, edges)
    torch.testing.assert_close(model(x, edges), expected)
    set_masks(model, torch.nn.Parameter(torch.full((6,), -40.0)), edges)
    assert not torch.allclose(model(x, edges), expected)
    clear_masks(model)
    torch.testing.assert_close(model(x, edges), expected)


@pytest.mark.parametrize('normalize', [True, False])
def test_a_gcn_of_the_user_is_the_default_one(normalize):
    """Without weights of its own it gets those of the edges, from given degrees, too."""
    gnn = GCN(8, 8, 2, 8, normalize=normalize)
    model, x, edges = SGFormer(4, 8, 3, gnn=gnn, alpha=1.0).eval(), torch.randn(6, 4), torch.randint(6, (2, 9))
    expected = GCN(8, 8, 2, 8)
    expected.load_state_dict(gnn.state_dict())
    torch.testing.assert_close(model(x, edges), model.lin_out(expected(model.input_layer(x), edges)))
    torch.testing.assert_close(model(x, sorted_edges(edges, 6, 6)), model(x, edges))
    if not normalize:
        assert not torch.allclose(model(x, edges, degree=torch.full((6,), 9)), model(x, edges))


def test_nothing_is_normalised():
    model = SGFormer(6, 4, 3, gnn_num_layers=3, layer_norm=False)
    assert not any('norm' in type(module).__name__.lower() for module in model.modules())
    assert set(SGFormer(6, 4, 3, value_projection=False).state_dict()) < set(SGFormer(6, 4, 3).state_dict())
    assert SGFormer(6, 4, 3, value_projection=False).convs[0].lin_value is None


def test_any_network_over_the_edges():
    gnn = torch_geometric.nn.GAT(4, 4, num_layers=1)
    model = SGFormer(6, 4, 3, gnn=gnn)
    assert model.gnn is gnn
    before = gnn.convs[0].lin.weight.clone()
    model.reset_parameters()
    assert not torch.equal(gnn.convs[0].lin.weight, before)


@pytest.mark.skipif(not hasattr(torch_geometric.nn, 'SGFormer'), reason='PyG has it from 2.7 on')
def test_independent_of_the_batch_where_the_model_of_pyg_is_not():
    """The smaller graph of a batch of two, whose larger one changes its size."""
    x = torch.randn(8, 6)
    small, edges = BATCH == 1, EDGES[:, BATCH[EDGES[0]] == BATCH[EDGES[1]]]
    ours = SGFormer(6, 4, 3).eval()
    theirs = torch_geometric.nn.SGFormer(6, 4, 3).eval()
    found = []
    for model in (ours, theirs):
        own = torch.tensor([[0, 1], [1, 2]])  # 4 to 5 to 6
        together, alone = model(x, edges, BATCH)[small], model(x[small], own, torch.zeros(3, dtype=torch.long))
        found.append(float((together - alone).norm().detach() / alone.norm().detach()))
    assert found[0] < 1e-6
    assert found[1] > 1e-4


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'alpha': 1.1}, "'alpha' must be from 0 to 1"),
        ({'beta': -0.1}, "'beta' must be from 0 to 1"),
        ({'aggregate': 'max'}, "'aggregate' must be"),
        ({'gnn_input': 'x'}, "'gnn_input' must be"),
        ({'norm': 'max'}, "'norm' must be one of"),
    ],
)
def test_raises(options, message):
    with pytest.raises(ValueError, match=message):
        SGFormer(6, 4, 3, **options)
