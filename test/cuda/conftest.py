"""Tests for a GPU. ``pytest -m cuda`` without one runs those on the CPU that can be, with the
kernels in Triton's interpreter."""

from importlib.util import find_spec

import pytest
import torch

DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


@pytest.fixture(params=['operators', 'formulas'])
def device(request, constants):
    """The device, on which operators with Triton's kernels, if it is installed, or the formulas for
    small graphs compute everything."""
    if request.param == 'operators':
        constants(fused_devices=(DEVICE.type,) if find_spec('triton') else ())
    return DEVICE
