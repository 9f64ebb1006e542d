r"""Checks and converts the arguments that all layers with a feature map have."""

import math
from typing import Any

from torch.nn import Module

from torch_geometric_lgt._arguments import check_number
from torch_geometric_lgt.nn.feature_map import FeatureMap, check_kind

TINY_TEMPERATURE = 1e-30


def make_feature_map(
    feature_map: str | Module, channels: int, num_features: int | None, heads: int
) -> Module:
    r"""Creates the feature map that :obj:`feature_map` names, for :obj:`channels` of a key in each
    of the :obj:`heads`. A module is returned as it is.

    Raises:
        ValueError: If the name is unknown, :obj:`num_features` does not fit it or comes with a
            module, or a module is for other channels or heads.
    """
    if not isinstance(feature_map, Module):
        check_kind('feature_map', feature_map, ' or a module')
        return FeatureMap(feature_map, channels, num_features, heads=heads)
    if num_features is not None:
        raise ValueError(
            f"'num_features' must be None with a module as 'feature_map' (got {num_features})"
        )
    map_channels = getattr(feature_map, 'channels', channels)
    if map_channels != channels:
        raise ValueError(
            f"'feature_map' must be of {channels} channels, those of a head (got {map_channels})"
        )
    is_learned = isinstance(feature_map, FeatureMap) and feature_map.is_learned
    if is_learned and feature_map.heads != heads:
        raise ValueError(
            f"'feature_map' must have 'heads' = {heads}, as the layer, if it is learned (got "
            f'{feature_map.heads})'
        )
    return feature_map


def check_temperature(temperature: float) -> None:
    r"""Raises a ValueError unless :obj:`temperature` is a positive finite number."""
    check_number('temperature', temperature)
    if not TINY_TEMPERATURE <= temperature < math.inf:
        raise ValueError(
            f"'temperature' must be positive and finite, at least {TINY_TEMPERATURE} (got "
            f'{temperature})'
        )


def check_scale(scale: float | None, has_logits: bool, feature_map: Any) -> None:
    r"""Raises a ValueError unless :obj:`scale` is :obj:`None`, or a positive finite number for a
    feature map with logits (:obj:`has_logits`). The message names the argument
    :obj:`feature_map`."""
    if scale is None:
        return
    check_number('scale', scale)
    if not has_logits:
        raise ValueError(
            "'scale' must be None unless 'feature_map' is 'positive', 'orthogonal', 'simplex' or "
            f"'fourier' (got {scale} and {feature_map!r})"
        )
    if not 0 < scale < math.inf:
        raise ValueError(f"'scale' must be positive and finite (got {scale})")
