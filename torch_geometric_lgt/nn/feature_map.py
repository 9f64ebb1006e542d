# H heads, C channels per head, M features.
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from torch_geometric_lgt._arguments import check_choice, check_number, check_whole
from torch_geometric_lgt.functional.feature_maps import MAPS, Map
from torch_geometric_lgt.functional.projections import gaussian_projection

EXPONENTIAL_MAPS = ('positive', 'orthogonal', 'simplex')
RANDOM_MAPS = (*EXPONENTIAL_MAPS, 'fourier')
PLAIN_MAPS = ('elu', 'relu', 'focused')
LEARNED_MAPS = ('learned',)


def check_kind(name: str, kind: Any, others: str = '') -> None:
    r"""Checks that the argument called :obj:`name` is the name of a feature map. The message puts
    :obj:`others` after the names.

    Raises:
        ValueError: If it is not.
    """
    softmax = "; 'simplex', 'orthogonal' and 'positive' estimate a softmax"
    hint = softmax if kind == 'softmax' else ''
    if isinstance(kind, type) and issubclass(kind, torch.nn.Module):
        hint = f'; give a module of this class, such as {kind.__name__}()'
    check_choice(name, kind, RANDOM_MAPS + PLAIN_MAPS + LEARNED_MAPS, others, hint)


