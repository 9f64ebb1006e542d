"""One graph on several processes: handwritten digits without edges, every image attends to all
images of all processes. The lines it prints are the same for any number of processes.

torchrun --nproc-per-node 2 examples/distributed.py
"""

import argparse
import os
from importlib.util import find_spec

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from torch_geometric_lgt.nn import NodeFormer


def train_and_test() -> None:
    from sklearn.datasets import load_digits

    rank, world = dist.get_rank(), dist.get_world_size()
    x, y = (torch.from_numpy(part) for part in load_digits(return_X_y=True))
    x, y = x.double() / 16, y.long()  # in single precision, rounding grows from step to step
    train = torch.rand(len(y), generator=torch.Generator().manual_seed(0)) < 0.1
    local = torch.arange(len(y)).tensor_split(world)[rank]  # the parts may have any sizes

    torch.manual_seed(0)  # the same parameters on every process
    model = DistributedDataParallel(
        NodeFormer(64, 64, 10, num_gumbel_samples=0, relational_order=0).double()
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
    for epoch in range(1, 101):
        optimizer.zero_grad()
        out = model(x[local], None, process_group=dist.group.WORLD)
        loss = cross_entropy(out[train[local]], y[local][train[local]], reduction='sum')
        loss = loss / train.sum()
        (loss * world).backward()  # gradients are averaged over the processes
        optimizer.step()
        if epoch % 20 == 0:
            hits = (out.argmax(1) == y[local])[~train[local]].sum()
            figures = torch.stack([loss.detach(), hits / (~train).sum()])
            dist.all_reduce(figures)
            if rank == 0:
                print(
                    f'epoch {epoch:3d}: training loss {figures[0]:.4f}, test accuracy '
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
            'examples/distributed.py'
        )
    if find_spec('sklearn') is None:
        parser.error('scikit-learn is missing: pip install "torch-geometric-lgt[examples]"')
    dist.init_process_group('gloo')
    train_and_test()
    # after the parallel module is gone, whose end would wait for a thread that waits for it
    dist.destroy_process_group()


if __name__ == '__main__':
    main()
