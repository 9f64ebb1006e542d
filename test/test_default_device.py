"""What ``torch.set_default_device`` says changes nothing for data on the CPU."""

import copy

import pytest
import torch
from constants import BY_OPERATORS
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.sampler import NodeSamplerInput
from torch_geometric.transforms import Compose

from torch_geometric_lgt.functional import AttentionState, kernel_attention
from torch_geometric_lgt.loader import NeighborLoader, NeighborSampler, NodePartitionLoader
from torch_geometric_lgt.loader._hgt_sampler import HGTSampler
from torch_geometric_lgt.nn import (
    AttentionMemory,
    DIFFormer,
    GraphTransformer,
    LiteGT,
    MGFormer,
    NodeFormer,
    SGFormer,
)
from torch_geometric_lgt.transforms import (
    AttentionNodeSampling,
    JaccardScores,
    LaplacianPE,
    NodeDegree,
    RandomSignFlip,
    SVDEncoding,
)
from torch_geometric_lgt.visualization import plot_latent_structure

SIZES = (7, 5, 9, 5, 7)
"""Graphs of the same size are not next to each other."""
MODELS = {
    'NodeFormer': lambda: NodeFormer(3, 4, 2),
    'DIFFormer': lambda: DIFFormer(3, 4, 2),
    'SGFormer': lambda: SGFormer(3, 4, 2),
    'GraphTransformer': lambda: GraphTransformer(3, 4, 2),
    'edge list': lambda: GraphTransformer(3, 4, 2, conv='SAGEConv'),
    'LiteGT': lambda: LiteGT(3, 8, 2, 2, kernel='subtractor'),
    'MGFormer': lambda: MGFormer(4, 8, 6, degree=torch.full((12,), 2)),
}


@pytest.fixture
def elsewhere(monkeypatch):
    """A default device without values. The iterators of PyTorch, which draw their seeds there, are
    made on the CPU."""
    make = DataLoader.__iter__

    def make_on_cpu(loader):
        with torch.device('cpu'):
            return make(loader)

    monkeypatch.setattr(DataLoader, '__iter__', make_on_cpu)
    return torch.device('meta')


def ring(n):
    edges = torch.stack([torch.arange(n), torch.arange(n).roll(1)])
    edges = torch.cat([edges, edges.flip(0)], 1)
    return Data(x=torch.randn(n, 3), edge_index=edges, time=torch.arange(n))


def attributes(graph):
    return {name: value for name, value in graph.to_dict().items() if torch.is_tensor(value)}


@pytest.mark.parametrize(
    'transform',
    [
        LaplacianPE(3),
        SVDEncoding(3),
        NodeDegree(),
        JaccardScores(),
        Compose([JaccardScores(), AttentionNodeSampling()]),
        JaccardScores(num_hashes=3),
        RandomSignFlip('x'),
    ],
    ids=lambda transform: type(transform).__name__,
)
def test_transforms(transform, elsewhere):
    batch = Batch.from_data_list([ring(n) for n in SIZES])
    torch.manual_seed(0)
    expected = transform(copy.copy(batch)).to_data_list()
    torch.manual_seed(0)
    with elsewhere:
        actual = transform(copy.copy(batch))
    for one, other in zip(actual.to_data_list(), expected, strict=True):
        torch.testing.assert_close(attributes(one), attributes(other), rtol=0, atol=0)


def test_attention_of_many_graphs(elsewhere, constants):
    constants(plain_elements=BY_OPERATORS)
    batch = torch.arange(len(SIZES)).repeat_interleave(torch.tensor(SIZES))
    q, k, v = (torch.randn(len(batch), 2, 4) for _ in range(3))
    expected = kernel_attention(q, k, v, 'elu', batch=batch)
    with elsewhere:
        actual = kernel_attention(q, k, v, 'elu', batch=batch)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0)


@pytest.mark.parametrize('shuffle', [False, True])
def test_parts_of_nodes(shuffle, elsewhere):
    nodes, drawn = torch.tensor([0, 2, 3, 8, 9]), []
    for place in (torch.device('cpu'), elsewhere):
        torch.manual_seed(0)
        loader = NodePartitionLoader(
            ring(12), 2, input_nodes=nodes, shuffle=shuffle, generator=torch.Generator()
        )
        with place:
            drawn.append([batch.n_id for batch in loader])
    torch.testing.assert_close(drawn[0], drawn[1])
    assert torch.cat(drawn[1]).sort().values.tolist() == nodes.tolist()


