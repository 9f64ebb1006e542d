import math
from typing import cast

from torch import Tensor

from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput
from torch_geometric_lgt.functional.numerics import chunk_elements, compute_dtype

CHUNK_ELEMENTS = 1 << 18

Nodes = Tensor | slice


def rows(inputs: KernelInput) -> int:
    r"""Returns the number of nodes of a chunk (rows that are computed together), at least 64. The
    features of a chunk fill the nearest cache of a processor, with at most 4096 nodes."""
    elements, most = (chunk_elements(size, inputs.x.device) for size in (CHUNK_ELEMENTS, 4096))
    return min(most, max(64, elements // (inputs.heads * inputs.num_features())))


def fewest_deferred(inputs: KernelInput, values: LinearInput) -> float:
    r"""Returns the smallest number of keys of a graph from which on the linear part of the values
    multiplies the finished sums over the keys, and not each value; infinity for never.

    It does so for one head and one sample, if this takes no more products and the sums of the
    values' input are no larger."""
    if values.weight is None or inputs.heads > 1 or inputs.samples > 1 or inputs.noise is not None:
        return math.inf
    num_channels, width = values.weight.shape
    return math.inf if width > num_channels else inputs.num_features() * inputs.rank()


def take(x: Tensor, nodes: Nodes) -> Tensor:
    r"""Returns the rows :obj:`nodes` of :obj:`x`, float16 and bfloat16 as float32."""
    x = x[nodes]
    return x.to(compute_dtype(x.dtype))


def count_nodes(chunks: list[Nodes]) -> int:
    r"""Returns the number of nodes of some chunks: slices or index tensors of node positions."""
    return sum(
        nodes.stop - nodes.start if isinstance(nodes, slice) else nodes.numel() for nodes in chunks
    )


def split(x: Tensor, num_graphs: int, heads: int) -> Tensor:
    r"""Views :obj:`x` ``[G * n, H * C]`` as ``[G, H, n, C]`` for :obj:`num_graphs` = G and
    :obj:`heads` = H. Without graphs, n is 1."""
    num_nodes = x.size(0) // num_graphs if num_graphs > 0 else 1
    return x.view(num_graphs, num_nodes, heads, x.size(1) // heads).transpose(1, 2)


def join(x: Tensor) -> Tensor:
    r"""Returns :obj:`x` ``[G, H, n, C]`` as ``[G * n, H * C]``, the inverse of :meth:`split`."""
    return x.transpose(1, 2).reshape(x.size(0) * x.size(2), -1)


def by_head(x: Tensor) -> Tensor:
    r"""Returns :obj:`x` ``[G, H, n, C]`` as ``[H, G * n, C]``."""
    return x.transpose(0, 1).flatten(1, 2)


def by_graph(x: Tensor, num_graphs: int) -> Tensor:
    r"""Views :obj:`x` ``[H, G * n, C]`` as ``[G, H, n, C]`` for :obj:`num_graphs` = G, the inverse
    of :meth:`by_head`."""
    return x.unflatten(1, (num_graphs, -1)).transpose(0, 1)


def mask_of(inputs: KernelInput, nodes: Nodes, num_graphs: int) -> Tensor | None:
    r"""Returns the mask weights ``[G, 1, n, R]`` of the rows :obj:`nodes`, which belong to
    :obj:`num_graphs` = G graphs of equal size; :obj:`None` without a mask."""
    return None if inputs.mask is None else split(take(inputs.mask, nodes), num_graphs, 1)


def both_masks(
    query_mask: Tensor | None, key_mask: Tensor | None, num_targets: int, num_sources: int
) -> tuple[Tensor, Tensor] | None:
    r"""Returns the mask weights of :obj:`num_targets` = n queries ``[G, 1, n, R]`` and
    :obj:`num_sources` = m keys ``[G, 1, m, R]`` of each graph, with weights 1 on a side that has
    none. Returns :obj:`None` if both sides have none."""
    if query_mask is None and key_mask is None:
        return None
    if query_mask is None:
        query_mask = _ones(cast(Tensor, key_mask), num_targets)
    if key_mask is None:
        key_mask = _ones(query_mask, num_sources)
    return query_mask, key_mask


def _ones(mask: Tensor, num_nodes: int) -> Tensor:
    return mask.new_ones(1).expand(mask.size(0), 1, num_nodes, 1)


def noise_of(inputs: KernelInput, nodes: Nodes, num_graphs: int) -> Tensor | None:
    r"""Returns the log-weights ``[G, H, n, K]`` of the keys :obj:`nodes` in the :math:`K` samples,
    or :obj:`None`. The keys belong to :obj:`num_graphs` = G graphs of equal size."""
    return (
        None if inputs.noise is None else split(take(inputs.noise, nodes), num_graphs, inputs.heads)
    )


def self_value_of(inputs: KernelInput, nodes: Nodes, num_graphs: int) -> Tensor | None:
    r"""Returns the values ``[G, H, n, D]`` that the queries :obj:`nodes` include with weight 1, or
    :obj:`None`. The queries belong to :obj:`num_graphs` = G graphs of equal size."""
    if inputs.self_value is None:
        return None
    return split(take(inputs.self_value, nodes), num_graphs, inputs.heads)
