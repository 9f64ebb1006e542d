"""Kernels are compiled for a GPU that need not be there."""

import os
import subprocess
import sys

import pytest

pytest.importorskip(
    'triton', reason='the kernels need Triton, which PyTorch brings along on Linux only'
)
from benchmarks.runtime import kernels

LARGEST = """
from benchmarks.runtime.kernels import resources
from torch_geometric_lgt.functional._triton.blocks import *
from triton.backends.nvidia.compiler import CUDABackend

LIMITS = 99, 163  # KiB of a block on compute capability 8.6 and 8.0


class Lowered(Exception):
    pass


def stop(llir, metadata):
    raise Lowered(metadata['shared'])


def stages_until_llir(backend, stages, *args):
    all_stages(backend, stages, *args)
    stages['ptx'] = stop


all_stages, CUDABackend.add_stages = CUDABackend.add_stages, stages_until_llir
for configs, widths in ((WIDE_CONFIGS, (128, 128, 2)), (NARROW_CONFIGS[-3:], (64, 64, 2))):
    for name, kernel in KERNELS.items():
        for config in configs:
            try:
                resources(kernel.fn, config, *widths)
            except Lowered as lowered:
                print(name, lowered.args[0] <= LIMITS[config is not configs[0]] << 10)
"""


@pytest.mark.kernels
def test_first_config_fits_every_gpu_and_the_others_fit_large_ones(tmp_path):
    """Narrower channels and lower ranks take less shared memory, which is known before registers
    are assigned, half of the time of a compilation."""
    environment = os.environ | {'TRITON_INTERPRET': '0', 'TRITON_CACHE_DIR': str(tmp_path)}
    command = [sys.executable, '-c', LARGEST]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    names = ['build', 'key_grads', 'read', 'query_grads', 'sums_grads']
    expected = [f'{name} True' for count in (2, 3) for name in names for _ in range(count)]
    assert out.stdout.split('\n')[:-1] == expected


@pytest.mark.kernels
def test_table_has_a_row_for_each_config(tmp_path, monkeypatch, capsys, constants):
    monkeypatch.setattr(
        kernels, 'resources', lambda *_: {'registers': 96, 'spilled': 0, 'shared': 32 << 10}
    )
    constants(triton_interpreted=False)
    arguments = ['kernels', '--sizes', '64/64/2', '128/64/1', '--output', str(tmp_path)]
    monkeypatch.setattr(sys, 'argv', arguments)
    kernels.main()
    assert capsys.readouterr().out.count('\n| ') == 1 + 5 * (3 + 2)
    # 3 * 2 * 1e6 * 64 * (2 * 128) / 495e12 seconds
    assert (tmp_path / 'runtime' / 'kernels.csv').read_text().splitlines()[1] == (
        'build,64 / 64,2,64 x 32,64,4,96,0,32,199'
    )


@pytest.mark.parametrize('sizes', ['64/64', '48/64/1', '64/256/1', '64/64/0'])
def test_sizes_that_no_kernel_has(sizes, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['kernels', '--sizes', sizes])
    with pytest.raises(SystemExit):
        kernels.main()
    assert f'{sizes} must be KEYS/VALUES/RANK' in capsys.readouterr().err
