from torch_geometric_lgt.transforms.node_degree import NodeDegree
from torch_geometric_lgt.transforms.svd_encoding import SVDEncoding

__all__ = ['NodeDegree', 'SVDEncoding']
