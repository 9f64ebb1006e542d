import copy
import pickle
from collections import Counter, UserDict
from functools import partial
from itertools import combinations

import numpy as np
import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.datasets import FakeDataset
from torch_geometric.loader import LinkLoader
from torch_geometric.loader import LinkNeighborLoader as PyGLinkNeighborLoader
from torch_geometric.loader import NeighborLoader as PyGNeighborLoader
from torch_geometric.sampler import NodeSamplerInput
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.testing import MyFeatureStore, MyGraphStore
from torch_geometric.transforms import AddSelfLoops
from torch_geometric.utils import k_hop_subgraph, to_undirected

from torch_geometric_lgt.data import MappedGraph, write_graph
from torch_geometric_lgt.loader import (
    HGTLoader,
    LinkNeighborLoader,
    NeighborLoader,
    NeighborSampler,
)
from torch_geometric_lgt.loader._draws import distinct
from torch_geometric_lgt.nn import GraphTransformer


def graph(num_nodes=40, num_edges=150, dtype=torch.long):
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(num_nodes, (2, num_edges), generator=generator)
    return Data(
        x=torch.arange(num_nodes)[:, None].float(),
        edge_index=edges.to(dtype),
        edge_attr=torch.arange(num_edges),
    )


def loader(data, count, seeds=None, batch_size=5, **options):
    names = ('replace', 'subgraph_type', 'disjoint')
    sampler = NeighborSampler(
        data, count, **{name: options.pop(name) for name in names if name in options}
    )
    return NeighborLoader(
        data, count, input_nodes=seeds, batch_size=batch_size, neighbor_sampler=sampler, **options
    )


def check(data, batch):
    """Nodes and edges have the attributes they have in the full graph, and edges the ends."""
    assert torch.equal(batch.x, data.x[batch.n_id])
    assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    assert torch.equal(batch.n_id[: batch.batch_size], batch.input_id)


@pytest.mark.parametrize('dtype', [torch.long, torch.int32])
@pytest.mark.parametrize('replace', [False, True])
def test_as_many_edges_as_asked_for(replace, dtype):
    data = graph(dtype=dtype)
    degree = torch.bincount(data.edge_index[1].long(), minlength=40)
    for batch in loader(data, [3, 2], replace=replace):
        check(data, batch)
        target, edges, nodes = batch.edge_index[1], batch.num_sampled_edges, batch.num_sampled_nodes
        assert (sum(edges), sum(nodes)) == (batch.num_edges, batch.num_nodes)
        assert nodes[0] == batch.batch_size
        for hop, count in enumerate((3, 2)):
            start = sum(nodes[:hop])
            for node in range(start, start + nodes[hop]) if hop else range(nodes[0]):
                edge_ids = batch.e_id[target == node]
                available = int(degree[batch.n_id[node]])
                expected = (count if available else 0) if replace else min(count, available)
                assert edge_ids.numel() == expected
                assert replace or edge_ids.unique().numel() == expected
        assert (target < nodes[0] + nodes[1]).all()


def test_all_neighbours_are_the_subgraph_of_so_many_hops():
    data = graph()
    for batch in loader(data, [-1, -1], batch_size=4):
        check(data, batch)
        nodes, _, _, mask = k_hop_subgraph(batch.input_id, 2, data.edge_index, num_nodes=40)
        assert torch.equal(batch.n_id.sort().values, nodes)
        near = k_hop_subgraph(batch.input_id, 1, data.edge_index, num_nodes=40)[0]
        expected = torch.isin(data.edge_index[1], near).nonzero().flatten()
        assert torch.equal(batch.e_id.sort().values, expected)
        assert set(expected.tolist()) <= set(mask.nonzero().flatten().tolist())


