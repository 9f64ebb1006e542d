"""Files that are damaged, planted, late or impossible to write."""

import contextlib
import gc
import gzip
import io
import json
import os
import pickle
import signal
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import fault_works as works
import pytest
import torch
from fault_works import graph
from filelock import FileLock, Timeout
from pyarrow import Table, parquet

from torch_geometric_lgt import _io
from torch_geometric_lgt.data import MappedGraph, write_graph
from torch_geometric_lgt.data._files import mapped
from torch_geometric_lgt.datasets import InteractionDataset, SBMDataset, _sources
from torch_geometric_lgt.diagnostics import check_fresh
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.nn import DIFFormer, JaccardSubtractorConv, KernelAttentionConv
from torch_geometric_lgt.nn.models._streaming.workspace import Workspace
from torch_geometric_lgt.transforms import JaccardScores, LaplacianPE, SVDEncoding

KILLS = 25  # of each of the four that write files
WORKS = [works.preprocess, works.checkpoints, works.inference, works.convert]
FEW_WRITES = [works.preprocess, works.few_checkpoints, works.inference_in_halves, works.convert]
WRITERS = [works.cache, works.state, works.dataset, works.convert]


@pytest.mark.fault(
    'stale-scores',
    'Caches are named by a checksum of the graph: another graph has another file. Scores of '
    'another length are refused, those of another '
    'graph with as many edges found by check_fresh.',
)
def test_graph_that_changed(tmp_path):
    data, transform = graph(), SVDEncoding(3, cache_dir=tmp_path)
    before = transform(data).svd_pe
    data.edge_index = data.edge_index[:, 1:-1]
    after = transform(data).svd_pe
    torch.testing.assert_close(after, SVDEncoding(3)(data).svd_pe)
    assert not torch.allclose(before, after)
    assert len([*tmp_path.glob('*.safetensors')]) == 2
    conv = JaccardSubtractorConv(4, 4, heads=2)
    with pytest.raises(ValueError, match="'edge_jaccard' must"):
        conv(data.x, data.edge_index, torch.ones(data.num_edges + 2))
    data = JaccardScores()(data)
    check_fresh(data, [JaccardScores()])
    data.edge_index = data.edge_index.roll(1, 1)
    with pytest.raises(
        ValueError, match=r"'edge_jaccard' is not what JaccardScores\(.*\) adds to this graph"
    ):
        check_fresh(data, [JaccardScores()])


@pytest.mark.fault(
    'kill',
    'Files are whole or not there; the next run goes on and ends as if there had been no kill.',
)
@pytest.mark.parametrize('work', WORKS, ids=lambda work: work.__name__)
def test_killed_at_any_moment(work, tmp_path, start, exit_code, killed):
    (tmp_path / 'whole').mkdir()
    started = time.perf_counter()
    assert exit_code(start(work, tmp_path / 'whole')) == 0
    longest, whole = time.perf_counter() - started, work(tmp_path / 'whole')
    kills, folders = 0, []
    while kills < KILLS:
        folders.append(tmp_path / str(len(folders)))
        folders[-1].mkdir()
        if killed(work, folders[-1], longest, len(folders)):
            kills += 1
        else:
            longest *= 0.9
    # with as many threads: sums in the same order
    assert exit_code(start(works.go_on, work, folders)) == 0
    for folder in folders:
        torch.testing.assert_close(work(folder), whole, rtol=0, atol=0)


@pytest.mark.parametrize('work', FEW_WRITES, ids=lambda work: work.__name__)
def test_killed_in_each_write(work, tmp_path, start, exit_code):
    (tmp_path / 'whole').mkdir()
    assert exit_code(start(work, tmp_path / 'whole')) == 0
    whole, folders, code = work(tmp_path / 'whole'), [], -signal.SIGKILL
    while code != 0:
        assert code == -signal.SIGKILL
        folders.append(tmp_path / str(len(folders)))
        folders[-1].mkdir()
        code = exit_code(start(works.killed_in_write, work, folders[-1], len(folders) - 1))
    assert len(folders) > 1
    assert exit_code(start(works.go_on, work, folders)) == 0
    for folder in folders:
        torch.testing.assert_close(work(folder), whole, rtol=0, atol=0)


