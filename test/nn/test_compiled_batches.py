"""Batches without ``batch_size`` under torch.compile: the graph breaks once, where ids are read."""

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from torch_geometric_lgt import functional, nn
from torch_geometric_lgt.functional import kernel_attention, linear_attention

# Each is called with features, edges and batch vector.
MODULES = {
    'kernel': lambda: nn.KernelAttentionConv(8, 8, heads=2),
    'degree': lambda: nn.DegreeMaskedAttention(8, heads=2, max_degree=3),
    'sgformer': lambda: nn.SGFormerConv(8, 8),
    'difformer': lambda: nn.DIFFormerConv(8, 8),
    'mean': lambda: nn.MeanAttention(8, 8),
    'gps': lambda: nn.GPSConv(8, None, 2),
    'SGFormer': lambda: nn.SGFormer(8, 8, 3, num_layers=1, gnn=None),
    'DIFFormer': lambda: nn.DIFFormer(8, 8, 3, num_layers=1),
    'NodeFormer': lambda: nn.NodeFormer(8, 8, 3, num_layers=1, num_features=4),
    'GraphTransformer': lambda: nn.GraphTransformer(8, 8, 3, num_layers=1),
    'LiteGT': lambda: nn.LiteGT(8, 8, 3, num_layers=1, heads=2, kernel='subtractor'),
}


def rings(num_graphs, nodes=6):
    """Features, edges and batch vector of rings."""
    node = torch.arange(num_graphs * nodes)
    successor = node + 1 - nodes * (node % nodes == nodes - 1)
    edges = torch.stack([torch.cat([node, successor]), torch.cat([successor, node])])
    return torch.randn(node.numel(), 8), edges, node // nodes


@pytest.mark.compiled
@pytest.mark.parametrize('name', MODULES)
def test_one_graph_for_any_number_of_graphs(name):
    torch.manual_seed(0)
    module, counter = MODULES[name]().eval(), CompileCounter()
    compiled = torch.compile(module, dynamic=True, backend=counter)
    for num_graphs in (3, 5):
        x, edges, batch = rings(num_graphs)
        between = torch.arange(x.size(0)) % 3 if name == 'degree' else edges
        torch.testing.assert_close(compiled(x, between, batch), module(x, between, batch))
    assert counter.frame_count == 1


@pytest.mark.compiled
@torch._dynamo.config.patch(recompile_limit=1)
def test_compiled_models_of_one_process_share_no_limit():
    """All models had one code object, whose compilations are limited, and later ones ran without
    compilation."""
    graph = rings(3)
    for name in ('SGFormer', 'DIFFormer', 'NodeFormer', 'GraphTransformer', 'LiteGT'):
        module, counter = MODULES[name]().eval(), CompileCounter()
        torch.compile(module, dynamic=True, backend=counter)(*graph, batch_size=3)
        assert counter.frame_count == 1, name


@pytest.mark.compiled
@pytest.mark.parametrize('options', [{}, {'batch_size': 1}])
@pytest.mark.parametrize('name', ['difformer', 'NodeFormer'])
def test_a_batch_of_one_graph(name, options):
    """Its outputs have the number of rows of the input, which a sum over edges after them needs."""
    torch.manual_seed(0)
    module, counter = MODULES[name]().eval(), CompileCounter()
    compiled = torch.compile(module, dynamic=True, backend=counter, fullgraph=bool(options))
    for nodes in (6, 9):
        x, edges, batch = rings(1, nodes)
        torch.testing.assert_close(compiled(x, edges, batch, **options), module(x, edges))
    assert counter.frame_count == 1


@pytest.mark.compiled
@pytest.mark.parametrize('dynamic', [None, True])
@pytest.mark.parametrize('attention', [kernel_attention, linear_attention])
def test_functions(attention, dynamic):
    """The targets have fewer graphs than the sources."""
    torch.manual_seed(0)
    k, q, counter = torch.randn(18, 2, 4), torch.randn(5, 2, 4), CompileCounter()
    batch = torch.arange(18) // 6, torch.tensor([0, 1, 0, 1, 1])
    options = {'feature_map': 'elu'} if attention is kernel_attention else {}
    compiled = torch.compile(attention, backend=counter, dynamic=dynamic)
    torch.testing.assert_close(
        compiled(q, k, k, batch=batch, **options), attention(q, k, k, batch=batch, **options)
    )
    assert counter.frame_count == 1


@pytest.mark.compiled
def test_a_state_has_the_number_of_graphs():
    """Its last graph has no target: one whole graph without counting."""
    torch.manual_seed(0)
    layer, (x, _, batch) = nn.KernelAttentionConv(8, 8, heads=2).eval(), rings(3)
    with torch.no_grad():
        state = layer.attention_state(x, batch)
    compiled = torch.compile(layer, fullgraph=True, backend='eager')
    arguments = x[:12], None, batch[:12]
    torch.testing.assert_close(compiled(*arguments, state=state), layer(*arguments, state=state))


@pytest.mark.compiled
def test_the_whole_graph_needs_the_number():
    x, _, batch = rings(3)
    compiled = torch.compile(nn.SGFormerConv(8, 8), fullgraph=True, backend='eager')
    with pytest.raises(torch._dynamo.exc.Unsupported, match="'batch_size' is needed with 'batch'"):
        compiled(x, None, batch)


def test_counted_only_where_nothing_tells_the_number(monkeypatch):
    count, batch = functional.segment.count_graphs, torch.tensor([2, 0, 2])
    assert count(batch, None) is None
    monkeypatch.setattr(torch.compiler, 'is_dynamo_compiling', lambda: True)
    assert count(batch, None) == 3
    assert count((batch, None), None, None) == 3
    assert count((batch[1:2], batch), None) == 3
    assert count(batch[:0], None) == 0
    assert count(batch, 7) == 7
    assert count(None, None) is None
    assert count(batch, None, None, object()) is None
