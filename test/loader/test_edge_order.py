"""Graphs whose edges are an 'adj_t': attributes are compared by the source and the target of an
edge."""

import pickle
from multiprocessing.reduction import ForkingPickler

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import LinkNeighborLoader
from torch_geometric.loader import NeighborLoader as PyGNeighborLoader
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput
from torch_geometric.sampler import NeighborSampler as PyGNeighborSampler
from torch_geometric.transforms import ToSparseTensor
from torch_geometric.typing import SparseTensor

from torch_geometric_lgt.loader import NeighborLoader, NeighborSampler, NodePartitionLoader
from torch_geometric_lgt.loader._edge_order import SINGLE_EDGE_TYPE, order_edges
from torch_geometric_lgt.nn import JaccardSubtractorConv
from torch_geometric_lgt.transforms import JaccardScores

N = 60
pytestmark = pytest.mark.sparse


def graph(attr='weight', **options):
    """Each edge's attributes name its source and target."""
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(N, (2, 400), generator=generator)
    edges = torch.cat([edges, edges.flip(0)], 1).unique(dim=1)
    edges = edges[:, torch.randperm(edges.size(1), generator=generator)]
    number = edges[0] * N + edges[1]
    data = Data(
        x=torch.arange(N)[:, None].float(),
        edge_index=edges,
        number=number,
        edge_attr=number[:, None].float(),
        weight=number,
    )
    return ToSparseTensor(attr, **options)(data)


def ends(store, source=None, target=None):
    """The edges of an adj_t, by their ids in the full graph."""
    row, col, value = store.adj_t.coo()
    source, target = (store.n_id if ids is None else ids for ids in (source, target))
    return torch.stack([source[col], target[row]]), value


def check(batch, full):
    (source, target), value = ends(batch)
    assert batch.number.numel() > 0
    assert torch.equal(batch.number, source * N + target)
    assert torch.equal(batch.edge_attr[:, 0], batch.number.float())
    assert value is None or torch.equal(value, batch.number)
    row, col, _ = full.adj_t.coo()
    assert torch.equal(torch.stack([source, target]), torch.stack([col, row])[:, batch.e_id])


@pytest.mark.parametrize('attr', ['weight', None])
@pytest.mark.parametrize(
    'options', [{}, {'replace': True}, {'disjoint': True}, {'subgraph_type': 'induced'}]
)
def test_edges_have_the_attributes_they_have_in_the_graph(options, attr):
    data = graph(attr)
    for batch in NeighborLoader(data, [3, 2], batch_size=7, **options):
        check(batch, data)
        if 'subgraph_type' not in options:
            target = batch.adj_t.coo()[0]
            nodes = batch.num_sampled_nodes
            edges = batch.num_sampled_edges
            first, second = target[: edges[0]], target[edges[0] :]
            assert (first < nodes[0]).all()
            assert ((second >= nodes[0]) & (second < nodes[0] + nodes[1])).all()


def test_reverse_edges_that_are_added_have_the_attributes_of_the_sampled_ones():
    for batch in NeighborLoader(graph(), [3, 2], batch_size=7, subgraph_type='bidirectional'):
        (source, target), value = ends(batch)
        assert ((batch.number == source * N + target) | (batch.number == target * N + source)).all()
        assert torch.equal(value, batch.number)


def test_a_loader_that_was_pickled_goes_on():
    """Sharing the matrix with another process moves its memory."""
    data = graph()
    loader, content = NeighborLoader(data, [3, 2], batch_size=7), []
    for each in (pickle, ForkingPickler):
        content.append(bytes(each.dumps(loader)))
        for batch in loader:
            check(batch, data)
    for batch in pickle.loads(content[0]):
        check(batch, data)


@pytest.mark.filterwarnings('ignore:This DataLoader will create')
def test_other_loaders_and_other_samplers():
    data = graph()
    sampler = NeighborSampler(data, [3, 2])
    loaders = [
        NeighborLoader(
            data, [3, 2], batch_size=7, neighbor_sampler=PyGNeighborSampler(data, [3, 2])
        ),
        NeighborLoader(data, [3, 2], batch_size=7, num_workers=2),
        PyGNeighborLoader(data, [3, 2], batch_size=7, neighbor_sampler=sampler),
        LinkNeighborLoader(
            data,
            [3, 2],
            torch.randint(N, (2, 20)),
            batch_size=7,
            neighbor_sampler=sampler,
            neg_sampling='binary',
        ),
    ]
    for batch in (batch for loader in loaders for batch in loader):
        check(batch, data)


def test_the_output_of_a_sampler_stays_as_it_was():
    kind, (row, col, edge) = ('a', 'to', 'b'), torch.tensor([[1, 0], [0, 0], [5, 7]])
    several = HeteroSamplerOutput({}, {kind: row}, {kind: col}, {kind: edge})
    for out, types in (
        (SamplerOutput(row, row, col, edge), [SINGLE_EDGE_TYPE]),
        (several, [kind]),
    ):
        before = str(vars(out))
        assert str(vars(order_edges(out, types))) != before
        assert str(vars(out)) == before


