import re

import pytest
import torch
from definitions import jaccard_subtractor
from gradients import assert_same_gradients, gradients, leaves_of
from torch.utils.flop_counter import FlopCounterMode
from torch_geometric.data import Data
from torch_geometric.nn import TransformerConv
from torch_geometric.transforms import ToUndirected
from torch_geometric.utils import barabasi_albert_graph

from torch_geometric_lgt.functional import jaccard
from torch_geometric_lgt.nn import JaccardSubtractorConv
from torch_geometric_lgt.nn._layers.linear_parts import linear_part
from torch_geometric_lgt.testing._saved import SavedStorages
from torch_geometric_lgt.transforms import JaccardScores

DOUBLE = torch.float64
KERNELS = [
    'jaccard',
    'subtractor',
    ('softmax', 'softmax'),
    ('mean', 'jaccard'),
    ('subtractor', 'subtractor'),
    ('mean', 'mean'),
]
# Node 6 has no neighbour, node 5 one, node 4 no triangle; an edge occurs twice, node 0 has a self
# loop.
EDGES = torch.tensor(
    [[1, 2, 0, 2, 0, 1, 3, 2, 4, 3, 5, 4, 1, 0], [0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 0, 0]]
)
MASK = torch.tensor([True, False, True, False, False, True, True])


def compare(conv, x_src, x_dst, edges, mask):
    x = x_src if x_dst is None else (x_src, x_dst)
    scores = torch.rand(edges.size(1), dtype=DOUBLE) * (torch.arange(edges.size(1)) > 4)
    inputs = {'x_src': x_src} if x_dst is None else {'x_src': x_src, 'x_dst': x_dst}
    leaves = leaves_of(conv, **{name: part.requires_grad_() for name, part in inputs.items()})
    actual = conv(x, edges, scores, mask)
    wanted = jaccard_subtractor(conv, x, edges, scores, mask)
    torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-10)
    options = {'rtol': 1e-9, 'atol': 1e-9, 'materialize_grads': True}
    assert_same_gradients(actual, wanted, leaves, **options)


@pytest.mark.parametrize('kernel', KERNELS, ids=str)
@pytest.mark.parametrize(
    'mask',
    [None, MASK, ~MASK, torch.zeros(7, dtype=torch.bool)],
    ids=['all', 'some', 'others', 'none'],
)
@pytest.mark.parametrize('chunk', [1, 1 << 20])
def test_matches_dense(kernel, mask, chunk, constants):
    constants(edge_sum_chunk=chunk)
    compare(
        JaccardSubtractorConv(5, 8, 4, kernel).double(),
        torch.randn(7, 5, dtype=DOUBLE),
        None,
        EDGES,
        mask,
    )


@pytest.mark.parametrize('kernel', ['jaccard', 'subtractor'])
@pytest.mark.parametrize(
    'options', [{'concat': False}, {'normalize': False}, {'bias': False}, {'heads': 2}], ids=str
)
def test_options_match_dense(kernel, options):
    conv = JaccardSubtractorConv(5, 8, **{'heads': 4, 'kernel': kernel, **options}).double()
    compare(conv, torch.randn(7, 5, dtype=DOUBLE), None, EDGES, MASK)


@pytest.mark.parametrize('kernel', ['jaccard', 'subtractor'])
def test_bipartite(kernel):
    edges = torch.stack([torch.randint(9, (20,)), torch.randint(7, (20,))])
    conv = JaccardSubtractorConv(5, 8, 4, kernel).double()
    compare(conv, torch.randn(9, 5, dtype=DOUBLE), torch.randn(7, 5, dtype=DOUBLE), edges, MASK)
    compare(
        conv, torch.randn(9, 5, dtype=DOUBLE), torch.randn(7, 5, dtype=DOUBLE), edges[:, :0], MASK
    )


SCORED = ['jaccard', 'subtractor', ('softmax', 'softmax'), ('subtractor', 'mean')]
# Distinct edges; node 6 has no neighbour, node 5 one, node 0 a self loop.
DISTINCT = EDGES[:, [*range(12), 13]]


