# N nodes, E edges.
import os
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch_geometric.data import Data

from torch_geometric_lgt._arguments import check_choice
from torch_geometric_lgt.datasets._generated import GeneratedDataset, one_hot

SIZES = (5, 35)
NUM_PATTERNS = 100


class SBMDataset(GeneratedDataset):
    r"""Generates graphs of stochastic block models with a label for each node.

    The process is that of `"Benchmarking Graph Neural Networks"
    <https://arxiv.org/abs/2003.00982>`_; the graphs are not the published ones.

    ``PATTERN``: five blocks of 5 to 34 nodes. An edge has probability 0.5 inside a block and 0.35
    between blocks. Each graph also has one of 100 patterns, whose nodes are joined to each node of
    the blocks with probability 0.5. Patterns are random graphs of 5 to 34 nodes with edge
    probability 0.5; all splits share these patterns. Nodes have one of three tokens at random; the
    tokens of a pattern are fixed. The label is 1 for nodes of the pattern. There are 10,000, 2,000
    and 2,000 graphs in train, val and test.

    ``CLUSTER``: six blocks of 5 to 34 nodes. An edge has probability 0.55 inside a block and 0.25
    between blocks. One node of each block has the token of the block, all others have token 0. The
    label is the number of the block. There are 10,000, 1,000 and 1,000 graphs in train, val and
    test.

    Tokens are one-hot in :obj:`x` ``[N, 3]`` or ``[N, 7]``, labels are in :obj:`y` ``[N]``.
    :obj:`edge_index` has both directions, and nodes are in random order. Graphs are generated once,
    in minutes, and stored as safetensors.

    Args:
        root (str): Folder of data sets.
        name (str): :obj:`"PATTERN"` or :obj:`"CLUSTER"`.
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
        ValueError: If :obj:`name` or :obj:`split` is unknown, :obj:`num_graphs` is no whole number
            from 1, or :obj:`seed` no whole number from 0. If the ``repr`` of :obj:`pre_transform`
            or :obj:`pre_filter` differs from run to run, like that of a ``lambda``. If
            :obj:`pre_transform` returns no :class:`~torch_geometric.data.Data` of dense tensors, or
            :obj:`pre_filter` keeps no graph.

    Example:
        >>> from torch_geometric_lgt.datasets import SBMDataset
        >>> dataset = SBMDataset('data', 'CLUSTER', num_graphs=2)
        >>> dataset[0]
        Data(x=[107, 7], edge_index=[2, 3496], y=[107])
        >>> dataset[0].y.unique()
        tensor([0, 1, 2, 3, 4, 5])
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        name: str,
        split: str = 'train',
        num_graphs: int | None = None,
        seed: int = 0,
        transform: Callable | None = None,
        pre_transform: Callable | None = None,
        pre_filter: Callable | None = None,
    ) -> None:
        check_choice('name', name, ('PATTERN', 'CLUSTER'))
        held_out = 2000 if name == 'PATTERN' else 1000
        self.sizes = {'train': 10_000, 'val': held_out, 'test': held_out}
        super().__init__(root, name, split, num_graphs, seed, transform, pre_transform, pre_filter)

    def graphs(self, generator: np.random.Generator) -> Iterator[Data]:
        r"""Yields as many new graphs as the argument :obj:`num_graphs` of the data set says, drawn
        with :obj:`generator`.

        They have the attributes of the stored graphs, :obj:`x`, :obj:`edge_index` and :obj:`y`,
        without transforms and filter. The constructor stores the graphs of
        ``numpy.random.default_rng([seed, number])``, with the number 0 of train, 1 of val and 2 of
        test."""
        if self.name == 'CLUSTER':
            return (_cluster(generator) for _ in range(self.num_graphs))
        patterns = _patterns(np.random.default_rng(self.seed))
        return (
            _pattern(generator, *patterns[number % NUM_PATTERNS])
            for number in range(self.num_graphs)
        )


def _patterns(generator: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    r"""Draws the patterns of ``PATTERN``. Returns the upper triangle of the adjacency matrix
    ``[n, n]`` and the tokens ``[n]`` of each of ``NUM_PATTERNS`` patterns."""
    sizes = generator.integers(*SIZES, NUM_PATTERNS)
    return [
        (_upper(generator, np.full((size, size), 0.5)), generator.integers(3, size=size))
        for size in sizes
    ]


def _pattern(generator: np.random.Generator, pattern: np.ndarray, tokens: np.ndarray) -> Data:
    r"""Draws a graph of ``PATTERN``: five random blocks joined to a given pattern, its upper
    triangle ``[n, n]`` and its :obj:`tokens` ``[n]``."""
    block = np.repeat(np.arange(5), generator.integers(*SIZES, 5))
    rest, size = block.size, tokens.size
    probability = np.full((rest + size, rest + size), 0.5)
    probability[:rest, :rest] = np.where(block[:, None] == block, 0.5, 0.35)
    adjacency = _upper(generator, probability)
    adjacency[rest:, rest:] = pattern
    label = np.repeat([0, 1], [rest, size])
    return _shuffled(
        generator, adjacency, np.concatenate([generator.integers(3, size=rest), tokens]), 3, label
    )


def _cluster(generator: np.random.Generator) -> Data:
    r"""Draws a graph of ``CLUSTER``, with six random blocks."""
    sizes = generator.integers(*SIZES, 6)
    block = np.repeat(np.arange(6), sizes)
    adjacency = _upper(generator, np.where(block[:, None] == block, 0.55, 0.25))
    token = np.zeros_like(block)
    token[sizes.cumsum() - sizes + generator.integers(sizes)] = np.arange(1, 7)
    return _shuffled(generator, adjacency, token, 7, block)


def _upper(generator: np.random.Generator, probability: np.ndarray) -> np.ndarray:
    r"""Draws edges with the :obj:`probability` ``[N, N]`` of each pair, and returns the upper
    triangle of the adjacency matrix ``[N, N]`` in bool."""
    return np.triu(generator.random(probability.shape, np.float32) < probability, 1)


def _shuffled(
    generator: np.random.Generator,
    upper: np.ndarray,
    token: np.ndarray,
    num_tokens: int,
    label: np.ndarray,
) -> Data:
    r"""Builds the graph of an :obj:`upper` triangle ``[N, N]``, with a :obj:`token` ``[N]`` below
    :obj:`num_tokens` and a :obj:`label` ``[N]`` for each node. The nodes of the graph are in random
    order."""
    order = generator.permutation(label.size)
    adjacency = (upper | upper.T)[order][:, order]
    edges = torch.from_numpy(np.stack(adjacency.nonzero()))
    return Data(
        x=one_hot(token[order], num_tokens), edge_index=edges, y=torch.from_numpy(label[order])
    )
