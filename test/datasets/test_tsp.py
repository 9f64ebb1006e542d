import builtins
import itertools

import numpy as np
import pytest
import torch

from torch_geometric_lgt.datasets import TSPDataset, tsp


def length(points, order):
    return float(np.linalg.norm(points[order] - points[np.roll(order, -1)], axis=1).sum())


def test_tours_are_the_shortest():
    points = np.random.default_rng(0).random((8, 2))
    best = min(length(points, np.array([0, *rest])) for rest in itertools.permutations(range(1, 8)))
    order = tsp.tour(points)
    assert sorted(order) == list(range(8))
    assert length(points, order) == pytest.approx(best, abs=1e-5)


def test_edges_and_labels_of_a_square():
    points = np.array([[0.0, 0], [0, 1], [1, 1], [1, 0.1]])
    data = tsp.labelled(points, np.array([2, 1, 0, 3]))
    assert data.edge_index.shape == (2, 12)
    results = {
        (int(j), int(i)): int(label) for j, i, label in zip(*data.edge_index, data.y, strict=True)
    }
    assert results == {
        pair: int(abs(pair[0] - pair[1]) != 2) for pair in itertools.permutations(range(4), 2)
    }
    torch.testing.assert_close(
        data.edge_attr[:, 0], (data.x[data.edge_index[0]] - data.x[data.edge_index[1]]).norm(dim=1)
    )


@pytest.fixture
def small(constants):
    constants(tsp_sizes=(30, 41))


def test_graphs_of_nearest_neighbours(tmp_path, small):
    data = TSPDataset(tmp_path, 'val', num_graphs=6)
    for graph in data:
        assert 30 <= graph.num_nodes <= 40
        assert graph.edge_index[1].bincount().tolist() == [25] * graph.num_nodes
        distance = torch.cdist(graph.x, graph.x).fill_diagonal_(np.inf)
        farthest = distance.topk(25, largest=False).values[:, -1]
        assert (graph.edge_attr[:, 0] <= farthest[graph.edge_index[1]] + 1e-6).all()
        # both directions of each edge of the tour lie among the neighbours at this size
        assert graph.y.sum() == 2 * graph.num_nodes
    again = TSPDataset(tmp_path / 'other', 'val', num_graphs=6)
    assert torch.equal(again._data.x, data._data.x)
    assert torch.equal(again._data.y, data._data.y)
    assert not torch.equal(TSPDataset(tmp_path, 'test', num_graphs=6)[0].x[:3], data[0].x[:3])
    assert data.solver.startswith('elkai ')
    assert repr(data) == "TSPDataset('TSP', 'val', 6)"


def test_missing_solver(tmp_path, monkeypatch):
    load = builtins.__import__
    monkeypatch.setattr(
        builtins,
        '__import__',
        lambda name, *rest: (
            (_ for _ in ()).throw(ImportError(name)) if name == 'elkai' else load(name, *rest)
        ),
    )
    with pytest.raises(ImportError, match=r'pip install "torch-geometric-lgt\[tsp\]"'):
        tsp.tour(np.zeros((5, 2)))
