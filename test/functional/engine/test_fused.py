"""The kernels for GPUs: on one, or else in Triton's interpreter on the CPU, which conftest.py turns
on."""

import pytest
import torch
from gradients import gradients, leaves_of

from torch_geometric_lgt.functional import AttentionState, kernel_attention
from torch_geometric_lgt.functional._engine import dispatch
from torch_geometric_lgt.functional.inputs import KernelInput
from torch_geometric_lgt.nn import DegreeMaskedAttention, KernelAttentionConv
from torch_geometric_lgt.testing import dense

pytest.importorskip(
    'triton', reason='the kernels need Triton, which PyTorch brings along on Linux only'
)
from torch_geometric_lgt.functional._engine import fused as module

pytestmark = pytest.mark.kernels
DEVICE = 'cuda' if torch.cuda.is_available() else 'cpu'
BATCHES = {
    'one': None,
    'sorted': torch.tensor([0] * 40 + [2] * 60 + [3]),
    'unsorted': torch.tensor([3, 0, 3, 1, 0, 3, 1, 6, 3]).repeat(9),
    'equal': torch.arange(4).repeat_interleave(20),
}


@pytest.fixture(autouse=True)
def fused(monkeypatch, constants):
    constants(fused_devices=(DEVICE,), paired=False)
    calls = []
    for name in ('FusedKeys', 'FusedKeyGrads', 'FusedQueries', 'FusedQueryGrads'):
        method = 'add' if 'Grads' in name else 'build' if 'Keys' in name else 'read'
        original = getattr(module, name).__dict__[method]

        def counted(self, *args, original=original, name=name):
            calls.append(name)
            return original(self, *args)

        monkeypatch.setattr(getattr(module, name), method, counted)
    return calls


def relative(actual, expected):
    return float(
        ((actual.double().cpu() - expected).norm() / expected.norm().clamp(min=1e-300)).detach()
    )


def draw(num_q, num_k, rank, heads=2, channels=5, width=7, length=1.0):
    torch.manual_seed(0)
    leaves = [
        torch.randn(n, heads, c, dtype=torch.double)
        for n, c in ((num_q, channels), (num_k, channels), (num_k, width))
    ]
    leaves[0], leaves[1] = leaves[0] * length, leaves[1] * length
    return [leaf.requires_grad_() for leaf in leaves] + [
        torch.rand(n, rank, dtype=torch.double).requires_grad_() for n in (num_q, num_k)
    ]


def both(leaves, projection, batch, dtype=torch.float32):
    """The outputs and gradients of the kernels and of the dense definition."""
    q, k, v, a, b = leaves
    batch_k, batch_q = batch if isinstance(batch, tuple) else (batch, batch)
    phi_q, phi_k = (dense.feature_map('softmax', x, projection) for x in (q, k))
    expected = dense.kernel_attention(
        phi_q, phi_k, v, a @ b.t() if a.size(1) else None, batch_q, batch_k
    )
    grad = torch.randn_like(expected)
    used = leaves if a.size(1) else leaves[:3]
    copies = [leaf.detach().to(DEVICE, dtype).requires_grad_() for leaf in used]
    masks = {'query_mask': copies[3], 'key_mask': copies[4]} if a.size(1) else {}
    batch = (
        tuple(part.to(DEVICE) for part in batch)
        if isinstance(batch, tuple)
        else None
        if batch is None
        else batch.to(DEVICE)
    )
    actual = kernel_attention(*copies[:3], 'softmax', projection.to(DEVICE, dtype), batch, **masks)
    grads = (
        torch.autograd.grad(actual, copies, grad.to(DEVICE, dtype)),
        torch.autograd.grad(expected, used, grad),
    )
    return (actual, *grads[0]), (expected, *grads[1])


def assert_equal(pairs, tolerance=1e-5):
    for name, one, other in zip(('out', 'q', 'k', 'v', 'a', 'b'), *pairs, strict=False):
        assert one.isfinite().all(), name
        # those of masks are differences of larger sums
        assert relative(one, other) < tolerance * (10 if name in 'ab' else 1), name


@pytest.mark.parametrize('rank', [0, 2])
@pytest.mark.parametrize('batch', BATCHES)
def test_matches_dense(batch, rank, fused):
    batch = BATCHES[batch]
    num_nodes = 150 if batch is None else batch.numel()
    projection = torch.randn(11, 5, dtype=torch.double)
    assert_equal(both(draw(num_nodes, num_nodes, rank), projection, batch))
    assert set(fused) == {'FusedKeys', 'FusedKeyGrads', 'FusedQueries', 'FusedQueryGrads'}


