"""Files of the node classification benchmark that its readers would unpickle."""

import codecs
import gc
import os
import pickle
import warnings

import numpy as np
import pytest
import torch
from scipy.io import savemat
from scipy.sparse import csr_matrix
from sklearn.utils import Bunch
from torch_geometric.datasets import Planetoid

from benchmarks.node_classification.datasets import TOPICS, load

# the 500 nodes of the published validation part are not those of the test
N = 1600
TEST = 1000


class Planted:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def planetoid(root):
    """Files like those of Cora, of the same types and with random content."""
    folder, random = root / 'Planetoid' / 'Cora' / 'raw', np.random.default_rng(0)
    folder.mkdir(parents=True)
    x = csr_matrix(random.random((N, 5)).astype(np.float32).round())
    y = np.eye(7, dtype=np.int32)[random.integers(0, 7, N)]
    graph = {node: random.integers(0, N, 3).tolist() for node in range(N)}
    rest = N - TEST
    files = {
        'x': x[:60],
        'tx': x[rest:],
        'allx': x[:rest],
        'y': y[:60],
        'ty': y[rest:],
        'ally': y[:rest],
        'graph': graph,
    }
    for name, value in files.items():
        (folder / f'ind.cora.{name}').write_bytes(pickle.dumps(value, 3))
    (folder / 'ind.cora.test.index').write_text(
        '\n'.join(map(str, random.permutation(np.arange(rest, N)))) + '\n'
    )
    return folder


def test_planetoid_is_read_as_pyg_reads_it(tmp_path):
    planetoid(tmp_path / 'ours')
    planetoid(tmp_path / 'theirs')
    actual = load(str(tmp_path / 'ours'), 'cora')
    expected = Planetoid(str(tmp_path / 'theirs' / 'Planetoid'), 'Cora')[0]
    for name in ('x', 'y', 'train_mask', 'val_mask', 'test_mask'):
        assert torch.equal(actual[name], expected[name])
    assert torch.equal(load(str(tmp_path / 'ours'), 'cora').x, expected.x)


@pytest.mark.parametrize('name', ['x', 'tx', 'allx', 'y', 'ty', 'ally', 'graph'])
def test_planted_raw_files_of_planetoid_do_not_run(name, tmp_path):
    folder = planetoid(tmp_path)
    (folder / f'ind.cora.{name}').write_bytes(pickle.dumps(Planted(tmp_path / 'ran'), 2))
    with pytest.raises(
        pickle.UnpicklingError,
        match=r"Planetoid' holds more than arrays, and was not run \(posix.mkdir",
    ):
        load(str(tmp_path), 'cora')
    assert not (tmp_path / 'ran').exists()


@pytest.mark.parametrize('name', ['pre_transform.pt', 'pre_filter.pt', 'data.pt'])
def test_planted_processed_files_do_not_run(name, tmp_path):
    folder = planetoid(tmp_path)
    load(str(tmp_path), 'cora')
    path = folder.parent / 'processed' / name
    assert path.exists()
    torch.save(Planted(tmp_path / 'ran'), path)
    with pytest.raises(
        pickle.UnpicklingError,
        match=r"Planetoid' holds more than arrays, and was not run.*remove the folders 'processed'",
    ):
        load(str(tmp_path), 'cora')
    assert not (tmp_path / 'ran').exists()


@pytest.mark.parametrize('name', ['raw/ind.cora.x', 'processed/data.pt'])
def test_a_pipe_is_refused_and_not_waited_for(name, tmp_path):
    folder = planetoid(tmp_path)
    load(str(tmp_path), 'cora')
    path = folder.parent / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match=f"must be a regular file .*{path.name}', a pipe"):
        load(str(tmp_path), 'cora')


def test_planted_splits_do_not_run(tmp_path):
    folder, random = tmp_path / 'LINKXDataset' / 'penn94' / 'raw', np.random.default_rng(0)
    folder.mkdir(parents=True)
    savemat(
        folder / 'data.mat',
        {
            'A': csr_matrix(random.random((30, 30)).round()),
            'local_info': random.integers(1, 3, (30, 7)),
        },
    )
    splits = [
        dict(
            zip(('train', 'valid', 'test'), np.split(random.permutation(30), [10, 20]), strict=True)
        )
        for _ in range(5)
    ]
    np.save(folder / 'fb100-Penn94-splits.npy', np.array(splits), allow_pickle=True)
    data = load(str(tmp_path), 'penn94')
    assert [
        sorted(data.train_mask[:, number].nonzero().flatten().tolist()) for number in range(5)
    ] == [sorted(split['train'].tolist()) for split in splits]
    (folder.parent / 'processed' / 'data.pt').unlink()
    np.save(
        folder / 'fb100-Penn94-splits.npy',
        np.array([Planted(tmp_path / 'ran')], dtype=object),
        allow_pickle=True,
    )
    with pytest.raises(
        pickle.UnpicklingError, match="LINKXDataset' holds more than arrays, and was not run"
    ):
        load(str(tmp_path), 'penn94')
    assert not (tmp_path / 'ran').exists()


def test_planted_arrays_do_not_run(tmp_path):
    folder = tmp_path / 'DeezerEurope' / 'raw'
    folder.mkdir(parents=True)
    edges, features = np.array([[0, 1], [1, 2]]), np.eye(3)
    np.savez(folder / 'deezer_europe.npz', edges=edges, features=features, target=np.arange(3))
    assert load(str(tmp_path), 'deezer').x.shape == (3, 3)
    (folder.parent / 'processed' / 'data.pt').unlink()
    planted = np.array([Planted(tmp_path / 'ran')], dtype=object)
    np.savez(
        folder / 'deezer_europe.npz',
        edges=edges,
        features=planted,
        target=np.arange(3),
        allow_pickle=True,
    )
    with pytest.raises(
        pickle.UnpicklingError, match="DeezerEurope' holds more than arrays, and was not run"
    ):
        load(str(tmp_path), 'deezer')
    assert not (tmp_path / 'ran').exists()
    with warnings.catch_warnings():  # PyG leaves the file open
        warnings.simplefilter('ignore', ResourceWarning)
        gc.collect()


def newsgroups(planted):
    names = [*TOPICS, *(f'other.{number}' for number in range(10))]
    part = {
        'data': ['rocket orbit', 'goal hockey'],
        'filenames': np.array(['a', 'b']),
        'target': np.array([0, 5]),
        'target_names': names,
    }
    bunches = {name: Bunch(**part) for name in ('train', 'test')}
    return codecs.encode(pickle.dumps(bunches | {'planted': planted}), 'zlib_codec')


def test_planted_texts_do_not_run(monkeypatch, tmp_path):
    path = tmp_path / '20news-bydate_py3.pkz'
    path.write_bytes(newsgroups(None))
    assert load(str(tmp_path), '20news', 0).y.tolist().count(0) == 2
    path.write_bytes(newsgroups(Planted(tmp_path / 'ran')))
    monkeypatch.setattr(
        'sklearn.datasets._twenty_newsgroups._fetch_remote',
        lambda *_, **__: (_ for _ in ()).throw(OSError('no network')),
    )
    with pytest.raises(
        OSError, match='no network'
    ):  # scikit-learn fetches the archive, whose checksum it knows, and replaces the file
        load(str(tmp_path), '20news', 0)
    assert not (tmp_path / 'ran').exists()
