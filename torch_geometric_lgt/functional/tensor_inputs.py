r"""Checks the tensors that functions take as queries, keys and values, and describes them as
inputs without a linear part."""

# N nodes, H heads, C channels of a key, D of a value, M features, R rank of the mask, K samples.
from typing import Any

import torch
from torch import Tensor

from torch_geometric_lgt._arguments import check_choice, check_number
from torch_geometric_lgt.functional.feature_maps import MAPS
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput
from torch_geometric_lgt.functional.numerics import compute_dtype


def kernel_input(
    x: Tensor,
    mask: Tensor | None,
    feature_map: str,
    projection: Tensor | None,
    data_normalizer: float,
    power: float,
    samples: int = 1,
    noise: Tensor | None = None,
) -> KernelInput:
    r"""Collects queries or keys :obj:`x` ``[N, H, C]``, which no Linear layer follows, and their
    settings in a :class:`KernelInput`, after checks.

    :obj:`mask` ``[N, R]`` has the mask weights and :obj:`noise` ``[N, H, K]`` the log-weights of
    keys in :math:`K` samples. With :obj:`noise`, :obj:`samples` is ignored.

    Raises:
        ValueError: As :meth:`check_map_arguments` raises. If :obj:`mask` or :obj:`noise` does not
            fit, or :obj:`noise` requires a gradient.
    """
    check_map_arguments(x, feature_map, projection, data_normalizer, power)
    check_constant('key_noise', noise)
    if mask is not None and (mask.dim() != 2 or mask.size(0) != x.size(0) or mask.size(1) == 0):
        raise ValueError(
            f"'query_mask' and 'key_mask' must have shape [{x.size(0)}, R] with at least one "
            f'column (got {tuple(mask.shape)})'
        )
    if noise is not None and (
        noise.dim() != 3 or noise.shape[:2] != x.shape[:2] or noise.size(2) == 0
    ):
        raise ValueError(
            f"'key_noise' must have shape [{x.size(0)}, {x.size(1)}, K] with at least one sample "
            f'(got {tuple(noise.shape)})'
        )
    if noise is not None or samples > 1:
        check_samples(feature_map, mask)
        samples = samples if noise is None else noise.size(2)
        noise = None if noise is None else noise.flatten(1)
    return KernelInput(
        x=x.flatten(1),
        heads=x.size(1),
        kind=feature_map,
        mask=mask,
        projection=projection,
        data_normalizer=data_normalizer,
        power=power,
        samples=samples,
        noise=noise,
    )


def check_map_arguments(
    x: Tensor, feature_map: str, projection: Tensor | None, scale: float, power: float
) -> None:
    r"""Checks queries or keys :obj:`x` ``[N, H, C]``, and the arguments of tensor functions for
    their feature map.

    Raises:
        ValueError: If :obj:`x` has another shape or is not of floating point, :obj:`feature_map` is
            unknown, :obj:`power` is below 1, or :obj:`projection` does not fit. If a constant
            requires a gradient.
    """
    check_by_head(x)
    if feature_map not in MAPS or not MAPS[feature_map].is_public:
        _refuse_map(feature_map)
    has_projection = MAPS[feature_map].has_projection
    if has_projection != (projection is not None):
        fix = "be given; draw one with 'gaussian_projection'" if has_projection else 'be None'
        raise ValueError(f"'projection' must {fix} for the feature map {feature_map!r}")
    check_constant('projection', projection)
    for name, number in (('scale', scale), ('power', power)):
        if isinstance(number, (int, float)):
            continue
        if isinstance(number, Tensor) and number.numel() == 1:
            check_constant(name, number)
        else:
            check_number(name, number)
    if not power >= 1:
        raise ValueError(f"'power' must be at least 1 (got {power})")
    if projection is not None and projection.shape[1:] != x.shape[2:]:
        raise ValueError(
            f"'projection' must have shape [M, {x.size(2)}] for {x.size(2)} channels (got "
            f'{tuple(projection.shape)})'
        )


def _refuse_map(feature_map: Any) -> None:
    r"""Raises a ValueError for an argument :obj:`feature_map` that names no public map."""
    known = [name for name, each in MAPS.items() if each.is_public]
    geometries = (
        "; the maps 'positive', 'orthogonal' and 'simplex' of layers are 'softmax' with such a "
        'projection'
    )
    hint = "; apply the module to queries and keys, and pass 'values' with its outputs"
    is_module = isinstance(feature_map, torch.nn.Module)
    check_choice('feature_map', feature_map, known, geometries, hint if is_module else '')


def check_samples(kind: str, mask: Tensor | None) -> None:
    r"""Raises a ValueError unless keys may have random log-weights (samples): the feature map
    :obj:`kind` must allow it, and :obj:`mask` must be :obj:`None`."""
    if not MAPS[kind].takes_samples or mask is not None:
        sampled = tuple(name for name, each in MAPS.items() if each.takes_samples)
        raise ValueError(
            f'samples need one of the feature maps {sampled} and no mask (got {kind!r} and '
            f'{"a" if mask is not None else "no"} mask)'
        )


def value_input(v: Tensor, k: Tensor) -> LinearInput:
    r"""Returns the description of values :obj:`v` ``[N, H, D]`` that need no linear part; :obj:`k`
    ``[N, H, C]`` are the keys.

    Raises:
        ValueError: If :obj:`v` has other numbers of nodes or heads than :obj:`k`, or sums of
            another dtype.
    """
    if v.dim() != 3 or v.shape[:2] != k.shape[:2]:
        raise ValueError(
            f"'v' must have shape [{k.size(0)}, {k.size(1)}, D] beside the keys (got "
            f'{tuple(v.shape)})'
        )
    if compute_dtype(v.dtype) != compute_dtype(k.dtype):
        raise ValueError(f"'v' must be of {k.dtype} as 'k' (got {v.dtype}); use v.to(k)")
    return LinearInput(x=v.flatten(1))


def check_by_head(x: Tensor) -> None:
    r"""Raises a ValueError unless queries or keys :obj:`x` are of floating point and have the shape
    ``[N, H, C]``, with at least one head and channel. A TypeError is raised if they are no
    tensor."""
    check_tensor('queries and keys', x)
    if x.dim() != 3 or 0 in x.shape[1:]:
        raise ValueError(
            'queries and keys must have shape [N, H, C], with at least one head and channel (got '
            f'{tuple(x.shape)})'
        )
    if not x.is_floating_point():
        raise ValueError(
            f'queries and keys must be of floating point (got {x.dtype}); convert them with float()'
        )


def check_tensor(names: str, x: Any) -> None:
    r"""Raises a TypeError, which calls :obj:`x` by :obj:`names`, unless it is a tensor."""
    if not isinstance(x, Tensor):
        raise TypeError(
            f'{names} must be of type Tensor (got {type(x).__name__}); convert with torch.as_tensor'
        )


def check_constant(name: str, value: Tensor | None) -> None:
    r"""Raises a ValueError if the argument called :obj:`name` requires a gradient, because none is
    computed."""
    if value is not None and value.requires_grad:
        raise ValueError(
            f"'{name}' must not require a gradient, features have none for it; give {name}.detach()"
        )
