import os
import re
import sys
import zipfile

import numpy as np
import pytest
import sklearn.datasets
import torch
from sklearn.utils import Bunch
from torch_geometric.data import Data

from benchmarks.common.scripts import DataError, run_script
from benchmarks.node_classification import __main__ as node_classification
from benchmarks.node_classification import run
from benchmarks.node_classification.datasets import load, prepare_features, split


def write(path, **arrays):
    np.savez(
        path, edges=np.array([[0, 1], [1, 2], [2, 2], [1, 0]]), y=np.array([0, 1, -1]), **arrays
    )


def test_files_of_ones_or_of_features(tmp_path):
    write(
        tmp_path / 'ones.npz', feat_indptr=np.array([0, 2, 2, 3]), feat_indices=np.array([0, 3, 1])
    )
    write(tmp_path / 'dense.npz', x=np.array([[1.0, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]]))
    for name in ('ones.npz', 'dense.npz'):
        data = load(str(tmp_path), name)
        assert data.x.tolist() == [[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]]
        assert data.edge_index.t().tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
        assert data.y.tolist() == [0, 1, -1]
        assert prepare_features(data, normalize=True).x.tolist() == [
            [0.5, 0, 0, 0.5],
            [0, 0, 0, 0],
            [0, 1, 0, 0],
        ]
        assert data.x[0, 0] == 1


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


def test_a_file_that_would_be_unpickled_is_refused(tmp_path):
    np.savez(tmp_path / 'bad.npz', edges=np.array([{'a': 1}], dtype=object))
    with pytest.raises(
        ValueError, match=r"bad.npz' must be an intact .npz file of numbers \(it holds objects\)"
    ):
        load(str(tmp_path), 'bad.npz')


ONES = {'feat_indptr': np.array([0, 2, 2, 3]), 'feat_indices': np.array([0, 3, 1])}
FAULTS = {
    "'edges' must be integers of shape": [
        *(
            {'edges': np.array([[0, 1, 2], [1, 2, 0]])},
            {'edges': np.array([[0.0, 1.5]])},
            {'edges': np.array([['a', 'b']])},
        ),
        {'edges': np.array([0, 1])},
    ],
    "'edges' must be from 0 to 2": [
        {'edges': np.array([[0, 3]])},
        {'edges': np.array([[-1, 0]])},
        {'edges': np.array([[2**64 - 1, 0]], np.uint64)},
    ],
    "must hold 'edges'": [{'edges': None}],
    "must hold 'y'": [{'y': None}],
    "must hold 'x'": [{'x': None}, {'x': None, 'feat_indices': np.array([0])}],
    "must hold 'feat_indices'": [{'x': None, 'feat_indptr': np.array([0, 0, 0, 1])}],
    "'y' must have a label for each node": [{'y': np.array([0, 1])}, {'y': np.array([0, 1, 1, 0])}],
    "'y' must be integers of shape": [
        *(
            {'y': np.array([0.0, np.nan, 1.0])},
            {'y': np.array([[0], [1], [1]])},
            {'y': np.array([0.0, 1.0, 1.0])},
        ),
    ],
    "'y' must be from -1": [
        {'y': np.array([0, -2, 1])},
        {'y': np.array([0, 2**64 - 1, 1], np.uint64)},
    ],
    "'x' must be finite": [
        {'x': np.array([[0.0], [np.nan], [1.0]])},
        {'x': np.array([[0.0], [1e300], [1.0]])},
    ],
    "'x' must be numbers of shape": [{'x': np.zeros(3)}, {'x': np.zeros((3, 2), complex)}],
    "'feat_indptr' must not decrease": [
        {'x': None, **ONES, 'feat_indptr': np.array(pointer)}
        for pointer in ([0, 2, 1, 3], [1, 2, 2, 3], [0, 2, 2, 4], [])
    ][:3],
    "'feat_indptr' must be integers": [{'x': None, **ONES, 'feat_indptr': np.zeros(0)}],
    "'feat_indices' must be from 0": [{'x': None, **ONES, 'feat_indices': np.array([0, -1, 1])}],
}


@pytest.mark.parametrize(
    ('message', 'change'),
    [(message, change) for message, changes in FAULTS.items() for change in changes],
)
def test_faults_of_a_file_are_named(message, change, tmp_path):
    arrays = {
        'edges': np.array([[0, 1], [1, 2]]),
        'y': np.array([0, 1, -1]),
        'x': np.eye(3),
    } | change
    np.savez(
        tmp_path / 'bad.npz', **{name: value for name, value in arrays.items() if value is not None}
    )
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        load(str(tmp_path), 'bad.npz')
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize('compressed', [False, True])
def test_a_file_that_is_no_npz_file_ends_in_one_line(compressed, monkeypatch, tmp_path):
    path, save = tmp_path / 'bad.npz', np.savez_compressed if compressed else np.savez
    save(path, edges=np.array([[0, 1], [1, 2]]), y=np.array([0, 1, -1]), x=np.eye(3))
    whole = path.read_bytes()
    np.save(tmp_path / 'one.npy', np.eye(3))
    broken = [
        whole[:-30],
        whole[: len(whole) // 2],
        b'',
        b'0 1\n1 2\n',
        (tmp_path / 'one.npy').read_bytes(),
    ]
    broken += [
        whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :]
        for place in range(40, len(whole), 97)
    ]
    monkeypatch.setattr(
        sys,
        'argv',
        [
            'x',
            '--root',
            str(tmp_path),
            '--dataset',
            'bad.npz',
            '--output',
            str(tmp_path),
            '--set',
            'epochs=1',
        ],
    )
    monkeypatch.setattr(
        run,
        'fingerprint',
        lambda *_: (_ for _ in ()).throw(DataError('it was read')),
    )
    for content in broken:
        path.write_bytes(content)
        with pytest.raises(SystemExit, match=r'^x: error: .*$') as end:
            run_script(node_classification.main)
        assert len(end.value.code.splitlines()) == 1
    with zipfile.ZipFile(path, 'w') as archive:
        archive.writestr('y', 'no array')
    with pytest.raises(SystemExit, match=r"'y' must be integers of shape"):
        run_script(node_classification.main)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SystemExit, match=r"bad.npz', a pipe, device or socket"):
        run_script(node_classification.main)


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


def test_unknown_names_are_told():
    with pytest.raises(ValueError, match=r"'dataset' must be a .npz file or one of cora"):
        load('', 'coras')


@pytest.mark.parametrize(
    ('protocol', 'sizes'),
    [
        ('random-20-per-class', (60, 500, 1000)),
        ('random-50-25-25', (1000, 500, 500)),
        ('random-60-20-20', (1200, 400, 400)),
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
