import itertools

import pytest
import torch
from torch_geometric.nn import GraphSAGE

from torch_geometric_lgt.functional import jaccard
from torch_geometric_lgt.functional.edges import degrees
from torch_geometric_lgt.nn import (
    DegreeMaskedAttention,
    DIFFormer,
    DIFFormerConv,
    JaccardSubtractorConv,
    KernelAttentionConv,
    LiteGT,
    NodeFormer,
    SGFormer,
    SGFormerConv,
)
from torch_geometric_lgt.testing.checks import check_layer


def with_degrees(layer, x, edge_index, batch=None, **kwargs):
    return layer(x, degrees(edge_index, x.size(0)), batch, **kwargs)


def with_hops(model, x, edge_index, batch=None, **kwargs):
    return model(x, model.hops(edge_index, x.size(0)), batch, **kwargs)


def with_jaccard(layer, x, edge_index, batch=None, **kwargs):
    """The softmax for nodes with few neighbours."""
    return layer(x, edge_index, jaccard(edge_index, x.size(0)), degrees(edge_index, x.size(0)) < 4)


def model_with_jaccard(model, x, edge_index, batch=None, **kwargs):
    index, degree = jaccard(edge_index, x.size(0)), degrees(edge_index, x.size(0))
    return model(x, edge_index, batch, edge_jaccard=index, sampled_mask=degree < 4, **kwargs)


LAYERS = {
    'kernel': (lambda: KernelAttentionConv(6, 8, heads=2), {}),
    'kernel-elu': (lambda: KernelAttentionConv(6, 8, heads=2, feature_map='elu'), {}),
    'degree': (lambda: DegreeMaskedAttention(6, heads=2, max_degree=16), {'call': with_degrees}),
    'sgformer': (lambda: SGFormerConv(6, 8, heads=2), {}),
    'sgformer-row': (lambda: SGFormerConv(6, 8, norm='row', bias=False), {}),
    'difformer': (lambda: DIFFormerConv(6, 8, heads=2), {}),
    'difformer-frobenius': (lambda: DIFFormerConv(6, 8, norm='frobenius', use_graph=False), {}),
    'difformer-sigmoid': (lambda: DIFFormerConv(6, 8, heads=2, kernel='sigmoid', graph_weight=0.5), {'linear': False}),
    'jaccard': (lambda: JaccardSubtractorConv(6, 8, heads=4), {'call': with_jaccard}),
    'subtractor': (lambda: JaccardSubtractorConv(6, 8, heads=4, kernel='subtractor', concat=False), {'call': with_jaccard}),
    'LiteGT': (lambda: LiteGT(6, 16, 3, num_layers=4, reduce=True), {'call': model_with_jaccard}),
    'NodeFormer': (lambda: NodeFormer(6, 4, 3, heads=2, num_features=8, relational_order=2, jumping_knowledge=True), {'call': with_hops}),
    'DIFFormer': (lambda: DIFFormer(6, 4, 3, use_source=True), {}),
    'SGFormer': (lambda: SGFormer(6, 4, 3, norm='row'), {}),
    'SGFormer-cat': (lambda: SGFormer(6, 4, 3, aggregate='cat', gnn_input='input', gnn=GraphSAGE(6, 4, 1), activate_layers=True), {}),
}


@pytest.mark.parametrize('name', LAYERS)
def test_layers_keep_every_promise(name):
    make, options = LAYERS[name]
    check_layer(make, 6, **options)


class Broken(torch.nn.Module):
    """A linear layer over each graph's mean that keeps every promise but one."""

    def __init__(self, fault):
        super().__init__()
        self.fault, self.lin = fault, torch.nn.Linear(6, 3)
        self.weight = torch.nn.Parameter(torch.ones(1)) if fault == 'reset' else None

    def reset_parameters(self):
        if self.fault != 'reset':
            self.lin.reset_parameters()
        if self.fault == 'seed':
            self.lin.weight.data += next(COUNTER)

    def forward(self, x, edge_index, batch=None, batch_size=None):
        num_nodes = x.size(0)
        batch = torch.zeros(num_nodes, dtype=torch.long) if batch is None else batch
        size = 4 if batch_size is None else batch_size
        one = torch.ones(num_nodes, 1, dtype=x.dtype)
        total, count = (torch.zeros(size, t.size(1), dtype=x.dtype).index_add(0, batch, t) for t in (x, one))
        mean = total / count.clamp(min=1)
        out = self.lin(x + mean[batch])
        if self.fault == 'order':
            return out * torch.arange(num_nodes, dtype=x.dtype)[:, None]
        if self.fault == 'batch':
            return out + x.mean()
        if self.fault == 'neighbour':
            return out + 1e-3 * x[edge_index[0]].sum()
        if self.fault == 'gradient':
            return out.detach() * 2 + out
        if self.fault == 'noise':
            return out + 1e-12 * torch.rand(1)
        if self.fault == 'writes':
            x.data[:1] += 1e-12
        if self.fault == 'compile':
            torch._dynamo.graph_break()
        if self.fault == 'precision' and x.dtype == torch.bfloat16:
            return out * 1.1
        if self.fault == 'cost':
            return out + (one @ one.t()).mean(1, keepdim=True)
        return out


COUNTER = itertools.count()
FAULTS = {
    'order': 'a permutation of the nodes',
    'batch': 'a graph depends on the batch',
    'neighbour': 'a graph depends on',
    'gradient': 'Jacobian mismatch',
    'noise': 'evaluation draws',
    'writes': 'an input was written to',
    'reset': "'reset_parameters' resets nothing",
    'seed': 'one seed makes two layers',
    'precision': 'with the relative error',
    'cost': 'at 4N nodes',
}


def test_a_layer_that_keeps_every_promise_passes():
    check_layer(lambda: Broken(None), 6)


@pytest.mark.parametrize('fault', FAULTS)
def test_each_broken_promise_is_found(fault):
    with pytest.raises((AssertionError, RuntimeError), match=FAULTS[fault]):
        check_layer(lambda: Broken(fault), 6)


def test_graph_breaks_are_found():
    with pytest.raises(torch._dynamo.exc.Unsupported):
        check_layer(lambda: Broken('compile'), 6)
