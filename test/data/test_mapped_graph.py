import copy
import hashlib
import json
import pickle
import shutil
from multiprocessing.reduction import ForkingPickler

import numpy as np
import pytest
import torch
from freeze_objects import freeze
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.utils import coalesce, sort_edge_index

from torch_geometric_lgt.data import MappedGraph, write_graph
from torch_geometric_lgt.loader import (
    LinkNeighborLoader,
    NeighborLoader,
    NeighborSampler,
    NodePartitionLoader,
)
from torch_geometric_lgt.nn import DIFFormer, SGFormer
from torch_geometric_lgt.transforms import NodeDegree

N, E = 40, 130
EDGES = torch.randint(N - 3, (2, E), generator=torch.Generator().manual_seed(3))
X = torch.randn(N, 4, generator=torch.Generator().manual_seed(4))
ATTRIBUTES = {
    'x': X,
    'y': torch.arange(N),
    'train_mask': torch.arange(N) % 3 == 0,
    'half': X.half(),
}


@pytest.fixture
def graph(tmp_path, constants):
    constants(graph_chunk_bytes=640)  # of 10 edges each
    return MappedGraph(write_graph(tmp_path / 'graph', EDGES, N, ATTRIBUTES))


def edges_of(graph):
    row, pointer, _ = graph.csc()
    return torch.stack([row.long(), torch.repeat_interleave(pointer.diff())])


def test_holds_what_was_written(graph):
    assert (
        repr(graph)
        == "MappedGraph(40 nodes, 130 edges, attributes=['x', 'y', 'train_mask', 'half'])"
    )
    for name, value in ATTRIBUTES.items():
        assert torch.equal(graph[name], value)
        assert graph[name].dtype == value.dtype
        assert torch.equal(
            graph.get_tensor(group_name=None, attr_name=name, index=torch.tensor([3, 1])),
            value[[3, 1]],
        )
    assert graph.csc()[0].dtype == torch.int32
    actual = sort_edge_index(edges_of(graph), sort_by_row=False)
    assert torch.equal(
        actual[:, actual[1].argsort(stable=True)], sort_edge_index(EDGES, sort_by_row=False)
    )
    graph.verify()


def test_edges_of_a_target_stay_in_order(graph):
    assert torch.equal(edges_of(graph), EDGES[:, EDGES[1].argsort(stable=True)])


def test_both_directions_and_mapped_input(tmp_path, file_rules):
    both = MappedGraph(write_graph(tmp_path / 'both', EDGES, N, undirected=True))
    assert torch.equal(coalesce(edges_of(both)), coalesce(torch.cat([EDGES, EDGES.flip(0)], 1)))
    np.save(tmp_path / 'edges.npy', EDGES.numpy().astype(np.int32))
    mapped = MappedGraph(
        write_graph(tmp_path / 'mapped', np.load(tmp_path / 'edges.npy', mmap_mode='r'), N)
    )
    assert torch.equal(edges_of(mapped), EDGES[:, EDGES[1].argsort(stable=True)])


def test_graph_without_edges(tmp_path):
    graph = MappedGraph(write_graph(tmp_path / 'graph', EDGES[:, :0], 3, {'x': X[:3]}))
    assert (graph.num_nodes, graph.num_edges) == (3, 0)
    batch = next(iter(NeighborLoader((graph, graph), [-1], batch_size=3)))
    assert batch.edge_index.shape == (2, 0)


@pytest.mark.parametrize('workers', [0, 2])
def test_batches_are_those_of_the_graph_in_memory(graph, workers):
    data = Data(edge_index=EDGES, num_nodes=N, **ATTRIBUTES)
    nodes = graph['train_mask'].nonzero().flatten()
    loaders = (
        NeighborLoader(one, [-1, -1], input_nodes=nodes, batch_size=5, num_workers=workers)
        for one in ((graph, graph), data)
    )
    for ours, theirs in zip(*loaders, strict=True):
        assert ours.batch_size == theirs.batch_size
        order = ours.n_id.argsort()
        assert torch.equal(ours.n_id[order], theirs.n_id.sort().values)
        assert torch.equal(ours.x, X[ours.n_id])
        assert torch.equal(ours.half, X.half()[ours.n_id])
        whole = (sort_edge_index(batch.n_id[batch.edge_index]) for batch in (ours, theirs))
        assert torch.equal(*whole)


