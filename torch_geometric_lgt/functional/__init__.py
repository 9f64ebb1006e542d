from torch_geometric_lgt.functional.attention_state import AttentionState
from torch_geometric_lgt.functional.kernel_attention import kernel_attention

__all__ = ['AttentionState', 'kernel_attention']
