import copy

import pytest
import torch
from gradients import assert_same_gradients, gradients, leaves_of
from torch.utils.flop_counter import FlopCounterMode

from torch_geometric_lgt.functional._engine import gram as engine
from torch_geometric_lgt.functional._engine.gram import affine_ratio, centres, gram
from torch_geometric_lgt.functional.attention.gram import _map
from torch_geometric_lgt.functional.attention.linear import LinearForm, LinearQueries
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput
from torch_geometric_lgt.functional.segment import segments
from torch_geometric_lgt.nn import DIFFormerConv, SGFormerConv

DOUBLE = torch.float64
BATCHES = {
    'one': (None, 1),
    'sorted': (torch.tensor([0] * 5 + [2] * 3 + [3] * 4), 5),
    'unsorted': (torch.tensor([3, 0, 3, 1, 0, 3, 1, 4, 3, 0, 0, 0]), 5),
}


def members(batch, graphs):
    return [
        torch.arange(12) if batch is None else (batch == graph).nonzero().flatten()
        for graph in range(graphs)
    ]


@pytest.mark.parametrize('pieces', [3, 8], ids=['pieces of 12 rows', 'whole'])
@pytest.mark.parametrize('elements', [1, 1 << 20])
@pytest.mark.parametrize('name', BATCHES)
def test_gram_matches_the_products_with_gradients(name, elements, pieces, constants):
    constants(gram_chunk=elements, gram_pieces=pieces)
    batch, graphs = BATCHES[name]
    x = torch.randn(12, 3, dtype=DOUBLE, requires_grad=True)
    centre = torch.randn(graphs, 3, dtype=DOUBLE)
    graph = torch.zeros(12, dtype=torch.long) if batch is None else batch
    longer = torch.cat([x - centre[graph], torch.ones(12, 1, dtype=DOUBLE)], 1)
    expected = torch.stack([longer[nodes].t() @ longer[nodes] for nodes in members(batch, graphs)])
    actual = gram(x, centre, segments(batch, 12, graphs))
    torch.testing.assert_close(actual, expected)
    grad = torch.randn_like(expected)
    torch.testing.assert_close(
        *(torch.autograd.grad(out, x, grad)[0] for out in (actual, expected))
    )


@pytest.mark.parametrize('pieces', [3, 8], ids=['pieces of 12 rows', 'whole'])
@pytest.mark.parametrize('elements', [1, 1 << 20])
@pytest.mark.parametrize('name', BATCHES)
def test_affine_ratio_matches_the_quotient_with_gradients(name, elements, pieces, constants):
    constants(gram_chunk=elements, gram_pieces=pieces)
    batch, graphs = BATCHES[name]
    x, above, below = (
        torch.randn(*shape, dtype=DOUBLE).requires_grad_()
        for shape in ((12, 3), (graphs, 4, 10), (graphs, 4, 2))
    )
    graph = torch.zeros(12, dtype=torch.long) if batch is None else batch
    centre = torch.randn(graphs, 3, dtype=DOUBLE)
    longer = torch.cat([x - centre[graph], torch.ones(12, 1, dtype=DOUBLE)], 1)
    top, bottom = (torch.einsum('nf,nfc->nc', longer, part[graph]) for part in (above, below))
    expected = (top.unflatten(1, (2, 5)) / bottom[..., None]).flatten(1)
    actual = affine_ratio(x, above, below, centre, segments(batch, 12, graphs), torch.zeros(graphs))
    torch.testing.assert_close(actual, expected)
    assert_same_gradients(actual, expected, {'x': x, 'above': above, 'below': below})


def test_nodes_and_graphs_that_are_computed_together(constants):
    """105 numbers hold ten graphs' (4 + 1) * 2 numbers; at least 64 nodes are walked together."""
    constants(gram_chunk=105)
    ones = segments(torch.arange(25), 25, 25)
    groups = engine._groups(4, 2, torch.empty(25, 4), ones)
    assert [graphs.numel() for graphs, _ in groups] == [10, 10, 5]
    for elements, sizes in ((105, [64, 64, 2]), (280, [70, 60])):
        constants(gram_chunk=elements)
        (_, (chunks,)), *others = engine._groups(4, 2, torch.empty(130, 4), segments(None, 130, 1))
        assert ([chunk.stop - chunk.start for chunk in chunks], others) == (sizes, [])


