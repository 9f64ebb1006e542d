import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkNeighborLoader as PyGLinkNeighborLoader
from torch_geometric.sampler import NegativeSampling
from torch_geometric.transforms import AddSelfLoops, RemoveIsolatedNodes, ToSparseTensor
from torch_geometric.utils import k_hop_subgraph

from torch_geometric_lgt.data import MappedGraph, write_graph
from torch_geometric_lgt.loader import LinkNeighborLoader, NeighborSampler

N = 40


def graph():
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(N, (2, 150), generator=generator)
    return Data(x=torch.arange(N)[:, None].float(), edge_index=edges, edge_attr=torch.arange(150))


@pytest.mark.parametrize('disjoint', [False, True])
def test_all_neighbours_of_both_ends(disjoint):
    data = graph()
    loader = LinkNeighborLoader(data, [-1], data.edge_index, batch_size=6, disjoint=disjoint)
    assert isinstance(loader.link_sampler, NeighborSampler)
    for batch in loader:
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
        links = data.edge_index[:, batch.input_id]
        assert torch.equal(batch.n_id[batch.edge_label_index], links)
        nodes = k_hop_subgraph(links.unique(), 1, data.edge_index, num_nodes=N)[0]
        assert torch.equal(batch.n_id.unique(), nodes)
        into = torch.isin(data.edge_index[1], links).nonzero().flatten()
        if disjoint:
            assert torch.equal(*batch.batch[batch.edge_index])
            assert torch.equal(*batch.batch[batch.edge_label_index])
            expected = [
                (data.edge_index[1] == node).nonzero().flatten() for node in links.flatten()
            ]
            assert torch.equal(batch.e_id.sort().values, torch.cat(expected).sort().values)
        else:
            assert torch.equal(batch.e_id.sort().values, into)


@pytest.mark.sparse
@pytest.mark.filterwarnings('ignore')
@pytest.mark.parametrize('neg_sampling', ['binary', NegativeSampling('triplet', 2)])
@pytest.mark.parametrize('kind', ['directional', 'bidirectional', 'induced'])
def test_batches_are_those_of_the_compiled_sampler(kind, neg_sampling):
    """With all neighbours, and negative edges from the same seed."""
    data, batches = graph(), []
    for loader in (LinkNeighborLoader, PyGLinkNeighborLoader):
        torch.manual_seed(0)
        options = {'subgraph_type': kind, 'neg_sampling': neg_sampling}
        batches.append(next(iter(loader(data, [-1, -1], data.edge_index, batch_size=9, **options))))
    ours, theirs = batches
    names = ('edge_label_index', 'edge_label', 'src_index', 'dst_pos_index', 'dst_neg_index')
    present = [name for name in names if name in theirs]
    assert len(present) == (2 if neg_sampling == 'binary' else 3)
    for name in present:
        if name == 'edge_label':
            assert torch.equal(ours[name], theirs[name])
        else:
            assert torch.equal(ours.n_id[ours[name]], theirs.n_id[theirs[name]])
    for name in ('n_id', 'e_id'):
        assert torch.equal(ours[name].sort().values, theirs[name].sort().values)


def test_several_types_of_nodes():
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data['user'].num_nodes, data['item'].num_nodes = 20, 30
    buys = torch.stack([torch.randint(size, (90,), generator=generator) for size in (20, 30)])
    data['user', 'buys', 'item'].edge_index = buys
    data['item', 'of', 'user'].edge_index = buys.flip(0)
    loader = LinkNeighborLoader(
        data, {kind: [-1] for kind in data.edge_types}, ('user', 'buys', 'item'), batch_size=8
    )
    assert len(loader) == 12
    for batch in loader:
        store = batch['user', 'buys', 'item']
        links = buys[:, store.input_id]
        for end, name in enumerate(('user', 'item')):
            assert torch.equal(batch[name].n_id[store.edge_label_index[end]], links[end])
        into = torch.isin(buys[1], links[1]).nonzero().flatten()
        assert torch.equal(store.e_id.sort().values, into)
        into = torch.isin(buys[0], links[0]).nonzero().flatten()
        assert torch.equal(batch['item', 'of', 'user'].e_id.sort().values, into)
    for link, largest in (([20, 0], 19), ([0, 30], 29)):
        links = ('user', 'buys', 'item'), torch.tensor(link)[:, None]
        loader = LinkNeighborLoader(data, {kind: [1] for kind in data.edge_types}, links)
        with pytest.raises(
            ValueError, match=f"'edge_label_index' must hold ids from 0 to {largest}"
        ):
            next(iter(loader))


@pytest.mark.sparse
def test_edges_of_a_sparse_matrix():
    data = graph()
    data.edge_index = data.edge_index.unique(dim=1)
    links, data.edge_attr = data.edge_index, data.edge_index[0] * N + data.edge_index[1]
    sparse = ToSparseTensor()(data)
    for batch in LinkNeighborLoader(sparse, [2, 2], links, batch_size=6):
        row, col, _ = batch.adj_t.coo()
        assert torch.equal(batch.edge_attr, batch.n_id[col] * N + batch.n_id[row])


@pytest.mark.filterwarnings('ignore:This DataLoader will create')
def test_seeds_fix_the_draws_and_workers_return_all_neighbours_alike():
    data, runs = graph(), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        loader = LinkNeighborLoader(data, [1, 1], data.edge_index, batch_size=6)
        runs.append(torch.cat([batch.e_id for batch in loader]))
    assert torch.equal(runs[0], runs[1])
    assert runs[0].shape != runs[2].shape or not torch.equal(runs[0], runs[2])
    alone, workers = (
        list(LinkNeighborLoader(data, [-1], data.edge_index, batch_size=40, num_workers=number))
        for number in (0, 2)
    )
    for left, right in zip(alone, workers, strict=True):
        assert torch.equal(left.e_id, right.e_id)
        assert torch.equal(left.edge_label_index, right.edge_label_index)


