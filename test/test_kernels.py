import shutil
import sys
import sysconfig

import pytest
import torch

from torch_geometric_lgt import _kernels


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Has all that Triton needs."""
    (tmp_path / 'Python.h').touch()
    monkeypatch.setattr(torch.version, 'hip', None)
    monkeypatch.setattr(_kernels, 'find_spec', lambda name: name)
    monkeypatch.setattr(shutil, 'which', lambda name: name if name == 'clang' else None)
    monkeypatch.setattr(sysconfig, 'get_default_scheme', lambda: 'posix_local')
    monkeypatch.setattr(
        sysconfig, 'get_path', lambda _, scheme: str(tmp_path if 'prefix' in scheme else '')
    )
    monkeypatch.setattr(sys, 'platform', 'linux')
    monkeypatch.delenv('CC', raising=False)
    return monkeypatch


def test_what_kernels_need(machine, tmp_path):
    assert _kernels.missing_for_kernels() == ''
    (tmp_path / 'Python.h').unlink()
    assert _kernels.missing_for_kernels() == "Triton finds no headers of Python ('Python.h')"
    machine.setattr(shutil, 'which', lambda _: None)
    assert _kernels.missing_for_kernels() == 'Triton finds no C compiler'
    machine.setenv('CC', 'cc')
    assert _kernels.missing_for_kernels().startswith('Triton finds no headers')
    machine.setattr(sys, 'platform', 'win32')
    assert _kernels.missing_for_kernels() == ''
    machine.setattr(_kernels, 'find_spec', lambda _: None)
    assert _kernels.missing_for_kernels() == 'triton is not installed'
    machine.setattr(torch.version, 'hip', '7.0')
    assert _kernels.missing_for_kernels() == 'no Triton kernels on ROCm'
