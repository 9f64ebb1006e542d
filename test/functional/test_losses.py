import re

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from torch_geometric_lgt.functional import losses
from torch_geometric_lgt.functional.losses import (
    alignment,
    alignment_uniformity,
    edge_regularization,
    uniformity,
)
from torch_geometric_lgt.testing import dense
from torch_geometric_lgt.testing._saved import SavedStorages


def test_by_hand():
    x, y = torch.tensor([[2.0, 0.0], [0.0, 0.1]]), torch.tensor([[0.0, 5.0], [0.0, 3.0]])
    assert float(alignment(x, y)) == pytest.approx(1.0)  # squared distances 2 and 0
    assert float(uniformity(x)) == pytest.approx(-4.0)  # one pair at squared distance 2
    assert float(uniformity(x, 1.0)) == pytest.approx(-2.0)
    assert float(uniformity(y)) == pytest.approx(0.0, abs=1e-6)
    assert float(alignment_uniformity(x, y, 0.5)) == pytest.approx(1 + 0.5 * (-4 + 0) / 2)
    assert float(alignment_uniformity(x, y, 0.5, 'paper')) == pytest.approx(1 + 0.5 * (-2 + 0))


@pytest.mark.parametrize(
    ('variant', 'temperature', 'share'), [('directau', 2.0, 0.5), ('paper', 1.0, 1.0)]
)
def test_variants_are_what_they_are_made_of(variant, temperature, share):
    x, y = (torch.randn(7, 3, dtype=torch.float64) for _ in range(2))
    distances = [
        (one / one.norm() - other / other.norm()).square().sum()
        for one, other in zip(x, y, strict=True)
    ]
    aligned = torch.stack(distances).mean()
    torch.testing.assert_close(alignment(x, y), aligned)
    torch.testing.assert_close(alignment(x[:1], y[:1]), distances[0])
    spread = dense.uniformity(x, temperature) + dense.uniformity(y, temperature)
    torch.testing.assert_close(
        alignment_uniformity(x, y, 0.7, variant), aligned + 0.7 * share * spread
    )
    torch.testing.assert_close(
        alignment_uniformity(x, y, variant=variant), aligned + share * spread
    )
    torch.testing.assert_close(
        alignment_uniformity(x, y), alignment_uniformity(x, y, 1.0, 'directau')
    )


@pytest.mark.parametrize('temperature', [1.0, 2.0, 50.0])
@pytest.mark.parametrize('rows', [2, 7, 64])
def test_uniformity_matches_dense_with_gradients(rows, temperature, constants):
    constants(loss_chunk=5 * rows)  # chunks of five rows
    x = torch.randn(rows, 4, dtype=torch.float64, requires_grad=True)
    actual, expected = uniformity(x, temperature), dense.uniformity(x, temperature)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    grads = [torch.autograd.grad(loss, x)[0] for loss in (actual, expected)]
    torch.testing.assert_close(*grads, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    'x',
    [torch.ones(1, 3), torch.ones(5, 3), torch.zeros(4, 3), torch.empty(0, 3)],
    ids=['row', 'same', 'zero', 'none'],
)
def test_degenerate_rows_are_defined(x):
    x.requires_grad_()
    for loss in (alignment(x, x.detach()), uniformity(x)):
        assert loss.item() == pytest.approx(0.0, abs=1e-6)
        (grad,) = torch.autograd.grad(loss, x)
        assert grad.isfinite().all()