def test_loaders_take_the_graph_alone(graph):
    for one, other in zip(
        NeighborLoader(graph, [2], batch_size=10),
        NeighborLoader((graph, graph), [2], batch_size=10),
        strict=True,
    ):
        assert one.x.equal(X[one.n_id])
        assert one.keys() == other.keys()
    sampler = NeighborSampler(graph, [2])
    assert sampler.graph_store is graph
    assert next(iter(NodeLoader((graph, graph), sampler, torch.tensor([3])))).n_id[0] == 3
    links = LinkNeighborLoader(graph, [2], EDGES[:, :4], batch_size=4)
    batch = next(iter(links))
    assert batch.n_id[batch.edge_label_index].equal(EDGES[:, :4])


def test_inference_from_files(graph, tmp_path):
    model = SGFormer(4, 8, 2).eval()
    scores = model.inference(
        NeighborLoader((graph, graph), [-1], batch_size=7), tmp_path / 'scores'
    )
    torch.testing.assert_close(scores, model(X, EDGES).detach())


def test_workers_that_map_the_files_themselves(graph):
    """They get the folder: the memory of the parent's tensors stays where it is, and what it maps
    stays valid."""
    inside = NeighborLoader((graph, graph), [-1, -1], batch_size=20)
    outside = NeighborLoader(
        (graph, graph), [-1, -1], batch_size=20, num_workers=1, multiprocessing_context='forkserver'
    )
    for loader in (outside, inside):
        for batch in loader:
            assert torch.equal(batch.x, X[batch.n_id])
            pairs = {tuple(pair) for pair in EDGES.t().tolist()}
            actual = batch.n_id[batch.edge_index].t().tolist()
            assert {tuple(pair) for pair in actual} <= pairs
            degree = torch.bincount(EDGES[1], minlength=N)[batch.input_id]
            assert torch.equal(
                torch.bincount(batch.edge_index[1], minlength=20)[: batch.batch_size], degree
            )
    assert not any(graph[name].is_shared() for name in graph.attributes)
    assert not any(part.is_shared() for part in graph.csc()[:2])


def test_inference_where_workers_are_spawned(graph, tmp_path):
    """By the context of the loader; it is the default of macOS and Windows."""
    model = SGFormer(4, 8, 2, gnn_num_layers=1).eval()
    spawned = {'num_workers': 1, 'multiprocessing_context': 'spawn', 'worker_init_fn': freeze}
    scores = model.inference(
        NeighborLoader((graph, graph), [-1], batch_size=20, **spawned), tmp_path / 'scores'
    )
    torch.testing.assert_close(scores, model(X, EDGES).detach())
    assert not any(part.is_shared() for part in graph.csc()[:2])


