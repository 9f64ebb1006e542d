import re

import pytest
import torch
from scipy.sparse import coo_matrix
from torch._dynamo.exc import TorchDynamoException
from torch_geometric import EdgeIndex
from torch_geometric.data import Data
from torch_geometric.typing import WITH_TORCH_SPARSE, SparseTensor
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csc_tensor, to_torch_csr_tensor

from torch_geometric_lgt.functional import attention_distance, jaccard, minhash_jaccard
from torch_geometric_lgt.functional.neighbors.edges import (
    check_edge_shape,
    check_edge_type,
    check_edge_weight,
    edge_list,
    sorted_edges,
    weighted_edges,
)
from torch_geometric_lgt.nn import (
    DegreeMaskedAttention,
    DIFFormer,
    KernelAttentionConv,
    NodeFormer,
)
from torch_geometric_lgt.transforms import (
    AttentionNodeSampling,
    JaccardScores,
    LaplacianPE,
    NodeDegree,
    SVDEncoding,
)

EDGES = torch.tensor([[0, 0, 3, 1, 4], [1, 2, 1, 0, 4]])
FORMATS = {
    'int64': lambda: EDGES,
    'int32': EDGES.int,
    'EdgeIndex': lambda: EdgeIndex(EDGES, sparse_size=(5, 5)),
    'csr': lambda: to_torch_csr_tensor(EDGES, size=(5, 5)).t().to_sparse_csr(),
    'csc': lambda: to_torch_csr_tensor(EDGES, size=(5, 5)).t().to_sparse_csc(),
    'coo': lambda: to_torch_coo_tensor(EDGES, size=(5, 5)).t(),
    'transposed csr': lambda: to_torch_csr_tensor(EDGES, size=(5, 5)).t(),
    'transposed csc': lambda: to_torch_csc_tensor(EDGES, size=(5, 5)).t(),
}
if WITH_TORCH_SPARSE:
    FORMATS['SparseTensor'] = lambda: SparseTensor.from_edge_index(EDGES, sparse_sizes=(5, 5)).t()


def pairs(edge_index):
    return sorted(map(tuple, edge_index.t().tolist()))


@pytest.mark.parametrize('form', FORMATS)
def test_formats_hold_the_same_edges(form):
    edges = edge_list(FORMATS[form](), 5, 5)
    assert type(edges) is torch.Tensor
    assert edges.dtype == torch.int64
    assert pairs(edges) == pairs(EDGES)


@pytest.mark.parametrize('form', FORMATS)
def test_layers_and_transform_take_every_format(form):
    layer, conv, x = DegreeMaskedAttention(4), KernelAttentionConv(4, 4), torch.randn(5, 4)
    adj = FORMATS[form]()
    torch.testing.assert_close(layer(x, edge_index=adj), layer(x, torch.tensor([2, 2, 1, 1, 0])))
    scores = dict(
        zip(
            map(tuple, edge_list(adj, 5, 5).t().tolist()),
            conv.attention_scores(x, adj).tolist(),
            strict=True,
        )
    )
    expected = dict(
        zip(map(tuple, EDGES.t().tolist()), conv.attention_scores(x, EDGES).tolist(), strict=True)
    )
    assert scores.keys() == expected.keys()
    assert all(scores[pair] == pytest.approx(expected[pair], abs=1e-6) for pair in expected)


def test_bipartite_bounds_are_checked_by_side():
    edge_list(torch.tensor([[4], [1]]), 5, 2)
    with pytest.raises(ValueError, match="'edge_index' must hold target ids from 0 to 1"):
        edge_list(torch.tensor([[1], [4]]), 5, 2)


