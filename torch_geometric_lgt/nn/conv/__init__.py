from torch_geometric_lgt.nn.conv.difformer_conv import DIFFormerConv
from torch_geometric_lgt.nn.conv.gps_conv import GPSConv
from torch_geometric_lgt.nn.conv.jaccard_subtractor_conv import JaccardSubtractorConv
from torch_geometric_lgt.nn.conv.kernel_attention_conv import KernelAttentionConv
from torch_geometric_lgt.nn.conv.sgformer_conv import SGFormerConv

__all__ = [
    'DIFFormerConv',
    'GPSConv',
    'JaccardSubtractorConv',
    'KernelAttentionConv',
    'SGFormerConv',
]
