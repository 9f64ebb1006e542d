"""The kernels for edges: on a GPU, or else in Triton's interpreter on the CPU, which conftest.py
turns on."""

import os
import subprocess
import sys
from functools import partial

import pytest
import torch
from gradients import gradients
from torch._subclasses.fake_tensor import FakeTensorMode

from torch_geometric_lgt.functional.inputs import LinearInput
from torch_geometric_lgt.functional.neighbors import edge_rows, edge_sums
from torch_geometric_lgt.functional.neighbors.edge_attention import edge_attention, edge_logits
from torch_geometric_lgt.functional.neighbors.edge_logsumexp import edge_logsumexp
from torch_geometric_lgt.functional.neighbors.edge_rows import EdgeOrders
from torch_geometric_lgt.functional.neighbors.edge_weights import softmax_weight
from torch_geometric_lgt.functional.neighbors.edges import sorted_edges
from torch_geometric_lgt.functional.neighbors.neighbor_sum import neighbor_sum
from torch_geometric_lgt.nn import KernelAttentionConv

pytest.importorskip(
    'triton', reason='the kernels need Triton, which PyTorch brings along on Linux only'
)
from torch_geometric_lgt.functional._engine import fused_edges as module

pytestmark = pytest.mark.kernels
DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
N, E = 9, 40
EDGES = torch.stack(
    [torch.randint(N - 1, (E,)), torch.randint(N - 2, (E,))]
)  # some nodes have none
EDGES[1, :25] = 3  # more edges than a block of wide rows has
ORDERS = {'sorted': EDGES[:, EDGES[1].argsort()], 'unsorted': EDGES, 'empty': EDGES[:, :0]}
NAMES = (
    'edge_products',
    'edge_sums',
    'edge_softmax',
    'edge_centered',
    'edge_logsumexp',
    'edge_shares',
)
LONG = [1024, 2]  # all rows are short, or many are long
# heads and channels: blocks that are not full, several heads in a block, several blocks of a row
WIDTHS = [(1, 1), (1, 6), (3, 5), (2, 64), (1, 150)]


@pytest.fixture(autouse=True)
def fused(record_calls, constants):
    constants(fused_devices=(DEVICE.type,))
    return record_calls(module, *NAMES)


def dense_sum(x, edges, weight):
    matrix = x.new_zeros(N, N, weight.size(1))
    matrix = matrix.index_put((edges[1], edges[0]), weight, accumulate=True)
    return torch.einsum('ijh,jhc->ihc', matrix, x.unflatten(1, (weight.size(1), -1))).flatten(1)


def dense_attention(q, k, v, edges, heads):
    """Each repeated edge counts."""
    q, k, v = (x.unflatten(1, (heads, -1)) for x in (q, k, v))
    count = q.new_zeros(N, N).index_put((edges[1], edges[0]), q.new_ones(()), accumulate=True)
    logits = torch.einsum('ihc,jhc->ijh', q, k) * q.size(2) ** -0.5
    power = logits.exp() * count[..., None]
    total = power.sum(1, keepdim=True)
    return torch.einsum('ijh,jhc->ihc', power / total.masked_fill(total == 0, 1), v).flatten(1)


def precisions(double, single):
    """Tolerances by dtype. A GPU has another program for each dtype, the interpreter the same."""
    both = [(torch.double, double), (torch.float32, single)]
    return both if DEVICE.type == 'cuda' else both[:1]


def assert_same(actual, expected, tolerance):
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        length = max(1.0, float(value.norm()))
        assert float((actual[name].double().cpu() - value).norm()) <= tolerance * length, name


def with_gradients(function, dtype, device, **leaves):
    copies = {
        name: leaf.to(device, dtype, copy=True).requires_grad_() for name, leaf in leaves.items()
    }
    out = function(*copies.values())
    grads = gradients(
        (out * torch.arange(out.numel(), device=device).view(out.shape)).sum(), copies
    )
    return {'out': out.detach(), **grads}


@pytest.mark.parametrize(('dtype', 'tolerance'), precisions(1e-12, 1e-5))
@pytest.mark.parametrize(('heads', 'channels'), WIDTHS)
@pytest.mark.parametrize('order', ORDERS)
@pytest.mark.parametrize('long', LONG)
def test_sums_match_the_matrix_product(
    long, order, heads, channels, dtype, tolerance, fused, constants
):
    constants(long_rows=long)
    edges = ORDERS[order]
    x = torch.randn(N, heads * channels, dtype=torch.double)
    weight = torch.randn(edges.size(1), heads, dtype=torch.double)
    actual = with_gradients(
        lambda x, weight: neighbor_sum(x, edges.to(DEVICE), weight, N),
        dtype, DEVICE, x=x, weight=weight,
    )  # fmt: skip
    expected = with_gradients(
        lambda x, weight: dense_sum(x, edges, weight), torch.double, 'cpu', x=x, weight=weight
    )
    assert_same(actual, expected, tolerance)
    assert fused == ([] if order == 'empty' else ['edge_sums', 'edge_sums']) + ['edge_products']


