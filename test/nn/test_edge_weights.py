"""Weights of edges against PyG's layers and dense definitions, outputs and gradients."""

import pytest
import torch
from gradients import assert_same_gradients, gradients, leaves_of
from torch._dynamo.exc import TorchDynamoException
from torch_geometric.nn import GCN, GCNConv, GraphSAGE
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.typing import WITH_TORCH_SPARSE
from torch_geometric.utils import remove_self_loops

from torch_geometric_lgt.functional import sorted_edges
from torch_geometric_lgt.nn import (
    AdjacencyMaskedAttention,
    DegreeMaskedAttention,
    DIFFormer,
    DIFFormerConv,
    GraphTransformer,
    JaccardSubtractorConv,
    KernelAttentionConv,
    LiteGT,
    MGFormer,
    NodeFormer,
    SGFormer,
)
from torch_geometric_lgt.nn.models._graph_context import GraphContext
from torch_geometric_lgt.nn.models._sparse_gcn import SparseGCNConv, gcn_edges
from torch_geometric_lgt.testing import dense
from torch_geometric_lgt.typing import SparseTensor

DOUBLE, N = torch.float64, 9
# Repeated edges, given self loops of nodes 0 and 5, node 8 without edges, node 7 with edges out
# only.
EDGES = torch.tensor(
    [
        [1, 2, 0, 2, 0, 1, 3, 2, 4, 3, 5, 4, 1, 0, 5, 7, 7],
        [0, 0, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 0, 0, 5, 6, 0],
    ]
)
PROPER = remove_self_loops(EDGES)[0]


def features(*shape):
    return torch.randn(
        *shape, dtype=DOUBLE, generator=torch.Generator().manual_seed(0)
    ).requires_grad_()


def weights(edges, first=0.2):
    weight = 0.2 + torch.rand(
        edges.size(1), dtype=DOUBLE, generator=torch.Generator().manual_seed(1)
    )
    weight[0] = first
    return weight.requires_grad_()


def attention_of(conv):
    """The layer without its sum over neighbours."""
    alone = DIFFormerConv(conv.in_channels, conv.out_channels, conv.heads, use_graph=False).double()
    for name in ('lin_query', 'lin_key', 'lin_value'):
        setattr(alone, name, getattr(conv, name))
    return alone


def compare(actual, expected, leaves):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    options = {'materialize_grads': True, 'retain_graph': True}
    assert_same_gradients(actual, expected, leaves, rtol=1e-9, atol=1e-10, **options)


