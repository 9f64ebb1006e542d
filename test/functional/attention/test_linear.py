from functools import partial

import pytest
import torch
from constants import BY_OPERATORS
from gradients import gradients

from torch_geometric_lgt.functional import kernel_attention, linear_attention
from torch_geometric_lgt.functional._engine.dispatch import PLAIN_ELEMENTS
from torch_geometric_lgt.testing import dense

BATCHES = {
    'one': (None, None, 17, 17),
    'sorted': (torch.tensor([0] * 4 + [2] * 6 + [3]), None, 11, 11),
    'unsorted': (torch.tensor([3, 0, 3, 1, 0, 3, 1, 6, 3]), None, 9, 9),
    'many': (torch.arange(8).repeat_interleave(3), None, 24, 24),
    'bipartite': (torch.tensor([0, 2, 0, 1, 2]), torch.tensor([2, 2, 0, 3, 1, 0, 1, 2]), 5, 8),
    'without keys': (torch.empty(0, dtype=torch.long), torch.tensor([0, 1, 1]), 0, 3),
}


def draw(num_keys, num_queries, dtype=torch.float64):
    sizes = ((num_queries, 5), (num_keys, 5), (num_keys, 3), (num_queries, 3))
    return [torch.randn(num, 2, size, dtype=dtype).requires_grad_() for num, size in sizes]


def slow(leaves, norm, self_term, batch_k, batch_q):
    if self_term:
        return dense.sgformer_attention(*leaves, norm, batch_q, batch_k)
    return dense.diffusion_attention(*leaves[:3], norm, batch_q, batch_k)


def fast(leaves, norm, self_term, batch):
    return linear_attention(
        *leaves[:3], batch, norm=norm, self_value=leaves[3] if self_term else None
    )


@pytest.mark.parametrize('elements', [BY_OPERATORS, PLAIN_ELEMENTS], ids=['operators', 'formulas'])
@pytest.mark.parametrize('norm', ['row', 'frobenius'])
@pytest.mark.parametrize('mapped', ['q', 'k', 'v', 'self_value'])
def test_vmap_over_one_input(mapped, norm, elements, constants):
    """A stack of self values alone ended in an error about an addition in place."""
    constants(plain_elements=elements)
    batch = torch.tensor([1, 0, 1, 0, 0])
    inputs = dict(zip(('q', 'k', 'v', 'self_value'), torch.randn(4, 5, 2, 3), strict=True))
    stack = torch.randn(3, 5, 2, 3)

    def attend(x):
        return linear_attention(batch=batch, norm=norm, **inputs | {mapped: x})

    expected = torch.stack([attend(x) for x in stack])
    torch.testing.assert_close(torch.func.vmap(attend)(stack), expected)


def used_leaves(leaves, self_term):
    """Returns the queries, keys and values, and the self values where they take part, by name."""
    names = ('q', 'k', 'v', 'self_value')
    return dict(zip(names[: 4 if self_term else 3], leaves, strict=False))


def relative(actual, expected):
    return float(((actual - expected).norm() / expected.norm().clamp(min=1e-300)).detach())


@pytest.mark.parametrize('chunk', [None, 2])
@pytest.mark.parametrize('self_term', [False, True], ids=['diffusion', 'self_term'])
@pytest.mark.parametrize('norm', ['row', 'frobenius'])
@pytest.mark.parametrize('name', BATCHES)
def test_matches_dense_with_gradients(name, norm, self_term, chunk, constants):
    if chunk is not None:
        constants(attention_chunk=chunk)
    batch_k, batch_q, *sizes = BATCHES[name]
    leaves = draw(*sizes)
    batch = batch_k if batch_q is None else (batch_k, batch_q)
    actual = fast(leaves, norm, self_term, batch)
    expected = slow(leaves, norm, self_term, batch_k, batch_k if batch_q is None else batch_q)
    assert relative(actual, expected) < 1e-12
    grad = torch.randn_like(expected)
    found, exact = (
        gradients(out, used_leaves(leaves, self_term), grad) for out in (actual, expected)
    )
    for name, value in exact.items():
        assert relative(found[name], value) < 1e-10, name


