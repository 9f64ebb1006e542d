# N nodes, E edges, D channels, F_e edge features.
import copy
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn import Module

from torch_geometric_lgt._arguments import check_function, nearest_name
from torch_geometric_lgt.functional.numerics import widest_dtype
from torch_geometric_lgt.nn._layers.layer_checks import check_output
from torch_geometric_lgt.nn.models._message_input import name_of, named_arguments, takes
from torch_geometric_lgt.nn.models._sparse_gcn import SparseGCNConv

CONVS = {
    name: value
    for name, value in vars(pyg).items()
    if inspect.isclass(value) and issubclass(value, pyg.MessagePassing) and name.endswith('Conv')
}

# the names that layers of PyG give to the number of channels of nodes and of edges
CHANNELS = ('in_channels', 'out_channels', 'channels')
EDGE_CHANNELS = ('edge_dim', 'in_edge_channels', 'dim')

# node 0 and its neighbours 1 and 2, which have other neighbours
SMALL_GRAPH = ((1, 2, 0, 3, 4, 5, 1, 2), (0, 0, 1, 1, 2, 3, 3, 4))


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
            with node features and edges, or the layer takes a number of graphs.
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
    if takes(layer, 'batch_size'):
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
    if not takes(layer, 'edge_attr'):
        raise ValueError(
            f"'conv' must take features of edges with 'edge_channels' = {edge_channels}, as "
            f"'GINEConv', 'GATv2Conv' or 'ResGatedGraphConv' do (got {name_of(layer)})"
        )
    if type(layer) not in CONVS.values():
        return
    for name in EDGE_CHANNELS:
        if getattr(layer, name, edge_channels) is None:
            raise ValueError(
                f"'conv' must make {name_of(layer)} with {name}={edge_channels}, the "
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
        layer = CONVS[conv](**options | conv_kwargs)
    except TypeError as error:
        raise ValueError(
            f"'conv_kwargs' must have the arguments of {conv} ({error}); or give 'conv' a function "
            'of the input and output channels'
        ) from error
    _check_edge_channels(layer, edge_channels)
    _check_call(layer, channels, edge_channels)
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


def _check_call(conv: Module, channels: int, edge_channels: int) -> None:
    r"""Calls a copy of :obj:`conv`, a layer of PyG, on a small graph as the model will call it.

    Raises:
        ValueError: If the layer takes other arguments, ends in an error, or returns anything but
            :obj:`channels` channels for each node.
    """
    like = next(iter((*conv.parameters(), *conv.buffers(), torch.empty(0))))
    if like.is_meta:
        return
    name, hint = type(conv).__name__, ''
    if edge_channels == 0 and takes(conv, 'edge_attr'):
        hint = "; set 'edge_channels', the number of features of an edge"
    fix = f"{hint}; or give 'conv' another name or a function of the input and output channels"
    if list(inspect.signature(conv.forward).parameters)[1] != 'edge_index':
        raise ValueError(
            "'conv' must be a layer that is called with node features and 'edge_index' (got "
            f'{name}){fix}'
        )
    x, edges, edge_attr = _small_graph(channels, edge_channels, like)
    arguments = {} if edge_channels == 0 else {'edge_attr': edge_attr}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            out = copy.deepcopy(conv).eval()(x, edges, **arguments)
    except Exception as error:
        raise ValueError(
            "'conv' must be a layer that needs only node features, edges and, with "
            f"'edge_channels', their features (got {name}, which raises {type(error).__name__}: "
            f'{error}){fix}'
        ) from error
    check_output('conv', conv, out, channels, 'hidden_channels')


def _small_graph(
    channels: int, edge_channels: int, like: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    r"""Returns node features, edges and edge features of a small graph, in the dtype and on the
    device of :obj:`like`; :obj:`None` without features of edges."""
    edges = torch.tensor(SMALL_GRAPH, device=like.device)
    x, edge_attr = (
        torch.arange(rows * width, dtype=like.dtype, device=like.device).sin().view(rows, width)
        for rows, width in ((6, channels), (edges.size(1), edge_channels))
    )
    return x, edges, edge_attr if edge_channels > 0 else None


def check_one_hop(conv: Module, channels: int, edge_channels: int, like: Tensor) -> None:
    r"""Checks on a small graph that the output of :obj:`conv` at a node depends on the node and its
    neighbours only, so that it can be evaluated in parts.

    Args:
        conv (torch.nn.Module): The message passing layer, in evaluation.
        channels (int): Its input channels.
        edge_channels (int): The channels of edge features, 0 for none.
        like (torch.Tensor): A tensor of the dtype and device of the features.

    Raises:
        ValueError: If the output at a node changes without the edges between other nodes, or the
            layer caches what it computes from the edges of its first input.
    """
    if any(
        getattr(module, 'cached', False) and getattr(module, 'normalize', True)
        for module in conv.modules()
    ):
        raise ValueError(
            "'conv' must not have cached=True to be evaluated in parts, as all parts would have "
            f'the edges of the first (got {conv})'
        )
    x, edges, edge_attr = _small_graph(channels, edge_channels, like)
    outs = []
    for num_nodes, num_edges in ((6, edges.size(1)), (3, 2)):
        features = None if edge_attr is None else edge_attr[:num_edges]
        arguments = named_arguments(conv, like.dtype, None, features)
        out = conv(x[:num_nodes], edges[:, :num_edges], **arguments)[0]
        outs.append(out.to(widest_dtype(out.device)))
    whole, part = outs
    if bool(vector_norm(whole - part) > 0.01 * vector_norm(whole)):
        raise ValueError(
            "'conv' must be 'GCNConv', by name, or a layer whose output at a node depends on the "
            f'node and its neighbours only, to be evaluated in parts (got {conv})'
        )