@pytest.mark.parametrize('first', [0.2, -0.1])
def test_local_convolution_is_that_of_pyg(first):
    """Given self loops keep their weights. A weight below 0 leaves sums above."""
    ours, theirs = SparseGCNConv(4, 3, normalize=False).double(), GCNConv(4, 3).double()
    theirs.load_state_dict(ours.state_dict())
    x, weight = features(N, 4), weights(EDGES, first)
    actual = ours(x, gcn_edges(EDGES, N, DOUBLE, None, weight))
    expected = theirs(x, EDGES, weight)
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)
    grad = torch.randn_like(expected)
    found = gradients(actual, leaves_of(ours, x=x, edge_weight=weight), grad)
    wanted = gradients(expected, leaves_of(theirs, x=x, edge_weight=weight), grad)
    torch.testing.assert_close(found, wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize('gnn', [None, 'plain', 'weighted'])
def test_sgformer_normalises_as_pyg_does(gnn):
    made = None if gnn is None else GCN(8, 8, 2, 8, normalize=gnn == 'plain')
    model = SGFormer(4, 8, 3, gnn=made, alpha=1.0).double().eval()
    plain = GCN(8, 8, 2, 8, norm='batch_norm' if gnn is None else None).double().eval()
    plain.load_state_dict(model.gnn.state_dict())
    x, weight = features(N, 4), weights(EDGES)
    expected = model.lin_out(plain(model.input_layer(x), EDGES, weight))
    leaves = leaves_of(model, 'lin_in', x=x, edge_weight=weight)
    compare(model(x, EDGES, edge_weight=weight), expected, leaves)
    matrix = torch.sparse_coo_tensor(EDGES.flip(0), weight.detach(), (N, N))
    formats = [sorted_edges(EDGES, N, N, edge_weight=weight), matrix, matrix.to_sparse_csr()]
    if WITH_TORCH_SPARSE:
        formats.append(SparseTensor.from_edge_index(EDGES, weight, (N, N)).t())
    for edges in formats:
        torch.testing.assert_close(model(x, edges), expected)
    degree = torch.zeros(N, dtype=DOUBLE).index_add_(
        0, PROPER[1], weight.detach()[EDGES[0] != EDGES[1]]
    )
    if gnn == 'plain':
        with pytest.raises(ValueError, match=r"'degree' must be None .* counts the degrees of its"):
            model(x, EDGES, edge_weight=weight, degree=degree)
        return
    torch.testing.assert_close(model(x, EDGES, edge_weight=weight, degree=degree), expected)


def test_repeated_self_loops_count_once_with_their_mean():
    model, x = SGFormer(4, 8, 3, alpha=1.0).double().eval(), features(3, 4)
    twice, once = torch.tensor([[0, 1, 1], [1, 1, 1]]), torch.tensor([[0, 1], [1, 1]])
    actual = model(x, twice, edge_weight=torch.tensor([0.5, 1.0, 3.0], dtype=DOUBLE))
    torch.testing.assert_close(
        actual, model(x, once, edge_weight=torch.tensor([0.5, 2.0], dtype=DOUBLE))
    )


def test_a_network_that_drops_weights_is_refused():
    model, x = SGFormer(4, 8, 3, gnn=GraphSAGE(8, 8, 2)), torch.randn(N, 4)
    matrix = torch.sparse_coo_tensor(
        EDGES.flip(0), weights(EDGES).detach().float(), (N, N)
    ).coalesce()
    for edges, weight in (
        (EDGES, weights(EDGES).float()),
        (matrix, None),
        (matrix.to_sparse_csr(), None),
    ):
        with pytest.raises(
            ValueError, match="'gnn' must take weights of edges where there are some"
        ):
            model(x, edges, edge_weight=weight)


@pytest.mark.parametrize('first', [0.2, -0.1])
@pytest.mark.parametrize('bipartite', [False, True])
def test_difformer_propagates_with_weighted_degrees(first, bipartite):
    conv = DIFFormerConv(4, 6, 2, graph_weight=0.7).double()
    x = features(N, 4)
    weight = weights(EDGES, first)
    alone = attention_of(conv)
    pair = (x, x[:7]) if bipartite else x
    matrix = dense.normalised_adjacency(
        dense.adjacency_matrix(EDGES, weight, N, 7 if bipartite else N)
    )
    compare(
        conv(pair, EDGES, edge_weight=weight),
        alone(pair) + 0.7 * matrix @ conv.lin_value(x),
        leaves_of(conv, x=x, edge_weight=weight),
    )


def test_difformer_is_normalised_as_gcn_norm_on_undirected_graphs():
    edges = torch.cat([PROPER, PROPER.flip(0)], 1)
    conv, x, weight = DIFFormerConv(4, 6).double(), features(N, 4), weights(PROPER).repeat(2)
    (source, target), value = gcn_norm(edges, weight, N, add_self_loops=False)
    matrix = torch.zeros(N, N, dtype=DOUBLE).index_put((target, source), value, accumulate=True)
    alone = attention_of(conv)
    torch.testing.assert_close(
        conv(x, edges, edge_weight=weight), alone(x) + matrix @ conv.lin_value(x)
    )


def test_weights_that_add_up_to_zero_give_zero_with_finite_gradients():
    edges = torch.tensor([[0, 1, 2, 2, 1], [1, 0, 0, 1, 2]])
    for values in ([0.0, 1.0, -1.0, 2.0, 1.0], [0.0] * 5):
        conv = DIFFormerConv(4, 6).double()
        x = features(3, 4)
        weight = torch.tensor(values, dtype=DOUBLE, requires_grad=True)
        value = gcn_norm(edges, weight.detach(), 3, add_self_loops=False)[1]
        assert value.isfinite().all()
        out = conv(x, edges, edge_weight=weight)
        torch.testing.assert_close(out[0], attention_of(conv)(x)[0])
        assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), (x, weight)))