def test_pickles_hold_the_folder_only(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    x = torch.randn(N, 1000)
    graph = MappedGraph(write_graph('graph', EDGES, N, {'x': x}))
    loader = NeighborLoader((graph, graph), [-1], batch_size=N)
    content = bytes(ForkingPickler.dumps(loader))
    assert len(content) < x.nbytes / 10
    (tmp_path / 'elsewhere').mkdir()
    monkeypatch.chdir(tmp_path / 'elsewhere')
    (batch,) = pickle.loads(content)
    assert torch.equal(batch.x, x[batch.n_id])
    assert torch.equal(copy.deepcopy(graph)['x'], x)
    shutil.rmtree(tmp_path / 'graph')
    write_graph(tmp_path / 'graph', EDGES, N, {'x': x + 1})
    with pytest.raises(ValueError, match="'folder' must hold the graph that was pickled"):
        pickle.loads(content)
    assert torch.equal(graph['x'], x)


@pytest.mark.parametrize('form', [list, torch.tensor])
def test_rows_that_do_not_exist_are_refused(graph, form):
    def rows(index):
        return graph.get_tensor(group_name=None, attr_name='x', index=index)

    for index, text in (([3, -1], '-1 to 3'), ([0, N], f'0 to {N}')):
        with pytest.raises(
            ValueError, match=rf"'index' must hold rows from 0 to 39 of 'x' \(got {text}\)"
        ):
            rows(form(index))
    assert torch.equal(rows(form([3, N - 1, 3])), X[[3, N - 1, 3]])
    assert torch.equal(rows(slice(3, 9)), X[3:9])
    assert torch.equal(rows(graph['train_mask']), X[graph['train_mask']])
    assert rows(torch.empty(0, dtype=torch.long)).shape == (0, 4)


def test_partition_of_mapped_tensors(graph):
    data = Data(x=graph['x'], y=graph['y'], edge_index=edges_of(graph))
    for batch in NodePartitionLoader(data, 16):
        assert torch.equal(batch.x, X[batch.n_id])
        inner = torch.isin(EDGES, batch.n_id).all(0)
        assert torch.equal(
            sort_edge_index(batch.n_id[batch.edge_index]), sort_edge_index(EDGES[:, inner])
        )


def test_is_one_graph_without_types_in_one_layout(graph):
    """As PyG's stores say of a group or layout they do not have."""
    for name, answer in (('x', X), ('z', None)):
        assert (name in graph) == (answer is not None)
    assert torch.equal(graph.get_tensor(group_name=None, attr_name='x', index=None), X)
    assert torch.equal(graph[None, 'x', None], X)
    assert graph.get_tensor(group_name='paper', attr_name='x', index=None) is None
    assert graph.get_tensor_size(group_name='paper', attr_name='x', index=None) is None
    assert torch.equal(graph.get_edge_index(edge_type=None, layout='csc')[1], graph.csc()[1])
    for edge_type, layout in ((None, 'coo'), (('a', 'b', 'c'), 'csc')):
        with pytest.raises(KeyError):
            graph.get_edge_index(edge_type=edge_type, layout=layout)


def test_cannot_be_changed(graph):
    with pytest.raises(TypeError, match='cannot be changed'):
        graph.put_tensor(X, group_name=None, attr_name='x', index=None)
    graph['x'][0] = 7.0
    assert torch.equal(MappedGraph(graph.folder)['x'], X)
    with pytest.raises(KeyError, match="'name' must be one of"):
        graph['z']


def test_damage_is_found(graph):
    for name in ('edges.row', 'edges.colptr', 'y'):
        path = graph.folder / name
        content = path.read_bytes()
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        with pytest.raises(ValueError, match=f'checksum of {name!r} does not fit'):
            MappedGraph(graph.folder).verify()
        path.write_bytes(content)
    path.write_bytes(content[:-1])
    with pytest.raises(ValueError, match="'y' must have 320 bytes \\(got 319\\)"):
        MappedGraph(graph.folder)
    path.unlink()
    with pytest.raises(ValueError, match="'y' must have 320 bytes \\(got no file\\)"):
        MappedGraph(graph.folder)
    path.write_bytes(content)
    description = graph.folder / 'graph.json'
    text = description.read_text()
    assert text.count('<f4') == 1
    description.write_text(text.replace('<f4', '<i4'))
    with pytest.raises(ValueError, match=r"the checksum in '.*graph.json' does not fit"):
        MappedGraph(graph.folder)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (lambda description: description.update(version=9), 'must hold a graph of version 2'),
        (lambda description: description.pop('files'), 'must hold an intact graph.json'),
        (
            lambda description: description['files'].pop('edges.row'),
            'must hold a graph of version 2',
        ),
        (
            lambda description: description['files']['y'].update(dtype='O'),
            'must hold a graph of version 2',
        ),
        (
            lambda description: description['files'].update({'../y': description['files']['y']}),
            'must hold its files itself',
        ),
    ],
)
def test_hostile_descriptions_are_refused(graph, change, message):
    path = graph.folder / 'graph.json'
    description = json.loads(path.read_text())
    change(description)
    if 'files' in description:
        description['sha256'] = hashlib.sha256(
            json.dumps(description['files'], sort_keys=True).encode()
        ).hexdigest()
    path.write_text(json.dumps(description))
    with pytest.raises(ValueError, match=message):
        MappedGraph(graph.folder)


