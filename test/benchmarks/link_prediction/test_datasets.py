import math

import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.utils import coalesce, to_undirected

from benchmarks.link_prediction.datasets import Split, adamic_adar

CPU = torch.device('cpu')


def graph(num_nodes=40, num_edges=120):
    generator = torch.Generator().manual_seed(0)
    source = torch.randint(num_nodes - 1, (num_edges,), generator=generator)
    edges = torch.stack([source, torch.randint(1, num_nodes, (num_edges,), generator=generator)])
    edges = to_undirected(edges[:, edges[0] != edges[1]], num_nodes=num_nodes)
    return Data(edge_index=edges, num_nodes=num_nodes)


def test_each_edge_is_in_one_part():
    data = graph()
    state = torch.get_rng_state()
    split = Split(data, 0, CPU)
    assert torch.equal(torch.get_rng_state(), state)
    num_edges = data.num_edges // 2
    assert split.valid.size(1) == int(0.05 * num_edges)
    assert split.test.size(1) == int(0.1 * num_edges)
    parts = torch.cat([split.train, to_undirected(split.valid), to_undirected(split.test)], 1)
    assert parts.size(1) == data.num_edges
    assert torch.equal(coalesce(parts), data.edge_index)
    assert torch.equal(Split(data, 0, CPU).test, split.test)
    assert not torch.equal(Split(data, 1, CPU).test, split.test)


def test_known_neighbours_and_the_node_itself_are_not_ranked():
    data = graph()
    split = Split(data, 0, CPU)
    best, second = torch.zeros(2, 40, 40)
    source, target = to_undirected(split.test)
    best[source, target] = 1.0
    second[source, target] = 1.0
    for known in (split.train, to_undirected(split.valid), torch.arange(40).expand(2, -1)):
        best[known[0], known[1]] = 2.0
    assert split.measure(lambda nodes: best[nodes]) == {'ndcg@20': 1.0, 'recall@20': 1.0}
    # validation edges are among the ranked nodes while the epoch is chosen
    valid = to_undirected(split.valid)
    second[valid[0], valid[1]] = 2.0
    assert split.validate(lambda nodes: second[nodes]) == pytest.approx(1.0)
    second[valid[0], valid[1]] = 0.5
    second[source, target] = 0.0
    assert split.validate(lambda nodes: second[nodes]) == pytest.approx(1.0)


def test_the_rank_of_one_neighbour_decides():
    """Node 0 has one held-out neighbour, third of those that are ranked."""
    split = Split(graph(), 0, CPU)
    split.train, split.test = torch.empty(2, 2, 0, dtype=torch.long)
    split.valid = torch.tensor([[0], [1]])
    scores = torch.zeros(40, 40)
    scores[0, :4] = torch.tensor([9.0, 1.0, 2.0, 3.0])
    scores[1, 0] = 1.0
    expected = (1 / math.log2(4) + 1) / 2
    assert split.validate(lambda nodes: scores[nodes]) == pytest.approx(expected)


def test_adamic_adar():
    data = graph()
    adjacency = torch.zeros(40, 40, dtype=torch.float64)
    adjacency[data.edge_index[0], data.edge_index[1]] = 1.0
    expected = torch.zeros(40, 40, dtype=torch.float64)
    for node in range(40):
        neighbors = adjacency[node].nonzero().flatten()
        for first in neighbors:
            for second in neighbors[neighbors != first]:
                expected[first, second] += 1 / math.log(neighbors.numel())
    scores = adamic_adar(data.edge_index, 40)(torch.tensor([3, 0, 17]))
    scores[range(3), [3, 0, 17]] = 0.0
    torch.testing.assert_close(scores.double(), expected[[3, 0, 17]], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(('num_nodes', 'num_edges'), [(19, 60), (40, 15)])
def test_too_small_a_graph(num_nodes, num_edges):
    data = graph(num_nodes, num_edges)
    text = rf'20 nodes to rank and 20 edges to split \(got {num_nodes} nodes and \d+ edges\)'
    with pytest.raises(ValueError, match=text):
        Split(data, 0, CPU)
