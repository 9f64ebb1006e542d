import re

import pytest
import torch
from torch.nn.functional import dropout

from torch_geometric_lgt.nn import DIFFormer
from torch_geometric_lgt.nn.models._graph_context import GraphContext

EDGES = torch.tensor([[0, 2, 3, 1, 4, 5], [2, 3, 7, 4, 5, 6]])


@pytest.mark.parametrize('use_source', [False, True])
@pytest.mark.parametrize('tau', [0.3, 1.0])
def test_steps_by_hand(tau, use_source):
    model = DIFFormer(6, 4, 3, tau=tau, use_source=use_source).double()
    x = torch.randn(8, 6, dtype=torch.float64)
    z = first = torch.relu(model.norms[0](model.lin_in(x)))
    for conv, norm in zip(model.convs, model.norms[1:], strict=True):
        z = norm((1 - tau) * z + tau * (conv(z, EDGES) + use_source * first))
    torch.testing.assert_close(model(x, EDGES), model.lin_out(z))


def test_step_of_the_paper():
    options = {'use_graph': False, 'layer_norm': False, 'value_projection': False}
    model = DIFFormer(6, 4, 3, tau=0.3, act='tanh', **options).double()
    with torch.no_grad():
        for conv in model.convs:  # the paper has no maps of queries and keys
            for lin in (conv.lin_query, conv.lin_key):
                lin.weight.copy_(torch.eye(4))
                lin.bias.zero_()
    x = torch.randn(8, 6, dtype=torch.float64)
    z = model.lin_in(x).tanh()
    for _ in model.convs:
        unit = z / z.norm(dim=1, keepdim=True)
        weight = 1 + unit @ unit.t()
        weight = weight / weight.sum(1, keepdim=True)
        z = (1 - 0.3) * z + 0.3 * weight @ z
    torch.testing.assert_close(model(x, None), model.lin_out(z))


def test_options_reach_the_layers():
    model = DIFFormer(6, 4, 3, 1, 2, 'sigmoid', 'frobenius', graph_weight=0.5)
    assert (
        model.convs[0].heads,
        model.convs[0].kernel,
        model.convs[0].norm,
        model.convs[0].graph_weight,
    ) == (
        2,
        'sigmoid',
        'frobenius',
        0.5,
    )
    model = DIFFormer(6, 4, 3, use_graph=False, layer_norm=False)
    assert model(torch.randn(8, 6), None).shape == (8, 3)
    assert not any(isinstance(module, torch.nn.LayerNorm) for module in model.modules())


def test_dropout_in_training_only():
    model, x = DIFFormer(6, 4, 3, dropout=0.5), torch.randn(8, 6)
    torch.manual_seed(1)
    actual = model(x, EDGES)
    torch.manual_seed(1)
    z = dropout(torch.relu(model.norms[0](model.lin_in(x))))
    for conv, norm in zip(model.convs, model.norms[1:], strict=True):
        z = dropout(norm((z + conv(z, EDGES)) / 2))
    torch.testing.assert_close(actual, model.lin_out(z))
    assert torch.equal(model.eval()(x, EDGES), model(x, EDGES))


def test_repr_and_errors():
    assert repr(DIFFormer(6, 4, 3)) == 'DIFFormer(6, 4, 3, num_layers=2)'
    for tau in (0.0, 1.5):
        with pytest.raises(ValueError, match="'tau' must be above 0 and at most 1"):
            DIFFormer(6, 4, 3, tau=tau)
    with pytest.raises(ValueError, match="'edge_index' must be given"):
        DIFFormer(6, 4, 3)(torch.randn(8, 6), None)


def test_the_number_of_keys_has_bounds():
    model, x, edges = DIFFormer(4, 8, 3), torch.randn(5, 4), torch.empty(2, 0, dtype=torch.long)
    states = [
        conv.attention_state(z)
        for conv, z in zip(model.convs, model.layers(x, GraphContext(edges)), strict=False)
    ]
    for num_keys in (-1, 6, 2.5, True):
        message = "'num_keys' must be a whole number between 0 and the number of nodes, 5 (got "
        with pytest.raises(ValueError, match=re.escape(f'{message}{num_keys})')):
            model(x, edges, states=states, num_keys=num_keys)
