# H heads, C channels per head, M features, `...` leading dimensions; w is the projection [M, C].
r"""Defines the feature maps :math:`\phi_m(\mathbf{x}) = s_m \exp(l_m)`. :obj:`MAPS` holds one
object for each by name; to add a map, add a class to this module."""

from typing import cast

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import pad
from torch_geometric.typing import OptTensor

from torch_geometric_lgt.functional.unit_rows import to_unit_rows, unit_rows, unit_rows_grad

LogFeatures = tuple[OptTensor, OptTensor]


class Map:
    r"""Computes features and their gradients. The base class is the identity,
    :math:`\phi(\mathbf{x}) = \mathbf{x}`.

    Attributes:
        name (str): Its name in :obj:`MAPS`.
        is_public (bool): Whether public functions accept the name as :obj:`feature_map`. The maps
            of DIFFormer's and SGFormer's attention are not public.
        is_exponential (bool): Whether :math:`l` is not constant. The maximum of :math:`l` is then
            subtracted before the exponential.
        has_projection (bool): Whether the map has a projection ``[M, C]`` and estimates a softmax
            or a Gaussian kernel.
        has_constant (bool): Whether a feature 1 precedes the others.
        has_unit_rows (bool): Whether rows are first divided by their lengths.
        has_unit_sums (bool): Whether the features of a key are divided by their sum, so that
            :math:`l` is :math:`x - \log \sum_m \exp(x_m)`.
        has_finite_logits (bool): Whether :math:`l` is finite for finite inputs, and :math:`s` is 1.
        takes_samples (bool): Whether keys may be weighed at random several times.
    """

    is_exponential = has_projection = has_unit_sums = takes_samples = False
    has_finite_logits = False

    def __init__(
        self,
        name: str,
        has_constant: bool = False,
        has_unit_rows: bool = False,
        is_public: bool = True,
    ) -> None:
        self.name, self.is_public = name, is_public
        self.has_constant, self.has_unit_rows = has_constant, has_unit_rows

    @property
    def without_constant(self) -> 'Map':
        r"""Returns the map of the same features without the constant feature 1."""
        if not self.has_constant:
            return self
        return MAPS['unit' if self.has_unit_rows else 'values']

    def num_features(self, channels: int, w: OptTensor) -> int:
        r"""Returns the number of features :math:`M` of a vector with :obj:`channels` entries;
        :obj:`w` is the projection, if there is one."""
        return channels + int(self.has_constant) if w is None else w.shape[0]

    def log_features(
        self, x: Tensor, w: OptTensor, power: float, squared: OptTensor
    ) -> LogFeatures:
        r"""Returns :math:`l` and :math:`s` of the features of :obj:`x` ``[..., C]``.

        Both are ``[..., M]`` or broadcast to it; :obj:`None` means :math:`l = 0` or :math:`s = 1`.

        Args:
            x (torch.Tensor): Queries or keys ``[..., C]``.
            w (torch.Tensor, optional): The projection ``[M, C]``.
            power (float): Power of the map :obj:`"focused"`.
            squared (torch.Tensor, optional): The sums of squares ``[..., 1]`` of keys, :obj:`None`
                for queries. A factor of all features of one query cancels in the attention and is
                left out.
        """
        x = to_unit_rows(x) if self.has_unit_rows else x
        return None, pad(x, (1, 0), value=1.0) if self.has_constant else x

    def vjp(
        self, x: Tensor, w: OptTensor, power: float, is_key: bool, feature: Tensor, grad: Tensor
    ) -> Tensor:
        r"""Returns the gradient ``[..., C]`` of queries or keys :obj:`x` from the gradient of their
        features.

        Args:
            x (torch.Tensor): Queries or keys ``[..., C]``.
            w (torch.Tensor, optional): The projection ``[M, C]``.
            power (float): Power of the map :obj:`"focused"`.
            is_key (bool): Whether :obj:`x` are keys, whose sums of squares enter the features.
            feature (torch.Tensor): The features ``[..., M]``, divided by the exponential of a
                constant maximum.
            grad (torch.Tensor): The gradient of :obj:`feature`; it may be overwritten. For keys of
                a map with :attr:`has_unit_sums`, the part through the sum is subtracted already.
        """
        if self.has_constant:
            feature, grad = feature[..., 1:], grad[..., 1:]
        if self.has_unit_rows:
            return unit_rows_grad(feature, unit_rows(x)[1], grad)
        return grad


class Softmax(Map):
    r"""Computes positive random features,
    :math:`l_m = \mathbf{w}_m^{\top} \mathbf{x} - \|\mathbf{x}\|^2 / 2` with the rows
    :math:`\mathbf{w}_m` of the projection. They estimate
    :math:`\exp(\mathbf{q}^{\top} \mathbf{k})`."""

    is_exponential = has_projection = takes_samples = has_finite_logits = True

    def log_features(
        self, x: Tensor, w: OptTensor, power: float, squared: OptTensor
    ) -> LogFeatures:
        logits = x @ cast(Tensor, w).t()
        return logits if squared is None else logits.sub(squared, alpha=0.5), None

    def vjp(
        self, x: Tensor, w: OptTensor, power: float, is_key: bool, feature: Tensor, grad: Tensor
    ) -> Tensor:
        grad = grad.mul_(feature)
        out = grad @ cast(Tensor, w)
        return out.addcmul_(x, grad.sum(-1, keepdim=True), value=-1) if is_key else out


