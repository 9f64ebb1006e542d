import pytest
import torch

from benchmarks.one_layer import compare, layer_weights, single_layer, spread, step


@pytest.mark.parametrize('tau', [0.3, 1.0])
def test_one_layer_is_all_of_them(tau):
    torch.manual_seed(0)
    x = torch.randn(12, 5, dtype=torch.double)
    weights = layer_weights(x, 4, tau)
    actual = compare(x, weights, tau)
    assert actual.difference < 1e-14
    assert actual.single == pytest.approx(actual.stacked[-1], rel=1e-12)
    assert len(actual.stacked) == 4
    one, share = single_layer(weights, tau)
    assert share == pytest.approx(1 - (1 - tau) ** 4)
    torch.testing.assert_close(one.sum(1), torch.ones(12, dtype=torch.double))
    assert one.min() > 0
    torch.testing.assert_close(single_layer(weights[:1], tau)[0], weights[0])


def test_layers_see_the_output_of_those_before():
    torch.manual_seed(1)
    x = torch.randn(6, 3, dtype=torch.double)
    torch.manual_seed(2)
    first, second = layer_weights(x, 2, 0.5)
    assert not torch.allclose(first, second)
    torch.manual_seed(2)
    torch.testing.assert_close(layer_weights(x, 1, 0.5)[0], first)
    a, b = x[0], x[1]
    torch.testing.assert_close(torch.tensor(spread(x[:2])).double(), (a - b).square().sum() / 2)
    torch.testing.assert_close(step(x, torch.eye(6, dtype=torch.double), 0.4), x)
