import math

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import HGTConv
from torch_geometric.transforms import Compose, ToSparseTensor
from torch_geometric.utils import sort_edge_index

from torch_geometric_lgt.diagnostics import attention_report, check_finite, check_fresh
from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    DIFFormer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    MeanAttention,
    NodeFormer,
    SGFormer,
)
from torch_geometric_lgt.nn.models._graph_context import GraphContext
from torch_geometric_lgt.transforms import (
    AttentionNodeSampling,
    JaccardScores,
    LaplacianPE,
    NodeDegree,
    SVDEncoding,
)

EDGES = torch.randint(40, (2, 120), generator=torch.Generator().manual_seed(0))
BATCH = torch.arange(40) % 2


def report(model, batch=None, num_rows=40):
    return attention_report(model, torch.randn(40, 6), EDGES, batch, num_rows=num_rows)


def test_a_model_that_attends_to_all_alike():
    """Queries and keys of zeros: uniform weights, no feature error."""
    model = NodeFormer(6, 8, 3, heads=2)
    for parameter in (
        p
        for conv in model.convs
        for lin in (conv.lin_query, conv.lin_key)
        for p in lin.parameters()
    ):
        torch.nn.init.zeros_(parameter)
    for batch, others in ((None, 1 - 1 / 40), (BATCH, 1 - 1 / 20)):
        for number, row in enumerate(report(model, batch)):
            assert row['layer'] == f'convs.{number}'
            assert row['others'] == pytest.approx(others)
            assert row['entropy'] == pytest.approx(1)
            assert row['inert heads'] == 1
            assert row['beyond mean'] == pytest.approx(0, abs=1e-5)
            assert row['query'] == 0
            assert row['feature error'] == pytest.approx(0, abs=1e-5)


def test_a_layer_that_keeps_to_itself():
    row = report(SGFormer(6, 8, 3))[0]
    assert row['others'] < 0.01
    assert row['entropy'] < 0.1
    assert row['inert heads'] == 0
    assert row['feature error'] is None


@pytest.mark.parametrize('norm', ['frobenius', 'row'])
def test_entropy_of_weights_below_0(norm):
    for seed in range(10):
        torch.manual_seed(seed)
        assert 0 <= report(SGFormer(6, 8, 3, norm=norm))[0]['entropy'] <= 1


def test_a_graph_of_one_node_attends_to_all_alike():
    batch = torch.arange(40) // 20
    batch[-1] = 9
    for model in (DIFFormer(6, 8, 3), NodeFormer(6, 8, 3)):
        alone = attention_report(model, torch.randn(40, 6), EDGES[:, :0], batch, num_rows=40)[0]
        assert 0 < alone['entropy'] <= 1 + 1e-6


def test_lengths_are_those_the_map_sees():
    model = NodeFormer(
        6, 16, 3, num_layers=1, temperature=0.25, gumbel_evaluation='tempered'
    ).eval()
    x = torch.randn(40, 6)
    z = model.layers(x, GraphContext(model.hops(EDGES, 40)))[0]
    expected = model.convs[0].lin_query(z).norm(dim=1).mean() / math.sqrt(0.25) / 16**0.25
    assert attention_report(model, x, EDGES)[0]['query'] == pytest.approx(
        float(expected.detach()), rel=1e-5
    )


def test_the_feature_error_falls_with_more_features():
    errors = []
    for num_features in (8, 2048):
        torch.manual_seed(0)
        model = NodeFormer(6, 16, 3, num_layers=1, num_features=num_features)
        model.reset_parameters()
        errors.append(report(model)[0]['feature error'])
    assert errors[1] < errors[0] / 4


def test_training_mode_and_random_state_are_left_alone():
    model = DIFFormer(6, 8, 3, dropout=0.5)
    state = torch.get_rng_state()
    x, generator = torch.zeros(40, 6), torch.Generator().manual_seed(0)
    first = attention_report(model, x, EDGES, generator=generator)
    assert model.training
    assert torch.equal(torch.get_rng_state(), state)
    lines = str(first).splitlines()
    assert len(lines) == 3
    assert lines[0].split()[:3] == ['layer', 'others', 'beyond']
    assert [line.index('  ') for line in lines] == [5, 7, 7]  # names are flush left


