"""Layers of every form of attention, by name."""

from torch_geometric_lgt.nn import (
    DegreeMaskedAttention,
    DIFFormerConv,
    KernelAttentionConv,
    SGFormerConv,
)

LAYERS = {
    **{
        kind: lambda kind=kind: KernelAttentionConv(6, 8, heads=2, feature_map=kind)
        for kind in ('simplex', 'elu', 'relu', 'focused', 'learned')
    },
    'learned-wide': lambda: KernelAttentionConv(
        6, 8, heads=2, feature_map='learned', num_features=24
    ),
    'learned-degree': lambda: DegreeMaskedAttention(
        6, heads=2, max_degree=16, feature_map='learned', num_features=24
    ),
    'plain-values': lambda: KernelAttentionConv(6, 6, heads=2, value_projection=False),
    'degree': lambda: DegreeMaskedAttention(6, heads=2, max_degree=16),
    'difformer': lambda: DIFFormerConv(6, 8, heads=2, use_graph=False),
    'difformer-frobenius': lambda: DIFFormerConv(
        6, 6, norm='frobenius', use_graph=False, value_projection=False
    ),
    'sgformer': lambda: SGFormerConv(6, 8, heads=2, norm='row'),
    'sgformer-frobenius': lambda: SGFormerConv(6, 6, heads=2, value_projection=False),
}