def test_sources_and_targets_match_dense():
    batch = torch.tensor([0, 2, 0, 1, 2]), torch.tensor([2, 2, 0, 3, 1, 0, 1, 2])
    assert_equal(both(draw(8, 5, 2), torch.randn(9, 5, dtype=torch.double), batch))


@pytest.mark.parametrize(('heads', 'channels', 'width', 'rank'), [(1, 16, 1, 2), (3, 1, 17, 3)])
def test_blocks_that_are_not_full_match_dense(heads, channels, width, rank):
    """Features of more than one block, whose last is not full: a block has 32 in the interpreter
    and up to 64 on a GPU."""
    leaves, features = draw(70, 70, rank, heads, channels, width), 80 if DEVICE == 'cuda' else 40
    assert_equal(both(leaves, torch.randn(features, channels, dtype=torch.double), None))


def test_many_chunks_match_dense(constants):
    constants(fused_rows=64)
    assert_equal(both(draw(150, 150, 2), torch.randn(11, 5, dtype=torch.double), None))


@pytest.mark.parametrize('length', [1e-6, 1e2])
def test_as_exact_as_the_chunks_at_any_length(length, constants):
    leaves, projection = draw(60, 60, 0, length=length)[:3], torch.randn(11, 5, dtype=torch.double)

    def run(dtype):
        copies = {
            name: leaf.detach().to(DEVICE, dtype).requires_grad_()
            for name, leaf in zip('qkv', leaves, strict=True)
        }
        out = kernel_attention(*copies.values(), 'softmax', projection.to(DEVICE, dtype))
        results = {'out': out, **gradients(out.sin().sum(), copies)}
        return {name: value.double().cpu() for name, value in results.items()}

    fused, exact = run(torch.float32), run(torch.double)
    constants(fused_devices=())
    chunks = run(torch.float32)
    share = 0 if DEVICE == 'cpu' else 2**-22  # what three parts of TF32 lack of a product
    for name, expected in exact.items():
        bound = 2 * (chunks[name] - expected).norm() + share * expected.norm() + 1e-7
        assert (fused[name] - expected).norm() <= bound, name


def test_a_transposed_projection_matches_dense():
    leaves, projection = draw(40, 40, 0), torch.randn(5, 11, dtype=torch.double).t()
    assert_equal(both(leaves, projection, None))


@pytest.mark.parametrize('part', [0, 1, 2])
def test_nan_reaches_the_outputs_that_depend_on_it(part):
    leaves = [leaf.detach().to(DEVICE, torch.float32) for leaf in draw(40, 40, 0)[:3]]
    leaves[part][3] = torch.nan
    out = kernel_attention(*leaves, 'softmax', torch.randn(11, 5, device=DEVICE))
    assert out.isnan().all() if part > 0 else out[3].isnan().all() and out[4:].isfinite().all()


@pytest.mark.parametrize('factor', [0.0, 1e-40])
def test_masks_without_weight_read_0(factor):
    q, k, v, a, b = (leaf.detach().to(DEVICE, torch.float32) for leaf in draw(40, 40, 2))
    batch = torch.arange(40, device=DEVICE) // 20
    b = b * torch.tensor([factor] * 20 + [1.0] * 20, device=DEVICE)[:, None]
    leaves = [leaf.requires_grad_() for leaf in (q, k, v, a, b)]
    out = kernel_attention(
        *leaves[:3],
        'softmax',
        torch.randn(11, 5, device=DEVICE),
        batch,
        query_mask=leaves[3],
        key_mask=leaves[4],
    )
    assert not out[:20].any()
    assert out[20:].abs().min() > 0
    for grad in torch.autograd.grad(out.sum(), leaves):
        assert not grad[:20].any()
        assert grad.isfinite().all()


def test_half_precision_matches_dense():
    pairs = both(draw(60, 60, 2), torch.randn(11, 5, dtype=torch.double), None, torch.bfloat16)
    assert pairs[0][0].dtype == torch.bfloat16
    assert_equal(pairs, 0.02)


@pytest.mark.parametrize('batch', BATCHES)
def test_states_by_kernels_are_those_by_chunks(batch, constants):
    batch = None if BATCHES[batch] is None else BATCHES[batch].to(DEVICE)
    num_nodes = 90 if batch is None else batch.numel()
    leaves = [
        leaf.detach().to(DEVICE, torch.float32).requires_grad_()
        for leaf in draw(num_nodes, num_nodes, 2)
    ]
    k, v, b = leaves[1], leaves[2], leaves[4]
    projection = torch.randn(11, 5, device=DEVICE)

    def run():
        state = AttentionState.from_keys(k, v, 'softmax', projection, batch, key_mask=b)
        torch.manual_seed(1)
        parts = state.sums, state.squares
        grad = [torch.randn_like(part) for part in parts]
        return state, gradients(parts, {'k': k, 'v': v, 'b': b}, grad)

    ours, grads = run()
    constants(fused_devices=())
    other, expected = run()
    for name in ('sums', 'maximum', 'squares', 'count'):
        torch.testing.assert_close(getattr(ours, name), getattr(other, name), rtol=1e-5, atol=1e-6)
    for name, value in expected.items():
        assert relative(grads[name], value.double().cpu()) < 1e-5, name


