from functools import partial
from types import FunctionType

import numpy as np
import pytest
import sbm_worker as worker
import torch
from torch_geometric.loader import DataLoader
from torch_geometric.transforms import (
    AddRandomWalkPE,
    BaseTransform,
    Compose,
    RandomNodeSplit,
    RootedEgoNets,
    ToSparseTensor,
)

from torch_geometric_lgt._identity import globals_text
from torch_geometric_lgt.datasets import SBMDataset
from torch_geometric_lgt.datasets._generated import _described
from torch_geometric_lgt.transforms import AttentionNodeSampling, JaccardScores, LaplacianPE


@pytest.mark.parametrize(
    ('name', 'mean', 'published', 'degree'),
    [('PATTERN', 117, 118.9, 51.1), ('CLUSTER', 117, 117.2, 36.7)],
)
def test_sizes_are_those_that_were_published(name, mean, published, degree, tmp_path):
    """Six blocks of 19.5 nodes in the mean; published are one draw of 100 patterns, and the mean
    degrees."""
    data = SBMDataset(tmp_path, name, num_graphs=1000)
    nodes, edges = data._data.num_nodes / 1000, data._data.edge_index.size(1)
    deviation = (6 * (30**2 - 1) / 12 / 1000) ** 0.5
    assert abs(nodes - mean) < 4 * deviation + (0 if name == 'CLUSTER' else 3 * 8.7 / 10)
    assert nodes == pytest.approx(published, abs=3)
    assert edges / (1000 * nodes) == pytest.approx(degree, rel=0.05)


def densities(data, label, other):
    inside = joined = 0
    for graph in data:
        one, two = graph.y == label, graph.y == other
        inside += int((one[graph.edge_index[0]] & two[graph.edge_index[1]]).sum())
        joined += int(one.sum()) * int(two.sum()) - (int(one.sum()) if label == other else 0)
    return inside / joined


def test_probabilities(tmp_path):
    cluster = SBMDataset(tmp_path, 'CLUSTER', num_graphs=200)
    assert densities(cluster, 2, 2) == pytest.approx(0.55, abs=0.02)
    assert densities(cluster, 1, 4) == pytest.approx(0.25, abs=0.02)
    pattern = SBMDataset(tmp_path, 'PATTERN', num_graphs=200)
    assert densities(pattern, 1, 1) == pytest.approx(0.5, abs=0.02)
    assert densities(pattern, 0, 1) == pytest.approx(0.5, abs=0.02)
    assert densities(pattern, 0, 0) == pytest.approx(0.35 + 0.15 / 4.6, abs=0.03)


def test_tokens_and_labels(tmp_path):
    for graph in SBMDataset(tmp_path, 'CLUSTER', num_graphs=20):
        token = graph.x.argmax(1)
        assert token.bincount()[1:].tolist() == [1] * 6
        marked = token > 0
        assert torch.equal(graph.y[marked], token[marked] - 1)
        assert graph.is_undirected()
        assert not graph.has_self_loops()
        assert not torch.equal(graph.y, graph.y.sort().values)
    for graph in SBMDataset(tmp_path, 'PATTERN', num_graphs=20):
        assert graph.x.shape == (graph.num_nodes, 3)
        assert graph.y.unique().tolist() == [0, 1]


def test_patterns_are_those_of_all_splits(tmp_path):
    splits = [SBMDataset(tmp_path, 'PATTERN', split, num_graphs=100) for split in ('train', 'val')]
    for one, other in zip(*splits, strict=True):
        results = [graph.subgraph(graph.y == 1) for graph in (one, other)]
        assert results[0].num_edges == results[1].num_edges
        assert torch.equal(results[0].x.sum(0), results[1].x.sum(0))
    assert not torch.equal(splits[0][0].edge_index, splits[1][0].edge_index)


