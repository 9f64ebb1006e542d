# C channels of a key, D of a value (padded to a power of 2), R rank of the mask, BN nodes and BM
# features of a block.
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import triton

from torch_geometric_lgt.functional._engine.triton import keys, queries

CONFIGS = [triton.Config({'BN': 32, 'BM': 16}, num_stages=1)]
CONFIGS += [
    triton.Config({'BN': rows, 'BM': cols}, num_warps=warps)
    for rows in (32, 64, 128)
    for cols in (32, 64)
    for warps in (4, 8)
]
INTERPRETED = os.environ.get('TRITON_INTERPRET') == '1'
Size = Callable[[int, int, int, int, int], int]


def tiles_only(nodes: int, features: int, keys: int, values: int, rank: int) -> int:
    r"""Numbers in shared memory, at least, of a block: one tile of each matrix."""
    return (nodes + features) * (keys + values)


def tiles_and_products(nodes: int, features: int, keys: int, values: int, rank: int) -> int:
    r"""The same for a kernel that loops over nodes, whose features meet the values in shared
    memory."""
    return tiles_only(nodes, features, keys, values, rank) + nodes * features * (
        2 + min(keys, values) // 16
    )


def tiles_of_gradients(nodes: int, features: int, keys: int, values: int, rank: int) -> int:
    r"""The same for the gradients of a block of nodes. Blocks of 32 nodes keep more in
    registers."""
    if nodes < 64:
        return tiles_only(nodes, features, keys, values, rank)
    return (2 * nodes + (2 + min(rank, 2)) * features) * (keys + values)


def max_shared_bytes() -> int:
    r"""Returns the shared memory that a block may have on the current device."""
    driver = triton.runtime.driver.active
    return driver.utils.get_device_properties(driver.get_current_device())['max_shared_mem']


def launchable(
    size: Size, configs: list[triton.Config], _arguments: Any, **constants: Any
) -> list[triton.Config]:
    r"""Leaves out the blocks that cannot be launched on the device, before they are compiled. The
    first fits everywhere."""
    limit, sizes = max_shared_bytes(), (constants['CP'], constants['DP'], constants['R'])
    needed = [4 * size(config.kwargs['BN'], config.kwargs['BM'], *sizes) for config in configs[1:]]
    return configs[:1] + [
        config for config, num_bytes in zip(configs[1:], needed, strict=True) if num_bytes <= limit
    ]


def tuned(kernel: Any, size: Size) -> Any:
    r"""The kernel with the blocks that were fastest for its sizes; in the interpreter, where no
    device keeps time, with the first."""
    if INTERPRETED:
        return triton.heuristics(
            {name: lambda _, value=value: value for name, value in CONFIGS[0].kwargs.items()}
        )(kernel)
    pruned = {'early_config_prune': partial(launchable, size)}
    return triton.autotune(CONFIGS, key=['C', 'D', 'M', 'R'], prune_configs_by=pruned)(kernel)


SIZES: dict[str, Size] = {
    'build': tiles_and_products,
    'key_grads': tiles_of_gradients,
    'read': tiles_only,
    'query_grads': tiles_of_gradients,
    'sums_grads': tiles_and_products,
}
build, key_grads = (tuned(getattr(keys, name), SIZES[name]) for name in ('build', 'key_grads'))
read, query_grads, sums_grads = (
    tuned(getattr(queries, name), SIZES[name]) for name in ('read', 'query_grads', 'sums_grads')
)
