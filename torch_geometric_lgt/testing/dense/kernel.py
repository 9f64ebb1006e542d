import torch
from torch import Tensor


def feature_map(
    kind: str, x: Tensor, projection: Tensor | None = None, power: float = 3.0
) -> Tensor:
    r"""Computes the features :math:`\phi(\mathbf{x})` of each vector by their formulas in
    :class:`~torch_geometric_lgt.nn.FeatureMap`, from ``[*, C]`` to ``[*, M]``. Large inputs may
    overflow; there is no rescaling.

    Args:
        kind (str): :obj:`"elu"`, :obj:`"relu"`, :obj:`"focused"` or :obj:`"assignment"` (the
            softmax over the features of a learned map), with :math:`M = C`; :obj:`"softmax"` for
            the random exponentials, with :math:`M` rows of the projection, without the factor
            :math:`M^{-1/2}`; or :obj:`"fourier"`, with :math:`M / 2` rows.
        x (torch.Tensor): The vectors ``[*, C]``.
        projection (torch.Tensor, optional): The rows :math:`\mathbf{w}_m` of the projection, for
            :obj:`"softmax"` and :obj:`"fourier"`. (default: :obj:`None`)
        power (float, optional): :math:`p` of the focused map. (default: :obj:`3.0`)

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import feature_map
        >>> feature_map('elu', torch.tensor([-1., 0., 2.]))
        tensor([0.3679, 1.0000, 3.0000])
    """
    if kind == 'elu':
        return torch.where(x > 0, x + 1, x.exp())
    if kind == 'relu':
        return x.clamp(min=0)
    if kind == 'assignment':
        return x.exp() / x.exp().sum(-1, keepdim=True)
    if kind == 'focused':
        r = x.clamp(min=0)
        dead = (r == 0).all(-1, keepdim=True)
        r = torch.where(dead, torch.ones_like(r), r)
        out = (
            (r * r).sum(-1, keepdim=True).sqrt()
            / (r ** (2 * power)).sum(-1, keepdim=True).sqrt()
            * r**power
        )
        return torch.where(dead, torch.zeros_like(out), out)
    angle = torch.einsum('mc,...c->...m', projection, x)
    half = (x * x).sum(-1, keepdim=True) / 2
    if kind == 'fourier':
        return torch.cat([torch.cos(angle), torch.sin(angle)], -1) * torch.exp(half)
    return torch.exp(angle - half)


def attention_matrix(
    phi_q: Tensor,
    phi_k: Tensor,
    mask: Tensor | None = None,
    batch_q: Tensor | None = None,
    batch_k: Tensor | None = None,
) -> Tensor:
    r"""Computes the attention weights ``[N_q, N_k, H]`` of all keys for all queries, which sum to 1
    for each query and head. A query without a key in its graph has the weights 0.

    Args:
        phi_q (torch.Tensor): The features of the queries ``[N_q, H, M]``.
        phi_k (torch.Tensor): The features of the keys ``[N_k, H, M]``.
        mask (torch.Tensor, optional): A factor for each pair ``[N_q, N_k]``. (default: :obj:`None`)
        batch_q (torch.Tensor, optional): The graph id of each query. (default: :obj:`None`)
        batch_k (torch.Tensor, optional): The graph id of each key. (default: :obj:`None`)

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import attention_matrix
        >>> phi = torch.ones(2, 1, 3)
        >>> attention_matrix(phi, phi)[..., 0]
        tensor([[0.5000, 0.5000],
                [0.5000, 0.5000]])
    """
    weight = torch.einsum('ihm,jhm->ijh', phi_q, phi_k)
    if mask is not None:
        weight = weight * mask[..., None]
    if batch_q is not None and batch_k is not None:
        weight = weight * (batch_q[:, None] == batch_k[None, :])[..., None]
    total = weight.sum(1, keepdim=True)
    return torch.where(
        total == 0,
        torch.zeros_like(weight),
        weight / torch.where(total == 0, torch.ones_like(total), total),
    )


def kernel_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    batch_q: Tensor | None = None,
    batch_k: Tensor | None = None,
) -> Tensor:
    r"""Computes the outputs ``[N_q, H, D]`` of kernelised attention to values :obj:`v`
    ``[N_k, H, D]``: Eq. 6 of MGFormer, or Eq. 8 with a mask.

    The features :obj:`phi_q` are ``[N_q, H, M]`` and :obj:`phi_k` ``[N_k, H, M]``. The
    :obj:`mask` ``[N_q, N_k]`` multiplies the weights before their sum is made 1. The arguments
    :obj:`batch_q` and :obj:`batch_k` are the graph ids.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import kernel_attention
        >>> phi, v = torch.ones(2, 1, 3), torch.tensor([[[1.]], [[3.]]])
        >>> kernel_attention(phi, phi, v).flatten()
        tensor([2., 2.])
    """
    return torch.einsum('ijh,jhd->ihd', attention_matrix(phi_q, phi_k, mask, batch_q, batch_k), v)


def sampled_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    noise: Tensor,
    batch_q: Tensor | None = None,
    batch_k: Tensor | None = None,
) -> Tensor:
    r"""Computes NodeFormer's kernelised Gumbel-softmax ``[N_q, H, D]``: the mean of :math:`K`
    attentions. In attention :math:`k` the features of key :math:`j` are multiplied by
    :math:`\exp(g_{jk})`.

    Args:
        phi_q (torch.Tensor): The features of the queries ``[N_q, H, M]``.
        phi_k (torch.Tensor): The features of the keys ``[N_k, H, M]``.
        v (torch.Tensor): The values ``[N_k, H, D]``.
        noise (torch.Tensor): :math:`g_{jk}`, ``[N_k, H, K]``.
        batch_q (torch.Tensor, optional): The graph id of each query. (default: :obj:`None`)
        batch_k (torch.Tensor, optional): The graph id of each key. (default: :obj:`None`)

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import sampled_attention
        >>> phi, v = torch.ones(2, 1, 3), torch.tensor([[[1.]], [[3.]]])
        >>> noise = torch.tensor([3.0, 1.0]).log().view(2, 1, 1)
        >>> sampled_attention(phi, phi, v, noise).flatten()
        tensor([1.5000, 1.5000])
    """
    weights = torch.exp(noise)
    reads = [
        kernel_attention(phi_q, phi_k * weights[:, :, k : k + 1], v, None, batch_q, batch_k)
        for k in range(noise.shape[2])
    ]
    return torch.stack(reads).mean(0)


def degree_mask(z_q: Tensor, z_k: Tensor) -> Tensor:
    r"""Computes the mask ``[N_q, N_k]`` of Eq. 10 of MGFormer, :math:`M_{ij} = \sin(\frac{\pi}{2}
    \cdot \frac{z_i + z_j}{2})`, from numbers :obj:`z_q` ``[N_q]`` and :obj:`z_k` ``[N_k]`` between
    0 and 1.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import degree_mask
        >>> degree_mask(torch.tensor([0., 1.]), torch.tensor([0., 1.]))
        tensor([[0.0000, 0.7071],
                [0.7071, 1.0000]])
    """
    return torch.sin(torch.pi / 2 * (z_q[:, None] + z_k[None, :]) / 2)
