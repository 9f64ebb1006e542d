# N nodes, F input channels, H heads, C channels of a key, D of a value, M features, R rank of the
# mask, K samples.
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import linear

from torch_geometric_lgt._arguments import check_choice, check_number
from torch_geometric_lgt.functional.feature_maps import MAPS, Map
from torch_geometric_lgt.functional.numerics import (
    compute_dtype,
    convert,
    has_dtype,
    without_autocast,
)
from torch_geometric_lgt.functional.tracing import is_watched
from torch_geometric_lgt.typing import Differentiable, DifferentiableOrNone


@dataclass(frozen=True, kw_only=True)
class KernelInput:
    r"""Describes how queries or keys are computed from their input: by an optional linear part,
    then a feature map.

    The linear part is a Linear layer given as :obj:`x`, :obj:`weight` and :obj:`bias`.

    Attributes:
        x (torch.Tensor): The input ``[N, F]``; without :obj:`weight` the queries or keys
            themselves, ``[N, H * C]``.
        heads (int): :math:`H`.
        kind (str): The name of the feature map in :obj:`MAPS`.
        weight (torch.Tensor, optional): ``[H * C, F]`` of the linear part.
        bias (torch.Tensor, optional): ``[H * C]`` of the linear part.
        mask (torch.Tensor, optional): The mask weights ``[N, R]``: :math:`a_r(i)` of queries or
            :math:`b_r(j)` of keys.
        head_projection (torch.Tensor, optional): A matrix ``[M, C]`` for each head, ``[H, M, C]``.
            The feature map gets the product of a query or key and the matrix of its head. For maps
            without a projection.
        projection (torch.Tensor, optional): ``[M, C]`` of the feature map, if it has one.
        data_normalizer (float): Factor of queries or keys before the feature map, as in the
            authors' code of Performer: the root of the factor of the logits.
        power (float): Power of the feature map :obj:`"focused"`.
        samples (int): :math:`K`, how many times the keys are weighed.
        noise (torch.Tensor, optional): The log-weights ``[N, H * K]`` of keys in the :math:`K`
            samples.
        self_value (torch.Tensor, optional): A value of each query, ``[N, H * D]``, that its
            weighted mean includes with weight 1.
    """

    x: Differentiable
    heads: int
    kind: str
    weight: DifferentiableOrNone = None
    bias: DifferentiableOrNone = None
    mask: DifferentiableOrNone = None
    head_projection: DifferentiableOrNone = None
    projection: Tensor | None = None
    data_normalizer: float = 1.0
    power: float = 1.0
    samples: int = 1
    noise: Tensor | None = None
    self_value: DifferentiableOrNone = None

    @property
    def map(self) -> Map:
        r"""Returns the feature map object with the name :attr:`kind`."""
        return MAPS[self.kind]

    def rank(self) -> int:
        r"""Returns the rank :math:`R` of the mask, 1 without a mask."""
        return 1 if self.mask is None else self.mask.shape[1]

    def channels(self) -> int:
        r"""Returns :math:`C`, the channels of a query or key per head."""
        return (self.x.shape[1] if self.weight is None else self.weight.shape[0]) // self.heads

    def num_features(self) -> int:
        r"""Returns the number of features per head: :math:`M` of the feature map times :math:`K`
        samples."""
        matrices = self.head_projection
        channels = self.channels() if matrices is None else matrices.shape[1]
        return self.samples * self.map.num_features(channels, self.projection)

    def aligned(self) -> 'KernelInput':
        r"""Returns a copy whose parameters and noise have the dtype of sums (:meth:`compute_dtype`
        of :obj:`x`), or the object itself if they have it."""
        dtype = compute_dtype(self.x.dtype)
        parameters = {
            'weight': self.weight,
            'bias': self.bias,
            'mask': self.mask,
            'head_projection': self.head_projection,
            'projection': self.projection,
            'noise': self.noise,
        }
        if has_dtype(dtype, *parameters.values()):
            return self
        return replace(self, **{name: convert(x, dtype) for name, x in parameters.items()})


@dataclass(frozen=True, kw_only=True)
class LinearInput:
    r"""Describes values, or other outputs of a Linear layer, that are computed later.

    Attributes:
        x (torch.Tensor): The input ``[N, F]``; without :obj:`weight` the output itself,
            ``[N, H * D]``.
        weight (torch.Tensor, optional): ``[H * D, F]``.
        bias (torch.Tensor, optional): ``[H * D]``.
    """

    x: Differentiable
    weight: DifferentiableOrNone = None
    bias: DifferentiableOrNone = None

    def channels(self, heads: int) -> int:
        r"""Returns :math:`D`, the channels of the output per head."""
        return (self.x.shape[1] if self.weight is None else self.weight.shape[0]) // heads

    def aligned(self) -> 'LinearInput':
        r"""Returns a copy with weight and bias in the dtype of sums (:meth:`compute_dtype` of
        :obj:`x`), or the object itself if they have it."""
        dtype = compute_dtype(self.x.dtype)
        if has_dtype(dtype, self.weight, self.bias):
            return self
        weight, bias = convert(self.weight, dtype), convert(self.bias, dtype)
        return LinearInput(x=self.x, weight=weight, bias=bias)

    def output(self) -> Tensor:
        r"""Computes the output ``[N, H * D]`` in at least single precision."""
        x = self.x.to(compute_dtype(self.x.dtype))
        if self.weight is None:
            return x
        return linear(x, self.weight.to(x.dtype), convert(self.bias, x.dtype))


