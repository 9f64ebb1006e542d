import pickle

import pytest
import torch
from torch.utils.data import DataLoader
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import Constant
from torch_geometric.utils import subgraph

from torch_geometric_lgt.loader import NeighborLoader, NodePartitionLoader
from torch_geometric_lgt.transforms import JaccardScores, NodeDegree


def graph():
    edges = torch.randint(50, (2, 400), generator=torch.Generator().manual_seed(0))
    return Data(
        x=torch.arange(50.0)[:, None],
        edge_index=edges,
        edge_attr=torch.arange(400),
        y=torch.arange(50) % 3,
    )


@pytest.mark.filterwarnings('ignore:This DataLoader will create')
@pytest.mark.parametrize('chunk', [7, 1 << 20])
@pytest.mark.parametrize('shuffle', [True, False])
@pytest.mark.parametrize('workers', [0, 2])
def test_each_node_once_with_the_edges_inside_its_batch(chunk, shuffle, workers, constants):
    constants(partition_chunk_edges=chunk)
    data = NodeDegree()(JaccardScores()(graph()))
    batches = list(NodePartitionLoader(data, 16, shuffle, num_workers=workers))
    assert [batch.num_nodes for batch in batches] == [13, 12, 13, 12]
    nodes = torch.cat([batch.n_id for batch in batches])
    assert torch.equal(nodes.sort().values, torch.arange(50))
    assert torch.equal(nodes, torch.arange(50)) != shuffle
    for batch in batches:
        expected, attributes = subgraph(
            batch.n_id, data.edge_index, data.edge_attr, relabel_nodes=True, num_nodes=50
        )
        assert torch.equal(batch.edge_index, expected)
        assert torch.equal(batch.edge_attr, attributes)
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
        for name in ('x', 'y', 'degree'):
            assert torch.equal(batch[name], data[name][batch.n_id])
        assert torch.equal(batch.edge_jaccard, data.edge_jaccard[batch.e_id])


@pytest.mark.parametrize('as_mask', [False, True])
@pytest.mark.parametrize(('equal_sizes', 'sizes'), [(True, [11, 10, 10]), (False, [12, 12, 7])])
@pytest.mark.parametrize('shuffle', [True, False])
def test_a_part_of_the_nodes(shuffle, equal_sizes, sizes, as_mask, constants):
    """Nodes outside of the part, and edges from and to them, are in no batch."""
    constants(partition_chunk_edges=7)
    data = graph()
    nodes = torch.randperm(50, generator=torch.Generator().manual_seed(1))[:31]
    mask = torch.zeros(50, dtype=torch.bool).index_fill(0, nodes, True)
    loader = NodePartitionLoader(
        data, 12, shuffle, input_nodes=mask if as_mask else nodes, equal_sizes=equal_sizes
    )
    batches = list(loader)
    assert [batch.num_nodes for batch in batches] == sizes
    found = torch.cat([batch.n_id for batch in batches])
    assert torch.equal(found.sort().values, nodes.sort().values)
    assert torch.equal(found, nodes.sort().values) != shuffle
    for batch in batches:
        expected, attributes = subgraph(
            batch.n_id, data.edge_index, data.edge_attr, relabel_nodes=True, num_nodes=50
        )
        assert torch.equal(batch.edge_index, expected)
        assert torch.equal(batch.edge_attr, attributes)
        assert torch.equal(batch.x, data.x[batch.n_id])
    nothing = NodePartitionLoader(data, 12, input_nodes=nodes[:0])
    assert list(nothing) == []


def test_batches_of_a_fixed_size_cut_a_permutation():
    """As the authors of NodeFormer cut a permutation of the training nodes."""
    data, nodes = graph(), torch.arange(5, 36)
    torch.manual_seed(3)
    batches = list(NodePartitionLoader(data, 12, input_nodes=nodes, equal_sizes=False))
    torch.manual_seed(3)
    places = torch.randperm(31)
    for number, batch in enumerate(batches):
        inside = (places >= 12 * number) & (places < 12 * (number + 1))
        assert torch.equal(batch.n_id, nodes[inside])


