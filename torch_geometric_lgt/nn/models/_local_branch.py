# N nodes, E edges, D hidden channels.
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edges import weighted_edges
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.nn._layers.layer_checks import forward_arguments, original
from torch_geometric_lgt.nn._layers.linear_parts import reference
from torch_geometric_lgt.nn.models._batch_norm import check_statistics
from torch_geometric_lgt.nn.models._graph_context import Degree, Edges
from torch_geometric_lgt.nn.models._sparse_gcn import (
    SparseGCN,
    counts_degrees,
    gcn_degree_edges,
    gcn_edges,
    gcn_matrix,
)
from torch_geometric_lgt.nn.models._streaming.stream import Part, Stream, node_rows, to_device

if TYPE_CHECKING:
    from torch_geometric_lgt.nn.models.sgformer import SGFormer


def local_edges(
    model: 'SGFormer',
    edge_index: Edges,
    num_nodes: int,
    degree: Degree,
    dtype: torch.dtype,
    edge_weight: Tensor | None = None,
) -> tuple[Any, ...]:
    r"""Prepares the arguments after the features for a call of the local branch, a tuple: the
    edges, and edge weights if the graph or the branch needs them.

    The default branch gets :class:`GCNEdges`. Another GCN with ``normalize=False`` gets all edges
    with self loops and GCN's normalised weights.

    Raises:
        ValueError: If edges have weights although the branch takes none, or the branch would not
            use :obj:`degree`.
    """
    gnn = model.gnn
    if model.takes_gcn_weights:
        edges = gcn_edges(edge_index, num_nodes, compute_dtype(dtype), degree, edge_weight)
        return (edges,) if isinstance(gnn, SparseGCN) else edges.listed(dtype)
    if degree is not None and counts_degrees(gnn):
        raise ValueError(
            "'degree' must be None unless 'gnn' is the default one or a GCN with "
            f'normalize=False (got {gnn}, which counts the degrees of its input)'
        )
    edges, weight = weighted_edges(edge_index, num_nodes, num_nodes, edge_weight)
    if weight is not None and not takes_weights(gnn):
        raise ValueError(
            "'gnn' must take weights of edges where there are some, as a third argument such as "
            f"'edge_weight' (got {gnn}, which takes none); use a GCN"
        )
    is_tensor = isinstance(edge_index, Tensor)
    is_list = isinstance(edge_index, SortedEdges) or (
        is_tensor and edge_index.layout == torch.strided
    )
    is_csc = is_tensor and edge_index.layout == torch.sparse_csc  # PyG's layers refuse it
    # PyG normalises a sparse torch.Tensor with self loops as another graph, and drops the weights
    # of self loops in a SparseTensor
    is_misread = weight is not None or (is_tensor and counts_degrees(gnn))
    if is_list or is_csc or is_misread:
        return (edges,) if weight is None else (edges, weight.to(dtype))
    return (edge_index,)  # PyG's layers are faster with a sparse matrix than with a list


def takes_weights(gnn: Any) -> bool:
    r"""Tells whether the third argument of the network :obj:`gnn`, by its name, is for weights of
    edges. One of ``*args`` may be."""
    arguments = [*forward_arguments(gnn).values()][:3]
    is_open = any(each.kind is each.VAR_POSITIONAL for each in arguments)
    is_weight = is_open or any('weight' in each.name for each in arguments[2:])
    return is_weight and getattr(gnn, 'supports_edge_weight', True)


def stream_local_branch(model: 'SGFormer', stream: Stream, x_0: Tensor) -> Tensor:
    r"""Computes the output ``[N, D]`` of the local branch for all nodes, layer by layer and part by
    part. The arguments and errors are those of :meth:`SGFormer.stream_local_branch`."""
    gnn = model.gnn
    if not hasattr(gnn, 'inference_per_layer') or gnn.jk_mode is not None:
        raise ValueError(
            "'gnn' must be one of PyG's networks without jumping knowledge to be evaluated in "
            f'parts (got {gnn})'
        )
    check_statistics(gnn, part='part', where='to be evaluated in parts')
    if stream.edge_weight is not None and not model.takes_gcn_weights:
        raise ValueError(
            "'gnn' must be the default one or a GCN with normalize=False for edge weights in "
            f'parts (got {gnn})'
        )
    if counts_degrees(gnn):
        raise ValueError(
            "'gnn' must be a GCN with normalize=False to be evaluated in parts: its layers would "
            f'count the degrees of a part (got {gnn}); the weights of GCN are then found for the '
            'whole graph'
        )
    degree = stream.degrees('local-degrees', gcn_degree_edges) if model.takes_gcn_weights else None
    x = None if model.gnn_input == 'input' else x_0
    for index in range(gnn.num_layers):
        x = _stream_local_layer(model, stream, index, x, x_0, degree)
    return cast(Tensor, x)


def _stream_local_layer(
    model: 'SGFormer',
    stream: Stream,
    index: int,
    x: Tensor | None,
    x_0: Tensor,
    degree: Tensor | None,
) -> Tensor:
    r"""Computes the output of layer :obj:`index` of the local branch for all nodes from its input
    :obj:`x`, or from the features of the graph if this is :obj:`None`."""
    gnn, weight = original(model.gnn), reference(model)
    is_sparse = isinstance(gnn, SparseGCN)
    dtype = compute_dtype(weight.dtype) if is_sparse else weight.dtype
    reads_init = is_sparse and gnn.reads_init

    def rows(part: Part) -> Tensor:
        x_src = stream.node_values('x', part.n_id) if x is None else node_rows(x, part.n_id)
        x_src = x_src.to(weight.device, weight.dtype)
        if degree is None:
            edges = part.edge_index.to(weight.device)
        else:
            edges = gcn_matrix(part, degree, dtype, weight.device)
        inputs = index, x_src, edges, part.size
        if not reads_init:
            return gnn.inference_per_layer(*inputs)
        return gnn.inference_per_layer(*inputs, to_device(x_0[part.nodes], weight.device))

    is_last = index == gnn.num_layers - 1
    width = gnn.out_channels if is_last else gnn.hidden_channels
    return stream.fill(f'local-{index + 1}', width, weight.dtype, rows, neighbors=True)
