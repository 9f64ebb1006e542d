# N nodes (N_s source, N_t target), E pairs, H heads, F input width.
from typing import Any

from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.inits import reset

from torch_geometric_lgt._arguments import check_flags
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.attention.state_checks import check_state
from torch_geometric_lgt.functional.inputs import LinearInput
from torch_geometric_lgt.functional.segment import Segments, check_pair, segments
from torch_geometric_lgt.nn._layers.input_checks import (
    check_channels,
    check_dense,
    check_features,
    check_heads,
    check_not_negative,
    check_sizes,
)
from torch_geometric_lgt.nn._layers.linear_parts import initialize, linear_part, make_linear
from torch_geometric_lgt.typing import Batch, PairTensor


class AttentionLayer(MessagePassing):
    r"""Creates the projections of queries, keys and values, checks inputs, and merges heads: the
    base class of all attention layers.

    The projections :obj:`lin_query`, :obj:`lin_key` and :obj:`lin_value` are Linear layers, or
    :obj:`None` for a layer without one. The class is a message passing layer so that PyG's
    ``to_hetero`` copies it for each edge type. Nothing else of
    :class:`~torch_geometric.nn.MessagePassing` is used. The attribute :obj:`attends_to_neighbors`
    tells whether a node attends to its neighbours only, or to all nodes of its graph.

    Args:
        in_channels (int or tuple): Input channels, or a pair (sources, targets); -1 takes them from
            the first input.
        out_channels (int): Output channels over all heads, or of each head with ``concat=False``.
        heads (int, optional): :math:`H`. (default: :obj:`1`)
        concat (bool, optional): If :obj:`False`, the outputs of the heads are averaged instead of
            concatenated. (default: :obj:`True`)
        value_projection (bool, optional): If :obj:`False`, the values are the input itself.
            (default: :obj:`True`)
        bias (bool, optional): If :obj:`False`, the projections have no bias. (default:
            :obj:`True`)
        key_channels (int, optional): Channels of queries and keys over all heads. (default:
            :obj:`None`, those of the values)
        position_channels (int, optional): If positive, queries and keys are projections of
            positions of this size instead of the input. (default: :obj:`0`)

    Raises:
        ValueError: If a size is not positive, :obj:`heads` does not divide a size, or
            ``value_projection=False`` does not fit the other arguments.
    """

    attends_to_neighbors = False

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        *,
        heads: int = 1,
        concat: bool = True,
        value_projection: bool = True,
        bias: bool = True,
        key_channels: int | None = None,
        position_channels: int = 0,
    ) -> None:
        super().__init__(aggr=None)
        self.explain = False  # explainers skip the layer, which has no messages to mask
        self.source_channels, self.target_channels = check_channels(in_channels)
        check_sizes(heads=heads, out_channels=out_channels)
        check_flags(concat=concat, value_projection=value_projection, bias=bias)
        if concat:
            check_heads(heads, out_channels, 'out_channels')
        if not value_projection and self.source_channels != out_channels:
            raise ValueError(
                "'value_projection' = False needs as many 'in_channels' as 'out_channels' (got "
                f'{in_channels} and {out_channels})'
            )
        if not value_projection and not concat:
            raise ValueError("'value_projection' = False needs 'concat' = True (got False)")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.heads, self.concat = heads, concat
        self.head_channels = out_channels // heads if concat else out_channels
        width = self.head_channels * heads
        key_width = width if key_channels is None else key_channels
        check_heads(heads, key_width, 'key_channels')
        self.head_key_channels = key_width // heads
        check_not_negative(position_channels=position_channels)
        if position_channels > 0 and not value_projection:
            raise ValueError("'value_projection' must be True with 'position_channels' (got False)")
        self.position_channels = position_channels
        self.lin_query = make_linear(position_channels or self.target_channels, key_width, bias)
        self.lin_key = make_linear(position_channels or self.source_channels, key_width, bias)
        self.lin_value = (
            make_linear(self.source_channels, width, bias) if value_projection else None
        )

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        r"""Does nothing. PyG's method generates code for messages, which takes a second and is not
        used here."""

    def __prepare_scriptable__(self) -> Any:
        r"""Raises an error: TorchScript has no type for the arguments of the layers.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            f'{type(self).__name__} cannot be compiled by torch.jit.script; use torch.export.export'
        )

    def register_message_forward_hook(self, hook: Any) -> Any:
        r"""Raises an error: the layer has no messages that the hook could change.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError(
            f'{type(self).__name__} has no messages, which to_hetero_with_bases and other hooks '
            'change; use to_hetero or HeteroConv'
        )

    register_message_forward_pre_hook: Any = register_message_forward_hook
    register_aggregate_forward_hook: Any = register_message_forward_hook
    register_aggregate_forward_pre_hook: Any = register_message_forward_hook
    register_message_and_aggregate_forward_hook: Any = register_message_forward_hook
    register_message_and_aggregate_forward_pre_hook: Any = register_message_forward_hook
    register_propagate_forward_hook: Any = register_message_forward_hook
    register_propagate_forward_pre_hook: Any = register_message_forward_hook
    register_edge_update_forward_hook: Any = register_message_forward_hook
    register_edge_update_forward_pre_hook: Any = register_message_forward_hook

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters."""
        for module in self.children():
            reset(module)

    def _check_sources(self, x: Tensor) -> None:
        check_dense(x)
        part = self.lin_key if self.lin_value is None else self.lin_value
        check_features(x, part, self.source_channels)
        initialize(x, None if self.position_channels > 0 else self.lin_key, self.lin_value)

    def _check_targets(self, x: Tensor) -> None:
        check_dense(x)
        if self.position_channels == 0:
            check_features(x, self.lin_query, self.target_channels)
            initialize(x, self.lin_query)

    def _key_input(self, x: Tensor, position: Tensor | None) -> Tensor:
        r"""Returns the input of keys or queries: :obj:`position` ``[N, position_channels]`` for a
        layer with positions, else the features :obj:`x` ``[N, F]``.

        Raises:
            ValueError: If positions are missing, not expected, or of a wrong shape.
        """
        if (position is None) != (self.position_channels == 0):
            raise ValueError(
                "'position' must be given if and only if 'position_channels' is positive (got "
                f'{None if position is None else tuple(position.shape)} and '
                f'{self.position_channels})'
            )
        if position is None:
            return x
        check_features(position, self.lin_key, self.position_channels, 'position')
        if position.size(0) != x.size(0):
            raise ValueError(
                f"'position' must have one row for each of {x.size(0)} nodes (got "
                f'{position.size(0)})'
            )
        return position

    def query_scales(self) -> list[float]:
        r"""Returns the factor of queries and keys before the feature map or the inner product, for
        each head that has them."""
        return [1.0] * self.heads

    def project_values(self, x: Tensor) -> Tensor:
        r"""Computes the values ``[N, H * D]`` of the input :obj:`x` ``[N, F]``, in one dimension
        for all heads."""
        return x if self.lin_value is None else self.lin_value(x)

    def _value_input(self, x: Tensor) -> LinearInput:
        r"""Describes, without computing them, the values ``[N, H * D]`` of the input :obj:`x`
        ``[N, F]``: as :obj:`x` with the weight and bias of :obj:`lin_value`, or as :obj:`x`
        alone."""
        return LinearInput(x=x) if self.lin_value is None else linear_part(self.lin_value, x)

    @staticmethod
    def _targets(
        state: AttentionState, x_src: Tensor, x_dst: Tensor, batch: Batch, batch_size: int | None
    ) -> Segments:
        r"""Returns the segments of the targets (which target belongs to which graph) for reading a
        state.

        The state replaces the keys of the sources. If :obj:`batch` is a pair, the graph ids of the
        sources are only checked, and the second vector has the graph ids of the targets. A single
        vector has the graph ids of the targets. Without :obj:`batch` all targets are in one graph.
        If :obj:`batch_size` is :obj:`None`, the number of graphs is that of the state."""
        check_state('state', state)
        sources, targets = check_pair(batch) if isinstance(batch, tuple) else (None, batch)
        is_of_state = batch_size is None and targets is not None
        size = state.count.size(0) if is_of_state else batch_size
        if sources is not None:
            segments(sources, x_src.size(0), size, x_src.device, is_of_state)
        return segments(targets, x_dst.size(0), size, x_dst.device, is_of_state)

    def _merge_heads(self, out: Tensor) -> Tensor:
        r"""Merges the outputs ``[N, H * D]`` of all heads: returns them unchanged with
        :obj:`concat`, else their mean over the heads ``[N, D]``."""
        return out if self.concat else out.unflatten(1, (self.heads, -1)).mean(1)


def position_pair(
    position: Tensor | PairTensor | None,
) -> tuple[Tensor | None, Tensor | None]:
    r"""Returns the positions of sources and targets; one tensor or :obj:`None` stands for both."""
    return position if isinstance(position, tuple) else (position, position)
