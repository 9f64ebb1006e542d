"""What the tests of faults do in processes of their own, which are limited or killed."""

import itertools
import os
import resource
import signal
import time
from pathlib import Path

import pytest
import torch
from constants import set_constants
from torch_geometric.data import Data

from benchmarks.common.training import Training
from torch_geometric_lgt.data import MappedGraph, write_graph
from torch_geometric_lgt.datasets import SBMDataset
from torch_geometric_lgt.functional import jaccard
from torch_geometric_lgt.functional.neighbors import common_neighbors
from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.nn import (
    DIFFormer,
    KernelAttentionConv,
    LiteGT,
    MGFormer,
    NodeFormer,
    SGFormer,
)
from torch_geometric_lgt.transforms import LaplacianPE, SVDEncoding

HERE = Path(__file__).parent
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]])
MODELS = {
    'nodeformer': lambda: NodeFormer(4, 8, 3, num_features=8),
    'difformer': lambda: DIFFormer(4, 8, 3),
    'sgformer': lambda: SGFormer(4, 8, 3),
    'litegt': lambda: LiteGT(4, 8, 3, kernel='softmax'),
}


def environment():
    """What a process needs to find this module and the benchmarks."""
    return {
        **os.environ,
        'OMP_NUM_THREADS': '1',
        'PYTHONPATH': os.pathsep.join(map(str, [HERE, *HERE.parents[:2]])),
    }


def graph(num_nodes=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(num_nodes, (2, 5 * num_nodes), generator=generator)
    return Data(
        x=torch.randn(num_nodes, 4, generator=generator),
        edge_index=torch.cat([edges, edges.flip(0)], 1),
        num_nodes=num_nodes,
    )


class Slow(LaplacianPE):
    """Leaves a mark for each time that it computes, and takes its time."""

    def __init__(self, folder):
        super().__init__(3, cache_dir=folder / 'cache')
        self.folder = folder

    def _encode(self, *arguments):
        (self.folder / f'made-{os.getpid()}').touch()
        time.sleep(0.3)
        return super()._encode(*arguments)


def slow(folder):
    Slow(folder)(graph())


class SlowSBM(SBMDataset):
    """Leaves a mark for each time that it makes the graphs, and takes its time."""

    def graphs(self, generator):
        (Path(self.root) / f'made-{os.getpid()}').touch()
        time.sleep(0.3)
        return super().graphs(generator)


def slow_dataset(folder):
    assert len(SlowSBM(folder, 'CLUSTER', num_graphs=20)) == 20


def preprocess(folder):
    return SVDEncoding(5, cache_dir=folder)(graph(100)).svd_pe


def checkpoints(folder, epochs=40):
    """Saves after each epoch."""
    torch.manual_seed(0)
    model, x = torch.nn.Linear(200, 200), torch.randn(5, 200)
    optimizer = torch.optim.Adam(model.parameters())
    path = folder / 'training.safetensors'
    training = Training(
        model,
        optimizer,
        lambda model, _: model(x).square().sum(),
        lambda: [x],
        lambda model: -float(model(x).sum()),
        path,
    )
    while training.epoch < epochs:
        training.run_epoch()
        training._save()
    return torch.cat([value.flatten() for value in model.state_dict().values()])


def few_checkpoints(folder):
    return checkpoints(folder, 8)


def inference(folder, batch_size=9):
    set_constants(save_seconds=0.0)
    torch.manual_seed(0)
    return DIFFormer(4, 8, 3).inference(
        NeighborLoader(graph(), [-1], batch_size=batch_size), folder
    )


def interrupted_inference(folder):
    """An inference that is interrupted after all layers, where it computes the scores of nodes."""
    readout = DIFFormer.readout

    def interrupted(model, layers, *local):
        if layers[0].size(0) > 1:  # not the row of zeros that tells the number of columns
            raise KeyboardInterrupt
        return readout(model, layers, *local)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DIFFormer, 'readout', interrupted)
        with pytest.raises(KeyboardInterrupt):
            inference(folder)


def inference_in_halves(folder):
    return inference(folder, 20)


def convert(folder):
    data = graph(3000)
    if not (folder / 'graph').exists():
        write_graph(folder / 'graph', data.edge_index, data.num_nodes, {'x': data.x})
    MappedGraph(folder / 'graph').verify()
    return MappedGraph(folder / 'graph').get_tensor(group_name=None, attr_name='x', index=None)


def cache(folder):
    SVDEncoding(64, cache_dir=folder / 'cache')(graph(2000))


def state(folder):
    KernelAttentionConv(64, 64).attention_state(torch.randn(5, 64)).detach().save(
        folder / 'state.safetensors'
    )


def dataset(folder):
    SBMDataset(folder, 'CLUSTER', num_graphs=20)


def without_waits():
    """Files need not reach the disk: what a killed process has written is there for others."""
    os.fsync = lambda descriptor: None


def go_on(work, folders):
    """The next run for each of the folders that killed ones left."""
    without_waits()
    for folder in folders:
        work(folder)


def killed_in_write(work, folder, number):
    """Is killed when the file written as that number has its content and not yet its name."""
    replace, calls = os.replace, itertools.count()

    def kill_or_replace(*paths):
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(*paths)

    os.replace = kill_or_replace
    without_waits()
    work(folder)


def full_disk(work, folder):
    """No file may have more than 10,000 bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    with pytest.raises(OSError, match='File too large'):
        work(folder)


def may_not_write():
    if os.getuid() == 0:
        os.setuid(65534)


def read_only(work, folder):
    """As a user who may not write there."""
    may_not_write()
    with pytest.raises(PermissionError):
        work(folder)


def read_what_is_there(folder):
    """A cache that another user has filled."""
    may_not_write()
    torch.testing.assert_close(
        SVDEncoding(3, cache_dir=folder)(graph()).svd_pe, SVDEncoding(3)(graph()).svd_pe
    )


def compile_loop(folder):
    """With the folder as the one in which numba would keep what it compiles."""
    import numba

    os.environ['NUMBA_CACHE_DIR'] = str(folder)
    numba.config.reload_config()
    assert str(folder) == numba.config.CACHE_DIR
    set_constants(jaccard_searched=-1)
    assert jaccard(torch.tensor([[0, 1], [1, 0]]), 2).tolist() == [0.0, 0.0]
    assert common_neighbors._compiled().signatures != []


def out_of_memory():
    """Passes over more nodes than a quarter of a gigabyte of further addresses can hold."""
    model = DIFFormer(4, 64, 3, use_graph=False)
    x = torch.randn(1_000_000, 4)
    none = torch.empty(2, 0, dtype=torch.long)
    pairs = MGFormer(500_000, 500_000, 64, mask='none')
    pages = int(Path('/proc/self/statm').read_text().split()[0])
    limit = pages * resource.getpagesize() + (1 << 28)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    message = (
        'DIFFormer has no memory for 1000000 nodes at once .* NodePartitionLoader, and score '
        "with the method 'inference'"
    )
    with pytest.raises(torch.OutOfMemoryError, match=message):
        model(x, none)
    with pytest.raises(
        torch.OutOfMemoryError,
        match=r"MGFormer has no memory for 1000000 nodes at once .* 'attention_states'",
    ):
        pairs.get_embedding(none)
