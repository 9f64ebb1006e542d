"""Mini-batches on several processes that attend to all nodes of one graph: each step has a batch of
seed nodes, which the processes share. The lines it prints are the same for any number of processes.

torchrun --nproc-per-node 2 examples/distributed_batches.py
"""

import argparse
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.data import Data
from torch_geometric.utils import stochastic_blockmodel_graph

from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.nn import AttentionMemory, DIFFormer
from torch_geometric_lgt.transforms import NodeDegree

CLASSES, PER_CLASS, LAYERS, STEP = 4, 100, 2, 40


def make_graph() -> Data:
    """The same graph on every process; a large one is a MappedGraph in files that all can read."""
    torch.manual_seed(0)
    y = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    probabilities = torch.full((CLASSES, CLASSES), 0.01).fill_diagonal_(0.06)
    edge_index = stochastic_blockmodel_graph([PER_CLASS] * CLASSES, probabilities)
    x = (1.5 * F.one_hot(y, 16) + torch.randn(y.numel(), 16)).double()
    train_mask = torch.zeros(y.numel(), dtype=torch.bool)
    train_mask[torch.randperm(y.numel())[: 4 * STEP]] = True
    return NodeDegree()(Data(x=x, y=y, edge_index=edge_index, train_mask=train_mask))


def train_and_test() -> None:
    rank, world = dist.get_rank(), dist.get_world_size()
    data = make_graph()
    train_nodes = data.train_mask.nonzero().view(-1)
    whole = NeighborLoader(data, [-1], batch_size=100)  # all nodes, part by part
    loader = NeighborLoader(data, [-1] * LAYERS)  # called with the seeds of a step, maybe none
    folder = [tempfile.mkdtemp() if rank == 0 else '']  # which all processes can read
    dist.broadcast_object_list(folder)

    torch.manual_seed(0)  # the same parameters on every process
    model = DIFFormer(16, 32, CLASSES, num_layers=LAYERS).double()
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=5e-4)
    for epoch in range(1, 11):
        if rank == 0:  # one process sums up the keys of all nodes, and all read its file
            model.attention_memory(whole).save(f'{folder[0]}/memory-{epoch}')
        dist.barrier()
        memory = AttentionMemory.load(f'{folder[0]}/memory-{epoch}', model)
        for seeds in train_nodes[torch.randperm(train_nodes.numel())].split(STEP):
            local_seeds = seeds.tensor_split(world)[rank]  # the seed of the permutation is the same
            batch = loader(local_seeds)
            optimizer.zero_grad()
            out = parallel(
                batch.x,
                batch.edge_index,
                degree=batch.degree,  # in the whole graph
                states=memory.without(seeds),  # those of all processes, whose keys are new
                num_keys=len(local_seeds),
                process_group=dist.group.WORLD,
            )[: len(local_seeds)]
            loss = F.cross_entropy(out, batch.y[: len(local_seeds)], reduction='sum') / len(seeds)
            (loss * world).backward()  # gradients are averaged over the processes
            optimizer.step()
        if epoch % 2 == 0:
            dist.all_reduce(last := loss.detach())
            if rank == 0:
                hits = model.inference(whole).argmax(1) == data.y
                accuracy = hits[~data.train_mask].double().mean()
                print(f'epoch {epoch:2d}: training loss {last:.4f}, test accuracy {accuracy:.4f}')


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args()
    if not {'RANK', 'WORLD_SIZE', 'MASTER_ADDR', 'MASTER_PORT'} <= os.environ.keys():
        parser.error(
            'this process is none of several: start them with torchrun --nproc-per-node 2 '
            'examples/distributed_batches.py'
        )
    dist.init_process_group('gloo')
    train_and_test()
    # after the parallel module is gone, whose end would wait for a thread that waits for it
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
