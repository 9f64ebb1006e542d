import copy

import pytest
import torch
from definitions import features_of, heads_of
from gradients import assert_same_gradients, leaves_of
from torch.utils.flop_counter import FlopCounterMode
from torch_geometric.typing import WITH_TORCH_SPARSE

from torch_geometric_lgt.functional import AttentionState, kernel_attention, sorted_edges
from torch_geometric_lgt.nn import KernelAttentionConv
from torch_geometric_lgt.testing import dense
from torch_geometric_lgt.testing._saved import SavedStorages
from torch_geometric_lgt.typing import SparseTensor

MAPS = ['simplex', 'orthogonal', 'positive', 'fourier', 'elu', 'relu', 'focused', 'learned']
PAIRS = torch.cartesian_prod(torch.arange(12), torch.arange(12)).t()


def oracle(conv, x, batch=None):
    """Returns the attention weights ``[N, N, H]`` and the values ``[N, H, C]``."""
    q, k, v = heads_of(conv, x)
    phi = features_of(conv, q, k, conv.temperature)
    return dense.attention_matrix(*phi, None, batch, batch), v


@pytest.mark.parametrize('key_channels', [None, 6])
@pytest.mark.parametrize('feature_map', MAPS)
def test_matches_dense_with_gradients(feature_map, key_channels):
    conv = KernelAttentionConv(
        6, 8, heads=2, feature_map=feature_map, temperature=2.0, key_channels=key_channels
    ).double()
    x = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    batch = torch.tensor([0, 2, 0, 0, 2, 2, 2, 0, 3, 3, 0, 2])
    weights, v = oracle(conv, x, batch)
    expected = torch.einsum('ijh,jhd->ihd', weights, v).flatten(1)
    actual = conv(x, batch=batch)
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=1e-10)
    assert_same_gradients(actual, expected, leaves_of(conv, x=x), atol=1e-9, rtol=1e-9)
    scores = conv.attention_scores(x, PAIRS, batch)
    torch.testing.assert_close(scores, weights[PAIRS[1], PAIRS[0]], atol=1e-10, rtol=1e-10)


