"""The kernels for rows of unit length: on a GPU, or else in Triton's interpreter on the CPU."""

import pytest
import torch
from gradients import assert_same_gradients

from torch_geometric_lgt.functional import linear_attention
from torch_geometric_lgt.functional._engine.dispatch import PLAIN_ELEMENTS
from torch_geometric_lgt.functional.unit_rows import to_unit_rows, unit_rows
from torch_geometric_lgt.nn import SGFormerConv
from torch_geometric_lgt.testing import dense

pytest.importorskip(
    'triton', reason='the kernels need Triton, which PyTorch brings along on Linux only'
)
from torch_geometric_lgt.functional._triton import rows as module

pytestmark = pytest.mark.kernels
DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


@pytest.fixture(autouse=True)
def fused(record_calls, constants):
    constants(fused_devices=(DEVICE.type,), plain_elements=PLAIN_ELEMENTS)
    return record_calls(module, 'unit_rows', 'unit_rows_grad')


def dense_unit_rows(x):
    return x / x.square().sum(-1, keepdim=True).sqrt()


@pytest.mark.parametrize('columns', [1, 3, 64, 100, 1024])
@pytest.mark.parametrize('rows', [1, 700])
def test_matches_dense(rows, columns, fused):
    x = torch.randn(rows, columns, dtype=torch.float64, device=DEVICE, requires_grad=True)
    grad = torch.randn_like(x)
    outputs = [function(x) for function in (to_unit_rows, dense_unit_rows)]
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-14)
    grads = [torch.autograd.grad(output, x, grad)[0] for output in outputs]
    torch.testing.assert_close(*grads, rtol=1e-11, atol=1e-11)
    assert fused == ['unit_rows', 'unit_rows_grad']


def test_rows_are_read_in_their_order(fused):
    x = torch.randn(5, 2, 7, dtype=torch.float64, device=DEVICE).transpose(0, 1).requires_grad_()
    out = to_unit_rows(x)
    torch.testing.assert_close(out, dense_unit_rows(x))
    grad = torch.randn(2, 7, 5, dtype=torch.float64, device=DEVICE).transpose(1, 2)
    (expected,) = torch.autograd.grad(dense_unit_rows(x), x, grad)
    torch.testing.assert_close(torch.autograd.grad(out, x, grad)[0], expected)
    assert fused == ['unit_rows', 'unit_rows_grad']


@pytest.mark.parametrize('shape', [(0, 3), (2, 0)])
def test_nothing_to_divide(shape):
    x = torch.randn(shape, device=DEVICE, requires_grad=True)
    out = to_unit_rows(x)
    assert out.shape == torch.autograd.grad(out.sum(), x)[0].shape == shape


def test_rows_whose_squares_are_too_large_or_too_small(fused):
    values = [[3e30, 4e30], [0.0, 0.0], [3e-30, 4e-30], [float('nan'), 0.0]]
    x = torch.tensor(values, device=DEVICE, requires_grad=True)
    out, inverse = to_unit_rows(x), unit_rows(x)[1]
    expected = torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.6, 0.8], 2 * [float('nan')]])
    torch.testing.assert_close(out.cpu(), expected, equal_nan=True)
    torch.testing.assert_close(inverse.flatten()[:3].cpu(), torch.tensor([2e-31, 0.0, 2e29]))
    grad = torch.tensor([[1e30, 0.0], [1.0, 1.0], [1e-30, 0.0], [0.0, 0.0]], device=DEVICE)
    (actual,) = torch.autograd.grad(out, x, grad)
    expected = torch.tensor([[0.128, -0.096], [0.0, 0.0], [0.128, -0.096]])
    torch.testing.assert_close(actual[:3].cpu(), expected)
    assert fused == ['unit_rows', 'unit_rows', 'unit_rows_grad']


def test_rows_of_one_channel_have_exact_signs():
    x = torch.arange(-99.0, 100, device=DEVICE)[:, None]
    assert torch.equal(unit_rows(x)[0], x.sign())


def test_wide_rows_and_half_precision_have_no_kernel(fused):
    for x in (torch.randn(2, 1025), torch.randn(2, 4, dtype=torch.bfloat16)):
        torch.testing.assert_close(to_unit_rows(x.to(DEVICE)).cpu(), dense_unit_rows(x))
    assert fused == []


@pytest.mark.parametrize('is_plain', [True, False])
@pytest.mark.parametrize('has_self_value', [False, True])
def test_attention_matches_dense(is_plain, has_self_value, fused, constants):
    constants(plain_elements=dict.fromkeys(('cpu', 'gpu', 'kernels'), 10**6 * is_plain))
    leaves = dict(
        zip('qkvs', torch.randn(4, 9, 2, 5, dtype=torch.float64, device=DEVICE), strict=True)
    )
    q, k, v, own = (leaf.requires_grad_() for leaf in leaves.values())
    batch = torch.tensor([0] * 4 + [1] * 5, device=DEVICE)
    if has_self_value:
        actual = linear_attention(q, k, v, batch, self_value=own)
        expected = dense.sgformer_attention(q, k, v, own, 'row', batch, batch)
    else:
        actual = linear_attention(q, k, v, batch)
        expected = dense.diffusion_attention(q, k, v, 'row', batch, batch)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    leaves = leaves if has_self_value else {name: leaves[name] for name in 'qkv'}
    assert_same_gradients(actual, expected, leaves, rtol=1e-10, atol=1e-10)
    assert {*fused} == {'unit_rows', 'unit_rows_grad'}


def test_the_output_may_change_in_place():
    layer = SGFormerConv(6, 6, norm='row').to(DEVICE)
    x, found = torch.randn(8, 6, device=DEVICE), []
    for in_place in (False, True):
        leaf = x.clone().requires_grad_()
        out = torch.nn.functional.relu(layer(leaf), inplace=in_place)
        found.append([out, *torch.autograd.grad(out.square().sum(), [leaf, *layer.parameters()])])
    torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.parametrize('norm', ['row', 'frobenius'])
def test_gradients_of_gradients(norm):
    layer = SGFormerConv(6, 6, norm=norm).to(DEVICE, torch.float64)
    x = torch.randn(4, 6, dtype=torch.float64, device=DEVICE, requires_grad=True)
    assert torch.autograd.gradgradcheck(layer, x)


@pytest.mark.parametrize('norm', ['row', 'frobenius'])
def test_batches_of_gradients_are_computed_one_by_one(norm):
    layer = SGFormerConv(6, 6, norm=norm).to(DEVICE)
    x = torch.randn(8, 6, device=DEVICE, requires_grad=True)
    grads = torch.randn(3, 8, 6, device=DEVICE)
    out = layer(x)
    (batched,) = torch.autograd.grad(out, x, grads, is_grads_batched=True, retain_graph=True)
    single = [torch.autograd.grad(out, x, grad, retain_graph=True)[0] for grad in grads]
    torch.testing.assert_close(batched, torch.stack(single))
