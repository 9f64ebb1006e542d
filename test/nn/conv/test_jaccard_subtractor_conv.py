import pytest
import torch
from definitions import jaccard_subtractor
from torch.utils.flop_counter import FlopCounterMode
from torch_geometric.nn import TransformerConv
from torch_geometric.utils import barabasi_albert_graph

from torch_geometric_lgt.functional import jaccard
from torch_geometric_lgt.nn import JaccardSubtractorConv

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
    leaves = [t.requires_grad_() for t in (x_src, *(() if x_dst is None else (x_dst,)))] + list(
        conv.parameters()
    )
    actual = conv(x, edges, scores, mask)
    wanted = jaccard_subtractor(conv, x, edges, scores, mask)
    torch.testing.assert_close(actual, wanted, rtol=1e-10, atol=1e-10)
    grad = torch.randn_like(wanted)
    results = [
        torch.autograd.grad(out, leaves, grad, allow_unused=True, materialize_grads=True)
        for out in (actual, wanted)
    ]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


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
    conv, x, index = (
        JaccardSubtractorConv(5, 8, 4, kernel).double(),
        torch.randn(7, 5, dtype=DOUBLE),
        jaccard(EDGES, 7).double(),
    )
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
    conv = JaccardSubtractorConv(5, 8, 4, 'jaccard')
    torch.manual_seed(3)
    conv.reset_parameters()
    before = [p.clone() for p in conv.parameters()]
    torch.manual_seed(3)
    conv.reset_parameters()
    assert all(
        torch.equal(one, other) for one, other in zip(before, conv.parameters(), strict=True)
    )


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


def test_nothing_of_the_size_of_edges_times_channels_is_kept():
    edges, x = torch.randint(100, (2, 5000)), torch.randn(100, 64, requires_grad=True)
    for kernel in ('jaccard', 'subtractor'):
        conv, saved = JaccardSubtractorConv(64, 64, 8, kernel), []
        with torch.autograd.graph.saved_tensors_hooks(
            lambda t, saved=saved: saved.append(t.numel()) or t, lambda t: t
        ):
            conv(x, edges, torch.rand(5000)).sum().backward()
        assert max(saved) <= 5000 * 8


@pytest.mark.parametrize('kernel', ['jaccard', 'subtractor'])
@pytest.mark.compiled
def test_compiles_without_a_break(kernel):
    conv, index = JaccardSubtractorConv(5, 8, 4, kernel), jaccard(EDGES, 7)
    compiled, x = (
        torch.compile(conv, fullgraph=True, dynamic=True, backend='aot_eager'),
        torch.randn(7, 5),
    )
    for mask in (None, MASK):
        leaves, results = x.clone().requires_grad_(), []
        for run in (conv, compiled):
            out = run(leaves, EDGES, index, mask)
            results.append((out, *torch.autograd.grad(out.square().sum(), leaves)))
        for one, other in zip(*results, strict=True):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize(
    ('options', 'message'),
    [
        ({'heads': 3}, "'heads' must be even"),
        ({'heads': 6}, "'heads' must divide 'out_channels'"),
        ({'kernel': 'cosine'}, "'kernel' must be one or two of"),
        ({'kernel': ('mean', 'mean', 'mean')}, "'kernel' must be one or two of"),
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
    assert repr(conv) == "JaccardSubtractorConv(5, 8, heads=4, kernels=('softmax', 'jaccard'))"
