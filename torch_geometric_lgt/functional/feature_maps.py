# H heads, C channels per head, M features, `...` any leading dimensions.
import math
from functools import partial
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import pad

PROJECTED_KINDS = ('softmax', 'fourier')
BIASED_KINDS = ('biased', 'biased_unit')
UNIT_KINDS = ('unit', 'biased_unit')
LINEAR_KINDS = ('relu', 'focused', 'values', 'unit', *BIASED_KINDS)


def gaussian_projection(
    num_features: int,
    channels: int,
    geometry: str = 'orthogonal',
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Draws :math:`\mathbf{W} = \mathbf{D} \mathbf{S} \mathbf{R}` for positive random features, in
    float64.

    :math:`\mathbf{R}` is Haar-orthogonal, :math:`D_{ii} \sim \chi_C` and :math:`\mathbf{S}` the
    identity (:obj:`"orthogonal"`, `"Rethinking Attention with Performers"
    <https://arxiv.org/abs/2009.14794>`_) or the rows of a regular simplex (:obj:`"simplex"`, Eq. 7
    of "Masked Graph Transformer for Large-Scale Recommendation"): unit rows with pairwise inner
    products :math:`-1/(C-1)`. :obj:`"positive"` draws independent Gaussian rows. More than
    :obj:`channels` features are drawn in independent blocks; a block that is cut keeps the geometry
    among its rows.

    Args:
        num_features (int): Number of rows :math:`M`.
        channels (int): Number of columns :math:`C`.
        geometry (str, optional): :obj:`"positive"`, :obj:`"orthogonal"` or :obj:`"simplex"`.
            (default: :obj:`"orthogonal"`)
        generator (torch.Generator, optional): To draw from, on its device. (default: :obj:`None`,
            the global one)

    Raises:
        ValueError: If a size is not positive, :obj:`geometry` is unknown, or a simplex is asked for
            with one channel.
    """
    if num_features < 1 or channels < 1:
        raise ValueError(
            f"'num_features' and 'channels' must be positive (got {num_features} and {channels})"
        )
    if geometry not in ('positive', 'orthogonal', 'simplex'):
        raise ValueError(
            f"'geometry' must be 'positive', 'orthogonal' or 'simplex' (got {geometry!r})"
        )
    if geometry == 'simplex' and channels == 1:
        raise ValueError(
            "'geometry' = 'simplex' needs at least 2 channels (got 1); use 'orthogonal'"
        )
    draw = partial(
        torch.randn,
        dtype=torch.float64,
        generator=generator,
        device=None if generator is None else generator.device,
    )
    if geometry == 'positive':
        return draw(num_features, channels)
    blocks = []
    for start in range(0, num_features, channels):
        rotation, upper = torch.linalg.qr(draw(channels, channels))
        rotation = rotation * upper.diagonal().sign()
        rows = (
            rotation
            if geometry == 'orthogonal'
            else simplex_rows(channels, rotation.device) @ rotation
        )
        norms = draw(channels, channels).norm(dim=1, keepdim=True)
        blocks.append((rows * norms)[: num_features - start])
    return torch.cat(blocks)


def simplex_rows(m: int, device: torch.device | None = None) -> Tensor:
    r"""The :math:`m` unit rows of a regular simplex in :math:`m` dimensions, with pairwise inner
    products :math:`-1/(m-1)`, in float64."""
    centred = torch.eye(m, dtype=torch.float64, device=device) - 1.0 / m
    return centred * math.sqrt(m / (m - 1))


def log_features(
    kind: str, x: Tensor, projection: Tensor | None, power: float, squared: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    r"""The features :math:`\phi_m(\mathbf{x}) = s_m \exp(l_m)` as the pair :math:`(l, s)`, each
    :obj:`None` where it is constant.

    =============  ==========================================================================  ======================
    kind           :math:`l`                                                                   :math:`s`
    =============  ==========================================================================  ======================
    ``softmax``    :math:`\mathbf{w}_m^{\top} \mathbf{x} - \|\mathbf{x}\|^2 / 2`               1
    ``fourier``    :math:`\|\mathbf{x}\|^2 / 2`                                                cos and sin of Wx
    ``elu``        min(x, 0)                                                                   1 + relu(x)
    ``relu``       0                                                                           relu(x)
    ``focused``    0                                                                           norm-preserving relu(x)^p
    ``logits``     x                                                                           1
    ``values``     0                                                                           x
    ``unit``       0                                                                           x/||x||, 0 for 0
    ``biased``     0                                                                           1 and ``values``, or with ``_unit`` ``unit``
    =============  ==========================================================================  ======================

    A factor that depends on the query alone cancels in the attention: queries come without
    :obj:`squared`, the sums of squares ``[..., 1]`` of keys.
    """
    if kind == 'logits':
        return x, None
    if kind in ('values', 'unit', *BIASED_KINDS):
        x = unit_rows(x)[0] if kind in UNIT_KINDS else x
        return None, pad(x, (1, 0), value=1.0) if kind in BIASED_KINDS else x
    if kind == 'elu':
        return x.clamp(max=0), x.relu() + 1
    if kind == 'relu':
        return None, x.relu()
    if kind == 'focused':
        return None, _focused(x, power)[0]
    logits = x @ cast(Tensor, projection).t()
    if kind == 'softmax':
        return (logits if squared is None else logits.sub_(squared, alpha=0.5)), None
    return (None if squared is None else squared / 2), torch.cat([logits.cos(), logits.sin()], -1)


def log_features_vjp(
    kind: str,
    x: Tensor,
    projection: Tensor | None,
    power: float,
    is_key: bool,
    feature: Tensor,
    grad: Tensor,
) -> Tensor:
    r"""The gradient with respect to :obj:`x`, given the gradient with respect to the (scaled)
    :obj:`feature` values."""
    if kind in BIASED_KINDS:
        feature, grad = feature[..., 1:], grad[..., 1:]
    if kind in UNIT_KINDS:
        return (grad - feature * (feature * grad).sum(-1, keepdim=True)) * unit_rows(x)[1]
    if kind in ('values', *BIASED_KINDS):
        return grad
    if kind == 'elu':
        return grad * feature / (x.relu() + 1)
    if kind == 'relu':
        return grad * (feature > 0)
    if kind == 'focused':
        return _focused_vjp(x, power, grad)
    if kind == 'fourier':
        (cos, sin), (grad_cos, grad_sin) = feature.chunk(2, -1), grad.chunk(2, -1)
        out = (grad_sin * cos - grad_cos * sin) @ cast(Tensor, projection)
        return out.addcmul_(x, (grad * feature).sum(-1, keepdim=True)) if is_key else out
    grad = grad.mul_(feature)
    if kind == 'logits':
        return grad
    out = grad @ cast(Tensor, projection)
    return out.addcmul_(x, grad.sum(-1, keepdim=True), value=-1) if is_key else out


def unit_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    r"""The rows over their lengths, and the inverse lengths; 0 for 0."""
    length = x.norm(dim=-1, keepdim=True)
    length = length.masked_fill(length == 0, torch.inf)
    return x / length, length.reciprocal()  # of one channel the former is exactly a sign


def _focused(x: Tensor, power: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""The features, and what they are made of: rows over their largest entry, their lengths,
    directions and lengths of their powers."""
    rectified = x.relu()
    peak = rectified.detach().amax(-1, keepdim=True)
    unit = rectified / peak.masked_fill(
        peak == 0, 1
    )  # powers and squares of numbers in [0, 1]: none overflows or vanishes
    raised = unit.pow(power)
    length, raised_length = (part.norm(dim=-1, keepdim=True) for part in (unit, raised))
    raised_length = raised_length.masked_fill(peak == 0, 1)
    direction = raised / raised_length
    return (
        direction * length * peak,
        unit,
        length.masked_fill(peak == 0, 1),
        direction,
        raised_length,
    )


def _focused_vjp(x: Tensor, power: float, grad: Tensor) -> Tensor:
    _, unit, length, direction, raised_length = _focused(x, power)
    along = (grad * direction).sum(-1, keepdim=True)
    slope = power * unit.pow(power - 1) * (length / raised_length)
    return along * unit / length + slope * (grad - along * direction) * (unit > 0)
