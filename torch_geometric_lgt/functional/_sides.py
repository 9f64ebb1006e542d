# N nodes, G graphs walked together, n nodes of each, F input width, H heads, C channels of a key, D of a value, M features, R rank,
# K samples.
import math
from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_lgt.functional.feature_maps import BIASED_KINDS, LINEAR_KINDS, PROJECTED_KINDS, UNIT_KINDS

CHUNK_ELEMENTS = 1 << 18
SAMPLED_KINDS = ('softmax', 'logits')
Nodes = Tensor | slice


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def convert(x: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    return None if x is None else x.to(dtype)


def neutral(dtype: torch.dtype) -> float:
    r"""The maximum of no key: finite, so that differences of maxima stay numbers."""
    return torch.finfo(dtype).min / 4


def largest_power(dtype: torch.dtype) -> float:
    r"""A number whose exponential is finite."""
    return math.log(torch.finfo(dtype).max) - 1


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


def rows(side: Side) -> int:
    r"""Nodes of a chunk: its features fill the nearest cache."""
    return min(4096, max(64, CHUNK_ELEMENTS // (side.heads * side.num_features())))


def check_projection(projection: Tensor | None) -> None:
    r"""Raises a ValueError if gradients are asked for that are not computed."""
    if projection is not None and projection.requires_grad:
        raise ValueError("'projection' must not require a gradient, features have none for it; give projection.detach()")


def inverse_of(x: Tensor) -> Tensor:
    r"""1 over each number; where it is 0 or too small for that, 0 with a gradient of 0."""
    return x.masked_fill(x.abs() < torch.finfo(x.dtype).tiny, torch.inf).reciprocal_()


def rounding_share(side: Side) -> float:
    r"""Bounds the rounding errors in the sum of a positive constant and of inner products of vectors of at most unit length, as a share of
    the constant. Those of :math:`C` products are at most :math:`C + 8` units. Frobenius norms may be of vectors that were evaluated
    elsewhere, with other rounding errors in their linear part."""
    units = (side.channels() + 8) * (1 if side.kind in UNIT_KINDS else 64)
    return units * torch.finfo(compute_dtype(side.x.dtype)).eps


def without_cancellation(denominator: Tensor, least: Tensor | float) -> Tensor:
    r"""Sets denominators to 0 where no more than rounding errors is left of terms that cancel."""
    return denominator.masked_fill(denominator.abs() <= least, 0)


def take(x: Tensor, nodes: Nodes) -> Tensor:
    x = x[nodes]
    return x.to(compute_dtype(x.dtype))


def split(x: Tensor, graphs: int, heads: int) -> Tensor:
    r"""``[G * n, H * C]`` as ``[G, H, n, C]``, a view; n is 1 if there are no graphs."""
    return x.unflatten(0, (graphs, x.size(0) // graphs if graphs > 0 else 1)).unflatten(-1, (heads, -1)).transpose(1, 2)


def join(x: Tensor) -> Tensor:
    return x.transpose(1, 2).reshape(x.size(0) * x.size(2), -1)


def mask_of(side: Side, nodes: Nodes, graphs: int) -> Tensor | None:
    r"""``[G, 1, n, R]``."""
    return None if side.mask is None else split(take(side.mask, nodes), graphs, 1)


def noise_of(side: Side, nodes: Nodes, graphs: int) -> Tensor | None:
    r"""``[G, H, n, K]``."""
    return None if side.noise is None else split(take(side.noise, nodes), graphs, side.heads)


def own_of(side: Side, nodes: Nodes, graphs: int) -> Tensor | None:
    r"""``[G, H, n, D]``."""
    return None if side.own is None else split(take(side.own, nodes), graphs, side.heads)


class Affine:
    r"""Linear parts of one input, evaluated as one and chunk by chunk. Each part is a weight, a bias and the factor of both; without a
    weight it is the input itself."""

    def __init__(self, x: Tensor, *parts: tuple[Tensor | None, Tensor | None, float]) -> None:
        self.x = x
        self.scales = [scale for _, _, scale in parts]
        weights = [weight * scale for weight, _, scale in parts if weight is not None]
        biases = [bias * scale for _, bias, scale in parts if bias is not None]
        self.weight = torch.cat(weights) if weights else None
        self.transposed = None if self.weight is None else self.weight.t().contiguous()
        self.bias = torch.cat(biases) if biases else None

    def __call__(self, nodes: Nodes) -> tuple[Tensor, Tensor]:
        x = take(self.x, nodes)
        if self.transposed is None:
            return x, x if self.scales[0] == 1.0 else x * self.scales[0]
        return x, x @ self.transposed if self.bias is None else torch.addmm(self.bias, x, self.transposed)


class AffineGrad:
    r"""Collects the gradients of an :class:`Affine`; that of the input may be shared with another one's."""

    def __init__(self, affine: Affine, shared: Tensor | None = None) -> None:
        self.affine = affine
        self.x = torch.zeros_like(affine.x, dtype=compute_dtype(affine.x.dtype)) if shared is None else shared
        self.weight, self.bias = (None if t is None else torch.zeros_like(t) for t in (affine.transposed, affine.bias))

    def add(self, nodes: Nodes, x: Tensor, grad: Tensor) -> None:
        if self.weight is None or self.affine.weight is None:
            self.x[nodes] += grad if self.affine.scales[0] == 1.0 else grad * self.affine.scales[0]
            return
        if isinstance(nodes, slice):
            self.x[nodes].addmm_(grad, self.affine.weight)
        else:
            self.x[nodes] += grad @ self.affine.weight
        self.weight.addmm_(x.t(), grad)
        if self.bias is not None:
            self.bias += grad.sum(0)

    def parameters(self, *lengths: int) -> list[Tensor | None]:
        r"""The gradients of weight and bias of each part, given the parts' lengths."""
        weight = None if self.weight is None else self.weight.t().contiguous()
        out = []
        for part, scale in enumerate(self.affine.scales):
            out += [None if t is None else t.split(lengths)[part] * scale for t in (weight, self.bias)]
        return out
