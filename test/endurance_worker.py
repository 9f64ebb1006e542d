"""Steps that are taken thousands of times in a process of its own, which measures its memory."""

import os
from itertools import pairwise
from pathlib import Path

import torch
from torch_geometric.data import Data

from torch_geometric_lgt.loader import NeighborLoader, NodePartitionLoader
from torch_geometric_lgt.nn import DIFFormer, SGFormer


def graph():
    edges = torch.randint(200, (2, 1000))
    return Data(
        x=torch.randn(200, 8),
        edge_index=torch.cat([edges, edges.flip(0)], 1),
        y=torch.randint(3, (200,)),
    )


def neighbors(data):
    while True:
        yield from NeighborLoader(data, [5, 3], batch_size=4, shuffle=True)


def partition(data):
    while True:
        yield from NodePartitionLoader(data, batch_size=10)


def training(data):
    model = SGFormer(8, 8, 3)
    optimizer = torch.optim.Adam(model.parameters())
    for batch in neighbors(data):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch.x, batch.edge_index), batch.y).backward()
        optimizer.step()
        yield


def inference(data):
    model, loader = DIFFormer(8, 8, 3), NeighborLoader(data, [-1], batch_size=4)
    while True:
        model.inference(loader)
        yield from range(3 * 50)  # the parts of its passes


def resident_mib():
    return int(Path('/proc/self/statm').read_text().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 2**20


def write_growth(work, num_steps, path):
    """Writes by how many MiB the memory grew over the last three quarters of the steps: three times
    the median of these quarters, as an allocator may take a MiB at once in any of them."""
    torch.set_num_threads(1)
    steps, memory = work(graph()), []
    for number in range(num_steps):
        if number % (num_steps // 4) == 0:
            memory.append(resident_mib())
        next(steps)
    memory.append(resident_mib())
    growth = sorted(after - before for before, after in pairwise(memory[1:]))
    path.write_text(str(3 * growth[1]))
