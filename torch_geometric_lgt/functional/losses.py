# B rows, C channels.
import math
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch_geometric.utils import scatter

from torch_geometric_lgt.functional.feature_maps import unit_rows
from torch_geometric_lgt.functional.numerics import compute_dtype

CHUNK_ELEMENTS = 1 << 20


def alignment(x: Tensor, y: Tensor) -> Tensor:
    r"""The mean squared distance of matched rows on the unit sphere (Eq. 13 of MGFormer):

    .. math::
        \mathbb{E}_{(u, i)} \left\| \frac{\mathbf{x}_u}{\|\mathbf{x}_u\|} -
            \frac{\mathbf{y}_i}{\|\mathbf{y}_i\|} \right\|^2

    A row of zeros stays at the origin. No row at all gives 0.

    Args:
        x (torch.Tensor): ``[B, C]``.
        y (torch.Tensor): ``[B, C]``.

    Raises:
        ValueError: If the shapes differ or are not ``[B, C]``.
    """
    if x.dim() != 2 or x.shape != y.shape:
        raise ValueError(
            f"'x' and 'y' must both have shape [B, C] (got {tuple(x.shape)} and {tuple(y.shape)})"
        )
    return (_unit(x) - _unit(y)).square().sum() / max(1, x.size(0))


