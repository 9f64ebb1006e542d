# N nodes, F input channels, H heads, C channels of a key, D of a value, M features, R rank of the
# mask, K samples.
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import linear

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


def no_values(keys: KernelInput) -> LinearInput:
    r"""Returns the description of values without channels, for a state of :obj:`keys` alone."""
    return LinearInput(x=keys.x, weight=keys.x.new_empty((0, keys.x.size(1))))


def rounding_share(queries: KernelInput) -> float:
    r"""Returns a bound of the rounding error of a denominator, divided by its largest term. The
    terms are a positive constant and inner products of vectors of at most unit length.

    An inner product of :math:`C` channels has an error of at most :math:`C + 8` units of rounding.
    For Frobenius norms the bound is 64 times larger, because another pass may have computed the
    norms with other rounding errors.
    """
    units = (queries.channels() + 8) * (1 if queries.map.has_unit_rows else 64)
    return units * torch.finfo(compute_dtype(queries.x.dtype)).eps
