r"""Loads and splits the graphs of the node classification benchmark."""

# N nodes, E edges, F features.
import argparse
import copy
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric import datasets
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures, RandomNodeSplit
from torch_geometric.utils import remove_self_loops, to_undirected

from benchmarks.common.arguments import Parser, add_root
from benchmarks.common.arrays_only import arrays_only, require_regular
from benchmarks.common.files import DataError, one_at_a_time, say
from benchmarks.common.names import hint, unknown
from benchmarks.node_classification.graph_files import from_npz
from torch_geometric_lgt.datasets._sources import Source, fetch
from torch_geometric_lgt.transforms import LaplacianPE

SOURCES = {  # name: PyG's class, which names the folder, and the name of the data set in it
    'cora': ('Planetoid', 'Cora'),
    'citeseer': ('Planetoid', 'CiteSeer'),
    'pubmed': ('Planetoid', 'PubMed'),
    'computers': ('Amazon', 'Computers'),
    'photo': ('Amazon', 'Photo'),
    'cs': ('Coauthor', 'CS'),
    'physics': ('Coauthor', 'Physics'),
    'actor': ('Actor', None),
    'deezer': ('DeezerEurope', None),
    **{name: ('WikipediaNetwork', name) for name in ('chameleon', 'squirrel')},
    **{name: ('WebKB', name) for name in ('cornell', 'texas', 'wisconsin')},
    **{
        name: ('LINKXDataset', name)
        for name in ('amherst41', 'cornell5', 'johnshopkins55', 'penn94', 'reed98')
    },
    **{
        name: ('HeterophilousGraphDataset', name)
        for name in ('minesweeper', 'questions', 'tolokers')
    },
}
FILTERED_ADDRESS = (
    'https://raw.githubusercontent.com/yandex-research/heterophilous-graphs/'
    'a431395582e929d88271309716bea4fe24ce6318/data'
)
FILTERED = {  # Wikipedia networks without the nodes that occur twice
    'chameleon-filtered': Source(
        f'{FILTERED_ADDRESS}/chameleon_filtered.npz', 'git:90a5725f5f5b4f4a9a02ded8595f86e2969b82ee'
    ),
    'squirrel-filtered': Source(
        f'{FILTERED_ADDRESS}/squirrel_filtered.npz', 'git:a59f6d2e0dc1f11b8e503c426e86f53124c21eb1'
    ),
}
NAMES = (*SOURCES, *FILTERED, 'digits', '20news')
TOPICS = [
    *('alt.atheism', 'comp.sys.ibm.pc.hardware', 'misc.forsale', 'rec.autos', 'rec.sport.hockey'),
    *('sci.crypt', 'sci.electronics', 'sci.med', 'sci.space', 'talk.politics.guns'),
]
LAYOUT = (
    "PyG's data sets in the folders of their classes, as DIR/Planetoid/Cora/raw, which are "
    'downloaded if they are not there, and .npz files'
)
SPARSE = 0.05  # products with a sparse matrix are faster up to this share of nonzero features
PER_CLASS = {f'random-{number}-per-class': number for number in (20, 5, 10, 40)}
# one split for all seeds, from which the papers' figures are
PUBLISHED_SPLITS = (
    'published-20-per-class',
    'published-50-25-25',
)
SHARES = {  # per cent of the nodes for validation, and for the test
    'random-50-25-25': (25, 25),
    'random-60-20-20': (20, 20),
    'random-5-10-85': (10, 85),
}
PROTOCOLS = (*PER_CLASS, *SHARES, *PUBLISHED_SPLITS, 'fixed-splits')


def dataset_name(text: str) -> str:
    r"""Reads the name of a data set or of a file.

    Raises:
        argparse.ArgumentTypeError: If the name is unknown, or a file is called like a data set,
            whose settings it would have, and the results of which it would replace.
    """
    is_file = Path(text).suffix == '.npz'
    if is_file and Path(text).stem in NAMES:
        raise argparse.ArgumentTypeError(
            f'{text!r} must have another name than the data set {Path(text).stem}, whose settings '
            'and results it would have; rename the file'
        )
    if text not in NAMES and not is_file:
        raise argparse.ArgumentTypeError(f'{unknown(text, NAMES)}; the name of a file ends in .npz')
    return text


def add_dataset(parser: Parser, default: str = 'cora') -> None:
    r"""Adds the options of the data set."""
    add_root(parser, LAYOUT)
    parser.groups['data'].add_argument(
        '--dataset',
        type=dataset_name,
        default=default,
        metavar='NAME',
        help=f'a .npz file, or a data set [{", ".join(NAMES)}]',
    )


