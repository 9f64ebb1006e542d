import pytest
import torch
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import Compose
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import barabasi_albert_graph

from torch_geometric_lgt.functional import jaccard
from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.nn import JaccardSubtractorConv
from torch_geometric_lgt.transforms import JaccardScores

EDGES = torch.tensor([[0, 1, 2, 2], [1, 2, 0, 3]])


def test_adds_a_score_to_each_edge():
    data = Data(edge_index=EDGES, num_nodes=4)
    out = Compose([JaccardScores()])(data)
    assert out.edge_jaccard.tolist() == pytest.approx([1 / 3, 1 / 4, 1 / 4, 0])
    assert 'edge_jaccard' not in data
    assert JaccardScores('score', neighbors='out')(data).score.tolist() == pytest.approx(
        [0, 0, 0, 0]
    )


@pytest.mark.parametrize('neighbors', ['in', 'out', 'all'])
def test_a_bipartite_graph_has_indices_of_0_alone(neighbors):
    pairs = torch.stack([torch.randint(6, (20,)), torch.randint(5, (20,)) + 6])
    data = Data(edge_index=torch.cat([pairs, pairs.flip(0)], 1), num_nodes=11)
    assert JaccardScores(neighbors=neighbors)(data).edge_jaccard.tolist() == [0] * 40


def test_graphs_of_a_batch_do_not_meet():
    graphs = [Data(edge_index=barabasi_albert_graph(n, 3), num_nodes=n) for n in (10, 17)]
    together = JaccardScores()(Batch.from_data_list(graphs)).edge_jaccard
    assert torch.equal(
        together, torch.cat([JaccardScores()(graph).edge_jaccard for graph in graphs])
    )


def test_estimates_with_a_generator():
    data = Data(edge_index=barabasi_albert_graph(60, 5), num_nodes=60)
    results = [
        JaccardScores(num_hashes=400, generator=torch.Generator().manual_seed(1))(data).edge_jaccard
        for _ in range(2)
    ]
    assert torch.equal(*results)
    exact = jaccard(data.edge_index, 60)
    assert 0 < (results[0] - exact).abs().max() < 0.15


@pytest.mark.parametrize(('neighbors', 'scores'), [('in', [1, 0]), ('out', [0, 0])])
def test_estimates_from_one_direction(neighbors, scores):
    """Of a self loop and of an edge into its node."""
    data = Data(edge_index=torch.tensor([[1, 0], [1, 1]]), num_nodes=2)
    transform = JaccardScores(num_hashes=9, neighbors=neighbors)
    assert transform(data).edge_jaccard.tolist() == scores


def test_sampled_batches_carry_the_scores_of_the_full_graph():
    data = JaccardScores()(Data(edge_index=barabasi_albert_graph(200, 4), num_nodes=200))
    score = {
        (int(i), int(j)): float(value)
        for i, j, value in zip(*data.edge_index, data.edge_jaccard, strict=True)
    }
    for batch in NeighborLoader(data, [3, 2], batch_size=50):
        source, target = batch.n_id[batch.edge_index]
        assert batch.edge_jaccard.tolist() == [
            score[int(i), int(j)] for i, j in zip(source, target, strict=True)
        ]


@pytest.mark.parametrize(
    'form', [pytest.param('SparseTensor', marks=pytest.mark.sparse), 'csr', 'csc', 'coo']
)
def test_scores_of_sparse_matrices_are_in_the_order_that_layers_read(form):
    edges = barabasi_albert_graph(30, 3)
    edges = edges[:, torch.randperm(edges.size(1))]
    coo = torch.sparse_coo_tensor(edges.flip(0), torch.ones(edges.size(1)), (30, 30))
    if form == 'SparseTensor':
        adj_t = SparseTensor(row=edges[1], col=edges[0], sparse_sizes=(30, 30))
    else:
        adj_t = {'csr': coo.to_sparse_csr, 'csc': coo.to_sparse_csc, 'coo': lambda: coo}[form]()
    data = JaccardScores()(Data(adj_t=adj_t, num_nodes=30))
    torch.manual_seed(0)
    conv, x = JaccardSubtractorConv(4, 8, heads=2).eval(), torch.randn(30, 4)
    expected = conv(x, edges, JaccardScores()(Data(edge_index=edges, num_nodes=30)).edge_jaccard)
    torch.testing.assert_close(conv(x, adj_t, data.edge_jaccard), expected)


def test_raises_and_repr():
    assert (
        repr(JaccardScores()) == "JaccardScores('edge_jaccard', neighbors='all', num_hashes=None)"
    )
    with pytest.raises(ValueError, match="'neighbors' must be one of"):
        JaccardScores(neighbors='both')
    for number in (0, 2.5, True):
        with pytest.raises(ValueError, match="'num_hashes' must be at least 1, a whole number"):
            JaccardScores(num_hashes=number)
    with pytest.raises(ValueError, match="'data' must have an 'edge_index'"):
        JaccardScores()(Data(x=torch.ones(3, 1)))


def test_cache(tmp_path, monkeypatch):
    """Keyed by edges, number of nodes, neighbourhoods and the default dtype."""
    edges = barabasi_albert_graph(40, 4)
    data, transform = Data(edge_index=edges, num_nodes=40), JaccardScores(cache_dir=tmp_path)
    first = transform(data).edge_jaccard
    assert torch.equal(first, JaccardScores()(data).edge_jaccard)
    (path,) = tmp_path.glob('*.safetensors')
    monkeypatch.setattr(
        'torch_geometric_lgt.transforms.jaccard_scores.jaccard',
        lambda *_, **__: pytest.fail('not from the cache'),
    )
    assert torch.equal(transform(data).edge_jaccard, first)
    monkeypatch.undo()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(UserWarning, match='is built again'):
        assert torch.equal(transform(data).edge_jaccard, first)
    others = [
        (JaccardScores(neighbors='in', cache_dir=tmp_path), data),
        (transform, Data(edge_index=edges, num_nodes=41)),
        (transform, Data(edge_index=edges.flip(1), num_nodes=40)),
    ]
    for number, (other, graph) in enumerate(others, 2):
        expected = JaccardScores(neighbors=other.neighbors)(graph).edge_jaccard
        assert torch.equal(other(graph).edge_jaccard, expected)
        assert len(list(tmp_path.glob('*.safetensors'))) == number
    torch.set_default_dtype(torch.float64)
    try:
        assert transform(data).edge_jaccard.dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_random_scores_have_no_cache(tmp_path):
    with pytest.raises(ValueError, match="'cache_dir' must be None with 'num_hashes'"):
        JaccardScores(num_hashes=10, cache_dir=tmp_path)
