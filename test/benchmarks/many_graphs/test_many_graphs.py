import csv
import json
import math
import sys

import pytest
import torch
from joblib import parallel_config
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import Compose

from benchmarks import sbm, tsp
from benchmarks.common import training
from benchmarks.many_graphs import plots
from benchmarks.many_graphs.metrics import criterion, f1, weighted_accuracy
from benchmarks.many_graphs.models import CONVOLUTIONS, NETWORKS, TRANSFORMERS, Stack, network
from benchmarks.many_graphs.report import PUBLISHED
from benchmarks.many_graphs.settings import PRESETS
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
    model = network(name, (7, 16, 6), level, 3, {'num_layers': 4})
    out = model(batch)
    assert out.shape == (batch.num_nodes if level == 'node' else batch.num_edges, 6)
    out.square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    assert isinstance(model, Stack) == (name in CONVOLUTIONS)


def test_sampling_and_narrowing_are_told_by_the_name(batch):
    widths, sampled = {}, {}
    for step in ('', '-sampling', '-sampling-reduced'):
        model = network(f'litegt-jaccard{step}', (7, 16, 6), 'node', 0, {'num_layers': 4})
        widths[step], sampled[step] = model.model.layers[-1].conv.out_channels, model.sampled
    assert widths == {'': 16, '-sampling': 16, '-sampling-reduced': 4}
    assert sampled == {'': False, '-sampling': True, '-sampling-reduced': True}
    assert all(set(PUBLISHED[name]) == set(TRANSFORMERS) for name in ('pattern', 'cluster', 'tsp'))


def test_metrics_by_hand():
    target, prediction = torch.tensor([0, 0, 0, 1, 3, 3]), torch.tensor([0, 0, 1, 1, 0, 3])
    assert weighted_accuracy(prediction, target) == pytest.approx((2 / 3 + 1 + 1 / 2) / 3)
    assert f1(torch.tensor([1, 1, 0, 0]), torch.tensor([1, 0, 1, 0])) == pytest.approx(0.5)
    assert f1(torch.tensor([0, 0]), torch.tensor([0, 0])) == 0


def test_classes_of_nodes_are_weighted_and_those_of_edges_are_not():
    target, out = torch.tensor([0, 0, 0, 1, 3, 3]), torch.randn(6, 5)
    each = out.logsumexp(1) - out.gather(1, target[:, None])[:, 0]
    weight = torch.tensor([1 / 2, 1 / 2, 1 / 2, 5 / 6, 2 / 3, 2 / 3])
    torch.testing.assert_close(criterion(out, target, 'node'), (weight * each).sum() / weight.sum())
    torch.testing.assert_close(criterion(out, target, 'edge'), each.mean())


def run(monkeypatch, tmp_path, *more, script=sbm):
    monkeypatch.setattr(training, 'CHECKPOINTS', tmp_path / 'checkpoints')
    tiny = {
        'graphs': {'train': 6, 'val': 3, 'test': 3},
        'layers': 1,
        'training': {'epochs': 3, 'batch_size': 3, 'hidden_channels': 16},
    }
    monkeypatch.setitem(PRESETS, 'small', tiny)
    folders = ['--root', str(tmp_path), '--output', str(tmp_path)]
    monkeypatch.setattr(
        sys, 'argv', ['x', *folders, '--preset', 'small', '--seeds', '0', '1', *more]
    )
    script.main()


def test_runs_from_data_to_table(monkeypatch, tmp_path, capsys):
    run(monkeypatch, tmp_path, '--dataset', 'CLUSTER', '--models', 'gt', 'gcn')
    record = json.loads((tmp_path / 'sbm' / 'gt-cluster-small.json').read_text())
    assert record['protocol'] == 'small'
    assert record['config']['train_graphs'] == 6
    assert len(record['metrics']['accuracy']['values']) == 2
    table = capsys.readouterr().out
    assert '| cluster | small | gt |' in table
    assert '| 73.17 |' in table
    assert table.endswith((tmp_path / 'sbm' / 'sbm.md').read_text() + '\n')
    monkeypatch.setattr(training.Training, 'run_epoch', lambda self: pytest.fail('trained again'))
    run(monkeypatch, tmp_path, '--dataset', 'CLUSTER', '--models', 'gt')
    again = json.loads((tmp_path / 'sbm' / 'gt-cluster-small.json').read_text())
    assert again['metrics']['accuracy'] == record['metrics']['accuracy']


