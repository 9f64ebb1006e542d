import gc
import weakref

import pytest
import torch
from constants import BY_OPERATORS

from torch_geometric_lgt.functional import AttentionState, kernel_attention, linear_attention
from torch_geometric_lgt.functional._engine import operators
from torch_geometric_lgt.functional._engine.dispatch import PLAIN_ELEMENTS
from torch_geometric_lgt.functional.attention.kernel import stores_states
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput
from torch_geometric_lgt.functional.segment import segments
from torch_geometric_lgt.nn import KernelAttentionConv

H, C, M = 2, 4, 8


@pytest.mark.parametrize(
    ('elements', 'programs', 'counts'),
    [(250, 99, [3, 3, 3, 1]), (1 << 20, 9, [4, 4, 2]), (1, 1, [1] * 10)],
)
def test_groups_of_graphs_keep_the_limits_of_states_and_programs(
    elements, programs, counts, constants
):
    """A graph's state has 2 * 8 * 5 numbers, and a program of a GPU for each head."""
    constants(state_elements=elements, state_programs=programs)
    side = KernelInput(
        x=torch.randn(40, H * C), heads=H, kind='softmax', projection=torch.randn(M, C)
    )
    nodes = segments(torch.arange(10).repeat_interleave(4), 40, 10)
    assert [
        graphs.numel() for graphs, _ in operators.iterate_state_groups(side, C + 1, [40], nodes)
    ] == counts


@pytest.mark.parametrize(('channels', 'lengths'), [(C, [7] * 5 + [5]), (C + 1, [40])])
def test_rows_of_a_chunk_are_those_of_the_kernels_that_serve_it(channels, lengths, constants):
    constants(fused_devices=('cpu',), fused_rows=7, fused_channels=C)
    side = KernelInput(
        x=torch.randn(40, H * C),
        heads=H,
        kind='softmax',
        mask=torch.rand(40, 2),
        projection=torch.randn(M, C),
    )
    ((_, (chunks,)),) = operators.iterate_state_groups(
        side, 2 * (channels + 1), [40], segments(None, 40, 1)
    )
    assert [chunk.stop - chunk.start for chunk in chunks] == lengths


def test_an_operator_has_the_name_and_the_docstring_of_its_function():
    assert operators.build_state.__name__ == operators.build_state.name == 'build_state'
    assert operators.build_state.__doc__.startswith('Builds the state of each graph')


def test_denominators_of_half_precision_are_single():
    side = KernelInput(
        x=torch.randn(40, H * C).bfloat16(), heads=H, kind='softmax', projection=torch.randn(M, C)
    )
    out, denominators = operators.empty_read(side, C)
    assert (out.shape, out.dtype, denominators.shape, denominators.dtype) == (
        (40, H * C),
        torch.bfloat16,
        (40, H),
        torch.float32,
    )


@pytest.mark.parametrize(
    ('num_nodes', 'graphs', 'expected'),
    [(10, 1, True), (9, 1, False), (20, 2, True), (19, 2, False)],
)
def test_states_are_kept_that_need_no_more_room_than_the_keys(num_nodes, graphs, expected):
    """2 * 8 * 5 numbers of a graph beside 8 of a node."""
    side = KernelInput(
        x=torch.ones(num_nodes, H * C), heads=H, kind='softmax', projection=torch.ones(M, C)
    )
    nodes = segments(torch.arange(num_nodes) % graphs, num_nodes, graphs)
    assert stores_states(side, LinearInput(x=side.x), nodes) is expected


def test_many_small_graphs_keep_no_states():
    n, graphs = 3000, 600
    batch = torch.cat(
        [
            torch.arange(graphs - 1).repeat_interleave(2),
            torch.full((n - 2 * (graphs - 1),), graphs - 1),
        ]
    )
    conv, x, largest = KernelAttentionConv(16, 16), torch.randn(n, 16, requires_grad=True), 0

    def pack(tensor):
        nonlocal largest
        largest = max(largest, tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = conv(x, batch=batch)
    assert largest == x.numel() < conv.attention_state(x, batch).sums.numel()
    torch.testing.assert_close(out[-5:], conv(x[batch == graphs - 1])[-5:])


def test_tensors_that_hooks_move_elsewhere_are_freed():
    q, k, v = (torch.randn(40, H, C, requires_grad=part == 0) for part in range(3))
    reference = weakref.ref(v)
    with torch.autograd.graph.saved_tensors_hooks(torch.Tensor.numpy, torch.from_numpy):
        out = kernel_attention(q, k, v, 'softmax', torch.randn(M, C))
    del v
    gc.collect()
    assert reference() is None
    out.sum().backward()


FORMULAS = pytest.mark.parametrize(
    'elements', [BY_OPERATORS, PLAIN_ELEMENTS], ids=['operators', 'formulas']
)
PROJECTION = torch.randn(M, C, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
ATTENTION = {
    'kernel': lambda x: kernel_attention(x, x, x, 'softmax', PROJECTION),
    'linear': lambda x: linear_attention(x, x, x, SEGMENTS),
    'state': lambda x: AttentionState.from_keys(x, x, 'softmax', PROJECTION).read(
        x, 'softmax', PROJECTION
    ),
}
SEGMENTS = torch.tensor([1, 0, 1, 0, 0])


@FORMULAS
@pytest.mark.parametrize('name', ATTENTION)
def test_function_transforms(name, elements, constants):
    """Jacobian matrices in reverse and forward mode, and outputs and gradients of a stack."""
    constants(plain_elements=elements)
    attention, x = ATTENTION[name], torch.randn(3, 5, H, C, dtype=torch.float64)
    expected = torch.autograd.functional.jacobian(attention, x[0])
    for jacobian in (torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(jacobian(attention)(x[0]), expected)
    grads, outs = torch.func.vmap(torch.func.grad_and_value(lambda x: attention(x).square().sum()))(
        x
    )
    for part, grad, out in zip(x, grads, outs, strict=True):
        leaf = part.clone().requires_grad_()
        expected_out = attention(leaf).square().sum()
        torch.testing.assert_close(out, expected_out.detach())
        torch.testing.assert_close(grad, torch.autograd.grad(expected_out, leaf)[0])


@FORMULAS
@pytest.mark.parametrize('which', range(3), ids='qkv')
@pytest.mark.parametrize(
    'attention',
    [lambda *args: kernel_attention(*args, 'elu'), linear_attention],
    ids=['kernel', 'linear'],
)
def test_forward_mode(attention, which, elements, constants):
    constants(plain_elements=elements)
    inputs = [*torch.randn(3, 5, H, C, dtype=torch.float64)]
    tangent = torch.randn(5, H, C, dtype=torch.float64)

    def run(x):
        return attention(*inputs[:which], x, *inputs[which + 1 :])

    _, expected = torch.autograd.functional.jvp(run, inputs[which], tangent)
    with torch.autograd.forward_ad.dual_level():
        torch.testing.assert_close(attention(*inputs), run(inputs[which]))
        out = run(torch.autograd.forward_ad.make_dual(inputs[which], tangent))
        torch.testing.assert_close(torch.autograd.forward_ad.unpack_dual(out).tangent, expected)
