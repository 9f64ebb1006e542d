"""The published graphs, in a small file of PyG's layout."""

import json
import os
import pickle
import sys
import zipfile

import pytest
import torch
from torch_geometric.datasets import GNNBenchmarkDataset
from torch_geometric.transforms import Constant

from benchmarks import sbm
from benchmarks.common.scripts import run_script
from benchmarks.many_graphs import published
from benchmarks.many_graphs.published import PublishedSBM


def write(root, name='CLUSTER', sizes=(6, 3, 3), seed=0):
    """Writes the raw file as PyG's class has it: three lists of dictionaries."""
    generator = torch.Generator().manual_seed(seed)
    width, classes = {'CLUSTER': (7, 6), 'PATTERN': (3, 2)}[name]

    def graph():
        num_nodes = int(torch.randint(12, 20, (1,), generator=generator))
        token = torch.randint(width, (num_nodes,), generator=generator)
        edges = torch.randint(num_nodes, (2, 30), generator=generator)
        edges = torch.cat([edges, edges.flip(0)], 1)
        y = torch.arange(num_nodes) % classes
        x = torch.nn.functional.one_hot(token, width).float()
        return {'x': x, 'edge_index': edges, 'edge_attr': torch.ones(60, 1), 'y': y}

    splits = [[graph() for _ in range(size)] for size in sizes]
    path = root / name / 'raw' / f'{name}_v2.pt'
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(splits, path)
    return splits, path


@pytest.mark.parametrize('name', ['CLUSTER', 'PATTERN'])
def test_graphs_are_those_of_the_class_in_pyg(name, tmp_path):
    splits, _ = write(tmp_path, name)
    for number, part in enumerate(('train', 'val', 'test')):
        ours = PublishedSBM(tmp_path, name, part, len(splits[number]))
        theirs = GNNBenchmarkDataset(str(tmp_path), name, part)
        assert len(ours) == len(theirs) == len(splits[number])
        for graph, expected in zip(ours, theirs, strict=True):
            assert set(graph.keys()) == {'x', 'edge_index', 'y'}
            for key, value in graph.to_dict().items():
                assert torch.equal(value, expected[key])


def test_stored_graphs_fit_the_file_and_the_transform(tmp_path):
    splits, _ = write(tmp_path)
    for num_graphs, change, width in ((3, None, 7), (3, Constant(), 8), (2, None, 7)):
        dataset = PublishedSBM(tmp_path, 'CLUSTER', 'val', num_graphs, pre_transform=change)
        assert len(dataset) == num_graphs
        assert dataset[0].x.shape == (splits[1][0]['x'].size(0), width)
    other, _ = write(tmp_path, seed=1)
    dataset = PublishedSBM(tmp_path, 'CLUSTER', 'val', 3)
    assert torch.equal(dataset[0].edge_index, other[1][0]['edge_index'])


def test_training_on_published_graphs(run, monkeypatch, tmp_path):
    write(tmp_path)
    monkeypatch.setattr(published, 'download_file', lambda *_: pytest.fail('a server was asked'))
    arguments = ['--dataset', 'CLUSTER', '--source', 'pyg', '--models', 'gcn', 'litegt-jaccard']
    run(monkeypatch, tmp_path, *arguments)
    record = json.loads((tmp_path / 'sbm' / 'gcn-cluster-small-pyg.json').read_text())
    assert record['protocol'] == record['variant'] == 'small-pyg'
    assert [record['config'][f'{part}_graphs'] for part in ('train', 'val', 'test')] == [6, 3, 3]
    run(monkeypatch, tmp_path, '--dataset', 'CLUSTER', '--models', 'gcn')
    generated = json.loads((tmp_path / 'sbm' / 'gcn-cluster-small.json').read_text())
    assert generated['data'] != record['data']


def test_download(monkeypatch, tmp_path):
    splits, path = write(tmp_path / 'server')
    with zipfile.ZipFile(tmp_path / 'CLUSTER_v2.zip', 'w') as archive:
        archive.write(path, path.name)
    asked = []

    def download(url, file, name):
        asked.append((url, name))
        file.write((tmp_path / 'CLUSTER_v2.zip').read_bytes())

    monkeypatch.setattr(published, 'download_file', download)
    dataset = PublishedSBM(tmp_path / 'data', 'CLUSTER', 'train', 6)
    assert torch.equal(dataset[5].y, splits[0][5]['y'])
    PublishedSBM(tmp_path / 'data', 'CLUSTER', 'test', 3)
    assert asked == [(GNNBenchmarkDataset.urls['CLUSTER'], 'CLUSTER_v2')]
    raw = tmp_path / 'data' / 'CLUSTER' / 'raw'
    assert [file.name for file in raw.iterdir()] == ['CLUSTER_v2.pt']


class Planted:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_files_that_are_refused(monkeypatch, tmp_path):
    _, path = write(tmp_path)
    with pytest.raises(ValueError, match=r"must hold 7 graphs of the split 'train' \(got 6\)"):
        PublishedSBM(tmp_path, 'CLUSTER', 'train', 7)
    torch.save([[Planted(tmp_path / 'ran')], [], []], path)
    with pytest.raises(pickle.UnpicklingError, match='holds more than arrays, and was not run'):
        PublishedSBM(tmp_path, 'CLUSTER', 'train', 1)
    assert not (tmp_path / 'ran').exists()

    def unreachable(*_):
        raise ConnectionError('no route')

    monkeypatch.setattr(published, 'download_file', unreachable)
    command = ['x', '--root', str(tmp_path / 'none'), '--source', 'pyg', '--output', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', command)
    with pytest.raises(SystemExit) as end:
        run_script(sbm.main)
    (line,) = end.value.code.splitlines()
    assert 'CLUSTER_v2.pt cannot be downloaded (no route): run again, or unpack https://' in line
    assert [file.name for file in (tmp_path / 'none' / 'CLUSTER' / 'raw').iterdir()] == []
