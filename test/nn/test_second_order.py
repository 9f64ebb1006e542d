"""Gradients of gradients, and batches of gradients, end in an error that names what to use."""

import pytest
import torch
from constants import BY_OPERATORS
from torch.utils._python_dispatch import TorchDispatchMode

from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    DIFFormer,
    DIFFormerConv,
    GraphTransformer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    LiteGT,
    MGFormer,
    NodeFormer,
    SGFormer,
    SGFormerConv,
)
from torch_geometric_lgt.testing import dense

EDGES = torch.randint(12, (2, 40), generator=torch.Generator().manual_seed(0))
CALLS = {
    'kernel': (KernelAttentionConv(6, 8, heads=2), lambda layer, x: layer(x)),
    'state': (
        KernelAttentionConv(6, 8),
        lambda layer, x: layer(x.detach(), state=layer.attention_state(x)),
    ),
    'read': (
        KernelAttentionConv(6, 8),
        lambda layer, x: layer(x, state=layer.attention_state(x.detach())),
    ),
    'scores': (KernelAttentionConv(6, 8), lambda layer, x: layer.attention_scores(x, EDGES)),
    'probability': (
        KernelAttentionConv(6, 8),
        lambda layer, x: layer.log_edge_probability(x, EDGES),
    ),
    'degree': (DegreeMaskedAttention(6), lambda layer, x: layer(x, edge_index=EDGES)),
    'adjacency': (AdjacencyMaskedAttention(6), lambda layer, x: layer(x, EDGES)),
    'difformer': (DIFFormerConv(6, 8), lambda layer, x: layer(x, EDGES)),
    'sigmoid': (DIFFormerConv(6, 8, kernel='sigmoid', use_graph=False), lambda layer, x: layer(x)),
    'frobenius': (SGFormerConv(6, 8), lambda layer, x: layer(x.repeat(20, 1))),
    'row': (SGFormerConv(6, 8, norm='row'), lambda layer, x: layer(x)),
    'subtractor': (
        JaccardSubtractorConv(6, 8, kernel='subtractor'),
        lambda layer, x: layer(x, EDGES),
    ),
    'subtractor-edges': (
        JaccardSubtractorConv(6, 8, kernel='subtractor', edge_channels=2),
        lambda layer, x: layer(x, EDGES, edge_attr=torch.ones(EDGES.size(1), 2)),
    ),
    'NodeFormer': (NodeFormer(6, 4, 3).eval(), lambda model, x: model(x, EDGES)),
    'DIFFormer': (DIFFormer(6, 4, 3), lambda model, x: model(x, EDGES)),
    'SGFormer': (SGFormer(6, 4, 3), lambda model, x: model(x, EDGES)),
    'GraphTransformer': (GraphTransformer(6, 4, 3).eval(), lambda model, x: model(x, EDGES)),
    'LiteGT': (LiteGT(6, 8, 3, 2, kernel='subtractor'), lambda model, x: model(x, EDGES)),
    'MGFormer': (MGFormer(5, 7, 6), lambda model, x: model.get_embedding(EDGES) * x.mean()),
}
MESSAGE = (
    r"^'\w+' of torch_geometric_lgt has first derivatives only, no gradients of gradients "
    r'\(create_graph=True\)\. Where a loss needs them, as gradient penalties and forces do, write '
    r'the attention with torch_geometric_lgt\.testing\.dense, whose formulas autograd '
    r'differentiates twice, or take finite differences of gradients in float64$'
)
BATCHES = (
    r"^'\w+' of torch_geometric_lgt has one gradient at a time, no batches of them "
    r'\(is_grads_batched=True, vectorize=True or vmap\): call torch\.autograd\.grad for each, as '
    r'torch\.autograd\.functional\.jacobian does with vectorize=False$'
)


