"""Every model that a script offers starts on every kind of data set: one epoch each."""

import json
import sys

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch_geometric.data import Data

from benchmarks import sbm
from benchmarks.many_graphs.models import NETWORKS
from benchmarks.many_graphs.settings import PRESETS
from benchmarks.node_classification import __main__ as node_classification
from benchmarks.node_classification import run as classifier_run
from benchmarks.node_classification.models import MODELS, SPARSE_INPUT
from benchmarks.recommendation import __main__ as recommendation
from benchmarks.recommendation.settings import DEFAULTS

PARTS = ('train', 'val', 'test')
KINDS = ('dense', 'sparse', 'two classes', 'fixed splits', 'unlabelled', 'no edges')


def graph(kind):
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(80, 30, generator=generator)
    y = torch.arange(80) % (2 if kind == 'two classes' else 3)
    if kind in ('sparse', 'fixed splits', 'two classes'):
        x = x * (torch.rand(80, 30, generator=generator) < 0.04)
    if kind == 'unlabelled':
        y[::4] = -1
    edges = torch.randint(80, (2, 0 if kind == 'no edges' else 200), generator=generator)
    data = Data(x=x, y=y, edge_index=torch.cat([edges, edges.flip(0)], 1))
    if kind == 'fixed splits':
        part = torch.randint(3, (80, 2), generator=generator)
        for index, name in enumerate(PARTS):
            data[f'{name}_mask'] = part == index
    return data


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('model', MODELS)
def test_classifiers(model, kind, monkeypatch, tmp_path, constants):
    constants(checkpoints=tmp_path / 'checkpoints')
    monkeypatch.setattr(classifier_run, 'load', lambda *_: graph(kind))
    seen = []
    model_input = classifier_run.model_input
    monkeypatch.setattr(
        classifier_run,
        'model_input',
        lambda *args: seen.append(model_input(*args)) or seen[-1],
    )
    protocol = 'fixed-splits' if kind == 'fixed splits' else 'random-60-20-20'
    for precision in ('float32', 'bfloat16'):
        words = [
            '--output',
            str(tmp_path),
            '--model',
            model,
            '--protocol',
            protocol,
            '--seeds',
            '0',
            '1',
            '--set',
            'epochs=1',
        ]
        monkeypatch.setattr(
            sys,
            'argv',
            [
                *('x', '--dataset', 'toy.npz', *words, f'precision={precision}'),
                *('normalize_features=true', 'laplacian_pe=0', *one_phase(model)),
            ],
        )
        node_classification.main()
    for path in (tmp_path / 'node_classification').glob('*.json'):
        record = json.loads(path.read_text())
        assert record['metrics']['best_epoch']['values'] == [1, 1]
    is_sparse = model in SPARSE_INPUT and kind in ('sparse', 'two classes', 'fixed splits')
    assert [data.x.layout == torch.sparse_csr for data in seen] == [is_sparse, False]


def one_phase(model):
    """The settings with which a training of one epoch has the attention."""
    return ['local_epochs=0'] if model == 'polynormer' else []


def write_graph(path, contents):
    """Writes a graph with dense features, with the columns of ones, or with binary features and
    splits as the files of heterophilous graphs have them."""
    data = graph('dense' if contents == 'features' else 'fixed splits')
    x, ones = data.x.numpy(), csr_array(data.x.numpy() > 0)
    arrays = {'edges': data.edge_index.t().numpy()}
    if contents == 'features':
        arrays |= {'x': x, 'y': data.y.numpy()}
    elif contents == 'ones':
        arrays |= {'feat_indptr': ones.indptr, 'feat_indices': ones.indices, 'y': data.y.numpy()}
    else:
        arrays |= {'node_features': x > 0, 'node_labels': data.y.numpy()}
        arrays |= {f'{part}_masks': data[f'{part}_mask'].t().numpy() for part in PARTS}
    np.savez(path, **arrays)


