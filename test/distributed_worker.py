"""Run by torchrun, or by a fork for each rank: a slice of the nodes on each process, the outputs
and gradients of layers and models into a folder; or the second process leaves before the first
reduction; or each process on a GPU of its own."""

import contextlib
import os
import runpy
import socket
import sys
import tempfile
from datetime import timedelta
from types import SimpleNamespace

import torch
import torch.distributed as dist
from freeze_objects import freeze
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GraphSAGE
from torch_geometric.utils import k_hop_subgraph

from torch_geometric_lgt.functional.neighbors.hops import degrees
from torch_geometric_lgt.nn import (
    DegreeMaskedAttention,
    DIFFormer,
    GraphTransformer,
    KernelAttentionConv,
    NodeFormer,
    SGFormer,
)

SIZES = {2: (11, 9), 4: (3, 0, 16, 1)}
KINDS, GRAPHS = ('plain', 'masked'), 3
MODELS = {
    'difformer': lambda: DIFFormer(8, 8, 8, heads=2, norm='frobenius'),
    'graph-transformer': lambda: GraphTransformer(8, 8, 8, 1, 2, 1, dropout=0.0),
    'graph-transformer-gated': lambda: GraphTransformer(8, 8, 8, 1, 2, 1, True, dropout=0.0),
    'nodeformer': lambda: NodeFormer(8, 8, 8, heads=2, num_features=8, num_gumbel_samples=0),
    'sgformer': lambda: SGFormer(8, 8, 8, 2, norm='row', gnn=GraphSAGE(8, 8, 2)),
    'sgformer-normalised': lambda: SGFormer(8, 8, 8, 2, heads=2),
    'sgformer-residual': lambda: SGFormer(
        8, 8, 8, 1, norm='row', gnn_residual=True, gnn_input='input'
    ),
}


def make(kind):
    torch.manual_seed(0)
    layer = (
        DegreeMaskedAttention(8, heads=2, max_degree=9)
        if kind == 'masked'
        else KernelAttentionConv(8, 8, heads=2)
    )
    degree = torch.arange(20) % 7
    return (
        layer.double(),
        torch.randn(20, 8).double(),
        torch.arange(20) % GRAPHS,
        (degree,) if kind == 'masked' else (),
    )


def make_model(name):
    torch.manual_seed(0)
    model = MODELS[name]().double()
    x = torch.randn(20, 8).double()
    edges = torch.randint(20, (2, 40))
    edges = edges[:, edges[0] != edges[1]]
    return model, x, torch.cat([edges, edges.flip(0)], 1).unique(dim=1)


def squared_error(out, nodes=slice(None)):
    return (
        out - torch.arange(160.0, dtype=torch.float64).sin().view(20, 8)[nodes]
    ).square().sum() / 160


class AllNodes(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, batch, *degree):
        state = self.layer.attention_state(x, *degree, batch=batch, batch_size=GRAPHS).all_reduce()
        return self.layer(x, *degree, batch=batch, state=state)


def part(rows, edges):
    """The process's own nodes, those within two hops after them, and the edges between places among
    these."""
    rows = torch.arange(20)[rows]
    nodes, edges, *_ = k_hop_subgraph(rows, 2, edges, num_nodes=20)
    nodes = torch.cat([rows, nodes[~torch.isin(nodes, rows)]])
    place = torch.empty(20, dtype=torch.long).index_copy_(0, nodes, torch.arange(nodes.numel()))
    return nodes, place[edges]


def save(path, out, module):
    grads = {name: parameter.grad.cpu() for name, parameter in module.named_parameters()}
    torch.save(
        (
            out.detach().cpu(),
            grads,
            {name: buffer.cpu() for name, buffer in module.named_buffers()},
        ),
        path,
    )