def test_gradients_of_scores(constants):
    constants(input_chunk=1)  # chunks of 64 pairs
    conv = KernelAttentionConv(6, 8, heads=2).double()
    x = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    batch = torch.tensor([0, 2, 0, 0, 2, 2, 2, 0, 3, 3, 0, 2])
    actual = conv.attention_scores(x, PAIRS, batch)
    expected = oracle(conv, x, batch)[0][PAIRS[1], PAIRS[0]]
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=1e-10)
    leaves = leaves_of(conv, 'lin_query', 'lin_key', x=x)
    assert_same_gradients(actual, expected, leaves, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize('feature_map', ['relu', 'focused'])
@pytest.mark.parametrize('scale', [1e-6, 1e-12, 1e-17])
def test_gradients_of_scores_of_small_features(scale, feature_map):
    """In single precision the square of one over the sum of the weights is no number."""
    conv = KernelAttentionConv(6, 8, heads=2, feature_map=feature_map, bias=False)
    x = (scale * torch.randn(12, 6)).requires_grad_()
    exact, leaf = copy.deepcopy(conv).double(), x.detach().double().requires_grad_()
    actual, expected = conv.attention_scores(x, PAIRS), oracle(exact, leaf)[0][PAIRS[1], PAIRS[0]]
    torch.testing.assert_close(actual, expected.float(), rtol=1e-4, atol=1e-5)
    grad = torch.randn_like(actual)
    one = torch.autograd.grad(actual, x, grad)[0]
    other = torch.autograd.grad(expected, leaf, grad.double())[0]
    assert float((one.double() - other).norm()) < 1e-5 * float(other.norm())


def test_scores_of_many_pairs_evaluate_each_node_once_and_keep_no_features():
    conv, x = KernelAttentionConv(16, 16, heads=2, num_features=32), torch.randn(12, 16)
    flops, saved = {}, {}
    for repeats in (1, 4):
        with SavedStorages() as found, FlopCounterMode(display=False) as counter:
            conv.attention_scores(x, PAIRS.repeat(1, repeats))
        flops[repeats], saved[repeats] = counter.get_total_flops(), sum(found.sizes)
    # of a pair: projections of query and key, and the product with the sums
    features = 2 * 2 * 2 * 8 * 32
    denominators = 2 * 2 * 32
    assert flops[4] - flops[1] == 3 * PAIRS.size(1) * (features + denominators)
    # places and scores, not 2 x 32 features of two sides
    assert saved[4] - saved[1] <= 3 * PAIRS.size(1) * 4 * 16


@pytest.mark.parametrize('samples', [0, 3])
@pytest.mark.parametrize('scale', [1.0, 0.3])
@pytest.mark.parametrize('feature_map', ['simplex', 'orthogonal', 'positive', 'fourier'])
def test_scale_of_logits_matches_dense_with_gradients(feature_map, scale, samples):
    """The factor of inner products, divided by the temperature in attention without samples and in
    training; the logarithms of weights have none."""
    samples = 0 if feature_map == 'fourier' else samples
    conv = KernelAttentionConv(
        6,
        8,
        heads=2,
        feature_map=feature_map,
        temperature=0.5,
        num_gumbel_samples=samples,
        scale=scale,
    ).double()
    x = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    batch = torch.tensor([0, 2, 0, 0, 2, 2, 2, 0, 3, 3, 0, 2])
    q, k, v = heads_of(conv, x)

    def features(factor):
        kind, projection = conv.feature_map.map.name, conv.feature_map.projection
        return [dense.feature_map(kind, factor**0.5 * part, projection) for part in (q, k)]

    pairs = []
    if samples > 0:
        torch.manual_seed(7)
        actual = conv(x, batch=batch)
        torch.manual_seed(7)
        noise = -torch.empty(12, 2, samples, dtype=torch.float64).exponential_().log() / 0.5
        pairs.append(
            (actual, dense.sampled_attention(*features(2 * scale), v, noise, batch, batch))
        )
    factor = scale if samples > 0 else 2 * scale
    weights = dense.attention_matrix(*features(factor), None, batch, batch)
    conv.eval()
    pairs.append((conv(x, batch=batch), torch.einsum('ijh,jhd->ihd', weights, v)))
    pairs.append((conv.attention_scores(x, PAIRS, batch), weights[PAIRS[1], PAIRS[0]]))
    if feature_map != 'fourier':
        same_graph = PAIRS[:, batch[PAIRS[0]] == batch[PAIRS[1]]]
        plain = dense.attention_matrix(*features(scale), None, batch, batch)
        log = conv.log_edge_probability(x, same_graph, batch)
        pairs.append((log, plain[same_graph[1], same_graph[0]].log()))
    options = {'retain_graph': True, 'materialize_grads': True}
    for actual, expected in pairs:
        expected = expected.reshape(actual.shape)
        torch.testing.assert_close(actual, expected, atol=1e-9, rtol=1e-9)
        leaves = leaves_of(conv, x=x)
        assert_same_gradients(actual, expected, leaves, atol=1e-8, rtol=1e-8, **options)


def test_scale_is_one_over_the_root_of_the_channels_by_default():
    default, given = (KernelAttentionConv(6, 8, heads=2, scale=scale) for scale in (None, 0.5))
    given.load_state_dict(default.state_dict())
    x = torch.randn(12, 6)
    assert torch.equal(default(x), given(x))


def test_hand_computed():
    conv = KernelAttentionConv(1, 1, feature_map='elu', bias=False)
    for lin, value in ((conv.lin_query, 1.0), (conv.lin_key, 2.0), (conv.lin_value, 3.0)):
        torch.nn.init.constant_(lin.weight, value)
    # phi(k) = 3, 5 for x = 1, 2; the query cancels: (3 * 3 + 5 * 6) / 8
    torch.testing.assert_close(conv(torch.tensor([[1.0], [2.0]])), torch.full((2, 1), 39 / 8))


@pytest.mark.parametrize(
    ('in_channels', 'heads', 'num_features'), [(4, 1, 16), (32, 4, 8), (8, 2, 64)]
)
def test_query_projection_folded_or_not(in_channels, heads, num_features):
    conv = KernelAttentionConv(in_channels, 16, heads=heads, num_features=num_features).double()
    x = torch.randn(12, in_channels, dtype=torch.float64)
    weights, v = oracle(conv, x)
    torch.testing.assert_close(
        conv(x), torch.einsum('ijh,jhd->ihd', weights, v).flatten(1), atol=1e-11, rtol=1e-10
    )


@pytest.mark.parametrize('samples', [1, 4])
def test_gumbel_samples_in_training(samples):
    conv = KernelAttentionConv(
        6, 8, heads=2, num_features=16, temperature=0.5, num_gumbel_samples=samples
    ).double()
    x = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    batch = torch.tensor([0, 2, 0, 0, 2, 2, 2, 0, 3, 3, 0, 2])
    torch.manual_seed(7)
    actual = conv(x, batch=batch)
    torch.manual_seed(7)
    noise = -torch.empty(12, 2, samples, dtype=torch.float64).exponential_().log() / 0.5
    q, k, v = heads_of(conv, x)
    scale, projection = (4 * 0.5**2) ** -0.25, conv.feature_map.projection
    phi_q, phi_k = (dense.feature_map('softmax', scale * t, projection) for t in (q, k))
    expected = dense.sampled_attention(phi_q, phi_k, v, noise, batch, batch).flatten(1)
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=1e-10)
    assert_same_gradients(actual, expected, leaves_of(conv, x=x), atol=1e-9, rtol=1e-9)
    torch.manual_seed(7)
    state = conv.attention_state(x, batch)
    assert state.samples == samples
    torch.testing.assert_close(
        conv(x[[9, 0]], batch=batch[[9, 0]], state=state), expected[[9, 0]], atol=1e-10, rtol=1e-10
    )


