import copy
import sys
from dataclasses import replace

import pytest
import torch
from attention_layers import LAYERS
from constants import BY_OPERATORS
from gradients import gradients, leaves_of
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from torch_geometric_lgt.functional import kernel_attention, linear_attention
from torch_geometric_lgt.functional._engine import operators, plain
from torch_geometric_lgt.functional._engine.dispatch import PLAIN_ELEMENTS
from torch_geometric_lgt.functional.attention import state
from torch_geometric_lgt.functional.attention.state import sums_of_squares
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput
from torch_geometric_lgt.functional.segment import Segments, segments
from torch_geometric_lgt.nn import DegreeMaskedAttention, DIFFormerConv, KernelAttentionConv
from torch_geometric_lgt.testing import dense

BATCHES = {
    'one': None,
    'equal': torch.arange(4).repeat_interleave(3),
    'unequal': torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 3]),
    'unsorted': torch.tensor([2, 0, 3, 1, 0, 3, 1, 2, 3, 3, 0, 1]),
}


def test_positions_of_two_graphs_of_which_one_has_no_nodes():
    """Each has the positions of the largest; those without a node have the number of another."""
    found = plain.positions(Segments(torch.tensor([0, 3]), None), torch.ones(3, 2))
    assert found.node.tolist() == [0, 0, 0, 0, 1, 2]
    assert found.is_repeated.tolist() == [[True] * 3, [False] * 3]
    assert found.of_node.tolist() == [3, 4, 5]
    assert found.is_empty[:, 0].tolist() == [True] * 3 + [False] * 3
    for order in (None, torch.arange(4)):  # compiled code sorts nodes that are sorted
        equal = plain.positions(Segments(torch.tensor([2, 2]), order), torch.ones(4, 2))
        assert equal == plain.Positions()


@pytest.fixture
def calls(monkeypatch, constants):
    """The calls that the formulas computed, of all that are small enough."""
    used, attend = [], plain.attend
    constants(plain_elements=PLAIN_ELEMENTS)
    monkeypatch.setattr(plain, 'attend', lambda call: used.append(call) or attend(call))
    return used


def test_one_tensor_as_sources_and_targets_of_other_graphs(calls, constants):
    layer, batch = KernelAttentionConv(6, 8, heads=2).double(), BATCHES['unequal']
    x = torch.randn(12, 6, dtype=torch.double)
    actual = layer((x, x), batch=(batch, batch.flip(0)))
    assert len(calls) == 1
    constants(plain_elements=BY_OPERATORS)
    expected = layer((x, x), batch=(batch, batch.flip(0)))
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


