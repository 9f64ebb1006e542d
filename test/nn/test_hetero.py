import pytest
import torch
from torch_geometric.nn import HeteroConv

from torch_geometric_lgt.nn import DIFFormerConv, KernelAttentionConv, SGFormerConv

KINDS = [('user', 'rates', 'item'), ('item', 'rated_by', 'user'), ('user', 'knows', 'user')]


@pytest.mark.parametrize('layer', [KernelAttentionConv, DIFFormerConv, SGFormerConv])
def test_layers_in_heterogeneous_models(layer):
    """Each edge type has a layer of its own, from all its sources to all its targets; the results of a target type add up."""
    convs = {kind: layer(6, 8, heads=2) for kind in KINDS}
    x = {'user': torch.randn(7, 6), 'item': torch.randn(5, 6)}
    edges = {kind: torch.stack([torch.randint(x[kind[0]].size(0), (9,)), torch.randint(x[kind[2]].size(0), (9,))]) for kind in KINDS}
    out = HeteroConv(convs, aggr='sum')(x, edges)
    for name in x:
        parts = [convs[kind]((x[kind[0]], x[name]), edges[kind]) for kind in KINDS if kind[2] == name]
        torch.testing.assert_close(out[name], torch.stack(parts).sum(0))
