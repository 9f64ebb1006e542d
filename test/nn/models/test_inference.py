import json
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import FunctionType

import numpy as np
import pytest
import torch
from quantized import quantize_
from torch.nn import functional as F
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import NeighborLoader as PyGNeighborLoader
from torch_geometric.nn import GAT, GCN, GraphSAGE
from torch_geometric.transforms import ToUndirected
from torch_geometric.typing import SparseTensor

from torch_geometric_lgt.data import MappedGraph, write_graph
from torch_geometric_lgt.loader import NeighborLoader, NeighborSampler, NodePartitionLoader
from torch_geometric_lgt.nn import (
    DIFFormer,
    GraphTransformer,
    LiteGT,
    MGFormer,
    NodeFormer,
    SGFormer,
)
from torch_geometric_lgt.nn.models._evaluation import evaluation
from torch_geometric_lgt.nn.models._streaming import loader_checks, workspace
from torch_geometric_lgt.nn.models._streaming.keys import plain_settings
from torch_geometric_lgt.nn.models._streaming.stream import neighborhood
from torch_geometric_lgt.transforms import (
    AttentionNodeSampling,
    JaccardScores,
    LaplacianPE,
    NodeDegree,
)

N = 60
BACKBONES = {
    'difformer': lambda: DIFFormer(5, 8, 3, num_layers=3, heads=2, use_source=True),
    'difformer-frobenius': lambda: DIFFormer(5, 8, 3, norm='frobenius'),
    'difformer-without-graph': lambda: DIFFormer(5, 8, 3, use_graph=False),
    'sgformer': lambda: SGFormer(5, 8, 3),
    'sgformer-cat': lambda: SGFormer(5, 8, 3, 2, 2, 'row', aggregate='cat', gnn_input='input'),
    'sgformer-residual': lambda: SGFormer(
        5, 8, 3, gnn_num_layers=3, gnn_residual=True, dropout=0.5
    ),
    'sgformer-initial': lambda: SGFormer(
        5, 8, 3, gnn_num_layers=3, gnn_residual='initial', gnn_use_init=True
    ),
    'sgformer-sage': lambda: SGFormer(5, 8, 3, gnn=GraphSAGE(8, 8, 2)),
    'graph-transformer': lambda: GraphTransformer(5, 8, 3, heads=2, input_norm=False),
    'graph-transformer-local-first': lambda: GraphTransformer(
        5, 8, 3, 1, 2, 2, attn_type='sgformer', norm='layer_norm', dropout=0.5
    ),
    'graph-transformer-gated': lambda: GraphTransformer(5, 8, 3, 2, 2, 2, gate=True),
    'graph-transformer-sage': lambda: GraphTransformer(
        5, 8, 3, 2, 2, conv='SAGEConv', attn_type='mean'
    ),
    'graph-transformer-without-graph': lambda: GraphTransformer(5, 8, 3, 2, 2, conv=None),
    'graph-transformer-local': lambda: GraphTransformer(
        5, 8, 3, 2, 2, conv='GATv2Conv', attn_type=None
    ),
    'nodeformer': lambda: NodeFormer(5, 8, 3, heads=2, num_features=8, jumping_knowledge=True),
    'nodeformer-paper': lambda: NodeFormer(
        5, 8, 3, num_features=8, jumping_knowledge=True, scale=1.0, num_readout_layers=2
    ),
    'nodeformer-output': lambda: NodeFormer(5, 8, 3, num_features=8, relational_input='output'),
    'nodeformer-without-graph': lambda: NodeFormer(5, 8, 3, num_features=8, relational_order=0),
}


def graph(directed=True):
    """A graph with self loops, repeated edges and isolated nodes."""
    generator = torch.Generator().manual_seed(1)
    edges = torch.randint(N - 4, (2, 150), generator=generator)
    edges = torch.cat([edges, edges[:, :9]], 1)
    edges = edges if directed else torch.cat([edges, edges.flip(0)], 1)
    return Data(x=torch.randn(N, 5, dtype=torch.float64, generator=generator), edge_index=edges)


def loader(data, **options):
    return NeighborLoader(data, [-1], batch_size=17, **options)


@pytest.mark.parametrize('own_sampler', [False, True])
@pytest.mark.parametrize('name', BACKBONES)
def test_equals_the_pass_over_the_whole_graph(name, own_sampler, tmp_path):
    data, model = graph(), BACKBONES[name]().double()
    options = {'neighbor_sampler': NeighborSampler(data, [-1])} if own_sampler else {}
    scores = model.inference(loader(data, **options), tmp_path)
    assert model.training
    torch.testing.assert_close(
        scores, model.eval()(data.x, data.edge_index).detach(), rtol=1e-10, atol=1e-12
    )
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != workspace.LOCK) == [
        'progress.json',
        'scores.bin',
    ]
    torch.testing.assert_close(model.inference(loader(data)), scores, rtol=0, atol=0)


