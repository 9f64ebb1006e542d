r"""The definitions, written as their formulas read, with an ``N x N`` weight matrix. They share no
code with the fast paths."""

import torch
from torch import Tensor


def feature_map(
    kind: str, x: Tensor, projection: Tensor | None = None, power: float = 3.0
) -> Tensor:
    r""":math:`\phi(\mathbf{x})` of the last dimension, exponentials and all."""
    if kind == 'elu':
        return torch.where(x > 0, x + 1, x.exp())
    if kind == 'relu':
        return x.clamp(min=0)
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
    r"""Row-normalised weights ``[N_q, N_k, H]`` from features ``[N, H, M]``; rows with no key in
    their graph are 0."""
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
    r"""Eq. 6 (and Eq. 8 with a mask) of MGFormer, ``[N, H, D]``."""
    return torch.einsum('ijh,jhd->ihd', attention_matrix(phi_q, phi_k, mask, batch_q, batch_k), v)


def sampled_attention(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    noise: Tensor,
    batch_q: Tensor | None = None,
    batch_k: Tensor | None = None,
) -> Tensor:
    r"""The kernelised Gumbel-softmax of NodeFormer with given log-weights ``[N, H, K]``: the mean
    of K attentions."""
    weights = torch.exp(noise)
    reads = [
        kernel_attention(phi_q, phi_k * weights[:, :, k : k + 1], v, None, batch_q, batch_k)
        for k in range(noise.shape[2])
    ]
    return torch.stack(reads).mean(0)


def normalised(x: Tensor, norm: str, batch: Tensor | None = None) -> Tensor:
    r"""``[N, H, C]`` with each row, or for :obj:`"frobenius"` the rows of a graph and head
    together, brought to length 1; 0 stays 0."""
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
    r"""``[N, H, 1]``: :math:`1 / (c + p)`, and 0 where the constant and the sum of the inner
    products cancel: where no more than half of :math:`C + 8` units of rounding of :math:`|c| + |p|`
    are left, with Frobenius norms 64 times as much."""
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
    r"""DIFFormer's simple kernel: weights :math:`1 + \tilde{\mathbf{q}}_i^{\top}
    \tilde{\mathbf{k}}_j`, row-normalised."""
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
    r"""DIFFormer's sigmoid kernel: weights :math:`\sigma(\mathbf{q}_i^{\top} \mathbf{k}_j)`,
    row-normalised."""
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
    r"""SGFormer's: :math:`\mathbf{D}^{-1} [\mathbf{V} + \tilde{\mathbf{Q}}
    (\tilde{\mathbf{K}}^{\top} \mathbf{V}) / N]` over the nodes of a graph, where the first
    :math:`\mathbf{V}` is that of the queries, :obj:`own`."""
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
    r"""Eq. 10 of MGFormer: :math:`M_{ij} = \sin(\frac{\pi}{2} \cdot \frac{z_i + z_j}{2})`."""
    return torch.sin(torch.pi / 2 * (z_q[:, None] + z_k[None, :]) / 2)


def uniformity(x: Tensor, temperature: float) -> Tensor:
    r"""The second part of Eq. 13 of MGFormer for one side: all ordered pairs of different rows, on
    the unit sphere."""
    unit = x / (x * x).sum(1, keepdim=True).sqrt()
    squared = ((unit[:, None] - unit[None]) ** 2).sum(-1)
    return torch.exp(-temperature * squared)[~torch.eye(x.size(0), dtype=torch.bool)].mean().log()


def jaccard(adjacency: Tensor) -> Tensor:
    r"""Eq. 7 of LiteGT for all pairs ``[N, N]`` from neighbourhoods as the rows of a 0/1 matrix; 0
    for two empty ones."""
    shared = torch.einsum('ik,jk->ij', adjacency, adjacency)
    either = 1 - torch.einsum('ik,jk->ijk', 1 - adjacency, 1 - adjacency)
    return shared / either.sum(2).clamp(min=1)


def edge_weights(
    kernel: str, count: Tensor, score: Tensor, mask: Tensor | None = None, normalize: bool = True
) -> Tensor:
    r"""The weights ``[N_t, N_s, H]`` of one branch of LiteGT (Eq. 3 and 7-9) from how often an edge
    joins each pair, or the sum of the weights of the edges that do, and the pairs' scores: logits
    of the softmax, Jaccard indices or distances."""
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
    r"""``[N_t, N_s]``: the sum of the weights of the edges from each source to each target."""
    to_target = (torch.arange(num_dst)[:, None] == edge_index[1]).to(weight.dtype)
    from_source = (edge_index[0][:, None] == torch.arange(num_src)).to(weight.dtype)
    return torch.einsum('ie,e,ej->ij', to_target, weight, from_source)


def normalised_adjacency(adjacency: Tensor) -> Tensor:
    r""":math:`\mathbf{D}_t^{-1/2} \mathbf{A} \mathbf{D}_s^{-1/2}` of a matrix ``[N_t, N_s]`` with
    its row sums and column sums; 0 where such a sum is 0."""
    totals = adjacency.sum(1), adjacency.sum(0)
    row, column = (
        torch.where(d == 0, torch.zeros_like(d), torch.where(d == 0, torch.ones_like(d), d) ** -0.5)
        for d in totals
    )
    return row[:, None] * adjacency * column