@pytest.mark.parametrize(('dtype', 'tolerance'), [(torch.double, 1e-11), (torch.float32, 1e-4)])
@pytest.mark.parametrize(('heads', 'channels'), WIDTHS)
@pytest.mark.parametrize('long', LONG)
def test_attention_to_neighbours_matches_dense(
    long, heads, channels, dtype, tolerance, fused, constants
):
    constants(long_rows=long)
    q, k, v = torch.randn(3, N, heads * channels, dtype=torch.double)
    edges = sorted_edges(EDGES.to(DEVICE), N, N, backward=True)
    actual = with_gradients(
        lambda q, k, v: edge_attention(LinearInput(x=q), LinearInput(x=k), v, edges, None, heads),
        dtype, DEVICE, q=q, k=k, v=v,
    )  # fmt: skip
    expected = with_gradients(
        lambda q, k, v: dense_attention(q, k, v, EDGES, heads), torch.double, 'cpu', q=q, k=k, v=v
    )
    assert_same(actual, expected, tolerance)
    assert set(fused) == {*NAMES[:4]}


@pytest.mark.parametrize(('dtype', 'tolerance'), precisions(1e-11, 1e-5))
@pytest.mark.parametrize(('heads', 'channels'), WIDTHS)
@pytest.mark.parametrize('order', ORDERS)
@pytest.mark.parametrize('long', LONG)
def test_logarithms_of_sums_match_dense(
    long, order, heads, channels, dtype, tolerance, fused, constants
):
    """Exponents of hundreds neither overflow nor vanish."""
    constants(long_rows=long)
    edges = ORDERS[order]
    q, k = 200 * torch.randn(2, N, heads, channels, dtype=torch.double)
    actual = with_gradients(
        lambda q, k: edge_logsumexp(q, k, edges.to(DEVICE), 7, EdgeOrders()),
        dtype,
        DEVICE,
        q=q,
        k=k,
    )
    expected = with_gradients(
        lambda q, k: (q[edges[1]] + k[edges[0]]).logsumexp(2), torch.double, 'cpu', q=q, k=k
    )
    assert_same(actual, expected, tolerance * 100)
    assert fused == ['edge_logsumexp', 'edge_shares', 'edge_shares']


@pytest.mark.parametrize(('dtype', 'tolerance'), precisions(1e-12, 1e-5))
@pytest.mark.parametrize(('heads', 'channels'), WIDTHS)
@pytest.mark.parametrize('order', ORDERS)
def test_logits_have_the_gradients_of_their_formula(
    order, heads, channels, dtype, tolerance, fused
):
    """A layer's scores of edges and explanations are differentiated through them."""
    edges = ORDERS[order]
    q, k = torch.randn(2, N, heads * channels, dtype=torch.double)
    actual = with_gradients(
        lambda q, k: edge_logits(k, q, sorted_edges(edges.to(DEVICE), N, N), heads),
        dtype, DEVICE, q=q, k=k,
    )  # fmt: skip
    expected = with_gradients(
        lambda q, k: (q[edges[1]] * k[edges[0]]).unflatten(1, (heads, -1)).sum(2) / channels**0.5,
        torch.double, 'cpu', q=q, k=k,
    )  # fmt: skip
    assert_same(actual, expected, tolerance)
    assert fused == ['edge_products'] + ([] if order == 'empty' else ['edge_sums', 'edge_sums'])


@pytest.mark.parametrize('order', ORDERS)
def test_softmax_over_edges_matches_dense(order, fused):
    edges = ORDERS[order]
    logits = torch.randn(edges.size(1), 3, dtype=torch.double)
    same = (edges[1] == edges[1][:, None])[..., None]
    actual = with_gradients(
        lambda logits: softmax_weight(logits, edges.to(DEVICE), N),
        torch.double,
        DEVICE,
        logits=logits,
    )
    expected = with_gradients(
        lambda logits: logits.exp() / (same * logits.exp()).sum(1),
        torch.double,
        'cpu',
        logits=logits,
    )
    assert_same(actual, expected, 1e-12)
    assert fused == ['edge_softmax', 'edge_centered']


