"""Links, pipes and files of others where a run writes, and descriptions that no run has written."""

import contextlib
import gc
import hashlib
import json
import os
import shutil

import fault_works as works
import pytest
import torch
from fault_works import EDGES, graph
from filelock import FileLock
from torch_geometric.data import Data, HeteroData

from torch_geometric_lgt import _io
from torch_geometric_lgt.data import MappedGraph, write_graph
from torch_geometric_lgt.datasets import SBMDataset
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.nn import AttentionMemory, DIFFormer, KernelAttentionConv, LiteGT
from torch_geometric_lgt.nn.models._streaming import workspace
from torch_geometric_lgt.nn.models._streaming.progress import FILE_NAME
from torch_geometric_lgt.transforms import LaplacianPE, SVDEncoding

SECRET = b'not to be changed' * 400
NAMES = [f'layer-{number}.bin' for number in range(3)] + [
    'degrees.bin',
    'state-0.safetensors',
    'memory-0.safetensors',
    'scores.bin',
]


def loader():
    return NeighborLoader(graph(), [-1], batch_size=9)


def bipartite():
    data = HeteroData()
    data['user'].num_nodes = data['item'].num_nodes = 40
    data['user', 'rates', 'item'].edge_index = graph().edge_index
    return data


def content_of(folder):
    return {
        path.name: (
            path.lstat().st_mode,
            None if path.is_dir() or path.is_fifo() else path.read_bytes(),
        )
        for path in folder.iterdir()
    }


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
    """The folder of an inference that has come to its end, to be copied."""
    place = tmp_path_factory.mktemp('finished') / 'scores'
    works.inference(place)
    return place


def pipe(path, _):
    os.mkfifo(path)


def link(path, victim):
    path.symlink_to(victim)


def hard_link(path, victim):
    path.hardlink_to(victim)


def folder(path, _):
    path.mkdir()


@pytest.mark.fault(
    'damaged-file',
    (
        'Where a run would write through a link, or finds a pipe or a folder in place of a file, '
        'it is '
        'refused, and nothing is changed.'
    ),
)
@pytest.mark.parametrize('make', [pipe, link, hard_link, folder], ids=lambda make: make.__name__)
@pytest.mark.parametrize('name', [*NAMES, 'progress.json', '.lock'])
def test_links_in_the_folder_of_a_run(name, make, finished, tmp_path):
    victim = tmp_path / 'victim'
    victim.write_bytes(SECRET)
    (tmp_path / 'empty').mkdir()
    shutil.copytree(finished, tmp_path / 'full')
    for place in (tmp_path / 'empty', tmp_path / 'full'):
        (place / name).unlink(missing_ok=True)
        make(place / name, victim)
        before = {path.name: path.lstat().st_ino for path in place.iterdir()}
        for run in (
            works.inference,
            lambda folder: DIFFormer(4, 8, 3).attention_memory(loader(), folder),
        ):
            with pytest.raises(ValueError, match=f"'folder' must (be|hold) .*{name}"):
                run(place)
        assert {path.name: path.lstat().st_ino for path in place.iterdir()} == before
    assert victim.read_bytes() == SECRET


def test_a_link_that_appears_while_a_run_goes_on(tmp_path, monkeypatch):
    victim = tmp_path / 'victim'
    expected = works.inference(tmp_path / 'whole')
    array = workspace.Workspace.array

    def linked(self, name, *arguments):
        path = self.folder / f'{name}.bin'
        if not path.exists():
            path.symlink_to(victim)
        return array(self, name, *arguments)

    monkeypatch.setattr(workspace.Workspace, 'array', linked)
    victim.write_bytes(SECRET)
    torch.testing.assert_close(works.inference(tmp_path / 'scores'), expected, rtol=0, atol=0)
    assert victim.read_bytes() == SECRET
    for width in (3, 8):  # the length of the scores, and that of a layer
        victim.write_bytes(bytes(40 * 4 * width))
        with contextlib.suppress(ValueError):
            works.inference(tmp_path / str(width))
        assert victim.read_bytes() == bytes(40 * 4 * width)


