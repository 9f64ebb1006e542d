r"""The definitions, written as their formulas read, with an ``N x N`` weight matrix. They share no code with the fast paths."""

import torch
from torch import Tensor


def feature_map(kind: str, x: Tensor, projection: Tensor | None = None, power: float = 3.0) -> Tensor:
    r""":math:`\phi(\mathbf{x})` of the last dimension, exponentials and all."""
    if kind == 'elu':
        return torch.where(x > 0, x + 1, x.exp())
    if kind == 'relu':
        return x.clamp(min=0)
    if kind == 'focused':
        r = x.clamp(min=0)
        dead = (r == 0).all(-1, keepdim=True)
        r = torch.where(dead, torch.ones_like(r), r)
        out = (r * r).sum(-1, keepdim=True).sqrt() / (r ** (2 * power)).sum(-1, keepdim=True).sqrt() * r**power
        return torch.where(dead, torch.zeros_like(out), out)
    angle = torch.einsum('mc,...c->...m', projection, x)
    half = (x * x).sum(-1, keepdim=True) / 2
    if kind == 'fourier':
        return torch.cat([torch.cos(angle), torch.sin(angle)], -1) * torch.exp(half)
    return torch.exp(angle - half)


def attention_matrix(
    phi_q: Tensor, phi_k: Tensor, mask: Tensor | None = None, batch_q: Tensor | None = None, batch_k: Tensor | None = None
) -> Tensor:
    r"""Row-normalised weights ``[N_q, N_k, H]`` from features ``[N, H, M]``; rows with no key in their graph are 0."""
    weight = torch.einsum('ihm,jhm->ijh', phi_q, phi_k)
    if mask is not None:
        weight = weight * mask[..., None]
    if batch_q is not None and batch_k is not None:
        weight = weight * (batch_q[:, None] == batch_k[None, :])[..., None]
    total = weight.sum(1, keepdim=True)
    return torch.where(total == 0, torch.zeros_like(weight), weight / torch.where(total == 0, torch.ones_like(total), total))


def kernel_attention(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, mask: Tensor | None = None, batch_q: Tensor | None = None, batch_k: Tensor | None = None
) -> Tensor:
    r"""Eq. 6 (and Eq. 8 with a mask) of MGFormer, ``[N, H, D]``."""
    return torch.einsum('ijh,jhd->ihd', attention_matrix(phi_q, phi_k, mask, batch_q, batch_k), v)


def sampled_attention(
    phi_q: Tensor, phi_k: Tensor, v: Tensor, noise: Tensor, batch_q: Tensor | None = None, batch_k: Tensor | None = None
) -> Tensor:
    r"""The kernelised Gumbel-softmax of NodeFormer with given log-weights ``[N, H, K]``: the mean of K attentions."""
    weights = torch.exp(noise)
    reads = [kernel_attention(phi_q, phi_k * weights[:, :, k : k + 1], v, None, batch_q, batch_k) for k in range(noise.shape[2])]
    return torch.stack(reads).mean(0)


def degree_mask(z_q: Tensor, z_k: Tensor) -> Tensor:
    r"""Eq. 10 of MGFormer: :math:`M_{ij} = \sin(\frac{\pi}{2} \cdot \frac{z_i + z_j}{2})`."""
    return torch.sin(torch.pi / 2 * (z_q[:, None] + z_k[None, :]) / 2)


def uniformity(x: Tensor, temperature: float) -> Tensor:
    r"""The second part of Eq. 13 of MGFormer for one side: all ordered pairs of different rows, on the unit sphere."""
    unit = x / (x * x).sum(1, keepdim=True).sqrt()
    squared = ((unit[:, None] - unit[None]) ** 2).sum(-1)
    return torch.exp(-temperature * squared)[~torch.eye(x.size(0), dtype=torch.bool)].mean().log()
