"""Gradients of gradients, and batches of gradients, which large graphs refuse."""

import copy

import pytest
import torch
from constants import BY_OPERATORS
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.nn import MessagePassing

from torch_geometric_lgt.functional import AttentionState, kernel_attention, linear_attention
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
from torch_geometric_lgt.testing._process_checks import run_threads

EDGES = torch.randint(12, (2, 40), generator=torch.Generator().manual_seed(0))
BATCH = torch.arange(12) // 5
OTHER = torch.randn(12, 6, generator=torch.Generator().manual_seed(1))
CALLS = {
    'kernel': (KernelAttentionConv(6, 8, heads=2), lambda layer, x: layer(x)),
    'state': (
        KernelAttentionConv(6, 8),
        lambda layer, x: layer(OTHER.to(x.dtype), state=layer.attention_state(x)),
    ),
    'read': (
        KernelAttentionConv(6, 8),
        lambda layer, x: layer(x, state=layer.attention_state(OTHER.to(x.dtype))),
    ),
    'scores': (KernelAttentionConv(6, 8), lambda layer, x: layer.attention_scores(x, EDGES)),
    'probability': (
        KernelAttentionConv(6, 8),
        lambda layer, x: layer.log_edge_probability(x, EDGES),
    ),
    'sampled-state': (
        KernelAttentionConv(6, 8, num_gumbel_samples=3).eval(),
        lambda layer, x: layer(x, state=layer.attention_state(x)),
    ),
    'samples': (
        KernelAttentionConv(6, 8, heads=2, num_gumbel_samples=3).eval(),
        lambda layer, x: layer(x, batch=BATCH),
    ),
    'degree': (DegreeMaskedAttention(6), lambda layer, x: layer(x, edge_index=EDGES)),
    'relational': (
        KernelAttentionConv(6, 8, relational_order=2),
        lambda layer, x: layer(x, EDGES),
    ),
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
        lambda layer, x: layer(x, EDGES, edge_attr=x[EDGES[0], :2]),
    ),
    'NodeFormer': (NodeFormer(6, 4, 3).eval(), lambda model, x: model(x, EDGES)),
    'DIFFormer': (DIFFormer(6, 4, 3), lambda model, x: model(x, EDGES)),
    'SGFormer': (SGFormer(6, 4, 3), lambda model, x: model(x, EDGES)),
    'GraphTransformer': (GraphTransformer(6, 4, 3).eval(), lambda model, x: model(x, EDGES)),
    'LiteGT': (LiteGT(6, 8, 3, 2, kernel='subtractor'), lambda model, x: model(x, EDGES)),
    'MGFormer': (
        MGFormer(5, 7, 6),
        lambda model, x: model.get_embedding(EDGES) * x.square().mean(),
    ),
}
MESSAGE = (
    r"^'attend' of torch_geometric_lgt has first derivatives only within a mode that watches "
    r'operators, such as FlopCounterMode: compute gradients of gradients \(create_graph=True\) '
    r'outside of it$'
)
BATCHES = (
    r"^'\w+' of torch_geometric_lgt has one gradient at a time, no batches of them "
    r'\(is_grads_batched=True, vectorize=True or vmap\): call torch\.autograd\.grad for each, as '
    r'torch\.autograd\.functional\.jacobian does with vectorize=False$'
)


def learned(layer):
    return [parameter for parameter in layer.parameters() if parameter.requires_grad]


@pytest.fixture(params=CALLS)
def layer_and_call(request):
    layer, call = CALLS[request.param]
    return copy.deepcopy(layer).double(), call


@pytest.fixture(params=['operators', 'formulas'])
def _by_either(request, constants):
    """Graphs are computed by operators, or by the formulas of small graphs."""
    if request.param == 'operators':
        constants(plain_elements=BY_OPERATORS)


@pytest.mark.usefixtures('_by_either')
def test_gradients_of_gradients(layer_and_call):
    """Against finite differences of the gradients: of the features, and of a layer's parameters."""
    layer, call = layer_and_call
    x = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    leaves = x, *(learned(layer) if isinstance(layer, MessagePassing) else ())
    assert torch.autograd.gradgradcheck(lambda x, *_: call(layer, x), leaves, fast_mode=True)


@pytest.mark.usefixtures('_by_either')
def test_first_gradients_that_autograd_records_are_the_same(layer_and_call):
    layer, call = layer_and_call
    x = OTHER.double().requires_grad_()
    leaves = x, *learned(layer)
    out = call(layer, x).square().sum()
    plain, recorded = (
        torch.autograd.grad(out, leaves, retain_graph=True, create_graph=again, allow_unused=True)
        for again in (False, True)
    )
    torch.testing.assert_close(recorded, plain, rtol=1e-9, atol=1e-11)


EMPTY = {
    'no nodes': ((0, 0), None),
    'no graphs': ((0, 0), 0),
    'no keys': ((0, 4), None),
    'no queries': ((4, 0), None),
    'empty graphs': ((5, 4), 6),
}
EMPTY_CALLS = {
    'softmax': lambda q, k, *rest: kernel_attention(q, k, k, 'softmax', q.new_ones(6, 3), *rest),
    'fourier': lambda q, k, *rest: kernel_attention(q, k, k, 'fourier', q.new_ones(6, 3), *rest),
    'state': lambda q, k, batch, sizes: AttentionState.from_keys(
        k, k, 'fourier', q.new_ones(6, 3), batch and batch[0], sizes
    ).read(q, 'fourier', q.new_ones(6, 3), batch and batch[1]),
    'linear': lambda q, k, *rest: linear_attention(q, k, k, *rest),
    'self value': lambda q, k, *rest: linear_attention(q, k, k, *rest, self_value=q),
}


