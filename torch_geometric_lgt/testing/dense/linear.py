import torch
from torch import Tensor

from torch_geometric_lgt.testing.dense._arguments import check_known, same_graph


def normalised(x: Tensor, norm: str, batch: Tensor | None = None) -> Tensor:
    r"""Divides the vectors in :obj:`x` ``[N, H, C]`` by their norm; vectors of norm 0 become 0.

    Args:
        x (torch.Tensor): The vectors ``[N, H, C]``.
        norm (str): :obj:`"row"`, the length of each vector, or :obj:`"frobenius"`, the norm of all
            vectors of its graph and head together. (Another name raises a ValueError.)
        batch (torch.Tensor, optional): The graph id of each vector ``[N]``. (default: :obj:`None`,
            one graph)

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import normalised
        >>> normalised(torch.tensor([[[3., 4.]], [[0., 0.]]]), 'row')[:, 0]
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    check_known('norm', norm, ('row', 'frobenius'))
    if norm == 'row':
        same = torch.eye(x.shape[0], dtype=x.dtype, device=x.device)
    else:
        one_graph = torch.zeros(x.shape[0], dtype=torch.long, device=x.device)
        batch = one_graph if batch is None else batch
        same = (batch[:, None] == batch[None, :]).to(x.dtype)
    length = torch.einsum('ij,jhc->ih', same, x * x).sqrt()
    return (
        torch.where(
            length == 0,
            torch.zeros_like(length),
            1 / torch.where(length == 0, torch.ones_like(length), length),
        )[..., None]
        * x
    )


def inverse_denominators(constant: Tensor, products: Tensor, channels: int, norm: str) -> Tensor:
    r"""Computes :math:`1 / (c + p)` ``[N, H, 1]``, the inverse denominators of DIFFormer's and
    SGFormer's attention, or 0 if the sum is 0 up to rounding errors.

    That is the case if :math:`|c + p| \leq \varepsilon (|c| + |p|) (C + 8) / 2`, the rule of
    :meth:`~torch_geometric_lgt.functional.linear_attention`. Here :math:`\varepsilon` is the
    machine epsilon of the dtype, and an inner product of :math:`C` channels has an error of at most
    :math:`C + 8` roundings. For Frobenius norms :math:`\varepsilon` is 64 times larger, because the
    norms may come from another pass with other roundings.

    Args:
        constant (torch.Tensor): :math:`c`, ``[N, H]``.
        products (torch.Tensor): :math:`p`, the sum of the inner products ``[N, H]``.
        channels (int): :math:`C`.
        norm (str): :obj:`"row"` or :obj:`"frobenius"`.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import inverse_denominators
        >>> constant, products = torch.ones(2, 1), torch.tensor([[1.], [-1.]])
        >>> inverse_denominators(constant, products, 4, 'row').flatten()
        tensor([0.5000, 0.0000])
    """
    check_known('norm', norm, ('row', 'frobenius'))
    total = constant + products
    unit = torch.finfo(products.dtype).eps * (64 if norm == 'frobenius' else 1)
    dead = total.abs() <= (channels + 8) / 2 * unit * (constant.abs() + products.abs())
    return torch.where(
        dead, torch.zeros_like(total), 1 / torch.where(dead, torch.ones_like(total), total)
    )[..., None]


def diffusion_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    norm: str,
    batch_q: Tensor | None = None,
    batch_k: Tensor | None = None,
) -> Tensor:
    r"""Computes attention with DIFFormer's simple kernel,
    :meth:`~torch_geometric_lgt.functional.linear_attention` without :obj:`self_value`, ``[N_t, H,
    D]``: the weights :math:`1 + \tilde{\mathbf{q}}_i^{\top} \tilde{\mathbf{k}}_j` are divided by
    their sum for each query.

    Args:
        q (torch.Tensor): The queries ``[N_t, H, C]``, to be normalised here.
        k (torch.Tensor): The keys ``[N_s, H, C]``, to be normalised here.
        v (torch.Tensor): The values ``[N_s, H, D]``.
        norm (str): :obj:`"row"` or :obj:`"frobenius"`, see :meth:`normalised`.
        batch_q (torch.Tensor, optional): The graph id of each query.
            (default: :obj:`None`, one graph)
        batch_k (torch.Tensor, optional): The graph id of each key.
            (default: :obj:`None`, one graph)

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import diffusion_attention
        >>> q, v = torch.ones(2, 1, 1), torch.tensor([[[1.]], [[3.]]])
        >>> diffusion_attention(q, q, v, 'row').flatten()
        tensor([2., 2.])
    """
    similarity = torch.einsum(
        'ihc,jhc->ijh', normalised(q, norm, batch_q), normalised(k, norm, batch_k)
    )
    same = same_graph(q, k, batch_q, batch_k)[..., None].expand_as(similarity)
    share = inverse_denominators(same.sum(1), (similarity * same).sum(1), q.shape[2], norm)
    return torch.einsum('ijh,jhd->ihd', (1 + similarity) * same, v) * share


def sigmoid_attention(
    q: Tensor, k: Tensor, v: Tensor, batch_q: Tensor | None = None, batch_k: Tensor | None = None
) -> Tensor:
    r"""Computes attention with DIFFormer's sigmoid kernel, ``[N_t, H, D]``: the weights
    :math:`\sigma(\mathbf{q}_i^{\top} \mathbf{k}_j)` are divided by their sum for each query.

    The arguments are those of :meth:`diffusion_attention`. A query without a key in its graph gets
    0.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import sigmoid_attention
        >>> q, v = torch.zeros(2, 1, 1), torch.tensor([[[1.]], [[3.]]])
        >>> sigmoid_attention(q, q, v).flatten()
        tensor([2., 2.])
    """
    weight = 1 / (1 + torch.exp(-torch.einsum('ihc,jhc->ijh', q, k)))
    weight = weight * same_graph(q, k, batch_q, batch_k)[..., None]
    total = weight.sum(1)[..., None]
    return torch.einsum('ijh,jhd->ihd', weight, v) / torch.where(
        total == 0, torch.ones_like(total), total
    )


def sgformer_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    own: Tensor,
    norm: str,
    batch_q: Tensor | None = None,
    batch_k: Tensor | None = None,
) -> Tensor:
    r"""Computes SGFormer's attention ``[N_t, H, D]`` over the :math:`N` keys of each graph:
    :math:`\mathbf{D}^{-1} [\mathbf{V} + \tilde{\mathbf{Q}} (\tilde{\mathbf{K}}^{\top} \mathbf{V}) /
    N]`.

    The matrix :math:`\mathbf{D} = \mathrm{diag}(\mathbf{1} + \tilde{\mathbf{Q}}
    (\tilde{\mathbf{K}}^{\top} \mathbf{1}) / N)` is inverted by :meth:`inverse_denominators`. The
    first :math:`\mathbf{V}` is :obj:`own` ``[N_t, H, D]``, the values of the queries
    (:obj:`self_value` of :meth:`~torch_geometric_lgt.functional.linear_attention`). The second is
    :obj:`v` ``[N_s, H, D]``, the values of the keys. The other arguments are those of
    :meth:`diffusion_attention`.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import sgformer_attention
        >>> q, v = torch.ones(2, 1, 1), torch.tensor([[[1.]], [[3.]]])
        >>> sgformer_attention(q, q, v, v, 'row').flatten()
        tensor([1.5000, 2.5000])
    """
    weight = torch.einsum(
        'ihc,jhc->ijh', normalised(q, norm, batch_q), normalised(k, norm, batch_k)
    )
    same = same_graph(q, k, batch_q, batch_k)
    weight = weight * (same / same.sum(1, keepdim=True).clamp(min=1))[..., None]
    total = weight.sum(1)
    return (own + torch.einsum('ijh,jhd->ihd', weight, v)) * inverse_denominators(
        torch.ones_like(total), total, q.shape[2], norm
    )
