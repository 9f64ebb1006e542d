"""A batch vector in the place of the edges is an error, also where no edges are read."""

import re

import pytest
import torch
from torch_geometric import EdgeIndex
from torch_geometric.typing import WITH_TORCH_SPARSE
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csr_tensor

from torch_geometric_lgt import nn
from torch_geometric_lgt.functional import sorted_edges
from torch_geometric_lgt.typing import SparseTensor

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 0, 3]])
BATCH = torch.tensor([0, 0, 0, 1, 1])
UNUSED = {
    'difformer_conv': lambda: nn.DIFFormerConv(4, 8, use_graph=False),
    'difformer_sigmoid': lambda: nn.DIFFormerConv(4, 8, kernel='sigmoid', use_graph=False),
    'gps_conv': lambda: nn.GPSConv(4, None),
    'gps_multihead': lambda: nn.GPSConv(4, None, attn_type='multihead'),
    'kernel_conv': lambda: nn.KernelAttentionConv(4, 8),
    'mean': lambda: nn.MeanAttention(4, 8),
    'sgformer_conv': lambda: nn.SGFormerConv(4, 8),
    'difformer': lambda: nn.DIFFormer(4, 8, 3, use_graph=False),
    'graph_transformer': lambda: nn.GraphTransformer(4, 8, 3, conv=None),
    'nodeformer': lambda: nn.NodeFormer(4, 8, 3, relational_order=0),
}
USED = {
    'difformer_conv_graph': lambda: nn.DIFFormerConv(4, 8),
    'kernel_conv_bias': lambda: nn.KernelAttentionConv(4, 8, relational_order=1),
    'difformer_graph': lambda: nn.DIFFormer(4, 8, 3),
    'graph_transformer_conv': lambda: nn.GraphTransformer(4, 8, 3),
    'litegt': lambda: nn.LiteGT(4, 8, 3, kernel='subtractor'),
    'nodeformer_bias': lambda: nn.NodeFormer(4, 8, 3),
    'sgformer': lambda: nn.SGFormer(4, 8, 3),
}
HINT = r"'edge_index' must have shape \[2, E\] \(got \(5,\)\); give the batch vector as batch=batch"


@pytest.mark.parametrize('name', [*UNUSED, *USED])
def test_a_batch_vector_as_edges(name):
    module, x = {**UNUSED, **USED}[name](), torch.randn(5, 4)
    with pytest.raises(ValueError, match=HINT):
        module(x, BATCH)
    with pytest.raises(ValueError, match=r'\[2, E\] \(got \(4, 2\)\); transpose it'):
        module(x, EDGES.t())
    with pytest.raises(
        ValueError,
        match=r'\(got \(0,\)\); a graph without edges has torch.empty\(2, 0, dtype=torch.long\)$',
    ):
        module(x, torch.tensor([]))


@pytest.mark.parametrize(
    ('make', 'fix'),
    [
        (
            lambda: nn.DIFFormerConv(4, 8),
            'for attention alone make the layer with use_graph=False',
        ),
        (
            lambda: nn.GraphTransformer(4, 8, 3),
            'for attention alone make the model with conv=None',
        ),
        (
            lambda: nn.LiteGT(4, 8, 3),
            'each node attends to its neighbours; for attention to all nodes take '
            'GraphTransformer(conv=None)',
        ),
        *(
            (
                lambda options=options: nn.SGFormer(4, 8, 3, **options),
                'the local branch reads the edges, whatever alpha is; for attention alone take '
                "GraphTransformer(conv=None, attn_type='sgformer')",
            )
            for options in ({}, {'alpha': 0}, {'aggregate': 'cat'})
        ),
    ],
)
def test_edges_that_are_missing(make, fix):
    message = f"'edge_index' must be given; {fix}"
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        make()(torch.randn(5, 4), None)


def test_the_models_that_are_named_for_attention_alone_need_no_edges():
    for options in ({}, {'attn_type': 'sgformer', 'heads': 1}):
        model = nn.GraphTransformer(4, 8, 3, conv=None, **options)
        assert model(torch.randn(5, 4), None).shape == (5, 3)


@pytest.mark.parametrize('name', [*UNUSED, *USED])
def test_other_types_as_edges(name):
    module, x = {**UNUSED, **USED}[name](), torch.randn(5, 4)
    for wrong in (3, 'edges', EDGES.numpy(), EDGES.tolist()):
        with pytest.raises(TypeError, match=r"'edge_index' must be a tensor \[2, E\] or a sparse"):
            module(x, wrong)


@pytest.mark.parametrize('name', [*UNUSED, *USED])
def test_edges_as_a_batch_vector(name):
    module, x = {**UNUSED, **USED}[name](), torch.randn(5, 4)
    with pytest.raises(ValueError, match=r"one graph id per node .*; give edges as 'edge_index'"):
        module(x, EDGES, EDGES)
    with pytest.raises(ValueError, match=r"float32\); give weights of edges as 'edge_weight'"):
        module(x, EDGES, torch.ones(4))


@pytest.mark.parametrize('name', UNUSED)
def test_other_formats_of_unused_edges(name):
    module, x = UNUSED[name]().eval(), torch.randn(5, 4)
    formats = [
        EDGES.int(),
        EDGES[:, :0],
        EdgeIndex(EDGES, sparse_size=(5, 5)),
        to_torch_coo_tensor(EDGES, size=5).t(),
        to_torch_csr_tensor(EDGES, size=5),
        sorted_edges(EDGES, 5, 5),
    ]
    if WITH_TORCH_SPARSE:
        formats.append(SparseTensor.from_edge_index(EDGES, sparse_sizes=(5, 5)).t())
    expected = module(x, None)
    for edges in formats:
        torch.testing.assert_close(module(x, edges), expected)


def test_other_pairs():
    x = torch.randn(5, 4)
    with pytest.raises(ValueError, match=r"'pairs' must have shape \[2, E\] \(got \(5,\)\)"):
        nn.SGFormer(4, 8, 3).attention_scores(x, EDGES, BATCH)
    with pytest.raises(ValueError, match=r"'edge_index' must have shape \[2, E\] \(got \(5,\)\)"):
        nn.SGFormerConv(4, 8).attention_scores(x, BATCH)


def test_message_passing_keeps_its_formats():
    class Dense(torch.nn.Module):
        def forward(self, x, matrix):
            return matrix @ x

    out = nn.GPSConv(4, Dense())(torch.randn(5, 4), torch.eye(5))
    assert out.shape == (5, 4)


@pytest.mark.parametrize('name', ['kernel_conv', 'sgformer_conv', 'mean', 'graph_transformer'])
def test_exported_programs(name):
    module, x = UNUSED[name]().eval(), torch.randn(5, 4)
    program = torch.export.export(module, (x, EDGES)).module()
    torch.testing.assert_close(program(x, EDGES), module(x, EDGES))
    with pytest.raises(ValueError, match=HINT):
        torch.export.export(module, (x, BATCH))
