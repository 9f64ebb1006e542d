# The one place that chooses how a call is computed.
import importlib.util
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine import chunked, sampled
from torch_geometric_lgt.functional._engine.chunked import KeyGrads, Keys, Queries, QueryGrads
from torch_geometric_lgt.functional._engine.layout import rows
from torch_geometric_lgt.functional.inputs import Side, Values
from torch_geometric_lgt.functional.numerics import compute_dtype

FUSED_DEVICES: tuple[str, ...] = ('cuda',) if importlib.util.find_spec('triton') and torch.version.hip is None else ()
FUSED_CHANNELS = 128
FUSED_ROWS = 1 << 16


def is_fused(side: Side, channels: int) -> bool:
    r"""Whether kernels of Triton serve the side with values of so many :obj:`channels`: softmax features in float32 on a GPU."""
    plain = side.kind == 'softmax' and side.samples == 1 and side.noise is None and side.own is None
    wide = max(side.channels(), channels) > FUSED_CHANNELS
    return (
        plain and not wide and compute_dtype(side.x.dtype) == torch.float32 and side.x.numel() > 0 and side.x.device.type in FUSED_DEVICES
    )


def _loops_of(side: Side, channels: int) -> tuple[ModuleType, str]:
    if is_fused(side, channels):
        from torch_geometric_lgt.functional._engine import fused

        return fused, 'Fused'
    return (chunked, '') if side.samples == 1 else (sampled, 'Sampled')


def chunk_rows(side: Side, channels: int) -> int:
    return FUSED_ROWS if is_fused(side, channels) else rows(side)


def is_paired(side: Side, channels: int, most: int, targets: Any, sources: Any) -> Any:
    r"""Whether the weights of all pairs of so many nodes of a graph, at most :obj:`most`, numbers or tensors of them, take less work than
    its state."""
    if side.noise is not None or side.samples > 1 or is_fused(side, channels):
        return targets < 0
    pairs, states = side.num_features() + channels, side.num_features() * side.rank() * (channels + 1)
    one_chunk = (targets > 0) & (sources > 0) & (targets <= most) & (sources <= most)
    return one_chunk & (targets * sources * pairs <= (targets + sources) * states)


def keys_of(side: Side, values: Values) -> Keys:
    module, name = _loops_of(side, values.channels(side))
    return getattr(module, f'{name}Keys')(side, values)


def key_grads_of(side: Side, values: Values, shared: Tensor | None = None) -> KeyGrads:
    module, name = _loops_of(side, values.channels(side))
    return getattr(module, f'{name}KeyGrads')(side, values, shared)


def queries_of(side: Side, channels: int) -> Queries:
    module, name = _loops_of(side, channels)
    return getattr(module, f'{name}Queries')(side)


def query_grads_of(side: Side, channels: int) -> QueryGrads:
    module, name = _loops_of(side, channels)
    return getattr(module, f'{name}QueryGrads')(side)
