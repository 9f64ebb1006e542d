# N nodes, E edges, D channels, F_e edge features.
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import torch_geometric.nn as pyg
from torch.nn import Module
from torch_geometric.nn.models.basic_gnn import BasicGNN

from torch_geometric_lgt._arguments import check_function, nearest_name
from torch_geometric_lgt.nn._layers.layer_checks import original
from torch_geometric_lgt.nn.models._conv_trials import check_call
from torch_geometric_lgt.nn.models._message_input import name_of, takes
from torch_geometric_lgt.nn.models._sparse_gcn import SparseGCNConv

CONVS = {
    name: value
    for name, value in vars(pyg).items()
    if inspect.isclass(value) and issubclass(value, pyg.MessagePassing) and name.endswith('Conv')
}

# the names that layers of PyG give to the number of channels of nodes and of edges
CHANNELS = ('in_channels', 'out_channels', 'channels')
EDGE_CHANNELS = ('edge_dim', 'in_edge_channels', 'dim')


def make_conv(
    conv: str | Callable[[int, int], Module] | None,
    channels: int,
    heads: int,
    edge_channels: int,
    conv_kwargs: dict[str, Any] | None,
    norm: str | None,
) -> Module | None:
    r"""Creates a message passing layer from :obj:`channels` to :obj:`channels`.

    Args:
        conv (str or callable, optional): The name of a layer of :mod:`torch_geometric.nn`, or a
            function of the input and output channels; :obj:`None` for no layer. The layer
            ``"GCNConv"`` without other arguments than :obj:`bias` multiplies by a sparse matrix.
        channels (int): :math:`D`.
        heads (int): Number of heads of a named layer that has heads.
        edge_channels (int): :math:`F_e` of a named layer that takes edge features.
        conv_kwargs (dict, optional): Further arguments of a named layer.
        norm (str, optional): The norm within the MLP of a named layer: ``"batch_norm"``,
            ``"layer_norm"`` of each node, or :obj:`None`. The MLP of ``"GENConv"`` has none in
            place of ``"layer_norm"``.

    Raises:
        ValueError: If the name is unknown, or the layer lacks an argument. If it does not read edge
            features although :obj:`edge_channels` is positive. If the named layer cannot be called
            with node features and edges, or the layer takes a number of graphs and is no network of
            PyG such as :class:`~torch_geometric.nn.GCN`.
    """
    if isinstance(conv, Module):
        raise ValueError(
            "'conv' must be a function, which is called for each layer of the model, such as "
            f'lambda in_channels, out_channels: {type(conv).__name__}(..) (got {conv})'
        )
    if conv_kwargs and not isinstance(conv, str):
        raise ValueError(f"'conv_kwargs' must be None unless 'conv' is a name (got {conv_kwargs})")
    if conv is None:
        return None
    if isinstance(conv, str):
        layer = _named_conv(conv, channels, heads, edge_channels, conv_kwargs or {}, norm)
    else:
        check_function('conv', conv, 'the input and output channels', channels, channels)
        layer = conv(channels, channels)
    if not isinstance(layer, Module):
        raise ValueError(f"'conv' must be a function that returns a layer (got {layer!r} from it)")
    _check_edge_channels(layer, edge_channels)
    if takes(layer, 'batch_size') and not isinstance(original(layer), BasicGNN):
        raise ValueError(
            f"'conv' must be a layer that reads neighbours only (got {name_of(layer)}); give a "
            "layer that attends to all nodes as 'attn_type', in a function of channels and heads"
        )
    return layer


