"""The attentions that replace SGFormer's."""

import pytest
import torch
from gradients import gradients, leaves_of

from benchmarks.node_classification import __main__ as node_classification
from benchmarks.node_classification.attentions import REPLACEMENTS, SoftmaxAttention
from benchmarks.node_classification.models import make, parameter_groups
from benchmarks.node_classification.settings import OPTIONS


@pytest.mark.parametrize('value_projection', [True, False])
def test_softmax_over_all_nodes(value_projection):
    torch.manual_seed(0)
    layer = SoftmaxAttention(6, 2, value_projection).double()
    x = torch.randn(9, 6, dtype=torch.float64, requires_grad=True)
    q, k, v = (lin(x).view(9, 2, 3) for lin in (layer.lin_query, layer.lin_key, layer.lin_value))
    weight = torch.einsum('ihc,jhc->ijh', q, k).div(3**0.5).softmax(1)
    expected = torch.einsum('ijh,jhc->ihc', weight, v).flatten(1)
    outputs = [layer(x), expected]
    torch.testing.assert_close(*outputs)
    leaves = leaves_of(layer, x=x)
    torch.testing.assert_close(*(gradients(out.square().sum(), leaves) for out in outputs))


@pytest.mark.parametrize('name', REPLACEMENTS)
def test_residual_and_local_branch_stay(name):
    """The scores are the output layer of both branches, with the other attention in one."""
    torch.manual_seed(0)
    x, edges = torch.randn(8, 5), torch.randint(8, (2, 20))
    options = OPTIONS['sgformer'] | {'attention': name, 'beta': 0.3, 'alpha': 0.8, 'heads': 2}
    classifier = make('sgformer', 5, 3, edges, 8, options).eval()
    model = classifier.model
    x_0 = model.input_layer(x)
    attention = model.norms[1](0.3 * model.convs[0](x_0) + 0.7 * x_0)
    local = model.gnn(x, *model._gnn_edges(edges, 8, None, x.dtype))
    expected = model.lin_out(0.2 * attention + 0.8 * local)
    torch.testing.assert_close(classifier(x)[0], expected)
    assert not torch.allclose(model.convs[0](x_0), x_0)
    _, decayed = parameter_groups(classifier, 0.1, 0.2)
    assert {id(p) for p in model.convs.parameters()} <= {id(p) for p in decayed['params']}


def test_gat_attends_along_the_edges():
    classifier = make(
        'sgformer', 5, 3, torch.tensor([[0], [1]]), 4, OPTIONS['sgformer'] | {'attention': 'gat'}
    )
    x = torch.randn(4, 64, requires_grad=True)
    (grad,) = torch.autograd.grad(classifier.model.convs[0](x)[1].sum(), x)
    assert (grad.abs().sum(1) > 0).tolist() == [True, True, False, False]
    assert 'edge_index' not in dict(classifier.model.convs[0].state_dict())


def test_study_of_the_attention():
    command = ['--dataset', 'cora', '--model', 'sgformer', '--study', 'attention']
    _, plans = node_classification.parse(command)
    assert {plan.variant: plan.config['options']['attention'] for plan in plans} == {
        f'attention-{name}': name for name in ('sigmoid', 'softmax', 'gat', 'nodeformer')
    }
    for plan in plans:
        assert plan.config['options']['alpha'] == 0.8
    _, (plan,) = node_classification.parse(
        [*command[:4], '--set', 'options.attention=softmax', '--protocol', 'random-60-20-20']
    )
    assert plan.variant == 'attention-softmax'


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--set', 'options.attention=exact'], "'options.attention' is simple, sigmoid, softmax,"),
        (['--set', 'options.attention=3'], "'options.attention' must be of the type of 'simple'"),
        (['--study', 'attention', '--pictures'], '--pictures needs the attention of SGFormer'),
        (
            ['--set', 'options.attention=gat', '--pictures'],
            '--pictures needs the attention of SGFormer',
        ),
    ],
)
def test_faults_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit):
        node_classification.parse(['--model', 'sgformer', '--device', 'cpu', *arguments])
    assert message in capsys.readouterr().err


def test_study_without_message_passing():
    """A network has attention there, in all variants."""
    _, plans = node_classification.parse(
        ['--dataset', 'digits', '--model', 'graphtransformer', '--study', 'attention']
    )
    assert [plan.variant for plan in plans] == ['simplex', 'groups', 'mean', 'exact']
