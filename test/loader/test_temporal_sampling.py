"""Sampling with times of nodes or edges, against a definition by loops over all edges."""

import re
from itertools import chain

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData, TemporalData
from torch_geometric.testing import MyFeatureStore, MyGraphStore
from torch_geometric.transforms import ToSparseTensor

from torch_geometric_lgt.loader import LinkNeighborLoader, NeighborLoader, NeighborSampler
from torch_geometric_lgt.loader._draws import count_until
from torch_geometric_lgt.transforms import NodeDegree

N, E = 30, 240


def graph(dtype=torch.long):
    generator = torch.Generator().manual_seed(0)
    return Data(
        x=torch.arange(N)[:, None].float(),
        edge_index=torch.randint(N, (2, E), generator=generator),
        edge_time=torch.randint(12, (E,), generator=generator).to(dtype),
        node_time=torch.randint(12, (N,), generator=generator).to(dtype),
    )


def allowed(data, time_attr, node, until):
    """The ids of the edges into a node up to a time, in the order of time."""
    time = data[time_attr][data.edge_index[0]] if time_attr == 'node_time' else data[time_attr]
    edges = [e for e in range(E) if data.edge_index[1, e] == node and time[e] <= until]
    return sorted(edges, key=lambda edge: (float(time[edge]), edge))


def defined_edges(data, time_attr, seed, until, hops, count=-1):
    """All edges of so many hops; with a count the latest of each node."""
    reached, frontier, edges = {seed}, [seed], []
    for _ in range(hops):
        found = []
        for node in frontier:
            into = allowed(data, time_attr, node, until)
            found += into if count < 0 else into[max(0, len(into) - count) :]
        edges += found
        sources = {int(data.edge_index[0, edge]) for edge in found}
        frontier = sorted(sources - reached)
        reached |= sources
    return sorted(edges)


def subgraphs(batch):
    """The edges of each seed, and the ends of all edges checked."""
    owner = batch.batch[batch.edge_index]
    assert torch.equal(owner[0], owner[1])
    return [sorted(batch.e_id[owner[0] == seed].tolist()) for seed in range(batch.batch_size)]


@pytest.mark.parametrize('dtype', [torch.long, torch.float])
@pytest.mark.parametrize('time_attr', ['node_time', 'edge_time'])
@pytest.mark.parametrize(('strategy', 'count'), [('uniform', -1), ('last', -1), ('last', 2)])
def test_edges_are_those_of_the_definition(time_attr, strategy, count, dtype):
    data = graph(dtype)
    times = torch.arange(N) % 13
    loader = NeighborLoader(
        data,
        [count, count],
        input_time=times,
        time_attr=time_attr,
        temporal_strategy=strategy,
        batch_size=7,
    )
    for batch in loader:
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert torch.equal(batch.seed_time, times[batch.input_id])
        expected = [
            defined_edges(data, time_attr, int(seed), int(times[seed]), 2, count)
            for seed in batch.input_id
        ]
        assert subgraphs(batch) == expected


@pytest.mark.parametrize('replace', [False, True])
@pytest.mark.parametrize('strategy', ['uniform', 'last'])
@pytest.mark.parametrize('time_attr', ['node_time', 'edge_time'])
def test_as_many_edges_as_there_are_up_to_the_time(time_attr, strategy, replace):
    data, count = graph(), 3
    times = torch.arange(N) % 13
    options = {'time_attr': time_attr, 'temporal_strategy': strategy, 'replace': replace}
    for batch in NeighborLoader(data, [count], input_time=times, batch_size=7, **options):
        for row, seed in enumerate(batch.input_id):
            into = allowed(data, time_attr, int(seed), int(times[seed]))
            drawn = batch.e_id[batch.edge_index[1] == row].tolist()
            assert set(drawn) <= set(into[-count:] if strategy == 'last' else into)
            number = (count if into else 0) if replace else min(count, len(into))
            assert len(drawn) == number
            assert replace or len(set(drawn)) == number


