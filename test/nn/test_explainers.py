"""The masks of PyG's explainers, which multiply what comes over each edge."""

import copy
from functools import partial

import pytest
import torch
from torch_geometric.explain import Explainer, GNNExplainer
from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
from torch_geometric.nn import MessagePassing

from torch_geometric_lgt.functional import sorted_edges
from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DIFFormer,
    DIFFormerConv,
    GraphTransformer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    LiteGT,
    MGFormer,
    NodeFormer,
    SGFormer,
)

DOUBLE, N = torch.float64, 8
EDGES = torch.tensor(
    [[1, 2, 0, 2, 0, 1, 3, 2, 4, 3, 5, 4, 7], [0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 6]]
)
MODELS = {
    'DIFFormer': lambda: DIFFormer(4, 8, 3, 2),
    'NodeFormer': lambda: NodeFormer(4, 8, 3, num_features=8),
    'NodeFormer-output': lambda: NodeFormer(4, 8, 3, num_features=8, relational_input='output'),
    'GraphTransformer': lambda: GraphTransformer(4, 8, 3),
    'SGFormer': lambda: SGFormer(4, 8, 3),
    'LiteGT': lambda: LiteGT(4, 16, 3, 2, 4, ('softmax', 'subtractor')),
    'LiteGT-softmax': lambda: LiteGT(4, 16, 3, 2, 4, ('softmax', 'softmax')),
}
LAYERS = {
    'DIFFormerConv': lambda: DIFFormerConv(4, 8, 2),
    'KernelAttentionConv': lambda: KernelAttentionConv(4, 8, 2, relational_order=1),
    'KernelAttentionConv-output': lambda: KernelAttentionConv(
        4, 8, 2, relational_order=1, relational_input='output'
    ),
    'AdjacencyMaskedAttention': lambda: AdjacencyMaskedAttention(4, 2),
    'JaccardSubtractorConv': lambda: JaccardSubtractorConv(4, 8, 4, 'subtractor'),
    'JaccardSubtractorConv-mean': lambda: JaccardSubtractorConv(4, 8, 4, ('mean', 'softmax')),
}


def features():
    return torch.randn(N, 4, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))


def masked(module, mask, run, apply_sigmoid=False):
    set_masks(module, mask, EDGES, apply_sigmoid)
    try:
        return run()
    finally:
        clear_masks(module)


@pytest.mark.filterwarnings('ignore::DeprecationWarning')
@pytest.mark.parametrize('name', MODELS)
def test_an_explanation_says_which_edges_matter(name):
    """Gradients reach the mask, and afterwards the model is as it was."""
    model, x = MODELS[name]().double().eval(), features()
    before = model(x, EDGES).detach()
    explainer = Explainer(
        model,
        GNNExplainer(epochs=20),
        explanation_type='model',
        node_mask_type=None,
        edge_mask_type='object',
        model_config={
            'mode': 'multiclass_classification',
            'task_level': 'node',
            'return_type': 'raw',
        },
    )
    edge_mask = explainer(x, EDGES, index=0).edge_mask
    assert edge_mask.shape == (EDGES.size(1),)
    assert float(edge_mask.max()) > 0.1
    torch.testing.assert_close(model(x, EDGES), before)


