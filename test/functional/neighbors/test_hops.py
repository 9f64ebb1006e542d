import pytest
import torch

from torch_geometric_lgt.functional.neighbors.hops import (
    degrees,
    edges_into,
    hops,
    ranges,
    weighted_hop,
)


def pairs(edge_index):
    return sorted(map(tuple, edge_index.t().tolist()))


def test_degrees_ignore_repeats_loops_and_direction():
    assert degrees(torch.tensor([[0, 0, 1, 2, 2], [1, 1, 0, 2, 0]]), 4).tolist() == [2, 1, 1, 0]
    assert degrees(torch.empty(2, 0, dtype=torch.long), 3).tolist() == [0, 0, 0]
    assert degrees(torch.empty(2, 0, dtype=torch.long), 0).tolist() == []


@pytest.mark.parametrize('is_sorted', [False, True])
def test_edges_into_some_nodes(is_sorted):
    edges = torch.randint(20, (2, 60))
    edges = edges[:, edges[1].argsort(stable=True)] if is_sorted else edges
    nodes = torch.tensor([7, 3, 7, 19, 0])
    weight = torch.rand(edges.size(1))
    actual, none = edges_into(nodes, edges)
    assert none is None
    expected = [
        (int(u), place)
        for place, node in enumerate(nodes.tolist())
        for u, v in edges.t()
        if v == node
    ]
    assert pairs(actual) == sorted(expected)
    assert actual[1].tolist() == sorted(actual[1].tolist())
    same, taken = edges_into(nodes, edges, weight)
    assert torch.equal(same, actual)
    weighted = list(zip(edges.t().tolist(), weight.tolist(), strict=True))
    triples = [
        (u, place, w)
        for place, node in enumerate(nodes.tolist())
        for (u, v), w in weighted
        if v == node
    ]
    assert sorted(
        (int(u), int(p), float(w)) for (u, p), w in zip(actual.t(), taken, strict=True)
    ) == sorted(triples)
    if is_sorted:
        assert [(int(u), int(p)) for u, p in actual.t()] == expected


def test_edges_into_sorts_only_what_is_not_sorted(monkeypatch):
    def refused(self, *_, **__):
        raise AssertionError('sorted again')

    monkeypatch.setattr(torch.Tensor, 'argsort', refused)
    assert edges_into(torch.tensor([1]), torch.tensor([[4, 5, 6], [0, 1, 1]]))[0].tolist() == [
        [5, 6],
        [0, 0],
    ]
    assert edges_into(torch.tensor([1]), torch.empty(2, 0, dtype=torch.long))[0].shape == (2, 0)
    for target in ([1, 0, 2], [0, 2, 1]):
        with pytest.raises(AssertionError, match='sorted again'):
            edges_into(torch.tensor([1]), torch.tensor([[4, 5, 6], target]))


def test_hops_are_walks_of_each_length():
    edges = torch.tensor([[0, 1, 1, 2, 0], [1, 2, 2, 3, 1]])
    assert [pairs.t().tolist() for pairs in hops(edges, 5, 3, self_loops=False)] == [
        [[0, 1], [1, 2], [2, 3]],
        [[0, 2], [1, 3]],
        [[0, 3]],
    ]
    within = hops(edges, 5, 2)
    assert within[0].t().tolist() == [
        [0, 0],
        [0, 1],
        [1, 1],
        [1, 2],
        [2, 2],
        [2, 3],
        [3, 3],
        [4, 4],
    ]
    assert within[1].size(1) == 5 + 3 + 2
    assert hops(edges, 5, 0) == []
    loop = hops(torch.tensor([[0, 0], [0, 1]]), 2, 1)
    assert loop[0].t().tolist() == [[0, 0], [0, 1], [1, 1]]


def test_ranges():
    index, number = ranges(torch.tensor([7, 0, 3]), torch.tensor([2, 0, 3]))
    assert index.tolist() == [0, 0, 2, 2, 2]
    assert number.tolist() == [7, 8, 3, 4, 5]


def test_hops_lie_by_target():
    for pairs_of_order in hops(torch.randint(30, (2, 50)), 30, 2):
        assert bool((pairs_of_order[1].diff() >= 0).all())


@pytest.mark.parametrize('self_loops', [False, True])
def test_edges_of_a_pair_add_up_to_the_mean_of_their_weights(self_loops):
    edges = torch.tensor([[0, 0, 2, 1, 0], [1, 1, 0, 1, 1]])
    weight = torch.tensor([1.0, 2.0, 3.0, 4.0, 6.0])
    actual, share = weighted_hop(edges, 3, self_loops, weight)
    matrix = torch.zeros(3, 3).index_put((actual[0], actual[1]), share, accumulate=True)
    expected = torch.tensor([[0.0, 3.0, 0.0], [0.0, 4.0, 0.0], [3.0, 0.0, 0.0]])
    torch.testing.assert_close(matrix, expected.fill_diagonal_(1) if self_loops else expected)
    assert pairs(actual.unique(dim=1)) == pairs(hops(edges, 3, 1, self_loops)[0])
    assert torch.equal(actual[:, : edges.size(1)], edges)
    assert weighted_hop(edges[:, :0], 0, self_loops, weight[:0])[0].shape == (2, 0)


@pytest.mark.parametrize('self_loops', [False, True])
@pytest.mark.parametrize(('num_nodes', 'num_edges'), [(0, 0), (1, 0), (1, 3), (9, 1), (9, 60)])
def test_the_first_order_is_the_set_of_edges(num_nodes, num_edges, self_loops):
    edges = torch.randint(max(1, num_nodes), (2, num_edges))
    wanted = {(target, source) for source, target in edges.t().tolist()} | {
        (i, i) for i in range(num_nodes) if self_loops
    }
    actual = hops(edges, num_nodes, 1, self_loops)[0]
    assert [tuple(pair) for pair in actual.flip(0).t().tolist()] == sorted(wanted)
