r"""Registers layers and models with GraphGym (``torch_geometric.graphgym``) when it is imported;
needs the ``graphgym`` extra.

``LAYERS`` lists the layers, as ``gnn.layer_type``. ``NETWORKS`` lists the networks, as
``model.type``, with ``gnn.dim_inner`` hidden channels, ``gnn.layers_mp`` layers and
``gnn.dropout``. The group ``lgt`` of the configuration has the other arguments of the constructors,
by their names.
"""

import inspect
from typing import Any, cast

import torch
import torch_geometric.nn
from torch import Tensor

try:
    from yacs.config import CfgNode
except ImportError as error:
    raise ImportError('GraphGym needs yacs: pip install "torch-geometric-lgt[graphgym]"') from error
from torch_geometric.graphgym import register
from torch_geometric.graphgym.config import cfg
from torch_geometric.graphgym.models.gnn import FeatureEncoder

from torch_geometric_lgt._arguments import check_choice, check_whole
from torch_geometric_lgt._graphgym_options import check_options, named_message_passing
from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    DIFFormer,
    DIFFormerConv,
    GlobalAttention,
    GPSConv,
    GraphTransformer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    LiteGT,
    MeanAttention,
    MGFormer,
    NodeFormer,
    SGFormer,
    SGFormerConv,
)
from torch_geometric_lgt.nn._layers.input_checks import check_edge_attr

__all__ = ['GraphGymLayer', 'GraphGymNetwork', 'GraphGymRecommender', 'set_lgt_config']

ATTENTIONS: dict[str, Any] = {
    'kernel_attention': KernelAttentionConv,
    'difformer_conv': DIFFormerConv,
    'sgformer_conv': SGFormerConv,
    'mean_attention': MeanAttention,
    'degree_masked_attention': DegreeMaskedAttention,
}