def test_the_sum_of_the_weights_is_one():
    q, k, _, _ = draw(9, 9)
    ones = torch.ones(9, 2, 1, dtype=torch.float64)
    for norm in ('row', 'frobenius'):
        for self_value in (None, ones):
            torch.testing.assert_close(
                linear_attention(q, k, ones, norm=norm, self_value=self_value), ones
            )


@pytest.mark.parametrize('self_term', [False, True])
@pytest.mark.parametrize('norm', ['row', 'frobenius'])
def test_zero_rows_and_graphs_are_defined(norm, self_term):
    """A zero query or key stays zero: what is left is the plain mean, or the node's own value."""
    leaves = [leaf.detach() for leaf in draw(6, 6)]
    leaves[0].zero_()
    for leaf in leaves:
        leaf.requires_grad_()
    out = fast(leaves, norm, self_term, None)
    torch.testing.assert_close(
        out, leaves[3] if self_term else leaves[2].mean(0, keepdim=True).expand_as(out)
    )
    grads = torch.autograd.grad(out.square().sum(), leaves if self_term else leaves[:3])
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize('self_term', [False, True])
def test_a_key_opposite_to_the_query_gives_zero(self_term):
    q = torch.tensor([[[0.0, 2.0]]], dtype=torch.float64)
    v = torch.ones(1, 1, 3, dtype=torch.float64)
    assert torch.equal(
        linear_attention(q, -3 * q, v, self_value=v if self_term else None), torch.zeros_like(v)
    )


@pytest.mark.parametrize('chunk', [None, 2])
@pytest.mark.parametrize('self_term', [False, True], ids=['diffusion', 'self_term'])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('channels', [1, 2, 3, 8, 64])
@pytest.mark.parametrize(
    ('norm', 'num_nodes'), [('row', 1), ('row', 3), ('row', 50), ('row', 5000), ('frobenius', 1)]
)
def test_keys_opposite_to_the_queries_give_zero_with_gradients_of_zero(
    norm, num_nodes, channels, dtype, self_term, chunk, constants
):
    """What is left of the denominator is a rounding error, whatever the lengths, the number of
    terms and the chunks."""
    if chunk is not None and num_nodes < 100:
        constants(attention_chunk=chunk)
    direction = torch.randn(1, 4, channels)
    of_query, of_key = 0.1 + torch.rand(2, num_nodes, 4, 1)
    q, v = (of_query * direction).to(dtype), torch.randn(num_nodes, 4, 3, dtype=dtype)
    leaves = [
        x.requires_grad_() for x in (q, -of_key.to(dtype) * q.detach(), v, torch.randn_like(v))
    ]
    out = fast(leaves, norm, self_term, None)
    assert torch.equal(out, torch.zeros_like(v))
    used = used_leaves(leaves, self_term)
    for name, grad in gradients(out, used, torch.randn_like(out)).items():
        assert torch.equal(grad, torch.zeros_like(used[name])), name


@pytest.mark.parametrize('chunk', [None, 2])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('self_term', [False, True], ids=['diffusion', 'self_term'])
@pytest.mark.parametrize('norm', ['row', 'frobenius'])
def test_many_heads_on_tiny_graphs_match_dense_with_gradients(
    norm, self_term, dtype, chunk, constants
):
    """Of one channel row norms leave signs: many denominators are 0, others small."""
    if chunk is not None:
        constants(attention_chunk=chunk)
    batch = torch.tensor([0, 3, 1, 3, 2, 4, 4, 3, 5, 4, 2, 6, 4, 7, 8, 8])
    leaves = [torch.randn(16, 16, size).to(dtype).requires_grad_() for size in (1, 1, 2, 2)]
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    actual = fast(leaves, norm, self_term, batch)
    expected = slow(exact, norm, self_term, batch, batch)
    bound, grad = 1e-5 if dtype == torch.float32 else 1e-12, torch.randn_like(expected)
    assert (expected == 0).any()
    assert relative(actual.double(), expected) < bound
    found = gradients(actual, used_leaves(leaves, self_term), grad.to(dtype))
    for name, value in gradients(expected, used_leaves(exact, self_term), grad).items():
        error = float((found[name].double() - value).norm())
        assert error < bound * float(value.norm().clamp(min=1)), name


