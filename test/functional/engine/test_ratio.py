"""The kernels for ratios: on a GPU, or else in Triton's interpreter on the CPU."""

import pytest
import torch
from gradients import assert_same_gradients

from torch_geometric_lgt.functional._engine.ratio import ratio

pytest.importorskip(
    'triton', reason='the kernels need Triton, which PyTorch brings along on Linux only'
)
from torch_geometric_lgt.functional._triton import rows as module

pytestmark = pytest.mark.kernels
DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
P, N = 6, 7


@pytest.fixture(autouse=True)
def fused(record_calls, constants):
    constants(fused_devices=(DEVICE.type,))
    return record_calls(module, 'ratio', 'ratio_grads')


def leaves(columns, added_nodes, pairs=P, nodes=N):
    shapes = {
        'numerator': (nodes, columns),
        'added': (added_nodes, columns),
        'denominator': (nodes, 1),
    }
    return {
        name: torch.randn(pairs, *shape, dtype=torch.float64, device=DEVICE).requires_grad_()
        for name, shape in shapes.items()
        if shape[0] > 0
    }


@pytest.mark.parametrize('columns', [1, 5, 64, 300])
@pytest.mark.parametrize('added_nodes', [0, 1, N])
def test_matches_the_quotient(columns, added_nodes, fused):
    found = leaves(columns, added_nodes)
    total = found['numerator'] + found.get('added', 0)
    actual = ratio(found['numerator'], found.get('added'), found['denominator'], 0.0)
    expected = total / found['denominator']
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    assert_same_gradients(actual, expected, found, rtol=1e-12, atol=1e-12)
    assert fused == ['ratio', 'ratio_grads']


@pytest.mark.parametrize('added_nodes', [0, 1, 3])
def test_second_derivatives(added_nodes, fused):
    found = leaves(2, added_nodes, pairs=2, nodes=3)
    with torch.no_grad():
        found['denominator'].abs_().add_(0.5)

    def run(*values):
        numerator, *added, denominator = values
        return ratio(numerator.clone(), *(added or [None]), denominator, 0.0)

    assert torch.autograd.gradgradcheck(run, [*found.values()])
    assert 'ratio' in fused


@pytest.mark.parametrize('name', ['numerator', 'added', 'denominator'])
def test_forward_mode_has_no_kernel(name, fused):
    found = {key: value.detach() for key, value in leaves(3, 1).items()}

    def run(value):
        numerator, *others = (found | {name: value}).values()
        return ratio(numerator.clone(), *others, 0.0)

    tangent = torch.randn_like(found[name])
    _, expected = torch.autograd.functional.jvp(run, found[name], tangent)
    fused.clear()
    _, actual = torch.func.jvp(run, (found[name],), (tangent,))
    torch.testing.assert_close(actual, expected)
    assert fused == []


@pytest.mark.parametrize('least', [0.5, torch.full((P, 1, 1), 0.5, device=DEVICE)])
@pytest.mark.parametrize('value', [0.5, -0.25, 0.0])
def test_small_denominators_give_zero_without_gradient(value, least, fused):
    found = leaves(4, 1)
    with torch.no_grad():
        found['denominator'][0, :2] = value
        found['denominator'][4, 3] = -2
    expected = expected_ratio(found, 0.5)
    actual = ratio(*found.values(), least)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    assert_same_gradients(actual, expected, found, rtol=1e-12, atol=1e-12)
    assert actual[0, :2].count_nonzero() == 0
    assert actual[4, 3].count_nonzero() == 4
    assert fused == ['ratio', 'ratio_grads']


def expected_ratio(found, least):
    is_zero = found['denominator'].abs() <= least
    safe = found['denominator'].masked_fill(is_zero, torch.inf)
    return (found['numerator'] + found['added']) / safe


def test_denominators_below_the_normal_numbers_of_their_dtype_give_zero():
    smallest = torch.finfo(torch.float64).tiny
    denominator = torch.tensor([smallest, smallest / 2, 1e-200], dtype=torch.float64)
    numerator = denominator.new_full((1, 3, 1), smallest).to(DEVICE)
    out = ratio(numerator, None, denominator[None, :, None].to(DEVICE), 0.0)
    expected = [1.0, 0.0, smallest / 1e-200]
    torch.testing.assert_close(out.flatten().tolist(), expected, rtol=1e-12, atol=0.0)


def test_half_precision_and_wide_rows_have_no_kernel(fused):
    for numerator in (torch.ones(1, 2, 2, dtype=torch.bfloat16), torch.ones(1, 2, 1025)):
        numerator = numerator.to(DEVICE)
        out = ratio(numerator, None, 2 * numerator[..., :1], 0.0)
        torch.testing.assert_close(out, torch.full_like(numerator, 0.5))
    assert fused == []
