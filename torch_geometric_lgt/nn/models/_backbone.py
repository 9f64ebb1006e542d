# N nodes, F input width, D hidden channels, P pairs, H heads, L layers.
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import LayerNorm, Linear, Module, ModuleList
from torch.nn.functional import dropout
from torch_geometric.nn.inits import reset
from torch_geometric.nn.resolver import activation_resolver

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.nn._layers.input_checks import check_features, check_sizes, check_width
from torch_geometric_lgt.nn._layers.linear_parts import make_linear
from torch_geometric_lgt.nn.models._graph_context import Edges, GraphContext
from torch_geometric_lgt.nn.models._layerwise_inference import LayerwiseInference
from torch_geometric_lgt.typing import PairTensor


class Backbone(LayerwiseInference):
    r"""Applies an input layer, attention layers with normalisation and dropout, and an output
    layer: the common part of the node-level models.

    .. math::
        \mathbf{Z}^{(0)} = f(\mathbf{X}), \qquad
        \mathbf{Z}^{(l)} = \mathrm{LayerNorm} \left( a \, \mathrm{step}_l(\mathbf{Z}^{(l-1)}) + b
            \, \mathbf{Z}^{(l-1)} \right)

    A model defines :meth:`step`, and :meth:`readout` if the last layer alone is not its output."""

    step_weight = residual_weight = 1.0

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
        check_width(in_channels)
        check_sizes(
            hidden_channels=hidden_channels, out_channels=out_channels, num_layers=num_layers
        )
        if not 0 <= dropout < 1:
            raise ValueError(f"'dropout' must be at least 0 and below 1 (got {dropout})")
        self.in_channels, self.hidden_channels = in_channels, hidden_channels
        self.out_channels, self.num_layers = out_channels, num_layers
        self.dropout, self.activate_layers = dropout, activate_layers
        self.act = activation_resolver(act)
        self.lin_in = make_linear(in_channels, hidden_channels)
        self.convs = ModuleList(make_conv() for _ in range(num_layers))
        self.norms = ModuleList(
            LayerNorm(hidden_channels) if layer_norm else torch.nn.Identity()
            for _ in range(num_layers + 1)
        )
        self.lin_out = Linear(read_channels, out_channels)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters and redraws the projections."""
        for module in self.children():
            reset(module)

    def step(
        self,
        index: int,
        x: Tensor | PairTensor,
        x_0: Tensor,
        context: GraphContext,
        state: AttentionState | None,
    ) -> Tensor:
        r"""Applies the attention of layer :obj:`index` to :obj:`x`; for a pair, updates the
        targets. The input of the first layer is :obj:`x_0`."""
        return self.convs[index](x, context.edges, context.batch, context.batch_size, state=state)

    def input_layer(self, x: Tensor) -> Tensor:
        r"""Computes :math:`\mathbf{Z}^{(0)}`."""
        check_features(x, self.lin_in, self.in_channels)
        return dropout(self.act(self.norms[0](self.lin_in(x))), self.dropout, self.training)

    def layer(
        self,
        index: int,
        x: Tensor | PairTensor,
        x_0: Tensor,
        context: GraphContext,
        state: AttentionState | None,
    ) -> Tensor:
        r"""Computes :math:`\mathbf{Z}^{(l)}` with :math:`l` one more than :obj:`index`."""
        x_dst = x if isinstance(x, Tensor) else x[1]
        updated = self.step(index, x, x_0, context, state)
        z = self.norms[index + 1](self.step_weight * updated + self.residual_weight * x_dst)
        return dropout(self.act(z) if self.activate_layers else z, self.dropout, self.training)

    def layers(self, x: Tensor, context: GraphContext) -> list[Tensor]:
        r"""Computes :math:`\mathbf{Z}^{(0)}, \dots, \mathbf{Z}^{(L)}`."""
        self._check_context(x, context)
        layers = [self.input_layer(x)]
        for index in range(self.num_layers):
            state = self._state(index, layers[-1], context)
            layers.append(self.layer(index, layers[-1], layers[0], context, state))
        return layers

    def _check_context(self, x: Tensor, context: GraphContext) -> None:
        states, group, num_keys = context.states, context.process_group, context.num_keys
        if states is not None and len(states) != self.num_layers:
            raise ValueError(
                f"'states' must be one for each of {self.num_layers} layers (got {len(states)})"
            )
        if num_keys is not None and states is None and group is None:
            raise ValueError(
                f"'num_keys' must be None without 'states' or 'process_group' (got {num_keys})"
            )
        if num_keys is not None and not 0 <= num_keys <= x.size(0):
            raise ValueError(
                f"'num_keys' must be between 0 and the number of nodes, {x.size(0)} (got "
                f'{num_keys})'
            )
        if group is not None and context.batch is not None and context.batch_size is None:
            raise ValueError(
                "'batch_size' must be given with 'batch' and 'process_group': each process has a "
                'state for every graph'
            )

    def _state(self, index: int, x: Tensor, context: GraphContext) -> AttentionState | None:
        r"""Builds the state that a layer reads instead of its input; :obj:`None` if the input has
        all nodes."""
        if context.states is None and context.process_group is None:
            return None
        batch = None if context.batch is None else context.batch[: context.num_keys]
        keys = x[: context.num_keys]
        state = self.convs[index].attention_state(keys, batch, context.batch_size)
        if context.process_group is not None:
            state = state.all_reduce(context.process_group)
        if context.states is None:
            return state
        return context.states[index].merge(state).to(state.sums.dtype)

    def readout(self, layers: list[Tensor], local: Tensor | None = None) -> Tensor:
        r"""Computes the scores from the layers and the output of the local branch."""
        return self.lin_out(layers[-1])

    def attention_scores(
        self,
        x: Tensor,
        edge_index: Edges,
        pairs: Tensor,
        batch: Tensor | None = None,
        *,
        edge_weight: Tensor | None = None,
    ) -> list[Tensor]:
        r"""Returns the weights ``[P, H]`` that each layer's target ``pairs[1]`` puts on source
        ``pairs[0]``. The graph is :obj:`edge_index` with :obj:`edge_weight`, as in
        :meth:`forward`."""
        edges = self._edges(edge_index, x.size(0), edge_weight)
        inputs = self.layers(x, GraphContext(edges, batch))[:-1]
        return [
            conv.attention_scores(z, pairs, batch)
            for conv, z in zip(self.convs, inputs, strict=True)
        ]

    def _edges(self, edge_index: Edges, num_nodes: int, edge_weight: Tensor | None = None) -> Edges:
        r"""Prepares the edges for all layers."""
        return edge_index

    def __repr__(self) -> str:
        sizes = (
            f'{self.in_channels}, {self.hidden_channels}, {self.out_channels}, '
            f'num_layers={self.num_layers}'
        )
        return f'{self.__class__.__name__}({sizes})'
