import sys

import pytest
import torch
from gradients import gradients

from torch_geometric_lgt.functional import AttentionState, kernel_attention
from torch_geometric_lgt.functional._engine.dispatch import PLAIN_ELEMENTS
from torch_geometric_lgt.functional._engine.sampled import split_maximum
from torch_geometric_lgt.testing import dense

BATCHES = {
    'one': (None, None, 17, 17),
    'sorted': (torch.tensor([0] * 4 + [2] * 6 + [3]), None, 11, 11),
    'unsorted': (torch.tensor([3, 0, 3, 1, 0, 3, 1, 6, 3]), None, 9, 9),
    'bipartite': (torch.tensor([0, 2, 0, 1, 2]), torch.tensor([2, 2, 0, 3, 1, 0, 1, 2]), 5, 8),
}
H, K = 2, 3


@pytest.fixture(params=['operators', 'formulas'], autouse=True)
def _computed_by(request, constants):
    """Formulas compute small graphs, unless a test sets a constant of the operators."""
    if request.param == 'formulas':
        constants(plain_elements=PLAIN_ELEMENTS)


def draw(num_keys, num_queries, dtype=torch.float64, noise_scale=1.0):
    sizes = ((num_queries, 5), (num_keys, 5), (num_keys, 4))
    leaves = [torch.randn(num, H, size, dtype=dtype).requires_grad_() for num, size in sizes]
    noise = -torch.empty(num_keys, H, K, dtype=dtype).exponential_().log() * noise_scale
    return torch.randn(7, 5, dtype=dtype), noise, leaves


def slow(projection, noise, leaves, batch_k=None, batch_q=None):
    q, k, v = leaves
    phi_q, phi_k = (dense.feature_map('softmax', x, projection) for x in (q, k))
    return dense.sampled_attention(
        phi_q, phi_k, v, noise, batch_q if batch_q is not None else batch_k, batch_k
    )


def assert_alike(actual, expected, leaves, tolerance=1e-10):
    assert relative(actual, expected) < tolerance
    named, grad = dict(zip('qkv', leaves, strict=True)), torch.randn_like(expected)
    found, exact = (gradients(out, named, grad) for out in (actual, expected))
    for name, value in exact.items():
        assert relative(found[name], value) < tolerance, name


def relative(actual, expected):
    return float(((actual - expected).norm() / expected.norm()).detach())


@pytest.mark.parametrize('chunk', [None, 2])
@pytest.mark.parametrize('name', BATCHES)
def test_matches_dense_with_gradients(name, chunk, constants):
    if chunk is not None:
        constants(attention_chunk=chunk)
    batch_k, batch_q, *sizes = BATCHES[name]
    projection, noise, leaves = draw(*sizes)
    batch = batch_k if batch_q is None else (batch_k, batch_q)
    actual = kernel_attention(*leaves, 'softmax', projection, batch, key_noise=noise)
    assert_alike(actual, slow(projection, noise, leaves, batch_k, batch_q), leaves)


def test_samples_of_no_weight_are_plain_attention():
    projection, noise, leaves = draw(9, 9)
    plain = kernel_attention(*leaves, 'softmax', projection)
    assert_alike(
        kernel_attention(*leaves, 'softmax', projection, key_noise=torch.zeros_like(noise)),
        plain,
        leaves,
    )
    one = kernel_attention(*leaves, 'softmax', projection, key_noise=noise[:, :, :1])
    assert_alike(one, slow(projection, noise[:, :, :1], leaves), leaves)


@pytest.mark.parametrize('temperature', [0.01, 0.05])
def test_mean_of_samples_is_the_softmax_without_temperature(temperature):
    """Theorem 2 of NodeFormer: each sample is nearly one-hot, at the argmax of logit plus noise."""
    logits = torch.tensor([-1.5, 1.1, 1.6, 0.6, -0.2, 0.9], dtype=torch.float64)
    noise = -torch.empty(6, 1, 40000, dtype=torch.float64).exponential_().log()
    keys, values = (logits / temperature).view(6, 1, 1), torch.eye(6, dtype=torch.float64)[:, None]
    query = torch.zeros(1, 1, 1, dtype=torch.float64)
    mean = kernel_attention(query, keys, values, 'logits', key_noise=noise / temperature).flatten()
    expected = logits.softmax(0)
    assert (
        (mean - expected).abs() < 5 * (expected * (1 - expected) / 40000).sqrt() + 0.1 * temperature
    ).all()
    assert ((mean - (logits / 0.25).softmax(0)).abs().max()) > 0.1