@pytest.mark.parametrize('batch', [None, BATCH])
@pytest.mark.parametrize('model', [NodeFormer, DIFFormer, SGFormer])
@torch.no_grad()
def test_measures_of_the_models_are_those_of_their_layers(model, batch):
    """The inputs of the layers are those of the model, the weights those of all pairs."""
    model, x = model(6, 8, 3, num_layers=2, heads=2).double().eval(), torch.randn(40, 6).double()
    report = attention_report(model, x, EDGES, batch, num_rows=40)
    same = torch.ones(40, 40) if batch is None else (batch[:, None] == batch).double()
    count = same.sum(1, keepdim=True).double()
    pairs = torch.cartesian_prod(torch.arange(40), torch.arange(40)).flip(1).t()
    inputs = model.layers(x, GraphContext(model.prepare_edges(EDGES, 40), batch))[:-1]
    for row, conv, z in zip(report, model.convs, inputs, strict=True):
        weight = conv.attention_scores(z, pairs, batch).view(40, 40, 2)
        value = conv.lin_value(z).view(40, 2, -1)
        out = torch.einsum('ijh,jhd->ihd', weight, value)
        mean = torch.einsum('ij,jhd->ihd', same.double() / count, value)
        share = weight.clamp(min=0) / weight.clamp(min=0).sum(1, keepdim=True)
        entropy = -torch.xlogy(share, share).sum(1) / count.log()
        expected = {
            'others': 1 - weight.diagonal().mean(),
            'beyond mean': (out - mean).norm() / out.norm(),
            'entropy': entropy.mean(),
            'inert heads': (entropy.mean(0) >= 0.999).double().mean(),
        }
        for name, number in expected.items():
            assert row[name] == pytest.approx(float(number), rel=1e-9, abs=1e-12), name


def parts(layer, x):
    """Queries, keys and values of all nodes, one head."""
    return layer.lin_query(x), layer.lin_key(x), layer.project_values(x)


@torch.no_grad()
def test_a_node_that_attends_to_one_node():
    """Features that are 1 for a node and 0 for others: each node attends to the next, or itself."""
    for shift, others in ((0, 0), (1, 1)):
        layer = KernelAttentionConv(4, 4, feature_map='relu', value_projection=False, bias=False)
        layer.lin_query.weight.copy_(torch.eye(4))
        layer.lin_key.weight.copy_(torch.eye(4).roll(shift, 0))
        (row,) = attention_report(layer, torch.eye(4))
        assert row.pop('beyond mean') == pytest.approx(3**0.5 / 2)
        assert row == {
            'layer': 'KernelAttentionConv',
            'others': others,
            'entropy': 0,
            'inert heads': 0,
            'query': 1,
            'key': 1,
            'feature error': None,
        }


@pytest.mark.parametrize('batch', [None, BATCH])
def test_a_layer_that_averages_all_nodes(batch):
    layer = MeanAttention(6, 8).double()
    (row,) = attention_report(layer, torch.randn(40, 6).double(), batch=batch)
    assert row.pop('beyond mean') == pytest.approx(0, abs=1e-12)
    assert row.pop('entropy') == pytest.approx(1, abs=1e-12)
    assert row == {
        'layer': 'MeanAttention',
        'others': pytest.approx(1 - 1 / (40 if batch is None else 20), abs=1e-12),
        'inert heads': 1,
        'query': None,
        'key': None,
        'feature error': None,
    }


def test_a_layer_that_averages_the_neighbours():
    """Nodes without an edge do not count; repeated edges count repeatedly."""
    layer = JaccardSubtractorConv(3, 4, 2, kernel=('mean', 'mean')).double()
    x, edges = torch.randn(9, 3).double(), torch.tensor([[0, 1, 2, 2, 4], [1, 1, 3, 3, 3]])
    (row,) = attention_report(layer, x, edges)
    assert row.pop('beyond mean') == pytest.approx(0, abs=1e-12)
    assert row.pop('entropy') == pytest.approx(1, abs=1e-12)
    assert row == {
        'layer': 'JaccardSubtractorConv',
        'others': 0.75,
        'inert heads': 1,
        'query': None,
        'key': None,
        'feature error': None,
    }
    (row,) = attention_report(layer, x, edges[:, :0])
    assert all(math.isnan(row[name]) for name in ('others', 'beyond mean', 'entropy'))


@torch.no_grad()
def test_measures_over_the_neighbours():
    """Node 0 attends to itself and to node 1: alike in one head, by 3 to 1 in the other."""
    layer = JaccardSubtractorConv(2, 4, 2).double()
    layer.lin_query.weight.zero_()
    layer.lin_query.bias.fill_(3)
    layer.lin_key.weight.zero_()
    edges, jaccard = torch.tensor([[0, 1], [0, 0]]), torch.tensor([0.6, 0.2])
    (row,) = attention_report(layer, torch.randn(5, 2).double(), edges, edge_jaccard=jaccard)
    assert row['others'] == pytest.approx((0.5 + 0.25) / 2)
    bits = 0.75 * math.log2(4 / 3) + 0.25 * math.log2(4)
    assert row['entropy'] == pytest.approx((1 + bits) / 2)
    assert row['inert heads'] == 0.5
    assert row['query'] == pytest.approx(3 * 2**0.5 / 2**0.25)  # two channels, each 3


