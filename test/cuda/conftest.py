"""Tests for a GPU. ``pytest -m cuda`` without one runs those on the CPU that can be, with the
kernels in Triton's interpreter."""

import os
from importlib.util import find_spec

import pytest
import torch

DEVICE = torch.device('cuda', 0) if torch.cuda.is_available() else torch.device('cpu')
# what cuBLAS needs for the same bits from run to run, before its first call
os.environ.setdefault('CUBLAS_WORKSPACE_CONFIG', ':4096:8')


@pytest.fixture(params=['kernels', 'pairs', 'formulas'])
def device(request, constants):
    """The device, on which operators with Triton's kernels (if it is installed), operators for the
    pairs of small graphs, or formulas compute everything."""
    fused_devices = (DEVICE.type,) if find_spec('triton') else ()
    if request.param == 'kernels':
        constants(fused_devices=fused_devices, paired=False)
    elif request.param == 'pairs':
        constants(fused_devices=fused_devices)
    return DEVICE


@pytest.fixture
def place():
    """The device, for what does not choose between kernels and formulas."""
    return DEVICE


@pytest.fixture
def deterministic():
    """Forbids PyTorch to add numbers in any order."""
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
