import re

import pytest
import torch
from gradients import assert_same_gradients, gradients

from torch_geometric_lgt.functional import AttentionState, kernel_attention
from torch_geometric_lgt.functional.attention.kernel import node_pair
from torch_geometric_lgt.testing import dense

KINDS = ['softmax', 'fourier', 'elu', 'relu', 'focused', 'assignment']
NAMES = ('q', 'k', 'v', 'z_q', 'z_k')
BATCHES = {
    'one': (None, 17),
    'sorted': (torch.tensor([0] * 4 + [2] * 6 + [3]), 11),
    'unsorted': (torch.tensor([3, 0, 3, 1, 0, 3, 1, 6, 3]), 9),
    'odd': (None, 63),
    'equal': (torch.arange(4).repeat_interleave(3), 12),
}


def relative(actual, expected):
    return float(((actual - expected).norm() / expected.norm().clamp(min=1e-300)).detach())


def draw(kind, num_q, num_k, rank, scale=1.0, heads=2, channels=5, width=3, features=7):
    projection = torch.randn(features, channels, dtype=torch.float64)
    leaves = [
        torch.randn(n, heads, c, dtype=torch.float64)
        for n, c in ((num_q, channels), (num_k, channels), (num_k, width))
    ]
    leaves[0] *= scale
    leaves[1] *= scale
    if rank:
        leaves += [torch.rand(num_q, dtype=torch.float64), torch.rand(num_k, dtype=torch.float64)]
    return projection, [leaf.requires_grad_() for leaf in leaves]


def fast(kind, projection, batch, q, k, v, *z):
    masks = {}
    if z:
        angle_q, angle_k = (torch.pi / 4 * part for part in z)
        masks = {
            'query_mask': torch.stack([angle_q.sin(), angle_q.cos()], 1),
            'key_mask': torch.stack([angle_k.cos(), angle_k.sin()], 1),
        }
    drawn = projection if kind in ('softmax', 'fourier') else None
    return kernel_attention(q, k, v, kind, drawn, batch, **masks)


def slow(kind, projection, batch, q, k, v, *z):
    batch_k, batch_q = batch if isinstance(batch, tuple) else (batch, batch)
    phi_q, phi_k = dense.feature_map(kind, q, projection), dense.feature_map(kind, k, projection)
    return dense.kernel_attention(
        phi_q, phi_k, v, dense.degree_mask(*z) if z else None, batch_q, batch_k
    )


def assert_equal_with_gradients(kind, projection, batch, leaves, tolerance=1e-10):
    actual = fast(kind, projection, batch, *leaves)
    expected = slow(kind, projection, batch, *leaves)
    assert relative(actual, expected) < tolerance
    assert_near_gradients(actual, expected, dict(zip(NAMES, leaves, strict=False)), tolerance)


def assert_near_gradients(actual, expected, leaves, tolerance):
    grad = torch.randn_like(expected)
    found, exact = (gradients(out, leaves, grad) for out in (actual, expected))
    for name in leaves:
        assert relative(found[name], exact[name]) < tolerance, name


@pytest.mark.parametrize('rank', [0, 2], ids=['plain', 'masked'])
@pytest.mark.parametrize('batch', BATCHES)
@pytest.mark.parametrize('kind', KINDS)
def test_matches_dense(kind, batch, rank):
    batch, num_nodes = BATCHES[batch]
    projection, leaves = draw(kind, num_nodes, num_nodes, rank)
    if kind == 'fourier':
        leaves = [
            leaf.detach().mul(0.2 if i < 2 else 1.0).requires_grad_()
            for i, leaf in enumerate(leaves)
        ]
    assert_equal_with_gradients(kind, projection, batch, leaves)


@pytest.mark.parametrize('rank', [0, 2], ids=['plain', 'masked'])
@pytest.mark.parametrize('kind', ['softmax', 'elu'])
def test_bipartite_matches_dense(kind, rank):
    projection, leaves = draw(kind, 8, 5, rank)
    assert_equal_with_gradients(
        kind,
        projection,
        (torch.tensor([0, 2, 0, 1, 2]), torch.tensor([2, 2, 0, 3, 1, 0, 1, 2])),
        leaves,
    )
    assert_equal_with_gradients(kind, projection, None, leaves)


