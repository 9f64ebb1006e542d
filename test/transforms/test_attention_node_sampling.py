import math

import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.utils import barabasi_albert_graph

from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.transforms import AttentionNodeSampling


@pytest.mark.parametrize('measure', ['jaccard', 'lse'])
def test_each_graph_of_a_batch_as_if_alone(measure):
    transform = AttentionNodeSampling(2, measure)
    graphs = [Data(edge_index=barabasi_albert_graph(n, 3), num_nodes=n) for n in (30, 12)]
    masks = [transform(graph).attention_mask for graph in graphs]
    assert [int(mask.sum()) for mask in masks] == [math.ceil(2 * math.log(n)) for n in (30, 12)]
    assert torch.equal(transform(Batch.from_data_list(graphs)).attention_mask, torch.cat(masks))
    assert 'attention_mask' not in graphs[0]


def test_nodes_without_neighbours_come_last():
    """Ten nodes, c ln N = 2.4: three of them; the ends of the path 4, 2, 3, 5 have the largest
    value and nodes 2 and 3 the next. Along the edges, nodes 2, 3 and 5 have one neighbour each."""
    edges = torch.tensor([[4, 2, 3, 2], [2, 3, 5, 3]])
    data = Data(edge_index=edges, num_nodes=10)
    for options, chosen in (
        ({'factor': 1, 'neighbors': 'all'}, [2, 4, 5]),
        ({'factor': 3, 'neighbors': 'all'}, [0, 1, 2, 3, 4, 5, 6]),
        ({'factor': 1}, [2, 3, 5]),
        ({'factor': 1, 'neighbors': 'out'}, [2, 3, 4]),
        ({'factor': 2}, [0, 1, 2, 3, 5]),
    ):
        mask = AttentionNodeSampling(**options)(data).attention_mask
        assert mask.nonzero().flatten().tolist() == chosen


def test_sampled_batches_carry_the_mask_of_the_full_graph():
    data = AttentionNodeSampling()(Data(edge_index=barabasi_albert_graph(200, 4), num_nodes=200))
    for batch in NeighborLoader(data, [3, 2], batch_size=50):
        assert torch.equal(batch.attention_mask, data.attention_mask[batch.n_id])


def test_raises_and_repr():
    assert (
        repr(AttentionNodeSampling())
        == "AttentionNodeSampling(5, measure='jaccard', attr_name='attention_mask', "
        "neighbors='in')"
    )
    with pytest.raises(ValueError, match="'factor' must be positive"):
        AttentionNodeSampling(0)
    with pytest.raises(ValueError, match=r"'factor' must be a number \(got '5'\)"):
        AttentionNodeSampling('5')
    with pytest.raises(ValueError, match="'measure' must be one of 'jaccard', 'lse'"):
        AttentionNodeSampling(measure='degree')
    with pytest.raises(ValueError, match="'neighbors' must be one of 'all', 'in', 'out'"):
        AttentionNodeSampling(neighbors='both')
