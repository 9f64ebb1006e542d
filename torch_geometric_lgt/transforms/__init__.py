from torch_geometric_lgt.transforms.attention_node_sampling import AttentionNodeSampling
from torch_geometric_lgt.transforms.jaccard_scores import JaccardScores
from torch_geometric_lgt.transforms.laplacian_pe import LaplacianPE, RandomSignFlip
from torch_geometric_lgt.transforms.node_degree import NodeDegree
from torch_geometric_lgt.transforms.svd_encoding import SVDEncoding

__all__ = [
    'AttentionNodeSampling',
    'JaccardScores',
    'LaplacianPE',
    'NodeDegree',
    'RandomSignFlip',
    'SVDEncoding',
]