@pytest.mark.parametrize('kernel', SCORED, ids=str)
@pytest.mark.parametrize(
    ('mask', 'options', 'chunk'),
    [
        (None, {}, 1 << 20),
        (MASK, {}, 1),
        (~MASK, {'concat': False, 'bias': False}, 1 << 20),
        (torch.zeros(7, dtype=torch.bool), {'normalize': False}, 1 << 20),
    ],
    ids=['all', 'some', 'others', 'none'],
)
def test_features_of_edges_match_dense(kernel, mask, options, chunk, constants):
    constants(edge_sum_chunk=chunk)
    conv = JaccardSubtractorConv(5, 8, 4, kernel, edge_channels=3, **options).double()
    x, edge_attr = torch.randn(7, 5, dtype=DOUBLE), torch.randn(13, 3, dtype=DOUBLE)
    index = torch.rand(13, dtype=DOUBLE) * (torch.arange(13) > 4)
    leaves = leaves_of(conv, x=x.requires_grad_(), edge_attr=edge_attr.requires_grad_())
    arguments = {'edge_attr': edge_attr, 'return_edge_scores': True}
    actual = conv(x, DISTINCT, index, mask, **arguments)
    wanted = jaccard_subtractor(conv, x, DISTINCT, index, mask, **arguments)
    grads = [torch.randn_like(part) for part in wanted]
    results = [
        {'outputs': out, **gradients(out, leaves, grads, materialize_grads=True)}
        for out in (actual, wanted)
    ]
    torch.testing.assert_close(*results, rtol=1e-9, atol=1e-9)
    assert torch.equal(conv(x, DISTINCT, index, mask, edge_attr=edge_attr), actual[0])
    scores = conv.edge_scores(x, DISTINCT, index, mask, edge_attr=edge_attr)
    assert torch.equal(scores, actual[1])
    weight = conv.attention_scores(x, DISTINCT, index, mask, edge_attr=edge_attr)
    value = conv.lin_value(x).unflatten(1, (4, -1))[DISTINCT[0]]
    out = torch.zeros(7, *value.shape[1:], dtype=DOUBLE)
    out = out.index_add(0, DISTINCT[1], weight[..., None] * value)
    torch.testing.assert_close(out.flatten(1) if conv.concat else out.mean(1), actual[0])


