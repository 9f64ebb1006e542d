"""Models as exported programs, for graphs of any size."""

import subprocess
import sys

import pytest
import torch
from torch.export import Dim, export, save

from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DIFFormer,
    GraphTransformer,
    LiteGT,
    MGFormer,
    NodeFormer,
    SGFormer,
)

MODELS = {
    'NodeFormer': lambda: NodeFormer(6, 4, 3, heads=2, num_features=8),
    'NodeFormer-output': lambda: NodeFormer(
        6, 4, 3, heads=2, num_features=8, relational_input='output'
    ),
    'NodeFormer-0': lambda: NodeFormer(6, 4, 3, heads=2, relational_order=0),
    'DIFFormer': lambda: DIFFormer(6, 4, 3),
    'DIFFormer-frobenius': lambda: DIFFormer(6, 4, 3, norm='frobenius'),
    'DIFFormer-sigmoid': lambda: DIFFormer(6, 4, 3, kernel='sigmoid'),
    'SGFormer': lambda: SGFormer(6, 4, 3),
    'SGFormer-row': lambda: SGFormer(6, 4, 3, norm='row'),
    'GraphTransformer': lambda: GraphTransformer(6, 4, 3, 2, 2),
    'GraphTransformer-gat': lambda: GraphTransformer(
        6, 4, 3, 2, 2, conv='GATv2Conv', norm='layer_norm'
    ),
    'LiteGT': lambda: LiteGT(6, 8, 3, 2, 4),
    'LiteGT-subtractor': lambda: LiteGT(6, 8, 3, 2, 4, kernel='subtractor'),
}


def graph(name, num_nodes, num_edges):
    x, edge_index = torch.randn(num_nodes, 6), torch.randint(num_nodes, (2, num_edges))
    return (x, edge_index), {'edge_jaccard': torch.rand(num_edges)} if name == 'LiteGT' else {}


@pytest.mark.compiled
@pytest.mark.parametrize(
    'sizes', [(Dim.AUTO, Dim.AUTO), (Dim('N', min=2), Dim('E', min=2))], ids=['auto', 'named']
)
@pytest.mark.parametrize('name', MODELS)
def test_exported_models_serve_graphs_of_every_size(name, sizes):
    model = MODELS[name]().eval()
    args, kwargs = graph(name, 12, 30)
    shapes = {
        'x': {0: sizes[0]},
        'edge_index': {1: sizes[1]},
        **{key: {0: sizes[1]} for key in kwargs},
    }
    program = export(model, args, kwargs, dynamic_shapes=shapes).module()
    for num_nodes, num_edges in ((12, 30), (2, 2), (3, 71), (200, 5), (500, 2000)):
        args, kwargs = graph(name, num_nodes, num_edges)
        torch.testing.assert_close(program(*args, **kwargs), model(*args, **kwargs))


LOAD = """
import sys, torch
{imports}
program, call = sys.argv[1:]
args, expected = torch.load(call)
torch.testing.assert_close(torch.export.load(program).module()(*args), expected)
"""


@pytest.mark.compiled
def test_a_process_that_loads_a_program_imports_the_operators(tmp_path):
    """As the page of errors says."""
    model, args = MODELS['SGFormer']().eval(), graph('SGFormer', 12, 30)[0]
    files = [str(tmp_path / 'program.pt2'), str(tmp_path / 'call.pt')]
    save(export(model, args), files[0])
    torch.save((args, model(*args).detach()), files[1])
    without, within = (
        subprocess.run(
            [sys.executable, '-W', 'ignore', '-c', LOAD.format(imports=imports), *files],
            capture_output=True,
            text=True,
        )
        for imports in ('', 'import torch_geometric_lgt.nn')
    )
    assert 'We ran into an error when deserializing the saved file' in without.stderr
    assert within.returncode == 0, within.stderr