def test_a_broken_write_leaves_nothing(tmp_path, monkeypatch, file_rules):
    def full(*_):
        raise OSError(28, 'No space left on device')

    monkeypatch.setattr('torch_geometric_lgt.data._write.describe', full)
    with pytest.raises(OSError, match='No space'):
        write_graph(tmp_path / 'graph', EDGES, N, ATTRIBUTES)
    assert [path.name for path in tmp_path.iterdir()] == ['.graph.lock']
    with pytest.raises(FileNotFoundError, match="'folder' must hold a graph that 'write_graph' wr"):
        MappedGraph(tmp_path / 'graph')


def test_a_file_is_no_folder_and_a_tensor_no_attributes(tmp_path):
    (tmp_path / 'file').touch()
    with pytest.raises(FileNotFoundError, match="'folder' must hold a graph that 'write_graph' wr"):
        MappedGraph(tmp_path / 'file')
    with pytest.raises(TypeError, match=r"'attributes' must be a dictionary .* \(got Tensor\)"):
        write_graph(tmp_path / 'graph', EDGES, N, torch.ones(N, 2))
    assert [path.name for path in tmp_path.iterdir()] == ['file']


def test_node_attributes_are_items(tmp_path):
    graph = MappedGraph(write_graph(tmp_path / 'graph', EDGES, N, {'x': X}))
    message = r"'MappedGraph' has no attribute '{}'; read a node attribute as graph\['x'\], one of"
    for name in ('x', 'num_features'):
        with pytest.raises(AttributeError, match=message.format(name)):
            getattr(graph, name)
    assert not hasattr(copy.deepcopy(graph), 'y')


def test_seeds_by_the_name_of_an_attribute_are_refused(tmp_path):
    graph = MappedGraph(write_graph(tmp_path / 'graph', EDGES, N, {'x': X}))
    message = (
        r"'input_nodes' must be ids or a mask .* \(got 'train'\); for an attribute give data\["
    )
    for data in (graph, (graph, graph), Data(x=X, edge_index=EDGES)):
        with pytest.raises(ValueError, match=message):
            NeighborLoader(data, [2], input_nodes='train')


def test_bad_input(tmp_path):
    with pytest.raises(ValueError, match='must hold ids from 0 to 9'):
        write_graph(tmp_path / 'graph', EDGES, 10)
    with pytest.raises(ValueError, match=r"'undirected' must be True or False \(got 'False'\)"):
        write_graph(tmp_path / 'text', EDGES, 10, undirected='False')  # was true
    with pytest.raises(ValueError, match=r"'edge_index' must have shape \[2, E\]"):
        write_graph(tmp_path / 'graph', EDGES.t(), N)
    message = (
        r"'edge_index' must be an array or tensor \(got Data\); give data.edge_index, data.num_"
    )
    with pytest.raises(ValueError, match=message):
        write_graph(tmp_path / 'graph', Data(x=X, edge_index=EDGES), N)
    message = r"'num_nodes' must be at least 0, a whole number \(got tensor\(.{,30}\)$"
    with pytest.raises(ValueError, match=message):
        write_graph(tmp_path / 'graph', N, EDGES)
    message = r"'attributes' must have 40 rows of numbers each, .*; attributes of edges are not sto"
    with pytest.raises(ValueError, match=message):
        write_graph(tmp_path / 'graph', EDGES, N, {'x': X[1:]})
    (tmp_path / 'graph').mkdir()
    (tmp_path / 'graph' / 'thesis.tex').write_text('x')
    message = r"'folder' must not exist or be empty, .*; open a written graph with MappedGraph, or "
    with pytest.raises(ValueError, match=message):
        write_graph(tmp_path / 'graph', EDGES, N)
    assert (tmp_path / 'graph' / 'thesis.tex').exists()