def test_another_number_of_layers_is_a_variant(monkeypatch, tmp_path):
    run(monkeypatch, tmp_path, '--dataset', 'CLUSTER', '--models', 'gcn', '--layers', '2')
    record = json.loads((tmp_path / 'sbm' / 'gcn-cluster-small-2-layers.json').read_text())
    assert record['protocol'] == 'small-2-layers'
    assert record['config']['options'] == {'num_layers': 2}


def test_entropies_by_hand():
    edges = torch.tensor([[1, 2, 3, 0, 0, 0], [0, 0, 0, 1, 2, 3]])
    data = Data(edge_index=edges, num_nodes=5)
    weight = torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 2.0], [1.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    found, uniform = plots.entropy(weight, data)
    assert found.flatten().tolist() == pytest.approx([0, 1.5 * math.log(2), *[0] * 8])
    assert uniform.tolist() == pytest.approx([math.log(3), 0, 0, 0, 0])
    shortfall = plots.deficit(weight, data)
    assert shortfall.tolist() == pytest.approx([1 - 0.75 * math.log(2) / math.log(3), 0, 0, 0, 0])


@pytest.mark.parametrize('kernel', ['gt', 'litegt-subtractor-sampling'])
def test_pictures_of_the_attention(monkeypatch, tmp_path, kernel):
    run(monkeypatch, tmp_path, '--dataset', 'PATTERN', '--models', kernel, '--pictures')
    name, ends = (
        f'pattern-{kernel}-small',
        ('entropy.png', 'map.png', 'sampling.csv', 'sampling.png'),
    )
    assert sorted(path.name for path in (tmp_path / 'sbm').glob(f'{name}-*')) == [
        f'{name}-{end}' for end in ends
    ]
    rows = list(
        csv.DictReader((tmp_path / 'sbm' / f'{name}-sampling.csv').read_text().splitlines())
    )
    mean = {row['chosen by']: float(row['layer 1']) for row in rows}
    assert set(mean) == {
        'Eq. 10',
        'log-sum-exp',
        'random',
        'smallest degree',
        'largest degree',
        'true entropy',
        'all nodes',
    }
    assert max(mean.values()) == mean['true entropy']


def test_tours_from_data_to_table_and_pictures(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr('torch_geometric_lgt.datasets.tsp.SIZES', (30, 40))
    with parallel_config('sequential'):  # processes would import the package anew
        run(monkeypatch, tmp_path, '--models', 'gt', 'gatedgcn', '--pictures', script=tsp)
    record = json.loads((tmp_path / 'tsp' / 'gt-tsp-small.json').read_text())
    assert (
        record['config']['batch_size'],
        record['config']['pe_channels'],
        record['config']['hidden_channels'],
    ) == (8, 0, 16)
    assert '| tsp | small | gatedgcn |' in capsys.readouterr().out
    assert (tmp_path / 'tsp' / 'tsp-gt-small-map.png').read_bytes().startswith(b'\x89PNG')


def test_nodes_of_a_map_follow_the_tour():
    tour = [
        4,
        1,
        3,
        0,
        5,
        2,
    ]  # its last edge, from 2 to 4, has no label, and that from 0 to 1 is none of the tour
    data = Data(
        edge_index=torch.tensor([[*tour[:-1], 0], [*tour[1:], 1]]),
        y=torch.tensor([1] * 5 + [0]),
        num_nodes=6,
    )
    assert plots.tour_order(data).tolist() == tour[::-1]
    data.y[2] = 0
    assert plots.tour_order(data).tolist() == [0, 5, 2, 3, 1, 4]
    data.edge_index, data.y = torch.tensor([tour, [*tour[1:], tour[0]]]), torch.ones(6)
    assert plots.tour_order(data).tolist() in ([0, 5, 2, 4, 1, 3], [0, 3, 1, 4, 2, 5])
