"""Layers computed by the dense definitions of the package, on the CPU and in double precision.
Models use them in place of their layers."""

import copy
from functools import partial

import torch

from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edges import edge_list
from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    DIFFormerConv,
    JaccardSubtractorConv,
    KernelAttentionConv,
    SGFormerConv,
)
from torch_geometric_lgt.testing import dense


def heads_of(conv, x_src, x_dst=None):
    """Returns queries, keys and values ``[N, H, C]``."""
    x_dst = x_src if x_dst is None else x_dst
    value = x_src if conv.lin_value is None else conv.lin_value(x_src)
    return [
        part.unflatten(-1, (conv.heads, -1))
        for part in (conv.lin_query(x_dst), conv.lin_key(x_src), value)
    ]


def features_of(conv, q, k, temperature=1.0):
    """Returns the features of queries and keys."""
    phi = conv.feature_map
    if phi.is_learned:
        matrix = phi.scale[:, None, None] * phi.weight
        q, k = (torch.einsum('nhc,hmc->nhm', part, matrix) for part in (q, k))
    scale = (
        (conv.head_key_channels * temperature**2) ** -0.25 if phi.projection is not None else 1.0
    )
    return [
        dense.feature_map(phi.map.name, scale * part, phi.projection, phi.power) for part in (q, k)
    ]


def adjacency(edge_index, num_src, num_dst=None):
    """Returns how often an edge joins each target with each source, ``[N_t, N_s]``."""
    num_dst = num_src if num_dst is None else num_dst
    edges = (
        edge_index.edge_index
        if isinstance(edge_index, SortedEdges)
        else edge_list(edge_index, num_src, num_dst)
    )
    return dense.adjacency_matrix(
        edges, torch.ones(edges.size(1), dtype=torch.double), num_src, num_dst
    )


def kernel_attention(
    conv,
    x,
    edge_index=None,
    batch=None,
    batch_size=None,
    *,
    state=None,
    degree=None,
    edge_weight=None,
):
    q, k, v = heads_of(conv, x)
    noise = conv.key_noise(x)
    phi = features_of(
        conv, q, k, conv.temperature if noise is not None or conv.num_gumbel_samples == 0 else 1.0
    )
    if noise is None:
        out = dense.kernel_attention(*phi, v, None, batch, batch).flatten(1)
    else:
        out = dense.sampled_attention(
            *phi, v, noise.unflatten(1, (conv.heads, -1)), batch, batch
        ).flatten(1)
    return (
        out
        if conv.relational_bias is None
        else out + relational_bias(conv, v.flatten(1), out, edge_index)
    )


def relational_bias(conv, value, out, edge_index):
    """NodeFormer's bias, from the edges of each order or, for the first order, from those of the
    graph."""
    bias, total = conv.relational_bias, 0
    orders = edge_index if isinstance(edge_index, list) else None
    for order, share in enumerate(bias.weight.sigmoid()):
        if orders is not None:
            matrix = (adjacency(orders[order], value.size(0)) > 0).double()
        else:
            matrix = (adjacency(edge_index, value.size(0)) > 0).double()
            matrix = (
                torch.maximum(matrix, torch.eye(value.size(0)).double())
                if bias.source == 'value'
                else matrix
            )
        summed = (
            dense.normalised_adjacency(matrix) @ value if bias.source == 'value' else matrix @ out
        )
        total = total + (summed.unflatten(1, (conv.heads, -1)) * share[:, None]).flatten(1)
    return total


def degree_masked(
    layer, x, degree=None, batch=None, batch_size=None, *, edge_index=None, state=None
):
    (x_src, x_dst), (source, target) = (
        part if isinstance(part, tuple) else (part, part) for part in (x, degree)
    )
    q, k, v = heads_of(layer, x_src, x_dst)
    z_q, z_k = (
        layer.lin_degree(layer.degree_embedding(part)).sigmoid().squeeze(1)
        for part in (target, source)
    )
    return dense.kernel_attention(
        *features_of(layer, q, k), v, dense.degree_mask(z_q, z_k), batch, batch
    ).flatten(1)


def adjacency_masked(layer, x, edge_index, *, edge_weight=None):
    q, k, v = heads_of(layer, x)
    return dense.kernel_attention(
        *features_of(layer, q, k), v, adjacency(edge_index, x.size(0))
    ).flatten(1)