@pytest.mark.parametrize(
    'name',
    [
        '../victim',
        'a/b',
        '..',
        '',
        'edge_index',
        'n_id',
        'batch',
        'batch_size',
        'seed_time',
        'edge_label',
        'graph.json',
        'size',
        '_store',
        5,
    ],
)
def test_names_of_attributes_are_those_of_a_batch(tmp_path, name):
    (tmp_path / 'victim').write_text('precious')
    with pytest.raises(
        ValueError,
        match=rf"'attributes' must have names that a batch can hold, none of .* \(got {name!r}\)",
    ):
        write_graph(tmp_path / 'graph', EDGES, N, {name: X})
    assert [path.name for path in tmp_path.iterdir()] == ['victim']
    assert (tmp_path / 'victim').read_text() == 'precious'


def test_dtypes_of_attributes(tmp_path):
    swapped = X.numpy().astype('>f4')
    graph_on_disk = MappedGraph(write_graph(tmp_path / 'swapped', EDGES, N, {'x': swapped}))
    assert torch.equal(graph_on_disk.get_tensor(group_name=None, attr_name='x', index=None), X)
    with pytest.raises(ValueError, match='rows of numbers each'):
        write_graph(tmp_path / 'long', EDGES, N, {'x': X.numpy().astype(np.longdouble)})
    for value in (X.bfloat16(), X.to_sparse_csr()):
        with pytest.raises(
            ValueError, match="'attributes' 'x' must be dense and of a dtype that NumPy has"
        ):
            write_graph(tmp_path / 'other', EDGES, N, {'x': value})


def unfinished(folder):
    return [path.name for path in folder.iterdir() if path.name.endswith('.part')]


@pytest.mark.parametrize(
    'name',
    [
        '.graph.part',
        '.other.0123456789abcdef.part',
        '.graph.notes.part',
        'graph.0123456789abcdef.part',
    ],
)
def test_folders_beside_it_stay(tmp_path, name):
    (tmp_path / name).mkdir()
    (tmp_path / name / 'thesis.tex').write_text('x')
    write_graph(tmp_path / 'graph', EDGES, N, ATTRIBUTES)
    assert (tmp_path / name / 'thesis.tex').read_text() == 'x'
    assert unfinished(tmp_path) == [name]


