import gc
import gzip
import os
import pickle
import sys
import zipfile

import numpy as np
import pytest
import torch

from benchmarks.common.files import DataError
from benchmarks.common.scripts import run_script
from benchmarks.large_graphs import datasets
from benchmarks.ogb import ogbn_arxiv
from torch_geometric_lgt.data import MappedGraph

N, E = 60, 240


def test_data_are_those_that_were_saved(save, ogb):
    root, graph, labels, parts = save('ogbn-arxiv')
    task = datasets.load_ogb_task('ogbn-arxiv', root)
    assert np.array_equal(task.data.edge_index.numpy(), graph['edge_index'])
    assert np.array_equal(task.data.y.numpy(), labels)
    assert np.array_equal(task.split['valid'].numpy(), parts[1])
    assert (task.num_outputs, task.binary, task.metric) == (4, False, 'accuracy')
    scores = torch.nn.functional.one_hot(task.data.y.squeeze(1), 4).float()
    assert task.measure(scores, task.data.y) == 1
    assert task.measure(-scores, task.data.y) == 0


def test_a_task_holds_its_graph_once(save, ogb):
    root, *_ = save('ogbn-arxiv')
    task = datasets.load_ogb_task('ogbn-arxiv', root)
    gc.collect()
    kind = datasets._package().PygNodePropPredDataset
    assert not any(isinstance(thing, kind) for thing in gc.get_objects())
    assert task.measure(torch.eye(4)[task.data.y[:, 0]], task.data.y) == 1


def test_files_of_another_graph_are_refused(save, ogb, tmp_path):
    root, *_ = save('ogbn-papers100M')
    task = datasets.load_ogb_task('ogbn-papers100M', root)
    mapped = datasets.map_graph(task, 'mapped').data
    assert (mapped.num_nodes, mapped.num_edges) == (N, 2 * E)
    assert torch.equal(mapped['x'], task.data.x.half())
    files = mapped.files
    assert datasets.map_graph(task, 'mapped').data.files == files
    labels, edges = task.data.clone(), task.data.clone()
    labels.y[task.split['valid'][0]] += 1
    edges.edge_index = edges.edge_index[:, 1:]
    for other in (labels, edges):
        with pytest.raises(DataError, match='mapped has another graph or other labels'):
            datasets.map_graph(task._replace(data=other), 'mapped')
    assert MappedGraph('mapped').files == files


def test_scores_of_a_training_that_diverged_have_a_roc_auc(save, ogb):
    """They ended the run, with the seeds before, in an error of scikit-learn."""
    root, *_ = save('ogbn-proteins')
    task = datasets.load_ogb_task('ogbn-proteins', root)
    labels = task.data.y
    scores = labels.float()
    assert task.measure(scores, labels) == 1
    scores[:, 0] = torch.nan
    assert task.measure(scores, labels) == pytest.approx((7 + 0.5) / 8, abs=1e-12)
    assert task.measure(torch.full_like(scores, torch.inf), labels) == 0.5


def test_a_folder_for_the_graph_is_empty_or_has_one(save, ogb, tmp_path):
    """An empty folder, and one with other files, ended in a traceback."""
    root, *_ = save('ogbn-papers100M')
    task = datasets.load_ogb_task('ogbn-papers100M', root)
    for name in ('new', 'other'):
        (tmp_path / name).mkdir()
    (tmp_path / 'other' / 'notes').touch()
    (tmp_path / 'file').touch()
    assert datasets.map_graph(task, 'new').data.num_nodes == N
    for name in ('other', 'file'):
        with pytest.raises(DataError, match=f'^{name} holds no graph in files; give another'):
            datasets.map_graph(task, name)


def test_a_graph_that_cannot_be_written_ends_in_one_line(save, ogb, full_disk):
    root, *_ = save('ogbn-papers100M')
    task = datasets.load_ogb_task('ogbn-papers100M', root)
    full_disk('torch_geometric_lgt.data._files')
    with pytest.raises(DataError, match=r'^mapped cannot be written \(No space .*\); make room'):
        datasets.map_graph(task, 'mapped')