def uniformity(x: Tensor, temperature: float = 2.0) -> Tensor:
    r"""The logarithm of the mean Gaussian potential of all pairs of rows on the unit sphere (Eq. 13
    of MGFormer):

    .. math::
        \log \mathbb{E}_{u \neq u^{\prime}} \exp(-t \|\mathbf{x}_u - \mathbf{x}_{u^{\prime}}\|^2)

    Identical rows give 0, their value in the limit; so does a single row, which has no partner.
    Pairs are taken in chunks, which beyond 1024 rows are computed again in the backward pass:
    memory grows with :math:`B`, not with :math:`B^2`.

    Args:
        x (torch.Tensor): ``[B, C]``.
        temperature (float, optional): :math:`t`, 1 in the paper and 2 in DirectAU. (default:
            :obj:`2.0`)

    Raises:
        ValueError: If the shape is another, or :obj:`temperature` is not positive.
    """
    if x.dim() != 2:
        raise ValueError(f"'x' must have shape [B, C] (got {tuple(x.shape)})")
    if not temperature > 0:
        raise ValueError(f"'temperature' must be positive (got {temperature})")
    num_rows = x.size(0)
    if num_rows < 2:
        return _unit(x).sum() * 0
    unit = _unit(x)
    lengths, one = (
        unit.square().sum(1, keepdim=True),
        unit.new_ones(num_rows, 1),
    )  # 1, or 0 for a row of zeros
    left = torch.cat([2 * unit, -lengths, -one], 1) * temperature
    right = torch.cat([unit, one, lengths], 1)
    step = max(
        1, min(CHUNK_ELEMENTS // num_rows, -(-num_rows // 8))
    )  # the fewer rows a chunk has, the fewer pairs come twice
    again = num_rows**2 > CHUNK_ELEMENTS
    run = (
        partial(checkpoint, _log_potential, use_reentrant=False, preserve_rng_state=False)
        if again
        else _log_potential
    )
    parts = [
        run(left[start : start + step], right[start:]) for start in range(0, num_rows - 1, step)
    ]
    return torch.stack(parts).logsumexp(0) - math.log(num_rows * (num_rows - 1) / 2)


def alignment_uniformity(
    x: Tensor, y: Tensor, weight: float = 1.0, variant: str = 'directau'
) -> Tensor:
    r"""The loss of `"Towards Representation Alignment and Uniformity in Collaborative Filtering"
    <https://arxiv.org/abs/2206.12811>`_ of matched users :obj:`x` and items :obj:`y`:
    :meth:`alignment` plus :obj:`weight` times :meth:`uniformity` of both sides.

    ============  ====================  ==========================
    variant       :math:`t`             the two sides' uniformity
    ============  ====================  ==========================
    ``directau``  2                     mean, as in DirectAU's code
    ``paper``     1                     sum, as in Eq. 13 of MGFormer
    ============  ====================  ==========================

    Args:
        x (torch.Tensor): ``[B, C]``.
        y (torch.Tensor): ``[B, C]``.
        weight (float, optional): :math:`\lambda`. (default: :obj:`1.0`)
        variant (str, optional): :obj:`"directau"` or :obj:`"paper"`. (default: :obj:`"directau"`)

    Raises:
        ValueError: If :obj:`variant` is another.
    """
    if variant not in ('directau', 'paper'):
        raise ValueError(f"'variant' must be 'directau' or 'paper' (got {variant!r})")
    temperature, share = (2.0, 0.5) if variant == 'directau' else (1.0, 1.0)
    return alignment(x, y) + weight * share * (
        uniformity(x, temperature) + uniformity(y, temperature)
    )


def edge_regularization(
    log_probability: Tensor, edge_index: Tensor, num_nodes: int, mask: Tensor | None = None
) -> Tensor:
    r"""The mean over the nodes of the mean negative log-probability of their edges, one layer's
    part of NodeFormer's edge loss:

    .. math::
        - \frac{1}{N} \sum_{(v, u) \in \mathcal{E}} \frac{1}{d_u} \log \pi_{uv}

    with :math:`d_u` the in-degree of :math:`u`: up to a constant the divergence of the attention
    :math:`\pi_{u \cdot}` from the uniform distribution over the neighbours. A node without an edge
    adds 0. The authors' code divides by the number of edges in place of :math:`N`.

    Args:
        log_probability (torch.Tensor): :math:`\log \pi_{uv}`, ``[E]`` or ``[E, H]``, averaged over
            the heads.
        edge_index (torch.Tensor): ``[2, E]``, sources :math:`v` and targets :math:`u`.
        num_nodes (int): :math:`N`.
        mask (torch.Tensor, optional): Which edges ``[E]`` count, as a bool each. (default:
            :obj:`None`, all)

    Raises:
        ValueError: If there is not one log-probability, or one bool of :obj:`mask`, for each edge.
    """
    if log_probability.size(0) != edge_index.size(1):
        raise ValueError(
            f"'log_probability' must hold one row for each of {edge_index.size(1)} edges (got "
            f'{log_probability.size(0)})'
        )
    if mask is not None and (mask.dtype != torch.bool or mask.shape != edge_index.shape[1:]):
        raise ValueError(
            f"'mask' must be a bool for each of {edge_index.size(1)} edges (got {mask.dtype}, "
            f'{tuple(mask.shape)})'
        )
    target = edge_index[1]
    counted = (
        torch.ones_like(target, dtype=log_probability.dtype)
        if mask is None
        else mask.to(log_probability.dtype)
    )
    share = counted / scatter(counted, target, 0, num_nodes, 'sum')[target]
    mean = log_probability if log_probability.dim() == 1 else log_probability.mean(1)
    mean = mean if mask is None else mean.masked_fill(~mask, 0)
    return -(share * mean).sum() / max(1, num_nodes)


def _unit(x: Tensor) -> Tensor:
    r"""Rows of length 1, or of 0 without a gradient, in single precision if they are in half."""
    return unit_rows(x.to(compute_dtype(x.dtype)))[0]


def _log_potential(left: Tensor, right: Tensor) -> Tensor:
    r"""That of the pairs of a row with each later row, summed; never in half precision, in which
    distances of 0 are not."""
    with torch.autocast(left.device.type, enabled=False):
        logits = left @ right.t()
    earlier = logits.new_ones(logits.shape[:1] * 2, dtype=torch.bool).tril()
    logits[:, : logits.size(0)].masked_fill_(earlier, -torch.inf)
    return logits.logsumexp((0, 1))
