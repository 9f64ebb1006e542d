import numpy as np
import pytest
import torch
from scipy.sparse import random_array
from scipy.sparse.linalg import ArpackError, svds
from threadpoolctl import threadpool_info, threadpool_limits
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import Compose, ToUndirected

from torch_geometric_lgt import _io
from torch_geometric_lgt.transforms import SVDEncoding
from torch_geometric_lgt.transforms._truncated_svd import truncated_svd


def bipartite(pairs, num_users=None, num_items=None):
    data, edges = HeteroData(), torch.tensor(pairs).t()
    data['user'].num_nodes = int(edges[0].max()) + 1 if num_users is None else num_users
    data['item'].num_nodes = int(edges[1].max()) + 1 if num_items is None else num_items
    data['user', 'rates', 'item'].edge_index = edges
    return data


def random_pairs(num_users, num_items, num_edges, generator):
    pairs = torch.stack(
        [torch.randint(n, (num_edges,), generator=generator) for n in (num_users, num_items)], 1
    )
    return pairs.tolist()


def product(data):
    return data['user'].svd_pe.double() @ data['item'].svd_pe.double().t()


@pytest.mark.parametrize('normalize', [False, True])
@pytest.mark.parametrize(
    ('num_users', 'num_items', 'num_edges', 'k'),
    [(40, 30, 200, 8), (40, 30, 200, 30), (2000, 900, 9000, 16)],
)
def test_best_approximation_of_its_rank(num_users, num_items, num_edges, k, normalize):
    data = bipartite(
        random_pairs(num_users, num_items, num_edges, torch.Generator().manual_seed(0)),
        num_users,
        num_items,
    )
    matrix = torch.zeros(num_users, num_items, dtype=torch.float64)
    matrix[tuple(data['user', 'rates', 'item'].edge_index)] = 1
    if normalize:
        matrix = (
            matrix / (matrix.sum(1, keepdim=True).clamp(min=1) * matrix.sum(0).clamp(min=1)).sqrt()
        )
    singular = torch.linalg.svdvals(matrix)
    out = SVDEncoding(k, normalize=normalize)(data)
    assert out['user'].svd_pe.shape == (num_users, k)
    assert out['item'].svd_pe.dtype == torch.float32
    for side in ('user', 'item'):
        gram = out[side].svd_pe.t().double() @ out[side].svd_pe.double()
        torch.testing.assert_close(gram, singular[:k].diag(), rtol=1e-5, atol=1e-5)
    rest = float((matrix - product(out)).norm())
    assert rest == pytest.approx(float(singular[k:].norm()), rel=1e-5, abs=1e-5)


def test_every_one_of_many_equal_values_is_found():
    """Forty equal components: each singular value forty times, where Lanczos methods find some
    only."""
    block = random_pairs(40, 30, 200, torch.Generator().manual_seed(0))
    pairs = [[40 * i + user, 30 * i + item] for i in range(40) for user, item in block]
    matrix = torch.zeros(40, 30, dtype=torch.float64)
    matrix[tuple(torch.tensor(block).t())] = 1
    out = SVDEncoding(50)(bipartite(pairs, 1600, 1200))
    expected = torch.linalg.svdvals(matrix)[[0] * 40 + [1] * 10]
    torch.testing.assert_close(
        out['user'].svd_pe.double().square().sum(0), expected, rtol=1e-5, atol=1e-5
    )


def test_signs_reverse_edges_and_repeated_edges():
    pairs = random_pairs(60, 50, 300, torch.Generator().manual_seed(1))
    out = SVDEncoding(4)(bipartite(pairs, 60, 50))
    both = torch.cat([out['user'].svd_pe, out['item'].svd_pe])
    assert (both.gather(0, both.abs().argmax(0, keepdim=True)) > 0).all()
    again = Compose([ToUndirected(), SVDEncoding(4, 'other')])(bipartite(pairs + pairs[:7], 60, 50))
    torch.testing.assert_close(again['user'].other, out['user'].svd_pe)
    torch.testing.assert_close(again['item'].other, out['item'].svd_pe)


def test_of_equally_large_entries_that_of_the_left_vector_is_positive():
    """Both vectors of a symmetric matrix have them, but for rounding and the sign."""
    edges = torch.randint(30, (2, 80))
    pe = SVDEncoding(16)(ToUndirected()(Data(edge_index=edges, num_nodes=30))).svd_pe
    assert torch.equal(pe.amax(0), pe.abs().amax(0))


