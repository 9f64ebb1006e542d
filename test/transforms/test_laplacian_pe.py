import threading
from functools import partial

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import lobpcg
from threadpoolctl import threadpool_info, threadpool_limits
from torch.utils.data import DataLoader
from torch_geometric.data import Batch, Data
from torch_geometric.transforms import AddLaplacianEigenvectorPE, Compose
from torch_geometric.utils import (
    barabasi_albert_graph,
    erdos_renyi_graph,
    grid,
    stochastic_blockmodel_graph,
    to_undirected,
)

from torch_geometric_lgt import _io
from torch_geometric_lgt.loader import NeighborLoader
from torch_geometric_lgt.transforms import (
    LaplacianPE,
    RandomSignFlip,
    SVDEncoding,
    _eigensolvers,
    _laplacian,
)

DOUBLE = torch.float64


def ring(num_nodes, start=0):
    node = torch.arange(num_nodes)
    return torch.stack([node, (node + 1) % num_nodes]) + start


def cube(side):
    node = torch.arange(side**3).view(side, side, side)
    return torch.cat(
        [
            torch.stack([node.narrow(i, 0, side - 1), node.narrow(i, 1, side - 1)]).flatten(1)
            for i in range(3)
        ],
        1,
    )


def laplacian(edges, num_nodes, normalization='sym'):
    adjacency = torch.zeros(num_nodes, num_nodes, dtype=DOUBLE)
    adjacency[edges[0], edges[1]] = adjacency[edges[1], edges[0]] = 1
    adjacency.fill_diagonal_(0)
    degree = adjacency.sum(1)
    inverse = torch.where(degree > 0, 1 / degree.clamp(min=1), 0)
    left, right = (
        (inverse.sqrt(), inverse.sqrt())
        if normalization == 'sym'
        else (inverse, torch.ones_like(inverse))
    )
    return torch.diag((degree > 0).to(DOUBLE)) - left[:, None] * adjacency * right


