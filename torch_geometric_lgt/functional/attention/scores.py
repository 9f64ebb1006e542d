# N nodes, E pairs, H heads, M features, R rank of the mask.
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor
from torch_geometric.typing import OptTensor

from torch_geometric_lgt.functional._engine.affine import Affine, HeadProjection
from torch_geometric_lgt.functional._engine.chunked_map import chunked_map
from torch_geometric_lgt.functional._engine.chunked_queries import Queries
from torch_geometric_lgt.functional._engine.features import scaled
from torch_geometric_lgt.functional._engine.layout import rows, split
from torch_geometric_lgt.functional.attention.state import AttentionState
from torch_geometric_lgt.functional.inputs import KernelInput, rounding_share
from torch_geometric_lgt.functional.neighbors.edge_logsumexp import edge_logsumexp
from torch_geometric_lgt.functional.neighbors.edge_rows import EdgeOrders
from torch_geometric_lgt.functional.numerics import without_autocast, without_cancellation
from torch_geometric_lgt.functional.segment import Segments, node_to_graph


class ScoredPairs:
    r"""Evaluates the queries and keys of pairs of nodes, each node once, to score the pairs.

    Args:
        queries (KernelInput): How the queries of all targets are computed.
        keys (KernelInput): How the keys of all sources are computed.
        pairs (torch.Tensor): Node ids ``[2, E]``, sources and targets.
        sources (Segments): Which source belongs to which graph.
        targets (Segments): Which target belongs to which graph.
    """

    def __init__(
        self,
        queries: KernelInput,
        keys: KernelInput,
        pairs: Tensor,
        sources: Segments,
        targets: Segments,
    ) -> None:
        self.source_ids, self.target_ids = pairs[0], pairs[1]
        source, self.key = _distinct(self.source_ids, keys.x)
        target, self.query = _distinct(self.target_ids, queries.x)
        self.has_all_nodes = self.key is self.source_ids and self.query is self.target_ids
        self.q, self.k = _evaluated(queries, target), _evaluated(keys, source)
        self.source_graph = node_to_graph(sources, keys.x.size(0))[source]
        self.target_graph = node_to_graph(targets, queries.x.size(0))[target]

    def map(self, score: Callable[..., Tensor], *graph_tensors: Tensor | None) -> Tensor:
        r"""Applies :obj:`score` to some pairs at a time and returns ``[E, H]``.

        The function gets the queries and the keys of the pairs, then for each tensor of
        :obj:`graph_tensors` ``[B, ..]`` the rows of the pairs' target graphs. Its last arguments
        are two tensors of bools ``[E, 1]``: whether both nodes are in the same graph, and whether
        they are the same node.
        """

        def score_rows(
            span: slice,
            q: Tensor,
            q_mask: OptTensor,
            k: Tensor,
            k_mask: OptTensor,
            *tensors: OptTensor,
        ) -> Tensor:
            *graph_rows, projection, q_heads, k_heads, same_graph, same_node = tensors
            queries = replace(
                self.q, x=q, mask=q_mask, projection=projection, head_projection=q_heads
            )
            keys = replace(self.k, x=k, mask=k_mask, projection=projection, head_projection=k_heads)
            same = cast(Tensor, same_graph)[span], cast(Tensor, same_node)[span]
            return score(queries, keys, *graph_rows, *same)

        graph = self.target_graph[self.query]
        gathered = [
            (self.q.x, self.query),
            (self.q.mask, self.query),
            (self.k.x, self.key),
            (self.k.mask, self.key),
            *((tensor, graph) for tensor in graph_tensors),
        ]
        same_graph = (self.source_graph[self.key] == graph)[:, None]
        same_node = (self.source_ids == self.target_ids)[:, None]
        projections = (self.q.projection, self.q.head_projection, self.k.head_projection)
        whole = (*projections, same_graph, same_node)
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
    r"""Computes the attention weight ``[E, H]`` of each pair: the share of the source's value in
    the output of the target.

    Args:
        queries (KernelInput): How the queries of all targets are computed.
        keys (KernelInput): How the keys of all sources are computed.
        state (AttentionState): The sums over all keys of each graph.
        pairs (torch.Tensor): Node ids ``[2, E]``, sources and targets. Pairs across graphs have the
            weight 0.
        sources (Segments): Which source belongs to which graph.
        targets (Segments): Which target belongs to which graph.
        factor (torch.Tensor, optional): ``[B, H, M]``, multiplies the features of the queries.
    """
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
        phi_q = Queries(q).features(slice(None), maximum)[-1][:, :, 0]
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
    orders: EdgeOrders,
) -> Tensor:
    r"""Computes the logarithm ``[E, H]`` of the weights of :meth:`attention_scores`, for softmax
    features without a mask and pairs within graphs.

    Arguments are as in :meth:`attention_scores`, with the pairs sorted in :obj:`orders`. The
    logarithm is finite even if the weight would vanish: log-features of a query and a key add up.
    """
    scored = ScoredPairs(queries, keys, pairs, sources, targets)
    q, k = _exponents(scored.q), _exponents(scored.k)

    def log_denominator(
        _span: slice, exponents: Tensor, maximum: Tensor, denominator: Tensor
    ) -> Tensor:
        return (exponents + maximum + denominator.squeeze(3).log()).logsumexp(-1)

    step, graph = rows(scored.q), scored.target_graph
    every_row = torch.arange(q.size(0), device=pairs.device)
    sums = state.maximum, state.denominator  # of one graph they need no copy for each row
    of_graphs = [] if sums[0].size(0) == 1 else [(part, graph) for part in sums]
    whole = () if of_graphs else sums
    total = chunked_map(log_denominator, step, [(q, every_row), *of_graphs], whole)
    if not scored.has_all_nodes:
        pairs, orders = torch.stack([scored.key, scored.query]), EdgeOrders()
    log_weight = edge_logsumexp(q, k, pairs, step, orders)
    squares = scored.k.x.unflatten(1, (keys.heads, -1)).square().sum(2) / 2
    log_ratio = log_weight - total.index_select(0, scored.query)
    return log_ratio - squares.index_select(0, scored.key)


