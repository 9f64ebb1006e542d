"""The feature map 'learned' by both ways to compute it: its projection is multiplied into the
Linear layers of queries and keys, or applied to queries and keys of each head."""

import pytest
import torch
from constants import BY_OPERATORS
from definitions import degree_masked, features_of, heads_of
from gradients import assert_same_gradients, gradients, leaves_of
from torch.utils.flop_counter import FlopCounterMode

from torch_geometric_lgt.nn import DegreeMaskedAttention, FeatureMap, KernelAttentionConv
from torch_geometric_lgt.testing import dense
from torch_geometric_lgt.testing._saved import SavedStorages

FOLDED, UNFOLDED = 5, 24
SIZES = pytest.mark.parametrize('num_features', [FOLDED, UNFOLDED], ids=['folded', 'unfolded'])
BATCHES = {
    'one': None,
    'small': torch.tensor([3, 0, 3, 1, 0, 3, 1, 6, 3, 3, 1, 1]).repeat(2),
    'ragged': (torch.arange(200) * 7 % 11).clamp(max=3).mul(2),
}


def make(num_features):
    conv = KernelAttentionConv(6, 8, heads=2, feature_map='learned', num_features=num_features)
    with torch.no_grad():
        conv.feature_map.scale.copy_(torch.tensor([1.5, -0.5]))
    return conv.double()


def draw(num_nodes, channels=6):
    return torch.randn(num_nodes, channels, dtype=torch.float64, requires_grad=True)


def expected_weights(conv, x_src, x_dst, batches=(None, None)):
    q, k, v = heads_of(conv, x_src, x_dst)
    return dense.attention_matrix(*features_of(conv, q, k), None, *batches), v


def assert_alike(actual, expected, leaves):
    torch.testing.assert_close(actual, expected, atol=1e-11, rtol=1e-10)
    assert_same_gradients(actual, expected, leaves, atol=1e-10, rtol=1e-9)


@pytest.mark.parametrize('paired', [False, True], ids=['states', 'pairs'])
@pytest.mark.parametrize('batch', BATCHES)
@SIZES
def test_matches_dense_with_gradients(num_features, batch, paired, constants):
    """Graphs of one chunk and of several, and graphs without nodes."""
    conv, batch = make(num_features), BATCHES[batch]
    x = draw(200 if batch is None else batch.numel())
    constants(paired=paired, input_chunk=1)  # chunks of 64 nodes
    if paired:
        constants(attention_chunk=x.size(0))
    weights, v = expected_weights(conv, x, x, (batch, batch))
    expected = torch.einsum('ijh,jhd->ihd', weights, v).flatten(1)
    assert_alike(conv(x, batch=batch), expected, leaves_of(conv, x=x))


@SIZES
def test_sources_and_targets_match_dense(num_features):
    conv, sources, targets = make(num_features), draw(30), draw(7)
    batches = torch.arange(30) % 3, torch.tensor([2, 0, 0, 3, 2, 2, 0])
    weights, v = expected_weights(conv, sources, targets, batches[::-1])
    expected = torch.einsum('ijh,jhd->ihd', weights, v).flatten(1)
    out = conv((sources, targets), batch=batches, batch_size=4)
    assert_alike(out, expected, leaves_of(conv, sources=sources, targets=targets))


@SIZES
def test_merged_states_match_dense(num_features):
    conv, x, batch = make(num_features), draw(40), torch.arange(40) % 3
    parts = [conv.attention_state(x[part], batch[part], 3) for part in (slice(9), slice(9, None))]
    weights, v = expected_weights(conv, x, x, (batch, batch))
    expected = torch.einsum('ijh,jhd->ihd', weights, v).flatten(1)
    actual = conv(x, batch=batch, state=parts[0].merge(parts[1]))
    assert_alike(actual, expected, leaves_of(conv, x=x))


def test_squares_of_a_state_are_those_of_the_keys():
    conv, x = make(UNFOLDED), draw(40)
    squares = heads_of(conv, x)[1].square().sum((0, 2))[None]
    leaves = leaves_of(conv, 'lin_key', x=x)
    assert_alike(conv.attention_state(x).squares, squares, leaves)


@pytest.mark.parametrize('num_nodes', [11, 150], ids=['pairs', 'state'])
@pytest.mark.parametrize('num_features', [3, UNFOLDED], ids=['folded', 'unfolded'])
def test_masks_match_dense(num_features, num_nodes, constants):
    constants(input_chunk=1)
    layer = DegreeMaskedAttention(
        6, heads=2, max_degree=9, feature_map='learned', num_features=num_features
    ).double()
    x, degree, batch = draw(num_nodes), torch.arange(num_nodes) % 10, torch.arange(num_nodes) % 2
    expected = degree_masked(layer, x, degree, batch)
    assert_alike(layer(x, degree, batch), expected, leaves_of(layer, x=x))