def _check_edge_channels(layer: Module, edge_channels: int) -> None:
    r"""Raises a ValueError if edges have features, which :obj:`layer` does not take, or would drop
    as PyG's :class:`~torch_geometric.nn.GATConv` without :obj:`edge_dim` does."""
    if edge_channels == 0:
        return
    layer = original(layer)
    if not takes(layer, 'edge_attr'):
        raise ValueError(
            f"'conv' must take features of edges with 'edge_channels' = {edge_channels}, as "
            f"'GINEConv', 'GATv2Conv' or 'ResGatedGraphConv' do (got {name_of(layer)})"
        )
    parts = layer.convs if isinstance(layer, BasicGNN) else [layer]
    for part, name in itertools.product(parts, EDGE_CHANNELS):
        if type(part) in CONVS.values() and getattr(part, name, edge_channels) is None:
            raise ValueError(
                f"'conv' must make {name_of(part)} with {name}={edge_channels}, the "
                f"'edge_channels', to read the features of edges (got {name}=None)"
            )


def _named_conv(
    conv: str,
    channels: int,
    heads: int,
    edge_channels: int,
    conv_kwargs: dict[str, Any],
    norm: str | None,
) -> Module:
    if conv not in CONVS:
        hint = nearest_name(conv, CONVS)
        if conv in pyg.conv.__all__:
            hint = f'; for {conv} give a function that returns the layer'
        raise ValueError(
            "'conv' must be the name of a layer of torch_geometric.nn, a function of its input and "
            f'output channels, or None (got {conv!r}){hint}'
        )
    if conv == 'GCNConv' and conv_kwargs.keys() <= {'bias'}:
        return SparseGCNConv(channels, channels, normalize=False, **conv_kwargs)
    return pyg_conv(conv, channels, heads, edge_channels, conv_kwargs, norm)


def pyg_conv(
    conv: str,
    channels: int,
    heads: int,
    edge_channels: int,
    conv_kwargs: dict[str, Any],
    norm: str | None = 'batch_norm',
) -> Module:
    r"""Creates the layer of PyG with the name :obj:`conv`. The arguments are those of
    :meth:`make_conv`.

    Raises:
        ValueError: If the layer lacks an argument, takes no edge features although
            :obj:`edge_channels` is positive, or cannot be called with node features and edges.
    """
    known = inspect.signature(CONVS[conv]).parameters
    options: dict[str, Any] = {name: channels for name in CHANNELS if name in known}
    if 'heads' in known:
        options['heads'] = heads
        if conv_kwargs.get('concat', 'concat' in known):
            options['out_channels'] = channels // heads
    if edge_channels > 0:
        options |= {name: edge_channels for name in EDGE_CHANNELS if name in known}
    if 'nn' in known and 'nn' not in conv_kwargs and known['nn'].default is inspect.Parameter.empty:
        options['nn'] = _inner_network(conv, channels, edge_channels, norm)
    if conv == 'GENConv' and norm != 'batch_norm':  # its other norms mix the nodes
        options['norm'] = None
    try:
        layer = CONVS[conv](**{**options, **conv_kwargs})
    except TypeError as error:
        raise ValueError(
            f"'conv_kwargs' must have the arguments of {conv} ({error}); or give 'conv' a function "
            'of the input and output channels'
        ) from error
    _check_edge_channels(layer, edge_channels)
    check_call(layer, channels, edge_channels)
    return layer


def _inner_network(conv: str, channels: int, edge_channels: int, norm: str | None) -> Module:
    r"""Creates the MLP that the layer of PyG with the name :obj:`conv` needs.

    Raises:
        ValueError: If it maps features of edges, and there are none.
    """
    if conv in ('EdgeConv', 'DynamicEdgeConv'):  # of the features of both ends
        return pyg.MLP([2 * channels, channels, channels], norm=None)
    if conv != 'NNConv':
        mode = {'mode': 'node'} if norm == 'layer_norm' else None  # PyG's default mixes the nodes
        return pyg.MLP([channels, channels, channels], norm=norm, norm_kwargs=mode)
    if edge_channels == 0:
        raise ValueError(
            "'edge_channels' must be positive with conv='NNConv', whose weights are functions of "
            'the features of edges (got 0)'
        )
    return pyg.MLP([edge_channels, channels, channels * channels], norm=None)