@pytest.mark.parametrize('masked', ['by degree', 'by edges', 'not at all'])
@torch.no_grad()
def test_the_feature_error_is_measured_against_the_masked_softmax(masked):
    torch.manual_seed(0)
    x, edges = torch.randn(40, 8).double(), torch.randint(40, (2, 200))
    weight = torch.rand(200).double()
    if masked == 'by degree':
        layer, degree = DegreeMaskedAttention(8, max_degree=9).double(), torch.randint(9, (40,))
        z = layer.lin_degree(layer.degree_embedding(degree)).sigmoid()
        factor = torch.sin(math.pi / 4 * (z + z.t())) * (BATCH[:, None] == BATCH)
        arguments = {'degree': degree, 'batch': BATCH}
    elif masked == 'by edges':
        layer = AdjacencyMaskedAttention(8).double()
        factor = torch.zeros(40, 40).double().index_put((edges[1], edges[0]), weight, True)
        arguments = {'edge_index': edges, 'edge_weight': weight}
    else:
        layer, factor = KernelAttentionConv(8, 8).double(), torch.ones(40, 40).double()
        arguments = {}
    q, k, v = parts(layer, x)
    kernel = (q @ k.t() / 8**0.5).exp() * factor
    exact = kernel / kernel.sum(1, keepdim=True).clamp(min=1e-30) @ v
    (row,) = attention_report(layer, x, **arguments, num_rows=40)
    expected = float((layer(x, **arguments) - exact).norm() / exact.norm())
    assert row['feature error'] == pytest.approx(expected, rel=1e-9)


