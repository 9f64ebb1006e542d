"""Odd and bad graphs, provoked: what is promised for each is in its mark, of which the
documentation makes its table."""

import re

import pytest
import torch
from fault_works import EDGES, MODELS
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.nn import GCN
from torch_geometric.utils import to_undirected

from torch_geometric_lgt.datasets import InteractionDataset
from torch_geometric_lgt.functional import jaccard
from torch_geometric_lgt.functional.neighbors.hops import degrees
from torch_geometric_lgt.loader import NeighborSampler, NodePartitionLoader
from torch_geometric_lgt.nn import (
    DIFFormerConv,
    JaccardSubtractorConv,
    LiteGT,
    MGFormer,
    SGFormer,
)
from torch_geometric_lgt.nn.models._local_branch import local_edges
from torch_geometric_lgt.transforms import (
    AttentionNodeSampling,
    JaccardScores,
    LaplacianPE,
    NodeDegree,
    SVDEncoding,
)

NO_EDGES = torch.empty(2, 0, dtype=torch.long)
TRANSFORMS = [
    NodeDegree(),
    JaccardScores(),
    AttentionNodeSampling(),
    LaplacianPE(3),
    SVDEncoding(3),
]


@pytest.mark.fault('no-nodes', 'Outputs of zero rows; transforms add attributes of zero rows.')
@pytest.mark.parametrize('num_nodes', [0, 3])
@pytest.mark.parametrize('name', MODELS)
def test_nothing_there(name, num_nodes):
    model = MODELS[name]().eval()
    out = model(torch.randn(num_nodes, 4), NO_EDGES)
    assert out.shape == (num_nodes, 3)
    assert out.isfinite().all()
    data = Data(edge_index=NO_EDGES, num_nodes=num_nodes)
    for transform in TRANSFORMS:
        value = transform(data)[transform.attr_name]
        assert value.size(0) == (0 if isinstance(transform, JaccardScores) else num_nodes)


@pytest.mark.fault(
    'isolated-nodes',
    (
        'Degree 0; a Jaccard index of 0; last in the order of sampling; a zero row of the '
        'encodings; '
        'finite outputs.'
    ),
)
def test_isolated_node():
    data = Data(edge_index=EDGES, num_nodes=6)
    for transform in TRANSFORMS:
        data = transform(data)
    assert data.degree.tolist() == [1, 2, 1, 1, 1, 0]
    assert jaccard(EDGES, 6, torch.tensor([[5], [0]])).tolist() == [0]
    assert AttentionNodeSampling(factor=2.5)(data).attention_mask.tolist() == [True] * 5 + [False]
    assert data.laplacian_pe[5].abs().max() == 0
    assert data.svd_pe[5].abs().max() == 0
    x = torch.randn(6, 8, requires_grad=True)
    for layer in (DIFFormerConv(8, 8), JaccardSubtractorConv(8, 8, heads=2)):
        out = layer(
            x, EDGES, *((data.edge_jaccard,) if isinstance(layer, JaccardSubtractorConv) else ())
        )
        (grad,) = torch.autograd.grad(out.sum(), x)
        assert out.isfinite().all()
        assert grad.isfinite().all()


