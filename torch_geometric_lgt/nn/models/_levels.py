# N nodes, E edges, B graphs, D channels.
from typing import cast

import torch
from torch import Tensor
from torch_geometric.nn import global_mean_pool

from torch_geometric_lgt.functional.numerics import compute_dtype

LEVELS = ('node', 'edge', 'graph')


def check_level(level: str) -> None:
    r"""Raises a ValueError unless :obj:`level` names what a model scores: nodes, edges or
    graphs."""
    if level not in LEVELS:
        raise ValueError(f"'level' must be one of {', '.join(map(repr, LEVELS))} (got {level!r})")


def check_node_level(level: str) -> None:
    r"""Raises a ValueError unless a model of the level :obj:`level` scores nodes."""
    if level != 'node':
        raise ValueError(f"'level' must be 'node' for scores of all nodes (got {level!r})")


def read_level(
    level: str, x: Tensor, edge_index: Tensor | None, batch: Tensor | None, num_graphs: int
) -> Tensor:
    r"""Computes what the output layer reads from the last node features :obj:`x` ``[N, D]``: these
    features for nodes, those of source and target ``[E, 2 D]`` for edges, or the means over the
    nodes ``[B, D]`` for graphs.

    Args:
        level (str): :obj:`"node"`, :obj:`"edge"` or :obj:`"graph"`.
        x (torch.Tensor): The node features.
        edge_index (torch.Tensor, optional): The edges ``[2, E]``, which only scores of edges read.
        batch (torch.Tensor, optional): The graph id of each node; :obj:`None` for one graph.
        num_graphs (int): :math:`B`.
    """
    if level == 'edge':
        return torch.cat([x[nodes] for nodes in cast(Tensor, edge_index)], 1)
    if level == 'graph':
        graph = torch.zeros(x.size(0), dtype=torch.long, device=x.device)
        graph = graph if batch is None else batch.long()
        return global_mean_pool(x.to(compute_dtype(x.dtype)), graph, num_graphs).to(x.dtype)
    return x
