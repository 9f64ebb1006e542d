import pytest
import torch
from gradients import assert_same_gradients, gradients
from torch._dynamo.testing import CompileCounter
from torch.utils._python_dispatch import TorchDispatchMode

from torch_geometric_lgt.functional._engine import chunked_map as module
from torch_geometric_lgt.functional._engine.chunked_map import chunked_map
from torch_geometric_lgt.functional.neighbors import adjacency_attention, edge_sums
from torch_geometric_lgt.nn import (
    DegreeMaskedAttention,
    DIFFormerConv,
    KernelAttentionConv,
    SGFormerConv,
)


def product(_at, x, y, mask, weight):
    out = (x * y) @ weight
    return out if mask is None else out * mask


@pytest.mark.parametrize('masked', [False, True])
def test_equals_the_function_of_all_rows(masked):
    """Outputs and gradients, with rows that come again, a tensor for all rows, and one that is
    missing."""
    x, y, weight = (
        torch.randn(*shape, dtype=torch.float64, requires_grad=True)
        for shape in ((7, 4), (9, 4), (4, 3))
    )
    mask = torch.rand(7, 1, dtype=torch.float64, requires_grad=True) if masked else None
    i, j = torch.randint(7, (50,)), torch.randint(9, (50,))
    out = chunked_map(product, 8, [(x, i), (y, j), (mask, i)], [weight])
    expected = product(None, x[i], y[j], mask[i] if masked else None, weight)
    torch.testing.assert_close(out, expected)
    leaves = {'x': x, 'y': y, 'weight': weight} | ({'mask': mask} if masked else {})
    assert_same_gradients(out, expected, leaves)


def test_a_traced_call_takes_all_rows_at_once_and_again_in_the_backward_pass(monkeypatch):
    x = torch.randn(6, 4, requires_grad=True)
    weight = torch.randn(4, 3, requires_grad=True)
    index = torch.randint(6, (50,))
    results, calls = [], []

    def function(at, x, y, weight):
        calls.append(at)
        return ((x * y).exp() @ weight) * torch.arange(50.0)[at, None]

    for traced in (False, True):
        monkeypatch.setattr(torch.compiler, 'is_compiling', lambda traced=traced: traced)
        out = chunked_map(function, 8, [(x, index), (x, index.flip(0))], [weight])
        results.append({'out': out, **gradients(out.sum(), {'x': x, 'weight': weight})})
    torch.testing.assert_close(results[1], results[0])
    chunks = [slice(start, min(start + 8, 50)) for start in range(0, 50, 8)]
    # once more in the backward pass
    assert sorted(calls[:14], key=str) == sorted(chunks * 2, key=str)
    assert calls[14:] == [slice(0, 50)] * 2


@pytest.mark.compiled
def test_compiled_code_is_one_program_for_any_number_of_chunks():
    x, weight, counter = torch.randn(6, 4), torch.randn(4, 3), CompileCounter()
    mapped = torch.compile(
        lambda i, j: chunked_map(product, 4, [(x, i), (x, j), (None, i)], [weight]),
        backend=counter,
        fullgraph=True,
        dynamic=True,
    )
    for size in (7, 9, 30, 61):
        i, j = torch.randint(6, (size,)), torch.randint(6, (size,))
        torch.testing.assert_close(mapped(i, j), product(None, x[i], x[j], None, weight))
    assert counter.frame_count == 1


def test_the_function_sees_which_rows_it_has():
    seen, index = [], torch.arange(5)
    out = chunked_map(
        lambda at, x: seen.append(at) or x.clone(), 2, [(torch.arange(5.0)[:, None], index)]
    )
    assert out.flatten().tolist() == [0, 1, 2, 3, 4]
    assert seen == [slice(0, 2), slice(2, 4), slice(4, 5)]


def test_unused_rows_have_gradients_of_zero_and_constants_none():
    x = torch.ones(3, 2, requires_grad=True)
    y = torch.ones(3, 2, requires_grad=True)
    index = torch.arange(3)
    fixed = torch.ones(3, 2)
    chunked_map(
        lambda _at, x, _y, fixed: x * fixed, 2, [(x, index), (y, index), (fixed, index)]
    ).sum().backward()
    assert torch.equal(x.grad, torch.ones(3, 2))
    assert torch.equal(y.grad, torch.zeros(3, 2))
    assert fixed.grad is None


@pytest.mark.parametrize(
    'layer',
    [
        KernelAttentionConv(4, 4, 2),
        DegreeMaskedAttention(8, 2),
        DIFFormerConv(4, 4, 2),
        SGFormerConv(4, 4, 2),
    ],
)
def test_no_pairs_have_no_scores_and_gradients_of_zero(layer):
    x = torch.randn(3, layer.lin_query.in_features, requires_grad=True)
    scores = layer.attention_scores(x, torch.empty(2, 0, dtype=torch.long))
    assert scores.shape == (0, 2)
    assert torch.equal(torch.autograd.grad(scores.sum(), x)[0], torch.zeros_like(x))