def test_a_planted_object_is_refused(save, ogb, tmp_path):
    root, *_ = save('ogbn-arxiv')
    datasets.load_ogb_task('ogbn-arxiv', root)

    class Planted:
        def __reduce__(self):
            return (open, (str(tmp_path / 'ran'), 'w'))

    path = tmp_path / root / 'arxiv' / 'processed' / 'geometric_data_processed.pt'
    torch.save(Planted(), path)
    with pytest.raises(
        pickle.UnpicklingError, match=r"geometric_data_processed.pt': _?io.open is no array\);"
    ):
        datasets.load_ogb_task('ogbn-arxiv', root)
    assert not (tmp_path / 'ran').exists()


class Planted:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize('variable', ['0', '1'])
@pytest.mark.parametrize(
    'name',
    [
        'processed/pre_transform.pt',
        'processed/pre_filter.pt',
        'processed/geometric_data_processed.pt',
        'split/time/split_dict.pt',
        '../meta_dict.pt',
    ],
)
def test_planted_objects_do_not_run(save, name, variable, ogb, monkeypatch, tmp_path):
    monkeypatch.setenv('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', variable)
    root, *_ = save('ogbn-arxiv')
    datasets.load_ogb_task('ogbn-arxiv', root)
    path = tmp_path / root / 'arxiv' / name
    assert path.exists()
    torch.save(Planted(tmp_path / 'ran'), path)
    with pytest.raises(
        pickle.UnpicklingError,
        match=f"a file in '{root}' holds more than arrays, and was not run.*remove the folders",
    ):
        datasets.load_ogb_task('ogbn-arxiv', root)
    assert not (tmp_path / 'ran').exists()


@pytest.mark.parametrize('variable', ['0', '1'])
def test_what_ogb_writes_is_read_again(save, variable, ogb, monkeypatch):
    monkeypatch.setenv('TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD', variable)
    root, graph, _, parts = save('ogbn-arxiv')
    for _ in range(2):
        task = datasets.load_ogb_task('ogbn-arxiv', root)
        assert np.array_equal(task.data.edge_index.numpy(), graph['edge_index'])
        assert all(
            np.array_equal(task.split[name].numpy(), part)
            for name, part in zip(('train', 'valid', 'test'), parts, strict=True)
        )


def test_nothing_is_asked_where_a_described_file_is_missing(save, ogb, tmp_path):
    """Neither a question nor a server: the address in a description is not followed."""
    root, *_ = save('ogbn-arxiv')
    folder = tmp_path / root / 'arxiv'
    (folder / 'raw' / 'data.npz').unlink()
    with pytest.raises(FileNotFoundError, match=r'lacks one of .*data.npz.*remove the folder'):
        datasets.load_ogb_task('ogbn-arxiv', root)
    (folder / 'RELEASE_v1.txt').unlink()
    with pytest.raises(
        FileNotFoundError,
        match=r'does not hold version 1 of ogbn-arxiv, which meta_dict.pt describes',
    ):
        datasets.load_ogb_task('ogbn-arxiv', root)


def test_a_description_of_another_data_set_is_refused(save, ogb):
    """The script of ogbn-products trained on the data of ogbn-arxiv, without a word."""
    root, *_ = save('ogbn-arxiv')
    with pytest.raises(
        FileNotFoundError,
        match=r'meta_dict.pt describes the data set arxiv, not ogbn-products; give the folder of',
    ):
        datasets.load_ogb_task('ogbn-products', root)


def test_missing_and_old_data(ogb, tmp_path):
    with pytest.raises(
        FileNotFoundError,
        match=(
            r'unpack https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip and name the '
            r'folder so'
        ),
    ):
        datasets.load_ogb_task('ogbn-arxiv', tmp_path / 'none')
    (tmp_path / 'ogbn_arxiv').mkdir()
    (tmp_path / 'ogbn_arxiv' / 'RELEASE_v0.txt').touch()
    with pytest.raises(FileNotFoundError, match='does not hold version 1'):
        datasets.load_ogb_task('ogbn-arxiv', tmp_path, download=True)
    with pytest.raises(ValueError, match="'name' must be one of ogbn-proteins"):
        datasets.load_ogb_task('ogbn-other', tmp_path)


