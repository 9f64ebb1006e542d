# N nodes, E edges, F nodes of a frontier, M sampled edges.
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_geometric_lgt.functional.neighbors.edges import ranges

DAMAGED = 'a MappedGraph whose verify() fails must be written again'


class Edges(NamedTuple):
    r"""Edges sorted by target: those into node :obj:`i` come from ``source[pointer[i] : pointer[i +
    1]]``. Tensors are stored, as sharing them with another process moves their memory, after which
    an array of it is invalid."""

    pointer: Tensor
    source: Tensor

    def sources(self, edge: np.ndarray, num_nodes: int) -> np.ndarray:
        r"""Returns the sources of edges ``[M]``.

        Raises:
            ValueError: If one of them is none of the :obj:`num_nodes` nodes.
        """
        source = self.source.numpy()[edge].astype(np.int64)
        outside = source[(source < 0) | (source >= num_nodes)]
        if outside.size > 0:
            raise ValueError(
                f"'data' must hold edges from nodes 0 to {num_nodes - 1} (got {outside[0]}); "
                f'{DAMAGED}'
            )
        return source

    def into(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r"""All edges into the nodes ``[F]``: the place of each one's target among the nodes
        ``[M]``, ascending, and its own ``[M]``."""
        return _ranges(*self._span(nodes))

    def sample(
        self, nodes: np.ndarray, count: int, replace: bool, random: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        r"""The same of :obj:`count` edges into each node, or of all if it is negative or, drawn
        without replacement, they are not more."""
        start, degree = self._span(nodes)
        if count < 0 or (not replace and count >= degree.max(initial=0)):
            return _ranges(start, degree)
        number = np.where(degree > 0, count, 0) if replace else np.minimum(degree, count)
        owner, place = _ranges(np.zeros_like(start), number)
        drawn = degree > (0 if replace else count)
        size = degree[drawn]
        chosen = (
            random.integers(0, np.repeat(size, count))
            if replace
            else _distinct(size, count, random).ravel()
        )
        place[drawn[owner]] = chosen
        return owner, start[owner] + place

    def _span(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r"""Returns the first edge into each node ``[F]`` and their number ``[F]``.

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


class Found:
    r"""The nodes of a type found so far, in the order they were found, each with the number of the
    seed whose subgraph it belongs to, 0 for all if the seeds share one. A seed that occurs again is
    a row of its own; edges lead to the first one."""

    def __init__(self, nodes: np.ndarray, batch: np.ndarray, num_nodes: int) -> None:
        self.num_nodes, self.key = num_nodes, batch * num_nodes + nodes
        self._order = np.argsort(self.key, kind='stable')
        self._sorted = self.key[self._order]

    @property
    def node(self) -> np.ndarray:
        return self.key % self.num_nodes

    @property
    def batch(self) -> np.ndarray:
        return self.key // self.num_nodes

    def places(self, nodes: np.ndarray, batch: np.ndarray) -> np.ndarray:
        r"""Where nodes are, -1 for those that have not been found."""
        key = batch * self.num_nodes + nodes
        at = np.searchsorted(self._sorted, key)
        out = np.full(key.size, -1)
        inside = np.flatnonzero(at < self._sorted.size)
        known = inside[self._sorted[at[inside]] == key[inside]]
        out[known] = self._order[at[known]]
        return out

    def add(self, nodes: np.ndarray, batch: np.ndarray) -> np.ndarray:
        r"""Where nodes are, the new ones behind the others."""
        out = self.places(nodes, batch)
        missing = out < 0
        key, first, inverse = np.unique(
            (batch * self.num_nodes + nodes)[missing], return_index=True, return_inverse=True
        )
        place = np.empty(key.size, np.int64)
        place[first.argsort()] = np.arange(self.key.size, self.key.size + key.size)
        out[missing] = place[inverse]
        self.key = np.concatenate([self.key, key[first.argsort()]])
        at = np.searchsorted(self._sorted, key)
        self._sorted, self._order = (
            np.insert(self._sorted, at, key),
            np.insert(self._order, at, place),
        )
        return out


def induced(
    edges: Edges, sources: Found, targets: Found
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""All edges between nodes found: the places of source and target, and the place of the edge
    ``[M]``. Of a node that was found twice the first has the edges."""
    once = np.sort(np.unique(targets.key, return_index=True)[1])
    owner, edge = edges.into(targets.node[once])
    source = sources.places(edges.sources(edge, sources.num_nodes), targets.batch[once][owner])
    inside = source >= 0
    return source[inside], once[owner[inside]], edge[inside]


def _ranges(start: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    owner, number = ranges(torch.from_numpy(start), torch.from_numpy(length))
    return owner.numpy(), number.numpy()


def _distinct(size: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    r"""``[F, count]``: different integers below each size, which is above :obj:`count`; all subsets
    are alike likely (Floyd's algorithm, in `"Programming Pearls: A Sample of Brilliance"
    <https://doi.org/10.1145/30401.315746>`_)."""
    out = np.empty((size.size, count), np.int64)
    for step in range(count):
        last = size - count + step
        draw = random.integers(0, last + 1)
        out[:, step] = np.where((out[:, :step] == draw[:, None]).any(1), last, draw)
    return out
