import torch
from torch_geometric.utils import to_dense_adj

from benchmarks.node_classification.baselines import SIGN, GeneralizedPageRank, mixhop
from benchmarks.node_classification.models import make, parameter_groups
from benchmarks.node_classification.settings import OPTIONS

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 0], [1, 0, 2, 1, 3, 2, 3]])


def normalized(self_loops):
    """The matrix that maps features to those after one step, by its definition."""
    adjacency = to_dense_adj(EDGES, max_num_nodes=5)[0].t() + self_loops * torch.eye(5)
    scale = adjacency.sum(1).pow(-0.5).nan_to_num(posinf=0.0)
    return scale[:, None] * adjacency * scale


def test_generalized_page_rank_sums_the_steps():
    propagation, x, step = GeneralizedPageRank(2, 0.1), torch.randn(5, 3), normalized(1)
    torch.testing.assert_close(propagation.gamma.detach(), torch.tensor([0.1, 0.09, 0.81]))
    expected = 0.1 * x + 0.09 * step @ x + 0.81 * step @ step @ x
    out = propagation(x, EDGES)
    torch.testing.assert_close(out, expected)
    out.sum().backward()
    powers = torch.stack([x.sum(), (step @ x).sum(), (step @ step @ x).sum()])
    torch.testing.assert_close(propagation.gamma.grad, powers)


def test_the_weights_of_the_steps_do_not_decay():
    classifier = make('gprgnn', 4, 3, EDGES, 5, OPTIONS['gprgnn'])
    others, steps = parameter_groups(classifier, 0.1, None)
    assert (others['weight_decay'], steps['weight_decay']) == (0.1, 0.0)
    assert [parameter.shape for parameter in steps['params']] == [(11,)]
    parameters = {id(parameter) for parameter in (*others['params'], *steps['params'])}
    assert parameters == {id(parameter) for parameter in classifier.parameters()}


def test_sign_propagates_once():
    model, x, step = SIGN(3, 4, 2, K=2, dropout=0.5).eval(), torch.randn(5, 3), normalized(0)
    steps = [x, step @ x, step @ step @ x]
    hidden = [lin(features).relu() for lin, features in zip(model.lins, steps, strict=True)]
    expected = model.lin_out(torch.cat(hidden, 1))
    torch.testing.assert_close(model(x, EDGES), expected)
    model.transform = None
    torch.testing.assert_close(model(x, EDGES), expected)


def test_mixhop_concatenates_three_powers():
    model, x, step = mixhop(3, 4, 2, num_layers=1, dropout=0.5), torch.randn(5, 3), normalized(1)
    conv, lin = model.children()
    powers = [x, step @ x, step @ step @ x]
    hidden = [lin(features) for lin, features in zip(conv.lins, powers, strict=True)]
    torch.testing.assert_close(model(x, EDGES), lin(torch.cat(hidden, 1)))
