# C channels per head, M features.
import math
from functools import partial

import torch
from torch import Tensor

from torch_geometric_lgt._arguments import check_choice, check_whole
from torch_geometric_lgt.functional.numerics import complete_device, widest_dtype


def gaussian_projection(
    num_features: int,
    channels: int,
    geometry: str = 'orthogonal',
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Draws the projection ``[M, C]`` of a random feature map, in independent blocks of at most
    :math:`C` rows. Each block is

    .. math::
        \mathbf{W} = \mathbf{D} \mathbf{S} \mathbf{R}.

    :math:`\mathbf{R}` is a random orthogonal matrix (Haar measure) and :math:`\mathbf{D}` is
    diagonal with :math:`D_{ii} \sim \chi_C`. For :obj:`"orthogonal"` :math:`\mathbf{S}` is the
    identity (`"Rethinking Attention with Performers" <https://arxiv.org/abs/2009.14794>`_). For
    :obj:`"simplex"` the rows of :math:`\mathbf{S}` are the vertices of a regular simplex: unit
    vectors with pairwise inner products :math:`-1/(C-1)` (Eq. 7 of `"Masked Graph Transformer for
    Large-Scale Recommendation" <https://arxiv.org/abs/2405.04028>`_). The last block may have fewer
    than :math:`C` rows. :obj:`"positive"` draws independent standard normal rows, without blocks.

    Args:
        num_features (int): Number of rows :math:`M`.
        channels (int): Number of columns :math:`C`.
        geometry (str, optional): :obj:`"positive"`, :obj:`"orthogonal"` or :obj:`"simplex"`.
            (default: :obj:`"orthogonal"`)
        generator (torch.Generator, optional): The source of the random numbers, which are drawn on
            its device. (default: :obj:`None`, the global generator)

    Returns:
        ``[M, C]`` in float64, on the CPU if the device of the random numbers has no float64

    Raises:
        ValueError: If a size is no positive whole number, :obj:`geometry` is unknown, or
            :obj:`channels` is 1 for :obj:`"simplex"`.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.functional import gaussian_projection
        >>> generator = torch.Generator().manual_seed(0)
        >>> projection = gaussian_projection(6, 4, 'simplex', generator)
        >>> projection.shape
        torch.Size([6, 4])
        >>> directions = torch.nn.functional.normalize(projection[:4])
        >>> products = directions @ directions.t()
        >>> torch.allclose(products[0, 1:], torch.tensor(-1 / 3, dtype=torch.float64))
        True
    """
    check_whole('num_features', num_features, 1)
    check_whole('channels', channels, 1)
    check_choice('geometry', geometry, ('positive', 'orthogonal', 'simplex'))
    if geometry == 'simplex' and channels == 1:
        raise ValueError(
            "'geometry' = 'simplex' needs at least 2 channels (got 1); use 'orthogonal'"
        )
    draw = partial(_draw, generator)
    if geometry == 'positive':
        return draw(num_features, channels)
    blocks = []
    for start in range(0, num_features, channels):
        rotation, upper = torch.linalg.qr(draw(channels, channels))
        directions = rotation * upper.diagonal().sign()
        if geometry == 'simplex':
            directions = simplex_rows(channels, directions.device) @ directions
        norms = draw(channels, channels).norm(dim=1, keepdim=True)
        blocks.append((directions * norms)[: num_features - start])
    return torch.cat(blocks)


def _draw(generator: torch.Generator | None, *size: int) -> Tensor:
    r"""Draws standard normal numbers of the shape :obj:`size`, in float64. A device without float64
    draws numbers in float32, which are then copied to the CPU."""
    device = torch.get_default_device() if generator is None else generator.device
    numbers = torch.randn(size, dtype=widest_dtype(device), generator=generator, device=device)
    return numbers.to(complete_device(device), torch.double)


def simplex_rows(m: int, device: torch.device | None = None) -> Tensor:
    r"""Returns the :math:`m` vertices of a regular simplex around 0 as unit rows, ``[m, m]`` in
    float64. The inner product of two different rows is :math:`-1/(m-1)`."""
    centred = torch.eye(m, dtype=torch.float64, device=device) - 1.0 / m
    return centred * math.sqrt(m / (m - 1))
