# N nodes (N_s source, N_t target), E pairs, H heads, F input width.
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear
from torch_geometric.nn.inits import reset

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional._sides import Values
from torch_geometric_lgt.functional.edges import SortedEdges
from torch_geometric_lgt.functional.segment import Segments, check_pair, segments
from torch_geometric_lgt.nn._parts import is_plain, linear_part, reference
from torch_geometric_lgt.typing import Batch


def check_sizes(**sizes: int) -> None:
    r"""Raises a ValueError that names the first of the sizes that is not positive."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"'{name}' must be positive (got {size})")


def check_features(x: Tensor, part: torch.nn.Module, in_channels: int) -> None:
    r"""Raises a ValueError unless :obj:`x` is an input ``[N, F]`` of a linear part of :obj:`in_channels`."""
    if x.dim() != 2 or x.size(1) != in_channels:
        raise ValueError(f"'x' must have shape [N, {in_channels}] (got {tuple(x.shape)})")
    weight = reference(part)
    if weight.numel() == 0:
        return
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(f"'x' must have the dtype of the parameters, {weight.dtype} (got {x.dtype}); convert it with x.to({weight.dtype})")
    check_devices(weight.device, x=x)


def check_devices(device: torch.device, **given: Any) -> None:
    r"""Raises a ValueError that names the first of the tensors, or edges, that is not on the device of the parameters."""
    for name, value in given.items():
        tensor = value.edge_index if isinstance(value, SortedEdges) else value
        if isinstance(tensor, Tensor) and tensor.device != device:
            raise ValueError(
                f"'{name}' must be on the device of the parameters, {device} (got {tensor.device}); move it with {name}.to({str(device)!r})"
            )


class AttentionLayer(torch.nn.Module):
    r"""The linear parts of an all-pair attention layer, the checks of its input, and what all such layers do with batches and heads."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        heads: int,
        concat: bool,
        value_projection: bool,
        bias: bool,
        key_channels: int | None = None,
    ) -> None:
        super().__init__()
        check_sizes(in_channels=in_channels)
        if heads < 1 or out_channels < 1 or (concat and out_channels % heads != 0):
            raise ValueError(f"'heads' must divide 'out_channels' (got {heads} and {out_channels})")
        if not value_projection and in_channels != out_channels:
            raise ValueError(
                f"'value_projection' = False needs as many 'in_channels' as 'out_channels' (got {in_channels} and {out_channels})"
            )
        if not value_projection and not concat:
            raise ValueError("'value_projection' = False needs 'concat' = True (got False)")
        self.in_channels, self.out_channels, self.heads, self.concat = in_channels, out_channels, heads, concat
        self.head_channels = out_channels // heads if concat else out_channels
        width = self.head_channels * heads
        key_width = width if key_channels is None else key_channels
        if key_width < 1 or key_width % heads != 0:
            raise ValueError(f"'heads' must divide 'key_channels' (got {heads} and {key_channels})")
        self.head_key_channels = key_width // heads
        self.lin_query = Linear(in_channels, key_width, bias=bias)
        self.lin_key = Linear(in_channels, key_width, bias=bias)
        self.lin_value = Linear(in_channels, width, bias=bias) if value_projection else None

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters."""
        for module in self.children():
            reset(module)

    def _check(self, x: Tensor) -> None:
        check_features(x, self.lin_key if self.lin_value is None else self.lin_value, self.in_channels)

    def _value(self, x: Tensor) -> Tensor:
        return x if self.lin_value is None else self.lin_value(x)

    def _values(self, x: Tensor, shared: bool) -> Values:
        r"""What makes the values of :obj:`x`, :obj:`shared` with the keys."""
        values = Values(x, None, None) if self.lin_value is None else Values(*linear_part(self.lin_value, x))
        return values._replace(x=None) if shared and is_plain(self.lin_value) else values

    @staticmethod
    def _targets(state: AttentionState, x_src: Tensor, x_dst: Tensor, batch: Batch, batch_size: int | None) -> Segments:
        sources, targets = (None, batch) if not isinstance(batch, tuple) else check_pair(batch)
        size = state.count.size(0) if batch_size is None and targets is not None else batch_size
        if sources is not None:
            segments(sources, x_src.size(0), size, x_src.device)
        return segments(targets, x_dst.size(0), size, x_dst.device)

    def _heads_merged(self, out: Tensor) -> Tensor:
        return out if self.concat else out.unflatten(1, (self.heads, -1)).mean(1)
