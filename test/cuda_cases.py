"""Layers and models with an input each, for tests on a GPU."""

import torch
from definitions import defined
from gradients import gradients, leaves_of

from torch_geometric_lgt.functional import jaccard
from torch_geometric_lgt.functional.neighbors.hops import degrees
from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    DIFFormer,
    DIFFormerConv,
    GPSConv,
    GraphTransformer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    LiteGT,
    MeanAttention,
    MGFormer,
    NodeFormer,
    SGFormer,
    SGFormerConv,
)

USERS, N, F = 30, 70, 6
generator = torch.Generator().manual_seed(0)
EDGES = torch.randint(N, (2, 4 * N), generator=generator)
EDGES = torch.cat([EDGES, EDGES.flip(0)], 1)[:, torch.cat([EDGES[0] != EDGES[1]] * 2)].unique(dim=1)
BATCH = torch.tensor([0, 1, 1, 3, 3, 3])[torch.randint(6, (N,), generator=generator)]
INSIDE = EDGES[:, BATCH[EDGES[0]] == BATCH[EDGES[1]]]
DEGREE = degrees(EDGES, N)
JACCARD, SAMPLED = jaccard(EDGES, N), DEGREE < 8
X = torch.randn(N, F, generator=generator)


def all_pairs(layer, x):
    return layer(x, batch=BATCH.to(x.device), batch_size=4)


def one_graph(layer, x):
    return layer(x, None)


def with_edges(layer, x):
    return layer(x, EDGES.to(x.device))


def with_graphs(layer, x):
    return layer(x, INSIDE.to(x.device), BATCH.to(x.device), batch_size=4)


def with_degree(layer, x):
    return layer(x, DEGREE.to(x.device), BATCH.to(x.device), batch_size=4)


def with_jaccard(layer, x):
    return layer(
        x, EDGES.to(x.device), edge_jaccard=JACCARD.to(x), sampled_mask=SAMPLED.to(x.device)
    )


def with_edge_features(layer, x):
    return layer(
        x,
        EDGES.to(x.device),
        edge_jaccard=JACCARD.to(x),
        sampled_mask=SAMPLED.to(x.device),
        edge_attr=JACCARD[:, None].to(x),
    )


def embedding(model, x):
    return model.get_embedding()


def mgformer(mask='degree', **options):
    encoding = torch.randn(N, 4, generator=torch.Generator().manual_seed(1))
    return MGFormer(
        USERS,
        N - USERS,
        8,
        structural_encoding=encoding,
        degree=DEGREE,
        mask=mask,
        max_degree=64,
        **options,
    )


LAYERS = {
    **{
        kind: (lambda kind=kind: KernelAttentionConv(F, 8, 2, feature_map=kind), all_pairs)
        for kind in (
            'simplex',
            'orthogonal',
            'positive',
            'elu',
            'relu',
            'focused',
            'fourier',
            'learned',
        )
    },
    'kernel, one graph': (lambda: KernelAttentionConv(F, 8, 2, num_features=24), one_graph),
    'learned, many features': (
        lambda: KernelAttentionConv(F, 8, 2, feature_map='learned', num_features=24),
        all_pairs,
    ),
    'kernel, Gumbel samples': (
        lambda: KernelAttentionConv(F, 8, 2, temperature=0.5, num_gumbel_samples=3),
        all_pairs,
    ),
    'kernel, bias of values': (
        lambda: KernelAttentionConv(F, 8, 2, relational_order=1),
        with_edges,
    ),
    'kernel, bias of outputs': (
        lambda: KernelAttentionConv(F, 8, 2, relational_order=1, relational_input='output'),
        with_edges,
    ),
    'degree': (lambda: DegreeMaskedAttention(F, 2, max_degree=64), with_degree),
    'adjacency': (lambda: AdjacencyMaskedAttention(F, 2), with_edges),
    'sgformer': (lambda: SGFormerConv(F, 8, 2), all_pairs),
    'sgformer, rows': (lambda: SGFormerConv(F, 8, 2, norm='row'), all_pairs),
    'sgformer, one graph': (lambda: SGFormerConv(F, 8), one_graph),
    'difformer': (lambda: DIFFormerConv(F, 8, 2), with_graphs),
    'difformer, Frobenius': (lambda: DIFFormerConv(F, 8, 2, norm='frobenius'), with_graphs),
    'difformer, sigmoid': (lambda: DIFFormerConv(F, 8, 2, kernel='sigmoid'), with_graphs),
    'mean': (lambda: MeanAttention(F, 8), all_pairs),
    'gps': (lambda: GPSConv(F, None, 1, norm=None), all_pairs),
    'jaccard': (lambda: JaccardSubtractorConv(F, 8, 4), with_jaccard),
    'subtractor': (
        lambda: JaccardSubtractorConv(F, 8, 4, kernel='subtractor', concat=False),
        with_jaccard,
    ),
    'subtractor, edge features': (
        lambda: JaccardSubtractorConv(F, 8, 4, kernel='subtractor', edge_channels=1),
        with_edge_features,
    ),
}
MODELS = {
    'NodeFormer': (
        lambda: NodeFormer(F, 8, 3, 2, 2, num_features=8, num_gumbel_samples=0),
        with_edges,
    ),
    'NodeFormer, samples': (
        lambda: NodeFormer(F, 8, 3, 2, 2, num_features=8, num_gumbel_samples=3, temperature=0.5),
        with_edges,
    ),
    'DIFFormer': (lambda: DIFFormer(F, 8, 3, 2, use_source=True), with_edges),
    'SGFormer': (lambda: SGFormer(F, 8, 3), with_edges),
    'GraphTransformer': (lambda: GraphTransformer(F, 8, 3, 1, 2, 1, dropout=0.0), with_edges),
    'LiteGT': (lambda: LiteGT(F, 16, 3, num_layers=4, heads=4, reduce=True), with_jaccard),
    'LiteGT, edge features': (
        lambda: LiteGT(F, 16, 3, num_layers=4, heads=4, reduce=True, edge_channels=1),
        with_edge_features,
    ),
    'MGFormer': (mgformer, embedding),
    'MGFormer, two layers': (lambda: mgformer('none', num_layers=2), embedding),
}
CASES = LAYERS | MODELS


def make(name, device, dtype):
    """Returns the layer or model on the device, its copy by definition, and the function that runs
    either on an input."""
    build, call = CASES[name]
    torch.manual_seed(0)
    module = build()
    noise = (
        torch.rand(N, 2 * 3, generator=torch.Generator().manual_seed(2)).log_().neg_().log_().neg_()
        / 0.5
    )
    expected = defined(module)
    actual = module.to(device, dtype)
    for part in (*expected.modules(), *actual.modules()):
        if getattr(part, 'num_gumbel_samples', 0) > 0 and hasattr(part, 'key_noise'):
            part.key_noise = lambda x: noise.to(x)
    return actual, expected, call


def results(module, call, x, autocast=None):
    """Returns the output, and the gradients of the input and of all parameters for a fixed gradient
    of the output."""
    x = x.clone().requires_grad_()
    with torch.autocast(x.device.type, autocast, enabled=autocast is not None):
        out = call(module, x)
    weight = torch.linspace(-1, 1, out.numel()).view_as(out).to(out)
    grads = gradients(out, leaves_of(module, x=x), weight, materialize_grads=True)
    return {name: part.detach() for name, part in {'output': out, **grads}.items()}
