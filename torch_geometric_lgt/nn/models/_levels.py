# N nodes, E edges, B graphs, D channels.
from typing import cast

import torch
from torch import Tensor
from torch_geometric.nn.aggr import Aggregation
from torch_geometric.utils import scatter

from torch_geometric_lgt._arguments import check_choice
from torch_geometric_lgt.functional.numerics import compute_dtype

LEVELS = ('node', 'edge', 'graph')
POOLS = ('mean', 'sum', 'add', 'max')


def check_level(level: str, aggr: str | Aggregation) -> None:
    r"""Raises a ValueError unless :obj:`level` names what a model scores, nodes, edges or graphs,
    and :obj:`aggr` is a way to aggregate the nodes of a graph."""
    check_choice('level', level, LEVELS)
    if not isinstance(aggr, Aggregation):
        check_choice('aggr', aggr, POOLS, ', or an Aggregation of torch_geometric.nn.aggr')
    if level != 'graph' and aggr != 'mean':
        raise ValueError(f"'aggr' must be 'mean' unless 'level' is 'graph' (got {aggr!r})")


def check_node_level(level: str) -> None:
    r"""Raises a ValueError unless a model of the level :obj:`level` scores nodes."""
    if level != 'node':
        raise ValueError(f"'level' must be 'node' for scores of all nodes (got {level!r})")


def read_level(
    level: str,
    x: Tensor,
    edge_index: Tensor | None,
    batch: Tensor | None,
    num_graphs: int,
    aggr: str | Aggregation,
) -> Tensor:
    r"""Computes what the output layer reads from the last node features :obj:`x` ``[N, D]``: these
    features for nodes, those of source and target ``[E, 2 D]`` for edges, or the aggregated
    features of the nodes ``[B, D]`` for graphs.

    Args:
        level (str): :obj:`"node"`, :obj:`"edge"` or :obj:`"graph"`.
        x (torch.Tensor): The node features.
        edge_index (torch.Tensor, optional): The edges ``[2, E]``, which only scores of edges read.
        batch (torch.Tensor, optional): The graph id of each node; :obj:`None` for one graph.
        num_graphs (int): :math:`B`.
        aggr (str or Aggregation): :obj:`"mean"`, :obj:`"sum"` or :obj:`"add"`, :obj:`"max"`, or
            a module.

    Raises:
        ValueError: If the module changes the number of channels.
    """
    if level == 'edge':
        return torch.cat([x.index_select(0, nodes) for nodes in cast(Tensor, edge_index)], 1)
    if level == 'graph':
        one_graph = torch.zeros(x.size(0), dtype=torch.long, device=x.device)
        graph = one_graph if batch is None else batch.long()
        if isinstance(aggr, str):
            wide = x.to(compute_dtype(x.dtype))
            return scatter(wide, graph, 0, num_graphs, reduce=aggr).to(x.dtype)
        graph, order = graph.sort(stable=True)  # modules that pad graphs need them one by one
        out = aggr(x.index_select(0, order), graph, dim_size=num_graphs)
        if out.size(-1) != x.size(1):
            raise ValueError(
                f"'aggr' must return the {x.size(1)} channels of its input (got {out.size(-1)})"
            )
        return out
    return x
