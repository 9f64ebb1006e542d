"""Kernels are compiled for a GPU that need not be there."""

import os
import subprocess
import sys

import pytest

pytest.importorskip(
    'triton', reason='the kernels need Triton, which PyTorch brings along on Linux only'
)
from benchmarks.runtime import kernels

DEMANDING = """
from benchmarks.runtime.kernels import resources
from torch_geometric_lgt.functional._triton.blocks import CONFIGS, KERNELS, launchable

for width in (64, 128):
    of_rank = [launchable(CONFIGS, {}, CP=width, DP=width, R=rank) for rank in (1, 2)]
    only_of_rank_1 = [config for config in of_rank[0] if config not in of_rank[1]]
    for rank, configs in ((1, only_of_rank_1), (2, of_rank[1])):
        for name, kernel in KERNELS.items():
            for config in configs:
                taken = resources(kernel.fn, config, width, width, rank)
                print(name, width, rank, taken['spilled'], taken['shared'] <= 99 << 10)
"""


@pytest.mark.kernels
def test_kernels_fit_the_registers_and_the_memory_of_every_gpu(tmp_path):
    """Of 99 KiB in a block, as on compute capability 8.6. Narrower channels and lower ranks take
    less."""
    environment = os.environ | {'TRITON_INTERPRET': '0', 'TRITON_CACHE_DIR': str(tmp_path)}
    command = [sys.executable, '-c', DEMANDING]
    out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    names = ['build', 'key_grads', 'read', 'query_grads', 'sums_grads']
    expected = [
        f'{name} {width} {rank} 0 True'
        for width, rank, count in ((64, 1, 1), (64, 2, 3), (128, 1, 1), (128, 2, 2))
        for name in names
        for _ in range(count)
    ]
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
    assert capsys.readouterr().out.count('\n| ') == 1 + 5 * (3 + 3)
    # 3 * 2 * 1e6 * 64 * (2 * 128) / 495e12 seconds
    assert (tmp_path / 'runtime' / 'kernels.csv').read_text().splitlines()[1] == (
        'build,64 / 64,2,64 x 32,32,4,1,96,0,32,199'
    )


@pytest.mark.parametrize('sizes', ['64/64', '48/64/1', '64/256/1', '64/64/0'])
def test_sizes_that_no_kernel_has(sizes, monkeypatch, capsys):
    monkeypatch.setattr(sys, 'argv', ['kernels', '--sizes', sizes])
    with pytest.raises(SystemExit):
        kernels.main()
    assert f'{sizes} must be KEYS/VALUES/RANK' in capsys.readouterr().err
