import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from torch_geometric_lgt.functional.inputs import LinearInput
from torch_geometric_lgt.functional.neighbors.edge_attention import (
    edge_attention,
    edge_distances,
    edge_logits,
)
from torch_geometric_lgt.functional.neighbors.edge_scores import edge_scores
from torch_geometric_lgt.functional.neighbors.edge_sums import products
from torch_geometric_lgt.functional.neighbors.edge_weights import row_normalized, softmax_weight
from torch_geometric_lgt.functional.neighbors.edges import sorted_edges


@pytest.mark.parametrize(
    ('mask', 'targets', 'sources', 'edges'), [(None, 6, 9, 12), ([0, 2], 2, 3, 4)]
)
def test_work_is_that_of_the_nodes_and_edges_that_take_part(mask, targets, sources, edges):
    """Backward two more products of each projection, the scores again with two gradients, and two
    for the values."""
    x_src, x_dst = torch.randn(9, 5, requires_grad=True), torch.randn(6, 5, requires_grad=True)
    weight, v = torch.randn(8, 5, requires_grad=True), torch.randn(9, 4, requires_grad=True)
    edge_index = torch.tensor(
        [[0, 1, 0, 2, 3, 4, 5, 6, 7, 8, 1, 2], [0, 0, 2, 2, 1, 3, 3, 4, 4, 5, 5, 1]]
    )
    chosen = (
        None
        if mask is None
        else torch.zeros(6, dtype=torch.bool).index_fill_(0, torch.tensor(mask), True)
    )
    inputs = (
        LinearInput(x=x_dst, weight=weight),
        LinearInput(x=x_src, weight=weight),
        v,
        sorted_edges(edge_index, 9, 6),
        chosen,
        2,
    )
    projections, score, read = 2 * (targets + sources) * 8 * 5, 2 * edges * 8, 2 * edges * 4
    with FlopCounterMode(display=False) as counter:
        out = edge_attention(*inputs)
    assert counter.get_total_flops() == projections + score + read
    with FlopCounterMode(display=False) as counter:
        out.sum().backward()
    assert counter.get_total_flops() == 3 * projections + 3 * score + 2 * read


def test_scores_that_are_all_zero_are_equal_weights():
    edge_index = torch.tensor([[0, 1, 2, 0, 1], [0, 0, 0, 2, 2]])
    score = torch.tensor([[0.0], [0.0], [0.0], [1.0], [3.0]], dtype=torch.float64)
    assert row_normalized(score, edge_index, 4).tolist() == [
        [1 / 3],
        [1 / 3],
        [1 / 3],
        [0.25],
        [0.75],
    ]


@pytest.mark.parametrize('normalize', [row_normalized, softmax_weight])
def test_weights_of_edges_are_rounded_to_the_precision_of_the_scores(normalize):
    edge_index, score = torch.tensor([[0, 1, 2], [0, 0, 1]]), torch.tensor([[1.0], [3.0], [2.0]])
    weight = torch.tensor([0.5, 2.0, 1.0])
    actual = normalize(score, edge_index, 2, weight.double())
    assert actual.dtype == torch.float32
    assert torch.equal(actual, normalize(score, edge_index, 2, weight))


@pytest.mark.parametrize(
    ('score', 'backward'),
    [
        (edge_distances, 1),
        (lambda k, q, edges, heads: edge_logits(k, q, sorted_edges(edges, 5, 3), heads), 2),
    ],
    ids=['distances', 'logits'],
)
def test_scores_count_two_operations_for_each_channel(score, backward):
    """Backward as many for all gradients of a distance, and for each gradient of a product."""
    q, k = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4, requires_grad=True)
    edge_index = torch.tensor([[0, 1, 4], [0, 0, 2]])
    with FlopCounterMode(display=False) as counter:
        out = score(k, q, edge_index, 2)
    assert counter.get_total_flops() == 2 * 3 * 4
    with FlopCounterMode(display=False) as counter:
        out.sum().backward()
    assert counter.get_total_flops() == backward * 2 * 3 * 4


@pytest.mark.parametrize('edge_weight', [None, torch.rand(3, requires_grad=True)])
def test_backward_computes_the_scores_once(edge_weight, monkeypatch):
    """The other product of rows is that of the gradient with the values."""
    x, calls = torch.randn(3, 4, requires_grad=True), []
    edges = sorted_edges(torch.tensor([[0, 1, 2], [0, 0, 1]]), 3, 3, edge_weight=edge_weight)
    monkeypatch.setattr(
        'torch_geometric_lgt.functional.neighbors.edge_attention.products',
        lambda *args: calls.append(1) or products(*args),
    )
    out = edge_attention(LinearInput(x=x), LinearInput(x=x), x, edges, None, 2)
    assert len(calls) == 1
    out.sum().backward()
    assert len(calls) == 1 + 2


def test_targets_that_are_left_out_while_a_cuda_graph_is_captured(monkeypatch):
    """Their number is not known then: all are computed, and theirs are set aside."""
    edges, mask = torch.tensor([[0, 1, 2, 3], [0, 0, 1, 2]]), torch.tensor([True, False, True])
    x_src, x_dst, value = torch.randn(4, 6), torch.randn(3, 6), torch.randn(4, 6)
    queries, keys = LinearInput(x=x_dst), LinearInput(x=x_src)
    attention, all_targets = (
        edge_attention(queries, keys, value, sorted_edges(edges, 4, 3), part, 2)
        for part in (mask, None)
    )
    scores = [edge_scores(queries, keys, value, edges, mask, 2, is_far) for is_far in (True, False)]
    for module in ('edge_attention', 'edge_scores'):
        monkeypatch.setattr(
            f'torch_geometric_lgt.functional.neighbors.{module}.is_capturing', lambda: True
        )
    captured = edge_attention(queries, keys, value, sorted_edges(edges, 4, 3), mask, 2)
    torch.testing.assert_close(captured, attention)
    assert captured[1].abs().max() == 0
    captured = edge_attention(queries, keys, value, sorted_edges(edges, 4, 3), None, 2)
    torch.testing.assert_close(captured, all_targets)
    whole = torch.ones(3, dtype=torch.bool)
    torch.testing.assert_close(
        edge_scores(queries, keys, value, edges, None, 2, True),
        edge_scores(queries, keys, value, edges, whole, 2, True),
    )
    for is_far, expected in zip((True, False), scores, strict=True):
        torch.testing.assert_close(
            edge_scores(queries, keys, value, edges, mask, 2, is_far), expected
        )


def test_work_of_scores_is_that_of_the_nodes_and_edges_that_take_part():
    """One target attends, to three of nine sources."""
    edge_index = torch.tensor([[0, 1, 8, 3, 2], [0, 0, 0, 1, 1]])
    weight, value = torch.randn(4, 5), torch.randn(5, 4)
    queries = LinearInput(x=torch.randn(2, 5), weight=weight)
    keys = LinearInput(x=torch.randn(9, 5), weight=weight)
    with FlopCounterMode(display=False) as counter:
        edge_scores(queries, keys, value, edge_index, torch.tensor([True, False]), 2, False)
    assert counter.get_total_flops() == 2 * (1 + 3) * 4 * 5 + 2 * 3 * 4
