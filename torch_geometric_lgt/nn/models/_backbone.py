# N nodes, F input width, D hidden channels, P pairs, H heads, L layers.
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import LayerNorm, Linear, Module, ModuleList
from torch.nn.functional import dropout
from torch_geometric.nn.inits import reset
from torch_geometric.nn.resolver import activation_resolver

from torch_geometric_lgt.typing import Adj

Edges = Adj | Sequence[Tensor] | None


class Backbone(Module):
    r"""What the node-level models share: an input layer, attention layers with normalisation and dropout, and an output layer.

    .. math::
        \mathbf{Z}^{(0)} = f(\mathbf{X}), \qquad
        \mathbf{Z}^{(l)} = \mathrm{LayerNorm} \left( a \, \mathrm{step}_l(\mathbf{Z}^{(l-1)}) + b \, \mathbf{Z}^{(l-1)} \right)

    A model defines :meth:`step` and what is made of the layers."""

    convs: Any
    shares: tuple[float, float] = (1.0, 1.0)

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        make_conv: Callable[[], Module],
        act: str,
        dropout: float,
        layer_norm: bool,
        activate_layers: bool,
        read_channels: int,
    ) -> None:
        super().__init__()
        for name, size in {'in_channels': in_channels, 'hidden_channels': hidden_channels, 'out_channels': out_channels}.items():
            if size < 1:
                raise ValueError(f"'{name}' must be positive (got {size})")
        if num_layers < 1:
            raise ValueError(f"'num_layers' must be positive (got {num_layers})")
        if not 0 <= dropout < 1:
            raise ValueError(f"'dropout' must be at least 0 and below 1 (got {dropout})")
        self.in_channels, self.hidden_channels, self.out_channels, self.num_layers = in_channels, hidden_channels, out_channels, num_layers
        self.dropout, self.activate_layers, self.act = dropout, activate_layers, activation_resolver(act)
        self.lin_in = Linear(in_channels, hidden_channels)
        self.convs = ModuleList(make_conv() for _ in range(num_layers))
        self.norms = ModuleList(LayerNorm(hidden_channels) if layer_norm else torch.nn.Identity() for _ in range(num_layers + 1))
        self.lin_out = Linear(read_channels, out_channels)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters and redraws the projections."""
        for module in self.children():
            reset(module)

    def step(self, layer: int, x: Tensor, first: Tensor, edges: Edges, batch: Tensor | None, batch_size: int | None) -> Tensor:
        r"""What layer number :obj:`layer` makes of its input :obj:`x`; :obj:`first` is that of the first layer."""
        return self.convs[layer](x, edges, batch, batch_size)

    def layers(self, x: Tensor, edges: Edges, batch: Tensor | None = None, batch_size: int | None = None) -> list[Tensor]:
        r""":math:`\mathbf{Z}^{(0)}, \dots, \mathbf{Z}^{(L)}`."""
        if x.dim() != 2 or x.size(1) != self.in_channels:
            raise ValueError(f"'x' must have shape [N, {self.in_channels}] (got {tuple(x.shape)})")
        out = [dropout(self.act(self.norms[0](self.lin_in(x))), self.dropout, self.training)]
        new, old = self.shares
        for layer, norm in enumerate(self.norms[1:]):
            z = norm(new * self.step(layer, out[-1], out[0], edges, batch, batch_size) + old * out[-1])
            out.append(dropout(self.act(z) if self.activate_layers else z, self.dropout, self.training))
        return out

    def attention_scores(self, x: Tensor, edge_index: Edges, pairs: Tensor, batch: Tensor | None = None) -> list[Tensor]:
        r"""The weights ``[P, H]`` that each layer's target ``pairs[1]`` puts on source ``pairs[0]``; :obj:`edge_index` is the graph, as in
        :meth:`forward`."""
        inputs = self.layers(x, self._edges(edge_index, x.size(0)), batch)
        return [conv.attention_scores(z, pairs, batch) for conv, z in zip(self.convs, inputs, strict=False)]

    def _edges(self, edge_index: Edges, num_nodes: int) -> Edges:
        return edge_index

    def __repr__(self) -> str:
        sizes = f'{self.in_channels}, {self.hidden_channels}, {self.out_channels}, num_layers={self.num_layers}'
        return f'{self.__class__.__name__}({sizes})'
