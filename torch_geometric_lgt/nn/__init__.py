from torch_geometric_lgt.nn.attention import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    GlobalAttention,
)
from torch_geometric_lgt.nn.conv import (
    DIFFormerConv,
    JaccardSubtractorConv,
    KernelAttentionConv,
    SGFormerConv,
)
from torch_geometric_lgt.nn.feature_map import FeatureMap
from torch_geometric_lgt.nn.models import (
    AttentionMemory,
    DIFFormer,
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
    'GlobalAttention',
    'JaccardSubtractorConv',
    'KernelAttentionConv',
    'LiteGT',
    'MGFormer',
    'NodeFormer',
    'SGFormer',
    'SGFormerConv',
]
