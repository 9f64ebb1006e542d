# C channels per head, M features.
import torch
from torch import Tensor

from torch_geometric_lgt.functional.feature_maps import MAPS
from torch_geometric_lgt.functional.projections import gaussian_projection

RANDOM_MAPS = ('positive', 'orthogonal', 'simplex', 'fourier')
PLAIN_MAPS = ('elu', 'relu', 'focused')


class FeatureMap(torch.nn.Module):
    r"""Computes the features :math:`\phi` of kernel attention, and draws their projection.

    * :obj:`"positive"`, :obj:`"orthogonal"`, :obj:`"simplex"`:
      :math:`\phi_m(\mathbf{x}) = \exp(\mathbf{w}_m^{\top} \mathbf{x} - \|\mathbf{x}\|^2 / 2)` (Eq.
      7 of MGFormer; the constant :math:`M^{-1/2}` cancels in the attention), an unbiased estimate
      of :math:`\exp(\mathbf{q}^{\top} \mathbf{k})`.
    * :obj:`"fourier"`: cosines and sines of :math:`\mathbf{w}_m^{\top} \mathbf{x}` times
      :math:`\exp(\|\mathbf{x}\|^2 / 2)`. These features are signed: the denominator of the
      attention can be close to 0 or change its sign.
    * :obj:`"elu"`: :math:`\mathrm{elu}(\mathbf{x}) + 1`; :obj:`"relu"`:
      :math:`\mathrm{relu}(\mathbf{x})`; :obj:`"focused"`: :math:`\mathrm{relu}(\mathbf{x})^p`
      scaled to the norm of :math:`\mathrm{relu}(\mathbf{x})`, with :math:`p` the :obj:`power`.

    Args:
        kind (str): One of the names above.
        channels (int): Channels per head :math:`C`.
        num_features (int, optional): Rows :math:`M` of the projection; :obj:`"fourier"` has two
            features for each row. (default: :obj:`None`, as many as channels)
        power (float, optional): :math:`p` of the focused map. (default: :obj:`3.0`)

    Raises:
        ValueError: If :obj:`kind` is unknown, a map without a projection has
            :obj:`num_features`, :obj:`power` is below 1, or a simplex has one channel.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.nn import FeatureMap
        >>> phi = FeatureMap('simplex', channels=8, num_features=32)
        >>> phi(torch.randn(5, 8)).shape
        torch.Size([5, 32])
        >>> FeatureMap('relu', channels=2)(torch.tensor([[-1.0, 2.0]]))
        tensor([[0., 2.]])
    """

    projection: Tensor | None

    def __init__(
        self, kind: str, channels: int, num_features: int | None = None, power: float = 3.0
    ) -> None:
        super().__init__()
        if kind not in RANDOM_MAPS + PLAIN_MAPS:
            raise ValueError(
                "'feature_map', the 'kind' of a FeatureMap, must be one of "
                f'{RANDOM_MAPS + PLAIN_MAPS} (got {kind!r})'
            )
        if kind == 'simplex' and channels == 1:
            raise ValueError(
                "'simplex' needs at least 2 channels per head (got 1): use fewer 'heads' or "
                "'feature_map' = 'orthogonal'"
            )
        if kind in PLAIN_MAPS and num_features is not None:
            raise ValueError(
                f"'num_features' must be None for the feature map {kind!r}, which has one feature "
                f'per channel (got {num_features})'
            )
        if not power >= 1:
            raise ValueError(f"'power' must be at least 1 (got {power})")
        self.geometry, self.channels, self.power = kind, channels, power
        self.num_features = channels if num_features is None else num_features
        self.kind = 'softmax' if kind in RANDOM_MAPS[:3] else kind
        self.register_buffer('projection', None if kind in PLAIN_MAPS else torch.empty(0))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Redraws the projection from the global generator."""
        self.redraw_projection()

    def redraw_projection(self, generator: torch.Generator | None = None) -> None:
        r"""Redraws the projection, if the map has one."""
        if self.projection is None:
            return
        geometry = 'orthogonal' if self.geometry == 'fourier' else self.geometry
        drawn = gaussian_projection(self.num_features, self.channels, geometry, generator)
        dtype = self.projection.dtype
        self.projection = drawn.to(self.projection.device, dtype)

    def forward(self, x: Tensor) -> Tensor:
        r"""Computes the features ``[..., M]`` of :obj:`x` ``[..., C]`` as the formula says.
        Attention layers compute their logarithms instead, which do not overflow."""
        log, value = MAPS[self.kind].log_features(
            x, self.projection, self.power, x.square().sum(-1, keepdim=True)
        )
        scale = torch.ones_like(x[..., :1]) if log is None else log.exp()
        return scale if value is None else scale * value

    def extra_repr(self) -> str:
        r"""Returns the arguments for the representation of the module."""
        return f'{self.geometry!r}, {self.channels}' + (
            '' if self.projection is None else f', num_features={self.num_features}'
        )
