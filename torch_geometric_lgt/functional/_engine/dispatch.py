# The one place that chooses how a call is computed.
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.chunked_keys import KeyGrads, Keys
from torch_geometric_lgt.functional._engine.chunked_queries import Queries, QueryGrads
from torch_geometric_lgt.functional._engine.custom_op import is_eager
from torch_geometric_lgt.functional._engine.layout import rows
from torch_geometric_lgt.functional._engine.sampled import (
    SampledKeyGrads,
    SampledKeys,
    SampledQueries,
    SampledQueryGrads,
)
from torch_geometric_lgt.functional.inputs import KernelInput
from torch_geometric_lgt.functional.numerics import compute_dtype, has_kernels, memory_elements
from torch_geometric_lgt.functional.segment import Segments
from torch_geometric_lgt.functional.tracing import is_exporting

FUSED_CHANNELS = 128
FUSED_ROWS = 1 << 20
PLAIN_ELEMENTS = {'cpu': 1 << 21, 'gpu': 1 << 27, 'kernels': 1 << 25}  # 'kernels' are Triton's
PRODUCT_ELEMENTS = {'cpu': 1 << 18, 'gpu': 1 << 25}


class Backend(NamedTuple):
    r"""Stores the four classes that compute a call: for keys (which build states) and for queries
    (which read them), each in the forward and in the backward pass."""

    keys: type[Keys]
    key_grads: type[KeyGrads]
    queries: type[Queries]
    query_grads: type[QueryGrads]


CHUNKED = Backend(Keys, KeyGrads, Queries, QueryGrads)
SAMPLED = Backend(SampledKeys, SampledKeyGrads, SampledQueries, SampledQueryGrads)


def is_fused(inputs: KernelInput, channels: int) -> bool:
    r"""Returns whether Triton kernels can compute queries or keys whose values have :obj:`channels`
    channels per head. They need softmax features of one projection for all heads, one sample, no
    noise, no self values, sums in float32, at most 128 channels, and Triton on a CUDA device."""
    if not has_kernels(inputs.x):
        return False
    is_softmax = inputs.kind == 'softmax' and inputs.samples == 1
    is_plain = is_softmax and inputs.noise is None and inputs.self_value is None
    return (
        is_plain
        and inputs.head_projection is None
        and max(inputs.channels(), channels) <= FUSED_CHANNELS
        and compute_dtype(inputs.x.dtype) == torch.float32
        and inputs.x.numel() > 0
    )


def backend_of(inputs: KernelInput, channels: int) -> Backend:
    r"""Returns the classes that compute queries or keys whose values have :obj:`channels` channels
    per head: Triton kernels if possible, otherwise PyTorch code for one sample or for several."""
    if is_fused(inputs, channels):
        from torch_geometric_lgt.functional._engine import fused

        return Backend(
            fused.FusedKeys, fused.FusedKeyGrads, fused.FusedQueries, fused.FusedQueryGrads
        )
    return CHUNKED if inputs.samples == 1 else SAMPLED