def test_every_edge_up_to_the_time_is_alike_likely():
    """Chi-squared over the 9 of 12 edges into one hub, at 0.1 % with 8 degrees of freedom."""
    hub = torch.zeros(12, dtype=torch.long)
    data = Data(edge_index=torch.stack([torch.arange(1, 13), hub]), num_nodes=13)
    data.edge_time = torch.tensor([5, 1, 9, 2, 3, 9, 5, 5, 4, 1, 9, 2])
    torch.manual_seed(0)
    seeds = torch.zeros(1800, dtype=torch.long)
    (batch,) = NeighborLoader(
        data, [4], seeds, time_attr='edge_time', input_time=seeds + 5, batch_size=1800
    )
    count = torch.bincount(batch.e_id, minlength=12)
    assert count[data.edge_time > 5].tolist() == [0, 0, 0]
    assert count.sum() == 7200
    assert float(((count[data.edge_time <= 5] - 800) ** 2 / 800).sum()) < 26.1


def test_seeds_have_the_times_of_their_nodes():
    data = graph()
    for batch in NeighborLoader(data, [-1], time_attr='node_time', batch_size=7):
        expected = [
            defined_edges(data, 'node_time', int(seed), int(data.node_time[seed]), 1)
            for seed in batch.input_id
        ]
        assert subgraphs(batch) == expected
    with pytest.raises(ValueError, match="'input_time' must be set if 'time_attr' names no"):
        next(iter(NeighborLoader(data, [-1], time_attr='edge_time')))


def test_events_are_no_graph_and_the_error_makes_one_of_them():
    events = TemporalData(
        src=torch.tensor([0, 2, 0]), dst=torch.tensor([1, 1, 1]), t=torch.tensor([5, 7, 9])
    )
    fix = 'Data(edge_index=data.edge_index, edge_time=data.t, num_nodes=data.num_nodes)'
    with pytest.raises(ValueError, match=rf'got TemporalData.*; make .*{re.escape(fix)}$'):
        NeighborLoader(events, [-1])
    with pytest.raises(TypeError, match=rf'got TemporalData.*; make .*{re.escape(fix)}$'):
        NodeDegree()(events)
    data = eval(fix, {'Data': Data, 'data': events})
    seeds, times = torch.tensor([1, 1]), torch.tensor([6, 8])
    batches = NeighborLoader(
        data, [-1], seeds, input_time=times, time_attr='edge_time', batch_size=1
    )
    assert [batch.n_id.tolist() for batch in batches] == [[1, 0], [1, 0, 2]]


def test_names_tell_times_of_nodes_and_of_as_many_edges_apart():
    ring = torch.tensor([[1, 2, 0], [2, 0, 1]])
    values = torch.tensor([0, 9, 9])
    data = Data(edge_index=ring, time=values, edge_time=values, num_nodes=3)
    for name, expected in (('time', [[0], [1, 0], [2]]), ('edge_time', [[0], [1], [2, 1]])):
        seeds, times = torch.arange(3), torch.tensor([5, 5, 5])
        batches = NeighborLoader(data, [-1], seeds, input_time=times, time_attr=name, batch_size=1)
        assert [batch.n_id.tolist() for batch in batches] == expected


@pytest.mark.sparse
def test_edges_of_a_sparse_matrix():
    data = graph()
    data.edge_index, number = data.edge_index.unique(dim=1, return_inverse=True)
    data.edge_time = torch.zeros(data.num_edges).index_put((number,), graph().edge_time.float())
    data = ToSparseTensor(attr=None, remove_edge_index=False)(data)
    listed = Data(edge_index=data.edge_index, edge_time=data.edge_time, num_nodes=N)
    options = {'time_attr': 'edge_time', 'input_time': torch.full((N,), 6), 'batch_size': 7}
    for batch, expected in zip(
        NeighborLoader(data, [-1, -1], **options),
        NeighborLoader(listed, [-1, -1], **options),
        strict=True,
    ):
        row, col, _ = batch.adj_t.coo()
        assert torch.equal(batch.n_id[torch.stack([col, row])], data.edge_index[:, batch.e_id])
        assert torch.equal(batch.e_id.sort().values, expected.e_id.sort().values)
        assert torch.equal(batch.edge_time, data.edge_time[batch.e_id])


