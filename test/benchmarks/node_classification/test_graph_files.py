import os
import re
import sys
import zipfile

import numpy as np
import pytest

from benchmarks.common.files import DataError
from benchmarks.common.scripts import run_script
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


def heterophilous(**changes):
    """Returns the arrays of five nodes with two splits, named as the authors name them."""
    train = np.array([[1, 1, 0, 0, 0], [0, 0, 1, 1, 0]], bool)
    val = np.array([[0, 0, 1, 0, 0], [0, 1, 0, 0, 0]], bool)
    arrays = {
        'node_features': np.eye(5, 3),
        'node_labels': np.array([0, 1, 1, 0, 2]),
        'edges': np.array([[0, 1], [1, 0], [1, 2], [3, 3], [2, 4]]),
        'train_masks': train,
        'val_masks': val,
        'test_masks': ~train & ~val,
    }
    return {name: value for name, value in (arrays | changes).items() if value is not None}


HETEROPHILOUS = ('node_features', 'node_labels')


@pytest.mark.parametrize('names', [HETEROPHILOUS, ('x', 'y')])
def test_files_with_splits(names, tmp_path):
    arrays = heterophilous()
    arrays |= {name: arrays.pop(old) for name, old in zip(names, HETEROPHILOUS, strict=True)}
    np.savez(tmp_path / 'graph.npz', **arrays)
    data = load(str(tmp_path), 'graph.npz')
    assert data.x.tolist() == np.eye(5, 3).tolist()
    assert data.y.tolist() == [0, 1, 1, 0, 2]
    assert data.edge_index.t().tolist() == [[0, 1], [1, 0], [1, 2], [2, 1], [2, 4], [4, 2]]
    parts = [split(data, 'fixed-splits', seed) for seed in range(3)]
    assert [[part.tolist() for part in found.values()] for found in parts] == [
        [[0, 1], [2], [3, 4]],
        [[2, 3], [1], [0, 4]],
        [[0, 1], [2], [3, 4]],
    ]


FAULTS_OF_SPLITS = {
    "must hold 'node_features'": {'node_features': None},
    "must hold 'node_labels'": {'node_labels': None},
    "must hold 'edges'": {'edges': None},
    **{f"must hold '{part}_masks'": {f'{part}_masks': None} for part in ('train', 'val', 'test')},
    "'node_features' must be finite": {'node_features': np.full((5, 3), np.inf)},
    "'node_features' must be numbers of shape [*, *]": {'node_features': np.zeros(5)},
    "'node_labels' must have a label for each node (got 5 for 4 nodes)": {
        'node_features': np.eye(4, 3)
    },
    "'edges' must be from 0 to 4 (got 0 to 5)": {'edges': np.array([[0, 5]])},
    "'train_masks' must be booleans of shape [*, 5] (got bool [2, 4])": {
        'train_masks': np.ones((2, 4), bool)
    },
    "'train_masks' must be booleans of shape [*, 5] (got int64 [2, 5])": {
        'train_masks': np.ones((2, 5), np.int64)
    },
    "'val_masks' must be booleans of shape [2, 5] (got bool [3, 5])": {
        'val_masks': np.zeros((3, 5), bool)
    },
    "'test_masks' must be booleans of shape [2, 5] (got bool [5, 2])": {
        'test_masks': np.zeros((5, 2), bool)
    },
    "'train_masks' must have a node in each split (got no split)": {
        f'{part}_masks': np.zeros((0, 5), bool) for part in ('train', 'val', 'test')
    },
    "'val_masks' must have a node in each split (got none in split 1)": {
        'val_masks': np.array([[0, 0, 1, 0, 0], [0, 0, 0, 0, 0]], bool)
    },
    'must not share nodes (got node 4 in two parts of split 1)': {
        'val_masks': np.array([[0, 0, 1, 0, 0], [0, 1, 0, 0, 1]], bool)
    },
    "'test_masks' must have labelled nodes (got node 4 of 'node_labels' -1)": {
        'node_labels': np.array([0, 1, 1, 0, -1])
    },
}


@pytest.mark.parametrize(('message', 'change'), FAULTS_OF_SPLITS.items())
def test_faults_of_splits_are_named(message, change, tmp_path):
    np.savez(tmp_path / 'bad.npz', **heterophilous(**change))
    with pytest.raises(ValueError, match=re.escape(message)) as raised:
        load(str(tmp_path), 'bad.npz')
    assert len(str(raised.value).splitlines()) == 1


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