@pytest.mark.parametrize('source', ['value', 'output'])
def test_relational_bias_of_weighted_pairs(source):
    """Each pair once, with the mean of its weights."""
    edges = PROPER if source == 'value' else EDGES
    conv = KernelAttentionConv(4, 6, 2, relational_order=1, relational_input=source).double()
    x = features(N, 4)
    weight = weights(edges)
    alone = KernelAttentionConv(4, 6, 2).double()
    for name in ('lin_query', 'lin_key', 'lin_value', 'feature_map'):
        setattr(alone, name, getattr(conv, name))
    count = dense.adjacency_matrix(edges, torch.ones_like(weight), N, N)
    matrix = dense.adjacency_matrix(edges, weight, N, N) / count.clamp(min=1)
    if source == 'value':
        matrix = dense.normalised_adjacency(matrix + torch.eye(N, dtype=DOUBLE))
    share = conv.relational_bias.weight.sigmoid().repeat_interleave(3, 1)
    expected = alone(x) + share * (matrix @ (conv.lin_value(x) if source == 'value' else alone(x)))
    leaves = leaves_of(conv, 'relational_bias', 'lin_value', x=x, edge_weight=weight)
    compare(conv(x, edges, edge_weight=weight), expected, leaves)
    torch.testing.assert_close(conv(x, conv.hops(edges, N, weight)), expected)
    if source == 'value':
        plain = dense.adjacency_matrix(edges, weight, N, N).detach() / count.clamp(min=1)
        degree = plain.sum(0), plain.sum(1)
        torch.testing.assert_close(conv(x, conv.hops(edges, N, weight), degree=degree), expected)


@pytest.mark.parametrize(
    'feature_map', ['simplex', 'elu', 'relu', 'focused', 'fourier', 'learned', torch.nn.Softplus()]
)
def test_adjacency_mask_holds_the_weights(feature_map):
    layer = AdjacencyMaskedAttention(6, 2, feature_map).double()
    x = features(N, 6)
    weight = weights(EDGES)
    q, k, v = (part.unflatten(1, (2, 3)) for part in (layer.lin_query(x), layer.lin_key(x), x))
    scale, phi = layer.data_normalizer(False), layer.feature_map
    if isinstance(feature_map, str) and feature_map != 'learned':
        kind, projection = phi.map.name, phi.projection
        phi_q, phi_k = (
            dense.feature_map(kind, scale * part, projection, phi.power) for part in (q, k)
        )
    else:
        phi_q, phi_k = phi(q), phi(k)
    expected = dense.kernel_attention(
        phi_q, phi_k, v, dense.adjacency_matrix(EDGES, weight, N, N)
    ).flatten(1)
    compare(
        layer(x, EDGES, edge_weight=weight),
        expected,
        leaves_of(layer, 'lin_query', 'lin_key', x=x, edge_weight=weight),
    )


KERNELS = [
    'jaccard',
    'subtractor',
    ('softmax', 'softmax'),
    ('mean', 'jaccard'),
    ('subtractor', 'subtractor'),
]