def test_masks_of_three_weights():
    projection, leaves = draw('softmax', 150, 150, 0)
    leaves += [torch.rand(150, 3, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    q, k, v, of_query, of_key = leaves
    actual = kernel_attention(q, k, v, 'softmax', projection, query_mask=of_query, key_mask=of_key)
    phi_q, phi_k = (dense.feature_map('softmax', x, projection) for x in (q, k))
    expected = dense.kernel_attention(phi_q, phi_k, v, of_query @ of_key.t())
    assert_near_gradients(actual, expected, dict(zip(NAMES, leaves, strict=True)), 1e-10)
    assert relative(actual, expected) < 1e-10


@pytest.mark.parametrize('scale', [0.5, 2.0])
def test_scale_is_that_of_queries_and_keys(scale):
    projection, leaves = draw('softmax', 9, 9, 0)
    q, k, v = leaves
    actual = kernel_attention(q, k, v, 'softmax', projection, scale=scale)
    expected = kernel_attention(scale * q, scale * k, v, 'softmax', projection)
    torch.testing.assert_close(actual, expected)
    named = {'q': q, 'k': k, 'v': v}
    torch.testing.assert_close(*(gradients(out.sin().sum(), named) for out in (actual, expected)))


@pytest.mark.parametrize(
    ('changed', 'message'),
    [
        (
            {'k': torch.ones(8, 1, 2).double()},
            "'k' must be as 'q' of torch.float32 on cpu (got torch.float64 on cpu); use k.to(q)",
        ),
        (
            {'v': torch.ones(8, 1, 2, device='meta')},
            "'v' must be as 'q' of torch.float32 on cpu (got torch.float32 on meta); use v.to(q)",
        ),
        (
            {'q': torch.ones(5, 1, 2)},
            "'batch' must hold one graph id per node (got shape (8,) for 5 nodes)",
        ),
        (
            {'batch': torch.zeros(8, dtype=torch.long, device='meta')},
            (
                "'batch' must be on the device of 'x' (got meta and cpu); move it with "
                'batch.to(x.device)'
            ),
        ),
        (
            {'batch_size': 3},
            "'batch' holds the graph id 3 but 'batch_size' is 3; raise 'batch_size' to at least 4",
        ),
        (
            {
                'batch': (torch.zeros(8, dtype=torch.long, device='meta'), torch.arange(8)),
                'batch_size': 8,
            },
            (
                "'batch' must be on the device of 'x' (got meta and cpu); move it with "
                'batch.to(x.device)'
            ),
        ),
        (
            {
                'batch': (torch.arange(8), torch.zeros(8, dtype=torch.long, device='meta')),
                'batch_size': 8,
            },
            (
                "'batch' must be on the device of 'x' (got meta and cpu); move it with "
                'batch.to(x.device)'
            ),
        ),
        (
            {'batch': (torch.arange(8), torch.arange(8)), 'batch_size': 3},
            "'batch' holds the graph id 7 but 'batch_size' is 3; raise 'batch_size' to at least 8",
        ),
        (
            {'q': torch.ones(5, 1, 2), 'batch': None, 'batch_size': 2},
            "'batch_size' must be 1 without 'batch' (got 2); pass the 'batch' vector, or leave out "
            'the number of seed nodes of a NeighborLoader',
        ),
        (
            {'key_mask': torch.ones(8, 2)},
            "'query_mask' and 'key_mask' must have equally many columns, and no mask counts as one "
            '(got 1 and 2)',
        ),
    ],
)
def test_inputs_that_do_not_fit_each_other(changed, message):
    inputs = {name: torch.ones(8, 1, 2) for name in 'qkv'} | {'batch': torch.arange(8) // 2}
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        kernel_attention(**inputs | changed, feature_map='elu')


@pytest.mark.parametrize(
    ('batch', 'batch_size', 'sources', 'targets'),
    [
        (([0, 0, 2], [1]), None, [2, 0, 1], [0, 1, 0]),
        (([0, 0, 2], [1]), 5, [2, 0, 1, 0, 0], [0, 1, 0, 0, 0]),
        (([], [1]), None, [0, 0], [0, 1]),
        (([], []), None, [], []),
        (([0, 0, 0], None), None, [3], [3]),
        ((None, [0, 0]), None, [3], [2]),
    ],
)
def test_graphs_of_sources_and_targets(batch, batch_size, sources, targets):
    batch = tuple(part if part is None else torch.tensor(part, dtype=torch.long) for part in batch)
    num_nodes = [3 if part is None else part.numel() for part in batch]
    actual = node_pair(batch, *num_nodes, batch_size, torch.device('cpu'))
    assert [part.sizes.tolist() for part in actual] == [sources, targets]


@pytest.mark.parametrize(
    ('batch', 'num_graphs'), [(([1, 1], None), '2 and 1'), ((None, [1, 1]), '1 and 2')]
)
def test_other_numbers_of_graphs_of_sources_and_targets(batch, num_graphs):
    batch = tuple(part if part is None else torch.tensor(part) for part in batch)
    match = (
        rf"^'batch' must have as many graphs of sources as of targets \(got {num_graphs}\); give"
    )
    with pytest.raises(ValueError, match=match):
        node_pair(batch, 2, 2, None, torch.device('cpu'))


def test_queries_of_another_number_without_a_batch_read_all_keys():
    q, k, v = torch.randn(5, 1, 2), torch.randn(8, 1, 2), torch.randn(8, 1, 3)
    batch = torch.zeros(8, dtype=torch.long), torch.zeros(5, dtype=torch.long)
    torch.testing.assert_close(
        kernel_attention(q, k, v, 'elu'), kernel_attention(q, k, v, 'elu', batch=batch)
    )


def test_inputs_that_are_changed_in_place_are_refused():
    projection, (q, k, v) = draw('softmax', 9, 9, 0)
    values = v.detach().clone()
    out = kernel_attention(q, k, values, 'softmax', projection)
    values += 1
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        out.sum().backward()


@pytest.mark.parametrize('kind', ['softmax', 'focused'])
def test_chunks_do_not_change_the_result(kind, constants):
    projection, leaves = draw(kind, 300, 300, 2, heads=1)
    batch = torch.arange(300) % 2
    whole = fast(kind, projection, batch, *leaves)
    constants(attention_chunk=64, state_elements=1)
    assert relative(fast(kind, projection, batch, *leaves), whole) < 1e-13
    assert_equal_with_gradients(kind, projection, batch, leaves)


@pytest.mark.parametrize('scale', [0.1, 1.0, 1.5])
def test_float32_matches_float64(scale):
    projection, leaves = draw('softmax', 200, 200, 2, scale, channels=6)
    expected = slow('softmax', projection, None, *leaves)
    grad = torch.randn_like(expected)
    exact = gradients(expected, dict(zip(NAMES, leaves, strict=True)), grad)
    single = [leaf.detach().float().requires_grad_() for leaf in leaves]
    actual = fast('softmax', projection.float(), None, *single)
    assert relative(actual.double(), expected) < 1e-5
    found = gradients(actual, dict(zip(NAMES, single, strict=True)), grad.float())
    for name, value in exact.items():
        assert relative(found[name].double(), value) < 1e-5, name


def test_bfloat16_is_close_and_keeps_its_dtype():
    projection, leaves = draw('softmax', 200, 200, 0, 0.5)
    low = [leaf.detach().bfloat16() for leaf in leaves]
    expected = slow('softmax', projection, None, *(leaf.double() for leaf in low))
    actual = fast('softmax', projection.float(), None, *low)
    assert actual.dtype == torch.bfloat16
    assert relative(actual.double(), expected) < 2e-2


@pytest.mark.parametrize('way', ['pairs', 'states', 'state'])
@pytest.mark.parametrize('kind', ['softmax', 'elu', 'relu'])
def test_gradients_in_half_precision_do_not_hang_on_the_mean_of_the_values(kind, way, constants):
    if way != 'pairs':
        constants(paired=False)
    projection, leaves = draw(kind, 60, 60, 0)
    for leaf, factor, offset in zip(leaves, (0.1, 0.1, 1.0), (0.1, 0.1, 10.0), strict=True):
        leaf.data = leaf.data.mul(factor).add(offset).bfloat16().double()
    half = [leaf.detach().bfloat16().requires_grad_() for leaf in leaves]
    drawn = projection.float() if kind == 'softmax' else None
    if way == 'state':
        actual = AttentionState.from_keys(*half[1:], kind, drawn).read(half[0], kind, drawn)
    else:
        actual = kernel_attention(*half, kind, drawn)
    expected = slow(kind, projection, None, *leaves)
    grad = torch.randn_like(expected).bfloat16()
    found, exact = (
        gradients(out, dict(zip('qkv', parts, strict=True)), grad.to(out.dtype))
        for out, parts in ((actual, half), (expected, leaves))
    )
    for name, value in exact.items():
        assert relative(found[name].double(), value) < 0.01, name


@pytest.mark.parametrize('norm', [30.0, 300.0])
def test_large_norms_stay_finite(norm):
    projection, leaves = draw('softmax', 50, 50, 0)
    q, k, v = (leaf.detach().float() for leaf in leaves)
    q, k = (norm * t / t.norm(dim=-1, keepdim=True) for t in (q, k))
    leaves = [t.requires_grad_() for t in (q, k, v)]
    out = fast('softmax', projection.float(), None, *leaves)
    assert out.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), leaves))


