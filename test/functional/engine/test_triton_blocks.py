"""Which blocks the kernels for GPUs are tried with."""

import pytest

pytest.importorskip(
    'triton', reason='the kernels need Triton, which PyTorch brings along on Linux only'
)
from torch_geometric_lgt.functional._engine.triton import keys
from torch_geometric_lgt.functional._engine.triton.blocks import CONFIGS, SIZES, launchable, tuned

pytestmark = pytest.mark.kernels
H100 = 227 << 10


def test_blocks_are_chosen_for_each_size(constants):
    first = tuned(keys.build, SIZES['build'])
    assert (first.fn, {name: value({}) for name, value in first.values.items()}) == (
        keys.build,
        {'BN': 32, 'BM': 16},
    )
    constants(triton_interpreted=False)
    tuner = tuned(keys.build, SIZES['build'])
    assert (tuner.fn, tuner.configs, tuner.keys) == (keys.build, CONFIGS, ['C', 'D', 'M', 'R'])
    constants(triton_shared_bytes=0)
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
def test_blocks_that_an_h100_cannot_launch_are_left_out(kernel, width, rank, left_out, constants):
    constants(triton_shared_bytes=H100)
    actual = launchable(SIZES[kernel], CONFIGS, {}, CP=width, DP=width, R=rank)
    sizes = [(config.kwargs['BN'], config.kwargs['BM']) for config in CONFIGS]
    assert actual == [
        config for config, block in zip(CONFIGS, sizes, strict=True) if block not in left_out
    ]
