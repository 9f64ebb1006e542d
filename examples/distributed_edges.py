"""One graph with edges on several processes: each process loads the neighbourhood of its own nodes,
and every node attends to all nodes of all processes. The lines it prints are the same for any
number of processes.

torchrun --nproc-per-node 2 examples/distributed_edges.py
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Data
from torch_geometric.utils import stochastic_blockmodel_graph

from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.nn import DIFFormer
from torch_geometric_lgt.transforms import NodeDegree

CLASSES, PER_CLASS, LAYERS = 4, 100, 2


def make_graph() -> Data:
    """The same graph on every process; a large one is a MappedGraph in files that all can read."""
    torch.manual_seed(0)
    y = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    probabilities = torch.full((CLASSES, CLASSES), 0.01).fill_diagonal_(0.06)
    edge_index = stochastic_blockmodel_graph([PER_CLASS] * CLASSES, probabilities)
    x = (1.5 * F.one_hot(y, 16) + torch.randn(y.numel(), 16)).double()
    train_mask = torch.rand(y.numel()) < 0.2
    return NodeDegree()(Data(x=x, y=y, edge_index=edge_index, train_mask=train_mask))


def train_and_test() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    data = make_graph()
    local = torch.randperm(data.num_nodes).tensor_split(world)[rank]  # the seed is the same
    # all neighbours, as many hops as DIFFormer has layers; the local nodes come first in the batch
    loader = NeighborLoader(data, [-1] * LAYERS, batch_size=len(local), input_nodes=local)
    batch = next(iter(loader))
    y, train_mask = batch.y[: len(local)], batch.train_mask[: len(local)]
    num_train = data.train_mask.sum()

    torch.manual_seed(0)  # the same parameters on every process
    model = DistributedDataParallel(DIFFormer(16, 32, CLASSES, num_layers=LAYERS).double())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
    for epoch in range(1, 31):
        optimizer.zero_grad()
        out = model(
            batch.x,
            batch.edge_index,
            degree=batch.degree,  # in the whole graph
            num_keys=len(local),  # the other nodes of the batch are keys on their own process
            process_group=dist.group.WORLD,
        )[: len(local)]
        loss = F.cross_entropy(out[train_mask], y[train_mask], reduction='sum') / num_train
        (loss * world).backward()  # gradients are averaged over the processes
        optimizer.step()
        if epoch % 6 == 0:
            hits = (out.argmax(1) == y)[~train_mask].sum()
            figures = torch.stack([loss.detach(), hits / (data.num_nodes - num_train)])
            dist.all_reduce(figures)
            if rank == 0:
                print(
                    f'epoch {epoch:2d}: training loss {figures[0]:.4f}, test accuracy '
                    f'{figures[1]:.4f}'
                )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    if not {'RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT'} <= os.environ.keys():
        parser.error(
            'this process is none of several: start them with torchrun --nproc-per-node 2 '
            'examples/distributed_edges.py'
        )
    dist.init_process_group('gloo')
    train_and_test()
    # after the parallel module is gone, whose end would wait for a thread that waits for it
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
