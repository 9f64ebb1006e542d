# N nodes, E edges, F_e edge features.
from typing import Any, NamedTuple

from torch import Tensor
from torch.nn import Module

from torch_geometric_lgt.functional.neighbors.edges import weighted_edges
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.nn._layers.input_checks import check_edge_attr
from torch_geometric_lgt.nn._layers.layer_checks import forward_arguments, original
from torch_geometric_lgt.nn.models._graph_context import Degree
from torch_geometric_lgt.nn.models._sparse_gcn import (
    SparseGCNConv,
    counts_degrees,
    gcn_edges,
    gcn_matrix,
    is_sparse_gcn,
)
from torch_geometric_lgt.nn.models._streaming.stream import Part, Stream, to_device
from torch_geometric_lgt.typing import Adj


class MessageInput(NamedTuple):
    r"""Stores the arguments after the node features for a call of message passing.

    Attributes:
        edges: The edges, in a format of the layer.
        arguments (dict): The arguments with names, such as :obj:`edge_attr`.
    """

    edges: Any
    arguments: dict[str, Any]


def message_input(
    conv: Module,
    edge_index: Adj,
    num_nodes: int,
    dtype: Any,
    edge_channels: int,
    degree: Degree = None,
    edge_weight: Tensor | None = None,
    edge_attr: Tensor | None = None,
) -> MessageInput:
    r"""Prepares the edges of a graph, once for all layers like :obj:`conv`.

    Args:
        conv (torch.nn.Module): The message passing layer.
        edge_index (torch.Tensor or SparseTensor): The edges.
        num_nodes (int): :math:`N`.
        dtype (torch.dtype): The dtype of the node features.
        edge_channels (int): :math:`F_e`, the channels of edge features that the model takes.
        degree (torch.Tensor or tuple, optional): For GCN, the degrees ``[N]`` in the whole graph,
            or a pair of out- and in-degrees. (default: :obj:`None`, counted)
        edge_weight (torch.Tensor, optional): The weights ``[E]``. (default: :obj:`None`)
        edge_attr (torch.Tensor, optional): The edge features ``[E, F_e]``. (default: :obj:`None`)

    Raises:
        ValueError: If edges have weights or features that the layer does not take, or features of
            another shape. If :obj:`degree` is given to a GCN that counts the degrees of its input.
    """
    if is_sparse_gcn(conv):
        edges = gcn_edges(edge_index, num_nodes, compute_dtype(dtype), degree, edge_weight)
        check_edge_attr(edge_attr, edges.edges.edge_index.size(1), edge_channels)
        _check_taken(conv, edge_attr=edge_attr)
        return MessageInput(edges, {})
    if degree is not None and counts_degrees(conv):
        raise ValueError(
            "'degree' must be None unless 'conv' is 'GCNConv' without other arguments than 'bias': "
            f'{original(conv)} counts the degrees of its input'
        )
    edges, weight = weighted_edges(edge_index, num_nodes, num_nodes, edge_weight)
    check_edge_attr(edge_attr, edges.size(1), edge_channels)
    return MessageInput(edges, named_arguments(conv, dtype, weight, edge_attr))


def part_input(
    conv: Module,
    stream: Stream,
    part: Part,
    degree: Tensor | None,
    edge_channels: int,
    weight: Tensor,
) -> MessageInput:
    r"""Prepares the edges into :obj:`part`: a matrix of normalised weights for GCN, else a list
    with weights and features.

    Args:
        conv (torch.nn.Module): The message passing layer.
        stream (Stream): The graph.
        part (Part): The nodes, with all edges into them.
        degree (torch.Tensor, optional): The degrees ``[N, 2]`` in the whole graph for GCN, else
            :obj:`None`.
        edge_channels (int): :math:`F_e`, the channels of edge features that the model takes.
        weight (torch.Tensor): A parameter of the model, with its dtype and device.

    Raises:
        ValueError: If the graph lacks edge features.
    """
    if degree is not None:
        matrix = gcn_matrix(part, degree, compute_dtype(weight.dtype), weight.device)
        return MessageInput(matrix, {})
    edge_attr = stream.edge_values('edge_attr', part) if edge_channels > 0 else None
    check_edge_attr(edge_attr, part.edge_index.size(1), edge_channels)
    part = part.to(weight.device)
    edge_attr = None if edge_attr is None else to_device(edge_attr, weight.device)
    arguments = named_arguments(conv, weight.dtype, part.edge_weight, edge_attr)
    return MessageInput(part.edge_index, arguments)


def named_arguments(
    conv: Module, dtype: Any, edge_weight: Tensor | None, edge_attr: Tensor | None
) -> dict[str, Tensor]:
    r"""Returns the weights and features of edges that are not :obj:`None`, in :obj:`dtype`, as
    arguments of :obj:`conv`.

    Raises:
        ValueError: If the layer does not take one of them.
    """
    _check_taken(conv, edge_weight=edge_weight, edge_attr=edge_attr)
    pairs = {'edge_weight': edge_weight, 'edge_attr': edge_attr}
    return {name: value.to(dtype) for name, value in pairs.items() if value is not None}


def _check_taken(conv: Module, **values: Tensor | None) -> None:
    r"""Raises a ValueError if a keyword has a value although :meth:`forward` of :obj:`conv` has no
    argument of this name."""
    for name, value in values.items():
        if value is not None and not takes(conv, name):
            raise ValueError(
                f"'{name}' must be None for 'conv' = {name_of(conv)}, which takes none (got "
                f'{tuple(value.shape)})'
            )


def takes(conv: Module, name: str) -> bool:
    r"""Tells whether :meth:`forward` of :obj:`conv` has an argument :obj:`name` of edges or
    graphs, and reads it. A network of PyG drops weights and features that its layers do not
    take."""
    if isinstance(conv, SparseGCNConv) or not getattr(conv, f'supports_{name}', True):
        return False
    return name in forward_arguments(conv)


def name_of(conv: Module) -> str:
    r"""Returns the name by which a user knows the layer :obj:`conv`."""
    return 'GCNConv' if isinstance(conv, SparseGCNConv) else type(conv).__name__
