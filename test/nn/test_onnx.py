"""Programs of torch.onnx.export have operations of PyTorch only and run in ONNX Runtime."""

import onnxruntime
import pytest
import torch
from torch.export import Dim

from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    DIFFormer,
    DIFFormerConv,
    GraphTransformer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    LiteGT,
    NodeFormer,
    SGFormer,
    SGFormerConv,
)

WITHOUT_EDGES = {
    'kernel': lambda: KernelAttentionConv(6, 8, heads=2),
    'elu': lambda: KernelAttentionConv(6, 8, feature_map='elu'),
    'learned': lambda: KernelAttentionConv(6, 8, feature_map='learned'),
    'frobenius': lambda: SGFormerConv(6, 8, heads=2),
    'row': lambda: SGFormerConv(6, 8, norm='row'),
}
WITH_EDGES = {
    'relational': lambda: KernelAttentionConv(6, 8, relational_order=1),
    'adjacency': lambda: AdjacencyMaskedAttention(6),
    'difformer': lambda: DIFFormerConv(6, 8),
    'sigmoid': lambda: DIFFormerConv(6, 8, kernel='sigmoid'),
    'subtractor': lambda: JaccardSubtractorConv(6, 8, kernel='subtractor'),
    'NodeFormer': lambda: NodeFormer(6, 4, 3),
    'DIFFormer': lambda: DIFFormer(6, 4, 3),
    'SGFormer': lambda: SGFormer(6, 4, 3),
    'GraphTransformer': lambda: GraphTransformer(6, 4, 3, num_layers=1),
    'gated': lambda: GraphTransformer(6, 4, 3, num_layers=1, num_local_layers=2, gate=True),
    'edges': lambda: GraphTransformer(6, 4, 3, num_layers=1, conv='SAGEConv', level='edge'),
    'graph': lambda: GraphTransformer(6, 4, 3, num_layers=1, conv='GINConv', level='graph'),
    'LiteGT': lambda: LiteGT(6, 8, 3, 2, kernel='subtractor'),
}
SHAPES = {0: Dim.DYNAMIC}, {1: Dim.DYNAMIC}


class WithDegrees(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = DegreeMaskedAttention(6, max_degree=64)

    def forward(self, x, edge_index):
        return self.layer(x, edge_index=edge_index)


CASES = {name: (make, False) for name, make in WITHOUT_EDGES.items()}
CASES |= {name: (make, True) for name, make in (WITH_EDGES | {'degree': WithDegrees}).items()}


def graph(num_nodes, num_edges):
    return torch.randn(num_nodes, 6), torch.randint(num_nodes, (2, num_edges))


@pytest.mark.parametrize('name', CASES)
def test_operations_of_a_program(name, monkeypatch):
    """No operator of this package is left. The program serves graphs of other sizes."""
    monkeypatch.setattr(torch.onnx, 'is_in_onnx_export', lambda: True)
    make, takes_edges = CASES[name]
    model, num = make().eval().double(), 2 if takes_edges else 1
    example, other = graph(12, 40), graph(700, 2000)
    example, other = ((x.double(), *rest)[:num] for x, *rest in (example, other))
    program = torch.export.export(model, example, dynamic_shapes=SHAPES[:num])
    assert not [node for node in program.graph.nodes if 'torch_geometric_lgt' in str(node.target)]
    torch.testing.assert_close(program.module()(*other), model(*other))


@pytest.mark.parametrize(
    'name', ['NodeFormer', 'DIFFormer', 'SGFormer', 'GraphTransformer', 'LiteGT']
)
def test_onnx_runtime(name, tmp_path):
    model, example, other = WITH_EDGES[name]().eval(), graph(12, 40), graph(700, 2000)
    program = torch.onnx.export(model, example, dynamic_shapes=SHAPES, verbose=False)
    program.save(tmp_path / 'model.onnx')
    session = onnxruntime.InferenceSession(tmp_path / 'model.onnx')
    names = [argument.name for argument in session.get_inputs()]
    (out,) = session.run(None, dict(zip(names, (value.numpy() for value in other), strict=True)))
    torch.testing.assert_close(torch.from_numpy(out), model(*other), rtol=1e-4, atol=1e-5)


def test_a_program_takes_one_graph(monkeypatch):
    monkeypatch.setattr(torch.onnx, 'is_in_onnx_export', lambda: True)
    model, batch = GraphTransformer(6, 4, 3, num_layers=1).eval(), torch.arange(12) % 2
    with pytest.raises(ValueError, match=r"'batch' must be left out under torch\.onnx\.export"):
        torch.export.export(model, (*graph(12, 40), batch, 2))