@pytest.mark.parametrize('samples', [1, 3])
@pytest.mark.parametrize('is_training', [False, True])
def test_a_state_of_the_other_mode_is_refused(is_training, samples):
    """With one sample it was read without an error, though noise and temperature differ."""
    conv, x = KernelAttentionConv(6, 8, num_gumbel_samples=samples), torch.randn(5, 6)
    state = conv.train(is_training).attention_state(x)
    assert conv(x, state=state).shape == (5, 8)
    read, built = ('evaluation', 'training') if is_training else ('training', 'evaluation')
    message = rf"^'state' must be built in {read}, the mode of the layer \(got one of {built}\)"
    with pytest.raises(ValueError, match=message):
        conv.train(not is_training)(x, state=state)


@pytest.mark.parametrize('feature_map', ['simplex', 'fourier'])
def test_a_state_of_other_random_features_is_refused(feature_map, tmp_path):
    """Also one of parts, moved or from a file. Its features had nothing to do with those of the
    queries."""
    conv, x = KernelAttentionConv(4, 8, feature_map=feature_map), torch.randn(5, 4)
    first, second = (conv.attention_state(part) for part in (x[:2], x[2:]))
    state = first.merge(second).detach().to(torch.float32)
    state.save(tmp_path / 'state')
    state = AttentionState.load(tmp_path / 'state')
    torch.testing.assert_close(conv(x, state=state), conv(x))
    conv.feature_map.redraw_projection()
    with pytest.raises(ValueError, match=r"^'state' must be of keys with the random features of t"):
        conv(x, state=state)


def test_a_state_of_random_features_of_other_channels_is_refused():
    narrow, wide = (KernelAttentionConv(4, 8, key_channels=n, num_features=6) for n in (4, 6))
    x = torch.randn(5, 4)
    with pytest.raises(ValueError, match=r"^'state' must be of keys with the random features of t"):
        wide(x, state=narrow.attention_state(x))


def test_a_state_without_values_is_refused():
    """The error was one of PyTorch, about a copy of the random features."""
    conv, x = KernelAttentionConv(4, 8), torch.randn(5, 4)
    state = copy.deepcopy(conv).to('meta').attention_state(x.to('meta'))
    with pytest.raises(ValueError, match=r"^'state' must be of torch.float32 on cpu .* on meta"):
        conv(x, state=state)


def test_noise_is_finite_where_an_exponential_number_is_0(monkeypatch):
    monkeypatch.setattr(torch.Tensor, 'exponential_', torch.Tensor.zero_)
    noise = KernelAttentionConv(6, 8, num_gumbel_samples=2).key_noise(torch.randn(3, 6))
    assert noise.isfinite().all()