def test_times_of_seeds(elsewhere):
    sampler = NeighborSampler(ring(12), [-1], time_attr='time')
    seeds = NodeSamplerInput(input_id=None, node=torch.tensor([3, 7]))
    expected = sampler.sample_from_nodes(seeds)
    with elsewhere:
        actual = sampler.sample_from_nodes(seeds)
    torch.testing.assert_close((actual.node, actual.edge), (expected.node, expected.edge))
    assert expected.node.tolist() == [3, 7, 2, 6]


def typed_ring(n):
    data = HeteroData()
    data['node'].num_nodes = n
    data['node', 'next', 'node'].edge_index = ring(n).edge_index
    return data


@pytest.mark.parametrize(
    ('sampler', 'kind'),
    [
        (NeighborSampler(ring(12), [1, 1]), None),
        (HGTSampler(typed_ring(12), [1, 1]), 'node'),
    ],
    ids=['neighbors', 'hgt'],
)
def test_draws_of_neighbors(sampler, kind, elsewhere):
    seeds, drawn = NodeSamplerInput(None, torch.tensor([3, 7]), input_type=kind), []
    for place in (torch.device('cpu'), elsewhere):
        torch.manual_seed(0)
        with place:
            drawn.append(sampler.sample_from_nodes(seeds))
    torch.testing.assert_close(drawn[1].node, drawn[0].node)
    torch.testing.assert_close(drawn[1].edge, drawn[0].edge)


@pytest.mark.parametrize('workers', [0, 1])
@pytest.mark.parametrize('name', MODELS)
def test_scores_of_a_graph_in_parts(name, workers, tmp_path):
    model = MODELS[name]()
    loader = NeighborLoader(ring(12), [-1], batch_size=5, num_workers=workers)
    expected = model.inference(loader)
    with torch.device('meta'):
        found = [model.inference(loader), model.inference(loader, tmp_path)]
    torch.testing.assert_close(found, [expected, expected], rtol=0, atol=0)


@pytest.mark.parametrize('name', ['NodeFormer', 'DIFFormer', 'SGFormer', 'GraphTransformer'])
def test_memory_in_a_file(name, tmp_path):
    model, nodes = MODELS[name]().eval(), torch.tensor([0, 5])
    loader = NeighborLoader(ring(12), [-1], batch_size=5)
    expected = model.attention_memory(loader).without(nodes)
    with torch.device('meta'):
        model.attention_memory(loader, tmp_path / 'inputs').save(tmp_path / 'memory')
        memory = AttentionMemory.load(tmp_path / 'memory', model)
        found = memory.without(nodes)
    assert {x.device.type for x in memory.inputs} == {'cpu'}
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)


def test_state_in_a_file(tmp_path):
    state = AttentionState.from_keys(torch.rand(4, 1, 2), torch.rand(4, 1, 3), 'relu')
    with torch.device('meta'):
        state.save(tmp_path / 'state')
        found = AttentionState.load(tmp_path / 'state')
    torch.testing.assert_close(found.state_dict(), state.state_dict(), rtol=0, atol=0)


def test_recommendations_for_a_list():
    model = MODELS['MGFormer']()
    expected = model.recommend(src_index=[1, 3], k=8).sort().values
    with torch.device('meta'):
        found = model.recommend(src_index=[1, 3], k=8)
        assert model.get_embedding(nodes=[]).shape == (0, 6)
    assert found.sort().values.tolist() == expected.tolist() == [list(range(4, 12))] * 2


def test_plot_of_learned_edges():
    data, model = ring(12), DIFFormer(3, 4, 2)
    data.y = torch.arange(12) % 2
    values = []
    for place in ('cpu', 'meta'):
        with torch.device(place):
            generator = torch.Generator().manual_seed(0)
            values.append(plot_latent_structure(model, data, generator=generator)[1])
    assert values[0] == values[1]
