"""Which blocks the kernels for GPUs are tried with."""

import pytest

pytest.importorskip(
    'triton', reason='the kernels need Triton, which PyTorch brings along on Linux only'
)
from torch_geometric_lgt.functional._engine.triton import blocks, keys
from torch_geometric_lgt.functional._engine.triton.blocks import CONFIGS, SIZES, launchable, tuned

pytestmark = pytest.mark.kernels
H100 = 227 << 10


def test_blocks_are_chosen_for_each_size(monkeypatch):
    first = tuned(keys.build, SIZES['build'])
    assert (first.fn, {name: value({}) for name, value in first.values.items()}) == (
        keys.build,
        {'BN': 32, 'BM': 16},
    )
    monkeypatch.setattr(blocks, 'INTERPRETED', False)
    tuner = tuned(keys.build, SIZES['build'])
    assert (tuner.fn, tuner.configs, tuner.keys) == (keys.build, CONFIGS, ['C', 'D', 'M', 'R'])
    monkeypatch.setattr(blocks, 'max_shared_bytes', lambda: 0)
    assert tuner.early_config_prune(CONFIGS, {}, CP=16, DP=16, R=1) == CONFIGS[:1]


@pytest.mark.parametrize(
    ('kernel', 'width', 'rank', 'left_out'),
    [
        ('build', 64, 1, {(128, 64)}),
        ('sums_grads', 64, 2, {(128, 64)}),
        ('key_grads', 64, 1, set()),
        ('query_grads', 64, 2, {(128, 64)}),
        ('read', 64, 2, set()),
        ('build', 128, 1, {(64, 64), (128, 32), (128, 64)}),
        ('key_grads', 128, 1, {(64, 64), (128, 32), (128, 64)}),
        ('build', 16, 1, set()),
    ],
)
def test_blocks_that_an_h100_cannot_launch_are_left_out(kernel, width, rank, left_out, monkeypatch):
    monkeypatch.setattr(blocks, 'max_shared_bytes', lambda: H100)
    found = launchable(SIZES[kernel], CONFIGS, {}, CP=width, DP=width, R=rank)
    sizes = [(config.kwargs['BN'], config.kwargs['BM']) for config in CONFIGS]
    assert found == [
        config for config, block in zip(CONFIGS, sizes, strict=True) if block not in left_out
    ]
