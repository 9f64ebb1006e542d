r"""Selects the nodes and edges of targets that attend, with their keys and queries."""

# N nodes (N_s source, N_t target), n of a subgraph, E edges, F input width, C channels.
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_lgt.functional.inputs import LinearInput
from torch_geometric_lgt.functional.neighbors.edge_rows import (
    EdgeOrders,
    Rows,
    rows_of,
    stored_rows,
)


class Subgraph(NamedTuple):
    r"""Stores the ids of the targets that attend, the ids of their sources, and the edges between
    them. Edges ``[2, E]`` are positions among these sources and targets, and :obj:`edge_ids`
    ``[E]`` are their positions among all edges; :obj:`None` in place of ids means all."""

    sources: Tensor | None
    targets: Tensor | None
    edges: Tensor
    edge_ids: Tensor | None

    @classmethod
    def into(cls, edge_index: Tensor, mask: Tensor | None, num_sources: int) -> 'Subgraph':
        r"""Builds the subgraph of the edges into the targets that :obj:`mask` marks, bools
        ``[N_t]``; :obj:`None` means all targets."""
        if mask is None:
            return cls(None, None, edge_index, None)
        edge_ids = mask[edge_index[1]].nonzero().flatten()
        edges = edge_index[:, edge_ids]
        used = mask.new_zeros(num_sources)
        used[edges[0]] = True
        source = (used.cumsum(0) - 1)[edges[0]]
        target = (mask.cumsum(0) - 1)[edges[1]]
        edges = torch.stack([source, target])
        return cls(used.nonzero().flatten(), mask.nonzero().flatten(), edges, edge_ids)

    def select(self, queries: LinearInput, keys: LinearInput) -> tuple[LinearInput, LinearInput]:
        r"""Selects the queries of the targets and the keys of the sources, both as linear parts."""
        return _select(queries, self.targets), _select(keys, self.sources)

    def rows(self, orders: EdgeOrders, num_targets: int, by_source: bool = False) -> Rows:
        r"""Returns the edges of the subgraph, sorted by target or by source, as :class:`Rows`.
        If they are all edges, their order is read from :obj:`orders`, which also tell whether
        some of the edges are sorted; :obj:`num_targets` is the number of nodes that they are
        sorted by."""
        if self.edge_ids is None:
            return stored_rows(orders, self.edges, num_targets, by_source)
        pointer, _, order = orders[3:] if by_source else orders[:3]
        edges = self.edges.flip(0) if by_source else self.edges
        return rows_of(edges, num_targets, is_sorted=pointer is not None and order is None)


def _select(inputs: LinearInput, nodes: Tensor | None) -> LinearInput:
    return inputs if nodes is None else replace(inputs, x=select_rows(inputs.x, nodes))


def select_rows(x: Tensor, nodes: Tensor | None) -> Tensor:
    r"""Returns the rows :obj:`nodes` of :obj:`x`, all rows if :obj:`nodes` is :obj:`None`."""
    return x if nodes is None else x.index_select(0, nodes)


def expand_rows(x: Tensor, nodes: Tensor | None, like: Tensor) -> Tensor:
    r"""Returns a tensor with the number of rows and the dtype of :obj:`like`: :obj:`x` in the rows
    :obj:`nodes`, 0 in others. This is the transpose of :meth:`select_rows`."""
    x = x.to(like.dtype)
    if nodes is None:
        return x
    return x.new_zeros(like.size(0), *x.shape[1:]).index_copy_(0, nodes, x)


def linear_grads(
    grad: Tensor, inputs: LinearInput, nodes: Tensor | None, x: Tensor
) -> dict[str, Tensor | None]:
    r"""Returns the gradients of a linear part by name: of the input :obj:`x` ``[N, F]`` of all
    nodes, of the weight and of the bias.

    Args:
        grad (torch.Tensor): The gradient of the output ``[n, C]`` of :obj:`inputs`.
        inputs (LinearInput): The linear part at the rows :obj:`nodes` of :obj:`x`.
        nodes (torch.Tensor, optional): The ids of the nodes ``[n]``; :obj:`None` means all.
        x (torch.Tensor): The input of all nodes, for its size and dtype.
    """
    weight, bias = inputs.weight, inputs.bias
    if weight is None:
        return {'x': expand_rows(grad, nodes, x)}
    return {
        'x': expand_rows(grad @ weight.to(grad.dtype), nodes, x),
        'weight': (grad.t() @ inputs.x.to(grad.dtype)).to(weight.dtype),
        'bias': None if bias is None else grad.sum(0).to(bias.dtype),
    }


def linear_flops(inputs: LinearInput, nodes: Tensor | None) -> int:
    r"""Returns the flops of the product of :obj:`inputs` at the rows :obj:`nodes`, at all rows if
    :obj:`nodes` is :obj:`None`."""
    rows = inputs.x if nodes is None else nodes
    return 0 if inputs.weight is None else 2 * rows.size(0) * inputs.weight.numel()
