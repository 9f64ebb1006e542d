"""Tests for a GPU. ``pytest -m cuda`` without one runs those on the CPU that can be, with the
kernels in Triton's interpreter."""

import pytest
import torch

from torch_geometric_lgt.functional._engine import dispatch

DEVICE = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


@pytest.fixture
def device(monkeypatch):
    """The device, which the kernels serve."""
    monkeypatch.setattr(dispatch, 'FUSED_DEVICES', (DEVICE.type,))
    return DEVICE
