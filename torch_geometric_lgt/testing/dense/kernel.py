import torch
from torch import Tensor

from torch_geometric_lgt.testing.dense._arguments import check_known, same_graph

KINDS = ('elu', 'relu', 'focused', 'assignment', 'softmax', 'fourier')


def feature_map(
    kind: str, x: Tensor, projection: Tensor | None = None, power: float = 3.0
) -> Tensor:
    r"""Computes the features :math:`\phi(\mathbf{x})` of each vector by their formulas in
    :class:`~torch_geometric_lgt.nn.FeatureMap`, for vectors ``[*, C]`` and :math:`M` rows of the
    projection. Large inputs may overflow; there is no rescaling.

    Args:
        kind (str): :obj:`"elu"`, :obj:`"relu"` or :obj:`"focused"`; :obj:`"assignment"` for the map
            :obj:`"learned"` of layers, the softmax over its logits :obj:`x`; :obj:`"softmax"` for
            the random exponentials :obj:`"positive"`, :obj:`"orthogonal"` and :obj:`"simplex"`,
            without the factor :math:`M^{-1/2}`; or :obj:`"fourier"`.
        x (torch.Tensor): The vectors ``[*, C]``.
        projection (torch.Tensor, optional): The rows :math:`\mathbf{w}_m` of the projection ``[M,
            C]``, for :obj:`"softmax"` and :obj:`"fourier"`; other maps ignore it. (default:
            :obj:`None`)
        power (float, optional): :math:`p` of the focused map. (default: :obj:`3.0`)

    Returns:
        ``[*, C]``, ``[*, M]`` for :obj:`"softmax"`, or ``[*, 2 * M]`` for :obj:`"fourier"`

    Raises:
        ValueError: If :obj:`kind` is unknown, or :obj:`projection` is missing.

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
    check_known('kind', kind, KINDS)
    if projection is None:
        raise ValueError(f"'projection' must be given for the random features {kind!r} (got None)")
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
    r"""Computes the attention weights ``[N_t, N_s, H]`` of all keys for all queries: :math:`M_{ij}
    \, \phi(\mathbf{q}_i)^{\top} \phi(\mathbf{k}_j)`, divided by its sum over the keys :math:`j` in
    the graph of query :math:`i`. If the sum of a query is 0, its weights are 0. A graph without
    keys is such a case.

    Args:
        phi_q (torch.Tensor): The features of the queries ``[N_t, H, M]``.
        phi_k (torch.Tensor): The features of the keys ``[N_s, H, M]``.
        mask (torch.Tensor, optional): The factor :math:`M_{ij}` of each pair ``[N_t, N_s]``.
            (default: :obj:`None`, 1)
        batch_q (torch.Tensor, optional): The graph id of each query.
            (default: :obj:`None`, one graph)
        batch_k (torch.Tensor, optional): The graph id of each key.
            (default: :obj:`None`, one graph)

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
    weight = weight * same_graph(phi_q, phi_k, batch_q, batch_k)[..., None]
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
    r"""Computes the outputs ``[N_t, H, D]`` of kernelised attention to values :obj:`v` ``[N_s, H,
    D]``: Eq. 6 of `MGFormer <https://arxiv.org/abs/2405.04028>`_, or Eq. 8 with a mask.

    The features :obj:`phi_q` are ``[N_t, H, M]`` and :obj:`phi_k` ``[N_s, H, M]``. The :obj:`mask`
    ``[N_t, N_s]`` multiplies the weights before they are divided by their sum. The arguments
    :obj:`batch_q` and :obj:`batch_k` are the graph ids of queries and keys, see
    :meth:`attention_matrix`.

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
    r"""Computes NodeFormer's kernelised Gumbel-softmax ``[N_t, H, D]``: the mean of :math:`K`
    attentions. In attention :math:`k` the features of key :math:`j` are multiplied by
    :math:`\exp(\gamma_{jk})`.

    Args:
        phi_q (torch.Tensor): The features of the queries ``[N_t, H, M]``.
        phi_k (torch.Tensor): The features of the keys ``[N_s, H, M]``.
        v (torch.Tensor): The values ``[N_s, H, D]``.
        noise (torch.Tensor): :math:`\gamma_{jk}`, ``[N_s, H, K]``: Gumbel noise, divided by the
            temperature.
        batch_q (torch.Tensor, optional): The graph id of each query.
            (default: :obj:`None`, one graph)
        batch_k (torch.Tensor, optional): The graph id of each key.
            (default: :obj:`None`, one graph)

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
    r"""Computes the degree mask ``[N_t, N_s]`` of `MGFormer <https://arxiv.org/abs/2405.04028>`_
    (Eq. 10), :math:`M_{ij} = \sin(\frac{\pi}{2} \cdot \frac{z_i + z_j}{2})`. The numbers :math:`z`
    between 0 and 1 of the queries, :obj:`z_q` ``[N_t]``, and of the keys, :obj:`z_k` ``[N_s]``, are
    learned functions of the degrees, see :class:`~torch_geometric_lgt.nn.DegreeMaskedAttention`.
    Their range is not checked.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import degree_mask
        >>> degree_mask(torch.tensor([0., 1.]), torch.tensor([0., 1.]))
        tensor([[0.0000, 0.7071],
                [0.7071, 1.0000]])
    """
    return torch.sin(torch.pi / 2 * (z_q[:, None] + z_k[None, :]) / 2)
