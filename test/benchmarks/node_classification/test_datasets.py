import io

import numpy as np
import pytest
import sklearn.datasets
import torch
import torch_geometric
from filelock import FileLock, Timeout
from sklearn.utils import Bunch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from benchmarks.common.files import DataError
from benchmarks.node_classification import datasets
from benchmarks.node_classification.datasets import (
    load,
    prepare_features,
    split,
    with_wrong_edges,
)
from benchmarks.node_classification.settings import settings


@pytest.mark.parametrize('normalize', [False, True])
def test_features_few_of_which_differ_from_0_become_sparse(normalize):
    x = torch.zeros(4, 20)
    x[0, 3] = x[0, 5] = x[2, 7] = 1.0
    data = Data(x=x)
    sparse = prepare_features(data, normalize).x
    assert sparse.layout == torch.sparse_csr
    assert torch.equal(
        sparse.to_dense(), x / x.sum(1, keepdim=True).clamp(min=1) if normalize else x
    )
    assert data.x is x
    x[1] = 1.0
    assert prepare_features(data, normalize).x.layout == torch.strided


@pytest.mark.parametrize('neighbors', [None, 0, 5])
def test_digits_with_nearest_neighbours_or_no_graph(neighbors):
    data = load('', 'digits', neighbors)
    assert (data.num_nodes, data.num_features, int(data.y.max())) == (1797, 64, 9)
    degree = torch.bincount(data.edge_index[1], minlength=1797)
    if neighbors:
        nearest = torch.cdist(data.x[:20], data.x).topk(6, largest=False).indices
        pairs = {(int(j), int(i)) for j, i in data.edge_index.t()}
        assert all((int(j), i) in pairs for i in range(20) for j in nearest[i] if int(j) != i)
        assert degree.min() >= 5
    else:
        assert degree.sum() == 0


def test_random_pairs_replace_a_share_of_the_edges():
    """Of 1000 edges 250 are new pairs, unless a pair is an edge already or drawn twice."""
    pairs = torch.combinations(torch.arange(200)).t()[:, :1000]
    edges = to_undirected(pairs)
    noisy = with_wrong_edges(edges, 200, 0.25)
    assert torch.equal(noisy, with_wrong_edges(edges, 200, 0.25))
    assert torch.equal(noisy, to_undirected(noisy))
    assert not (noisy[0] == noisy[1]).any()
    before, after = ({tuple(pair) for pair in graph.t().tolist()} for graph in (edges, noisy))
    assert len(before & after) >= 2 * 750
    assert 2 * 200 < len(after - before) <= 2 * 250
    assert torch.equal(with_wrong_edges(edges, 200, 0), edges)


def test_more_neighbours_than_nodes_are_told():
    with pytest.raises(DataError, match=r'^--neighbors must be below .*, 1797 \(got 1797\)$'):
        load('', 'digits', 1797)


def test_unknown_names_are_told():
    with pytest.raises(
        ValueError, match=r"'dataset' must be a .npz file or a known name .*there are cora"
    ):
        load('', 'coras')


@pytest.mark.parametrize('name', ['chameleon', 'squirrel'])
def test_filtered_graphs_are_read_or_downloaded(name, monkeypatch, tmp_path):
    content, fetched = io.BytesIO(), []
    masks = {
        f'{part}_masks': np.eye(3, dtype=bool)[index : index + 1]
        for index, part in enumerate(('train', 'val', 'test'))
    }
    arrays = {'edges': np.array([[0, 1]]), 'node_labels': np.arange(3), 'node_features': np.eye(3)}
    np.savez(content, **arrays, **masks)
    path = tmp_path / 'heterophilous' / f'{name}_filtered.npz'
    path.parent.mkdir()

    def fetch(source, path):
        fetched.append(source.url)
        path.write_bytes(content.getvalue())

    monkeypatch.setattr(datasets, 'fetch', fetch)
    protocol, _ = settings(f'{name}-filtered', None, 'sgformer')
    for _ in range(2):
        data = load(str(tmp_path), f'{name}-filtered')
        assert data.edge_index.tolist() == [[0, 1], [1, 0]]
        assert [part.tolist() for part in split(data, protocol, 0).values()] == [[0], [1], [2]]
    (address,) = fetched
    assert address.startswith('https://raw.githubusercontent.com/yandex-research/')
    assert address.endswith(f'/data/{path.name}')


@pytest.mark.parametrize('name', ['chameleon', 'squirrel'])
def test_graphs_with_nodes_that_occur_twice_are_told(name, monkeypatch, tmp_path, capsys):
    data = Data(x=torch.eye(2), y=torch.arange(2), edge_index=torch.tensor([[0], [1]]))
    monkeypatch.setattr(torch_geometric.datasets, 'WikipediaNetwork', lambda *_: [data])
    load(str(tmp_path), name)
    assert f'{name} has nodes that occur twice' in capsys.readouterr().err
    monkeypatch.setattr(torch_geometric.datasets, 'Actor', lambda *_: [data])
    load(str(tmp_path), 'actor')
    assert capsys.readouterr().err == ''