@pytest.mark.parametrize('self_term', [False, True], ids=['diffusion', 'self_term'])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
def test_one_key_that_differs_is_no_rounding_error(dtype, self_term):
    """All other weights are 0: the output is the value of that key, or where each query has a value
    the mean of the two sums."""
    q, k = torch.ones(3000, 1, 1, dtype=dtype), -torch.ones(3000, 1, 1, dtype=dtype)
    k[1234], v = 1, torch.arange(3000).remainder(7).to(dtype)[:, None, None]
    out = linear_attention(q, k, v, self_value=v if self_term else None)
    mean = (2 * v[1234] - v.sum(0)) / 3000
    torch.testing.assert_close(
        out,
        (v + mean) / (2 / 3000) if self_term else v[1234:1235].expand(3000, 1, 1),
        rtol=2e-3,
        atol=2e-3,
    )


@pytest.mark.parametrize('scale', [1e-6, 1.0, 300.0, 1e6])
@pytest.mark.parametrize('norm', ['row', 'frobenius'])
def test_scales_cancel_in_float32(norm, scale):
    leaves = draw(50, 50)
    for self_term in (False, True):
        expected = slow(leaves, norm, self_term, None, None)
        scaled = [leaf.float() * (scale if i < 2 else 1) for i, leaf in enumerate(leaves)]
        assert relative(fast(scaled, norm, self_term, None).double(), expected) < 1e-6


def test_frobenius_norms_leave_little_to_attention():
    """The share of the output that is not the node's own value, falling faster than one over the
    number of nodes."""
    shares = []
    for num in (100, 1000):
        q, k, v = (torch.randn(num, 1, 16, dtype=torch.float64) for _ in range(3))
        shares.append(
            [
                relative(linear_attention(q, k, v, norm=norm, self_value=v), v)
                for norm in ('frobenius', 'row')
            ]
        )
    (few, few_row), (many, many_row) = shares
    assert many < few / 20
    assert many_row > 0.1 * few_row
    assert few < 1e-3 < few_row


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'norm': 'column'}, "'norm' must be one of"),
        (
            {'self_value': torch.ones(4, 2, 2)},
            (
                r"'self_value' must have shape \(4, 2, 3\) beside the queries and values "
                r'\(got \(4, 2, 2\)\)'
            ),
        ),
        (
            {'self_value': torch.ones(4, 2, 3, dtype=torch.double)},
            r"'self_value' must be as 'q' of torch\.float32 on cpu \(got torch\.float64 on cpu\)",
        ),
        (
            {'self_value': torch.ones(4, 2, 3, device='meta')},
            r"'self_value' must be as 'q' of torch\.float32 on cpu \(got torch\.float32 on meta\)",
        ),
        (
            {'k': torch.ones(4, 10), 'v': torch.ones(4, 10, 3)},  # of all heads side by side
            r'queries and keys must have shape \[N, H, C\], .* \(got \(4, 10\)\)',
        ),
        (
            {'q': torch.ones(4, 2, 5, 1)},
            r'queries and keys must have shape \[N, H, C\], .* \(got \(4, 2, 5, 1\)\)',
        ),
        ({'batch': torch.zeros(3, dtype=torch.long)}, "'batch' must hold one graph id per node"),
    ],
)
def test_raises(change, message):
    q, k, v, _ = (leaf.detach().float() for leaf in draw(4, 4))
    with pytest.raises(ValueError, match=message):
        linear_attention(**{'q': q, 'k': k, 'v': v, **change})


def test_queries_and_keys_that_do_not_fit_each_other():
    q = torch.randn(5, 2, 4)
    with pytest.raises(ValueError, match=r"'k' must be as 'q' of torch\.float32"):
        linear_attention(q, q.double(), q)
    for function in (linear_attention, partial(kernel_attention, feature_map='relu')):
        with pytest.raises(
            ValueError,
            match=r"'k' must have the heads and channels of 'q', \(2, 4\) \(got \(2, 3\)\)",
        ):
            function(q, q[..., :3], q)


def test_ids_of_graphs_beyond_their_number():
    x, batch = torch.randn(3, 1, 2), torch.tensor([0, 0, 2])
    with pytest.raises(ValueError, match="'batch' holds the graph id 2 but 'batch_size' is 2"):
        linear_attention(x, x, x, batch, 2)