@pytest.mark.parametrize('name', CALLS)
def test_gradients_of_gradients_name_what_to_use(name):
    """For a penalty on the gradient of the features, whose own gradient reaches the parameters; the
    first gradient is that without."""
    layer, call = CALLS[name]
    x = torch.randn(12, 6, requires_grad=True)
    leaf = layer.embedding.weight if name == 'MGFormer' else x
    (plain,) = torch.autograd.grad(call(layer, x).sum(), leaf)
    (grad,) = torch.autograd.grad(call(layer, x).sum(), leaf, create_graph=True)
    torch.testing.assert_close(grad, plain)
    with pytest.raises(RuntimeError, match=MESSAGE):
        grad.square().sum().backward()


class Watched(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def test_gradients_of_gradients_in_a_mode_that_watches_operators():
    """PyTorch's dispatcher then calls the operators, which have rules of their own."""
    layer, x = KernelAttentionConv(6, 4), torch.randn(12, 6, requires_grad=True)
    with Watched():
        (grad,) = torch.autograd.grad(layer(x).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match=MESSAGE):
            grad.sum().backward()


@pytest.mark.parametrize('is_small', [False, True], ids=['operators', 'formulas'])
@pytest.mark.parametrize('name', [name for name in CALLS if name != 'MGFormer'])
def test_gradients_of_gradients_of_one_tensor_are_refused_too(name, is_small, constants):
    """Autograd visits only what leads to that tensor, and it has another path to it: without an
    error the result would lack the share of the attention."""
    if not is_small:
        constants(plain_elements=BY_OPERATORS)
    layer, call = CALLS[name]
    x, scale = torch.randn(12, 6, requires_grad=True), torch.ones(6, requires_grad=True)
    scaled = x * scale
    out = call(layer, scaled).sum() + scaled.exp().sum()
    (grad,) = torch.autograd.grad(out, x, create_graph=True)
    with pytest.raises(RuntimeError, match=MESSAGE):
        torch.autograd.grad(grad.square().sum(), scale)


def batches_of_gradients(out, x):
    """Several gradients at once, by each function of torch that computes them."""
    basis = torch.eye(out.numel())

    def one(grad):
        return torch.autograd.grad(out, x, grad, retain_graph=True)[0]

    yield lambda: torch.autograd.grad(out, x, basis, retain_graph=True, is_grads_batched=True)[0]
    yield lambda: torch.func.vmap(one)(basis)


@pytest.mark.parametrize('name', [name for name in CALLS if name != 'MGFormer'])
def test_batches_of_gradients_name_what_to_use(name, constants):
    """They ended in an error of PyTorch about an addition in place."""
    constants(plain_elements=BY_OPERATORS)
    layer, call = CALLS[name]
    x = torch.randn(12, 6, requires_grad=True)
    for compute in batches_of_gradients(call(layer, x).sum(0), x):
        with pytest.raises(NotImplementedError, match=BATCHES):
            compute()


@pytest.mark.parametrize('name', ['kernel', 'degree', 'frobenius', 'row'])
def test_batches_of_gradients_of_small_graphs(name):
    layer, call = CALLS[name]
    x = torch.randn(12, 6, requires_grad=True)
    out = call(layer, x).sum(0)
    expected = torch.stack([torch.autograd.grad(part, x, retain_graph=True)[0] for part in out])
    for compute in batches_of_gradients(out, x):
        torch.testing.assert_close(compute(), expected)


def test_the_dense_formula_has_them():
    """What the error names: a gradient penalty whose gradient is that of finite differences."""
    layer = KernelAttentionConv(6, 8, heads=2).double()
    x = torch.randn(5, 6, dtype=torch.float64, requires_grad=True)

    def attention(x):
        q, k, v = (
            lin(x).unflatten(1, (2, 4)) for lin in (layer.lin_query, layer.lin_key, layer.lin_value)
        )
        phi = layer.feature_map
        return dense.kernel_attention(
            *(dense.feature_map('softmax', part * 4**-0.25, phi.projection) for part in (q, k)), v
        ).flatten(1)

    torch.testing.assert_close(attention(x), layer(x))
    assert torch.autograd.gradgradcheck(attention, x)