def test_states_merge_and_keep_their_samples(tmp_path):
    projection, noise, leaves = draw(12, 12)
    q, k, v = leaves
    parts = [
        AttentionState.from_keys(k[i::2], v[i::2], 'softmax', projection, key_noise=noise[i::2])
        for i in (0, 1)
    ]
    state = parts[0].merge(parts[1])
    assert state.sums.shape == (1, H, K * 7, 5)
    assert (
        repr(state)
        == 'AttentionState(graphs=1, heads=2, features=21, channels=4, rank=1, samples=3)'
    )
    assert_alike(state.read(q, 'softmax', projection), slow(projection, noise, leaves), leaves)
    state.save(tmp_path / 'state')
    torch.testing.assert_close(
        AttentionState.load(tmp_path / 'state').read(q, 'softmax', projection),
        state.read(q, 'softmax', projection),
    )
    with pytest.raises(ValueError, match=r'^.other. must have .* and samples of AttentionState'):
        state.merge(
            AttentionState.from_keys(k, v, 'softmax', torch.randn(21, 5, dtype=torch.float64))
        )


@pytest.mark.parametrize('temperature', [0.05, 0.25])
def test_float32_at_low_temperature(temperature):
    """The largest weights, of up to exp(180), are beyond the range of float32."""
    projection, noise, leaves = draw(200, 2000, noise_scale=1 / temperature)
    assert noise.max() > 6 / temperature
    single = [leaf.detach().float().requires_grad_() for leaf in leaves]
    actual = kernel_attention(*single, 'softmax', projection.float(), key_noise=noise.float())
    expected = slow(projection, noise, leaves)
    assert relative(actual.double(), expected) < 1e-4
    grad = torch.randn_like(expected)
    found = gradients(actual, dict(zip('qkv', single, strict=True)), grad.float())
    for name, value in gradients(expected, dict(zip('qkv', leaves, strict=True)), grad).items():
        assert found[name].isfinite().all(), name
        assert relative(found[name].double(), value) < 1e-3, name


@pytest.mark.compiled
def test_compiles_once_for_every_size():
    projection = torch.randn(7, 5)

    def run(q, k, v, noise):
        return kernel_attention(q, k, v, 'softmax', projection, key_noise=noise)

    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend='aot_eager')
    for n in (20, 33):
        _, noise, leaves = draw(n, n, torch.float32)
        expected, actual = run(*leaves, noise), compiled(*leaves, noise)
        torch.testing.assert_close(actual, expected)
        named = dict(zip('qkv', leaves, strict=True))
        torch.testing.assert_close(*(gradients(out.sum(), named) for out in (actual, expected)))


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({'key_noise': torch.zeros(4, H)}, r"'key_noise' must have shape \[4, 2, K\]"),
        ({'key_noise': torch.zeros(3, H, K)}, r"'key_noise' must have shape \[4, 2, K\]"),
        ({'key_noise': torch.zeros(4, H, K), 'key_mask': torch.ones(4, 2)}, 'no mask'),
        (
            {'key_noise': torch.zeros(4, H, K), 'feature_map': 'elu', 'projection': None},
            'feature maps',
        ),
    ],
)
def test_raises(arguments, message):
    q, k, v = (torch.randn(4, H, 5) for _ in range(3))
    with pytest.raises(ValueError, match=message):
        kernel_attention(
            q, k, v, **{'feature_map': 'softmax', 'projection': torch.randn(7, 5), **arguments}
        )