@pytest.mark.usefixtures('_by_either')
@pytest.mark.parametrize('sizes', EMPTY)
@pytest.mark.parametrize('name', EMPTY_CALLS)
def test_second_derivatives_where_graphs_or_nodes_are_missing(name, sizes):
    """Only the first derivatives had these cases."""
    (num_keys, num_queries), num_graphs = EMPTY[sizes]
    batch = None
    if num_graphs is not None:
        batch = torch.tensor([4, 1, 1, 4, 4])[:num_keys], torch.tensor([1, 0, 0, 4])[:num_queries]
    q, k = (torch.randn(n, 2, 3, dtype=torch.double) for n in (num_queries, num_keys))

    def loss(q, k):
        return EMPTY_CALLS[name](q, k, batch, num_graphs).square().sum()

    leaves = q.clone().requires_grad_(), k.clone().requires_grad_()
    plain = torch.autograd.grad(loss(*leaves), leaves)
    grads = torch.autograd.grad(loss(*leaves), leaves, create_graph=True)
    sum(grad.square().sum() / 2 for grad in grads).backward()
    gradients = torch.func.grad(loss, (0, 1))
    found, products = torch.func.jvp(gradients, (q, k), plain)  # gradients, and the Hessian's
    torch.testing.assert_close((grads, found), (plain, plain), rtol=1e-9, atol=1e-11)
    seconds = tuple(leaf.grad for leaf in leaves)
    torch.testing.assert_close(seconds, products, rtol=1e-9, atol=1e-11)


def test_small_graphs_beside_a_large_one_are_not_padded(constants):
    """Each graph took the memory of the largest."""
    constants(plain_elements=BY_OPERATORS)
    sizes = torch.tensor([300, *[1] * 100])
    x, saved = torch.randn(400, 6, requires_grad=True), []
    batch = torch.arange(101).repeat_interleave(sizes)
    out = KernelAttentionConv(6, 8)(x, batch=batch).sum()
    with torch.autograd.graph.saved_tensors_hooks(lambda y: saved.append(y) or y, lambda y: y):
        torch.autograd.grad(out, x, create_graph=True)
    assert max(y.numel() for y in saved) < 101 * 300


def test_a_penalty_of_gradients_reaches_parameters_of_the_input(constants):
    """Autograd visits only what leads to a tensor that has another path, too."""
    constants(plain_elements=BY_OPERATORS)
    layer, x = KernelAttentionConv(6, 8).double(), torch.randn(12, 6, dtype=torch.float64)
    scale, x = torch.ones(6, dtype=torch.float64, requires_grad=True), x.requires_grad_()

    def penalty(scale):
        scaled = x * scale
        (grad,) = torch.autograd.grad(
            layer(scaled).sum() + scaled.exp().sum(), x, create_graph=True
        )
        return grad.square().sum()

    assert torch.autograd.gradcheck(penalty, scale)


@pytest.mark.parametrize('name', ['state', 'frobenius'])
def test_second_derivatives_through_sums_over_processes(name):
    """The sum over processes had a first derivative only."""
    layer, x = copy.deepcopy(CALLS[name][0]).double(), OTHER.double()

    def second(x, reduced):
        x = x.clone().requires_grad_()
        out = layer(x, state=reduced(layer.attention_state(x)))
        (grad,) = torch.autograd.grad(out.square().sum(), x, create_graph=True)
        return torch.autograd.grad(grad.square().sum(), x)[0]

    parts = x.split([5, 7])
    found = run_threads(2, lambda rank, group: second(parts[rank], lambda s: s.all_reduce(group)))
    expected = second(x, lambda state: state)
    torch.testing.assert_close(torch.cat(found), expected, rtol=1e-9, atol=1e-11)


def test_a_model_learns_forces():
    """The gradients of its energies, of molecules in a batch."""
    torch.manual_seed(0)
    position, force, batch = torch.randn(30, 3), torch.randn(30, 3), torch.arange(30) // 6
    model = GraphTransformer(3, 8, 1, conv=None, norm=None, act='silu', level='graph', aggr='sum')
    optimizer, losses = torch.optim.Adam(model.parameters(), lr=0.02), []
    for _ in range(40):
        leaf = position.clone().requires_grad_()
        energy = model(leaf, None, batch).sum()
        (grad,) = torch.autograd.grad(energy, leaf, create_graph=True)
        loss = (force + grad).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert min(losses) < 0.5 * losses[0]


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


@pytest.mark.parametrize('name', [name for name in CALLS if name != 'MGFormer'])
def test_transforms_of_functions(name):
    """Jacobian matrices of all rules, and models of different parameters in one call."""
    layer, call = CALLS[name]
    layer, x = copy.deepcopy(layer).double().eval(), OTHER.double()
    expected = torch.autograd.functional.jacobian(lambda x: call(layer, x).sum(0), x)
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        found = jacobian(lambda x: call(layer, x).sum(0))(x)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    others = [copy.deepcopy(layer) for _ in range(2)]
    for other in others:
        other.reset_parameters()
    layers = [layer, *others]
    stack = torch.func.stack_module_state(layers)
    outs = torch.func.vmap(lambda *state: called(layer, state, call, x))(*stack)
    torch.testing.assert_close(outs, torch.stack([call(other, x) for other in layers]))


def called(layer, state, call, x):
    """Calls a function of a layer with other parameters and buffers."""

    class Call(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            return call(self.layer, x)

    named = {f'layer.{name}': value for part in state for name, value in part.items()}
    return torch.func.functional_call(Call(), named, x)


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
