# N nodes, F input width.
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.modules.lazy import LazyModuleMixin

from torch_geometric_lgt.functional.neighbors.edges import SortedEdges
from torch_geometric_lgt.nn._layers.linear_parts import reference


def check_sizes(**sizes: int) -> None:
    r"""Raises a ValueError that names the first size that is not positive."""
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"'{name}' must be positive (got {size})")


def check_width(in_channels: int) -> None:
    r"""Raises a ValueError unless the input channels of a model are positive, or -1 to read them
    from the first input."""
    if not isinstance(in_channels, int) or (in_channels < 1 and in_channels != -1):
        raise ValueError(
            "'in_channels' must be positive, or -1 for the size of the first input (got "
            f'{in_channels})'
        )


def check_channels(in_channels: int | tuple[int, int]) -> tuple[int, int]:
    r"""Returns the input channels of sources and targets.

    Raises:
        ValueError: If one of them is neither positive nor -1.
    """
    pair = (in_channels, in_channels) if isinstance(in_channels, int) else tuple(in_channels)
    if len(pair) != 2 or any(size < 1 and size != -1 for size in pair):
        raise ValueError(
            "'in_channels' must be positive or -1, or a pair of these for sources and targets (got "
            f'{in_channels})'
        )
    return pair


def check_features(x: Tensor, part: torch.nn.Module, in_channels: int) -> None:
    r"""Raises a ValueError unless :obj:`x` is an input ``[N, F]`` of a linear part with
    :obj:`in_channels`; with -1 the first input has any width."""
    is_lazy = isinstance(part, LazyModuleMixin)
    is_known = in_channels == -1 and isinstance(part, Linear) and not is_lazy
    width = part.in_features if is_known else in_channels
    if x.dim() != 2 or (width != -1 and x.size(1) != width):
        raise ValueError(
            f"'x' must have shape [N, {'F' if width == -1 else width}] (got {tuple(x.shape)})"
        )
    weight = reference(part)
    if not is_lazy and weight.numel() == 0:
        return
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise ValueError(
            f"'x' must have the dtype of the parameters, {weight.dtype} (got {x.dtype}); convert "
            f'it with x.to({weight.dtype})'
        )
    check_devices(weight.device, x=x)


def check_devices(device: torch.device, **inputs: Any) -> None:
    r"""Raises a ValueError that names the first tensor or edges outside the device of the
    parameters."""
    for name, value in inputs.items():
        tensor = value.edge_index if isinstance(value, SortedEdges) else value
        if isinstance(tensor, Tensor) and tensor.device != device:
            raise ValueError(
                f"'{name}' must be on the device of the parameters, {device} (got "
                f'{tensor.device}); move it with {name}.to({str(device)!r})'
            )


def check_unused(edge_weight: Tensor | None, reason: str) -> None:
    r"""Raises a ValueError for weights of edges that a layer does not use; the message names the
    :obj:`reason`."""
    if edge_weight is not None:
        raise ValueError(f"'edge_weight' must be None {reason} (got {tuple(edge_weight.shape)})")
