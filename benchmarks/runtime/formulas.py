r"""The attention layers as their formulas read: whole feature matrices, one product after the other, left to autograd."""

# N nodes, F input width, C channels, M features, one head.
import torch
from torch import Tensor

from torch_geometric_lgt.nn import DegreeMaskedAttention, KernelAttentionConv


def positive_features(x: Tensor, projection: Tensor, is_key: bool) -> Tensor:
    logits = x @ projection.t() - x.square().sum(1, keepdim=True) / 2
    return (logits - (logits.max() if is_key else logits.amax(1, keepdim=True))).exp()


def kernel_attention(layer: KernelAttentionConv, x: Tensor) -> Tensor:
    r"""Eq. 6 of MGFormer with the positive features of Eq. 7."""
    scale, projection = layer.head_channels**-0.25, layer.feature_map.projection
    phi_q = positive_features(layer.lin_query(x) * scale, projection, False)
    phi_k = positive_features(layer.lin_key(x) * scale, projection, True)
    numerator = phi_q @ (phi_k.t() @ layer.lin_value(x))
    denominator = phi_q @ phi_k.sum(0)
    return numerator / denominator[:, None]


def degree_masked_attention(layer: DegreeMaskedAttention, x: Tensor, degree: Tensor) -> Tensor:
    r"""Eq. 12 of MGFormer: the sine of a sum as two products of masked features."""
    scale, projection = layer.head_channels**-0.25, layer.feature_map.projection
    phi_q = positive_features(layer.lin_query(x) * scale, projection, False)
    phi_k = positive_features(layer.lin_key(x) * scale, projection, True)
    value = layer.lin_value(x)
    angle = torch.pi / 4 * layer.lin_degree(layer.degree_embedding(degree)).sigmoid()
    sin, cos = angle.sin(), angle.cos()
    q_sin, q_cos, k_sin, k_cos = phi_q * sin, phi_q * cos, phi_k * sin, phi_k * cos
    numerator = q_sin @ (k_cos.t() @ value) + q_cos @ (k_sin.t() @ value)
    denominator = q_sin @ k_cos.sum(0) + q_cos @ k_sin.sum(0)
    return numerator / denominator[:, None]