def add_protocol(parser: Parser) -> None:
    r"""Adds the rule of the splits."""
    parser.groups['data'].add_argument(
        '--protocol',
        choices=PROTOCOLS,
        help='the rule of the splits (default: that of the data set)',
    )


def load(root: str, name: str, neighbors: int | None = None, wrong_edges: float = 0.0) -> Data:
    r"""Loads a graph with undirected edges without self loops, and -1 as the label of unlabelled
    nodes.

    Args:
        root (str): The folder of all data sets.
        name (str): One of ``NAMES``, or a ``.npz`` file (see :meth:`from_npz`).
        neighbors (int, optional): Replaces the edges by those from this many nearest neighbours.
            (default: :obj:`None`)
        wrong_edges (float, optional): The share of the edges that random pairs replace, see
            :meth:`with_wrong_edges`. (default: :obj:`0.0`)

    Raises:
        ValueError: If the name is unknown.
        pickle.UnpicklingError: If a file of the data set holds more than arrays. No code in it
            runs.
    """
    if f'{name}-filtered' in FILTERED:
        say(
            f'{name} has nodes that occur twice, in the training and the test part alike, which '
            f'raises scores; {name}-filtered is the graph without them'
        )
    if name in SOURCES:
        kind, title = SOURCES[name]
        arguments = (f'{root}/{kind}',) if title is None else (f'{root}/{kind}', title)
        require_regular(f'{root}/{kind}')
        with one_at_a_time(Path(root, kind)), arrays_only(f'{root}/{kind}'):
            data = getattr(datasets, kind)(*arguments)[0]
    elif name in FILTERED:
        data = filtered(root, name)
    elif name == 'digits':
        data = digits()
    elif name == '20news':
        data = newsgroups(root)
    elif Path(name).suffix == '.npz':
        data = from_npz(Path(name) if Path(name).exists() else Path(root) / name)
    else:
        raise ValueError(
            f"'dataset' must be a .npz file or a known name (got {name!r}){hint(name, NAMES)}"
        )
    data.x = data.x.to_dense()
    if neighbors is not None:
        data.edge_index = nearest_neighbor_edges(data.x, neighbors)
    data.edge_index = remove_self_loops(to_undirected(data.edge_index, num_nodes=data.num_nodes))[0]
    if wrong_edges > 0:
        data.edge_index = with_wrong_edges(data.edge_index, data.num_nodes, wrong_edges)
    return data


def with_wrong_edges(edge_index: Tensor, num_nodes: int, share: float) -> Tensor:
    r"""Replaces a random share of the undirected edges by random pairs of nodes, the same in each
    call. Pairs that are edges already are not added again."""
    generator = torch.Generator().manual_seed(0)
    edges = edge_index[:, edge_index[0] < edge_index[1]]
    replaced = torch.randperm(edges.size(1), generator=generator)[: round(share * edges.size(1))]
    source = torch.randint(num_nodes, replaced.shape, generator=generator)
    step = torch.randint(1, num_nodes, replaced.shape, generator=generator)
    edges[:, replaced] = torch.stack([source, (source + step) % num_nodes])
    return to_undirected(edges, num_nodes=num_nodes)


def filtered(root: str, name: str) -> Data:
    r"""Loads a Wikipedia network without the nodes that occur twice, with ten splits, as in
    `"A Critical Look at the Evaluation of GNNs under Heterophily"
    <https://arxiv.org/abs/2302.11640>`_. Its file is downloaded into the folder ``heterophilous``
    of :obj:`root` if it is not there."""
    path = Path(root) / 'heterophilous' / FILTERED[name].url.rpartition('/')[2]
    if not path.exists():
        fetch(FILTERED[name], path)
    return from_npz(path)


def nearest_neighbor_edges(x: Tensor, neighbors: int) -> Tensor:
    r"""Connects each node to its nearest neighbours; returns the edges ``[2, E]``.

    Raises:
        DataError: If there are not that many other nodes.
    """
    if neighbors == 0:
        return torch.empty(2, 0, dtype=torch.long)
    if neighbors >= x.size(0):
        raise DataError(
            f'--neighbors must be below the number of nodes, {x.size(0)} (got {neighbors})'
        )
    from sklearn.neighbors import kneighbors_graph

    graph = kneighbors_graph(x.numpy(), neighbors).tocoo()
    return torch.from_numpy(np.stack([graph.col, graph.row])).long()


