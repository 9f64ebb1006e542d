import re
import sys

import pytest
import torch
from gradients import assert_same_gradients, leaves_of

from torch_geometric_lgt.functional import AttentionState, kernel_attention
from torch_geometric_lgt.nn import DIFFormerConv, KernelAttentionConv, SGFormerConv
from torch_geometric_lgt.testing import dense


@pytest.fixture
def conv():
    return KernelAttentionConv(6, 8, heads=2).double()


@pytest.fixture
def x():
    return torch.randn(20, 6, dtype=torch.float64)


BATCH = torch.arange(20) % 3


def close(one, other):
    for name in ('numerator', 'denominator'):
        scaled = [
            getattr(s, name) * s.maximum.exp()[(...,) + (None,) * (getattr(s, name).dim() - 3)]
            for s in (one, other)
        ]
        torch.testing.assert_close(*scaled, atol=1e-12, rtol=1e-10)
    torch.testing.assert_close(one.squares, other.squares)
    assert torch.equal(one.count, other.count)


def test_merge_is_a_commutative_monoid(conv, x):
    a, b, c = (conv.attention_state(part) for part in (x[:4], 5 * x[4:9], x[9:]))
    empty = conv.attention_state(x[:0])
    close(a.merge(b), b.merge(a))
    close(a.merge(b).merge(c), a.merge(b.merge(c)))
    close(a.merge(empty), a)
    close(empty.merge(a), a)
    close(a.merge(b).merge(c), conv.attention_state(torch.cat([x[:4], 5 * x[4:9], x[9:]])))


def test_read_of_merged_state_equals_full_graph_with_gradient(conv, x):
    x.requires_grad_()
    whole = conv(x)
    merged = conv(x, state=conv.attention_state(x[:7]).merge(conv.attention_state(x[7:])))
    torch.testing.assert_close(merged, whole, atol=1e-12, rtol=0)
    assert_same_gradients(merged, whole, leaves_of(conv, x=x), atol=1e-11, rtol=0)


def test_detached_state_passes_no_gradient(conv, x):
    x.requires_grad_()
    out = conv(x, state=conv.attention_state(x).detach())
    assert torch.autograd.grad(out.sum(), conv.lin_key.weight, allow_unused=True)[0] is None
    frobenius = SGFormerConv(6, 8).double()
    state = frobenius.attention_state(x)
    torch.testing.assert_close(frobenius(x, state=state.detach()), frobenius(x, state=state))
    assert not state.detach().query_squares.requires_grad


def test_batched_state_holds_squares_and_counts(conv, x):
    state = conv.attention_state(x, BATCH)
    assert state.count.tolist() == [7, 7, 6]
    k = conv.lin_key(x).view(20, 2, 4) * 4**-0.25
    expected = torch.zeros(3, 2, dtype=torch.float64).index_add_(0, BATCH, k.square().sum(-1))
    torch.testing.assert_close(state.squares, expected)
    assert repr(state) == 'AttentionState(graphs=3, heads=2, features=4, channels=4, rank=1)'
    sampled = AttentionState.from_keys(k, k, 'logits', key_noise=torch.zeros(20, 2, 2).double())
    assert (
        repr(sampled)
        == 'AttentionState(graphs=1, heads=2, features=8, channels=4, rank=1, samples=2)'
    )


def test_state_dict_round_trip_and_dtype(conv, x):
    state = conv.attention_state(x, BATCH)
    close(AttentionState.from_state_dict(state.state_dict()), state)
    single = state.to(torch.float32)
    assert single.sums.dtype == single.maximum.dtype == single.squares.dtype == torch.float32
    assert single.count.dtype == torch.int64
    assert conv.attention_state(x[:0]).to(torch.float32).maximum.isfinite().all()


def test_raises(conv, x):
    state = conv.attention_state(x)
    with pytest.raises(ValueError, match="'other' must have"):
        state.merge(conv.attention_state(x, BATCH))
    sizes = "'other' must have the graphs, heads, features, channels and samples of AttentionState"
    with pytest.raises(ValueError, match=f'^{sizes}\\(graphs=3, .* \\(got A.*=1, .*\\)\\)$'):
        conv.attention_state(x, BATCH).without(state)
    with pytest.raises(ValueError, match="'state' must have"):
        KernelAttentionConv(6, 8, heads=4).double()(x, state=state)
    for call in (state.merge, state.without):
        with pytest.raises(TypeError, match=r"'other' must be an AttentionState, .* \(got list\)"):
            call([state])
    with pytest.raises(ValueError, match=r"^'dtype' must be of floating point .got torch.int64"):
        state.to(torch.int64)
    with pytest.raises(ValueError, match="'state' lacks"):
        AttentionState.from_state_dict({'sums': state.sums})
    with pytest.raises(ValueError, match='must have shapes'):
        AttentionState(state.sums, state.sums, state.squares, state.count)