class Fourier(Map):
    r"""Computes random Fourier features: :math:`l = \|\mathbf{x}\|^2 / 2`, and as :math:`s` the
    cosines, then the sines of :math:`\mathbf{W} \mathbf{x}` with the projection
    :math:`\mathbf{W}`."""

    is_exponential = has_projection = True

    def num_features(self, channels: int, w: OptTensor) -> int:
        return 2 * cast(Tensor, w).shape[0]

    def log_features(
        self, x: Tensor, w: OptTensor, power: float, squared: OptTensor
    ) -> LogFeatures:
        angle = x @ cast(Tensor, w).t()
        log = None if squared is None else squared / 2
        return log, torch.cat([angle.cos(), angle.sin()], -1)

    def vjp(
        self, x: Tensor, w: OptTensor, power: float, is_key: bool, feature: Tensor, grad: Tensor
    ) -> Tensor:
        (cos, sin), (grad_cos, grad_sin) = feature.chunk(2, -1), grad.chunk(2, -1)
        out = (grad_sin * cos - grad_cos * sin) @ cast(Tensor, w)
        return out.addcmul_(x, (grad * feature).sum(-1, keepdim=True)) if is_key else out


class Elu(Map):
    r"""Computes :math:`\mathrm{elu}(\mathbf{x}) + 1`, with :math:`l = \min(\mathbf{x}, 0)` and
    :math:`s = 1 + \mathrm{relu}(\mathbf{x})`."""

    is_exponential = True

    def log_features(
        self, x: Tensor, w: OptTensor, power: float, squared: OptTensor
    ) -> LogFeatures:
        # no clamp, which has no gradient at its bound in PyTorch 2.15; ReLU has none at 0
        rectified = x.relu()
        return x - rectified, rectified + 1

    def vjp(
        self, x: Tensor, w: OptTensor, power: float, is_key: bool, feature: Tensor, grad: Tensor
    ) -> Tensor:
        return grad.mul_(feature).div_(x.relu().add_(1))


class Relu(Map):
    r"""Computes :math:`\mathrm{relu}(\mathbf{x})`."""

    def log_features(
        self, x: Tensor, w: OptTensor, power: float, squared: OptTensor
    ) -> LogFeatures:
        return None, x.relu()

    def vjp(
        self, x: Tensor, w: OptTensor, power: float, is_key: bool, feature: Tensor, grad: Tensor
    ) -> Tensor:
        return grad * (feature > 0)


class Focused(Map):
    r"""Computes :math:`\mathbf{r}^p \, \|\mathbf{r}\| / \|\mathbf{r}^p\|` with
    :math:`\mathbf{r} = \mathrm{relu}(\mathbf{x})` and the argument :obj:`power` as :math:`p`."""

    def log_features(
        self, x: Tensor, w: OptTensor, power: float, squared: OptTensor
    ) -> LogFeatures:
        return None, _focused(x, power)[0]

    def vjp(
        self, x: Tensor, w: OptTensor, power: float, is_key: bool, feature: Tensor, grad: Tensor
    ) -> Tensor:
        return _focused_vjp(x, power, grad)


class Logits(Map):
    r"""Takes the input as logarithms of the features, :math:`l = \mathbf{x}`."""

    is_exponential = takes_samples = True

    def log_features(
        self, x: Tensor, w: OptTensor, power: float, squared: OptTensor
    ) -> LogFeatures:
        return x, None

    def vjp(
        self, x: Tensor, w: OptTensor, power: float, is_key: bool, feature: Tensor, grad: Tensor
    ) -> Tensor:
        return grad.mul_(feature)


class Assignment(Logits):
    r"""Computes the softmax over the features, :math:`l = \mathbf{x} - \log \sum_m \exp(x_m)`: the
    share of each of :math:`M` groups in a node. The factor of a query cancels and is left out."""

    has_unit_sums = has_finite_logits = True
    takes_samples = False

    def log_features(
        self, x: Tensor, w: OptTensor, power: float, squared: OptTensor
    ) -> LogFeatures:
        return x if squared is None else x.log_softmax(-1), None


def _focused(x: Tensor, power: float) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    r"""Computes the features ``[..., C]`` of the map :obj:`"focused"` and the factors that its
    gradient needs.

    Returns:
        Five tensors: the features; ``unit``, the rows of relu(x) divided by their largest entry;
        the norms ``[..., 1]`` of ``unit``; the rows of ``unit ** power`` divided by their norms;
        and these norms ``[..., 1]``.
    """
    rectified = x.relu()
    peak = rectified.detach().amax(-1, keepdim=True)
    is_zero = peak == 0
    # powers and squares of numbers in [0, 1]: none overflows or vanishes
    unit = rectified / peak.masked_fill(is_zero, 1)
    raised = unit.pow(power)
    length, raised_length = (vector_norm(row, dim=-1, keepdim=True) for row in (unit, raised))
    raised_length = raised_length.masked_fill(is_zero, 1)
    direction = raised / raised_length
    feature = direction * length * peak
    return feature, unit, length.masked_fill(is_zero, 1), direction, raised_length


def _focused_vjp(x: Tensor, power: float, grad: Tensor) -> Tensor:
    r"""Returns the gradient of :obj:`x` ``[..., C]`` from the gradient :obj:`grad` of its features.
    It has two parts: through the length of the rectified row and through the direction of its
    power."""
    _, unit, length, direction, raised_length = _focused(x, power)
    grad_length = (grad * direction).sum(-1, keepdim=True)
    grad_raised = (grad - grad_length * direction) * (length / raised_length)
    grad_unit = power * unit.pow(power - 1) * grad_raised
    return grad_length * unit / length + grad_unit * (unit > 0)


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
        Assignment('assignment'),
        Map('unit', has_unit_rows=True, is_public=False),
        Map('biased', has_constant=True, is_public=False),
        Map('biased_unit', has_constant=True, has_unit_rows=True, is_public=False),
    )
}
