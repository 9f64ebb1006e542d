r"""Names the attentions that are compared in GraphTransformer."""

from typing import Any

GRAPH_TRANSFORMER = 'graphtransformer'
# Attention by 'groups' has features that k-means finds among the input features.
ATTENTIONS: dict[str, dict[str, Any]] = {
    'positions': {'attn_type': 'difformer', 'position': 'laplacian_pe'},
    'learned': {'attn_kwargs': {'feature_map': 'learned', 'num_features': 32}},
    'simplex': {'attn_kwargs': {'feature_map': 'simplex', 'num_features': 32}},
    'groups': {
        'attn_kwargs': {'feature_map': 'learned', 'num_features': 64},
        'position': 'features',
    },
    'mean': {'attn_type': 'mean'},
    'exact': {'attn_type': 'multihead'},
    'no-attention': {'attn_type': None},
}


def with_attention(options: dict[str, Any]) -> dict[str, Any]:
    r"""Replaces the option :obj:`attention`, a key of :obj:`ATTENTIONS`, by the arguments of
    GraphTransformer that it stands for. Without the option it is ``'learned'``."""
    others = {name: value for name, value in options.items() if name != 'attention'}
    return others | ATTENTIONS[options.get('attention', 'learned')]
