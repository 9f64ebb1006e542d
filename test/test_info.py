import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_geometric_lgt
from torch_geometric_lgt import _kernels, info
from torch_geometric_lgt.functional import numerics

ROOT = Path(torch_geometric_lgt.__file__).parents[1]
INSTALLED = {'torch': '2.13.0+cpu', 'torch-geometric': '2.8.1', 'scipy': '1.17', 'numba': '0.63'}
REPORT = """\
versions
  python                3.12.1
  torch-geometric-lgt   0.1.0
  torch                 2.13.0+cpu
  torch-geometric       2.8.1
  numpy                 not installed
  scipy                 1.17
  safetensors           not installed
  filelock              not installed
  threadpoolctl         not installed
  tqdm                  not installed
extras
  triton                not installed
  pyg-lib               not installed
  torch-scatter         not installed
  torch-sparse          not installed
  numba                 0.63
  pyamg                 not installed
  faiss-cpu             not installed
  pyarrow               not installed
  matplotlib            not installed
  yacs                  not installed
  ogb                   not installed
  scikit-learn          not installed
  optuna                not installed
  elkai                 not installed
  joblib                not installed
machine
  system                Linux-6.1
  processors            8
  threads of torch      4
  CUDA of torch         none: built without CUDA
kernels
  attention, small      plain PyTorch, up to 2^21 features (32,768 nodes with 64 each)
  attention, large      chunks of nodes, which need less memory
  attention, CUDA       unused: no CUDA device
  Jaccard indices       numba
  Laplacian encodings   SciPy: pyamg is not installed, for large graphs
  neighbour sampling    NumPy: pyg-lib is not installed"""


@pytest.fixture
def machine(monkeypatch):
    """A machine with eight processors, no GPU and few packages."""

    def version(name):
        if name not in INSTALLED:
            raise info.PackageNotFoundError(name)
        return INSTALLED[name]

    monkeypatch.setattr(info, 'version', version)
    monkeypatch.setattr(info, 'find_spec', lambda name: None)
    monkeypatch.setattr(info, '__version__', '0.1.0')
    monkeypatch.setattr(info.platform, 'python_version', lambda: '3.12.1')
    monkeypatch.setattr(info.platform, 'platform', lambda: 'Linux-6.1')
    monkeypatch.setattr(info.os, 'cpu_count', lambda: 8)
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 4)
    monkeypatch.setattr(torch.version, 'cuda', None)
    monkeypatch.setattr(torch.version, 'hip', None)
    monkeypatch.setattr(torch.cuda, 'device_count', lambda: 0)
    monkeypatch.setattr(torch.cuda, 'is_available', lambda: False)
    return monkeypatch


@pytest.mark.usefixtures('machine')
def test_report():
    assert info.environment_report() == REPORT


def test_devices_and_kernels_of_a_machine_with_a_gpu(machine):
    class Device:
        name, total_memory, major, minor = 'NVIDIA H100', 80 * 2**30, 9, 0

    machine.setattr(info, 'version', lambda name: '1.0')
    machine.setattr(info, 'find_spec', lambda name: name)
    machine.setattr(_kernels, 'missing_for_kernels', lambda: '')
    machine.setattr(torch.version, 'cuda', '13.0')
    machine.setattr(torch.cuda, 'device_count', lambda: 1)
    machine.setattr(torch.cuda, 'get_device_properties', lambda index: Device)
    found = info.environment()
    assert found['kernels']['attention, CUDA'] == 'unused: no CUDA device'
    machine.setattr(torch.cuda, 'is_available', lambda: True)
    found = info.environment()
    assert found['machine'] == {
        'system': 'Linux-6.1',
        'processors': '8',
        'threads of torch': '4',
        'CUDA of torch': '13.0',
        'cuda:0': 'NVIDIA H100, 80 GiB, capability 9.0',
    }
    assert list(found['kernels'].values())[2:] == [
        'Triton kernels of edges, of rows, and of random softmax features on large graphs, '
        'else PyTorch',
        'numba',
        'pyamg, for large graphs',
        'pyg-lib',
    ]
    machine.setattr(_kernels, 'missing_for_kernels', lambda: 'Triton finds no C compiler')
    assert info.environment()['kernels']['attention, CUDA'] == (
        'operators over chunks: Triton finds no C compiler'
    )


@pytest.mark.parametrize(
    ('names', 'expected'),
    [
        (['triton'], '3.5'),
        (['triton-windows'], '3.5 (triton-windows)'),
        (['pytorch-triton-rocm', 'triton'], '3.5'),
        ([], 'of unknown version'),
    ],
)
def test_distributions_of_triton(machine, names, expected):
    """The module is what counts: distributions of several names have it."""
    machine.setattr(info, 'find_spec', lambda name: name)
    machine.setattr(info, 'packages_distributions', lambda: {'triton': names} if names else {})
    machine.setattr(info, 'version', lambda name: '3.5')
    assert info.environment()['extras']['triton'] == expected


def test_an_error_is_part_of_the_report(machine):
    def fail(*_):
        raise RuntimeError('the driver is too old')

    machine.setattr(torch.cuda, 'device_count', fail)
    machine.setitem(sys.modules, 'torch', None)
    found = info.environment()
    assert found['machine'] == {
        'system': 'Linux-6.1',
        'error': 'ModuleNotFoundError: import of torch halted; None in sys.modules',
    }
    assert list(found['kernels']) == ['error']
    machine.setitem(sys.modules, 'torch', torch)
    assert info.environment()['machine']['error'] == 'RuntimeError: the driver is too old'


def test_kernels_are_those_of_the_engine(machine):
    machine.undo()
    machine.setattr(torch.cuda, 'is_available', lambda: True)
    is_said = info.environment()['kernels']['attention, CUDA'].startswith('Triton kernels')
    assert is_said == (numerics.FUSED_DEVICES == ('cuda',))


def test_command_imports_no_extra():
    code = (
        'import sys, runpy; runpy.run_module("torch_geometric_lgt.info", run_name="__main__"); '
        'print(sorted({"numba", "pyamg", "faiss", "matplotlib", "torch_geometric", "pandas"} '
        '& set(sys.modules)))'
    )
    process = subprocess.run(
        [sys.executable, '-c', code], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert process.returncode == 0, process.stderr
    *report, imported = process.stdout.splitlines()
    assert imported == '[]'
    assert report[0] == 'versions'
    assert f'  torch-geometric-lgt   {torch_geometric_lgt.__version__}' in report


def test_a_reader_may_close_early():
    with subprocess.Popen(
        [sys.executable, '-m', 'torch_geometric_lgt.info'],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == ('', 0)