def arguments_of(kind, projection=None, **options):
    """Queries and keys of two graphs, whose features have two heads of three channels."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(7, 6, dtype=torch.double, generator=generator)
    given = {'heads': 2, 'kind': kind, 'projection': projection}
    given['mask'] = options.pop('mask', None)
    given['data_normalizer'] = options.pop('data_normalizer', 1.0)
    queries, keys = KernelInput(x=x, **given), KernelInput(x=x.flip(0), **given)
    nodes = segments(torch.arange(2).repeat_interleave(torch.tensor([3, 4])), 7)
    values = LinearInput(x=x.square())
    return operators.AttendArguments(
        queries=queries,
        targets=nodes,
        keys=keys,
        values=values,
        sources=nodes,
        **{'factor': None, 'store_states': False, **options},
    )


FACTOR = torch.linspace(0.5, 2, 12, dtype=torch.double).view(2, 2, 3)
MASK = torch.linspace(0, 1, 14, dtype=torch.double).view(7, 2)


@pytest.mark.parametrize('paired', [False, True])
@pytest.mark.parametrize(
    'options',
    [
        {'kind': 'values', 'factor': FACTOR},
        {'kind': 'values', 'factor': FACTOR, 'mask': MASK},
        {'kind': 'biased', 'factor': torch.cat([torch.ones(2, 2, 1), FACTOR], 2)},
        {'kind': 'softmax', 'projection': torch.eye(3).double(), 'data_normalizer': 2.0},
    ],
    ids=['factor', 'factor-mask', 'constant', 'softmax'],
)
def test_formulas_compute_what_operators_compute(options, paired, monkeypatch):
    monkeypatch.setattr(plain, 'is_paired', lambda *_: paired)
    call = arguments_of(**options)
    expected = operators.attend(call)[0]
    torch.testing.assert_close(plain.attend(call), expected, rtol=1e-10, atol=1e-12)


def degree_of(layer, x):
    is_masked = isinstance(layer, DegreeMaskedAttention)
    return torch.arange(x.size(0)) % 7 if is_masked else None


def run(layer, x, batch, grad):
    source = x[0] if isinstance(x, tuple) else x
    out = layer(x, degree_of(layer, source), batch)
    inputs = {'x_src': x[0], 'x_dst': x[1]} if isinstance(x, tuple) else {'x': x}
    cotangent = grad[: out.size(0), : out.size(1)]
    return {'out': out, **gradients(out, leaves_of(layer, **inputs), cotangent)}


def check(layer, x, batch, calls, constants, tolerance=1e-9):
    """Formulas give the outputs and gradients that operators give."""
    grad = torch.randn(12, 8, dtype=torch.float64)
    by_formulas = run(layer, x, batch, grad)
    assert len(calls) == 1
    constants(plain_elements=BY_OPERATORS)
    by_operators = run(layer, x, batch, grad)
    assert len(calls) == 1
    torch.testing.assert_close(by_formulas, by_operators, rtol=tolerance, atol=tolerance / 10)


@pytest.mark.parametrize('batch', BATCHES)
@pytest.mark.parametrize('name', LAYERS)
def test_formulas_give_what_operators_give(name, batch, calls, constants):
    x = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    check(LAYERS[name]().double(), x, BATCHES[batch], calls, constants)


@pytest.mark.parametrize('batch', BATCHES)
@pytest.mark.parametrize('samples', [1, 3])
def test_formulas_of_samples_give_what_operators_give(samples, batch, calls, constants):
    layer = KernelAttentionConv(
        6, 8, heads=2, temperature=0.5, num_gumbel_samples=samples, num_features=5
    ).double()
    x = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    grad, found = torch.randn(12, 8, dtype=torch.float64), []
    for elements in (PLAIN_ELEMENTS, BY_OPERATORS):
        constants(plain_elements=elements)
        torch.manual_seed(0)
        found.append(run(layer, x, BATCHES[batch], grad))
        assert len(calls) == 1
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize('by_formulas', [True, False])
@pytest.mark.parametrize('scale', [0.5, 2.0])
def test_the_scale_multiplies_queries_and_keys(scale, by_formulas, calls, constants):
    if not by_formulas:
        constants(plain_elements=BY_OPERATORS)
    q, k, v = (torch.randn(6, 2, 3, dtype=torch.float64) for _ in range(3))
    torch.testing.assert_close(
        kernel_attention(q, k, v, 'elu', scale=scale),
        kernel_attention(scale * q, scale * k, v, 'elu'),
    )
    assert len(calls) == (2 if by_formulas else 0)


@pytest.mark.parametrize('name', LAYERS)
def test_padding_of_a_small_graph_reads_no_other_graph(name, calls):
    layer, batch = LAYERS[name]().double(), torch.arange(6).clamp(max=2) // 2
    x = torch.randn(6, 6, dtype=torch.float64)
    x[2:] = torch.nan
    degree = [torch.arange(6)] if isinstance(layer, DegreeMaskedAttention) else []
    out = layer(x, *degree, batch=batch)
    assert out[2:].isnan().all()
    torch.testing.assert_close(out[:2], layer(x[:2], *(part[:2] for part in degree)))
    assert len(calls) == 2


@pytest.mark.parametrize('bad', [torch.nan, torch.inf])
@pytest.mark.parametrize('name', LAYERS)
def test_graphs_without_sources_or_targets_read_no_other_graph(name, bad, calls):
    """Their positions had the first node of the next graph: its NaN was the output of targets
    without sources and the gradient of sources without targets."""
    layer = LAYERS[name]().double()
    sources, targets = torch.tensor([0, 0, 1, 1]), torch.tensor([1, 1, 2, 2, 3])
    is_good = sources == 0, targets > 1

    def results(value):
        pair = torch.randn(4, 6, dtype=torch.float64), torch.randn(5, 6, dtype=torch.float64)
        for x, good in zip(pair, is_good, strict=True):
            x[~good] *= value
            x.requires_grad_()
        degrees = tuple(torch.arange(x.size(0)) for x in pair)
        out = layer(
            pair, degrees if isinstance(layer, DegreeMaskedAttention) else None, (sources, targets)
        )[is_good[1]]
        grads = torch.autograd.grad(out.sum(), pair, allow_unused=True)
        return [
            out,
            *(None if g is None else g[good] for g, good in zip(grads, is_good, strict=True)),
        ]

    with torch.random.fork_rng():
        clean = results(1.0)
    torch.testing.assert_close(results(bad), clean, rtol=0, atol=0)
    assert len(calls) == 2


@pytest.mark.parametrize('name', LAYERS)
def test_formulas_of_many_nodes_give_what_operators_give(name, calls, constants):
    """By sums over the keys of a graph with more nodes than features."""
    layer = LAYERS[name]().double()
    x = torch.randn(400, 6, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(400, 8, dtype=torch.float64)
    by_formulas = run(layer, x, None, grad)
    constants(plain_elements=BY_OPERATORS)
    torch.testing.assert_close(by_formulas, run(layer, x, None, grad), rtol=1e-8, atol=1e-9)
    assert len(calls) == 1


@pytest.mark.parametrize('name', ['simplex', 'learned-wide', 'sgformer', 'difformer'])
def test_bipartite(name, calls, constants):
    """Also with graphs that have no targets or no sources."""
    x = tuple(torch.randn(size, 6, dtype=torch.float64, requires_grad=True) for size in (8, 6))
    batch = torch.tensor([0, 2, 0, 1, 2, 2, 1, 0]), torch.tensor([2, 3, 0, 3, 1, 0])
    check(LAYERS[name]().double(), x, batch, calls, constants)


@pytest.mark.parametrize(
    'masked', [('query_mask',), ('key_mask',), ('query_mask', 'key_mask')], ids='-'.join
)
@pytest.mark.parametrize('num_features', [2, 64])
def test_masks_of_one_side_or_both(masked, num_features, calls):
    """With weights of 0, by sums over the keys and by pairs of nodes."""
    batch = BATCHES['unsorted']
    projection = torch.randn(num_features, 4, dtype=torch.float64)
    leaves = [torch.randn(12, 2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    rank = len(masked)
    masks = {
        name: torch.rand(12, rank, dtype=torch.float64)
        .masked_fill_(torch.arange(12)[:, None] % 5 == 0, 0)
        .requires_grad_()
        for name in masked
    }
    out = kernel_attention(*leaves, projection=projection, batch=batch, **masks)
    of_query, of_key = (
        masks.get(name, torch.ones(12, rank, dtype=torch.float64))
        for name in ('query_mask', 'key_mask')
    )
    phi = [dense.feature_map('softmax', part, projection) for part in leaves[:2]]
    expected = dense.kernel_attention(*phi, leaves[2], of_query @ of_key.t(), batch, batch)
    torch.testing.assert_close(out, expected, rtol=1e-10, atol=1e-10)
    named = dict(zip('qkv', leaves, strict=True), **masks)
    grads = (gradients(result.square().sum(), named) for result in (out, expected))
    torch.testing.assert_close(*grads, rtol=1e-8, atol=1e-10)
    assert len(calls) == 1


@pytest.mark.parametrize('batch', BATCHES)
@pytest.mark.parametrize('name', sorted({*LAYERS} - {'sgformer'}))
def test_gradients_of_an_input_in_half_precision_are_rounded_once(name, batch, calls):
    """SGFormer's layer with row norms evaluates its self values under autocast, too."""
    layer, x = LAYERS[name](), torch.randn(12, 6).bfloat16().requires_grad_()
    exact_layer, exact = copy.deepcopy(layer).double(), x.detach().double().requires_grad_()
    degree = torch.arange(12) % 7 if isinstance(layer, DegreeMaskedAttention) else None
    with torch.autocast('cpu', dtype=torch.bfloat16):
        out = layer(x, degree, BATCHES[batch])
    grad = torch.randn(out.shape).bfloat16()
    (actual,) = torch.autograd.grad(out, x, grad)
    expected_out = exact_layer(exact, degree, BATCHES[batch])
    (expected,) = torch.autograd.grad(expected_out, exact, grad.double())
    assert len(calls) == 2
    rounding = (expected.bfloat16() - expected).norm()
    assert (actual - expected).norm() < 1.1 * rounding


