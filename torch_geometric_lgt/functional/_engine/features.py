# Features of nodes, and columns that are their factors in the sums over keys.
import math
from typing import cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional.inputs import KernelInput, rounding_share
from torch_geometric_lgt.functional.numerics import neutral, without_cancellation


def spread(v: Tensor, last: Tensor, mask: Tensor | None) -> Tensor:
    r"""Returns ``[G, H, n, W]``: :obj:`v` ``[G, H, n, D]`` times each of the :math:`R` mask weights
    ``[G, 1, n, R]``, then :obj:`last` ``[G, H, n, 1]`` times each. Without a mask it appends
    :obj:`last` to :obj:`v`."""
    if mask is None:
        return torch.cat([v, last], -1)
    rank, channels = mask.size(-1), v.size(-1)
    out = v.new_empty((*v.shape[:-1], rank * (channels + 1)))
    for r in range(rank):
        torch.mul(v, mask[..., r : r + 1], out=out[..., r * channels : (r + 1) * channels])
    torch.mul(last, mask, out=out[..., rank * channels :])
    return out


def add_sums(sums: Tensor, feature: Tensor, v: Tensor, last: Tensor | None = None) -> None:
    r"""Adds to :obj:`sums` ``[G, H, D + 1, M]`` the products of the features ``[G, H, n, M]`` with
    the values :obj:`v` ``[G, H, n, D]`` and with :obj:`last` ``[G, H, n, 1]``, by default 1.

    The result is that of the columns of :meth:`spread` without a mask, but no value is copied, and
    the sum of features whose terms cancel has smaller rounding errors than a product."""
    sums[:, :, :-1] += v.transpose(2, 3) @ feature
    if last is None:
        sums[:, :, -1] += feature.sum(2)
    else:
        sums[:, :, -1:] += last.transpose(2, 3) @ feature


def fold(columns: Tensor, mask: Tensor | None, rank: int) -> Tensor:
    r"""Returns ``[G, H, n, D]``: the sum over :math:`r` of mask weight :math:`r` times the value
    columns :math:`r` of :obj:`columns` ``[G, H, n, W]``. This is the transpose of :meth:`spread`
    with respect to :obj:`v`."""
    channels = columns.size(-1) // rank - 1
    if mask is None:
        return columns[..., :channels]
    total = columns[..., :channels] * mask[..., :1]
    for r in range(1, rank):
        total.addcmul_(columns[..., r * channels : (r + 1) * channels], mask[..., r : r + 1])
    return total


def inner(columns: Tensor, v: Tensor, rank: int) -> Tensor:
    r"""Returns ``[G, H, n, R]``: the inner product of :obj:`v` ``[G, H, n, D]`` with the value
    columns :math:`r` of :obj:`columns` ``[G, H, n, W]``, for each :math:`r` up to :obj:`rank`."""
    return (columns[..., :-rank].unflatten(-1, (rank, -1)) * v[..., None, :]).sum(-1)


def scaled(log: Tensor | None, value: Tensor | None, maximum: Tensor) -> Tensor:
    r"""Returns the features :math:`s \exp(l)` divided by :math:`\exp(c)` from the logarithms
    :obj:`log`, the factors :obj:`value` and the :obj:`maximum` :math:`c`. Exponentials below the
    smallest normal number become 0, because denormal numbers are slow."""
    if log is None:
        return cast(Tensor, value)
    log_tiny = math.log(torch.finfo(log.dtype).tiny)
    power = log - maximum
    # not recorded: the gradient of an exponential that is 0 is 0
    torch.threshold_(power.detach(), log_tiny, -math.inf)
    feature = power.exp_()
    return feature if value is None else feature * value


def largest(log: Tensor, dim: int) -> Tensor:
    r"""Returns the maximum of :obj:`log` along :obj:`dim`, which is kept with size 1. The result
    has no gradient and is at least :meth:`neutral`, so that it is finite even if all entries are
    :math:`-\infty`."""
    return log.detach().amax(dim, keepdim=True).clamp(min=neutral(log.dtype))


def sampled(log: Tensor | None, noise: Tensor | None) -> Tensor | None:
    r"""Returns the log-features of weighted keys, ``[G, H, n, K * M]``: :obj:`log` ``[G, H, n, M]``
    plus the log-weight :obj:`noise` ``[G, H, n, K]`` of each sample. Returns :obj:`log` if either
    is :obj:`None`."""
    if log is None or noise is None:
        return log
    return (log[..., None, :] + noise[..., None]).flatten(-2)


def guarded(denominator: Tensor, queries: KernelInput, num_keys: Tensor | float) -> Tensor:
    r"""Returns the denominators ``[G, H, n, 1]`` with the weight 1 of the queries' self values, if
    they have some, and 0 in place of sums whose terms cancel: those that are at most
    :meth:`cancellation_bound`."""
    denominator = denominator if queries.self_value is None else denominator + 1
    return without_cancellation(denominator, cancellation_bound(queries, num_keys))


def cancellation_bound(queries: KernelInput, num_keys: Tensor | float) -> Tensor | float:
    r"""Returns a bound of the absolute value of denominators whose terms have cancelled, 0 if none
    can cancel. They can in maps with a constant, and with self values. Without self values the
    largest term is :obj:`num_keys`, broadcast to ``[G, H, 1, 1]``."""
    if queries.self_value is not None:
        return rounding_share(queries)
    return num_keys * rounding_share(queries) if queries.map.has_constant else 0.0
