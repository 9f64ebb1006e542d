"""Every choice by name is refused by one sentence, which ends in the most similar name."""

import re
from collections import UserList

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

from torch_geometric_lgt import nn
from torch_geometric_lgt.datasets import InteractionDataset, SBMDataset
from torch_geometric_lgt.functional import alignment_uniformity, gaussian_projection
from torch_geometric_lgt.loader import NeighborSampler
from torch_geometric_lgt.transforms import AttentionNodeSampling, JaccardScores, LaplacianPE

MAPS = "'positive', 'orthogonal', 'simplex', 'fourier', 'elu', 'relu', 'focused', 'learned'"
KERNELS = "'softmax', 'jaccard', 'subtractor', 'mean', or two of them"
POOLS = "'mean', 'sum', 'add', 'max', or an Aggregation of torch_geometric.nn.aggr"
CASES = {
    'feature_map': (lambda v: nn.NodeFormer(4, 8, 2, feature_map=v), 'simplx', 'simplex', None),
    'kind': (lambda v: nn.FeatureMap(v, 8), 'simplx', 'simplex', MAPS),
    'gumbel_evaluation': (
        lambda v: nn.KernelAttentionConv(4, 8, gumbel_evaluation=v),
        'temper',
        'tempered',
        "'softmax', 'tempered'",
    ),
    'relational_input': (
        lambda v: nn.KernelAttentionConv(4, 8, relational_input=v),
        'values',
        'value',
        "'value', 'output'",
    ),
    'relational_weight': (
        lambda v: nn.KernelAttentionConv(4, 8, relational_weight=v),
        'Sigmoid',
        'sigmoid',
        "'sigmoid', 'identity'",
    ),
    'norm': (lambda v: nn.SGFormer(4, 8, 2, norm=v), 'rows', 'row', "'row', 'frobenius'"),
    'kernel': (lambda v: nn.LiteGT(4, 8, 2, kernel=v), 'jacard', 'jaccard', KERNELS),
    'level': (
        lambda v: nn.GraphTransformer(4, 8, 2, level=v),
        'graphs',
        'graph',
        "'node', 'edge', 'graph'",
    ),
    'aggr': (
        lambda v: nn.GraphTransformer(4, 8, 2, level='graph', aggr=v),
        'maximum',
        'max',
        POOLS,
    ),
    'aggregate': (lambda v: nn.SGFormer(4, 8, 2, aggregate=v), 'concat', 'cat', "'add', 'cat'"),
    'gnn_input': (
        lambda v: nn.SGFormer(4, 8, 2, gnn_input=v),
        'inputs',
        'input',
        "'hidden', 'input'",
    ),
    'gnn_residual': (
        lambda v: nn.SGFormer(4, 8, 2, gnn_residual=v),
        'init',
        'initial',
        "False, True, 'initial'",
    ),
    'mask': (
        lambda v: nn.MGFormer(2, 3, mask=v),
        'degrees',
        'degree',
        "'degree', 'adjacency', 'none'",
    ),
    'measure': (lambda v: AttentionNodeSampling(measure=v), 'jac', 'jaccard', "'jaccard', 'lse'"),
    'neighbors': (lambda v: JaccardScores(neighbors=v), 'inn', 'in', "'all', 'in', 'out'"),
    'normalization': (lambda v: LaplacianPE(2, v), 'symm', 'sym', "'sym', 'rw'"),
    'split': (lambda v: SBMDataset('', 'PATTERN', v), 'valid', 'val', "'train', 'val', 'test'"),
    'name': (lambda v: SBMDataset('', v), 'pattern', 'PATTERN', "'PATTERN', 'CLUSTER'"),
    'geometry': (
        lambda v: gaussian_projection(4, 4, v),
        'ortho',
        'orthogonal',
        "'positive', 'orthogonal', 'simplex'",
    ),
    'variant': (
        lambda v: alignment_uniformity(torch.ones(2, 2), torch.ones(2, 2), variant=v),
        'direct',
        'directau',
        "'directau', 'paper'",
    ),
    'temporal_strategy': (
        lambda v: NeighborSampler(Data(num_nodes=1), [1], temporal_strategy=v),
        'latest',
        'last',
        "'uniform', 'last'",
    ),
    'subgraph_type': (
        lambda v: NeighborSampler(Data(num_nodes=1), [1], subgraph_type=v),
        'induce',
        'induced',
        "'directional', 'bidirectional', 'induced'",
    ),
    'scoring': (
        lambda v: setattr(nn.MGFormer(2, 3), 'scoring', v),
        'cos',
        'cosine',
        "'inner', 'cosine', or a finite exponent of the items' degrees",
    ),
}