@pytest.mark.fault('two-writers', 'One builds it, the other waits and reads.')
def test_two_processes_and_one_cache(tmp_path, start, exit_code):
    workers = [start(works.slow, tmp_path) for _ in range(2)]
    assert [exit_code(worker) for worker in workers] == [0, 0]
    assert len([*tmp_path.glob('made-*')]) == 1
    torch.testing.assert_close(
        works.Slow(tmp_path)(graph()).laplacian_pe, LaplacianPE(3)(graph()).laplacian_pe
    )


@pytest.mark.fault(
    'two-writers', 'Of two that write scores to one folder the second ends in an error.'
)
def test_two_processes_and_one_folder(tmp_path):
    expected = works.inference(tmp_path)
    with (
        FileLock(tmp_path / '.lock'),
        pytest.raises(ValueError, match="'folder' is used by another process"),
    ):
        works.inference(tmp_path)
    torch.testing.assert_close(works.inference(tmp_path), expected, rtol=0, atol=0)


@pytest.mark.fault('two-writers', 'So it does if both begin at the same time in a new folder.')
def test_two_processes_begin_in_one_folder(tmp_path, monkeypatch):
    other, reads = FileLock(tmp_path / '.lock'), []
    read_progress = Workspace._read_progress

    def begin_elsewhere(*arguments):
        if not reads:  # between the look for a lock and the look at the files
            other.acquire()
            (tmp_path / 'layer-0.bin').write_bytes(bytes(8))
        reads.append(arguments)
        return read_progress(*arguments)

    monkeypatch.setattr(Workspace, '_read_progress', begin_elsewhere)
    with pytest.raises(ValueError, match="'folder' is used by another process"):
        works.inference(tmp_path)
    other.release()


@pytest.mark.fault('two-writers', 'A folder is used as long as what lies there is read.')
def test_folder_of_a_memory(tmp_path):
    loader = NeighborLoader(graph(), [-1], batch_size=9)
    memory = DIFFormer(4, 8, 3).attention_memory(loader, tmp_path)
    other = FileLock(tmp_path / '.lock')
    with pytest.raises(Timeout):
        other.acquire(timeout=0)
    assert memory.without(torch.tensor([3]))[0].count.tolist() == [39]
    del memory
    gc.collect()
    with other.acquire(timeout=0):
        assert other.is_locked


@pytest.mark.fault('two-writers', 'So it is with data sets that are made on the spot.')
def test_two_processes_and_one_data_set(tmp_path, start, exit_code):
    workers = [start(works.slow_dataset, tmp_path) for _ in range(3)]
    assert [exit_code(worker) for worker in workers] == [0] * 3
    assert len([*tmp_path.glob('made-*')]) == 1


@pytest.mark.fault('two-writers', 'So it does of two that write one graph.')
def test_two_processes_and_one_graph(tmp_path):
    with (
        FileLock(tmp_path / '.graph.lock'),
        pytest.raises(ValueError, match="'folder' is written by another process"),
    ):
        works.convert(tmp_path)
    assert works.convert(tmp_path).shape == (3000, 4)


@pytest.mark.fault('two-writers', 'Threads of one process count as two writers.')
def test_two_threads_and_one_folder(tmp_path):
    expected = works.inference(tmp_path / 'whole')
    place = tmp_path / 'scores'
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(Workspace, place, '', 3, True).result()
        for _ in range(2):
            with pytest.raises(ValueError, match=r"^'folder' is used by another thread"):
                Workspace(place, '', 3, True)
        del run
        (place / 'progress.json').unlink()
        torch.testing.assert_close(works.inference(place), expected, rtol=0, atol=0)


@pytest.mark.fault('two-writers', 'A memory may be made in one thread, and replaced in another.')
def test_threads_and_the_folder_of_a_memory(tmp_path):
    """The lock of a thread stayed, and kept the folder from the others."""
    loader = NeighborLoader(graph(), [-1], batch_size=9)
    model = DIFFormer(4, 8, 3)
    with ThreadPoolExecutor(1) as pool:
        memory = pool.submit(model.attention_memory, loader, tmp_path).result()
        later = model.attention_memory(loader, tmp_path)
        assert torch.equal(later.states[0].sums, memory.states[0].sums)
        other = FileLock(tmp_path / '.lock')
        del later
        gc.collect()
        with pytest.raises(Timeout):
            other.acquire(timeout=0)
        del memory
        gc.collect()
        with other.acquire(timeout=0):
            assert other.is_locked


