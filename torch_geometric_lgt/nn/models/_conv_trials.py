r"""Tries message passing layers on a small graph, to see what they take and compute."""

# E edges, D channels, F_e edge features.
import copy
import inspect

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn import Module

from torch_geometric_lgt.functional.numerics import widest_dtype
from torch_geometric_lgt.nn._layers.layer_checks import check_output
from torch_geometric_lgt.nn.models._message_input import named_arguments, takes

# node 0 and its neighbours 1 and 2, which have other neighbours
SMALL_GRAPH = ((1, 2, 0, 3, 4, 5, 1, 2), (0, 0, 1, 1, 2, 3, 3, 4))


def check_call(conv: Module, channels: int, edge_channels: int) -> None:
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