@pytest.mark.parametrize('normalize', [True, False])
@pytest.mark.parametrize('sampled', [False, True])
@pytest.mark.parametrize('kernel', KERNELS, ids=str)
def test_weights_multiply_each_branch_before_it_is_normalised(kernel, sampled, normalize):
    conv = JaccardSubtractorConv(4, 8, 4, kernel, normalize=normalize).double()
    x, weight, used, out = features(N, 4), weights(EDGES), 0, []
    index = (torch.arange(EDGES.size(1)) > 4) * torch.rand(EDGES.size(1), dtype=DOUBLE)
    mask = torch.arange(N) % 3 != 1 if sampled else None
    matrix = dense.adjacency_matrix(EDGES, weight, N, N)
    for branch, name in enumerate(conv.kernels):
        # repeated edges of other indices: their weighted mean
        score = (
            dense.adjacency_matrix(EDGES, weight * index, N, N)
            / torch.where(matrix == 0, 1, matrix)
        )[..., None].expand(-1, -1, 2)
        if name in ('softmax', 'subtractor'):
            rows = slice(used, used + 2)
            q, k = (lin(x).unflatten(1, (-1, 2))[:, rows] for lin in (conv.lin_query, conv.lin_key))
            score = (
                torch.einsum('ihc,jhc->ijh', q, k) / 2**0.5
                if name == 'softmax'
                else (q[:, None] - k[None]).abs().sum(3)
            )
            used += 2
        share = dense.edge_weights(name, matrix, score, mask, normalize)
        out.append(
            torch.einsum(
                'ijh,jhc->ihc',
                share,
                conv.lin_value(x).unflatten(1, (4, 2))[:, branch * 2 : branch * 2 + 2],
            )
        )
    compare(
        conv(x, EDGES, index, mask, edge_weight=weight),
        torch.cat(out, 1).flatten(1),
        leaves_of(conv, x=x, edge_weight=weight),
    )
    scores = conv.attention_scores(x, EDGES, index, mask, edge_weight=weight)
    value = conv.lin_value(x).unflatten(1, (4, 2))
    summed = torch.zeros(N, 4, 2, dtype=DOUBLE).index_add(
        0, EDGES[1], scores[..., None] * value[EDGES[0]]
    )
    torch.testing.assert_close(summed.flatten(1), conv(x, EDGES, index, mask, edge_weight=weight))


REPEATED = {
    'SGFormer': lambda: (SGFormer(4, 8, 3), {}),
    'DIFFormer': lambda: (DIFFormer(4, 8, 3, 3), {}),
    'GraphTransformer': lambda: (GraphTransformer(4, 8, 3), {}),
    'LiteGT': lambda: (LiteGT(4, 16, 3, 2, 4, ('softmax', 'subtractor')), {}),
    'LiteGT-mean': lambda: (LiteGT(4, 16, 3, 2, 4, ('mean', 'subtractor'), normalize=False), {}),
    'LiteGT-sampled': lambda: (
        LiteGT(4, 16, 3, 2, 4, 'subtractor'),
        {'sampled_mask': torch.arange(N) % 2 == 0},
    ),
    'AdjacencyMaskedAttention': lambda: (AdjacencyMaskedAttention(4, 2), {}),
}


@pytest.mark.parametrize('name', REPEATED)
def test_an_edge_of_weight_two_is_one_that_occurs_twice(name):
    """And one of weight 0 is none, whatever its end has: PyG's self loops aside."""
    model, options = REPEATED[name]()
    model, x, edges = model.double().eval(), features(N, 4), PROPER
    count = torch.randint(3, (edges.size(1),), generator=torch.Generator().manual_seed(0))
    x = (
        x * torch.where(torch.arange(N) == 7, 30.0, 1.0)[:, None]
    ).detach()  # the source of the edges that are left out
    count = torch.where(edges[0] == 7, 0, count)
    weight = count.to(DOUBLE).requires_grad_()
    actual = model(x, edges, edge_weight=weight, **options)
    expected = model(x, edges.repeat_interleave(count, 1), **options)
    torch.testing.assert_close(actual, expected, rtol=1e-9, atol=1e-9)
    assert torch.autograd.grad(actual.sum(), weight)[0].isfinite().all()


@pytest.mark.parametrize('dtype', [torch.float32, DOUBLE])
def test_an_edge_of_weight_zero_does_not_drown_the_others(dtype):
    """Its logit is larger by thousands."""
    layer = AdjacencyMaskedAttention(2, feature_map='simplex').to(dtype)
    conv = JaccardSubtractorConv(2, 2, 2, ('softmax', 'softmax')).to(dtype)
    for lin in (layer.lin_query, layer.lin_key, conv.lin_query, conv.lin_key):
        torch.nn.init.eye_(lin.weight)
    x = torch.tensor([[1.0, 1.0], [90.0, 90.0], [1.0, 2.0]], dtype=dtype)
    edges = torch.tensor([[0, 1, 2], [0, 0, 0]])
    weight = torch.tensor([1.0, 0.0, 1.0], dtype=dtype, requires_grad=True)
    for module in (layer, conv):
        out = module(x, edges, edge_weight=weight)
        torch.testing.assert_close(out, module(x, edges[:, [0, 2]]))
        assert torch.autograd.grad(out.sum(), weight)[0].isfinite().all()
        tiny = module(x, edges, edge_weight=1e-30 * torch.tensor([1.0, 0.0, 1.0], dtype=dtype))
        torch.testing.assert_close(tiny, out)


