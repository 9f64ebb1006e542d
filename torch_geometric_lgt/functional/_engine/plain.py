# B graphs, N nodes, n positions of a graph, H heads, D channels of a value.
r"""Computes the attention of small graphs in one chunk, which autograd records: features are
stored, and the backward pass does not compute them again."""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.chunked import Keys, Queries, guarded
from torch_geometric_lgt.functional._engine.custom_op import first_order
from torch_geometric_lgt.functional._engine.dispatch import is_paired
from torch_geometric_lgt.functional._engine.layout import join
from torch_geometric_lgt.functional._engine.one_chunk import OneChunk
from torch_geometric_lgt.functional._engine.operators import AttendArguments
from torch_geometric_lgt.functional.numerics import inverse_of
from torch_geometric_lgt.functional.segment import Segments

ALL = slice(None)


class Positions(NamedTuple):
    r"""Stores the positions of nodes in an array with as many positions for each graph as the
    largest graph has nodes. All entries are :obj:`None` if each position has one node, in order.

    Attributes:
        node (torch.Tensor, optional): The node at each position, ``[B * n]``. Behind the last node
            of a graph this node is repeated.
        is_node (torch.Tensor, optional): Whether the position has a node for the first
            time, ``[B, 1, n, 1]``.
        of_node (torch.Tensor, optional): The position of each node, ``[N]``.
    """

    node: Tensor | None = None
    is_node: Tensor | None = None
    of_node: Tensor | None = None

    def take(self, x: Tensor | None) -> Any:
        r"""Returns the row of :obj:`x` ``[N, *]`` at each position, ``[B * n, *]``."""
        return x if x is None or self.node is None else x.index_select(0, self.node)


def positions(nodes: Segments, x: Tensor) -> Positions:
    r"""Returns the positions of the nodes with the features :obj:`x` ``[N, F]``; :obj:`nodes` says
    which belongs to which graph."""
    (sizes, order), num_nodes = nodes, x.size(0)
    largest = num_nodes if sizes.numel() == 1 else int(sizes.max())
    if order is None and largest * sizes.numel() == num_nodes:
        return Positions()
    offset = torch.arange(largest, device=sizes.device)
    last = (sizes - 1).clamp(min=0)[:, None]
    node = (sizes.cumsum(0) - sizes)[:, None] + torch.minimum(offset, last)
    node = node.clamp(max=num_nodes - 1).view(-1)
    is_node = offset < sizes[:, None]
    of_node = is_node.view(-1).nonzero().view(-1)
    if order is not None:
        node, of_node = order[node], torch.empty_like(of_node).scatter_(0, order, of_node)
    return Positions(node, is_node[:, None, :, None], of_node)


def attend(arguments: AttendArguments) -> Tensor:
    r"""Computes the attention outputs ``[N_t, H * D]`` of all queries over the keys of their
    graphs, as :meth:`operators.attend` does."""
    x = arguments.queries.x
    with torch.autocast(x.device.type, enabled=False):
        sources = positions(arguments.sources, arguments.keys.x)
        same = arguments.targets is arguments.sources
        targets = sources if same else positions(arguments.targets, x)
        out = _attend_positions(arguments, targets, sources)
        out = out if targets.of_node is None else out.index_select(0, targets.of_node)
    return out.to(x.dtype)


def _attend_positions(arguments: AttendArguments, targets: Positions, sources: Positions) -> Tensor:
    r"""Computes the outputs ``[B * n, H * D]`` at all positions of the targets."""
    queries, keys, values = arguments.queries, arguments.keys, arguments.values
    if targets.node is not None:
        queries = replace(
            queries,
            x=targets.take(queries.x),
            mask=targets.take(queries.mask),
            self_value=targets.take(queries.self_value),
        )
    if sources.node is not None:
        shared = keys.x is arguments.queries.x and targets is sources
        x = queries.x if shared else sources.take(keys.x)
        values = replace(values, x=x if values.x is keys.x else sources.take(values.x))
        keys = replace(keys, x=x, mask=sources.take(keys.mask))
    graphs = arguments.sources.sizes.numel()
    chunk = OneChunk(Queries(queries), Keys(keys, values), ALL, ALL, graphs)
    query_feature, key_feature = chunk.query_feature, chunk.key_feature
    if arguments.factor is not None:
        query_feature = query_feature * arguments.factor[:, :, None]
    if sources.is_node is not None:
        key_feature = key_feature * sources.is_node.to(key_feature.dtype)
    num_nodes = query_feature.size(2), key_feature.size(2)
    by_pairs = is_paired(keys, chunk.v.size(-1), max(num_nodes), *num_nodes)
    sums = _pair_sums if by_pairs else _state_sums
    numerator, denominator = sums(query_feature, key_feature, chunk.v, chunk.masks)
    if chunk.self_value is not None:
        numerator = numerator + chunk.self_value
    num_keys = key_feature[..., :1].sum(2, keepdim=True) if keys.map.has_constant else 0.0
    inverse = inverse_of(guarded(denominator, queries, num_keys))
    return join(
        FirstOrderProduct.apply(numerator, inverse)
        if numerator.requires_grad
        else numerator * inverse
    )


def _pair_sums(
    query_feature: Tensor, key_feature: Tensor, v: Tensor, masks: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    r"""Returns the numerators ``[B, H, n, D]`` and denominators ``[B, H, n, 1]`` of the attention
    from the weights of all pairs of nodes."""
    weight = query_feature @ key_feature.transpose(2, 3)
    if masks is not None:
        weight = weight * (masks[0] @ masks[1].transpose(2, 3))
    return weight @ v, weight.sum(-1, keepdim=True)


def _state_sums(
    query_feature: Tensor, key_feature: Tensor, v: Tensor, masks: tuple[Tensor, Tensor] | None
) -> tuple[Tensor, Tensor]:
    r"""Returns the results of :meth:`_pair_sums` from sums over the keys."""
    transposed = key_feature.transpose(2, 3)
    if masks is None:
        # a sum of terms that cancel has smaller rounding errors than a product
        sums, total = transposed @ v, transposed.sum(-1, keepdim=True)
        return query_feature @ sums, query_feature @ total
    query_mask, key_mask = masks
    columns = torch.cat([v, v.new_ones(()).expand(*v.shape[:-1], 1)], -1)
    columns = (columns[..., None, :] * key_mask[..., None]).flatten(-2)
    product = (query_feature @ (transposed @ columns)).unflatten(-1, (key_mask.size(-1), -1))
    product = (product * query_mask[..., None]).sum(-2)
    return product[..., :-1], product[..., -1:]


class FirstOrderProduct(torch.autograd.Function):
    r"""Multiplies the rows of numerators ``[B, H, n, D]`` by numbers ``[B, H, n, 1]``.
    Differentiating its gradient raises a RuntimeError, so that a small graph has the derivatives
    that a large one has."""

    @staticmethod
    def forward(ctx: Any, numerator: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(numerator, inverse)
        return numerator * inverse

    @staticmethod
    @first_order('attend')
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor, Tensor | None]:
        numerator, inverse = saved
        needs_inverse = ctx.needs_input_grad[1]
        grad_inverse = (grad * numerator).sum(-1, keepdim=True) if needs_inverse else None
        return grad * inverse, grad_inverse
