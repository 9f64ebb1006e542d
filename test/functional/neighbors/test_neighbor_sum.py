import pytest
import torch
from gradients import assert_same_gradients
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode
from torch_geometric.nn.conv.gcn_conv import gcn_norm

from torch_geometric_lgt.functional.neighbors.neighbor_sum import neighbor_sum, symmetric_weight

DOUBLE = torch.float64


def dense(x, edges, weight, num_targets):
    matrix = x.new_zeros(num_targets, x.size(0), weight.size(1))
    matrix = matrix.index_put((edges[1], edges[0]), weight, accumulate=True)
    return torch.einsum('ijh,jhc->ihc', matrix, x.unflatten(1, (weight.size(1), -1))).flatten(1)


@pytest.mark.parametrize('order', ['sorted', 'unsorted', 'empty'])
@pytest.mark.parametrize('heads', [1, 3])
@pytest.mark.parametrize('chunk', [1, 1 << 20])
def test_matches_the_matrix_product_with_gradients(order, heads, chunk, constants):
    """Repeated edges, targets and sources without edges."""
    constants(edge_sum_chunk=chunk)
    edges = torch.stack([torch.randint(6, (20,)), torch.randint(8, (20,))])
    edges = {'sorted': edges[:, edges[1].argsort()], 'unsorted': edges, 'empty': edges[:, :0]}[
        order
    ]
    x, weight = torch.randn(7, 6, dtype=DOUBLE), torch.randn(edges.size(1), heads, dtype=DOUBLE)
    leaves = {'x': x.requires_grad_(), 'weight': weight.requires_grad_()}
    actual, expected = neighbor_sum(x, edges, weight, 9), dense(x, edges, weight, 9)
    torch.testing.assert_close(actual, expected)
    assert_same_gradients(actual, expected, leaves)


def test_constant_weights_cost_no_gradient():
    x, edges = torch.randn(50, 4, requires_grad=True), torch.randint(50, (2, 300))
    results = []
    for learned in (False, True):
        weight = torch.rand(300, 1, requires_grad=learned)
        with FlopCounterMode(display=False) as counter:
            neighbor_sum(x, edges, weight, 50).sum().backward()
        results.append(counter.get_total_flops())
    assert results == [2 * 2 * 300 * 4, 3 * 2 * 300 * 4]


def test_the_rows_of_the_output_are_not_walked_one_by_one():
    """They once were, to be marked as not differentiable, for it is an only output."""
    x, edges = torch.randn(1000, 4, requires_grad=True), torch.randint(1000, (2, 3000))
    with profile(activities=[ProfilerActivity.CPU]) as events:
        neighbor_sum(x, edges, torch.rand(3000, 1), 1000).sum().backward()
    assert 0 < sum(event.count for event in events.key_averages()) < 500


def test_half_precision_sums_in_float32():
    x = torch.full((4096, 1), 0.1)
    edges = torch.stack([torch.arange(4096), torch.zeros(4096, dtype=torch.long)])
    for weight in (torch.ones(4096, 1), torch.ones(4096, 1, dtype=torch.bfloat16)):
        half = neighbor_sum(x.bfloat16(), edges, weight, 1)
        assert half.dtype == torch.bfloat16
        torch.testing.assert_close(half, torch.full((1, 1), 410.0, dtype=torch.bfloat16))
    x, weight = torch.ones(2, 1, dtype=torch.float64), torch.ones(2, 1)
    assert neighbor_sum(x, torch.tensor([[0, 1], [0, 0]]), weight, 1).dtype == torch.float64


def test_symmetric_weight():
    edges = torch.tensor([[0, 0, 1, 2], [1, 2, 2, 2]])
    expected = torch.tensor([2.0, 6.0, 3.0, 3.0], dtype=DOUBLE).rsqrt()
    torch.testing.assert_close(symmetric_weight(edges, 3, 4, DOUBLE).flatten(), expected)


def test_degrees_of_0_beside_small_weights_and_weights_of_0():
    edges, weight = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.tensor([0.5, 0.0, 0.25])
    with pytest.raises(ValueError, match=r"^'degree' must be positive for nodes with edges"):
        symmetric_weight(edges, 3, 3, DOUBLE, torch.tensor([0.0, 1.0, 1.0]), weight)


