"""Run by torchrun: a slice of the nodes on each process, the layers' outputs and gradients into a folder."""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from torch_geometric_lgt.nn import DegreeMaskedAttention, KernelAttentionConv

SIZES = {2: (11, 9), 4: (3, 0, 16, 1)}
KINDS = ('plain', 'masked')
GRAPHS = 3


def make(kind):
    torch.manual_seed(0)
    layer = DegreeMaskedAttention(8, heads=2, max_degree=9) if kind == 'masked' else KernelAttentionConv(8, 8, heads=2)
    degree = torch.arange(20) % 7
    return layer.double(), torch.randn(20, 8).double(), torch.arange(20) % GRAPHS, (degree,) if kind == 'masked' else ()


def squared_error(out, nodes=slice(None)):
    return (out - torch.arange(160.0, dtype=torch.float64).sin().view(20, 8)[nodes]).square().sum() / 160


class AllNodes(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, batch, *degree):
        state = self.layer.attention_state(x, *degree, batch=batch, batch_size=GRAPHS).all_reduce()
        return self.layer(x, *degree, batch=batch, state=state)


def main(folder):
    torch.set_num_threads(1)
    dist.init_process_group('gloo', timeout=timedelta(seconds=60))
    rank, world = dist.get_rank(), dist.get_world_size()
    start = sum(SIZES[world][:rank])
    own = slice(start, start + SIZES[world][rank])
    for kind in KINDS:
        layer, x, batch, degree = make(kind)
        model = DistributedDataParallel(AllNodes(layer))
        out = model(x[own], batch[own], *(d[own] for d in degree))
        (squared_error(out, own) * world).backward()
        torch.save((out.detach(), {name: p.grad for name, p in layer.named_parameters()}), f'{folder}/{kind}-{rank}.pt')
    dist.barrier()
    dist.destroy_process_group()


if __name__ == '__main__':
    main(sys.argv[1])
