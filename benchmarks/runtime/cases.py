r"""Defines the cases of ``benchmarks.runtime.layers``: a layer and its peer with the same input
and weights."""

# N nodes, C channels, M features, H heads.
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import scaled_dot_product_attention
from torch_geometric.data import Data
from torch_geometric.nn import GPSConv, TransformerConv
from torch_geometric.nn.attention import PerformerAttention, PolynormerAttention, SGFormerAttention
from torch_geometric.utils import sort_edge_index

from benchmarks.runtime import formulas
from torch_geometric_lgt.functional import kernel_attention
from torch_geometric_lgt.nn import (
    DegreeMaskedAttention,
    DIFFormerConv,
    JaccardSubtractorConv,
    KernelAttentionConv,
    SGFormerConv,
)
from torch_geometric_lgt.transforms import AttentionNodeSampling, JaccardScores

MAX_DEGREE = 512
Forward = Callable[[], Tensor]


class Case(NamedTuple):
    r"""Defines a case. :obj:`make` returns the forward passes of the layer and of the peer,
    which may differ by the tolerance. If the two compute different things, :obj:`claim` returns
    the peer and a dense version of the formula it claims. :obj:`heads` is set if the number of
    heads is fixed."""

    make: Callable[[Tensor, dict[str, Any]], tuple[Forward, Forward]]
    tolerance: float = 1e-4
    claim: Callable[[Tensor, dict[str, Any]], tuple[Forward, Forward]] | None = None
    heads: int | None = None