@pytest.mark.fault(
    'damaged-file',
    (
        'Caches are built again, with a warning; states and checkpoints are refused by name, every '
        'byte being summed up, graphs by verify().'
    ),
)
def test_damaged_and_old_files(tmp_path, constants):
    transform, path = SVDEncoding(3, cache_dir=tmp_path), tmp_path / 'state.safetensors'
    expected = transform(graph()).svd_pe
    (cache,) = tmp_path.glob('svd*.safetensors')
    whole = cache.read_bytes()
    KernelAttentionConv(4, 4).attention_state(torch.randn(5, 4)).detach().save(path)
    state = path.read_bytes()
    for change in (
        lambda content: content[:-5],
        lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        lambda content: b'',
    ):
        cache.write_bytes(change(whole))
        with pytest.warns(UserWarning, match='is built again'):
            torch.testing.assert_close(transform(graph()).svd_pe, expected, rtol=0, atol=0)
        path.write_bytes(change(state))
        with pytest.raises(ValueError, match='write it again'):
            AttentionState.load(path)
    path.write_bytes(state)
    constants(file_version=3)
    with pytest.raises(ValueError, match="of version '3'"):
        AttentionState.load(path)
    with pytest.warns(UserWarning, match='is built again'):
        transform(graph())


@pytest.mark.fault('damaged-file', 'So are layers and scores that an inference has written.')
@pytest.mark.parametrize('name', ['layer-1.bin', 'scores.bin'])
def test_damaged_rows_of_an_inference(name, tmp_path):
    expected, folder = works.inference(tmp_path / 'whole'), tmp_path / 'parts'
    if name == 'scores.bin':
        works.inference(folder)
    else:
        works.interrupted_inference(folder)
    path = folder / name
    content = path.read_bytes()
    path.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    with pytest.raises(ValueError, match=f"'folder' is damaged: the checksum of .*{name}"):
        works.inference(folder)
    path.write_bytes(content)
    torch.testing.assert_close(works.inference(folder), expected, rtol=0, atol=0)


