# N nodes, E edges, H heads, C channels per head, P orders.
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from torch_geometric_lgt.functional._sides import compute_dtype
from torch_geometric_lgt.functional.edges import SortedEdges, edge_list, hops, sorted_edges
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
            edge_index = hops(edge_list(edge_index, num_src, num_src), num_src, self.order, self.source == 'value')
        if len(edge_index) != self.order:
            raise ValueError(f"'edge_index' must hold the edges of {self.order} orders (got {len(edge_index)})")
        return [sorted_edges(edges, num_src, num_dst, backward=True) for edges in edge_index]

    def _degree(self, degree: Tensor | PairTensor) -> Tensor | PairTensor:
        if self.order > 1 and self.source == 'value':
            raise ValueError(f"'degree' must be None with a relational bias of order {self.order}: it says nothing of longer walks")
        return (degree[0] + 1, degree[1] + 1) if isinstance(degree, tuple) else degree + 1  # each node is a neighbour of itself

    def _sum(self, x: Tensor, edges: SortedEdges, num_targets: int, degree: Tensor | PairTensor | None) -> Tensor:
        dtype = compute_dtype(x.dtype)
        if self.source == 'output':
            return neighbor_sum(x, edges, x.new_ones((edges.edge_index.size(1), 1), dtype=dtype), num_targets)
        return neighbor_sum(x, edges, symmetric_weight(edges.edge_index, x.size(0), num_targets, dtype, degree), num_targets)