def main(folder, mode):
    torch.set_num_threads(1)
    device = (
        torch.device('cuda', int(os.environ['LOCAL_RANK']))
        if mode == 'nccl'
        else torch.device('cpu')
    )
    if mode == 'nccl':
        torch.cuda.set_device(device)
    dist.init_process_group(
        'nccl' if mode == 'nccl' else 'gloo',
        timeout=timedelta(seconds=20 if mode == 'lost' else 60),
    )
    work(folder, device, mode == 'lost')
    dist.barrier()
    # after the parallel modules are gone, whose end would wait for a thread that waits for it
    dist.destroy_process_group()


def reduce_alone(rank, world, device):
    """A group of one process needs no other."""
    alone = [dist.new_group([process]) for process in range(world)][rank]
    if rank == 0:
        layer, x = (part.to(device) for part in make('plain')[:2])
        state = layer.attention_state(x)
        torch.testing.assert_close(state.all_reduce(alone).state_dict(), state.state_dict())


def work(folder, device, lost):
    rank, world = dist.get_rank(), dist.get_world_size()
    start = sum(SIZES[world][:rank])
    rows = slice(start, start + SIZES[world][rank])
    if lost and rank == 1:
        os._exit(0)
    if not lost:
        reduce_alone(rank, world, device)
    for kind in KINDS:
        layer, x, batch, degree = make(kind)
        layer = layer.to(device)
        x = x.to(device)
        batch = batch.to(device)
        degree = tuple(d.to(device) for d in degree)
        model = DistributedDataParallel(AllNodes(layer))
        out = model(x[rows], batch[rows], *(d[rows] for d in degree))
        (squared_error(out.cpu(), rows) * world).backward()
        save(f'{folder}/{kind}-{rank}.pt', out, layer)
    for name in [] if lost else MODELS:
        model, x, edges = make_model(name)
        nodes, near = part(rows, edges)
        extra = {} if name == 'sgformer' else {'degree': degrees(edges, 20)[nodes].to(device)}
        parallel = DistributedDataParallel(model.to(device))
        size = SIZES[world][rank]
        out = parallel(
            x[nodes].to(device),
            near.to(device),
            process_group=dist.group.WORLD,
            num_keys=size,
            **extra,
        )[:size]
        (squared_error(out.cpu(), rows) * world).backward()
        save(f'{folder}/{name}-{rank}.pt', out, model)


def free_port():
    with socket.create_server(('127.0.0.1', 0)) as server:
        return server.getsockname()[1]


def as_rank(rank, world, port, function, *arguments):
    """Runs a function with the environment that torchrun gives a process."""
    ranks = {
        'RANK': rank,
        'LOCAL_RANK': rank,
        'WORLD_SIZE': world,
        'MASTER_ADDR': '127.0.0.1',
        'MASTER_PORT': port,
    }
    os.environ.update({name: str(value) for name, value in ranks.items()})
    function(*arguments)


def torchrun(errors, arguments):
    """Does what the command does, without its own imports; what all processes write to stderr goes
    to a file."""
    from torch.distributed import run

    with errors.open('w') as file:
        os.dup2(file.fileno(), 2)
    run.main(['--standalone', *arguments])


def main_with_errors_to(folder, *arguments):
    """Has a file for each rank in place of stderr."""
    sys.stderr = (folder / f'{os.environ["RANK"]}.txt').open('w')
    main(*arguments)


def run_module(name, arguments, environment):
    """Runs a module as ``python -m`` does."""
    os.environ.update(environment)
    sys.argv = [name, *arguments]
    runpy.run_module(name, run_name='__main__', alter_sys=True)


def run_in(folder, script):
    """Runs a script that makes its temporary folders in a folder."""
    tempfile.tempdir = str(folder)
    runpy.run_path(str(script), run_name='__main__')


def print_to(folder, script, digits):
    """Runs a script that loads digits, given here, with a file for each rank in place of stdout."""
    sys.modules['sklearn.datasets'] = SimpleNamespace(load_digits=lambda *, return_X_y: digits)
    sys.argv = [str(script)]
    with (folder / f'{os.environ["RANK"]}.txt').open('w') as file, contextlib.redirect_stdout(file):
        runpy.run_path(str(script), run_name='__main__')


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else '')
    freeze()