@pytest.mark.parametrize(('name', 'held_out'), [('PATTERN', 2000), ('CLUSTER', 1000)])
def test_published_numbers_of_graphs(name, held_out, tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(
        SBMDataset,
        '_tensors',
        lambda self: made.append(self.num_graphs) or {'data.x': torch.zeros(1, 1)},
    )
    for split in ('train', 'val', 'test'):
        SBMDataset(tmp_path, name, split)
    assert made == [10_000, held_out, held_out]


def test_is_kept_and_the_same_for_one_seed(tmp_path, monkeypatch):
    first = SBMDataset(tmp_path / 'a', 'CLUSTER', num_graphs=30, seed=3)
    assert torch.equal(
        SBMDataset(tmp_path / 'b', 'CLUSTER', num_graphs=30, seed=3)._data.edge_index,
        first._data.edge_index,
    )
    assert not torch.equal(
        SBMDataset(tmp_path / 'b', 'CLUSTER', num_graphs=30)._data.y, first._data.y
    )
    monkeypatch.setattr(SBMDataset, 'graphs', lambda *_: pytest.fail('made again'))
    again = SBMDataset(tmp_path / 'a', 'CLUSTER', num_graphs=30, seed=3)
    assert len(again) == 30
    for one, other in zip(first, again, strict=True):
        assert torch.equal(one.edge_index, other.edge_index)
        assert torch.equal(one.x, other.x)
    monkeypatch.undo()
    (path,) = (tmp_path / 'a' / 'CLUSTER').glob('*.safetensors')
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.warns(UserWarning, match='is built again'):
        assert len(SBMDataset(tmp_path / 'a', 'CLUSTER', num_graphs=30, seed=3)) == 30


def test_two_processes_make_it_once(tmp_path, start, exit_code):
    logs = [tmp_path / 'one', tmp_path / 'other']
    processes = [start(worker.make_clusters, tmp_path / 'root', log) for log in logs]
    output = [
        log.read_text()
        for process, log in zip(processes, logs, strict=True)
        if exit_code(process) == 0
    ]
    assert sorted('200/200' in text for text in output) == [False, True]
    assert len(SBMDataset(tmp_path / 'root', 'CLUSTER', num_graphs=200)) == 200


def test_transforms_and_loader(tmp_path):
    data = SBMDataset(
        tmp_path,
        'CLUSTER',
        num_graphs=12,
        pre_transform=JaccardScores(),
        transform=AttentionNodeSampling(),
    )
    assert len(SBMDataset(tmp_path, 'CLUSTER', num_graphs=12)) == 12
    assert len(list((tmp_path / 'CLUSTER').glob('*.safetensors'))) == 2
    batch = next(iter(DataLoader(data, batch_size=12)))
    assert batch.edge_jaccard.shape == (batch.num_edges,)
    assert batch.attention_mask.shape == (batch.num_nodes,)
    assert data.num_classes == 6
    assert data.num_node_features == 7
    few = SBMDataset(tmp_path, 'CLUSTER', num_graphs=12, pre_filter=has_many_nodes)
    assert 0 < len(few) < 12
    assert repr(few) == f"SBMDataset('CLUSTER', 'train', {len(few)})"


def has_many_nodes(graph):
    return graph.num_nodes > 117


def test_transforms_are_told_apart(tmp_path):
    for change in (
        {'pre_transform': JaccardScores(neighbors='in')},
        {'pre_transform': JaccardScores()},
        {'pre_transform': AddRandomWalkPE(4)},
        {'pre_transform': AddRandomWalkPE(8)},
        {'pre_transform': Compose([JaccardScores(), AddRandomWalkPE(4)])},
        {'pre_transform': Compose([JaccardScores(), AddRandomWalkPE(8)])},
        {'pre_transform': RandomNodeSplit(num_val=1)},
        {'pre_transform': RandomNodeSplit(num_val=9)},
        {'pre_filter': has_many_nodes},
        {},
    ):
        for _ in range(2):
            SBMDataset(tmp_path, 'CLUSTER', num_graphs=8, **change)
    assert len(list((tmp_path / 'CLUSTER').glob('*.safetensors'))) == 10
    threshold = 100

    def many(graph):
        return graph.num_nodes > threshold

    with pytest.raises(
        ValueError, match="'pre_filter' must say what it does in its representation"
    ):
        SBMDataset(tmp_path, 'CLUSTER', num_graphs=8, pre_filter=many)
    with pytest.raises(
        ValueError, match="'pre_filter' must say what it does in its representation"
    ):
        SBMDataset(tmp_path, 'CLUSTER', num_graphs=8, pre_filter=lambda graph: True)


def test_raises(tmp_path):
    with pytest.raises(ValueError, match="'name' must be one of 'PATTERN', 'CLUSTER'"):
        SBMDataset(tmp_path, 'SBM')
    with pytest.raises(ValueError, match="'split' must be one of"):
        SBMDataset(tmp_path, 'PATTERN', 'valid')
    for number in (0, 2.5, '3'):
        with pytest.raises(ValueError, match="'num_graphs' must be at least 1, a whole number"):
            SBMDataset(tmp_path, 'PATTERN', num_graphs=number)


class Adds:
    def __init__(self, value):
        self.value = value

    def __call__(self, graph):
        graph.z = self.value
        return graph

    def __repr__(self):
        return 'Adds()'


class Around(Adds):
    def __call__(self, graph):
        return self.value(graph)


def with_default(number):
    def function(graph, number=number):
        return graph

    return function


def named(function, name):
    copy = FunctionType(function.__code__, globals(), name)
    copy.__qualname__ = name
    return copy


def labelled(number):
    """Makes a class without attributes, whose code alone says what it does."""
    space = {'__module__': __name__}
    exec(f'def forward(self, data): return {number}', space)
    return type('Label', (BaseTransform,), {'forward': space['forward'], '__module__': __name__})


def reading(**space):
    """Makes a function that reads a constant, and another function that reads a second one."""
    space['__name__'] = __name__
    exec('def change(graph): return [K for _ in shift(graph)]', space)
    exec('def shift(graph): return SHIFT if graph else change(graph)', space)
    return space['change']


def inheriting(**attributes):
    """Makes a class that inherits everything from a class with the given attributes."""
    base = type('Base', (BaseTransform,), {'__module__': __name__, **attributes})
    return type('Derived', (base,), {'__module__': __name__})


def test_a_set_is_described_in_order():
    """The order in which a set lists texts differs from process to process."""
    assert _described('pre_filter', {'b', 'a', frozenset('dc')}) == "{'a'[], 'b'[], {'c'[], 'd'[]}}"


def test_a_function_that_reads_no_constant_has_the_name_of_its_code():
    """The built-in functions that it calls were constants without a value."""
    assert globals_text(lambda graph: len(graph.x)) == ''


@pytest.mark.parametrize('shift', [[1], [print], {'a': 1}, (print,), object()])
def test_what_may_change_in_a_run_is_not_a_constant(shift):
    """A list that a function fills made a file in each run, and one of functions an error."""
    text = _described('pre_transform', reading(K=1, SHIFT=shift, __file__='here'))
    assert text == _described('pre_transform', reading(K=1, SHIFT=[], __file__='there'))


# a cell of a notebook that is run with two numbers; 'change' is the transform
CELLS = {
    'transform': """
encode = AddRandomWalkPE({k})
def change(graph): return encode(graph)
""",
    'decorated': """
@torch.no_grad()
def encode(graph): return AddRandomWalkPE({k})(graph)
def change(graph): return encode(graph)
""",
    'cached': """
from functools import cache
@cache
def size(): return {k}
def change(graph): return AddRandomWalkPE(size())(graph)
""",
    'class': """
class Encode(BaseTransform):
    def forward(self, graph): return Encode and AddRandomWalkPE({k})(graph)
def change(graph): return Encode()(graph)
""",
    'constant of a class': """
class Config: size = {k}
def change(graph): return AddRandomWalkPE(Config.size)(graph)
""",
    'object': """
class Config:
    def __init__(self): self.size = {k}
    def __repr__(self): return 'Config()'
config = Config()
def change(graph): return AddRandomWalkPE(config.size)(graph)
""",
    'address': """
class Config:
    parts = [object()]
    def size(self): return {k}
config = Config()
def change(graph): return AddRandomWalkPE(config.size())(graph)
""",
    'address of NumPy': """
class Config:
    def __init__(self): self.size, self.random = {k}, np.random.default_rng(0)
config = Config()
def change(graph): return AddRandomWalkPE(config.size)(graph)
""",
    'logger, beside another one in each run': """
import logging
class Config:
    def __init__(self): self.size, self.log = {k}, logging.getLogger('config')
config, _ = Config(), logging.getLogger(str(len(logging.root.manager.loggerDict)))
def change(graph): return AddRandomWalkPE(config.size)(graph)
""",
    'decorators without an end': """
from unittest.mock import call
def change(graph): return call and AddRandomWalkPE({k})(graph)
""",
    'object that reads itself': """
class Encode(BaseTransform):
    def __init__(self): self.size = {k}
    def forward(self, graph): return AddRandomWalkPE(encode.size)(graph)
encode = Encode()
def change(graph): return encode(graph)
""",
    'member': """
from enum import Enum
class Size(Enum):
    SMALL, LARGE = 2, 3
class Encode(BaseTransform):
    def __init__(self, size): self.size = size
    def forward(self, graph): return AddRandomWalkPE(self.size.value)(graph)
change = Encode(Size({k}))
""",
}


def described_change(cell):
    space = {**globals(), '__name__': '__main__'}
    exec(cell, space)
    return _described('pre_transform', space['change'])


@pytest.mark.parametrize('cell', CELLS.values(), ids=CELLS)
def test_a_cell_that_is_run_again_with_another_number(cell):
    """It had the file of the first number, or no file as what it reads has itself as a part."""
    texts = [described_change(cell.format(k=k)) for k in (2, 2, 3)]
    assert texts[0] == texts[1] != texts[2]


def test_what_occurs_again_is_described_once():
    """A text was twice as long for each object that has the next one twice, and one of an
    enumeration had 700,000 letters."""
    pairs = """
class Pair:
    def __init__(self, part): self.one, self.two = part, part
    def __repr__(self): return 'Pair'
pair = {k}
for _ in range({n}): pair = Pair(pair)
def change(graph): return pair
"""
    short, long, same, other = (
        described_change(pairs.format(n=n, k=k)) for n, k in ((6, 2), (12, 2), (12, 2), (12, 3))
    )
    assert len(long) < 2 * len(short)
    assert long == same != other
    assert len(described_change(CELLS['member'].format(k=2))) < 100_000


def test_each_default_dtype_has_its_own_file(tmp_path):
    try:
        for dtype in (torch.float32, torch.float64):
            torch.set_default_dtype(dtype)
            data = SBMDataset(tmp_path, 'CLUSTER', num_graphs=2, pre_transform=LaplacianPE(2))
            assert data[0].laplacian_pe.dtype == dtype
    finally:
        torch.set_default_dtype(torch.float32)


def test_transforms_that_print_alike_are_told_apart():
    """By numbers of long tensors, by what a transform holds, by the defaults and the code of a
    function or class, by what a class inherits, and by the object of a method."""
    long = torch.zeros(5000)
    long[7] = 1
    for one, other in (
        (Adds(torch.zeros(5000)), Adds(long)),
        (Adds(torch.zeros(5000).numpy()), Adds(long.numpy())),
        (Around(AddRandomWalkPE(3)), Around(AddRandomWalkPE(5))),
        (Adds({'a': [long]}), Adds({'a': [2 * long]})),
        (Adds(long.bfloat16()), Adds(long.half())),
        (Adds(long[:, None].to_sparse_csr()), Adds(2 * long[:, None].to_sparse_csr())),
        (Adds(np.array([1, 'a'], object)), Adds(np.array([2, 'a'], object))),
        (Adds(AddRandomWalkPE), Adds(Compose)),
        (Adds(1).__call__, Adds(2).__call__),
        (with_default(3), with_default(4)),
        (Adds(np.arange(2000).astype(object)), Adds(np.arange(1, 2001).astype(object))),
        (named(nothing_of, 'change'), named(with_default(3), 'change')),
        (labelled(1)(), labelled(2)()),
        (reading(K=1, SHIFT=2), reading(K=2, SHIFT=2)),
        (reading(K=1, SHIFT=2), reading(K=1, SHIFT=3)),
        tuple(inheriting(forward=reading(K=1, SHIFT=shift))() for shift in (2, 3)),
        *(
            (inheriting(forward=nothing_of, part=one)(), inheriting(forward=nothing_of, part=two)())
            for one, two in (
                (nothing_of, with_default(3)),
                (staticmethod(nothing_of), staticmethod(with_default(3))),
                (property(nothing_of), property(with_default(3))),
                (5, 6),
                ([long], [2 * long]),
            )
        ),
    ):
        assert _described('pre_transform', one) != _described('pre_transform', other)
        assert _described('pre_transform', one) == _described('pre_transform', one)
    alike = reading(K=1, SHIFT=2), reading(K=1, SHIFT=2, OTHER=3)
    assert _described('pre_transform', alike[0]) == _described('pre_transform', alike[1])
    for change in (Adds(lambda graph: graph), Adds([torch.Generator()])):
        with pytest.raises(
            ValueError, match="'pre_transform' must say what it does in its representation"
        ):
            _described('pre_transform', change)


def test_graphs_that_cannot_be_kept_are_refused(tmp_path):
    make = partial(SBMDataset, tmp_path, 'CLUSTER', num_graphs=3)
    for change, kind in ((RootedEgoNets(1), 'RootedSubgraphData'), (nothing_of, 'NoneType')):
        with pytest.raises(
            ValueError,
            match=f"'pre_transform' must return a Data object .got {kind}.; give it as 'transform'",
        ):
            make(pre_transform=change)
    for change, name in (
        (Adds('text'), 'z'),
        (ToSparseTensor(), 'adj_t'),
        (Adds(torch.eye(2).to_sparse_csr()), 'z'),
    ):
        with pytest.raises(
            ValueError,
            match=(
                f"'pre_transform' must leave dense tensors only .'{name}' is none.; give it as "
                "'transform'"
            ),
        ):
            make(pre_transform=change)
    with pytest.raises(
        ValueError,
        match=(
            r"'pre_transform' must leave dtypes that files can store \('z' has torch.complex64\); "
            "give it as 'transform'"
        ),
    ):
        make(pre_transform=Adds(torch.ones(2, dtype=torch.complex64)))
    with pytest.raises(
        ValueError, match=r"'pre_filter' must keep a graph at least \(it keeps none of 3\)"
    ):
        make(pre_filter=no_graph)
    data = SBMDataset(tmp_path, 'CLUSTER', num_graphs=1, pre_transform=alias)[0]
    assert torch.equal(data.pos, data.x)


def nothing_of(graph):
    return None


def no_graph(graph):
    return False


def alias(graph):
    graph.pos = graph.x
    return graph
