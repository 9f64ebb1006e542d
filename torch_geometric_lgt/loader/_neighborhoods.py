# N nodes, E edges, F nodes of a frontier, M sampled edges.
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_geometric_lgt.functional.neighbors.edges import ranges

DAMAGED = 'a MappedGraph whose verify() fails must be written again'


class Edges(NamedTuple):
    r"""Holds edges sorted by target: edges into node :obj:`i` have the sources ``source[pointer[i]
    : pointer[i + 1]]``.

    Both are tensors, not arrays: sharing a tensor with another process moves its memory, which
    would make an array of it invalid.
    """

    pointer: Tensor
    source: Tensor

    def sources(self, edge: np.ndarray, num_nodes: int) -> np.ndarray:
        r"""Returns the sources of edges ``[M]``.

        Raises:
            ValueError: If a source is none of the :obj:`num_nodes` nodes.
        """
        source = self.source.numpy()[edge].astype(np.int64)
        outside = source[(source < 0) | (source >= num_nodes)]
        if outside.size > 0:
            raise ValueError(
                f"'data' must hold edges from nodes 0 to {num_nodes - 1} (got {outside[0]}); "
                f'{DAMAGED}'
            )
        return source

    def incoming(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r"""Returns all edges into the nodes ``[F]``: for each edge the position of its target among
        the nodes, ascending, and its id, ``[M]`` each."""
        return _ranges(*self._span(nodes))

    def sample(
        self, nodes: np.ndarray, count: int, replace: bool, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        r"""Draws :obj:`count` edges into each node, and returns them as :meth:`incoming` does.

        All edges into a node are returned if :obj:`count` is negative, or if the node has at most
        :obj:`count` edges and :obj:`replace` is :obj:`False`.
        """
        start, degree = self._span(nodes)
        if count < 0 or (not replace and count >= degree.max(initial=0)):
            return _ranges(start, degree)
        number = np.where(degree > 0, count, 0) if replace else np.minimum(degree, count)
        owner, offset = _ranges(np.zeros_like(start), number)
        must_draw = degree > (0 if replace else count)
        size = degree[must_draw]
        chosen = (
            random.integers(0, np.repeat(size, count))
            if replace
            else _distinct(size, count, random).ravel()
        )
        offset[must_draw[owner]] = chosen
        return owner, start[owner] + offset

    def _span(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r"""Returns the first edge into each node ``[F]`` and the number of these edges ``[F]``.

        Raises:
            ValueError: If they are no edges of the graph.
        """
        pointer, num_edges = self.pointer.numpy(), self.source.numel()
        start, stop = pointer[nodes].astype(np.int64), pointer[nodes + 1].astype(np.int64)
        wrong = np.flatnonzero((start < 0) | (stop < start) | (stop > num_edges))
        if wrong.size > 0:
            first, last = start[wrong[0]], stop[wrong[0]]
            raise ValueError(
                f"'data' must hold ascending pointers from 0 to {num_edges} (got {first} to "
                f'{last}); {DAMAGED}'
            )
        return start, stop - start


class SampledNodes:
    r"""Collects the sampled nodes of one type, in the order in which they are added.

    Each has the number of the seed of its subgraph; the number is 0 for all if the seeds share one
    subgraph. A seed that occurs again is a separate row; edges lead to its first row.
    """

    def __init__(self, nodes: np.ndarray, batch: np.ndarray, num_nodes: int) -> None:
        self.num_nodes, self.key = num_nodes, batch * num_nodes + nodes
        self._order = np.argsort(self.key, kind='stable')
        self._sorted = self.key[self._order]

    @property
    def node(self) -> np.ndarray:
        r"""Returns the ids of the nodes."""
        return self.key % self.num_nodes

    @property
    def batch(self) -> np.ndarray:
        r"""Returns the subgraph number of each node."""
        return self.key // self.num_nodes

    def positions(self, nodes: np.ndarray, batch: np.ndarray) -> np.ndarray:
        r"""Returns the positions of nodes, -1 for nodes that were not sampled."""
        key = batch * self.num_nodes + nodes
        index = np.searchsorted(self._sorted, key)
        out = np.full(key.size, -1)
        inside = np.flatnonzero(index < self._sorted.size)
        known = inside[self._sorted[index[inside]] == key[inside]]
        out[known] = self._order[index[known]]
        return out

    def add(self, nodes: np.ndarray, batch: np.ndarray) -> np.ndarray:
        r"""Appends new nodes, and returns the positions of all these nodes."""
        out = self.positions(nodes, batch)
        missing = out < 0
        key, first, inverse = np.unique(
            (batch * self.num_nodes + nodes)[missing], return_index=True, return_inverse=True
        )
        position = np.empty(key.size, np.int64)
        position[first.argsort()] = np.arange(self.key.size, self.key.size + key.size)
        out[missing] = position[inverse]
        self.key = np.concatenate([self.key, key[first.argsort()]])
        index = np.searchsorted(self._sorted, key)
        self._order = np.insert(self._order, index, position)
        self._sorted = np.insert(self._sorted, index, key)
        return out


def induced_edges(
    edges: Edges, sources: SampledNodes, targets: SampledNodes
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Returns all edges between sampled nodes: the positions of source and target, and the id of
    the edge, ``[M]`` each.

    If a node has several rows, its edges lead to the first one.
    """
    once = np.sort(np.unique(targets.key, return_index=True)[1])
    owner, edge = edges.incoming(targets.node[once])
    source = sources.positions(edges.sources(edge, sources.num_nodes), targets.batch[once][owner])
    inside = source >= 0
    return source[inside], once[owner[inside]], edge[inside]


def _ranges(start: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Returns, for ranges ``[F]``, the number of the range and the value of each element
    ``[M]``."""
    owner, number = ranges(torch.from_numpy(start), torch.from_numpy(length))
    return owner.numpy(), number.numpy()


def _distinct(size: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    r"""Draws :obj:`count` different integers below each size, ``[F, count]``; each size is above
    :obj:`count`.

    All subsets have equal probability (Floyd's algorithm, in `"Programming Pearls: A Sample of
    Brilliance" <https://doi.org/10.1145/30401.315746>`_).
    """
    out = np.empty((size.size, count), np.int64)
    for step in range(count):
        last = size - count + step
        draw = random.integers(0, last + 1)
        out[:, step] = np.where((out[:, :step] == draw[:, None]).any(1), last, draw)
    return out