def test_induced_and_bidirectional_subgraphs():
    data = graph()
    data.edge_index = to_undirected(data.edge_index, num_nodes=40)
    data.edge_attr = torch.arange(data.num_edges)
    for batch in loader(data, [2, 2], subgraph_type='induced'):
        check(data, batch)
        inside = torch.isin(data.edge_index, batch.n_id).all(0).nonzero().flatten()
        assert torch.equal(batch.e_id.sort().values, inside)
    for batch in loader(data, [2, 2], subgraph_type='bidirectional'):
        pairs = {tuple(pair) for pair in batch.edge_index.t().tolist()}
        assert pairs == {pair[::-1] for pair in pairs}


@pytest.mark.parametrize('kind', ['directional', 'induced'])
def test_disjoint_subgraphs_are_those_of_single_seeds(kind):
    data = graph()
    for batch in loader(data, [-1, -1], disjoint=True, subgraph_type=kind):
        check(data, batch)
        assert torch.equal(batch.batch[: batch.batch_size], torch.arange(batch.batch_size))
        assert torch.equal(*batch.batch[batch.edge_index])
        for number, seed in enumerate(batch.input_id):
            (alone,) = loader(data, [-1, -1], seed[None], subgraph_type=kind)
            in_graph = batch.batch == number
            assert torch.equal(batch.n_id[in_graph].sort().values, alone.n_id.sort().values)
            assert torch.equal(
                batch.e_id[in_graph[batch.edge_index[0]]].sort().values, alone.e_id.sort().values
            )


def test_every_subset_is_alike_likely():
    """Chi-squared over the 20 subsets, at 0.1 % with 19 degrees of freedom."""
    draws = distinct(np.full(20_000, 6), 3, np.random.default_rng(0))
    count = Counter(tuple(sorted(row)) for row in draws.tolist())
    assert set(count) == set(combinations(range(6), 3))
    assert sum((number - 1000) ** 2 / 1000 for number in count.values()) < 43.8


def drawn_into_a_hub(make):
    data = Data(
        edge_index=torch.stack([torch.arange(1, 13), torch.zeros(12, dtype=torch.long)]),
        num_nodes=13,
    )
    torch.manual_seed(0)
    batches = make(data, [4], torch.zeros(1, dtype=torch.long))
    return sum(torch.bincount(batch.e_id, minlength=12) for _ in range(1500) for batch in batches)


@pytest.mark.parametrize('replace', [False, True])
def test_every_edge_is_alike_likely(replace):
    """Chi-squared over the edges drawn into one hub, at 0.1 % with 11 degrees of freedom."""
    count = drawn_into_a_hub(partial(loader, replace=replace))
    assert count.sum() == 6000
    assert float(((count - 500) ** 2 / 500).sum()) < 31.3


@pytest.mark.sparse
def test_edges_are_as_likely_as_for_the_compiled_sampler():
    """With replacement, where torch-sparse is uniform: without, it favours the first edges."""
    ours = drawn_into_a_hub(partial(loader, replace=True))
    theirs = drawn_into_a_hub(
        lambda data, sizes, seeds: PyGNeighborLoader(data, sizes, input_nodes=seeds, replace=True)
    )
    assert theirs.sum() == 6000
    assert float(((ours - theirs) ** 2 / (ours + theirs)).sum()) < 31.3