def test_file_round_trip(conv, x, tmp_path):
    state = conv.attention_state(x, BATCH)
    state.save(tmp_path / 'state.safetensors')
    loaded = AttentionState.load(tmp_path / 'state.safetensors')
    assert torch.equal(conv(x, batch=BATCH, state=loaded), conv(x, batch=BATCH, state=state))


@pytest.mark.parametrize('masked', [False, True])
def test_from_keys_and_read_equal_kernel_attention(masked):
    q, k = torch.randn(6, 2, 4).double(), torch.randn(9, 2, 4).double()
    v, projection = torch.randn(9, 2, 3).double(), torch.randn(5, 4).double()
    of, to = torch.arange(9) % 2, torch.arange(6) % 2
    masks = (torch.rand(9, 2).double(), torch.rand(6, 2).double()) if masked else (None, None)
    state = AttentionState.from_keys(k, v, 'softmax', projection, of, scale=0.7, key_mask=masks[0])
    out = state.read(q, 'softmax', projection, to, scale=0.7, query_mask=masks[1])
    expected = kernel_attention(
        q, k, v, 'softmax', projection, (of, to), scale=0.7, key_mask=masks[0], query_mask=masks[1]
    )
    torch.testing.assert_close(out, expected, atol=1e-13, rtol=0)


def test_left_out_arguments_are_those_of_kernel_attention():
    q = torch.randn(6, 2, 4)
    k = torch.randn(9, 2, 4)
    v = torch.randn(9, 2, 3)
    projection = torch.randn(5, 4)
    out = AttentionState.from_keys(k, v, projection=projection).read(q, projection=projection)
    torch.testing.assert_close(out, kernel_attention(q, k, v, 'softmax', projection))
    out = AttentionState.from_keys(k, v, 'focused').read(q, 'focused')
    torch.testing.assert_close(out, kernel_attention(q, k, v, 'focused', power=3.0))


def test_graphs_without_keys_or_queries_at_the_end():
    q, k = torch.randn(2, 1, 4), torch.randn(5, 1, 4)
    state = AttentionState.from_keys(k, k, 'elu', None, torch.tensor([0, 0, 1, 1, 1]), 4)
    assert state.count.tolist() == [2, 3, 0, 0]
    torch.testing.assert_close(
        state.read(q, 'elu', None, torch.tensor([0, 0])), kernel_attention(q, k[:2], k[:2], 'elu')
    )


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ({'feature_map': 'cosine'}, "'feature_map' must be one of"),
        ({'feature_map': 'softmax'}, "'projection' must be given"),
        ({'feature_map': 'elu', 'projection': torch.ones(3, 4)}, "'projection' must be None"),
        (
            {'feature_map': 'softmax', 'projection': torch.ones(3, 5)},
            r"'projection' must have shape \[M, 4\]",
        ),
        (
            {'feature_map': 'elu', 'key_mask': torch.ones(5)},
            r"'query_mask' and 'key_mask' must have shape \[9, R\]",
        ),
        ({'feature_map': 'elu', 'v': torch.ones(8, 2, 4)}, r"'v' must have shape \[9, 2, D\]"),
        ({'feature_map': 'elu', 'k': torch.ones(9, 4)}, r'must have shape \[N, H, C\]'),
    ],
)
def test_from_keys_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        AttentionState.from_keys(
            **{'k': torch.ones(9, 2, 4), 'v': torch.ones(9, 2, 4), **arguments}
        )


