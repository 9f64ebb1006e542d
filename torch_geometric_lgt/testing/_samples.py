# N nodes, E edges, F input width.
import torch
from torch import Tensor

DOUBLE = torch.float64


def sample(num_nodes: int, in_channels: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    r"""Draws a batch of graphs: features ``[N, F]`` in double precision, edges ``[2, E]`` in both
    directions within the graphs, and an unsorted batch vector ``[N]``.

    Graphs 0, 1 and 3 have different sizes, and graph 2 is empty."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_nodes, in_channels, dtype=DOUBLE, generator=generator)
    batch = torch.tensor([0, 1, 1, 3, 3, 3])[torch.randint(6, (num_nodes,), generator=generator)]
    pairs = torch.randint(num_nodes, (2, 6 * num_nodes), generator=generator)
    pairs = pairs[:, (batch[pairs[0]] == batch[pairs[1]]) & (pairs[0] != pairs[1])]
    return x, torch.cat([pairs, pairs.flip(0)], 1).unique(dim=1), batch


def tiny_graphs(in_channels: int) -> tuple[Tensor, Tensor, Tensor]:
    r"""Draws 16 complete graphs of one to four nodes, half of them with one node: features
    ``[N, F]`` in double precision, edges ``[2, E]`` and an unsorted batch vector ``[N]``."""
    generator = torch.Generator().manual_seed(0)
    sizes = torch.tensor([1, 1, 2, 1, 3, 1, 4, 1, 2, 3, 1, 1, 2, 4, 1, 3])
    batch = torch.repeat_interleave(sizes)
    batch = batch[torch.randperm(batch.numel(), generator=generator)]
    same = batch[:, None] == batch[None]
    edge_index = same.fill_diagonal_(False).nonzero().t().contiguous()
    return (
        torch.randn(batch.numel(), in_channels, dtype=DOUBLE, generator=generator),
        edge_index,
        batch,
    )


def subgraph(edge_index: Tensor, nodes: Tensor, num_nodes: int) -> Tensor:
    r"""Returns the edges ``[2, E']`` of :obj:`edge_index` between the distinct ids :obj:`nodes`
    ``[n]``, as positions in :obj:`nodes`."""
    place = torch.full((num_nodes,), -1)
    place[nodes] = torch.arange(nodes.numel())
    inside = place[edge_index]
    return inside[:, (inside >= 0).all(0)]
