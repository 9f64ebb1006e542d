"""Which blocks the kernels for GPUs are tried with."""

import pytest

pytest.importorskip(
    'triton', reason='the kernels need Triton, which PyTorch brings along on Linux only'
)
from torch_geometric_lgt.functional._triton import keys
from torch_geometric_lgt.functional._triton.blocks import (
    CONFIGS,
    WIDE_CONFIGS,
    launchable,
    tuned,
)

pytestmark = pytest.mark.kernels


def test_blocks_are_chosen_for_each_size(constants):
    constants(triton_interpreted=True)
    first = tuned(keys.build)
    assert (first.fn, {name: value({}) for name, value in first.values.items()}) == (
        keys.build,
        {'BN': 64, 'BM': 32, 'BK': 16},
    )
    constants(triton_interpreted=False)
    tuner = tuned(keys.build)
    assert (tuner.fn, tuner.configs, tuner.keys) == (keys.build, CONFIGS, ['C', 'D', 'M', 'R'])
    assert tuner.early_config_prune(CONFIGS, {}, CP=128, DP=16, R=1) == WIDE_CONFIGS


@pytest.mark.parametrize(
    ('sizes', 'expected'),
    [
        ((16, 16, 1), [0, 1, 2, 3]),
        ((16, 16, 2), [0, 1, 2]),
        ((16, 32, 2), [4, 5, 6]),
        ((64, 64, 1), [4, 5, 6, 7]),
        ((64, 64, 2), [4, 5, 6]),
        ((64, 128, 2), [8, 9]),
        ((128, 16, 1), [8, 9, 10]),
    ],
)
def test_each_size_has_its_blocks(sizes, expected):
    actual = launchable(CONFIGS, {}, **dict(zip(('CP', 'DP', 'R'), sizes, strict=True)))
    assert actual == [CONFIGS[position] for position in expected]