@pytest.mark.parametrize(('rule', 'temperature'), [('softmax', 1.0), ('tempered', 0.3)])
def test_no_noise_in_evaluation(rule, temperature):
    conv = (
        KernelAttentionConv(
            6, 8, heads=2, temperature=0.3, num_gumbel_samples=5, gumbel_evaluation=rule
        )
        .double()
        .eval()
    )
    plain = KernelAttentionConv(6, 8, heads=2, temperature=temperature).double()
    plain.load_state_dict(conv.state_dict())
    x = torch.randn(12, 6, dtype=torch.float64)
    torch.testing.assert_close(conv(x), plain(x), atol=1e-13, rtol=0)
    torch.testing.assert_close(
        conv.train().attention_scores(x, PAIRS),
        plain.attention_scores(x, PAIRS),
        atol=1e-13,
        rtol=0,
    )


def test_permutation_equivariance():
    conv = KernelAttentionConv(6, 8, heads=2).double()
    x = torch.randn(12, 6).double()
    batch = torch.arange(12) % 3
    perm = torch.randperm(12)
    torch.testing.assert_close(
        conv(x[perm], batch=batch[perm]), conv(x, batch=batch)[perm], atol=1e-13, rtol=0
    )


def test_bipartite():
    conv = KernelAttentionConv(6, 8, heads=2).double()
    x_src, x_dst = torch.randn(9, 6).double(), torch.randn(4, 6).double()
    out = conv((x_src, x_dst), batch=(torch.arange(9) % 3, torch.tensor([2, 0, 0, 1])))
    torch.testing.assert_close(out[1:3], conv((x_src[::3], x_dst[1:3])), atol=1e-13, rtol=0)


def test_concat_false_averages_heads():
    conv = KernelAttentionConv(6, 8, heads=3, concat=False).double()
    x = torch.randn(12, 6).double()
    weights, v = oracle(conv, x)
    torch.testing.assert_close(
        conv(x), torch.einsum('ijh,jhd->ihd', weights, v).mean(1), atol=1e-12, rtol=0
    )


def test_without_value_projection():
    conv = KernelAttentionConv(8, 8, heads=2, value_projection=False, feature_map='elu').double()
    x = torch.randn(5, 8).double()
    assert conv.lin_value is None
    assert conv(x).shape == (5, 8)
    assert (conv(x).amin(0) >= x.amin(0)).all()
    assert (conv(x).amax(0) <= x.amax(0)).all()


def test_module_as_feature_map():
    class Squares(torch.nn.Module):
        def forward(self, x):
            return x.square()

    conv = KernelAttentionConv(6, 8, heads=2, feature_map=Squares()).double()
    x = torch.randn(7, 6).double()
    q, k, v = heads_of(conv, x)
    torch.testing.assert_close(
        conv(x), dense.kernel_attention(q.square(), k.square(), v).flatten(1), atol=1e-12, rtol=0
    )


def test_approximates_softmax_better_with_more_features():
    x = 0.5 * torch.randn(50, 16).double()
    errors = []
    for num_features in (16, 256, 4096):
        conv = KernelAttentionConv(
            16, 16, num_features=num_features, feature_map='orthogonal'
        ).double()
        q, k, v = conv.lin_query(x), conv.lin_key(x), conv.lin_value(x)
        exact = (q @ k.t() / 4).softmax(1) @ v
        errors.append(((conv(x) - exact).norm() / exact.norm()).item())
    assert errors[0] > 2 * errors[1] > 4 * errors[2]


def test_reset_parameters():
    conv = KernelAttentionConv(6, 8, heads=2)
    states = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        conv.reset_parameters()
        states.append({name: value.clone() for name, value in conv.state_dict().items()})
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not any(torch.equal(states[0][name], states[2][name]) for name in states[0])
    projection = conv.feature_map.projection
    conv.feature_map.redraw_projection(torch.Generator().manual_seed(3))
    assert conv.feature_map.projection is projection  # CUDA graphs and other processes read it
    assert not torch.equal(projection, states[2]['feature_map.projection'])


def test_repr():
    start = 'KernelAttentionConv(6, 8, heads=2, feature_map='
    assert repr(KernelAttentionConv(6, 8, heads=2)) == f"{start}'simplex')"
    tempered = KernelAttentionConv(6, 8, 2, feature_map='orthogonal', temperature=0.25)
    assert repr(tempered) == f"{start}'orthogonal', temperature=0.25)"
    module = KernelAttentionConv(6, 8, 2, feature_map=torch.nn.Softplus())
    assert repr(module) == f'{start}{torch.nn.Softplus()})'