def copies(pairs, number, num_users, num_items):
    return [
        [num_users * i + user, num_items * i + item] for i in range(number) for user, item in pairs
    ]


def complete_bipartite(num_users, num_items):
    return [[user, item] for user in range(num_users) for item in range(num_items)]


REPEATED = {  # interactions, users, items, k
    'components': lambda draw: (draw(1200, 1300, 1560), 1200, 1300, 32),
    'more components than columns': lambda draw: (
        copies(draw(40, 30, 200), 40, 40, 30),
        1600,
        1200,
        24,
    ),
    'copies of a block': lambda draw: (copies(draw(40, 30, 200), 40, 40, 30), 1600, 1200, 90),
    'matching': lambda draw: ([[user, user] for user in range(1100)], 1100, 1300, 10),
    'rank below k': lambda draw: (copies(complete_bipartite(3, 4), 9, 130, 120), 1170, 1080, 32),
    'twin users': lambda draw: (
        [[2 * user + twin, item] for user, item in draw(600, 1300, 3900) for twin in (0, 1)],
        1200,
        1300,
        32,
    ),
}


@pytest.mark.parametrize('normalize', [False, True])
@pytest.mark.parametrize('name', REPEATED)
def test_all_copies_of_repeated_singular_values(name, normalize):
    """Values, residuals and orthogonality against a decomposition of the dense matrix."""
    generator = torch.Generator().manual_seed(0)
    pairs, num_users, num_items, k = REPEATED[name](lambda *sizes: random_pairs(*sizes, generator))
    matrix = np.zeros((num_users, num_items))
    matrix[tuple(np.array(pairs).T)] = 1
    if normalize:
        matrix /= np.sqrt(
            np.maximum(matrix.sum(1, keepdims=True), 1) * np.maximum(matrix.sum(0), 1)
        )
    expected = np.linalg.svd(matrix, compute_uv=False)[:k]
    expected[expected < 1e-12] = 0
    torch.set_default_dtype(torch.float64)
    try:
        out = SVDEncoding(k, normalize=normalize)(bipartite(pairs, num_users, num_items))
    finally:
        torch.set_default_dtype(torch.float32)
    users, items = out['user'].svd_pe.numpy(), out['item'].svd_pe.numpy()
    for side in (users, items):
        np.testing.assert_allclose(side.T @ side, np.diag(expected), rtol=0, atol=1e-8)
    np.testing.assert_allclose(matrix @ items, users * expected, rtol=0, atol=1e-6)
    np.testing.assert_allclose(matrix.T @ users, items * expected, rtol=0, atol=1e-6)
    assert out.svd_pe_mask.tolist() == [(expected > 0).tolist()]


@pytest.mark.parametrize(('num_users', 'num_items'), [(60, 50), (1500, 1200)])
def test_components_without_a_value_are_zero(num_users, num_items):
    """Their rows were rounding errors, which MGFormer scales to the length of all others."""
    pairs = random_pairs(40, 30, 600, torch.Generator().manual_seed(0))
    pairs += [[num_users - 1, num_items - 1], [num_users - 2, num_items - 2]]
    out = SVDEncoding(4)(bipartite(pairs, num_users, num_items))
    for side in ('user', 'item'):
        assert not out[side].svd_pe[40:].any()
        assert bool((out[side].svd_pe[:30].norm(dim=1) > 0.01).all())


def test_no_iteration_converges(monkeypatch, constants):
    """As for many of the equal values of a matching. Then a matrix of moderate size is decomposed
    as a dense matrix."""

    def fails(*args, **kwargs):
        raise ArpackError(-9999)

    data = bipartite(random_pairs(60, 50, 300, torch.Generator().manual_seed(0)), 60, 50)
    expected = SVDEncoding(3)(data)
    constants(svd_elements=10)
    monkeypatch.setattr('torch_geometric_lgt.transforms._truncated_svd.svds', fails)
    found = SVDEncoding(3)(data)
    for name in ('user', 'item'):
        torch.testing.assert_close(found[name].svd_pe, expected[name].svd_pe, rtol=0, atol=1e-6)
    constants(svd_retry_elements=10)
    with pytest.raises(RuntimeError, match=r'the 3 largest singular values .* did not converge'):
        SVDEncoding(3)(data)