@pytest.mark.parametrize(
    'options',
    [
        {},
        {'kernel': 'subtractor'},
        {'num_layers': 4, 'heads': 4, 'reduce': True},
        {'pe_channels': 3},
        {'edge_channels': 2},
        {'edge_channels': 2, 'num_layers': 3, 'kernel': 'subtractor'},
        {'edge_channels': 2, 'num_layers': 5, 'heads': 4, 'reduce': True},
    ],
)
def test_litegt(options, tmp_path):
    data = AttentionNodeSampling()(JaccardScores()(LaplacianPE(3)(graph(directed=False))))
    data.laplacian_pe = data.laplacian_pe.double()
    data.edge_attr = torch.randn(data.num_edges, 2, dtype=torch.float64)
    edge_attr = data.edge_attr if 'edge_channels' in options else None
    model = LiteGT(5, 16, 3, **{'num_layers': 2, **options}).double()
    pe = data.laplacian_pe if 'pe_channels' in options else None
    for _ in range(3):
        model(
            data.x,
            data.edge_index,
            laplacian_pe=pe,
            edge_jaccard=data.edge_jaccard,
            edge_attr=edge_attr,
        )
    scores = model.inference(loader(data))
    torch.testing.assert_close(model.inference(loader(data), tmp_path), scores, rtol=0, atol=0)
    whole = model.eval()(
        data.x,
        data.edge_index,
        laplacian_pe=pe,
        edge_jaccard=data.edge_jaccard,
        sampled_mask=data.attention_mask,
        edge_attr=edge_attr,
    )
    torch.testing.assert_close(scores, whole.detach(), rtol=1e-10, atol=1e-12)
    if edge_attr is not None:
        del data.edge_attr
        with pytest.raises(ValueError, match="'edge_attr' must"):
            model.inference(loader(data))


@pytest.mark.parametrize('layers', [0, 2])
@pytest.mark.parametrize('mask', ['none', 'degree', 'adjacency'])
def test_mgformer(mask, layers):
    data = NodeDegree()(graph(directed=False))
    model = MGFormer(20, 40, 6, torch.randn(60, 4), data.degree, layers, 2, mask, 'elu').double()
    torch.testing.assert_close(
        model.inference(loader(data)),
        model.get_embedding(data.edge_index).detach(),
        rtol=1e-10,
        atol=1e-12,
    )


HEADS = {
    'one column': lambda: torch.nn.Linear(8, 1),
    'more columns': lambda: torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.Linear(4, 7)),
    'none': torch.nn.Identity,
}


@pytest.mark.parametrize('head', HEADS)
@pytest.mark.parametrize('name', ['difformer', 'sgformer', 'graph-transformer', 'litegt'])
def test_a_new_output_layer(name, head, tmp_path):
    """As for fine-tuning. One column was repeated to the number of the old ones, other numbers
    ended in an error, and hidden features became single precision."""
    data = JaccardScores()(graph())
    model, scores = LiteGT(5, 8, 3, 2), {'edge_jaccard': data.edge_jaccard.double()}
    if name != 'litegt':
        model, scores = BACKBONES[name](), {}
    model.lin_out = HEADS[head]()
    model = model.double().eval()
    with torch.no_grad():
        expected = model(data.x, data.edge_index, **scores)
    data.update(scores)
    for folder in (None, tmp_path, tmp_path):
        found = model.inference(loader(data), folder)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize('name', ['difformer', 'sgformer', 'graph-transformer', 'litegt'])
def test_an_input_layer_without_parameters(name):
    """As for features of the hidden size. They were taken for single precision on the CPU."""
    data = JaccardScores()(graph())
    data.x, data.edge_jaccard = torch.cat([data.x, data.x[:, :3]], 1), data.edge_jaccard.double()
    model = LiteGT(8, 8, 3, 2) if name == 'litegt' else BACKBONES[name]()
    scores = {'edge_jaccard': data.edge_jaccard} if name == 'litegt' else {}
    model.lin_in, model.in_channels = torch.nn.Identity(), 8
    model = model.double().eval()
    with torch.no_grad(), torch.device('meta'):
        expected = model(data.x, data.edge_index, **scores)
    torch.testing.assert_close(model.inference(loader(data)), expected, rtol=1e-10, atol=1e-10)
    if name != 'litegt':
        (first, *_) = model.attention_memory(loader(data)).inputs
        assert torch.equal(first, model.input_layer(data.x))


def test_degrees_that_no_layer_reads_are_not_counted(monkeypatch):
    model = BACKBONES['nodeformer-output']().double()
    monkeypatch.setattr(NodeFormer, 'degree_edges', None)
    assert model.inference(loader(graph())).shape == (N, 3)


def test_workers_find_the_neighbors():
    data, model = graph(), BACKBONES['difformer']().double()
    torch.testing.assert_close(
        model.inference(loader(data, num_workers=2)), model.inference(loader(data)), rtol=0, atol=0
    )


def test_workers_that_are_not_forked_get_what_can_be_pickled():
    """The loader cannot be: its workers persist."""
    batches = loader(graph(), num_workers=1, persistent_workers=True)
    iter(batches)
    with pytest.raises(NotImplementedError, match='cannot be pickled'):
        pickle.dumps(batches)
    part = partial(neighborhood, batches.node_sampler, None)
    received = pickle.loads(pickle.dumps(part))(slice(0, 17))
    assert torch.equal(received.edge_index, part(slice(0, 17)).edge_index)


