# N nodes (N_s source, N_t target), E edges, H heads, C channels of a key, D of a value, M features.
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from torch_geometric_lgt.functional._engine.chunked_map import chunked_map
from torch_geometric_lgt.functional.feature_maps import MAPS
from torch_geometric_lgt.functional.neighbors.edge_logsumexp import edge_logsumexp
from torch_geometric_lgt.functional.neighbors.edge_rows import EdgeOrders
from torch_geometric_lgt.functional.neighbors.edge_weights import softmax_weight
from torch_geometric_lgt.functional.neighbors.neighbor_sum import neighbor_sum, scaled_weight
from torch_geometric_lgt.functional.numerics import (
    chunk_elements,
    compute_dtype,
    inverse_of,
    largest_power,
    neutral,
    without_autocast,
)
from torch_geometric_lgt.functional.tensor_inputs import check_map_arguments

CHUNK_ELEMENTS = 1 << 19

Features = tuple[Tensor | None, Tensor]


def adjacency_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    edge_index: Tensor,
    feature_map: str = 'softmax',
    projection: Tensor | None = None,
    *,
    scale: float = 1.0,
    power: float = 3.0,
    edge_weight: Tensor | None = None,
    edge_mask: Tensor | None = None,
) -> Tensor:
    r"""Computes the kernelised attention of every node to its neighbours (Eq. 8 of `MGFormer
    <https://arxiv.org/abs/2405.04028>`_ with the adjacency matrix as the mask):

    .. math::
        \mathbf{h}_i = \frac{\sum_{j \in \mathcal{N}(i)} w_{ij} \, \phi(\mathbf{q}_i)^{\top}
            \phi(\mathbf{k}_j) \, \mathbf{v}_j}
        {\sum_{j \in \mathcal{N}(i)} w_{ij} \, \phi(\mathbf{q}_i)^{\top} \phi(\mathbf{k}_j)}

    in :math:`O(E (M + D))` time. Repeated edges count repeatedly, and self loops count as any edge.
    A node without an incoming edge gives 0. Edges are computed in chunks, and again in the backward
    pass.

    Args:
        q (torch.Tensor): Queries ``[N_t, H, C]``.
        k (torch.Tensor): Keys ``[N_s, H, C]``.
        v (torch.Tensor): Values ``[N_s, H, D]``.
        edge_index (torch.Tensor): ``[2, E]``, sources and targets.
        feature_map (str, optional): As in :meth:`kernel_attention`. (default: :obj:`"softmax"`)
        projection (torch.Tensor, optional): As in :meth:`kernel_attention`. (default: :obj:`None`)
        scale (float, optional): Factor of :obj:`q` and :obj:`k` before :math:`\phi`. (default:
            :obj:`1.0`)
        power (float, optional): :math:`p` of the focused map. (default: :obj:`3.0`)
        edge_weight (torch.Tensor, optional): :math:`w_{ij}`, ``[E]``, not negative. (default:
            :obj:`None`, 1 for each edge)
        edge_mask (torch.Tensor, optional): ``[E]``, a factor of each edge in the numerator but not
            in the denominator, as in dropout. (default: :obj:`None`)

    Returns:
        ``[N_t, H, D]``

    Raises:
        ValueError: If :obj:`feature_map` is unknown or :obj:`projection` does not fit it.
    """
    with without_autocast(v.device.type):
        weight = _shares(q, k, edge_index, feature_map, projection, scale, power, edge_weight)
        weight = scaled_weight(weight, edge_mask)
        out = neighbor_sum(v.to(weight.dtype).flatten(1), edge_index, weight, q.size(0))
        return out.unflatten(1, (q.size(1), -1)).to(v.dtype)


def adjacency_scores(
    q: Tensor,
    k: Tensor,
    edge_index: Tensor,
    feature_map: str = 'softmax',
    projection: Tensor | None = None,
    *,
    scale: float = 1.0,
    power: float = 3.0,
    edge_weight: Tensor | None = None,
) -> Tensor:
    r"""Computes the weight ``[E, H]`` of each edge in :meth:`adjacency_attention`, the share of its
    source in the output of its target. The arguments are those of :meth:`adjacency_attention`."""
    with without_autocast(q.device.type):
        return _shares(q, k, edge_index, feature_map, projection, scale, power, edge_weight)


