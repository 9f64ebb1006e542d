# N nodes, F input width, D hidden channels, L layers.
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import LayerNorm, Linear, Module, ModuleList
from torch.nn.functional import dropout

from torch_geometric_lgt._arguments import check_flags
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.nn._layers.activation import make_activation
from torch_geometric_lgt.nn._layers.input_checks import (
    check_features,
    check_rates,
    check_sizes,
    check_width,
)
from torch_geometric_lgt.nn._layers.linear_parts import initialize, make_linear
from torch_geometric_lgt.nn.models._graph_context import GraphContext
from torch_geometric_lgt.nn.models._layerwise_model import LayerwiseModel
from torch_geometric_lgt.typing import PairTensor


class Backbone(LayerwiseModel):
    r"""Applies an input layer, attention layers and an output layer: the base class of the
    node-level models.

    .. math::
        \mathbf{Z}^{(0)} = f(\mathbf{X}), \qquad
        \mathbf{Z}^{(l)} = \mathrm{LayerNorm} \left( a \, \mathrm{step}_l(\mathbf{Z}^{(l-1)}) + b
            \, \mathbf{Z}^{(l-1)} \right)

    Here :math:`f` is a linear map with normalisation, activation and dropout. The factors :math:`a`
    and :math:`b` are :obj:`step_weight` and :obj:`residual_weight`. A model defines :meth:`step`,
    and also :meth:`readout` if its scores depend on more than the last layer.

    Args:
        in_channels (int): Input channels; -1 takes them from the first input.
        hidden_channels (int): :math:`D`.
        out_channels (int): Channels of the scores.
        num_layers (int): :math:`L`.
        make_conv (callable): Makes the attention layer of one step.
        act (str or torch.nn.Module): The activation.
        dropout (float): Dropout probability.
        layer_norm (bool): If :obj:`False`, nothing is normalised.
        activate_layers (bool): If :obj:`True`, attention layers end in the activation.
        read_channels (int): Input channels of the output layer.

    Raises:
        ValueError: If a size or :obj:`dropout` is out of range.
    """

    step_weight = residual_weight = 1.0

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        make_conv: Callable[[], Module],
        *,
        act: str | Module,
        dropout: float,
        layer_norm: bool,
        activate_layers: bool,
        read_channels: int,
    ) -> None:
        super().__init__()
        check_width(in_channels)
        check_sizes(
            hidden_channels=hidden_channels, out_channels=out_channels, num_layers=num_layers
        )
        check_rates(dropout=dropout)
        check_flags(layer_norm=layer_norm, activate_layers=activate_layers)
        self.in_channels, self.hidden_channels = in_channels, hidden_channels
        self.out_channels, self.num_layers = out_channels, num_layers
        self.dropout, self.activate_layers = dropout, activate_layers
        self.act = make_activation(act)
        self.lin_in = make_linear(in_channels, hidden_channels)
        self.convs = ModuleList(make_conv() for _ in range(num_layers))
        self.norms = ModuleList(
            LayerNorm(hidden_channels) if layer_norm else torch.nn.Identity()
            for _ in range(num_layers + 1)
        )
        self.lin_out = Linear(read_channels, out_channels)

    def step(
        self,
        index: int,
        x: Tensor | PairTensor,
        x_0: Tensor,
        context: GraphContext,
        state: AttentionState | None,
    ) -> Tensor:
        r"""Applies the attention of layer :obj:`index`, without residual and normalisation, and
        returns ``[N, D]``. The arguments are those of :meth:`layer`."""
        return self.convs[index](x, context.edges, context.batch, context.batch_size, state=state)

    def input_layer(self, x: Tensor) -> Tensor:
        r"""Computes :math:`\mathbf{Z}^{(0)}` ``[N, D]`` from the features :obj:`x` ``[N, F]``."""
        check_features(x, self.lin_in, self.in_channels)
        initialize(x, self.lin_in)
        return dropout(self.act(self.norms[0](self.lin_in(x))), self.dropout, self.training)

    def layer(
        self,
        index: int,
        x: Tensor | PairTensor,
        x_0: Tensor,
        context: GraphContext,
        state: AttentionState | None,
    ) -> Tensor:
        r"""Computes the output :math:`\mathbf{Z}^{(l)}` ``[N, D]`` of layer :math:`l`, which is one
        more than :obj:`index`."""
        x_dst = x if isinstance(x, Tensor) else x[1]
        updated = self.step(index, x, x_0, context, state)
        z = self.norms[index + 1](self.step_weight * updated + self.residual_weight * x_dst)
        return dropout(self.act(z) if self.activate_layers else z, self.dropout, self.training)
