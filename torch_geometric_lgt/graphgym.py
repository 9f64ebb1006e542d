r"""Registers layers and models with GraphGym (``torch_geometric.graphgym``, needs the ``graphgym``
extra): import it once.

Layers, as ``gnn.layer_type``: :obj:`kernel_attention`, :obj:`difformer_conv`, :obj:`sgformer_conv`.
Networks, as ``model.type``: :obj:`nodeformer`, :obj:`difformer`, :obj:`sgformer`, with
``gnn.dim_inner`` hidden channels, ``gnn.layers_mp`` layers and ``gnn.dropout``. Other arguments of
the constructors stand in the group ``lgt`` of the configuration by their names.
"""

from typing import Any

import torch

try:
    from yacs.config import CfgNode
except ImportError as error:
    raise ImportError("GraphGym needs yacs: pip install 'torch-geometric-lgt[graphgym]'") from error
from torch_geometric.graphgym import register
from torch_geometric.graphgym.config import cfg
from torch_geometric.graphgym.models.gnn import FeatureEncoder

from torch_geometric_lgt.nn import (
    DIFFormer,
    DIFFormerConv,
    KernelAttentionConv,
    NodeFormer,
    SGFormer,
    SGFormerConv,
)

LAYERS = {
    'kernel_attention': KernelAttentionConv,
    'difformer_conv': DIFFormerConv,
    'sgformer_conv': SGFormerConv,
}
NETWORKS = {'nodeformer': NodeFormer, 'difformer': DIFFormer, 'sgformer': SGFormer}


def set_lgt_config(config: CfgNode) -> None:
    r"""Adds the group ``lgt``, empty and open to any name."""
    config.lgt = CfgNode(new_allowed=True)


class GraphGymLayer(torch.nn.Module):
    r"""A layer of this package on GraphGym's batches."""

    conv_type: Any

    def __init__(self, layer_config: Any, **kwargs: Any) -> None:
        super().__init__()
        self.model = self.conv_type(
            layer_config.dim_in,
            layer_config.dim_out,
            bias=layer_config.has_bias,
            **cfg.lgt,
            **kwargs,
        )

    def forward(self, batch: Any) -> Any:
        r"""Replaces the node features of :obj:`batch`."""
        batch.x = self.model(batch.x, batch.edge_index, batch.batch, batch.num_graphs)
        return batch


class GraphGymNetwork(torch.nn.Module):
    r"""A model of this package between GraphGym's encoder and head."""

    model_type: Any

    def __init__(self, dim_in: int, dim_out: int, **kwargs: Any) -> None:
        super().__init__()
        self.encoder = FeatureEncoder(dim_in)
        width = cfg.gnn.dim_inner
        self.mp = self.model_type(
            self.encoder.dim_in,
            width,
            width,
            cfg.gnn.layers_mp,
            dropout=cfg.gnn.dropout,
            **cfg.lgt,
            **kwargs,
        )
        self.post_mp = register.head_dict[cfg.gnn.head](dim_in=width, dim_out=dim_out)

    def forward(self, batch: Any) -> Any:
        r"""What the head makes of :obj:`batch`: predictions and labels."""
        batch = self.encoder(batch)
        batch.x = self.mp(batch.x, batch.edge_index, batch.batch, batch.num_graphs)
        return self.post_mp(batch)


register.register_config('lgt', set_lgt_config)
set_lgt_config(cfg)
for name, conv in LAYERS.items():
    register.register_layer(
        name, type(f'{conv.__name__}Layer', (GraphGymLayer,), {'conv_type': conv})
    )
for name, model in NETWORKS.items():
    register.register_network(
        name, type(f'{model.__name__}Network', (GraphGymNetwork,), {'model_type': model})
    )