@pytest.mark.filterwarnings('ignore:This DataLoader will create')
def test_seeds_fix_the_draws_and_workers_draw_differently():
    data = graph(200, 4000)
    runs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        runs.append([batch.e_id for batch in loader(data, [3, 3], batch_size=50)])
    assert all(torch.equal(a, b) for a, b in zip(runs[0], runs[1], strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(runs[0], runs[2], strict=False))
    same = torch.zeros(40, dtype=torch.long)
    batches = list(loader(data, [3], same, batch_size=1, num_workers=2))
    assert len({tuple(batch.e_id.tolist()) for batch in batches}) > 20


@pytest.mark.parametrize('subgraph_type', ['directional', 'induced'])
def test_a_seed_that_occurs_twice(subgraph_type):
    """Each row of the seed gets its edges: those of induced subgraphs led to the first row."""
    data = graph()
    (batch,) = loader(data, [-1], torch.tensor([3, 3, 5]), subgraph_type=subgraph_type)
    check_ends = batch.n_id[batch.edge_index]
    assert torch.equal(check_ends, data.edge_index[:, batch.e_id])
    assert batch.n_id[:3].tolist() == [3, 3, 5]
    first, second = (batch.e_id[batch.edge_index[1] == row] for row in (0, 1))
    assert torch.equal(first.sort().values, (data.edge_index[1] == 3).nonzero().view(-1))
    assert torch.equal(first, second)
    assert not bool((batch.edge_index[0] == 1).any())
    if subgraph_type == 'induced':
        inside = torch.isin(data.edge_index, batch.n_id).all(0).nonzero().view(-1)
        assert torch.equal(batch.e_id.unique(), inside)


def test_several_types_of_nodes():
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data['user'].x, data['item'].x = torch.arange(20.0)[:, None], torch.arange(30.0)[:, None]
    data['user', 'buys', 'item'].edge_index = torch.stack(
        [torch.randint(n, (90,), generator=generator) for n in (20, 30)]
    )
    data['item', 'of', 'user'].edge_index = data['user', 'buys', 'item'].edge_index.flip(0)
    for kind in ('directional', 'induced'):
        for batch in loader(data, [-1, -1], 'user', subgraph_type=kind):
            for edge_type, store in zip(batch.edge_types, batch.edge_stores, strict=True):
                source, _, target = edge_type
                ends = torch.stack(
                    [
                        batch[source].n_id[store.edge_index[0]],
                        batch[target].n_id[store.edge_index[1]],
                    ]
                )
                assert torch.equal(ends, data[edge_type].edge_index[:, store.e_id])
            users = batch['user'].n_id[: batch['user'].batch_size]
            edges = data['user', 'buys', 'item'].edge_index
            items = edges[1, torch.isin(edges[0], users)].unique()
            assert torch.equal(batch['item'].n_id.sort().values, items)
            assert torch.equal(
                batch['user'].n_id.sort().values,
                torch.cat([users, edges[0, torch.isin(edges[1], items)]]).unique(),
            )


def test_links_and_stores():
    data = graph()
    sampler = NeighborSampler(data, [2])
    for batch in PyGLinkNeighborLoader(
        data,
        [2],
        data.edge_index[:, :20],
        neighbor_sampler=sampler,
        batch_size=10,
        neg_sampling='binary',
    ):
        assert batch.edge_label.sum() == 10
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert torch.equal(
            batch.n_id[batch.edge_label_index[:, :10]], data.edge_index[:, batch.input_id]
        )
    features, edges = MyFeatureStore(), MyGraphStore()
    features.put_tensor(data.x, group_name=None, attr_name='x', index=None)
    edges.put_edge_index(data.edge_index, edge_type=None, layout='coo', size=(40, 40))
    (batch,) = loader((features, edges), [-1], torch.arange(4))
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
    edges.put_edge_index(data.edge_index, edge_type=('a', 'to', 'b'), layout='coo', size=(40, 40))
    with pytest.raises(ValueError, match=r'all edges have a type, or none has one \(got both\)'):
        NeighborSampler((features, edges), [2])


def typed_stores():
    """Ratings of 30 items by 20 users in both directions, and 3 shops without edges."""
    features, edges = MyFeatureStore(), MyGraphStore()
    for name, size in (('user', 20), ('item', 30), ('shop', 3)):
        features.put_tensor(torch.arange(size), group_name=name, attr_name='x', index=None)
    generator = torch.Generator().manual_seed(0)
    rates = torch.stack([torch.randint(n, (90,), generator=generator) for n in (20, 30)])
    data = HeteroData({'user': {'num_nodes': 20}, 'item': {'num_nodes': 30}})
    for kind, index, size in (
        (('user', 'rates', 'item'), rates, (20, 30)),
        (('item', 'of', 'user'), rates.flip(0)[:, :50], (30, 20)),
    ):
        data[kind].edge_index = index
        weight = torch.ones(index.size(1))
        features.put_tensor(weight, group_name=kind, attr_name='weight', index=None)
        edges.put_edge_index(index, edge_type=kind, layout='coo', size=size)
    return features, edges, data


@pytest.mark.parametrize('subgraph_type', ['directional', 'induced'])
def test_stores_with_types_of_nodes(subgraph_type):
    """The same batches as from a HeteroData. They needed a compiled library."""
    features, edges, data = typed_stores()
    for seeds in ('item', ('user', torch.arange(20) % 3 == 0), ('user', [7, 2]), ('user', None)):
        batches = [
            next(iter(NeighborLoader(graph, [-1, -1], seeds, subgraph_type=subgraph_type)))
            for graph in ((features, edges), data)
        ]
        for kind in data.node_types:
            n_id = batches[0][kind].n_id
            assert torch.equal(n_id, batches[1][kind].n_id)
            assert torch.equal(n_id, batches[0][kind].x)
        for kind in data.edge_types:
            ours, theirs = (batch[kind] for batch in batches)
            assert torch.equal(ours.edge_index, theirs.edge_index)
            assert torch.equal(ours.e_id, theirs.e_id)
    (batch,) = NeighborLoader((features, edges), [2], 'shop', batch_size=3)
    assert batch['shop'].x.tolist() == [0, 1, 2]
    assert batch['user'].num_nodes == 0
    sampler = pickle.loads(pickle.dumps(NeighborSampler((features, edges), [2])))
    assert sampler.sizes == {'user': 20, 'item': 30, 'shop': 3}
    drawn = sampler.sample_from_nodes(NodeSamplerInput(None, torch.arange(4), input_type='user'))
    assert drawn.num_sampled_nodes['user'][0] == 4


def test_links_of_stores_with_types_of_nodes():
    features, edges, data = typed_stores()
    kind = ('user', 'rates', 'item')
    for links in (kind, (kind, data[kind].edge_index[:, :40])):
        batches = LinkNeighborLoader(
            (features, edges), [2], links, neg_sampling='binary', batch_size=4
        )
        batch = next(iter(batches))
        source, target = batch[kind].edge_label_index[:, :4]
        ends = torch.stack([batch['user'].n_id[source], batch['item'].n_id[target]])
        assert torch.equal(ends, data[kind].edge_index[:, batch[kind].input_id])
    for links in (None, data[kind].edge_index, ('user', 'item'), ('user', 'sells', 'item')):
        with pytest.raises(ValueError, match=r"'edge_label_index' must be one of .*'rates'"):
            LinkNeighborLoader((features, edges), [2], links)


def test_stores_whose_types_or_sizes_are_missing():
    features, edges, _ = typed_stores()
    for seeds in (None, torch.arange(3), 'users'):
        with pytest.raises(ValueError, match=r"'input_nodes' must be one of .*'shop'\]"):
            NeighborLoader((features, edges), [2], seeds)
    index = torch.zeros(2, 1, dtype=torch.long)
    edges.put_edge_index(index, edge_type=('user', 'at', 'shop'), layout='coo', size=None)
    message = r"'size' must be set .* \(got None for the edge type \('user', 'at', 'shop'\)\)"
    with pytest.raises(ValueError, match=message):
        NeighborLoader((features, edges), [2], 'user')


def test_data_that_are_no_graph():
    edges = MyGraphStore()
    for make in (NeighborSampler, NeighborLoader):
        for data, names in (
            (None, 'NoneType'),
            ([graph()], 'list'),
            ((edges, edges), 'MyGraphStore, MyGraphStore'),
        ):
            with pytest.raises(
                ValueError, match=rf"'data' must be a Data, .* graph store \(got {names}\)$"
            ):
                make(data, [2])
        with pytest.raises(ValueError, match=r'\(got FakeDataset\); give .* dataset\[0\]'):
            make(FakeDataset(2), [2])


def test_which_sampler_is_taken(monkeypatch):
    data = graph()
    for pyg_lib, torch_sparse, disjoint in (
        (False, False, False),
        (False, True, False),
        (False, True, True),
        (True, False, True),
    ):
        monkeypatch.setattr('torch_geometric.typing.WITH_PYG_LIB', pyg_lib)
        monkeypatch.setattr('torch_geometric.typing.WITH_TORCH_SPARSE', torch_sparse)
        batches = NeighborLoader(data, [2], torch.arange(10, 30), batch_size=4, disjoint=disjoint)
        assert isinstance(batches.node_sampler, NeighborSampler) != pyg_lib
        if not pyg_lib:
            assert next(iter(batches)).n_id[:4].tolist() == [10, 11, 12, 13]
        with pytest.raises(ValueError, match=r"'temporal_strategy' must be .* \(got 'first'\)"):
            NeighborLoader(data, [2], temporal_strategy='first')


@pytest.mark.parametrize('options', [{'subgraph_type': 'induced'}, {'directed': False}])
@pytest.mark.parametrize('disjoint', [False, True])
def test_induced_subgraphs_beside_pyg_lib(options, disjoint, monkeypatch):
    """PyG's sampler needs torch-sparse for them, and takes no disjoint ones."""
    monkeypatch.setattr('torch_geometric.typing.WITH_PYG_LIB', True)
    monkeypatch.setattr('torch_geometric.typing.WITH_TORCH_SPARSE', False)
    data = graph()
    batches = NeighborLoader(data, [2], torch.arange(4), batch_size=4, disjoint=disjoint, **options)
    check(data, next(iter(batches)))


@pytest.mark.filterwarnings('ignore:Unable to accurately infer')
def test_a_node_type_of_unknown_size():
    data = HeteroData()
    data['v'].num_nodes, data['u', 'to', 'v'].edge_index = 2, torch.tensor([[0, 3], [1, 0]])
    with pytest.raises(
        ValueError, match=r"number of nodes of 'u' \(got None\); set data\['u'\]\.num"
    ):
        NeighborSampler(data, [-1])
    data['u'].num_nodes = 4
    NeighborSampler(data, [-1])
    data['u', 'to', 'v'].edge_index = torch.tensor([[0, 3], [1, 2]])
    with pytest.raises(ValueError, match="'edge_index' must hold target ids from 0 to 1"):
        NeighborSampler(data, [-1])


def test_seeds_that_do_not_exist_are_refused():
    data = graph()
    for seeds in (torch.tensor([77]), torch.tensor([3, -1])):
        with pytest.raises(
            ValueError,
            match=r"'input_nodes' must hold ids from 0 to 39 \(got -?\d+ to \d+\)",
        ):
            next(iter(NeighborLoader(data, [2], seeds, batch_size=100)))
    sampler = NeighborSampler(data, [2])
    for links in ([[1], [99]], [[99], [1]], [[1], [-1]]):
        loader = LinkLoader(data, sampler, edge_label_index=torch.tensor(links))
        with pytest.raises(ValueError, match=r"'edge_label_index' must hold ids from 0 to 39 \("):
            next(iter(loader))


def test_seeds_that_are_neither_ids_nor_a_mask_of_all_nodes_are_refused(tmp_path):
    mapped = MappedGraph(write_graph(tmp_path / 'mapped', torch.tensor([[0, 3], [1, 2]]), 40))
    hetero = HeteroData()
    hetero['u'].num_nodes = hetero['v'].num_nodes = 40
    hetero['u', 'to', 'v'].edge_index = torch.tensor([[0, 3], [1, 2]])
    for seeds, message in (
        (torch.ones(39, dtype=torch.bool), r'a bool for each of 40 nodes \(got 39\)'),
        (np.ones(39, bool), r'a bool for each of 40 nodes \(got 39\)'),
        ([True] * 41, r'a bool for each of 40 nodes \(got 41\)'),
        ([1.7, 5.2], r'whole numbers, ids of nodes \(got \[1.7, 5.2\]\)'),
        (torch.tensor([2.0]), r'whole numbers \[S\], .* \(got shape \(1,\) in torch.float32\)'),
        (torch.tensor([[2, 3]]), r'whole numbers \[S\], .* \(got shape \(1, 2\) in torch.int64\)'),
    ):
        for data, input_nodes in ((graph(), seeds), (hetero, ('u', seeds)), (mapped, seeds)):
            with pytest.raises(ValueError, match=f"'input_nodes' must .*{message}"):
                NeighborLoader(data, [2], input_nodes)


@pytest.mark.parametrize(
    'seeds',
    [
        torch.arange(40) % 30 == 7,
        np.arange(40) % 30 == 7,
        (np.arange(40) % 30 == 7).tolist(),
        np.array([7, 37], '>i2'),
        [7, 37],
    ],
)
def test_seeds_may_be_lists_and_arrays_of_ids_or_bools(seeds, tmp_path):
    edges = torch.tensor([[0, 3], [1, 2]])
    mapped = MappedGraph(write_graph(tmp_path / 'mapped', edges, 40, {'x': torch.eye(40)}))
    for data in (graph(), mapped, (mapped, mapped)):
        (batch,) = NeighborLoader(data, [0], seeds, batch_size=3)
        assert batch.n_id.tolist() == [7, 37]
    hetero = HeteroData({'u': {'x': torch.eye(40)}})
    hetero['u', 'to', 'u'].edge_index = edges
    for loader in (NeighborLoader, HGTLoader):
        (batch,) = loader(hetero, [0], ('u', seeds), batch_size=3)
        assert batch['u'].n_id.tolist() == [7, 37]


@pytest.mark.parametrize(
    'index',
    [
        torch.tensor([0, 2]),
        torch.arange(4) % 2 == 0,
        np.arange(4) % 2 == 0,
        [True, False, True, False],
        [0, 2],
    ],
)
def test_a_loader_is_called_with_positions_or_a_mask(index):
    hetero = HeteroData({'u': {'x': torch.eye(40)}})
    hetero['u', 'to', 'u'].edge_index = torch.tensor([[0, 3], [1, 2]])
    seeds = torch.tensor([7, 3, 37, 5])
    batch = NeighborLoader(graph(), [0], seeds)(index)
    assert (batch.n_id.tolist(), batch.batch_size) == ([7, 37], 2)
    assert batch.input_id.tolist() == [0, 2]
    for make in (NeighborLoader, HGTLoader):
        batch = make(hetero, [0], ('u', seeds))(index)['u']
        assert (batch.n_id.tolist(), batch.batch_size) == ([7, 37], 2)


@pytest.mark.parametrize(
    ('index', 'message'),
    [
        ([-1], r'hold ids from 0 to 39 \(got -1 to -1\)'),
        (torch.tensor([40]), r'hold ids from 0 to 39 \(got 40 to 40\)'),
        (np.ones(39, bool), r'have a bool for each of 40 nodes \(got 39\)'),
        ([0.5], r'have whole numbers, ids of nodes \(got \[0.5\]\)'),
    ],
)
def test_other_positions_are_refused(index, message):
    loader = NeighborLoader(graph(), [0])
    with pytest.raises(ValueError, match=f"'index' must {message}"):
        loader(index)
    assert loader([]).batch_size == 0


def test_transforms_that_return_no_graph_of_the_seeds():
    data = graph()
    for x, edge_index in NeighborLoader(
        data, [2], batch_size=5, transform=lambda batch: (batch.x, batch.edge_index)
    ):
        assert x.size(0) > int(edge_index.max())
    pair = HeteroData({'i': {'x': torch.ones(6, 1)}})
    pair['i', 'to', 'i'].edge_index = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match="'transform' must leave the seed nodes of a batch first"):
        next(
            iter(
                NeighborLoader(
                    pair, [2], 'i', batch_size=2, transform=lambda batch: batch.to_homogeneous()
                )
            )
        )


