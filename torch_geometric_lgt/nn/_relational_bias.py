# N nodes, E edges, H heads, C channels per head, P orders.
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.utils import scatter

from torch_geometric_lgt.functional._sides import compute_dtype
from torch_geometric_lgt.functional.edges import SortedEdges, edge_list, first_hop, hops, sorted_edges
from torch_geometric_lgt.functional.neighbor_sum import neighbor_sum, symmetric_weight
from torch_geometric_lgt.typing import Adj, PairTensor


class RelationalBias(torch.nn.Module):
    r"""NodeFormer's sums over the neighbours of :math:`P` orders with one learned weight for each order and head, of the values or of the
    attention's output."""

    def __init__(self, order: int, heads: int, source: str, weight: str) -> None:
        super().__init__()
        if source not in ('value', 'output'):
            raise ValueError(f"'relational_input' must be 'value' or 'output' (got {source!r})")
        if weight not in ('sigmoid', 'identity'):
            raise ValueError(f"'relational_weight' must be 'sigmoid' or 'identity' (got {weight!r})")
        self.order, self.source, self.kind = order, source, weight
        self.weight = Parameter(torch.empty(order, heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Resets the weights to those of the authors' code."""
        torch.nn.init.constant_(self.weight, 0.1 if self.kind == 'sigmoid' else 1.0)

    def forward(
        self,
        value: Tensor,
        out: Tensor,
        edge_index: Adj | Sequence[Adj | SortedEdges] | None,
        degree: Tensor | PairTensor | None = None,
    ) -> Tensor:
        r"""The bias ``[N, H * C]``; :obj:`degree` holds the numbers of distinct neighbours in the whole graph, without the node itself."""
        x = value if self.source == 'value' else out
        weight = self.weight.sigmoid() if self.kind == 'sigmoid' else self.weight
        total, heads = torch.zeros_like(out), weight.size(1)
        degree = None if degree is None else self._degree(degree)
        for edges, share in zip(self.hops(edge_index, x.size(0), out.size(0)), weight, strict=True):
            total = total + (self._sum(x, edges, out.size(0), degree).unflatten(1, (heads, -1)) * share[:, None]).flatten(1)
        return total

    def hops(self, edge_index: Adj | Sequence[Adj | SortedEdges] | None, num_src: int, num_dst: int) -> list[SortedEdges]:
        r"""The edges of each order."""
        if edge_index is None:
            raise ValueError(f"'edge_index' must be given for the relational bias of order {self.order}")
        if isinstance(edge_index, SortedEdges) or not isinstance(edge_index, (list, tuple)):
            if num_src != num_dst:
                raise ValueError("'edge_index' must be a list with the edges of each order for a pair 'x' (got a graph)")
            edges, self_loops = edge_list(edge_index, num_src, num_src), self.source == 'value'
            if self.order == 1 and torch.compiler.is_compiling():
                pairs, first = first_hop(edges, num_src, self_loops)
                return [sorted_edges(pairs, num_src, num_dst, backward=True)._replace(first=first)]
            edge_index = hops(edges, num_src, self.order, self_loops)
        if len(edge_index) != self.order:
            raise ValueError(f"'edge_index' must hold the edges of {self.order} orders (got {len(edge_index)})")
        return [sorted_edges(edges, num_src, num_dst, backward=True) for edges in edge_index]

    def _degree(self, degree: Tensor | PairTensor) -> Tensor | PairTensor:
        if self.order > 1 and self.source == 'value':
            raise ValueError(f"'degree' must be None with a relational bias of order {self.order}: it says nothing of longer walks")
        return (degree[0] + 1, degree[1] + 1) if isinstance(degree, tuple) else degree + 1  # each node is a neighbour of itself

    def _sum(self, x: Tensor, edges: SortedEdges, num_targets: int, degree: Tensor | PairTensor | None) -> Tensor:
        dtype, sizes = compute_dtype(x.dtype), (x.size(0), num_targets)
        one = x.new_ones((edges.edge_index.size(1), 1), dtype=dtype) if edges.first is None else edges.first.to(dtype)[:, None]
        if self.source == 'output':
            return neighbor_sum(x, edges, one, num_targets)
        if edges.first is not None and degree is None:
            source, target = (scatter(one.squeeze(1), ids, 0, size, 'sum') for ids, size in zip(edges.edge_index, sizes, strict=True))
            degree = source, target
        weight = symmetric_weight(edges.edge_index, *sizes, dtype, degree)
        return neighbor_sum(x, edges, weight if edges.first is None else weight * one, num_targets)
