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
    r"""The four classes that compute a call: keys and queries, forward and backward."""

    keys: type[Keys]
    key_grads: type[KeyGrads]
    queries: type[Queries]
    query_grads: type[QueryGrads]


CHUNKED = Backend(Keys, KeyGrads, Queries, QueryGrads)
SAMPLED = Backend(SampledKeys, SampledKeyGrads, SampledQueries, SampledQueryGrads)


def is_fused(side: KernelInput, channels: int) -> bool:
    r"""Whether kernels of Triton serve the side with values of so many :obj:`channels`: softmax
    features in float32 on a GPU."""
    plain = (
        side.kind == 'softmax'
        and side.samples == 1
        and side.noise is None
        and side.self_value is None
    )
    wide = max(side.channels(), channels) > FUSED_CHANNELS
    return (
        plain
        and not wide
        and compute_dtype(side.x.dtype) == torch.float32
        and side.x.numel() > 0
        and side.x.device.type in FUSED_DEVICES
    )


def backend_of(side: KernelInput, channels: int) -> Backend:
    r"""Chooses how queries or keys with values of so many :obj:`channels` are computed."""
    if is_fused(side, channels):
        from torch_geometric_lgt.functional._engine import fused

        return Backend(
            fused.FusedKeys, fused.FusedKeyGrads, fused.FusedQueries, fused.FusedQueryGrads
        )
    return CHUNKED if side.samples == 1 else SAMPLED


def chunk_rows(side: KernelInput, channels: int) -> int:
    return FUSED_ROWS if is_fused(side, channels) else rows(side)


def is_paired(side: KernelInput, channels: int, most: int, targets: Any, sources: Any) -> Any:
    r"""Whether the weights of all pairs of so many nodes of a graph, at most :obj:`most`, numbers
    or tensors of them, take less work than its state."""
    if side.noise is not None or side.samples > 1 or is_fused(side, channels):
        return targets < 0
    pairs, states = (
        side.num_features() + channels,
        side.num_features() * side.rank() * (channels + 1),
    )
    one_chunk = (targets > 0) & (sources > 0) & (targets <= most) & (sources <= most)
    return one_chunk & (targets * sources * pairs <= (targets + sources) * states)
