# N nodes (N_s source, N_t target), E pairs, H heads, F input width.
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.modules.lazy import LazyModuleMixin
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.inits import reset

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.inputs import ValueInput
from torch_geometric_lgt.functional.neighbors.edges import SortedEdges
from torch_geometric_lgt.functional.segment import Segments, check_pair, segments
from torch_geometric_lgt.nn._parts import initialize, linear_part, make_linear, reference
from torch_geometric_lgt.typing import Batch


def check_sizes(**sizes: int) -> None:
    r"""Raises a ValueError that names the first of the sizes that is not positive."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"'{name}' must be positive (got {size})")


def check_width(in_channels: int) -> None:
    r"""Raises a ValueError unless the input channels of a model are positive, or -1 for those of
    the first input."""
    if not isinstance(in_channels, int) or (in_channels < 1 and in_channels != -1):
        raise ValueError(
            "'in_channels' must be positive, or -1 for the size of the first input (got "
            f'{in_channels})'
        )


def check_channels(in_channels: int | tuple[int, int]) -> tuple[int, int]:
    r"""Returns the input channels of sources and targets, or raises a ValueError if they are
    neither positive nor -1."""
    pair = (in_channels, in_channels) if isinstance(in_channels, int) else tuple(in_channels)
    if len(pair) != 2 or any(size < 1 and size != -1 for size in pair):
        raise ValueError(
            "'in_channels' must be positive, -1, or a pair of such, of sources and targets (got "
            f'{in_channels})'
        )
    return pair


def check_features(x: Tensor, part: torch.nn.Module, in_channels: int) -> None:
    r"""Raises a ValueError unless :obj:`x` is an input ``[N, F]`` of a linear part of
    :obj:`in_channels`, or of any width where these are not known before the first input."""
    lazy = isinstance(part, LazyModuleMixin)
    width = (
        part.in_features
        if in_channels == -1 and isinstance(part, Linear) and not lazy
        else in_channels
    )
    if x.dim() != 2 or (width != -1 and x.size(1) != width):
        raise ValueError(
            f"'x' must have shape [N, {'F' if width == -1 else width}] (got {tuple(x.shape)})"
        )
    weight = reference(part)
    if not lazy and weight.numel() == 0:
        return
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(
            f"'x' must have the dtype of the parameters, {weight.dtype} (got {x.dtype}); convert "
            f'it with x.to({weight.dtype})'
        )
    check_devices(weight.device, x=x)


def check_devices(device: torch.device, **given: Any) -> None:
    r"""Raises a ValueError that names the first of the tensors, or edges, that is not on the device
    of the parameters."""
    for name, value in given.items():
        tensor = value.edge_index if isinstance(value, SortedEdges) else value
        if isinstance(tensor, Tensor) and tensor.device != device:
            raise ValueError(
                f"'{name}' must be on the device of the parameters, {device} (got "
                f'{tensor.device}); move it with {name}.to({str(device)!r})'
            )


def check_unused(edge_weight: Tensor | None, reason: str) -> None:
    r"""Raises a ValueError where weights of edges are given that nothing sums up, for that
    :obj:`reason`."""
    if edge_weight is not None:
        raise ValueError(f"'edge_weight' must be None {reason} (got {tuple(edge_weight.shape)})")


class AttentionLayer(MessagePassing):
    r"""The linear parts of an all-pair attention layer, the checks of its input, and what all such
    layers do with batches and heads. PyG's ``to_hetero`` copies message passing layers for each
    edge type; of what these do nothing else is used."""

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
        self.explain = False  # explainers skip it: masks of edges have no part in it
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
        self.in_channels, self.out_channels, self.heads, self.concat = (
            in_channels,
            out_channels,
            heads,
            concat,
        )
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
        r"""Leaves out PyG's code for messages, which takes a second to make and is not used."""

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters."""
        for module in self.children():
            reset(module)

    def _check_sources(self, x: Tensor) -> None:
        check_features(
            x, self.lin_key if self.lin_value is None else self.lin_value, self.source_channels
        )
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
        sources, targets = (None, batch) if not isinstance(batch, tuple) else check_pair(batch)
        size = state.count.size(0) if batch_size is None and targets is not None else batch_size
        if sources is not None:
            segments(sources, x_src.size(0), size, x_src.device)
        return segments(targets, x_dst.size(0), size, x_dst.device)

    def _heads_merged(self, out: Tensor) -> Tensor:
        return out if self.concat else out.unflatten(1, (self.heads, -1)).mean(1)