@pytest.mark.parametrize('contents', ['features', 'ones', 'splits'])
@pytest.mark.parametrize('model', MODELS)
def test_classifiers_on_files(model, contents, monkeypatch, tmp_path, constants):
    constants(checkpoints=tmp_path / 'checkpoints')
    write_graph(tmp_path / 'toy.npz', contents)
    protocol = 'fixed-splits' if contents == 'splits' else 'random-60-20-20'
    folders = ['--root', str(tmp_path), '--output', str(tmp_path)]
    words = ['--dataset', 'toy.npz', '--model', model, '--protocol', protocol, '--seeds', '0', '1']
    changes = ['epochs=1', *one_phase(model)]
    monkeypatch.setattr(sys, 'argv', ['x', *folders, *words, '--variant', 'v', '--set', *changes])
    node_classification.main()
    path = tmp_path / 'node_classification' / f'{model}-toy-{protocol}-v.json'
    assert json.loads(path.read_text())['metrics']['best_epoch']['values'] == [1, 1]


@pytest.mark.parametrize('split', ['given', 'ratio'])
@pytest.mark.parametrize('model', DEFAULTS)
def test_recommenders(model, split, monkeypatch, constants, tmp_path):
    constants(checkpoints=tmp_path / 'checkpoints')
    (tmp_path / 'mine').mkdir()
    lines = [[user, *range(user % 4, 30, 1 + user % 3)] for user in range(30)]
    parts = (
        {'raw': slice(0, None)}
        if split == 'ratio'
        else {'train': slice(0, 8), 'test': slice(8, None)}
    )
    for part, those in parts.items():
        text = '\n'.join(' '.join(map(str, [line[0], *line[1:][those]])) for line in lines)
        (tmp_path / 'mine' / f'{part}.txt').write_text(text)
    words = (
        ['--epochs', '1', '--every', '1', '--dim', '8', '--seeds', '0']
        if 'epochs' in DEFAULTS[model]
        else []
    )
    words += ['--encoding', '4'] if model == 'mgformer' else []
    monkeypatch.setattr(
        sys,
        'argv',
        [
            'x',
            '--root',
            str(tmp_path),
            '--output',
            str(tmp_path),
            '--dataset',
            'mine',
            '--model',
            model,
            *words,
        ],
    )
    recommendation.main()
    (path,) = (tmp_path / 'recommendation').glob('*.json')
    assert (
        json.loads(path.read_text())['protocol']
        == {'given': 'given-split', 'ratio': 'ratio-80-10-10'}[split]
    )


@pytest.mark.parametrize('dataset', ['PATTERN', 'CLUSTER'])
def test_networks_on_many_graphs(dataset, monkeypatch, tmp_path, constants):
    constants(checkpoints=tmp_path / 'checkpoints')
    tiny = {
        'graphs': {'train': 3, 'val': 2, 'test': 2},
        'layers': 4,
        'training': {'epochs': 1, 'batch_size': 3, 'hidden_channels': 16},
    }
    monkeypatch.setitem(PRESETS, 'small', tiny)
    words = [
        '--root',
        str(tmp_path),
        '--output',
        str(tmp_path),
        '--preset',
        'small',
        '--seeds',
        '0',
        '--dataset',
        dataset,
    ]
    monkeypatch.setattr(sys, 'argv', ['x', *words])
    sbm.main()
    assert len([*(tmp_path / 'sbm').glob('*.json')]) == len(NETWORKS)


@pytest.mark.parametrize('precision', ['float32', 'bfloat16'])
@pytest.mark.parametrize('source', ['input', 'hidden'])
@pytest.mark.parametrize('branch', ['gcn', 'sage', 'gat'])
def test_local_branches(branch, source, precision, monkeypatch, tmp_path, constants):
    constants(checkpoints=tmp_path / 'checkpoints')
    monkeypatch.setattr(classifier_run, 'load', lambda *_: graph('sparse'))
    changes = [
        'epochs=1',
        f'precision={precision}',
        f'options.gnn={branch}',
        f'options.gnn_input={source}',
    ]
    monkeypatch.setattr(
        sys,
        'argv',
        ['x', '--dataset', 'toy.npz', '--output', str(tmp_path), '--seeds', '0', '--set', *changes],
    )
    node_classification.main()
    assert len([*(tmp_path / 'node_classification').glob('*.json')]) == 1
