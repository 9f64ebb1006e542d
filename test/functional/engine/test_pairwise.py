import pytest
import torch
from attention_layers import LAYERS
from gradients import gradients, leaves_of
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from torch_geometric_lgt.functional import kernel_attention
from torch_geometric_lgt.functional._engine import operators
from torch_geometric_lgt.functional._engine.pairwise import PairwiseBackend
from torch_geometric_lgt.nn import (
    DegreeMaskedAttention,
)
from torch_geometric_lgt.testing import dense

SORTED = torch.tensor([0, 0, 0, 2, 2, 2, 3, 3, 3, 3, 5])
UNSORTED = torch.tensor([3, 0, 3, 1, 0, 3, 1, 6, 3, 3, 1])


def run(monkeypatch, constants, paired, layer, x, batch, grad):
    """Output and gradients by pairs or by states, and how often pairs were used."""
    used = []
    constants(paired=paired)
    monkeypatch.setattr(
        operators, 'PairwiseBackend', lambda *args: used.append(args) or PairwiseBackend(*args)
    )
    source = x[0] if isinstance(x, tuple) else x
    degree = (
        (torch.arange(source.size(0)) % 7,) if isinstance(layer, DegreeMaskedAttention) else (None,)
    )
    out = layer(x, *degree, batch)
    inputs = {'x_src': x[0], 'x_dst': x[1]} if isinstance(x, tuple) else {'x': x}
    return {'out': out, **gradients(out, leaves_of(layer, **inputs), grad(out))}, len(used)


@pytest.mark.parametrize('batch', [None, SORTED, UNSORTED], ids=['one', 'sorted', 'unsorted'])
@pytest.mark.parametrize('name', LAYERS)
def test_pairs_give_what_states_give(name, batch, monkeypatch, constants):
    layer, x = LAYERS[name]().double(), torch.randn(11, 6, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(
        11, layer.out_channels if hasattr(layer, 'out_channels') else 6, dtype=torch.float64
    )
    (by_pairs, used), (by_states, unused) = (
        run(monkeypatch, constants, paired, layer, x, batch, lambda _: grad)
        for paired in (True, False)
    )
    assert used > 0 == unused
    torch.testing.assert_close(by_pairs, by_states, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize('name', ['simplex', 'learned-wide', 'sgformer'])
def test_bipartite(name, monkeypatch, constants):
    layer = LAYERS[name]().double()
    x = tuple(torch.randn(size, 6, dtype=torch.float64, requires_grad=True) for size in (7, 5))
    batch = torch.tensor([0, 2, 0, 1, 2, 2, 2]), torch.tensor([2, 2, 0, 1, 1])
    (by_pairs, used), (by_states, unused) = (
        run(monkeypatch, constants, paired, layer, x, batch, torch.ones_like)
        for paired in (True, False)
    )
    assert used > 0 == unused
    torch.testing.assert_close(by_pairs, by_states, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize(
    'masked', [('query_mask',), ('key_mask',), ('query_mask', 'key_mask')], ids='-'.join
)
def test_masks_of_one_side_or_both(masked):
    """With weights of 0; graphs of one to five nodes."""
    batch = torch.tensor([3, 0, 3, 1, 0, 3, 1, 6, 3, 3, 1])
    projection = torch.randn(16, 4, dtype=torch.float64)
    leaves = [torch.randn(11, 2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    masks = {
        name: torch.rand(11, 1, dtype=torch.float64)
        .masked_fill_(torch.arange(11)[:, None] % 5 == 0, 0)
        .requires_grad_()
        for name in masked
    }
    out = kernel_attention(*leaves, projection=projection, batch=batch, **masks)
    of_query, of_key = (
        masks.get(name, torch.ones(11, 1, dtype=torch.float64))
        for name in ('query_mask', 'key_mask')
    )
    phi = [dense.feature_map('softmax', part, projection) for part in leaves[:2]]
    expected = dense.kernel_attention(*phi, leaves[2], of_query @ of_key.t(), batch, batch)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    named, grad = dict(zip('qkv', leaves, strict=True), **masks), torch.randn_like(out)
    found = gradients(out, named, grad)
    wanted = gradients(expected.nan_to_num(0), named, grad)
    wanted = {name: value.nan_to_num(0) for name, value in wanted.items()}
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-9)


def test_only_small_graphs_are_taken_by_pairs(monkeypatch):
    """The work of n nodes: n^2 (M + D) against 2 n M (D + 1), the same at n = 2 * 64 * 9 / 72 =
    16."""
    taken = []
    monkeypatch.setattr(
        operators,
        'PairwiseBackend',
        lambda *args: taken.append((args[4], args[2])) or PairwiseBackend(*args),
    )
    q, k, v = (torch.randn(16 + 17 + 16 + 5, 1, 8) for _ in range(3))
    kernel_attention(
        q,
        k,
        v,
        projection=torch.randn(64, 8),
        batch=torch.tensor([0] * 16 + [1] * 17 + [2] * 16 + [3] * 5),
    )
    assert [
        (graphs, nodes.tolist() if isinstance(nodes, torch.Tensor) else nodes)
        for graphs, nodes in taken
    ] == [
        (1, slice(49, 54)),
        (2, [*range(16), *range(33, 49)]),
    ]
    kernel_attention(
        q,
        k,
        v,
        projection=torch.randn(64, 8),
        key_noise=torch.randn(54, 1, 1),
        batch=torch.arange(54),
    )
    assert len(taken) == 2


@pytest.mark.parametrize('norm', [1e-6, 30.0, 300.0])
def test_pairs_are_as_exact_as_states_at_any_norm(norm, constants):
    projection, results = torch.randn(16, 8, dtype=torch.float64), []
    drawn = [
        torch.nn.functional.normalize(torch.randn(400, 1, 8), dim=-1) * scale
        for scale in (norm, norm, 1)
    ]
    for paired, dtype in ((False, torch.float64), (False, torch.float32), (True, torch.float32)):
        constants(paired=paired)
        leaves = [part.to(dtype).requires_grad_() for part in drawn]
        out = kernel_attention(
            *leaves, projection=projection.to(dtype), batch=torch.arange(400) // 5
        )
        named = dict(zip('qkv', leaves, strict=True))
        results.append({'out': out.detach(), **gradients(out.square().sum(), named)})
    exact, by_states, by_pairs = results
    for name, value in exact.items():
        state_error, pair_error = (
            (part[name] - value).norm() / value.norm() for part in (by_states, by_pairs)
        )
        assert pair_error <= 2 * state_error + 1e-6, name


@pytest.mark.parametrize(
    'place', [FakeTensorMode, lambda: torch.device('meta')], ids=['fake', 'meta']
)
def test_flops_of_sizes_that_are_not_known_are_those_of_states(place):
    with place(), FlopCounterMode(display=False) as counter:
        kernel_attention(*(torch.randn(10, 1, 8) for _ in range(3)), projection=torch.randn(64, 8))
    products = (8 + 8) + (8 + 9)  # features and sums of keys, then features and reads of queries
    assert counter.get_total_flops() == 2 * 10 * 64 * products
