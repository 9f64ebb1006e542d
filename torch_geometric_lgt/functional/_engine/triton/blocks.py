# BN nodes and BM features of a block.
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
    r"""Returns the number of elements that a kernel with one tile of each matrix keeps in shared
    memory. Other kernels need at least as many.

    Args:
        nodes (int): The nodes of a block.
        features (int): The features of a block.
        keys (int): The channels of a key, padded to a power of 2.
        values (int): The channels of a value, padded to a power of 2.
        rank (int): :math:`R`.
    """
    return (nodes + features) * (keys + values)


def tiles_and_products(nodes: int, features: int, keys: int, values: int, rank: int) -> int:
    r"""Returns the number of elements in shared memory of a kernel that loops over nodes and
    multiplies features and values there. Arguments are as in :meth:`tiles_only`."""
    products = nodes * features * (2 + min(keys, values) // 16)
    return tiles_only(nodes, features, keys, values, rank) + products


def tiles_of_gradients(nodes: int, features: int, keys: int, values: int, rank: int) -> int:
    r"""Returns the number of elements in shared memory of a kernel for the gradients of nodes. With
    fewer than 64 nodes, more of them stay in registers. Arguments are as in :meth:`tiles_only`."""
    if nodes < 64:
        return tiles_only(nodes, features, keys, values, rank)
    return (2 * nodes + (2 + min(rank, 2)) * features) * (keys + values)


def max_shared_bytes() -> int:
    r"""Returns the bytes of shared memory that a thread block can have on the current device."""
    driver = triton.runtime.driver.active
    return driver.utils.get_device_properties(driver.get_current_device())['max_shared_mem']


def launchable(
    size: Size, configs: list[triton.Config], _arguments: Any, **constants: Any
) -> list[triton.Config]:
    r"""Returns the configs of a kernel whose blocks fit the shared memory of the device, before any
    is compiled.

    The first of :obj:`configs` is always kept: it must fit every device. :obj:`size` returns the
    elements that blocks of given sizes keep in shared memory, and :obj:`constants` are the kernel's
    constants.
    """
    limit, sizes = max_shared_bytes(), (constants['CP'], constants['DP'], constants['R'])

    def fits(config: triton.Config) -> bool:
        return 4 * size(config.kwargs['BN'], config.kwargs['BM'], *sizes) <= limit

    return configs[:1] + [config for config in configs[1:] if fits(config)]


def tuned(kernel: Any, size: Size) -> Any:
    r"""Returns a kernel that chooses the fastest config for its sizes when it is first called with
    them. Under Triton's interpreter, which has no device to measure, it always uses the first
    config."""
    if INTERPRETED:
        block = {name: lambda _, value=value: value for name, value in CONFIGS[0].kwargs.items()}
        return triton.heuristics(block)(kernel)
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
