# N nodes, E edges, D embedding size, S size of the structural encoding.
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Module

from torch_geometric_lgt.functional.neighbors.edges import weighted_edges
from torch_geometric_lgt.functional.neighbors.hops import edges_into
from torch_geometric_lgt.nn._layers.input_checks import check_devices
from torch_geometric_lgt.nn._layers.linear_parts import reference
from torch_geometric_lgt.nn.models._recommender import check_item_ids
from torch_geometric_lgt.typing import Adj, PairTensor

if TYPE_CHECKING:
    from torch_geometric_lgt.nn.models.mgformer import MGFormer


def neighbor_embedding(
    model: 'MGFormer', edge_index: Adj | None, nodes: Tensor | None, edge_weight: Tensor | None
) -> Tensor:
    r"""Computes what :meth:`MGFormer.get_embedding` returns with the mask :obj:`"adjacency"`.

    Raises:
        ValueError: If there are no edges, or edges or weights do not fit the model.
    """
    if edge_index is None:
        raise ValueError(
            "'edge_index' must be given to a model with 'mask' = 'adjacency' (got None)"
        )
    device = reference(model.embedding).device
    check_devices(device, edge_index=edge_index, edge_weight=edge_weight)
    edges = weighted_edges(edge_index, model.num_nodes, model.num_nodes, edge_weight)
    check_item_ids(edges[0], model.num_users, model.num_nodes)
    layers: Any = model.layers
    if nodes is not None and not any(layer.neighbor_sum.explain for layer in layers):
        return _rows_of(model, model.num_layers, nodes, *edges)
    x = model.tokens()
    for layer in layers:
        x = neighbor_rows(model, layer, x, *edges)
    return x if nodes is None else x[nodes]


def neighbor_rows(
    model: 'MGFormer', layer: Module, x: Tensor | PairTensor, edges: Tensor, weight: Tensor | None
) -> Tensor:
    r"""Computes the output of one layer, with the residual, ``[n, D + S]``.

    Args:
        model (MGFormer): The model.
        layer (torch.nn.Module): One of its layers.
        x (torch.Tensor or tuple): The input of the layer: the rows of all nodes, or those of the
            sources and those of the targets.
        edges (torch.Tensor): The edges ``[2, E]``, as positions in :obj:`x`.
        weight (torch.Tensor, optional): Their weights ``[E]``.
    """
    out = layer(x, edges, edge_weight=weight)
    x_dst = x if isinstance(x, Tensor) else x[1]
    return out + x_dst if model.residual else out


def _rows_of(
    model: 'MGFormer', depth: int, nodes: Tensor, edges: Tensor, weight: Tensor | None
) -> Tensor:
    r"""Computes the rows of :obj:`nodes` after the first :obj:`depth` layers, ``[n, D + S]``, from
    the nodes within :obj:`depth` hops.

    Args:
        model (MGFormer): The model.
        depth (int): The number of layers; 0 returns the tokens.
        nodes (torch.Tensor): The ids ``[n]``.
        edges (torch.Tensor): All edges of the graph ``[2, E]``.
        weight (torch.Tensor, optional): Their weights ``[E]``.
    """
    if depth == 0:
        return model.tokens(nodes)
    (source, target), near_weight = edges_into(nodes, edges, weight)
    n_id = torch.cat([nodes, source]).unique()
    x_src = _rows_of(model, depth - 1, n_id, edges, weight)
    x_dst = x_src[torch.searchsorted(n_id, nodes)]
    near_edges = torch.stack([torch.searchsorted(n_id, source), target])
    return neighbor_rows(model, model.layers[depth - 1], (x_src, x_dst), near_edges, near_weight)
