import csv
import json
import math

import pytest
import torch
from joblib import parallel_config
from torch_geometric.data import Data

from benchmarks import tsp
from benchmarks.many_graphs import plots
from benchmarks.many_graphs.settings import PRESETS


def test_entropies_by_hand():
    edges = torch.tensor([[1, 2, 3, 0, 0, 0], [0, 0, 0, 1, 2, 3]])
    data = Data(edge_index=edges, num_nodes=5)
    weight = torch.tensor([[1.0, 1.0], [0.0, 1.0], [0.0, 2.0], [1.0, 1.0], [1.0, 1.0], [1.0, 0.0]])
    actual, uniform = plots.entropy(weight, data)
    assert actual.flatten().tolist() == pytest.approx([0, 1.5 * math.log(2), *[0] * 8])
    assert uniform.tolist() == pytest.approx([math.log(3), 0, 0, 0, 0])
    shortfall = plots.deficit(weight, data)
    assert shortfall.tolist() == pytest.approx([1 - 0.75 * math.log(2) / math.log(3), 0, 0, 0, 0])


@pytest.mark.parametrize('kernel', ['gt', 'litegt-subtractor-sampling'])
def test_pictures_of_the_attention(run, monkeypatch, tmp_path, kernel):
    run(monkeypatch, tmp_path, '--dataset', 'PATTERN', '--models', kernel, '--pictures')
    name = f'pattern-{kernel}-small'
    ends = ('entropy.png', 'map.png', 'sampling.csv', 'sampling.png')
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


def test_tours_from_data_to_table_and_pictures(run, monkeypatch, tmp_path, capsys):
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


def test_the_full_preset_has_encodings_and_distances(run, monkeypatch, tmp_path):
    monkeypatch.setattr('torch_geometric_lgt.datasets.tsp.SIZES', (30, 40))
    tiny = {'graphs': {'train': 2, 'val': 1, 'test': 1}, 'layers': 4, 'training': {'epochs': 1}}
    monkeypatch.setitem(PRESETS, 'full', tiny)
    names = ['litegt-jaccard', 'mean-alone', 'gcn']
    with parallel_config('sequential'):
        run(monkeypatch, tmp_path, '--preset', 'full', '--models', *names, script=tsp)
    records = [json.loads((tmp_path / 'tsp' / f'{name}-tsp.json').read_text()) for name in names]
    assert [record['config']['pe_channels'] for record in records] == [8] * 3
    options = [record['config']['options'] for record in records]
    assert options == [{'num_layers': 4, 'edge_channels': 1}, *[{'num_layers': 4}] * 2]
    assert all(record['config']['patience'] == 15 for record in records)
    assert not any('edge_channels' in record['config'] for record in records)


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