def test_almost_orthonormal_vectors_of_a_solver(monkeypatch, constants):
    """PROPACK stops at inner products of some 1e-8, by processor up to 1e-7."""

    def rough(*args, k, **kwargs):
        if k == 1:  # a search for missing triplets
            return svds(*args, k=k, **kwargs)
        u, s, vt = svds(*args, k=k, **kwargs)
        tilt = np.eye(s.size)
        tilt[0, 1:] = 1e-7
        return u @ tilt, s, tilt.T @ vt

    constants(svd_elements=10)
    monkeypatch.setattr('torch_geometric_lgt.transforms._truncated_svd.svds', rough)
    matrix = random_array((60, 50), density=0.1, rng=0, format='csr')
    u, _, v = truncated_svd(matrix, 3)
    for vectors in (u, v):
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(3), rtol=0, atol=1e-12)


def test_one_thread_iterates(monkeypatch, constants):
    """Threads of BLAS that wait for each other take a hundred times as long on busy processors."""
    seen = []

    def counting(*args, **kwargs):
        seen.extend(part['num_threads'] for part in threadpool_info() if part['user_api'] == 'blas')
        return svds(*args, **kwargs)

    constants(svd_elements=10)
    monkeypatch.setattr('torch_geometric_lgt.transforms._truncated_svd.svds', counting)
    with threadpool_limits(2, 'blas'):
        SVDEncoding(3)(bipartite(random_pairs(60, 50, 300, None), 60, 50))
    assert set(seen) == {1}


def test_padding_beyond_the_rank():
    out = SVDEncoding(5)(bipartite([[0, 0], [1, 0], [2, 1]]))
    assert out['user'].svd_pe.shape == (3, 5)
    torch.testing.assert_close(
        out['user'].svd_pe.norm(dim=0) ** 2, torch.tensor([2**0.5, 1.0, 0, 0, 0])
    )
    empty = SVDEncoding(2)(Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=3))
    assert torch.equal(empty.svd_pe, torch.zeros(3, 2))


def test_one_node_type():
    # a path: both values are the root of 2
    out = SVDEncoding(2)(Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3))
    torch.testing.assert_close(
        out.svd_pe @ out.svd_pe.t(),
        torch.tensor([[0.5, 0, 0.5], [0, 1, 0], [0.5, 0, 0.5]]) * 2**0.5,
    )


def test_cache(tmp_path, monkeypatch):
    data = bipartite(random_pairs(60, 50, 300, torch.Generator().manual_seed(1)), 60, 50)
    transform = SVDEncoding(4, cache_dir=tmp_path / 'cache')
    first = transform(data)
    (path,) = (tmp_path / 'cache').glob('*.safetensors')
    monkeypatch.setattr(
        'torch_geometric_lgt.transforms.svd_encoding.truncated_svd',
        lambda *_: pytest.fail('not from the cache'),
    )
    assert torch.equal(transform(data)['item'].svd_pe, first['item'].svd_pe)
    monkeypatch.undo()
    path.write_bytes(path.read_bytes()[:100])
    with pytest.warns(UserWarning, match='is built again'):
        assert torch.equal(transform(data)['item'].svd_pe, first['item'].svd_pe)
    SVDEncoding(4, normalize=True, cache_dir=tmp_path / 'cache')(data)
    data['user', 'rates', 'item'].edge_index = data['user', 'rates', 'item'].edge_index[:, 1:]
    transform(data)
    for rows in ([0, 1], [0, 0]):  # of the items 0 and 1
        transform(bipartite([[rows[0], 0], [rows[1], 1]], 2, 2))
    assert len(list((tmp_path / 'cache').glob('*.safetensors'))) == 5


def test_raises_and_repr():
    assert repr(SVDEncoding(3)) == "SVDEncoding(3, attr_name='svd_pe', normalize=False)"
    with pytest.raises(ValueError, match="'k' must be at least 1"):
        SVDEncoding(0)
    data = bipartite([[0, 0]])
    data['user', 'knows', 'user'].edge_index = torch.tensor([[0], [0]])
    message = r'two that every edge type joins .* give data.edge_type_subgraph\(\[..\]\) with'
    with pytest.raises(ValueError, match=message):
        SVDEncoding(1)(data)
    part = SVDEncoding(1)(data.edge_type_subgraph([('user', 'rates', 'item')]))
    assert torch.equal(part['user'].svd_pe, SVDEncoding(1)(bipartite([[0, 0]]))['user'].svd_pe)
    with pytest.raises(ValueError, match='one node type, or two that every edge type joins'):
        SVDEncoding(1)(HeteroData())
    with pytest.raises(ValueError, match='source ids from 0 to 0'):
        SVDEncoding(1)(bipartite([[3, 0]], 1, 1))


