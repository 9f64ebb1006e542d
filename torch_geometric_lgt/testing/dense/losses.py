import torch
from torch import Tensor


def uniformity(x: Tensor, temperature: float) -> Tensor:
    r"""Computes the uniformity loss, the second part of Eq. 13 of `MGFormer
    <https://arxiv.org/abs/2405.04028>`_, a scalar, for the embeddings :obj:`x` ``[N, D]`` of users
    or of items.

    The rows are scaled to length 1. The loss is the logarithm of the mean of :math:`\exp(-t
    \|\mathbf{x}_i - \mathbf{x}_j\|^2)` over all pairs :math:`i \neq j`, with :math:`t` the
    :obj:`temperature`.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import uniformity
        >>> round(float(uniformity(torch.eye(3), temperature=2.0)), 4)
        -4.0
    """
    unit = x / (x * x).sum(1, keepdim=True).sqrt()
    squared = ((unit[:, None] - unit[None]) ** 2).sum(-1)
    return torch.exp(-temperature * squared)[~torch.eye(x.size(0), dtype=torch.bool)].mean().log()