def test_what_killed_runs_left_is_removed_and_links_are_not_followed(tmp_path, monkeypatch):
    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr('torch_geometric_lgt.data._write.describe', killed)
        patch.setattr('torch_geometric_lgt.data._write.shutil.rmtree', lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            write_graph(tmp_path / 'graph', EDGES, N, ATTRIBUTES)
    assert len(unfinished(tmp_path)) == 1
    link, victim = tmp_path / '.graph.0123456789abcdef.part', tmp_path / 'victim'
    victim.mkdir()
    (victim / 'x').write_text('x')
    link.symlink_to(victim)
    write_graph(tmp_path / 'graph', EDGES, N, ATTRIBUTES)
    assert unfinished(tmp_path) == [link.name]
    assert (victim / 'x').read_text() == 'x'


@pytest.mark.parametrize('num_nodes', [-1, 2.0, 2.5, None, '3', True])
def test_numbers_of_nodes_are_counts(tmp_path, num_nodes):
    with pytest.raises(ValueError, match="'num_nodes' must be at least 0, a whole number"):
        write_graph(tmp_path / 'graph', EDGES[:, :0], num_nodes)
    assert not list(tmp_path.iterdir())


def damaged(graph, name, place, value):
    """The graph with another number in a file."""
    array = np.memmap(graph.folder / name, graph.files[name].dtype, 'r+')
    array[place] = value
    array.flush()
    return MappedGraph(graph.folder)


@pytest.mark.parametrize('source', [N, 1007, -1, -7, -(2**31)])
@pytest.mark.parametrize(
    'options', [{}, {'subgraph_type': 'induced'}, {'disjoint': True}, {'replace': True}]
)
def test_sources_that_do_not_exist_are_refused(graph, source, options):
    broken = damaged(graph, 'edges.row', slice(None), source)
    count = [3, 3] if options.get('replace') else [-1, -1]
    sampler = NeighborSampler((broken, broken), count, **options)
    loader = NeighborLoader((broken, broken), count, batch_size=10, neighbor_sampler=sampler)
    with pytest.raises(
        ValueError,
        match=(
            rf"'data' must hold edges from nodes 0 to 39 \(got {source}\); a MappedGraph whose "
            r'verify'
        ),
    ):
        list(loader)


@pytest.mark.parametrize('pointer', [-3, E + 1, 2**40])
@pytest.mark.parametrize('count', [[-1], [2]])
def test_pointers_that_name_no_edges_are_refused(graph, pointer, count):
    broken = damaged(graph, 'edges.colptr', 7, pointer)
    for nodes in ([6], [7]):
        sampler = NeighborSampler((broken, broken), count)
        loader = NeighborLoader(
            (broken, broken),
            count,
            input_nodes=torch.tensor(nodes),
            batch_size=1,
            neighbor_sampler=sampler,
        )
        with pytest.raises(
            ValueError,
            match=(
                rf"'data' must hold ascending pointers from 0 to {E} \(got .*; a MappedGraph "
                r'whose verify'
            ),
        ):
            list(loader)
    (batch,) = NeighborLoader((broken, broken), [-1], input_nodes=torch.tensor([0]), batch_size=1)
    assert torch.equal(batch.x, X[batch.n_id])


@pytest.mark.parametrize(('place', 'value'), [(0, -3), (0, 1), (-1, E - 1), (-1, E + 1)])
def test_edges_that_do_not_fill_their_file_are_refused(graph, place, value):
    with pytest.raises(
        ValueError, match=rf"'folder' is damaged: 'edges.colptr' must go from 0 to {E} \(got "
    ):
        damaged(graph, 'edges.colptr', place, value)


def test_degrees_from_the_files(tmp_path):
    """Those of NodeDegree if each edge is stored both ways, else the pair that layers take."""
    edges = coalesce(EDGES[:, EDGES[0] != EDGES[1]])
    both = coalesce(torch.cat([edges, edges.flip(0)], 1))
    _, colptr, _ = MappedGraph(write_graph(tmp_path / 'both', both, N)).csc()
    assert torch.equal(colptr.diff(), NodeDegree()(Data(edge_index=both, num_nodes=N)).degree)

    graph = MappedGraph(write_graph(tmp_path / 'one', edges, N, {'x': X}))
    row, colptr, _ = graph.csc()
    in_degree, out_degree = colptr.diff(), torch.zeros(N, dtype=torch.long)
    for part in row.split(20):
        out_degree += torch.bincount(part, minlength=N)
    model, seeds = DIFFormer(4, 8, 3, num_layers=1, heads=2).double().eval(), torch.arange(9)
    memory = model.attention_memory(NeighborLoader((graph, graph), [-1], batch_size=20))
    batch = next(iter(NeighborLoader((graph, graph), [-1], input_nodes=seeds, batch_size=9)))
    out = model(
        batch.x.double(),
        batch.edge_index,
        degree=(out_degree[batch.n_id], in_degree[batch.n_id]),
        states=memory.without(seeds),
        num_keys=9,
    )
    expected = model(X.double(), edges)
    torch.testing.assert_close(out[:9], expected[:9], rtol=1e-10, atol=1e-12)
