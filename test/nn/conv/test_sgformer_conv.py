import pytest
import torch
from definitions import heads_of
from gradients import assert_same_gradients, gradients, leaves_of

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.nn import SGFormerConv
from torch_geometric_lgt.testing import dense

BATCH = torch.tensor([0, 2, 0, 0, 2, 2, 2, 0, 3, 3, 0, 2])
NORMS = ['frobenius', 'row']


def pairs(num_src, num_dst):
    return torch.cartesian_prod(torch.arange(num_src), torch.arange(num_dst)).t()


def test_hand_computed():
    """q = k = v = x: the lengths are sqrt(1 + 4), the products 1/5, 2/5, 4/5, halved for two
    nodes."""
    conv = SGFormerConv(1, 1, bias=False)
    for lin in (conv.lin_query, conv.lin_key, conv.lin_value):
        torch.nn.init.ones_(lin.weight)
    expected = [
        (1 + (1 / 5 * 1 + 2 / 5 * 2) / 2) / (1 + 3 / 10),
        (2 + (2 / 5 * 1 + 4 / 5 * 2) / 2) / (1 + 6 / 10),
    ]
    torch.testing.assert_close(conv(torch.tensor([[1.0], [2.0]])), torch.tensor(expected)[:, None])


@pytest.mark.parametrize('value_projection', [True, False])
@pytest.mark.parametrize('norm', NORMS)
def test_matches_dense_with_gradients(norm, value_projection):
    conv = SGFormerConv(
        6, 8 if value_projection else 6, 2, norm, value_projection=value_projection
    ).double()
    x = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    q, k, v = heads_of(conv, x)
    actual = conv(x, batch=BATCH)
    expected = dense.sgformer_attention(q, k, v, v, norm, BATCH, BATCH).flatten(1)
    torch.testing.assert_close(actual, expected)
    assert_same_gradients(actual, expected, leaves_of(conv, x=x))


@pytest.mark.parametrize('value_projection', [True, False])
@pytest.mark.parametrize('norm', NORMS)
def test_bipartite(norm, value_projection):
    conv = SGFormerConv(6, 6, norm=norm, value_projection=value_projection).double()
    x_src, x_dst = torch.randn(9, 6).double(), torch.randn(4, 6).double()
    batch = torch.arange(9) % 3, torch.tensor([2, 0, 0, 1])
    (_, k, v), (q, _, self_value) = heads_of(conv, x_src), heads_of(conv, x_dst)
    expected = dense.sgformer_attention(q, k, v, self_value, norm, batch[1], batch[0]).flatten(1)
    torch.testing.assert_close(conv((x_src, x_dst), batch=batch), expected)


@pytest.mark.parametrize('value_projection', [True, False])
@pytest.mark.parametrize('norm', NORMS)
def test_states_of_parts_make_the_whole(norm, value_projection, tmp_path):
    conv = SGFormerConv(6, 6, 2, norm, value_projection=value_projection).double()
    x = torch.randn(12, 6, dtype=torch.float64)
    whole = conv(x, batch=BATCH)
    states = [conv.attention_state(x[i::3], BATCH[i::3], 4) for i in range(3)]
    state = states[0].merge(states[1]).merge(states[2])
    state.save(tmp_path / 'state')
    for each_state in (state, AttentionState.load(tmp_path / 'state')):
        torch.testing.assert_close(
            conv(x[[9, 0, 1]], batch=BATCH[[9, 0, 1]], state=each_state), whole[[9, 0, 1]]
        )


def test_gradient_through_a_state():
    conv = SGFormerConv(6, 8).double()
    x = torch.randn(7, 6, dtype=torch.float64, requires_grad=True)
    outputs = (conv(x), conv(x, state=conv.attention_state(x)))
    leaves = leaves_of(conv, x=x)
    torch.testing.assert_close(*(gradients(out.square().sum(), leaves) for out in outputs))


@pytest.mark.parametrize('norm', NORMS)
def test_scores_are_the_weights(norm):
    conv = SGFormerConv(6, 8, heads=2, norm=norm).double()
    x = torch.randn(12, 6, dtype=torch.float64)
    weight = conv.attention_scores(x, pairs(12, 12), BATCH).view(12, 12, 2)
    assert (weight[BATCH[:, None] != BATCH[None]] == 0).all()
    out = torch.einsum('jih,jhc->ihc', weight, heads_of(conv, x)[2])
    torch.testing.assert_close(out.flatten(1), conv(x, batch=BATCH))


def test_scores_of_a_pair_leave_out_the_own_value():
    conv = SGFormerConv(6, 8).double()
    x_src = torch.randn(5, 6).double()
    x_dst = torch.randn(3, 6).double()
    weight = conv.attention_scores((x_src, x_dst), pairs(5, 3)).view(5, 3)
    self_value = (1 - weight.sum(0))[:, None] * conv.lin_value(x_dst)
    torch.testing.assert_close(
        weight.t() @ conv.lin_value(x_src) + self_value, conv((x_src, x_dst))
    )


def test_repr():
    assert repr(SGFormerConv(6, 8, heads=2)) == "SGFormerConv(6, 8, heads=2, norm='frobenius')"


def test_raises():
    with pytest.raises(ValueError, match="'heads' must divide"):
        SGFormerConv(6, 8, heads=3)
    with pytest.raises(ValueError, match="'norm' must be one of"):
        SGFormerConv(6, 8, norm='l2')
    conv, x = SGFormerConv(6, 8), torch.randn(12, 6)
    with pytest.raises(ValueError, match="'x' must have shape"):
        conv(torch.randn(12, 7))
    with pytest.raises(ValueError, match="'state' must have the graphs"):
        conv(x, state=SGFormerConv(6, 8, heads=2).attention_state(x))


@pytest.mark.parametrize('norm', ['row', 'frobenius'])
def test_gradients_of_scores(norm):
    conv = SGFormerConv(6, 8, 2, norm=norm).double()
    x = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    q, k, _ = heads_of(conv, x)
    one_hot = torch.eye(12, dtype=torch.float64)[:, None].expand(-1, 2, -1)
    expected = (
        dense.sgformer_attention(q, k, one_hot, one_hot, norm, BATCH, BATCH)
        .permute(2, 0, 1)
        .flatten(0, 1)
    )
    out = conv.attention_scores(x, pairs(12, 12), BATCH)
    grad = torch.randn(144, 2).double()
    torch.testing.assert_close(out, expected)
    assert_same_gradients(out, expected, leaves_of(conv, 'lin_key', x=x), grad)