@pytest.mark.parametrize(
    'make',
    [
        lambda: KernelAttentionConv(6, 8),
        lambda: SGFormerConv(6, 8),
        lambda: DIFFormerConv(6, 8, use_graph=False),
    ],
)
def test_states_are_moved_to_wider_and_to_narrower_dtypes(make, x):
    conv = make()
    state = conv.attention_state(x.float()).detach()
    close(state.to(torch.float64).to(torch.float32), state)
    assert state.to(torch.float16).maximum.isfinite().all()
    with pytest.raises(
        ValueError,
        match=(
            r"'state' must be of torch.float64 on cpu \(got torch.float32 on cpu\); use "
            r"state.to\('cpu', torch.float64\)"
        ),
    ):
        conv.double()(x, state=state)
    torch.testing.assert_close(
        conv(x, state=state.to(torch.float64)), conv(x), atol=1e-5, rtol=1e-5
    )


def test_all_tensors_are_moved_to_another_device(x):
    state = KernelAttentionConv(6, 8).attention_state(x.float()).to('meta')
    tensors = {name: part for name, part in state.state_dict().items() if part.dim() > 0}
    assert {name: part.device.type for name, part in tensors.items()} == dict.fromkeys(
        ('sums', 'maximum', 'count', 'squares', 'query_squares', 'projection'), 'meta'
    )


@pytest.mark.parametrize(
    'make',
    [
        lambda: KernelAttentionConv(6, 8),
        lambda: SGFormerConv(6, 8),
        lambda: SGFormerConv(6, 8, norm='row'),
        lambda: DIFFormerConv(6, 8, norm='frobenius', use_graph=False),
    ],
)
def test_a_graph_without_nodes_left_is_empty(make):
    """Whatever rounding leaves of its sums, and beside a graph that keeps some; what is put back is
    there alone."""
    conv, x, batch = make(), torch.randn(50, 6), torch.arange(50) % 2
    removed = torch.cat([torch.randperm(25) * 2, torch.tensor([1, 3])])
    remaining = conv.attention_state(x, batch, 2).without(
        conv.attention_state(x[removed], batch[removed], 2)
    )
    assert remaining.count.tolist() == [0, 23]
    assert not remaining.sums[0].any()
    assert not remaining.squares[0].any()
    assert not remaining.query_squares[0].any()
    again = remaining.merge(conv.attention_state(x[:10:2], batch[:10:2], 2))
    close_to = conv.attention_state(x[:10:2]), again.sums[:1] * again.maximum[:1].exp()[..., None]
    torch.testing.assert_close(close_to[0].sums * close_to[0].maximum.exp()[..., None], close_to[1])
    out = conv(x, batch=batch, state=remaining)
    assert out.isfinite().all()


@pytest.mark.parametrize('weight', [1e-10, 0.0])
def test_a_difference_of_states_keeps_small_weights_and_reads_0_without_any(weight):
    """A ten-billionth of the sums is left as it is; nothing reads 0, and values of 0 have a
    gradient."""
    k, mask = torch.randn(20, 2, 3, dtype=torch.float64), torch.ones(20, 1, dtype=torch.float64)
    v = torch.rand(20, 2, 4, dtype=torch.float64) * torch.tensor([1.0, 1.0, 1.0, 0.0])
    v.requires_grad_()
    mask[7:] = weight

    def summed_up(nodes):
        return AttentionState.from_keys(k[nodes], v[nodes], 'elu', key_mask=mask[nodes])

    left, rest = summed_up(slice(None)).without(summed_up(slice(7))), slice(7, None)
    expected = dense.kernel_attention(
        *(dense.feature_map('elu', part) for part in (k, k[rest])), v[rest]
    )
    expected = expected if weight > 0 else expected * 0
    actual = left.read(k, 'elu')
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=0)
    grads = [
        torch.autograd.grad(out.square().sum() + out.sum(), v)[0] for out in (actual, expected)
    ]
    torch.testing.assert_close(grads[0][rest], grads[1][rest], rtol=1e-4, atol=0)


@pytest.mark.parametrize('name', ['maximum', 'squares', 'count'])
def test_tensors_of_other_shapes_are_refused(name):
    shapes = {'sums': (2, 3, 4, 5), 'maximum': (2, 3, 4), 'squares': (2, 3), 'count': (2,)}
    AttentionState(*(torch.zeros(shape) for shape in shapes.values()))
    shapes[name] = (*shapes[name], 1)
    listed = ', '.join(map(str, shapes.values()))
    message = (
        "'sums', 'maximum', 'squares', 'count' must have shapes [B, H, M, W], [B, H, M], [B, "
        f'H], [B] (got {listed})'
    )
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        AttentionState(*(torch.zeros(shape) for shape in shapes.values()))