def test_transforms_of_a_graph_with_ids_of_its_own():
    """Such as a part of a larger graph, whose ids PyG keeps."""
    data = graph()
    data.n_id = torch.arange(100, 100 + data.num_nodes)
    loader = NeighborLoader(data, [2], batch_size=5, transform=AddSelfLoops())
    assert torch.cat([batch.n_id[: batch.batch_size] for batch in loader]).equal(data.n_id)


def test_arguments_have_the_order_of_the_sampler_of_pyg():
    sampler = NeighborSampler(graph(), [2], 'induced', True)
    assert (sampler.subgraph_type, sampler.replace) == (SubgraphType.induced, True)
    with pytest.raises(ValueError, match=r"'replace' must be True or False \(got 'induced'\)"):
        NeighborSampler(graph(), [2], 'directional', 'induced')
    with pytest.raises(ValueError, match=r"'disjoint' must be True or False \(got 'False'\)"):
        NeighborLoader(graph(), [2], disjoint='False')


def test_nodes_of_several_graphs_keep_their_graph_under_another_name():
    data = Batch.from_data_list([graph(), graph(20, 60)])
    data.graph = data.batch
    batch = next(iter(NeighborLoader(data, [-1], batch_size=60, shuffle=True)))
    assert batch.batch is None
    model = GraphTransformer(1, 8, 3).double().eval()
    out = model(batch.x.double(), batch.edge_index, batch.graph)
    whole = model(data.x.double(), data.edge_index, data.batch)
    torch.testing.assert_close(out, whole[batch.n_id])