@pytest.mark.parametrize('kind', ['plain', 'masked', 'keys without bias'])
def test_layers_by_kernels_are_those_by_chunks(kind, constants, fused):
    masked = kind == 'masked'
    layer = DegreeMaskedAttention(6) if masked else KernelAttentionConv(6, 8, heads=2)
    x = torch.randn(70, 6, device=DEVICE)
    if kind == 'keys without bias':
        layer.lin_key.bias = None
    layer, x = layer.to(DEVICE), x.requires_grad_()
    degree = torch.randint(70, (70,), device=DEVICE)

    def run():
        out = layer(x, degree=degree) if masked else layer(x)
        return {'out': out, **gradients(out.sin().sum(), leaves_of(layer, x=x))}

    ours = run()
    assert set(fused) == {'FusedKeys', 'FusedKeyGrads', 'FusedQueries', 'FusedQueryGrads'}
    constants(fused_devices=())
    torch.testing.assert_close(ours, run(), rtol=1e-4, atol=1e-5)


def test_kernels_compute_only_the_calls_that_they_support(fused):
    x = torch.randn(5, 1, 4, device=DEVICE)
    for dtype, kind in ((torch.double, 'softmax'), (torch.float32, 'elu')):
        projection = torch.randn(3, 4, dtype=dtype, device=DEVICE) if kind == 'softmax' else None
        assert kernel_attention(*[x.to(dtype)] * 3, kind, projection).isfinite().all()
    assert not fused
    key_noise = torch.randn(5, 1, 1, device=DEVICE)  # a single weighting of the keys
    projection = torch.randn(3, 4, device=DEVICE)
    weighed = kernel_attention(x, x, x, 'softmax', projection, key_noise=key_noise)
    torch.testing.assert_close(
        weighed,
        kernel_attention(
            x,
            x,
            x,
            'softmax',
            projection,
            key_mask=key_noise[:, 0].exp(),
            query_mask=torch.ones(5, 1, device=DEVICE),
        ),
    )
    assert fused == [
        'FusedQueries',
        'FusedKeys',
        'FusedQueries',
    ]  # the keys with the mask, none with noise
    fused.clear()
    wide = torch.randn(5, 1, dispatch.FUSED_CHANNELS + 1, device=DEVICE)
    assert (
        kernel_attention(x, x, wide, 'softmax', torch.randn(3, 4, device=DEVICE)).isfinite().all()
    )
    assert not fused
    assert (
        kernel_attention(x[:0], x[:0], x[:0], 'softmax', torch.randn(3, 4, device=DEVICE)).numel()
        == 0
    )
    assert not fused
    one = torch.randn(1, 1, 1, device=DEVICE)
    torch.testing.assert_close(
        kernel_attention(one, one, one, 'softmax', torch.randn(3, 1, device=DEVICE)), one
    )
    assert fused == ['FusedKeys', 'FusedQueries']
    fused.clear()
    assert kernel_attention(x, x, x, 'softmax', torch.randn(3, 4, device=DEVICE)).isfinite().all()
    assert fused


@pytest.mark.parametrize(('size', 'expected'), [(1, 1), (2, 2), (3, 4), (16, 16), (17, 32)])
def test_powers_of_2(size, expected):
    assert module.power_of_2(size) == expected


def test_precision_of_kernels_follows_that_of_products(monkeypatch):
    monkeypatch.setattr(torch.backends.cuda.matmul, 'fp32_precision', 'ieee')
    assert module.precision(torch.float32) == 'tf32x3'
    assert module.precision(torch.bfloat16) == 'tf32'
    for dtype, expected in ((torch.float32, 'tf32x3'), (torch.bfloat16, 'tf32')):
        x, projection = torch.ones(2, 4, dtype=dtype), torch.ones(3, 4)
        inputs = KernelInput(x=x, heads=1, kind='softmax', projection=projection)
        assert module.Sizes(inputs, 1, 2, 4).constants['PRECISION'] == expected
    monkeypatch.setattr(torch.backends.cuda.matmul, 'fp32_precision', 'tf32')
    assert module.precision(torch.float32) == 'tf32'
