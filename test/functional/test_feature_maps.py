import pytest
import torch

from torch_geometric_lgt.functional.feature_maps import MAPS
from torch_geometric_lgt.functional.projections import gaussian_projection, simplex_rows
from torch_geometric_lgt.testing import dense


def test_simplex_rows():
    rows = simplex_rows(5)
    expected = torch.full((5, 5), -0.25, dtype=torch.float64).fill_diagonal_(1.0)
    torch.testing.assert_close(rows @ rows.t(), expected, atol=1e-14, rtol=0)


@pytest.mark.parametrize('geometry', ['orthogonal', 'simplex'])
def test_projection_geometry_in_blocks(geometry):
    projection = gaussian_projection(11, 4, geometry, torch.Generator().manual_seed(0))
    assert projection.shape == (11, 4)
    assert projection.dtype == torch.float64
    unit = projection / projection.norm(dim=1, keepdim=True)
    off = 0.0 if geometry == 'orthogonal' else -1 / 3
    for block in unit.split(4):
        expected = torch.full((len(block), len(block)), off, dtype=torch.float64).fill_diagonal_(
            1.0
        )
        torch.testing.assert_close(block @ block.t(), expected, atol=1e-12, rtol=0)


def test_independent_rows_are_not_drawn_in_blocks():
    generators = torch.Generator().manual_seed(0), torch.Generator().manual_seed(0)
    expected = torch.randn(11, 4, dtype=torch.float64, generator=generators[0])
    assert torch.equal(gaussian_projection(11, 4, 'positive', generators[1]), expected)


@pytest.mark.parametrize('geometry', ['positive', 'orthogonal', 'simplex'])
def test_projection_norms_and_seed(geometry):
    draw = gaussian_projection(4000, 16, geometry, torch.Generator().manual_seed(0))
    assert abs(draw.square().sum(1).mean() - 16) < 0.5  # mean of chi^2 with 16 degrees of freedom
    assert abs(draw.square().sum(1).var() - 32) < 3
    with torch.device('meta'):  # a default device that is not the generator's
        assert torch.equal(
            draw, gaussian_projection(4000, 16, geometry, torch.Generator().manual_seed(0))
        )
    assert not torch.equal(
        draw, gaussian_projection(4000, 16, geometry, torch.Generator().manual_seed(1))
    )


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ((0, 4), "^'num_features' must be at least 1, a whole number .got 0.$"),
        ((1.5, 4), "^'num_features' must be at least 1, a whole number .got 1.5.$"),
        ((4, 2.5), "^'channels' must be at least 1, a whole number .got 2.5.$"),
        ((4, 4, 'givens'), "'geometry' must be"),
        (
            (4, 1, 'simplex'),
            "^'geometry' = 'simplex' needs at least 2 channels .got 1.; use 'orthogonal'$",
        ),
    ],
)
def test_projection_raises(arguments, message):
    with pytest.raises(ValueError, match=message):
        gaussian_projection(*arguments)


@pytest.mark.parametrize('kind', ['softmax', 'fourier', 'elu', 'relu', 'focused', 'assignment'])
def test_features_match_dense_with_gradient(kind):
    x = torch.randn(9, 5, dtype=torch.float64)
    x[0] = 0
    projection = torch.randn(7, 5, dtype=torch.float64)
    log, value = MAPS[kind].log_features(x, projection, 3.0, x.square().sum(-1, keepdim=True))
    fast = (1.0 if log is None else log.exp()) * (1.0 if value is None else value)
    leaf = x[1:].clone().requires_grad_()
    slow = dense.feature_map(kind, leaf, projection)
    torch.testing.assert_close(fast[1:], slow.detach(), atol=1e-10, rtol=1e-10)
    grad = torch.randn_like(slow)
    (expected,) = torch.autograd.grad(slow, leaf, grad)
    if MAPS[kind].has_unit_sums:
        grad = grad - (grad * fast[1:]).sum(-1, keepdim=True)
    actual = MAPS[kind].vjp(
        x, projection, 3.0, True, fast, torch.cat([torch.zeros_like(grad[:1]), grad])
    )
    torch.testing.assert_close(actual[1:], expected, atol=1e-10, rtol=1e-10)
    assert actual[0].abs().max() == 0