def digits() -> Data:
    r"""Loads the handwritten digits of scikit-learn, without edges."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return Data(
        x=torch.from_numpy(x).float() / 16,
        y=torch.from_numpy(y).long(),
        edge_index=torch.empty(2, 0, dtype=torch.long),
    )


def newsgroups(root: str) -> Data:
    r"""Loads ten of the 20 Newsgroups, without edges: 9,607 documents with weights of 236 words, as
    in "Learning Discrete Structures for Graph Neural Networks". Scikit-learn downloads the
    documents, or reads its copy in :obj:`root`."""
    from sklearn.datasets import fetch_20newsgroups
    from sklearn.feature_extraction.text import TfidfVectorizer

    require_regular(f'{root}/20news-bydate_py3.pkz')
    with arrays_only(root):
        news = fetch_20newsgroups(data_home=root, subset='all', categories=TOPICS)
    x = TfidfVectorizer(stop_words='english', min_df=0.05).fit_transform(news.data).toarray()
    return Data(
        x=torch.from_numpy(x).float(),
        y=torch.from_numpy(news.target).long(),
        edge_index=torch.empty(2, 0, dtype=torch.long),
    )


def split(data: Data, protocol: str, seed: int) -> dict[str, Tensor]:
    r"""Splits the labelled nodes into a training, validation and test part. Under ``fixed-splits``
    the seed is the number of the split. The published splits do not depend on the seed.

    Raises:
        ValueError: If there are no fixed splits.
    """
    if protocol == 'fixed-splits':
        if 'train_mask' not in data:
            raise ValueError(
                "'protocol' = 'fixed-splits' needs a data set that brings splits; use a random one"
            )
        masks = [data[f'{part}_mask'] for part in ('train', 'val', 'test')]
        masks = [mask[:, seed % mask.size(1)] if mask.dim() == 2 else mask for mask in masks]
        return dict(
            zip(
                ('train', 'valid', 'test'),
                (mask.nonzero().flatten() for mask in masks),
                strict=True,
            )
        )
    labelled = (data.y >= 0).nonzero().flatten()
    if protocol in PUBLISHED_SPLITS:
        parts = published_split(data.y[labelled], protocol)
        return dict(
            zip(('train', 'valid', 'test'), (labelled[part] for part in parts), strict=True)
        )
    part = Data(y=data.y[labelled], num_nodes=labelled.numel())
    if protocol in PER_CLASS:
        rule = RandomNodeSplit(
            'random', num_train_per_class=PER_CLASS[protocol], num_val=500, num_test=1000
        )
    else:
        valid, test = (share / 100 for share in SHARES[protocol])
        rule = RandomNodeSplit('train_rest', num_val=valid, num_test=test)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        masks = rule(part)
    return {
        name: labelled[masks[f'{mask}_mask']]
        for name, mask in (('train', 'train'), ('valid', 'val'), ('test', 'test'))
    }


def published_split(y: Tensor, protocol: str) -> tuple[Tensor, ...]:
    r"""Draws the split that the authors' programs use in all of their runs. DIFFormer and SGFormer
    draw it class by class from PyTorch's generator with the seed 123, NodeFormer from NumPy's with
    the seed 42."""
    if protocol == 'published-50-25-25':
        order = torch.from_numpy(np.random.RandomState(42).permutation(y.numel()))
        return order.tensor_split((y.numel() // 2, y.numel() // 2 + y.numel() // 4))
    random = torch.Generator().manual_seed(123)
    classes = [(y == label).nonzero().flatten() for label in y.unique()]
    classes = [nodes[torch.randperm(nodes.numel(), generator=random)] for nodes in classes]
    rest = torch.cat([nodes[20:] for nodes in classes])
    rest = rest[torch.randperm(rest.numel(), generator=random)]
    return torch.cat([nodes[:20] for nodes in classes]), rest[:500], rest[500:1500]


def prepare_features(
    data: Data, normalize: bool, laplacian_pe: int = 0, sparse: bool = True
) -> Data:
    r"""Copies a graph with other features.

    Args:
        data (Data): The graph.
        normalize (bool): Whether the features of each node are scaled to a sum of 1.
        laplacian_pe (int, optional): The number of eigenvectors of the graph's Laplacian that
            follow the features. A column has the mean square 1. (default: :obj:`0`)
        sparse (bool, optional): Whether features are stored as a sparse matrix if few differ from
            0. (default: :obj:`True`)
    """
    data = NormalizeFeatures()(copy.copy(data)) if normalize else copy.copy(data)
    if laplacian_pe > 0:
        encoded = LaplacianPE(laplacian_pe)(
            Data(edge_index=data.edge_index, num_nodes=data.num_nodes)
        )
        scaled = encoded.laplacian_pe * data.num_nodes**0.5
        data.x = torch.cat([data.x, scaled.to(data.x.dtype)], 1)
    if sparse and data.x.count_nonzero() <= SPARSE * data.x.numel():
        data.x = data.x.to_sparse_csr()
    return data
