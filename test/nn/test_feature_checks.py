"""Features of another shape are named before edges are compared with the number of nodes."""

import re

import pytest
import torch
from torch_geometric.data import Data, HeteroData

from torch_geometric_lgt import nn

EDGES = torch.tensor([[0, 1, 2, 9], [1, 2, 0, 3]])
TYPES = 'for several types of nodes use to_homogeneous() of the data'
MODELS = {
    'difformer': lambda: nn.DIFFormer(4, 8, 3),
    'graph_transformer': lambda: nn.GraphTransformer(4, 8, 3),
    'litegt': lambda: nn.LiteGT(4, 8, 3, kernel='subtractor'),
    'nodeformer': lambda: nn.NodeFormer(4, 8, 3),
    'sgformer': lambda: nn.SGFormer(4, 8, 3),
}
LAYERS = {
    'adjacency_masked': lambda: nn.AdjacencyMaskedAttention(4),
    'degree_masked': lambda: nn.DegreeMaskedAttention(4),
    'difformer_conv': lambda: nn.DIFFormerConv(4, 8),
    'gps_conv': lambda: nn.GPSConv(4, None),
    'jaccard_subtractor': lambda: nn.JaccardSubtractorConv(4, 8, kernel='subtractor'),
    'kernel_conv': lambda: nn.KernelAttentionConv(4, 8, relational_order=1),
    'mean': lambda: nn.MeanAttention(4, 8),
    'sgformer_conv': lambda: nn.SGFormerConv(4, 8),
}


@pytest.mark.parametrize('name', [*MODELS, *LAYERS])
def test_features_of_another_shape(name):
    module = {**MODELS, **LAYERS}[name]()
    x = torch.randn(10, 4)
    for wrong in (x[None], x[:, :3], x[:, 0]):
        shape = str(tuple(wrong.shape)).replace('(', r'\(').replace(')', r'\)')
        with pytest.raises(ValueError, match=rf"'x' must have shape \[N, 4\] \(got {shape}\)"):
            module(wrong, edge_index=EDGES)


@pytest.mark.parametrize('name', [*MODELS, *LAYERS])
def test_features_that_are_no_tensor(name):
    module = {**MODELS, **LAYERS}[name]()
    x = torch.randn(10, 4)
    one = name in MODELS or name == 'gps_conv'
    pair = '' if one else ', or a pair of them for sources and targets'
    types = TYPES if one else f'{TYPES}, or to_hetero'
    for wrong, kind, fix in (
        (x.numpy(), 'ndarray', 'convert it with torch.as_tensor(x)'),
        (x.tolist(), 'list', 'convert it with torch.as_tensor(x)'),
        (Data(x=x, edge_index=EDGES), 'Data', 'give data.x and data.edge_index'),
        (HeteroData(), 'HeteroData', types),
        ({'user': x}, 'dict', types),
    ):
        message = f"'x' must be a torch.Tensor{pair} (got {kind}); {fix}"
        with pytest.raises(TypeError, match=f'^{re.escape(message)}$'):
            module(wrong, edge_index=EDGES)


STATES = [name for name, make in LAYERS.items() if hasattr(make(), 'attention_state')]


class Network(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, edge_index):
        return self.layer(x, edge_index=edge_index)


@pytest.mark.parametrize('name', LAYERS)
def test_layers_that_torch_fx_looks_into_ask_for_another_tracer(name):
    """A proxy has every attribute: the error asked for ``data.x``."""
    with pytest.raises(TypeError, match=r"\(got Proxy\); .* 'is_leaf_module' is true for the"):
        torch.fx.symbolic_trace(Network(LAYERS[name]()))