def test_squares_of_queries_and_factors_of_other_shapes_are_refused(conv, x):
    """Those that broadcast were accepted."""
    state = conv.attention_state(x, BATCH)
    tensors = state.sums, state.maximum, state.squares, state.count
    with pytest.raises(
        ValueError, match=r"'query_squares' must have the shape of 'squares', \(3, 2\)"
    ):
        AttentionState(*tensors, query_squares=torch.zeros(2))
    with pytest.raises(ValueError, match=r"'factor' must have shape \(3, 2, 4\) \(got \(4,\)\)"):
        state.scaled(torch.ones(4, dtype=torch.float64))


def test_a_factor_leaves_the_squares_of_both_sides(x):
    state = SGFormerConv(6, 8).double().attention_state(x)
    scaled = state.scaled(torch.full_like(state.maximum, 2.0))
    assert state.query_squares.min() > 0
    for name, factor in (('sums', 2), ('maximum', 1), ('squares', 1), ('query_squares', 1)):
        assert torch.equal(getattr(scaled, name), factor * getattr(state, name)), name


def test_small_squares_are_left_as_they_are(conv, x):
    both, one = (conv.attention_state(part * 1e-3) for part in (x[:2], x[:1]))
    torch.testing.assert_close(
        both.without(one).squares, conv.attention_state(x[1:2] * 1e-3).squares
    )


def test_queries_without_a_batch_do_not_read_several_graphs(conv, x):
    projection = torch.randn(7, 3, dtype=torch.float64)
    q, k = torch.randn(2, 20, 2, 3, dtype=torch.float64)
    state = AttentionState.from_keys(k, k, 'softmax', projection, BATCH)
    with pytest.raises(
        ValueError,
        match=r"^'state' must have the graphs, .*, \(1, 2, 7, 1, 1\) \(got \(3, 2, 7, 1, 1\)\)$",
    ):
        state.read(q, 'softmax', projection)


def test_parts_of_a_masked_state_keep_their_rank():
    k, mask = torch.randn(9, 2, 3), torch.rand(9, 2)
    state = AttentionState.from_keys(k, k, 'softmax', torch.randn(7, 3), key_mask=mask)
    for other in (
        AttentionState.from_state_dict(state.state_dict()),
        state.to(dtype=torch.float64),
    ):
        assert other.rank == 2
        assert torch.equal(other.numerator, state.numerator.to(other.sums.dtype))
    assert state.to(dtype=torch.float64).sums.dtype == torch.float64


def test_reduction_is_the_merge_of_what_all_processes_send(monkeypatch):
    """Two processes, one after the other; counts beyond what single precision holds stay whole
    numbers."""
    module, group, sent = sys.modules[AttentionState.__module__], object(), []
    states = [SGFormerConv(6, 8).attention_state(torch.randn(9, 6)) for _ in range(2)]
    for state, count in zip(states, (2**30 + 4000, 2**31 + 4095), strict=True):
        state.maximum = torch.randn_like(state.maximum)
        state.count = torch.tensor([count])

    def reduced(vector, of):
        assert of is group
        sent.append(vector)
        return sum(sent)

    def largest(maximum, of):
        assert of is group
        assert any(maximum is state.maximum for state in states)
        return torch.maximum(*(state.maximum for state in states))

    monkeypatch.setattr(module, 'all_reduce_sum', reduced)
    monkeypatch.setattr(module, 'all_reduce_max', largest)
    states[0].all_reduce(group)
    torch.testing.assert_close(
        states[1].all_reduce(group).state_dict(), states[0].merge(states[1]).state_dict()
    )


def test_a_difference_below_64_roundings_of_a_sum_is_none():
    k = torch.tensor([1e3, 2e-12], dtype=torch.float64).view(2, 1, 1)
    whole, part = (AttentionState.from_keys(x, torch.ones_like(x), 'relu') for x in (k, k[:1]))
    assert (whole.sums - part.sums).abs().min() > 1e-12
    assert not whole.without(part).sums.any()


def test_a_state_without_its_nodes_has_the_maximum_and_the_squares_of_none():
    conv, x = KernelAttentionConv(4, 6), torch.randn(5, 4)
    state, part, empty = (conv.attention_state(x[:rows]) for rows in (5, 4, 0))
    assert torch.equal(state.without(state).maximum, empty.maximum)
    rounded = part._replace(squares=state.squares + 1)
    assert torch.equal(state.without(rounded).squares, torch.zeros(1, 1))