def test_all_calls_are_measured_on_the_same_nodes():
    class Twice(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attn = KernelAttentionConv(6, 6)

        def forward(self, x):
            return self.attn(x) + self.attn(x)

    first, second = attention_report(Twice(), torch.randn(40, 6), num_rows=4)
    assert first == second


def test_a_number_of_rows_below_1_is_refused():
    with pytest.raises(ValueError, match="'num_rows' must be at least 1"):
        report(SGFormer(6, 8, 3), num_rows=0)


def test_arguments_by_name_are_inputs_of_the_model():
    model, x = SGFormer(6, 8, 3), torch.randn(40, 6)
    x[4, 0] = float('inf')
    message = r'the input of the model \(SGFormer\) is not finite, first in row 4'
    with check_finite(model), pytest.raises(ValueError, match=message):
        model(x=x, edge_index=EDGES)


def test_sparse_parts_are_looked_at():
    model, x = torch.nn.Identity(), torch.eye(4)
    with check_finite(model):
        model(x.to_sparse_csr())
        x[2, 2] = float('nan')
        for sparse in (x.to_sparse_csr(), x.to_sparse_coo()):
            with pytest.raises(
                ValueError, match=r'input of the model \(Identity\) is not finite, first in row 2'
            ):
                model(sparse)


def test_dictionaries_by_type_are_looked_at():
    """NaN in the output of a layer such as HGTConv, which no layer of tensors sees, was passed."""
    types = ['user', 'item'], [('user', 'buys', 'item')]
    model = HGTConv(2, 2, types)
    x = {'user': torch.ones(3, 2), 'item': torch.ones(2, 2)}
    edges = {types[1][0]: torch.tensor([[0, 2], [0, 1]])}
    with check_finite(model):
        model(x, edges)
    with torch.no_grad():
        model.skip['item'].fill_(math.nan)
    message = r"^the output of the model \(HGTConv\) at 'item' is not finite, first in row 0$"
    with pytest.raises(ValueError, match=message), check_finite(model):
        model(x, edges)
    x['user'][1, 0] = math.inf
    message = r"^the input of the model \(HGTConv\) at 'user' is not finite, first in row 1$"
    with pytest.raises(ValueError, match=message), check_finite(model):
        model(x, edges)


def test_attributes_of_a_graph_that_changed_are_found():
    """Of equal length, in another order, and after the sources of the attribute."""
    transforms = [JaccardScores(), NodeDegree(), AttentionNodeSampling(0.5), LaplacianPE(3)]
    edges = sort_edge_index(EDGES)
    data = Compose(transforms)(Data(edge_index=edges, num_nodes=40))
    before = data.to_dict()
    check_fresh(data, transforms)
    assert all(data[name] is value for name, value in before.items())
    data.edge_index = edges.flip(1)
    check_fresh(data, transforms[1:])
    with pytest.raises(
        ValueError, match=r"'edge_jaccard' is not what JaccardScores\(.*\) adds to this graph"
    ):
        check_fresh(data, transforms)
    data.edge_index = edges.clone()
    data.edge_index[0, :60] = (edges[0, :60] + 20) % 40
    for transform, name in zip(
        transforms, ('edge_jaccard', 'degree', 'attention_mask', 'laplacian_pe'), strict=True
    ):
        with pytest.raises(ValueError, match=f"'{name}' is not what"):
            check_fresh(data, [transform])
        with pytest.raises(ValueError, match=f"'{name}' is not what {type(transform).__name__}"):
            check_fresh(data, transform)
    with pytest.raises(ValueError, match="'edge_jaccard' is not what JaccardScores"):
        check_fresh(data, Compose(transforms))
    with pytest.raises(ValueError, match=r"'svd_pe' is not in the data; SVDEncoding\(.*\) adds it"):
        check_fresh(data, [SVDEncoding(2)])
    bipartite = HeteroData({'user': {'num_nodes': 3}, 'item': {'num_nodes': 4}})
    bipartite['user', 'to', 'item'].edge_index = torch.tensor([[0, 1, 2, 2], [0, 1, 2, 3]])
    bipartite = SVDEncoding(2)(bipartite)
    check_fresh(bipartite, [SVDEncoding(2)])
    bipartite['user', 'to', 'item'].edge_index[1, 0] = 3
    with pytest.raises(ValueError, match="'svd_pe' is not what"):
        check_fresh(bipartite, [SVDEncoding(2)])


def test_graph_and_transforms_in_the_wrong_order():
    with pytest.raises(TypeError, match=r"'data' must be a Data .* \(got NodeDegree\); transforms"):
        check_fresh(NodeDegree(), Data(edge_index=torch.zeros(2, 1, dtype=torch.long)))


def test_columns_of_x_are_fresh_where_they_were_appended():
    """Applied again, the transforms append them again."""
    transforms = [LaplacianPE(2, attr_name=None), NodeDegree(None), SVDEncoding(3, None)]
    data = Data(x=torch.randn(40, 4), edge_index=EDGES)
    for transform in transforms:
        data = transform(data)
    check_fresh(data, transforms)
    degrees = NodeDegree(None)(Data(edge_index=EDGES, num_nodes=40))
    check_fresh(degrees, [NodeDegree(None)])
    data.edge_index = EDGES.clone()
    data.edge_index[0, :60] = (EDGES[0, :60] + 20) % 40
    for transform in transforms:
        with pytest.raises(ValueError, match="'x' is not what"):
            check_fresh(data, [transform])


def test_attributes_that_no_transform_made_are_left_alone():
    data = Data(
        x=torch.eye(40).to_sparse_csr(),
        edge_index=EDGES,
        y=torch.full((40,), float('nan')),
        num_nodes=40,
    )
    data = JaccardScores()(data)
    check_fresh(data, [JaccardScores()])


def test_numbers_and_compiled_models_are_looked_at():
    class Logarithm(torch.nn.Module):
        def forward(self, x):
            return x.log().sum()

    with (
        check_finite(model := Logarithm()),
        pytest.raises(ValueError, match=r'output of the model \(Logarithm\) .* \(got -inf\)'),
    ):
        model(torch.zeros(2))
    network = torch.nn.Sequential(Logarithm(), torch.nn.ReLU())
    compiled = torch.compile(network, backend='eager')
    compiled(torch.ones(2))
    with check_finite(compiled), pytest.raises(ValueError, match='is not finite'):
        compiled(torch.zeros(2))


def test_scripted_modules_are_left_out():
    """They take no hooks: those of the other modules stayed."""
    scripted = torch.jit.script(torch.nn.ReLU())
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), scripted, torch.nn.Linear(2, 2))
    x = torch.full((1, 2), math.nan)
    with check_finite(model), pytest.raises(ValueError, match='input of the model'):
        model(x)
    assert model(x).isnan().all()


def test_a_sparse_matrix_that_is_old_is_found():
    transform = ToSparseTensor(remove_edge_index=False, attr=None)
    data = transform(Data(edge_index=sort_edge_index(EDGES), num_nodes=40))
    check_fresh(data, transform)
    data.edge_index = data.edge_index[:, :2]
    with pytest.raises(ValueError, match="'adj_t' is not what ToSparseTensor"):
        check_fresh(data, transform)


def test_fresh_sparse_attributes_may_have_several_values_for_each_entry():
    def add(data):
        data.paths = torch.sparse_coo_tensor([[0, 1], [1, 2]], torch.ones(2, 3), (3, 3, 3))
        return data

    data = add(Data(x=torch.ones(3, 1)))
    check_fresh(data, add)
    data.paths = 2 * data.paths
    with pytest.raises(ValueError, match=r"'paths' is not what .* adds to this graph"):
        check_fresh(data, add)