@pytest.mark.fault(
    'damaged-file',
    'A run deletes no file that it has not made, and refuses a folder with such files by name.',
)
@pytest.mark.parametrize('name', ['thesis.tex', 'layer-7.bin', 'notes'])
def test_files_of_others_stay(name, finished, tmp_path):
    place = shutil.copytree(finished, tmp_path / 'scores')
    if name == 'notes':
        (place / name).mkdir()
    else:
        (place / name).write_bytes(SECRET)
    before = content_of(place)
    for run in (
        works.inference,
        lambda folder: DIFFormer(4, 8, 3).attention_memory(loader(), folder),
    ):
        with pytest.raises(
            ValueError,
            match=(
                f"'folder' must be empty or of a run with the same model and graph .got '.*{name}'"
            ),
        ):
            run(place)
    assert content_of(place) == before
    other = FileLock(place / '.lock')
    with other.acquire(timeout=0):
        assert other.is_locked


def test_a_file_that_comes_while_a_run_goes_on_stays(tmp_path, monkeypatch):
    readout = DIFFormer.readout

    def put(*arguments):
        (tmp_path / 'thesis.tex').write_bytes(SECRET)
        (tmp_path / 'layer-7.bin').write_bytes(SECRET)
        return readout(*arguments)

    monkeypatch.setattr(DIFFormer, 'readout', put)
    works.inference(tmp_path)
    assert (
        (tmp_path / 'thesis.tex').read_bytes() == (tmp_path / 'layer-7.bin').read_bytes() == SECRET
    )
    assert {path.name for path in tmp_path.iterdir()} == {
        '.lock',
        'progress.json',
        'scores.bin',
        'thesis.tex',
        'layer-7.bin',
    }


def test_the_memory_of_a_run_can_be_made_anew_and_scored(tmp_path):
    torch.manual_seed(0)
    model = DIFFormer(4, 8, 3)
    for _ in range(2):
        memory = model.attention_memory(loader(), tmp_path)
        del memory
        gc.collect()
    torch.testing.assert_close(
        model.inference(loader(), tmp_path), model.inference(loader()), rtol=0, atol=0
    )
    assert {path.name for path in tmp_path.iterdir()} == {'.lock', 'progress.json', 'scores.bin'}


def resumed(content, change):
    return json.dumps(change(json.loads(content)) or '').encode()


CHANGES = {
    'no key': lambda progress: {name: value for name, value in progress.items() if name != 'key'},
    'no files': lambda progress: {
        name: value for name, value in progress.items() if name != 'files'
    },
    'one more': lambda progress: progress | {'more': 1},
    'a key of another type': lambda progress: progress | {'key': 3},
    'done as a list': lambda progress: progress | {'done': [1]},
    'done as text': lambda progress: progress | {'done': {'scores': '40'}},
    'done as NaN': lambda progress: progress | {'done': {'scores': float('nan')}},
    'done as a truth value': lambda progress: progress | {'done': {'scores': True}},
    'more done than there is': lambda progress: progress | {'done': {'scores': 41}},
    'less than nothing done': lambda progress: progress | {'done': {'scores': -1}},
    'sums of another type': lambda progress: progress | {'sums': {'scores': None}},
    'sums as a list': lambda progress: progress | {'sums': ['scores']},
    'files as an object': lambda progress: progress | {'files': {'scores.bin': 1}},
    'files of another type': lambda progress: progress | {'files': [1]},
    'a file elsewhere': lambda progress: progress | {'files': ['../thesis.tex']},
    'a file of the user': lambda progress: progress | {'files': ['thesis.tex']},
    'nothing': lambda progress: None,
}