@pytest.mark.parametrize(
    ('edge_index', 'error', 'message'),
    [
        (
            [[0], [1]],
            TypeError,
            r"'edge_index' must be .* \(got list\); convert it with torch.as_tensor$",
        ),
        (EDGES.float(), ValueError, 'int64 node ids'),
        (EDGES.t(), ValueError, r'must have shape \[2, E\] \(got \(5, 2\)\); transpose it$'),
        (torch.zeros(3, 4, dtype=torch.long), ValueError, r'\(got \(3, 4\)\)$'),
        (torch.zeros(2, 2, 2, dtype=torch.long), ValueError, r'\(got \(2, 2, 2\)\)$'),
        (EDGES[:, 0], ValueError, r'\(got \(2,\)\)$'),
        (EDGES + 1, ValueError, r'source ids from 0 to 4 \(got 1 to 5\); are the ids one-based\?$'),
        (EDGES - 1, ValueError, r'source ids from 0 to 4 \(got -1 to 3\)$'),
        (EDGES + 2, ValueError, r'source ids from 0 to 4 \(got 2 to 6\)$'),
        (torch.tensor([[0, 5], [1, 1]]), ValueError, r'source ids from 0 to 4 \(got 0 to 5\)$'),
        (torch.tensor([[1], [6]]), ValueError, r'target ids from 0 to 4 \(got 6 to 6\)$'),
    ],
)
def test_raises(edge_index, error, message):
    with pytest.raises(error, match=message):
        edge_list(edge_index, 5, 5)


def test_no_edges_and_no_nodes():
    none = torch.empty(2, 0, dtype=torch.long)
    assert edge_list(none, 0, 0).shape == (2, 0)


@pytest.mark.parametrize('name', sorted(FORMATS.keys() & {'SparseTensor', 'csr'}))
def test_adj_t_is_read_by_the_transform(name):
    data = Data(adj_t=FORMATS[name](), num_nodes=5)
    assert NodeDegree()(data).degree.tolist() == [2, 2, 1, 1, 0]


@pytest.mark.parametrize('form', FORMATS)
def test_both_orders_of_every_format(form):
    edges = sorted_edges(FORMATS[form](), 5, 6)
    assert pairs(edges.edge_index) == pairs(EDGES)
    for rows, (source, target), size in (
        (edges.by_target, edges.edge_index, 6),
        (edges.by_source, edges.edge_index.flip(0), 5),
    ):
        order = torch.arange(5) if rows.order is None else rows.order
        assert torch.equal(rows.source, source[order])
        assert bool((target[order].diff() >= 0).all())
        assert rows.pointer.diff().tolist() == torch.bincount(target, minlength=size).tolist()
    assert sorted_edges(edges, 5, 6) is edges
    assert sorted_edges(EDGES, 5, 6, backward=False).by_source is None
    with pytest.raises(ValueError, match=r"'backward' must be True or False \(got tensor"):
        sorted_edges(EDGES[:, :1], 5, 6, torch.tensor([0.5]))  # weights, which were left out


@pytest.mark.parametrize(
    'change',
    [lambda e: e.flip(0), lambda e: e.sort_by('row').values, lambda e: e + 0, lambda e: e[:, 1:]],
)
def test_cached_orders_of_an_edge_index_are_not_trusted(change):
    """PyG's flip and sort_by keep orders of the edges before."""
    edges = change(EdgeIndex(EDGES, sparse_size=(5, 5)).sort_by('col').values.fill_cache_())
    model, x = DIFFormer(4, 8, 3), torch.randn(5, 4)
    plain = edges.as_tensor() if isinstance(edges, EdgeIndex) else edges
    torch.testing.assert_close(model(x, edges), model(x, plain.clone()))


@pytest.mark.parametrize('sizes', [(4, 5), (5, 4), (6, 5)])
def test_edges_sorted_for_other_nodes_are_refused(sizes):
    edges = sorted_edges(EDGES, 5, 5)
    for take in (edge_list, sorted_edges):
        with pytest.raises(
            ValueError,
            match=(
                f"^'edge_index' must be sorted for {sizes[0]} sources and {sizes[1]} targets; "
                'sort it again with sorted_edges$'
            ),
        ):
            take(edges, *sizes)
    with pytest.raises(ValueError, match="'edge_index' must hold source ids from 0 to 3"):
        sorted_edges(sorted_edges(EDGES, 5, 5, backward=False), 4, 5)
    hops_of_five = NodeFormer(4, 8, 3).hops(EDGES, 5)
    with pytest.raises(ValueError, match="'edge_index' must be sorted for 6 sources and 6 targets"):
        NodeFormer(4, 8, 3)(torch.randn(6, 4), hops_of_five)


