"""Activation checkpointing of PyTorch computes a layer again in the backward pass."""

import pytest
import torch
from constants import BY_OPERATORS
from torch.utils.checkpoint import checkpoint

from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    DIFFormerConv,
    GraphTransformer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    LiteGT,
    NodeFormer,
    SGFormer,
    SGFormerConv,
)

EDGES = torch.randint(12, (2, 40), generator=torch.Generator().manual_seed(0))
FEATURES = torch.ones(EDGES.size(1), 2)
CALLS = {
    'kernel': (lambda: KernelAttentionConv(6, 8, heads=2), lambda layer, x: layer(x)),
    'noise': (lambda: KernelAttentionConv(6, 8, num_gumbel_samples=3), lambda layer, x: layer(x)),
    'state': (
        lambda: KernelAttentionConv(6, 8),
        lambda layer, x: layer(x, state=layer.attention_state(x)),
    ),
    'scores': (
        lambda: KernelAttentionConv(6, 8),
        lambda layer, x: layer.attention_scores(x, EDGES),
    ),
    'degree': (lambda: DegreeMaskedAttention(6), lambda layer, x: layer(x, edge_index=EDGES)),
    'adjacency': (lambda: AdjacencyMaskedAttention(6), lambda layer, x: layer(x, EDGES)),
    'difformer': (lambda: DIFFormerConv(6, 8), lambda layer, x: layer(x, EDGES)),
    'sigmoid': (lambda: DIFFormerConv(6, 8, kernel='sigmoid'), lambda layer, x: layer(x, EDGES)),
    'frobenius': (lambda: SGFormerConv(6, 8), lambda layer, x: layer(x)),
    'subtractor': (
        lambda: JaccardSubtractorConv(6, 8, kernel='subtractor'),
        lambda layer, x: layer(x, EDGES),
    ),
    'subtractor-edges': (
        lambda: JaccardSubtractorConv(6, 8, kernel='subtractor', edge_channels=2),
        lambda layer, x: layer(x, EDGES, edge_attr=FEATURES),
    ),
    'NodeFormer': (lambda: NodeFormer(6, 4, 3), lambda model, x: model(x, EDGES)),
    'SGFormer': (lambda: SGFormer(6, 4, 3), lambda model, x: model(x, EDGES)),
    'GraphTransformer': (lambda: GraphTransformer(6, 4, 3), lambda model, x: model(x, EDGES)),
    'LiteGT': (lambda: LiteGT(6, 8, 3, 2, kernel='subtractor'), lambda model, x: model(x, EDGES)),
}


@pytest.mark.parametrize('use_reentrant', [False, True], ids=['saved-tensors', 'reentrant'])
@pytest.mark.parametrize('is_small', [False, True], ids=['operators', 'formulas'])
@pytest.mark.parametrize('name', CALLS)
def test_gradients_are_those_without_checkpointing(name, is_small, use_reentrant, constants):
    """Also for the operators of large graphs, which read what autograd has saved once."""
    if not is_small:
        constants(plain_elements=BY_OPERATORS)
    make, call = CALLS[name]
    layer, x = make(), torch.randn(12, 6, requires_grad=True)
    leaves, results = [x, *layer.parameters()], []
    for run in (call, lambda *args: checkpoint(call, *args, use_reentrant=use_reentrant)):
        torch.manual_seed(1)
        out = run(layer, x)
        out.square().sum().backward()
        results.append([out.detach(), *(leaf.grad for leaf in leaves)])
        for leaf in leaves:
            leaf.grad = None
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=0)
