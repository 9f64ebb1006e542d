import pytest
import torch
from gradients import assert_same_gradients, gradients
from torch.utils.flop_counter import FlopCounterMode

from torch_geometric_lgt.functional.attention import sigmoid as module
from torch_geometric_lgt.functional.attention.sigmoid import sigmoid_attention, sigmoid_scores
from torch_geometric_lgt.functional.segment import segments
from torch_geometric_lgt.testing import dense
from torch_geometric_lgt.testing._saved import SavedStorages

BATCHES = {
    'one': (None, None, 17, 12),
    'unsorted': (
        torch.tensor([3, 0, 3, 1, 0, 3, 1, 6, 3]),
        torch.tensor([3, 0, 3, 1, 0, 3, 1, 6, 3]),
        9,
        9,
    ),
    'bipartite': (torch.tensor([0, 2, 0, 1, 2]), torch.tensor([2, 2, 0, 3, 1, 0, 1, 2]), 5, 8),
}


@pytest.mark.parametrize('chunk', [1, 1 << 20])
@pytest.mark.parametrize('name', BATCHES)
def test_matches_dense_with_gradients(name, chunk, constants):
    constants(sigmoid_chunk=chunk, sigmoid_rows=3)
    batch_k, batch_q, num_keys, num_queries = BATCHES[name]
    leaves = [
        torch.randn(num, 2, size, dtype=torch.float64).requires_grad_()
        for num, size in ((num_queries, 5), (num_keys, 5), (num_keys, 3))
    ]
    axes = (
        segments(batch_k, num_keys, None if batch_k is None else 7),
        segments(batch_q, num_queries, None if batch_q is None else 7),
    )
    actual = sigmoid_attention(*(leaf.flatten(1) for leaf in leaves), 2, *axes)[0].unflatten(
        1, (2, 3)
    )
    expected = dense.sigmoid_attention(*leaves, batch_q, batch_k)
    torch.testing.assert_close(actual, expected)
    assert_same_gradients(actual, expected, dict(zip('qkv', leaves, strict=True)))


LOGITS = {
    'all -64': torch.full((9,), -64.0),
    'all -90': torch.full((9,), -90.0),
    'all -300': torch.full((9,), -300.0),
    'mixed': torch.linspace(-300, 300, 9),
    'mixed and small': torch.linspace(-310, -290, 9),
}


def far_below(name, dtype):
    """Queries, keys and values whose logits are those of the name and up to 1 more or less."""
    q, k, v = (
        torch.randn(num, 2, size, dtype=torch.float64) for num, size in ((7, 5), (9, 5), (9, 3))
    )
    q, k = q / q.norm(dim=-1, keepdim=True), k / k.norm(dim=-1, keepdim=True)
    level = LOGITS[name].double()[:, None, None].expand(9, 2, 1)
    q, k = torch.cat([q, torch.ones_like(q[..., :1])], -1), torch.cat([k, level], -1)
    return [x.to(dtype).requires_grad_() for x in (q, k, v)]


def assert_near(actual, expected, leaves, exact, grad, bound):
    """Compares outputs and gradients. Those of the queries may differ by 300 times the bound."""
    found, wanted = (
        {'out': out.detach(), **gradients(out, dict(zip('qkv', parts, strict=False)), cotangent)}
        for out, parts, cotangent in (
            (actual, leaves, grad.to(actual.dtype)),
            (expected, exact, grad),
        )
    )
    for name, value in wanted.items():
        most = bound * (300 if name == 'q' else 1) * float(value.norm())
        assert float((found[name].double() - value).norm()) < most, name


@pytest.mark.parametrize('chunk', [1, 1 << 20])
@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('name', LOGITS)
def test_logits_of_any_size_match_dense_with_gradients(name, dtype, chunk, constants):
    """In float32 up to the rounding of the logits; the gradients of queries with a large part in
    common in the keys aside, it is theirs times that part."""
    constants(sigmoid_chunk=chunk, sigmoid_rows=3)
    leaves = far_below(name, dtype)
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    axes = segments(None, 9), segments(None, 7)
    actual = sigmoid_attention(*(leaf.flatten(1) for leaf in leaves), 2, *axes)[0].unflatten(
        1, (2, 3)
    )
    expected, bound = dense.sigmoid_attention(*exact), 1e-4 if dtype == torch.float32 else 1e-12
    grad = torch.randn_like(expected)
    assert_near(actual, expected, leaves, exact, grad, bound)