def test_elu_far_below_zero_is_the_softmax_of_each_channel():
    """phi(x) = exp(x) there, of which no part of a row is a number above 0 in float32."""
    x = torch.tensor(
        [[[-400.0, -380.0]], [[-390.0, -395.0]], [[-500.0, -381.0]]], requires_grad=True
    )
    out = kernel_attention(x, x, torch.eye(3)[:, None], 'elu')
    y = x.detach().double().requires_grad_()
    weights = (y + 380).exp().squeeze(1)
    expected = weights @ weights.t()
    expected = expected / expected.sum(1, keepdim=True)
    torch.testing.assert_close(out.squeeze(1), expected.detach().float(), rtol=1e-5, atol=1e-30)
    grad = torch.randn(3, 3)
    one = torch.autograd.grad(out.squeeze(1), x, grad)[0]
    other = torch.autograd.grad(expected, y, grad.double())[0]
    torch.testing.assert_close(one, other.float(), rtol=1e-4, atol=1e-7)


def test_graph_does_not_feel_its_neighbour_in_the_batch():
    projection, leaves = draw('softmax', 30, 30, 0)
    q, k, v = (leaf.detach() for leaf in leaves)
    alone = kernel_attention(q[:5], k[:5], v[:5], 'softmax', projection)
    batch = torch.tensor([0] * 5 + [1] * 25)
    q[5:] *= 100
    k[5:] *= 100
    v[5:] = float('nan')
    both = kernel_attention(q, k, v, 'softmax', projection, batch)
    assert relative(both[:5], alone) < 1e-14
    assert both[5:].isnan().all()


