# N nodes, D hidden channels, P channels of a position.
from collections.abc import Callable
from typing import Any, cast

from torch import Tensor
from torch.nn import LayerNorm, Linear, Module
from torch.nn.functional import dropout

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.nn._layers.activation import make_activation
from torch_geometric_lgt.nn._layers.layer_checks import check_output
from torch_geometric_lgt.nn.conv._gps_attention import attend, reset_layer
from torch_geometric_lgt.nn.conv.gps_conv import GPSConv
from torch_geometric_lgt.nn.models._graph_context import GraphContext
from torch_geometric_lgt.nn.models._message_input import MessageInput
from torch_geometric_lgt.typing import PairTensor


class Block(Module):
    r"""Computes one layer of the model from its input, in one call, so that hooks on the layer see
    its input and output.

    Subclasses have :obj:`channels`, the modules :obj:`conv` and :obj:`attn` or :obj:`None`, and the
    methods :meth:`attend` and :meth:`combine` of :class:`~torch_geometric_lgt.nn.GPSConv`."""

    channels: int
    conv: Any
    attn: Any
    attend: Any
    combine: Any

    def forward(
        self,
        x: Tensor | PairTensor,
        context: GraphContext,
        state: AttentionState | None,
        norm_arguments: dict[str, Any],
    ) -> Tensor:
        r"""Computes the output ``[N, D]`` of the targets.

        Args:
            x (torch.Tensor or tuple): The input ``[N, D]``, with positions ``[N, D + P]``, or a
                pair (sources, targets) whose first sources are the targets.
            context (GraphContext): The edges and the batch vector.
            state (AttentionState, optional): Sums over all keys, which replace the keys of
                :obj:`x`.
            norm_arguments (dict): Further arguments for the calls of the norms.
        """
        x_src, x_dst = (x, x) if isinstance(x, Tensor) else x
        local = None
        if self.conv is not None:
            edges, arguments = cast(MessageInput, context.edges)
            local = self.conv(x_src[:, : self.channels], edges, **arguments)
            check_output('conv', self.conv, local, self.channels, 'hidden_channels')
            local = local[: x_dst.size(0)]
        attended = self.attend(x_dst, context.batch, context.batch_size, state)
        if attended is not None:
            check_output('attn_type', self.attn, attended, self.channels, 'hidden_channels')
        return self.combine(x_dst[:, : self.channels], local, attended, norm_arguments)


class GPSLayer(Block, GPSConv):
    r"""Applies the layer :class:`~torch_geometric_lgt.nn.GPSConv` to the input of a layer of the
    model. Its norms are from :obj:`make_norm`, and those of branches that it lacks are
    :obj:`None`."""

    def __init__(
        self,
        channels: int,
        conv: Any,
        attn: Module | None,
        heads: int,
        dropout: float,
        act: str | Module,
        make_norm: Callable[[], Any],
    ) -> None:
        super().__init__(channels, conv, heads, dropout, act, norm=None, attn_type=attn)
        self.norm1 = None if conv is None else make_norm()
        self.norm2 = None if attn is None else make_norm()
        self.norm3 = make_norm()


class InputLayer(Block):
    r"""Applies normalisation, activation and dropout to the output of the linear input layer,
    without message passing and attention."""

    attn = conv = None

    def __init__(
        self, channels: int, dropout: float, act: str | Module, norm: Module | None
    ) -> None:
        super().__init__()
        self.channels = channels
        self.dropout = dropout
        self.act = make_activation(act)
        self.norm = norm

    def attend(self, *args: Any) -> None:
        r"""Returns :obj:`None`: the layer has no attention."""

    def combine(
        self, x: Tensor, local: None, attended: None, norm_arguments: dict[str, Any]
    ) -> Tensor:
        r"""Computes the output ``[N, D]`` from the input :obj:`x`."""
        z = x if self.norm is None else self.norm(x, **norm_arguments)
        return dropout(self.act(z), self.dropout, self.training)


