"""Values that a transform adds to a batch belong to its graphs."""

import pytest
import torch
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import ToSparseTensor

from torch_geometric_lgt.transforms import (
    AttentionNodeSampling,
    JaccardScores,
    LaplacianPE,
    NodeDegree,
    SVDEncoding,
)

TRANSFORMS = [
    LaplacianPE(2),
    LaplacianPE(2, attr_name=None),
    SVDEncoding(2),
    JaccardScores(),
    AttentionNodeSampling(1),
    NodeDegree(),
]


def graphs():
    rings = [torch.stack([torch.arange(n), (torch.arange(n) + 1) % n]) for n in (4, 6, 5)]
    return [
        Data(edge_index=torch.cat([ring, ring.flip(0)], 1), num_nodes=ring.size(1))
        for ring in rings
    ]


@pytest.mark.parametrize('transform', TRANSFORMS, ids=str)
def test_graphs_of_a_batch_keep_what_was_added(transform):
    batch = transform(Batch.from_data_list(graphs()))
    for actual, graph in zip(batch.to_data_list(), graphs(), strict=True):
        expected = transform(graph).to_dict()
        assert actual.to_dict().keys() == expected.keys()
        for name, value in expected.items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(actual[name], value)
    assert batch[1].num_nodes == 6


@pytest.mark.sparse
def test_edges_in_matrices_of_a_batch_keep_their_scores():
    """They were gone from the graphs of the batch."""
    matrices = [ToSparseTensor()(graph) for graph in graphs()]
    batch = JaccardScores()(Batch.from_data_list(matrices))
    for actual, graph in zip(batch.to_data_list(), matrices, strict=True):
        assert actual.edge_jaccard.equal(JaccardScores()(graph).edge_jaccard)
    assert batch[1].edge_jaccard.numel() == 12


def test_graphs_of_a_batch_of_several_types():
    pairs = []
    for graph in graphs():
        pair = HeteroData({'a': {'num_nodes': graph.num_nodes}, 'b': {'x': torch.ones(3, 1)}})
        pair['a', 'to', 'a'].edge_index = graph.edge_index
        pairs.append(pair)
    kind = 'a', 'to', 'a'
    batch = Batch.from_data_list(pairs)
    for transform in (LaplacianPE(2, edge_type=kind), JaccardScores(edge_type=kind)):
        batch = transform(batch)
    parts = batch.to_data_list()
    for part, graph in zip(parts, graphs(), strict=True):
        expected = JaccardScores()(LaplacianPE(2)(graph))
        torch.testing.assert_close(part['a'].laplacian_pe, expected.laplacian_pe)
        assert part['a'].laplacian_pe_mask.equal(expected.laplacian_pe_mask)
        assert part[kind].edge_jaccard.equal(expected.edge_jaccard)


def test_the_batch_that_was_transformed_stays_as_it_was():
    pair = HeteroData({'a': {'x': torch.ones(4, 1)}})
    pair['a', 'to', 'a'].edge_index = graphs()[0].edge_index
    for batch, transform in (
        (Batch.from_data_list([pair, pair]), LaplacianPE(2, edge_type=('a', 'to', 'a'))),
        (Batch.from_data_list(graphs()), LaplacianPE(2)),
    ):
        added = transform(batch).to_data_list()
        before = batch.to_data_list()
        assert len(added) == len(before)
        assert 'laplacian_pe' in added[0].node_stores[0]
        assert 'laplacian_pe' not in before[0].node_stores[0]


@pytest.mark.parametrize('kind', [LaplacianPE, SVDEncoding])
def test_caches_tell_batches_of_the_same_edges_apart(kind, tmp_path):
    edges = Batch.from_data_list(graphs()).edge_index
    for sizes in ((15,), (10, 5), (4, 11)):
        batch = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        data = Data(edge_index=edges, batch=batch, num_nodes=15)
        actual = kind(2, attr_name='pe', cache_dir=tmp_path)(data).pe
        assert torch.equal(actual, kind(2, attr_name='pe')(data).pe)


def test_edges_between_graphs_have_no_encoding():
    batch = Batch.from_data_list(graphs())
    batch.edge_index = torch.cat([batch.edge_index, torch.tensor([[9, 4], [10, 5]])], 1)
    message = (
        r'within the graphs .* \(got 1 between two, .* node 9 of graph 1 to node 10 of graph 2'
    )
    for transform in (LaplacianPE(2), SVDEncoding(2)):
        with pytest.raises(ValueError, match=message):
            transform(batch)
        transform(Data(edge_index=batch.edge_index, num_nodes=15))
    pairs = HeteroData({'a': {'batch': torch.tensor([0, 1])}, 'b': {'batch': torch.tensor([0, 1])}})
    pairs['a', 'to', 'b'].edge_index = torch.tensor([[0, 1], [0, 0]])
    with pytest.raises(ValueError, match=r'from node 1 of graph 1 to node 0 of graph 0\); remove'):
        SVDEncoding(2)(pairs)
