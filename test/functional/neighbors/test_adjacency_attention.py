import pytest
import torch
from gradients import assert_same_gradients, gradients

from torch_geometric_lgt.functional import gaussian_projection
from torch_geometric_lgt.functional.neighbors import adjacency_attention as module
from torch_geometric_lgt.functional.neighbors.adjacency_attention import (
    adjacency_attention,
    adjacency_scores,
)
from torch_geometric_lgt.testing import dense

DOUBLE = torch.float64


@pytest.mark.parametrize('chunk', [1, 1 << 20])
@pytest.mark.parametrize('kind', ['softmax', 'fourier', 'elu', 'relu', 'focused', 'assignment'])
def test_matches_dense_with_gradients(kind, chunk, constants):
    """Repeated edges, a target without edges, one edge a chunk."""
    constants(adjacency_chunk=chunk)
    q, k, v = (
        torch.randn(n, 2, d, dtype=DOUBLE, requires_grad=True) for n, d in ((9, 4), (7, 4), (7, 3))
    )
    edges = torch.stack([torch.randint(7, (20,)), torch.randint(8, (20,))])
    count = torch.zeros(9, 7, dtype=DOUBLE).index_put_(
        (edges[1], edges[0]), torch.ones(20, dtype=DOUBLE), accumulate=True
    )
    projection = gaussian_projection(6, 4) if kind in ('softmax', 'fourier') else None
    actual = adjacency_attention(q, k, v, edges, kind, projection, scale=0.7)
    phi_q, phi_k = (dense.feature_map(kind, 0.7 * x, projection) for x in (q, k))
    expected = dense.kernel_attention(phi_q, phi_k, v, count)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    assert (actual[8] == 0).all()
    leaves, grad = {'q': q, 'k': k, 'v': v}, torch.randn_like(actual)
    assert_same_gradients(actual, expected, leaves, grad, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize('scale', [1e-36, 1e-30, 1e30])
@pytest.mark.parametrize('kind', ['softmax', 'fourier', 'elu', 'relu', 'focused', 'assignment'])
def test_weights_of_any_size_in_single_precision(kind, scale):
    """One factor of all weights of a target cancels, and gradients are divided by it."""
    q, k, v = (torch.randn(7, 2, d, requires_grad=True) for d in (4, 4, 3))
    edges = torch.randint(7, (2, 30))
    projection = gaussian_projection(6, 4) if kind in ('softmax', 'fourier') else None
    weight, results = torch.rand(30) + 0.1, []
    for factor in (1.0, scale):
        scaled = (weight * factor).requires_grad_()
        out = adjacency_attention(q, k, v, edges, kind, projection, edge_weight=scaled)
        leaves = {'q': q, 'k': k, 'v': v, 'edge_weight': scaled}
        grads = gradients(out, leaves, torch.linspace(-1, 1, out.numel()).view_as(out))
        grads['edge_weight'] = grads['edge_weight'].double() * factor
        results.append({'out': out, **grads})
    torch.testing.assert_close(*results, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize('scale', [1e-8, 1e-12, 1e-20, 1e-26, 1e15, 1e25])
@pytest.mark.parametrize('kind', ['relu', 'focused'])
def test_features_of_any_size_in_single_precision(kind, scale):
    """Outputs and gradients of each target and source against the definition in double precision,
    features of another size beside them."""
    sizes = scale * torch.tensor([1.0, 1e-3, 1e3])
    q, k = (torch.randn(n, 2, 4) * sizes[torch.arange(n) % 3, None, None] for n in (9, 7))
    leaves = [x.requires_grad_() for x in (q, k, torch.randn(7, 2, 3))]
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    edges = torch.stack([torch.randint(7, (20,)), torch.randint(8, (20,))])
    count = torch.zeros(9, 7, dtype=DOUBLE).index_put_(
        (edges[1], edges[0]), torch.ones(20, dtype=DOUBLE), accumulate=True
    )
    actual = adjacency_attention(*leaves, edges, kind)
    expected = dense.kernel_attention(
        *(dense.feature_map(kind, x) for x in exact[:2]), exact[2], count
    )
    grad = torch.randn_like(expected)
    found, wanted = (
        {'out': out.detach(), **gradients(out, dict(zip('qkv', parts, strict=True)), cotangent)}
        for out, parts, cotangent in ((actual, leaves, grad.float()), (expected, exact, grad))
    )
    unit = sizes.double()[torch.arange(9) % 3, None, None]
    for name, size in {'out': 1, 'q': unit, 'k': unit[:7], 'v': 1}.items():
        error = float(((found[name].double() - wanted[name]) * size).norm())
        assert error < 1e-4 * max(1, float((wanted[name] * size).norm())), name


@pytest.mark.parametrize('kind', ['relu', 'focused'])
def test_features_too_small_for_gradients_are_zero(kind):
    q, k = (torch.full((3, 1, 2), 1e-38).requires_grad_() for _ in range(2))
    out = adjacency_attention(q, k, torch.ones(3, 1, 2), torch.tensor([[0, 1], [1, 2]]), kind)
    assert torch.equal(out, torch.zeros(3, 1, 2))
    assert all(
        torch.equal(part, torch.zeros(3, 1, 2)) for part in torch.autograd.grad(out.sum(), (q, k))
    )


@pytest.mark.parametrize(('small', 'expected'), [(1e-30, 5 / 3), (1e-36, 0.0)])
def test_weights_too_small_for_gradients_are_zero(small, expected):
    """Queries and keys are of size 1, but share hardly any feature."""
    q, k = torch.tensor([[[1, small]]]), torch.tensor([[[small, 1]], [[3 * small, 1]]])
    v, edges = torch.tensor([[[1.0]], [[2.0]]]), torch.tensor([[0, 1], [0, 0]])
    assert adjacency_attention(q, k, v, edges, 'relu').item() == pytest.approx(expected)


def test_large_norms_and_no_edges_are_finite():
    q, k = (
        300 * torch.nn.functional.normalize(torch.randn(5, 1, 8), dim=-1).requires_grad_()
        for _ in range(2)
    )
    v, projection = torch.randn(5, 1, 2), gaussian_projection(16, 8).float()
    for edges in (torch.randint(5, (2, 12)), torch.empty(2, 0, dtype=torch.long)):
        out = adjacency_attention(q, k, v, edges, 'softmax', projection)
        grads = torch.autograd.grad(out.sum(), (q, k), allow_unused=edges.numel() == 0)
        assert out.isfinite().all()
        assert all(grad is None or grad.isfinite().all() for grad in grads)


def test_left_out_arguments_and_the_rows_of_a_chunk(monkeypatch, constants):
    q, k, v = (torch.randn(n, 2, 4) for n in (9, 7, 7))
    edges = torch.stack([torch.randint(7, (20,)), torch.randint(9, (20,))])
    projection = torch.randn(6, 4)
    plain = adjacency_attention(q, k, v, edges, projection=projection)
    assert torch.equal(
        plain, adjacency_attention(q, k, v, edges, 'softmax', projection, scale=1.0, power=3.0)
    )
    assert torch.equal(
        adjacency_scores(q, k, edges, projection=projection),
        adjacency_scores(q, k, edges, 'softmax', projection, scale=1.0, power=3.0),
    )
    steps, chunked_map, logsumexp = set(), module.chunked_map, module.edge_logsumexp
    monkeypatch.setattr(
        module,
        'chunked_map',
        lambda function, step, *args: steps.add(step) or chunked_map(function, step, *args),
    )
    monkeypatch.setattr(
        module,
        'edge_logsumexp',
        lambda q, k, edges, step, *args: steps.add(step) or logsumexp(q, k, edges, step, *args),
    )
    constants(adjacency_chunk=100)
    torch.testing.assert_close(adjacency_attention(q, k, v, edges, projection=projection), plain)
    assert steps == {100 // (2 * 6)}
    steps.clear()
    adjacency_attention(q, k, v, edges, 'fourier', projection)
    assert steps == {100 // (2 * 2 * 6)}  # heads, and cosines and sines of the features
    steps.clear()
    adjacency_attention(q, k, v, edges, 'elu')
    assert steps == {100 // (2 * 4)}


@pytest.mark.parametrize('feature_map', ['elu', 'relu'])
def test_half_precision_is_that_of_the_input_and_output_alone(feature_map):
    """Products of features of 1e4 and more are not finite in half precision."""
    q = (300 * torch.randn(9, 2, 4)).half()
    k = (300 * torch.randn(9, 2, 4)).half()
    v = torch.randn(9, 2, 3).half()
    edges = torch.randint(9, (2, 60))
    expected = adjacency_attention(q.double(), k.double(), v.double(), edges, feature_map)
    for enabled in (False, True):
        with torch.autocast('cpu', torch.float16, enabled=enabled):
            out = adjacency_attention(q, k, v, edges, feature_map)
        assert out.dtype == torch.float16
        torch.testing.assert_close(out.double(), expected, rtol=2e-3, atol=1e-3)


def test_random_features_of_half_precision_are_computed_in_single():
    q, k, v = (torch.randn(9, 2, 4).half() for _ in range(3))
    edges, projection = torch.randint(9, (2, 60)), torch.randn(6, 4, dtype=torch.float64)
    expected = adjacency_attention(q.double(), k.double(), v.double(), edges, 'softmax', projection)
    torch.testing.assert_close(
        adjacency_attention(q, k, v, edges, 'softmax', projection),
        expected.half(),
        rtol=1e-3,
        atol=1e-4,
    )


def test_scores_are_the_weights_of_the_values_at_any_power():
    q, k, v = (torch.randn(6, 2, 3, dtype=torch.float64) for _ in range(3))
    edges = torch.tensor([[0, 1, 2, 3, 4, 5, 0], [1, 1, 1, 2, 2, 0, 0]])
    for options in ({}, {'power': 2.0}):
        scores = adjacency_scores(q, k, edges, 'focused', **options)
        expected = torch.zeros_like(v).index_add_(0, edges[1], scores[..., None] * v[edges[0]])
        actual = adjacency_attention(q, k, v, edges, 'focused', **options)
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
    default, third = (adjacency_scores(q, k, edges, 'focused', **o) for o in ({}, {'power': 3.0}))
    assert torch.equal(default, third)
    assert not torch.allclose(default, scores)
    weight = torch.rand(7, dtype=torch.float64)
    single = adjacency_scores(q.float(), k.float(), edges, 'focused', edge_weight=weight)
    assert single.dtype == torch.float32