def test_nothing_of_all_pairs_is_kept():
    """What is saved for the backward pass at four times the rows is at most 4.2 times as much;
    flops are those of the pairs."""
    saved, flops = {}, {}
    for rows in (2048, 8192):
        x = torch.randn(rows, 8, requires_grad=True)
        with SavedStorages() as found, FlopCounterMode(display=False) as counter:
            uniformity(x)
        saved[rows], flops[rows] = sum(found.sizes), counter.get_total_flops()
    assert saved[8192] <= 4.2 * saved[2048]
    chunks = {
        rows: range(0, rows - 1, min(losses.CHUNK_ELEMENTS // rows, rows // 8)) for rows in flops
    }
    pairs = {
        rows: sum(min(part.step, rows - start) * (rows - start) for start in part)
        for rows, part in chunks.items()
    }
    assert flops == {rows: 2 * (8 + 2) * pairs[rows] for rows in flops}
    assert pairs[8192] < 0.51 * 8192**2


@pytest.mark.parametrize(('rows', 'products'), [(1000, 3), (1100, 4)])
def test_pairs_of_many_rows_are_computed_again(rows, products):
    x = torch.randn(rows, 8, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        loss = uniformity(x)
    forward = counter.get_total_flops()
    with FlopCounterMode(display=False) as counter:
        loss.backward()
    assert forward + counter.get_total_flops() == products * forward


@pytest.mark.parametrize('rows', [500, 1500])
def test_half_precision_is_that_of_the_input_alone(rows):
    x, y = torch.randn(2, rows, 64).bfloat16()
    expected = alignment_uniformity(x.double(), y.double())
    for enabled in (False, True):
        with torch.autocast('cpu', torch.bfloat16, enabled=enabled):
            loss = alignment_uniformity(x, y)
            (grad,) = torch.autograd.grad(
                alignment_uniformity(leaf := x.detach().requires_grad_(), y), leaf
            )
        torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=0)
        assert loss.dtype == torch.float32
        assert grad.dtype == torch.bfloat16


def test_raises():
    x = torch.randn(3, 2)
    with pytest.raises(ValueError, match=r"'x' and 'y' must both have shape"):
        alignment(x, x[:2])
    with pytest.raises(ValueError, match=r"'x' must have shape \[N, D\]"):
        uniformity(x[0])
    with pytest.raises(ValueError, match="'temperature' must be positive"):
        uniformity(x, 0.0)
    with pytest.raises(ValueError, match="'variant' must be"):
        alignment_uniformity(x, x, 1.0, 'public')


def test_edge_regularization_is_the_divergence_from_the_uniform_distribution():
    """KL(p0 || pi) + H(p0), averaged over nodes that all have neighbours."""
    probability = torch.rand(5, 5, dtype=torch.float64).softmax(1)
    adjacency = (torch.rand(5, 5) < 0.5) | torch.eye(5, dtype=torch.bool)
    target, source = adjacency.nonzero().t()
    prior = adjacency / adjacency.sum(1, keepdim=True).double()
    divergence = torch.where(adjacency, prior * (prior / probability).log(), 0.0).sum()
    entropy = -torch.where(adjacency, prior * prior.log(), 0.0).sum()
    log = probability[target, source].log()
    edges = torch.stack([source, target])
    torch.testing.assert_close(
        edge_regularization(log, edges, 5), (divergence + entropy) / 5, rtol=1e-12, atol=0
    )
    heads = torch.stack([log + 1, log - 3], 1)
    torch.testing.assert_close(edge_regularization(heads, edges, 5), (divergence + entropy) / 5 + 1)


def test_edge_regularization_of_a_node_whose_edges_are_all_masked():
    edges, mask = torch.tensor([[0, 1, 2], [1, 0, 0]]), torch.tensor([False, True, True])
    log = torch.tensor([-3.0, -1.0, -2.0], requires_grad=True)
    loss = edge_regularization(log, edges, 3, mask)
    loss.backward()
    assert loss.item() == 0.5  # (1 + 2) / 2 of node 0, 0 of the others
    assert torch.equal(log.grad, torch.tensor([0.0, -1 / 6, -1 / 6]))


def test_edge_regularization_counts_the_edges_of_the_mask():
    log, edges = torch.tensor([0.5, 0.25, 0.125]).log(), torch.tensor([[0, 1, 2], [1, 0, 0]])
    mask = torch.tensor([True, True, False])
    expected = -(log[0] + log[1]) / 3
    torch.testing.assert_close(edge_regularization(log, edges, 3, mask), expected)
    log[2] = -torch.inf
    torch.testing.assert_close(edge_regularization(log, edges, 3, mask), expected)


@pytest.mark.parametrize(
    ('mask', 'shown'),
    [
        (torch.ones(3), 'torch.float32, (3,)'),
        (torch.ones(2, dtype=torch.bool), 'torch.bool, (2,)'),
    ],
)
def test_edge_regularization_needs_a_bool_for_each_edge(mask, shown):
    edges = torch.tensor([[0, 1, 2], [1, 0, 0]])
    message = f"'mask' must be a bool for each of 3 edges (got {shown})"
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        edge_regularization(torch.zeros(3), edges, 3, mask)


def test_edge_regularization_names_targets_that_do_not_exist():
    log, edges = torch.tensor([-1.0, -2.0]), torch.tensor([[1, 0], [0, 3]])
    assert edge_regularization(log, edges, 4).item() == 3 / 4
    cases = (edges, 3, '2 (got 0 to 3)'), (edges - 1, 4, '3 (got -1 to 2)')
    for wrong, num_nodes, shown in cases:
        message = f"'edge_index[1]' must hold ids from 0 to {shown}"
        with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
            edge_regularization(log, wrong, num_nodes)
    none = torch.empty(2, 0, dtype=torch.long)
    assert edge_regularization(torch.empty(0), none, 0).item() == 0


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
def test_edge_regularization_of_half_precision(dtype):
    """Neither the sum over 40,000 nodes nor the degree 70,000 is a number of float16."""
    many = torch.arange(40_000).expand(2, -1)
    loss = edge_regularization(torch.full((40_000,), -2.0, dtype=dtype), many, 40_000)
    assert (loss.dtype, loss.item()) == (torch.float32, 2.0)
    star = torch.stack([torch.arange(70_000), torch.zeros(70_000, dtype=torch.long)])
    loss = edge_regularization(torch.full((70_000,), -2.0, dtype=dtype), star, 1)
    assert loss.item() == pytest.approx(2.0, rel=1e-5)


@pytest.mark.parametrize('rows', [6, 1100])
def test_uniformity_within_transforms(rows):
    """Those of torch.func take no checkpoints, which larger losses have."""
    x = torch.randn(rows, 4, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(uniformity(x), x)
    torch.testing.assert_close(torch.func.grad(uniformity)(x.detach()), expected)
    direction = torch.randn_like(x)
    _, change = torch.func.jvp(uniformity, (x.detach(),), (direction,))
    torch.testing.assert_close(change, (expected * direction).sum())


def test_edge_regularization_refuses_probabilities():
    """The loss of the weights that ``attention_scores`` returns was their negative mean."""
    edges = torch.tensor([[0, 1, 2], [1, 0, 0]])
    message = r'logarithms, which are at most 0 \(got 0 to 0.5\); give log\(\) of the probabilities'
    for weights in (
        torch.tensor([0.5, 0.25, 0]),
        torch.tensor([[0.5, 0.25], [0, 0.1], [0.2, 0.5]]),
    ):
        with pytest.raises(ValueError, match=message):
            edge_regularization(weights, edges, 3)
    assert edge_regularization(torch.tensor([0, 1e-6, 0]), edges, 3).abs() < 1e-6
    assert edge_regularization(torch.tensor([0, 1e-2, -1.0]), edges, 3) > 0
    mask = torch.tensor([True, False, True])  # of which the value may be anything
    assert edge_regularization(torch.tensor([0, 5.0, 0]), edges, 3, mask) == 0
    with pytest.raises(ValueError, match='logarithms'):
        edge_regularization(torch.tensor([0.5, -torch.inf, 0.25]), edges, 3, mask)
    assert edge_regularization(torch.zeros(3, device='meta'), edges.to('meta'), 3).is_meta


@pytest.mark.parametrize(
    ('log', 'edges', 'message'),
    [
        (
            torch.zeros(3),
            torch.zeros(4, 3, dtype=torch.long),
            r'have shape \[2, E\] \(got \(4, 3\)',
        ),
        (
            torch.zeros(3, dtype=torch.bool),
            torch.zeros(2, 3).long(),
            r'floating-point .*torch.bool',
        ),
        (
            torch.zeros(3, 3, 3),
            torch.zeros(2, 3).long(),
            r'\[E, H\] \(got torch.float32, \(3, 3, 3\)',
        ),
    ],
)
def test_edge_regularization_of_other_shapes_and_dtypes(log, edges, message):
    with pytest.raises(ValueError, match=message):
        edge_regularization(log, edges, 3)


def test_edge_regularization_without_edges_and_with_too_few_rows():
    none = torch.empty(2, 0, dtype=torch.long)
    assert edge_regularization(torch.empty(0, 2), none, 5) == 0
    assert edge_regularization(torch.tensor([-1.5]), torch.zeros(2, 1, dtype=torch.long), 1) == 1.5
    with pytest.raises(
        ValueError, match=r"'log_probability' must hold one row for each of 0 edges \(got 3\)"
    ):
        edge_regularization(torch.empty(3), none, 5)


def test_rows_of_zeros_have_no_gradient():
    for loss in (lambda x: alignment(x, torch.ones(4, 3)), uniformity):
        x = torch.randn(4, 3)
        x[1] = 0
        x.requires_grad_()
        loss(x).backward()
        assert not x.grad[1].any()
        assert x.grad.isfinite().all()
        assert x.grad[0].any()