def test_epochs_differ_and_a_generator_fixes_them():
    data, state = graph(), torch.get_rng_state()
    runs = []
    for seed in (0, 0):
        loader = NodePartitionLoader(data, 16, generator=torch.Generator().manual_seed(seed))
        runs.append([[batch.n_id for batch in loader] for _ in range(2)])
    assert torch.equal(torch.get_rng_state(), state)
    for one, other in zip(*runs, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
    assert not torch.equal(runs[0][0][0], runs[0][1][0])


def test_files_that_are_mapped_and_a_transform(tmp_path):
    data = graph()
    path = tmp_path / 'x'
    data.x.numpy().tofile(path)
    mapped = Data(
        x=torch.from_file(str(path), size=50).view(50, 1), edge_index=data.edge_index, y=data.y
    )
    for batch in NodePartitionLoader(mapped, 20, transform=Constant()):
        assert torch.equal(
            batch.x, torch.stack([batch.n_id.float(), torch.ones(batch.num_nodes)], 1)
        )
    empty = NodePartitionLoader(
        Data(x=torch.ones(3, 1), edge_index=torch.empty(2, 0, dtype=torch.long)), 2
    )
    assert [(batch.num_nodes, batch.num_edges) for batch in empty] == [(2, 0), (1, 0)]
    assert repr(empty) == 'NodePartitionLoader(2 nodes, 2 batches)'


def test_raises():
    with pytest.raises(ValueError, match="'data' must be a Data with 'edge_index'"):
        NodePartitionLoader(HeteroData(), 2)
    with pytest.raises(ValueError, match=r"'batch_size' must be at least 1, .* \(got 2.0\)"):
        NodePartitionLoader(graph(), 2.0)
    with pytest.raises(ValueError, match="'batch_size' must be at least 1, a whole number"):
        NodePartitionLoader(graph(), 0)
    with pytest.raises(ValueError, match=r"'drop_last' must be False .* by equal_sizes=True"):
        NodePartitionLoader(graph(), 2, drop_last=True)
    for name in ('shuffle', 'equal_sizes'):
        with pytest.raises(ValueError, match=rf"'{name}' must be True or False \(got 'False'\)"):
            NodePartitionLoader(graph(), 2, **{name: 'False'})
    with pytest.raises(ValueError, match="'persistent_workers' must be False"):
        NodePartitionLoader(graph(), 2, num_workers=1, persistent_workers=True)
    for nodes, match in (
        ([0, 1], "'input_nodes' must be a tensor of ids or a mask"),
        (torch.rand(3), "'input_nodes' must be a tensor of ids or a mask"),
        (torch.ones(3, dtype=torch.bool), r'a bool for each of 50 nodes \(got shape \[3\]\)'),
        (torch.tensor([0, 50]), r"'input_nodes' must hold ids from 0 to 49 \(got 0 to 50\)"),
        (torch.tensor([-1, 2]), r"'input_nodes' must hold ids from 0 to 49 \(got -1 to 2\)"),
        (torch.tensor([3, 2, 3]), r"'input_nodes' must be distinct ids \(got 1 repeated\)"),
    ):
        with pytest.raises(ValueError, match=match):
            NodePartitionLoader(graph(), 2, input_nodes=nodes)


def test_ids_of_the_data_are_kept():
    """As in PyG's loaders, so that a part of a part has the ids of the whole graph."""
    data = graph().update({'n_id': torch.arange(50) + 100, 'e_id': torch.arange(400) * 2})
    for loader in (NodePartitionLoader(data, 16), NeighborLoader(data, [-1], batch_size=16)):
        for batch in loader:
            assert torch.equal(batch.n_id, batch.x[:, 0].long() + 100)
            assert torch.equal(batch.e_id, batch.edge_attr * 2)


@pytest.mark.parametrize('workers', [0, 2])
def test_iterations_at_once_have_partitions_of_their_own(workers):
    data = Data(x=torch.arange(50.0)[:, None], edge_index=torch.randint(50, (2, 90)))
    loader, outer = NodePartitionLoader(data, batch_size=10, num_workers=workers), []
    for batch in loader:
        outer.append(batch.n_id)
        inner = torch.cat([other.n_id for other in loader])
        assert inner.sort().values.tolist() == list(range(50))
    assert torch.cat(outer).sort().values.tolist() == list(range(50))


def test_a_sampler_of_batches_leaves_the_partition_as_it_is():
    loader = NodePartitionLoader(graph(), 16, sampler=[1, 3])
    assert [batch.num_nodes for batch in loader] == [12, 12]
    assert len(loader) == 2


def test_workers_that_are_not_forked_get_what_can_be_pickled():
    """The loader cannot be: its sampler is an iterator."""
    loader = NodePartitionLoader(graph(), 16, sampler=(number for number in (1, 3)))
    batches = list(loader)
    with pytest.raises(TypeError, match="cannot pickle 'generator' object"):
        pickle.dumps(loader)
    received = pickle.loads(pickle.dumps(loader.collate_fn))
    assert [received(number).n_id.tolist() for number in (1, 3)] == [
        batch.n_id.tolist() for batch in batches
    ]


def test_a_loader_of_its_parts_is_refused():
    """Accelerate's ``prepare`` makes one of these arguments; its batches were the numbers of the
    batches."""
    data = Data(x=torch.ones(6, 1), edge_index=torch.tensor([[0, 1], [1, 2]]))
    loader = NodePartitionLoader(data, 2)
    parts = {name: getattr(loader, name) for name in ('batch_size', 'collate_fn', 'sampler')}
    with pytest.raises(ValueError, match='a NodePartitionLoader must be iterated itself'):
        next(iter(DataLoader(loader.dataset, **parts)))
    assert sum(batch.num_nodes for batch in loader) == 6
    again = NodePartitionLoader(data, 2, collate_fn=loader.collate_fn)
    assert sum(batch.num_nodes for batch in again) == 6