def chunk_rows(inputs: KernelInput, channels: int) -> int:
    r"""Returns the number of nodes that are computed together (a chunk). Values have
    :obj:`channels` channels per head. For Triton kernels they are at most :obj:`FUSED_ROWS`, and
    queries, keys or values of a chunk at most :meth:`memory_elements`."""
    if not is_fused(inputs, channels):
        return rows(inputs)
    width = inputs.heads * max(inputs.channels(), channels)
    return min(FUSED_ROWS, max(64, memory_elements(inputs.x.device) // width))


def may_record(tensors: Sequence[Any], nodes: Segments) -> bool:
    r"""Returns whether formulas that autograd records may take the place of an operator of
    :obj:`tensors`: in eager mode, and where one graph :meth:`is_traced`. Sizes of several graphs
    are unknown there."""
    return is_eager(tensors) or (nodes.sizes.size(0) == 1 and is_traced(tensors[0]))


def is_traced(x: Tensor) -> bool:
    r"""Returns whether :meth:`torch.compile` traces the code for :obj:`x` on a processor. It knows
    the shapes of tensors; those of an exported program may be any. Autocast counts as not traced,
    for the backward pass of compiled code would run in half precision, too."""
    if not torch.compiler.is_compiling() or is_exporting():
        return False
    return x.device.type == 'cpu' and not torch.is_autocast_enabled('cpu')


def is_traced_small(inputs: KernelInput) -> bool:
    r"""Returns whether :meth:`torch.compile` traces sums over queries or keys (:meth:`is_traced`)
    that are so few numbers that autograd may keep them."""
    numbers = inputs.x.shape[0] * inputs.heads * inputs.channels()
    return is_traced(inputs.x) and numbers <= PLAIN_ELEMENTS['cpu']


def has_formula(queries: KernelInput, keys: KernelInput) -> bool:
    r"""Returns whether there are formulas of the attention that autograd records: for keys without
    samples, and for samples without a mask whose logarithms are finite."""
    if keys.noise is None:
        return keys.samples == 1
    return keys.map.has_finite_logits and queries.mask is None and keys.mask is None


def is_plain(
    queries: KernelInput, keys: KernelInput, channels: int, targets: Segments, sources: Segments
) -> bool:
    r"""Returns whether the attention is computed by formulas that autograd records: if there are
    some (:meth:`has_formula`) and all features are at most :meth:`plain_elements` numbers. Each of
    several graphs counts with the size of the largest. On a processor this may at most double the
    nodes, and features may be twice as many: operators would compute the graphs size by size.

    Args:
        queries (KernelInput): How queries are computed.
        keys (KernelInput): How keys are computed.
        channels (int): The channels of a value per head.
        targets (Segments): Which query belongs to which graph.
        sources (Segments): Which key belongs to which graph.
    """
    if not has_formula(queries, keys):
        return False
    is_cpu = keys.x.device.type == 'cpu'
    limit = plain_elements(keys, channels)
    size = keys.heads * max(keys.num_features(), channels * keys.rank())
    for inputs, nodes in ((queries, targets), (keys, sources)):
        num_nodes, num_graphs = inputs.x.shape[0], nodes.sizes.shape[0]
        most = limit * (2 if is_cpu and num_graphs > 1 else 1)
        if num_nodes == 0 or num_nodes * size > most:
            return False
        if num_graphs > 1:
            padded = int(nodes.sizes.max()) * num_graphs
            if padded > (2 * num_nodes if is_cpu else most // size):
                return False
    return True


def are_alike(
    queries: KernelInput, keys: KernelInput, channels: int, targets: Segments, sources: Segments
) -> bool:
    r"""Returns whether formulas that autograd records may take each graph as one of the size of the
    largest: if this at most doubles the nodes, or if all features are then at most
    :meth:`plain_elements` numbers. There must be nodes. The arguments are those of
    :meth:`is_plain`."""
    size = keys.heads * max(keys.num_features(), channels * keys.rank())
    for inputs, nodes in ((queries, targets), (keys, sources)):
        num_nodes, num_graphs = inputs.x.shape[0], nodes.sizes.shape[0]
        if num_nodes == 0:
            return False
        padded = num_nodes if num_graphs == 1 else int(nodes.sizes.max()) * num_graphs
        if padded > max(2 * num_nodes, plain_elements(keys, channels) // size):
            return False
    return True


def plain_elements(keys: KernelInput, channels: int) -> int:
    r"""Returns the most features that formulas which autograd records may have. On a GPU a step
    takes some seven times the memory of its features, which are at most :meth:`memory_elements`.
    Values have :obj:`channels` channels per head."""
    device = keys.x.device
    if device.type == 'cpu':
        return PLAIN_ELEMENTS['cpu']
    most = PLAIN_ELEMENTS['kernels' if is_fused(keys, channels) else 'gpu']
    return min(most, memory_elements(device))


def saves_products(inputs: KernelInput) -> bool:
    r"""Returns whether queries or keys are evaluated in less time than the products of the columns
    of their input (:meth:`gram`) take: if they are at most :obj:`PRODUCT_ELEMENTS` numbers."""
    place = 'cpu' if inputs.x.device.type == 'cpu' else 'gpu'
    return inputs.x.shape[0] * inputs.heads * inputs.channels() <= PRODUCT_ELEMENTS[place]


def is_paired(keys: KernelInput, channels: int, most: int, targets: Any, sources: Any) -> Any:
    r"""Returns whether a graph is computed pair by pair: if weights of all its pairs take less work
    than a state (sums over all keys), and its nodes fit one chunk.

    Args:
        keys (KernelInput): How keys are computed; keys of samples are never paired.
        channels (int): The channels of a value per head.
        most (int): The most nodes of a chunk, which bounds targets and sources.
        targets (int or torch.Tensor): The number of targets of a graph, or of each graph ``[B]``.
        sources (int or torch.Tensor): The number of sources, likewise.

    Returns:
        A bool, or a tensor of bools ``[B]``
    """
    most = 0 if keys.noise is not None or keys.samples > 1 else most
    num_features = keys.num_features()
    pair_work = num_features + channels
    node_work = num_features * keys.rank() * (channels + 1)
    is_one_chunk = (targets > 0) & (sources > 0) & (targets <= most) & (sources <= most)
    return is_one_chunk & (targets * sources * pair_work <= (targets + sources) * node_work)