def test_goes_on_after_a_kill(tmp_path, constants):
    constants(save_seconds=0.0)
    data, model, calls = graph(), BACKBONES['difformer']().double(), []
    whole, layer = model.inference(loader(data)), model.layer

    def counted(*args):
        calls.append(args[0])
        if len(calls) == 7:  # of 4 parts in each of 3 layers
            raise KeyboardInterrupt
        return layer(*args)

    model.layer = counted
    with pytest.raises(KeyboardInterrupt):
        model.inference(loader(data), tmp_path)
    assert model.training
    done = json.loads((tmp_path / 'progress.json').read_text())['done']
    assert done == {
        'layer-0': 60,
        'degrees': 60,
        'state-0': 60,
        'layer-1': 60,
        'state-1': 60,
        'layer-2': 34,
    }
    torch.testing.assert_close(model.inference(loader(data), tmp_path), whole, rtol=0, atol=0)
    assert calls == [0] * 4 + [1] * 3 + [1] * 2 + [2] * 4
    model.inference(loader(data), tmp_path)
    assert len(calls) == 13


def test_a_state_is_never_counted_twice(tmp_path, monkeypatch, constants):
    constants(save_seconds=0.0)
    data, model = graph(), BACKBONES['sgformer']().double()
    whole, note = model.inference(loader(data)), workspace.Workspace.save_progress

    def killed(self):
        if self.done.get('state-0') == 34:
            raise KeyboardInterrupt
        note(self)

    monkeypatch.setattr(workspace.Workspace, 'save_progress', killed)
    with pytest.raises(KeyboardInterrupt):
        model.inference(loader(data), tmp_path)
    monkeypatch.setattr(workspace.Workspace, 'save_progress', note)
    torch.testing.assert_close(model.inference(loader(data), tmp_path), whole, rtol=0, atol=0)


def test_scores_that_are_gone_are_made_again(tmp_path):
    data, model = graph(), BACKBONES['difformer']().double()
    whole = model.inference(loader(data), tmp_path).clone()
    (tmp_path / 'scores.bin').unlink()
    (tmp_path / 'layer-1.bin').write_bytes(b'left by a kill after the end')
    torch.testing.assert_close(model.inference(loader(data), tmp_path), whole, rtol=0, atol=0)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != workspace.LOCK) == [
        'progress.json',
        'scores.bin',
    ]


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path):
    (tmp_path / 'scores').touch()
    with pytest.raises(ValueError, match=r"'folder' must be a folder, .*\(got the file '.*scores'"):
        BACKBONES['difformer']().double().inference(loader(graph()), tmp_path / 'scores')


def test_scores_of_another_model_or_graph_are_refused(tmp_path):
    data, model = graph(), BACKBONES['difformer']().double()
    model.inference(loader(data), tmp_path)
    other = DIFFormer(5, 8, 3, num_layers=3, heads=2, use_source=True, tau=0.4).double()
    other.load_state_dict(model.state_dict())
    changed = (
        Data(x=data.x, edge_index=data.edge_index.flip(0)),
        Data(x=data.x + 1, edge_index=data.edge_index),
    )
    for run in (
        lambda: other.inference(loader(data), tmp_path),
        *(lambda d=d: model.inference(loader(d), tmp_path) for d in changed),
    ):
        with pytest.raises(
            ValueError, match="'folder' must be empty or of a run with the same model and graph"
        ):
            run()
    model.eval().inference(loader(graph()), tmp_path)


@pytest.mark.sparse
def test_scores_of_another_adjacency_matrix_are_refused(tmp_path):
    data, model = graph(), BACKBONES['difformer']().double()
    one, other = (
        Data(x=data.x, adj_t=SparseTensor.from_edge_index(edges, sparse_sizes=(N, N)))
        for edges in (data.edge_index, data.edge_index.flip(0))
    )
    model.inference(loader(one), tmp_path)
    with pytest.raises(
        ValueError, match="'folder' must be empty or of a run with the same model and graph"
    ):
        model.inference(loader(other), tmp_path)


def test_scores_of_another_graph_of_a_pair_are_refused(tmp_path):
    model, features, folders = BACKBONES['difformer']().double(), graph(), []
    for number, edges in enumerate((features.edge_index, features.edge_index.flip(0))):
        write_graph(tmp_path / str(number), edges, N, {'x': features.x})
        folders.append(MappedGraph(tmp_path / str(number)))
    model.inference(loader((folders[0], folders[0])), tmp_path / 'scores')
    with pytest.raises(
        ValueError, match="'folder' must be empty or of a run with the same model and graph"
    ):
        model.inference(loader((folders[0], folders[1])), tmp_path / 'scores')


def test_parts_in_evaluation_stay_so_and_nothing_is_drawn():
    model = BACKBONES['sgformer']().double().train()
    model.gnn.eval()
    state = torch.get_rng_state()
    model.inference(loader(graph()))
    assert model.training
    assert model.lin_in.training
    assert not any(part.training for part in model.gnn.modules())
    assert torch.equal(torch.get_rng_state(), state)