@pytest.mark.parametrize('dtype', [torch.bfloat16, torch.float16])
def test_half_precision_is_summed_in_float32(dtype, calls, constants):
    layer = KernelAttentionConv(6, 8, heads=2).to(dtype)
    x = torch.randn(12, 6).to(dtype).requires_grad_()
    out = layer(x, None, BATCHES['unsorted'])
    constants(plain_elements=BY_OPERATORS)
    expected = layer(x, None, BATCHES['unsorted'])
    assert len(calls) == 1
    assert out.dtype == dtype
    torch.testing.assert_close(out, expected)


def test_infinite_logits_of_another_graph(calls):
    """The largest log-feature of a graph is that of its nodes alone."""
    layer, x = KernelAttentionConv(6, 8, heads=2), torch.randn(12, 6)
    x[BATCHES['unequal'] == 3] *= 1e3
    out = layer(x, None, BATCHES['unequal'])
    torch.testing.assert_close(out[:3], layer(x[:3]), rtol=1e-5, atol=1e-6)
    assert out.isfinite().all()
    assert len(calls) == 2


@pytest.mark.parametrize('name', LAYERS)
def test_second_derivatives(name, calls):
    layer, batch = LAYERS[name]().double(), BATCHES['unequal']
    x = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    degree = degree_of(layer, x)
    assert torch.autograd.gradgradcheck(lambda x: layer(x, degree, batch), x, fast_mode=True)
    assert calls