@pytest.mark.filterwarnings('ignore:This DataLoader will create')
@pytest.mark.parametrize(('strategy', 'count'), [('uniform', -1), ('last', 2)])
def test_workers_return_the_same_batches(strategy, count):
    data = graph()
    options = {'time_attr': 'node_time', 'temporal_strategy': strategy, 'batch_size': 7}
    runs = [
        list(NeighborLoader(data, [count, count], num_workers=workers, **options))
        for workers in (0, 2)
    ]
    for alone, worker in zip(*runs, strict=True):
        assert torch.equal(alone.e_id, worker.e_id)
        assert torch.equal(alone.n_id, worker.n_id)


def test_seeds_fix_the_draws():
    data, runs = graph(), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        loader = NeighborLoader(data, [2, 2], time_attr='node_time', batch_size=N)
        runs.append(next(iter(loader)).e_id)
    assert torch.equal(runs[0], runs[1])
    assert not torch.equal(runs[0], runs[2])


@pytest.mark.parametrize('on_nodes', [True, False])
def test_types_without_times_are_drawn_regardless(on_nodes):
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data['user'].num_nodes, data['item'].num_nodes, data['tag'].num_nodes = 8, 10, 4
    for kind in (('item', 'of', 'user'), ('tag', 'on', 'user')):
        ends = [
            torch.randint(data[name].num_nodes, (40,), generator=generator) for name in kind[::2]
        ]
        data[kind].edge_index = torch.stack(ends)
    if on_nodes:
        data['item'].time = torch.arange(10)
    else:
        data['item', 'of', 'user'].time = torch.arange(40) % 10
    loader = NeighborLoader(
        data, [-1], 'user', input_time=torch.full((8,), 4), time_attr='time', batch_size=3
    )
    for batch in loader:
        for kind, timed in ((('item', 'of', 'user'), True), (('tag', 'on', 'user'), False)):
            source, target = data[kind].edge_index
            time = (source if on_nodes else torch.arange(40) % 10) if timed else torch.zeros(40)
            into = [
                ((target == seed) & (time <= 4)).nonzero().flatten()
                for seed in batch['user'].n_id[: batch['user'].batch_size]
            ]
            assert torch.equal(batch[kind].e_id.sort().values, torch.cat(into).sort().values)
    other = NeighborLoader(data, [-1], 'tag', time_attr='time')
    with pytest.raises(ValueError, match="'input_time' must be set"):
        next(iter(other))


def ends_of(batch, link, num_links):
    """The positions of the ends of a seed edge and of its negative edge."""
    if 'src_index' in batch:
        negative = batch.dst_neg_index.view(num_links, -1)[link]
        return torch.cat([batch.src_index[link, None], batch.dst_pos_index[link, None], negative])
    return batch.edge_label_index[:, link::num_links].flatten()


@pytest.mark.parametrize('neg_sampling', [None, 'binary', 'triplet'])
def test_links_with_times(neg_sampling):
    data = graph()
    times = torch.arange(20) % 5 + 8
    loader = LinkNeighborLoader(
        data,
        [-1, -1],
        data.edge_index[:, :20],
        edge_label_time=times,
        time_attr='node_time',
        neg_sampling=neg_sampling,
        batch_size=6,
    )
    for batch in loader:
        until = times[batch.input_id]
        stored = batch.seed_time if neg_sampling == 'triplet' else batch.edge_label_time
        assert torch.equal(stored[: until.numel()], until)
        assert (data.node_time[data.edge_index[0, batch.e_id]] <= until.max()).all()
        for link, end in enumerate(until.tolist()):
            inside = batch.batch[batch.edge_index[0]] == link
            seeds = ends_of(batch, link, until.numel())
            assert (batch.batch[seeds] == link).all()
            expected = [
                defined_edges(data, 'node_time', int(node), end, 2) for node in batch.n_id[seeds]
            ]
            assert sorted(batch.e_id[inside].tolist()) == sorted(chain(*expected))