def test_a_denominator_of_zero_gives_zero():
    x, above, below = torch.ones(2, 1), torch.ones(1, 2, 1), torch.tensor([[[1.0], [-1.0]]])
    for part in (x, above, below):
        part.requires_grad_()
    out = affine_ratio(x, above, below, torch.zeros(1, 1), segments(None, 2), torch.zeros(1))
    assert torch.equal(out, torch.zeros(2, 1))
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), (x, above, below)))


@pytest.mark.parametrize('bias', [False, True])
@pytest.mark.parametrize('layer', [SGFormerConv, DIFFormerConv])
def test_layers_by_products_of_columns_are_those_by_keys(layer, bias, monkeypatch):
    """Outputs, gradients and states of both ways, also for a pair of inputs."""
    options = {'use_graph': False} if layer is DIFFormerConv else {}
    conv = layer(5, 6, heads=2, norm='frobenius', bias=bias, **options).double()
    x, other = (torch.randn(num, 5, dtype=DOUBLE, requires_grad=True) for num in (12, 7))
    batch, results = torch.arange(12) % 3, {}
    for way in (False, True):
        for part in (LinearForm, LinearQueries):
            monkeypatch.setattr(part, 'affine', lambda self, nodes, way=way: way)
        outs = [conv(x, batch=batch), conv((x, other)), conv(other, state=conv.attention_state(x))]
        leaves = leaves_of(conv, x=x, other=other)
        grads = gradients(sum(out.square().sum() for out in outs), leaves)
        state = conv.attention_state(x, batch)
        values = (state.sums, state.maximum, state.squares, state.query_squares, state.count)
        results[way] = {'outputs': outs, **grads, 'state': values}
    torch.testing.assert_close(*results.values())


@pytest.mark.parametrize('name', BATCHES)
def test_centres_are_means(name):
    batch, graphs = BATCHES[name]
    x = torch.randn(12, 3)
    expected = torch.stack(
        [
            x[nodes].mean(0) if nodes.numel() > 0 else torch.zeros(3)
            for nodes in members(batch, graphs)
        ]
    )
    torch.testing.assert_close(centres(x, segments(batch, 12, graphs)), expected)


@pytest.mark.parametrize('layer', [SGFormerConv, DIFFormerConv])
def test_gradients_where_the_rows_have_a_large_part_in_common(layer):
    options = {'use_graph': False} if layer is DIFFormerConv else {}
    conv = layer(16, 16, norm='frobenius', **options)
    x = 100 + torch.randn(2000, 16)
    grad = torch.randn(2000, 16)
    with torch.no_grad():
        for lin in (conv.lin_query, conv.lin_key, conv.lin_value):
            lin.bias -= 100 * lin.weight.sum(1)  # queries, keys and values of ordinary size
    exact = copy.deepcopy(conv).double()
    (expected,) = torch.autograd.grad(exact(x.double()), exact.lin_query.weight, grad.double())
    (actual,) = torch.autograd.grad(conv(x), conv.lin_query.weight, grad)
    # without centres 4e-3
    assert float((actual.double() - expected).norm() / expected.norm()) < 1e-4


@pytest.mark.parametrize('by_state', [False, True], ids=['one pass', 'state'])
@pytest.mark.parametrize('layer', [SGFormerConv, DIFFormerConv])
def test_columns_in_pairs_that_are_nearly_equal(layer, by_state):
    """Queries, keys and values of ordinary size from differences of columns that are 1 / 1000 of
    them. Maps of such columns lose three digits; sums of products of two maps would lose six, were
    they taken in single precision."""
    options = {'use_graph': False} if layer is DIFFormerConv else {}
    conv = layer(16, 16, norm='frobenius', **options)
    base = torch.randn(2000, 8)
    grad = torch.randn(2000, 16)
    x = torch.stack([base, base + 1e-3 * torch.randn(2000, 8)], 2).flatten(1).requires_grad_()
    with torch.no_grad():
        for lin in (conv.lin_query, conv.lin_key, conv.lin_value):
            weight = 250 * torch.randn(16, 8)
            lin.weight += torch.stack([weight, -weight], 2).flatten(1)
    exact, leaf, results = copy.deepcopy(conv).double(), x.detach().double().requires_grad_(), []
    assert conv._form(x, x).affine(segments(None, 2000))
    for module, part in ((conv, x), (exact, leaf)):
        out = module(part, state=module.attention_state(part)) if by_state else module(part)
        found = gradients(out, leaves_of(module, x=part), grad.to(out.dtype))
        results.append({'out': out.detach(), **found})
    actual, expected = results
    for name, value in expected.items():
        assert float((actual[name].double() - value).norm()) < 2e-4 * float(value.norm()), name


