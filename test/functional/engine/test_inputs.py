import re

import pytest
import torch

from torch_geometric_lgt.functional._engine.affine import Affine
from torch_geometric_lgt.functional._engine.layout import rows, split
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput, kernel_input
from torch_geometric_lgt.functional.numerics import inverse_of

HALF, SINGLE = torch.bfloat16, torch.float32
KNOWN = "('softmax', 'fourier', 'relu', 'focused', 'values', 'elu', 'logits', 'assignment')"
GEOMETRIES = (
    "the maps 'positive', 'orthogonal' and 'simplex' of layers are 'softmax' with such a projection"
)
SAMPLED = "samples need one of the feature maps ('softmax', 'logits')"
DRAWN = {'feature_map': 'softmax', 'projection': torch.zeros(3, 4)}


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (
            {'feature_map': 'cosine'},
            f"'feature_map' must be one of {KNOWN}; {GEOMETRIES} (got 'cosine')",
        ),
        (
            {'feature_map': 'fourrier'},
            (
                f"'feature_map' must be one of {KNOWN}; {GEOMETRIES} (got 'fourrier'); did you "
                "mean 'fourier'?"
            ),
        ),
        (
            {'feature_map': 'softmax'},
            (
                "'projection' must be given; draw one with 'gaussian_projection' for the feature "
                'map '
                "'softmax'"
            ),
        ),
        ({'projection': torch.zeros(3, 4)}, "'projection' must be None for the feature map 'elu'"),
        (
            {**DRAWN, 'projection': torch.zeros(3, 4, requires_grad=True)},
            (
                "'projection' must not require a gradient, features have none for it; give "
                'projection.detach()'
            ),
        ),
        (
            {**DRAWN, 'projection': torch.zeros(3, 5)},
            "'projection' must have shape [M, 4] for 4 channels (got (3, 5))",
        ),
        (
            {**DRAWN, 'projection': torch.zeros(4)},
            "'projection' must have shape [M, 4] for 4 channels (got (4,))",
        ),
        ({'mask': torch.ones(5)}, 'mask weights must have shape [5, R] (got (5,))'),
        ({'mask': torch.ones(4, 2)}, 'mask weights must have shape [5, R] (got (4, 2))'),
        ({'noise': torch.ones(5, 2)}, "'key_noise' must have shape [5, 2, K] (got (5, 2))"),
        ({'noise': torch.ones(5, 3, 7)}, "'key_noise' must have shape [5, 2, K] (got (5, 3, 7))"),
        ({'samples': 2}, f"{SAMPLED} and no mask (got 'elu' and no mask)"),
        (
            {**DRAWN, 'samples': 2, 'mask': torch.ones(5, 2)},
            f"{SAMPLED} and no mask (got 'softmax' and a mask)",
        ),
    ],
)
def test_what_a_side_is_refused_for(changes, message):
    arguments = {
        'mask': None,
        'feature_map': 'elu',
        'projection': None,
        'scale': 1.0,
        'power': 3.0,
        **changes,
    }
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        kernel_input(torch.zeros(5, 2, 4), **arguments)


def test_parameters_of_half_precision_take_part_in_single():
    parts = {
        name: torch.ones(3, 4, dtype=HALF)
        for name in ('x', 'weight', 'bias', 'mask', 'projection', 'noise')
    }
    side = KernelInput(**parts, kind='softmax', scale=1.0, power=3.0, heads=1)
    aligned = side.aligned()
    assert {name: getattr(aligned, name).dtype for name in parts} == {'x': HALF} | dict.fromkeys(
        list(parts)[1:], SINGLE
    )
    values = LinearInput(**{name: parts[name] for name in ('x', 'weight', 'bias')}).aligned()
    assert [part.dtype for part in (values.x, values.weight, values.bias)] == [HALF, SINGLE, SINGLE]


@pytest.mark.parametrize(('elements', 'expected'), [(100, 64), (900, 90), (10**6, 4096)])
def test_rows_whose_features_are_so_many_numbers(elements, expected, constants):
    constants(input_chunk=elements)
    assert (
        rows(KernelInput(x=torch.ones(7, 8), heads=2, kind='softmax', projection=torch.ones(5, 4)))
        == expected
    )


def test_inverse_of_what_is_too_small():
    tiny = torch.finfo(SINGLE).tiny
    assert inverse_of(torch.tensor([2.0, -4.0, 0.0, tiny / 2, tiny])).tolist() == [
        0.5,
        -0.25,
        0,
        0,
        1 / tiny,
    ]


def test_no_graphs_are_split():
    assert split(torch.ones(0, 6), 0, 2).shape == (0, 2, 1, 3)
    assert split(torch.ones(4, 6), 2, 2).shape == (2, 2, 2, 3)


def test_an_input_without_a_weight_is_itself_or_a_multiple():
    x = torch.arange(6.0).view(3, 2)
    assert Affine(x, (None, None, 2.0))(slice(1, 3))[1].tolist() == [[4, 6], [8, 10]]
    assert Affine(x, (None, None, 1.0))(slice(1, 3))[1].data_ptr() == x[1:].data_ptr()
