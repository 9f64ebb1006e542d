# H heads, C channels per head, M features, `...` any leading dimensions.
r"""Feature maps :math:`\phi_m(\mathbf{x}) = s_m \exp(l_m)`, one object for each, in :obj:`MAPS` by
its name. A new map is one more class here."""

from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import pad

LogFeatures = tuple[Tensor | None, Tensor | None]


class Map:
    r"""A feature map, here that of features given as they are: :math:`\phi(\mathbf{x}) =
    \mathbf{x}`.

    Attributes:
        name (str): Its name in :obj:`MAPS`.
        is_public (bool): Whether functions take the name.
        is_positive (bool): Whether no feature is negative.
        is_exponential (bool): Whether features are exponentials, whose maximum is subtracted.
        has_projection (bool): Whether there is a projection ``[M, C]``; the map then estimates a
            softmax or a Gaussian kernel.
        has_constant (bool): Whether a feature of 1 comes first.
        has_unit_rows (bool): Whether rows are brought to length 1.
        takes_samples (bool): Whether keys may be weighed several times.
    """

    is_public = True
    is_positive = is_exponential = has_projection = takes_samples = False

    def __init__(self, name: str, has_constant: bool = False, has_unit_rows: bool = False) -> None:
        self.name, self.has_constant, self.has_unit_rows = name, has_constant, has_unit_rows

    def num_features(self, channels: int, projection: Tensor | None) -> int:
        r"""Returns :math:`M`."""
        return channels + self.has_constant if projection is None else projection.shape[0]

    def log_features(
        self, x: Tensor, projection: Tensor | None, power: float, squared: Tensor | None
    ) -> LogFeatures:
        r"""Returns :math:`l` and :math:`s`, each :obj:`None` where it is constant.

        A factor that depends on the query alone cancels in the attention: queries come without
        :obj:`squared`, the sums of squares ``[..., 1]`` of keys.
        """
        x = unit_rows(x)[0] if self.has_unit_rows else x
        return None, pad(x, (1, 0), value=1.0) if self.has_constant else x

    def vjp(
        self,
        x: Tensor,
        projection: Tensor | None,
        power: float,
        is_key: bool,
        feature: Tensor,
        grad: Tensor,
    ) -> Tensor:
        r"""Returns the gradient of :obj:`x` from that of the (scaled) :obj:`feature`."""
        if self.has_constant:
            feature, grad = feature[..., 1:], grad[..., 1:]
        if self.has_unit_rows:
            return (grad - feature * (feature * grad).sum(-1, keepdim=True)) * unit_rows(x)[1]
        return grad


class InternalMap(Map):
    r"""The map of an attention that has no name of its own: DIFFormer's and SGFormer's."""

    is_public = False


class Softmax(Map):
    r"""Positive random features, :math:`l_m = \mathbf{w}_m^{\top} \mathbf{x} - \|\mathbf{x}\|^2 / 2`:
    an estimate of :math:`\exp(\mathbf{q}^{\top} \mathbf{k})`."""

    is_positive = is_exponential = has_projection = takes_samples = True

    def log_features(
        self, x: Tensor, projection: Tensor | None, power: float, squared: Tensor | None
    ) -> LogFeatures:
        logits = x @ cast(Tensor, projection).t()
        return logits if squared is None else logits.sub_(squared, alpha=0.5), None

    def vjp(
        self,
        x: Tensor,
        projection: Tensor | None,
        power: float,
        is_key: bool,
        feature: Tensor,
        grad: Tensor,
    ) -> Tensor:
        grad = grad.mul_(feature)
        out = grad @ cast(Tensor, projection)
        return out.addcmul_(x, grad.sum(-1, keepdim=True), value=-1) if is_key else out


class Fourier(Map):
    r"""Random Fourier features: :math:`l = \|\mathbf{x}\|^2 / 2`, and cosines and sines of
    :math:`\mathbf{W} \mathbf{x}`."""

    is_exponential = has_projection = True

    def num_features(self, channels: int, projection: Tensor | None) -> int:
        return 2 * cast(Tensor, projection).shape[0]

    def log_features(
        self, x: Tensor, projection: Tensor | None, power: float, squared: Tensor | None
    ) -> LogFeatures:
        angle = x @ cast(Tensor, projection).t()
        log = None if squared is None else squared / 2
        return log, torch.cat([angle.cos(), angle.sin()], -1)

    def vjp(
        self,
        x: Tensor,
        projection: Tensor | None,
        power: float,
        is_key: bool,
        feature: Tensor,
        grad: Tensor,
    ) -> Tensor:
        (cos, sin), (grad_cos, grad_sin) = feature.chunk(2, -1), grad.chunk(2, -1)
        out = (grad_sin * cos - grad_cos * sin) @ cast(Tensor, projection)
        return out.addcmul_(x, (grad * feature).sum(-1, keepdim=True)) if is_key else out


class Elu(Map):
    r""":math:`\mathrm{elu}(\mathbf{x}) + 1`: :math:`l = \min(\mathbf{x}, 0)` and :math:`s = 1 +
    \mathrm{relu}(\mathbf{x})`."""

    is_positive = is_exponential = True

    def log_features(
        self, x: Tensor, projection: Tensor | None, power: float, squared: Tensor | None
    ) -> LogFeatures:
        return x.clamp(max=0), x.relu() + 1

    def vjp(
        self,
        x: Tensor,
        projection: Tensor | None,
        power: float,
        is_key: bool,
        feature: Tensor,
        grad: Tensor,
    ) -> Tensor:
        return grad * feature / (x.relu() + 1)


class Relu(Map):
    r""":math:`\mathrm{relu}(\mathbf{x})`."""

    is_positive = True

    def log_features(
        self, x: Tensor, projection: Tensor | None, power: float, squared: Tensor | None
    ) -> LogFeatures:
        return None, x.relu()

    def vjp(
        self,
        x: Tensor,
        projection: Tensor | None,
        power: float,
        is_key: bool,
        feature: Tensor,
        grad: Tensor,
    ) -> Tensor:
        return grad * (feature > 0)


class Focused(Map):
    r""":math:`\mathrm{relu}(\mathbf{x})^p` at the length of :math:`\mathrm{relu}(\mathbf{x})`."""

    is_positive = True

    def log_features(
        self, x: Tensor, projection: Tensor | None, power: float, squared: Tensor | None
    ) -> LogFeatures:
        return None, _focused(x, power)[0]

    def vjp(
        self,
        x: Tensor,
        projection: Tensor | None,
        power: float,
        is_key: bool,
        feature: Tensor,
        grad: Tensor,
    ) -> Tensor:
        return _focused_vjp(x, power, grad)


class Logits(Map):
    r"""Features given by their logarithms, :math:`l = \mathbf{x}`."""

    is_positive = is_exponential = takes_samples = True

    def log_features(
        self, x: Tensor, projection: Tensor | None, power: float, squared: Tensor | None
    ) -> LogFeatures:
        return x, None

    def vjp(
        self,
        x: Tensor,
        projection: Tensor | None,
        power: float,
        is_key: bool,
        feature: Tensor,
        grad: Tensor,
    ) -> Tensor:
        return grad.mul_(feature)


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


MAPS: dict[str, Map] = {
    each.name: each
    for each in (
        Softmax('softmax'),
        Fourier('fourier'),
        Relu('relu'),
        Focused('focused'),
        Map('values'),
        Elu('elu'),
        Logits('logits'),
        InternalMap('unit', has_unit_rows=True),
        InternalMap('biased', has_constant=True),
        InternalMap('biased_unit', has_constant=True, has_unit_rows=True),
    )
}