@pytest.mark.parametrize('num_pairs', [E, 5], ids=['all nodes', 'nodes of the pairs'])
def test_logarithms_of_sorted_pairs_are_not_sorted_again(num_pairs, monkeypatch):
    """Fewer pairs than nodes get other ids, so that their order is another one."""
    layer, edges = KernelAttentionConv(4, 4).to(DEVICE), EDGES[:, :num_pairs].to(DEVICE)
    x, calls = torch.randn(N, 4).to(DEVICE), []
    rows_of = edge_rows.rows_of
    monkeypatch.setattr(edge_rows, 'rows_of', lambda *args: calls.append(1) or rows_of(*args))
    expected, actual = (
        with_gradients(partial(layer.log_edge_probability, edge_index=form), x.dtype, DEVICE, x=x)
        for form in (edges, sorted_edges(edges, N, N))
    )
    assert len(calls) == 2 + 2 + (0 if num_pairs == E else 2)
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value)


def test_logarithms_of_sums_without_numbers_have_a_shape(fused):
    """A mode of PyTorch that only computes shapes cannot launch a kernel."""
    q, k = torch.randn(2, N, 2, 3, device=DEVICE)
    inputs = q, k, EDGES.to(DEVICE)
    with FakeTensorMode() as fake:
        out = edge_logsumexp(*map(fake.from_tensor, inputs), 7, EdgeOrders())
    assert (out.shape, fused) == ((E, 2), [])


def test_batches_of_any_size_share_their_kernels():
    """By default Triton compiles a kernel again for 1 and for multiples of 16."""
    code = """
from torch_geometric_lgt.functional._triton.edges import *
from torch_geometric_lgt.functional._triton.rows import *
kernels = edge_products, edge_logsumexp, row_sums, row_shares, row_softmax, row_centered
kernels += unit_forward, unit_backward, ratio_forward, ratio_backward
sizes = [size for kernel in kernels for size in kernel.params if size.name in ('E', 'N', 'n')]
print(*[size.do_not_specialize for size in sizes])
"""
    environment = {name: value for name, value in os.environ.items() if name != 'TRITON_INTERPRET'}
    command = [sys.executable, '-c', code]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert out.stdout.split() == ['True'] * 11


def test_transposed_rows_are_read_in_their_order():
    x, y = (torch.randn(6, N).to(DEVICE).t() for _ in range(2))
    weight = torch.randn(2, E).to(DEVICE).t()
    edges = sorted_edges(EDGES.to(DEVICE), N, N)
    for function, args in (
        (edge_sums.sums, lambda *parts: (parts[0], edges.by_target, parts[2])),
        (edge_sums.products, lambda *parts: (parts[0], parts[1], edges.edge_index, 2)),
        (edge_sums.softmax_over, lambda *parts: (parts[2], edges.edge_index[1], edges.by_target)),
        (
            edge_sums.centered,
            lambda *parts: (parts[2], parts[2], edges.edge_index[1], edges.by_target),
        ),
    ):
        expected = function(*args(x.contiguous(), y.contiguous(), weight.contiguous()))
        assert torch.equal(function(*args(x, y, weight)), expected)


def test_transposed_logarithms_have_the_gradients_of_their_rows():
    q, k = torch.randn(2, 6, N).to(DEVICE).unflatten(1, (2, 3)).movedim(3, 1)
    grads = []
    for leaves in ((q, k), (q.contiguous(), k.contiguous())):
        one, other = (leaf.detach().requires_grad_() for leaf in leaves)
        out = edge_logsumexp(one, other, EDGES.to(DEVICE), 7, EdgeOrders())
        grads.append(gradients(out.square().sum(), {'q': one, 'k': other}))
    for name, value in grads[1].items():
        assert torch.equal(grads[0][name], value), name


def test_half_precision_sums_in_float32():
    """4096 terms of 1: a sum in bfloat16 would stay at 256."""
    many = torch.stack([torch.zeros(4096, dtype=torch.long), torch.arange(4096)]).to(DEVICE)
    one = torch.ones(1, 4096, dtype=torch.bfloat16, device=DEVICE)
    products = edge_sums.products(one, one, torch.zeros(2, 1, dtype=torch.long, device=DEVICE), 1)
    assert (products.tolist(), products.dtype) == ([[4096]], torch.float32)
    rows = sorted_edges(many.flip(0), 4096, 1).by_target
    sums = edge_sums.sums(one.t(), rows, torch.ones(4096, 1, dtype=torch.bfloat16, device=DEVICE))
    assert (sums.tolist(), sums.dtype) == ([[4096]], torch.bfloat16)


def test_nan_reaches_only_the_rows_that_depend_on_it():
    x = torch.ones(3, 2, device=DEVICE)
    x[1, 0] = torch.nan
    edges = torch.tensor([[0, 1, 2], [0, 1, 2]], device=DEVICE)
    out = neighbor_sum(x, edges, torch.ones(3, 1, device=DEVICE), 3)
    assert out.isnan().tolist() == [[False, False], [True, False], [False, False]]
