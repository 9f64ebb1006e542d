# N nodes, G graphs walked together, n nodes of each, F input width, H heads, C channels of a key, D of a value, M features, R rank,
# K samples.
from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_lgt.functional.feature_maps import BIASED_KINDS, LINEAR_KINDS, PROJECTED_KINDS, UNIT_KINDS
from torch_geometric_lgt.functional.numerics import compute_dtype, convert

SAMPLED_KINDS = ('softmax', 'logits')


class Side(NamedTuple):
    r"""What makes queries or keys: the linear part of :obj:`x` (none: :obj:`x` itself), the mask weights ``[N, R]``, the feature map, the
    number of samples with the log-weights ``[N, H * K]`` that keys have in them, and the values ``[N, H * D]`` that each query adds to its
    sum with weight 1."""

    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    mask: Tensor | None
    projection: Tensor | None
    kind: str
    scale: float
    power: float
    heads: int
    samples: int = 1
    noise: Tensor | None = None
    own: Tensor | None = None

    def rank(self) -> int:
        return 1 if self.mask is None else self.mask.shape[1]

    def channels(self) -> int:
        return (self.x.shape[1] if self.weight is None else self.weight.shape[0]) // self.heads

    def num_features(self) -> int:
        drawn = self.channels() + (self.kind in BIASED_KINDS) if self.projection is None else self.projection.shape[0]
        return self.samples * (2 * drawn if self.kind == 'fourier' else drawn)

    def aligned(self) -> 'Side':
        r"""The same side with its parameters in the dtype that sums are computed in."""
        dtype = compute_dtype(self.x.dtype)
        return self._replace(**{name: convert(getattr(self, name), dtype) for name in ('weight', 'bias', 'mask', 'projection', 'noise')})


def plain_side(
    x: Tensor,
    mask: Tensor | None,
    feature_map: str,
    projection: Tensor | None,
    scale: float,
    power: float,
    samples: int = 1,
    noise: Tensor | None = None,
) -> Side:
    r"""The side of given queries or keys ``[N, H, C]``.

    Raises:
        ValueError: If the shape is another, :obj:`feature_map` is unknown, or :obj:`projection`, :obj:`mask` or :obj:`noise` does not fit.
    """
    if x.dim() != 3:
        raise ValueError(f'queries, keys and values must have shape [N, H, C] (got {tuple(x.shape)})')
    drawn = feature_map in PROJECTED_KINDS
    if feature_map not in (*PROJECTED_KINDS, *LINEAR_KINDS, 'elu', 'logits'):
        known = (*PROJECTED_KINDS, 'relu', 'focused', 'values', 'elu', 'logits')
        geometries = "the maps 'positive', 'orthogonal' and 'simplex' of layers are 'softmax' with such a projection"
        raise ValueError(f"'feature_map' must be one of {known}; {geometries} (got {feature_map!r})")
    if drawn != (projection is not None):
        need = "must be given; draw one with 'gaussian_projection'" if drawn else 'must be None'
        raise ValueError(f"'projection' {need} for the feature map {feature_map!r}")
    check_projection(projection)
    if projection is not None and projection.shape[1:] != x.shape[2:]:
        raise ValueError(f"'projection' must have shape [M, {x.size(2)}] for {x.size(2)} channels (got {tuple(projection.shape)})")
    if mask is not None and (mask.dim() != 2 or mask.size(0) != x.size(0)):
        raise ValueError(f'mask weights must have shape [{x.size(0)}, R] (got {tuple(mask.shape)})')
    if noise is not None and (noise.dim() != 3 or noise.shape[:2] != x.shape[:2]):
        raise ValueError(f"'key_noise' must have shape [{x.size(0)}, {x.size(1)}, K] (got {tuple(noise.shape)})")
    if noise is not None or samples > 1:
        check_samples(feature_map, mask)
        samples = samples if noise is None else noise.size(2)
        noise = None if noise is None else noise.flatten(1)
    return Side(x.flatten(1), None, None, mask, projection, feature_map, scale, power, x.size(1), samples, noise)


def check_samples(kind: str, mask: Tensor | None) -> None:
    if kind not in SAMPLED_KINDS or mask is not None:
        raise ValueError(
            f'samples need one of the feature maps {SAMPLED_KINDS} and no mask (got {kind!r} and {"a" if mask is not None else "no"} mask)'
        )


class Values(NamedTuple):
    r"""What makes the values: the linear part of :obj:`x` (none: :obj:`x` itself); :obj:`x` is :obj:`None` where it is that of the keys."""

    x: Tensor | None
    weight: Tensor | None
    bias: Tensor | None

    def channels(self, keys: Side) -> int:
        x = keys.x if self.x is None else self.x
        return (x.shape[1] if self.weight is None else self.weight.shape[0]) // keys.heads

    def aligned(self, keys: Side) -> 'Values':
        r"""The same values with their parameters in the dtype that sums are computed in."""
        dtype = compute_dtype(keys.x.dtype)
        return Values(self.x, convert(self.weight, dtype), convert(self.bias, dtype))


def plain_values(v: Tensor, k: Tensor) -> Values:
    r"""Given values ``[N, H, D]``.

    Raises:
        ValueError: If they are not as many as the keys, or of other heads.
    """
    if v.dim() != 3 or v.shape[:2] != k.shape[:2]:
        raise ValueError(f"'v' must have shape [{k.size(0)}, {k.size(1)}, D] beside the keys (got {tuple(v.shape)})")
    return Values(v.flatten(1), None, None)


def check_projection(projection: Tensor | None) -> None:
    r"""Raises a ValueError if gradients are asked for that are not computed."""
    if projection is not None and projection.requires_grad:
        raise ValueError("'projection' must not require a gradient, features have none for it; give projection.detach()")


def rounding_share(side: Side) -> float:
    r"""Bounds the rounding errors in the sum of a positive constant and of inner products of vectors of at most unit length, as a share of
    the constant. Those of :math:`C` products are at most :math:`C + 8` units. Frobenius norms may be of vectors that were evaluated
    elsewhere, with other rounding errors in their linear part."""
    units = (side.channels() + 8) * (1 if side.kind in UNIT_KINDS else 64)
    return units * torch.finfo(compute_dtype(side.x.dtype)).eps