def test_symmetric_weight_of_weights_in_another_precision():
    edges, weight = torch.tensor([[0, 1, 2], [1, 2, 0]]), torch.rand(3, dtype=DOUBLE)
    for degree in (None, torch.ones(3)):
        for dtype in (DOUBLE, torch.float32):
            actual = symmetric_weight(edges, 3, 3, dtype, degree, weight.float())
            assert actual.dtype == dtype
            assert symmetric_weight(edges, 3, 3, dtype, degree, weight).dtype == dtype


def test_symmetric_weight_of_given_degrees():
    edges = torch.tensor([[0, 0, 1], [1, 2, 2]])
    degree = torch.tensor([4, 1, 9])
    torch.testing.assert_close(
        symmetric_weight(edges, 3, 3, DOUBLE, degree).flatten(),
        torch.tensor([4.0, 36.0, 9.0], dtype=DOUBLE).rsqrt(),
    )
    pair = torch.tensor([4, 1]), torch.tensor([0, 25, 9])  # no edge ends in the first target
    actual = symmetric_weight(edges, 2, 3, torch.float32, pair)
    torch.testing.assert_close(actual, torch.tensor([[100.0], [36.0], [9.0]]).rsqrt())
    with pytest.raises(
        ValueError,
        match=(
            r"^'degree' must be positive for nodes with edges \(got less\): .*; NodeDegree "
            r'counts no self loops$'
        ),
    ):
        symmetric_weight(edges, 3, 3, DOUBLE, torch.tensor([4, 0, 9]))
    message = (
        r"'degree' must hold one number per node, 2 for sources and 3 for targets \(got "
        r'\[\(2,\), \(2,\)\]\)$'
    )
    with pytest.raises(ValueError, match=message):
        symmetric_weight(edges, 2, 3, DOUBLE, torch.tensor([4, 1]))


def test_symmetric_weight_of_weighted_edges():
    """Against PyG, on a graph whose weights are the same both ways."""
    one_way = torch.tensor([[0, 0, 1, 0], [1, 2, 3, 1]])
    edges = torch.cat([one_way, one_way.flip(0)], 1)
    weight = torch.tensor([0.5, 2.0, -0.1, 0.25], dtype=DOUBLE).repeat(2).requires_grad_()
    actual = symmetric_weight(edges, 5, 5, DOUBLE, None, weight).flatten()
    expected = gcn_norm(edges, weight, 5, add_self_loops=False)[1]
    torch.testing.assert_close(actual[[0, 1, 3, 4, 5, 7]], expected[[0, 1, 3, 4, 5, 7]])
    assert actual[[2, 6]].isnan().all()  # those of a node whose weights add up to less than 0
    assert expected[[2, 6]].isnan().all()
    positive = torch.tensor([0.5, 2.0, 0.1, 0.25], dtype=DOUBLE, requires_grad=True)
    both = positive.repeat(2)
    pair = (
        symmetric_weight(edges, 5, 5, DOUBLE, None, both).flatten(),
        gcn_norm(edges, both, 5, add_self_loops=False)[1],
    )
    torch.testing.assert_close(
        *(torch.autograd.grad(out.square().sum(), positive, retain_graph=True)[0] for out in pair)
    )


def test_weights_that_add_up_to_zero():
    edges = torch.tensor([[0, 1, 2], [2, 2, 0]])
    weight = torch.tensor([1.0, -1.0, 0.0], requires_grad=True)
    actual = symmetric_weight(
        edges, 3, 3, torch.float32, (torch.ones(3), torch.tensor([0.0, 1.0, 0.0])), weight
    )
    assert actual.flatten().tolist() == [0, 0, 0]
    assert torch.autograd.grad(actual.sum(), weight)[0].isfinite().all()
    with pytest.raises(ValueError, match="'degree' must be positive for nodes with edges"):
        symmetric_weight(edges, 3, 3, torch.float32, torch.tensor([1.0, 1.0, 0.0]), torch.ones(3))
    unused = symmetric_weight(
        edges, 3, 3, torch.float32, torch.tensor([0.0, 1.0, 1.0]), torch.tensor([0.0, 1.0, 0.0])
    )
    assert unused.flatten().tolist() == [0, 1, 0]
