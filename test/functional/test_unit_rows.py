import pytest
import torch

from torch_geometric_lgt.functional.unit_rows import to_unit_rows, unit_rows


@pytest.mark.parametrize('is_compiling', [False, True])
def test_rows_whose_squares_are_too_large_or_too_small(is_compiling, monkeypatch):
    monkeypatch.setattr(torch.compiler, 'is_compiling', lambda: is_compiling)
    x = torch.tensor([[3e30, 4e30], [0.0, 0.0], [3e-30, 4e-30]], requires_grad=True)
    out = to_unit_rows(x, torch.double)
    torch.testing.assert_close(out, torch.tensor([[0.6, 0.8], [0.0, 0.0], [0.6, 0.8]]))
    (grad,) = torch.autograd.grad(out, x, torch.tensor([[1e30, 0.0], [1.0, 1.0], [1e-30, 0.0]]))
    torch.testing.assert_close(grad, torch.tensor([[0.128, -0.096], [0.0, 0.0], [0.128, -0.096]]))


def test_rows_of_one_channel_have_exact_signs():
    """49 times the inverse of 49 is not 1."""
    x = torch.arange(-99.0, 100)[None, :, None]
    assert torch.equal(unit_rows(x)[0], x.sign())
    assert not torch.equal(x * unit_rows(x)[1], x.sign())