@pytest.mark.parametrize('name', STATES)
def test_states_of_features_that_are_no_tensor(name):
    """Three layers asked them for their size first."""
    layer, degree = LAYERS[name](), [torch.ones(10).long()] if name == 'degree_masked' else []
    for wrong, kind in ((None, 'NoneType'), (torch.randn(10, 4).tolist(), 'list')):
        with pytest.raises(TypeError, match=rf"^'x' must be a torch.Tensor \(got {kind}\)"):
            layer.attention_state(wrong, *degree)
    pair = torch.randn(10, 4), torch.randn(10, 4)
    with pytest.raises(TypeError, match=r"^'x' must be a torch.Tensor \(got tuple\)"):
        layer.attention_state(pair, *degree)


@pytest.mark.filterwarnings('ignore:The PyTorch API of nested tensors is in prototype')
@pytest.mark.parametrize('layout', [torch.jagged, torch.strided], ids=str)
@pytest.mark.parametrize('name', [*MODELS, *LAYERS])
def test_nested_features(name, layout):
    """Linear layers take them."""
    x = torch.nested.nested_tensor([torch.randn(3, 4), torch.randn(7, 4)], layout=layout)
    message = (
        "'x' must have the nodes of all graphs below each other (got a nested tensor); give "
        "torch.cat(x.unbind()), and the graph of each node as 'batch'"
    )
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        {**MODELS, **LAYERS}[name]()(x, edge_index=EDGES)


@pytest.mark.parametrize('name', sorted(LAYERS.keys() - {'gps_conv', 'degree_masked'}))
def test_pairs_of_features_that_are_no_tensors(name):
    x = torch.randn(10, 4)
    for pair, kind in (((x.numpy(), x), 'ndarray'), ((x, None), 'NoneType')):
        message = f"'x' must be a torch.Tensor (got {kind}); convert it with torch.as_tensor(x)"
        with pytest.raises(TypeError, match=f'^{re.escape(message)}$'):
            LAYERS[name]()(pair, edge_index=EDGES)


@pytest.mark.parametrize('name', MODELS)
def test_numbers_of_kinds_as_features(name):
    message = r'convert it with x.to\(torch.float32\)'
    with pytest.raises(ValueError, match=message + ', or numbers of kinds with one_hot or an Emb'):
        MODELS[name]()(torch.randint(9, (10, 4)), EDGES)
    with pytest.raises(ValueError, match=message + '$'):
        MODELS[name]()(torch.randn(10, 4).double(), EDGES)


@pytest.mark.parametrize('name', sorted(LAYERS.keys() - {'gps_conv', 'jaccard_subtractor', 'mean'}))
def test_sparse_features(name):
    layer, x = LAYERS[name](), torch.rand(10, 4)
    with pytest.raises(ValueError, match=r"'x' must be dense .* \(got torch.sparse_coo\)"):
        layer(x.to_sparse(), edge_index=EDGES)
    with pytest.raises(ValueError, match=r"'x' must be dense .* \(got torch.sparse_csr\)"):
        layer(x.to_sparse_csr(), edge_index=EDGES)


@pytest.mark.parametrize('name', sorted(MODELS.keys() - {'litegt'}))
def test_features_of_scores(name):
    x = torch.randn(10, 4)
    with pytest.raises(ValueError, match=r"'x' must have shape \[N, 4\] \(got \(1, 10, 4\)\)"):
        MODELS[name]().attention_scores(x[None], EDGES, EDGES)


@pytest.mark.parametrize('name', [*MODELS, *LAYERS])
def test_parameters_that_were_made_in_inference_mode(name):
    """Most of them got no gradients, without an error, as views of them have none."""
    with torch.inference_mode():
        module = {**MODELS, **LAYERS}[name]()
    x, edges = torch.randn(10, 4), EDGES
    with pytest.raises(ValueError, match=r'^the parameters must be made outside of torch\.infer'):
        module(x, edge_index=edges)
    with torch.no_grad():
        assert module.eval()(x, edge_index=edges).shape[0] == 10
    module.requires_grad_(False)
    assert not module(x, edge_index=edges).requires_grad