def test_a_device_in_the_place_of_the_folder():
    """``inference`` of PyG's models has it there."""
    for call in (BACKBONES['sgformer']().inference, BACKBONES['sgformer']().attention_memory):
        with pytest.raises(TypeError, match=r"'folder' must be a path \(got device\)"):
            call(loader(graph()), torch.device('cpu'))


def test_raises(tmp_path):
    with pytest.raises(
        ValueError,
        match=(
            r"'loader' must be a NeighborLoader with num_neighbors=\[-1\] \(got "
            r'NodePartitionLoader\)'
        ),
    ):
        BACKBONES['sgformer']().inference(NodePartitionLoader(graph(), batch_size=9))
    data, model = graph(), BACKBONES['difformer']().double()
    with pytest.raises(
        ValueError,
        match=r"'loader' must have num_neighbors=\[-1\], all neighbours of one hop \(got \[4\]\)",
    ):
        model.inference(NeighborLoader(data, [4], batch_size=9))
    with pytest.raises(ValueError, match="'x' must be dense to be read in parts"):
        model.inference(loader(Data(x=data.x.to_sparse_coo(), edge_index=data.edge_index)))
    for rows in (N - 1, N + 1):  # further rows were left out without an error
        other_size = Data(x=torch.randn(rows, 5), edge_index=data.edge_index, num_nodes=N)
        message = rf"'x' must have a row for each of {N} nodes of the data \(got {rows}\); set"
        with pytest.raises(ValueError, match=message):
            model.inference(loader(other_size))
    with pytest.raises(ValueError, match="with the attribute 'x'"):
        model.inference(loader(Data(edge_index=data.edge_index, num_nodes=N)))
    edge_model = GraphTransformer(5, 8, 3, conv='GINEConv', edge_channels=2).double()
    for rows in (data.num_edges - 1, 2 * data.num_edges):  # further rows were left out, too
        edge_attr = torch.randn(rows, 2, dtype=torch.float64)
        other_size = Data(edge_attr=edge_attr, x=data.x, edge_index=data.edge_index)
        message = rf"'edge_attr' must have a row for each of {data.num_edges} .* \(got {rows}\)"
        with pytest.raises(ValueError, match=message):
            edge_model.inference(loader(other_size))
    for x, edge_attr, name, shown in (
        (data.x.numpy(), torch.zeros(data.num_edges, 2), 'x', 'ndarray'),
        (data.x, np.zeros((data.num_edges, 2)), 'edge_attr', 'ndarray'),
        (data.x, torch.tensor(1.0), 'edge_attr', r'\(\)'),
    ):
        other = Data(x=x, edge_index=data.edge_index, edge_attr=edge_attr, num_nodes=N)
        with pytest.raises(ValueError, match=rf"'{name}' must be a tensor with .* \(got {shown}\)"):
            edge_model.inference(loader(other))
    model.inference(loader(data), tmp_path)
    with pytest.raises(
        ValueError, match=r'of a run with other parameters, settings or data\); delete the folder'
    ):
        BACKBONES['difformer']().double().inference(loader(data), tmp_path)
    other = tmp_path / 'other'
    other.mkdir()
    (other / 'thesis.tex').write_text('x')
    with pytest.raises(ValueError, match="'folder' must be empty"):
        model.inference(loader(data), other)
    assert [path.name for path in other.iterdir()] == ['thesis.tex']
    with pytest.raises(ValueError, match="'relational_order' must be at most 1"):
        NodeFormer(5, 8, 3, num_features=8, relational_order=2).double().inference(loader(data))
    with pytest.raises(
        ValueError, match=r"'kernel' must be 'simple' for an attention state \(got 'sigmoid', which"
    ):
        DIFFormer(5, 8, 3, kernel='sigmoid').double().inference(loader(data))
    with pytest.raises(
        ValueError, match="'gnn' must be one of PyG's networks without jumping knowledge"
    ):
        SGFormer(5, 8, 3, gnn=GCN(8, 8, 2, jk='cat')).double().inference(loader(data))
    with pytest.raises(
        ValueError, match="'gnn' must be a GCN with normalize=False to be evaluated in parts"
    ):
        SGFormer(5, 8, 3, gnn=GCN(8, 8, 2)).double().inference(loader(data))
    with pytest.raises(ValueError, match="'level' must be 'node'"):
        LiteGT(5, 8, 3, level='edge').double().inference(loader(data))


def leaky_relu(slope):
    return lambda x: F.leaky_relu(x, slope)


def leaky_relu_by_default(slope):
    return lambda x, slope=slope: F.leaky_relu(x, slope)


SLOPE = 0.1


def leaky_relu_of_module(x):
    return F.leaky_relu(x, SLOPE)


def doubled(act):
    return lambda x: 2 * act(x)


class ReLUFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.relu()


class TanhFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.tanh()


class Doubled:
    def __init__(self, act):
        self.act = act

    def __call__(self, x):
        return 2 * self.act(x)


class LeakyReLU:
    def __init__(self, slope):
        self.slope = slope

    def compute(self, x):
        return F.leaky_relu(x, self.slope)

    __call__ = compute


