import torch
from torch_geometric.data import Data
from torch_geometric.utils import to_undirected

from benchmarks.node_classification.datasets import prepare_features
from torch_geometric_lgt.transforms import LaplacianPE


def test_encodings_follow_the_features_with_unit_columns():
    torch.manual_seed(0)
    edges = to_undirected(torch.randint(40, (2, 120)))
    data = Data(x=torch.eye(40, 100), edge_index=edges)
    for sparse in (False, True):
        x = prepare_features(data, False, 3, sparse).x
        assert (x.layout == torch.sparse_csr) == sparse
        x = x.to_dense()
        assert torch.equal(x[:, :100], data.x)
        torch.testing.assert_close(x[:, 100:].square().mean(0), torch.ones(3))
        expected = LaplacianPE(3)(data.clone()).laplacian_pe
        torch.testing.assert_close(x[:, 100:] / 40**0.5, expected)
    assert data.x.shape == (40, 100)
