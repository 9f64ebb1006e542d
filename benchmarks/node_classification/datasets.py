r"""The graphs of the node classification benchmark, through PyG's dataset classes where there is
one, and the rules that split them."""

# N nodes, E edges, F features.
import copy
import zlib
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from scipy.sparse import csr_array
from torch import Tensor
from torch_geometric import datasets
from torch_geometric.data import Data
from torch_geometric.transforms import NormalizeFeatures, RandomNodeSplit
from torch_geometric.utils import remove_self_loops, to_undirected

from benchmarks.common.arrays_only import arrays_only, require_regular
from torch_geometric_lgt._io import open_regular

SOURCES = {  # name: PyG's class, in whose folder it lies, and the name there
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
    **{name: ('HeterophilousGraphDataset', name) for name in ('minesweeper', 'tolokers')},
}
TOPICS = [
    *('alt.atheism', 'comp.sys.ibm.pc.hardware', 'misc.forsale', 'rec.autos', 'rec.sport.hockey'),
    *('sci.crypt', 'sci.electronics', 'sci.med', 'sci.space', 'talk.politics.guns'),
]
LAYOUT = (
    "PyG's data sets in the folders of their classes, as DIR/Planetoid/Cora/raw, and .npz files"
)
# the share of features that differ from 0 up to which products with a sparse matrix are the faster
# ones
SPARSE = 0.05
PER_CLASS = {f'random-{number}-per-class': number for number in (20, 5, 10, 40)}
PUBLISHED_SPLITS = (
    'published-20-per-class',
    'published-50-25-25',
)  # one split for all seeds: those of the papers' figures
PROTOCOLS = (*PER_CLASS, 'random-50-25-25', 'random-60-20-20', *PUBLISHED_SPLITS, 'fixed-splits')


def load(root: str, name: str, neighbors: int | None = None) -> Data:
    r"""A graph with :obj:`x`, :obj:`y` (-1: unlabelled) and undirected edges without self loops, by
    name or from a :obj:`.npz` file (see :meth:`from_npz`); :obj:`neighbors` replaces the edges by
    those of the nearest neighbours, 0 by none.

    Raises:
        ValueError: If the name is unknown.
        pickle.UnpicklingError: If a file of the data set holds more than arrays, which has not run.
    """
    if name in SOURCES:
        kind, title = SOURCES[name]
        arguments = (f'{root}/{kind}',) if title is None else (f'{root}/{kind}', title)
        require_regular(f'{root}/{kind}')
        with arrays_only(f'{root}/{kind}'):
            data = getattr(datasets, kind)(*arguments)[0]
    elif name == 'digits':
        data = digits()
    elif name == '20news':
        data = newsgroups(root)
    elif Path(name).suffix == '.npz':
        data = from_npz(Path(name) if Path(name).exists() else Path(root) / name)
    else:
        raise ValueError(
            f"'dataset' must be a .npz file or one of {', '.join([*SOURCES, 'digits', '20news'])} "
            f'(got {name!r})'
        )
    data.x = data.x.to_dense() if data.x.is_sparse else data.x
    if neighbors is not None:
        data.edge_index = nearest(data.x, neighbors)
    data.edge_index = remove_self_loops(to_undirected(data.edge_index, num_nodes=data.num_nodes))[0]
    return data


def from_npz(path: Path) -> Data:
    r"""A graph of arrays: :obj:`edges` ``[E, 2]``, :obj:`y` ``[N]``, and the features :obj:`x`
    ``[N, F]`` or the columns of the ones of a binary matrix as :obj:`feat_indptr` and
    :obj:`feat_indices`. Nothing is unpickled.

    Raises:
        ValueError: If the file is damaged, lacks an array, or one has another shape or type, or ids
            or labels out of range.
    """
    arrays = _arrays(path)
    y = _integers(arrays, 'y', (None,), -1, 2**31)
    if 'x' in arrays or 'feat_indptr' not in arrays:
        x = _features(arrays)
    else:
        pointer = _integers(arrays, 'feat_indptr', (None,), 0, 2**63 - 1)
        column = _integers(arrays, 'feat_indices', (None,), 0, 2**31)
        if (
            pointer.size == 0
            or pointer[0] != 0
            or pointer[-1] != column.size
            or (np.diff(pointer) < 0).any()
        ):
            raise ValueError(
                "'feat_indptr' must not decrease, from 0 to the size of 'feat_indices' (got "
                f'{pointer.tolist()[:5]} ..)'
            )
        shape = (pointer.size - 1, int(column.max(initial=-1)) + 1)
        x = csr_array((np.ones(column.size, np.float32), column, pointer), shape=shape).toarray()
    if not 0 < y.size == len(x):
        raise ValueError(f"'y' must have a label for each node (got {y.size} for {len(x)} nodes)")
    edges = _integers(arrays, 'edges', (None, 2), 0, y.size)
    edge_index = torch.from_numpy(edges.T).contiguous()
    return Data(x=torch.from_numpy(x), edge_index=edge_index, y=torch.from_numpy(y))


def _arrays(path: Path) -> dict[str, np.ndarray]:
    r"""The arrays of a file, nothing of which is unpickled."""
    try:
        with open_regular(path) as file, np.lib.npyio.NpzFile(file, allow_pickle=False) as held:
            return {
                name: np.asarray(value) for name, value in held.items()
            }  # bytes, where it is no array
    except (
        BadZipFile,
        EOFError,
        NotImplementedError,
        RuntimeError,
        ValueError,
        zlib.error,
    ) as error:
        reason = 'it holds objects' if 'allow_pickle' in str(error) else str(error)
        raise ValueError(
            f'{str(path)!r} must be an intact .npz file of numbers ({reason})'
        ) from error


