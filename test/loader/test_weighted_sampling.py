"""Sampling in proportion to weights: frequencies against the exact probabilities."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

from torch_geometric_lgt.loader import LinkNeighborLoader, NeighborLoader, NeighborSampler
from torch_geometric_lgt.loader._draws import weighted_distinct, weighted_repeated

WEIGHTS = np.array([1.0, 4.0, 2.0, 0.5, 2.5])


def exact(weights, count):
    """The probability of each set of so many draws, one after another without replacement."""
    out = Counter()
    for order in permutations(range(len(weights)), count):
        left, share = sum(weights), 1.0
        for index in order:
            share *= weights[index] / left
            left -= weights[index]
        out[tuple(sorted(order))] += share
    return out


def hub(weights):
    """Edges into node 0, in the order of a random permutation, and two edges into node 1."""
    size = len(weights)
    source = torch.cat([torch.arange(2, size + 2), torch.tensor([2, 3])])
    target = torch.cat([torch.zeros(size, dtype=torch.long), torch.tensor([1, 1])])
    order = torch.randperm(size + 2, generator=torch.Generator().manual_seed(1))
    weight = torch.cat([torch.as_tensor(weights), torch.ones(2)])
    return Data(
        edge_index=torch.stack([source, target])[:, order],
        edge_rate=weight[order],
        number=torch.arange(size + 2)[order],
        num_nodes=size + 2,
    )


def drawn(data, count, replace, repeats=20_000):
    torch.manual_seed(0)
    seeds = torch.zeros(repeats, dtype=torch.long)
    loader = NeighborLoader(
        data,
        [count],
        seeds,
        weight_attr='edge_rate',
        replace=replace,
        disjoint=True,
        batch_size=repeats,
    )
    (batch,) = loader
    return data.number[batch.e_id].view(repeats, -1)


@pytest.mark.parametrize('count', [1, 2, 3])
def test_sets_have_the_exact_probabilities(count):
    """Chi-squared at 0.1 %: 4 or 9 degrees of freedom."""
    found = Counter(tuple(sorted(row)) for row in drawn(hub(WEIGHTS), count, False).tolist())
    expected = {chosen: 20_000 * share for chosen, share in exact(WEIGHTS, count).items()}
    assert sum(expected.values()) == pytest.approx(20_000)
    statistic = sum((found[chosen] - mean) ** 2 / mean for chosen, mean in expected.items())
    assert statistic < (18.5 if count == 1 else 27.9)


def test_repeated_draws_have_the_exact_probabilities():
    """Chi-squared over the 25 ordered pairs of draws, at 0.1 % with 24 degrees of freedom."""
    pairs = drawn(hub(WEIGHTS), 2, True)
    found = torch.bincount(pairs[:, 0] * 5 + pairs[:, 1], minlength=25).numpy()
    share = WEIGHTS / WEIGHTS.sum()
    expected = 20_000 * np.outer(share, share).ravel()
    assert ((found - expected) ** 2 / expected).sum() < 51.2


def test_weights_in_half_precision_have_sums_beyond_it():
    data = hub(WEIGHTS)
    expected = drawn(data, 2, True, 50)
    data.edge_rate = (8192 * data.edge_rate).half()
    assert torch.equal(drawn(data, 2, True, 50), expected)


def test_edges_of_weight_zero_come_last():
    """Among themselves alike likely: chi-squared at 0.1 % with 2 degrees of freedom."""
    data = hub([0.0, 3.0, 0.0, 1.0, 0.0])
    assert all(set(row) == {1, 3} for row in drawn(data, 2, False, 500).tolist())
    rows = drawn(data, 3, False, 6000)
    assert all({1, 3} <= set(row) for row in rows.tolist())
    third = torch.bincount(rows.sum(1) - 4, minlength=5)[[0, 2, 4]]
    assert float(((third - 2000) ** 2 / 2000).sum()) < 13.8
    assert set(drawn(data, 4, True, 500).flatten().tolist()) == {1, 3}


def test_all_edges_are_taken_whatever_their_weights():
    data = hub([0.0, 3.0, 0.0, 1.0, 0.0])
    for count, replace in ((-1, False), (-1, True), (5, False), (9, False)):
        assert sorted(drawn(data, count, replace, 1)[0].tolist()) == [0, 1, 2, 3, 4]


def test_rows_of_many_sizes_and_scales():
    """Each row is drawn by its own weights, small ones beside large ones too."""
    random = np.random.default_rng(0)
    size = random.integers(4, 20, 3000)
    scale = np.repeat(10.0 ** random.integers(-30, 30, 3000), size)
    heavy = np.zeros(size.sum(), bool)
    start = np.cumsum(size) - size
    chosen = start + random.integers(0, size)
    heavy[chosen] = True
    weight = np.where(heavy, scale, 0)
    repeated = weighted_repeated(weight, size, 3, random)
    assert (repeated == (chosen - start)[:, None]).all()
    first = weighted_distinct(weight, size, 3, random)
    assert (first[:, 0] == chosen - start).all()
    assert (first < size[:, None]).all()
    assert (np.diff(np.sort(first, 1)) > 0).all()


def test_the_largest_random_number_draws_the_last_edge():
    class Largest:
        def random(self, shape):
            return np.full(shape, np.nextafter(1.0, 0))

    weight, size = np.full(30, 0.1), np.array([10, 10, 10])
    assert weighted_repeated(weight, size, 2, Largest()).tolist() == [[9, 9]] * 3


def test_hops_and_induced_subgraphs():
    """With the weight 0 for all edges but a path, the path is drawn."""
    path = torch.stack([torch.arange(1, 6), torch.arange(5)])
    other = torch.tensor([[5, 4, 5, 2, 5], [0, 1, 2, 3, 3]])
    data = Data(edge_index=torch.cat([path, other], 1), edge_rate=torch.arange(10) < 5, num_nodes=6)
    loader = NeighborLoader(data, [1] * 3, torch.tensor([0]), weight_attr='edge_rate')
    (batch,) = loader
    assert batch.n_id.tolist() == [0, 1, 2, 3]
    assert batch.e_id.tolist() == [0, 1, 2]
    (batch,) = NeighborLoader(
        data, [1] * 3, torch.tensor([0]), weight_attr='edge_rate', subgraph_type='induced'
    )
    assert batch.n_id.tolist() == [0, 1, 2, 3]
    assert sorted(batch.e_id.tolist()) == [0, 1, 2, 8]


def test_types_without_weights_are_drawn_uniformly():
    data = HeteroData()
    data['user'].num_nodes, data['item'].num_nodes, data['tag'].num_nodes = 1, 4, 4
    edges = torch.stack([torch.arange(4), torch.zeros(4, dtype=torch.long)])
    data['item', 'of', 'user'].edge_index = data['tag', 'on', 'user'].edge_index = edges
    data['item', 'of', 'user'].rate = torch.tensor([0.0, 0.0, 1.0, 0.0])
    torch.manual_seed(0)
    seeds = ('user', torch.zeros(400, dtype=torch.long))
    options = {'weight_attr': 'rate', 'disjoint': True, 'batch_size': 400}
    (batch,) = NeighborLoader(data, [1], seeds, **options)
    assert batch['item'].n_id.unique().tolist() == [2]
    count = torch.bincount(batch['tag'].n_id, minlength=4)
    assert float(((count - 100) ** 2 / 100).sum()) < 16.3


def test_links_and_seeds():
    data, runs = hub(WEIGHTS), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        links = torch.tensor([[0, 1], [1, 0]]).repeat(1, 50)
        loader = LinkNeighborLoader(data, [2], links, weight_attr='edge_rate', batch_size=1)
        runs.append(torch.cat([batch.e_id for batch in loader]))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


def test_weights_that_are_refused():
    data = hub(WEIGHTS)
    for value, match in (
        (-1.0, r"finite and not negative \(got -1.0 in 'edge_rate'\)"),
        (torch.inf, r"finite and not negative \(got inf in 'edge_rate'\)"),
        (torch.nan, r"'weight_attr' must name an attribute without NaN"),
    ):
        data.edge_rate[0] = value
        with pytest.raises(ValueError, match=match):
            NeighborSampler(data, [2], weight_attr='edge_rate')
    with pytest.raises(ValueError, match=r"'weight_attr' must name an attribute of edges \(got"):
        NeighborSampler(data, [2], weight_attr='edge_none')
    data.edge_rate = torch.ones(7, 2)
    with pytest.raises(ValueError, match=r'one number for each edge, \[7\] \(got shape \[7, 2\]'):
        NeighborSampler(data, [2], weight_attr='edge_rate')
    data = hub(np.zeros(5))
    with pytest.raises(ValueError, match='a positive weight among the incoming edges of each node'):
        drawn(data, 2, True, 1)
    assert drawn(data, 0, True, 1).numel() == 0


def test_as_many_edges_as_nodes():
    """PyG then takes the weights for an attribute of nodes."""
    ring = torch.stack([torch.arange(4), (torch.arange(4) + 1) % 4])
    data = Data(x=torch.zeros(4, 1), edge_index=ring, weight=torch.ones(4))
    batch = next(iter(NeighborLoader(data, [1], batch_size=4, weight_attr='weight')))
    assert batch.edge_index.size(1) == 4