@pytest.mark.parametrize('name', CASES)
def test_the_most_similar_name_is_asked_for(name):
    make, value, meant, choices = CASES[name]
    choices = f'{MAPS} or a module' if choices is None else choices
    message = f"'{name}' must be one of {choices} (got {value!r}); did you mean {meant!r}?"
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        make(value)


def test_a_name_without_a_similar_one_gets_no_question():
    with pytest.raises(ValueError, match=r"^'norm' must be one of 'row', 'frobenius' \(got 7\)$"):
        nn.SGFormer(4, 8, 2, norm=7)
    message = "'norm' must be one of 'batch_norm', 'layer_norm', None (got 'batch'); did you mean "
    with pytest.raises(ValueError, match=f"^{re.escape(message)}'batch_norm'\\?$"):
        nn.GraphTransformer(4, 8, 2, norm='batch')
    message = "'split' must be one of None, 'given', 'ratio', 'leave-one-out' (got 'leave'); did "
    with pytest.raises(ValueError, match=f"^{re.escape(message)}you mean 'leave-one-out'\\?$"):
        InteractionDataset('', 'shop', split='leave')


def test_activations():
    message = (
        "'act' must be the name of an activation of torch.nn, such as 'relu', or a module (got "
        "'rellu'); did you mean 'ReLU'?"
    )
    for make in (
        lambda act: nn.NodeFormer(4, 8, 2, act=act),
        lambda act: nn.GraphTransformer(4, 8, 2, num_layers=1, act=act),
        lambda act: nn.GraphTransformer(4, 8, 2, gate=True, act=act),
        lambda act: nn.GPSConv(8, None, act=act),
    ):
        with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
            make('rellu')
        make(torch.nn.GELU())
        for value in (None, 3):
            with pytest.raises(ValueError, match=f"^'act' must be the name .* \\(got {value}\\)"):
                make(value)
    conv = nn.GPSConv(8, None, act='leaky_relu', act_kwargs={'negative_slope': 0.3})
    assert conv.mlp[1].negative_slope == 0.3


def test_the_message_says_how_to_leave_out_an_activation():
    """The models of PyG take ``act=None``."""
    with pytest.raises(ValueError, match=r'\(got None\); for none give torch\.nn\.Identity\(\)$'):
        nn.SGFormer(4, 8, 2, act=None)
    model = nn.SGFormer(4, 8, 2, act=torch.nn.Identity(), layer_norm=False)
    x = torch.randn(3, 4)
    torch.testing.assert_close(model.input_layer(x), model.lin_in(x))


def test_a_class_in_the_place_of_an_activation():
    with pytest.raises(ValueError, match=r"'act' must be a name or a module, such as ReLU\(\)"):
        nn.GPSConv(8, None, act=torch.nn.ReLU)


@pytest.mark.parametrize('kernel', [None, 3, ('softmax',)])
def test_kernels_that_are_no_names(kernel):
    got = re.escape(repr(kernel))
    with pytest.raises(ValueError, match=f"^'kernel' must be one or two of .* \\(got {got}\\)$"):
        nn.JaccardSubtractorConv(4, 8, kernel=kernel)


