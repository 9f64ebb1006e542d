from torch_geometric_lgt.nn.attention import DegreeMaskedAttention
from torch_geometric_lgt.nn.conv import KernelAttentionConv
from torch_geometric_lgt.nn.feature_map import FeatureMap
from torch_geometric_lgt.nn.models import MGFormer

__all__ = ['DegreeMaskedAttention', 'FeatureMap', 'KernelAttentionConv', 'MGFormer']