VALUES = torch.tensor([0.5, 2.0, 3.0, -1.0, 0.25])


def weighted(form, value):
    """The edges with values, in a format of a sparse matrix with targets as rows."""
    matrix = torch.sparse_coo_tensor(EDGES.flip(0), value, (5, 5), check_invariants=False)
    if form == 'SparseTensor':
        return SparseTensor.from_edge_index(EDGES, value, (5, 5)).t()
    if form == 'repeated coo':  # each edge in two halves
        return torch.sparse_coo_tensor(
            EDGES.flip(0).repeat(1, 2), value.repeat(2) / 2, (5, 5), check_invariants=False
        )
    return {
        'coo': matrix,
        'csr': matrix.to_sparse_csr(),
        'csc': matrix.to_sparse_csc(),
        'transposed csr': matrix.t().to_sparse_csr().t(),
        'transposed csc': matrix.t().to_sparse_csc().t(),
    }[form]


SPARSE = ['coo', 'repeated coo', 'csr', 'csc', 'transposed csr', 'transposed csc'] + [
    'SparseTensor'
] * WITH_TORCH_SPARSE


@pytest.mark.parametrize('form', SPARSE)
def test_values_are_weights_in_the_order_of_the_edges(form):
    value = VALUES.clone().requires_grad_()
    edges, weight = weighted_edges(weighted(form, value), 5, 5)
    actual = dict(zip(map(tuple, edges.t().tolist()), weight.tolist(), strict=True))
    assert actual == dict(zip(map(tuple, EDGES.t().tolist()), VALUES.tolist(), strict=True))
    factor = torch.tensor([10.0 * u + v for u, v in edges.t().tolist()])
    expected = torch.tensor([10.0 * u + v for u, v in EDGES.t().tolist()])
    assert torch.equal(torch.autograd.grad((factor * weight).sum(), value)[0], expected)
    ready = sorted_edges(weighted(form, VALUES), 5, 5)
    assert torch.equal(ready.weight, weight)
    assert torch.equal(ready.edge_index, edges)
    assert torch.equal(weighted_edges(ready, 5, 5)[1], weight)


@pytest.mark.parametrize('form', SPARSE)
def test_values_of_one_are_no_weights_unless_they_are_learned(form):
    assert weighted_edges(weighted(form, torch.ones(5)), 5, 5)[1] is None
    assert (
        weighted_edges(weighted(form, torch.ones(5, requires_grad=True)), 5, 5)[1].tolist()
        == [1] * 5
    )
    edges, weight = weighted_edges(weighted(form, torch.ones(5)), 5, 5, VALUES)
    assert torch.equal(weight, VALUES)
    assert torch.equal(edges, edge_list(weighted(form, torch.ones(5)), 5, 5))


@pytest.mark.parametrize('form', SPARSE)
def test_values_that_are_not_used_are_refused(form):
    matrix, x = weighted(form, VALUES), torch.randn(5, 4)
    uses = {
        'edge_list': lambda: edge_list(matrix, 5, 5),
        'jaccard': lambda: jaccard(matrix, 5),
        'minhash': lambda: minhash_jaccard(matrix, 5, 4),
        'distance': lambda: attention_distance(matrix, 5),
        'hops': lambda: KernelAttentionConv(4, 4, relational_order=2).hops(matrix, 5),
        'degrees': lambda: DegreeMaskedAttention(4)(x, edge_index=matrix),
        'probability': lambda: KernelAttentionConv(4, 4).log_edge_probability(x, matrix),
    }
    for use in uses.values():
        with pytest.raises(ValueError, match='weights'):
            use()
    with pytest.raises(
        ValueError,
        match=r"'edge_index' must have no weights other than 1, .* \(got -1 to 3\); give the edges",
    ):
        edge_list(sorted_edges(matrix, 5, 5), 5, 5)
    # places of pairs, nothing is summed
    assert KernelAttentionConv(4, 4).attention_scores(x, matrix).shape == (
        5,
        1,
    )


