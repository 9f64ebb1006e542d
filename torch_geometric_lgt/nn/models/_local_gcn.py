# N nodes, E edges, D channels.
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import GCN, GCNConv
from torch_geometric.utils import scatter

from torch_geometric_lgt.functional.edges import SortedEdges, sorted_edges
from torch_geometric_lgt.functional.neighbor_sum import neighbor_sum, symmetric_weight, weight_of_degrees
from torch_geometric_lgt.typing import Adj


class LocalEdges(NamedTuple):
    r"""Edges with their weights ``[E, 1]`` in GCN's operator, and the weight ``[N, 1]`` of each node in its own sum, in which given self
    loops have none."""

    edges: SortedEdges
    weight: Tensor
    own: Tensor

    def listed(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        r"""All of it as edges, with one self loop for each node behind the others, and their weights."""
        proper = self.edges.edge_index[0] != self.edges.edge_index[1]
        loops = torch.arange(self.own.size(0), device=proper.device).expand(2, -1)
        return torch.cat([self.edges.edge_index[:, proper], loops], 1), torch.cat([self.weight[proper], self.own]).squeeze(1).to(dtype)


class LocalConv(GCNConv):
    r""":class:`torch_geometric.nn.GCNConv`; over :class:`LocalEdges` its sums are products with a sparse matrix, and nothing of the size
    ``[E, D]`` is made."""

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        if not isinstance(edge_index, LocalEdges):
            return super().forward(x, edge_index, edge_weight)
        if self.explain:
            return super().forward(x, *edge_index.listed(x.dtype))
        h = self.lin(x)
        out = neighbor_sum(h, edge_index.edges, edge_index.weight, x.size(0)) + edge_index.own.to(h.dtype) * h
        return out if self.bias is None else out + self.bias


class LocalGCN(GCN):
    r""":class:`torch_geometric.nn.GCN` of such layers."""

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> LocalConv:
        return LocalConv(in_channels, out_channels, normalize=False, **kwargs)


def local_edges(edge_index: Adj, num_nodes: int, dtype: torch.dtype, degree: Tensor | None) -> LocalEdges:
    r"""The edges and weights :math:`1 / \sqrt{(d_j + 1) (d_i + 1)}`, from the in-degrees :obj:`degree` without self loops, by default those
    of the edges."""
    edges = sorted_edges(edge_index, num_nodes, num_nodes)
    source, target = edges.edge_index
    proper = (source != target).to(dtype)
    if degree is None:
        into = 1 + scatter(proper, target, 0, num_nodes, 'sum')
        weight = weight_of_degrees(edges.edge_index, (into, into), dtype)
    else:
        into = 1 + degree.to(dtype)
        weight = symmetric_weight(edges.edge_index, num_nodes, num_nodes, dtype, into)
    return LocalEdges(edges, weight * proper[:, None], 1 / into[:, None])
