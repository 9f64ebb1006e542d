from functools import partial

import pytest
from freeze_objects import freeze
from torch_geometric.nn import GraphSAGE

from torch_geometric_lgt import loader, nn, transforms
from torch_geometric_lgt.functional import jaccard
from torch_geometric_lgt.functional.neighbors.edges import edge_list, weighted_edges
from torch_geometric_lgt.functional.neighbors.hops import degrees
from torch_geometric_lgt.loader import NeighborLoader, NeighborSampler, NodePartitionLoader
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
    NodeFormer,
    SGFormer,
    SGFormerConv,
)
from torch_geometric_lgt.testing.checks import (
    check_layer,
    check_loader,
    check_model,
    check_transform,
)
from torch_geometric_lgt.transforms import (
    AttentionNodeSampling,
    JaccardScores,
    LaplacianPE,
    NodeDegree,
    SVDEncoding,
)


def with_degrees(layer, x, edge_index, batch=None, **kwargs):
    return layer(
        x, degrees(edge_list(edge_index, x.size(0), x.size(0)), x.size(0)), batch, **kwargs
    )


def with_hops(model, x, edge_index, batch=None, edge_weight=None, **kwargs):
    return model(x, model.hops(edge_index, x.size(0), edge_weight), batch, **kwargs)


def graph_parts(edge_index, num_nodes):
    """Jaccard indices, and a mask of nodes with few neighbours for the softmax."""
    edges = weighted_edges(edge_index, num_nodes, num_nodes)[0]
    return jaccard(edges, num_nodes), degrees(edges, num_nodes) < 4


def without_batch(layer, x, edge_index, batch=None, edge_weight=None, **_):
    return layer(x, edge_index, edge_weight=edge_weight)


def with_jaccard(layer, x, edge_index, batch=None, edge_weight=None, **_):
    return layer(x, edge_index, *graph_parts(edge_index, x.size(0)), edge_weight=edge_weight)


def with_edge_features(layer, x, edge_index, batch=None, edge_weight=None, **_):
    index, sampled = graph_parts(edge_index, x.size(0))
    features = {'edge_attr': index[:, None], 'edge_weight': edge_weight}
    return layer(x, edge_index, index, sampled, **features)


def model_with_edge_features(model, x, edge_index, batch=None, **kwargs):
    index, sampled = graph_parts(edge_index, x.size(0))
    features = {'edge_jaccard': index, 'edge_attr': index[:, None], 'sampled_mask': sampled}
    return model(x, edge_index, batch, **features, **kwargs)


def model_with_jaccard(model, x, edge_index, batch=None, **kwargs):
    index, sampled = graph_parts(edge_index, x.size(0))
    return model(x, edge_index, batch, edge_jaccard=index, sampled_mask=sampled, **kwargs)


def parts(data):
    return NeighborLoader(data, [-1], batch_size=17)


def parts_with_jaccard(data):
    data.edge_jaccard, data.attention_mask = graph_parts(data.edge_index, data.num_nodes)
    return parts(data)