class _PaddedGPSConv(torch.nn.Module):
    r"""Applies PyG's :class:`torch_geometric.nn.GPSConv` with a layer of this package in
    :class:`~torch_geometric_lgt.nn.GlobalAttention` as its attention.

    Args:
        channels (int): Size of each input and output sample.
        conv (torch.nn.Module, optional): The message passing; :obj:`None` for none.
        attention (str, optional): A name in ``ATTENTIONS``. (default: :obj:`"kernel_attention"`)
        attention_kwargs (dict, optional): Further arguments of the attention. (default:
            :obj:`None`)
        heads (int, optional): Number of heads of an attention that has heads. (default: :obj:`1`)
        **kwargs (optional): Further arguments of PyG's layer.

    Raises:
        ValueError: If :obj:`attention` is unknown.
    """

    def __init__(
        self,
        channels: int,
        conv: torch.nn.Module | None,
        attention: str = 'kernel_attention',
        attention_kwargs: dict[str, Any] | None = None,
        heads: int = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        check_choice('attention', attention, ATTENTIONS)
        layer: Any = ATTENTIONS[attention]
        known = inspect.signature(layer).parameters
        sizes = [channels] if 'channels' in known else 2 * [channels]
        options = {'heads': heads} if 'heads' in known else {}
        self.gps = torch_geometric.nn.GPSConv(channels, cast(Any, conv), **kwargs)
        self.attn = GlobalAttention(layer(*sizes, **options | (attention_kwargs or {})))
        self.gps.attn = cast(Any, self.attn)

    def forward(
        self, x: Tensor, edge_index: Any, batch: Tensor | None = None, **kwargs: Any
    ) -> Tensor:
        r"""Computes the node features ``[N, channels]``; an attention that reads edges or degrees
        gets the edges, and the message passing :obj:`kwargs`."""
        reads_edges = 'edge_index' in inspect.signature(self.attn.conv.forward).parameters
        with self.attn.arguments(**({'edge_index': edge_index} if reads_edges else {})):
            return self.gps(x, edge_index, batch, **kwargs)


LAYERS = {
    **ATTENTIONS,
    'adjacency_masked_attention': AdjacencyMaskedAttention,
    'jaccard_subtractor_conv': JaccardSubtractorConv,
    'gps_conv': GPSConv,
    'global_attention': _PaddedGPSConv,
}
NETWORKS = {
    'nodeformer': NodeFormer,
    'difformer': DIFFormer,
    'sgformer': SGFormer,
    'graphtransformer': GraphTransformer,
    'litegt': LiteGT,
    'mgformer': MGFormer,
}
# arguments that other settings of GraphGym have
WIDTHS: dict[str, str] = dict.fromkeys(
    ('channels', 'in_channels', 'hidden_channels', 'out_channels'), 'gnn.dim_inner'
)
PADDED: dict[str, str] = {'attn_type': 'lgt.attention', 'attn_kwargs': 'lgt.attention_kwargs'}
SETTINGS = {
    'num_layers': 'gnn.layers_mp',
    'dropout': 'gnn.dropout',
    'level': 'gnn.head',
    'aggr': 'model.graph_pooling',
}


def set_lgt_config(config: CfgNode) -> None:
    r"""Adds an empty group ``lgt`` to a configuration, for the further arguments of the layers and
    models of this package. A file may set arbitrary keys of the group, and the command line changes
    only keys that the file has.

    Importing this module adds the group to ``cfg``; GraphGym's ``set_cfg`` adds it to any other
    configuration. There is no need to call this function.

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


def _graph_inputs(model: torch.nn.Module, batch: Any, edge_channels: int) -> dict[str, Any]:
    r"""Collects the arguments of a layer or model that a batch has, by their names.

    These are the edges and the graph of each node, the attributes that transforms of this package
    add for LiteGT, encodings if the model has channels for them, and edge features if there are
    :obj:`edge_channels`.

    Raises:
        ValueError: If there are :obj:`edge_channels`, and no edge features of this width.
    """
    if edge_channels > 0:
        check_edge_attr(batch.get('edge_attr'), batch.num_edges, edge_channels)
    encodings = [*getattr(model, 'encodings', ())]
    encodings += ['laplacian_pe'] if getattr(model, 'pe_channels', 0) > 0 else []
    encodings += ['edge_attr'] if edge_channels > 0 else []
    names = {'edge_jaccard': 'edge_jaccard', 'sampled_mask': 'attention_mask'}
    graph, size = batch.get('batch'), getattr(batch, 'num_graphs', None)
    size = None if graph is None else size  # samplers yield one graph without it
    values = {'edge_index': batch.edge_index, 'batch': graph, 'batch_size': size}
    values |= {argument: batch[name] for argument, name in names.items() if name in batch}
    parameters = inspect.signature(model.forward).parameters
    known = {name: value for name, value in values.items() if name in parameters}
    return known | {name: batch[name] for name in encodings if name in batch}


class GraphGymLayer(torch.nn.Module):
    r"""Applies a layer of this package to GraphGym's batches.

    The dictionary ``LAYERS`` has the names of the layers in GraphGym. Each is registered as a
    subclass, whose :obj:`conv_type` is the class of the layer. A layer with equal input and output
    channels needs ``cfg.gnn.layers_pre_mp`` of at least 1, because the features may have another
    width. The layer gets the edges, the batch vector, and the Jaccard indices and sampled nodes of
    LiteGT's transforms, as far as its :meth:`forward` takes them. Edge features are passed with
    ``cfg.lgt.edge_channels``; edge weights are not. The layer has a bias as GraphGym's layers, none
    before batch normalisation, unless ``cfg.lgt.bias`` is set.

    The layers :obj:`gps_conv` and :obj:`global_attention` have the message passing that
    ``cfg.lgt.conv`` names, with the arguments ``cfg.lgt.conv_kwargs`` and the edge features of
    ``cfg.lgt.edge_channels``. The layer :obj:`global_attention` is PyG's
    :class:`~torch_geometric.nn.GPSConv` with the attention that ``cfg.lgt.attention`` names, with
    ``cfg.lgt.heads`` and the arguments ``cfg.lgt.attention_kwargs``. See :meth:`set_lgt_config` for
    ``cfg.lgt``.

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
        sizes, options = [layer_config.dim_in, layer_config.dim_out], {**cfg.lgt, **kwargs}
        parameters = inspect.signature(self.conv_type).parameters
        if 'bias' in parameters:
            options.setdefault('bias', layer_config.has_bias)
        if 'channels' in parameters:
            if sizes[0] != sizes[1]:
                raise ValueError(
                    f"{self.conv_type.__name__} needs a 'dim_in' equal to 'dim_out' (got "
                    f"{sizes[0]} and {sizes[1]}); set 'gnn.layers_pre_mp' to 1"
                )
            sizes = sizes[:1]
        edge_channels = options.get('edge_channels', 0)
        if 'conv' in parameters:
            check_whole('lgt.edge_channels', edge_channels, 0)
            options['conv'] = named_message_passing(sizes[0], options)
        fixed = WIDTHS | (PADDED if self.conv_type is _PaddedGPSConv else {})
        check_options(self.conv_type, options, fixed, LAYERS | NETWORKS)
        self.model = self.conv_type(*sizes, **options)
        self.edge_channels = edge_channels

    def forward(self, batch: Any) -> Any:
        r"""Replaces the node features ``batch.x`` by the output of the layer, and returns
        :obj:`batch`."""
        batch.x = self.model(batch.x, **_graph_inputs(self.model, batch, self.edge_channels))
        return batch


class GraphGymNetwork(torch.nn.Module):
    r"""Applies a model of this package between GraphGym's feature encoder and prediction head.

    The dictionary ``NETWORKS`` has the names of the models in GraphGym. Each is registered as a
    subclass, whose :obj:`model_type` is the class of the model. ``cfg.gnn.dim_inner`` are its
    hidden channels and ``cfg.gnn.layers_mp`` its layers. It returns ``dim_inner`` channels, which
    GraphGym's head maps to predictions.

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
        check_options(self.model_type, {**cfg.lgt, **kwargs}, WIDTHS | SETTINGS, LAYERS | NETWORKS)
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
        edge_channels = getattr(self.mp, 'edge_channels', 0)
        batch.x = self.mp(batch.x, **_graph_inputs(self.mp, batch, edge_channels))
        return self.post_mp(batch)


class GraphGymRecommender(torch.nn.Module):
    r"""Computes embeddings with a recommender of this package, and scores links with GraphGym's
    prediction head.

    The name ``mgformer`` in GraphGym's registry is a subclass, whose :obj:`model_type` is
    :class:`~torch_geometric_lgt.nn.MGFormer`: set ``model.type`` to it. The graph has
    ``cfg.lgt.num_users`` users as its first nodes, then ``cfg.lgt.num_items`` items. Their
    embeddings have ``gnn.dim_inner`` channels; node features are not used.

    The head is GraphGym's own ``gnn.head='edge'``, which scores links by ``model.edge_decoding``.
    It reads the links and labels of the split ``batch.split``, which GraphGym's training sets: for
    ``'train'`` the attributes ``train_edge_index`` and ``train_edge_label`` of the data.

    Args:
        dim_in (int): Ignored, but GraphGym passes it to each network.
        dim_out (int): Channels of the predictions.
        **kwargs (optional): Further arguments of the recommender, in addition to all that are in
            ``cfg.lgt``.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Batch, Data
        >>> from torch_geometric.graphgym import register
        >>> from torch_geometric.graphgym.config import cfg, set_cfg
        >>> import torch_geometric_lgt.graphgym
        >>> set_cfg(cfg)
        >>> cfg.gnn.head, cfg.model.edge_decoding = 'edge', 'dot'
        >>> cfg.lgt.num_users, cfg.lgt.num_items = 2, 3
        >>> network = register.network_dict['mgformer'](dim_in=1, dim_out=1)
        >>> edges = torch.tensor([[0, 0, 1], [2, 3, 4]])
        >>> data = Data(edge_index=edges, num_nodes=5, train_edge_index=edges)
        >>> data.train_edge_label = torch.ones(3)
        >>> batch = Batch.from_data_list([data])
        >>> batch.split = 'train'
        >>> prediction, label = network(batch)
        >>> prediction.shape, label.shape
        (torch.Size([3]), torch.Size([3]))
        >>> set_cfg(cfg)  # back to the defaults
    """

    model_type: Any

    def __init__(self, dim_in: int, dim_out: int, **kwargs: Any) -> None:
        super().__init__()
        width = cfg.gnn.dim_inner
        fixed = {'embedding_dim': 'gnn.dim_inner', 'num_layers': 'gnn.layers_mp'}
        check_options(self.model_type, {**cfg.lgt, **kwargs}, fixed, LAYERS | NETWORKS)
        self.mp = self.model_type(
            embedding_dim=width, num_layers=cfg.gnn.layers_mp, **cfg.lgt, **kwargs
        )
        self.post_mp = register.head_dict[cfg.gnn.head](dim_in=width, dim_out=dim_out)

    def forward(self, batch: Any) -> Any:
        r"""Returns the predictions and labels that GraphGym's head computes for the links of
        :obj:`batch`."""
        batch.x = self.mp.get_embedding(batch.edge_index)
        return self.post_mp(batch)


def _subclass(name: str, base: type, **attributes: Any) -> type:
    r"""Creates a subclass and makes it an attribute of this module, where pickle looks for it."""
    globals()[name] = type(name, (base,), {**attributes, '__module__': __name__})
    return globals()[name]


register.register_config('lgt', set_lgt_config)
set_lgt_config(cfg)
for name, conv in LAYERS.items():
    register.register_layer(name, _subclass(f'{conv.__name__}Layer', GraphGymLayer, conv_type=conv))
for name, model in NETWORKS.items():
    kind = GraphGymRecommender if model is MGFormer else GraphGymNetwork
    register.register_network(name, _subclass(f'{model.__name__}Network', kind, model_type=model))
