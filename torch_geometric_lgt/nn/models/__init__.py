from torch_geometric_lgt.nn.models.attention_memory import AttentionMemory
from torch_geometric_lgt.nn.models.difformer import DIFFormer
from torch_geometric_lgt.nn.models.graph_transformer import GraphTransformer
from torch_geometric_lgt.nn.models.litegt import LiteGT
from torch_geometric_lgt.nn.models.mgformer import MGFormer
from torch_geometric_lgt.nn.models.nodeformer import NodeFormer
from torch_geometric_lgt.nn.models.sgformer import SGFormer

__all__ = [
    'AttentionMemory',
    'DIFFormer',
    'GraphTransformer',
    'LiteGT',
    'MGFormer',
    'NodeFormer',
    'SGFormer',
]
