"""The sizes up to which a call is computed in another way."""

from dataclasses import replace

import pytest
import torch

from torch_geometric_lgt.functional._engine.custom_op import is_eager
from torch_geometric_lgt.functional._engine.dispatch import (
    backend_of,
    is_fused,
    is_paired,
    is_plain,
    is_traced,
    is_traced_small,
    may_record,
    saves_products,
)
from torch_geometric_lgt.functional.inputs import KernelInput
from torch_geometric_lgt.functional.segment import Segments

CHANNELS = 4


def inputs(num_nodes, device='cpu', **options):
    """Features that are the input itself, 4 of each node."""
    x = torch.ones(num_nodes, CHANNELS, device=device)
    return KernelInput(x=x, **{'heads': 1, 'kind': 'values', **options})


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


@pytest.fixture
def trace(monkeypatch):
    """Code sees torch.compile, or the export of a program."""

    def start(is_compiling, is_exporting=False):
        monkeypatch.setattr(torch.compiler, 'is_compiling', lambda: is_compiling)
        monkeypatch.setattr(torch.compiler, '_is_exporting_flag', is_exporting)

    return start


def test_traced_code_of_a_processor(trace):
    """An exported program has graphs of any size."""
    x = torch.ones(2, 3)
    assert not is_traced(x)
    for arguments, expected in (((True,), True), ((True, True), False), ((False, False), False)):
        trace(*arguments)
        assert is_traced(x) is expected
    trace(True)
    assert not is_traced(x.to('meta'))
    with torch.autocast('cpu', dtype=torch.bfloat16):
        assert not is_traced(x)


def test_formulas_of_one_graph_are_recorded_where_code_is_traced(trace):
    one, two = (Segments(torch.tensor(sizes), None) for sizes in ([3], [1, 2]))
    x = torch.ones(3, 4)
    assert may_record([x, None], one)
    assert may_record([x, None], two)
    trace(True)
    assert may_record([x, None], one)
    assert not may_record([x, None], two)
    trace(True, True)
    assert not may_record([x, None], one)


def test_few_numbers_of_traced_code(trace, constants):
    constants(plain_elements={'cpu': 8})
    assert not is_traced_small(inputs(2))
    trace(True)
    assert is_traced_small(inputs(2))
    assert not is_traced_small(inputs(3))
    assert not is_traced_small(inputs(2, heads=2, weight=torch.ones(10, CHANNELS)))


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


def test_columns_of_a_mask_count_with_the_channels_of_values(constants):
    nodes, masked = Segments(torch.tensor([2]), None), inputs(2, mask=torch.ones(2, 3))
    for most, expected in ((24, True), (23, False)):
        constants(plain_elements={'cpu': most})
        assert is_plain(masked, masked, CHANNELS, nodes, nodes) is expected


def test_samples_of_softmax_features_without_a_mask_are_computed_by_formulas(constants):
    constants(plain_elements={'cpu': 48})
    nodes, projection = Segments(torch.tensor([2]), None), torch.ones(3, CHANNELS)
    softmax = {'kind': 'softmax', 'projection': projection, 'samples': 4}
    noise, mask = torch.zeros(2, 4), torch.ones(2, 1)

    def answer(**options):
        keys = inputs(2, noise=noise, **softmax | options)
        return is_plain(inputs(2, **softmax), keys, CHANNELS, nodes, nodes)

    assert answer()
    assert not answer(mask=mask)
    assert not answer(kind='logits', projection=None)
    assert not is_plain(inputs(2, **softmax), inputs(2, **softmax), CHANNELS, nodes, nodes)
    constants(plain_elements={'cpu': 23})  # 2 nodes have 12 features each
    assert not answer()
    sampled = inputs(2, noise=noise, **softmax)
    assert not is_paired(sampled, CHANNELS, 8, 1, 2)
    assert is_paired(inputs(2), CHANNELS, 8, 1, 2)


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


def test_graphs_whose_pairs_take_more_products_are_computed_by_states():
    """A pair has 4 + 4 products, a node 4 * (4 + 1): equal work at 5 targets and 5 sources."""
    assert is_paired(inputs(5), CHANNELS, 100, 5, 5)
    assert not is_paired(inputs(6), CHANNELS, 100, 6, 5)


@pytest.mark.parametrize(('device', 'most'), [('cpu', 1 << 18), ('meta', 1 << 25)])
def test_products_of_columns_are_used_for_large_inputs(device, most):
    small, large = (
        KernelInput(x=torch.empty(rows, 64, device=device), heads=1, kind='values')
        for rows in (most // 64, most // 64 + 1)
    )
    assert saves_products(small)
    assert not saves_products(large)
    assert not saves_products(replace(large, heads=2))


def test_triton_kernels_compute_one_number_and_not_none(constants):
    constants(fused_devices=('meta',))
    for rows, expected in ((0, False), (1, True)):
        x, projection = torch.ones(rows, 1, device='meta'), torch.ones(1, 1, device='meta')
        softmax = KernelInput(x=x, heads=1, kind='softmax', projection=projection)
        assert is_fused(softmax, 1) is expected


def test_triton_kernels_compute_both_passes_of_keys_and_queries(constants):
    constants(fused_devices=('meta',))
    softmax = inputs(4, 'meta', kind='softmax', projection=torch.ones(4, CHANNELS, device='meta'))
    backend = backend_of(softmax, CHANNELS)
    assert [part.__name__ for part in backend] == [
        'FusedKeys',
        'FusedKeyGrads',
        'FusedQueries',
        'FusedQueryGrads',
    ]


class Subclass(torch.Tensor):
    pass


def test_eager_code_has_plain_tensors():
    x = torch.ones(2)
    assert is_eager([x, torch.nn.Parameter(x), None, 2, 0.5, True, 'elu', (1,)])
    assert not is_eager([x, x.as_subclass(Subclass)])
