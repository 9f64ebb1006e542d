r"""Defines the cases of ``benchmarks.runtime.transforms``: graphs, and methods that compute the
same."""

# N nodes, E edges, K eigenvectors, SVD_K singular vectors.
import tempfile
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.transforms import AddLaplacianEigenvectorPE
from torch_geometric.utils import (
    coalesce,
    get_laplacian,
    remove_self_loops,
    to_networkx,
    to_undirected,
)

from torch_geometric_lgt.datasets import InteractionDataset, SBMDataset
from torch_geometric_lgt.transforms import JaccardScores, LaplacianPE, SVDEncoding

K, SVD_K = 16, 64
QUADRANTS = (0.57, 0.19, 0.19, 0.05)
Method = Callable[[], Any]


def rmat(scale: int, edges: int) -> Data:
    r"""Makes a graph of :math:`2^{scale}` nodes with heavy-tailed degrees (`"R-MAT: A Recursive
    Model for Graph Mining" <https://doi.org/10.1137/1.9781611972740.43>`_). Each edge descends
    through random quadrants of the adjacency matrix. Self loops and repeated edges are dropped."""
    random, pairs = np.random.default_rng(0), np.zeros((2, edges), np.int64)
    for _ in range(scale):
        quadrant = random.choice(4, edges, p=QUADRANTS)
        pairs = 2 * pairs + np.stack([quadrant // 2, quadrant % 2])
    return _undirected(torch.from_numpy(pairs), 2**scale)


def grid(side: int) -> Data:
    number = torch.arange(side * side).view(side, side)
    right = torch.stack([number[:, :-1], number[:, 1:]])
    down = torch.stack([number[:-1], number[1:]])
    return _undirected(torch.cat([right.flatten(1), down.flatten(1)], 1), side * side)


def regular(nodes: int, degree: int) -> Data:
    r"""Makes an expander: the union of random cycles through all nodes."""
    random = np.random.default_rng(0)
    cycles = [random.permutation(nodes) for _ in range(degree // 2)]
    return _undirected(
        torch.from_numpy(
            np.concatenate([np.stack([cycle, np.roll(cycle, 1)]) for cycle in cycles], 1)
        ),
        nodes,
    )


def cluster(num_graphs: int) -> Data:
    with tempfile.TemporaryDirectory() as folder:
        return Batch.from_data_list(list(SBMDataset(folder, 'CLUSTER', num_graphs=num_graphs)))


def bipartite(rows: int, columns: int, edges: int) -> HeteroData:
    r"""Makes interactions whose numbers per user and per item are heavy-tailed."""
    random = np.random.default_rng(0)
    users, items = (
        (size * random.random(edges) ** 2.5).astype(np.int64) for size in (rows, columns)
    )
    return _interactions(torch.from_numpy(np.stack([users, items])), rows, columns)


def interactions(root: str, name: str) -> HeteroData:
    data = InteractionDataset(root, name)[0]
    return _interactions(
        data['user', 'rates', 'item'].train_edge_label_index,
        data['user'].num_nodes,
        data['item'].num_nodes,
    )


def _interactions(pairs: Tensor, num_users: int, num_items: int) -> HeteroData:
    data = HeteroData(user={'num_nodes': num_users}, item={'num_nodes': num_items})
    data['user', 'rates', 'item'].edge_index = coalesce(pairs)
    return data


def _undirected(pairs: Tensor, num_nodes: int) -> Data:
    return Data(
        edge_index=to_undirected(coalesce(remove_self_loops(pairs)[0])), num_nodes=num_nodes
    )


def networkit_scores(data: Data) -> Method:
    import networkit

    networkit.setNumberOfThreads(torch.get_num_threads())
    once = _once(data)
    graph = networkit.GraphFromCoo((once[0], once[1]), n=data.num_nodes)

    def run() -> np.ndarray:
        graph.indexEdges()
        triangles = networkit.sparsification.TriangleEdgeScore(graph).run().scores()
        return np.array(
            networkit.sparsification.JaccardSimilarityAttributizer(graph, triangles).getAttribute()
        )

    return run


def igraph_scores(data: Data) -> Method:
    import igraph

    pairs = _once(data).T.tolist()
    graph = igraph.Graph(data.num_nodes, pairs)
    return lambda: graph.similarity_jaccard(pairs=pairs, loops=False)


def networkx_scores(data: Data) -> Method:
    import networkx

    graph = to_networkx(data, to_undirected=True)
    return lambda: [score for *_, score in networkx.jaccard_coefficient(graph, graph.edges)]


def _once(data: Data) -> np.ndarray:
    return np.ascontiguousarray(data.edge_index[:, data.edge_index[0] < data.edge_index[1]].numpy())


def arpack(data: HeteroData) -> Method:
    row, column = data['user', 'rates', 'item'].edge_index.numpy()
    matrix = csr_array(
        (np.ones(row.size), (row, column)), shape=(data['user'].num_nodes, data['item'].num_nodes)
    )
    return lambda: svds(matrix, SVD_K, solver='arpack', random_state=0)


def jaccard_quality(data: Data, result: Any) -> float:
    r"""Computes the mean over the edges."""
    return float(np.mean(result.edge_jaccard.numpy() if isinstance(result, Data) else result))


def laplacian_quality(data: Data, result: Any) -> float:
    r"""Computes the sum of the Rayleigh quotients. The true vectors have the smallest sum among
    orthonormal vectors beside the trivial one."""
    vectors = result.laplacian_pe.double()
    index, value = get_laplacian(data.edge_index, None, 'sym', torch.float64, data.num_nodes)
    laplacian = torch.sparse_coo_tensor(index, value, (data.num_nodes,) * 2)
    return float((vectors * (laplacian @ vectors)).sum())


def svd_quality(data: HeteroData, result: Any) -> float:
    r"""Computes the sum of the singular values, which is largest for the true vectors."""
    return float(
        result['user'].svd_pe.double().square().sum()
        if isinstance(result, HeteroData)
        else result[1].sum()
    )


def pyg_eigenvectors(data: Data) -> Method:
    transform = AddLaplacianEigenvectorPE(K, 'laplacian_pe', is_undirected=True)
    if isinstance(data, Batch):
        return lambda: Batch.from_data_list([transform(graph) for graph in data.to_data_list()])
    return lambda: transform(data)


GRAPHS: dict[str, Callable[[], Data | HeteroData]] = {
    'rmat-1M-edges': lambda: rmat(17, 550_000),
    'rmat-10M-edges': lambda: rmat(20, 5_500_000),
    'grid-100k-nodes': lambda: grid(316),
    'regular-100k-nodes': lambda: regular(100_000, 8),
    'regular-1M-nodes': lambda: regular(1_000_000, 10),
    'cluster-500-graphs': lambda: cluster(500),
    'regular-100-graphs-of-300-nodes': lambda: Batch.from_data_list([regular(300, 8)] * 100),
    '4-regular-100-graphs-of-300-nodes': lambda: Batch.from_data_list([regular(300, 4)] * 100),
    '4-regular-100-graphs-of-500-nodes': lambda: Batch.from_data_list([regular(500, 4)] * 100),
    'regular-100-graphs-of-1k-nodes': lambda: Batch.from_data_list([regular(1000, 8)] * 100),
    'small': lambda: regular(1000, 8),
    'bipartite-1M-edges': lambda: bipartite(100_000, 50_000, 1_050_000),
    'small-bipartite': lambda: bipartite(300, 200, 2000),
}
REAL = ('amazon-beauty',)
BIPARTITE = (*REAL, 'bipartite-1M-edges', 'small-bipartite')


def graph_of(name: str, root: str) -> Data | HeteroData:
    r"""Makes a graph by name, or loads a real one from the folder of data sets."""
    return interactions(root, name) if name in REAL else GRAPHS[name]()


METHODS: dict[str, dict[str, Callable[[Any], Method]]] = {
    'jaccard': {
        'ours': lambda data: lambda: JaccardScores()(data),
        'networkit': networkit_scores,
        'igraph': igraph_scores,
        'networkx': networkx_scores,
    },
    'laplacian-pe': {'ours': lambda data: lambda: LaplacianPE(K)(data), 'pyg': pyg_eigenvectors},
    'svd': {'ours': lambda data: lambda: SVDEncoding(SVD_K)(data), 'arpack': arpack},
}
QUALITY: dict[str, Callable[[Any, Any], float]] = {
    'jaccard': jaccard_quality,
    'laplacian-pe': laplacian_quality,
    'svd': svd_quality,
}
SMALL = {'jaccard': 'small', 'laplacian-pe': 'small', 'svd': 'small-bipartite'}
ON = {
    'jaccard': ('rmat-1M-edges', 'rmat-10M-edges'),
    'laplacian-pe': (
        'cluster-500-graphs',
        'regular-100-graphs-of-300-nodes',
        '4-regular-100-graphs-of-300-nodes',
        '4-regular-100-graphs-of-500-nodes',
        'regular-100-graphs-of-1k-nodes',
        'grid-100k-nodes',
        'regular-100k-nodes',
        'regular-1M-nodes',
        'rmat-10M-edges',
    ),
    'svd': ('amazon-beauty', 'bipartite-1M-edges'),
}
