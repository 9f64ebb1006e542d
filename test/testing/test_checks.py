import pytest

from torch_geometric_lgt.functional.edges import degrees
from torch_geometric_lgt.nn import DegreeMaskedAttention, DIFFormerConv, KernelAttentionConv, SGFormerConv
from torch_geometric_lgt.testing.checks import check_layer


def with_degrees(layer, x, edge_index, batch=None, **kwargs):
    return layer(x, degrees(edge_index, x.size(0)), batch, **kwargs)


LAYERS = {
    'kernel': (lambda: KernelAttentionConv(6, 8, heads=2), {}),
    'kernel-elu': (lambda: KernelAttentionConv(6, 8, heads=2, feature_map='elu'), {}),
    'degree': (lambda: DegreeMaskedAttention(6, heads=2, max_degree=16), {'call': with_degrees}),
    'sgformer': (lambda: SGFormerConv(6, 8, heads=2), {}),
    'sgformer-row': (lambda: SGFormerConv(6, 8, norm='row', bias=False), {}),
    'difformer': (lambda: DIFFormerConv(6, 8, heads=2), {}),
    'difformer-frobenius': (lambda: DIFFormerConv(6, 8, norm='frobenius', use_graph=False), {}),
    'difformer-sigmoid': (lambda: DIFFormerConv(6, 8, heads=2, kernel='sigmoid', graph_weight=0.5), {'linear': False}),
}


@pytest.mark.parametrize('name', LAYERS)
def test_layers_keep_every_promise(name):
    make, options = LAYERS[name]
    check_layer(make, 6, **options)