class FeatureMap(torch.nn.Module):
    r"""Computes the features :math:`\phi` of kernel attention, and draws or learns their
    projection.

    * :obj:`"positive"`, :obj:`"orthogonal"`, :obj:`"simplex"`: :math:`\phi_m(\mathbf{x}) =
      \exp(\mathbf{w}_m^{\top} \mathbf{x} - \|\mathbf{x}\|^2 / 2)` (Eq. 7 of `MGFormer
      <https://arxiv.org/abs/2405.04028>`_; the constant :math:`M^{-1/2}` cancels in the attention).
      The mean of :math:`\phi_m(\mathbf{q}) \, \phi_m(\mathbf{k})` over :math:`m` is an unbiased
      estimate of :math:`\exp(\mathbf{q}^{\top} \mathbf{k})`. The three names are geometries of
      :meth:`~torch_geometric_lgt.functional.gaussian_projection`, which draws the rows
      :math:`\mathbf{w}_m`: independent, orthogonal, or corners of a simplex, in blocks of :math:`C`
      rows.
    * :obj:`"fourier"`: :math:`\exp(\|\mathbf{x}\|^2 / 2) \cos(\mathbf{w}_m^{\top} \mathbf{x})` for
      all :math:`m`, then the same with sines, with orthogonal rows. These features are signed: the
      denominator of the attention can be close to 0 or change its sign.
    * :obj:`"elu"`: :math:`\mathrm{elu}(\mathbf{x}) + 1`; :obj:`"relu"`:
      :math:`\mathrm{relu}(\mathbf{x})`; :obj:`"focused"`: :math:`\mathrm{relu}(\mathbf{x})^p`
      scaled to the norm of :math:`\mathrm{relu}(\mathbf{x})`, with :math:`p` the :obj:`power`.
    * :obj:`"learned"`: the softmax over the features, :math:`\phi_m(\mathbf{x}) \propto \exp(s_h
      \mathbf{w}_{hm}^{\top} \mathbf{x})`, with learned :math:`s_h` and :math:`\mathbf{w}_{hm}` of
      each head :math:`h`. Each feature is a soft group of nodes, and a row of the attention is a
      mixture of the groups' means.

    Args:
        kind (str): One of the names above.
        channels (int): Channels per head :math:`C`.
        num_features (int, optional): Number :math:`M` of vectors :math:`\mathbf{w}_m`. Each gives
            one feature, and two with :obj:`"fourier"`. (default: :obj:`None`, as many as channels)
        power (float, optional): :math:`p` of the focused map. (default: :obj:`3.0`)
        heads (int, optional): Number of heads :math:`H` of the learned map; the other maps are the
            same for all heads. (default: :obj:`1`)

    Raises:
        ValueError: If :obj:`kind` is unknown, a map without a projection has
            :obj:`num_features`, :obj:`power` is below 1, a simplex has one channel, or a learned
            map has fewer than 2 features.

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
    weight: Any
    scale: Any

    def __init__(
        self,
        kind: str,
        channels: int,
        num_features: int | None = None,
        power: float = 3.0,
        heads: int = 1,
    ) -> None:
        super().__init__()
        check_kind('kind', kind)
        check_whole('channels', channels, 1)
        check_whole('heads', heads, 1)
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
        if num_features is not None:
            check_whole('num_features', num_features, 1)
        check_number('power', power)
        if not power >= 1:
            raise ValueError(f"'power' must be at least 1 (got {power})")
        self.kind, self.channels, self.power, self.heads = kind, channels, power, heads
        self.num_features = channels if num_features is None else num_features
        self.is_learned = kind in LEARNED_MAPS
        if self.is_learned and self.num_features < 2:
            raise ValueError(
                "'num_features' must be at least 2 for the feature map 'learned': one group of "
                f'all nodes is their mean (got {self.num_features})'
            )
        if self.is_learned:
            self.weight = Parameter(torch.empty(heads, self.num_features, channels))
            self.scale = Parameter(torch.empty(heads))
        size = self.num_features, channels
        self.register_buffer('projection', torch.empty(size) if kind in RANDOM_MAPS else None)
        self.reset_parameters()

    @property
    def estimates_softmax(self) -> bool:
        r"""Tells whether the features are positive and estimate the kernel of a softmax,
        :math:`\exp(\mathbf{q}^{\top} \mathbf{k})`. It is :obj:`True` for :obj:`"positive"`,
        :obj:`"orthogonal"` and :obj:`"simplex"`. The Gumbel noise and the edge loss of NodeFormer
        need such a map.

        Example:
            >>> from torch_geometric_lgt.nn import FeatureMap
            >>> FeatureMap('simplex', channels=8).estimates_softmax
            True
            >>> FeatureMap('fourier', channels=8).estimates_softmax
            False
        """
        return self.kind in EXPONENTIAL_MAPS

    @property
    def map(self) -> Map:
        r"""Returns the object that computes the features and their gradients for the attention
        layers. Its :attr:`name` is the argument :obj:`feature_map` of
        :meth:`~torch_geometric_lgt.functional.kernel_attention` for the same map. That function
        takes the :attr:`projection` of this module, and for a learned map the :meth:`logits` of
        queries and keys in their place.

        Example:
            >>> from torch_geometric_lgt.nn import FeatureMap
            >>> FeatureMap('simplex', channels=8).map.name, FeatureMap('elu', channels=8).map.name
            ('softmax', 'elu')
        """
        if self.is_learned:
            return MAPS['assignment']
        return MAPS['softmax' if self.kind in EXPONENTIAL_MAPS else self.kind]

    def reset_parameters(self) -> None:
        r"""Draws the random projection anew, or the weights of a learned map, from the global
        generator."""
        self.redraw_projection()
        if self.is_learned:
            torch.nn.init.normal_(self.weight, std=self.channels**-0.5)
            torch.nn.init.ones_(self.scale)

    def redraw_projection(self, generator: torch.Generator | None = None) -> None:
        r"""Draws the random projection anew, in place. Does nothing for a map without one, also a
        learned one."""
        if self.projection is None:
            return
        geometry = 'orthogonal' if self.kind == 'fourier' else self.kind
        drawn = gaussian_projection(self.num_features, self.channels, geometry, generator)
        with torch.no_grad():
            self.projection.copy_(drawn)

    def logits(self, x: Tensor) -> Tensor:
        r"""Computes the logits :math:`s_h \mathbf{w}_{hm}^{\top} \mathbf{x}` ``[..., H, M]`` of a
        learned map from :obj:`x` ``[..., H, C]``.

        Raises:
            ValueError: If the map is not learned.
        """
        projection = self.head_projection()
        if projection is None:
            raise ValueError(f"'kind' must be 'learned' for logits (got {self.kind!r})")
        return torch.einsum('...hc,hmc->...hm', x, projection)

    def head_projection(self) -> Tensor | None:
        r"""Returns the vectors :math:`s_h \mathbf{w}_{hm}` ``[H, M, C]`` of a map of kind
        :obj:`"learned"`, with gradients: :attr:`scale` ``[H]`` times :attr:`weight` ``[H, M, C]``.
        Returns :obj:`None` for other kinds, whose random vectors are the :attr:`projection`.

        Example:
            >>> from torch_geometric_lgt.nn import FeatureMap
            >>> FeatureMap('learned', channels=8, num_features=4).head_projection().shape
            torch.Size([1, 4, 8])
        """
        return self.scale[:, None, None] * self.weight if self.is_learned else None

    def forward(self, x: Tensor) -> Tensor:
        r"""Computes the features ``[..., M]`` of :obj:`x` ``[..., C]`` as the formula says.

        Fourier features are ``[..., 2 * M]``. Maps without a projection have as many features as
        channels. A learned map takes ``[..., H, C]`` and returns ``[..., H, M]``. The layers of
        this package compute the logarithms of these features themselves, which do not overflow.
        They call this method only for a learned map with hooks, such as that of pruning, and for a
        subclass that overrides it."""
        if self.is_learned:
            return self.logits(x).softmax(-1)
        log, value = self.map.log_features(
            x, self.projection, self.power, x.square().sum(-1, keepdim=True)
        )
        scale = torch.ones_like(x[..., :1]) if log is None else log.exp()
        return scale if value is None else scale * value

    def extra_repr(self) -> str:
        r"""Returns the arguments for the representation of the module."""
        has_features = self.is_learned or self.projection is not None
        return f'{self.kind!r}, {self.channels}' + (
            f', num_features={self.num_features}' if has_features else ''
        )
