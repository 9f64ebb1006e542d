"""Input sizes of sources and targets that differ, and sizes that the first input decides."""

import copy
import pickle

import pytest
import torch
from gradients import gradients

from torch_geometric_lgt.nn import (
    DIFFormer,
    DIFFormerConv,
    GraphTransformer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    LiteGT,
    NodeFormer,
    SGFormer,
    SGFormerConv,
)
from torch_geometric_lgt.testing import dense

EDGES = torch.stack([torch.randint(9, (30,)), torch.randint(7, (30,))])
LAYERS = {
    'kernel': lambda channels: KernelAttentionConv(channels, 8, heads=2),
    'kernel-elu': lambda channels: KernelAttentionConv(
        channels, 8, feature_map='elu', key_channels=4
    ),
    'kernel-bias': lambda channels: KernelAttentionConv(channels, 8, relational_order=1),
    'difformer': lambda channels: DIFFormerConv(channels, 8, heads=2),
    'difformer-frobenius': lambda channels: DIFFormerConv(
        channels, 8, norm='frobenius', use_graph=False
    ),
    'difformer-sigmoid': lambda channels: DIFFormerConv(channels, 8, kernel='sigmoid'),
    'jaccard': lambda channels: JaccardSubtractorConv(channels, 8, heads=2),
    'subtractor': lambda channels: JaccardSubtractorConv(channels, 8, heads=2, kernel='subtractor'),
    'mean': lambda channels: JaccardSubtractorConv(channels, 8, heads=2, kernel=('mean', 'mean')),
}
MODELS = {
    'NodeFormer': lambda channels: NodeFormer(channels, 4, 3, heads=2),
    'DIFFormer': lambda channels: DIFFormer(channels, 4, 3),
    'GraphTransformer': lambda channels: GraphTransformer(channels, 4, 3, heads=2),
    'SGFormer': lambda channels: SGFormer(channels, 4, 3),
    'SGFormer-input': lambda channels: SGFormer(channels, 4, 3, gnn_input='input'),
    'LiteGT': lambda channels: LiteGT(channels, 8, 3, 2, kernel='subtractor'),
}


def pair():
    return torch.randn(9, 5, dtype=torch.float64), torch.randn(7, 6, dtype=torch.float64)


def run(layer, x):
    if isinstance(layer, JaccardSubtractorConv):
        return layer(x, EDGES, torch.linspace(0, 1, 30))
    bias = getattr(layer, 'relational_bias', None)
    return layer(x, EDGES if bias is None else [EDGES])


def padded(layer, wide, x):
    """A layer of sources and targets of one size does the same on features with zeros behind,
    whatever the weights for these."""
    state = wide.state_dict()
    for name, value in layer.state_dict().items():
        if value.dim() == 2 and name in ('lin_query.weight', 'lin_key.weight', 'lin_value.weight'):
            state[name] = torch.cat([value, state[name][:, value.size(1) :]], 1)
        else:
            state[name] = value
    wide.load_state_dict(state)
    return tuple(torch.nn.functional.pad(part, (0, 8 - part.size(1))) for part in x)


@pytest.mark.parametrize('name', LAYERS)
def test_sources_and_targets_of_unequal_sizes(name):
    layer, wide, x = LAYERS[name]((5, 6)).double(), LAYERS[name](8).double(), pair()
    x = tuple(part.requires_grad_() for part in x)
    out, expected = run(layer, x), run(wide, padded(layer, wide, x))
    torch.testing.assert_close(out, expected)
    leaves = dict(zip(('x_src', 'x_dst'), x, strict=True))
    torch.testing.assert_close(
        *(
            gradients(result.square().sum(), leaves, materialize_grads=True)
            for result in (out, expected)
        )
    )
    for wrong in ((x[1], x[1]), (x[0], x[0])):
        with pytest.raises(ValueError, match=r"'x' must have shape \[N, [56]\]"):
            run(layer, wrong)
    assert '(5, 6)' in repr(layer)


def test_attention_of_unequal_sizes_is_the_formula():
    layer, (source, target) = KernelAttentionConv((5, 6), 8, heads=2).double(), pair()
    q, k, v = (
        lin(x).unflatten(1, (2, 4))
        for lin, x in (
            (layer.lin_query, target),
            (layer.lin_key, source),
            (layer.lin_value, source),
        )
    )
    phi = (
        dense.feature_map('softmax', part * 4**-0.25, layer.feature_map.projection)
        for part in (q, k)
    )
    torch.testing.assert_close(layer((source, target)), dense.kernel_attention(*phi, v).flatten(1))


@pytest.mark.parametrize('norm', ['row', 'frobenius'])
def test_states_of_unequal_sizes(norm):
    """Keys are of sources, and a target reads them; norms over all queries need these beside the
    keys."""
    for layer in (
        KernelAttentionConv((5, 6), 8),
        DIFFormerConv((5, 6), 8, norm=norm, use_graph=False),
    ):
        source, target = (part.float() for part in pair())
        if isinstance(layer, DIFFormerConv) and norm == 'frobenius':
            with pytest.raises(ValueError, match=r"'norm' must be 'row' .* of two sizes, \(5, 6\)"):
                layer.attention_state(source)
            continue
        state = layer.attention_state(source)
        torch.testing.assert_close(layer((source, target), state=state), layer((source, target)))


