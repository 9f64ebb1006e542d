from torch_geometric_lgt.nn.conv.kernel_attention_conv import KernelAttentionConv

__all__ = ['KernelAttentionConv']
