from torch_geometric_lgt.nn._layers.input_checks import check_features
from torch_geometric_lgt.nn.attention import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    GlobalAttention,
    MeanAttention,
)
from torch_geometric_lgt.nn.conv import (
    DIFFormerConv,
    GPSConv,
    JaccardSubtractorConv,
    KernelAttentionConv,
    SGFormerConv,
)
from torch_geometric_lgt.nn.feature_map import FeatureMap
from torch_geometric_lgt.nn.models import (
    AttentionMemory,
    DIFFormer,
    GraphTransformer,
    LiteGT,
    MGFormer,
    NodeFormer,
    SGFormer,
)

__all__ = [
    'AdjacencyMaskedAttention',
    'AttentionMemory',
    'DIFFormer',
    'DIFFormerConv',
    'DegreeMaskedAttention',
    'FeatureMap',
    'GPSConv',
    'GlobalAttention',
    'GraphTransformer',
    'JaccardSubtractorConv',
    'KernelAttentionConv',
    'LiteGT',
    'MGFormer',
    'MeanAttention',
    'NodeFormer',
    'SGFormer',
    'SGFormerConv',
    'check_features',
]