def _array(
    arrays: dict[str, np.ndarray], name: str, kinds: str, shape: tuple[int | None, ...]
) -> np.ndarray:
    if name not in arrays:
        raise ValueError(f'the file must hold {name!r} (got {", ".join(arrays)})')
    value = arrays[name]
    fits = value.ndim == len(shape) and all(
        size in (None, length) for size, length in zip(shape, value.shape, strict=True)
    )
    if value.dtype.kind not in kinds or not fits:
        text = ', '.join('*' if size is None else str(size) for size in shape)
        numbers = 'numbers' if 'f' in kinds else 'integers'
        raise ValueError(
            f'{name!r} must be {numbers} of shape [{text}] (got {value.dtype} {list(value.shape)})'
        )
    return value


def _integers(
    arrays: dict[str, np.ndarray], name: str, shape: tuple[int | None, ...], least: int, end: int
) -> np.ndarray:
    r"""Integers from :obj:`least` to below :obj:`end`."""
    value = _array(arrays, name, 'iu', shape)
    if value.size > 0 and (int(value.min()) < least or int(value.max()) >= end):
        raise ValueError(
            f'{name!r} must be from {least} to {end - 1} (got {value.min()} to {value.max()})'
        )
    return value.astype(np.int64)


def _features(arrays: dict[str, np.ndarray]) -> np.ndarray:
    x = _array(arrays, 'x', 'biuf', (None, None))
    with np.errstate(over='ignore'):
        single = x.astype(np.float32)
    if not np.isfinite(single).all():
        raise ValueError(
            f"'x' must be finite in single precision (got {int((~np.isfinite(single)).sum())} "
            'numbers that are not)'
        )
    return single


def nearest(x: Tensor, neighbors: int) -> Tensor:
    r"""An edge ``[2, E]`` from each node's nearest :obj:`neighbors` to it."""
    if neighbors == 0:
        return torch.empty(2, 0, dtype=torch.long)
    from sklearn.neighbors import kneighbors_graph

    graph = kneighbors_graph(x.numpy(), neighbors).tocoo()
    return torch.from_numpy(np.stack([graph.col, graph.row])).long()


def digits() -> Data:
    r"""The handwritten digits that scikit-learn brings along: no graph."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    return Data(
        x=torch.from_numpy(x).float() / 16,
        y=torch.from_numpy(y).long(),
        edge_index=torch.empty(2, 0, dtype=torch.long),
    )


def newsgroups(root: str) -> Data:
    r"""Ten of the 20 Newsgroups as "Learning Discrete Structures for Graph Neural Networks" has
    them, 9,607 documents with the weights of 236 words, downloaded by scikit-learn or read from its
    copy in ``root``: no graph."""
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
    r"""The nodes of the training, validation and test part. Under :obj:`fixed-splits` the seed is
    the number of the split; the published splits do not depend on it.

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
        parts = published(data.y[labelled], protocol)
        return dict(
            zip(('train', 'valid', 'test'), (labelled[part] for part in parts), strict=True)
        )
    part = Data(y=data.y[labelled], num_nodes=labelled.numel())
    if protocol in PER_CLASS:
        rule = RandomNodeSplit(
            'random', num_train_per_class=PER_CLASS[protocol], num_val=500, num_test=1000
        )
    else:
        share = 0.25 if protocol == 'random-50-25-25' else 0.2
        rule = RandomNodeSplit('train_rest', num_val=share, num_test=share)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        masks = rule(part)
    return {
        name: labelled[masks[f'{mask}_mask']]
        for name, mask in (('train', 'train'), ('valid', 'val'), ('test', 'test'))
    }


def published(y: Tensor, protocol: str) -> tuple[Tensor, ...]:
    r"""The split of labels that the authors' programs draw once for all of their runs: those of
    DIFFormer and SGFormer from PyTorch's generator after the seed 123, class by class, that of
    NodeFormer from NumPy's after the seed 42."""
    if protocol == 'published-50-25-25':
        order = torch.from_numpy(np.random.RandomState(42).permutation(y.numel()))
        return order.tensor_split((y.numel() // 2, y.numel() // 2 + y.numel() // 4))
    random = torch.Generator().manual_seed(123)
    classes = [(y == label).nonzero().flatten() for label in y.unique()]
    classes = [nodes[torch.randperm(nodes.numel(), generator=random)] for nodes in classes]
    rest = torch.cat([nodes[20:] for nodes in classes])
    rest = rest[torch.randperm(rest.numel(), generator=random)]
    return torch.cat([nodes[:20] for nodes in classes]), rest[:500], rest[500:1500]


def prepared(data: Data, normalize: bool, sparse: bool = True) -> Data:
    r"""The graph with features that add up to 1 for each node, if :obj:`normalize`, and as a sparse
    matrix where few differ from 0, if :obj:`sparse`."""
    data = NormalizeFeatures()(copy.copy(data)) if normalize else copy.copy(data)
    if sparse and data.x.count_nonzero() <= SPARSE * data.x.numel():
        data.x = data.x.to_sparse_csr()
    return data