ACTIVATIONS = {
    'builtin': (torch.relu, torch.tanh),
    'function': (F.relu, F.silu),
    'lambda': (lambda x: x.relu(), lambda x: x.tanh()),
    'constant': (lambda x: x.clamp(min=0), lambda x: x.clamp(min=1)),
    'partial': tuple(partial(F.leaky_relu, negative_slope=s) for s in (0.1, 0.2)),
    'instructions': (lambda x: x + x.relu(), lambda x: x - x.relu()),
    'default': tuple(leaky_relu_by_default(slope) for slope in (0.1, 0.2)),
    'constant around': tuple(leaky_relu(slope) for slope in (0.1, 0.2)),
    'function around': tuple(doubled(act) for act in (torch.relu, torch.tanh)),
    'function around, with its own': tuple(doubled(leaky_relu(slope)) for slope in (0.1, 0.2)),
    'partial around': tuple(
        doubled(partial(F.leaky_relu, negative_slope=slope)) for slope in (0.1, 0.2)
    ),
    'object around': tuple(doubled(LeakyReLU(slope)) for slope in (0.1, 0.2)),
    'partial of functions': tuple(
        partial(lambda act, x: 2 * act(x), act) for act in (torch.relu, torch.tanh)
    ),
    'constant of the module': tuple(
        FunctionType(leaky_relu_of_module.__code__, {'F': F, 'SLOPE': slope}, 'act')
        for slope in (0.1, 0.2)
    ),
    'object': (LeakyReLU(0.1), LeakyReLU(0.2)),
    'method': (LeakyReLU(0.1).compute, LeakyReLU(0.2).compute),
    'function of an object': (Doubled(torch.relu), Doubled(torch.tanh)),
    'method of tensors': (torch.Tensor.relu, torch.Tensor.tanh),
    'method of a class': (ReLUFunction.apply, TanhFunction.apply),
}


@pytest.mark.parametrize('name', ACTIVATIONS)
def test_folders_tell_functions_apart(name, tmp_path):
    """The scores of the model with the first activation were returned for the second."""
    data = graph()
    one, other = (DIFFormer(5, 8, 3, act=act).double() for act in ACTIVATIONS[name])
    other.load_state_dict(one.state_dict())
    scores = one.inference(loader(data), tmp_path)
    torch.testing.assert_close(one.inference(loader(data), tmp_path), scores, rtol=0, atol=0)
    with pytest.raises(ValueError, match='of a run with other parameters, settings or data'):
        other.inference(loader(data), tmp_path)
    one.compile(backend='eager')
    torch.testing.assert_close(one.inference(loader(data), tmp_path), scores, rtol=0, atol=0)
    assert ' at 0x' not in repr(plain_settings(one))  # another process has other addresses


OWN_MODULES = {
    'method': 'def forward(self, x): return x.{}()',
    'decorated': 'forward = torch.no_grad()(lambda self, x: x.{}())',
    'constant': 'name = "{}"\n    def forward(self, x): return getattr(x, self.name)()',
    'address': 'parts = [object()]\n    def forward(self, x): return x.{}()',
}


def own_module(code):
    space = {'__name__': '__main__', 'torch': torch}
    exec(f'class Act(torch.nn.Module):\n    {code}', space)
    return space['Act']()


@pytest.mark.parametrize('name', OWN_MODULES)
def test_folders_tell_the_code_of_modules_apart(name, tmp_path):
    """A cell of a notebook that defined the module anew got the scores of the former code."""
    codes = [OWN_MODULES[name].format(act) for act in ('relu', 'relu', 'tanh')]
    one, same, other = (DIFFormer(5, 8, 3, act=own_module(code)).double() for code in codes)
    same.load_state_dict(one.state_dict())
    other.load_state_dict(one.state_dict())
    scores = one.inference(loader(graph()), tmp_path)
    assert torch.equal(same.inference(loader(graph()), tmp_path), scores)
    with pytest.raises(ValueError, match='of a run with other parameters, settings or data'):
        other.inference(loader(graph()), tmp_path)


@pytest.mark.parametrize('name', ['use_source', 'tau', 'graph_weight'])
def test_folders_tell_numbers_and_flags_of_numpy_apart(name, tmp_path):
    torch.manual_seed(0)
    numbers = (True, False) if name == 'use_source' else (0.25, 0.5)
    kind = np.bool_ if name == 'use_source' else np.float32
    one, other = (DIFFormer(5, 8, 3, 2, **{name: kind(number)}).double() for number in numbers)
    other.load_state_dict(one.state_dict())
    data = graph()
    scores = one.inference(loader(data), tmp_path)
    with pytest.raises(ValueError, match='of a run with other parameters, settings or data'):
        other.inference(loader(data), tmp_path)
    same = DIFFormer(5, 8, 3, 2, **{name: numbers[0]}).double()
    same.load_state_dict(one.state_dict())
    assert torch.equal(same.inference(loader(data), tmp_path), scores)


def test_text_of_a_function_that_calls_itself_or_is_compiled():
    def repeated(x, times=2):
        return x if times == 0 else repeated(x.relu(), times - 1)

    one, other = (DIFFormer(5, 8, 3, act=act) for act in (repeated, torch.compile(repeated)))
    assert plain_settings(one) == plain_settings(other)
    assert ' at 0x' not in repr(plain_settings(one))


