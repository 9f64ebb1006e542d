"""Layers whose queries and keys are of positions equal layers over features and positions side by
side, with zeros in their weights."""

import copy

import pytest
import torch
from gradients import gradients, leaves_of
from torch.testing import assert_close

from torch_geometric_lgt.nn import DIFFormerConv, KernelAttentionConv, SGFormerConv

F, P = 6, 3
SIZES = (4, 1, 0, 7)
BATCH = torch.arange(4).repeat_interleave(torch.tensor(SIZES))
EDGES = torch.tensor([[0, 1, 2, 5, 6, 7, 8, 11], [1, 2, 0, 6, 5, 8, 9, 5]])
LAYERS = {
    'kernel': (KernelAttentionConv, {'heads': 2, 'feature_map': 'elu'}),
    'kernel-learned': (
        KernelAttentionConv,
        {'heads': 2, 'feature_map': 'learned', 'num_features': 5},
    ),
    'kernel-simplex': (KernelAttentionConv, {'heads': 2, 'num_features': 3}),
    'kernel-bias': (KernelAttentionConv, {'heads': 2, 'relational_order': 1}),
    'difformer': (DIFFormerConv, {'heads': 2}),
    'difformer-frobenius': (DIFFormerConv, {'heads': 2, 'norm': 'frobenius', 'use_graph': False}),
    'difformer-sigmoid': (DIFFormerConv, {'heads': 2, 'kernel': 'sigmoid', 'use_graph': False}),
    'sgformer': (SGFormerConv, {'heads': 2}),
    'sgformer-row': (SGFormerConv, {'heads': 2, 'norm': 'row'}),
}


def pair_of_layers(name):
    make, options = LAYERS[name]
    torch.manual_seed(0)
    layer = make(F, 8, position_channels=P, **options).double()
    wide = make(F + P, 8, **options).double()
    state = layer.state_dict()
    for part in ('lin_query', 'lin_key'):
        weight = state[f'{part}.weight']
        state[f'{part}.weight'] = torch.cat([weight.new_zeros(8, F), weight], 1)
    weight = state['lin_value.weight']
    state['lin_value.weight'] = torch.cat([weight, weight.new_zeros(8, P)], 1)
    wide.load_state_dict(state)
    return layer, wide


def features(rows=12, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(rows, F, dtype=torch.double, generator=generator),
        torch.randn(rows, P, dtype=torch.double, generator=generator),
    )


def edges_of(name):
    return EDGES if name in ('kernel-bias', 'difformer') else None


@pytest.mark.parametrize('name', LAYERS)
def test_outputs_and_gradients(name):
    layer, wide = pair_of_layers(name)
    x, position = (z.requires_grad_() for z in features())
    actual = layer(x, edges_of(name), BATCH, position=position)
    expected = wide(torch.cat([x, position], 1), edges_of(name), BATCH)
    assert_close(actual, expected, rtol=1e-10, atol=1e-12)
    target = torch.randn(12, 8, dtype=torch.double)
    found, wanted = (
        gradients((out * target).sum(), leaves_of(module, x=x, position=position))
        for out, module in ((actual, layer), (expected, wide))
    )
    for part in ('lin_query', 'lin_key'):
        wanted[f'{part}.weight'] = wanted[f'{part}.weight'][:, F:]
    wanted['lin_value.weight'] = wanted['lin_value.weight'][:, :F]
    assert_close(found, wanted, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    'name', [name for name in LAYERS if edges_of(name) is None and 'sigmoid' not in name]
)
def test_states_of_parts(name):
    layer, _ = pair_of_layers(name)
    x, position = features()
    expected = layer.eval()(x, batch=BATCH, position=position)
    parts = (slice(5), slice(5, 12))
    states = [
        layer.attention_state(x[part], BATCH[part], 4, position=position[part]) for part in parts
    ]
    state = states[0].merge(states[1])
    for part in parts:
        out = layer(x[part], batch=BATCH[part], state=state, position=position[part])
        assert_close(out, expected[part], rtol=1e-10, atol=1e-12)


def test_states_in_single_precision_whose_queries_and_own_values_have_other_inputs():
    """Products of the columns of one input take less work than its 40 rows in that precision."""
    layer = SGFormerConv(F, 8, heads=2, position_channels=P)
    x, position = (part.float() for part in features(40))
    state = layer.attention_state(x, position=position)
    actual = layer(x, state=state, position=position)
    expected = copy.deepcopy(layer).double()(x.double(), position=position.double())
    assert_close(actual.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('name', LAYERS)
def test_scores_of_pairs(name):
    layer, wide = pair_of_layers(name)
    x, position = features()
    pairs = torch.cartesian_prod(torch.arange(12), torch.arange(12)).T
    actual = layer.attention_scores(x, pairs, BATCH, position=position)
    expected = wide.attention_scores(torch.cat([x, position], 1), pairs, BATCH)
    assert_close(actual, expected, rtol=1e-10, atol=1e-12)


def test_probability_of_edges():
    layer, wide = pair_of_layers('kernel-simplex')
    x, position = features()
    actual = layer.log_edge_probability(x, EDGES, position=position)
    expected = wide.log_edge_probability(torch.cat([x, position], 1), EDGES)
    assert_close(actual, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize('name', ['kernel', 'difformer-frobenius', 'difformer-sigmoid', 'sgformer'])
def test_sources_and_targets_have_positions(name):
    layer, wide = pair_of_layers(name)
    (x, position), (x_dst, position_dst) = features(), features(5, seed=1)
    pair = torch.cat([x, position], 1), torch.cat([x_dst, position_dst], 1)
    actual = layer((x, x_dst), position=(position, position_dst))
    assert_close(actual, wide(pair), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(
    ('message', 'call'),
    [
        (
            "'position' must be given if and only if",
            lambda: DIFFormerConv(F, 8, use_graph=False)(
                torch.randn(4, F), position=torch.ones(4, P)
            ),
        ),
        (
            "'position' must be given if and only if",
            lambda: SGFormerConv(F, 8, position_channels=P)(torch.randn(4, F)),
        ),
        (
            r"'position' must have shape \[N, 3\]",
            lambda: KernelAttentionConv(F, 8, position_channels=P)(
                torch.randn(4, F), position=torch.ones(4, 2)
            ),
        ),
        (
            "'position' must have one row for each of 4 nodes",
            lambda: KernelAttentionConv(F, 8, position_channels=P)(
                torch.randn(4, F), position=torch.ones(3, P)
            ),
        ),
        (
            "'position_channels' must be at least 0",
            lambda: SGFormerConv(F, 8, position_channels=-1),
        ),
        (
            "'value_projection' must be True with 'position_channels'",
            lambda: SGFormerConv(8, 8, position_channels=P, value_projection=False),
        ),
    ],
)
def test_wrong_positions_are_named(message, call):
    with pytest.raises(ValueError, match=message):
        call()
