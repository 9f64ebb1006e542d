# N nodes (N_s source, N_t target), E pairs, H heads, F input width.
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.inits import reset

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.inputs import ValueInput
from torch_geometric_lgt.functional.segment import Segments, check_pair, segments
from torch_geometric_lgt.nn._layers.input_checks import check_channels, check_features
from torch_geometric_lgt.nn._layers.linear_parts import initialize, linear_part, make_linear
from torch_geometric_lgt.typing import Batch


class AttentionLayer(MessagePassing):
    r"""Creates the linear parts of an attention layer, checks its input, and merges its heads.

    The class is a message passing layer so that PyG's ``to_hetero`` copies it for each edge type;
    nothing else of :class:`~torch_geometric.nn.MessagePassing` is used."""

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int,
        concat: bool,
        value_projection: bool,
        bias: bool,
        key_channels: int | None = None,
    ) -> None:
        super().__init__(aggr=None)
        self.explain = False  # explainers skip the layer, which has no messages to mask
        self.source_channels, self.target_channels = check_channels(in_channels)
        if heads < 1 or out_channels < 1 or (concat and out_channels % heads != 0):
            raise ValueError(f"'heads' must divide 'out_channels' (got {heads} and {out_channels})")
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
        if key_width < 1 or key_width % heads != 0:
            raise ValueError(f"'heads' must divide 'key_channels' (got {heads} and {key_channels})")
        self.head_key_channels = key_width // heads
        self.lin_query = make_linear(self.target_channels, key_width, bias)
        self.lin_key = make_linear(self.source_channels, key_width, bias)
        self.lin_value = (
            make_linear(self.source_channels, width, bias) if value_projection else None
        )

    def _set_jittable_templates(self, raise_on_error: bool = False) -> None:
        r"""Skips PyG's code for messages, which takes a second to generate and is not used."""

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters."""
        for module in self.children():
            reset(module)

    def _check_sources(self, x: Tensor) -> None:
        part = self.lin_key if self.lin_value is None else self.lin_value
        check_features(x, part, self.source_channels)
        initialize(x, self.lin_key, self.lin_value)

    def _check_targets(self, x: Tensor) -> None:
        check_features(x, self.lin_query, self.target_channels)
        initialize(x, self.lin_query)

    def _value(self, x: Tensor) -> Tensor:
        return x if self.lin_value is None else self.lin_value(x)

    def _values(self, x: Tensor) -> ValueInput:
        r"""Describes how the values of :obj:`x` are computed."""
        if self.lin_value is None:
            return ValueInput(x=x)
        x, weight, bias = linear_part(self.lin_value, x)
        return ValueInput(x=x, weight=weight, bias=bias)

    @staticmethod
    def _targets(
        state: AttentionState, x_src: Tensor, x_dst: Tensor, batch: Batch, batch_size: int | None
    ) -> Segments:
        r"""Returns the segments of the targets that read a state."""
        sources, targets = check_pair(batch) if isinstance(batch, tuple) else (None, batch)
        size = state.count.size(0) if batch_size is None and targets is not None else batch_size
        if sources is not None:
            segments(sources, x_src.size(0), size, x_src.device)
        return segments(targets, x_dst.size(0), size, x_dst.device)

    def _merge_heads(self, out: Tensor) -> Tensor:
        r"""Concatenates or averages the heads of ``[N, H * D]``."""
        return out if self.concat else out.unflatten(1, (self.heads, -1)).mean(1)
