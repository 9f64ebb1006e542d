r"""Writes attention layers as their formulas read: whole feature matrices, product after
product, left to autograd."""

# N nodes, E edges, F input width, C channels, M features, H heads, K samples.
import torch
from torch import Tensor
from torch_geometric.nn.attention import PerformerAttention

from torch_geometric_lgt.nn import (
    DegreeMaskedAttention,
    DIFFormerConv,
    KernelAttentionConv,
    SGFormerConv,
)


def positive_features(x: Tensor, projection: Tensor, is_key: bool) -> Tensor:
    logits = x @ projection.t() - x.square().sum(-1, keepdim=True) / 2
    return (logits - (logits.max() if is_key else logits.amax(-1, keepdim=True))).exp()


def kernel_attention(layer: KernelAttentionConv, x: Tensor) -> Tensor:
    r"""Computes Eq. 6 of MGFormer with the positive features of Eq. 7."""
    scale, projection = layer.head_key_channels**-0.25, layer.feature_map.projection
    phi_q = positive_features(layer.lin_query(x) * scale, projection, False)
    phi_k = positive_features(layer.lin_key(x) * scale, projection, True)
    numerator = phi_q @ (phi_k.t() @ layer.lin_value(x))
    denominator = phi_q @ phi_k.sum(0)
    return numerator / denominator[:, None]


def learned_attention(layer: KernelAttentionConv, x: Tensor) -> Tensor:
    r"""Computes Eq. 6 of MGFormer with softmax over learned features."""
    matrix = layer.feature_map.head_projection()[0]
    phi_q, phi_k = ((lin(x) @ matrix.t()).softmax(-1) for lin in (layer.lin_query, layer.lin_key))
    numerator = phi_q @ (phi_k.t() @ layer.lin_value(x))
    return numerator / (phi_q @ phi_k.sum(0))[:, None]


def degree_masked_attention(layer: DegreeMaskedAttention, x: Tensor, degree: Tensor) -> Tensor:
    r"""Computes Eq. 12 of MGFormer: the sine of a sum as two products of masked features."""
    scale, projection = layer.head_key_channels**-0.25, layer.feature_map.projection
    phi_q = positive_features(layer.lin_query(x) * scale, projection, False)
    phi_k = positive_features(layer.lin_key(x) * scale, projection, True)
    value = layer.lin_value(x)
    angle = torch.pi / 4 * layer.lin_degree(layer.degree_embedding(degree)).sigmoid()
    sin, cos = angle.sin(), angle.cos()
    q_sin, q_cos, k_sin, k_cos = phi_q * sin, phi_q * cos, phi_k * sin, phi_k * cos
    numerator = q_sin @ (k_cos.t() @ value) + q_cos @ (k_sin.t() @ value)
    denominator = q_sin @ k_cos.sum(0) + q_cos @ k_sin.sum(0)
    return numerator / denominator[:, None]


def gumbel_attention(layer: KernelAttentionConv, x: Tensor) -> Tensor:
    r"""Computes NodeFormer's kernelised Gumbel-softmax, with the weighted features of all
    samples at once and one maximum over all keys."""
    heads, samples, tau = layer.heads, layer.num_gumbel_samples, layer.temperature
    scale, projection = layer.data_normalizer(True), layer.feature_map.projection
    q, k, v = (
        lin(x).unflatten(1, (heads, -1))
        for lin in (layer.lin_query, layer.lin_key, layer.lin_value)
    )
    phi_q, phi_k = (
        positive_features(part * scale, projection, is_key)
        for part, is_key in ((q, False), (k, True))
    )
    noise = -x.new_empty(x.size(0), heads * samples).exponential_().log() / tau
    weighted = phi_k[:, :, None] * noise.exp().unflatten(1, (heads, -1))[..., None]
    state = torch.einsum('nhkm,nhd->hkmd', weighted, v)
    numerator = torch.einsum('nhm,hkmd->nhkd', phi_q, state)
    denominator = torch.einsum('nhm,hkm->nhk', phi_q, weighted.sum(0))
    return (numerator / denominator[..., None]).mean(2).flatten(1)


def log_edge_probability(layer: KernelAttentionConv, x: Tensor, edge_index: Tensor) -> Tensor:
    r"""Computes NodeFormer's edge loss for a layer with one head, without temperature and noise.
    The features of both ends of all edges are in memory at once."""
    scale, projection = layer.head_key_channels**-0.25, layer.feature_map.projection
    phi_q = positive_features(layer.lin_query(x) * scale, projection, False)
    phi_k = positive_features(layer.lin_key(x) * scale, projection, True)
    source, target = edge_index
    weight = (phi_q[target] * phi_k[source]).sum(1)
    return (weight / (phi_q @ phi_k.sum(0))[target]).log()[:, None]


def sgformer_attention(layer: SGFormerConv, x: Tensor) -> Tensor:
    r"""Computes SGFormer's attention with Frobenius norms."""
    q, k, v = (lin(x) for lin in (layer.lin_query, layer.lin_key, layer.lin_value))
    q, k, num_nodes = q / q.norm(), k / k.norm(), x.size(0)
    return (num_nodes * v + q @ (k.t() @ v)) / (num_nodes + q @ k.sum(0))[:, None]


def diffusion_attention(layer: DIFFormerConv, x: Tensor) -> Tensor:
    r"""Computes DIFFormer's simple kernel with either norm."""
    q, k, v = (lin(x) for lin in (layer.lin_query, layer.lin_key, layer.lin_value))
    length = (lambda y: y.norm(dim=1, keepdim=True)) if layer.norm == 'row' else torch.norm
    q, k = q / length(q), k / length(k)
    return (v.sum(0) + q @ (k.t() @ v)) / (x.size(0) + q @ k.sum(0))[:, None]


def performer_attention(layer: PerformerAttention, x: Tensor) -> Tensor:
    r"""Computes what PyG's layer with one head claims, over all pairs, with rectified
    projections and a small constant as features."""
    q, k = (
        (lin(x) @ layer.fast_attn.projection_matrix.t()).relu() + 1e-3 for lin in (layer.q, layer.k)
    )
    weight = q @ k.t()
    return layer.attn_out(weight / weight.sum(1, keepdim=True) @ layer.v(x))
