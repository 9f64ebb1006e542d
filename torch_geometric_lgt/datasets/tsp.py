# N nodes, E edges.
import os
from collections.abc import Callable, Iterator
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from torch_geometric_lgt.datasets._generated import GeneratedDataset

SIZES, NEIGHBORS = (50, 501), 25
RESOLUTION = 1_000_000
MISSING = (
    "'TSPDataset' needs elkai and joblib to find tours; install them with pip install "
    '"torch-geometric-lgt[tsp]"'
)


class TSPDataset(GeneratedDataset):
    r"""Generates travelling-salesman problems with a label for each edge.

    The process is that of `"Benchmarking Graph Neural Networks"
    <https://arxiv.org/abs/2003.00982>`_; the graphs are not the published ones. Nodes are 50 to 500
    points drawn uniformly from the unit square (:obj:`x`, ``[N, 2]``). An edge runs from each of
    the 25 nearest neighbours of a point to the point, with the distance (:obj:`edge_attr`, ``[E,
    1]``). The label is 1 if the shortest tour uses the edge, in either direction (:obj:`y`,
    ``[E]``). There are 10,000, 1,000 and 1,000 graphs in train, val and test.

    Differs from the published graphs in two points: their edges run from each point to its
    neighbours, and their tours are computed by Concorde, an exact solver.

    Tours are computed by LKH through `elkai <https://github.com/fikisipi/elkai>`_, on distances
    rounded to a millionth. LKH is a heuristic; at these sizes it nearly always returns the optimum.
    A step of the tour between two points without an edge has no label. Tours are computed in
    parallel by joblib, on all processors. Graphs are generated once and stored as safetensors.

    Args:
        root (str): Folder of data sets.
        split (str, optional): :obj:`"train"`, :obj:`"val"` or :obj:`"test"`. (default:
            :obj:`"train"`)
        num_graphs (int, optional): Number of graphs before :obj:`pre_filter`. (default:
            :obj:`None`, the number above)
        seed (int, optional): Seed of the random graphs, 0 or larger; splits of one seed share no
            graph. (default: :obj:`0`)
        transform (callable, optional): Applied at every access. (default: :obj:`None`)
        pre_transform (callable, optional): Applied once, before the graphs are stored. Its
            ``repr``, attributes and code are part of the file name. So are the numbers, texts,
            tensors, transforms, functions and classes of its module that its functions read.
            After a change of other things that it reads, such as lists, dictionaries or other
            modules, give another :obj:`root`. (default: :obj:`None`)
        pre_filter (callable, optional): Returns :obj:`True` for graphs to store. It is part of the
            file name in the same way. (default: :obj:`None`, all graphs)

    Raises:
        ValueError: If :obj:`split` is unknown, :obj:`num_graphs` is no whole number from 1, or
            :obj:`seed` no whole number from 0. If :obj:`pre_transform` or :obj:`pre_filter` has no
            representation that identifies it, like a ``lambda``. If :obj:`pre_transform` returns no
            :class:`~torch_geometric.data.Data` of dense tensors, or :obj:`pre_filter` keeps no
            graph.
        ImportError: If the graphs must be generated and elkai or joblib is missing.

    Example:
        >>> from joblib import parallel_config
        >>> from torch_geometric_lgt.datasets import TSPDataset
        >>> with parallel_config(backend='threading'):  # one graph needs no other processes
        ...     dataset = TSPDataset('data', 'test', num_graphs=1, seed=126)
        >>> dataset[0]
        Data(x=[50, 2], edge_index=[2, 1250], edge_attr=[1250, 1], y=[1250])
        >>> dataset[0].y.sum()  # both directions of 50 edges
        tensor(100)
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str = 'train',
        num_graphs: int | None = None,
        seed: int = 0,
        transform: Callable | None = None,
        pre_transform: Callable | None = None,
        pre_filter: Callable | None = None,
    ) -> None:
        self.sizes = {'train': 10_000, 'val': 1_000, 'test': 1_000}
        super().__init__(root, 'TSP', split, num_graphs, seed, transform, pre_transform, pre_filter)

    @property
    def solver(self) -> str:
        r"""Returns the name and version of the solver that computes tours, such as
        ``'elkai 2.0.1 (LKH 3)'``."""
        return f'elkai {version("elkai")} (LKH 3)'

    def graphs(self, generator: np.random.Generator) -> Iterator[Data]:
        r"""Yields as many new graphs as the argument :obj:`num_graphs` of the data set says, drawn
        with :obj:`generator`.

        They have the attributes of the stored graphs, :obj:`x`, :obj:`edge_index`, :obj:`edge_attr`
        and :obj:`y`, without transforms and filter. The constructor stores the graphs of
        ``numpy.random.default_rng([seed, number])``, with the number 0 of train, 1 of val and 2 of
        test. joblib starts a process for each processor.

        Raises:
            ImportError: If joblib is missing, at the call. If elkai, which finds the tours, is
                missing, at the first graph.
        """
        try:
            from joblib import Parallel, delayed
        except ImportError as error:
            raise ImportError(MISSING) from error
        points = [
            generator.random((size, 2)) for size in generator.integers(*SIZES, self.num_graphs)
        ]
        tours: Any = Parallel(-1, return_as='generator')(delayed(tour)(place) for place in points)
        return map(labelled, points, tours)


def tour(points: np.ndarray) -> np.ndarray:
    r"""Returns the order ``[N]`` in which a short closed tour visits the points ``[N, 2]``.

    Raises:
        ImportError: If elkai is missing.
    """
    try:
        from elkai import DistanceMatrix
    except ImportError as error:
        raise ImportError(MISSING) from error
    distance = np.sqrt(((points[:, None] - points[None]) ** 2).sum(2))
    return np.array(
        DistanceMatrix((distance * RESOLUTION).round().astype(int).tolist()).solve_tsp(1)[:-1]
    )


def labelled(points: np.ndarray, order: np.ndarray) -> Data:
    r"""Builds the graph of the nearest neighbours of points ``[N, 2]``. The label of an edge is 1
    if the tour that visits the points in :obj:`order` ``[N]`` uses the edge."""
    from scipy.spatial import KDTree  # a twelfth of a second, which only these graphs are worth

    neighbors = min(NEIGHBORS, order.size - 1)
    distance, source = (
        part[:, 1:].ravel() for part in map(np.asarray, KDTree(points).query(points, neighbors + 1))
    )
    target = np.repeat(np.arange(order.size), neighbors)
    following = np.empty_like(order)
    following[order] = np.roll(order, -1)
    on_tour = (following[source] == target) | (following[target] == source)
    return Data(
        x=torch.from_numpy(points).float(),
        edge_index=torch.from_numpy(np.stack([source, target])),
        edge_attr=torch.from_numpy(distance).float()[:, None],
        y=torch.from_numpy(on_tour).long(),
    )
