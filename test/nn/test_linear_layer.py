"""What the layers with inner products as weights do where the terms of a denominator cancel."""

import copy
from functools import partial

import pytest
import torch

from torch_geometric_lgt.functional.segment import segments
from torch_geometric_lgt.nn import DIFFormerConv, SGFormerConv
from torch_geometric_lgt.testing import dense

SIZES = [1, 1, 3, 1, 2, 5, 1, 4, 2, 1, 1, 6]
BATCH = torch.repeat_interleave(torch.arange(12), torch.tensor(SIZES))[
    torch.randperm(28, generator=torch.Generator().manual_seed(0))
]
LAYERS = {'sgformer': SGFormerConv, 'difformer': partial(DIFFormerConv, use_graph=False)}
PRECISIONS = {torch.float32: 1e-4, torch.float64: 1e-12}


def make(name, norm, dtype):
    """A layer of 16 heads of one channel, whose queries and keys are of unlike sizes."""
    conv = LAYERS[name](6, 16, heads=16, norm=norm).to(dtype)
    with torch.no_grad():
        conv.lin_query.weight *= torch.logspace(-3, 3, 16, dtype=dtype)[:, None]
    return conv


def definition(conv, x, batch):
    q, k, v = (
        lin(x).unflatten(-1, (16, 1)) for lin in (conv.lin_query, conv.lin_key, conv.lin_value)
    )
    if isinstance(conv, SGFormerConv):
        return dense.sgformer_attention(q, k, v, v, conv.norm, batch, batch).flatten(1)
    return dense.diffusion_attention(q, k, v, conv.norm, batch, batch).flatten(1)


@pytest.mark.parametrize('dtype', PRECISIONS)
@pytest.mark.parametrize('beside', [0, 500], ids=['tiny graphs', 'a large graph beside'])
@pytest.mark.parametrize('chunk', [None, 2])
@pytest.mark.parametrize('norm', ['row', 'frobenius'])
@pytest.mark.parametrize('name', LAYERS)
def test_a_tiny_graph_is_the_same_alone_and_in_every_batch(
    name, norm, chunk, beside, dtype, constants
):
    """Outputs and gradients by pairs, by states, and with Frobenius norms beside a large graph by
    products of columns."""
    if chunk is not None:
        constants(attention_chunk=chunk)
    conv, bound = make(name, norm, dtype), PRECISIONS[dtype]
    batch = torch.cat([BATCH, torch.full((beside,), 12)])
    x = torch.randn(28 + beside, 6, dtype=dtype).requires_grad_()
    grad = torch.randn(28 + beside, 16, dtype=dtype)
    assert conv._form(x, x).affine(segments(batch, 28 + beside)) is (
        beside > 0 and dtype == torch.float32
    )
    together, dead = conv(x, batch=batch), 0
    (grad_together,) = torch.autograd.grad(together, x, grad)
    for graph in range(12):
        nodes = (batch == graph).nonzero().flatten()
        part = x[nodes].detach().requires_grad_()
        alone = conv(part)
        (grad_alone,) = torch.autograd.grad(alone, part, grad[nodes])
        assert torch.equal(together[nodes] == 0, alone == 0)
        torch.testing.assert_close(together[nodes], alone, rtol=bound, atol=bound)
        torch.testing.assert_close(grad_together[nodes], grad_alone, rtol=bound, atol=bound)
        dead += int((alone == 0).sum())
    assert dead > 20
    if dtype == torch.float64:
        torch.testing.assert_close(together, definition(conv, x, batch), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize('dtype', PRECISIONS)
@pytest.mark.parametrize('norm', ['row', 'frobenius'])
@pytest.mark.parametrize('name', LAYERS)
def test_states_and_scores_where_denominators_cancel(name, norm, dtype):
    """Reads of merged states and the sums of scores times values are the output, with the same rows
    of 0."""
    conv, x, bound = make(name, norm, dtype), torch.randn(28, 6, dtype=dtype), PRECISIONS[dtype]
    expected = conv(x, batch=BATCH)
    first, second = (conv.attention_state(x[i::2], BATCH[i::2], 12) for i in range(2))
    out = conv(x, batch=BATCH, state=first.merge(second))
    pairs = torch.cartesian_prod(torch.arange(28), torch.arange(28)).t()
    weight = conv.attention_scores(x, pairs, BATCH).view(28, 28, 16)
    for actual in (out, torch.einsum('jih,jh->ih', weight, conv.lin_value(x))):
        assert torch.equal(actual == 0, expected == 0)
        torch.testing.assert_close(actual, expected, rtol=bound, atol=bound)
    assert (expected == 0).sum() > 20


@pytest.mark.parametrize('name', LAYERS)
def test_frobenius_norms_of_small_graphs_are_computed_in_single_precision(name):
    """Under autocast, and for half precision, whose result is rounded once."""
    conv, x = LAYERS[name](6, 4, norm='frobenius').bfloat16(), torch.randn(20, 6).bfloat16()
    expected = conv.float()(x.float())
    with torch.autocast('cpu', torch.bfloat16):
        torch.testing.assert_close(conv(x.float()), expected)
        assert torch.equal(conv(x), expected.bfloat16())
    torch.testing.assert_close(conv.bfloat16()(x), expected.bfloat16())


@pytest.mark.parametrize('name', LAYERS)
def test_norms_of_huge_and_tiny_queries(name):
    """Their squares are no numbers of single precision."""
    conv, x = LAYERS[name](6, 4, norm='frobenius', bias=False), torch.randn(20, 6)
    exact = copy.deepcopy(conv).double()
    for scale in (1e-24, 1e20):
        with torch.no_grad():
            expected = exact(scale * x.double())
            error = float((conv(scale * x).double() - expected).norm() / expected.norm())
        assert error < 1e-5, scale


@pytest.mark.parametrize('name', LAYERS)
def test_forward_mode_of_each_parameter(name):
    conv, x = LAYERS[name](6, 4, norm='frobenius').double(), torch.randn(20, 6).double()
    for part, parameter in conv.named_parameters():
        tangent = torch.randn_like(parameter)

        def run(value, part=part):
            return torch.func.functional_call(conv, {part: value}, x)

        _, expected = torch.autograd.functional.jvp(run, parameter.detach(), tangent)
        _, found = torch.func.jvp(run, (parameter.detach(),), (tangent,))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize('name', LAYERS)
def test_states_of_row_norms_have_no_squares_of_queries(name):
    """Rows are divided one by one; only Frobenius norms are those of all queries."""
    x = torch.randn(20, 6)
    by_norm = {
        norm: LAYERS[name](6, 4, norm=norm).attention_state(x).detach()
        for norm in ('row', 'frobenius')
    }
    assert float(by_norm['row'].query_squares.abs().sum()) == 0
    assert float(by_norm['frobenius'].query_squares.min()) > 0


@pytest.mark.parametrize('name', LAYERS)
def test_another_norm_may_be_set(name):
    """The layer then divided by one norm, with the map of the other."""
    x, batch = torch.randn(28, 6, dtype=torch.double), BATCH
    for before, after in (('row', 'frobenius'), ('frobenius', 'row')):
        conv = make(name, before, torch.double)
        conv.norm = after
        torch.testing.assert_close(conv(x, batch=batch), definition(conv, x, batch))
    with pytest.raises(ValueError, match="'norm' must be one of 'row', 'frobenius'"):
        conv.norm = 'batch'
    assert conv.norm == 'row'