def test_given_samplers_and_options_that_are_refused(monkeypatch):
    data = graph()
    sampler = NeighborSampler(data, [2])
    loader = LinkNeighborLoader(data, [9], data.edge_index, neighbor_sampler=sampler)
    assert loader.link_sampler is sampler
    with pytest.raises(ValueError, match="Received conflicting 'edge_label_time' and 'time_attr'"):
        LinkNeighborLoader(data, [2], data.edge_index, edge_label_time=torch.zeros(150))
    bad = Data(edge_index=torch.tensor([[0], [40]]), num_nodes=N)
    with pytest.raises(ValueError, match="'edge_index' must hold target ids from 0 to 39"):
        LinkNeighborLoader(bad, [2])
    monkeypatch.setattr('torch_geometric.typing.WITH_PYG_LIB', True)
    assert not isinstance(LinkNeighborLoader(data, [2]).link_sampler, NeighborSampler)


def test_edges_of_a_mapped_graph(tmp_path):
    """As a tensor, where PyG takes a pair with the type None."""
    data = graph()
    mapped = MappedGraph(write_graph(tmp_path / 'graph', data.edge_index, N, {'x': data.x}))
    links = data.edge_index[:, :10]
    loader = LinkNeighborLoader((mapped, mapped), [-1], links, batch_size=4)
    found = [batch.n_id[batch.edge_label_index] for batch in loader]
    assert torch.equal(torch.cat(found, 1), links)
    with pytest.raises(ValueError, match="'edge_label_index' must be given for a feature store"):
        LinkNeighborLoader((mapped, mapped), [-1])


@pytest.mark.parametrize('amount', [0.5, 1, 1.5, 2])
@pytest.mark.parametrize('hetero', [False, True])
def test_both_ends_of_a_pair_share_a_subgraph(amount, hetero):
    """Also if there are not equally many negative pairs for each link."""
    edges = torch.randint(20, (2, 60))
    data, links = Data(x=torch.zeros(20, 1), edge_index=edges), edges[:, :9]
    if hetero:
        data = HeteroData({'a': {'x': torch.zeros(20, 1)}, 'b': {'x': torch.zeros(20, 1)}})
        data['a', 'to', 'b'].edge_index = edges
        links = ('a', 'to', 'b'), links
    loader = LinkNeighborLoader(
        data,
        [3],
        links,
        batch_size=9,
        neg_sampling=NegativeSampling('binary', amount),
        disjoint=True,
    )
    batch = next(iter(loader))
    pairs = (batch['a', 'to', 'b'] if hetero else batch).edge_label_index
    ends = [batch[kind].batch if hetero else batch.batch for kind in ('a', 'b')]
    numbers = ends[0][pairs[0]]
    assert numbers.equal(ends[1][pairs[1]])
    assert numbers.equal(torch.arange(numbers.numel()) % 9)


@pytest.mark.sparse
def test_links_of_an_adjacency_matrix():
    data = ToSparseTensor()(graph())
    batches = list(LinkNeighborLoader(data, [1], batch_size=50))
    pairs = [batch.n_id[batch.edge_label_index] for batch in batches]
    row, col, _ = data.adj_t.coo()
    assert torch.cat(pairs, 1).equal(torch.stack([col, row]))


@pytest.mark.parametrize('neg_sampling', [None, 'binary', 'triplet'])
def test_transforms_leave_the_ends_of_pairs_in_their_places(neg_sampling):
    """Nodes without edges are dropped before the others, which the positions do not follow."""
    data = Data(x=torch.arange(6.0)[:, None], edge_index=torch.tensor([[2, 3, 5], [3, 2, 4]]))
    pairs = torch.tensor([[0, 4], [4, 2]])
    options = {'batch_size': 2, 'neg_sampling': neg_sampling}
    wrong = LinkNeighborLoader(data, [-1], pairs, transform=RemoveIsolatedNodes(), **options)
    with pytest.raises(ValueError, match="'transform' must leave the ends of the pairs of a batch"):
        next(iter(wrong))
    data.n_id = torch.arange(100, 106)
    (batch,) = LinkNeighborLoader(data, [-1], pairs, transform=AddSelfLoops(), **options)
    assert bool((batch.edge_index[0] == batch.edge_index[1]).any())
    if neg_sampling is None:
        assert torch.equal(batch.n_id[batch.edge_label_index], pairs + 100)


def test_transforms_of_pairs_of_two_types():
    data = HeteroData({'user': {'x': torch.ones(4, 1)}, 'item': {'x': torch.ones(5, 1)}})
    kind = ('user', 'buys', 'item')
    data[kind].edge_index = torch.tensor([[0, 1, 2], [4, 1, 0]])
    for transform in (AddSelfLoops(), lambda batch: (batch, batch.n_id_dict)):
        loader = LinkNeighborLoader(data, [-1], kind, batch_size=3, transform=transform)
        assert len(list(loader)) == 1
    wrong = LinkNeighborLoader(
        data, [-1], kind, batch_size=3, transform=lambda batch: batch.to_homogeneous()
    )
    with pytest.raises(ValueError, match=r"'transform' must leave the ends .* with 'n_id'"):
        next(iter(wrong))