def test_networks_with_weights_of_their_own_see_the_edges():
    data, model = graph(), SGFormer(5, 8, 3, gnn=GAT(8, 8, 2)).double()
    scores = model.inference(loader(data))
    torch.testing.assert_close(
        scores, model.eval()(data.x, data.edge_index).detach(), rtol=1e-10, atol=1e-12
    )


def test_loaders_with_other_subgraphs_or_batch_samplers_are_refused():
    data, model = graph(), BACKBONES['difformer']().double()
    for kind in ('bidirectional', 'induced'):
        with pytest.raises(
            ValueError,
            match=(
                "'loader' must have subgraph_type='directional' and a batch_size .got "
                f"subgraph_type='{kind}'"
            ),
        ):
            model.inference(NeighborLoader(data, [-1], batch_size=7, subgraph_type=kind))
    batches = torch.arange(N).split(7)
    with pytest.raises(
        ValueError, match=r"'loader' must have .* and a batch_size \(got a batch sampler"
    ):
        model.inference(NeighborLoader(data, [-1], batch_sampler=batches))


def test_loaders_of_another_graph_than_the_data_are_refused():
    """Each would return other scores than the model has for the data."""
    data, model = graph(), BACKBONES['difformer']().double()
    data.time = torch.arange(N)
    with pytest.raises(ValueError, match="'loader' must have time_attr=None"):
        model.inference(NeighborLoader(data, [-1], batch_size=7, time_attr='time'))
    with pytest.raises(ValueError, match="'loader' must have transform=None"):
        model.attention_memory(NeighborLoader(data, [-1], batch_size=7, transform=ToUndirected()))
    nodes = HeteroData(
        {'node': {'x': data.x}, ('node', 'to', 'node'): {'edge_index': data.edge_index}}
    )
    with pytest.raises(ValueError, match="'loader' must be of nodes of one type"):
        model.inference(NeighborLoader(nodes, [-1], input_nodes='node', batch_size=7))


@pytest.mark.parametrize('name', ['difformer', 'sgformer', 'graph-transformer'])
def test_batches_of_several_graphs_are_refused(name):
    """The nodes of all graphs attended to each other, without an error."""
    one, model = graph(), BACKBONES[name]().double()
    loader = NeighborLoader(Batch.from_data_list([one, one]), [-1], batch_size=7)
    for call in (model.inference, model.attention_memory):
        with pytest.raises(ValueError, match=r"'loader' must be of one graph \(got a batch of"):
            call(loader)
    scores = model.inference(NeighborLoader(Batch.from_data_list([one]), [-1], batch_size=7))
    torch.testing.assert_close(scores, model.inference(NeighborLoader(one, [-1], batch_size=7)))


@pytest.mark.parametrize('name', ['graph-transformer-local', 'litegt'])
def test_batches_of_several_graphs_without_attention_between_nodes(name):
    data = JaccardScores()(Batch.from_data_list([graph(), graph()]))
    model = LiteGT(5, 8, 3) if name == 'litegt' else BACKBONES[name]()
    model = model.double().eval()
    values = {'edge_jaccard': data.edge_jaccard.double()} if name == 'litegt' else {}
    data.update(values)
    whole = model(data.x, data.edge_index, data.batch, **values)
    scores = model.inference(NeighborLoader(data, [-1], batch_size=7))
    torch.testing.assert_close(scores, whole.detach(), rtol=1e-10, atol=1e-12)


def pyg_loader(data):
    return PyGNeighborLoader(data, [-1], batch_size=17)


@pytest.mark.parametrize('make_loader', [loader, pyg_loader])
def test_loaders_made_before_the_edges_changed_are_refused(make_loader):
    """The sampler would return the edges of then, beside the features and weights of now."""
    model = BACKBONES['difformer']().double()
    sizes = {
        'arrived': lambda data: torch.cat([data.edge_index, data.edge_index[:, :4]], 1),
        'removed': lambda data: data.edge_index[:, 5:],
    }
    for call in (model.inference, model.attention_memory):
        for edges, number in zip(sizes.values(), (163, 154), strict=True):
            data = graph()
            batches = make_loader(data)
            data.edge_index = edges(data)
            with pytest.raises(
                ValueError,
                match=(
                    r"'loader' must be of the graph that its data is now \(got one of 60 nodes and "
                    rf'159 edges, the data now has 60 and {number}\); make a new loader'
                ),
            ):
                call(batches)
        data = graph()
        batches = make_loader(data)
        data.x = torch.cat([data.x, data.x[:2]])
        with pytest.raises(ValueError, match='60 nodes and 159 edges, the data now has 62 and 159'):
            call(batches)
        data = graph()
        batches = make_loader(data)
        data.edge_index = data.edge_index.flip(1)
        with pytest.raises(ValueError, match='got one of other edges, or in another order'):
            call(batches)


