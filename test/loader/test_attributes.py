import pytest
import torch
from torch_geometric.data import Data, HeteroData

from torch_geometric_lgt.loader import (
    HGTLoader,
    LinkNeighborLoader,
    NeighborLoader,
    NodePartitionLoader,
)

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
X = torch.eye(4) + 1
LOADERS = {
    'neighbors': lambda data, **options: NeighborLoader(data, [-1], **options),
    'links': lambda data, **options: LinkNeighborLoader(data, [-1], **options),
    'parts': lambda data, **options: NodePartitionLoader(data, 2, **options),
    'hgt': lambda data, **options: HGTLoader(typed(data), [2], 'v', **options),
}


def typed(data):
    out = HeteroData()
    out['v'].x = data.x
    out['v', 'to', 'v'].update(edge_index=data.edge_index, edge_attr=data.edge_attr)
    return out


@pytest.mark.parametrize('name', LOADERS)
def test_sparse_attributes(name):
    """PyG selects rows of COO tensors, and only outside of workers."""
    make = LOADERS[name]
    for layout in (torch.sparse_csr, torch.sparse_csc):
        sparse, part = X.to_sparse(layout=layout), X[:3].to_sparse(layout=layout)
        for attribute, data in (
            ('x', Data(x=sparse, edge_index=EDGES, edge_attr=X)),
            ('edge_attr', Data(x=X, edge_index=EDGES[:, :3], edge_attr=part)),
        ):
            message = rf"'{attribute}' must be dense or COO in a loader \(got {layout}\); use to_d"
            with pytest.raises(ValueError, match=message):
                make(data)
    data = Data(x=X.to_sparse_coo(), edge_index=EDGES, edge_attr=X)
    for batch in make(data):
        store = batch if isinstance(batch, Data) else batch['v']
        assert torch.equal(store.x.to_dense(), X[store.n_id])
    with pytest.raises(
        ValueError, match=r"'x' must be dense with 'num_workers' = 2 \(got torch.sp"
    ):
        make(data, num_workers=2)


def test_workers_that_select_no_rows():
    data = Data(x=X.to_sparse_coo(), edge_index=EDGES)
    for batch in NeighborLoader(data, [-1], num_workers=1, filter_per_worker=False):
        assert torch.equal(batch.x.to_dense(), X[batch.n_id])


def test_sparse_attributes_of_the_whole_graph_are_kept():
    data = Data(x=X, edge_index=EDGES, table=torch.eye(3).to_sparse_csr())
    assert next(iter(NeighborLoader(data, [-1]))).table is data.table