def test_mgformer_weighs_neighbours():
    model, weight = MGFormer(4, 5, 6, num_layers=2, mask='adjacency').double(), weights(EDGES)
    layer_by_layer = model.tokens()
    for layer in model.layers:
        layer_by_layer = layer(layer_by_layer, EDGES, edge_weight=weight) + layer_by_layer
    leaves = leaves_of(model, 'embedding', edge_weight=weight)
    compare(model.get_embedding(EDGES, edge_weight=weight), layer_by_layer, leaves)
    nodes = torch.tensor([5, 0, 3])
    compare(model.get_embedding(EDGES, nodes, edge_weight=weight), layer_by_layer[nodes], leaves)
    expected = layer_by_layer[:4] @ layer_by_layer[4:].t()
    assert torch.equal(
        model.recommend(EDGES, k=1, edge_weight=weight).flatten(), expected.argmax(1) + 4
    )
    pairs = torch.tensor([[0, 1], [5, 6]])
    torch.testing.assert_close(
        model(EDGES, pairs, edge_weight=weight), expected[pairs[0], pairs[1] - 4]
    )
    torch.testing.assert_close(
        model.predict_link(EDGES, pairs, prob=True, edge_weight=weight),
        expected[pairs[0], pairs[1] - 4].sigmoid(),
    )
    with pytest.raises(ValueError, match="'edge_weight' must be None unless 'mask' is 'adjacency'"):
        MGFormer(4, 5, 6)(EDGES, pairs, edge_weight=weight)


def test_scores_of_models_are_those_of_the_weighted_graph():
    x, weight, pairs = features(N, 4), weights(PROPER), torch.tensor([[0, 1], [2, 3]])
    for model in (DIFFormer(4, 8, 3).double().eval(), NodeFormer(4, 8, 3).double().eval()):
        second = model.layers(x, GraphContext(model.prepare_edges(PROPER, N, weight)))[1]
        scores = model.attention_scores(x, PROPER, pairs, edge_weight=weight)[1]
        torch.testing.assert_close(scores, model.convs[1].attention_scores(second, pairs))
        assert not torch.allclose(scores, model.attention_scores(x, PROPER, pairs)[1])
    model = LiteGT(4, 16, 3, 2, 4, ('softmax', 'subtractor')).double().eval()
    first = model.layers[0].conv.attention_scores(model.inputs(x), PROPER, edge_weight=weight)
    torch.testing.assert_close(model.attention_scores(x, PROPER, edge_weight=weight)[0], first)


