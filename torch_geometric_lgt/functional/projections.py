# C channels per head, M features.
import math
from functools import partial

import torch
from torch import Tensor


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