@pytest.mark.fault(
    'damaged-file',
    'Descriptions with values of other types, out of range or nested deeply are refused by name.',
)
@pytest.mark.parametrize('name', CHANGES)
def test_hostile_progress(name, finished, tmp_path):
    place = shutil.copytree(finished, tmp_path / 'scores')
    path = place / 'progress.json'
    path.write_bytes(resumed(path.read_bytes(), CHANGES[name]))
    (tmp_path / 'thesis.tex').write_bytes(SECRET)
    before = content_of(place)
    with pytest.raises(
        ValueError,
        match=r"'folder' must hold an intact progress.json .got '.*progress.json'.*empty it",
    ):
        works.inference(place)
    assert content_of(place) == before
    assert (tmp_path / 'thesis.tex').exists()


DEEP = b'[' * 200_000
TEXTS = [
    DEEP,
    b'{"version": 2, "files": ' + DEEP,
    b'1' * 10_000,
    b'NaN',
    b'\xff\xfe',
    b'',
    b'null',
    b'{"version": 2, "files": NaN, "sha256": ""}',
]


@pytest.mark.parametrize('text', TEXTS, ids=range(len(TEXTS)))
def test_texts_that_are_no_descriptions(text, finished, tmp_path):
    shutil.copytree(finished, tmp_path / 'scores')
    (tmp_path / 'graph').mkdir()
    (tmp_path / 'graph' / 'graph.json').write_bytes(text)
    (tmp_path / 'scores' / 'progress.json').write_bytes(text)
    with pytest.raises(ValueError, match=r"'folder' must hold .*graph.json"):
        MappedGraph(tmp_path / 'graph')
    with pytest.raises(ValueError, match=r"'folder' must hold an intact progress.json"):
        works.inference(tmp_path / 'scores')


def of_x(**values):
    return lambda files: files['x'].update(values)


def renamed(name):
    return lambda files: files.update({name: files.pop('x')})


HOSTILE = {
    **{
        f'shape {shape}': of_x(shape=shape)
        for shape in (
            None,
            3,
            'ab',
            [],
            [40.0, 4],
            [True, 160],
            [-40, -4],
            [float('nan'), 4],
            ['40', 4],
        )
    },
    **{
        f'huge shape {number}': of_x(shape=[40, number])
        for number in (2**31, 2**62, 2**63, 2**64, 10**30)
    },
    'many dimensions': of_x(shape=[40, 4] + [1] * 100),
    'another number of rows': of_x(shape=[80, 2]),
    'rows in the other direction': of_x(shape=[4, 40]),
    **{
        f'dtype {dtype}': of_x(dtype=dtype)
        for dtype in (
            None,
            4,
            ['<f4'],
            {'a': 1},
            'O',
            '|V4',
            '<U1',
            '>f4',
            '4f1',
            '(2,)<i2',
            'f4,',
            '<f4 ',
            '<c8',
        )
    },
    **{f'checksum {value}': of_x(sha256=value) for value in (None, 3, ['a'])},
    **{
        f'name {name!r}': renamed(name)
        for name in (
            '..',
            '.',
            '',
            '/etc/passwd',
            '../x',
            'a/b',
            'a\\b',
            'a\0',
            'graph.json',
            'n_id',
            'x y',
        )
    },
    'a long name': renamed('x' * 5000),
    'one more value': of_x(more=1),
    'no dtype': lambda files: files['x'].pop('dtype'),
    'text in place of an object': lambda files: files.update(x='text'),
    'a list of files': lambda files: [],
    'ids of numbers': lambda files: files['edges.row'].update(dtype='<f4'),
    'ids in columns': lambda files: files['edges.row'].update(
        shape=[files['edges.row']['shape'][0], 1]
    ),
    'no pointers': lambda files: files['edges.colptr'].update(shape=[0]),
    'short pointers': lambda files: files['edges.colptr'].update(dtype='<i4', shape=[82]),
}


@pytest.mark.parametrize('name', HOSTILE)
def test_hostile_graphs(name, tmp_path):
    data = graph()
    write_graph(tmp_path / 'graph', data.edge_index, 40, {'x': data.x})
    path = tmp_path / 'graph' / 'graph.json'
    content = json.loads(path.read_bytes())
    changed = HOSTILE[name](content['files'])
    content['files'] = changed if isinstance(changed, list) else content['files']
    content['sha256'] = hashlib.sha256(
        json.dumps(content['files'], sort_keys=True).encode()
    ).hexdigest()
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match=r"'folder' (must (hold|describe)|is damaged)"):
        MappedGraph(tmp_path / 'graph')


