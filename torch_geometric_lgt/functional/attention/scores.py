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


class ScoredPairs:
    r"""Evaluates queries and keys of pairs (source, target), once for each node."""

    def __init__(
        self,
        queries: KernelInput,
        keys: KernelInput,
        pairs: Tensor,
        sources: Segments,
        targets: Segments,
    ) -> None:
        source, self.key = _distinct(pairs[0], keys.x)
        target, self.query = _distinct(pairs[1], queries.x)
        self.q, self.k = _evaluated(queries, target), _evaluated(keys, source)
        self.target_graph = node_to_graph(targets, queries.x.size(0))[target]
        self.graph = self.target_graph[self.query]
        self.same_graph = (node_to_graph(sources, keys.x.size(0))[pairs[0]] == self.graph)[:, None]
        self.same_node = (pairs[0] == pairs[1])[:, None]

    def map(self, score: Callable[..., Tensor], *graph_tensors: Tensor | None) -> Tensor:
        r"""Applies :obj:`score` to the pairs chunk by chunk and returns ``[E, H]``. The function gets
        queries, keys, the rows of :obj:`graph_tensors` of the graphs of the queries, and whether
        both nodes are in one graph and are the same, ``[E, 1]``."""

        def score_rows(
            span: slice,
            q: Tensor,
            q_mask: OptTensor,
            k: Tensor,
            k_mask: OptTensor,
            *tensors: OptTensor,
        ) -> Tensor:
            *graph_rows, projection, same_graph, same_node = tensors
            queries = replace(self.q, x=q, mask=q_mask, projection=projection)
            keys = replace(self.k, x=k, mask=k_mask, projection=projection)
            same = cast(Tensor, same_graph)[span], cast(Tensor, same_node)[span]
            return score(queries, keys, *graph_rows, *same)

        gathered = [
            (self.q.x, self.query),
            (self.q.mask, self.query),
            (self.k.x, self.key),
            (self.k.mask, self.key),
            *((tensor, self.graph) for tensor in graph_tensors),
        ]
        whole = (self.q.projection, self.same_graph, self.same_node)
        return chunked_map(score_rows, rows(self.q), gathered, whole)


def attention_scores(
    queries: KernelInput,
    keys: KernelInput,
    state: AttentionState,
    pairs: Tensor,
    sources: Segments,
    targets: Segments,
    factor: Tensor | None = None,
) -> Tensor:
    r"""Computes the weight ``[E, H]`` of source ``pairs[0]`` in the output of target ``pairs[1]``, 0
    across graphs."""
    self_weight = 0 if queries.self_value is None else 1
    same_node_weight = self_weight if keys.x is queries.x else 0
    scored = ScoredPairs(queries, keys, pairs, sources, targets)

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
        # a maximum bounds the keys of one graph
        maximum = maximum.masked_fill(~same_graph[..., None], torch.inf)
        phi_k = scaled(*_key_features(k), maximum)
        a, b = (
            phi_q.new_ones(1, 1, 1) if inputs.mask is None else inputs.mask[:, None, :]
            for inputs in (q, k)
        )
        total = (torch.einsum('ehm,ehmr->ehr', phi_q, denominator) * a).sum(-1) + self_weight
        if self_weight or q.map.has_constant:
            constant = self_weight or denominator[:, :, 0, 0]
            total = without_cancellation(total, constant * rounding_share(q))
        is_zero = total.abs() < torch.finfo(total.dtype).tiny
        weight = (phi_q * phi_k).sum(-1) * (a * b).sum(-1) + same_node_weight * same_node
        return weight / total.masked_fill(is_zero, torch.inf) * same_graph

    return scored.map(score, state.maximum, state.denominator, factor)


def log_attention_scores(
    queries: KernelInput,
    keys: KernelInput,
    state: AttentionState,
    pairs: Tensor,
    sources: Segments,
    targets: Segments,
) -> Tensor:
    r"""Computes the logarithm of the weights ``[E, H]`` of pairs within a graph, for softmax features
    without a mask. It is finite where a weight itself would vanish. Exponents add up, so that the
    features of a pair are those of the sum of its query and its key."""
    scored = ScoredPairs(queries, keys, pairs, sources, targets)

    def log_denominator(
        _span: slice, x: Tensor, maximum: Tensor, denominator: Tensor, projection: Tensor
    ) -> Tensor:
        exponents = _exponents(replace(scored.q, x=x, projection=projection))
        return (exponents + maximum + denominator.squeeze(3).log()).logsumexp(-1)

    def score(q: KernelInput, k: KernelInput, *_: Tensor) -> Tensor:
        return _exponents(replace(q, x=q.x + k.x)).logsumexp(-1)

    q, k, graph = scored.q, scored.k, scored.target_graph
    every_row = torch.arange(q.x.size(0), device=pairs.device)
    gathered = [(q.x, every_row), (state.maximum, graph), (state.denominator, graph)]
    total = chunked_map(log_denominator, rows(q), gathered, (q.projection,))
    squares = k.x.unflatten(1, (k.heads, -1)).square().sum(2)
    log_ratio = scored.map(score) - total.index_select(0, scored.query)
    return log_ratio - squares.index_select(0, scored.key) / 2


def _exponents(queries: KernelInput) -> Tensor:
    r"""Computes the logarithms of the features of queries, ``[E, H, M]``."""
    q = split(queries.x, 1, queries.heads)
    log, _ = queries.map.log_features(q, queries.projection, queries.power, None)
    return cast(Tensor, log)[0].transpose(0, 1)


def _key_features(keys: KernelInput) -> tuple[Tensor | None, Tensor | None]:
    r"""Computes the features of keys by :meth:`Map.log_features`, ``[E, H, M]``."""
    k = split(keys.x, 1, keys.heads)
    squared = k.square().sum(-1, keepdim=True)
    features = keys.map.log_features(k, keys.projection, keys.power, squared)
    log, value = (None if part is None else part[0].transpose(0, 1) for part in features)
    return log, value


def _distinct(nodes: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    r"""Returns the distinct nodes and the position of each node among them. Compiled code must know
    their number and takes all nodes of :obj:`x`."""
    if torch.compiler.is_compiling():
        return torch.arange(x.size(0), device=x.device), nodes
    return nodes.unique(return_inverse=True)


def _evaluated(inputs: KernelInput, nodes: Tensor) -> KernelInput:
    r"""Returns the queries or keys of some nodes, with an evaluated linear part."""
    inputs = inputs.aligned()
    with torch.autocast(inputs.x.device.type, enabled=False):
        x = Affine(inputs.x, (inputs.weight, inputs.bias, inputs.scale))(nodes)[1]
    mask = None if inputs.mask is None else inputs.mask[nodes]
    return replace(inputs, x=x, weight=None, bias=None, scale=1.0, mask=mask, self_value=None)
