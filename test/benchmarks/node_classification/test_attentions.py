"""What replaces the attention of SGFormer and DIFFormer."""

import pytest
import torch
from gradients import gradients, leaves_of

from benchmarks.node_classification import __main__ as node_classification
from benchmarks.node_classification.attentions import REPLACEMENTS, GraphSum, SoftmaxAttention
from benchmarks.node_classification.models import make, parameter_groups
from benchmarks.node_classification.settings import OPTIONS
from torch_geometric_lgt.nn import DIFFormerConv
from torch_geometric_lgt.nn.models._local_branch import local_edges


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


@pytest.mark.parametrize('name', REPLACEMENTS['sgformer'])
def test_residual_and_local_branch_stay(name):
    """The scores are the output layer of both branches, with the other attention in one."""
    torch.manual_seed(0)
    x, edges = torch.randn(8, 5), torch.randint(8, (2, 20))
    options = OPTIONS['sgformer'] | {'attention': name, 'beta': 0.3, 'alpha': 0.8, 'heads': 2}
    classifier = make('sgformer', 5, 3, edges, 8, options).eval()
    model = classifier.model
    x_0 = model.input_layer(x)
    attention = model.norms[1](0.3 * model.convs[0](x_0) + 0.7 * x_0)
    local = model.gnn(x, *local_edges(model, edges, 8, None, x.dtype))
    expected = model.lin_out(0.2 * attention + 0.8 * local)
    torch.testing.assert_close(classifier(x)[0], expected)
    assert not torch.allclose(model.convs[0](x_0), x_0)
    _, decayed = parameter_groups(classifier, 0.1, 0.2)
    assert {id(p) for p in model.convs.parameters()} <= {id(p) for p in decayed['params']}


@pytest.mark.parametrize('value_projection', [True, False])
@pytest.mark.parametrize('mean', [True, False])
def test_sum_over_edges_with_the_mean_and_without(mean, value_projection):
    """Gradients too, in a graph with a node without edges."""
    torch.manual_seed(0)
    edges = torch.tensor([[0, 1, 1, 2, 1, 3], [1, 0, 2, 1, 3, 1]])
    layer = GraphSum(4, value_projection, edges, mean).double()
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    adjacency = torch.zeros(5, 5, dtype=torch.float64)
    adjacency[0, 1] = adjacency[1, 0] = adjacency[1, 2] = adjacency[2, 1] = 3**-0.5
    adjacency[1, 3] = adjacency[3, 1] = 3**-0.5
    matrix = adjacency + 0.2 if mean else adjacency
    outputs = [layer(x, edges, state=None, degree=None), matrix @ layer.lin_value(x)]
    torch.testing.assert_close(*outputs)
    leaves = leaves_of(layer, x=x)
    torch.testing.assert_close(*(gradients(out.square().sum(), leaves) for out in outputs))


@pytest.mark.parametrize('name', REPLACEMENTS['difformer'])
def test_no_node_attends_in_difformer(name):
    """DIFFormer's sum over edges is that of its layers without their attention."""
    torch.manual_seed(0)
    x, edges = torch.randn(8, 5), torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    options = OPTIONS['difformer'] | {'attention': name, 'num_layers': 1, 'value_projection': False}
    model = make('difformer', 5, 3, edges, 8, options).model.eval()
    whole, attention = (
        DIFFormerConv(64, 64, use_graph=use_graph, value_projection=False).eval()
        for use_graph in (True, False)
    )
    attention.load_state_dict(whole.state_dict())
    x_0 = model.input_layer(x)
    expected = whole(x_0, edges) - attention(x_0)
    if name == 'mean':
        expected = expected + x_0.mean(0)
    torch.testing.assert_close(model.convs[0](x_0, edges), expected)
    expected = model.lin_out(model.norms[1](0.5 * expected + 0.5 * x_0))
    torch.testing.assert_close(model(x, edges), expected)


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
    _, plans = node_classification.parse([*command[:3], 'difformer', *command[4:]])
    assert {plan.variant: plan.config['options']['attention'] for plan in plans} == {
        'mean': 'mean',
        'no-attention': 'no-attention',
    }
    assert [plan.config['options']['num_layers'] for plan in plans] == [8, 8]
    _, (plan,) = node_classification.parse(
        [*command[:4], '--set', 'options.attention=softmax', '--protocol', 'random-60-20-20']
    )
    assert plan.variant == 'attention-softmax'


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--set', 'options.attention=exact'], "'options.attention' is simple, sigmoid, softmax,"),
        (['--set', 'options.attention=3'], "'options.attention' must be of the type of 'simple'"),
        (['--study', 'attention', '--pictures'], '--pictures needs the attention of sgformer'),
        (
            ['--set', 'options.attention=gat', '--pictures'],
            '--pictures needs the attention of sgformer',
        ),
        (
            ['--model', 'difformer', '--set', 'options.attention=softmax'],
            "'options.attention' is simple, mean, no-attention for difformer (got 'softmax')",
        ),
        (
            ['--model', 'difformer', '--set', 'options.attention=mean', '--pictures'],
            '--pictures needs the attention of difformer',
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
