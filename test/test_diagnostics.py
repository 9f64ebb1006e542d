import math

import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.transforms import Compose
from torch_geometric.utils import sort_edge_index

from torch_geometric_lgt.diagnostics import attention_report, check_finite, check_fresh
from torch_geometric_lgt.nn import DIFFormer, MGFormer, NodeFormer, SGFormer
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
    return attention_report(model, torch.randn(40, 6), EDGES, batch, num_rows)


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
            assert row['layer'] == number + 1
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
        alone = attention_report(model, torch.randn(40, 6), EDGES[:, :0], batch, 40)[0]
        assert 0 < alone['entropy'] <= 1 + 1e-6


def test_lengths_are_those_the_map_sees():
    model, x = (
        NodeFormer(6, 16, 3, num_layers=1, temperature=0.25, gumbel_evaluation='tempered').eval(),
        torch.randn(40, 6),
    )
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


def test_other_models_are_refused():
    with pytest.raises(ValueError, match="'model' must be NodeFormer, DIFFormer or SGFormer"):
        attention_report(MGFormer(3, 4), torch.randn(7, 6), EDGES)


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
    with pytest.raises(ValueError, match="'svd_pe' is not what"):
        check_fresh(data, [SVDEncoding(2)])
    bipartite = HeteroData({'user': {'num_nodes': 3}, 'item': {'num_nodes': 4}})
    bipartite['user', 'to', 'item'].edge_index = torch.tensor([[0, 1, 2, 2], [0, 1, 2, 3]])
    bipartite = SVDEncoding(2)(bipartite)
    check_fresh(bipartite, [SVDEncoding(2)])
    bipartite['user', 'to', 'item'].edge_index[1, 0] = 3
    with pytest.raises(ValueError, match="'svd_pe' is not what"):
        check_fresh(bipartite, [SVDEncoding(2)])


def test_attributes_that_no_transform_made_are_left_alone():
    data = Data(
        x=torch.eye(40).to_sparse_csr(),
        edge_index=EDGES,
        y=torch.full((40,), float('nan')),
        num_nodes=40,
    )
    data = JaccardScores()(data)
    check_fresh(data, [JaccardScores()])