@pytest.mark.parametrize('dtype', [torch.float32, torch.float64])
@pytest.mark.parametrize('name', LOGITS)
def test_scores_of_any_size_match_dense_with_gradients(name, dtype):
    leaves = far_below(name, dtype)[:2]
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    axes = (segments(None, 9), segments(None, 7))
    pairs = torch.cartesian_prod(torch.arange(9), torch.arange(7)).t()
    q, k = (leaf.flatten(1) for leaf in leaves)
    _, maximum, total = sigmoid_attention(q, k, k, 2, *axes)
    actual = sigmoid_scores(q, k, maximum, total, 2, pairs, torch.ones(63, dtype=torch.bool))
    one_hot = torch.eye(9, dtype=torch.float64)[:, None].expand(-1, 2, -1)
    expected = dense.sigmoid_attention(*exact, one_hot).permute(2, 0, 1).flatten(0, 1)
    grad, bound = torch.randn_like(expected), 1e-4 if dtype == torch.float32 else 1e-12
    assert_near(actual, expected, leaves, exact, grad, bound)


def test_the_sum_below_the_maximum_with_gradients():
    q, k = (torch.randn(num, 6, dtype=torch.float64, requires_grad=True) for num in (5, 8))
    weight = torch.sigmoid(
        torch.einsum('ihc,jhc->ijh', q.unflatten(1, (2, 3)), k.unflatten(1, (2, 3)))
    )
    _, maximum, actual = sigmoid_attention(q, k, k, 2, segments(None, 8), segments(None, 5))
    torch.testing.assert_close(maximum, weight.amax(1).log().detach())
    expected = weight.sum(1) / weight.amax(1).detach()
    torch.testing.assert_close(actual, expected)
    assert_same_gradients(actual, expected, {'q': q, 'k': k})


def test_nothing_of_the_size_of_the_pairs_is_kept():
    q, k, v = (torch.randn(600, 4, requires_grad=True) for _ in range(3))
    with FlopCounterMode(display=False) as counter, SavedStorages() as saved:
        sigmoid_attention(q, k, v, 1, segments(None, 600), segments(None, 600))[0].sum().backward()
    # of queries, keys, values, results, maxima and sums
    assert sum(saved.sizes) <= (4 * 4 + 2) * 600 * 4 + 2 * 8
    assert counter.get_total_flops() == 2 * 600 * 600 * (8 + 3 * 4 + 2 * 4)


def test_too_many_pairs_raise():
    x = torch.empty(100_000, 0)
    with pytest.raises(
        ValueError, match="'kernel' = 'sigmoid' compares all pairs, 10000000000 of them"
    ):
        sigmoid_attention(x, x, x, 1, segments(None, 100_000), segments(None, 100_000))


def test_as_many_pairs_as_are_allowed(constants):
    constants(sigmoid_pairs=30)
    q, k = torch.randn(6, 2), torch.randn(5, 2)
    assert sigmoid_attention(q, k, k, 1, segments(None, 5), segments(None, 6))[0].shape == (6, 2)


def test_scores_of_half_precision_are_computed_in_single():
    """90,000 is no number there, and the difference of two of them none at all."""
    q = torch.tensor([[300.0, 300.0]]).half()
    k = torch.tensor([[300.0, -300.0], [1.0, -2.0]]).half()
    pairs = torch.tensor([[0, 1], [0, 0]])
    actual = sigmoid_scores(
        q, k, torch.zeros(1, 1), torch.ones(1, 1), 1, pairs, torch.tensor([True, True])
    )
    torch.testing.assert_close(actual, torch.tensor([[0.5], [0.0]]), rtol=0, atol=1e-6)


def test_a_block_has_as_many_pairs_as_a_chunk_has_elements(monkeypatch, constants):
    constants(sigmoid_chunk=200, sigmoid_rows=3)
    x = torch.randn(40, 4)
    shapes, logsigmoid = set(), module.logsigmoid
    monkeypatch.setattr(
        module, 'logsigmoid', lambda logits: shapes.add(logits.shape) or logsigmoid(logits)
    )
    sigmoid_attention(x, x, x, 2, segments(None, 40), segments(None, 40))
    assert shapes == {(1, 2, 10, 10)}


def test_outputs_have_the_precision_of_the_values_and_sums_are_single():
    q, k, v = (torch.randn(4, 6).bfloat16() for _ in range(3))
    nodes = segments(None, 4)
    out, maximum, total = sigmoid_attention(q, k, v, 2, nodes, nodes)
    assert (out.dtype, maximum.dtype, total.dtype) == (
        torch.bfloat16,
        torch.float32,
        torch.float32,
    )