def test_the_cache_knows_the_dtype(tmp_path):
    data = bipartite([[0, 0], [1, 0], [2, 1]])
    assert SVDEncoding(2, cache_dir=tmp_path)(data)['user'].svd_pe.dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert SVDEncoding(2, cache_dir=tmp_path)(data)['user'].svd_pe.dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize('cut', [lambda x: x[:-1], lambda x: x[:, :-1], lambda x: x.double()])
@pytest.mark.parametrize('name', ['row', 'column'])
def test_a_cache_of_other_shapes_is_built_again(tmp_path, name, cut):
    data, transform = bipartite([[0, 0], [1, 0], [2, 1]]), SVDEncoding(2, cache_dir=tmp_path)
    first = transform(data)
    (path,) = tmp_path.glob('*.safetensors')
    tensors = dict(_io.read_tensors(path, 'svd_encoding'))
    _io.write_tensors(path, {**tensors, name: cut(tensors[name])}, 'svd_encoding')
    with pytest.warns(UserWarning, match='is built again'):
        actual = transform(data)
    for kind in ('user', 'item'):
        assert torch.equal(actual[kind].svd_pe, first[kind].svd_pe)


@pytest.mark.parametrize('k', [2.5, 2.0, True, '3', None])
def test_numbers_of_columns_are_whole(k):
    with pytest.raises(ValueError, match="'k' must be at least 1, a whole number"):
        SVDEncoding(k)


@pytest.mark.parametrize('normalize', ['sym', None, 1])
def test_normalize_is_a_boolean(normalize):
    with pytest.raises(ValueError, match="'normalize' must be True or False"):
        SVDEncoding(2, normalize=normalize)


GRAPHS = {
    'one type': lambda size, edges: Data(num_nodes=size, edge_index=edges),
    'two types': lambda size, edges: bipartite(edges.t().tolist(), size, size),
}


@pytest.mark.parametrize('order', ['sorted', 'shuffled'])
@pytest.mark.parametrize('name', GRAPHS)
def test_each_graph_of_a_batch_is_decomposed_on_its_own(name, order, tmp_path):
    """The encodings of a graph do not depend on the batch. They are equal up to rounding, as the
    solvers start elsewhere."""
    edges = [torch.randint(size, (2, 4 * size)) for size in (9, 6, 1, 12)]
    graphs = [GRAPHS[name](size, part) for size, part in zip((9, 6, 1, 12), edges, strict=True)]
    transform = SVDEncoding(4, cache_dir=tmp_path)
    alone = [transform(graph.clone()) for graph in graphs]
    batch = Batch.from_data_list(graphs)
    expected = Batch.from_data_list(alone)
    if order == 'shuffled':
        for graph in (batch, expected):
            for store in graph.node_stores:
                new = torch.randperm(28, generator=torch.Generator().manual_seed(0))
                store.batch = store.batch[new]
                if 'svd_pe' in store:
                    store.svd_pe = store.svd_pe[new]
                for edge_store, side in [
                    (part, side)
                    for part in graph.edge_stores
                    for side in (0, 1)
                    if part._key is None or part._key[2 * side] == store._key
                ]:
                    edge_store.edge_index = edge_store.edge_index.clone()
                    edge_store.edge_index[side] = new.argsort()[edge_store.edge_index[side]]
    for _ in range(2):
        out = transform(batch.clone())
        for store, other in zip(out.node_stores, expected.node_stores, strict=True):
            torch.testing.assert_close(store.svd_pe, other.svd_pe, rtol=1e-4, atol=1e-5)
        assert torch.equal(out.svd_pe_mask, torch.cat([graph.svd_pe_mask for graph in alone]))
    assert len(list(tmp_path.glob('*.safetensors'))) == 5


def test_batches_of_both_types_have_as_many_graphs():
    data = bipartite([[0, 0], [1, 1]])
    data['user'].batch, data['item'].batch = torch.tensor([0, 1]), torch.tensor([0, 0])
    with pytest.raises(ValueError, match=r"'data' must have as many graphs .* \(got \[2, 1\]\)"):
        SVDEncoding(2)(data)


def test_a_batch_without_graphs():
    data = Data(num_nodes=0, edge_index=torch.empty(2, 0, dtype=torch.long))
    data.batch = torch.empty(0, dtype=torch.long)
    out = SVDEncoding(2)(data)
    assert out.svd_pe.shape == (0, 2)
    assert out.svd_pe_mask.shape == (0, 2)
