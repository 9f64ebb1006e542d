# N nodes, G graphs walked together, n nodes of each, F input width, H heads, C channels of a key, D
# of a value, M features, R rank, K samples.

from torch import Tensor

from torch_geometric_lgt.functional.inputs import KernelInput
from torch_geometric_lgt.functional.numerics import compute_dtype

CHUNK_ELEMENTS = 1 << 18

Nodes = Tensor | slice


def rows(side: KernelInput) -> int:
    r"""Nodes of a chunk: its features fill the nearest cache."""
    return min(4096, max(64, CHUNK_ELEMENTS // (side.heads * side.num_features())))


def take(x: Tensor, nodes: Nodes) -> Tensor:
    x = x[nodes]
    return x.to(compute_dtype(x.dtype))


def split(x: Tensor, graphs: int, heads: int) -> Tensor:
    r"""``[G * n, H * C]`` as ``[G, H, n, C]``, a view; n is 1 if there are no graphs."""
    return (
        x.unflatten(0, (graphs, x.size(0) // graphs if graphs > 0 else 1))
        .unflatten(-1, (heads, -1))
        .transpose(1, 2)
    )


def join(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.size(0) * x.size(2), -1)


def mask_of(side: KernelInput, nodes: Nodes, graphs: int) -> Tensor | None:
    r"""``[G, 1, n, R]``."""
    return None if side.mask is None else split(take(side.mask, nodes), graphs, 1)


def noise_of(side: KernelInput, nodes: Nodes, graphs: int) -> Tensor | None:
    r"""``[G, H, n, K]``."""
    return None if side.noise is None else split(take(side.noise, nodes), graphs, side.heads)


def self_value_of(side: KernelInput, nodes: Nodes, graphs: int) -> Tensor | None:
    r"""``[G, H, n, D]``."""
    return (
        None if side.self_value is None else split(take(side.self_value, nodes), graphs, side.heads)
    )
