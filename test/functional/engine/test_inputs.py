import re
from functools import partial

import pytest
import torch

from torch_geometric_lgt.functional import AttentionState, kernel_attention, linear_attention
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput, folding_saves_work
from torch_geometric_lgt.functional.tensor_inputs import kernel_input

HALF, SINGLE = torch.bfloat16, torch.float32
KNOWN = "'softmax', 'fourier', 'relu', 'focused', 'values', 'elu', 'logits', 'assignment'"
GEOMETRIES = (
    "the maps 'positive', 'orthogonal' and 'simplex' of layers are 'softmax' with such a projection"
)
SAMPLED = "samples need one of the feature maps ('softmax', 'logits')"
DRAWN = {'feature_map': 'softmax', 'projection': torch.zeros(3, 4)}
MASKS = "'query_mask' and 'key_mask' must have shape [5, R] with at least one column"
NOISE = "'key_noise' must have shape [5, 2, K] with at least one sample"


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (
            {'feature_map': 'cosine'},
            f"'feature_map' must be one of {KNOWN}; {GEOMETRIES} (got 'cosine')",
        ),
        (
            {'feature_map': 'biased'},  # of linear attention only
            f"'feature_map' must be one of {KNOWN}; {GEOMETRIES} (got 'biased')",
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
        (
            {**DRAWN, 'noise': torch.zeros(5, 2, 3, requires_grad=True)},
            (
                "'key_noise' must not require a gradient, features have none for it; give "
                'key_noise.detach()'
            ),
        ),
        (
            {'data_normalizer': torch.ones((), requires_grad=True)},
            ("'scale' must not require a gradient, features have none for it; give scale.detach()"),
        ),
        (
            {'power': torch.full((), 2.0, requires_grad=True)},
            ("'power' must not require a gradient, features have none for it; give power.detach()"),
        ),
        ({'power': 0.5}, "'power' must be at least 1 (got 0.5)"),
        ({'data_normalizer': 'half'}, "'scale' must be a number (got 'half')"),
        ({'data_normalizer': torch.ones(2)}, "'scale' must be a number (got tensor([1., 1.]))"),
        ({'power': None}, "'power' must be a number (got None)"),
        ({'mask': torch.ones(5)}, f'{MASKS} (got (5,))'),
        ({'mask': torch.ones(4, 2)}, f'{MASKS} (got (4, 2))'),
        ({'mask': torch.ones(5, 0)}, f'{MASKS} (got (5, 0))'),
        ({'noise': torch.ones(5, 2)}, f'{NOISE} (got (5, 2))'),
        ({'noise': torch.ones(5, 3, 7)}, f'{NOISE} (got (5, 3, 7))'),
        ({'noise': torch.ones(5, 2, 0)}, f'{NOISE} (got (5, 2, 0))'),
        ({'samples': 2}, f"{SAMPLED} and no mask (got 'elu' and no mask)"),
        (
            {**DRAWN, 'samples': 2, 'mask': torch.ones(5, 2)},
            f"{SAMPLED} and no mask (got 'softmax' and a mask)",
        ),
    ],
)
def test_wrong_queries_and_keys_end_in_an_error_that_names_the_argument(changes, message):
    arguments = {
        'mask': None,
        'feature_map': 'elu',
        'projection': None,
        'data_normalizer': 1.0,
        'power': 3.0,
        **changes,
    }
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        kernel_input(torch.zeros(5, 2, 4), **arguments)


@pytest.mark.parametrize(
    ('attention', 'names'),
    [
        (partial(kernel_attention, feature_map='elu'), ['queries and keys', "'k'", "'v'"]),
        (linear_attention, ['queries and keys', 'queries and keys', "'v'"]),
    ],
    ids=['kernel', 'linear'],
)
@pytest.mark.parametrize('place', range(3), ids='qkv')
def test_arrays_are_no_tensors(attention, names, place):
    inputs = [torch.ones(3, 1, 2) for _ in range(3)]
    inputs[place] = inputs[place].numpy()
    message = f'{names[place]} must be of type Tensor (got ndarray); convert with torch.as_tensor'
    with pytest.raises(TypeError, match=f'^{re.escape(message)}$'):
        attention(*inputs)


@pytest.mark.parametrize('shape', [(5, 4), (5, 2, 4, 1), (5, 0, 4), (5, 2, 0)])
def test_shapes_of_queries_and_keys(shape):
    message = (
        'queries and keys must have shape [N, H, C], with at least one head and channel (got '
        f'{shape})'
    )
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        kernel_input(torch.zeros(shape), None, 'elu', None, 1.0, 3.0)


@pytest.mark.parametrize('dtype', [torch.int64, torch.bool, torch.complex64])
def test_queries_and_keys_are_of_floating_point(dtype):
    x, v = torch.ones(3, 1, 2, dtype=dtype), torch.ones(3, 1, 2)
    message = f'queries and keys must be of floating point (got {dtype}); convert them with float()'
    state = AttentionState.from_keys(v, v, 'elu')
    for call in (
        lambda: kernel_attention(x, v, v, 'elu'),
        lambda: kernel_attention(x, x, x, 'elu'),
        lambda: linear_attention(x, x, x),
        lambda: AttentionState.from_keys(x, v, 'elu'),
        lambda: state.read(x, 'elu'),
    ):
        with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
            call()


@pytest.mark.parametrize('dtype', [torch.int64, torch.float64])
def test_values_of_a_state_have_the_dtype_of_its_keys(dtype):
    k = torch.ones(3, 1, 2)
    message = f"'v' must be of torch.float32 as 'k' (got {dtype}); use v.to(k)"
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        AttentionState.from_keys(k, k.to(dtype), 'elu')


def test_parameters_of_half_precision_take_part_in_single():
    parts = {
        name: torch.ones(3, 4, dtype=HALF)
        for name in ('x', 'weight', 'bias', 'mask', 'projection', 'noise')
    }
    side = KernelInput(**parts, kind='softmax', data_normalizer=1.0, power=3.0, heads=1)
    aligned = side.aligned()
    assert {name: getattr(aligned, name).dtype for name in parts} == {'x': HALF} | dict.fromkeys(
        list(parts)[1:], SINGLE
    )
    values = LinearInput(**{name: parts[name] for name in ('x', 'weight', 'bias')}).aligned()
    assert [part.dtype for part in (values.x, values.weight, values.bias)] == [HALF, SINGLE, SINGLE]


def test_a_weight_of_half_precision_without_a_bias_takes_part_in_single():
    part = LinearInput(x=torch.ones(2, 3), weight=torch.ones(4, 3, dtype=HALF))
    aligned = part.aligned()
    assert aligned.weight.dtype == SINGLE
    assert aligned.aligned() is aligned
    part = LinearInput(x=torch.ones(2, 3), weight=torch.ones(4, 3), bias=torch.ones(4, dtype=HALF))
    assert part.aligned().bias.dtype == SINGLE
    keys = KernelInput(x=part.x, weight=part.weight, bias=torch.ones(4), heads=1, kind='elu')
    assert keys.aligned() is keys


@pytest.mark.parametrize(('num_nodes', 'expected'), [(1, False), (2, True)])
def test_a_projection_is_folded_where_it_saves_products(num_nodes, expected):
    """A node of 3 channels has 3 * 4 products and 4 * 2, or 3 * 2; folding has 2 * 4 * 3."""
    x, weight = torch.ones(num_nodes, 3), torch.ones(4, 3)
    projection = torch.ones(2, 4)
    inputs = KernelInput(x=x, heads=1, kind='softmax', weight=weight, projection=projection)
    assert folding_saves_work(inputs) is expected
