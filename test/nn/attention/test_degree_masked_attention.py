import pytest
import torch
from gradients import assert_same_gradients, leaves_of

from torch_geometric_lgt.nn import DegreeMaskedAttention
from torch_geometric_lgt.testing import dense

DEGREE = torch.tensor([0, 3, 1, 1, 4, 2, 0, 0, 5, 2, 1, 1])
PAIRS = torch.cartesian_prod(torch.arange(12), torch.arange(12)).t()


@pytest.mark.parametrize(
    'batch', [None, torch.tensor([0, 2, 0, 0, 2, 2, 2, 0, 3, 3, 0, 2])], ids=['one', 'unsorted']
)
@pytest.mark.parametrize('feature_map', ['simplex', 'elu', 'focused', 'learned'])
@pytest.mark.parametrize(('heads', 'key_channels'), [(1, None), (2, None), (2, 4)])
def test_matches_dense_with_gradients(feature_map, heads, key_channels, batch):
    layer = DegreeMaskedAttention(
        8, heads=heads, feature_map=feature_map, max_degree=6, key_channels=key_channels
    ).double()
    x = torch.randn(12, 8, dtype=torch.float64, requires_grad=True)
    scale = layer.head_key_channels**-0.25 if feature_map == 'simplex' else 1.0
    q, k, v = (t.unflatten(-1, (heads, -1)) for t in (layer.lin_query(x), layer.lin_key(x), x))
    if feature_map == 'learned':
        q, k = layer.feature_map.logits(q), layer.feature_map.logits(k)
    phi = [
        dense.feature_map(layer.feature_map.map.name, scale * t, layer.feature_map.projection)
        for t in (q, k)
    ]
    z = layer.lin_degree(layer.degree_embedding(DEGREE)).sigmoid().squeeze(1)
    weights = dense.attention_matrix(*phi, dense.degree_mask(z, z), batch, batch)
    expected = torch.einsum('ijh,jhd->ihd', weights, v).flatten(1)
    actual = layer(x, DEGREE, batch)
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=1e-10)
    assert_same_gradients(actual, expected, leaves_of(layer, x=x), atol=1e-9, rtol=1e-9)
    torch.testing.assert_close(
        layer.attention_scores(x, PAIRS, batch, DEGREE),
        weights[PAIRS[1], PAIRS[0]],
        atol=1e-10,
        rtol=1e-10,
    )


def test_state_equals_full_graph():
    layer, x = DegreeMaskedAttention(8).double(), torch.randn(12, 8).double()
    state = layer.attention_state(x[:5], DEGREE[:5]).merge(layer.attention_state(x[5:], DEGREE[5:]))
    torch.testing.assert_close(
        layer(x[3:7], DEGREE[3:7], state=state), layer(x, DEGREE)[3:7], atol=1e-13, rtol=0
    )


def test_bipartite():
    layer, x = DegreeMaskedAttention(8, heads=2).double(), torch.randn(12, 8).double()
    torch.testing.assert_close(
        layer((x, x[4:9]), (DEGREE, DEGREE[4:9])), layer(x, DEGREE)[4:9], atol=1e-13, rtol=0
    )


def test_degrees_from_edges_count_distinct_neighbours():
    layer, x = DegreeMaskedAttention(8), torch.randn(4, 8)
    edge_index = torch.tensor([[0, 0, 1, 2, 2], [1, 1, 0, 2, 0]])
    torch.testing.assert_close(
        layer(x, edge_index=edge_index), layer(x, torch.tensor([2, 1, 1, 0]))
    )


def test_degree_above_the_table_is_clamped_with_a_count():
    layer, x = DegreeMaskedAttention(8, max_degree=3), torch.randn(12, 8)
    with pytest.warns(UserWarning, match="2 nodes have a degree above 'max_degree' = 3"):
        out = layer(x, DEGREE)
    torch.testing.assert_close(out, layer(x, DEGREE.clamp(max=3)))


def test_reset_parameters_and_repr():
    layer = DegreeMaskedAttention(8, heads=2)
    before = {name: value.clone() for name, value in layer.state_dict().items()}
    layer.reset_parameters()
    assert not any(torch.equal(before[name], value) for name, value in layer.state_dict().items())
    assert repr(layer) == 'DegreeMaskedAttention(8, heads=2)'


@pytest.mark.parametrize(
    ('degree', 'message'),
    [
        (None, "'degree' or 'edge_index'"),
        (-DEGREE, "'degree' must be at least 0"),
        (DEGREE.float(), 'whole number'),
        (DEGREE[:3], 'per node'),
    ],
)
def test_raises(degree, message):
    with pytest.raises(ValueError, match=message):
        DegreeMaskedAttention(8)(torch.randn(12, 8), degree)


def test_constructor_raises():
    with pytest.raises(ValueError, match="'max_degree'"):
        DegreeMaskedAttention(8, max_degree=-1)


def test_a_pair_has_a_pair_of_degrees():
    layer = DegreeMaskedAttention(8, 2)
    with pytest.raises(ValueError, match="'degree' must be a pair for a pair 'x'"):
        layer((torch.randn(10, 8), torch.randn(1, 8)), torch.tensor([3]))


@pytest.mark.compiled
# numbers as symbols would trace each graph twice
@torch._dynamo.config.patch(specialize_float=True)
def test_compiles_whole_with_degrees_from_edges():
    layer = DegreeMaskedAttention(8, max_degree=40)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend='aot_eager')
    for num_nodes in (12, 20, 31):
        x = torch.randn(num_nodes, 8, requires_grad=True)
        edges = torch.randint(num_nodes, (2, 3 * num_nodes))
        edges = torch.cat([edges, edges[:, :5], edges[:, :3].flip(0)], 1)
        out, expected = compiled(x, edge_index=edges), layer(x, edge_index=edges)
        torch.testing.assert_close(out, expected)
        torch.testing.assert_close(
            torch.autograd.grad(out.square().sum(), x),
            torch.autograd.grad(expected.square().sum(), x),
        )
