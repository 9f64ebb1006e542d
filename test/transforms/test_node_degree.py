import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import Compose

from torch_geometric_lgt.transforms import NodeDegree

EDGES = torch.tensor([[0, 1, 1, 2, 2, 2], [1, 0, 2, 1, 2, 1]])


@pytest.mark.parametrize('dtype', [torch.int64, torch.int32])
def test_counts_distinct_neighbours(dtype):
    data = Data(edge_index=EDGES.to(dtype), num_nodes=4)
    out = Compose([NodeDegree()])(data)
    assert out.degree.tolist() == [1, 2, 1, 0]
    assert out.degree.dtype == torch.int64
    assert 'degree' not in data


def test_bipartite_with_reverse_edges():
    data = HeteroData()
    data['user'].num_nodes, data['item'].num_nodes = 3, 2
    edges = torch.tensor([[0, 0, 1, 0], [0, 1, 1, 1]])
    data['user', 'rates', 'item'].edge_index = edges
    data['item', 'rev_rates', 'user'].edge_index = edges.flip(0)
    out = NodeDegree('deg')(data)
    assert out['user'].deg.tolist() == [2, 1, 0]
    assert out['item'].deg.tolist() == [1, 2]


def test_no_edges_and_repr():
    assert NodeDegree()(
        Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=3)
    ).degree.tolist() == [0, 0, 0]
    assert repr(NodeDegree()) == "NodeDegree('degree')"


@pytest.mark.parametrize(
    ('edge_index', 'message'),
    [
        (torch.tensor([[1, 4], [2, 3]]), 'one-based'),
        (torch.tensor([[0, -1], [1, 1]]), 'source ids from 0 to 3'),
        (torch.rand(2, 3), 'int64 node ids'),
        (torch.zeros(2, 3, dtype=torch.uint8), 'int64 node ids'),
        (torch.zeros(5, 2, dtype=torch.long), 'transpose it'),
    ],
)
def test_raises(edge_index, message):
    with pytest.raises(ValueError, match=message):
        NodeDegree()(Data(edge_index=edge_index, num_nodes=4))


def test_the_name_of_an_attribute_as_weighted_is_refused():
    with pytest.raises(ValueError, match=r"'weighted' must be True or False \(got 'edge_weight'\)"):
        NodeDegree('degree', 'edge_weight')


def test_sums_of_weights():
    """Self loops are left out, repeated edges count again, a weight of an edge counts for its
    target."""
    weight = torch.tensor([0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
    assert NodeDegree(weighted=True)(
        Data(edge_index=EDGES, edge_weight=weight, num_nodes=4)
    ).degree.tolist() == [1, 20.5, 2, 0]
    assert NodeDegree(weighted=True)(Data(edge_index=EDGES, num_nodes=4)).degree.tolist() == [
        1,
        3,
        1,
        0,
    ]
    double = NodeDegree('sum', weighted=True)(
        Data(edge_index=EDGES, edge_weight=weight.double(), num_nodes=4)
    )
    assert double['sum'].dtype == torch.float64
    matrix = torch.sparse_coo_tensor(EDGES.flip(0), weight, (4, 4), check_invariants=True)
    assert NodeDegree(weighted=True)(Data(adj_t=matrix, num_nodes=4)).degree.tolist() == [
        1,
        20.5,
        2,
        0,
    ]
    both = Data(edge_index=EDGES, adj_t=matrix, num_nodes=4)  # the edges alone have no weights
    assert NodeDegree(weighted=True)(both).degree.tolist() == [1, 20.5, 2, 0]
    assert repr(NodeDegree(weighted=True)) == "NodeDegree('degree', weighted=True)"
    with pytest.raises(ValueError, match="'edge_weight' must be None where 'adj_t' has values"):
        NodeDegree(weighted=True)(Data(adj_t=matrix, edge_weight=weight[:5], num_nodes=4))


@pytest.mark.parametrize('default', [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ('dtype', 'expected'),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (None, None),
    ],
)
def test_dtype_of_sums_of_weights(dtype, expected, default):
    weight = None if dtype is None else torch.ones(6, dtype=dtype)
    data = Data(edge_index=EDGES, edge_weight=weight, num_nodes=4)
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        degree = NodeDegree(weighted=True)(data).degree
    finally:
        torch.set_default_dtype(before)
    assert degree.dtype == (default if expected is None else expected)
    assert degree.tolist() == [1, 3, 1, 0]


def test_sums_of_weights_of_several_types():
    data = HeteroData()
    data['user'].num_nodes, data['item'].num_nodes = 2, 3
    data['user', 'rates', 'item'].edge_index = torch.tensor([[0, 1, 1], [2, 0, 2]])
    data['user', 'rates', 'item'].edge_weight = torch.tensor([0.5, 1.0, 2.0])
    data['item', 'rev', 'user'].edge_index = torch.tensor([[2], [0]])
    out = NodeDegree(weighted=True)(data)
    assert out['user'].degree.tolist() == [1, 0]
    assert out['item'].degree.tolist() == [1, 0, 2.5]