def sgformer(conv, x, edge_index=None, batch=None, batch_size=None, *, state=None):
    q, k, v = heads_of(conv, x)
    return dense.sgformer_attention(q, k, v, v, conv.norm, batch, batch).flatten(1)


def difformer(
    conv,
    x,
    edge_index=None,
    batch=None,
    batch_size=None,
    *,
    state=None,
    degree=None,
    edge_weight=None,
):
    q, k, v = heads_of(conv, x)
    if conv.kernel == 'sigmoid':
        out = dense.sigmoid_attention(q, k, v, batch, batch).flatten(1)
    else:
        out = dense.diffusion_attention(q, k, v, conv.norm, batch, batch).flatten(1)
    if not conv.use_graph:
        return out
    return out + conv.graph_weight * dense.normalised_adjacency(
        adjacency(edge_index, x.size(0))
    ) @ v.flatten(1)


def jaccard_subtractor(
    conv,
    x,
    edge_index,
    edge_jaccard=None,
    sampled_mask=None,
    *,
    edge_weight=None,
    edge_attr=None,
    return_edge_scores=False,
):
    """With features of edges, the edges must be distinct."""
    x_src, x_dst = x if isinstance(x, tuple) else (x, x)
    count, half = adjacency(edge_index, x_src.size(0), x_dst.size(0)), conv.heads // 2
    v, used, out = conv.lin_value(x_src).unflatten(1, (conv.heads, -1)), 0, []
    source, target = edge_index.edge_index if isinstance(edge_index, SortedEdges) else edge_index
    edge_scores = []
    for branch, kernel in enumerate(conv.kernels):
        score = count[..., None].expand(-1, -1, half)
        if kernel == 'jaccard':
            edges = edge_index.edge_index if isinstance(edge_index, SortedEdges) else edge_index
            score = dense.adjacency_matrix(
                edges, edge_jaccard.double(), x_src.size(0), x_dst.size(0)
            ) / count.clamp(min=1)
            score = score[..., None].expand(-1, -1, half)
        if kernel in ('softmax', 'subtractor'):
            q, k = (
                lin(part).unflatten(1, (-1, conv.head_channels))[:, used : used + half]
                for lin, part in ((conv.lin_query, x_dst), (conv.lin_key, x_src))
            )
            if edge_attr is None:
                inner = torch.einsum('ihc,jhc->ijh', q, k) / conv.head_channels**0.5
                score = inner if kernel == 'softmax' else (q[:, None] - k[None]).abs().sum(3)
            else:
                value = conv.lin_edge(edge_attr).unflatten(1, (-1, conv.head_channels))
                value = value[:, used : used + half]
                pairs = value.new_zeros(*count.shape, half, conv.head_channels)
                pairs = pairs.index_put((target, source), value)
                scores = dense.edge_scores(kernel, q, k, pairs)
                score = scores.sum(3) if kernel == 'softmax' else scores.abs().sum(3)
                if kernel == 'softmax' and sampled_mask is not None:
                    scores = torch.where(sampled_mask[:, None, None, None], scores, pairs)
                edge_scores.append(scores[target, source])
            used += half
        weight = dense.edge_weights(kernel, count, score, sampled_mask, conv.normalize)
        out.append(torch.einsum('ijh,jhc->ihc', weight, v[:, branch * half : (branch + 1) * half]))
    out = torch.cat(out, 1)
    out = out.flatten(1) if conv.concat else out.mean(1)
    return (out, torch.cat(edge_scores, 1).flatten(1)) if return_edge_scores else out


DEFINITIONS = {
    KernelAttentionConv: kernel_attention,
    DegreeMaskedAttention: degree_masked,
    AdjacencyMaskedAttention: adjacency_masked,
    SGFormerConv: sgformer,
    DIFFormerConv: difformer,
    JaccardSubtractorConv: jaccard_subtractor,
}


def defined(module):
    """Returns a copy in double precision on the CPU, all of whose layers are computed by their
    definitions."""
    module = copy.deepcopy(module).to('cpu', torch.double)
    for layer in module.modules():
        if type(layer) in DEFINITIONS:
            layer.forward = partial(DEFINITIONS[type(layer)], layer)
    return module