@pytest.mark.parametrize('scale', [1e-30, 1e12])
def test_focused_is_finite_and_keeps_the_norm_at_any_scale(scale):
    x = torch.rand(3, 8) * scale
    value = MAPS['focused'].log_features(x, None, 3.0, None)[1]
    torch.testing.assert_close(value.norm(dim=1) / scale, x.norm(dim=1) / scale)


@pytest.mark.parametrize('scale', [1e-30, 1e-20, 1e12, 1e25])
def test_focused_features_and_gradients_of_any_scale_are_those_of_scale_one(scale):
    """The map is homogeneous; the first row has features of 0, the second nothing else."""
    x = torch.randn(4, 8)
    x[1] = -1
    leaf, exact = (scale * x).requires_grad_(), (scale * x).double() / scale
    exact.requires_grad_()
    value = MAPS['focused'].log_features(leaf, None, 3.0, None)[1]
    expected = dense.feature_map('focused', exact)
    grad = torch.randn(4, 8)
    (slope,) = torch.autograd.grad(expected, exact, grad.double())
    torch.testing.assert_close(
        value.detach() / scale, expected.float().detach(), rtol=1e-5, atol=1e-6
    )
    for actual in (
        torch.autograd.grad(value, leaf, grad)[0],
        MAPS['focused'].vjp(leaf.detach(), None, 3.0, True, value, grad),
    ):
        torch.testing.assert_close(actual, slope.float(), rtol=1e-5, atol=1e-5)


def test_elu_keeps_its_digits_far_below_zero():
    x = torch.tensor([-5.0, -20.0, -80.0])
    log, value = MAPS['elu'].log_features(x, None, 3.0, None)
    torch.testing.assert_close(log.exp() * value, x.exp(), rtol=1e-6, atol=0)


@pytest.mark.parametrize('num_features', [16, 64, 256])
@pytest.mark.parametrize('length', [0.5, 1.0])
@pytest.mark.parametrize('temperature', [1.0, 2.0])
def test_the_error_of_the_estimate_is_that_of_theory(num_features, length, temperature):
    """Theorem 1 of NodeFormer for independent rows: the relative standard error of the kernel is
    sqrt((exp(|q + k|^2) - 1) / M), with q and k over the root of the temperature: as M^-1/2,
    growing with the norms and the inverse temperature."""
    q, k = (
        length
        * torch.nn.functional.normalize(torch.randn(8, dtype=torch.float64), dim=0)
        / temperature**0.5
        for _ in range(2)
    )
    projection = gaussian_projection(num_features * 4000, 8, 'positive')
    phi_q, phi_k = (
        dense.feature_map('softmax', x, projection).view(4000, num_features) for x in (q, k)
    )
    relative = (phi_q * phi_k).mean(1) / (q @ k).exp() - 1
    expected = (((q + k).square().sum().exp() - 1) / num_features).sqrt()
    assert relative.square().mean().sqrt() == pytest.approx(float(expected), rel=0.15)
    assert relative.mean().abs() < 4 * expected / 4000**0.5


def test_the_first_power_has_the_gradient_of_a_relu_which_is_0_at_0():
    x = torch.tensor([[0.0, 2.0, -1.0, 3.0]], dtype=torch.float64)
    grad, feature = torch.tensor([[5.0, 7.0, 11.0, 13.0]], dtype=torch.float64), x.relu()
    torch.testing.assert_close(
        MAPS['focused'].vjp(x, None, 1.0, True, feature, grad), grad * (x > 0)
    )


def test_one_feature_of_one_channel_is_drawn():
    assert gaussian_projection(1, 1).shape == (1, 1)
