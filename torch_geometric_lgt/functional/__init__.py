from torch_geometric_lgt.functional.attention.kernel import kernel_attention
from torch_geometric_lgt.functional.attention.linear import linear_attention
from torch_geometric_lgt.functional.attention.state import AttentionState
from torch_geometric_lgt.functional.losses import (
    alignment,
    alignment_uniformity,
    edge_regularization,
    uniformity,
)
from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edges import sorted_edges
from torch_geometric_lgt.functional.neighbors.jaccard import jaccard, minhash_jaccard
from torch_geometric_lgt.functional.neighbors.node_sampling import attention_distance
from torch_geometric_lgt.functional.projections import gaussian_projection

__all__ = [
    'AttentionState',
    'SortedEdges',
    'alignment',
    'alignment_uniformity',
    'attention_distance',
    'edge_regularization',
    'gaussian_projection',
    'jaccard',
    'kernel_attention',
    'linear_attention',
    'minhash_jaccard',
    'sorted_edges',
    'uniformity',
]
