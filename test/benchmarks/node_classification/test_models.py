import pytest
import torch
from gradients import gradients, leaves_of
from torch_geometric.nn import Polynormer
from torch_geometric.utils import to_undirected

from benchmarks.node_classification.models import (
    BY_MATRIX,
    MODELS,
    NETWORKS,
    make,
    parameter_groups,
)
from benchmarks.node_classification.settings import (
    OPTIONS,
)

BRANCHED = [
    {'gnn': branch, 'gnn_input': source}
    for branch in ('sage', 'gat')
    for source in ('input', 'hidden')
]


@pytest.mark.parametrize('training', [False, True])
@pytest.mark.parametrize(
    ('model', 'options'),
    [*((model, {}) for model in MODELS), *(('sgformer', options) for options in BRANCHED)],
)
def test_sparse_features_give_what_dense_ones_give(model, options, training):
    """For each model that the command offers."""
    torch.manual_seed(0)
    x = torch.rand(30, 12) * (torch.rand(30, 12) < 0.2)
    edges = torch.randint(30, (2, 90))
    options = OPTIONS[model] | options
    if model == 'graphtransformer':
        options['input_dropout'] = 0.0  # drawn for each entry, zeros of a dense matrix included
    results = []
    for features in (x, x.to_sparse_csr()):
        torch.manual_seed(1)
        classifier = make(model, 12, 3, edges, 30, options).train(training)
        out, _ = classifier(features)
        found = gradients(out.square().sum(), leaves_of(classifier), allow_unused=True)
        results.append({'out': out, **found})
    dense, sparse = results
    torch.testing.assert_close(sparse, dense, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize('model', [model for model in BY_MATRIX if model in NETWORKS])
def test_networks_give_with_a_matrix_what_they_give_with_edges(model):
    x, edges = torch.randn(30, 12), torch.randint(30, (2, 90))
    edges = to_undirected(edges[:, edges[0] != edges[1]])
    classifier = make(model, 12, 3, edges, 30, OPTIONS[model]).eval()
    plain = NETWORKS[model](12, out_channels=3, **OPTIONS[model]).eval()
    plain.load_state_dict(classifier.model.state_dict())
    torch.testing.assert_close(classifier(x)[0], plain(x, edges))


def test_polynormer_with_a_matrix_and_its_attention_is_that_of_pyg():
    x, edges = torch.randn(30, 12), torch.randint(30, (2, 90))
    edges = to_undirected(edges[:, edges[0] != edges[1]])
    classifier = make('polynormer', 12, 3, edges, 30, OPTIONS['polynormer']).eval()
    model = Polynormer(12, 64, 3).eval()
    model.load_state_dict(classifier.model.state_dict())
    batch = torch.zeros(30, dtype=torch.long)
    local = classifier(x)[0]
    torch.testing.assert_close(local, model(x, edges, batch))
    classifier.start_attention()
    model._global = True
    out = classifier(x)[0]
    torch.testing.assert_close(out, model(x, edges, batch))
    assert (out - local).abs().max() > 0.01


def test_the_attention_branch_has_a_weight_decay_of_its_own():
    classifier = make('sgformer', 5, 3, torch.tensor([[0], [1]]), 4, OPTIONS['sgformer'])
    local, attention = parameter_groups(classifier, 0.1, 0.2)
    assert (local['weight_decay'], attention['weight_decay']) == (0.1, 0.2)
    ids = [{id(parameter) for parameter in group['params']} for group in (local, attention)]
    assert not ids[0] & ids[1]
    assert len(ids[0] | ids[1]) == len(list(classifier.parameters()))
    assert {id(parameter) for parameter in classifier.model.convs.parameters()} <= ids[1]
    assert [group['weight_decay'] for group in parameter_groups(classifier, 0.1, None)] == [0.1]