LAYERS = {
    'kernel': (lambda: KernelAttentionConv(6, 8, heads=2), {}),
    'kernel-samples': (
        lambda: KernelAttentionConv(6, 8, heads=2, temperature=0.05, num_gumbel_samples=3),
        {},
    ),
    'kernel-elu': (
        lambda: KernelAttentionConv(6, 8, heads=2, feature_map='elu', key_channels=6),
        {},
    ),
    'kernel-learned': (
        lambda: KernelAttentionConv(6, 8, heads=2, feature_map='learned', num_features=5),
        {},
    ),
    'kernel-learned-wide': (
        lambda: KernelAttentionConv(6, 8, heads=2, feature_map='learned', num_features=24),
        {},
    ),
    'degree': (lambda: DegreeMaskedAttention(6, heads=2, max_degree=16), {'call': with_degrees}),
    'adjacency': (lambda: AdjacencyMaskedAttention(6, heads=2), {'call': without_batch}),
    'mean': (lambda: MeanAttention(6, 8), {}),
    'gps': (lambda: GPSConv(6, None, 2, norm=None, attn_kwargs={'feature_map': 'relu'}), {}),
    'sgformer': (lambda: SGFormerConv(6, 8, heads=2), {}),
    'sgformer-row': (lambda: SGFormerConv(6, 8, norm='row', bias=False), {}),
    'sgformer-many-heads': (lambda: SGFormerConv(6, 16, heads=16), {}),
    'sgformer-plain-values': (lambda: SGFormerConv(6, 6, heads=2, value_projection=False), {}),
    'difformer': (lambda: DIFFormerConv(6, 8, heads=2), {}),
    'difformer-frobenius': (lambda: DIFFormerConv(6, 8, norm='frobenius', use_graph=False), {}),
    'difformer-many-heads': (lambda: DIFFormerConv(6, 16, heads=16, norm='frobenius'), {}),
    'difformer-plain-values': (lambda: DIFFormerConv(6, 6, heads=2, value_projection=False), {}),
    'difformer-sigmoid': (
        lambda: DIFFormerConv(6, 8, heads=2, kernel='sigmoid', graph_weight=0.5),
        {'linear': False},
    ),
    'kernel-value-bias': (
        lambda: KernelAttentionConv(6, 8, heads=2, relational_order=1),
        {'call': with_hops},
    ),
    'kernel-output-bias': (
        lambda: KernelAttentionConv(6, 8, relational_order=1, relational_input='output'),
        {'call': with_hops},
    ),
    'jaccard': (lambda: JaccardSubtractorConv(6, 8, heads=4), {'call': with_jaccard}),
    'subtractor': (
        lambda: JaccardSubtractorConv(6, 8, heads=4, kernel='subtractor', concat=False),
        {'call': with_jaccard},
    ),
    'subtractor-edges': (
        lambda: JaccardSubtractorConv(6, 8, heads=4, kernel='subtractor', edge_channels=1),
        {'call': with_edge_features},
    ),
}
MODELS = {
    'LiteGT': (
        lambda: LiteGT(6, 16, 3, num_layers=4, heads=4, reduce=True),
        {'call': model_with_jaccard, 'batches': parts_with_jaccard},
    ),
    'LiteGT-edges': (
        lambda: LiteGT(6, 8, 3, num_layers=2, heads=4, edge_channels=1),
        {'call': model_with_edge_features},
    ),
    'GraphTransformer': (
        lambda: GraphTransformer(
            6, 4, 3, 1, 2, 1, attn_kwargs={'feature_map': 'learned', 'num_features': 4}
        ),
        {'batches': parts},
    ),
    'GraphTransformer-gated': (
        lambda: GraphTransformer(
            6, 4, 3, 1, 2, conv='ResGatedGraphConv', attn_type='mean', norm='layer_norm'
        ),
        {'batches': parts},
    ),
    'NodeFormer': (
        lambda: NodeFormer(
            6, 4, 3, heads=2, num_features=8, relational_order=1, num_gumbel_samples=3
        ),
        {'batches': parts},
    ),
    'NodeFormer-2': (
        lambda: NodeFormer(
            6, 4, 3, heads=2, num_features=8, relational_order=2, jumping_knowledge=True
        ),
        {'call': with_hops},
    ),
    'NodeFormer-paper': (
        lambda: NodeFormer(
            6, 4, 3, num_features=8, jumping_knowledge=True, scale=1.0, num_readout_layers=2
        ),
        {'batches': parts},
    ),
    'DIFFormer': (lambda: DIFFormer(6, 4, 3, use_source=True), {'batches': parts}),
    'SGFormer': (lambda: SGFormer(6, 4, 3, norm='row'), {'batches': parts}),
    'SGFormer-residual': (lambda: SGFormer(6, 4, 3, gnn_residual=True), {'batches': parts}),
    'SGFormer-initial': (
        lambda: SGFormer(6, 4, 3, gnn_residual='initial', gnn_use_init=True),
        {'batches': parts},
    ),
    'SGFormer-cat': (
        lambda: SGFormer(
            6,
            4,
            3,
            aggregate='cat',
            gnn_input='input',
            gnn=GraphSAGE(6, 4, 1),
            activate_layers=True,
        ),
        {'batches': parts},
    ),
}
TRANSFORMS = {
    'NodeDegree': (NodeDegree, 'degree', {}),
    'JaccardScores': (JaccardScores, 'edge_jaccard', {}),
    'AttentionNodeSampling': (AttentionNodeSampling, 'attention_mask', {}),
    'AttentionNodeSampling-lse': (
        lambda: AttentionNodeSampling(measure='lse'),
        'attention_mask',
        {},
    ),
    'LaplacianPE': (lambda **options: LaplacianPE(3, **options), 'laplacian_pe', {'cached': True}),
    'SVDEncoding': (
        lambda **options: SVDEncoding(3, **options),
        'svd_pe',
        {'cached': True, 'per_graph': False},
    ),
}
LOADERS = {
    'NeighborLoader': lambda data, **options: NeighborLoader(
        data, [4, 4], batch_size=16, **options
    ),
    'NeighborLoader-weights': lambda data, **options: NeighborLoader(
        data,
        [4, 4],
        batch_size=16,
        weight_attr='edge_jaccard' if 'edge_jaccard' in data else None,
        **options,
    ),
    'NeighborSampler': lambda data, **options: NeighborLoader(
        data, [4, 4], batch_size=16, neighbor_sampler=NeighborSampler(data, [4, 4]), **options
    ),
    'NodePartitionLoader': lambda data, **options: NodePartitionLoader(data, 16, **options),
}
ELSEWHERE = {
    'AttentionMemory',
    'FeatureMap',
    'GlobalAttention',
    'HGTLoader',
    'LinkNeighborLoader',
    'MGFormer',
    'RandomSignFlip',
    'check_features',
}  # another interface; each has its own tests


@pytest.mark.parametrize('name', LAYERS)
def test_layers_keep_every_promise(name):
    make, options = LAYERS[name]
    check_layer(make, 6, **options)


@pytest.mark.parametrize('name', MODELS)
def test_models_keep_every_promise(name):
    make, options = MODELS[name]
    check_model(make, 6, **options)


@pytest.mark.parametrize('name', TRANSFORMS)
def test_transforms_keep_every_promise(name):
    make, attr_name, options = TRANSFORMS[name]
    check_transform(make, attr_name, **options)


@pytest.mark.filterwarnings('ignore:This DataLoader will create')
@pytest.mark.parametrize('name', LOADERS)
def test_loaders_keep_every_promise(name):
    check_loader(partial(LOADERS[name], worker_init_fn=freeze))


def test_no_exported_class_is_left_out():
    made = {type(make()).__name__ for make, _ in (*LAYERS.values(), *MODELS.values())}
    made |= {name.partition('-')[0] for name in (*TRANSFORMS, *LOADERS)}
    assert {*nn.__all__, *transforms.__all__, *loader.__all__} == made | ELSEWHERE
