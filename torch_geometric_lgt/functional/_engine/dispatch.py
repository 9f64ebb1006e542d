# The one place that chooses how a call is computed.
import importlib.util
from typing import Any, NamedTuple

import torch

from torch_geometric_lgt.functional._engine.chunked import KeyGrads, Keys, Queries, QueryGrads
from torch_geometric_lgt.functional._engine.layout import rows
from torch_geometric_lgt.functional._engine.sampled import (
    SampledKeyGrads,
    SampledKeys,
    SampledQueries,
    SampledQueryGrads,
)
from torch_geometric_lgt.functional.inputs import KernelInput
from torch_geometric_lgt.functional.numerics import compute_dtype

FUSED_DEVICES: tuple[str, ...] = (
    ('cuda',) if importlib.util.find_spec('triton') and torch.version.hip is None else ()
)
FUSED_CHANNELS = 128
FUSED_ROWS = 1 << 16


class Backend(NamedTuple):
    r"""Stores the classes that compute a call: keys and queries, forward and backward."""

    keys: type[Keys]
    key_grads: type[KeyGrads]
    queries: type[Queries]
    query_grads: type[QueryGrads]


CHUNKED = Backend(Keys, KeyGrads, Queries, QueryGrads)
SAMPLED = Backend(SampledKeys, SampledKeyGrads, SampledQueries, SampledQueryGrads)


def is_fused(inputs: KernelInput, channels: int) -> bool:
    r"""Tells whether kernels of Triton serve queries or keys with values of so many
    :obj:`channels`: softmax features in float32 on a GPU."""
    is_softmax = inputs.kind == 'softmax' and inputs.samples == 1
    is_plain = is_softmax and inputs.noise is None and inputs.self_value is None
    return (
        is_plain
        and max(inputs.channels(), channels) <= FUSED_CHANNELS
        and compute_dtype(inputs.x.dtype) == torch.float32
        and inputs.x.numel() > 0
        and inputs.x.device.type in FUSED_DEVICES
    )


def backend_of(inputs: KernelInput, channels: int) -> Backend:
    r"""Chooses the backend of queries or keys with values of so many :obj:`channels`."""
    if is_fused(inputs, channels):
        from torch_geometric_lgt.functional._engine import fused

        return Backend(
            fused.FusedKeys, fused.FusedKeyGrads, fused.FusedQueries, fused.FusedQueryGrads
        )
    return CHUNKED if inputs.samples == 1 else SAMPLED


def chunk_rows(inputs: KernelInput, channels: int) -> int:
    r"""Returns the number of nodes of a chunk."""
    return FUSED_ROWS if is_fused(inputs, channels) else rows(inputs)


def is_paired(keys: KernelInput, channels: int, most: int, targets: Any, sources: Any) -> Any:
    r"""Tells whether all pairs of a graph take less work than its state: with at most :obj:`most`
    targets and sources, whose numbers are integers or tensors."""
    if keys.noise is not None or keys.samples > 1 or is_fused(keys, channels):
        return targets < 0
    num_features = keys.num_features()
    pair_work = num_features + channels
    node_work = num_features * keys.rank() * (channels + 1)
    is_one_chunk = (targets > 0) & (sources > 0) & (targets <= most) & (sources <= most)
    return is_one_chunk & (targets * sources * pair_work <= (targets + sources) * node_work)
