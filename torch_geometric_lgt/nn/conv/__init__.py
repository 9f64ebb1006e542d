from torch_geometric_lgt.nn.conv.difformer_conv import DIFFormerConv
from torch_geometric_lgt.nn.conv.kernel_attention_conv import KernelAttentionConv
from torch_geometric_lgt.nn.conv.sgformer_conv import SGFormerConv

__all__ = ['DIFFormerConv', 'KernelAttentionConv', 'SGFormerConv']