@pytest.mark.compiled
def test_weights_of_sorted_edges_are_refused_compiled_too():
    layer, ready = DegreeMaskedAttention(4), sorted_edges(EDGES, 5, 5, edge_weight=VALUES)
    compiled = torch.compile(lambda x: layer(x, edge_index=ready), fullgraph=True, backend='eager')
    with pytest.raises(
        (ValueError, TorchDynamoException), match='must have no weights other than 1'
    ):
        compiled(torch.randn(5, 4))


@pytest.mark.parametrize('name', sorted(SPARSE))
def test_transforms_refuse_values(name):
    data = Data(adj_t=weighted(name, VALUES.abs()), num_nodes=5)
    transforms = (
        JaccardScores(),
        AttentionNodeSampling(),
        NodeDegree(),
        LaplacianPE(2),
        SVDEncoding(2),
    )
    for transform in transforms:
        with pytest.raises(ValueError, match="'adj_t' must have no weights other than 1"):
            transform(data)


def test_whole_numbers_are_weights_and_several_values_are_none():
    matrix = torch.sparse_coo_tensor(
        EDGES.flip(0), torch.tensor([1, 2, 1, 1, 1]), (5, 5), check_invariants=False
    )
    assert weighted_edges(matrix, 5, 5)[1].dtype == torch.get_default_dtype()
    several = torch.sparse_coo_tensor(
        EDGES.flip(0), torch.ones(5, 2), (5, 5, 2), check_invariants=False
    )
    with pytest.raises(
        ValueError,
        match=r"'edge_index' must have one value for each edge \(got values of shape \(5, 2\)\)",
    ):
        weighted_edges(several, 5, 5)


@pytest.mark.parametrize(
    ('edge_index', 'weight', 'message'),
    [
        (
            EDGES,
            VALUES[:4],
            r"'edge_weight' must have shape \(5,\), one number for each edge \(got \(4,\)\)$",
        ),
        (
            EDGES,
            VALUES[:, None],
            r"'edge_weight' must have shape \(5,\), one number for each edge \(got \(5, 1\)\)$",
        ),
        (
            EDGES,
            [1.0] * 5,
            r"'edge_weight' must have shape \(5,\), one number for each edge \(got list\)$",
        ),
        (
            EDGES,
            torch.ones(5, dtype=torch.long),
            r"'edge_weight' must hold floating-point numbers \(got torch.int64\); convert it with "
            r'edge_weight.float\(\)$',
        ),
        (
            EDGES,
            torch.ones(5, device='meta'),
            r"'edge_weight' must be on the device of 'edge_index', cpu \(got meta\)$",
        ),
        (
            weighted('csr', VALUES),
            VALUES,
            r"^'edge_weight' must be None where 'edge_index' has values \(got both\); multiply "
            'them, or give the edges alone$',
        ),
        (
            sorted_edges(EDGES, 5, 5, edge_weight=VALUES),
            VALUES,
            r"^'edge_weight' must be None where 'edge_index' has values \(got both\); multiply "
            'them, or give the edges alone$',
        ),
    ],
)
def test_weights_that_do_not_fit_are_refused(edge_index, weight, message):
    for take in (weighted_edges, lambda *args: sorted_edges(*args[:3], edge_weight=args[3])):
        with pytest.raises(ValueError, match=message):
            take(edge_index, 5, 5, weight)


def test_sorted_edges_take_weights_later():
    edges = sorted_edges(EDGES, 5, 5)
    again = sorted_edges(edges, 5, 5, edge_weight=VALUES)
    assert again.weight is VALUES
    assert again.by_target is edges.by_target
    assert sorted_edges(again, 5, 5) is again


