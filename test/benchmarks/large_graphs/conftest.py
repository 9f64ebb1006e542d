import errno
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from benchmarks.large_graphs import datasets

N, E = 60, 240


@pytest.fixture
def ogb(monkeypatch, constants, tmp_path):
    """Fails where a question or a server is asked."""
    constants(checkpoints=tmp_path / 'checkpoints')
    monkeypatch.setattr('builtins.input', lambda *_: pytest.fail('a question was asked'))
    monkeypatch.setattr(
        'urllib.request.urlopen', lambda *_, **__: pytest.fail('a server was asked')
    )
    monkeypatch.setattr(
        datasets, 'download_file', lambda *_, **__: pytest.fail('a server was asked')
    )
    monkeypatch.chdir(tmp_path)


def _save(name, seed=0):
    """A small data set in OGB's own format and of its own making."""
    datasets._package()
    from ogb.io import DatasetSaver

    random = np.random.default_rng(seed)
    saver = DatasetSaver(dataset_name=name, is_hetero=False, version=1)
    graph = {'num_nodes': N, 'edge_index': random.integers(0, N, (2, E))}
    if name == 'ogbn-proteins':
        graph |= {
            'edge_feat': random.random((E, 8), dtype=np.float32),
            'node_species': random.integers(0, 9, (N, 1)),
        }
        labels, task = random.integers(0, 2, (N, 112)), ('binary classification', 'rocauc', 2)
        # ogb's evaluator takes long for each label in which the nodes differ
        labels[:, 8:] = 0
    else:
        graph['node_feat'] = random.random((N, 6), dtype=np.float32)
        labels, task = random.integers(0, 4, (N, 1)), ('multiclass classification', 'acc', 4)
    saver.save_graph_list([graph])
    saver.save_target_labels(labels)
    parts = np.split(random.permutation(N), [30, 45])
    saver.save_split(dict(zip(('train', 'valid', 'test'), parts, strict=True)), split_name='time')
    saver.save_task_info(task_type=task[0], eval_metric=task[1], num_classes=task[2])
    mapping = Path('mapping')
    mapping.mkdir()
    (mapping / 'README.md').write_text('none')
    saver.copy_mapping_dir('mapping')
    saver.get_meta_dict()
    return saver.submission_dir, graph, labels, parts


@pytest.fixture
def save():
    """Saves a small data set."""
    return _save


@pytest.fixture
def full_disk(monkeypatch):
    """Makes the disk full for the files that a module allocates."""

    def fill(module):
        def allocate(path, num_bytes):
            raise OSError(errno.ENOSPC, f'No space left; it needs {num_bytes} bytes', str(path))

        monkeypatch.setattr(import_module(module), 'allocate', allocate)

    return fill
