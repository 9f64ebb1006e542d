# P pairs, N nodes, D channels of an embedding.
import math
from functools import partial

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from torch_geometric.utils import scatter

from torch_geometric_lgt._arguments import check_choice, check_ids
from torch_geometric_lgt.functional.numerics import chunk_elements, compute_dtype, without_autocast
from torch_geometric_lgt.functional.tracing import is_transformed, is_watched, may_read_values
from torch_geometric_lgt.functional.unit_rows import unit_rows_formula

CHUNK_ELEMENTS = 1 << 20
ROUNDING = 1e-3  # logarithms of 1 may be so far above 0


def alignment(x: Tensor, y: Tensor) -> Tensor:
    r"""Computes the mean over rows of the squared Euclidean distance between :obj:`x` and :obj:`y`,
    whose rows are scaled to length 1 (Eq. 13 of `MGFormer <https://arxiv.org/abs/2405.04028>`_):

    .. math::
        \mathbb{E}_{(u, i)} \left\| \frac{\mathbf{x}_u}{\|\mathbf{x}_u\|} -
            \frac{\mathbf{y}_i}{\|\mathbf{y}_i\|} \right\|^2

    A row of zeros stays at the origin. Tensors without rows give 0.

    Args:
        x (torch.Tensor): ``[P, D]``, row by row the embedding :math:`\mathbf{x}_u` of the user of
            each of :math:`P` pairs :math:`(u, i)`.
        y (torch.Tensor): ``[P, D]``, the embedding :math:`\mathbf{y}_i` of the item of the same
            pair.

    Returns:
        a scalar, in at least single precision

    Raises:
        ValueError: If the shapes differ or are not ``[P, D]``.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.functional import alignment
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0]])
        >>> y = torch.tensor([[3.0, 0.0], [0.0, -1.0]])
        >>> alignment(x, y)
        tensor(2.)
    """
    if x.dim() != 2 or x.shape != y.shape:
        raise ValueError(
            f"'x' and 'y' must both have shape [P, D] (got {tuple(x.shape)} and {tuple(y.shape)})"
        )
    return (_unit(x) - _unit(y)).square().sum() / max(1, x.size(0))