@pytest.mark.parametrize('options', [{}, {'disjoint': True}, {'subgraph_type': 'bidirectional'}])
def test_no_hops_are_the_seeds_alone(options):
    data = graph()
    batches = list(NeighborLoader(data, [], batch_size=8, **options))
    assert torch.cat([batch.n_id for batch in batches]).equal(torch.arange(data.num_nodes))
    assert all(batch.edge_index.shape == (2, 0) for batch in batches)


@pytest.mark.parametrize('make_numbers', [np.array, torch.tensor])
def test_numbers_of_neighbours_from_numpy_and_pytorch(make_numbers):
    data, index = graph(), NodeSamplerInput(None, torch.arange(4))
    torch.manual_seed(0)
    expected = NeighborSampler(data, [2, 1]).sample_from_nodes(index)
    torch.manual_seed(0)
    actual = NeighborSampler(data, make_numbers([2, 1])).sample_from_nodes(index)
    assert torch.equal(actual.node, expected.node)
    assert torch.equal(actual.edge, expected.edge)


@pytest.mark.parametrize('mapping', [dict, UserDict])
@pytest.mark.parametrize('make_numbers', [np.array, torch.tensor])
def test_numbers_of_neighbours_by_edge_type_from_numpy_and_pytorch(make_numbers, mapping):
    data = HeteroData()
    data['a'].num_nodes = 9
    data['a', 'to', 'a'].edge_index = graph().edge_index % 9
    index = NodeSamplerInput(None, torch.arange(4), input_type='a')
    numbers, kind = [2, 1], ('a', 'to', 'a')
    torch.manual_seed(0)
    expected = NeighborSampler(data, {kind: numbers}).sample_from_nodes(index)
    torch.manual_seed(0)
    by_type = mapping({kind: make_numbers(numbers)})
    actual = NeighborSampler(data, by_type).sample_from_nodes(index)
    assert torch.equal(actual.node['a'], expected.node['a'])
    assert torch.equal(actual.edge[kind], expected.edge[kind])


def test_other_numbers_of_neighbours_may_be_set():
    """PyG's ``LightningNodeData`` sets those of its evaluation in a copy of the sampler, whose next
    batch ended in an error."""
    data, seeds = graph(), torch.arange(4)
    sampler = NeighborSampler(data, [1])
    other = copy.copy(sampler)
    other.num_neighbors = [-1, -1]
    expected = NeighborSampler(data, [-1, -1]).sample_from_nodes(NodeSamplerInput(None, seeds))
    actual = other.sample_from_nodes(NodeSamplerInput(None, seeds))
    assert torch.equal(actual.node, expected.node)
    assert torch.equal(actual.edge, expected.edge)
    assert sampler.sample_from_nodes(NodeSamplerInput(None, seeds)).edge.numel() <= 4
    with pytest.raises(ValueError, match="'num_neighbors' must"):
        other.num_neighbors = 5
