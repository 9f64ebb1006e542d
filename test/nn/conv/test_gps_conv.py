import re

import pytest
import torch
import torch_geometric.nn as pyg
from gradients import gradients, leaves_of
from torch.testing import assert_close

from torch_geometric_lgt.nn import (
    DegreeMaskedAttention,
    DIFFormerConv,
    GlobalAttention,
    GPSConv,
    GraphTransformer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    MeanAttention,
    SGFormerConv,
)

SIZES = (4, 1, 0, 7)
BATCH = torch.arange(4).repeat_interleave(torch.tensor(SIZES))
EDGES = torch.tensor([[0, 1, 2, 5, 6, 7, 8, 11], [1, 2, 0, 6, 5, 8, 9, 5]])
DEGREE = torch.tensor([2, 2, 2, 0, 0, 2, 1, 1, 2, 1, 0, 1])
TYPES = {
    'kernel': KernelAttentionConv,
    'degree_masked': DegreeMaskedAttention,
    'difformer': DIFFormerConv,
    'sgformer': SGFormerConv,
    'mean': MeanAttention,
    'multihead': torch.nn.MultiheadAttention,
}


def features(rows=12):
    return torch.randn(rows, 8, dtype=torch.double, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize('norm', ['batch_norm', 'GraphNorm', None])
@pytest.mark.parametrize('local', [False, True])
def test_multihead_attention_loads_and_equals_the_layer_of_pyg(local, norm):
    options = {'heads': 2, 'norm': norm, 'act': 'elu'}
    theirs = pyg.GPSConv(8, pyg.GCNConv(8, 8) if local else None, **options).double()
    ours = GPSConv(8, pyg.GCNConv(8, 8) if local else None, attn_type='multihead', **options)
    ours.double().load_state_dict(theirs.state_dict())
    x = features().requires_grad_()
    y = x.detach().clone().requires_grad_()
    for mode in (True, False):
        expected = theirs.train(mode)(x, EDGES, BATCH)
        actual = ours.train(mode)(y, EDGES, BATCH)
        assert_close(actual, expected, rtol=1e-12, atol=1e-12)
    found = gradients(actual.square().sum(), leaves_of(ours, x=y), allow_unused=True)
    wanted = gradients(expected.square().sum(), leaves_of(theirs, x=x), allow_unused=True)
    assert_close(found.pop('x'), wanted.pop('x'), rtol=1e-10, atol=1e-12)
    assert_close(found, wanted, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize('name', TYPES)
def test_each_type_follows_the_formula(name):
    conv = GPSConv(8, pyg.GCNConv(8, 8), heads=2 if name != 'mean' else 1, attn_type=name)
    conv = conv.double().eval()
    assert type(conv.attn) is TYPES[name]
    x = features()
    extra = {'degree': DEGREE} if name == 'degree_masked' else {}
    actual = conv(x, EDGES, BATCH, attn_arguments=extra)
    parts = []
    for graph in range(4):
        rows = x[graph == BATCH]
        if name == 'multihead':
            parts.append(conv.attn(rows[None], rows[None], rows[None])[0][0])
        else:
            parts.append(
                conv.attn(rows, **{key: value[graph == BATCH] for key, value in extra.items()})
            )
    z = conv.norm1(x + conv.conv(x, EDGES)) + conv.norm2(x + torch.cat(parts))
    assert_close(actual, conv.norm3(z + conv.mlp(z)), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    'batch',
    [[0, 1, 0, 1, 0, 1, 0, 1], [2, 0, 2, 0, 0, 2, 5, 0], [0] * 8],
    ids=['equal', 'gaps', 'one'],
)
def test_multihead_attention_keeps_unsorted_graphs_apart(batch):
    """Nodes of graphs of equal size would change places without an error."""
    conv = GPSConv(8, None, heads=2, attn_type='multihead', norm=None).double().eval()
    x, batch = features(8), torch.tensor(batch, dtype=torch.int32)
    expected = torch.empty_like(x)
    for graph in batch.unique():
        expected[batch == graph] = conv(x[batch == graph])
    assert_close(conv(x, None, batch, batch_size=6), expected, rtol=1e-10, atol=1e-12)


def test_multihead_attention_of_no_nodes():
    conv = GPSConv(8, None, attn_type='multihead', norm=None)
    assert conv(torch.empty(0, 8)).shape == (0, 8)


def test_message_passing_alone_and_attention_alone():
    x = features()
    local = GPSConv(8, pyg.SAGEConv(8, 8), attn_type=None).double().eval()
    z = local.norm1(x + local.conv(x, EDGES))
    assert_close(local(x, EDGES), local.norm3(z + local.mlp(z)), rtol=1e-12, atol=1e-12)
    assert local.attn is None
    assert local.norm2 is None
    attention = GPSConv(8, None, heads=2).double().eval()
    z = attention.norm2(x + attention.attn(x, batch=BATCH))
    expected = attention.norm3(z + attention.mlp(z))
    assert_close(attention(x, None, BATCH), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize('name', ['edge_attr', 'edge_weight', 'bacth'])
def test_arguments_without_message_passing_are_refused(name):
    """They were dropped without an error, a batch vector with a wrong name among them."""
    conv = GPSConv(8, None).double()
    message = rf"^'{name}' must be left out in a layer with conv=None, which has no message passing"
    with pytest.raises(ValueError, match=message):
        conv(features(), EDGES, **{name: BATCH})
    assert conv(features(), EDGES, **{name: None}).shape == (12, 8)


def test_arguments_of_an_activation_belong_to_a_name():
    assert GPSConv(8, None, act='elu', act_kwargs={'alpha': 3.0}).mlp[1].alpha == 3
    with pytest.raises(ValueError, match=r"^'act_kwargs' must be None unless 'act' is a name"):
        GPSConv(8, None, act=torch.nn.ELU(), act_kwargs={'alpha': 3.0})


def test_compiled_message_passing_gets_the_batch_vector():
    """Its graphs attended to each other, because the compiled layer hides its arguments."""
    layer = KernelAttentionConv(8, 8)
    plain, compiled = (GPSConv(8, conv, attn_type=None) for conv in (layer, torch.compile(layer)))
    assert plain.graph_arguments == compiled.graph_arguments == ['batch', 'batch_size']


def test_other_message_passing_may_be_set():
    """It got no batch vector, so that its graphs attended to each other."""
    layer, x = KernelAttentionConv(8, 8).double(), features()
    for before in (None, pyg.GCNConv(8, 8)):
        conv = GPSConv(8, before, norm=None).double().eval()
        conv.conv = layer
        together = conv(x, EDGES, BATCH)
        assert_close(together[5:], conv(x[5:], EDGES[:, 3:] - 5), rtol=1e-10, atol=1e-12)
        conv.conv = pyg.SAGEConv(8, 8).double()
        assert conv(x, EDGES, BATCH).shape == (12, 8)


@pytest.mark.compiled
def test_a_compiled_attention_is_taken():
    """It was refused, because the compiled layer hides its arguments."""
    layer, x = KernelAttentionConv(8, 8), features().float()
    compiled = torch.compile(layer, backend='eager')
    conv = GPSConv(8, None, attn_type=compiled).eval()
    assert_close(conv.attend(x, BATCH, 4), layer(x, batch=BATCH, batch_size=4))
    state = layer.attention_state(x, BATCH).detach()
    assert_close(conv(x, batch=BATCH), conv(x, batch=BATCH, state=state))
    assert GlobalAttention(compiled).conv is compiled


def test_targets_read_a_state_of_all_keys():
    conv = GPSConv(8, None, heads=2, norm=None).double().eval()
    x = features()
    state = conv.attn.attention_state(x)
    assert_close(conv(x[:3], None, state=state), conv(x, None)[:3], rtol=1e-10, atol=1e-12)


def test_arguments_reach_the_message_passing():
    conv = GPSConv(8, pyg.GATv2Conv(8, 8, edge_dim=2)).double().eval()
    x, edge_attr = features(), torch.randn(8, 2, dtype=torch.double)
    one, other = (conv(x, EDGES, edge_attr=attr) for attr in (edge_attr, 2 * edge_attr))
    assert (one - other).abs().max() > 1e-3


@pytest.mark.parametrize(
    'layer', [MeanAttention(8, 8), torch.nn.MultiheadAttention(8, 2, batch_first=True)]
)
def test_a_layer_as_attention_is_registered_once(layer):
    """Its parameters were twice in the state dict, as those of 'attn' and of 'attn_type'."""
    conv = GPSConv(8, pyg.GCNConv(8, 8), attn_type=layer)
    assert conv.attn is layer
    assert conv.attn_type == type(layer).__name__
    assert f'attn_type={type(layer).__name__})' in repr(conv)
    names = [name for name in conv.state_dict() if name.startswith('attn')]
    assert names == [f'attn.{name}' for name in layer.state_dict()]
    weight = next(layer.parameters())
    before = weight.clone()
    conv.reset_parameters()
    assert not torch.equal(weight, before)


@pytest.mark.parametrize('batch', [BATCH, BATCH.flip(0)], ids=['sorted', 'unsorted'])
def test_attention_in_the_place_of_message_passing_keeps_graphs_apart(batch):
    conv, x = GPSConv(8, DIFFormerConv(8, 8)).double().eval(), features()
    expected = conv.combine(x, conv.conv(x, EDGES, batch), conv.attend(x, batch), {})
    assert_close(conv(x, EDGES, batch), expected, rtol=1e-10, atol=1e-12)


def test_degrees_go_into_the_arguments_of_the_attention():
    conv, x = GPSConv(8, None, attn_type='degree_masked').double().eval(), features()
    with pytest.raises(
        ValueError, match=r"'attn_arguments' must have the degrees .*'degree': degre"
    ):
        conv(x)
    with pytest.raises(TypeError, match=r"'attn_arguments' must be a dictionary, .*got Tensor"):
        conv(x, attn_arguments=DEGREE)
    expected = conv.combine(x, None, conv.attn(x, DEGREE), {})
    assert_close(conv(x, attn_arguments={'degree': DEGREE}), expected)


def test_attention_to_another_width_is_refused():
    conv = GPSConv(8, None, attn_type=KernelAttentionConv(8, 4)).double()
    with pytest.raises(
        ValueError, match=r"'attn_type' must return 'channels' = 8 channels \(got 4"
    ):
        conv(features())


def test_message_passing_to_another_width_is_refused():
    with pytest.raises(
        ValueError, match=r"'conv' must return 'channels' = 8 channels \(got 4 from"
    ):
        GPSConv(8, pyg.GCNConv(8, 4)).double()(features(), EDGES)


def test_features_and_edges_that_the_message_passing_cannot_read_are_refused():
    conv = GPSConv(8, pyg.GCNConv(8, 8))
    for x, message in (
        (torch.ones(10, 4), r"'x' must have shape \[N, 8\] \(got \(10, 4\)\)"),
        (torch.ones(10, 8).long(), r"'x' must have the dtype of the parameters, torch\.float32"),
    ):
        with pytest.raises(ValueError, match=message):
            conv(x, EDGES)
    with pytest.raises(
        ValueError, match=r"'edge_index' must be given; for attention .* layer with conv=None$"
    ):
        conv(torch.ones(10, 8))


def test_reset_gives_the_parameters_of_a_new_layer():
    for name in ('kernel', 'multihead', None):
        torch.manual_seed(0)
        conv = GPSConv(8, pyg.GCNConv(8, 8), heads=2, attn_type=name)
        torch.manual_seed(1)
        conv.reset_parameters()
        first = {key: value.clone() for key, value in conv.state_dict().items()}
        torch.manual_seed(2)
        conv.reset_parameters()
        changed = [key for key, value in conv.state_dict().items() if not value.equal(first[key])]
        torch.manual_seed(1)
        conv.reset_parameters()
        assert all(value.equal(first[key]) for key, value in conv.state_dict().items())
        assert {key.split('.')[0] for key in changed} == {'conv', 'mlp'} | (
            {'attn'} if name else set()
        )
        assert ('attn.out_proj.weight' in changed) == (name == 'multihead')


@pytest.mark.parametrize(
    ('message', 'options'),
    [
        (r"'attn_type' .* did you mean 'kernel'\?", {'attn_type': 'kernl'}),
        (
            r"'attn_type' .* \(got 'performer'\); did you mean 'kernel', the linear attention",
            {'attn_type': 'performer'},
        ),
        (r"'conv' must be a layer, such as .* \(got 'GCNConv'\)", {'conv': 'GCNConv'}),
        ("'conv' must be a layer, such as", {'conv': pyg.GCNConv}),
        (r"'conv' must take edges as its .* \(got MLP, which takes", {'conv': pyg.MLP([8, 8])}),
        ("'conv' and 'attn_type' must not both be None", {'conv': None, 'attn_type': None}),
        ("'attn_type' must take 'batch'", {'attn_type': JaccardSubtractorConv(8, 8)}),
        (
            "'attn_kwargs' must be None unless",
            {'attn_type': MeanAttention(8, 8), 'attn_kwargs': {'bias': False}},
        ),
        ("'attn_kwargs' must be None unless", {'attn_type': None, 'attn_kwargs': {'bias': False}}),
        (r"^'act_kwargs' must be a dictionary .* \(got 'slope'\)$", {'act_kwargs': 'slope'}),
        (r"^'norm_kwargs' must be a dictionary .* \(got 3\)$", {'norm_kwargs': 3}),
        (r"^'attn_kwargs' must be a dictionary .* \(got \['bias'\]\)$", {'attn_kwargs': ['bias']}),
        (
            r"'attn_kwargs' must have names among .* \(got 'channels'\)",
            {'attn_type': 'degree_masked', 'attn_kwargs': {'channels': 4}},
        ),
        (
            "'attn_type' must be a MultiheadAttention with batch_first=True",
            {'attn_type': torch.nn.MultiheadAttention(8, 2)},
        ),
        (
            r"'act' must be a name or a module, such as 'gelu' or GELU\(\) \(got <built-in",
            {'act': torch.nn.functional.gelu},
        ),
        ("'channels' must be at least 1", {'channels': 0}),
        ("'heads' must be at least 1", {'heads': 0}),
        (r"'heads' must divide 'channels' \(got 3 and 8\)", {'heads': 3}),
        ("'heads' must divide 'channels'", {'heads': 3, 'attn_type': 'multihead'}),
    ],
)
def test_wrong_arguments_are_named(message, options):
    with pytest.raises(ValueError, match=message):
        GPSConv(**{'channels': 8, 'conv': pyg.GCNConv(8, 8), **options})


@pytest.mark.parametrize(
    ('attn_type', 'names', 'name', 'hint'),
    [
        (
            'kernel',
            "'concat', 'feature_map', 'num_features', 'temperature', 'value_projection', "
            "'num_gumbel_samples', 'gumbel_evaluation', 'relational_order', 'relational_input', "
            "'relational_weight', 'bias', 'key_channels', 'position_channels', 'scale'",
            'featuremap',
            "; did you mean 'feature_map'?",
        ),
        ('sgformer', "'norm', 'bias', 'value_projection', 'position_channels'", 'heads', ''),
        (
            'mean',
            "'bias'",
            'dropout',
            '; a linear attention has no weights to drop: set dropout=.. of the layer or model, '
            'for the output of the attention',
        ),
    ],
)
def test_unknown_names_of_arguments_are_listed(attn_type, names, name, hint):
    message = (
        f"'attn_kwargs' must have names among {names} with attn_type={attn_type!r} (got "
        f'{name!r}){hint}'
    )
    for make in (
        lambda **options: GPSConv(8, None, **options),
        lambda **options: GraphTransformer(6, 8, 3, **options),
    ):
        with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
            make(attn_type=attn_type, attn_kwargs={name: 0.1})


def test_arguments_of_a_named_attention_reach_it():
    multihead = GPSConv(8, None, 2, attn_type='multihead', attn_kwargs={'dropout': 0.1}).attn
    assert (multihead.dropout, multihead.batch_first, multihead.num_heads) == (0.1, True, 2)
    conv = GPSConv(8, None, 2, attn_type='difformer', attn_kwargs={'kernel': 'sigmoid'}).attn
    assert (conv.kernel, conv.use_graph, conv.heads) == ('sigmoid', False, 2)


def test_a_layer_without_attention_refuses_the_parameters_of_one():
    parameters = GPSConv(8, pyg.GCNConv(8, 8), attn_type='multihead').state_dict()
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: .*attn.*norm2'):
        GPSConv(8, pyg.GCNConv(8, 8), attn_type=None).load_state_dict(parameters)


@pytest.mark.parametrize('attn_type', ['kernel', 'multihead'])
def test_a_pair_of_features_is_refused(attn_type):
    message = (
        "'x' must be a torch.Tensor (got tuple); only attention layers take a pair (sources, "
        'targets), which to_hetero passes'
    )
    x = features()
    with pytest.raises(TypeError, match=f'^{re.escape(message)}$'):
        GPSConv(8, pyg.SAGEConv(8, 8), attn_type=attn_type).double()((x, x[:3]), EDGES)


@pytest.mark.parametrize('attn_type', ['multihead', None])
def test_arguments_that_the_attention_does_not_read_are_refused(attn_type):
    """They were ignored: the output was that of the keys of the input."""
    conv, x = GPSConv(8, pyg.GCNConv(8, 8), attn_type=attn_type).double(), features()
    state = KernelAttentionConv(8, 8).double().attention_state(x)
    with pytest.raises(ValueError, match="'state' must be left out"):
        conv(x, EDGES, state=state)
    with pytest.raises(ValueError, match="'degree' must be left out"):
        conv(x, EDGES, attn_arguments={'degree': DEGREE})


@pytest.mark.parametrize('attn_type', ['kernel', None])
def test_features_of_edges_in_the_place_of_the_batch_are_named(attn_type):
    """Without attention the layer ignored them, as message passing reads no batch vector."""
    conv = GPSConv(8, pyg.GATConv(8, 8, edge_dim=2), attn_type=attn_type).double()
    message = "'batch' must hold int64 graph ids .*; give features of edges as 'edge_attr'"
    with pytest.raises(ValueError, match=message):
        conv(features(), EDGES, features()[:8, :2])
