import pytest
import torch
from definitions import heads_of
from gradients import assert_same_gradients, leaves_of
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_undirected

from torch_geometric_lgt.nn import DIFFormerConv
from torch_geometric_lgt.testing import dense

BATCH = torch.tensor([0, 2, 0, 0, 2, 2, 2, 0, 3, 3, 0, 2])
EDGES = torch.tensor([[0, 2, 3, 1, 4, 5, 9, 9], [2, 3, 7, 4, 5, 6, 8, 8]])
KINDS = [('simple', 'row'), ('simple', 'frobenius'), ('sigmoid', 'row')]


def attention(conv, q, k, v, batch_q=None, batch_k=None):
    if conv.kernel == 'sigmoid':
        return dense.sigmoid_attention(q, k, v, batch_q, batch_k).flatten(1)
    return dense.diffusion_attention(q, k, v, conv.norm, batch_q, batch_k).flatten(1)


def pairs(num_src, num_dst):
    return torch.cartesian_prod(torch.arange(num_src), torch.arange(num_dst)).t()


def test_hand_computed():
    """Row norms of one channel leave signs: the weights are 2 and 0; the graph adds half of the
    neighbour."""
    conv = DIFFormerConv(1, 1, graph_weight=0.5, bias=False)
    for lin in (conv.lin_query, conv.lin_key, conv.lin_value):
        torch.nn.init.ones_(lin.weight)
    x, edges = torch.tensor([[3.0], [5.0], [-1.0]]), torch.tensor([[0, 1], [1, 0]])
    torch.testing.assert_close(conv(x, edges), torch.tensor([[4 + 2.5], [4 + 1.5], [-1.0]]))


@pytest.mark.parametrize(('kernel', 'norm'), KINDS)
@pytest.mark.parametrize('graph_weight', [None, 0.7])
@pytest.mark.parametrize('value_projection', [True, False])
def test_matches_dense_with_gradients(kernel, norm, graph_weight, value_projection):
    """With edges against PyG's normalisation of the undirected graph."""
    width, options = (8 if value_projection else 6), {'value_projection': value_projection}
    conv = DIFFormerConv(
        6, width, 2, kernel, norm, graph_weight is not None, graph_weight or 1.0, **options
    ).double()
    x, edges = torch.randn(12, 6, dtype=torch.float64, requires_grad=True), to_undirected(EDGES)
    q, k, v = heads_of(conv, x)
    actual, expected = conv(x, edges, BATCH), attention(conv, q, k, v, BATCH, BATCH)
    if graph_weight is not None:
        (row, col), weight = gcn_norm(
            edges, num_nodes=12, add_self_loops=False, dtype=torch.float64
        )
        matrix = torch.zeros(12, 12, dtype=torch.float64).index_put_(
            (col, row), weight, accumulate=True
        )
        expected = expected + graph_weight * matrix @ v.flatten(1)
    torch.testing.assert_close(actual, expected)
    assert_same_gradients(actual, expected, leaves_of(conv, x=x))


@pytest.mark.parametrize(('kernel', 'norm'), KINDS)
def test_bipartite(kernel, norm):
    conv = DIFFormerConv(6, 8, kernel=kernel, norm=norm).double()
    x_src, x_dst = torch.randn(9, 6).double(), torch.randn(4, 6).double()
    batch = (torch.arange(9) % 3, torch.tensor([2, 0, 0, 1]))
    edges = torch.tensor([[2, 5, 8, 0], [0, 0, 0, 1]])
    q, k, v = heads_of(conv, x_src, x_dst)
    local = torch.stack(
        [v[[2, 5, 8]].sum(0).flatten() / 3**0.5, v[0].flatten(), *v.new_zeros(2, 8)]
    )
    torch.testing.assert_close(
        conv((x_src, x_dst), edges, batch), attention(conv, q, k, v, batch[1], batch[0]) + local
    )


@pytest.mark.parametrize('norm', ['row', 'frobenius'])
def test_states_of_parts_make_the_whole(norm):
    conv = DIFFormerConv(6, 8, heads=2, norm=norm, use_graph=False).double()
    x = torch.randn(12, 6, dtype=torch.float64)
    states = [conv.attention_state(x[i::2], BATCH[i::2], 4) for i in range(2)]
    out = conv(x[[9, 0, 1]], batch=BATCH[[9, 0, 1]], state=states[0].merge(states[1]))
    torch.testing.assert_close(out, conv(x, batch=BATCH)[[9, 0, 1]])


@pytest.mark.parametrize(('kernel', 'norm'), KINDS)
def test_scores_are_the_weights(kernel, norm):
    conv = DIFFormerConv(6, 8, 2, kernel, norm, use_graph=False).double()
    x = torch.randn(12, 6, dtype=torch.float64)
    weight = conv.attention_scores(x, pairs(12, 12), BATCH).view(12, 12, 2)
    assert (weight[BATCH[:, None] != BATCH[None]] == 0).all()
    torch.testing.assert_close(
        torch.einsum('jih,jhc->ihc', weight, heads_of(conv, x)[2]).flatten(1), conv(x, batch=BATCH)
    )


