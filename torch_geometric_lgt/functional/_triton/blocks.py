# BN nodes, BM features and BK channels of a block.
import os
from typing import Any

import triton

from torch_geometric_lgt.functional._triton import keys, queries

CHANNELS = 32  # the most that are read at a time: with more, kernels need more registers
NARROW = 64  # the most channels of keys and values for which four warps suffice


def config(channels: int, nodes: int, features: int, warps: int, stages: int = 1) -> triton.Config:
    r"""Returns a config with blocks of some channels, nodes and features. Loads run ahead by
    :obj:`stages` minus 1 steps. A thread may have 255 registers, the most there are."""
    blocks = {'BN': nodes, 'BM': features, 'BK': channels}
    return triton.Config(blocks, num_warps=warps, num_stages=stages, maxnreg=255)


NARROW_CONFIGS = [
    config(channels, *block)
    for channels in (16, CHANNELS)
    for block in ((64, 32, 4), (64, 16, 4), (128, 32, 8), (64, 32, 4, 3))
]
WIDE_CONFIGS = [config(CHANNELS, *block) for block in ((64, 32, 8), (64, 16, 8), (64, 32, 8, 3))]
CONFIGS = [*NARROW_CONFIGS, *WIDE_CONFIGS]
INTERPRETED = os.environ.get('TRITON_INTERPRET') == '1'


def launchable(configs: list[triton.Config], _arguments: Any, **sizes: Any) -> list[triton.Config]:
    r"""Returns the configs of a kernel that are tried for the padded channels :obj:`CP` of a key
    and :obj:`DP` of a value and the rank :obj:`R` of the mask, which :obj:`sizes` has. None of them
    spills registers. With masks of several ranks, loads that run ahead would.

    ``python -m benchmarks.runtime.kernels`` shows what each config takes.
    """
    width = max(sizes['CP'], sizes['DP'])
    tried = WIDE_CONFIGS if width > NARROW else NARROW_CONFIGS
    return [
        each
        for each in configs
        if each in tried
        and each.kwargs['BK'] == min(width, CHANNELS)
        and (each.num_stages == 1 or sizes['R'] == 1)
    ]


def tuned(kernel: Any) -> Any:
    r"""Returns a kernel that chooses the fastest config for its sizes when it is first called with
    them, and stores the choice in Triton's cache for later processes. Under Triton's interpreter,
    which has no device to measure, it always uses the first config."""
    if INTERPRETED:
        block = {name: lambda _, value=value: value for name, value in CONFIGS[0].kwargs.items()}
        return triton.heuristics(block)(kernel)
    pruned = {'early_config_prune': launchable}
    return triton.autotune(
        CONFIGS, key=['C', 'D', 'M', 'R'], prune_configs_by=pruned, cache_results=True
    )(kernel)


build, key_grads = tuned(keys.build), tuned(keys.key_grads)
read, query_grads, sums_grads = (
    tuned(kernel) for kernel in (queries.read, queries.query_grads, queries.sums_grads)
)
KERNELS = {
    'build': build,
    'key_grads': key_grads,
    'read': read,
    'query_grads': query_grads,
    'sums_grads': sums_grads,
}