def test_products_of_columns_need_a_wider_precision_than_the_input():
    for dtype, expected in ((torch.bfloat16, True), (torch.float32, True), (torch.float64, False)):
        x, weight = torch.ones(100, 4, dtype=dtype), torch.ones(4, 4, dtype=dtype)
        side = KernelInput(x=x, heads=1, kind='values', weight=weight)
        assert (
            LinearForm(
                LinearQueries(side, None, 'row'), side, LinearInput(x=x, weight=weight)
            ).affine(segments(None, 100))
            is expected
        )


def test_three_products_forward_and_backward_in_place_of_fifteen():
    """The products of columns, and twice those of the reading, whatever the number of heads; those
    with a graph's coefficients aside."""
    flops = {}
    for num_nodes in (2000, 4000):
        x = torch.randn(num_nodes, 32, requires_grad=True)
        with FlopCounterMode(display=False) as counter:
            SGFormerConv(32, 32, heads=4)(x).sum().backward()
        flops[num_nodes] = counter.get_total_flops()
    assert (flops[4000] - flops[2000]) / 2000 == 2 * (2 * 32 * 32 + 3 * 32 * (32 + 4))


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    'make',
    [lambda: SGFormerConv(4, 4), lambda: DIFFormerConv(4, 4, norm='frobenius', use_graph=False)],
)
def test_products_of_columns_are_in_single_precision_under_autocast(make, dtype):
    """70,000 nodes are more than half precision can count."""
    conv, x = make(), torch.randn(70_000, 4)
    expected = conv(x)
    with torch.autocast('cpu', dtype):
        out, state = conv(x), conv.attention_state(x)
    torch.testing.assert_close(out.float(), expected)
    assert state.sums.dtype == torch.float32
    assert state.count.tolist() == [70_000]


def test_maps_of_half_precision_are_single():
    weight = torch.tensor([[1.0, 2.0]]).bfloat16()
    bias = torch.tensor([3.0]).bfloat16()
    centre = torch.tensor([[1.0, 2**-9]])
    for part, constant in (
        (LinearInput(x=centre, weight=weight, bias=bias), 4 + 2**-8),
        (LinearInput(x=centre, weight=weight), 1 + 2**-8),
    ):
        assert _map(part, 1, centre).flatten().tolist() == [1, 2, constant]


@pytest.mark.parametrize(
    ('width', 'heads', 'num_nodes', 'graphs', 'expected'),
    [
        (4, 1, 5, 1, True),  # four columns and a constant one by four
        (4, 1, 4, 1, False),
        (4, 1, 10, 2, True),
        (4, 1, 9, 2, False),
        (4, 2, 8, 1, True),  # four columns by eight of two heads
        (4, 2, 7, 1, False),
        (12, 1, 99, 1, True),  # as dear as keys, queries and values
        (13, 1, 99, 1, False),
    ],
)
def test_products_of_columns_need_no_more_room_than_the_input_and_less_work(
    width, heads, num_nodes, graphs, expected
):
    x, weight = torch.ones(num_nodes, width), torch.ones(4 * heads, width)
    side = KernelInput(x=x, heads=heads, kind='values', weight=weight)
    form = LinearForm(LinearQueries(side, None, 'row'), side, LinearInput(x=x, weight=weight))
    assert form.affine(segments(torch.arange(num_nodes) % graphs, num_nodes, graphs)) is expected


def test_factors_of_half_precision_are_single():
    x = torch.ones(3, 4, dtype=torch.bfloat16)
    queries = LinearQueries(KernelInput(x=x, heads=2, kind='values'), LinearInput(x=x), 'row')
    factor = queries.factor(torch.tensor([3]), torch.full((1, 2), 4.0))
    torch.testing.assert_close(factor, torch.full((1, 2, 2), 1 / 6), rtol=1e-6, atol=0)
    alone = queries.factor(torch.tensor([3]))
    torch.testing.assert_close(alone, torch.full((1, 2, 2), 1 / 3), rtol=1e-6, atol=0)