@pytest.mark.parametrize('masked', ['keys', 'queries'])
@pytest.mark.parametrize('way', ['pairs', 'states', 'state'])
@pytest.mark.parametrize('kind', KINDS)
def test_masks_of_zeros_give_zeros(kind, way, masked, constants):
    """Of one node, of all of a graph, and of a graph of one node."""
    if way != 'pairs':
        constants(paired=False)
    batch = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 3])
    zero = torch.tensor([1, 1, 0, 0, 1, 0, 0, 1, 0, 1], dtype=torch.bool)
    projection, leaves = draw(kind, 10, 10, 0, scale=0.3)
    drawn = projection if kind in ('softmax', 'fourier') else None
    masks = [torch.rand(10, 2, dtype=torch.float64) for _ in range(2)]
    masks[masked == 'keys'][zero] = 0
    leaves += [mask.requires_grad_() for mask in masks]
    q, k, v, of_query, of_key = leaves
    if way == 'state':
        actual = AttentionState.from_keys(k, v, kind, drawn, batch, key_mask=of_key).read(
            q, kind, drawn, batch, query_mask=of_query
        )
    else:
        actual = kernel_attention(q, k, v, kind, drawn, batch, query_mask=of_query, key_mask=of_key)
    phi = (dense.feature_map(kind, part, projection) for part in (q, k))
    expected = dense.kernel_attention(*phi, v, of_query @ of_key.t(), batch, batch)
    assert not actual[(batch % 2 == 1)].any()
    named = dict(zip(NAMES, leaves, strict=True))
    assert_same_gradients(actual, expected, named, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize('way', ['pairs', 'states', 'state'])
def test_features_of_zero_by_their_logarithm(way, constants):
    """A query, a key, all keys of a graph and one feature of all keys."""
    if way != 'pairs':
        constants(paired=False)
    batch = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2, 3])
    leaves = draw('logits', 10, 10, 0)[1]
    with torch.no_grad():
        leaves[0][3] = leaves[1][0] = leaves[1][batch % 2 == 1] = leaves[1][:, :, 2] = -torch.inf
    q, k, v = leaves
    actual = kernel_attention(*leaves, 'logits', None, batch)
    if way == 'state':
        actual = AttentionState.from_keys(k, v, 'logits', None, batch).read(
            q, 'logits', None, batch
        )
    expected = dense.kernel_attention(q.exp(), k.exp(), v, None, batch, batch)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
    named = {'q': q, 'k': k, 'v': v}
    assert_same_gradients(actual, expected, named, rtol=1e-10, atol=1e-12)
    assert not actual[[1, 3, 4, 7, 9]].any()


