from collections import Counter, UserDict, defaultdict
from itertools import permutations

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import HGTLoader as PyGHGTLoader
from torch_geometric.sampler import HGTSampler as PyGHGTSampler
from torch_geometric.sampler import NodeSamplerInput
from torch_geometric.transforms import RemoveIsolatedNodes, ToSparseTensor, ToUndirected

from torch_geometric_lgt.loader import HGTLoader
from torch_geometric_lgt.loader._hgt_sampler import HGTSampler

KINDS = (('item', 'of', 'user'), ('user', 'buys', 'item'), ('user', 'knows', 'user'))


def graph(num_users=12, num_items=15, num_edges=40):
    generator = torch.Generator().manual_seed(0)
    data, sizes = HeteroData(), {'user': num_users, 'item': num_items}
    for name, size in sizes.items():
        data[name].x = torch.arange(size)[:, None].float()
    for kind in KINDS:
        ends = [torch.randint(sizes[name], (num_edges,), generator=generator) for name in kind[::2]]
        data[kind].edge_index, data[kind].number = torch.stack(ends), torch.arange(num_edges)
    return data


def budget(data, sampled):
    """The sum of shares of each node that was not sampled, by node type."""
    out = defaultdict(lambda: defaultdict(float))
    for kind in data.edge_types:
        source, target = data[kind].edge_index.tolist()
        degree = Counter(target)
        for src, dst in zip(source, target, strict=True):
            if dst in sampled[kind[2]] and src not in sampled[kind[0]]:
                out[kind[0]][src] += 1 / degree[dst]
    return out


def check_edges(data, batch):
    """All edges between sampled nodes, with their attributes and ends."""
    for kind in data.edge_types:
        edges, store = data[kind].edge_index, batch[kind]
        source, target = batch[kind[0]].n_id, batch[kind[2]].n_id
        inside = torch.isin(edges[0], source) & torch.isin(edges[1], target)
        assert torch.equal(store.e_id.sort().values, inside.nonzero().flatten())
        ends = torch.stack([source[store.edge_index[0]], target[store.edge_index[1]]])
        assert torch.equal(ends, edges[:, store.e_id])
        assert torch.equal(store.number, data[kind].number[store.e_id])


@pytest.mark.parametrize('seed', range(3))
def test_nodes_come_from_the_budget_of_the_definition(seed):
    torch.manual_seed(seed)
    data, numbers = graph(), {'user': [2, 1], 'item': [3, 2]}
    for batch in HGTLoader(data, numbers, 'user', batch_size=3):
        size = batch['user'].batch_size
        assert torch.equal(batch['user'].n_id[:size], batch['user'].input_id)
        sampled = {'user': set(batch['user'].n_id[:size].tolist()), 'item': set()}
        start = {'user': size, 'item': 0}
        for hop in range(2):
            shares = budget(data, sampled)
            for name, number in numbers.items():
                count = min(number[hop], len(shares[name]))
                new = batch[name].n_id[start[name] : start[name] + count].tolist()
                assert len(set(new)) == count
                assert set(new) <= set(shares[name])
                sampled[name] |= set(new)
                start[name] += count
        assert start == {name: batch[name].num_nodes for name in numbers}
        assert torch.equal(batch['item'].x, data['item'].x[batch['item'].n_id])
        check_edges(data, batch)


def repeated(sampler, data, counts, repeats=4000):
    """How often each set of items and users was drawn beside user 0."""
    torch.manual_seed(0)
    found, sampler = {name: Counter() for name in counts}, sampler(data, counts)
    seed = NodeSamplerInput(None, torch.zeros(1, dtype=torch.long), input_type='user')
    for _ in range(repeats):
        node = sampler.sample_from_nodes(seed).node
        found['user'][tuple(sorted(node['user'][1:].tolist()))] += 1
        found['item'][tuple(sorted(node['item'].tolist()))] += 1
    return found


def small_graph():
    """User 0 has five items by edges of two types, one of them by three edges."""
    data = HeteroData()
    data['user'].num_nodes, data['item'].num_nodes = 3, 6
    data['item', 'of', 'user'].edge_index = torch.tensor(
        [[0, 1, 2, 3, 0, 0, 5], [0, 0, 0, 0, 0, 0, 1]]
    )
    data['item', 'on', 'user'].edge_index = torch.tensor([[2, 4, 1], [0, 0, 2]])
    data['user', 'knows', 'user'].edge_index = torch.tensor([[1, 2, 2], [0, 0, 0]])
    return data


def test_sets_of_nodes_have_the_exact_probabilities():
    """In proportion to squares of shares, one after another. Chi-squared at 0.1 % with 9 degrees
    of freedom for the items, 1 for the users."""
    found = repeated(HGTSampler, small_graph(), {'user': [1], 'item': [2]})
    shares = {'item': [3 / 6, 1 / 6, 1 / 6 + 1 / 2, 1 / 6, 1 / 2], 'user': [0, 1 / 3, 2 / 3]}
    for name, count, bound in (('item', 2, 27.9), ('user', 1, 10.8)):
        expected = Counter()
        squares = {node: share**2 for node, share in enumerate(shares[name]) if share}
        for order in permutations(squares, count):
            left, probability = sum(squares.values()), 4000.0
            for node in order:
                probability *= squares[node] / left
                left -= squares[node]
            expected[tuple(sorted(order))] += probability
        assert set(found[name]) <= set(expected)
        assert sum((found[name][key] - mean) ** 2 / mean for key, mean in expected.items()) < bound


