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
    ('channels', 'expected'),
    [
        ((16, 16), [0, 1, 2]),
        ((16, 32), [3, 4, 5]),
        ((64, 64), [6, 7, 8]),
        ((64, 128), [6, 9]),
        ((128, 16), [6, 9]),
    ],
)
def test_each_width_of_keys_and_values_has_its_blocks(channels, expected):
    actual = launchable(CONFIGS, {}, CP=channels[0], DP=channels[1], R=2)
    assert actual == [CONFIGS[position] for position in expected]
