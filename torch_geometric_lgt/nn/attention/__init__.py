from torch_geometric_lgt.nn.attention.adjacency_masked_attention import AdjacencyMaskedAttention
from torch_geometric_lgt.nn.attention.degree_masked_attention import DegreeMaskedAttention
from torch_geometric_lgt.nn.attention.global_attention import GlobalAttention
from torch_geometric_lgt.nn.attention.mean_attention import MeanAttention

__all__ = ['AdjacencyMaskedAttention', 'DegreeMaskedAttention', 'GlobalAttention', 'MeanAttention']
