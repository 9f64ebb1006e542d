import math

import pytest
import torch
from torch_geometric.utils import to_undirected

from torch_geometric_lgt.functional import attention_distance
from torch_geometric_lgt.functional.neighbors.node_sampling import largest_per_graph
from torch_geometric_lgt.testing import dense


@pytest.mark.parametrize('measure', ['jaccard', 'lse'])
@pytest.mark.parametrize('neighbors', ['in', 'out', 'all'])
def test_matches_dense_on_a_directed_graph(measure, neighbors):
    edges = torch.randint(40, (2, 150))
    into = torch.zeros(42, 42, dtype=torch.float64)
    into[edges[1], edges[0]] = 1
    into.fill_diagonal_(0)
    adjacency = {'in': into, 'out': into.t(), 'all': torch.maximum(into, into.t())}[neighbors]
    actual = attention_distance(edges, 42, measure, neighbors)
    torch.testing.assert_close(actual, dense.attention_distance(adjacency, measure))
    if neighbors == 'in':
        assert torch.equal(actual, attention_distance(edges, 42, measure))


def test_neighbours_are_those_that_a_node_attends_to():
    """A node without incoming edges has no neighbours; all that the attention reads are the sources
    of edges."""
    edges = torch.tensor([[0, 0, 1], [1, 2, 2]])
    half = 1 / 2
    assert attention_distance(edges, 3).tolist() == pytest.approx(
        [-math.inf, 0, half - half / 2 - math.log(2)]
    )
    reverse = attention_distance(edges.flip(0), 3, neighbors='out')
    assert torch.equal(attention_distance(edges, 3), reverse)


def test_only_the_index_ranks_nodes_of_equal_degree():
    """Nodes 0 and 3 have two neighbours each; only one of node 0 has a neighbour in common with
    its node."""
    edges = torch.tensor([[1, 2, 2, 5, 4, 5, 4, 5], [0, 0, 1, 1, 3, 3, 6, 7]])
    distance = attention_distance(edges, 8)
    assert distance[[0, 3]].tolist() == pytest.approx([1 / 6 - math.log(2), -math.log(2)])


def test_hand_computed():
    """A triangle with a tail: the tail's end has one neighbour and no triangle, which is the
    largest value there is."""
    edges = to_undirected(torch.tensor([[0, 1, 2, 2], [1, 2, 0, 3]]))
    third, quarter = 1 / 3, 1 / 4
    corner = third - (third + quarter) / 2 - math.log(2)
    assert attention_distance(edges, 5).tolist() == pytest.approx(
        [corner, corner, quarter - quarter * 2 / 3 - math.log(3), 0, -math.inf]
    )
    assert attention_distance(edges, 5, 'lse').min() == -math.inf
    assert (attention_distance(edges, 4, 'lse') >= 0).all()
    assert attention_distance(torch.empty(2, 0, dtype=torch.long), 2).tolist() == [-math.inf] * 2


def test_symmetric_nodes_tie_exactly():
    """Nodes of a ring with chords look alike from all of them, whatever the order of their
    neighbours is."""
    node = torch.arange(21)
    edges = to_undirected(
        torch.cat([torch.stack([node, (node + step) % 21]) for step in (1, 2, 5)], 1)
    )
    for measure in ('jaccard', 'lse'):
        assert attention_distance(edges, 21, measure).unique().numel() == 1


@pytest.mark.parametrize('factor', [0.1, 1.0, 5.0])
def test_number_and_order_of_the_sampled_nodes(factor):
    batch = torch.tensor([3] * 20 + [0] * 7 + [1])[torch.randperm(28)]
    score = torch.randint(4, (28,)).double()
    mask = largest_per_graph(score, batch, factor)
    for graph, size in ((3, 20), (0, 7), (1, 1)):
        nodes = (batch == graph).nonzero().flatten().tolist()
        count = min(size, max(1, math.ceil(factor * math.log(size))))
        expected = sorted(nodes, key=lambda node: (-score[node], node))[:count]
        assert sorted(expected) == [node for node in nodes if mask[node]]
    assert largest_per_graph(score[:0], None, factor).shape == (0,)


@pytest.mark.parametrize('measure', ['jaccard', 'lse'])
def test_nodes_without_neighbours_are_farthest(measure):
    for edges in ([], [[1, 1]]):
        edge_index = torch.tensor(edges, dtype=torch.long).view(-1, 2).t()
        assert attention_distance(edge_index, 3, measure).tolist() == [-torch.inf] * 3


def test_raises():
    with pytest.raises(ValueError, match="'measure' must be one of 'jaccard', 'lse'"):
        attention_distance(torch.tensor([[0], [1]]), 2, 'degree')
    with pytest.raises(ValueError, match="'neighbors' must be one of 'all', 'in', 'out'"):
        attention_distance(torch.tensor([[0], [1]]), 2, neighbors='both')
    for num_nodes in (2.0, -1, True):
        with pytest.raises(ValueError, match="'num_nodes' must be at least 0, a whole number"):
            attention_distance(torch.tensor([[0], [0]]), num_nodes)


def test_a_factor_beyond_all_nodes_takes_all():
    score, batch = torch.rand(9), torch.tensor([0] * 5 + [1] + [3] * 3)
    for factor in (1e3, 1e19, float('inf')):
        assert largest_per_graph(score, batch, factor).all()
