import pytest
import torch
from torch_geometric.data import HeteroData

from torch_geometric_lgt.transforms import AttentionNodeSampling, JaccardScores, LaplacianPE


@pytest.mark.parametrize('transform', [AttentionNodeSampling(), JaccardScores(), LaplacianPE(2)])
def test_several_types_of_nodes_are_refused(transform):
    data = HeteroData()
    data['user'].num_nodes = data['item'].num_nodes = 3
    data['user', 'item'].edge_index = torch.tensor([[0, 1], [1, 2]])
    with pytest.raises(ValueError, match=r"'data' must be a Data \(got HeteroData\); use to_homogeneous"):
        transform(data)
    data['item', 'user'].edge_index = data['user', 'item'].edge_index.flip(0)
    assert len(transform(data.to_homogeneous()).keys()) > len(data.to_homogeneous().keys())
