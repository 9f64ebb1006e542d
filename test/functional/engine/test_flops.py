"""Formulas of flops against the matrix products that run, and against numbers by hand."""

from dataclasses import replace

import pytest
import torch
from gradients import assert_same_gradients
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from torch_geometric_lgt.functional import kernel_attention
from torch_geometric_lgt.functional._engine import operators
from torch_geometric_lgt.functional._engine.flops import pair_flops
from torch_geometric_lgt.functional.attention import kernel
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput
from torch_geometric_lgt.functional.segment import Segments, segments
from torch_geometric_lgt.nn import DegreeMaskedAttention, KernelAttentionConv
from torch_geometric_lgt.testing import dense

H, C, M = 2, 4, 8
BATCHES = {'one': None, 'ragged': torch.arange(40) // torch.tensor([1, 7]).repeat(20)}


def layer_and_arguments(kind, batch=None):
    feature_map, num_features = {'learned': ('learned', M), 'wide': ('learned', 3 * M)}.get(
        kind.removeprefix('masked-'), ('simplex', M)
    )
    options = {'heads': H, 'feature_map': feature_map, 'num_features': num_features}
    if kind.startswith('masked'):
        return DegreeMaskedAttention(H * C, value_projection=True, **options), (
            torch.arange(40) % 9,
            batch,
        )
    return KernelAttentionConv(H * C, H * C, **options), (None, batch)


def in_place_product(_, a, b, out_shape=None, **kwargs):
    return 2 * a[0] * a[1] * b[1]


class Executed(TorchDispatchMode):
    """Runs the loops of each operator in the open and counts the matrix products that they do."""

    def __init__(self):
        super().__init__()
        self.flops = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace != 'torch_geometric_lgt':
            return func(*args, **(kwargs or {}))
        with FlopCounterMode(
            display=False, custom_mapping={torch.ops.aten.addmm_: in_place_product}
        ) as counter:
            operator = getattr(operators, func._opname.removesuffix('_backward'))
            run = operator.gradient if func._opname.endswith('_backward') else operator.forward
            out = run._init_fn(*args, **(kwargs or {}))
        self.flops[func._opname] = counter.get_total_flops()
        return out


def executed_and_counted(run):
    with Executed() as executed:
        run()
    with FlopCounterMode(display=False) as counter:
        run()
    counts = {
        str(name).split('.')[-1]: count
        for name, count in counter.get_flop_counts()['Global'].items()
    }
    return executed.flops, {name: counts[name] for name in executed.flops}


@pytest.mark.parametrize('through_state', [False, True], ids=['attend', 'state'])
@pytest.mark.parametrize('batch', BATCHES)
@pytest.mark.parametrize('kind', ['plain', 'masked', 'learned', 'wide', 'masked-wide'])
def test_flop_formulas_count_the_products_that_run(kind, batch, through_state):
    layer, arguments = layer_and_arguments(kind, BATCHES[batch])
    x = torch.randn(40, H * C, requires_grad=True)

    def run():
        degree = arguments[:1] if kind.startswith('masked') else ()
        state = layer.attention_state(x, *degree, batch=arguments[1]) if through_state else None
        layer(x, *arguments, state=state).sum().backward()

    flops, counts = executed_and_counted(run)
    assert counts == flops
    names = ('build_state', 'read_state') if through_state else ('attend',)
    assert set(flops) == {name + suffix for name in names for suffix in ('', '_backward')}


@pytest.mark.parametrize('samples', [2, 3])
@pytest.mark.parametrize('batch', BATCHES)
def test_flop_formulas_with_samples(batch, samples):
    leaves = [torch.randn(40, H, C, requires_grad=True) for _ in range(3)]
    noise, projection = torch.randn(40, H, samples), torch.randn(M, C)
    flops, counts = executed_and_counted(
        lambda: (
            kernel_attention(*leaves, 'softmax', projection, BATCHES[batch], key_noise=noise)
            .sum()
            .backward()
        )
    )
    assert set(flops) == {'attend', 'attend_backward'}
    assert counts == flops


def test_flop_formulas_of_sources_and_targets():
    """Twenty graphs of one target and two sources, by pairs, and one of 20 and 60, by its state."""
    batch = (
        torch.arange(40).clamp(max=20),
        torch.cat([torch.arange(20).repeat_interleave(2), torch.full((60,), 20)]),
    )
    q, k, v = (torch.randn(n, H, C, requires_grad=True) for n in (40, 100, 100))
    flops, counts = executed_and_counted(
        lambda: (
            kernel_attention(q, k, v, 'softmax', torch.randn(M, C), batch[::-1]).sum().backward()
        )
    )
    assert set(flops) == {'attend', 'attend_backward'}
    assert counts == flops


@pytest.mark.parametrize('paired', [False, True])
@pytest.mark.parametrize('num_sources', [3, 4, 5])
def test_flops_of_pairs_whose_states_would_defer_the_values(num_sources, paired, constants):
    """A graph of one target is computed by pairs; a state defers the values of at least 4 keys."""
    if not paired:
        constants(paired=False)
    size = {'dtype': torch.float64, 'requires_grad': True}
    x_dst, x_src = (torch.randn(2 * n, width, **size) for n, width in ((1, 4), (num_sources, 6)))
    targets = segments(torch.arange(2), 2)
    sources = segments(torch.arange(2).repeat_interleave(num_sources), 2 * num_sources)
    projection = torch.randn(4, 4, dtype=torch.float64)
    queries = KernelInput(x=x_dst, heads=1, kind='softmax', projection=projection)
    keys = KernelInput(x=x_src[:, :4], heads=1, kind='softmax', projection=projection)
    values = LinearInput(x=x_src, weight=torch.randn(7, 6, **size))
    flops, counts = executed_and_counted(
        lambda: kernel.attend(queries, keys, values, sources, targets).sum().backward()
    )
    assert counts == flops


def test_flops_of_the_closed_form():
    layer, (degree, _) = layer_and_arguments('masked')
    x = torch.randn(40, H * C, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        layer(x, degree).sum().backward()
    width, inner = 2 * (C + 1), H * C
    folded = 2 * inner * H * M
    linear = 2 * inner * inner
    features = 2 * inner * M
    state = 2 * H * M * width
    queries = 4 * folded + 4 * state  # the projection of queries is folded into their linear part
    keys = 4 * 2 * linear + 3 * features + 3 * state
    counts = counter.get_flop_counts()['Global']
    assert sum(n for name, n in counts.items() if 'attend' in str(name)) == 40 * (queries + keys)


@pytest.mark.parametrize('kind', ['plain', 'masked', 'wide'])
def test_flops_and_saved_bytes_grow_with_the_nodes(kind):
    costs = []
    for n in (1000, 4000):
        layer, _ = layer_and_arguments(kind)
        x, saved = torch.randn(n, H * C, requires_grad=True), 0

        def pack(tensor):
            nonlocal saved
            saved += tensor.numel() * tensor.element_size()
            return tensor

        with FlopCounterMode(display=False) as counter:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                out = layer(x, torch.arange(n) % 9) if kind == 'masked' else layer(x)
            out.sum().backward()
        costs.append((counter.get_total_flops(), saved))
    (flops, saved), (more_flops, more_saved) = costs
    assert 0 < more_flops <= 4.2 * flops
    assert 0 < more_saved <= 4.2 * saved


@pytest.mark.parametrize('rank', [0, 1, 2])
@pytest.mark.parametrize('bias', [True, False], ids=['bias', 'no-bias'])
@pytest.mark.parametrize('batch', [None, torch.tensor([1] + [0, 2, 2] * 13)], ids=['one', 'three'])
@pytest.mark.parametrize('store_states', [False, True], ids=['rebuilt', 'stored'])
def test_deferred_values_match_dense_and_their_flops_are_counted(
    store_states, batch, bias, rank, constants, monkeypatch
):
    """With one head and more keys than features, states are those of the input, and the linear part
    of the values multiplies them: the dense definition, and the flops that run."""
    constants(input_chunk=64 * 4, paired=False)
    monkeypatch.setattr(kernel, 'stores_states', lambda *_: store_states)
    size = {'dtype': torch.float64, 'requires_grad': True}
    q, k, x = (torch.randn(40, channels, **size) for channels in (C, C, 6))
    leaves = {'q': q, 'k': k, 'x': x, 'weight': torch.randn(C + 3, 6, **size)}
    if bias:
        leaves['bias'] = torch.randn(C + 3, **size)
    if rank > 0:
        leaves |= {name: torch.rand(40, rank, **size) for name in ('query_mask', 'key_mask')}
    masks = [leaves.get(name) for name in ('query_mask', 'key_mask')]
    projection = torch.randn(4, C, dtype=torch.float64)
    nodes = segments(batch, 40)
    values = LinearInput(x=x, weight=leaves['weight'], bias=leaves.get('bias'))

    def run():
        queries, keys = (
            KernelInput(x=part, heads=1, kind='softmax', projection=projection, mask=mask)
            for part, mask in zip((q, k), masks, strict=True)
        )
        return kernel.attend(queries, keys, values, nodes, nodes)

    v = torch.nn.functional.linear(x, values.weight, values.bias)[:, None]
    phi = [dense.feature_map('softmax', part[:, None], projection) for part in (q, k)]
    mask = None if rank == 0 else masks[0] @ masks[1].t()
    expected = dense.kernel_attention(*phi, v, mask, batch, batch)[:, 0]
    grad = torch.randn_like(expected)
    actual = run()
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    assert_same_gradients(actual, expected, leaves, grad, rtol=1e-8, atol=1e-10)
    flops, counts = executed_and_counted(lambda: run().sum().backward())
    assert counts == flops
    columns, num_graphs = max(rank, 1), 1 if batch is None else 2  # one graph has a single node
    evaluated = 0 if batch is None else 2 * 6 * (C + 3) + 2 * 4 * columns
    built = 6 + (rank > 0)  # without a mask the sums of the features are no product
    states = 40 * (2 * 2 * 4 * C + 2 * 4 * columns * (built + C + 4)) + evaluated
    assert flops['attend'] == states + num_graphs * 2 * 4 * columns * 6 * (C + 3)


def test_flops_of_pairs_count_the_products_of_their_masks():
    """2 * 6 pairs, 4 products for the weights and 4 for the values; masks of rank 3 take 3."""
    values = LinearInput(x=torch.ones(3, 4))
    queries, keys = (KernelInput(x=torch.ones(n, 4), heads=1, kind='values') for n in (2, 3))
    masked, masked_keys = (
        replace(inputs, mask=torch.ones(inputs.x.size(0), 3)) for inputs in (queries, keys)
    )

    def flops(queries, keys):
        return pair_flops(queries, keys, values, False, 2, 3, 6)

    assert flops(queries, keys) == 2 * 6 * (4 + 4)
    assert flops(masked, keys) == 2 * 6 * (4 + 4 + 3)
    assert flops(masked, masked_keys) == 2 * 6 * (4 + 4 + 3)


def deferring(device='cpu', channels=4):
    """Five keys of two features, of graphs that have their values deferred from two keys on."""
    x = torch.ones(5, 3, device=device)
    projection = torch.ones(2, 3, device=device)
    keys = KernelInput(x=x, heads=1, kind='softmax', projection=projection)
    return keys, LinearInput(x=x, weight=torch.ones(channels, 3, device=device))


def test_deferred_values_are_counted_where_sizes_of_graphs_are_known(constants):
    sizes = torch.tensor([3, 1, 2])
    assert operators.count_deferred(*deferring(), sizes) == (2, 5)
    assert operators.count_deferred(*deferring(), sizes.to('meta')) == (0, 0)
    with FakeTensorMode() as fake:
        assert operators.count_deferred(*deferring(), fake.from_tensor(sizes)) == (0, 0)
    constants(fused_devices=('cpu',))
    assert operators.count_deferred(*deferring(), sizes) == (0, 0)
    assert operators.count_deferred(*deferring(channels=200), sizes) == (2, 5)  # no kernel


def test_flops_of_graphs_of_unknown_sizes_defer_no_values(constants):
    """Five keys and queries of 3 channels with 2 features, and values of 4 channels from 3."""
    reads = 5 * 2 * (2 * 3 + 2 * 5)
    builds = 5 * (2 * 3 * 4 + 2 * 2 * 3 + 2 * 2 * 4)
    for device, fused in (('meta', ()), ('cpu', ('cpu',))):
        constants(fused_devices=fused, paired=False)
        keys, values = deferring(device)
        one = Segments(torch.full((1,), 5, device=device), None)
        call = operators.AttendArguments(
            queries=keys,
            targets=one,
            keys=keys,
            values=values,
            sources=one,
            factor=None,
            store_states=True,
        )
        assert operators.attend_flops(call) == reads + builds