@pytest.mark.parametrize(
    'name',
    [
        'processed/geometric_data_processed.pt',
        'processed/pre_filter.pt',
        'raw/data.npz',
        '../meta_dict.pt',
    ],
)
def test_files_that_cannot_be_read_end_in_one_line(save, name, ogb, monkeypatch, tmp_path):
    root, *_ = save('ogbn-arxiv')
    datasets.load_ogb_task('ogbn-arxiv', root)
    path = tmp_path / root / 'arxiv' / name
    content = path.read_bytes()
    monkeypatch.setattr(sys, 'argv', ['x', '--root', root])

    def message():
        with pytest.raises(SystemExit) as end:
            run_script(ogbn_arxiv.main)
        (line,) = end.value.code.splitlines()
        return line

    if path.suffix == '.pt':
        for broken in (content[:-50], b''):
            path.write_bytes(broken)
            assert f"{path.name}' cannot be read (" in message()
        torch.save(Planted(tmp_path / 'ran'), path)
        assert f"{path.name}': {os.name}.mkdir is no array); remove" in message()
        assert 'weights_only' not in message()
    path.unlink()
    os.mkfifo(path)
    assert f"{path.name}', a pipe, device or socket); remove it" in message()


def write_archive(path, name):
    """A small data set in the files of ogb's download, packed as it is."""
    random = np.random.default_rng(0)
    files = {
        'raw/edge': random.integers(0, N, (E, 2)),
        'raw/num-node-list': np.array([[N]]),
        'raw/num-edge-list': np.array([[E]]),
        'raw/node-feat': random.random((N, 6)).round(3),
        'raw/node_year': np.full((N, 1), 2020),
        'raw/node-label': random.integers(0, 40, (N, 1)),
        **{
            f'split/time/{part}': nodes[:, None]
            for part, nodes in zip(
                ('train', 'valid', 'test'), np.split(np.arange(N), 3), strict=True
            )
        },
    }
    with zipfile.ZipFile(path, 'w') as archive:
        for file, rows in files.items():
            lines = '\n'.join(','.join(map(str, row)) for row in rows.tolist())
            archive.writestr(f'{name}/{file}.csv.gz', gzip.compress(f'{lines}\n'.encode()))
        archive.writestr(f'{name}/RELEASE_v1.txt', '')
    return files


def test_download(monkeypatch, tmp_path, file_server):
    folder, url = file_server
    listed = datasets._listed_properties('ogbn-arxiv')
    assert listed['url'].startswith('https://')
    monkeypatch.setattr(
        datasets, '_listed_properties', lambda name: listed | {'url': f'{url}/arxiv.zip'}
    )
    root = tmp_path / 'data'
    with pytest.raises(RuntimeError, match=r'ogbn_arxiv cannot be downloaded \(HTTP Error 404'):
        datasets.load_ogb_task('ogbn-arxiv', root, download=True)
    files = write_archive(folder / 'arxiv.zip', listed['download_name'])
    whole = (folder / 'arxiv.zip').read_bytes()
    (folder / 'arxiv.zip').write_bytes(whole[:-100])
    victim = tmp_path / 'victim'
    victim.mkdir()
    root.mkdir(exist_ok=True)
    links = [root / '.ogbn_arxiv.zip', root / '.ogbn_arxiv.unpacked']
    for link in links:
        link.symlink_to(victim)
    with pytest.raises(
        RuntimeError,
        match=(
            r'not a zip file.*run again, or fetch it with a program that goes on after a break, '
            r'unpack'
        ),
    ):
        datasets.load_ogb_task('ogbn-arxiv', root, download=True)
    for link in links:
        link.unlink()
    assert list(root.iterdir()) == []
    assert list(victim.iterdir()) == []
    (folder / 'arxiv.zip').write_bytes(whole)
    task = datasets.load_ogb_task('ogbn-arxiv', root, download=True)
    assert np.array_equal(task.data.edge_index.numpy(), files['raw/edge'].T)
    np.testing.assert_allclose(task.data.x.numpy(), files['raw/node-feat'], rtol=1e-6)
    assert task.split['test'].tolist() == [*range(40, 60)]
    (folder / 'arxiv.zip').unlink()
    assert datasets.load_ogb_task('ogbn-arxiv', root).num_outputs == 40