@pytest.mark.parametrize('position', [0, 49, 50, 158])
def test_edges_are_compared_part_by_part(monkeypatch, position):
    monkeypatch.setattr(loader_checks, 'CHUNK', 50)
    data, model = graph(), BACKBONES['difformer']().double()
    batches = loader(data)
    assert model.inference(batches).shape == (60, 3)
    data.edge_index = data.edge_index.clone()
    data.edge_index[0, position] = (data.edge_index[0, position] + 1) % 60
    with pytest.raises(ValueError, match='got one of other edges, or in another order'):
        model.inference(batches)


def test_data_may_give_its_edges_back_after_the_loader_is_made():
    data, model = graph(), BACKBONES['difformer']().double()
    expected = model.inference(loader(data))
    batches = loader(data)
    del data.edge_index
    assert torch.equal(model.inference(batches), expected)


WEIGHTED = {
    name: BACKBONES[name]
    for name in (
        'difformer',
        'sgformer',
        'sgformer-residual',
        'nodeformer',
        'nodeformer-output',
        'graph-transformer',
    )
}
WEIGHTED['sgformer-gcn'] = lambda: SGFormer(5, 8, 3, gnn=GCN(8, 8, 2, normalize=False))
WEIGHTED['graph-transformer-graphconv'] = lambda: GraphTransformer(5, 8, 3, 2, 2, conv='GraphConv')
WEIGHTED['litegt'] = lambda: LiteGT(5, 16, 3, 2, 4, ('softmax', 'subtractor'))


def weighted_graph(model):
    """Repeated edges, and self loops unless each node is its own neighbour."""
    data = graph()
    if isinstance(model, NodeFormer):
        data.edge_index = data.edge_index[:, data.edge_index[0] != data.edge_index[1]]
    weight = torch.rand(
        data.num_edges, dtype=torch.float64, generator=torch.Generator().manual_seed(3)
    )
    return Data(x=data.x, edge_index=data.edge_index, edge_weight=weight + 0.1)


@pytest.mark.parametrize('workers', [0, 1])
@pytest.mark.parametrize('name', WEIGHTED)
def test_weights_of_edges_are_those_of_the_pass_over_the_graph(name, workers, tmp_path):
    model = WEIGHTED[name]().double()
    data = weighted_graph(model)
    scores = model.inference(loader(data, num_workers=workers), tmp_path)
    expected = model.eval()(data.x, data.edge_index, edge_weight=data.edge_weight).detach()
    torch.testing.assert_close(scores, expected, rtol=1e-10, atol=1e-12)
    assert not torch.allclose(scores, model(data.x, data.edge_index), rtol=1e-4)
    other = Data(x=data.x, edge_index=data.edge_index, edge_weight=data.edge_weight + 1)
    with pytest.raises(
        ValueError, match="'folder' must be empty or of a run with the same model and graph"
    ):
        model.inference(loader(other), tmp_path)


@pytest.mark.sparse
@pytest.mark.parametrize('name', WEIGHTED)
def test_values_of_an_adjacency_matrix_are_weights(name):
    model = WEIGHTED[name]().double()
    data = weighted_graph(model)
    matrix = SparseTensor.from_edge_index(data.edge_index, data.edge_weight, (N, N)).t().coalesce()
    scores = model.inference(loader(Data(x=data.x, adj_t=matrix)))
    torch.testing.assert_close(
        scores, model.eval()(data.x, matrix).detach(), rtol=1e-10, atol=1e-12
    )
    both = Data(x=data.x, adj_t=matrix, edge_weight=matrix.storage.value())
    with pytest.raises(ValueError, match="'edge_weight' must be None where 'adj_t' has values"):
        model.inference(loader(both))


def test_mgformer_weighs_neighbours_in_parts():
    model = MGFormer(20, 40, 6, num_layers=2, mask='adjacency').double()
    data = weighted_graph(model)
    expected = model.get_embedding(data.edge_index, edge_weight=data.edge_weight).detach()
    torch.testing.assert_close(model.inference(loader(data)), expected, rtol=1e-10, atol=1e-12)


def test_weights_that_parts_cannot_use_are_refused():
    data = weighted_graph(None)
    with pytest.raises(
        ValueError,
        match=(
            "'gnn' must be the default one or a GCN with normalize=False for edge weights in parts"
        ),
    ):
        SGFormer(5, 8, 3, gnn=GraphSAGE(8, 8, 2)).double().inference(loader(data))
    with pytest.raises(
        ValueError, match="'edge_weight' must be 1 for self loops with relational_input='value'"
    ):
        BACKBONES['nodeformer']().double().inference(loader(data))
    for weight in (data.edge_weight[:-1], data.edge_weight.long(), data.edge_weight[:, None]):
        with pytest.raises(
            ValueError, match="'edge_weight' must hold a floating-point number for each edge"
        ):
            BACKBONES['difformer']().double().inference(
                loader(Data(x=data.x, edge_index=data.edge_index, edge_weight=weight))
            )


@pytest.mark.parametrize(
    'make', [DIFFormer, SGFormer, partial(LiteGT, num_layers=1, heads=2, kernel=('mean', 'mean'))]
)
def test_a_model_without_sizes_is_named(make, tmp_path):
    """What lies in a folder follows from the parameters."""
    model = make(-1, 8, 3)
    with pytest.raises(
        ValueError,
        match="'in_channels' = -1 is not known before the first input; run the model once",
    ):
        model.inference(loader(graph()), tmp_path)
    assert model.inference(loader(graph())).shape == (graph().num_nodes, 3)


