r"""Selects the nodes and edges of targets that attend, and projects their features."""

# N nodes (N_s source, N_t target), E edges, F input width.
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from torch_geometric_lgt.functional.neighbors.edge_rows import EdgeOrders, Rows, stored_rows
from torch_geometric_lgt.functional.numerics import compute_dtype, convert


class Subgraph(NamedTuple):
    r"""Stores the ids of the targets that attend, the ids of their sources, and the edges between
    them. Edges ``[2, E]`` are positions among these sources and targets; :obj:`None` in place of
    ids means all nodes."""

    sources: Tensor | None
    targets: Tensor | None
    edges: Tensor

    @classmethod
    def into(cls, edge_index: Tensor, mask: Tensor | None, num_sources: int) -> 'Subgraph':
        r"""Builds the subgraph of the edges into the targets that :obj:`mask` marks, bools
        ``[N_t]``; :obj:`None` means all targets."""
        if mask is None:
            return cls(None, None, edge_index)
        edges = edge_index[:, mask[edge_index[1]]]
        used = mask.new_zeros(num_sources)
        used[edges[0]] = True
        source = (used.cumsum(0) - 1)[edges[0]]
        target = (mask.cumsum(0) - 1)[edges[1]]
        edges = torch.stack([source, target])
        return cls(used.nonzero().flatten(), mask.nonzero().flatten(), edges)

    def rows(self, orders: EdgeOrders, num_targets: int, by_source: bool = False) -> Rows:
        r"""Returns the edges of the subgraph, sorted by target or by source, as :class:`Rows`. If
        they are all edges, their order is read from :obj:`orders`; :obj:`num_targets` is the number
        of nodes that they are sorted by."""
        orders = orders if self.targets is None else EdgeOrders()
        return stored_rows(orders, self.edges, num_targets, by_source)


def select_rows(x: Tensor, nodes: Tensor | None) -> Tensor:
    r"""Returns the rows :obj:`nodes` of :obj:`x`, all rows if :obj:`nodes` is :obj:`None`."""
    return x if nodes is None else x[nodes]


def expand_rows(x: Tensor, nodes: Tensor | None, like: Tensor) -> Tensor:
    r"""Returns a tensor with the number of rows and the dtype of :obj:`like`: :obj:`x` in the rows
    :obj:`nodes`, 0 in others. This is the transpose of :meth:`select_rows`."""
    x = x.to(like.dtype)
    return x if nodes is None else x.new_zeros(like.size(0), x.size(1)).index_copy_(0, nodes, x)


def project(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    r"""Applies a Linear layer of :obj:`weight` and :obj:`bias` to :obj:`x` in at least single
    precision; without a weight returns :obj:`x`."""
    x = x.to(compute_dtype(x.dtype))
    return x if weight is None else linear(x, weight.to(x.dtype), convert(bias, x.dtype))


def projected(arguments: Any, part: Subgraph) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Computes the keys and queries of the nodes of a subgraph from the :obj:`arguments` of an
    operator, whose fields are ``x_src``, ``x_dst`` and the weights and biases of both. Returns the
    inputs of keys and queries, then the keys and the queries."""
    key_x = select_rows(arguments.x_src, part.sources)
    query_x = select_rows(arguments.x_dst, part.targets)
    k = project(key_x, arguments.key_weight, arguments.key_bias)
    return key_x, query_x, k, project(query_x, arguments.query_weight, arguments.query_bias)


def projected_grads(
    arguments: Any, part: Subgraph, key_x: Tensor, query_x: Tensor, grad_k: Tensor, grad_q: Tensor
) -> dict[str, Tensor | None]:
    r"""Returns the gradients of the :obj:`arguments` that :meth:`projected` reads, by name.
    :obj:`key_x` and :obj:`query_x` are its first results, :obj:`grad_k` and :obj:`grad_q` the
    gradients of its last."""
    grad_key_x, grad_key_weight, grad_key_bias = projection_grads(
        grad_k, key_x, arguments.key_weight, arguments.key_bias
    )
    grad_query_x, grad_query_weight, grad_query_bias = projection_grads(
        grad_q, query_x, arguments.query_weight, arguments.query_bias
    )
    return {
        'x_src': expand_rows(grad_key_x, part.sources, arguments.x_src),
        'x_dst': expand_rows(grad_query_x, part.targets, arguments.x_dst),
        'query_weight': grad_query_weight,
        'query_bias': grad_query_bias,
        'key_weight': grad_key_weight,
        'key_bias': grad_key_bias,
    }


def projected_flops(arguments: Any, part: Subgraph) -> int:
    r"""Returns the flops of :meth:`projected`."""
    keys = arguments.x_src, part.sources, arguments.key_weight
    queries = arguments.x_dst, part.targets, arguments.query_weight
    return sum(
        2 * (x if nodes is None else nodes).size(0) * weight.numel()
        for x, nodes, weight in (keys, queries)
        if weight is not None
    )


def projection_grads(
    grad: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    r"""Returns the gradients of input :obj:`x`, weight and bias of a Linear layer
    (:meth:`project`) from the gradient :obj:`grad` of its output. Without a weight they are
    :obj:`grad` and twice :obj:`None`."""
    if weight is None:
        return grad, None, None
    grad_weight = (grad.t() @ x.to(grad.dtype)).to(weight.dtype)
    grad_bias = None if bias is None else grad.sum(0).to(bias.dtype)
    return grad @ weight.to(grad.dtype), grad_weight, grad_bias
