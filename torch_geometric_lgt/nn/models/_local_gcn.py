# N nodes, E edges, D channels.
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GCN, GCNConv

from torch_geometric_lgt.functional.neighbor_sum import neighbor_sum


class LocalConv(GCNConv):
    r""":class:`torch_geometric.nn.GCNConv` with given weights of the edges, whose sums are products with a sparse matrix: nothing of the
    size ``[E, D]`` is made."""

    def forward(self, x: Tensor, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        if edge_weight is None or edge_index.layout != torch.strided or self.explain:
            return super().forward(x, edge_index, edge_weight)
        out = neighbor_sum(self.lin(x), edge_index, edge_weight[:, None], x.size(0))
        return out if self.bias is None else out + self.bias


class LocalGCN(GCN):
    r""":class:`torch_geometric.nn.GCN` of such layers."""

    def init_conv(self, in_channels: int, out_channels: int, **kwargs: Any) -> LocalConv:
        return LocalConv(in_channels, out_channels, normalize=False, **kwargs)