@pytest.mark.parametrize('kernel', SCORED, ids=str)
def test_features_of_bipartite_edges_match_dense(kernel):
    pairs = torch.randperm(63)[:20]
    edges, index = torch.stack([pairs // 7, pairs % 7]), torch.rand(20, dtype=DOUBLE)
    conv = JaccardSubtractorConv((5, 4), 8, 4, kernel, edge_channels=3).double()
    x = torch.randn(9, 5, dtype=DOUBLE), torch.randn(7, 4, dtype=DOUBLE)
    arguments = {'edge_attr': torch.randn(20, 3, dtype=DOUBLE), 'return_edge_scores': True}
    wanted = jaccard_subtractor(conv, x, edges, index, MASK, **arguments)
    for one, other in zip(conv(x, edges, index, MASK, **arguments), wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize('kernel', SCORED, ids=str)
def test_each_of_several_edges_has_its_features(kernel):
    """As if each came from a node of its own with the same features."""
    conv = JaccardSubtractorConv(5, 8, 4, kernel, edge_channels=3).double()
    x, edge_attr = torch.randn(7, 5, dtype=DOUBLE), torch.randn(14, 3, dtype=DOUBLE)
    index, weight = torch.rand(2, 14, dtype=DOUBLE)
    arguments = {'edge_attr': edge_attr, 'edge_weight': weight, 'return_edge_scores': True}
    apart = torch.stack([torch.arange(14), EDGES[1]])
    results = (
        conv(x, EDGES, index, MASK, **arguments),
        conv((x[EDGES[0]], x), apart, index, MASK, **arguments),
    )
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_features_of_edges_by_hand():
    """Two channels of one head: logits of node 2 are (1 * 2 * 3 + 1 * 1 * 0) / sqrt(2) and 0."""
    conv = JaccardSubtractorConv(2, 4, 2, ('softmax', 'mean'), bias=False, edge_channels=2).double()
    with torch.no_grad():
        for lin in (conv.lin_query, conv.lin_key, conv.lin_edge):
            lin.weight.copy_(torch.eye(2))
        conv.lin_value.weight.copy_(torch.eye(2).repeat(2, 1))
    x = torch.tensor([[2.0, 1.0], [5.0, 7.0], [1.0, 1.0]], dtype=DOUBLE)
    edges = torch.tensor([[0, 1], [2, 2]])
    edge_attr = torch.tensor([[3.0, 0.0], [0.0, 0.0]], dtype=DOUBLE)
    out, score = conv(x, edges, edge_attr=edge_attr, return_edge_scores=True)
    logit = torch.tensor(6 / 2**0.5, dtype=DOUBLE)
    torch.testing.assert_close(score, torch.tensor([[1.0, 0], [0, 0]], dtype=DOUBLE) * logit)
    share = logit.sigmoid()
    torch.testing.assert_close(out[2, :2], share * x[0] + (1 - share) * x[1])
    assert out[2, 2:].tolist() == [3.5, 4]


def test_hand_computed():
    """Two neighbours of node 2. Softmax: logits 1 and 3 of head 0; Jaccard: weights 1/4 and 3/4 of
    head 1."""
    conv = JaccardSubtractorConv(1, 2, 2, bias=False).double()
    with torch.no_grad():
        for lin in (conv.lin_query, conv.lin_key, conv.lin_value):
            lin.weight.fill_(1.0)
    x, edges = torch.tensor([[1.0], [3.0], [1.0]], dtype=DOUBLE), torch.tensor([[0, 1], [2, 2]])
    out = conv(x, edges, torch.tensor([0.1, 0.3], dtype=DOUBLE))
    share = 1 / (1 + torch.tensor(-2.0, dtype=DOUBLE).exp())
    torch.testing.assert_close(
        out[2], torch.stack([1 - share + 3 * share, torch.tensor(2.5, dtype=DOUBLE)])
    )
    assert out[:2].abs().sum() == 0
    assert conv(x, edges, torch.zeros(2, dtype=DOUBLE), torch.zeros(3, dtype=torch.bool))[
        2
    ].tolist() == [2, 2]


@pytest.mark.parametrize('kernel', KERNELS, ids=str)
@pytest.mark.parametrize('mask', [None, MASK])
def test_scores_are_the_weights_that_are_applied(kernel, mask):
    conv = JaccardSubtractorConv(5, 8, 4, kernel).double()
    x = torch.randn(7, 5, dtype=DOUBLE)
    index = jaccard(EDGES, 7).double()
    scores = conv.attention_scores(x, EDGES, index, mask)
    out = torch.zeros(7, 4, 2, dtype=DOUBLE)
    out.index_add_(
        0, EDGES[1], scores[..., None] * conv.lin_value(x)[EDGES[0]].unflatten(1, (4, 2))
    )
    torch.testing.assert_close(conv(x, EDGES, index, mask), out.flatten(1))


def test_softmax_heads_are_those_of_the_transformer_layer_of_pyg():
    theirs = TransformerConv(5, 2, 4, root_weight=False).double()
    ours = JaccardSubtractorConv(5, 8, 4, ('softmax', 'softmax')).double()
    ours.load_state_dict(
        {name: value for name, value in theirs.state_dict().items() if 'skip' not in name}
    )
    x = torch.randn(7, 5, dtype=DOUBLE)
    torch.testing.assert_close(ours(x, EDGES), theirs(x, EDGES))


@pytest.mark.parametrize('kernel', ['jaccard', 'subtractor'])
def test_extreme_inputs_stay_finite(kernel):
    conv, x = JaccardSubtractorConv(5, 8, 4, kernel), 300 * torch.randn(7, 5)
    index = torch.zeros(EDGES.size(1))
    out = conv(x.requires_grad_(), EDGES, index, MASK)
    out.sum().backward()
    assert out.isfinite().all()
    assert x.grad.isfinite().all()
    assert torch.equal(out[6], torch.zeros(8))
    same = torch.ones(7, 5)
    torch.testing.assert_close(conv(same, EDGES, index)[:6], conv.lin_value(same)[:6])


def test_only_heads_with_scores_have_queries_and_keys():
    sizes = {kernel: JaccardSubtractorConv(5, 8, 4, kernel) for kernel in KERNELS}
    assert (
        sizes['jaccard'].lin_query.weight.shape == sizes['jaccard'].lin_key.weight.shape == (4, 5)
    )
    assert sizes['subtractor'].lin_query.weight.shape == (8, 5)
    assert sizes['mean', 'mean'].lin_query is None


def test_sampling_saves_the_work_of_scores():
    """Projections of values are the same for all; what is left are sampled nodes, their neighbours
    and the edges between."""
    edges, width = barabasi_albert_graph(2000, 4), 8
    index, x = jaccard(edges, 2000), torch.randn(2000, width)
    mask = torch.zeros(2000, dtype=torch.bool)
    mask[torch.bincount(edges[1], minlength=2000).argsort()[:38]] = True
    results = []
    for sampled in (None, mask):
        with FlopCounterMode(display=False) as counter:
            JaccardSubtractorConv(width, width, 4, 'jaccard')(x, edges, index, sampled)
        results.append(counter.get_total_flops())
    chosen = edges[:, mask[edges[1]]]
    keys, queries, (count, part) = chosen[0].unique().numel(), 38, (edges.size(1), chosen.size(1))
    values, half = 2 * 2000 * width * width, width // 2
    assert results[0] == values + 2 * (4000 * width * half + 2 * count * half) + 2 * count * half
    assert (
        results[1]
        == values + 2 * ((keys + queries) * width * half + 2 * part * half) + 2 * 2 * count * half
    )


@pytest.mark.parametrize('kernel', ['jaccard', 'subtractor', 'mean'])
def test_weights_of_edges_in_bfloat16_have_single_precision(kernel):
    conv = JaccardSubtractorConv(8, 8, 2, (kernel, kernel)).bfloat16()
    edges, x = torch.tensor([[0, 1, 2], [3, 3, 3]]), torch.randn(4, 8).bfloat16()
    assert conv.attention_scores(x, edges, torch.rand(3)).dtype == torch.float32


@pytest.mark.parametrize('autocast', [False, True])
@pytest.mark.parametrize('edge_channels', [0, 3])
@pytest.mark.parametrize(
    'kernel',
    ['jaccard', 'subtractor', ('softmax', 'softmax'), ('subtractor', 'subtractor')],
    ids=str,
)
def test_gradients_in_bfloat16(kernel, edge_channels, autocast):
    """Within one epsilon of bfloat16, by root mean square, of those in float32. Queries and keys
    rounded to bfloat16 gave the subtractor's distances gradients of the wrong sign: up to 8
    epsilons."""
    torch.manual_seed(0)
    edges, index, mask = torch.randint(60, (2, 500)), torch.rand(500), torch.rand(60) < 0.5
    exact = JaccardSubtractorConv(32, 32, 4, kernel, edge_channels=edge_channels)
    exact.load_state_dict({key: value.bfloat16() for key, value in exact.state_dict().items()})
    half = JaccardSubtractorConv(32, 32, 4, kernel, edge_channels=edge_channels)
    half.load_state_dict(exact.state_dict())
    x, grad = (torch.randn(60, 32).bfloat16() for _ in range(2))
    features = torch.randn(500, 3).bfloat16() if edge_channels > 0 else None
    results = []
    for conv, dtype in ((exact, torch.float32), (half, torch.bfloat16)):
        is_cast = autocast and dtype == torch.bfloat16
        inputs = x.to(dtype).requires_grad_()
        edge_attr = None if features is None else features.to(dtype)
        with torch.autocast('cpu', torch.bfloat16, enabled=is_cast):
            out = conv.to(torch.float32 if is_cast else dtype)(
                inputs, edges, index, mask, edge_attr=edge_attr
            )
        grads = gradients(out, leaves_of(conv, x=inputs), grad.to(out.dtype))
        results.append({'out': out, **grads})
    if edge_channels == 0 and 'subtractor' not in kernel:
        bias = results[0].pop('lin_key.bias')  # a softmax does not depend on what all keys share
        assert bias.abs().max() < 1e-5
    epsilon = torch.finfo(torch.bfloat16).eps
    for name, wanted in results[0].items():
        error = (results[1][name].float() - wanted).square().mean().sqrt()
        assert error < epsilon * wanted.square().mean().sqrt(), name


def test_nothing_of_the_size_of_edges_times_channels_is_kept():
    edges, x = torch.randint(100, (2, 5000)), torch.randn(100, 64, requires_grad=True)
    for kernel in ('jaccard', 'subtractor'):
        conv, saved = JaccardSubtractorConv(64, 64, 8, kernel), []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, saved=saved: saved.append(t.numel()) or t, lambda t: t
        ):
            conv(x, edges, torch.rand(5000)).sum().backward()
        assert max(saved) <= 5000 * 8


def test_features_of_edges_keep_the_scores_alone():
    """Neither queries nor keys nor their rows at both ends of an edge."""
    edges, x = torch.randint(100, (2, 5000)), torch.randn(100, 64, requires_grad=True)
    for kernel, width in (('jaccard', 32), ('subtractor', 64)):
        conv = JaccardSubtractorConv(64, 64, 8, kernel, edge_channels=3)
        with SavedStorages() as saved:
            out = conv(x, edges, torch.rand(5000), edge_attr=torch.randn(5000, 3))
        large = [size for size in saved.sizes if size > 4 * 5000 * 8 * 2]
        assert large == [4 * 5000 * width] * len(large)
        assert len(large) == {'jaccard': 1, 'subtractor': 2}[kernel]
        out.sum().backward()


def test_work_for_features_of_edges():
    """Queries, keys and products only at the sampled nodes; two products for each channel of an
    edge, and three times the work backward."""
    x, edge_attr = torch.randn(7, 5, requires_grad=True), torch.randn(14, 3)
    conv = JaccardSubtractorConv(5, 8, 4, ('softmax', 'softmax'), edge_channels=3)
    part = EDGES[:, MASK[EDGES[1]]]
    projections, products = 2 * (part[0].unique().numel() + 4) * 5 * 8, 2 * part.size(1) * 8
    with FlopCounterMode(display=False) as counter:
        out = conv(x, EDGES, sampled_mask=MASK, edge_attr=edge_attr)
    counts = {str(op): count for op, count in counter.get_flop_counts()['Global'].items()}
    assert counts['torch_geometric_lgt.edge_scores'] == projections + products
    with FlopCounterMode(display=False) as counter:
        out.sum().backward()
    counts = {str(op): count for op, count in counter.get_flop_counts()['Global'].items()}
    assert counts['torch_geometric_lgt.edge_scores_backward'] == 3 * (projections + products)


@pytest.mark.parametrize('kernel', ['jaccard', 'subtractor'])
@pytest.mark.compiled
# numbers as symbols would trace each graph twice
@torch._dynamo.config.patch(specialize_float=True)
def test_features_of_edges_compile_without_a_break(kernel):
    conv, index = JaccardSubtractorConv(5, 8, 4, kernel, edge_channels=3), jaccard(EDGES, 7)
    compiled = torch.compile(conv, fullgraph=True, dynamic=True, backend='aot_eager')
    x, edge_attr = torch.randn(7, 5), torch.randn(14, 3)
    for mask in (None, MASK):
        leaves = {'x': x.clone().requires_grad_(), 'edge_attr': edge_attr.clone().requires_grad_()}
        results = []
        for run in (conv, compiled):
            arguments = {'edge_attr': leaves['edge_attr'], 'return_edge_scores': True}
            out = run(leaves['x'], EDGES, index, mask, **arguments)
            loss = sum(part.square().sum() for part in out)
            results.append({'outputs': out, **gradients(loss, leaves)})
        torch.testing.assert_close(*results)


@pytest.mark.parametrize('kernel', ['jaccard', 'subtractor'])
@pytest.mark.compiled
# numbers as symbols would trace each graph twice
@torch._dynamo.config.patch(specialize_float=True)
def test_compiles_without_a_break(kernel):
    conv, index = JaccardSubtractorConv(5, 8, 4, kernel), jaccard(EDGES, 7)
    compiled = torch.compile(conv, fullgraph=True, dynamic=True, backend='aot_eager')
    x = torch.randn(7, 5)
    for mask in (None, MASK):
        leaf, results = x.clone().requires_grad_(), []
        for run in (conv, compiled):
            out = run(leaf, EDGES, index, mask)
            results.append({'out': out, **gradients(out.square().sum(), {'x': leaf})})
        torch.testing.assert_close(*results)


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'heads': 3}, "'heads' must be even"),
        ({'heads': 6}, "'heads' must divide 'out_channels'"),
        ({'kernel': 'cosine'}, "'kernel' must be one of 'softmax', 'jaccard'"),
        ({'kernel': ('mean', 'mean', 'mean')}, "'kernel' must be one or two of"),
        ({'edge_channels': -1}, "'edge_channels' must be at least 0"),
        (
            {'kernel': ('mean', 'jaccard'), 'edge_channels': 2},
            r"'edge_channels' must be 0 for kernels without queries and keys, .* \(got 2\)",
        ),
    ],
)
def test_raises_when_made(options, message):
    with pytest.raises(ValueError, match=message):
        JaccardSubtractorConv(5, 8, **options)


