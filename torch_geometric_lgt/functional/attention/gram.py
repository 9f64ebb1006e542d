# N nodes, B graphs, H heads, F input width, C channels of a key, D channels of a value.
from typing import cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.gram import affine_ratio, centres, gram
from torch_geometric_lgt.functional.attention.state import AttentionState
from torch_geometric_lgt.functional.inputs import KernelInput, ValueInput, rounding_share
from torch_geometric_lgt.functional.segment import Segments


def gram_state(
    queries: KernelInput,
    keys: KernelInput,
    values: ValueInput,
    sources: Segments,
    targets: Segments,
) -> AttentionState:
    r"""The state of keys and values that are affine maps of one input, with linear features, and
    the sum of squares of the queries: all of it follows from the inner products of the columns of
    the input, so that no key, value or query is evaluated. The state is in double precision."""
    with torch.autocast(keys.x.device.type, enabled=False):
        one, centre = queries.x is keys.x and targets is sources, centres(keys.x, sources)
        to_centre = centre if one else centres(queries.x, targets)
        products = gram(keys.x, centre, sources)
        own = products if one else gram(queries.x, to_centre, targets)
        k, v = (_map(part, keys.heads, centre.double()) for part in (keys, values))
        q = _map(queries, keys.heads, to_centre.double())
        weighted = torch.einsum('bef,bfhd->behd', products, torch.cat([v, _constant(v)], -1))
        sums = torch.einsum('behc,behd->bhcd', k, weighted)
        if keys.map.has_constant:
            sums = torch.cat([weighted[:, -1:].transpose(1, 2), sums], 2)
        squares, query_squares = (
            torch.einsum('bef,behc,bfhc->bh', part, w, w).clamp(min=0)
            for part, w in ((products, k), (own, q))
        )
    return AttentionState(
        sums, sums.new_zeros(sums.shape[:3]), squares, sources.sizes, query_squares=query_squares
    )


def gram_read(
    state: AttentionState, queries: KernelInput, own: ValueInput | None, targets: Segments
) -> Tensor:
    r"""``[N_t, H * D]``: a state read by queries that are affine maps of their input, with linear
    features: each output is the ratio of two affine maps of the query's input. With :obj:`own` each
    query adds that affine map of its input with weight 1."""
    with torch.autocast(queries.x.device.type, enabled=False):
        centre, sums = centres(queries.x, targets), state.sums.double()
        query = _map(queries, queries.heads, centre.double())
        maps = torch.einsum('behc,bhcd->behd', query, sums[:, :, -queries.channels() :])
        constant = _constant(query)
        if queries.map.has_constant:
            maps = maps + constant * sums[:, None, :, 0]
        if own is not None:
            maps = maps + torch.cat([_map(own, queries.heads, centre.double()), constant], -1)
    numerator, denominator = maps[..., :-1].flatten(2), maps[..., -1].contiguous()
    least = (state.count if own is None else torch.ones_like(state.count)) * rounding_share(queries)
    return affine_ratio(queries.x, numerator, denominator, centre, targets, least)


def _map(part: KernelInput | ValueInput, heads: int, centre: Tensor) -> Tensor:
    r"""``[B, F + 1, H, C]``: the affine map of an input less the centre ``[B, F]`` of its graph,
    with a 1 behind it."""
    weight = cast(Tensor, part.weight).to(centre.dtype)
    constant = (
        centre @ weight.t()
        if part.bias is None
        else torch.addmm(part.bias.to(centre.dtype), centre, weight.t())
    )
    return torch.cat([weight.t().expand(centre.size(0), -1, -1), constant[:, None]], 1).unflatten(
        2, (heads, -1)
    )


def _constant(like: Tensor) -> Tensor:
    r"""``[B, F + 1, H, 1]``: the map to 1."""
    return torch.cat(
        [torch.zeros_like(like[:, :-1, :, :1]), torch.ones_like(like[:, -1:, :, :1])], 1
    )
