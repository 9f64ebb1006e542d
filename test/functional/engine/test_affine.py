import pytest
import torch

from torch_geometric_lgt.functional._engine.affine import Affine, AffineGrad


def test_an_input_without_a_weight_is_itself_or_a_multiple():
    x = torch.arange(6.0).view(3, 2)
    assert Affine(x, (None, None, 2.0))(slice(1, 3))[1].tolist() == [[4, 6], [8, 10]]
    assert Affine(x, (None, None, 1.0))(slice(1, 3))[1].data_ptr() == x[1:].data_ptr()


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_gradients_of_half_precision_are_added_in_float32(dtype):
    grad = AffineGrad(Affine(torch.ones(3, 4, dtype=dtype), (None, None, 1.0)))
    assert grad.x.dtype == torch.float32