@pytest.mark.compiled
@pytest.mark.parametrize('name', ['DIFFormer', 'SGFormer', 'LiteGT-subtractor'])
def test_a_program_of_sorted_edges_serves_edges_in_any_order(name):
    model, (x, edges) = MODELS[name]().eval(), graph(name, 12, 30)[0]
    by_target = edges[:, edges[1].argsort()]
    program = export(model, (x, by_target), dynamic_shapes=({0: Dim.AUTO}, {1: Dim.AUTO})).module()
    torch.testing.assert_close(program(x, edges), model(x, edges))


@pytest.mark.compiled
@pytest.mark.parametrize('name', ['edge loss', 'adjacency'])
def test_strict_exports_run(name):
    """Their weights of edges are checkpointed in compiled code, which a strict export kept as an
    operator that no program can run."""
    model = _EdgeLoss() if name == 'edge loss' else AdjacencyMaskedAttention(6, heads=2)
    shapes = ({0: Dim.AUTO}, {1: Dim.AUTO})
    program = export(model.eval(), graph('', 12, 30)[0], dynamic_shapes=shapes, strict=True)
    args = graph('', 40, 90)[0]
    torch.testing.assert_close(program.module()(*args), model(*args))


class _EdgeLoss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.model = NodeFormer(6, 4, 3, 1, num_features=5)

    def forward(self, x, edge_index):
        return self.model(x, edge_index, return_edge_loss=True)


@pytest.mark.compiled
@pytest.mark.parametrize(
    'sizes', [(Dim.AUTO, Dim.AUTO), (Dim('N', min=2), Dim('E', min=2))], ids=['auto', 'named']
)
def test_exported_edge_loss_has_no_largest_size(sizes):
    """Whose eager pairs are taken 4096 at a time."""
    model = _EdgeLoss().eval()
    program = export(
        model, graph('', 12, 30)[0], dynamic_shapes=({0: sizes[0]}, {1: sizes[1]})
    ).module()
    args = graph('', 5000, 9000)[0]
    torch.testing.assert_close(program(*args), model(*args))


@pytest.mark.compiled
def test_exported_models_of_batches():
    """With the number of graphs, which is part of the program."""
    model = NodeFormer(6, 4, 3, heads=2, num_features=8).eval()
    args = [*graph('NodeFormer', 12, 30)[0], torch.arange(12) % 3, 3]
    shapes = ({0: Dim.AUTO}, {1: Dim.AUTO}, {0: Dim.AUTO}, None)
    program = export(model, tuple(args), dynamic_shapes=shapes).module()
    args = [*graph('NodeFormer', 40, 90)[0], torch.arange(40) % 3, 3]
    torch.testing.assert_close(program(*args), model(*args))


@pytest.mark.compiled
@pytest.mark.parametrize('mask', ['degree', 'adjacency', 'none'])
def test_exported_recommender_scores_every_number_of_pairs(mask):
    """Degrees are counted from the edges."""
    model = MGFormer(7, 5, 6, mask=mask).eval()
    edges, others = torch.randint(12, (2, 30)), torch.randint(12, (2, 51))
    program = export(_Rows(model), (edges,), dynamic_shapes=({1: Dim.AUTO},)).module()
    torch.testing.assert_close(program(others), model.get_embedding(others))


class _Rows(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, edge_index):
        return self.model.get_embedding(edge_index)


@pytest.mark.compiled
def test_higher_orders_are_exported_with_given_hops_only():
    model = NodeFormer(6, 4, 3, relational_order=2).eval()
    with pytest.raises(ValueError, match="pass what the method 'hops' returns"):
        export(model, *graph('NodeFormer', 12, 30))


@pytest.mark.parametrize('name', ['SGFormer', 'LiteGT'])
def test_torch_script_is_refused(name):
    """Also for a network that has such a model."""
    net = torch.nn.ModuleList([MODELS[name]()])
    with pytest.raises(
        NotImplementedError,
        match=r'Conv cannot be compiled by torch\.jit\.script; use torch\.export\.export$',
    ):
        torch.jit.script(net)
