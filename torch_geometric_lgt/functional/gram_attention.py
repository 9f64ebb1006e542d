# N nodes, B graphs, H heads, F input width, C channels of a key, D channels of a value.
from typing import cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional._gram import affine_ratio, gram
from torch_geometric_lgt.functional._sides import Side, Values, compute_dtype
from torch_geometric_lgt.functional.attention_state import AttentionState
from torch_geometric_lgt.functional.feature_maps import BIASED_KINDS
from torch_geometric_lgt.functional.segment import Segments


def gram_state(queries: Side, keys: Side, values: Values, sources: Segments, targets: Segments) -> AttentionState:
    r"""The state of keys and values that are affine maps of one input, with linear features, and the sum of squares of the queries: all of
    it follows from the inner products of the columns of the input, so that no key, value or query is evaluated."""
    with torch.autocast(keys.x.device.type, enabled=False):
        products = gram(keys.x, sources)
        own = products if queries.x is keys.x and targets is sources else gram(queries.x, targets)
        k, v, q = (_map(part.weight, part.bias, keys.heads, keys.x.dtype) for part in (keys, values, queries))
        weighted = torch.einsum('bef,fhd->behd', products, torch.cat([v, _constant(v)], -1))
        sums = torch.einsum('ehc,behd->bhcd', k, weighted)
        if keys.kind in BIASED_KINDS:
            sums = torch.cat([weighted[:, -1:].transpose(1, 2), sums], 2)
        squares, query_squares = (torch.einsum('bef,ehc,fhc->bh', part, w, w).clamp(min=0) for part, w in ((products, k), (own, q)))
    return AttentionState(sums, sums.new_zeros(sums.shape[:3]), squares, sources.sizes, query_squares=query_squares)


def gram_read(state: AttentionState, queries: Side, own: Values | None, targets: Segments) -> Tensor:
    r"""``[N_t, H * D]``: a state read by queries that are affine maps of their input, with linear features: each output is the ratio of two
    affine maps of the query's input. With :obj:`own` each query adds that affine map of its input with weight 1."""
    with torch.autocast(queries.x.device.type, enabled=False):
        query, sums = _map(queries.weight, queries.bias, queries.heads, queries.x.dtype), state.sums
        maps = torch.einsum('ehc,bhcd->behd', query, sums[:, :, -queries.channels :])
        constant = _constant(query)[..., None]
        if queries.kind in BIASED_KINDS:
            maps = maps + constant.squeeze(-1) * sums[:, None, :, 0]
        if own is not None:
            added = _map(own.weight, own.bias, queries.heads, queries.x.dtype)
            maps = maps + torch.cat([added, constant.squeeze(-1)], -1)
    return affine_ratio(queries.x, maps[..., :-1].flatten(2), maps[..., -1].contiguous(), targets)


def _map(weight: Tensor | None, bias: Tensor | None, heads: int, dtype: torch.dtype) -> Tensor:
    r"""``[F + 1, H, C]``: the affine map of an input with a 1 behind it."""
    weight = cast(Tensor, weight).to(compute_dtype(dtype))
    bias = weight.new_zeros(weight.size(0)) if bias is None else bias.to(weight.dtype)
    return torch.cat([weight.t(), bias[None]]).unflatten(1, (heads, -1))


def _constant(like: Tensor) -> Tensor:
    r"""``[F + 1, H, 1]``: the map to 1."""
    return torch.cat([torch.zeros_like(like[:-1, :, :1]), torch.ones_like(like[-1:, :, :1])])