@pytest.mark.parametrize('gap', [30.0, 200.0])
def test_a_sample_that_looks_where_a_feature_is_small(gap):
    """Weights of a node whose log-feature lies far below the largest: the sum over features and
    samples of two bounds, or one of each."""
    logits = torch.zeros(6, 1, 3, dtype=torch.float64)
    logits[0, 0, 1] = -gap
    noise = torch.zeros(6, 1, 2, dtype=torch.float64)
    noise[0, 0, 1] = 2 * gap
    leaves = [
        torch.randn(4, 1, 3, dtype=torch.float64),
        logits,
        torch.randn(6, 1, 2, dtype=torch.float64),
    ]
    for leaf in leaves:
        leaf.requires_grad_()

    def expected():
        return dense.sampled_attention(leaves[0].exp(), leaves[1].exp(), leaves[2], noise)

    assert_alike(kernel_attention(*leaves, 'logits', key_noise=noise), expected(), leaves)

    def summed_up(log, weights):
        return AttentionState.from_keys(log, leaves[2], 'logits', key_noise=weights)

    state = summed_up(leaves[1], noise)
    assert bool(split_maximum(state.maximum, 2)[2].all()) == (gap < 40)
    assert_alike(state.read(leaves[0], 'logits'), expected(), leaves)
    merged = summed_up(leaves[1], noise).merge(summed_up(leaves[1] - 100, noise * 0))
    both = [
        torch.cat([leaves[1], leaves[1] - 100]),
        torch.cat([leaves[2], leaves[2]]),
        torch.cat([noise, noise * 0]),
    ]
    assert_alike(
        merged.read(leaves[0], 'logits'),
        dense.sampled_attention(leaves[0].exp(), both[0].exp(), *both[1:]),
        leaves,
    )


def test_float32_is_as_exact_as_the_formula_in_float64():
    """At a temperature of 0.05, where the largest weight is about exp(200)."""
    projection, _, leaves = draw(300, 300)
    noise = -torch.empty(300, H, K, dtype=torch.float64).exponential_().log() / 0.05
    expected = kernel_attention(*leaves, 'softmax', projection, key_noise=noise)
    single = [leaf.detach().float() for leaf in leaves]
    actual = kernel_attention(*single, 'softmax', projection.float(), key_noise=noise.float())
    assert relative(actual.double(), expected) < 1e-5


def test_squares_of_the_keys_of_several_chunks(constants):
    constants(attention_chunk=2)
    projection, noise, (_, k, v) = draw(9, 9)
    batch = torch.tensor([0] * 5 + [1] * 4)
    state = AttentionState.from_keys(k, v, 'softmax', projection, batch, key_noise=noise)
    torch.testing.assert_close(
        state.squares, torch.stack([part.square().sum((0, 2)) for part in (k[:5], k[5:])])
    )


def test_bounds_of_graphs_and_heads_far_apart_stay_sums_of_two():
    _, noise, (_, logits, v) = draw(8, 8)
    logits = (
        logits + torch.tensor([[0.0, 1000.0], [-1000.0, -50.0]]).repeat_interleave(4, 0)[..., None]
    )
    state = AttentionState.from_keys(
        logits, v, 'logits', batch=torch.arange(8) // 4, key_noise=noise
    )
    assert split_maximum(state.maximum, K)[2].all()


def test_a_query_is_as_exact_beside_much_longer_ones():
    projection, noise, (q, k, v) = draw(9, 9)
    leaves = [
        (q * torch.tensor([100.0] + [1.0] * 8)[:, None, None]).detach().requires_grad_(),
        k,
        v,
    ]
    actual = kernel_attention(
        *(leaf.float() for leaf in leaves), 'softmax', projection.float(), key_noise=noise.float()
    )
    assert relative(actual[1:].double(), slow(projection, noise, leaves)[1:]) < 1e-5