def test_edges_that_occur_again_have_each_value_once():
    source, target = torch.tensor([3, 1, 1, 1, 0]), torch.tensor([0, 0, 0, 2, 2])
    adj_t = SparseTensor(row=target, col=source, sparse_sizes=(4, 4))
    # 1 > 0, 1 > 0, 3 > 0, 0 > 2, 1 > 2
    data = Data(num_nodes=4, adj_t=adj_t, number=torch.arange(5) + 10)
    (batch,) = NeighborLoader(data, [-1], input_nodes=torch.tensor([2, 0]), batch_size=2)
    (source, target), _ = ends(batch)
    actual = sorted(zip(source.tolist(), target.tolist(), batch.number.tolist(), strict=True))
    assert actual == [(0, 2, 13), (1, 0, 10), (1, 0, 11), (1, 2, 14), (3, 0, 12)]


def test_edge_index_and_adj_t_of_one_order():
    data = graph(remove_edge_index=False)
    for loader in (NeighborLoader(data, [3, 2], batch_size=7), NodePartitionLoader(data, 20)):
        for batch in loader:
            check(batch, data)
            assert torch.equal(batch.n_id[batch.edge_index], ends(batch)[0])
    data.edge_index = data.edge_index.flip(1)
    for make in (
        lambda: NeighborLoader(data, [3]),
        lambda: NodePartitionLoader(data, 20),
        lambda: NeighborSampler(data, [3]),
    ):
        with pytest.raises(
            ValueError, match="'edge_index' must list the edges of 'adj_t' in the same order"
        ):
            make()


def test_several_types_of_nodes():
    generator = torch.Generator().manual_seed(0)
    data = HeteroData()
    data['user'].num_nodes, data['item'].num_nodes = 20, 30
    edges = torch.stack([torch.randint(n, (90,), generator=generator) for n in (20, 30)]).unique(
        dim=1
    )
    edges = edges[:, torch.randperm(edges.size(1), generator=generator)]
    for kind, pairs in ((('user', 'buys', 'item'), edges), (('item', 'of', 'user'), edges.flip(0))):
        data[kind].edge_index, data[kind].number = pairs, pairs[0] * 30 + pairs[1]
    data = ToSparseTensor()(data)
    for sampler in (None, PyGNeighborSampler(data, [3, 3])):
        for batch in NeighborLoader(data, [3, 3], 'user', batch_size=4, neighbor_sampler=sampler):
            for kind in (('user', 'buys', 'item'), ('item', 'of', 'user')):
                (source, target), _ = ends(batch[kind], batch[kind[0]].n_id, batch[kind[2]].n_id)
                assert torch.equal(batch[kind].number, source * 30 + target)


def test_scores_of_the_full_graph_reach_the_layer():
    """A layer over all neighbours of the seeds gives them the output they have in the full
    graph."""
    data = JaccardScores()(graph(None))
    torch.manual_seed(0)
    conv, x = JaccardSubtractorConv(4, 8, heads=4).eval(), torch.randn(N, 4)
    expected = conv(x, data.adj_t, data.edge_jaccard)
    for batch in NeighborLoader(data, [-1], batch_size=7):
        actual = conv(x[batch.n_id], batch.adj_t, batch.edge_jaccard)[: batch.batch_size]
        torch.testing.assert_close(actual, expected[batch.input_id])


@pytest.mark.parametrize('make', [NeighborSampler, NeighborLoader])
def test_formats_without_an_order_are_refused(make):
    edges, ones = torch.tensor([[1, 0], [2, 1]]), torch.ones(2)
    coo = torch.sparse_coo_tensor(edges, ones, (4, 4))
    for adj_t in (coo, coo.to_sparse_csr(), coo.to_sparse_csc()):
        with pytest.raises(
            ValueError,
            match=(
                r"'adj_t' must be a torch_sparse.SparseTensor in a loader "
                rf"\(got {adj_t.layout}\); give its edges as 'edge_index'$"
            ),
        ):
            make(Data(num_nodes=4, adj_t=adj_t), [3])
        with pytest.raises(ValueError, match=r"; remove it, 'edge_index' has the edges$"):
            make(Data(num_nodes=4, adj_t=adj_t, edge_index=edges), [3])
    adj = SparseTensor(row=edges[0], col=edges[1], sparse_sizes=(4, 4))
    with pytest.raises(ValueError, match="'data' must have its edges in 'edge_index' or 'adj_t'"):
        make(Data(num_nodes=4, adj=adj), [3])
    with pytest.raises(
        ValueError,
        match=r'a row for each target and a column for each source, \(5, 5\) \(got \(4, 4\)\)',
    ):
        make(Data(num_nodes=5, adj_t=adj), [3])
    sampler = PyGNeighborSampler(Data(num_nodes=4, edge_index=edges), [3])
    with pytest.raises(ValueError, match="'adj_t' must be a torch_sparse"):
        NeighborLoader(Data(num_nodes=4, adj_t=coo), [3], neighbor_sampler=sampler)