GRAPHS = {
    'random': (lambda: torch.randint(60, (2, 150)), 60),
    'components': (lambda: torch.cat([ring(40, 40 * i) for i in range(5)], 1), 203),
    'grid': (lambda: grid(25, 30)[0], 750),
    'cube': (lambda: cube(9), 729),
    'sparse': (lambda: torch.randint(700, (2, 1500)), 700),
    'blocks': (lambda: stochastic_blockmodel_graph([150] * 4, (torch.eye(4) * 0.1 + 0.01)), 600),
    'tree': (lambda: torch.stack([torch.arange(1, 400), (torch.arange(1, 400) - 1) // 2]), 400),
}


@pytest.fixture
def double():
    torch.set_default_dtype(DOUBLE)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize('normalization', ['sym', 'rw'])
@pytest.mark.parametrize('graph', GRAPHS)
def test_smallest_eigenvectors_beyond_those_of_the_components(graph, normalization, double):
    make, num_nodes = GRAPHS[graph]
    edges = make()
    data = LaplacianPE(7, normalization)(Data(edge_index=edges, num_nodes=num_nodes))
    values = torch.linalg.eigvalsh(laplacian(edges, num_nodes))
    values = values[values > 1e-10][:7]
    vectors, matrix = data.laplacian_pe, laplacian(edges, num_nodes, normalization)
    torch.testing.assert_close(matrix @ vectors, vectors * values, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(vectors.norm(dim=0), torch.ones(7))
    if normalization == 'sym':
        torch.testing.assert_close(vectors.t() @ vectors, torch.eye(7), rtol=1e-6, atol=1e-6)
    assert torch.equal(data.laplacian_pe_mask, torch.ones(1, 7, dtype=torch.bool))


@pytest.mark.parametrize('solver', ['_inverse', '_lanczos', '_multigrid'])
@pytest.mark.parametrize('graph', ['grid', 'blocks', 'tree', 'cube'])
def test_all_solvers_agree_with_the_dense_one(solver, graph, double, monkeypatch, constants):
    make, num_nodes = GRAPHS[graph]
    data = Data(edge_index=make(), num_nodes=num_nodes)
    constants(dense_nodes=1000)
    expected = LaplacianPE(6)(data).laplacian_pe
    constants(dense_nodes=10, dense_retry_nodes=0)
    monkeypatch.setattr(_eigensolvers, 'hops', lambda adjacency: np.arange(adjacency.shape[0]))
    for name in {'_inverse', '_lanczos', '_multigrid'} - {solver}:
        monkeypatch.setattr(_eigensolvers, name, lambda *_: (_ for _ in ()).throw(ImportError))
    torch.testing.assert_close(LaplacianPE(6)(data).laplacian_pe, expected, rtol=1e-4, atol=1e-5)


def test_eigenvalues_that_a_solver_misses_are_found(double, monkeypatch):
    """A solver that leaves out the smallest of them."""
    edges, krylov = grid(25, 30)[0], _eigensolvers._krylov
    expected = LaplacianPE(3)(Data(edge_index=edges, num_nodes=750)).laplacian_pe

    def forgetful(product, seeds, known, size, tolerance):
        actual = krylov(product, seeds, known, size + 1, tolerance)
        return actual[:, :-1] if size > 1 else krylov(product, seeds, known, size, tolerance)

    monkeypatch.setattr(_eigensolvers, '_krylov', forgetful)
    actual = LaplacianPE(3)(Data(edge_index=edges, num_nodes=750)).laplacian_pe
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize('k', [2, 3, 4, 5])
def test_close_repeated_eigenvalues_are_all_found(k, double):
    """A ring and a node that all others are joined to: pairs of eigenvalues 4e-5 apart."""
    node = torch.arange(1000)
    edges = torch.cat([ring(1000), torch.stack([node, torch.full_like(node, 1000)])], 1)
    edges = torch.randperm(1001, generator=torch.Generator().manual_seed(0))[edges]
    vectors = LaplacianPE(k)(Data(edge_index=edges, num_nodes=1001)).laplacian_pe
    expected = (
        1 - 2 / 3 * (torch.pi * torch.arange(2, k + 2).div(2, rounding_mode='floor') / 500).cos()
    )
    actual = (vectors * (laplacian(edges, 1001) @ vectors)).sum(0)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)


def test_small_eigenvalues_of_a_long_path_are_not_mixed():
    """Their distances are below 1e-8."""
    num_nodes = 60_000
    node = torch.arange(num_nodes)
    data = Data(edge_index=torch.stack([node[:-1], node[1:]]), num_nodes=num_nodes)
    actual = LaplacianPE(4)(data).laplacian_pe.double()
    expected = torch.cos(torch.pi * node[:, None] * torch.arange(1, 5) / (num_nodes - 1.0)).double()
    expected[[0, -1]] *= 0.5**0.5
    expected = expected / expected.norm(dim=0)
    similarity = (actual * expected).sum(0).abs()
    torch.testing.assert_close(similarity, torch.ones(4, dtype=DOUBLE), rtol=0, atol=1e-6)


def test_single_precision_where_it_is_enough(monkeypatch):
    """The union of cycles has eigenvalues far from 0, a long strip of them has not."""
    seen, eigsh = [], _eigensolvers.eigsh
    monkeypatch.setattr(
        _eigensolvers,
        'eigsh',
        lambda operator, *args, **options: (
            seen.append(operator.dtype) or eigsh(operator, *args, **options)
        ),
    )
    cycles = [torch.randperm(2000) for _ in range(4)]
    expander = torch.cat([torch.stack([cycle, cycle.roll(1)]) for cycle in cycles], 1)
    for edges, dtypes in (
        (expander, {np.dtype(np.float32)}),
        (grid(2, 1000)[0], {np.dtype(np.float64)}),
    ):
        data, columns = Data(edge_index=edges, num_nodes=2000), {}
        for dtype in (torch.float32, DOUBLE):
            seen.clear()
            torch.set_default_dtype(dtype)
            columns[dtype] = LaplacianPE(6)(data).laplacian_pe.double()
            torch.set_default_dtype(torch.float32)
            assert set(seen) == (dtypes if dtype == torch.float32 else {np.dtype(np.float64)})
        assert (columns[torch.float32] - columns[DOUBLE]).norm(dim=0).max() < 1e-3


@pytest.mark.parametrize(
    ('edges', 'searches'),
    [
        (torch.cat([torch.stack([c, c.roll(1)]) for c in map(torch.randperm, [450] * 2)], 1), 0),
        (ring(450), 2),
    ],
)
def test_small_graphs_are_decomposed_in_single_precision_where_it_is_enough(
    edges, searches, monkeypatch, constants
):
    """Two random cycles have eigenvalues far from 0, one has not."""
    constants(dense_nodes=1000)
    expected = LaplacianPE(6)(Data(edge_index=edges, num_nodes=450)).laplacian_pe
    seen, eigsh = [], _eigensolvers.eigsh
    constants(dense_nodes=10)
    monkeypatch.setattr(
        _eigensolvers, 'eigsh', lambda *args, **options: seen.append(0) or eigsh(*args, **options)
    )
    torch.testing.assert_close(
        LaplacianPE(6)(Data(edge_index=edges, num_nodes=450)).laplacian_pe,
        expected,
        rtol=1e-3,
        atol=1e-4,
    )
    assert len(seen) == searches


def test_a_decomposition_that_is_not_precise_enough_is_made_again(monkeypatch):
    """The eigenvalues of a thin grid are near 0: taken for an expander, it does not pass."""
    data, seen, dense = Data(edge_index=grid(4, 100)[0], num_nodes=400), [], _laplacian.dense_single
    expected = LaplacianPE(6)(data).laplacian_pe
    solvers = (_eigensolvers.single, _eigensolvers._lanczos)
    monkeypatch.setattr(_laplacian, 'solvers', lambda *_: solvers)
    monkeypatch.setattr(_laplacian, 'dense_single', lambda *args: seen.append(0) or dense(*args))
    torch.testing.assert_close(LaplacianPE(6)(data).laplacian_pe, expected, rtol=1e-3, atol=1e-4)
    assert seen


def test_one_search_and_one_for_what_it_may_have_left_over(monkeypatch):
    """Eigenvalues that lie close, found in single precision; BLAS runs on one thread for a graph of
    this size."""
    threads, eigsh = [], _eigensolvers.eigsh

    def search(*args, **options):
        threads.append(
            {
                library['num_threads']
                for library in threadpool_info()
                if library['user_api'] == 'blas'
            }
        )
        return eigsh(*args, **options)

    monkeypatch.setattr(_eigensolvers, 'eigsh', search)
    generator = torch.Generator().manual_seed(0)
    cycles = [torch.randperm(20_000, generator=generator) for _ in range(2)]
    edges = torch.cat([torch.stack([cycle, cycle.roll(1)]) for cycle in cycles], 1)
    with threadpool_limits(2, 'blas'):
        LaplacianPE(16)(Data(edge_index=edges, num_nodes=20_000))
        after = {
            library['num_threads'] for library in threadpool_info() if library['user_api'] == 'blas'
        }
    assert threads == [{1}, {1}]
    assert after == {2}


def in_a_thread(function, *args):
    """Of threads that are alive, some versions of threadpoolctl let only the first one set
    limits."""
    thread = threading.Thread(target=function, args=args)
    thread.start()
    thread.join()


def test_threads_at_once_leave_the_threads_of_blas_as_they_were(monkeypatch):
    """The second thread comes while the first one is limited, and goes later."""

    def blas():
        return {
            library['num_threads'] for library in threadpool_info() if library['user_api'] == 'blas'
        }

    component = _laplacian.component_eigenpairs
    together = threading.Barrier(2)
    seen = {}
    before = blas()

    def slow(*args):
        if threading.current_thread() is first:
            second.start()
            seen['first'] = blas()
            together.wait()
        else:
            together.wait()
            first.join()
        return component(*args)

    monkeypatch.setattr(_laplacian, 'component_eigenpairs', slow)
    data = Data(edge_index=ring(20), num_nodes=20)
    first, second = (threading.Thread(target=LaplacianPE(2), args=(data,)) for _ in range(2))
    in_a_thread(threadpool_limits, 2, 'blas')
    try:
        first.start()
        first.join()
        second.join()
        assert seen == {'first': {1}}
        assert blas() == {2}
    finally:
        in_a_thread(threadpool_limits, max(before), 'blas')


def test_solver_that_finds_no_memory(double, monkeypatch, constants):
    def splu(*_, **__):
        raise MemoryError

    data = Data(edge_index=grid(25, 30)[0], num_nodes=750)
    expected = LaplacianPE(3)(data).laplacian_pe
    monkeypatch.setattr(_eigensolvers, 'splu', splu)
    constants(dense_retry_nodes=0)
    torch.testing.assert_close(LaplacianPE(3)(data).laplacian_pe, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.fault(
    'no-convergence',
    (
        'The next solver is tried, each result is checked; with none left a RuntimeError says by '
        'how '
        'much they failed.'
    ),
)
def test_no_solver_left(monkeypatch, constants):
    data = Data(edge_index=barabasi_albert_graph(750, 2), num_nodes=750)
    expected = LaplacianPE(3)(data).laplacian_pe
    monkeypatch.setattr(_eigensolvers, 'eigsh', partial(_eigensolvers.eigsh, maxiter=1))
    # decomposed as a whole
    torch.testing.assert_close(LaplacianPE(3)(data).laplacian_pe, expected, rtol=1e-4, atol=1e-5)
    constants(dense_retry_nodes=0)
    # multigrid is left
    torch.testing.assert_close(LaplacianPE(3)(data).laplacian_pe, expected, rtol=1e-4, atol=1e-5)
    monkeypatch.setattr(
        _eigensolvers,
        'lobpcg',
        lambda *arguments, **options: lobpcg(*arguments, **options | {'maxiter': 1}),
    )
    reasons = (
        r'\(single: .*No convergence.*; _lanczos: .*No convergence.*; _multigrid: errors are .* '
        r'times the allowed size\)'
    )
    with pytest.raises(
        RuntimeError, match=f'of a component of 750 nodes did not converge {reasons}'
    ):
        LaplacianPE(3)(data)


@pytest.mark.parametrize('num_nodes', [1, 2, 3, 5])
def test_more_columns_than_eigenvectors(num_nodes):
    edges = torch.combinations(torch.arange(num_nodes)).t()
    data = LaplacianPE(4)(Data(edge_index=edges, num_nodes=num_nodes))
    assert data.laplacian_pe_mask.tolist() == [[i < num_nodes - 1 for i in range(4)]]
    assert data.laplacian_pe[:, num_nodes - 1 :].abs().sum() == 0
    torch.testing.assert_close(data.laplacian_pe.norm(dim=0), data.laplacian_pe_mask[0].float())


def test_nodes_without_neighbours_and_no_nodes():
    data = LaplacianPE(2)(Data(edge_index=torch.tensor([[1, 2], [2, 2]]), num_nodes=4))
    torch.testing.assert_close(
        data.laplacian_pe[:, 0].abs(), torch.tensor([0, 0.5**0.5, 0.5**0.5, 0])
    )
    assert data.laplacian_pe_mask.tolist() == [[True, False]]
    empty = LaplacianPE(2)(Data(edge_index=torch.empty(2, 0, dtype=torch.long), num_nodes=0))
    assert empty.laplacian_pe.shape == (0, 2)


@pytest.mark.parametrize('solver', ['dense', 'lanczos'])
def test_signs_and_bases_do_not_depend_on_the_start(solver, double, monkeypatch, constants):
    """A ring: every eigenvalue twice. Its columns are those of the space, and permute with the
    nodes where no two are alike."""
    constants(dense_nodes=1000 if solver == 'dense' else 10)
    first = LaplacianPE(5)(Data(edge_index=ring(400), num_nodes=400)).laplacian_pe
    monkeypatch.setattr(
        _eigensolvers, '_random', lambda n, size, seed: torch.randn(n, size).numpy()
    )
    torch.testing.assert_close(
        LaplacianPE(5)(Data(edge_index=ring(400), num_nodes=400)).laplacian_pe,
        first,
        rtol=1e-5,
        atol=1e-6,
    )
    edges, order = barabasi_albert_graph(400, 3), torch.randperm(400)
    place = order.argsort()
    one, other = (
        LaplacianPE(5)(Data(edge_index=e, num_nodes=400)).laplacian_pe
        for e in (edges, place[edges])
    )
    torch.testing.assert_close(other, one[order], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize('copies', [2, 3])
def test_signs_and_bases_do_not_depend_on_the_precision(copies):
    """Copies of a graph, joined node by node: columns whose cubes cancel, and for three copies an
    eigenvalue twice. Rounding in single precision must not choose among entries that are equal."""
    node, found = torch.arange(250), []
    for seed in range(1, 4):
        torch.manual_seed(seed)
        edges = erdos_renyi_graph(250, 8 / 250)
        parts = [edges + 250 * i for i in range(copies)]
        parts += [
            torch.stack([node + 250 * i, node + 250 * j]) for i in range(copies) for j in range(i)
        ]
        data = Data(edge_index=torch.cat(parts, 1), num_nodes=250 * copies)
        for dtype in (torch.float32, DOUBLE):
            torch.set_default_dtype(dtype)
            found.append(LaplacianPE(8)(data).laplacian_pe.double())
        torch.set_default_dtype(torch.float32)
    for single, double in zip(found[::2], found[1::2], strict=True):
        torch.testing.assert_close(single, double, rtol=0, atol=1e-4)


def test_graphs_of_a_batch_as_if_alone():
    graphs = [Data(edge_index=barabasi_albert_graph(n, 2), num_nodes=n) for n in (9, 5, 4)]
    alone = Batch.from_data_list([LaplacianPE(5)(graph) for graph in graphs])
    together = LaplacianPE(5)(Batch.from_data_list(graphs))
    torch.testing.assert_close(together.laplacian_pe, alone.laplacian_pe)
    assert torch.equal(together.laplacian_pe_mask, alone.laplacian_pe_mask)


def test_sampled_batches_carry_the_rows_of_the_full_graph():
    data = LaplacianPE(3)(
        Data(edge_index=to_undirected(barabasi_albert_graph(100, 3)), num_nodes=100)
    )
    for batch in NeighborLoader(data, [3, 2], batch_size=40):
        assert torch.equal(batch.laplacian_pe, data.laplacian_pe[batch.n_id])


def test_one_eigenvalue_in_very_many_components(monkeypatch):
    """All of 500 edges have the eigenvalue 2: no more columns are looked at than can be told
    apart."""
    canonical, seen = _laplacian.canonical, []
    monkeypatch.setattr(
        _laplacian,
        'canonical',
        lambda values, vectors: seen.append(values.size) or canonical(values, vectors),
    )
    data = LaplacianPE(3)(Data(edge_index=torch.arange(1000).view(500, 2).t(), num_nodes=1000))
    assert seen == [3 + _laplacian.MOST_SPARE]
    torch.testing.assert_close(data.laplacian_pe.norm(dim=0), torch.ones(3))
    assert (data.laplacian_pe != 0).sum(0).tolist() == [2, 2, 2]


def test_random_sign_flip():
    graphs = [LaplacianPE(3)(Data(edge_index=ring(n), num_nodes=n)) for n in (5, 6)] * 20
    data, state = Batch.from_data_list(graphs), torch.get_rng_state()
    results = [
        Compose([RandomSignFlip(generator=torch.Generator().manual_seed(0))])(data).laplacian_pe
        for _ in range(2)
    ]
    assert torch.equal(*results)
    assert torch.equal(torch.get_rng_state(), state)
    signs = set()
    for graph in range(40):
        in_graph = data.batch == graph
        ratio = (results[0][in_graph] / data.laplacian_pe[in_graph]).nan_to_num(nan=0).sum(0).sign()
        assert torch.equal(results[0][in_graph], data.laplacian_pe[in_graph] * ratio)
        signs.add(tuple(ratio.tolist()))
    assert len(signs) == 8
    with pytest.raises(ValueError, match="'data' must have the attribute 'laplacian_pe'"):
        RandomSignFlip()(Data(x=torch.ones(2, 1)))
    with pytest.raises(ValueError, match=r"'attr_name' must name columns .* 'y' of \(2,\)"):
        RandomSignFlip('y')(Data(y=torch.ones(2)))
    assert repr(RandomSignFlip()) == "RandomSignFlip('laplacian_pe')"


def test_cache(tmp_path, monkeypatch):
    data = Data(edge_index=ring(12), num_nodes=12)
    transform = LaplacianPE(3, cache_dir=tmp_path / 'cache')
    first = transform(data)
    monkeypatch.setattr(
        'torch_geometric_lgt.transforms.laplacian_pe.laplacian_eigenpairs',
        lambda *_: pytest.fail('not from the cache'),
    )
    assert torch.equal(transform(data).laplacian_pe, first.laplacian_pe)
    monkeypatch.undo()
    for other, graph in (
        (LaplacianPE(3, 'rw', cache_dir=tmp_path / 'cache'), data),
        (transform, Data(edge_index=ring(12), num_nodes=13)),
    ):
        other(graph)
    assert len(list((tmp_path / 'cache').glob('*.safetensors'))) == 3


def test_raises_and_repr():
    assert repr(LaplacianPE(3)) == "LaplacianPE(3, normalization='sym', attr_name='laplacian_pe')"
    with pytest.raises(ValueError, match="'k' must be at least 1"):
        LaplacianPE(0)
    with pytest.raises(ValueError, match="'normalization' must be one of 'sym', 'rw'"):
        LaplacianPE(1, 'none')


@pytest.mark.parametrize(('clique', 'path', 'k'), [(76, 5, 25), (100, 100, 40)])
def test_many_eigenvectors_of_cliques(clique, path, k):
    """LOBPCG takes no constraints where it is asked for a fifth of all eigenvectors: there the next
    solver has its turn."""
    networkx = pytest.importorskip('networkx')
    edges = torch.tensor(list(networkx.barbell_graph(clique, path).edges)).t()
    data = Data(edge_index=to_undirected(edges), num_nodes=2 * clique + path)
    actual = LaplacianPE(k)(data).laplacian_pe.double()
    laplacian = _normalized(data)
    values = np.linalg.eigvalsh(laplacian)
    quotients = (actual * (torch.from_numpy(laplacian) @ actual)).sum(0)
    torch.testing.assert_close(quotients, torch.from_numpy(values[1 : k + 1]), rtol=0, atol=1e-6)


@pytest.mark.parametrize('k', [4, 16])
@pytest.mark.parametrize(
    ('clique', 'path'),
    [
        (100, 0),
        (100, 50),
        (100, 100),
        (200, 0),
        (250, 0),
        (300, 0),
        (200, 200),
        (250, 250),
        (300, 300),
        (250, 5),
    ],
)
def test_barbells(clique, path, k, double):
    """Two cliques and a path: tiny eigenvalues, and one that nearly all the others equal."""
    ends = [torch.combinations(torch.arange(clique) + start).t() for start in (0, clique + path)]
    line = torch.arange(clique - 1, clique + path + 1)
    edges = torch.cat([*ends, torch.stack([line[:-1], line[1:]])], 1)
    data = Data(edge_index=to_undirected(edges), num_nodes=2 * clique + path)
    actual, laplacian = LaplacianPE(k)(data).laplacian_pe.numpy(), _normalized(data)
    values, vectors = np.linalg.eigh(laplacian)
    np.testing.assert_allclose(laplacian @ actual, actual * values[1 : k + 1], rtol=0, atol=1e-8)
    np.testing.assert_allclose(actual.T @ actual, np.eye(k), rtol=0, atol=1e-8)
    np.testing.assert_allclose(np.abs(actual[:, 0] @ vectors[:, 1]), 1, rtol=0, atol=1e-8)


def test_a_full_matrix_is_decomposed_before_a_search_that_takes_longer(double, monkeypatch):
    monkeypatch.setattr(_eigensolvers, 'lobpcg', lambda *_, **__: pytest.fail('searched'))
    test_barbells(250, 50, 16, None)


def _normalized(data):
    adjacency = np.zeros((data.num_nodes, data.num_nodes))
    adjacency[tuple(data.edge_index.numpy())] = 1
    scale = adjacency.sum(1) ** -0.5
    return np.eye(data.num_nodes) - scale[:, None] * adjacency * scale


def test_empty_graphs_at_the_end_of_a_batch_have_a_row(tmp_path):
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    full, empty = Data(edge_index=edges, num_nodes=3), Data(edge_index=edges[:, :0], num_nodes=0)
    for folder in (None, tmp_path):
        for graphs in ([full], [full, empty], [empty, full, empty]):
            actual = LaplacianPE(2, cache_dir=folder)(Batch.from_data_list(graphs))
            assert actual.laplacian_pe_mask.tolist() == [[graph is full] * 2 for graph in graphs]


def test_dtypes_of_one_size_have_caches_of_their_own(tmp_path):
    data = Data(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)
    for transform in (LaplacianPE(1, cache_dir=tmp_path), SVDEncoding(1, cache_dir=tmp_path)):
        for dtype in (torch.float16, torch.bfloat16):
            before = torch.get_default_dtype()
            torch.set_default_dtype(dtype)
            try:
                assert transform(data)[transform.attr_name].dtype == dtype
            finally:
                torch.set_default_dtype(before)


@pytest.mark.parametrize('cut', [lambda x: x[:-1], lambda x: x[:, :-1], lambda x: x.to(torch.half)])
@pytest.mark.parametrize('name', ['vectors', 'mask'])
def test_a_cache_of_other_shapes_is_built_again(tmp_path, name, cut):
    data, transform = Data(edge_index=ring(12), num_nodes=12), LaplacianPE(3, cache_dir=tmp_path)
    first = transform(data)
    (path,) = tmp_path.glob('*.safetensors')
    tensors = dict(_io.read_tensors(path, 'laplacian_pe'))
    _io.write_tensors(path, {**tensors, name: cut(tensors[name])}, 'laplacian_pe')
    with pytest.warns(UserWarning, match='is built again'):
        actual = transform(data)
    assert torch.equal(actual.laplacian_pe, first.laplacian_pe)
    assert torch.equal(actual.laplacian_pe_mask, first.laplacian_pe_mask)


@pytest.mark.parametrize('k', [2.5, 2.0, True, '3', None])
def test_numbers_of_columns_are_whole(k):
    with pytest.raises(ValueError, match="'k' must be at least 1, a whole number"):
        LaplacianPE(k)


def test_random_sign_flip_in_worker_processes():
    """A generator would give each of them the same signs, in each epoch."""
    graphs = [LaplacianPE(3)(Data(edge_index=ring(n), num_nodes=n)) for n in (5, 6)]

    def loader(generator: torch.Generator | None, num_workers: int) -> DataLoader:
        flip = RandomSignFlip(generator=generator)
        return DataLoader(graphs, num_workers=num_workers, collate_fn=lambda part: flip(*part))

    for generator, num_workers in ((None, 1), (None, 0), (torch.Generator(), 0)):
        sizes = [data.num_nodes for data in loader(generator, num_workers)]
        assert sizes == [5, 6]
    with pytest.raises(ValueError, match="'generator' must be None in worker processes"):
        next(iter(loader(torch.Generator(), 1)))


def test_differences_from_the_transform_of_pyg():
    edges = to_undirected(ring(20))
    weight = torch.ones(edges.size(1), dtype=DOUBLE)
    data = Data(edge_index=edges, edge_weight=weight, num_nodes=20)
    theirs = AddLaplacianEigenvectorPE(k=19, is_undirected=True)
    assert theirs(data.clone()).laplacian_eigenvector_pe.dtype == DOUBLE
    assert LaplacianPE(k=20)(data.clone()).laplacian_pe.shape == (20, 20)
    with pytest.raises(RuntimeError):
        AddLaplacianEigenvectorPE(k=20, is_undirected=True)(data)