@pytest.mark.parametrize('weight', [torch.tensor([0.5, -1e-9]), torch.tensor([1.0, float('nan')])])
def test_negative_weights_are_named(weight):
    check_edge_weight(None)
    check_edge_weight(weight.abs().nan_to_num())
    with pytest.raises(
        ValueError, match=r"^'edge_weight' must be finite and not negative, because neighbours"
    ):
        check_edge_weight(weight)


@pytest.mark.parametrize('ordered', [True, False])
def test_sorted_edges_are_contiguous_for_edges_that_are_not(ordered):
    """A sparse matrix on a GPU reads the memory as if they were."""
    pairs = torch.tensor([[0, 1], [1, 0], [2, 2]] if ordered else [[2, 2], [0, 1], [1, 0]])
    edges = sorted_edges(pairs.t(), 3, 3, backward=True)
    assert not pairs.t().is_contiguous()
    for part in (*edges.by_target, *edges.by_source):
        assert part is None or part.is_contiguous()


@pytest.mark.parametrize('shape', [(4,), (2, 4, 4)])
def test_sparse_tensors_that_are_no_matrix_are_refused_by_name(shape):
    with pytest.raises(ValueError, match=r"'edge_index' must have shape \[2, E\] \(got"):
        sorted_edges(torch.ones(shape).to_sparse(), 4, 4)


def test_values_of_a_matrix_keep_their_precision():
    value = torch.tensor([1 / 3, 2.0], dtype=torch.float64)
    matrix = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), value, (2, 2))
    assert torch.equal(weighted_edges(matrix, 2, 2)[1], value)


def test_no_edges_with_weights_are_refused_without_bounds():
    edges = sorted_edges(torch.zeros(2, 0, dtype=torch.long), 2, 2, edge_weight=torch.ones(0))
    message = (
        "'edge_index' must have no weights other than 1, which are not used here; give the edges "
        '[2, E] alone'
    )
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        edge_list(edges, 2, 2)


@pytest.mark.parametrize(
    ('shape', 'hint'),
    [
        ((2,), '; one'),
        ((3, 2), '; transpose it'),
        ((3, 1, 2), ''),
        ((3, 3), '; a dense matrix becomes edges by torch_geometric.utils.dense_to_sparse'),
    ],
)
def test_tensors_that_are_no_list_of_edges_are_named(shape, hint):
    message = f"'adj' must have shape [2, E] (got {shape}){hint}"
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        check_edge_shape(torch.ones(shape), 'adj', '; one')


def test_what_is_no_tensor_is_named():
    message = "'adj' must be a tensor [2, E] or a sparse matrix (got None); one"
    with pytest.raises(TypeError, match=f'^{re.escape(message)}$'):
        check_edge_type(None, 'adj', '; one')
    with pytest.raises(TypeError, match=r"^'adj' must be a tensor .* matrix \(got None\)$"):
        check_edge_type(None, 'adj')
    for edges, fix in (
        (coo_matrix((2, 2)), r'coo_matrix\); .* torch_geometric.utils.from_scipy_sparse_matrix'),
        ([[0], [1]], r'list\); convert it with torch.as_tensor'),
    ):
        with pytest.raises(TypeError, match=f"'adj' must be a tensor .*{fix}$"):
            check_edge_type(edges, 'adj', '; one')


@pytest.mark.parametrize('sizes', [(3, 5), (4, 3)])
def test_a_sparse_matrix_of_more_nodes_is_refused(sizes):
    matrix = torch.sparse_coo_tensor(torch.tensor([[0], [2]]), torch.ones(1), sizes)
    message = (
        "'adj' must have 3 rows (targets) and 4 columns (sources) at most (got "
        f'{sizes[0]} x {sizes[1]})'
    )
    with pytest.raises(ValueError, match=f'^{re.escape(message)}$'):
        edge_list(matrix, 4, 3, 'adj')
    assert edge_list(matrix, sizes[1], sizes[0], 'adj').tolist() == [[2], [0]]
    assert edge_list(matrix, 9, 9, 'adj').tolist() == [[2], [0]]  # the last nodes have no edges
