import math
from dataclasses import replace

import pytest
import torch

from torch_geometric_lgt.functional._engine.layout import (
    both_masks,
    fewest_deferred,
    rows,
    split,
)
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput

NOISE = torch.zeros(7, 1, 1)


@pytest.mark.parametrize(('elements', 'expected'), [(100, 64), (900, 90), (10**6, 4096)])
def test_a_chunk_has_64_to_4096_rows_that_fit_the_cache(elements, expected, constants):
    constants(input_chunk=elements)
    assert (
        rows(KernelInput(x=torch.ones(7, 8), heads=2, kind='softmax', projection=torch.ones(5, 4)))
        == expected
    )


@pytest.mark.parametrize(
    ('options', 'expected'),
    [({}, 2), ({'heads': 2}, math.inf), ({'samples': 2}, math.inf), ({'noise': NOISE}, math.inf)],
)
def test_values_of_one_head_and_sample_are_deferred(options, expected):
    inputs = KernelInput(x=torch.ones(7, 2), **{'heads': 1, 'kind': 'values', **options})
    values = LinearInput(x=torch.ones(7, 3), weight=torch.ones(4, 3))
    assert fewest_deferred(inputs, values) == expected
    assert fewest_deferred(inputs, LinearInput(x=values.x)) == math.inf
    square = LinearInput(x=values.x, weight=torch.ones(3, 3))
    assert fewest_deferred(inputs, square) == expected
    masked = replace(inputs, mask=torch.ones(7, 5))
    assert fewest_deferred(masked, values) == 5 * expected
    assert fewest_deferred(inputs, LinearInput(x=values.x, weight=torch.ones(2, 3))) == math.inf


def test_split_views_rows_by_graph_and_head_with_and_without_graphs():
    assert split(torch.ones(0, 6), 0, 2).shape == (0, 2, 1, 3)
    assert split(torch.ones(4, 6), 2, 2).shape == (2, 2, 2, 3)


def test_a_side_without_a_mask_has_one_weight_of_1_for_each_node():
    mask = torch.rand(2, 1, 5, 3)
    query_mask, key_mask = both_masks(None, mask, 4, 5)
    assert key_mask is mask
    assert torch.equal(query_mask, torch.ones(2, 1, 4, 1).expand_as(query_mask))
    assert query_mask.shape == (2, 1, 4, 1)
    assert both_masks(mask, None, 5, 4)[1].shape == (2, 1, 4, 1)
    assert both_masks(None, None, 4, 5) is None
