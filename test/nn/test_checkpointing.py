"""Activation checkpointing of PyTorch computes a layer again in the backward pass."""

from functools import partial

import pytest
import torch
from constants import BY_OPERATORS
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    DIFFormerConv,
    FeatureMap,
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


def keep_products(_context, operator, *_args, **_kwargs):
    """Recomputes all but matrix products."""
    is_product = operator in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if is_product else CheckpointPolicy.PREFER_RECOMPUTE


KEPT = {**CALLS, 'map': (lambda: FeatureMap('simplex', 6), lambda phi, x: phi(x))}


@pytest.mark.parametrize('name', KEPT)
def test_kept_products_give_the_same_gradients(name):
    """The logits of keys were changed in place: the adjacency attention subtracted the squares
    twice, and the feature map ended in an error."""
    make, call = KEPT[name]
    layer, x = make().double(), torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    contexts = partial(create_selective_checkpoint_contexts, keep_products)
    kept = partial(checkpoint, call, use_reentrant=False, context_fn=contexts)
    leaves, results = [x, *layer.parameters()], []
    for run in (call, kept):
        torch.manual_seed(1)
        out = run(layer, x)
        grads = torch.autograd.grad(out.square().sum(), leaves, allow_unused=True)
        results.append((out.detach(), *grads))
    torch.testing.assert_close(results[1], results[0])
