# S sampled targets, H heads, D channels of a value.
from typing import Any

import torch
from torch import Tensor
from torch.linalg import vector_norm

from torch_geometric_lgt._attention_calls import AttentionCall, AttentionRows

INERT_ENTROPY = 0.999


def measure_call(call: AttentionCall, targets: Tensor) -> dict[str, Any]:
    r"""Measures one call of an attention layer on the sampled nodes :obj:`targets` ``[S]``, and
    returns the dictionary of measures, see :meth:`attention_report`."""
    rows = call.rows(targets)
    weight = rows.weight
    candidates = rows.is_candidate.sum(1, keepdim=True).to(weight.dtype)
    tiny = max(1e-300, torch.finfo(weight.dtype).tiny)
    out = torch.einsum('iph,phd->ihd', weight, rows.value)
    mean = torch.einsum('ip,phd->ihd', rows.is_candidate / candidates, rows.value)
    positive = weight.clamp(min=0)
    positive = positive / positive.sum(1, keepdim=True).clamp(min=tiny)
    uniform = candidates.log()  # 0 for a single candidate, which has all the weight
    entropy = torch.where(
        uniform > 0, -torch.xlogy(positive, positive).sum(1) / uniform.clamp(min=tiny), 1.0
    )
    others = None
    if rows.is_self is not None:
        total, self_weight = weight.sum(1), (weight * rows.is_self[..., None]).sum(1)
        others = float(torch.where(total == 0, 0, 1 - self_weight / total).mean())
    vectors = call.queries_and_keys()
    query, key = (
        (float(vector_norm(part, dim=2).mean()) for part in vectors) if vectors else (None, None)
    )
    return {
        'layer': call.name,
        'others': others,
        'beyond mean': float(vector_norm(out - mean) / vector_norm(out)),
        'entropy': float(entropy.mean()),
        'inert heads': float((entropy.mean(0) >= INERT_ENTROPY).to(weight.dtype).mean()),
        'query': query,
        'key': key,
        'feature error': _feature_error(call, rows, vectors, out),
    }


def _feature_error(
    call: AttentionCall, rows: AttentionRows, vectors: tuple[Tensor, Tensor] | None, out: Tensor
) -> float | None:
    r"""Computes the relative error of the attention's output against exact softmax attention.
    Returns :obj:`None` for a layer whose feature map does not approximate the softmax.

    Args:
        call: The call of the layer.
        rows: The sampled targets.
        vectors: The scaled queries ``[N_t, H, C]`` and keys ``[N_s, H, C]``.
        out: The output of the layer's attention for the sampled targets, ``[S, H, D]``.
    """
    feature_map = getattr(call.layer, 'feature_map', None)
    if vectors is None or not getattr(feature_map, 'estimates_softmax', False):
        return None
    logits = torch.einsum('ihc,phc->iph', vectors[0][rows.targets], vectors[1][rows.sources])
    factor = rows.is_candidate.to(out.dtype)
    factor = factor if rows.mask is None else factor * rows.mask
    exact_weight = (logits + factor.log()[..., None]).softmax(1).nan_to_num(0)  # 0 if all are 0
    exact = torch.einsum('iph,phd->ihd', exact_weight, rows.value)
    return float(vector_norm(out - exact) / vector_norm(exact))