@pytest.mark.parametrize('time_attr', ['node_time', 'edge_time'])
def test_induced_subgraphs_have_the_edges_up_to_the_time_of_the_seed(time_attr):
    data, times = graph(), torch.arange(N) % 13
    options = {'time_attr': time_attr, 'subgraph_type': 'induced', 'input_time': times}
    for batch in NeighborLoader(data, [-1, 2], batch_size=7, **options):
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        expected = []
        for row, seed in enumerate(batch.input_id):
            nodes = set(batch.n_id[batch.batch == row].tolist())
            into = (allowed(data, time_attr, node, int(times[seed])) for node in nodes)
            inside = [edge for edge in chain(*into) if int(data.edge_index[0, edge]) in nodes]
            expected.append(sorted(inside))
        assert subgraphs(batch) == expected
        assert sum(map(len, expected)) > 0


@pytest.mark.parametrize('replace', [False, True])
def test_weights_count_among_the_edges_up_to_the_time(replace):
    """Chi-squared over the 9 of 12 edges into one hub: one draw each, at 0.1 % with 8 degrees of
    freedom. The heaviest edges are later."""
    order = torch.randperm(12, generator=torch.Generator().manual_seed(2))
    time = torch.tensor([5, 1, 9, 2, 3, 9, 5, 5, 4, 1, 9, 2])[order]
    weight = torch.arange(1.0, 13)
    weight[time > 5] = 100.0
    data = Data(
        edge_index=torch.stack([torch.arange(1, 13), torch.zeros(12, dtype=torch.long)]),
        edge_time=time,
        edge_rate=weight,
        num_nodes=13,
    )
    torch.manual_seed(0)
    seeds = torch.zeros(4000, dtype=torch.long)
    options = {'time_attr': 'edge_time', 'weight_attr': 'edge_rate', 'replace': replace}
    (batch,) = NeighborLoader(data, [1], seeds, input_time=seeds + 5, batch_size=4000, **options)
    count, early = torch.bincount(batch.e_id, minlength=12), time <= 5
    assert count[~early].tolist() == [0, 0, 0]
    expected = 4000 * weight[early] / weight[early].sum()
    assert float(((count[early] - expected) ** 2 / expected).sum()) < 26.1
    all_drawn = NeighborLoader(
        data, [12], seeds[:1], input_time=seeds[:1] + 5, **options | {'replace': False}
    )
    assert next(iter(all_drawn)).e_id.sort().values.tolist() == early.nonzero().flatten().tolist()


def test_binary_search_within_rows():
    random = np.random.default_rng(0)
    size = random.integers(0, 40, 200)
    rows = [np.sort(random.integers(0, 20, number)) for number in size]
    until = random.integers(-1, 21, 200)
    expected = [(row <= limit).sum() for row, limit in zip(rows, until, strict=True)]
    count = count_until(np.concatenate(rows), np.cumsum(size) - size, size, until)
    assert count.tolist() == expected


