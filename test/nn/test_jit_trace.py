"""Programs of torch.jit.trace serve graphs of other sizes, edges and batch vectors."""

import io

import pytest
import torch
from constants import BY_OPERATORS

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

pytestmark = [
    pytest.mark.filterwarnings('ignore::torch.jit.TracerWarning'),
    pytest.mark.filterwarnings('ignore:.*torch.jit.* is deprecated'),
]
WITH_BATCH = {
    'kernel': (lambda: KernelAttentionConv(6, 8, heads=2), False),
    'elu': (lambda: KernelAttentionConv(6, 8, feature_map='elu'), False),
    'learned': (lambda: KernelAttentionConv(6, 8, feature_map='learned'), False),
    'relational': (lambda: KernelAttentionConv(6, 8, relational_order=1), True),
    'degree': (lambda: DegreeMaskedAttention(6, max_degree=64), True),
    'frobenius': (lambda: SGFormerConv(6, 8), False),
    'row': (lambda: SGFormerConv(6, 8, norm='row'), False),
    'difformer': (lambda: DIFFormerConv(6, 8), True),
    'sigmoid': (lambda: DIFFormerConv(6, 8, kernel='sigmoid'), True),
    'NodeFormer': (lambda: NodeFormer(6, 4, 3), True),
    'DIFFormer': (lambda: DIFFormer(6, 4, 3), True),
    'SGFormer': (lambda: SGFormer(6, 4, 3), True),
    'GraphTransformer': (lambda: GraphTransformer(6, 4, 3), True),
}
WITHOUT_BATCH = {
    'adjacency': lambda: AdjacencyMaskedAttention(6),
    'subtractor': lambda: JaccardSubtractorConv(6, 8, kernel='subtractor'),
    'LiteGT': lambda: LiteGT(6, 8, 3, 2, kernel='subtractor'),
}


class Program(torch.nn.Module):
    def __init__(self, layer, takes_edges):
        super().__init__()
        self.layer, self.takes_edges = layer, takes_edges

    def forward(self, x, edge_index, batch=None):
        options = {} if batch is None else {'batch': batch, 'batch_size': 3}
        if self.takes_edges:
            options['edge_index'] = edge_index
        return self.layer(x, **options)


def graph(num_nodes, num_edges, is_sorted):
    """Edges sorted by target and nodes sorted by graph are special cases."""
    edges, batch = torch.randint(num_nodes, (2, num_edges)), torch.randint(3, (num_nodes,))
    if is_sorted:
        edges, batch = edges[:, edges[1].argsort()], batch.sort().values
    return torch.randn(num_nodes, 6), edges, batch


def check(program, example, other, grad_enabled=True):
    file = io.BytesIO()
    with torch.set_grad_enabled(grad_enabled):
        torch.jit.save(torch.jit.trace(program, example), file)
    file.seek(0)
    traced, results = torch.jit.load(file), []
    for call in (program, traced):
        x = other[0].clone().requires_grad_()
        out = call(x, *other[1:])
        results.append((out.detach(), *torch.autograd.grad(out.square().sum(), x)))
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize('has_batch', [False, True], ids=['one-graph', 'batch'])
@pytest.mark.parametrize('is_small', [False, True], ids=['operators', 'formulas'])
@pytest.mark.parametrize('name', WITH_BATCH)
def test_a_program_serves_other_graphs(name, is_small, has_batch, constants):
    """With a batch vector it had the sizes of the traced graphs, and operators of other sizes did
    not run at all."""
    if not is_small:
        constants(plain_elements=BY_OPERATORS)
    make, takes_edges = WITH_BATCH[name]
    program, num = Program(make().eval().double(), takes_edges), 3 if has_batch else 2
    example, other = graph(12, 40, is_sorted=True), graph(20, 70, is_sorted=False)
    double = [(x.double(), *rest)[:num] for x, *rest in (example, other)]
    check(program, *double)


@pytest.mark.parametrize('grad_enabled', [False, True])
@pytest.mark.parametrize('name', WITHOUT_BATCH)
def test_a_program_serves_other_edges(name, grad_enabled):
    """A program that was traced without gradients had none of the weights of edges."""
    program = Program(WITHOUT_BATCH[name]().eval().double(), takes_edges=True)
    example, other = graph(12, 40, is_sorted=True), graph(20, 70, is_sorted=False)
    check(program, *((x.double(), edges) for x, edges, _ in (example, other)), grad_enabled)


def test_what_cannot_be_traced_ends_in_an_error():
    """Both were constants of the traced call."""
    x, edges, batch = graph(12, 40, is_sorted=True)
    with pytest.raises(ValueError, match=r'under torch\.compile or torch\.jit\.trace; pass the'):
        torch.jit.trace(KernelAttentionConv(6, 8), (x, edges, batch), check_trace=False)
    program = Program(NodeFormer(6, 4, 3, relational_order=2).eval(), takes_edges=True)
    with pytest.raises(ValueError, match="pass what the method 'hops' returns"):
        torch.jit.trace(program, (x, edges), check_trace=False)
