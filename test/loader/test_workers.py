import pickle

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from torch_geometric_lgt.loader import HGTLoader, LinkNeighborLoader, NeighborLoader

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
X = torch.arange(4.0)[:, None]


def generator():
    return torch.Generator().manual_seed(3)


def test_spawned_workers_with_a_generator():
    """PyTorch sends no generator to a process that is spawned: its state is gone when the process
    reads it."""
    data = Data(x=X, edge_index=EDGES)
    inside, outside = (
        NeighborLoader(data, [-1], shuffle=True, generator=generator(), **options)
        for options in ({}, {'num_workers': 1, 'multiprocessing_context': 'spawn'})
    )
    for one, other in zip(inside, outside, strict=True):
        assert torch.equal(one.n_id, other.n_id)
        assert torch.equal(other.x, X[other.n_id])


def typed():
    data = HeteroData()
    data['v'].x, data['v', 'to', 'v'].edge_index = X, EDGES
    return data


@pytest.mark.parametrize(
    'make',
    [
        lambda **options: NeighborLoader(Data(x=X, edge_index=EDGES), [-1], **options),
        lambda **options: LinkNeighborLoader(Data(x=X, edge_index=EDGES), [-1], **options),
        lambda **options: HGTLoader(typed(), [2], 'v', **options),
    ],
)
def test_what_workers_get(make, monkeypatch):
    """They sample and transform, and get nothing that draws the order of the seeds. The loader
    keeps it."""
    sent = []
    loader = make(shuffle=True, generator=generator(), num_workers=1, transform=len)
    monkeypatch.setattr(
        'torch.utils.data.DataLoader.__iter__',
        lambda loader: iter([sent.append(loader.collate_fn)]),
    )
    iter(loader)
    assert b'Generator' not in pickle.dumps(sent[0])
    assert sent[0].__self__.transform is len
    assert loader.collate_fn.__self__ is loader
    assert loader.generator is loader.sampler.generator is not None
    loader.collate_fn = len  # of the user
    iter(loader)
    assert sent[1] is len
