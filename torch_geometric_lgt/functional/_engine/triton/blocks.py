# BN nodes, BM features and BK channels of a block.
import os
from typing import Any

import triton

from torch_geometric_lgt.functional._engine.triton import keys, queries

NARROW = 64  # the most channels for which a block of many nodes or features fits the registers


def config(nodes: int, features: int, channels: int, warps: int) -> triton.Config:
    r"""Returns a config with blocks of some nodes, features and channels. A thread may have 255
    registers, the most there are: with fewer, for more blocks at a time, some kernels spill."""
    blocks = {'BN': nodes, 'BM': features, 'BK': channels}
    return triton.Config(blocks, num_warps=warps, num_stages=1, maxnreg=255)


WIDE_CONFIGS = [config(32, 16, 16, 8), config(32, 16, 32, 4), config(64, 16, 16, 8)]
NARROW_CONFIGS = [config(64, 16, 16, 4), config(64, 32, 16, 8), config(128, 16, 16, 8)]
CONFIGS = WIDE_CONFIGS + NARROW_CONFIGS
INTERPRETED = os.environ.get('TRITON_INTERPRET') == '1'


def launchable(configs: list[triton.Config], _arguments: Any, **sizes: Any) -> list[triton.Config]:
    r"""Returns the configs of a kernel that fit the registers and 64 KiB of shared memory, before
    any is compiled. :obj:`sizes` has the padded channels :obj:`CP` of a key and :obj:`DP` of a
    value.

    ``python -m benchmarks.runtime.kernels`` shows what each config takes.
    """
    is_narrow = max(sizes['CP'], sizes['DP']) <= NARROW
    return [each for each in configs if is_narrow or each in WIDE_CONFIGS]


def tuned(kernel: Any) -> Any:
    r"""Returns a kernel that chooses the fastest config for its sizes when it is first called with
    them. Under Triton's interpreter, which has no device to measure, it always uses the first
    config."""
    if INTERPRETED:
        block = {name: lambda _, value=value: value for name, value in CONFIGS[0].kwargs.items()}
        return triton.heuristics(block)(kernel)
    pruned = {'early_config_prune': launchable}
    return triton.autotune(CONFIGS, key=['C', 'D', 'M', 'R'], prune_configs_by=pruned)(kernel)


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
