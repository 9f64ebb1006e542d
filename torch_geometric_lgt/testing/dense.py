r"""Computes the formulas as they read, with an ``N x N`` weight matrix. The definitions share no
code with the fast paths."""

import torch
from torch import Tensor


def feature_map(
    kind: str, x: Tensor, projection: Tensor | None = None, power: float = 3.0
) -> Tensor:
    r"""Applies :math:`\phi(\mathbf{x})` to the last dimension, without a shift of exponents.

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
    r"""Returns row-normalised weights ``[N_q, N_k, H]`` from features ``[N, H, M]``. Rows with no
    key in their graph are 0.

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
    r"""Computes Eq. 6 of MGFormer, or Eq. 8 with a mask, ``[N, H, D]``.

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
    r"""Computes NodeFormer's kernelised Gumbel-softmax, the mean of K attentions.

    The noise ``[N, H, K]`` holds the logarithms of the weights of the keys.

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


def normalised(x: Tensor, norm: str, batch: Tensor | None = None) -> Tensor:
    r"""Scales each row of ``[N, H, C]`` to length 1, or with :obj:`"frobenius"` the rows of a graph
    and head together. 0 stays 0.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import normalised
        >>> normalised(torch.tensor([[[3., 4.]], [[0., 0.]]]), 'row')[:, 0]
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    if norm == 'row':
        same = torch.eye(x.shape[0], dtype=x.dtype)
    else:
        batch = torch.zeros(x.shape[0], dtype=torch.long) if batch is None else batch
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


def share_of(constant: Tensor, products: Tensor, channels: int, norm: str) -> Tensor:
    r"""Returns :math:`1 / (c + p)`, ``[N, H, 1]``, and 0 where the constant :math:`c` and the sum
    :math:`p` of the inner products cancel.

    They cancel if at most half of :math:`C + 8` units of rounding of :math:`|c| + |p|` remain. The
    bound is 64 times as large with Frobenius norms.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import share_of
        >>> constant, products = torch.ones(2, 1), torch.tensor([[1.], [-1.]])
        >>> share_of(constant, products, 4, 'row').flatten()
        tensor([0.5000, 0.0000])
    """
    total, unit = (
        constant + products,
        torch.finfo(products.dtype).eps * (64 if norm == 'frobenius' else 1),
    )
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
    r"""Computes attention with DIFFormer's simple kernel: weights :math:`1 +
    \tilde{\mathbf{q}}_i^{\top} \tilde{\mathbf{k}}_j`, row-normalised.

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
    same = torch.ones_like(similarity)
    if batch_q is not None and batch_k is not None:
        same = same * (batch_q[:, None] == batch_k[None, :])[..., None]
    share = share_of(same.sum(1), (similarity * same).sum(1), q.shape[2], norm)
    return torch.einsum('ijh,jhd->ihd', (1 + similarity) * same, v) * share


def sigmoid_attention(
    q: Tensor, k: Tensor, v: Tensor, batch_q: Tensor | None = None, batch_k: Tensor | None = None
) -> Tensor:
    r"""Computes attention with DIFFormer's sigmoid kernel: weights
    :math:`\sigma(\mathbf{q}_i^{\top} \mathbf{k}_j)`, row-normalised.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import sigmoid_attention
        >>> q, v = torch.zeros(2, 1, 1), torch.tensor([[[1.]], [[3.]]])
        >>> sigmoid_attention(q, q, v).flatten()
        tensor([2., 2.])
    """
    weight = 1 / (1 + torch.exp(-torch.einsum('ihc,jhc->ijh', q, k)))
    if batch_q is not None and batch_k is not None:
        weight = weight * (batch_q[:, None] == batch_k[None, :])[..., None]
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
    r"""Computes SGFormer's attention over the nodes of a graph: :math:`\mathbf{D}^{-1} [\mathbf{V}
    + \tilde{\mathbf{Q}} (\tilde{\mathbf{K}}^{\top} \mathbf{V}) / N]`. The first
    :math:`\mathbf{V}` holds the values of the queries, :obj:`own`.

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
    same = torch.ones_like(weight[..., 0])
    if batch_q is not None and batch_k is not None:
        same = (batch_q[:, None] == batch_k[None, :]).to(weight.dtype)
    weight = weight * (same / same.sum(1, keepdim=True).clamp(min=1))[..., None]
    return (own + torch.einsum('ijh,jhd->ihd', weight, v)) * share_of(
        torch.ones_like(weight[:, 0]), weight.sum(1), q.shape[2], norm
    )


def degree_mask(z_q: Tensor, z_k: Tensor) -> Tensor:
    r"""Computes Eq. 10 of MGFormer: :math:`M_{ij} = \sin(\frac{\pi}{2} \cdot \frac{z_i +
    z_j}{2})`.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import degree_mask
        >>> degree_mask(torch.tensor([0., 1.]), torch.tensor([0., 1.]))
        tensor([[0.0000, 0.7071],
                [0.7071, 1.0000]])
    """
    return torch.sin(torch.pi / 2 * (z_q[:, None] + z_k[None, :]) / 2)


def uniformity(x: Tensor, temperature: float) -> Tensor:
    r"""Computes the second part of Eq. 13 of MGFormer for users or items: the mean runs over all
    ordered pairs of different rows, on the unit sphere.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import uniformity
        >>> round(float(uniformity(torch.eye(3), temperature=2.0)), 4)
        -4.0
    """
    unit = x / (x * x).sum(1, keepdim=True).sqrt()
    squared = ((unit[:, None] - unit[None]) ** 2).sum(-1)
    return torch.exp(-temperature * squared)[~torch.eye(x.size(0), dtype=torch.bool)].mean().log()


def jaccard(adjacency: Tensor) -> Tensor:
    r"""Computes Eq. 7 of LiteGT for all pairs, ``[N, N]``, from a 0/1 matrix whose rows are
    neighbourhoods. The index of two empty neighbourhoods is 0.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import jaccard
        >>> jaccard(torch.tensor([[1., 1.], [0., 1.]]))
        tensor([[1.0000, 0.5000],
                [0.5000, 1.0000]])
    """
    shared = torch.einsum('ik,jk->ij', adjacency, adjacency)
    either = 1 - torch.einsum('ik,jk->ijk', 1 - adjacency, 1 - adjacency)
    return shared / either.sum(2).clamp(min=1)


def edge_weights(
    kernel: str, count: Tensor, score: Tensor, mask: Tensor | None = None, normalize: bool = True
) -> Tensor:
    r"""Returns the weights ``[N_t, N_s, H]`` of one branch of LiteGT (Eq. 3 and 7-9).

    The count holds how many edges join each pair, or the sum of their weights. The scores are
    logits of the softmax, Jaccard indices or distances.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import edge_weights
        >>> count, score = torch.tensor([[1., 1.]]), torch.tensor([[[1.], [3.]]])
        >>> edge_weights('jaccard', count, score).flatten()
        tensor([0.2500, 0.7500])
    """
    degree = count.sum(1)[:, None, None]
    mean = (count[..., None] / torch.where(degree == 0, torch.ones_like(degree), degree)).expand_as(
        score
    )
    if kernel == 'mean':
        return mean
    weight = count[..., None] * (torch.exp(score) if kernel == 'softmax' else score)
    if kernel != 'softmax' and not normalize:
        return weight
    total = weight.sum(1, keepdim=True)
    weight = torch.where(
        total == 0, mean, weight / torch.where(total == 0, torch.ones_like(total), total)
    )
    return (
        torch.where(mask[:, None, None], weight, mean)
        if kernel == 'softmax' and mask is not None
        else weight
    )


def adjacency_matrix(edge_index: Tensor, weight: Tensor, num_src: int, num_dst: int) -> Tensor:
    r"""Sums the weights of the edges from each source to each target, ``[N_t, N_s]``.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import adjacency_matrix
        >>> edge_index, weight = torch.tensor([[0, 0, 1], [1, 1, 0]]), torch.ones(3)
        >>> adjacency_matrix(edge_index, weight, num_src=2, num_dst=2)
        tensor([[0., 1.],
                [2., 0.]])
    """
    to_target = (torch.arange(num_dst)[:, None] == edge_index[1]).to(weight.dtype)
    from_source = (edge_index[0][:, None] == torch.arange(num_src)).to(weight.dtype)
    return torch.einsum('ie,e,ej->ij', to_target, weight, from_source)


def normalised_adjacency(adjacency: Tensor) -> Tensor:
    r"""Computes :math:`\mathbf{D}_t^{-1/2} \mathbf{A} \mathbf{D}_s^{-1/2}` of a matrix ``[N_t,
    N_s]`` with its row sums and column sums. Entries are 0 where such a sum is 0.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.testing.dense import normalised_adjacency
        >>> normalised_adjacency(torch.tensor([[0., 4.], [4., 0.]]))
        tensor([[0., 1.],
                [1., 0.]])
    """
    totals = adjacency.sum(1), adjacency.sum(0)
    row, column = (
        torch.where(d == 0, torch.zeros_like(d), torch.where(d == 0, torch.ones_like(d), d) ** -0.5)
        for d in totals
    )
    return row[:, None] * adjacency * column
