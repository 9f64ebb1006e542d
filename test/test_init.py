"""Learned feature maps that start at groups of nodes."""

import copy
import math

import pytest
import torch
from torch.nn.utils import parametrizations, prune

from torch_geometric_lgt import init
from torch_geometric_lgt._attention_calls import recorded_calls
from torch_geometric_lgt.init import kmeans_
from torch_geometric_lgt.nn import (
    DegreeMaskedAttention,
    GraphTransformer,
    KernelAttentionConv,
)

MAP = {'feature_map': 'learned', 'num_features': 3}


def groups(size=20, channels=4):
    """Three far groups of nodes, and the group of each node."""
    centres = torch.eye(channels)[:3] * 5
    group = torch.arange(3 * size) % 3
    return centres[group] + 0.1 * torch.randn(3 * size, channels), group


def keys_of(conv, x):
    return conv.lin_key(x).unflatten(1, (conv.heads, -1))


@pytest.mark.parametrize('heads', [1, 2])
def test_node_attends_to_its_group(heads):
    x, group = groups()
    conv = KernelAttentionConv(4, 8, heads, key_channels=8, **MAP).double()
    kmeans_(conv, x.double(), sharpness=200)
    pairs = torch.cartesian_prod(torch.arange(60), torch.arange(60)).t()
    scores = conv.attention_scores(x.double(), pairs)
    expected = (group[pairs[0]] == group[pairs[1]]).double() / 20
    torch.testing.assert_close(scores, expected[:, None].expand(-1, heads), atol=1e-9, rtol=0)


@pytest.mark.parametrize('bias', [True, False])
def test_parameters_are_those_of_the_formula(bias):
    x, group = groups()
    first = 0
    if not bias:
        x[0], first = 0, 1  # a key without a direction
    conv = KernelAttentionConv(4, 6, 2, bias=bias, **MAP).double()
    x = x.double()
    kmeans_(conv, x, sharpness=30)
    keys = keys_of(conv, x)
    mean = torch.zeros(6, dtype=torch.double)
    if bias:
        torch.testing.assert_close(keys.flatten(1).mean(0), mean, atol=1e-12, rtol=0)
    torch.testing.assert_close(conv.lin_query(x), conv.lin_key(x))
    phi, norm = conv.feature_map, keys.norm(dim=-1)
    torch.testing.assert_close(phi.scale * norm.mean(0), torch.full((2,), 30.0).double())
    for head in range(2):
        directions = torch.nn.functional.normalize(keys[first:, head], dim=-1)
        centres = torch.stack([directions[group[first:] == number].mean(0) for number in range(3)])
        centres = torch.nn.functional.normalize(centres, dim=-1)
        similarity = centres @ phi.weight[head].t()
        torch.testing.assert_close(similarity.max(1).values, torch.ones(3).double())
        assert similarity.argmax(1).unique().numel() == 3


def test_a_model_that_enters_autocast():
    conv = KernelAttentionConv(4, 4, **MAP)
    x, group = groups()

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = conv

        def forward(self, x):
            with torch.autocast('cpu', torch.bfloat16):
                return self.conv(x.bfloat16())

    kmeans_(Model(), x, sharpness=200)
    nearest = conv.feature_map(keys_of(conv, x))[:, 0].argmax(1)
    assert len(torch.stack([group, nearest]).unique(dim=1).t()) == 3


def test_second_layer_starts_at_what_the_first_returns():
    x, _ = groups()
    first, second = (KernelAttentionConv(4, 4, **MAP) for _ in range(2))
    model = torch.nn.ModuleList([first, second])
    model.forward = lambda x: second(first(x))
    kmeans_(model, x)
    keys = keys_of(second, first(x))
    assert keys.mean(0).abs().max() < 1e-5
    scale = second.feature_map.scale * keys.norm(dim=-1).mean()
    torch.testing.assert_close(scale, torch.tensor([20.0]))


def test_graph_transformer_by_positions():
    x, _ = groups()
    options = {'conv': None, 'encodings': {'features': 4}, 'position': 'features'}
    model = GraphTransformer(4, 8, 2, num_layers=2, heads=2, attn_kwargs=MAP, **options).train()
    assert kmeans_(model, x, None, features=x, trainable=False) is model
    assert model.training
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    parts = 'lin_query.weight', 'lin_query.bias', 'lin_key.weight', 'lin_key.bias'
    parts = *parts, 'feature_map.weight', 'feature_map.scale'
    assert frozen == {f'blocks.{layer}.attn.conv.{part}' for layer in (1, 2) for part in parts}
    with recorded_calls(model, (x, None), {'features': x}) as (calls, _):
        for call in calls:
            assert call.layer.lin_key(x).mean(0).abs().max() < 1e-5
    model(x, None, features=x).sum().backward()


def test_degree_mask():
    x, _ = groups()
    ring = torch.stack([torch.arange(60), (torch.arange(60) + 1) % 60])
    conv = DegreeMaskedAttention(4, 2, **MAP)
    kmeans_(conv, x, edge_index=ring)
    norm = keys_of(conv, x).norm(dim=-1).mean(0)
    torch.testing.assert_close(conv.feature_map.scale * norm, torch.full((2,), 20.0))


