"""Memory over thousands of steps, in a process of its own, of which the first tenth is not counted."""

import subprocess
import sys
from pathlib import Path

import pytest

STEPS = {'neighbors': 10_000, 'partition': 10_000, 'inference': 10_000, 'training': 1000}
SCRIPT = """
import os, sys, torch
from torch_geometric.data import Data
from torch_geometric_lgt.loader import NeighborLoader, NodePartitionLoader
from torch_geometric_lgt.nn import DIFFormer, SGFormer

torch.set_num_threads(1)
edges = torch.randint(200, (2, 1000))
data = Data(x=torch.randn(200, 8), edge_index=torch.cat([edges, edges.flip(0)], 1), y=torch.randint(3, (200,)))


def neighbors():
    while True:
        yield from NeighborLoader(data, [5, 3], batch_size=4, shuffle=True)


def partition():
    while True:
        yield from NodePartitionLoader(data, batch_size=10)


def training():
    model = SGFormer(8, 8, 3)
    optimizer = torch.optim.Adam(model.parameters())
    for batch in neighbors():
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(batch.x, batch.edge_index), batch.y).backward()
        optimizer.step()
        yield


def inference():
    model, loader = DIFFormer(8, 8, 3), NeighborLoader(data, [-1], batch_size=4)
    while True:
        model.inference(loader)
        yield from range(3 * 50)  # the parts of its passes


def resident():
    return int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 2**20


steps, before = globals()[sys.argv[1]](), 0.0
for number in range(int(sys.argv[2])):
    if number == int(sys.argv[2]) // 10:
        before = resident()
    next(steps)
print(resident() - before)
"""


@pytest.mark.skipif(not Path('/proc/self/statm').exists(), reason='reads the memory of the process from /proc')
@pytest.mark.parametrize('work', STEPS)
def test_memory_is_flat(work):
    out = subprocess.run([sys.executable, '-c', SCRIPT, work, str(STEPS[work])], capture_output=True, text=True, check=True)
    assert float(out.stdout) < 4.0