@pytest.mark.parametrize('source', ['value', 'output'])
def test_edges_of_an_order_count_once(source):
    """Also in lists that no hops made, the only edges of a pair: an entry of the matrix of an order
    is 1, or the mean of weights."""
    conv = KernelAttentionConv(6, 8, heads=2, relational_order=1, relational_input=source).double()
    x = torch.randn(5, 6, dtype=torch.float64)
    pair = (x, torch.randn(3, 6, dtype=torch.float64)) if source == 'value' else x
    sizes = (5, 3) if source == 'value' else (5, 5)
    once = torch.tensor([[0, 4, 1, 4], [2, 0, 2, 1]])
    repeated = torch.cat([once, once[:, :3], once[:, :1]], 1)[:, [5, 0, 7, 3, 1, 6, 2, 4]]
    expected = conv(pair, [once])
    assert not torch.equal(expected, conv(pair, [once[:, :3]]))
    torch.testing.assert_close(conv(pair, [repeated]), expected)
    torch.testing.assert_close(conv(pair, [sorted_edges(once, *sizes)]), expected)
    compiled = torch.compile(conv, fullgraph=True, backend='eager')
    torch.testing.assert_close(compiled(pair, [repeated]), expected)
    if WITH_TORCH_SPARSE:
        weight = torch.arange(1.0, 9.0, dtype=torch.float64)
        matrix = SparseTensor.from_edge_index(repeated.flip(0), weight, sizes[::-1])
        mean = torch.stack([weight[(repeated == edge[:, None]).all(0)].mean() for edge in once.t()])
        edges = sorted_edges(once, *sizes, edge_weight=mean)
        torch.testing.assert_close(conv(pair, [matrix]), conv(pair, [edges]))


@pytest.mark.compiled
# numbers as symbols would trace each graph twice
@torch._dynamo.config.patch(specialize_float=True)
def test_one_head_compiles_without_graph_break():
    conv = KernelAttentionConv(6, 8)
    x, batch = torch.randn(12, 6), torch.arange(12) % 3
    compiled = torch.compile(conv, fullgraph=True, dynamic=True, backend='aot_eager')
    torch.testing.assert_close(compiled(x), conv(x))
    torch.testing.assert_close(compiled(x, batch=batch, batch_size=3), conv(x, batch=batch))


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({'heads': 3}, "'heads' must divide 'out_channels'"),
        ({'heads': 0}, "'heads' must be at least 1"),
        ({'feature_map': 'softmax'}, r"\(got 'softmax'\); 'simplex', .* estimate a softmax"),
        ({'feature_map': 'cosine'}, "'feature_map' must be one of"),
        ({'feature_map': 'elu', 'num_features': 8}, "'num_features' must be None"),
        ({'heads': 2, 'key_channels': 3}, "'heads' must divide 'key_channels'"),
        ({'value_projection': False}, "'value_projection' = False needs"),
        ({'temperature': 0.0}, "'temperature' must be positive"),
        ({'scale': 0.0}, "'scale' must be positive and finite"),
        ({'scale': float('nan')}, "'scale' must be positive and finite"),
        ({'scale': 1.0, 'feature_map': 'elu'}, "'scale' must be None unless 'feature_map' is"),
        (
            {'scale': 1.0, 'feature_map': torch.nn.Identity()},
            "'scale' must be None unless 'feature_map' is",
        ),
        ({'heads': 8}, 'needs at least 2 channels'),
        ({'num_gumbel_samples': -1}, "'num_gumbel_samples' must be at least 0"),
        (
            {'num_gumbel_samples': 2, 'feature_map': 'elu'},
            "'num_gumbel_samples' must be 0 unless",
        ),
        ({'gumbel_evaluation': 'mean'}, "'gumbel_evaluation' must be"),
        ({'relational_order': -1}, "'relational_order' must be at least 0"),
        ({'relational_order': 1, 'relational_input': 'key'}, "'relational_input' must be"),
        ({'relational_order': 1, 'relational_weight': 'tanh'}, "'relational_weight' must be"),
    ],
)
def test_constructor_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        KernelAttentionConv(6, 8, **arguments)