def test_any_sequence_is_a_pair():
    """Files of settings have lists, and OmegaConf has a sequence of its own."""
    channels, kernels = UserList([4, 3]), UserList(['softmax', 'mean'])
    conv = nn.JaccardSubtractorConv(channels, 16, kernel=kernels)
    assert repr(conv).endswith("kernels=('softmax', 'mean'))")
    assert (conv.source_channels, conv.target_channels) == (4, 3)


NUMBERS = {
    'temperature': lambda v: nn.KernelAttentionConv(4, 8, temperature=v),
    'scale': lambda v: nn.KernelAttentionConv(4, 8, scale=v),
    'power': lambda v: nn.FeatureMap('focused', 4, power=v),
    'graph_weight': lambda v: nn.DIFFormerConv(4, 8, graph_weight=v),
    'tau': lambda v: nn.DIFFormer(4, 8, 2, tau=v),
    'alpha': lambda v: nn.SGFormer(4, 8, 2, alpha=v),
    'beta': lambda v: nn.SGFormer(4, 8, 2, beta=v),
    'gnn_dropout': lambda v: nn.SGFormer(4, 8, 2, gnn_dropout=v),
    'encoding_scale': lambda v: nn.MGFormer(1, 1, encoding_scale=v),
    'dropout': lambda v: nn.GPSConv(8, None, dropout=v),
    'input_dropout': lambda v: nn.GraphTransformer(4, 8, 2, num_layers=1, input_dropout=v),
}


@pytest.mark.parametrize('name', NUMBERS)
def test_texts_in_the_place_of_numbers(name):
    """A command line without ``type=float`` gives texts."""
    with pytest.raises(ValueError, match=rf"^'{name}' must be a number \(got '1\.0'\)$"):
        NUMBERS[name]('1.0')


@pytest.mark.parametrize('number', [1, np.float32(0.5), torch.tensor(0.5)])
def test_numbers(number):
    assert nn.DIFFormerConv(4, 8, graph_weight=number).graph_weight == number
    assert nn.KernelAttentionConv(4, 8, temperature=number).temperature == number


LAYER_FLAGS = ('concat', 'value_projection', 'bias')
FLAGS = {
    nn.KernelAttentionConv: (4, 4, LAYER_FLAGS),
    nn.DIFFormerConv: (4, 4, ('use_graph',)),
    nn.JaccardSubtractorConv: (4, 8, ('normalize',)),
    nn.NodeFormer: (4, 8, 2, ('residual', 'layer_norm', 'activate_layers', 'jumping_knowledge')),
    nn.DIFFormer: (4, 8, 2, ('use_graph', 'use_source', 'value_projection')),
    nn.SGFormer: (4, 8, 2, ('gnn_use_init', 'value_projection')),
    nn.LiteGT: (4, 8, 2, ('normalize', 'reduce')),
    nn.MGFormer: (2, 3, ('residual',)),
}


@pytest.mark.parametrize('cls', FLAGS)
def test_texts_in_the_place_of_flags(cls):
    """Any text counts as true, also ``'False'`` or the next argument of a call by position."""
    *sizes, names = FLAGS[cls]
    for name in names:
        with pytest.raises(ValueError, match=rf"^'{name}' must be True or False \(got 'False'\)$"):
            cls(*sizes, **{name: 'False'})


@pytest.mark.parametrize('cls', FLAGS)
def test_flags_of_numpy(cls):
    """A condition of NumPy, such as ``array.max() > 1``, is a flag."""
    *sizes, names = FLAGS[cls]
    flags = {name: name != 'reduce' for name in names}
    made = cls(*sizes, **{name: np.bool_(flag) for name, flag in flags.items()})
    expected = cls(*sizes, **flags).state_dict()
    assert {name: value.shape for name, value in made.state_dict().items()} == {
        name: value.shape for name, value in expected.items()
    }


def test_a_feature_map_in_the_place_of_concat():
    with pytest.raises(ValueError, match=r"^'concat' must be True or False \(got 'elu'\)$"):
        nn.KernelAttentionConv(4, 8, 2, 'elu')
