"""A model may be on another device than new tensors: on the CPU where the default is a GPU, or on
the second of two GPUs. The device 'meta' stands for the default."""

import pytest
import torch

from torch_geometric_lgt.nn import (
    DegreeMaskedAttention,
    DIFFormer,
    GraphTransformer,
    KernelAttentionConv,
    LiteGT,
    NodeFormer,
    SGFormer,
)

EDGES = torch.randint(12, (2, 40), generator=torch.Generator().manual_seed(0))
LAYERS = {
    'kernel': lambda: KernelAttentionConv(6, 8, relational_order=2),
    'degree': lambda: DegreeMaskedAttention(6),
    'NodeFormer': lambda: NodeFormer(6, 4, 3),
    'DIFFormer': lambda: DIFFormer(6, 4, 3),
    'SGFormer': lambda: SGFormer(6, 4, 3),
    'GraphTransformer': lambda: GraphTransformer(6, 4, 3),
    'LiteGT': lambda: LiteGT(6, 8, 3, 2, kernel='subtractor'),
}


def run(layer, x):
    torch.manual_seed(1)
    x = x.clone().requires_grad_()
    out = layer(x, edge_index=EDGES)
    return out.detach(), *torch.autograd.grad(out.square().sum(), x)


@pytest.mark.parametrize('name', LAYERS)
def test_results_are_on_the_device_of_the_model(name):
    layer, x = LAYERS[name](), torch.randn(12, 6)
    expected = run(layer, x)
    with torch.device('meta'):
        found = run(layer, x)
    torch.testing.assert_close(found, expected)


def test_dropped_sparse_features_are_on_the_device_of_the_model():
    model, x = GraphTransformer(6, 4, 3, input_dropout=0.5), torch.randn(12, 6).to_sparse()
    with torch.device('meta'):
        assert model(x, EDGES).device == x.device
