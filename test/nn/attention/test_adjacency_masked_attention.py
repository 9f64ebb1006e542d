import pytest
import torch

from torch_geometric_lgt.nn import AdjacencyMaskedAttention, KernelAttentionConv

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


def test_one_neighbour_and_repr():
    layer = AdjacencyMaskedAttention(4)
    x = torch.randn(3, 4)
    out = layer(x, torch.tensor([[2, 1], [0, 1]]))
    torch.testing.assert_close(out, torch.stack([x[2], x[1], torch.zeros(4)]))
    assert repr(layer) == 'AdjacencyMaskedAttention(4, heads=1)'
    with pytest.raises(ValueError, match="'heads' must divide"):
        AdjacencyMaskedAttention(4, heads=3)