@pytest.mark.parametrize('name', ['graph.json', 'x', 'edges.row', 'edges.colptr', 'empty'])
@pytest.mark.parametrize('make', [pipe, folder], ids=lambda make: make.__name__)
def test_pipes_in_the_folder_of_a_graph(name, make, tmp_path):
    place = write_graph(
        tmp_path / 'graph', EDGES, 5, {'x': torch.ones(5), 'empty': torch.ones(5, 0)}
    )
    whole = MappedGraph(place)
    (place / name).unlink()
    make(place / name, None)
    if name == 'empty' or make is pipe:
        with pytest.raises(ValueError, match='regular file'):
            whole.verify() if name != 'graph.json' else MappedGraph(place)
    with pytest.raises(ValueError, match=r"'(folder|path)' (must|is)"):
        MappedGraph(place)


def test_a_graph_in_a_folder_that_is_read_only_is_not_touched(tmp_path):
    place = write_graph(
        tmp_path / 'graph', torch.empty(2, 0, dtype=torch.long), 5, {'empty': torch.ones(5, 0)}
    )
    before = {path.name: path.stat().st_mtime_ns for path in place.iterdir()}
    assert MappedGraph(place)['empty'].shape == (5, 0)
    assert {path.name: path.stat().st_mtime_ns for path in place.iterdir()} == before


@pytest.mark.parametrize('name', ['graph', '.graph.lock'])
def test_no_graph_is_written_through_a_link(name, tmp_path):
    victim = tmp_path / 'victim'
    victim.mkdir()
    (victim / 'x').write_bytes(SECRET)
    os.utime(victim / 'x', (0, 0))
    for target in (
        (victim, victim / 'x', victim / 'none')
        if name != '.graph.lock'
        else (victim / 'x', victim / 'none')
    ):
        (tmp_path / name).symlink_to(target)
        with pytest.raises((ValueError, OSError), match=f'.*{name}'):
            works.convert(tmp_path)
        (tmp_path / name).unlink()
    assert [path.name for path in victim.iterdir()] == ['x']
    assert (victim / 'x').read_bytes() == SECRET
    assert works.convert(tmp_path).shape == (3000, 4)


@pytest.mark.fault(
    'damaged-file',
    (
        'A pipe, a device or a folder in place of a cache, a state or a data set is refused '
        'without '
        'waiting.'
    ),
)
@pytest.mark.parametrize(
    'make',
    [pipe, folder, lambda path, _: path.symlink_to('/dev/zero')],
    ids=['pipe', 'folder', 'device'],
)
def test_pipes_in_place_of_caches(make, tmp_path):
    SVDEncoding(3, cache_dir=tmp_path / 'svd')(graph())
    LaplacianPE(3, cache_dir=tmp_path / 'laplacian')(graph())
    SBMDataset(tmp_path, 'CLUSTER', num_graphs=5)
    for path in tmp_path.rglob('*.safetensors'):
        path.unlink()
        make(path, None)
    state = tmp_path / 'state'
    make(state, None)
    for run in (
        lambda: SVDEncoding(3, cache_dir=tmp_path / 'svd')(graph()),
        lambda: LaplacianPE(3, cache_dir=tmp_path / 'laplacian')(graph()),
        lambda: SBMDataset(tmp_path, 'CLUSTER', num_graphs=5),
        lambda: AttentionState.load(state),
    ):
        with pytest.raises(ValueError, match="'path' must be a regular file"):
            run()