def both_ways(queries, keys, values, noise, kind, projection, batch, dtype, through_state=False):
    """Output and gradients of the function in a dtype and of the dense definition in double
    precision."""
    leaves = [part.double().requires_grad_() for part in (queries, keys, values)]
    phi = [
        part.exp()
        if projection is None
        else dense.feature_map('softmax', part, projection.double())
        for part in leaves[:2]
    ]
    expected = dense.sampled_attention(*phi, leaves[2], noise.double(), batch, batch)
    grad = torch.arange(1.0, 1.0 + queries.size(0)).sin()[:, None, None].expand_as(expected)
    inputs = [part.detach().to(dtype).requires_grad_() for part in leaves]
    options = {'projection': None if projection is None else projection.to(dtype)}
    if through_state:
        state = AttentionState.from_keys(
            *inputs[1:], kind, **options, batch=batch, key_noise=noise.to(dtype)
        )
        actual = state.read(inputs[0], kind, **options, batch=batch)
    else:
        actual = kernel_attention(*inputs, kind, **options, batch=batch, key_noise=noise.to(dtype))
    pairs = (actual, inputs, grad.to(dtype)), (expected, leaves, grad.double())
    return [
        {'out': out.detach(), **gradients(out, dict(zip('qkv', parts, strict=True)), direction)}
        for out, parts, direction in pairs
    ]


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('through_state', [False, True])
@pytest.mark.parametrize('largest', [80.0, 89.0, 700.0])
@pytest.mark.parametrize('samples', [[1.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
@pytest.mark.parametrize('num_features', [1, 3])
def test_one_key_that_all_samples_look_at(num_features, samples, largest, through_state, dtype):
    """The logarithms lie too far apart for sums of two bounds, and still the maxima are such
    sums."""
    queries = torch.ones(1, 1, 1)
    keys = torch.tensor([0.0, 20.0]).view(2, 1, 1)
    values = torch.tensor([1.0, 2.0]).view(2, 1, 1)
    noise = torch.tensor([[0.0, 0.0], samples]).view(2, 1, 2) * largest
    projection = torch.randn(num_features, 1)
    pairs = both_ways(
        queries, keys, values, noise, 'softmax', projection, None, dtype, through_state
    )
    bound = 1e-6 if dtype == torch.float32 else 1e-12
    torch.testing.assert_close(*pairs, rtol=0, atol=bound, check_dtype=False)


@pytest.mark.parametrize(
    ('num_samples', 'num_nodes', 'dtype', 'bound'),
    [(2, 2, torch.float32, 1e-4), (3, 5, torch.float32, 1e-4), (3, 5, torch.float64, 1e-11)],
)
def test_long_keys_at_low_temperature(num_samples, num_nodes, dtype, bound):
    for seed in range(60):
        torch.manual_seed(seed)
        queries, keys, values = (
            torch.randn(num_nodes, H, 4) * length for length in (1.0, 10.0, 1.0)
        )
        noise = -torch.empty(num_nodes, H, num_samples).exponential_().log() / 0.05
        pairs = both_ways(queries, keys, values, noise, 'softmax', torch.randn(4, 4), None, dtype)
        torch.testing.assert_close(*pairs, rtol=bound, atol=bound, check_dtype=False)


@pytest.mark.parametrize('through_state', [False, True])
@pytest.mark.parametrize('poison', [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize('part', ['queries', 'keys', 'values', 'noise', 'all'])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_a_graph_is_as_alone_beside_what_is_not_a_number(dtype, part, poison, through_state):
    """The first graph has a sample that looks where all features are small, the second none, the
    third is poisoned."""
    batch = torch.arange(3).repeat_interleave(4)
    parts = {
        name: torch.randn(12, 1, size)
        for name, size in (('queries', 3), ('keys', 3), ('values', 2))
    }
    parts['noise'] = torch.randn(12, 1, 2)
    parts['keys'][:4] += torch.tensor([-650.0, 650.0, 650.0, 650.0]).view(4, 1, 1)
    parts['noise'][:4, 0, 1] += torch.tensor([690.0, -690.0, -690.0, -690.0])

    def run(nodes):
        return both_ways(
            *(value[nodes] for value in parts.values()),
            'logits',
            None,
            batch[nodes],
            dtype,
            through_state,
        )

    alone, exact = run(batch == 0), run(batch < 2)[1]
    for name in parts:
        if part in (name, 'all'):
            parts[name][9] = poison
    beside = run(batch < 3)[0]
    bound = 1e-6 if dtype == torch.float32 else 1e-12
    first, both = ({name: value[:rows] for name, value in beside.items()} for rows in (4, 8))
    torch.testing.assert_close(first, alone[0], rtol=bound, atol=bound)
    bounds = {'rtol': 100 * bound, 'atol': 100 * bound}
    torch.testing.assert_close(both, exact, **bounds, check_dtype=False)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('num_samples', [1, 3])
@pytest.mark.parametrize('through_state', [False, True])
def test_keys_without_weight_count_for_nothing(through_state, num_samples, dtype):
    """Log-weights of minus infinity: some keys, all keys of a graph, all in one sample and one
    head."""
    batch = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 3])
    queries, keys, values, noise = (torch.randn(10, H, size) for size in (5, 5, 4, num_samples))
    noise[0] = noise[batch == 1] = noise[9] = -torch.inf
    noise[batch == 2, 1, 0] = -torch.inf
    pairs = both_ways(
        queries, keys, values, noise, 'softmax', torch.randn(7, 5), batch, dtype, through_state
    )
    bound = 1e-5 if dtype == torch.float32 else 1e-10
    torch.testing.assert_close(*pairs, rtol=bound, atol=1e-6, check_dtype=False)
    for name, part in pairs[0].items():
        assert not part[(batch == 1) | (batch == 3)].any(), name


@pytest.mark.parametrize('batch', [None, torch.arange(3).repeat_interleave(4)])
def test_samples_without_keys_where_no_graph_needs_padding(batch):
    """One graph, or graphs of one size. One sample of a head has no key, then none of the last four
    keys has a weight in any sample; the output was NaN."""
    projection, noise, leaves = draw(12, 12)
    noise[:, 0, 1] = noise[8:] = -torch.inf
    actual = kernel_attention(*leaves, 'softmax', projection, batch, key_noise=noise)
    expected = slow(projection, noise, leaves, batch)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
    named = dict(zip('qkv', leaves, strict=True))
    grads = [gradients(out.square().sum(), named) for out in (actual, expected)]
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-12)
    assert bool(actual[8:].any()) is (batch is None)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('num_nodes', [12, 5000])
def test_states_of_keys_without_weight(num_nodes, dtype, monkeypatch):
    """Merged, reduced over two processes, and what is left where the keys with a weight are taken
    away."""
    batch, weighed = torch.arange(num_nodes) % 3, torch.rand(num_nodes) < 0.5
    weighed[batch == 1] = False
    q, k, v = (
        torch.randn(num_nodes, H, size, dtype=dtype, requires_grad=True) for size in (5, 5, 4)
    )
    projection = torch.randn(7, 5, dtype=dtype)
    noise = 3 * torch.randn(num_nodes, H, K, dtype=dtype)
    noise[~weighed] = -torch.inf

    def summed_up(nodes):
        return AttentionState.from_keys(
            k[nodes], v[nodes], 'softmax', projection, batch[nodes], 3, key_noise=noise[nodes]
        )

    everything = torch.ones(num_nodes, dtype=torch.bool)
    merged = summed_up(weighed).merge(summed_up(~weighed)).read(q, 'softmax', projection, batch)
    torch.testing.assert_close(merged, summed_up(everything).read(q, 'softmax', projection, batch))
    assert not merged[batch == 1].any()
    parts = [summed_up(nodes) for nodes in (weighed, ~weighed)]
    module = sys.modules[AttentionState.__module__]
    sent = []
    monkeypatch.setattr(
        module, 'all_reduce_max', lambda *_: torch.maximum(*(part.maximum for part in parts))
    )
    monkeypatch.setattr(
        module, 'all_reduce_sum', lambda vector, _: sent.append(vector) or sum(sent)
    )
    reduced = [part.all_reduce() for part in parts][1].read(q, 'softmax', projection, batch)
    torch.testing.assert_close(reduced, merged)
    leaves = {'q': q, 'k': k, 'v': v}
    grads = [gradients(out.sum(), leaves) for out in (reduced, merged)]
    torch.testing.assert_close(*grads)
    for name, grad in grads[0].items():
        assert not grad[batch == 1].any(), name
    left = summed_up(everything).without(summed_up(weighed)).read(q, 'softmax', projection, batch)
    assert not left.any()
    for name, grad in gradients(left.sum(), leaves).items():
        assert not grad.any(), name
