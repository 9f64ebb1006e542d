import pytest
import torch
from torch_geometric.nn import to_hetero

from torch_geometric_lgt.nn import DIFFormerConv, KernelAttentionConv, SGFormerConv

METADATA = ['user', 'item'], [('user', 'rates', 'item'), ('item', 'rated_by', 'user'), ('user', 'knows', 'user')]


class Net(torch.nn.Module):
    def __init__(self, conv):
        super().__init__()
        self.conv, self.lin = conv, torch.nn.Linear(8, 3)

    def forward(self, x, edge_index):
        return self.lin(self.conv(x, edge_index).relu())


@pytest.mark.parametrize('layer', [KernelAttentionConv, DIFFormerConv, SGFormerConv])
def test_layers_in_heterogeneous_models(layer):
    """Each edge type has a layer of its own, from all its sources to all its targets; the results of a target type add up."""
    model = to_hetero(Net(layer(6, 8, heads=2)), METADATA, aggr='sum')
    x = {'user': torch.randn(7, 6), 'item': torch.randn(5, 6)}
    sizes = {name: part.size(0) for name, part in x.items()}
    edges = {kind: torch.stack([torch.randint(sizes[kind[0]], (9,)), torch.randint(sizes[kind[2]], (9,))]) for kind in METADATA[1]}
    out = model(x, edges)
    assert {name: part.shape for name, part in out.items()} == {'user': (7, 3), 'item': (5, 3)}
    convs = {kind: model.conv['__'.join(kind)] for kind in METADATA[1]}
    own = ('user', 'rates', 'item')
    torch.testing.assert_close(out['item'], model.lin['item'](convs[own]((x['user'], x['item']), edges[own]).relu()))
    user = sum(convs[kind]((x[kind[0]], x['user']), edges[kind]) for kind in METADATA[1] if kind[2] == 'user')
    torch.testing.assert_close(out['user'], model.lin['user'](user.relu()))