@pytest.mark.parametrize('name', ['x', 'index', 'weight'])
def test_inputs_changed_before_the_backward_pass_are_refused(name):
    arguments = {
        'x': torch.randn(3, 2, requires_grad=True),
        'index': torch.tensor([0, 2, 1]),
        'weight': torch.ones(2),
    }
    out = chunked_map(
        lambda _at, x, weight: x.exp() * weight,
        2,
        [(arguments['x'], arguments['index'])],
        [arguments['weight']],
    )
    with torch.no_grad():
        arguments[name].zero_()
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        out.sum().backward()


def test_gradients_of_scores_are_those_of_the_edges_that_were_passed():
    x = torch.randn(5, 4)
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
    grad = torch.randn(4, 2)
    for layer in (
        KernelAttentionConv(4, 4, 2),
        DegreeMaskedAttention(4, 2),
        SGFormerConv(4, 4, 2),
        DIFFormerConv(4, 4, 2),
    ):
        expected = torch.autograd.grad(
            layer.attention_scores(x, edges), layer.lin_key.weight, grad
        )[0]
        other = edges.clone()
        scores = layer.attention_scores(x, other)
        other.zero_()
        torch.testing.assert_close(
            torch.autograd.grad(scores, layer.lin_key.weight, grad)[0], expected
        )
    scores = DIFFormerConv(4, 4, 2, kernel='sigmoid').attention_scores(x, edges)
    edges.zero_()
    with pytest.raises(RuntimeError, match='modified by an inplace operation'):
        scores.backward(grad)


class Allocated(TorchDispatchMode):
    """Counts the bytes of the results that are not parts of an input."""

    def __init__(self):
        super().__init__()
        self.total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        arguments = {
            x.untyped_storage().data_ptr()
            for x in torch.utils._pytree.tree_leaves((args, kwargs))
            if isinstance(x, torch.Tensor)
        }
        for x in torch.utils._pytree.tree_leaves(out):
            if isinstance(x, torch.Tensor) and x.untyped_storage().data_ptr() not in arguments:
                self.total += x.untyped_storage().nbytes()
        return out


def edge_probability(num_nodes, edges):
    conv = KernelAttentionConv(8, 8, num_features=64)
    x = torch.randn(num_nodes, 8, requires_grad=True)
    conv.log_edge_probability(x, edges).sum().backward()


def neighbor_attention(num_nodes, edges):
    x = torch.randn(num_nodes, 1, 8, requires_grad=True)
    adjacency_attention.adjacency_attention(
        x, x, x, edges, 'softmax', torch.randn(64, 8)
    ).sum().backward()


def subtractor(num_nodes, edges):
    x = torch.randn(num_nodes, 8)
    edge_sums.distance_grads(torch.randn(edges.size(1), 1), x, x, edges)


@pytest.mark.parametrize('job', [edge_probability, neighbor_attention, subtractor])
def test_more_nodes_cost_the_same_however_many_chunks_there_are(job, constants):
    """A backward pass that made a gradient of all nodes for each chunk of edges would take the
    product of nodes and edges. Nodes are more than the 4096 rows of a chunk, and each has an
    edge."""
    constants(adjacency_chunk=1 << 16, edge_sum_chunk=1 << 13)

    def allocated(num_nodes, num_edges):
        ids = torch.arange(num_edges)
        with Allocated() as count:
            job(num_nodes, torch.stack([ids % num_nodes, ids * 7 % num_nodes]))
        return count.total

    few, many = (allocated(10000, edges) - allocated(5000, edges) for edges in (16384, 2 * 16384))
    assert 0 < many <= 1.01 * few


def test_chunks_of_every_size_give_the_same(monkeypatch):
    calls = []
    rows = module._rows
    monkeypatch.setattr(module, '_rows', lambda *args: calls.append(1) or rows(*args))
    x, index = torch.randn(10, 3, requires_grad=True), torch.randint(10, (64,))
    results = []
    for step in (1, 5, 64, 100):
        calls.clear()
        results.append(
            torch.autograd.grad(chunked_map(lambda _at, x: x.exp(), step, [(x, index)]).sum(), x)[0]
        )
        assert len(calls) == 2 * -(-64 // step)
        torch.testing.assert_close(results[-1], results[0])


def test_very_many_rows_of_one_sum_stay_precise():
    """A running total in float32 would not grow beyond 2 ** 24."""
    num_rows = (1 << 24) + (1 << 20)
    x, index = torch.ones(1, 1, requires_grad=True), torch.zeros(num_rows, dtype=torch.long)
    chunked_map(lambda _at, x: x.clone(), 1 << 18, [(x, index)]).backward(
        torch.ones(1, 1).expand(num_rows, 1)
    )
    assert x.grad.item() == num_rows


def test_vmap():
    x, index = torch.randn(3, 4, 2), torch.tensor([2, 0, 2, 1, 3])
    out = torch.func.vmap(lambda x: chunked_map(lambda _at, x: x.exp(), 2, [(x, index)]))(x)
    torch.testing.assert_close(out, x[:, index].exp())
