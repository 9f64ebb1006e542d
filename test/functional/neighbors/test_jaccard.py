import math
import time

import numpy as np
import pytest
import torch
from torch_geometric.utils import barabasi_albert_graph, to_undirected

from torch_geometric_lgt.functional import jaccard, minhash_jaccard
from torch_geometric_lgt.functional.neighbors import common_neighbors
from torch_geometric_lgt.functional.neighbors.jaccard import _scrambled
from torch_geometric_lgt.testing import dense


@pytest.fixture(params=['compiled', 'searched'])
def loop(request, constants):
    if request.param == 'searched':
        constants(compiled_jaccard=None, jaccard_chunk=50)
    else:
        assert common_neighbors._compiled() is not None
        constants(jaccard_searched=-1)


def adjacency(edges, num_nodes, neighbors):
    out = torch.zeros(num_nodes, num_nodes)
    source, target = edges
    if neighbors != 'in':
        out[source, target] = 1
    if neighbors != 'out':
        out[target, source] = 1
    return out.fill_diagonal_(0)


@pytest.mark.parametrize('neighbors', ['all', 'in', 'out'])
@pytest.mark.parametrize(('num_nodes', 'num_edges'), [(1, 3), (9, 4), (30, 200), (63, 300)])
def test_matches_dense(loop, neighbors, num_nodes, num_edges):
    edges = torch.randint(num_nodes, (2, num_edges))
    expected = dense.jaccard(adjacency(edges, num_nodes, neighbors))
    torch.testing.assert_close(
        jaccard(edges, num_nodes, neighbors=neighbors), expected[edges[0], edges[1]]
    )
    pairs = torch.cartesian_prod(torch.arange(num_nodes), torch.arange(num_nodes)).t()
    torch.testing.assert_close(
        jaccard(edges.int(), num_nodes, pairs, neighbors), expected.flatten()
    )


def test_hand_computed(loop):
    """A triangle 0, 1, 2 with a tail 2 - 3, a repeated edge and a self loop; node 4 is alone and
    has a self loop too."""
    edges = torch.tensor([[0, 1, 2, 2, 3, 0, 1, 4], [1, 2, 0, 3, 2, 1, 1, 4]])
    assert jaccard(edges, 5).tolist() == pytest.approx([1 / 3, 1 / 4, 1 / 4, 0, 0, 1 / 3, 1, 0])
    assert jaccard(edges, 5, torch.tensor([[0, 3], [3, 4]])).tolist() == [0.5, 0]


def test_marks_each_larger_node_once(constants):
    """A hub 0 of 3, 4, 5, 6 with 1 and 2, which have one neighbour of it each and then none."""
    starts = []

    def loop(pointer, neighbor, large, small, start, out, parts, part):
        starts.append((large.tolist(), small.tolist(), start.tolist()))
        common_neighbors._count(pointer, neighbor, large, small, start, out, parts, part)

    constants(compiled_jaccard=loop, jaccard_searched=-1)
    edges = torch.tensor([[0, 0, 0, 0, 1, 1, 2], [3, 4, 5, 6, 3, 4, 3]])
    assert jaccard(edges, 7, torch.tensor([[0, 0, 1, 1, 1], [1, 2, 2, 0, 6]])).tolist() == [
        2 / 4,
        1 / 4,
        1 / 2,
        2 / 4,
        0,
    ]
    assert starts == [([0, 0, 1, 1], [1, 2, 2, 6], [0, 2, 4])] * torch.get_num_threads()


def test_an_interrupt_ends_the_loop_early(constants):
    """It waited for the lookups of all 190 pairs of 20 nodes with 19 neighbours each."""
    begun = []

    def loop(*arguments):
        begun.append(arguments[-2:])
        if is_interrupted:
            time.sleep(0.01)
            raise KeyboardInterrupt
        common_neighbors._count(*arguments)

    constants(compiled_jaccard=loop, jaccard_searched=-1, jaccard_part=1)
    edges = torch.combinations(torch.arange(20)).t()
    is_interrupted = False
    assert (jaccard(edges, 20) == 18 / 20).all()
    parts = 190 * 19 // 21  # of 21 lookups, as many as the pointer has elements
    assert sorted(begun) == [(parts, part) for part in range(parts)]
    begun.clear()
    is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        jaccard(edges, 20)
    assert len(begun) < parts / 2


def test_nothing_to_count(loop):
    nothing, pairs = torch.empty(2, 0, dtype=torch.long), torch.tensor([[0, 1], [1, 1]])
    assert jaccard(nothing, 3).shape == (0,)
    assert jaccard(nothing, 3, pairs).tolist() == [0, 0]
    assert minhash_jaccard(nothing, 3, 4, pairs).tolist() == [0, 0]


def test_time_grows_with_the_smaller_degree(loop, monkeypatch, constants):
    """Two hubs that share 50 000 leaves, in a star's worth of pairs with one hub: no list of a hub
    is walked for a leaf."""
    leaves = torch.arange(2, 50_002)
    edges = to_undirected(
        torch.cat([torch.stack([torch.full_like(leaves, hub), leaves]) for hub in (0, 1)], 1)
    )
    assert jaccard(edges, 50_002, torch.tensor([[0, 0], [1, 2]])).tolist() == [1, 0]
    walked = []
    constants(compiled_jaccard=None)
    search = np.searchsorted
    monkeypatch.setattr(
        np,
        'searchsorted',
        lambda known, wanted: walked.append(np.size(wanted)) or search(known, wanted),
    )
    jaccard(edges, 50_002)
    cuts = math.ceil(200_000 / common_neighbors.CHUNK_ELEMENTS)
    # two neighbours for each of 100 000 distinct pairs, and one bisection for each chunk
    assert sum(walked) == 200_000 + cuts


