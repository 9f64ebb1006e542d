from types import SimpleNamespace

import pytest
import torch

from torch_geometric_lgt.functional.numerics import chunk_elements, inverse_of, memory_elements


def test_the_inverse_of_a_number_below_the_normal_ones_is_0():
    tiny = torch.finfo(torch.float32).tiny
    assert inverse_of(torch.tensor([2.0, -4.0, 0.0, tiny / 2, tiny])).tolist() == [
        0.5,
        -0.25,
        0,
        0,
        1 / tiny,
    ]


@pytest.mark.parametrize('least', [0.5, torch.tensor([0.5])])
def test_the_inverse_of_a_rounding_error_is_0(least):
    x = torch.tensor([-2.0, 0.5, -0.5, 0.0], requires_grad=True)
    out = inverse_of(x, least)
    assert out.tolist() == [-0.5, 0, 0, 0]
    out.sum().backward()
    assert x.grad.tolist() == [-0.25, 0, 0, 0]


@pytest.mark.parametrize('least', [0.0, torch.tensor([0.0])])
def test_without_rounding_errors_only_numbers_below_the_normal_ones_have_no_inverse(least):
    x = torch.tensor([0.5, 0.0, torch.finfo(torch.float32).tiny / 2])
    assert inverse_of(x, least).tolist() == [2, 0, 0]


@pytest.mark.parametrize(
    ('gib', 'elements', 'chunk'), [(4, 1 << 24, 1 << 24), (128, 1 << 29, 1 << 28)]
)
def test_chunks_and_formulas_of_a_gpu_fit_its_memory(gib, elements, chunk, monkeypatch):
    properties = SimpleNamespace(total_memory=gib << 30)
    monkeypatch.setattr(torch.cuda, 'get_device_properties', lambda _: properties)
    device = torch.device('cuda', 0)
    assert memory_elements(device) == elements
    assert chunk_elements(1 << 18, device) == chunk
    assert chunk_elements(1 << 10, device) == 1 << 20