def test_raises_when_run():
    conv, x, index = JaccardSubtractorConv(5, 8, 4), torch.randn(7, 5), torch.rand(EDGES.size(1))
    with pytest.raises(ValueError, match='add it to the data with JaccardScores'):
        conv(x, EDGES)
    with pytest.raises(ValueError, match='one index for each of 14 edges'):
        conv(x, EDGES, index[1:])
    with pytest.raises(ValueError, match="'sampled_mask' must be a bool for each of 7 nodes"):
        conv(x, EDGES, index, MASK.float())
    with pytest.raises(ValueError, match=r"'x' must have shape \[N, 5\]"):
        conv(x[:, 1:], EDGES, index)
    with pytest.raises(ValueError, match="'edge_attr' must be None for a layer"):
        conv(x, EDGES, index, edge_attr=torch.rand(14, 1))
    with pytest.raises(ValueError, match="'return_edge_scores' must be False"):
        conv(x, EDGES, index, return_edge_scores=True)
    with pytest.raises(ValueError, match="'edge_channels' must be positive"):
        conv.edge_scores(x, EDGES, index, edge_attr=None)
    for wrong in (None, torch.rand(14, 3), torch.rand(13, 2)):
        with pytest.raises(ValueError, match=r"'edge_attr' must have shape \(14, 2\)"):
            JaccardSubtractorConv(5, 8, 4, edge_channels=2)(x, EDGES, index, edge_attr=wrong)
    with pytest.raises(ValueError, match=r"'edge_attr' must be of floating point \(got torch.bool"):
        JaccardSubtractorConv(5, 8, 4, edge_channels=2)(x, EDGES, index, edge_attr=EDGES.t() > 2)
    assert repr(conv) == "JaccardSubtractorConv(5, 8, heads=4, kernels=('softmax', 'jaccard'))"


