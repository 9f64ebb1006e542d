# N nodes, E edges, D channels.
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch_geometric.nn import GCN, GCNConv, MessagePassing
from torch_geometric.utils import scatter

from torch_geometric_lgt.functional.neighbors.edges import SortedEdges, sorted_edges
from torch_geometric_lgt.functional.neighbors.neighbor_sum import (
    neighbor_sum,
    root,
    symmetric_weight,
    weight_of_degrees,
)
from torch_geometric_lgt.nn.models._local_norm import LocalNorm, Processes
from torch_geometric_lgt.typing import Adj


class LocalEdges(NamedTuple):
    r"""Edges with their weights ``[E, 1]`` in GCN's operator, in which given self loops have none,
    and the weight ``[N, 1]`` of each node in its own sum."""

    edges: SortedEdges
    weight: Tensor
    own: Tensor

    def listed(self, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        r"""All of it as edges, with one self loop for each node behind the others, and their
        weights."""
        proper = self.edges.edge_index[0] != self.edges.edge_index[1]
        loops = torch.arange(self.own.size(0), device=proper.device).expand(2, -1)
        return torch.cat([self.edges.edge_index[:, proper], loops], 1), torch.cat(
            [self.weight[proper], self.own]
        ).squeeze(1).to(dtype)


class LocalConv(GCNConv):
    r""":class:`torch_geometric.nn.GCNConv`; over :class:`LocalEdges` its sums are products with a
    sparse matrix, and nothing of the size ``[E, D]`` is made."""

    # PyG replaces that of GCNConv, for all subclasses, by one that masks no edges in explanations
    propagate = MessagePassing.propagate

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        if not isinstance(edge_index, LocalEdges):
            return super().forward(x, edge_index, edge_weight)
        if self.explain:
            return super().forward(x, *edge_index.listed(x.dtype))
        h = self.lin(x)
        out = (
            neighbor_sum(h, edge_index.edges, edge_index.weight, x.size(0))
            + edge_index.own.to(h.dtype) * h
        )
        return out if self.bias is None else out + self.bias


class LocalGCN(GCN):
    r""":class:`torch_geometric.nn.GCN` of such layers; with :obj:`residual` the last one ends as
    all others do, and each that keeps the width adds its input."""

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int,
        dropout: float,
        normalize: bool,
        residual: bool,
    ) -> None:
        norm = LocalNorm(hidden_channels) if normalize else None
        super().__init__(in_channels, hidden_channels, num_layers, out_channels, dropout, norm=norm)
        self.residual = residual
        if residual:
            self.norms[-1] = torch.nn.Identity() if norm is None else norm

    def forward(
        self,
        x: Tensor,
        edge_index: Any,
        *args: Any,
        processes: Processes | None = None,
        **kwargs: Any,
    ) -> Tensor:
        if not self.residual and processes is None:
            return super().forward(x, edge_index, *args, **kwargs)
        for layer in range(self.num_layers):
            x = self._layer(layer, x, edge_index, x.size(0), processes)
        return x

    def inference_per_layer(
        self, layer: int, x: Tensor, edge_index: Any, batch_size: int
    ) -> Tensor:
        if not self.residual:
            return super().inference_per_layer(layer, x, edge_index, batch_size)
        with torch.no_grad():
            return self._layer(layer, x, edge_index, batch_size)

    def _layer(
        self, layer: int, x: Tensor, edge_index: Any, size: int, processes: Processes | None = None
    ) -> Tensor:
        out, norm = self.convs[layer](x, edge_index)[:size], self.norms[layer]
        if layer == self.num_layers - 1 and not self.residual:
            return out
        out = self.dropout(
            self.act(norm(out, processes) if isinstance(norm, LocalNorm) else norm(out))
        )
        if not self.residual or x.size(1) != out.size(1):
            return out
        return out + (x if x.layout == torch.strided else x.to_dense())[:size]

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> LocalConv:
        return LocalConv(in_channels, out_channels, normalize=False, **kwargs)


def local_edges(
    edge_index: Adj,
    num_nodes: int,
    dtype: torch.dtype,
    degree: Tensor | None,
    edge_weight: Tensor | None = None,
) -> LocalEdges:
    r"""The edges and weights :math:`w_{ji} / \sqrt{(d_j + l_j) (d_i + l_i)}` with the weight
    :math:`l_i` of the self loop of :math:`i`, from the in-degrees :obj:`degree` without self loops,
    by default those of the edges."""
    edges = sorted_edges(edge_index, num_nodes, num_nodes, edge_weight=edge_weight)
    weight, loop = without_loops(edges.edge_index, edges.weight, num_nodes, dtype)
    if degree is None:
        into = loop + scatter(weight, edges.edge_index[1], 0, num_nodes, 'sum')
        weight = weight_of_degrees(edges.edge_index, (into, into), dtype, weight)
    else:
        into = loop + degree.to(dtype)
        weight = symmetric_weight(edges.edge_index, num_nodes, num_nodes, dtype, into, weight)
    return LocalEdges(edges, weight, (loop / root(into) / root(into))[:, None])


def without_loops(
    edge_index: Tensor, weight: Tensor | None, num_targets: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    r"""The weights of the edges ``[E]`` (default: 1), 0 for self loops, and the weight ``[N_t]`` of
    the self loop of each target, as PyG's :meth:`gcn_norm` has it: that of a given one, of several
    the mean, else 1."""
    source, target = edge_index
    loops = source == target
    if weight is None:
        return (~loops).to(dtype), torch.ones(num_targets, dtype=dtype, device=loops.device)
    weight, count = weight.to(dtype), scatter(loops.to(dtype), target, 0, num_targets, 'sum')
    loop = scatter(weight.masked_fill(~loops, 0), target, 0, num_targets, 'sum') / count.clamp(
        min=1
    )
    return weight.masked_fill(loops, 0), torch.where(count > 0, loop, 1)