def test_no_node_and_no_key():
    projection, leaves = draw('softmax', 4, 0, 0)
    out = fast('softmax', projection, None, *leaves)
    assert out.shape == (4, 2, 3)
    assert out.abs().max() == 0
    projection, leaves = draw('softmax', 0, 0, 2)
    out = fast('softmax', projection, None, *leaves)
    assert out.shape == (0, 2, 3)
    assert all(
        grad.shape == leaf.shape
        for grad, leaf in zip(torch.autograd.grad(out.sum(), leaves), leaves, strict=True)
    )


def test_gradcheck():
    projection, leaves = draw('softmax', 5, 5, 2, channels=2, width=2, features=3)
    batch = torch.tensor([1, 0, 1, 1, 0])
    assert torch.autograd.gradcheck(lambda *args: fast('softmax', projection, batch, *args), leaves)


def test_second_derivatives():
    projection, leaves = draw('softmax', 5, 5, 2, channels=2, width=2, features=3)
    batch = torch.tensor([1, 0, 1, 1, 0])
    assert torch.autograd.gradgradcheck(
        lambda *args: fast('softmax', projection, batch, *args), leaves
    )


@pytest.mark.compiled
def test_compiles_once_for_every_size():
    projection = torch.randn(7, 5)

    def run(q, k, v):
        return kernel_attention(q, k, v, 'softmax', projection)

    compiled = torch.compile(run, fullgraph=True, dynamic=True, backend='aot_eager')
    for n in (20, 33):
        leaves = [torch.randn(n, 2, c, requires_grad=True) for c in (5, 5, 3)]
        expected, actual = run(*leaves), compiled(*leaves)
        torch.testing.assert_close(actual, expected)
        named = dict(zip('qkv', leaves, strict=True))
        torch.testing.assert_close(*(gradients(out.sum(), named) for out in (actual, expected)))


def test_saved_bytes_grow_with_nodes_not_features():
    def saved(n, features):
        total = 0

        def pack(tensor):
            nonlocal total
            total += tensor.numel() * tensor.element_size()
            return tensor

        leaves = [torch.randn(n, 1, 8, requires_grad=True) for _ in range(3)]
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            kernel_attention(*leaves, 'softmax', torch.randn(features, 8))
        return total

    assert saved(4000, 8) <= 4.2 * saved(1000, 8)
    assert saved(4000, 256) - saved(4000, 8) < 4000 * 8 * 4
