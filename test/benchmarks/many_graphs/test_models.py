import pytest
import torch
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import Compose

from benchmarks.many_graphs.models import (
    CONVOLUTIONS,
    NETWORKS,
    TRANSFORMERS,
    WITH_EDGE_FEATURES,
    Stack,
    network,
)
from benchmarks.many_graphs.report import PUBLISHED
from torch_geometric_lgt.datasets import SBMDataset
from torch_geometric_lgt.transforms import AttentionNodeSampling, JaccardScores, LaplacianPE


@pytest.fixture(scope='module')
def batch(tmp_path_factory):
    prepare = Compose([JaccardScores(), AttentionNodeSampling(), LaplacianPE(3)])
    data = SBMDataset(
        tmp_path_factory.mktemp('data'), 'CLUSTER', num_graphs=3, pre_transform=prepare
    )
    return next(iter(DataLoader(data, batch_size=3)))


@pytest.mark.parametrize('level', ['node', 'edge'])
@pytest.mark.parametrize('name', NETWORKS)
def test_every_network_scores_nodes_or_edges_and_learns_all_its_weights(name, level, batch):
    options = {'num_layers': 4, **({'heads': 4} if 'reduced' in name else {})}
    model = network(name, (7, 16, 6), level, 3, options)
    out = model(batch)
    assert out.shape == (batch.num_nodes if level == 'node' else batch.num_edges, 6)
    out.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert isinstance(model, Stack) == (name in CONVOLUTIONS)


@pytest.mark.parametrize('name', TRANSFORMERS)
def test_features_of_edges_multiply_scores(name, batch):
    options = {'num_layers': 4, 'heads': 4, 'edge_channels': 1}
    if name not in WITH_EDGE_FEATURES:
        with pytest.raises(ValueError, match="'edge_channels' must be 0"):
            network(name, (7, 16, 6), 'edge', 3, options)
        return
    model, data = network(name, (7, 16, 6), 'edge', 3, options), batch.clone()
    data.edge_attr = torch.rand(data.num_edges, 1)
    model(data).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert len(model.attention_scores(data, None)) == 4


def test_sampling_and_narrowing_are_told_by_the_name(batch):
    widths, sampled = {}, {}
    for step in ('', '-sampling', '-sampling-reduced'):
        model = network(f'litegt-jaccard{step}', (7, 80, 6), 'node', 0, {'num_layers': 4})
        widths[step], sampled[step] = model.model.layers[-1].conv.out_channels, model.sampled
    assert widths == {'': 80, '-sampling': 80, '-sampling-reduced': 24}
    assert sampled == {'': False, '-sampling': True, '-sampling-reduced': True}
    networks = {*TRANSFORMERS, *CONVOLUTIONS}
    assert all(set(PUBLISHED[name]) == networks for name in ('pattern', 'cluster', 'tsp'))
