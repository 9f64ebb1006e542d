# N nodes, E edges, H heads, C channels per head, P orders.
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Parameter

from torch_geometric_lgt.functional._sides import compute_dtype
from torch_geometric_lgt.functional.edges import edge_list, hops
from torch_geometric_lgt.functional.neighbor_sum import neighbor_sum, symmetric_weight
from torch_geometric_lgt.typing import Adj


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

    def forward(self, value: Tensor, out: Tensor, edge_index: Adj | Sequence[Tensor] | None) -> Tensor:
        r"""The bias ``[N, H * C]``."""
        x = value if self.source == 'value' else out
        weight = self.weight.sigmoid() if self.kind == 'sigmoid' else self.weight
        total, heads = torch.zeros_like(x), weight.size(1)
        for edges, share in zip(self.hops(edge_index, x.size(0)), weight, strict=True):
            total = total + (self._sum(x, edges).unflatten(1, (heads, -1)) * share[:, None]).flatten(1)
        return total

    def hops(self, edge_index: Adj | Sequence[Tensor] | None, num_nodes: int) -> list[Tensor]:
        r"""The edges of each order."""
        if edge_index is None:
            raise ValueError(f"'edge_index' must be given for the relational bias of order {self.order}")
        if not isinstance(edge_index, list | tuple):
            return hops(edge_list(edge_index, num_nodes, num_nodes), num_nodes, self.order, self.source == 'value')
        if len(edge_index) != self.order:
            raise ValueError(f"'edge_index' must hold the edges of {self.order} orders (got {len(edge_index)})")
        return [edge_list(edges, num_nodes, num_nodes) for edges in edge_index]

    def _sum(self, x: Tensor, edges: Tensor) -> Tensor:
        num_nodes, dtype = x.size(0), compute_dtype(x.dtype)
        plain = self.source == 'output'
        weight = x.new_ones((edges.size(1), 1), dtype=dtype) if plain else symmetric_weight(edges, num_nodes, num_nodes, dtype)
        return neighbor_sum(x, edges, weight, num_nodes)
