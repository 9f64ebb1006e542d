import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from torch_geometric_lgt.functional import sigmoid_attention as module
from torch_geometric_lgt.functional.segment import segments
from torch_geometric_lgt.functional.sigmoid_attention import sigmoid_scores, sigmoid_sums
from torch_geometric_lgt.testing import dense

BATCHES = {
    'one': (None, None, 17, 12),
    'unsorted': (torch.tensor([3, 0, 3, 1, 0, 3, 1, 6, 3]), torch.tensor([3, 0, 3, 1, 0, 3, 1, 6, 3]), 9, 9),
    'bipartite': (torch.tensor([0, 2, 0, 1, 2]), torch.tensor([2, 2, 0, 3, 1, 0, 1, 2]), 5, 8),
}


@pytest.mark.parametrize('chunk', [1, 1 << 20])
@pytest.mark.parametrize('name', BATCHES)
def test_matches_dense_with_gradients(name, chunk, monkeypatch):
    monkeypatch.setattr(module, 'CHUNK_ELEMENTS', chunk)
    monkeypatch.setattr(module, 'MIN_ROWS', 3)
    batch_k, batch_q, num_keys, num_queries = BATCHES[name]
    leaves = [
        torch.randn(num, 2, size, dtype=torch.float64).requires_grad_() for num, size in ((num_queries, 5), (num_keys, 5), (num_keys, 3))
    ]
    axes = segments(batch_k, num_keys, None if batch_k is None else 7), segments(batch_q, num_queries, None if batch_q is None else 7)
    sums, total = sigmoid_sums(*(leaf.flatten(1) for leaf in leaves), 2, *axes)
    actual = sums / total.masked_fill(total == 0, 1)
    expected = dense.sigmoid_attention(*leaves, batch_q, batch_k)
    torch.testing.assert_close(actual, expected)
    grad = torch.randn_like(expected)
    for one, other in zip(*(torch.autograd.grad(out, leaves, grad) for out in (actual, expected)), strict=True):
        torch.testing.assert_close(one, other)


def test_nothing_of_the_size_of_the_pairs_is_kept():
    q, k, v = (torch.randn(600, 4, requires_grad=True) for _ in range(3))
    kept = {}

    def keep(value):
        kept[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        return value

    with FlopCounterMode(display=False) as counter, torch.autograd.graph.saved_tensors_hooks(keep, lambda value: value):
        sigmoid_sums(q, k, v, 1, segments(None, 600), segments(None, 600))[0].sum().backward()
    assert sum(kept.values()) <= 3 * 600 * 4 * 4 + 2 * 8
    assert counter.get_total_flops() == 2 * 600 * 600 * (9 + 3 * 4 + 2 * 4 + 1)


def test_too_many_pairs_raise():
    x = torch.empty(100_000, 0)
    with pytest.raises(ValueError, match="'kernel' = 'sigmoid' compares all pairs, 10000000000 of them"):
        sigmoid_sums(x, x, x, 1, segments(None, 100_000), segments(None, 100_000))


def test_as_many_pairs_as_are_allowed(monkeypatch):
    monkeypatch.setattr(module, 'MAX_PAIRS', 30)
    q, k = torch.randn(6, 2), torch.randn(5, 2)
    assert sigmoid_sums(q, k, k, 1, segments(None, 5), segments(None, 6))[0].shape == (6, 1, 2)


def test_scores_of_half_precision_are_computed_in_single():
    """90,000 is no number there, and the difference of two of them none at all."""
    q, k = torch.tensor([[300.0, 300.0]]).half(), torch.tensor([[300.0, -300.0], [1.0, -2.0]]).half()
    pairs = torch.tensor([[0, 1], [0, 0]])
    actual = sigmoid_scores(q, k, torch.ones(1, 1, 1), 1, pairs)
    torch.testing.assert_close(actual, torch.tensor([[0.5], [0.0]]), rtol=0, atol=1e-6)


def test_a_block_has_as_many_pairs_as_a_chunk_has_elements(monkeypatch):
    monkeypatch.setattr(module, 'CHUNK_ELEMENTS', 200)
    monkeypatch.setattr(module, 'MIN_ROWS', 3)
    x = torch.randn(40, 4)
    axes = [*segments(None, 40), *segments(None, 40)]
    shapes = {weight.shape for *_, weight in module._blocks(x, x, x, 2, *axes)}
    assert shapes == {(1, 2, 10, 10)}