class LocalLayer(Block):
    r"""Applies message passing beside a linear map, normalisation, activation, dropout and a
    residual, as in `"Classic GNNs are Strong Baselines" <https://arxiv.org/abs/2406.08993>`_:

    .. math::
        \mathbf{X}^{\prime} = \mathbf{X} + \mathrm{act} \left( \mathrm{Norm} \left(
            \mathrm{MPNN}(\mathbf{X}, \mathbf{A}) + \mathbf{W} \mathbf{X} \right) \right)

    With :obj:`has_output_norm` a layer norm follows. The layer has no attention."""

    attn = None

    def __init__(
        self,
        channels: int,
        conv: Module,
        dropout: float,
        act: str | Module,
        norm: Module | None,
        has_output_norm: bool,
    ) -> None:
        super().__init__()
        self.channels = channels
        self.dropout, self.conv, self.norm = dropout, conv, norm
        self.lin = Linear(channels, channels)
        self.act = make_activation(act)
        self.output_norm = LayerNorm(channels) if has_output_norm else None

    def attend(self, *args: Any) -> None:
        r"""Returns :obj:`None`: the layer has no attention."""

    def combine(
        self, x: Tensor, local: Tensor, attended: None, norm_arguments: dict[str, Any]
    ) -> Tensor:
        r"""Computes the output ``[N, D]`` from the input :obj:`x` and the output :obj:`local` of
        the message passing."""
        z = local + self.lin(x)
        z = z if self.norm is None else self.norm(z, **norm_arguments)
        z = x + dropout(self.act(z), self.dropout, self.training)
        return z if self.output_norm is None else self.output_norm(z)


class GatedLayer(Block):
    r"""Multiplies the output of the attention :obj:`attn`, normalised node by node, by a linear
    map of the input, as in `"Polynormer" <https://arxiv.org/abs/2403.01232>`_:

    .. math::
        \mathbf{X}^{\prime} = \mathrm{act} \left( \mathbf{W}_2 \left(
            (1 + \mathbf{W}_1 \mathbf{X}) \odot \mathrm{LayerNorm}(\mathrm{Attention}(\mathbf{X}))
            \right) \right)

    Differs from the paper: any attention, no residual beside the constant 1. The layer has no
    message passing."""

    conv = None

    def __init__(self, channels: int, attn: Module, dropout: float, act: str | Module) -> None:
        super().__init__()
        self.channels, self.attn = channels, attn
        self.dropout = dropout
        self.act = make_activation(act)
        self.lin, self.lin_out = Linear(channels, channels), Linear(channels, channels)
        self.norm = LayerNorm(channels)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters."""
        for module in self.children():
            reset_layer(module)

    def attend(
        self,
        x: Tensor,
        batch: Tensor | None,
        batch_size: int | None,
        state: AttentionState | None,
    ) -> Tensor:
        r"""Computes the output ``[N, D]`` of the attention."""
        return attend(self.attn, x, batch, batch_size, state)

    def combine(
        self, x: Tensor, local: None, attended: Tensor, norm_arguments: dict[str, Any]
    ) -> Tensor:
        r"""Computes the output ``[N, D]`` from the input :obj:`x` and the output :obj:`attended` of
        the attention."""
        z = self.lin_out(self.norm(attended) * (1 + self.lin(x)))
        return dropout(self.act(z), self.dropout, self.training)


class PositionedAttention(Module):
    r"""Splits its input into features and positions for an attention layer :obj:`conv` whose
    queries and keys are of positions.

    The methods are those of the layer, with one tensor ``[N, D + P]`` in place of features
    ``[N, D]`` and positions ``[N, P]``, so that a model stores and passes one tensor."""

    def __init__(self, conv: Any, channels: int) -> None:
        super().__init__()
        self.conv, self.channels, self.heads = conv, channels, conv.heads

    def forward(
        self,
        x: Tensor,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        state: AttentionState | None = None,
    ) -> Tensor:
        z, position = self._split(x)
        return self.conv(z, None, batch, batch_size, state=state, position=position)

    @property
    def num_gumbel_samples(self) -> int:
        return getattr(self.conv, 'num_gumbel_samples', 0)

    @property
    def random_projection(self) -> Tensor | None:
        return getattr(self.conv, 'random_projection', None)

    def key_noise(self, x: Tensor) -> Tensor | None:
        return self.conv.key_noise(self._split(x)[0])

    def attention_state(
        self,
        x: Tensor,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        noise: Tensor | None = None,
    ) -> AttentionState:
        z, position = self._split(x)
        arguments = {} if noise is None else {'noise': noise}
        return self.conv.attention_state(z, batch, batch_size, position=position, **arguments)

    def attention_scores(self, x: Tensor, pairs: Tensor, batch: Tensor | None = None) -> Tensor:
        z, position = self._split(x)
        return self.conv.attention_scores(z, pairs, batch, position=position)

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x[:, : self.channels], x[:, self.channels :]