def uniformity(x: Tensor, temperature: float = 2.0) -> Tensor:
    r"""Computes the logarithm of the mean Gaussian potential of all pairs of rows (Eq. 13 of
    `MGFormer <https://arxiv.org/abs/2405.04028>`_):

    .. math::
        \log \mathbb{E}_{u \neq u^{\prime}} \exp \left( -t \left\| \frac{\mathbf{x}_u}
            {\|\mathbf{x}_u\|} - \frac{\mathbf{x}_{u^{\prime}}}{\|\mathbf{x}_{u^{\prime}}\|}
            \right\|^2 \right)

    A row of zeros stays a row of zeros. Identical rows give 0, and so do fewer than two rows. Pairs
    are computed in chunks. Beyond 1024 rows the backward pass computes the chunks again, so that
    memory grows with :math:`N`, not with :math:`N^2`; :mod:`torch.func` keeps all pairs.

    Args:
        x (torch.Tensor): ``[N, D]``.
        temperature (float, optional): :math:`t`, the sharpness of the potential: 1 in the paper and
            2 in `DirectAU <https://arxiv.org/abs/2206.12811>`_. (default: :obj:`2.0`)

    Returns:
        a scalar, in at least single precision

    Raises:
        ValueError: If :obj:`x` has another shape, or :obj:`temperature` is not positive.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.functional import uniformity
        >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
        >>> uniformity(x)
        tensor(-8.)
        >>> uniformity(x, temperature=1.0)
        tensor(-4.)
    """
    if x.dim() != 2:
        raise ValueError(f"'x' must have shape [N, D] (got {tuple(x.shape)})")
    if not temperature > 0:
        raise ValueError(f"'temperature' must be positive (got {temperature})")
    num_rows = x.size(0)
    if num_rows < 2:
        return _unit(x).sum() * 0
    unit = _unit(x)
    squares = unit.square().sum(1, keepdim=True)  # 1, or 0 for a row of zeros
    one = torch.ones_like(squares)
    left = torch.cat([2 * unit, -squares, -one], 1) * temperature
    right = torch.cat([unit, one, squares], 1)
    # the fewer rows a chunk has, the fewer pairs come twice
    elements = chunk_elements(CHUNK_ELEMENTS, x.device)
    step = max(1, min(elements // num_rows, -(-num_rows // 8)))
    log_potential = _log_potential
    if num_rows**2 > elements and not is_transformed((x,)):  # takes no checkpoint
        log_potential = partial(
            checkpoint, _log_potential, use_reentrant=False, preserve_rng_state=False
        )
    sums = [
        log_potential(left[start : start + step], right[start:])
        for start in range(0, num_rows - 1, step)
    ]
    return torch.stack(sums).logsumexp(0) - math.log(num_rows * (num_rows - 1) / 2)


def alignment_uniformity(
    x: Tensor, y: Tensor, weight: float = 1.0, variant: str = 'directau'
) -> Tensor:
    r"""Sums the :meth:`alignment` and :meth:`uniformity` losses of :math:`P` pairs of a user
    :obj:`x` and an item :obj:`y` (`"Towards Representation Alignment and Uniformity in
    Collaborative Filtering" <https://arxiv.org/abs/2206.12811>`_; Eq. 13 of `MGFormer
    <https://arxiv.org/abs/2405.04028>`_):

    .. math::
        \mathrm{alignment}(\mathbf{x}, \mathbf{y}) + \lambda \, s \, \bigl(
            \mathrm{uniformity}_t(\mathbf{x}) + \mathrm{uniformity}_t(\mathbf{y}) \bigr)

    ============  =========  ===================  ================
    variant       :math:`t`  :math:`s`            as in
    ============  =========  ===================  ================
    ``directau``  2          1/2: the mean        DirectAU's code
    ``paper``     1          1: the sum           MGFormer, Eq. 13
    ============  =========  ===================  ================

    With either variant rows are scaled to length 1, and a row makes no pair with itself, as in
    DirectAU's code. Eq. 13 says neither.

    Args:
        x (torch.Tensor): ``[P, D]``, embeddings of users.
        y (torch.Tensor): ``[P, D]``, the embedding of one item of each user.
        weight (float, optional): :math:`\lambda`. (default: :obj:`1.0`)
        variant (str, optional): The row of the table, :obj:`"directau"` or :obj:`"paper"`.
            (default: :obj:`"directau"`)

    Returns:
        a scalar, in at least single precision

    Raises:
        ValueError: If :obj:`variant` is unknown, or as in :meth:`alignment`.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.functional import alignment_uniformity
        >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
        >>> alignment_uniformity(x, -x, weight=0.5)  # 4 + 0.5 * 0.5 * 2 * uniformity(x, 2)
        tensor(1.8018)
        >>> alignment_uniformity(x, -x, weight=0.5, variant='paper')  # 4 + uniformity(x, 1)
        tensor(1.6600)
    """
    check_choice('variant', variant, ('directau', 'paper'))
    temperature, share = (2.0, 0.5) if variant == 'directau' else (1.0, 1.0)
    return alignment(x, y) + weight * share * (
        uniformity(x, temperature) + uniformity(y, temperature)
    )


def edge_regularization(
    log_probability: Tensor, edge_index: Tensor, num_nodes: int, mask: Tensor | None = None
) -> Tensor:
    r"""Computes one layer's part of the edge loss of `NodeFormer
    <https://arxiv.org/abs/2306.08385>`_. Each node contributes the mean negative log-probability of
    the edges into it, and the loss is the mean over the nodes:

    .. math::
        - \frac{1}{N} \sum_{(v, u) \in \mathcal{E}} \frac{1}{d_u} \log \pi_{uv}

    with :math:`d_u` the in-degree of :math:`u` along the edges that count. Up to a constant the
    loss is the mean of :math:`\mathrm{KL}(p_u \| \pi_{u \cdot})`, with :math:`p_u` uniform over the
    neighbours and :math:`\pi_{u \cdot}` the attention. A node without an edge adds 0, and repeated
    edges count repeatedly. The authors' code divides by the number of edges in place of :math:`N`.

    Args:
        log_probability (torch.Tensor): :math:`\log \pi_{uv}`, ``[E]``, or ``[E, H]``, of which the
            mean over the heads is taken.
        edge_index (torch.Tensor): ``[2, E]``, sources :math:`v` and targets :math:`u`.
        num_nodes (int): :math:`N`.
        mask (torch.Tensor, optional): Whether each edge counts, ``[E]`` of bools. (default:
            :obj:`None`, all count)

    Returns:
        a scalar, in at least single precision

    Raises:
        ValueError: If :obj:`edge_index` is not ``[2, E]``, or :obj:`log_probability` or :obj:`mask`
            does not have one entry for each edge. If a target does not exist, or
            :obj:`log_probability` holds probabilities in place of their logarithms: these two
            checks wait for the device.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.functional import edge_regularization
        >>> edge_index = torch.tensor([[0, 1, 2], [1, 0, 0]])
        >>> log_probability = torch.tensor([0.5, 0.25, 0.125]).log()
        >>> edge_regularization(log_probability, edge_index, num_nodes=3)
        tensor(0.8087)
        >>> edge_regularization(log_probability, edge_index, 3, torch.tensor([True, True, False]))
        tensor(0.6931)
    """
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        raise ValueError(
            f"'edge_index' must have shape [2, E] (got {tuple(edge_index.shape)}); give the "
            'sources as its first row and the targets as its second'
        )
    if log_probability.dim() not in (1, 2) or not log_probability.is_floating_point():
        raise ValueError(
            "'log_probability' must hold floating-point numbers [E] or [E, H] (got "
            f'{log_probability.dtype}, {tuple(log_probability.shape)})'
        )
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
    _check_values(log_probability, edge_index, num_nodes, mask)
    return edge_loss(log_probability, edge_index, num_nodes, mask)


def edge_loss(
    log_probability: Tensor, edge_index: Tensor, num_nodes: int, mask: Tensor | None
) -> Tensor:
    r"""Computes the result of :meth:`edge_regularization` without its checks, two of which wait for
    the device."""
    target = edge_index[1]
    dtype = compute_dtype(log_probability.dtype)
    log_probability = log_probability.to(dtype)
    counted = torch.ones_like(target, dtype=dtype) if mask is None else mask.to(dtype)
    degree = scatter(counted, target, 0, num_nodes, 'sum')
    share = counted / degree[target].clamp(min=1)  # a node may have masked edges only
    mean = log_probability if log_probability.dim() == 1 else log_probability.mean(1)
    mean = mean if mask is None else mean.masked_fill(~mask, 0)
    return -(share * mean).sum() / max(1, num_nodes)


def _check_values(
    log_probability: Tensor, edge_index: Tensor, num_nodes: int, mask: Tensor | None
) -> None:
    r"""Raises a ValueError if a target does not exist, or the values of edges that count are
    probabilities: none is below 0, and one is above 0 by more than rounding. Code that is traced,
    captured, watched or transformed is not checked."""
    if log_probability.is_meta or is_watched() or not may_read_values(log_probability):
        return
    check_ids('edge_index[1]', edge_index[1], num_nodes)
    values = log_probability.detach()
    values = values if mask is None else values[mask]
    if values.numel() == 0:
        return
    least, most = torch.stack(values.aminmax()).tolist()
    if least >= 0 and most > ROUNDING:
        raise ValueError(
            f"'log_probability' must hold logarithms, which are at most 0 (got {least:g} to "
            f'{most:g}); give log() of the probabilities'
        )


def _unit(x: Tensor) -> Tensor:
    r"""Divides each row of :obj:`x` ``[N, D]`` by its length, in at least single precision. Rows of
    zeros stay zeros, without gradient."""
    return unit_rows_formula(x.to(compute_dtype(x.dtype)))[0]


def _log_potential(left: Tensor, right: Tensor) -> Tensor:
    r"""Computes the log-sum-exp of the products of rows of :obj:`left` ``[n, D + 2]`` and
    :obj:`right` ``[N, D + 2]``, a scalar.

    Row :math:`i` of both belongs to the same row of the loss; only pairs :math:`i < j` count.
    Autocast is switched off: half precision would not give exactly 0 for a distance of 0.
    """
    with without_autocast(left.device.type):
        logits = left @ right.t()
    earlier = logits.new_ones(logits.shape[:1] * 2, dtype=torch.bool).tril()
    logits[:, : logits.size(0)].masked_fill_(earlier, -torch.inf)
    return logits.logsumexp((0, 1))