def test_forward_raises():
    conv, x = KernelAttentionConv(6, 8), torch.randn(12, 6)
    with pytest.raises(ValueError, match="'x' must have shape"):
        conv(torch.randn(12, 7))
    with pytest.raises(ValueError, match="'x' must have the dtype"):
        conv(x.double())
    with pytest.raises(ValueError, match="'edge_index' must hold target ids"):
        conv.attention_scores(x, torch.tensor([[0], [12]]))


EDGES = torch.tensor([[0, 2, 3, 1, 4, 5, 5], [2, 3, 7, 4, 5, 6, 6]])


@pytest.mark.parametrize('weight', ['sigmoid', 'identity'])
@pytest.mark.parametrize('source', ['value', 'output'])
@pytest.mark.parametrize('order', [1, 3])
def test_relational_bias(order, source, weight):
    """Against powers of the adjacency matrix: of distinct neighbours and oneself, symmetrically
    normalised, or plain ones."""
    options = {'relational_order': order, 'relational_input': source, 'relational_weight': weight}
    conv = KernelAttentionConv(6, 8, heads=2, **options).double()
    plain = KernelAttentionConv(6, 8, heads=2).double()
    plain.load_state_dict(conv.state_dict(), strict=False)
    torch.nn.init.normal_(conv.relational_bias.weight)
    x = torch.randn(8, 6, dtype=torch.float64, requires_grad=True)
    edges = torch.cat([EDGES, EDGES.flip(0)], 1)
    out = plain(x)
    expected = out
    share = (
        conv.relational_bias.weight.sigmoid()
        if weight == 'sigmoid'
        else conv.relational_bias.weight
    )
    one = torch.zeros(8, 8, dtype=torch.float64).index_put_(
        (edges[1], edges[0]), torch.ones(14, dtype=torch.float64)
    )
    one = one + torch.eye(8, dtype=torch.float64) if source == 'value' else one
    walks = torch.eye(8, dtype=torch.float64)
    for p in range(order):
        walks = ((walks @ one) > 0).double()
        matrix = (
            walks / (walks.sum(1, keepdim=True) * walks.sum(0)).sqrt()
            if source == 'value'
            else walks
        )
        term = (matrix @ (conv.lin_value(x) if source == 'value' else out)).unflatten(1, (2, 4))
        expected = expected + (term * share[p][:, None]).flatten(1)
    torch.testing.assert_close(conv(x, edges), expected)
    torch.testing.assert_close(conv(x, conv.hops(edges, 8)), expected)
    leaves = leaves_of(conv.relational_bias, x=x)
    assert_same_gradients(conv(x, edges), expected, leaves)


@pytest.mark.compiled
# numbers as symbols would trace each graph twice
@torch._dynamo.config.patch(specialize_float=True)
def test_relational_bias_compiles_with_edges_of_each_order():
    conv, x = KernelAttentionConv(6, 8, heads=2, relational_order=2), torch.randn(12, 6)
    edges = conv.hops(EDGES, 12)
    compiled = torch.compile(conv, fullgraph=True, dynamic=True, backend='aot_eager')
    torch.testing.assert_close(compiled(x, edges), conv(x, edges))


def test_relational_bias_raises():
    conv, x = KernelAttentionConv(6, 8, relational_order=2), torch.randn(12, 6)
    with pytest.raises(
        ValueError, match="'edge_index' must be given for the relational bias of order 2"
    ):
        conv(x)
    with pytest.raises(ValueError, match="'edge_index' must hold the edges of 2 orders"):
        conv(x, [EDGES])
    for targets in (x[:5], torch.randn(12, 6)):  # as many targets are not the same nodes
        with pytest.raises(
            ValueError,
            match="'edge_index' must be a list with the edges of each order for a pair 'x'",
        ):
            conv((x, targets), EDGES)
    assert torch.equal(conv((x, x), EDGES), conv(x, EDGES))
    with pytest.raises(ValueError, match="'x' must be one tensor with relational_input='output'"):
        KernelAttentionConv(6, 8, relational_order=1, relational_input='output')((x, x), [EDGES])


