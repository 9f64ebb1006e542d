# N nodes, E pairs, H heads, M features, R rank of the mask.
from collections.abc import Callable
from functools import partial
from typing import cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torch_geometric_lgt.functional._loops import Queries, scaled
from torch_geometric_lgt.functional._sides import Affine, Side, rows, split
from torch_geometric_lgt.functional.attention_state import AttentionState
from torch_geometric_lgt.functional.feature_maps import log_features
from torch_geometric_lgt.functional.segment import Segments, node_to_graph


class Pairs:
    r"""Pairs (source, target) of nodes whose linear parts are evaluated once for each node."""

    def __init__(self, queries: Side, keys: Side, pairs: Tensor, sources: Segments, targets: Segments) -> None:
        (source, self.key), (target, self.query) = (nodes.unique(return_inverse=True) for nodes in pairs)
        self.q, self.k = (_evaluated(side, nodes) for side, nodes in ((queries, target), (keys, source)))
        self.source, self.target = source, target
        self.graph, self.graph_src = node_to_graph(*targets)[target], node_to_graph(*sources)[source]

    def map(self, score: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
        r"""``[E, H]``: what :obj:`score` makes of queries and keys, chunk by chunk; what it computes on the way is not kept."""
        run = partial(checkpoint, score, use_reentrant=False, preserve_rng_state=False) if torch.is_grad_enabled() else score
        parts = [run(i, j) for i, j in zip(self.query.split(rows(self.q)), self.key.split(rows(self.q)), strict=True)]
        return torch.cat(parts) if self.query.numel() > 0 else self.q.x.new_zeros((0, self.q.heads))

    def keys(self, j: Tensor) -> tuple[Tensor | None, Tensor | None]:
        r"""The features of keys as :meth:`log_features` gives them, ``[1, H, E, M]``."""
        key = split(self.k.x[j], 1, self.k.heads)
        return log_features(self.k.kind, key, self.k.projection, self.k.power, key.square().sum(-1, keepdim=True))


def attention_scores(
    queries: Side,
    keys: Side,
    state: AttentionState,
    pairs: Tensor,
    sources: Segments,
    targets: Segments,
    factor: Tensor | None = None,
) -> Tensor:
    r"""The weight ``[E, H]`` that target ``pairs[1]`` puts on source ``pairs[0]``, as applied: 0 across graphs."""
    own = 0 if queries.own is None else 1
    itself = own if keys.x is queries.x else 0
    of = Pairs(queries, keys, pairs, sources, targets)

    def score(i: Tensor, j: Tensor) -> Tensor:
        graph = of.graph[i]
        maximum = state.maximum[graph]
        phi_q = Queries(of.q).features(i, maximum)[2][:, :, 0]
        phi_q = phi_q if factor is None else phi_q * factor[graph]
        log, value = (None if part is None else part[0].transpose(0, 1) for part in of.keys(j))
        phi_k = scaled(log, value, maximum)
        a, b = (phi_q.new_ones(1, 1, 1) if side.mask is None else side.mask[at][:, None, :] for side, at in ((of.q, i), (of.k, j)))
        total = (torch.einsum('ehm,ehmr->ehr', phi_q, state.denominator[graph]) * a).sum(-1) + own
        weight = (phi_q * phi_k).sum(-1) * (a * b).sum(-1) + itself * (of.target[i] == of.source[j])[:, None]
        share = torch.where(total == 0, torch.zeros_like(total), weight / torch.where(total == 0, torch.ones_like(total), total))
        return share * (graph == of.graph_src[j])[:, None]

    return of.map(score)


def log_attention_scores(queries: Side, keys: Side, state: AttentionState, pairs: Tensor, sources: Segments, targets: Segments) -> Tensor:
    r"""The logarithm of the weights ``[E, H]`` of pairs within a graph, for a softmax-type map without a mask: finite where a weight
    itself would vanish."""
    of = Pairs(queries, keys, pairs, sources, targets)

    def score(i: Tensor, j: Tensor) -> Tensor:
        query = split(of.q.x[i], 1, of.q.heads)
        logs = log_features(of.q.kind, query, of.q.projection, of.q.power, None)[0], of.keys(j)[0]
        log_q, log_k = (cast(Tensor, log)[0].transpose(0, 1) for log in logs)
        graph = of.graph[i]
        total = log_q + state.maximum[graph] + state.denominator[graph].squeeze(3).log()
        return (log_q + log_k).logsumexp(-1) - total.logsumexp(-1)

    return of.map(score)


def _evaluated(side: Side, nodes: Tensor) -> Side:
    r"""The side of some nodes, its linear part evaluated."""
    x = Affine(side.x, (side.weight, side.bias, side.scale))(nodes)[1]
    return side._replace(x=x, weight=None, bias=None, scale=1.0, mask=None if side.mask is None else side.mask[nodes], own=None)