@pytest.mark.parametrize('name', LAYERS)
def test_a_mask_multiplies_what_comes_over_each_edge(name):
    """The output is linear in it: with 1 for one edge after the other what they add sums up to the
    whole."""
    layer, x = LAYERS[name]().double().eval(), features()
    run = partial(layer, x, EDGES)
    nothing = masked(layer, torch.zeros(EDGES.size(1), dtype=DOUBLE), run)
    parts = [
        (masked(layer, mask, run) - nothing).detach()
        for mask in torch.eye(EDGES.size(1), dtype=DOUBLE)
    ]
    torch.testing.assert_close(nothing + sum(parts), layer(x, EDGES), rtol=1e-9, atol=1e-9)
    for part, target in zip(parts, EDGES[1], strict=True):
        assert float(part[target].abs().max()) > 1e-6
        assert float(part[torch.arange(N) != target].abs().max()) < 1e-12
    half = masked(layer, torch.zeros(EDGES.size(1), dtype=DOUBLE), run, apply_sigmoid=True)
    torch.testing.assert_close(half, nothing + sum(parts) / 2, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    'name',
    ['DIFFormerConv', 'JaccardSubtractorConv', 'AdjacencyMaskedAttention', 'KernelAttentionConv'],
)
def test_masks_and_weights_together(name):
    """The mask multiplies what is normalised by the weights alone."""
    layer, x = LAYERS[name]().double().eval(), features()
    weight = torch.rand(EDGES.size(1), dtype=DOUBLE) + 0.5
    mask = torch.rand(EDGES.size(1), dtype=DOUBLE)
    run = partial(layer, x, EDGES, edge_weight=weight)
    nothing = masked(layer, torch.zeros_like(mask), run)
    parts = [masked(layer, one, run) - nothing for one in torch.eye(EDGES.size(1), dtype=DOUBLE)]
    torch.testing.assert_close(nothing + sum(parts), run(), rtol=1e-9, atol=1e-9)
    expected = nothing + sum(share * part for share, part in zip(mask, parts, strict=True))
    torch.testing.assert_close(masked(layer, mask, run), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize('name', ['SGFormer', 'GraphTransformer'])
def test_the_mask_keeps_its_edges_where_each_node_has_a_self_loop(name):
    """The loops lie between the other edges and are as many as the nodes, so that the numbers of
    edges before and after GCN adds its own do not differ."""
    loops = torch.arange(N).expand(2, -1)
    edges = torch.cat([EDGES[:, :4], loops, EDGES[:, 4:]], 1)
    model, x = MODELS[name]().double().eval(), features()
    mask = torch.rand(edges.size(1), dtype=DOUBLE)
    set_masks(model, mask, edges, apply_sigmoid=False)
    actual = model(x, edges)
    clear_masks(model)
    expected = masked(model, torch.cat([mask[:4], mask[4 + N :]]), lambda: model(x, EDGES))
    torch.testing.assert_close(actual, expected)


def test_sampled_nodes_and_the_mask():
    layer = JaccardSubtractorConv(4, 8, 4, 'subtractor').double()
    x = features()
    sampled = torch.arange(N) % 2 == 0
    ones = torch.ones(EDGES.size(1), dtype=DOUBLE)
    torch.testing.assert_close(
        masked(layer, ones, lambda: layer(x, EDGES, None, sampled)), layer(x, EDGES, None, sampled)
    )


def test_repeated_edges_and_self_loops_of_a_relational_bias():
    """Each edge of a pair has its share, and a node itself stays."""
    edges = torch.tensor([[0, 0, 1, 1], [1, 1, 0, 1]])
    layer, x = KernelAttentionConv(4, 8, 2, relational_order=1).double(), features()[:2]
    value = layer.lin_value(x)
    share = layer.relational_bias.weight.sigmoid().repeat_interleave(4, 1) / 2
    # the pairs alone joined: degrees are 2
    bias = layer(x, edges) - layer(x, torch.arange(2).expand(2, -1)) + 2 * share * value
    torch.testing.assert_close(bias, share * (value + value.flip(0)))
    set_masks(layer, torch.tensor([0.5, 1.0, 0.0, 0.0], dtype=DOUBLE), edges, apply_sigmoid=False)
    actual = layer(x, edges)
    clear_masks(layer)
    torch.testing.assert_close(
        layer(x, edges) - actual,
        share * value.flip(0) * torch.tensor([[1.0], [0.25]], dtype=DOUBLE),
    )


@pytest.mark.parametrize('name', [*LAYERS, *MODELS])
def test_a_mask_of_ones_in_single_precision_changes_nothing(name):
    """Nor do three edges of one pair, whose shares are thirds."""
    edges, x = torch.cat([EDGES, EDGES[:, :2], EDGES[:, :2]], 1), features()
    module = {**LAYERS, **MODELS}[name]().double().eval()
    expected = module(x, edges)
    set_masks(module, torch.ones(edges.size(1)), edges, apply_sigmoid=False)
    actual = module(x, edges)
    clear_masks(module)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


def test_mgformer_is_masked_for_some_nodes_too():
    model = MGFormer(4, 4, 6, num_layers=2, mask='adjacency').double()
    mask = torch.rand(EDGES.size(1), dtype=DOUBLE)
    whole = masked(model, mask, lambda: model.get_embedding(EDGES))
    torch.testing.assert_close(
        masked(model, mask, lambda: model.get_embedding(EDGES, torch.tensor([3, 1]))), whole[[3, 1]]
    )
    assert not torch.allclose(whole, model.get_embedding(EDGES))


@pytest.mark.parametrize('name', MODELS)
def test_masks_of_other_edges_are_refused(name):
    model = MODELS[name]().double().eval()
    set_masks(model, torch.rand(3, dtype=DOUBLE), EDGES)
    with pytest.raises((ValueError, AssertionError, IndexError)):
        model(features(), EDGES)


def test_edge_masks_of_other_edges_than_the_graph_are_refused():
    x, mask = features(), torch.rand(EDGES.size(1), dtype=DOUBLE)
    second, first = (KernelAttentionConv(4, 8, relational_order=order).double() for order in (2, 1))
    with pytest.raises(
        ValueError,
        match="'relational_order' must be 1, and 'edge_index' the graph, for a mask of edges",
    ):
        masked(second, mask, lambda: second(x, EDGES))
    with pytest.raises(ValueError, match=r"'edge_index' the graph, .* \(got 1 and list\)"):
        masked(first, mask, lambda: first(x, first.hops(EDGES, N)))


def test_layers_of_message_passing_change_no_parameters_and_copies():
    for make in (*MODELS.values(), *LAYERS.values()):
        module = make().double().eval()
        assert any(isinstance(part, MessagePassing) for part in module.modules())
        assert not any('neighbor_sum' in name for name in module.state_dict())
        x = features()
        torch.testing.assert_close(
            copy.deepcopy(module)(x, EDGES), module(x, sorted_edges(EDGES, N, N))
        )
