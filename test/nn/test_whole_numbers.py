"""Every argument of a constructor that counts something must be a whole number."""

import re

import numpy as np
import pytest
import torch
from torch_geometric.nn import GCNConv

from torch_geometric_lgt import nn, transforms
from torch_geometric_lgt.nn import FeatureMap

LAYERS = {
    'KernelAttentionConv': {'in_channels': 8, 'out_channels': 8, 'feature_map': 'learned'},
    'DIFFormerConv': {'in_channels': 8, 'out_channels': 8},
    'SGFormerConv': {'in_channels': 8, 'out_channels': 8},
    'JaccardSubtractorConv': {'in_channels': 8, 'out_channels': 8, 'kernel': 'subtractor'},
    'MeanAttention': {'in_channels': 8, 'out_channels': 8},
    'GPSConv': {'channels': 8, 'conv': None},
    'DegreeMaskedAttention': {'channels': 8},
    'AdjacencyMaskedAttention': {'channels': 8},
    'NodeFormer': {'in_channels': 4, 'hidden_channels': 8, 'out_channels': 2},
    'DIFFormer': {'in_channels': 4, 'hidden_channels': 8, 'out_channels': 2},
    'SGFormer': {'in_channels': 4, 'hidden_channels': 8, 'out_channels': 2},
    'LiteGT': {
        'in_channels': 4,
        'hidden_channels': 8,
        'out_channels': 2,
        'num_layers': 1,
        'kernel': 'subtractor',
    },
    'GraphTransformer': {
        'in_channels': 4,
        'hidden_channels': 8,
        'out_channels': 2,
        'conv': 'GINEConv',
        'edge_channels': 3,
    },
    'MGFormer': {'num_users': 2, 'num_items': 3, 'embedding_dim': 8},
    'FeatureMap': {'kind': 'learned', 'channels': 8},
}
LEAST = {
    'position_channels': 0,
    'edge_channels': 0,
    'pe_channels': 0,
    'num_gumbel_samples': 0,
    'relational_order': 0,
    'num_local_layers': 0,
    'max_degree': 0,
}
SIZES = {
    'KernelAttentionConv': ['heads', 'num_features', 'key_channels', 'position_channels'],
    'DIFFormerConv': ['heads', 'position_channels'],
    'SGFormerConv': ['heads', 'position_channels'],
    'JaccardSubtractorConv': ['heads', 'edge_channels'],
    'MeanAttention': [],
    'GPSConv': ['heads'],
    'DegreeMaskedAttention': ['heads', 'max_degree', 'key_channels'],
    'AdjacencyMaskedAttention': ['heads', 'key_channels'],
    'NodeFormer': ['num_layers', 'heads', 'num_features', 'num_readout_layers'],
    'DIFFormer': ['num_layers', 'heads'],
    'SGFormer': ['num_layers', 'heads', 'gnn_num_layers'],
    'LiteGT': ['heads', 'pe_channels', 'edge_channels'],
    'GraphTransformer': ['num_layers', 'heads', 'num_local_layers'],
    'MGFormer': ['heads', 'max_degree', 'key_channels'],
    'FeatureMap': ['num_features', 'heads'],
}
CASES = [
    (kind, name)
    for kind, arguments in LAYERS.items()
    for name in [*(name for name in arguments if isinstance(arguments[name], int)), *SIZES[kind]]
]
CASES += [
    ('KernelAttentionConv', 'num_gumbel_samples'),
    ('KernelAttentionConv', 'relational_order'),
]


@pytest.mark.parametrize(('kind', 'name'), CASES)
def test_numbers_that_are_not_whole_are_refused(kind, name):
    least = LEAST.get(name, 1)
    rule = f'at least {least}, a whole number'
    if name == 'in_channels':
        rule = (
            '(?:a positive whole number, or -1 for .*|a positive whole number or -1, or a pair .*)'
        )
    for value in (2.0, '8', True, -2):
        message = rf"^'{name}' must be {rule} \(got {re.escape(repr(value))}\)$"
        with pytest.raises(ValueError, match=message):
            getattr(nn, kind)(**{**LAYERS[kind], name: value})


@pytest.mark.parametrize('kind', LAYERS)
def test_whole_numbers_of_numpy_are_accepted(kind):
    def convert(value):
        return np.int64(value) if isinstance(value, int) else value

    arguments = {name: convert(value) for name, value in LAYERS[kind].items()}
    for number in SIZES[kind]:
        arguments[number] = np.int64(2 if number == 'heads' else 4)
    torch.manual_seed(0)
    made = getattr(nn, kind)(**arguments)
    plain = {
        name: int(value) if isinstance(value, np.int64) else value
        for name, value in arguments.items()
    }
    torch.manual_seed(0)
    expected = getattr(nn, kind)(**plain)
    for actual, wanted in zip(made.parameters(), expected.parameters(), strict=True):
        assert torch.equal(actual, wanted)


def test_numbers_of_transforms():
    for make in (transforms.LaplacianPE, transforms.SVDEncoding):
        assert make(np.int64(3)).k == 3
        with pytest.raises(ValueError, match=r"^'k' must be at least 1, a whole .* \(got '3'\)$"):
            make('3')


def test_pairs_and_layers_around():
    with pytest.raises(ValueError, match=r"^'in_channels' must be .* \(got \(4, '8'\)\)$"):
        nn.KernelAttentionConv((4, '8'), 8)
    conv = nn.KernelAttentionConv((np.int64(4), np.int64(8)), 8)
    assert (conv.lin_key.in_features, conv.lin_query.in_features) == (4, 8)
    assert nn.GPSConv(np.int64(8), GCNConv(8, 8), heads=np.int64(2)).channels == 8
    assert FeatureMap('simplex', np.int64(4), np.int64(5)).num_features == 5