@pytest.mark.sparse
@pytest.mark.filterwarnings('ignore')
def test_as_likely_as_for_the_compiled_sampler():
    """Two samples, chi-squared at 0.1 % with at most 9 degrees of freedom."""
    counts = {'user': [1], 'item': [2]}
    ours, theirs = (
        repeated(sampler, small_graph(), counts) for sampler in (HGTSampler, PyGHGTSampler)
    )
    for name in counts:
        keys = set(ours[name]) | set(theirs[name])
        assert (
            sum(
                (ours[name][key] - theirs[name][key]) ** 2 / (ours[name][key] + theirs[name][key])
                for key in keys
            )
            < 27.9
        )


@pytest.mark.sparse
@pytest.mark.filterwarnings('ignore')
def test_all_nodes_and_edges_are_those_of_the_compiled_sampler():
    data, counts = graph(), [100, 100]
    for ours, theirs in zip(
        HGTLoader(data, counts, 'item', batch_size=2),
        PyGHGTLoader(data, counts, 'item', batch_size=2),
        strict=True,
    ):
        for name in data.node_types:
            assert torch.equal(ours[name].n_id.sort().values, theirs[name].n_id.sort().values)
        for kind in data.edge_types:
            assert torch.equal(ours[kind].e_id.sort().values, theirs[kind].e_id.sort().values)


def test_at_most_fifty_edges_of_a_node_count():
    data = HeteroData()
    data['user'].num_nodes, data['item'].num_nodes = 1, 80
    data['item', 'of', 'user'].edge_index = torch.stack(
        [torch.arange(80), torch.zeros(80, dtype=torch.long)]
    )
    (batch,) = HGTLoader(data, [80], 'user')
    assert batch['item'].n_id.unique().numel() == batch['item'].num_nodes == 50
    assert batch['item', 'of', 'user'].e_id.unique().numel() <= 50
    source, _ = batch['item', 'of', 'user'].edge_index
    assert torch.equal(batch['item'].n_id[source], batch['item', 'of', 'user'].e_id)


@pytest.mark.sparse
def test_edges_of_a_sparse_matrix():
    data = graph()
    for kind in KINDS:
        edges, number = data[kind].edge_index.unique(dim=1), data['item'].num_nodes
        data[kind].edge_index, data[kind].number = edges, edges[0] * number + edges[1]
    for batch in HGTLoader(ToSparseTensor()(data), [3, 3], 'user', batch_size=4):
        for kind in KINDS:
            row, col, _ = batch[kind].adj_t.coo()
            source, target = batch[kind[0]].n_id[col], batch[kind[2]].n_id[row]
            assert torch.equal(batch[kind].number, source * 15 + target)


@pytest.mark.filterwarnings('ignore:This DataLoader will create')
def test_seeds_fix_the_draws_and_workers_return_all_nodes_alike():
    data, runs = graph(), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        loader = HGTLoader(data, [2, 2], 'user', batch_size=3, is_sorted=False)
        runs.append(torch.cat([batch['item'].n_id for batch in loader]))
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])
    alone, workers = (
        list(HGTLoader(data, [100, 100], 'user', batch_size=3, num_workers=number))
        for number in (0, 2)
    )
    for left, right in zip(alone, workers, strict=True):
        for name in data.node_types:
            assert torch.equal(left[name].n_id, right[name].n_id)


def test_numbers_of_any_mapping():
    data, numbers = graph(), {'user': [2, 1], 'item': [3, 2]}
    torch.manual_seed(0)
    first = next(iter(HGTLoader(data, numbers, 'user', batch_size=3)))
    torch.manual_seed(0)
    second = next(iter(HGTLoader(data, UserDict(numbers), 'user', batch_size=3)))
    assert torch.equal(first['item'].n_id, second['item'].n_id)


def test_arguments_that_are_refused():
    data = graph()
    with pytest.raises(ValueError, match=r"'data' must be a HeteroData \(got Data\); use Neigh"):
        HGTLoader(Data(num_nodes=2), [2], 'user')
    for numbers in ({'user': [1]}, {'user': [1], 'item': [1, 2]}, {'user': [1], 'tag': [1]}):
        with pytest.raises(ValueError, match="'num_samples' must have a list for each node type"):
            HGTLoader(data, numbers, 'user')
    with pytest.raises(ValueError, match="'num_samples' must not be negative"):
        HGTLoader(data, [-1], 'user')
    with pytest.raises(ValueError, match="'input_time' must be None: HGTLoader draws edges of any"):
        HGTLoader(data, [1], ('user', torch.tensor([1])), input_time=torch.tensor([5]))
    with pytest.raises(ValueError, match=r"'input_nodes' must hold ids from 0 to 11"):
        next(iter(HGTLoader(data, [1], ('user', torch.tensor([12])))))


def test_transforms_leave_the_seeds_first():
    data = HeteroData({'user': {'x': torch.ones(4, 1)}, 'item': {'x': torch.ones(5, 1)}})
    data['item', 'of', 'user'].edge_index = torch.tensor([[0, 1, 2], [3, 1, 1]])
    options = {'input_nodes': 'user', 'batch_size': 4}
    assert len(list(HGTLoader(data, [2], transform=ToUndirected(), **options))) == 1
    with pytest.raises(ValueError, match="'transform' must leave the seed nodes of a batch first"):
        next(iter(HGTLoader(data, [2], transform=RemoveIsolatedNodes(), **options)))