def _shares(
    q: Tensor,
    k: Tensor,
    edge_index: Tensor,
    feature_map: str,
    projection: Tensor | None,
    scale: float,
    power: float,
    edge_weight: Tensor | None,
) -> Tensor:
    r"""Computes the result of :meth:`adjacency_scores`. The weights of features that are
    exponentials have a softmax: their logarithms are those of the sums over the features."""
    for x in (q, k):
        check_map_arguments(x, feature_map, projection, scale, power)
    dtype = compute_dtype(q.dtype)
    q, k = q.to(dtype) * scale, k.to(dtype) * scale
    projection = None if projection is None else projection.to(dtype)
    edge_weight = None if edge_weight is None else edge_weight.to(dtype)
    log_q, value_q = MAPS[feature_map].log_features(q, projection, power, None)
    log_k, value_k = MAPS[feature_map].log_features(
        k, projection, power, k.square().sum(-1, keepdim=True)
    )
    features = cast(Tensor, log_k if value_k is None else value_k)
    step = max(1, chunk_elements(CHUNK_ELEMENTS, q.device) // max(1, features[:1].numel()))
    if value_q is None or value_k is None:
        log_q, log_k = cast(Tensor, log_q), cast(Tensor, log_k)
        logits = edge_logsumexp(log_q, log_k, edge_index, step, EdgeOrders())
        return softmax_weight(logits, edge_index, q.size(0), edge_weight)
    return _factor_shares((log_q, value_q), (log_k, value_k), edge_index, step, edge_weight)


def _factor_shares(
    queries: Features, keys: Features, edge_index: Tensor, step: int, edge_weight: Tensor | None
) -> Tensor:
    r"""Computes the result of :meth:`adjacency_scores` from features that have factors, at most
    :obj:`step` edges at a time. Queries and keys are the logarithms and the factors of their
    features, both ``[N, H, M]``; :obj:`None` is the logarithm 0."""
    (log_q, value_q), (log_k, value_k) = queries, keys
    (row, col), num_targets = edge_index, value_q.size(0)
    if edge_weight is not None:
        edge_weight = edge_weight[:, None]
        # a factor of each target's weights cancels; the largest is 1, so that none is too small
        largest_weight = scatter(edge_weight.detach(), col, 0, num_targets, 'max')
        edge_weight = edge_weight / largest_weight.masked_fill(largest_weight == 0, 1)[col]
    with torch.no_grad():
        peaks = None if log_k is None else chunked_map(_peaks, step, ((log_q, col), (log_k, row)))
        if peaks is not None and edge_weight is not None:
            peaks = (peaks + edge_weight.log()).clamp(min=neutral(peaks.dtype))
        top = None if peaks is None else scatter(peaks, col, 0, num_targets, 'max')
        largest = scatter(_largest(value_k)[row], col, 0, num_targets, 'max')
    value_q = _scaled(value_q, _largest(value_q)[..., None])
    query_rows = (top, col), (largest, col), (log_q, col), (value_q, col)
    gathered = (*query_rows, (log_k, row), (value_k, row))
    weight = chunked_map(_weights if edge_weight is None else _bounded_weights, step, gathered)
    weight = weight if edge_weight is None else weight * edge_weight
    weight = _scaled(weight, scatter(weight.detach().abs(), col, 0, num_targets, 'max')[col])
    return weight * inverse_of(scatter(weight, col, 0, num_targets, 'sum'))[col]


def _logits(log_q: Tensor | None, log_k: Tensor) -> Tensor:
    return log_k if log_q is None else log_k + log_q


def _peaks(_at: slice, log_q: Tensor | None, log_k: Tensor) -> Tensor:
    return _logits(log_q, log_k).amax(-1)


def _largest(value: Tensor) -> Tensor:
    return value.detach().abs().amax(-1)


def _scaled(x: Tensor, size: Tensor) -> Tensor:
    r"""Divides each row of :obj:`x` by its :obj:`size`, a constant that cancels in the attention. A
    row is 0, with a gradient of 0, if its size is so small that gradients would overflow."""
    limits = torch.finfo(x.dtype)
    return x / size.masked_fill(size < limits.tiny / limits.eps, torch.inf)


def _weights(
    _at: slice,
    top: Tensor | None,
    largest: Tensor,
    log_q: Tensor | None,
    value_q: Tensor,
    log_k: Tensor | None,
    value_k: Tensor,
    bound: float | None = None,
) -> Tensor:
    r"""Computes the unnormalised weights ``[n, H]`` of some edges from the features of their
    queries and keys, all ``[n, H, M]``.

    Features are factors times exponentials of logarithms; :obj:`None` is the logarithm 0. For each
    target, the largest exponential and the largest key factor become 1.

    Args:
        _at (slice): The positions of the edges.
        top (torch.Tensor, optional): The largest logarithm of each target's edges, ``[n, H]``.
        largest (torch.Tensor): The largest key factor of each target's edges, ``[n, H]``.
        log_q (torch.Tensor, optional): The logarithms of query features.
        value_q (torch.Tensor): The factors of query features.
        log_k (torch.Tensor, optional): The logarithms of key features.
        value_k (torch.Tensor): The factors of key features.
        bound (float, optional): The largest exponent that is used.
    """
    product = value_q * _scaled(value_k, largest[..., None])
    if log_k is not None and top is not None:
        power = _logits(log_q, log_k) - top[..., None]
        product = product * (power if bound is None else power.clamp(max=bound)).exp()
    return product.sum(-1)


def _bounded_weights(span: slice, *rows: Any) -> Tensor:
    r"""Computes :meth:`_weights` with bounded exponents. The largest exponential is taken after
    edge weights are multiplied in, so that an edge of weight 0 may exceed it and must stay
    finite."""
    bound = next(largest_power(row.dtype) for row in rows if row is not None)
    # leaves room for a sum over thousands of features
    return _weights(span, *rows, bound=bound - 10)