@pytest.mark.fault(
    'damaged-file',
    (
        'Damaged files of interactions are refused; one that bears a public name is compared with '
        'its '
        'checksum.'
    ),
)
@pytest.mark.parametrize('name', ['raw.txt.gz', 'raw.csv.gz', 'raw.parquet'])
def test_damaged_interactions(name, tmp_path):
    folder = tmp_path / 'mine'
    folder.mkdir()
    pairs = torch.randint(1000, (2000, 2), generator=torch.Generator().manual_seed(0)).tolist()
    text = '\n'.join(['user_id,item_id', *(f'{user},{item}' for user, item in pairs)])
    text = text if 'csv' in name else text.replace('user_id,item_id', '0 0').replace(',', ' ')
    if name.endswith('parquet'):
        parquet.write_table(
            Table.from_pydict({'user_id': [a for a, _ in pairs], 'item_id': [b for _, b in pairs]}),
            folder / name,
        )
    else:
        (folder / name).write_bytes(gzip.compress(text.encode()))
    InteractionDataset(tmp_path, 'mine')
    whole = (folder / name).read_bytes()
    for place in range(20, len(whole), len(whole) // 20):
        for content in (
            whole[:place],
            whole[:place] + bytes([whole[place] ^ 255]) + whole[place + 1 :],
        ):
            (folder / name).write_bytes(content)
            # which sums up nothing: a number may be another
            silent = name.endswith('parquet') and len(content) == len(whole)
            with (
                contextlib.suppress(ValueError)
                if silent
                else pytest.raises(ValueError, match=rf"'.*{name}' (is damaged|must )")
            ):
                InteractionDataset(tmp_path, 'mine')
    (tmp_path / 'gowalla').mkdir()
    for part, line in (('train', '0 1 2\n'), ('test', '0 3\n')):
        (tmp_path / 'gowalla' / f'{part}.txt').write_text(line)
    with pytest.warns(UserWarning, match='it does not have the checksum of https') as caught:
        InteractionDataset(tmp_path, 'gowalla')
    assert len(caught) == 2


@pytest.mark.fault('no-space', 'An OSError; what was there before is left, and no part of a file.')
@pytest.mark.parametrize('work', WRITERS, ids=lambda work: work.__name__)
def test_full_disk(work, tmp_path, start, exit_code):
    assert exit_code(start(works.full_disk, work, tmp_path)) == 0
    assert [path for path in tmp_path.rglob('*') if path.is_file() and path.suffix != '.lock'] == []


@pytest.mark.fault(
    'no-space',
    'Files that are mapped have their blocks from the start: no write into one meets a full disk.',
)
def test_mapped_files_are_not_sparse(tmp_path):
    mapped(tmp_path / 'x', '<f4', (1 << 18, 1), 'w+')
    works.inference(tmp_path / 'scores')
    stats = {
        path.name: path.stat() for path in (tmp_path / 'x', tmp_path / 'scores' / 'scores.bin')
    }
    assert stats['x'].st_size == 1 << 20
    assert all(stat.st_blocks * 512 >= stat.st_size > 0 for stat in stats.values())
    assert (tmp_path / 'x').read_bytes() == bytes(1 << 20)


@pytest.mark.fault('no-space', 'A PermissionError where nothing may be written.')
@pytest.mark.parametrize('work', [*WRITERS, works.inference], ids=lambda work: work.__name__)
def test_read_only_folder(work, tmp_path, start, exit_code):
    folder = tmp_path / 'fixed'
    folder.mkdir()
    for parent in (folder, *folder.parents[:4]):
        parent.chmod(0o755)
    folder.chmod(0o555)
    assert exit_code(start(works.read_only, work, folder)) == 0
    assert [*folder.iterdir()] == []


@pytest.mark.fault('no-space', 'What is there already is read.')
def test_whole_cache_in_a_read_only_folder(tmp_path, start, exit_code):
    SVDEncoding(3, cache_dir=tmp_path / 'fixed')(graph())
    (cache,) = tmp_path.glob('fixed/*.safetensors')
    for parent in (tmp_path, *tmp_path.parents[:3]):
        parent.chmod(0o755)
    cache.chmod(0o444)
    cache.parent.chmod(0o555)
    assert exit_code(start(works.read_what_is_there, cache.parent)) == 0


@pytest.mark.fault(
    'damaged-file', 'So are descriptions of graphs and of the progress of an inference.'
)
@pytest.mark.parametrize('text', ['[1]', '{"version": 1, "files": []}', '{"key": ', '\\udcff', '3'])
def test_damaged_descriptions(text, tmp_path):
    works.convert(tmp_path)
    (tmp_path / 'graph' / 'graph.json').write_text(text)
    with pytest.raises(ValueError, match="'folder' must hold"):
        MappedGraph(tmp_path / 'graph')
    works.inference(tmp_path / 'scores')
    (tmp_path / 'scores' / 'progress.json').write_text(text)
    with pytest.raises(ValueError, match="'folder' must"):
        works.inference(tmp_path / 'scores')


def torch_bytes(planted):
    buffer = io.BytesIO()
    torch.save(planted, buffer)
    return buffer.getvalue()


class Planted:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.fault(
    'planted-pickle',
    'Nothing is unpickled: the file is refused or built again, and what was planted does not run.',
)
@pytest.mark.parametrize('pack', [pickle.dumps, torch_bytes], ids=['pickle', 'torch.save'])
def test_planted_objects(pack, tmp_path):
    mark = tmp_path / 'ran'
    planted = pack(Planted(mark))
    SBMDataset(tmp_path, 'CLUSTER', num_graphs=5)
    SVDEncoding(3, cache_dir=tmp_path / 'cache')(graph())
    for path in (*tmp_path.glob('CLUSTER/*.safetensors'), *tmp_path.glob('cache/*.safetensors')):
        path.write_bytes(planted)
    with pytest.warns(UserWarning, match='is built again'):
        SBMDataset(tmp_path, 'CLUSTER', num_graphs=5)
    with pytest.warns(UserWarning, match='is built again'):
        SVDEncoding(3, cache_dir=tmp_path / 'cache')(graph())
    state = tmp_path / 'state'
    state.write_bytes(planted)
    with pytest.raises(ValueError, match='intact safetensors'):
        AttentionState.load(state)
    with pytest.raises(ValueError, match='intact safetensors'):
        _io.read_tensors(state, 'training')
    for name in ('data.pt', 'pre_transform.pt', 'pre_filter.pt'):  # PyG's own names
        (tmp_path / 'CLUSTER' / 'processed').mkdir(exist_ok=True)
        (tmp_path / 'CLUSTER' / 'processed' / name).write_bytes(planted)
    SBMDataset(tmp_path, 'CLUSTER', num_graphs=5)
    write_graph(tmp_path / 'graph', graph().edge_index, 40, {'x': graph().x})
    (tmp_path / 'graph' / 'x').write_bytes(planted)
    with pytest.raises(ValueError, match="'x' must have"):
        MappedGraph(tmp_path / 'graph')
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine' / 'raw.parquet').write_bytes(planted)
    with pytest.raises(ValueError, match=r"raw.parquet' is damaged"):
        InteractionDataset(tmp_path, 'mine')
    works.inference(tmp_path / 'inference')
    (tmp_path / 'inference' / 'progress.json').write_bytes(planted)
    with pytest.raises((ValueError, json.JSONDecodeError)):
        works.inference(tmp_path / 'inference')
    assert not mark.exists()


@pytest.mark.fault(
    'planted-pickle', 'Compiled code is not kept: what numba keeps it reads as a pickle.'
)
def test_no_pickle_of_compiled_code(tmp_path, start, exit_code):
    assert exit_code(start(works.compile_loop, tmp_path)) == 0
    assert [*tmp_path.iterdir()] == []


@pytest.mark.fault(
    'no-network',
    (
        'A RuntimeError that names the address and where to put the file; nothing is left of it, '
        'and '
        'nobody is asked.'
    ),
)
def test_offline(tmp_path, monkeypatch):
    monkeypatch.setattr('builtins.input', lambda *_: pytest.fail('a question was asked'))
    source = _sources.Source('http://127.0.0.1:9/train.txt', 'git:0')  # where no server listens
    monkeypatch.setitem(_sources.SOURCES, 'gowalla', {'train.txt': source})
    with pytest.raises(
        RuntimeError,
        match=r'127.0.0.1:9/train.txt cannot be downloaded.*put it at .*gowalla/raw/train.txt',
    ):
        InteractionDataset(tmp_path, 'gowalla')
    assert [path.name for path in tmp_path.rglob('*') if path.is_file()] == ['train.txt.lock']


@pytest.mark.fault('no-network', 'So does a transfer that is cut off or stands still.')
@pytest.mark.parametrize(
    'reply',
    [
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\nabc',
        b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc',
        b'no HTTP',
    ],
)
@pytest.mark.parametrize('stalls', [False, True])
def test_transfer_that_ends_early(reply, stalls, tmp_path, monkeypatch, constants):
    constants(stalled_seconds=0.3)
    done = threading.Event()

    def answer():
        connection, _ = listening.accept()
        connection.recv(4096)
        connection.sendall(reply)
        if stalls:
            done.wait()
        connection.close()

    with socket.create_server(('127.0.0.1', 0)) as listening:
        address = f'http://127.0.0.1:{listening.getsockname()[1]}/train.txt'
        monkeypatch.setitem(
            _sources.SOURCES, 'gowalla', {'train.txt': _sources.Source(address, 'git:0')}
        )
        threading.Thread(target=answer, daemon=True).start()
        message = (
            r'train.txt (cannot be downloaded|has changed).*put it at '
            r'.*gowalla/raw/train.txt'
        )
        with pytest.raises(RuntimeError, match=message):
            InteractionDataset(tmp_path, 'gowalla')
        done.set()
    assert [path.name for path in tmp_path.rglob('*') if path.is_file()] == ['train.txt.lock']