def fold_projection(
    projection: Tensor, weight: Tensor, bias: Tensor | None, heads: int
) -> tuple[Tensor, Tensor | None]:
    r"""Multiplies a projection into a Linear layer, so that one product computes all logits.

    Args:
        projection (torch.Tensor): ``[M, C]`` for all heads, or ``[H, M, C]``.
        weight (torch.Tensor): The weight ``[H * C, F]`` of the layer.
        bias (torch.Tensor, optional): The bias ``[H * C]`` of the layer.
        heads (int): :math:`H`.

    Returns:
        The weight ``[H * M, F]`` and the bias ``[H * M]`` of the logits.
    """
    weight = torch.matmul(projection, weight.unflatten(0, (heads, -1))).flatten(0, 1)
    if bias is not None:
        bias = torch.matmul(projection, bias.view(heads, -1, 1)).flatten()
    return weight, bias


def folding_saves_work(inputs: KernelInput) -> bool:
    r"""Returns whether a linear part with a folded projection (:meth:`fold_projection`) takes at
    most as many products as the linear part and the projection in turn. The products that fold
    them do not count where the code is compiled or watched, for any number of nodes."""
    if inputs.weight is None:
        return False
    num_nodes, width = inputs.x.shape
    channels = inputs.channels()
    num_features = inputs.num_features() // inputs.samples
    saved = channels * (width + num_features) - num_features * width
    if is_watched():
        return saved >= 0
    return num_nodes * saved >= num_features * channels * width


def fold_head_projection(inputs: KernelInput) -> KernelInput:
    r"""Multiplies the matrices of the heads, if there are any, into the linear part. Returns
    :obj:`inputs` itself unless this saves work."""
    if inputs.head_projection is None or not folding_saves_work(inputs):
        return inputs
    inputs = inputs.aligned()
    weight, bias, matrices = cast(Tensor, inputs.weight), inputs.bias, inputs.head_projection
    with without_autocast(inputs.x.device.type):
        weight, bias = fold_projection(cast(Tensor, matrices), weight, bias, inputs.heads)
    return replace(inputs, weight=weight, bias=bias, head_projection=None)


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
        ValueError: If :obj:`x` has another shape or is not of floating point, :obj:`feature_map` is
            unknown, :obj:`power` is below 1, or :obj:`projection`, :obj:`mask` or :obj:`noise` does
            not fit. If a constant requires a gradient.
    """
    check_by_head(x)
    if feature_map not in MAPS or not MAPS[feature_map].is_public:
        known = [name for name, each in MAPS.items() if each.is_public]
        geometries = (
            "; the maps 'positive', 'orthogonal' and 'simplex' of layers are 'softmax' with such a "
            'projection'
        )
        hint = "; apply the module to queries and keys, and pass 'values' with its outputs"
        is_module = isinstance(feature_map, torch.nn.Module)
        check_choice('feature_map', feature_map, known, geometries, hint if is_module else '')
    has_projection = MAPS[feature_map].has_projection
    if has_projection != (projection is not None):
        need = (
            "must be given; draw one with 'gaussian_projection'"
            if has_projection
            else 'must be None'
        )
        raise ValueError(f"'projection' {need} for the feature map {feature_map!r}")
    check_constant('projection', projection)
    check_constant('key_noise', noise)
    for name, number in (('scale', data_normalizer), ('power', power)):
        if isinstance(number, Tensor) and number.numel() == 1:
            check_constant(name, number)
        elif not isinstance(number, (int, float)):
            check_number(name, number)
    if not power >= 1:
        raise ValueError(f"'power' must be at least 1 (got {power})")
    if projection is not None and projection.shape[1:] != x.shape[2:]:
        raise ValueError(
            f"'projection' must have shape [M, {x.size(2)}] for {x.size(2)} channels (got "
            f'{tuple(projection.shape)})'
        )
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


def no_values(keys: KernelInput) -> LinearInput:
    r"""Returns the description of values without channels, for a state of :obj:`keys` alone."""
    return LinearInput(x=keys.x, weight=keys.x.new_empty((0, keys.x.size(1))))


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


def rounding_share(queries: KernelInput) -> float:
    r"""Returns a bound of the rounding error of a denominator, divided by its largest term. The
    terms are a positive constant and inner products of vectors of at most unit length.

    An inner product of :math:`C` channels has an error of at most :math:`C + 8` units of rounding.
    For Frobenius norms the bound is 64 times larger, because another pass may have computed the
    norms with other rounding errors.
    """
    units = (queries.channels() + 8) * (1 if queries.map.has_unit_rows else 64)
    return units * torch.finfo(compute_dtype(queries.x.dtype)).eps