@pytest.mark.fault('empty-graph', 'The other graphs are as without it.')
@pytest.mark.fault('unsorted-batch', 'As if sorted.')
@pytest.mark.parametrize('name', MODELS)
def test_empty_graphs_and_unsorted_ids(name):
    model, x = MODELS[name]().eval(), torch.randn(5, 4)
    batch = torch.tensor([7, 7, 7, 2, 2])
    together = model(x, EDGES, batch)
    torch.testing.assert_close(together[:3], model(x[:3], EDGES[:, :4]), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(together[3:], model(x[3:], EDGES[:, 4:] - 3), atol=1e-5, rtol=1e-5)


@pytest.mark.fault('invalid-batch', 'A ValueError that names batch and what it must hold.')
@pytest.mark.parametrize(
    ('batch', 'message'),
    [
        (torch.tensor([0, 0, -1, 0, 0]), "'batch' must hold graph ids of at least 0"),
        (torch.zeros(5), "'batch' must hold int64 graph ids"),
        (torch.zeros(5, dtype=torch.int16), "'batch' must hold int64 graph ids"),
        (torch.zeros(4, dtype=torch.long), "'batch' must hold one graph id per node"),
        (torch.zeros(5, dtype=torch.long, device='meta'), "'batch' must be on the device of 'x'"),
    ],
)
@pytest.mark.parametrize('name', MODELS)
def test_bad_batch_vector(name, batch, message):
    model = LiteGT(4, 8, 3, kernel='softmax', level='graph') if name == 'litegt' else MODELS[name]()
    with pytest.raises(ValueError, match=message):
        model(torch.randn(5, 4), EDGES, batch)


@pytest.mark.fault(
    'invalid-ids',
    'A ValueError with the ids that are there and those that may be; one-based ids are guessed.',
)
@pytest.mark.parametrize('edges', [EDGES + 1, EDGES - 1])
def test_ids_of_no_node(edges):
    hint = r'\(got 1 to 5\); are the ids one-based' if edges.max() == 5 else r'\(got -1 to 3\)'
    for transform in TRANSFORMS:
        with pytest.raises(
            ValueError, match=f"'edge_index' must hold source ids from 0 to 4 {hint}"
        ):
            transform(Data(edge_index=edges, num_nodes=5))
    for make in MODELS.values():
        with pytest.raises(
            ValueError, match=f"'edge_index' must hold source ids from 0 to 4 {hint}"
        ):
            make()(torch.randn(5, 4), edges)
    users, items = HeteroData(), MGFormer(2, 3, 4)
    users['user'].num_nodes = 5
    users['item'].num_nodes = 5
    users['user', 'rates', 'item'].edge_index = edges
    for data in (Data(edge_index=edges, num_nodes=5), users):
        with pytest.raises(
            ValueError, match=f"'edge_index' must hold source ids from 0 to 4 {hint}"
        ):
            NeighborSampler(data, [-1])
    with pytest.raises(ValueError, match=f"'edge_index' must hold source ids from 0 to 4 {hint}"):
        NodePartitionLoader(Data(edge_index=edges, num_nodes=5), batch_size=2)
    with pytest.raises(
        ValueError, match=f"'edge_label_index' must hold source ids from 0 to 4 {hint}"
    ):
        items(EDGES, edges)
    with pytest.raises(ValueError, match=f"'edge_index' must hold source ids from 0 to 4 {hint}"):
        items(edges)


@pytest.mark.fault(
    'id-gaps', 'Numbered anew, with the ids kept; an error that says so where that is not wanted.'
)
def test_ids_of_files_with_gaps(tmp_path):
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine' / 'raw.csv').write_text('user_id,item_id\n900,b\n17,a\n900,a\n17,c\n')
    dataset = InteractionDataset(tmp_path, 'mine')
    assert dataset.user_ids.tolist() == [17, 900]
    assert dataset.item_ids.tolist() == ['a', 'b', 'c']
    with pytest.raises(ValueError, match="'relabel'"):
        InteractionDataset(tmp_path, 'mine', relabel=False)


@pytest.mark.fault(
    'edge-dtype',
    'int32 is taken; others end in an error with the conversion or the transposition that helps.',
)
@pytest.mark.parametrize('name', MODELS)
def test_kinds_of_edge_index(name):
    model, x = MODELS[name]().eval(), torch.randn(5, 4)
    torch.testing.assert_close(model(x, EDGES.int()), model(x, EDGES))
    for edges, message in (
        (EDGES.byte(), 'edge_index.long()'),
        (EDGES.float(), 'edge_index.long()'),
        (EDGES.t(), 'transpose it'),
    ):
        with pytest.raises(ValueError, match=re.escape(message)):
            model(x, edges)
        for transform in TRANSFORMS:
            with pytest.raises(ValueError, match=re.escape(message)):
                transform(Data(edge_index=edges, num_nodes=5))


@pytest.mark.fault(
    'repeated-edges',
    (
        'Counted once in degrees, Jaccard indices and encodings; added as often as they occur in '
        'sums '
        'over edges.'
    ),
)
@pytest.mark.fault(
    'self-loops',
    (
        'Left out of degrees and neighbourhoods; kept in sums over edges, where SGFormer adds the '
        'missing ones as GCN does.'
    ),
)
def test_repeated_edges_and_self_loops():
    more = torch.cat([EDGES, EDGES[:, :2], torch.tensor([[2], [2]])], 1)
    for transform in TRANSFORMS[:4]:
        value, other = (
            transform(Data(edge_index=edges, num_nodes=5))[transform.attr_name]
            for edges in (EDGES, more)
        )
        torch.testing.assert_close(value.float(), other[: value.size(0)].float())
    weight = DIFFormerConv(2, 2, use_graph=True)
    x = torch.randn(5, 2)
    assert not torch.equal(weight(x, EDGES), weight(x, more))
    model, plain = SGFormer(4, 8, 3).eval(), GCN(8, 8, 2, 8, norm='batch_norm').eval()
    plain.load_state_dict(model.gnn.state_dict())
    torch.testing.assert_close(
        model.gnn(*(z := torch.randn(5, 8),), *local_edges(model, more, 5, None, z.dtype)),
        plain(z, more),
    )


@pytest.mark.fault(
    'directed-graph',
    (
        'Transforms take both directions of an edge, as each says; layers take edges as they are, '
        'so '
        'that a user decides.'
    ),
)
def test_directed_graph():
    directed = EDGES[:, [0, 2, 4]]
    for transform in TRANSFORMS[:1] + TRANSFORMS[2:4]:
        one, both = (
            transform(Data(edge_index=edges, num_nodes=5))[transform.attr_name]
            for edges in (directed, to_undirected(directed))
        )
        torch.testing.assert_close(one, both)
    assert torch.equal(degrees(directed, 5), degrees(EDGES, 5))
    conv, x = DIFFormerConv(2, 2), torch.randn(5, 2)
    assert not torch.equal(conv(x, directed), conv(x, EDGES))


@pytest.mark.fault(
    'components',
    (
        'One trivial vector for each component is left out; the eigenvalue -1 of a bipartite graph '
        'is '
        'no special case.'
    ),
)
def test_components_of_a_laplacian():
    ring = torch.stack([torch.arange(40), (torch.arange(40) + 1) % 40])
    edges = to_undirected(torch.cat([ring + 40 * number for number in range(5)], 1))
    pe = LaplacianPE(10)(Data(edge_index=edges, num_nodes=200)).laplacian_pe.double()
    matrix = torch.eye(200, dtype=torch.float64)
    matrix[edges[0], edges[1]] -= 0.5
    eigenvalues = (pe * (matrix @ pe)).sum(0)
    smallest = 1 - torch.cos(2 * torch.pi * torch.tensor(1 / 40, dtype=torch.float64))
    # two in each of five rings
    torch.testing.assert_close(eigenvalues, smallest.expand(10), atol=1e-6, rtol=0)
    pair = LaplacianPE(2)(Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2))
    torch.testing.assert_close(
        pair.laplacian_pe.abs(), torch.tensor([[0.5**0.5, 0], [0.5**0.5, 0]])
    )


@pytest.mark.fault('too-many-columns', 'Columns of zeros, and a mask that says which.')
def test_more_columns_than_nodes():
    data = SVDEncoding(7)(LaplacianPE(7)(Data(edge_index=EDGES[:, :4], num_nodes=3)))
    assert data.laplacian_pe_mask.tolist() == [[True, True, False, False, False, False, False]]
    assert data.laplacian_pe[:, 2:].abs().max() == 0
    assert data.svd_pe_mask.tolist() == [[True, True, False, False, False, False, False]]
    assert data.svd_pe[:, 3:].abs().max() == 0


@pytest.mark.fault('random-state', 'Evaluation draws nothing and writes to no argument.')
@pytest.mark.parametrize('name', MODELS)
def test_random_state(name):
    model = MODELS[name]().eval()
    data = Batch.from_data_list([Data(x=torch.randn(5, 4), edge_index=EDGES)] * 2)
    state, before = torch.get_rng_state(), data.clone()
    model(data.x, data.edge_index, data.batch)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(data.x, before.x)
    assert torch.equal(data.edge_index, before.edge_index)
