from torch_geometric_lgt.nn.attention.adjacency_masked_attention import AdjacencyMaskedAttention
from torch_geometric_lgt.nn.attention.degree_masked_attention import DegreeMaskedAttention

__all__ = ['AdjacencyMaskedAttention', 'DegreeMaskedAttention']
