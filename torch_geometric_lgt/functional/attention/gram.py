# N nodes, B graphs, H heads, F input width, C channels of a key, D channels of a value.
from typing import cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.gram import affine_ratio, centres, gram
from torch_geometric_lgt.functional.attention.state import AttentionState
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput, rounding_share
from torch_geometric_lgt.functional.numerics import convert, without_autocast
from torch_geometric_lgt.functional.segment import Segments


def gram_state(
    queries: KernelInput,
    keys: KernelInput,
    values: LinearInput,
    sources: Segments,
    targets: Segments,
) -> AttentionState:
    r"""Builds the state of each graph (the sums over all its keys) from products of input columns.
    Keys, values and queries are not evaluated.

    Keys and values must be linear parts (Linear layers) of the same input, and the feature map must
    be linear. The state is in double precision and contains the sums of squares of the queries.
    """
    with without_autocast(keys.x.device.type):
        shared = queries.x is keys.x and targets is sources
        key_centre = centres(keys.x, sources)
        query_centre = key_centre if shared else centres(queries.x, targets)
        key_gram = gram(keys.x, key_centre, sources)
        query_gram = key_gram if shared else gram(queries.x, query_centre, targets)
        k, v = (_map(part, keys.heads, key_centre.double()) for part in (keys, values))
        q = _map(queries, keys.heads, query_centre.double())
        maps = torch.cat([v, _constant(v), k], -1)
        weighted, weighted_keys = _multiply(key_gram, maps).split([v.size(-1) + 1, k.size(-1)], -1)
        sums = torch.einsum('behc,behd->bhcd', k, weighted)
        if keys.map.has_constant:
            sums = torch.cat([weighted[:, -1:].transpose(1, 2), sums], 2)
        squares, query_squares = (
            (products * w).sum((1, 3)).clamp(min=0)
            for products, w in ((weighted_keys, k), (_multiply(query_gram, q), q))
        )
    return AttentionState(
        sums, sums.new_zeros(sums.shape[:3]), squares, sources.sizes, query_squares=query_squares
    )


def gram_read(
    state: AttentionState, queries: KernelInput, self_values: LinearInput | None, targets: Segments
) -> Tensor:
    r"""Computes the outputs ``[N_t, H * D]`` of queries from a state (sums over all keys of a
    graph), without evaluating the queries.

    Queries must be a linear part (a Linear layer) of their input, with a linear feature map: each
    output is a ratio of two affine maps of the input. The values :obj:`self_values` of the queries,
    if given, are included with weight 1. :obj:`targets` says which query belongs to which graph.
    """
    with without_autocast(queries.x.device.type):
        centre = centres(queries.x, targets)
        sums = state.sums.double()
        query = _map(queries, queries.heads, centre.double())
        maps = torch.einsum('behc,bhcd->behd', query, sums[:, :, -queries.channels() :])
        constant = _constant(query)
        if queries.map.has_constant:
            maps = maps + constant * sums[:, None, :, 0]
        if self_values is not None:
            value = _map(self_values, queries.heads, centre.double())
            maps = maps + torch.cat([value, constant], -1)
    numerator, denominator = maps[..., :-1].flatten(2), maps[..., -1].contiguous()
    positive = state.count if self_values is None else torch.ones_like(state.count)
    least = positive * rounding_share(queries)
    return affine_ratio(queries.x, numerator, denominator, centre, targets, least)


def _map(part: KernelInput | LinearInput, heads: int, centre: Tensor) -> Tensor:
    r"""Returns the coefficients ``[B, F + 1, H, C]`` of the linear part (Linear layer) of
    :obj:`part` as an affine map of the input minus :obj:`centre` ``[B, F]``. The last row is the
    constant."""
    weight = cast(Tensor, part.weight).to(centre.dtype).t()
    bias = convert(part.bias, centre.dtype)
    constant = centre @ weight if bias is None else torch.addmm(bias, centre, weight)
    rows = torch.cat([weight.expand(centre.size(0), -1, -1), constant[:, None]], 1)
    return rows.unflatten(2, (heads, -1))


def _multiply(gram: Tensor, maps: Tensor) -> Tensor:
    r"""Multiplies the products ``[B, F + 1, F + 1]`` of the rows of each graph by the coefficients
    ``[B, F + 1, H, C]`` of affine maps."""
    return (gram @ maps.flatten(2)).unflatten(2, (maps.size(2), -1))


def _constant(like: Tensor) -> Tensor:
    r"""Returns the coefficients ``[B, F + 1, H, 1]`` of the affine map whose value is always 1;
    :obj:`like` is another map."""
    linear, constant = like[:, :-1, :, :1], like[:, -1:, :, :1]
    return torch.cat([torch.zeros_like(linear), torch.ones_like(constant)], 1)