BY_ROWS = [name for name in LAYERS if 'frobenius' not in name]  # whose graphs need no norms first


class Watch(TorchDispatchMode):
    """Notes the operators that PyTorch calls."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.add(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize('batch', BATCHES)
@pytest.mark.parametrize('name', BY_ROWS)
def test_operators_compute_small_graphs_by_formulas(name, batch, calls, constants):
    """Modes of PyTorch see the operators, as compiled code does. They record nothing: the backward
    pass computes the formulas again."""
    layer, kept = LAYERS[name]().double(), []
    x = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(12, 8, dtype=torch.float64)
    by_formulas = run(layer, x, BATCHES[batch], grad)
    assert len(calls) == 1
    degree = torch.arange(12) % 7 if isinstance(layer, DegreeMaskedAttention) else None
    with Watch() as mode:
        out = layer(x, degree, BATCHES[batch])
        with torch.autograd.graph.saved_tensors_hooks(kept.append, lambda value: value):
            found = gradients(out, leaves_of(layer, x=x), grad[:, : out.size(1)])
    assert len(calls) == 3
    assert not kept
    assert {f'torch_geometric_lgt.attend{end}.default' for end in ('', '_backward')} <= mode.seen
    torch.testing.assert_close({'out': out, **found}, by_formulas, rtol=1e-12, atol=1e-13)


def test_gradients_have_the_strides_of_their_inputs(calls):
    """As compiled code expects them, and other results are empty."""
    matrices = torch.randn(2, 3, 3, dtype=torch.double).transpose(1, 2)
    call = arguments_of('softmax', torch.eye(3).double())
    call = replace(call, keys=replace(call.keys, head_projection=matrices))
    call = replace(call, queries=replace(call.queries, head_projection=matrices, weight=None))
    out, *results = operators.attend(call)
    assert [tuple(result.shape) for result in results] == [(7, 2), (0, 2, 3, 4), (0, 2, 3)]
    stored = operators.attend(replace(call, store_states=True))[2:]
    assert [tuple(result.shape) for result in stored] == [(2, 2, 3, 4), (2, 2, 3)]
    found = operators.attend.gradient(torch.ones_like(out), *results, *call.pack())
    slots = [slot for slot in call.slots if slot.has_gradient]
    by_path = dict(zip((slot.path for slot in slots), found, strict=True))
    assert by_path['keys.head_projection'].stride() == matrices.stride() == (9, 1, 3)
    assert by_path['keys.x'].stride() == (6, 1)
    assert len(calls) == 3


def operators_of(function, *inputs):
    """The operators of this package in the code that torch.compile traces."""
    seen = []

    def backend(graph, _):
        seen.extend(str(node.target) for node in graph.graph.nodes)
        return graph

    torch.compiler.reset()
    torch.compile(function, fullgraph=True, dynamic=True, backend=backend)(*inputs)
    return {name for name in seen if name.startswith('torch_geometric_lgt.')}


@pytest.mark.compiled
@pytest.mark.parametrize('name', ['simplex', 'sgformer-frobenius'])
def test_traced_code_of_one_small_graph_has_no_operators(name, calls, constants):
    """An exported program serves graphs of any size."""
    layer, x, batch = LAYERS[name](), torch.randn(12, 6), torch.arange(2).repeat_interleave(6)
    several = {'torch_geometric_lgt.attend.default'}
    assert operators_of(layer, x).isdisjoint(several)
    found = operators_of(lambda x, batch: layer(x, batch=batch, batch_size=2), x, batch)
    assert found == several
    constants(plain_elements=BY_OPERATORS)
    assert operators_of(layer, x) >= several
    program = torch.export.export(layer, (x,))
    assert several <= {str(node.target) for node in program.graph.nodes}


@pytest.mark.compiled
@pytest.mark.parametrize('batch', ['one', 'equal'])
@pytest.mark.parametrize('name', ['simplex', 'difformer-frobenius'])
def test_compiled_gradients_under_autocast(name, batch, calls):
    """In single precision, as in eager mode. PyTorch traces the backward pass under autocast."""
    layer, found = LAYERS[name](), []
    options = {'batch': BATCHES[batch], 'batch_size': None if batch == 'one' else 4}
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend='aot_eager')
    for each in (layer, compiled):
        x = torch.linspace(-1, 1, 72).view(12, 6).requires_grad_()
        with torch.autocast('cpu', dtype=torch.bfloat16):
            out = each(x, **options)
        found.append({'out': out, **gradients(out.float().sin().sum(), {'x': x})})
    torch.testing.assert_close(found[1], found[0], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize('name', LAYERS)
def test_traced_formulas_compute_what_others_compute(name, calls, monkeypatch):
    """By sums over the keys, for any number of nodes, and with gradients of gradients."""
    layer = LAYERS[name]().double()
    x = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(12, 8, dtype=torch.float64)
    expected = run(layer, x, None, grad)
    monkeypatch.setattr(torch.compiler, 'is_compiling', lambda: True)
    monkeypatch.setattr(plain, 'is_paired', lambda *_: pytest.fail('depends on the size'))
    torch.testing.assert_close(run(layer, x, None, grad), expected, rtol=1e-9, atol=1e-11)
    assert len(calls) == 2


def test_traced_formulas_leave_gradients_of_gradients_to_the_compiler(calls, monkeypatch):
    q, k, v = torch.randn(3, 5, 2, 4, dtype=torch.float64, requires_grad=True)
    monkeypatch.setattr(torch.compiler, 'is_compiling', lambda: True)
    out = kernel_attention(q, k, v, projection=torch.randn(8, 4, dtype=torch.float64))
    (grad,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    assert torch.autograd.grad(grad.sum(), q)[0].isfinite().all()
    assert len(calls) == 1


def test_norms_of_traced_code_take_no_operator(calls, monkeypatch):
    """For several graphs, whose attention an operator computes."""
    inputs, nodes = arguments_of('biased').queries, Segments(torch.tensor([3, 4]), None)
    expected = sums_of_squares(inputs, nodes)
    used, build = [], state.build_state
    monkeypatch.setattr(state, 'build_state', lambda *given: used.append(given) or build(*given))
    torch.testing.assert_close(sums_of_squares(inputs, nodes), expected)
    monkeypatch.setattr(torch.compiler, 'is_compiling', lambda: True)
    torch.testing.assert_close(sums_of_squares(inputs, nodes), expected)
    assert len(used) == 1


@pytest.mark.parametrize('order', [None, torch.tensor([3, 0, 2, 6, 1, 5, 4])])
@pytest.mark.parametrize('dtype', [torch.float64, torch.bfloat16])
def test_sums_of_squares_of_traced_code(dtype, order, calls):
    """Those of the operators, for the third graph, which has no nodes, too."""
    x = torch.randn(7, 6, dtype=dtype, requires_grad=True)
    weight, bias = (torch.randn(size, dtype=dtype) for size in ((8, 6), (8,)))
    inputs = KernelInput(x=x, heads=2, kind='biased', weight=weight, bias=bias).aligned()
    nodes = Segments(torch.tensor([3, 4, 0]), order)
    expected, actual = sums_of_squares(inputs, nodes), plain.sums_of_squares(inputs, nodes)
    assert actual.shape == (3, 2)
    torch.testing.assert_close(actual, expected)
    grad = torch.randn_like(expected)
    grads = (torch.autograd.grad(result, x, grad)[0] for result in (actual, expected))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize('order', [None, torch.tensor([2, 0, 1])])
def test_queries_divided_by_the_norms_of_unequal_graphs(order):
    """Of two heads in three graphs, the second without nodes. Their order stays."""
    x = torch.tensor([[3.0, 5.0], [4.0, 12.0], [8.0, 9.0]], requires_grad=True)
    inputs = KernelInput(x=x, heads=2, kind='values', weight=2 * torch.eye(2))
    out = plain.normalized(inputs, Segments(torch.tensor([1, 0, 2]), order))
    pair, alone = (slice(1, 3), 0) if order is None else (slice(0, 2), 2)
    expected = torch.ones(3, 2)
    expected[pair] = x[pair] / x[pair].norm(dim=0)
    torch.testing.assert_close(out.x, expected)
    assert out.weight is None
    (grad,) = torch.autograd.grad(out.x[:, 0].sum(), x)
    torch.testing.assert_close(grad[alone], torch.zeros(2))
    norm, total = x[pair, 0].norm(), x[pair, 0].sum()
    torch.testing.assert_close(grad[pair, 0], (1 - x[pair, 0] * total / norm**2) / norm)


@pytest.mark.parametrize('scale', [1e-24, 1e20])
def test_norms_of_unequal_graphs_are_beyond_single_precision(scale, calls):
    """Their squares are, and the third power of a norm, which a gradient contains."""
    q, k, v = torch.randn(3, 50, 2, 8).unbind()
    batch = torch.tensor([0] * 20 + [1] * 30)
    grad, results = torch.randn(50, 2, 8), []
    for dtype in (torch.float32, torch.float64):
        parts = [
            (part * factor).to(dtype).requires_grad_()
            for part, factor in ((q, scale), (k, scale), (v, 1.0))
        ]
        out = linear_attention(*parts, batch=batch, norm='frobenius')
        grads = torch.autograd.grad(out, parts, grad.to(dtype))
        results.append([out, grads[0] * scale, grads[1] * scale, grads[2]])
    for actual, expected in zip(*results, strict=True):
        assert (actual.double() - expected).norm() < 2e-6 * expected.norm()


@pytest.mark.parametrize('norm', ['row', 'frobenius'])
def test_operators_compute_what_modes_watch(norm, calls):
    """Modes of PyTorch that watch or replace operators get those of the package."""
    layer, x = DIFFormerConv(6, 8, use_graph=False, norm=norm), torch.randn(12, 6)
    with FlopCounterMode(display=False) as counter:
        layer(x)
    assert len(calls) == (1 if norm == 'row' else 0)  # of the operator
    assert any('torch_geometric_lgt' in str(op) for op in counter.get_flop_counts()['Global'])


@pytest.mark.parametrize(
    ('batch', 'is_small'),
    [
        (BATCHES['one'], True),
        (torch.tensor([0] * 6 + [1, 1, 2, 2, 2, 2]), True),  # 18 positions for 12 nodes
        (torch.tensor([0] * 9 + [1, 1, 2]), False),  # 27 positions
    ],
    ids=['one', 'alike', 'unlike'],
)
def test_graphs_of_unlike_sizes_are_computed_by_operators(batch, is_small, calls):
    KernelAttentionConv(6, 8, heads=2)(torch.randn(12, 6), None, batch)
    assert bool(calls) is is_small


def test_large_graphs_are_computed_by_operators(calls, constants):
    constants(plain_elements={'cpu': 12 * 2 * 16})
    layer = KernelAttentionConv(6, 8, heads=2, num_features=16)
    layer(torch.randn(12, 6))
    assert len(calls) == 1
    layer(torch.randn(13, 6))
    assert len(calls) == 1


def count_calls(function):
    """The calls of functions and methods, of Python and of C."""
    events = []
    sys.setprofile(lambda _, event, __: events.append(event))
    try:
        function()
    finally:
        sys.setprofile(None)
    return sum(event in ('call', 'c_call') for event in events)


def count_nodes(out):
    """The operations that autograd has recorded."""
    seen, rest = set(), [out.grad_fn]
    while rest:
        node = rest.pop()
        if node is not None and node not in seen:
            seen.add(node)
            rest += [before for before, _ in node.next_functions]
    return len(seen)


@pytest.mark.counted
def test_calls_and_operations_of_a_small_graph(calls):
    """Most of the time of a small graph: it took 627 calls and 75 operations before both were
    counted. The bounds leave room for versions of Python and PyTorch."""
    layer, x = KernelAttentionConv(64, 64, heads=4), torch.randn(16, 64)
    layer(x)
    assert count_calls(lambda: layer(x)) <= 320
    assert count_nodes(layer(x.requires_grad_())) <= 45
    assert len(calls) == 3


@pytest.mark.parametrize('heads', [1, 2])
def test_second_derivatives_of_changed_outputs(heads, calls):
    layer = KernelAttentionConv(6, 8, heads=heads).double()
    x = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: layer(x).mul_(2), x, fast_mode=True)
    assert calls


def strict_clamp(x, min=None, max=None):
    """The clamp of PyTorch 2.15, which has no gradient at its bounds."""
    x = x if min is None else x.masked_fill(x <= min, min)
    return x if max is None else x.masked_fill(x >= max, max)


@pytest.mark.parametrize('clamp', [torch.Tensor.clamp, strict_clamp])
@pytest.mark.parametrize('kind', ['elu', 'softmax', 'sampled'])
def test_gradients_at_the_bounds_of_clamps(kind, clamp, calls, monkeypatch):
    """Features of 0, and sums of a single key, which are 1."""
    monkeypatch.setattr(torch.Tensor, 'clamp', clamp)
    x = torch.randn(6, 2, 2, dtype=torch.double)
    leaves = [(0 * x if kind == 'elu' else x + i).requires_grad_() for i in range(2)] + [x + 2]
    options = {'batch': torch.tensor([0, 1, 1, 1, 1, 1])}
    if kind != 'elu':
        options['projection'] = torch.randn(1, 2, dtype=torch.double)
    if kind == 'sampled':
        options['key_noise'] = torch.randn(6, 2, 3, dtype=torch.double)
    name = 'elu' if kind == 'elu' else 'softmax'
    assert torch.autograd.gradcheck(
        lambda *parts: kernel_attention(*parts, name, **options), leaves
    )
    assert calls


@pytest.mark.parametrize('heads', [1, 2])
@pytest.mark.parametrize('batch', ['one', 'unsorted'])
def test_an_activation_may_change_the_output_in_place(batch, heads, calls):
    """As that of any layer of PyTorch, of which the output is no view."""
    layer, x = KernelAttentionConv(6, 8, heads), torch.randn(12, 6, requires_grad=True)
    grads = []
    for activation in (torch.nn.ReLU(), torch.nn.ReLU(inplace=True)):
        out = activation(layer(x, None, BATCHES[batch]))
        grads.append(gradients(out.square().sum(), leaves_of(layer, x=x)))
    torch.testing.assert_close(grads[1], grads[0], rtol=0, atol=0)
    assert len(calls) == 2