def test_seed_decides_and_global_state_stays():
    x, _ = groups(channels=8)
    conv = KernelAttentionConv(8, 8, **MAP)
    before = torch.get_rng_state()
    one = kmeans_(conv, x, seed=1).feature_map.weight.clone()
    assert torch.equal(torch.get_rng_state(), before)
    torch.testing.assert_close(kmeans_(conv, x, seed=1).feature_map.weight, one)


@pytest.mark.parametrize('sharpness', [0.0, -1.0, math.inf, math.nan])
def test_refuses_sharpness(sharpness):
    conv = KernelAttentionConv(4, 4, **MAP)
    with pytest.raises(ValueError, match="'sharpness' must be positive and finite"):
        kmeans_(conv, torch.randn(5, 4), sharpness=sharpness)
    with pytest.raises(ValueError, match=r"'sharpness' must be a number \(got '20'\)"):
        kmeans_(conv, torch.randn(5, 4), sharpness='20')


def test_refuses_a_text_as_trainable():
    """It counted as true, so that all parameters got gradients."""
    conv = KernelAttentionConv(4, 4, **MAP)
    with pytest.raises(ValueError, match=r"'trainable' must be True or False \(got 'False'\)"):
        kmeans_(conv, torch.randn(5, 4), trainable='False')


@pytest.mark.parametrize('feature_map', ['simplex', torch.nn.Softmax(-1)])
def test_refuses_other_maps(feature_map):
    with pytest.raises(ValueError, match=r"layer with feature_map='learned' \(got none, in Kernel"):
        kmeans_(KernelAttentionConv(4, 4, feature_map=feature_map), torch.randn(5, 4))


def test_refuses_few_different_keys():
    conv = KernelAttentionConv(4, 4, **MAP)
    before = copy.deepcopy(conv.state_dict())
    with pytest.raises(ValueError, match=r'of at least 3 different keys, .* features \(got 2\)'):
        kmeans_(conv, torch.eye(4)[:2].repeat(10, 1))
    for name, value in conv.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_an_interrupt_leaves_the_model_as_before(monkeypatch):
    def centres(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(init, '_centres', centres)
    conv = KernelAttentionConv(4, 4, **MAP)
    before = copy.deepcopy(conv.state_dict())
    with pytest.raises(KeyboardInterrupt):
        kmeans_(conv, groups()[0])
    for name, value in conv.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_groups_of_rare_keys_are_found():
    """None of two rare kinds is among the keys that are drawn for k-means."""
    x = torch.eye(4)[0].repeat(100_000, 1)
    x[:2] = torch.eye(4)[1:3]
    conv = kmeans_(KernelAttentionConv(4, 4, **MAP), x)
    centres = conv.feature_map.weight[0].detach()
    assert float((centres @ centres.t()).fill_diagonal_(-1).max()) < 0.99


def test_refuses_pair_of_sizes():
    conv = KernelAttentionConv((4, 5), 4, **MAP)
    with pytest.raises(ValueError, match=r'inputs of one size .* Kernel.* \(got 5 and 4\)'):
        kmeans_(conv, (torch.randn(6, 4), torch.randn(7, 5)))


@pytest.mark.parametrize(
    ('name', 'wrap'),
    [
        ('feature_map.weight', prune.identity),
        ('feature_map.weight', parametrizations.weight_norm),
        ('feature_map.scale', prune.identity),
        ('lin_key.bias', prune.identity),
    ],
)
def test_computed_values_are_refused(name, wrap):
    """They were set, and computed anew by the next call."""
    conv, x = KernelAttentionConv(4, 8, **MAP), groups()[0]
    conv(x)
    part, _, value = name.partition('.')
    for one in ('lin_query', 'lin_key') if part == 'lin_key' else (part,):
        wrap(getattr(conv, one), value)
    before = copy.deepcopy(conv.state_dict())
    with pytest.raises(ValueError, match=f"{name}', which is computed.*normalise '{part}' after"):
        kmeans_(conv, x)
    torch.testing.assert_close(conv.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize('part', ['lin_query', 'lin_key'])
def test_refuses_parts_of_two_kinds(part):
    """A pruned layer has other parameters than the plain one that takes them."""
    conv = KernelAttentionConv(4, 8, **MAP)
    prune.l1_unstructured(getattr(conv, part), 'weight', 0.3)
    before = copy.deepcopy(conv.state_dict())
    with pytest.raises(ValueError, match=r"'lin_query' and 'lin_key' of one kind .*weight_orig"):
        kmeans_(conv, groups()[0])
    torch.testing.assert_close(conv.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize('part', ['lin_query', 'lin_key', 'feature_map'])
def test_refuses_a_part_of_two_layers(part):
    """The second layer set the feature map that the first one had started."""
    first, second = (KernelAttentionConv(4, 4, **MAP) for _ in range(2))
    setattr(second, part, getattr(first, part))
    model = torch.nn.ModuleList([first, second])
    model.forward = lambda x: second(first(x))
    before, x = copy.deepcopy(model.state_dict()), groups()[0]
    with pytest.raises(ValueError, match=rf"got one '{part}' for 0 and 1\); assign copies"):
        kmeans_(model, x)
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    second.lin_key = second.lin_query = copy.deepcopy(second.lin_key)
    second.feature_map = copy.deepcopy(second.feature_map)
    norm = keys_of(kmeans_(model, x)[1], first(x)).norm(dim=-1).mean()
    torch.testing.assert_close(second.feature_map.scale * norm, torch.tensor([20.0]))