MATRIX = (
    torch.sparse_coo_tensor(PROPER.flip(0), 0.5 + torch.arange(PROPER.size(1)), (N, N))
    .coalesce()
    .to_sparse_csr()
)
REFUSED = {
    'negative softmax': lambda x, w: JaccardSubtractorConv(4, 4, 2, 'subtractor')(
        x, PROPER, edge_weight=-w
    ),
    'negative mask': lambda x, w: AdjacencyMaskedAttention(4)(x, PROPER, edge_weight=-w),
    'no bias': lambda x, w: KernelAttentionConv(4, 4)(x, PROPER, edge_weight=w),
    'no graph': lambda x, w: DIFFormerConv(4, 4, use_graph=False)(x, PROPER, edge_weight=w),
    'model without graph': lambda x, w: DIFFormer(4, 4, 2, use_graph=False)(
        x, PROPER, edge_weight=w
    ),
    'model without bias': lambda x, w: NodeFormer(4, 4, 2, relational_order=0)(
        x, PROPER, edge_weight=w
    ),
    'two orders': lambda x, w: NodeFormer(4, 4, 2, relational_order=2)(x, PROPER, edge_weight=w),
    'two orders of a matrix': lambda x, w: NodeFormer(4, 4, 2, relational_order=2)(x, MATRIX),
    'edge loss': lambda x, w: NodeFormer(4, 4, 2)(x, PROPER, edge_weight=w, return_edge_loss=True),
    'self loops': lambda x, w: NodeFormer(4, 4, 2)(
        x, EDGES, edge_weight=torch.full((EDGES.size(1),), 2.0)
    ),
    'hops and weights': lambda x, w: KernelAttentionConv(4, 4, relational_order=1)(
        x, [PROPER], edge_weight=w
    ),
    'values and weights': lambda x, w: DIFFormer(4, 4, 2)(
        x, MATRIX, edge_weight=torch.ones(MATRIX.values().numel())
    ),
    'degrees': lambda x, w: DegreeMaskedAttention(4)(x, edge_index=MATRIX),
    'length': lambda x, w: SGFormer(4, 4, 2)(x, PROPER, edge_weight=w[:-1]),
    'shape': lambda x, w: LiteGT(4, 4, 2, 1, 2, 'subtractor')(x, PROPER, edge_weight=w[:, None]),
    'whole numbers': lambda x, w: DIFFormer(4, 4, 2)(x, PROPER, edge_weight=w.long()),
}


@pytest.mark.parametrize('name', REFUSED)
def test_weights_of_edges_that_have_no_meaning_are_refused(name):
    with pytest.raises(ValueError, match='weight'):
        REFUSED[name](torch.randn(N, 4), torch.rand(PROPER.size(1)) + 0.1)


@pytest.mark.compiled
def test_an_edge_loss_of_weighted_edges_is_refused_compiled_too():
    model = NodeFormer(4, 8, 3, num_layers=1).eval()
    x = features(N, 4).detach().float()
    weight = weights(PROPER).detach().float()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend='eager')
    for run in (model, compiled):
        with pytest.raises((ValueError, TorchDynamoException), match='edge_weight'):
            run(x, PROPER, edge_weight=weight, return_edge_loss=True)


@pytest.mark.parametrize('weight', [torch.inf, torch.nan, -1.0])
def test_weights_that_are_no_weights_are_refused(weight):
    with pytest.raises(
        ValueError, match=f"'edge_weight' must be finite and not negative, .*{weight}"
    ):
        AdjacencyMaskedAttention(4)(
            torch.randn(N, 4), PROPER, edge_weight=torch.full((PROPER.size(1),), weight)
        )


@pytest.mark.compiled
@pytest.mark.parametrize('source', ['value', 'output'])
# numbers as symbols would trace each graph twice
@torch._dynamo.config.patch(specialize_float=True)
def test_a_compiled_relational_bias_of_weighted_edges_is_one_graph(source):
    model = NodeFormer(4, 8, 3, num_layers=1, relational_input=source).eval()
    x = features(N, 4).detach().float()
    weight = weights(PROPER).detach().float()
    compiled = torch.compile(model, fullgraph=True, dynamic=True, backend='aot_eager')
    torch.testing.assert_close(
        compiled(x, PROPER, edge_weight=weight), model(x, PROPER, edge_weight=weight)
    )


@pytest.mark.parametrize('model', [DIFFormer, SGFormer, NodeFormer, GraphTransformer])
def test_degrees_in_any_pair_and_in_no_other_form(model):
    torch.manual_seed(0)
    model, x = model(4, 4, 2).double().eval(), features(N, 4)
    ones = torch.ones(PROPER.size(1), dtype=torch.long)
    pair = [ones.new_zeros(N).index_add(0, ids, ones) for ids in PROPER]
    expected = model(x, PROPER, degree=tuple(pair))
    torch.testing.assert_close(model(x, PROPER, degree=pair), expected, rtol=0, atol=0)
    for degree in ([1] * N, pair[:1], (*pair, pair[0]), 3):
        message = rf"^'degree' must be a tensor .* \(got {type(degree).__name__}\)$"
        with pytest.raises(ValueError, match=message):
            model(x, PROPER, degree=degree)
