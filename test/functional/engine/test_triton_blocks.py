"""Which blocks the kernels for GPUs are tried with."""

import pytest

pytest.importorskip(
    'triton', reason='the kernels need Triton, which PyTorch brings along on Linux only'
)
from torch_geometric_lgt.functional._engine.triton import keys
from torch_geometric_lgt.functional._engine.triton.blocks import (
    CONFIGS,
    WIDE_CONFIGS,
    launchable,
    tuned,
)

pytestmark = pytest.mark.kernels


def test_blocks_are_chosen_for_each_size(constants):
    first = tuned(keys.build)
    assert (first.fn, {name: value({}) for name, value in first.values.items()}) == (
        keys.build,
        {'BN': 32, 'BM': 16, 'BK': 16},
    )
    constants(triton_interpreted=False)
    tuner = tuned(keys.build)
    assert (tuner.fn, tuner.configs, tuner.keys) == (keys.build, CONFIGS, ['C', 'D', 'M', 'R'])
    assert tuner.early_config_prune(CONFIGS, {}, CP=128, DP=16, R=1) == WIDE_CONFIGS


@pytest.mark.parametrize(
    ('channels', 'num_configs'), [((16, 16), 6), ((64, 64), 6), ((64, 128), 3), ((128, 16), 3)]
)
def test_wide_keys_or_values_have_small_blocks(channels, num_configs):
    actual = launchable(CONFIGS, {}, CP=channels[0], DP=channels[1], R=2)
    assert actual == CONFIGS[:num_configs]