def _exponents(queries: KernelInput) -> Tensor:
    r"""Computes the logarithms ``[n, H, M]`` of the features of queries, whose :obj:`x` are the
    queries themselves ``[n, H * C]``."""
    q = queries.x.unflatten(1, (queries.heads, -1))
    with without_autocast(q.device.type):
        return cast(Tensor, queries.map.log_features(q, queries.projection, queries.power, None)[0])


def _key_features(keys: KernelInput) -> tuple[Tensor | None, Tensor | None]:
    r"""Computes the results of :meth:`Map.log_features` for evaluated keys ``[E, H * C]``:
    logarithms and factors ``[E, H, M]``, or :obj:`None`."""
    k = split(keys.x, 1, keys.heads)
    squared = k.square().sum(-1, keepdim=True)
    map_input = HeadProjection(keys.head_projection)(k)
    features = keys.map.log_features(map_input, keys.projection, keys.power, squared)
    log, value = (None if part is None else part[0].transpose(0, 1) for part in features)
    return log, value


def _distinct(nodes: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    r"""Returns the distinct ids in :obj:`nodes` ``[E]`` and the position ``[E]`` of each node among
    them. It returns all node ids of :obj:`x` and :obj:`nodes` itself if there are no more of them
    than of :obj:`nodes`, and in compiled code, which must know their number."""
    if torch.compiler.is_compiling() or x.size(0) <= nodes.numel():
        return torch.arange(x.size(0), device=x.device), nodes
    return nodes.unique(return_inverse=True)


def _evaluated(inputs: KernelInput, nodes: Tensor) -> KernelInput:
    r"""Returns the queries or keys of the node ids :obj:`nodes` ``[n]`` with an evaluated linear
    part (Linear layer): :obj:`x` of the result is ``[n, H * C]``."""
    inputs = inputs.aligned()
    with without_autocast(inputs.x.device.type):
        x = Affine(inputs.x, (inputs.weight, inputs.bias, inputs.data_normalizer))(nodes)[1]
    mask = None if inputs.mask is None else inputs.mask[nodes]
    return replace(
        inputs, x=x, weight=None, bias=None, data_normalizer=1.0, mask=mask, self_value=None
    )