@pytest.mark.parametrize('norm', ['row', 'frobenius'])
def test_gradients_of_scores(norm):
    conv = DIFFormerConv(6, 8, 2, norm=norm).double()
    x = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    q, k, _ = heads_of(conv, x)
    one_hot = torch.eye(12, dtype=torch.float64)[:, None].expand(-1, 2, -1)
    expected = (
        dense.diffusion_attention(q, k, one_hot, norm, BATCH, BATCH).permute(2, 0, 1).flatten(0, 1)
    )
    out = conv.attention_scores(x, pairs(12, 12), BATCH)
    grad = torch.randn(144, 2).double()
    torch.testing.assert_close(out, expected)
    assert_same_gradients(out, expected, leaves_of(conv, 'lin_key', x=x), grad)
    torch.nn.init.zeros_(conv.lin_query.bias)
    zero = torch.zeros(12, 6, dtype=torch.float64, requires_grad=True)
    assert (
        torch.autograd.grad(conv.attention_scores(zero, pairs(12, 12)).sum(), zero)[0]
        .isfinite()
        .all()
    )


@pytest.mark.parametrize('tau', [0.05, 0.5, 1.0])
def test_the_energy_falls_at_each_step(tau):
    """The paper's step, with the states themselves as queries, keys and values: 2s - s^2/4 has the
    simple kernel 2 - s/2 as its slope over the squared distance s of unit rows."""
    conv = DIFFormerConv(5, 5, use_graph=False, bias=False).double()
    for lin in (conv.lin_query, conv.lin_key, conv.lin_value):
        torch.nn.init.eye_(lin.weight)
    z, energies = torch.randn(30, 5, dtype=torch.float64), []
    for _ in range(10):
        unit = torch.nn.functional.normalize(z, dim=1)
        squared = torch.cdist(unit, unit).square()
        energies.append(float((2 * squared - squared.square() / 4).sum()))
        z = (1 - tau) * z + tau * conv(z).detach()
    energies = [energy for energy in energies if energy > 1e-6 * energies[0]]
    assert len(energies) > 2
    assert energies == sorted(set(energies), reverse=True)


def test_repr():
    assert (
        repr(DIFFormerConv(6, 8, kernel='sigmoid'))
        == "DIFFormerConv(6, 8, heads=1, kernel='sigmoid')"
    )


def test_raises():
    x = torch.randn(12, 6)
    with pytest.raises(ValueError, match="'kernel' must be one of 'simple', 'sigmoid'"):
        DIFFormerConv(6, 8, kernel='softmax')
    with pytest.raises(ValueError, match="'edge_index' must be given"):
        DIFFormerConv(6, 8)(x)
    conv = DIFFormerConv(6, 8, kernel='sigmoid', use_graph=False)
    with pytest.raises(
        ValueError, match=r"'kernel' must be 'simple' for an attention state \(got 'sigmoid', which"
    ):
        conv.attention_state(x)
    with pytest.raises(ValueError, match="'state' must be None with the sigmoid kernel"):
        conv(x, state=DIFFormerConv(6, 8).attention_state(x))
    with pytest.raises(ValueError, match="'x' must have shape"):
        conv((x, torch.randn(3, 7)))
    pairs = DIFFormerConv((6, 4), 8, norm='frobenius')
    with pytest.raises(ValueError, match=r"^'norm' must be 'row' .* of two sizes, \(6, 4\): "):
        pairs.attention_state(x)


def test_scores_of_the_sigmoid_kernel_where_it_vanishes():
    """Sigmoids that are all 0 in any precision have the weights of their exponentials; without
    sources there is no weight."""
    conv = DIFFormerConv(1, 1, kernel='sigmoid', use_graph=False)
    for lin, weight in ((conv.lin_query, 300.0), (conv.lin_key, -300.0)):
        torch.nn.init.constant_(lin.weight, weight)
        torch.nn.init.zeros_(lin.bias)
    x = torch.ones(2, 1, requires_grad=True)
    scores = conv.attention_scores(x, torch.tensor([[0, 1], [1, 0]]))
    assert scores.tolist() == [[0.5], [0.5]]
    assert torch.autograd.grad(scores.sum(), x)[0].isfinite().all()
    pair, batch = (torch.ones(1, 1), torch.ones(2, 1)), (torch.tensor([0]), torch.tensor([0, 1]))
    assert conv.attention_scores(pair, torch.tensor([[0], [1]]), batch).tolist() == [[0]]


@pytest.mark.filterwarnings('ignore::torch.jit.TracerWarning')
@pytest.mark.parametrize('kernel', ['simple', 'sigmoid'])
def test_a_traced_layer_counts_the_nodes_of_each_call(kernel):
    """Its denominators had the number of nodes of the traced call."""
    conv = DIFFormerConv(4, 6, heads=2, kernel=kernel, use_graph=False).eval()
    traced = torch.jit.trace(conv, (torch.randn(10, 4),))
    x = torch.randn(17, 4)
    torch.testing.assert_close(traced(x), conv(x))