def test_any_number_of_threads(loop):
    edges = barabasi_albert_graph(500, 6)
    threads, results = torch.get_num_threads(), []
    try:
        for number in (1, 3):
            torch.set_num_threads(number)
            results.append(jaccard(edges, 500))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(*results)


def test_estimate_stays_within_its_bound():
    edges = barabasi_albert_graph(300, 8)
    exact, state = jaccard(edges, 300), torch.get_rng_state()
    for num_hashes in (64, 1024):
        generators = [torch.Generator().manual_seed(seed) for seed in (*range(20), 0)]
        draws = torch.stack(
            [
                minhash_jaccard(edges, 300, num_hashes, generator=generator)
                for generator in generators
            ]
        )
        assert torch.equal(draws[0], draws[20])
        error, variance = draws[:20] - exact, exact * (1 - exact) / num_hashes
        assert (error**2).mean() == pytest.approx(float(variance.mean()), rel=0.2)
        assert (error.abs() > 3 * variance.sqrt() + 1 / num_hashes).float().mean() < 0.02
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize('neighbors', ['all', 'in', 'out'])
def test_estimate_of_equal_and_disjoint_neighbourhoods(neighbors):
    edges = torch.tensor([[0, 1, 2, 3, 4, 5], [2, 2, 0, 5, 5, 3]])
    exact = jaccard(edges, 7, torch.tensor([[0, 0, 0, 6], [1, 0, 3, 6]]), neighbors)
    estimate = minhash_jaccard(edges, 7, 8, torch.tensor([[0, 0, 0, 6], [1, 0, 3, 6]]), neighbors)
    for value, guess in zip(exact.tolist(), estimate.tolist(), strict=True):
        assert guess == value or value not in (0, 1)


def test_raises():
    edges = torch.tensor([[0, 1], [1, 5]])
    with pytest.raises(ValueError, match='target ids from 0 to 4'):
        jaccard(edges, 5)
    with pytest.raises(ValueError, match="'neighbors' must be one of 'all', 'in', 'out'"):
        jaccard(edges, 6, neighbors='both')
    for number in (0, 2.5):
        with pytest.raises(ValueError, match="'num_hashes' must be at least 1, a whole number"):
            minhash_jaccard(edges, 6, number)
    for number in (True, 6.0, '6'):
        with pytest.raises(ValueError, match="'num_nodes' must be at least 0, a whole number"):
            jaccard(edges, number)
    with pytest.raises(ValueError, match="'pairs' must hold source ids from 0 to 5"):
        jaccard(edges, 6, torch.tensor([[-1], [0]]))
    with pytest.raises(ValueError, match=r"'pairs' must have shape \[2, E\] \(got \(3, 2\)\)"):
        minhash_jaccard(edges, 6, 8, torch.zeros(3, 2, dtype=torch.long))


def test_one_hash_and_one_filled_row():
    estimate = minhash_jaccard(
        torch.tensor([[0], [1]]), 3, 1, torch.tensor([[1, 1, 0, 2], [1, 0, 2, 1]]), 'in'
    )
    assert estimate.tolist() == [1, 0, 0, 0]  # a node without neighbours is like none


def test_estimate_has_the_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        assert minhash_jaccard(torch.tensor([[0, 1], [1, 2]]), 3, 3).dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_orders_are_those_of_splitmix64():
    """Its first outputs after the seed 0; estimates of one key stay what they were."""
    step = 0x9E3779B97F4A7C15
    results = [
        int(_scrambled(np.zeros(1, np.int64), (number * step) % 2**64)[0]) for number in (1, 2, 3)
    ]
    assert results == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert int(_scrambled(np.array([5]), step - 5)[0]) == results[0]


def test_compiles_when_that_takes_less_time_than_it_saves(monkeypatch, constants):
    calls = []
    monkeypatch.setattr(common_neighbors, '_compiled', lambda: calls.append(1))
    constants(jaccard_lookups=0, jaccard_searched=5)
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])  # two neighbours for each of three pairs
    jaccard(edges[:, :2], 3)
    assert (common_neighbors._lookups, calls) == (2, [])
    jaccard(edges, 3)
    assert (common_neighbors._lookups, calls) == (8, [1])


def test_scores_are_of_the_default_dtype():
    edges = torch.tensor([[0, 1], [2, 2]])
    for score in (jaccard(edges, 3), minhash_jaccard(edges, 3, 4)):
        assert score.dtype == torch.get_default_dtype()


def test_one_pair_and_none(loop):
    """Nodes 0 and 1 have the neighbours 1, 2, 3 and 0, 2."""
    edges = torch.tensor([[0, 0, 0, 1], [1, 2, 3, 2]])
    pointer, neighbor = np.array([0, 3, 5, 7, 8]), np.array([1, 2, 3, 0, 2, 0, 1, 0])
    one, other = np.array([0]), np.array([1])
    assert common_neighbors.common_neighbors(pointer, neighbor, one, other).tolist() == [1]
    none = np.empty(0, np.int64)
    assert common_neighbors.common_neighbors(pointer, neighbor, none, none).tolist() == []
    assert jaccard(edges[:, :1], 4).tolist() == [0.0]