@pytest.mark.parametrize('name', ['edge_jaccard', 'sampled_mask', 'edge_attr'])
def test_arrays_in_the_place_of_tensors_are_named(name):
    conv, x = JaccardSubtractorConv(5, 8, 4, edge_channels=2), torch.randn(7, 5)
    inputs = {'edge_jaccard': torch.rand(14), 'edge_attr': torch.rand(14, 2), 'sampled_mask': MASK}
    for wrong, kind in ((inputs[name].numpy(), 'ndarray'), (inputs[name].tolist(), 'list')):
        message = f"'{name}' must be a torch.Tensor (got {kind}); convert it with torch.as_tensor("
        with pytest.raises(TypeError, match=f'^{re.escape(message)}'):
            conv(x, EDGES, **(inputs | {name: wrong}))


def test_a_layer_without_queries_refuses_the_parameters_of_some():
    parameters = JaccardSubtractorConv(4, 8, 2, 'softmax').state_dict()
    layer = JaccardSubtractorConv(4, 8, 2, ('mean', 'jaccard'))
    assert (layer.lin_query, layer.lin_key) == (None, None)
    with pytest.raises(RuntimeError, match=r'Unexpected key\(s\) in state_dict: .*lin_query'):
        layer.load_state_dict(parameters)


@pytest.mark.parametrize('kernel', ['jaccard', ('softmax', 'softmax'), ('softmax', 'subtractor')])
def test_queries_of_one_branch_are_not_sliced(kernel):
    """Each slice would have a gradient of full size."""
    conv = JaccardSubtractorConv(4, 8, 4, kernel)
    part = linear_part(conv.lin_query, torch.randn(3, 4))
    with_queries = [branch for branch in conv.branches if branch.has_queries]
    assert [branch.select(part) is part for branch in with_queries] == (
        [True] if len(with_queries) == 1 else [False, False]
    )


def test_indices_that_are_none_are_refused():
    """Weights of edges by position, as PyG's layers take them, and indices that ``ToUndirected``
    has added up were read as Jaccard indices."""
    x = torch.randn(5, 4)
    pairs = torch.combinations(torch.arange(5)).t()  # of five nodes that are all neighbours
    data = Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], 1))
    layer = JaccardSubtractorConv(4, 8, heads=2)
    merged = ToUndirected()(JaccardScores()(data))
    assert merged.edge_jaccard.max() > 1
    bad = ([1.5] * 20, [-0.5] * 20, [float('nan')] * 20)
    calls = [(data.edge_index, torch.tensor(index)) for index in bad]
    for edges, index in [*calls, (merged.edge_index, merged.edge_jaccard)]:
        with pytest.raises(ValueError, match=r"^'edge_jaccard' must be from 0 to 1 \(got .* to .*"):
            layer(x, edges, index)
    assert layer(x, data.edge_index, torch.arange(20) / 19).shape == (5, 8)