@pytest.mark.parametrize('scale', [1.0, 200.0])
def test_log_edge_probability(scale):
    """Without temperature and noise, of the estimate at any norm: its exponential is the weight,
    where that does not vanish."""
    conv = KernelAttentionConv(
        6, 8, heads=2, temperature=0.2, num_gumbel_samples=3, feature_map='orthogonal'
    ).double()
    x, batch = scale * torch.randn(12, 6, dtype=torch.float64), torch.arange(12) % 3
    pairs = torch.tensor([[0, 3, 6, 1, 5], [3, 3, 9, 10, 2]])
    log = conv.log_edge_probability(x, pairs, batch)
    assert log.isfinite().all()
    torch.testing.assert_close(
        log.exp(), conv.eval().attention_scores(x, pairs, batch), rtol=1e-9, atol=1e-300
    )
    assert (log.min() < -700) == (scale > 1)
    grads = torch.autograd.grad(log.sum(), [conv.lin_query.weight, conv.lin_key.weight])
    assert all(grad.isfinite().all() and grad.abs().max() > 0 for grad in grads)


def test_log_edge_probability_needs_a_softmax():
    with pytest.raises(ValueError, match="'feature_map' must be 'positive'"):
        KernelAttentionConv(6, 8, feature_map='elu').log_edge_probability(
            torch.randn(3, 6), EDGES[:, :1]
        )


def test_the_error_does_not_grow_with_the_number_of_nodes():
    errors = []
    for num_nodes in (100, 1600):
        results = []
        for _ in range(30):
            conv = KernelAttentionConv(8, 8, num_features=32, feature_map='positive').double()
            x = torch.randn(num_nodes, 8, dtype=torch.float64)
            q, k, v = conv.lin_query(x), conv.lin_key(x), conv.lin_value(x)
            exact = (q @ k.t() / 8**0.5).softmax(1) @ v
            results.append(((conv(x) - exact).norm() / exact.norm()).item())
        errors.append(sum(results) / len(results))
    assert errors[1] < 1.3 * errors[0]


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_scores_and_probabilities_under_autocast(dtype):
    """Projections of nodes are those of a layer under autocast, and all else is computed in single
    precision."""
    conv, x = KernelAttentionConv(6, 8, heads=2), torch.randn(12, 6)
    for scores in (conv.attention_scores, conv.log_edge_probability):
        with torch.autocast('cpu', dtype):
            out = scores(x, PAIRS)
        assert out.dtype == torch.float32
        torch.testing.assert_close(out, scores(x, PAIRS))
        conv.zero_grad()
        out.sum().backward()
        assert conv.lin_key.weight.grad.isfinite().all()


@pytest.mark.compiled
# numbers as symbols would trace each graph twice
@torch._dynamo.config.patch(specialize_float=True)
def test_log_edge_probability_compiles():
    conv, x = KernelAttentionConv(6, 8, heads=2), torch.randn(12, 6)
    compiled = torch.compile(
        conv.log_edge_probability, fullgraph=True, dynamic=True, backend='aot_eager'
    )
    grads = []
    for run in (compiled, conv.log_edge_probability):
        out = run(x, EDGES)
        grads.append(torch.autograd.grad(out.sum(), conv.lin_query.weight)[0])
        torch.testing.assert_close(out, conv.log_edge_probability(x, EDGES))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize('feature_map', ['simplex', 'orthogonal', 'fourier'])
def test_scores_across_graphs_are_0_whatever_the_other_graph_is(feature_map):
    x = torch.randn(8, 8, requires_grad=True)
    large = torch.cat([30 * x[:4], x[4:]])
    scores = KernelAttentionConv(8, 8, feature_map=feature_map).attention_scores(
        large, torch.tensor([[0, 4], [4, 1]]), torch.arange(8) // 4
    )
    assert scores.tolist() == [[0], [0]]
    assert torch.autograd.grad(scores.sum(), x)[0].isfinite().all()


def test_projections_have_no_gradient():
    conv, x = KernelAttentionConv(6, 8), torch.randn(12, 6)
    conv.feature_map.projection.requires_grad_()
    with pytest.raises(ValueError, match="'projection' must not require a gradient"):
        conv(x)
    with pytest.raises(ValueError, match="'projection' must not require a gradient"):
        kernel_attention(*torch.randn(3, 5, 1, 8), 'softmax', conv.feature_map.projection)