@SIZES
def test_scores_of_pairs_match_dense(num_features, constants):
    constants(input_chunk=1)
    conv, x, batch = make(num_features), draw(12), torch.arange(12) % 3
    pairs = torch.cartesian_prod(torch.arange(12), torch.arange(12)).t()
    weights = expected_weights(conv, x, x, (batch, batch))[0][pairs[1], pairs[0]]
    leaves = leaves_of(conv, 'lin_key', 'feature_map', x=x)
    assert_alike(conv.attention_scores(x, pairs, batch), weights, leaves)


@pytest.mark.parametrize('name', ['lin_query', 'lin_key'])
@SIZES
def test_a_linear_part_with_hooks_is_not_folded(num_features, name):
    conv, x = make(num_features), draw(40)
    getattr(conv, name).register_forward_hook(lambda *_: None)
    weights, v = expected_weights(conv, x, x)
    leaves = leaves_of(conv, x=x)
    assert_alike(conv(x), torch.einsum('ijh,jhd->ihd', weights, v).flatten(1), leaves)
    pairs = torch.stack([torch.arange(40), torch.arange(40).flip(0)])
    torch.testing.assert_close(conv.attention_scores(x, pairs), weights[pairs[1], pairs[0]])


@pytest.mark.parametrize('method', ['forward', 'attention_scores'])
@SIZES
def test_a_hook_of_the_map_may_remove_itself(num_features, method):
    """As those of Lightning's ``ModelSummary`` do: the keys had other features than the queries,
    which ended in an error."""
    conv, x, calls = make(num_features), draw(12), []
    pairs = torch.cartesian_prod(torch.arange(12), torch.arange(12)).t()
    expected = getattr(conv, method)(x, pairs)
    handle = conv.feature_map.register_forward_hook(lambda *_: calls.append(handle.remove()))
    torch.testing.assert_close(getattr(conv, method)(x, pairs), expected)
    assert calls == [None]


@pytest.mark.parametrize(('num_features', 'products'), [(11, 6 * 11), (13, 4 * (6 + 13))])
def test_the_projection_is_folded_if_that_takes_fewer_products(num_features, products):
    """With 6 inputs and 4 channels, both ways take 72 products per node and head at 12
    features."""
    conv, x = make(num_features), draw(1000)
    with FlopCounterMode(display=False) as counter:
        conv(x).sum().backward()
    linear, state = 2 * 2 * products, 2 * 2 * num_features * 5
    values, column = 2 * 2 * 4 * 6, 2 * 2 * num_features
    # the sums of the features of keys are no product; their gradient is one more column
    forward = 2 * linear + values + 2 * state - column
    backward = 3 * (2 * linear + values) + 2 * state - column + 2 * state + column
    counts = counter.get_flop_counts()['Global']
    attention = sum(count for name, count in counts.items() if 'attend' in str(name))
    assert attention == 1000 * (forward + backward)


@SIZES
def test_no_tensor_of_all_features_is_kept(num_features, constants):
    """Of the nodes, the backward pass has the input and the denominators of both heads."""
    constants(plain_elements=BY_OPERATORS)
    conv, saved = make(num_features), []
    for num_nodes in (1000, 2000):
        x = draw(num_nodes)
        with SavedStorages() as found:
            out = conv(x)
        saved.append(sum(found.sizes))
        assert out.size(0) == num_nodes
    assert saved[1] - saved[0] == 1000 * 8 * (6 + 2)


@SIZES
def test_shares_below_the_smallest_float(num_features):
    """Logits up to 300 in float32: features and maxima of some groups vanish, whose logarithms
    take part. Rounding of a logit changes its feature by 300 units. The gradient of a scale is a
    sum of many terms that nearly cancel."""
    conv, x = make(num_features), draw(40)
    with torch.no_grad():
        logits = conv.feature_map.logits(heads_of(conv, x)[1])
        conv.feature_map.scale *= 300 / logits.abs().max()
    weights, v = expected_weights(conv, x, x)
    expected = torch.einsum('ijh,jhd->ihd', weights, v).flatten(1)
    grad = torch.randn_like(expected)
    parts = ('feature_map.weight', 'lin_query.weight', 'lin_key.weight', 'lin_value.weight')
    exact = {'out': expected, **gradients(expected, leaves_of(conv, *parts, x=x), grad)}
    single, y = make(num_features).float(), x.detach().float().requires_grad_()
    single.load_state_dict(conv.state_dict())
    out = single(y)
    found = {'out': out, **gradients(out, leaves_of(single, *parts, x=y), grad.float())}
    for name, value in exact.items():
        error = (found[name].detach().double() - value.detach()).norm() / value.detach().norm()
        assert float(error) < 300 * torch.finfo(torch.float32).eps, name


def test_logits_of_normal_inputs_begin_with_variance_1():
    phi = FeatureMap('learned', 64, num_features=256, heads=2)
    torch.nn.init.zeros_(phi.scale)
    phi.reset_parameters()
    logits = phi.logits(torch.randn(100, 2, 64))
    assert logits.std().item() == pytest.approx(1, rel=0.05)


def test_only_a_learned_map_has_logits():
    with pytest.raises(ValueError, match=r"'kind' must be 'learned' for logits \(got 'simplex'\)"):
        FeatureMap('simplex', 4).logits(torch.ones(2, 1, 4))