def test_processes_that_start_together_prepare_a_data_set_once(monkeypatch, tmp_path):
    data = Data(x=torch.eye(3), y=torch.arange(3), edge_index=torch.tensor([[0], [1]]))
    locked = []

    def prepare(folder):
        try:
            with FileLock(f'{folder}/.lock', timeout=0):
                locked.append(False)
        except Timeout:
            locked.append(True)
        return [data]

    monkeypatch.setattr(torch_geometric.datasets, 'Actor', prepare)
    load(str(tmp_path), 'actor')
    monkeypatch.setattr('os.access', lambda *_: False)
    load(str(tmp_path), 'actor')  # from a folder that is read only
    assert locked == [True, False]


@pytest.mark.parametrize('layout', [torch.strided, torch.sparse_coo, torch.sparse_csr])
def test_features_of_each_layout_are_read(layout, monkeypatch, tmp_path):
    x = torch.eye(3, 4)
    data = Data(
        x=x.to_sparse(layout=layout) if layout != torch.strided else x,
        y=torch.arange(3),
        edge_index=torch.tensor([[0], [1]]),
    )
    monkeypatch.setattr(torch_geometric.datasets, 'Actor', lambda *_: [data])
    assert torch.equal(load(str(tmp_path), 'actor').x, x)


@pytest.mark.parametrize(
    ('protocol', 'sizes'),
    [
        ('random-20-per-class', (60, 500, 1000)),
        ('random-50-25-25', (1000, 500, 500)),
        ('random-60-20-20', (1200, 400, 400)),
        ('random-5-10-85', (100, 200, 1700)),
    ],
)
def test_random_splits(protocol, sizes):
    y = torch.arange(2400) % 3
    y[::6] = -1
    data, state = Data(y=y, num_nodes=2400), torch.get_rng_state()
    parts = split(data, protocol, 0)
    assert torch.equal(torch.get_rng_state(), state)
    assert tuple(part.numel() for part in parts.values()) == sizes
    together = torch.cat(list(parts.values()))
    assert together.unique().numel() == together.numel()
    assert (y[together] >= 0).all()
    if protocol == 'random-20-per-class':
        assert torch.bincount(y[parts['train']]).tolist() == [20, 20, 20]
    again, other = split(data, protocol, 0), split(data, protocol, 1)
    assert all(torch.equal(parts[name], again[name]) for name in parts)
    assert not torch.equal(parts['test'], other['test'])


@pytest.mark.parametrize(
    ('protocol', 'sizes'),
    [('published-20-per-class', (60, 500, 1000)), ('published-50-25-25', (1000, 500, 501))],
)
def test_published_splits_are_one_for_all_seeds(protocol, sizes):
    """Drawn as the authors' programs do from global generators; NumPy's gives these numbers after
    np.random.seed(42)."""
    y = torch.arange(2001) % 3
    parts, other = (split(Data(y=y, num_nodes=2001), protocol, seed) for seed in (0, 1))
    assert all(torch.equal(parts[name], other[name]) for name in parts)
    assert tuple(part.numel() for part in parts.values()) == sizes
    assert torch.cat(list(parts.values())).unique().numel() == sum(sizes)
    if protocol == 'published-50-25-25':
        assert parts['train'][:6].tolist() == [1394, 353, 1334, 906, 1290, 1274]
    else:
        torch.manual_seed(123)
        orders = [torch.randperm(667) for _ in range(3)]
        assert parts['train'].tolist() == [
            3 * int(row) + label for label, order in enumerate(orders) for row in order[:20]
        ]
        rest = torch.cat([3 * order[20:] + label for label, order in enumerate(orders)])
        assert torch.equal(
            torch.cat([parts['valid'], parts['test']]), rest[torch.randperm(1941)][:1500]
        )


def test_fixed_splits_by_number():
    masks = {
        f'{part}_mask': torch.eye(3, dtype=torch.bool).roll(i, 0)[:, :2]
        for i, part in enumerate(('train', 'val', 'test'))
    }
    data = Data(y=torch.zeros(3), **masks)
    assert [part.tolist() for part in split(data, 'fixed-splits', 1).values()] == [[1], [2], [0]]
    assert [part.tolist() for part in split(data, 'fixed-splits', 2).values()] == [[0], [1], [2]]
    with pytest.raises(ValueError, match="'protocol' = 'fixed-splits' needs"):
        split(Data(y=torch.zeros(3)), 'fixed-splits', 0)


def test_newsgroups_become_weights_of_words(monkeypatch, tmp_path):
    seen = {}

    def fetch(data_home, subset, categories):
        seen.update(data_home=data_home, subset=subset, topics=len(categories))
        return Bunch(
            data=['orbit rocket', 'hockey goal', 'rocket rocket goal'], target=np.array([0, 1, 0])
        )

    monkeypatch.setattr(sklearn.datasets, 'fetch_20newsgroups', fetch)
    data = load(str(tmp_path), '20news', 1)
    assert seen == {'data_home': str(tmp_path), 'subset': 'all', 'topics': 10}
    assert data.x.shape == (3, 4)
    torch.testing.assert_close(data.x.norm(dim=1), torch.ones(3))
    assert data.y.tolist() == [0, 1, 0]
    assert sorted(data.edge_index.t().tolist()) == [[0, 2], [1, 2], [2, 0], [2, 1]]
