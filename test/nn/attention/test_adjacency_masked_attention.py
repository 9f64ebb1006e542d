import pytest
import torch

from torch_geometric_lgt.nn import AdjacencyMaskedAttention, FeatureMap, KernelAttentionConv

PAIRS = torch.cartesian_prod(torch.arange(6), torch.arange(6)).t()


@pytest.mark.parametrize('key_channels', [None, 4])
@pytest.mark.parametrize('value_projection', [False, True])
@pytest.mark.parametrize('feature_map', ['simplex', 'elu', 'fourier', torch.nn.Softplus()])
def test_all_pairs_as_edges_give_all_pair_attention(feature_map, value_projection, key_channels):
    torch.manual_seed(0)
    arguments = {
        'feature_map': feature_map,
        'value_projection': value_projection,
        'key_channels': key_channels,
    }
    layer = AdjacencyMaskedAttention(8, 2, **arguments).double()
    full = KernelAttentionConv(8, 8, 2, **arguments).double()
    full.load_state_dict(layer.state_dict())
    x = torch.randn(6, 8, dtype=torch.float64)
    torch.testing.assert_close(layer(x, PAIRS), full(x), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        layer((x, x[:2]), PAIRS[:, PAIRS[1] < 2]), full(x)[:2], rtol=1e-9, atol=1e-9
    )


def test_a_focused_map_keeps_its_power():
    phi = FeatureMap('focused', 4, power=2.0)
    layer = AdjacencyMaskedAttention(8, 2, phi)
    full = KernelAttentionConv(8, 8, 2, feature_map=phi, value_projection=False)
    full.load_state_dict(layer.state_dict())
    x = torch.randn(6, 8)
    torch.testing.assert_close(layer(x, PAIRS), full(x))


def test_one_neighbour_and_repr():
    layer = AdjacencyMaskedAttention(4)
    x = torch.randn(3, 4)
    out = layer(x, torch.tensor([[2, 1], [0, 1]]))
    torch.testing.assert_close(out, torch.stack([x[2], x[1], torch.zeros(4)]))
    assert repr(layer) == 'AdjacencyMaskedAttention(4, heads=1)'
    with pytest.raises(ValueError, match="'heads' must divide 'channels'"):
        AdjacencyMaskedAttention(4, heads=3)


@pytest.mark.parametrize('feature_map', ['simplex', 'elu', 'learned', torch.nn.Softplus()])
def test_scores_are_the_weights_of_the_output(feature_map):
    """Weighted and repeated edges, a target without an edge, a pair of sources and targets."""
    torch.manual_seed(0)
    layer = AdjacencyMaskedAttention(8, 2, feature_map, value_projection=True).double()
    x = torch.randn(6, 8, dtype=torch.float64), torch.randn(5, 8, dtype=torch.float64)
    edges = torch.stack([torch.randint(6, (20,)), torch.randint(4, (20,))])
    edges = torch.cat([edges, edges[:, :3]], 1)
    for weight in (None, torch.rand(23, dtype=torch.float64)):
        scores = layer.attention_scores(x, edges, edge_weight=weight)
        value = layer.lin_value(x[0]).unflatten(1, (2, 4))
        expected = torch.zeros(5, 2, 4, dtype=torch.float64).index_add_(
            0, edges[1], scores[..., None] * value[edges[0]]
        )
        torch.testing.assert_close(
            layer(x, edges, edge_weight=weight), expected.flatten(1), rtol=1e-10, atol=1e-12
        )
        sums = torch.zeros(5, 2, dtype=torch.float64).index_add_(0, edges[1], scores)
        torch.testing.assert_close(sums, (torch.arange(5) < 4).double()[:, None].expand(5, 2))


def test_scores_stay_finite_for_distant_nodes():
    """Beside a key of another target that is far more similar, the weights do not vanish."""
    layer = AdjacencyMaskedAttention(4)
    x = 300 * torch.randn(3, 4)
    scores = layer.attention_scores(x, torch.tensor([[0, 1, 2], [0, 1, 1]])).detach()
    assert scores[0] == 1
    assert scores[1] + scores[2] == pytest.approx(1)