def test_arguments_that_are_refused():
    data = graph()
    for time_attr, match in (
        ('none', r"'time_attr' must name an attribute of nodes or edges \(got 'none'\)"),
        ('x', r"'time_attr' must name one number for each node, \[30\] \(got shape \[30, 1\] in"),
        ('edge_nan', r"'time_attr' must name an attribute without NaN \(got NaN in 'edge_nan'\)"),
    ):
        data.edge_nan = torch.full((E,), torch.nan)
        with pytest.raises(ValueError, match=match):
            NeighborSampler(data, [2], time_attr=time_attr)
    with pytest.raises(ValueError, match=r"'temporal_strategy' must be .* \(got 'nonsense'\)"):
        NeighborLoader(data, [2], temporal_strategy='nonsense')
    with pytest.raises(ValueError, match=r"'temporal_strategy' must be .* \(got 'nonsense'\)"):
        LinkNeighborLoader(data, [2], temporal_strategy='nonsense')
    for make in (NeighborLoader, LinkNeighborLoader, NeighborSampler):
        with pytest.raises(ValueError, match="'time_attr' must name the times with temporal_strat"):
            make(data, [2], temporal_strategy='last')
    sampler = NeighborSampler(data, [2], time_attr='node_time', temporal_strategy='last')
    NeighborLoader(data, [2], neighbor_sampler=sampler, temporal_strategy='last')
    times = {'time_attr': 'node_time', 'input_time': torch.tensor([1.0, torch.nan])}
    with pytest.raises(ValueError, match=r"'input_time' must be a time .* seed nodes \(got NaN"):
        NeighborLoader(data, [2], torch.arange(2), **times)
    options = {'time_attr': 'node_time', 'weight_attr': 'edge_time', 'temporal_strategy': 'last'}
    with pytest.raises(
        ValueError, match="'weight_attr' must be None with temporal_strategy='last'"
    ):
        NeighborLoader(data, [2], **options)
    features, edges = MyFeatureStore(), MyGraphStore()
    edges.put_edge_index(data.edge_index, edge_type=None, layout='coo', size=(N, N))
    for name in ('time_attr', 'weight_attr'):
        with pytest.raises(ValueError, match=f"'{name}' needs a Data or HeteroData"):
            NeighborLoader((features, edges), [2], **{name: 'node_time'})
    both = HeteroData({'v': {'time': torch.arange(3), 'num_nodes': 3}})
    both['v', 'to', 'v'].update({'edge_index': torch.tensor([[0], [1]]), 'time': torch.zeros(1)})
    with pytest.raises(ValueError, match=r"of nodes or of edges \(got 'time', which both have"):
        NeighborLoader(both, [2], 'v', time_attr='time')


@pytest.mark.parametrize(
    ('seeds', 'times', 'message'),
    [
        (torch.arange(N) >= 10, torch.arange(N), r'20 seed nodes \(got shape \(30,\)\)'),
        (torch.tensor([5, 6]), torch.arange(N), r'2 seed nodes \(got shape \(30,\)\)'),
        (None, torch.arange(3), r'30 seed nodes \(got shape \(3,\)\)'),
        (None, torch.zeros(N, 1), r'30 seed nodes \(got shape \(30, 1\)\)'),
    ],
)
def test_each_seed_node_has_a_time(seeds, times, message):
    """Seeds of a mask had the times of the first nodes, in place of their own."""
    with pytest.raises(ValueError, match=f"'input_time' must have a time for each of {message}"):
        NeighborLoader(graph(), [2], seeds, input_time=times, time_attr='edge_time')


@pytest.mark.parametrize('num_times', [E, 3])
def test_each_link_has_a_time(num_times):
    """Some of the links had the times of the first edges, in place of their own."""
    data = graph()
    message = rf"'edge_label_time' must have a time .* 40 links \(got shape \({num_times},\)\)"
    options = {'time_attr': 'edge_time', 'edge_label_time': data.edge_time[:num_times]}
    with pytest.raises(ValueError, match=message):
        LinkNeighborLoader(data, [2], data.edge_index[:, -40:], **options)


@pytest.mark.parametrize('earlier', [0, 1])
def test_the_edge_of_a_link_counts_unless_the_time_is_earlier(earlier):
    data = graph()
    times = data.edge_time - earlier
    options = {'time_attr': 'edge_time', 'edge_label_time': times, 'batch_size': 7}
    for batch in LinkNeighborLoader(data, [-1], data.edge_index, **options):
        link_of_edge = batch.batch[batch.edge_index[1]]
        for link, edge in enumerate(batch.input_id.tolist()):
            assert (edge in batch.e_id[link_of_edge == link]) == (earlier == 0)
