from torch_geometric_lgt.functional.attention_state import AttentionState
from torch_geometric_lgt.functional.feature_maps import gaussian_projection
from torch_geometric_lgt.functional.kernel_attention import kernel_attention

__all__ = ['AttentionState', 'gaussian_projection', 'kernel_attention']