def kernel(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    conv = KernelAttentionConv(x.size(1), x.size(1), num_features=config['num_features'])
    return lambda: conv(x), lambda: formulas.kernel_attention(conv, x)


def degree_masked(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    layer = DegreeMaskedAttention(
        x.size(1), num_features=config['num_features'], max_degree=MAX_DEGREE, value_projection=True
    )
    degree = torch.randint(0, MAX_DEGREE + 1, x.shape[:1])
    return lambda: layer(x, degree), lambda: formulas.degree_masked_attention(layer, x, degree)


def gumbel(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    samples = {'num_features': 30, 'num_gumbel_samples': 10, 'temperature': 0.25}
    conv = KernelAttentionConv(
        x.size(1), config['heads'] * x.size(1), config['heads'], feature_map='orthogonal', **samples
    )
    return lambda: conv(x), lambda: formulas.gumbel_attention(conv, x)


def edge_probability(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    r"""Makes ten random edges for each node."""
    edges = torch.randint(x.size(0), (2, 10 * x.size(0)))
    conv = KernelAttentionConv(x.size(1), x.size(1), feature_map='orthogonal', num_features=30)
    rows = x.size(0), 10
    return lambda: conv.log_edge_probability(x, edges).view(
        rows
    ), lambda: formulas.log_edge_probability(conv, x, edges).view(rows)


def sgformer(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    r"""Builds the layer with row norms, as in PyG's layer."""
    conv = SGFormerConv(x.size(1), x.size(1), norm='row')
    peer = SGFormerAttention(x.size(1), 1, x.size(1), qkv_bias=True)
    for linear, peer_linear in (
        (conv.lin_query, peer.q),
        (conv.lin_key, peer.k),
        (conv.lin_value, peer.v),
    ):
        peer_linear.load_state_dict(linear.state_dict())
    return lambda: conv(x), lambda: peer(x[None])[0]


def sgformer_frobenius(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    conv = SGFormerConv(x.size(1), x.size(1))
    return lambda: conv(x), lambda: formulas.sgformer_attention(conv, x)


def difformer(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    conv = DIFFormerConv(x.size(1), x.size(1), use_graph=False)
    return lambda: conv(x), lambda: formulas.diffusion_attention(conv, x)


def difformer_frobenius(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    conv = DIFFormerConv(x.size(1), x.size(1), norm='frobenius', use_graph=False)
    return lambda: conv(x), lambda: formulas.diffusion_attention(conv, x)


def pyg_performer(x: Tensor) -> PerformerAttention:
    r"""Builds PyG's layer, whose projection matrix is made on the CPU whatever the device."""
    return PerformerAttention(x.size(1), 1, x.size(1)).to(x.device)


def performer(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    r"""Builds the layer with as many features and linear maps as PyG's, whose features do not
    estimate a softmax."""
    peer, out = pyg_performer(x), Linear(x.size(1), x.size(1))
    conv = KernelAttentionConv(
        x.size(1), x.size(1), feature_map='orthogonal', num_features=peer.fast_attn.num_rows
    )
    return lambda: out(conv(x)), lambda: peer(x[None])[0]


def gps(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    r"""Builds PyG's block without a local branch, once as it is and once with this package's
    attention."""
    peer = GPSConv(x.size(1), None, attn_type='performer', attn_kwargs={'head_channels': x.size(1)})
    peer.to(x.device)
    nothing, num_features = torch.empty(2, 0, dtype=torch.long), peer.attn.fast_attn.num_rows
    conv = KernelAttentionConv(
        x.size(1), x.size(1), feature_map='orthogonal', num_features=num_features
    )
    out = Linear(x.size(1), x.size(1))

    def ours() -> Tensor:
        h = peer.norm2(out(conv(x)) + x)
        return peer.norm3(h + peer.mlp(h))

    return ours, lambda: peer(x, nothing)


def polynormer(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    r"""Builds PyG's layer, once as it is and once with its sums over all nodes computed by this
    package."""
    peer = PolynormerAttention(x.size(1), 1, x.size(1))

    def ours() -> Tensor:
        k, v = peer.k(x).sigmoid()[:, None], peer.v(x)[:, None]
        out = peer.lns(kernel_attention(k, k, v, 'values').squeeze(1)) * (
            peer.h_lins(x) + peer.beta
        )
        return peer.lin_out(out).relu()

    return ours, lambda: peer(x[None])[0]


def exact_softmax(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    r"""Builds an estimate of the softmax in linear time, and the softmax itself."""
    conv = KernelAttentionConv(x.size(1), x.size(1), num_features=config['num_features'])

    def exact() -> Tensor:
        q, k, v = (lin(x)[None, None] for lin in (conv.lin_query, conv.lin_key, conv.lin_value))
        return scaled_dot_product_attention(q, k, v)[0, 0]

    return lambda: conv(x), exact


def exact_softmax_claim(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    conv = KernelAttentionConv(x.size(1), x.size(1), num_features=1 << 16)
    small = (x[:100] / 4).detach()
    q, k, v = (lin(small) for lin in (conv.lin_query, conv.lin_key, conv.lin_value))
    return lambda: conv(small), lambda: scaled_dot_product_attention(
        q[None, None], k[None, None], v[None, None]
    )[0, 0]


def performer_claim(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    peer = pyg_performer(x)
    return lambda: peer(x[None])[0], lambda: formulas.performer_attention(peer, x)


def ragged(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    r"""Builds a batch with half of the nodes in one graph and half in graphs of ten, and one
    graph of all nodes."""
    conv = KernelAttentionConv(x.size(1), x.size(1), num_features=config['num_features'])
    half = x.size(0) // 2
    batch = torch.cat(
        [torch.zeros(half, dtype=torch.long), 1 + torch.arange(x.size(0) - half) // 10]
    )
    return lambda: conv(x, batch=batch), lambda: conv(x)


def ragged_claim(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    conv = KernelAttentionConv(x.size(1), x.size(1), num_features=config['num_features'])
    return lambda: conv(x), lambda: formulas.kernel_attention(conv, x)


def learned(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    r"""Builds the layer with the learned map, and the layer with as many random features."""
    learned_conv, random_conv = (
        KernelAttentionConv(
            x.size(1), x.size(1), feature_map=feature_map, num_features=config['num_features']
        )
        for feature_map in ('learned', 'simplex')
    )
    return lambda: learned_conv(x), lambda: random_conv(x)


def learned_claim(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    conv = KernelAttentionConv(
        x.size(1), x.size(1), feature_map='learned', num_features=config['num_features']
    )
    return lambda: conv(x), lambda: formulas.learned_attention(conv, x)


def sampled_edges(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    r"""Builds the layer over ten edges for each node, and PyG's layer with softmax. In half of the
    heads, sampled nodes attend by softmax and the other nodes by the mean. The other half of the
    heads uses the Jaccard index."""
    edges = sort_edge_index(torch.randint(x.size(0), (2, 10 * x.size(0))), sort_by_row=False)
    data = AttentionNodeSampling()(JaccardScores()(Data(edge_index=edges, num_nodes=x.size(0))))
    conv = JaccardSubtractorConv(x.size(1), x.size(1), heads=8)
    peer = TransformerConv(x.size(1), x.size(1) // 8, 8, root_weight=False)
    return lambda: conv(x, edges, data.edge_jaccard, data.attention_mask), lambda: peer(x, edges)


def edge_softmax(x: Tensor, config: dict[str, Any]) -> tuple[Forward, Forward]:
    r"""Builds the layer with softmax in all heads and at all nodes, which is PyG's."""
    edges = sort_edge_index(torch.randint(x.size(0), (2, 10 * x.size(0))), sort_by_row=False)
    conv = JaccardSubtractorConv(x.size(1), x.size(1), heads=8, kernel=('softmax', 'softmax'))
    peer = TransformerConv(x.size(1), x.size(1) // 8, 8, root_weight=False)
    for name in ('query', 'key', 'value'):
        getattr(peer, f'lin_{name}').load_state_dict(getattr(conv, f'lin_{name}').state_dict())
    return lambda: conv(x, edges), lambda: peer(x, edges)


CASES = {
    'ragged-batch': Case(ragged, claim=ragged_claim),
    'performer': Case(performer, claim=performer_claim),
    'gps': Case(gps, claim=performer_claim),
    'polynormer': Case(polynormer),
    'exact-softmax': Case(exact_softmax, 1e-2, exact_softmax_claim),
    'jaccard-subtractor': Case(sampled_edges, claim=edge_softmax, heads=8),
    'edge-softmax': Case(edge_softmax, heads=8),
    'degree-masked-attention': Case(degree_masked),
    'kernel-attention': Case(kernel),
    'learned-map': Case(learned, claim=learned_claim),
    'nodeformer': Case(gumbel),
    'edge-probability': Case(edge_probability),
    'sgformer': Case(sgformer),
    'sgformer-frobenius': Case(sgformer_frobenius),
    'difformer': Case(difformer),
    'difformer-frobenius': Case(difformer_frobenius),
}
PRODUCTS_OF = {
    'ragged-batch': 'kernel-attention',
    'exact-softmax': 'kernel-attention',
    'learned-map': 'kernel-attention',
}  # whose peers do theirs within one operator
