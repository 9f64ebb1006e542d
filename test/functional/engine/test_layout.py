import pytest
import torch

from torch_geometric_lgt.functional._engine.layout import both_masks, rows, split
from torch_geometric_lgt.functional.inputs import KernelInput


@pytest.mark.parametrize(('elements', 'expected'), [(100, 64), (900, 90), (10**6, 4096)])
def test_a_chunk_has_64_to_4096_rows_that_fit_the_cache(elements, expected, constants):
    constants(input_chunk=elements)
    assert (
        rows(KernelInput(x=torch.ones(7, 8), heads=2, kind='softmax', projection=torch.ones(5, 4)))
        == expected
    )


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