@pytest.mark.parametrize('channels', [-1, (-1, -1), (5, -1), (-1, 6)])
@pytest.mark.parametrize('name', LAYERS)
def test_the_first_input_decides(name, channels):
    """The layer is then that of the sizes: weights, copies, pickles, state dicts and further
    calls."""
    lazy, layer, x = LAYERS[name](channels).double(), LAYERS[name]((5, 6)).double(), pair()
    fresh = copy.deepcopy(lazy)
    run(lazy, x)
    assert {key: value.shape for key, value in lazy.state_dict().items()} == {
        key: value.shape for key, value in layer.state_dict().items()
    }
    lazy.load_state_dict(layer.state_dict())
    fresh.load_state_dict(layer.state_dict())
    expected = run(layer, x)
    for one in (lazy, fresh, copy.deepcopy(lazy), pickle.loads(pickle.dumps(lazy))):
        torch.testing.assert_close(run(one, x), expected, rtol=1e-12, atol=1e-12)
    assert all(type(part) is not torch.nn.LazyLinear for part in lazy.modules())
    with pytest.raises(ValueError, match=r"'x' must have shape \[N, 5\]"):
        run(lazy, (x[0][:, :-1], x[1]))
    lazy.reset_parameters()
    assert not torch.allclose(run(lazy, x), expected)


@pytest.mark.parametrize('name', LAYERS)
def test_one_seed_makes_one_layer_of_the_first_input(name):
    results = []
    for _ in range(2):
        torch.manual_seed(3)
        layer = LAYERS[name](-1).double()
        results.append(
            run(
                layer,
                (torch.ones(9, 5, dtype=torch.float64), torch.ones(7, 6, dtype=torch.float64)),
            )
        )
    assert torch.equal(*results)


@pytest.mark.parametrize('norm', ['row', 'frobenius'])
def test_sgformer_takes_one_size(norm):
    x = torch.randn(9, 5)
    layer = SGFormerConv(-1, 8, norm=norm)
    assert torch.equal(layer(x), layer(x))
    assert layer((x, x[:3])).shape == (3, 8)
    with pytest.raises(ValueError, match=r"'in_channels' must be one size, .* \(got \(5, 6\)\)"):
        SGFormerConv((5, 6), 8, norm=norm)
    with pytest.raises(
        ValueError, match=r"^'x' must have one width, .* \(got \(9, 5\) and \(3, 6\)\)"
    ):
        SGFormerConv(-1, 8, norm=norm)((x, torch.randn(3, 6)))


def test_states_and_scores_of_the_first_input():
    x = torch.randn(9, 5)
    for make in (KernelAttentionConv, DIFFormerConv, SGFormerConv):
        assert make(-1, 8).attention_state(x).count.tolist() == [9]
        assert make(-1, 8).attention_scores(x, EDGES % 7).shape == (30, 1)
    assert KernelAttentionConv(-1, 8).log_edge_probability(x, EDGES % 7).shape == (30, 1)


# whose first layer, one of PyG, makes its own parameters
@pytest.mark.parametrize('name', sorted({*LAYERS, *MODELS} - {'SGFormer-input'}))
def test_an_input_in_inference_mode_leaves_parameters_that_can_be_trained(name):
    """Most of the parameters got no gradients, without an error."""
    torch.manual_seed(0)
    module = (LAYERS | MODELS)[name](-1).train()
    x, edges = torch.randn(7, 6), EDGES % 7
    extra = {'edge_jaccard': torch.linspace(0, 1, 30)} if name == 'jaccard' else {}
    with torch.inference_mode():
        module(x, edges, **extra)
    parameters = dict(module.named_parameters())
    assert not any(parameter.is_inference() for parameter in parameters.values())
    module(x, edges, **extra).square().sum().backward()
    assert [key for key, value in parameters.items() if value.grad is None] == []


@pytest.mark.parametrize('name', MODELS)
def test_models_of_the_first_input(name):
    lazy, model, x = MODELS[name](-1).eval(), MODELS[name](6).eval(), torch.randn(7, 6)
    edges = EDGES % 7
    lazy(x, edges)
    lazy.load_state_dict(model.state_dict())
    if hasattr(model, 'convs'):
        for one, other in zip(lazy.convs, model.convs, strict=True):
            one.load_state_dict(other.state_dict())
    torch.testing.assert_close(lazy(x, edges), model(x, edges))
    torch.testing.assert_close(copy.deepcopy(lazy)(x, edges), model(x, edges))
    with pytest.raises(ValueError, match=r"'x' must have shape \[N, 6\]"):
        lazy(x[:, 1:], edges)
    lazy.reset_parameters()


@pytest.mark.compiled
@pytest.mark.parametrize('make', [KernelAttentionConv, SGFormerConv, DIFFormerConv])
# numbers as symbols would trace each graph twice
@torch._dynamo.config.patch(specialize_float=True)
def test_compiles_after_the_first_input(make):
    layer, x, edges = make(-1, 8).eval(), torch.randn(7, 6), EDGES % 7
    expected = layer(x, edges)
    torch.testing.assert_close(
        torch.compile(layer, fullgraph=True, dynamic=True, backend='aot_eager')(x, edges), expected
    )


@pytest.mark.parametrize('channels', [0, -2, (5,), (5, 0), (5, 6, 7)])
def test_other_sizes_are_refused(channels):
    for make in (KernelAttentionConv, DIFFormerConv, SGFormerConv, JaccardSubtractorConv):
        with pytest.raises(
            ValueError,
            match="'in_channels' must be a positive whole number or -1, or a pair",
        ):
            make(channels, 8)
    for make in (NodeFormer, DIFFormer, SGFormer, LiteGT):
        with pytest.raises(ValueError, match="'in_channels' must be a positive whole number, or"):
            make(channels, 8, 3)


def test_plain_values_have_the_size_of_the_output():
    with pytest.raises(
        ValueError, match="'value_projection' = False needs as many 'in_channels' as 'out_channels'"
    ):
        KernelAttentionConv((5, 8), 8, value_projection=False)
    layer = KernelAttentionConv((8, 5), 8, value_projection=False)
    assert layer((torch.randn(9, 8), torch.randn(7, 5))).shape == (7, 8)
