r"""Registers layers and models with GraphGym (``torch_geometric.graphgym``) when it is imported;
needs the ``graphgym`` extra.

Layers, as ``gnn.layer_type``: :obj:`kernel_attention`, :obj:`difformer_conv`, :obj:`sgformer_conv`.
Networks, as ``model.type``: :obj:`nodeformer`, :obj:`difformer`, :obj:`sgformer`, with
``gnn.dim_inner`` hidden channels, ``gnn.layers_mp`` layers and ``gnn.dropout``. The group ``lgt``
of the configuration has the other arguments of the constructors, by their names.
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
    GraphTransformer,
    KernelAttentionConv,
    MeanAttention,
    NodeFormer,
    SGFormer,
    SGFormerConv,
)

__all__ = ['GraphGymLayer', 'GraphGymNetwork', 'set_lgt_config']

LAYERS = {
    'kernel_attention': KernelAttentionConv,
    'difformer_conv': DIFFormerConv,
    'sgformer_conv': SGFormerConv,
    'mean_attention': MeanAttention,
}
NETWORKS = {
    'nodeformer': NodeFormer,
    'difformer': DIFFormer,
    'sgformer': SGFormer,
    'graphtransformer': GraphTransformer,
}


def set_lgt_config(config: CfgNode) -> None:
    r"""Adds an empty group ``lgt`` to a configuration. The group accepts any name.

    Args:
        config (CfgNode): The configuration of GraphGym.

    Example:
        >>> from yacs.config import CfgNode
        >>> from torch_geometric_lgt.graphgym import set_lgt_config
        >>> config = CfgNode()
        >>> set_lgt_config(config)
        >>> config.lgt.heads = 2
        >>> print(config)
        lgt:
          heads: 2
    """
    config.lgt = CfgNode(new_allowed=True)


class GraphGymLayer(torch.nn.Module):
    r"""Applies a layer of this package to GraphGym's batches.

    Each layer in ``LAYERS`` is registered as a subclass, whose :obj:`conv_type` is the class of the
    layer.

    Args:
        layer_config (LayerConfig): The widths of GraphGym's layer, and whether it has a bias.
        **kwargs (optional): Further arguments of the layer, in addition to the arguments in
            ``cfg.lgt``.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Batch, Data
        >>> from torch_geometric.graphgym import register
        >>> from torch_geometric.graphgym.config import cfg
        >>> from torch_geometric.graphgym.models.layer import new_layer_config
        >>> import torch_geometric_lgt.graphgym
        >>> config = new_layer_config(3, 8, 1, has_act=False, has_bias=True, cfg=cfg)
        >>> layer = register.layer_dict['sgformer_conv'](config)
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> batch = Batch.from_data_list([Data(x=torch.randn(4, 3), edge_index=ring)])
        >>> layer(batch).x.shape
        torch.Size([4, 8])
    """

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
        r"""Replaces the node features ``batch.x`` by the output of the layer, and returns
        :obj:`batch`."""
        batch.x = self.model(batch.x, batch.edge_index, batch.batch, batch.num_graphs)
        return batch


class GraphGymNetwork(torch.nn.Module):
    r"""Applies a model of this package between GraphGym's feature encoder and prediction head.

    Each model in ``NETWORKS`` is registered as a subclass, whose :obj:`model_type` is the class of
    the model.

    Args:
        dim_in (int): Channels of the node features.
        dim_out (int): Channels of the predictions.
        **kwargs (optional): Further arguments of the model, in addition to the arguments in
            ``cfg.lgt``.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Batch, Data
        >>> from torch_geometric.graphgym import register
        >>> from torch_geometric.graphgym.config import cfg, set_cfg
        >>> import torch_geometric_lgt.graphgym
        >>> set_cfg(cfg)
        >>> cfg.gnn.head, cfg.dataset.task = 'node', 'node'
        >>> network = register.network_dict['nodeformer'](dim_in=3, dim_out=2)
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> data = Data(x=torch.randn(4, 3), edge_index=ring, y=torch.tensor([0, 1, 0, 1]))
        >>> prediction, label = network(Batch.from_data_list([data]))
        >>> prediction.shape, label.shape
        (torch.Size([4, 2]), torch.Size([4]))
        >>> set_cfg(cfg)
    """

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
        r"""Returns the predictions and labels that GraphGym's head computes for :obj:`batch`."""
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
