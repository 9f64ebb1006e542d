# BN nodes, BM features and BK channels of a block.
import os
from typing import Any

import triton

from torch_geometric_lgt.functional._triton import keys, queries

NARROW = 64  # the most channels for which a block of many nodes or features fits the registers


def config(nodes: int, features: int, channels: int, warps: int) -> triton.Config:
    r"""Returns a config with blocks of some nodes, features and channels. A thread may have 255
    registers, the most there are: with fewer, for more blocks at a time, some kernels spill."""
    blocks = {'BN': nodes, 'BM': features, 'BK': channels}
    return triton.Config(blocks, num_warps=warps, num_stages=1, maxnreg=255)


NARROW_CONFIGS = [
    config(*block, width, 4)
    for width in (16, 32, NARROW)
    for block in ((64, 32), (64, 64), (128, 32))
]
WIDE_CONFIGS = [config(64, 32, NARROW, 4), config(128, 32, NARROW, 8)]
CONFIGS = [*NARROW_CONFIGS, WIDE_CONFIGS[1]]  # the other wide one is narrow, too
INTERPRETED = os.environ.get('TRITON_INTERPRET') == '1'


def launchable(configs: list[triton.Config], _arguments: Any, **sizes: Any) -> list[triton.Config]:
    r"""Returns the configs of a kernel that are tried for the padded channels :obj:`CP` of a key
    and :obj:`DP` of a value, which :obj:`sizes` has. Narrow keys and values are read at once. Wide
    ones would not fit the registers.

    ``python -m benchmarks.runtime.kernels`` shows what each config takes.
    """
    width = max(sizes['CP'], sizes['DP'])
    tried = WIDE_CONFIGS if width > NARROW else NARROW_CONFIGS
    return [each for each in configs if each in tried and each.kwargs['BK'] == min(width, NARROW)]


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
