"""The sizes up to which a call is computed in another way."""

from types import SimpleNamespace

import pytest
import torch

from torch_geometric_lgt.functional._engine.affine import Affine, AffineGrad
from torch_geometric_lgt.functional._engine.dispatch import is_paired, is_plain, saves_products
from torch_geometric_lgt.functional._engine.flops import pair_flops
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput
from torch_geometric_lgt.functional.numerics import chunk_elements, memory_elements
from torch_geometric_lgt.functional.segment import Segments

CHANNELS = 4


def inputs(num_nodes, device='cpu', **options):
    """Features that are the input itself, 4 of each node."""
    x = torch.ones(num_nodes, CHANNELS, device=device)
    return KernelInput(x=x, heads=1, **{'kind': 'values', **options})


@pytest.mark.parametrize(
    ('sizes', 'expected'),
    [
        ([2], True),
        ([3], False),
        ([2, 2], True),
        ([3, 2], False),
        ([4, 0], True),
        ([4, 0, 0], False),
        ([0], False),
    ],
)
def test_small_graphs_are_computed_by_formulas(sizes, expected, constants):
    """8 numbers of one graph; twice as many of several, of which padding may be half."""
    constants(plain_elements={'cpu': 8})
    nodes, same = Segments(torch.tensor(sizes), None), inputs(sum(sizes))
    assert is_plain(same, same, CHANNELS, nodes, nodes) is expected


@pytest.mark.parametrize(
    ('sizes', 'kind', 'expected'),
    [
        ([4], 'values', True),
        ([5], 'values', False),
        ([3, 1], 'values', False),
        ([2, 2], 'values', True),
        ([2], 'softmax', True),
        ([3], 'softmax', False),
    ],
)
def test_small_graphs_of_a_gpu_are_computed_by_formulas(sizes, kind, expected, constants):
    """16 numbers with padding; 8 where kernels can compute them, whose features are 4 here."""
    constants(plain_elements={'gpu': 16, 'kernels': 8}, fused_devices=('meta',))
    nodes = Segments(torch.tensor(sizes), None)
    projection = torch.ones(CHANNELS, CHANNELS, device='meta') if kind == 'softmax' else None
    same = inputs(sum(sizes), 'meta', kind=kind, projection=projection)
    assert is_plain(same, same, CHANNELS, nodes, nodes) is expected


def test_samples_are_computed_by_operators():
    nodes, sampled = Segments(torch.tensor([2]), None), inputs(2, samples=2)
    assert not is_plain(sampled, sampled, CHANNELS, nodes, nodes)
    assert not is_paired(sampled, CHANNELS, 8, 0, 2)


@pytest.mark.parametrize(
    ('targets', 'sources', 'expected'),
    [
        (0, 3, False),
        (3, 0, False),
        (1, 3, True),
        (3, 1, True),
        (4, 3, True),
        (3, 4, True),
        (5, 3, False),
        (3, 5, False),
    ],
)
def test_graphs_of_one_chunk_are_computed_by_pairs(targets, sources, expected):
    """A chunk has at most 4 nodes here. A pair has 4 + 4 products, a node 4 * (4 + 1)."""
    assert bool(is_paired(inputs(4), CHANNELS, 4, targets, sources)) is expected


def test_pairs_that_take_more_products_than_states():
    """A pair has 4 + 4 products, a node 4 * (4 + 1): equal work at 5 targets and 5 sources."""
    assert is_paired(inputs(5), CHANNELS, 100, 5, 5)
    assert not is_paired(inputs(6), CHANNELS, 100, 6, 5)


def test_flops_of_pairs_with_masks():
    """2 * 6 pairs, 4 products for the weights and 4 for the values; masks of rank 3 take 3."""
    values = LinearInput(x=torch.ones(3, CHANNELS))
    masked = inputs(2, mask=torch.ones(2, 3))
    masked_keys = inputs(3, mask=torch.ones(3, 3))

    def flops(queries, keys):
        return pair_flops(queries, keys, values, False, 2, 3, 6)

    assert flops(inputs(2), inputs(3)) == 2 * 6 * (4 + 4)
    assert flops(masked, inputs(3)) == 2 * 6 * (4 + 4 + 3)
    assert flops(masked, masked_keys) == 2 * 6 * (4 + 4 + 3)


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_gradients_of_narrow_numbers_are_added_in_float32(dtype):
    grad = AffineGrad(Affine(torch.ones(3, CHANNELS, dtype=dtype), (None, None, 1.0)))
    assert grad.x.dtype == torch.float32


@pytest.mark.parametrize(('device', 'most'), [('cpu', 1 << 20), ('meta', 1 << 25)])
def test_products_of_columns_take_over_from_some_numbers_on(device, most):
    small, large = (
        KernelInput(x=torch.empty(rows, 64, device=device), heads=1, kind='values')
        for rows in (most // 64, most // 64 + 1)
    )
    assert saves_products(small)
    assert not saves_products(large)


@pytest.mark.parametrize(
    ('gib', 'elements', 'chunk'), [(4, 1 << 24, 1 << 24), (64, 1 << 28, 1 << 26)]
)
def test_chunks_and_formulas_of_a_gpu_fit_its_memory(gib, elements, chunk, monkeypatch):
    properties = SimpleNamespace(total_memory=gib << 30)
    monkeypatch.setattr(torch.cuda, 'get_device_properties', lambda _: properties)
    device = torch.device('cuda', 0)
    assert memory_elements(device) == elements
    assert chunk_elements(1 << 18, device) == chunk
    assert chunk_elements(1 << 10, device) == 1 << 18