@pytest.mark.fault(
    'damaged-file', 'A file with a right checksum that lacks a tensor is refused by name.'
)
def test_right_checksums_and_missing_tensors(tmp_path):
    state = KernelAttentionConv(4, 4).attention_state(torch.randn(5, 4)).detach()
    (tmp_path / 'attention_state').mkdir()
    state.save(tmp_path / 'attention_state' / 'state.safetensors')
    model = DIFFormer(4, 8, 3)
    (tmp_path / 'attention_memory').mkdir()
    memory = tmp_path / 'attention_memory' / 'memory.safetensors'
    model.attention_memory(loader()).save(memory)
    readers = {
        'attention_memory': lambda: AttentionMemory.load(memory, model),
        'svd_encoding': lambda: SVDEncoding(3, cache_dir=tmp_path / 'svd_encoding')(bipartite()),
        'laplacian_pe': lambda: LaplacianPE(3, cache_dir=tmp_path / 'laplacian_pe')(graph()),
        'SBMDataset': lambda: SBMDataset(tmp_path / 'SBMDataset', 'CLUSTER', num_graphs=5),
        'attention_state': lambda: AttentionState.load(
            tmp_path / 'attention_state' / 'state.safetensors'
        ),
    }
    for kind, read in readers.items():
        read()
        (path,) = (tmp_path / kind).rglob('*.safetensors')
        whole = _io.read_tensors(path, kind)
        for name in whole:
            _io.write_tensors(
                path, {other: value for other, value in whole.items() if other != name}, kind
            )
            with pytest.raises(ValueError, match=f'{name}|slices'):
                read()
        _io.write_tensors(path, whole, kind)
        read()


def test_a_state_of_an_inference_that_lacks_a_tensor_is_refused(tmp_path):
    works.interrupted_inference(tmp_path)
    path = tmp_path / 'state-0.safetensors'
    whole = _io.read_tensors(path, workspace.KIND)
    for name in whole:
        _io.write_tensors(
            path, {other: value for other, value in whole.items() if other != name}, workspace.KIND
        )
        with pytest.raises(ValueError, match=name):
            works.inference(tmp_path)
    for done in (torch.tensor(41), torch.tensor(-1), torch.tensor([1, 2])):
        _io.write_tensors(path, whole | {'done': done}, workspace.KIND)
        with pytest.raises(
            ValueError,
            match=r"'folder' is damaged: '.*state-0.safetensors' must be of at most 40 nodes",
        ):
            works.inference(tmp_path)
    path.unlink()
    torch.testing.assert_close(
        works.inference(tmp_path), works.inference(tmp_path / 'whole'), rtol=0, atol=0
    )


@pytest.mark.fault('no-nodes', 'So it is with scores in the files of a folder.')
@pytest.mark.parametrize('nodes', [0, 5])
@pytest.mark.parametrize(
    'make',
    [lambda: LiteGT(4, 8, 3, kernel='jaccard'), lambda: DIFFormer(4, 8, 3)],
    ids=['litegt', 'difformer'],
)
def test_graphs_without_edges_in_a_folder(make, nodes, tmp_path):
    table = torch.rand(7, 3)
    data = Data(
        x=torch.randn(nodes, 4),
        edge_index=torch.empty(2, 0, dtype=torch.long),
        edge_jaccard=table[:0, 1],
    )
    model = make()
    for _ in range(2):
        scores = model.inference(NeighborLoader(data, [-1], batch_size=2), tmp_path)
        torch.testing.assert_close(
            scores, model.inference(NeighborLoader(data, [-1], batch_size=2)), rtol=0, atol=0
        )
    assert (tmp_path / 'scores.bin').stat().st_size == nodes * 3 * 4


def test_names_of_all_files_are_known():
    """A run notes no name that it would refuse when it goes on."""
    assert all(
        FILE_NAME.fullmatch(name)
        for name in [*NAMES, 'local-1.bin', 'local-degrees.bin', 'noise-2.10.bin']
    )
    assert not any(
        FILE_NAME.fullmatch(name)
        for name in [
            'layer-0..bin',
            'layer-0.1.safetensors',
            'a',
            '../scores.bin',
            'scores.bin\n',
            'layer-.bin',
            'x/layer-0.bin',
        ]
    )
