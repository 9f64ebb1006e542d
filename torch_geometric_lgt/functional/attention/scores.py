# N nodes, E pairs, H heads, M features, R rank of the mask.
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor
from torch_geometric.typing import OptTensor

from torch_geometric_lgt.functional._engine.affine import Affine
from torch_geometric_lgt.functional._engine.chunked import Queries, scaled
from torch_geometric_lgt.functional._engine.chunked_map import chunked_map
from torch_geometric_lgt.functional._engine.layout import rows, split
from torch_geometric_lgt.functional.attention.state import AttentionState
from torch_geometric_lgt.functional.inputs import KernelInput, rounding_share
from torch_geometric_lgt.functional.numerics import without_cancellation
from torch_geometric_lgt.functional.segment import Segments, node_to_graph


class Pairs:
    r"""Pairs (source, target) of nodes whose linear parts are evaluated once for each node."""

    def __init__(
        self,
        queries: KernelInput,
        keys: KernelInput,
        pairs: Tensor,
        sources: Segments,
        targets: Segments,
    ) -> None:
        (source, self.key), (target, self.query) = (
            _distinct(*part) for part in zip(pairs, (keys.x, queries.x), strict=True)
        )
        self.q, self.k = (
            _evaluated(side, nodes) for side, nodes in ((queries, target), (keys, source))
        )
        self.target_graph = node_to_graph(targets, queries.x.size(0))[target]
        self.graph = self.target_graph[self.query]
        self.same_graph = (node_to_graph(sources, keys.x.size(0))[pairs[0]] == self.graph)[:, None]
        self.same_node = (pairs[0] == pairs[1])[:, None]

    def map(self, score: Callable[..., Tensor], *of_graphs: Tensor | None) -> Tensor:
        r"""``[E, H]``: what :obj:`score` makes of queries, keys, what their graphs have in
        :obj:`of_graphs`, and whether a pair is of one graph and of one node, ``[E, 1]``, chunk by
        chunk."""
        sides = [
            (part, nodes)
            for side, nodes in ((self.q, self.query), (self.k, self.key))
            for part in (side.x, side.mask)
        ]

        def of_rows(
            at: slice, q: Tensor, q_mask: OptTensor, k: Tensor, k_mask: OptTensor, *parts: OptTensor
        ) -> Tensor:
            *of_graphs, projection, same_graph, same_node = parts
            sides = (self.q, q, q_mask), (self.k, k, k_mask)
            queries, keys = (
                replace(side, x=x, mask=mask, projection=projection) for side, x, mask in sides
            )
            return score(
                queries, keys, *of_graphs, cast(Tensor, same_graph)[at], cast(Tensor, same_node)[at]
            )

        whole = (self.q.projection, self.same_graph, self.same_node)
        return chunked_map(
            of_rows, rows(self.q), [*sides, *((part, self.graph) for part in of_graphs)], whole
        )


def attention_scores(
    queries: KernelInput,
    keys: KernelInput,
    state: AttentionState,
    pairs: Tensor,
    sources: Segments,
    targets: Segments,
    factor: Tensor | None = None,
) -> Tensor:
    r"""The weight ``[E, H]`` that target ``pairs[1]`` puts on source ``pairs[0]``, as applied: 0
    across graphs."""
    own = 0 if queries.self_value is None else 1
    itself = own if keys.x is queries.x else 0
    of = Pairs(queries, keys, pairs, sources, targets)

    def score(
        q: KernelInput,
        k: KernelInput,
        maximum: Tensor,
        denominator: Tensor,
        factor: Tensor | None,
        same_graph: Tensor,
        same_node: Tensor,
    ) -> Tensor:
        phi_q = Queries(q).features(slice(None), maximum)[2][:, :, 0]
        phi_q = phi_q if factor is None else phi_q * factor
        phi_k = scaled(
            *_key_features(k), maximum.masked_fill(~same_graph[..., None], torch.inf)
        )  # it bounds its own graph's keys
        a, b = (
            phi_q.new_ones(1, 1, 1) if side.mask is None else side.mask[:, None, :]
            for side in (q, k)
        )
        total = (torch.einsum('ehm,ehmr->ehr', phi_q, denominator) * a).sum(-1) + own
        if own or q.map.has_constant:
            total = without_cancellation(
                total, (own or denominator[:, :, 0, 0]) * rounding_share(q)
            )
        weight = (phi_q * phi_k).sum(-1) * (a * b).sum(-1) + itself * same_node
        return (
            weight
            / total.masked_fill(total.abs() < torch.finfo(total.dtype).tiny, torch.inf)
            * same_graph
        )

    return of.map(score, state.maximum, state.denominator, factor)


def log_attention_scores(
    queries: KernelInput,
    keys: KernelInput,
    state: AttentionState,
    pairs: Tensor,
    sources: Segments,
    targets: Segments,
) -> Tensor:
    r"""The logarithm of the weights ``[E, H]`` of pairs within a graph, for the softmax features
    without a mask: finite where a weight itself would vanish. Exponents add up, so that the
    features of a pair are those of the sum of its query and its key."""
    of = Pairs(queries, keys, pairs, sources, targets)

    def normaliser(
        _at: slice, x: Tensor, maximum: Tensor, denominator: Tensor, projection: Tensor
    ) -> Tensor:
        return (
            _exponents(replace(of.q, x=x, projection=projection))
            + maximum
            + denominator.squeeze(3).log()
        ).logsumexp(-1)

    def score(q: KernelInput, k: KernelInput, *_: Tensor) -> Tensor:
        return _exponents(replace(q, x=q.x + k.x)).logsumexp(-1)

    own = torch.arange(of.q.x.size(0), device=pairs.device)
    parts = [(of.q.x, own), (state.maximum, of.target_graph), (state.denominator, of.target_graph)]
    total = chunked_map(normaliser, rows(of.q), parts, (of.q.projection,))
    squares = of.k.x.unflatten(1, (of.k.heads, -1)).square().sum(2)
    return of.map(score) - total.index_select(0, of.query) - squares.index_select(0, of.key) / 2


def _exponents(side: KernelInput) -> Tensor:
    r"""Those of the features of queries, ``[E, H, M]``."""
    log = side.map.log_features(split(side.x, 1, side.heads), side.projection, side.power, None)[0]
    return cast(Tensor, log)[0].transpose(0, 1)


def _key_features(k: KernelInput) -> tuple[Tensor | None, Tensor | None]:
    r"""The features of keys as :meth:`log_features` gives them, ``[E, H, M]``."""
    key = split(k.x, 1, k.heads)
    found = k.map.log_features(key, k.projection, k.power, key.square().sum(-1, keepdim=True))
    log, value = (None if part is None else part[0].transpose(0, 1) for part in found)
    return log, value


def _distinct(nodes: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    r"""The nodes there are, once each, and the place of each; compiled, when their number must be
    known, all nodes."""
    if torch.compiler.is_compiling():
        return torch.arange(x.size(0), device=x.device), nodes
    return nodes.unique(return_inverse=True)


def _evaluated(side: KernelInput, nodes: Tensor) -> KernelInput:
    r"""The side of some nodes, its linear part evaluated."""
    side = side.aligned()
    with torch.autocast(side.x.device.type, enabled=False):
        x = Affine(side.x, (side.weight, side.bias, side.scale))(nodes)[1]
    return replace(
        side,
        x=x,
        weight=None,
        bias=None,
        scale=1.0,
        mask=None if side.mask is None else side.mask[nodes],
        self_value=None,
    )
