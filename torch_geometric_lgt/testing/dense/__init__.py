r"""Computes the formulas of the papers literally, with an ``N x N`` weight matrix, for tests on
small graphs. The functions share no code with the rest of the package."""

from torch_geometric_lgt.testing.dense.edges import (
    adjacency_matrix,
    edge_weights,
    jaccard,
    normalised_adjacency,
)
from torch_geometric_lgt.testing.dense.edges import (
    attention_distance as attention_distance,
)
from torch_geometric_lgt.testing.dense.edges import (
    edge_scores as edge_scores,
)
from torch_geometric_lgt.testing.dense.kernel import (
    attention_matrix,
    degree_mask,
    feature_map,
    kernel_attention,
    sampled_attention,
)
from torch_geometric_lgt.testing.dense.linear import (
    diffusion_attention,
    inverse_denominators,
    normalised,
    sgformer_attention,
    sigmoid_attention,
)
from torch_geometric_lgt.testing.dense.losses import uniformity

__all__ = [
    'adjacency_matrix',
    'attention_matrix',
    'degree_mask',
    'diffusion_attention',
    'edge_weights',
    'feature_map',
    'inverse_denominators',
    'jaccard',
    'kernel_attention',
    'normalised',
    'normalised_adjacency',
    'sampled_attention',
    'sgformer_attention',
    'sigmoid_attention',
    'uniformity',
]
