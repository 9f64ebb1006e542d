"""Outputs and all gradients of every layer and model against its definition, computed densely on
the CPU in double precision."""

import pytest
import torch
from cuda_cases import CASES, LAYERS, MODELS, X, make, results

from torch_geometric_lgt import nn

# no attention of their own
ELSEWHERE = {'AttentionMemory', 'FeatureMap', 'GlobalAttention', 'check_features'}


def assert_close(actual, expected, bound):
    """The largest error of each tensor, as a share of the largest number of the tensors of its
    kind."""
    largest = max(float(part.abs().max()) for name, part in expected.items() if name != 'output')
    for name, part in expected.items():
        size = float(part.abs().max()) if name == 'output' else largest
        error = float((actual[name].double().cpu() - part).abs().max())
        assert error <= bound * size, f'{name}: {error / size:.1e}'


@pytest.mark.kernels
@pytest.mark.parametrize(('dtype', 'bound'), [(torch.double, 1e-9), (torch.float32, 1e-4)])
@pytest.mark.parametrize('name', CASES)
def test_matches_the_definition(name, dtype, bound, device):
    actual, expected, call = make(name, device, dtype)
    assert_close(
        results(actual, call, X.to(device, dtype)), results(expected, call, X.double()), bound
    )


@pytest.mark.cuda
@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
@pytest.mark.parametrize('name', CASES)
def test_autocast_is_close_to_the_definition(name, dtype, device):
    actual, expected, call = make(name, device, torch.float32)
    result = results(actual, call, X.to(device), autocast=dtype)
    assert all(part.isfinite().all() for part in result.values())
    assert_close(result, results(expected, call, X.double()), 0.1)


@pytest.mark.cuda
@pytest.mark.parametrize('name', CASES)
@pytest.mark.usefixtures('deterministic')
def test_a_repeated_call_gives_the_same_bits(name, device):
    module, _, call = make(name, device, torch.float32)
    first, second = (results(module, call, X.to(device)) for _ in range(2))
    for part, value in first.items():
        assert torch.equal(value, second[part]), part


@pytest.mark.kernels
def test_no_exported_layer_or_model_is_left_out():
    made = {type(build()).__name__ for build, _ in (*LAYERS.values(), *MODELS.values())}
    assert {*nn.__all__} == made | ELSEWHERE