@pytest.mark.parametrize('norm', ['GraphNorm', 'PairNorm', 'InstanceNorm', 'LayerNorm'])
def test_norms_over_all_nodes_are_refused_in_parts(norm):
    model = SGFormer(5, 8, 3, gnn=GraphSAGE(8, 8, 2, norm=norm)).double()
    with pytest.raises(ValueError, match="'gnn' must not normalise over nodes to be evaluated in"):
        model.inference(loader(graph()))


@pytest.mark.parametrize('mask', ['none', 'adjacency'])
def test_mgformer_needs_no_features_in_files(mask, tmp_path):
    edges = torch.stack([torch.randint(3, (20,)), torch.randint(3, 9, (20,))])
    stored = MappedGraph(write_graph(tmp_path / 'graph', edges, 9, undirected=True))
    model = MGFormer(3, 6, 8, mask=mask).eval()
    scores = model.inference(loader(stored), tmp_path / 'scores')
    expected = model.get_embedding(torch.cat([edges, edges.flip(0)], 1)).detach()
    torch.testing.assert_close(scores, expected)
    with pytest.raises(ValueError, match="with the attribute 'x'"):
        BACKBONES['difformer']().inference(loader(stored))


@pytest.mark.parametrize('num_nodes', [6, 12])
def test_mgformer_needs_its_users_and_items(num_nodes):
    edges = torch.tensor([[0, 1, 2, 3, 4, 5], [3, 4, 5, 0, 1, 2]])
    model = MGFormer(3, 6, 8, mask='none')
    with pytest.raises(ValueError, match=rf"'loader' must have the 9 users .* \(got {num_nodes}\)"):
        model.inference(loader(Data(edge_index=edges, num_nodes=num_nodes)))


@pytest.mark.parametrize(
    'make', [lambda: SGFormer(5, 8, 3), lambda: GraphTransformer(5, 8, 3, 2, 2)]
)
def test_half_precision_in_parts(make, tmp_path):
    """A CPU multiplies no sparse matrix by half precision, and NumPy has no bfloat16."""
    data, model = graph(), make().eval()
    data.x = data.x.float()
    expected = model(data.x, data.edge_index).detach()
    with torch.autocast('cpu', torch.bfloat16):
        actual = model.inference(loader(data))
    assert float((actual - expected).norm() / expected.norm()) < 0.05
    data.x = data.x.bfloat16()
    actual = model.bfloat16().inference(loader(data))
    assert float((actual.float() - expected).norm() / expected.norm()) < 0.05
    assert torch.equal(model.inference(loader(data), tmp_path), actual)
    assert torch.equal(model.inference(loader(data), tmp_path), actual)  # from the file


@pytest.mark.parametrize(('dtype', 'enabled'), [(torch.float16, True), (torch.bfloat16, False)])
def test_folders_tell_autocast_apart(dtype, enabled, tmp_path):
    """Scores that were rounded under autocast were read later as those of full precision."""
    data, model = graph(), SGFormer(5, 8, 3)
    data.x = data.x.float()
    with torch.autocast('cpu', torch.bfloat16):
        rounded = model.inference(loader(data), tmp_path)
        assert torch.equal(model.inference(loader(data), tmp_path), rounded)
    with (
        torch.autocast('cpu', dtype, enabled),
        pytest.raises(ValueError, match='of a run with other parameters, settings or data'),
    ):
        model.inference(loader(data), tmp_path)


class Quantized(torch.nn.Linear):
    def get_extra_state(self):
        return {'zero_point': 0}


def change_output(model):
    model.lin_out = Quantized(8, 3).double()


@pytest.mark.parametrize(
    ('change', 'name'), [(change_output, 'lin_out._extra_state'), (quantize_, 'lin_in.weight')]
)
def test_a_quantized_model_writes_to_no_folder(change, name, tmp_path):
    """Its state dict has more than plain tensors, which no checksum identifies."""
    data, model = graph(), SGFormer(5, 8, 3).double().eval()
    change(model)
    whole = model(data.x, data.edge_index)
    torch.testing.assert_close(model.inference(loader(data)), whole, rtol=1e-12, atol=1e-12)
    message = rf"^'folder' must be None .* quantized one \(got '{name}'\)"
    with pytest.raises(ValueError, match=message):
        model.inference(loader(data), tmp_path)
    assert not any(tmp_path.iterdir())


def test_threads_leave_the_mode_of_a_model():
    """The first evaluation ends while that of another thread goes on."""
    model, entered, leave = torch.nn.Linear(2, 2).train(), threading.Event(), threading.Event()

    def evaluate():
        with evaluation(model):
            entered.set()
            leave.wait(30)
            return model.training

    with ThreadPoolExecutor(1) as pool:
        with evaluation(model):
            other = pool.submit(evaluate)
            entered.wait(30)
        leave.set()
        assert not other.result()
    assert model.training
