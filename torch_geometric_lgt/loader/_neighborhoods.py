# N nodes, E edges, F nodes of a frontier, M sampled edges.
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_geometric_lgt._arguments import check_ids
from torch_geometric_lgt.functional.neighbors.hops import ranges
from torch_geometric_lgt.loader._draws import (
    count_until,
    distinct,
    weighted_distinct,
    weighted_repeated,
)

DAMAGED = 'a MappedGraph whose verify() fails must be written again'


class NeighborEdges(NamedTuple):
    r"""Stores edges sorted by target (CSC): the edges into node :obj:`i` have the ids
    ``pointer[i]`` to ``pointer[i + 1] - 1``.

    :obj:`pointer` is ``[N + 1]``. :obj:`source` ``[E]`` has the source node of each edge id, and
    :obj:`weight` ``[E]`` its weight. :obj:`time` ``[E]`` has the times of the edges into each node
    in ascending order, and :obj:`by_time` ``[E]`` the edge ids in this order. With times, weights
    are in this order, too. All are tensors.
    NumPy views of them would become invalid when a tensor is shared with another process, because
    sharing moves its memory.
    """

    pointer: Tensor
    source: Tensor
    weight: Tensor | None = None
    time: Tensor | None = None
    by_time: Tensor | None = None

    def sources(self, edge: np.ndarray, num_nodes: int) -> np.ndarray:
        r"""Returns the source nodes ``[M]`` in int64 of the edge ids :obj:`edge` ``[M]``.

        Raises:
            ValueError: If a source is outside the :obj:`num_nodes` nodes.
        """
        source = self.source.numpy()[edge].astype(np.int64)
        outside = source[(source < 0) | (source >= num_nodes)]
        if outside.size > 0:
            raise ValueError(
                f"'data' must hold edges from nodes 0 to {num_nodes - 1} (got {outside[0]}); "
                f'{DAMAGED}'
            )
        return source

    def incoming(
        self, nodes: np.ndarray, until: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        r"""Returns all edges into the nodes ``[F]``: the position of each edge's target in
        :obj:`nodes` ``[M]``, ascending, and the ids of the edges ``[M]``. If edges have times, only
        those up to the time :obj:`until` ``[F]`` are returned."""
        start, degree = self._span(nodes)
        if self.time is None or self.by_time is None or until is None:
            return _ranges(start, degree)
        owner, position = _ranges(start, count_until(self.time.numpy(), start, degree, until))
        return owner, self.by_time.numpy()[position]

    def sample(
        self,
        nodes: np.ndarray,
        count: int,
        replace: bool,
        random: np.random.Generator,
        until: np.ndarray | None = None,
        last: bool = False,
    ) -> tuple[np.ndarray, np.ndarray]:
        r"""Draws up to :obj:`count` edges into each of the nodes ``[F]``, in proportion to their
        weights or else uniformly, and returns them as :meth:`incoming` does.

        With :obj:`replace`, an edge may be drawn again, and :obj:`count` edges are drawn for each
        node that has any. Without :obj:`replace` the edges are distinct, and a node with at most
        :obj:`count` edges gets all of them. If :obj:`count` is negative, all edges are returned.
        If edges have times, only those up to the time :obj:`until` ``[F]`` are drawn; with
        :obj:`last`, only the :obj:`count` latest ones.
        """
        start, degree = self._span(nodes)
        if self.time is None or self.by_time is None or until is None:
            return self._draw(start, degree, count, replace, random)
        degree = count_until(self.time.numpy(), start, degree, until)
        if last and count >= 0:
            skipped = np.maximum(degree - count, 0)
            start, degree = start + skipped, degree - skipped
        owner, position = self._draw(start, degree, count, replace, random)
        return owner, self.by_time.numpy()[position]

    def _draw(
        self,
        start: np.ndarray,
        degree: np.ndarray,
        count: int,
        replace: bool,
        random: np.random.Generator,
    ) -> tuple[np.ndarray, np.ndarray]:
        r"""Draws as :meth:`sample` from the positions ``start[i]`` to ``start[i] + degree[i] - 1``
        of each node :obj:`i`, and returns :obj:`i` for each drawn position ``[M]``, and the
        positions ``[M]``."""
        degree = degree if count != 0 else np.zeros_like(degree)
        if count < 0 or (not replace and count >= degree.max(initial=0)):
            return _ranges(start, degree)
        number = np.where(degree > 0, count, 0) if replace else np.minimum(degree, count)
        owner, offset = _ranges(np.zeros_like(start), number)
        must_draw = degree > (0 if replace else count)
        size = degree[must_draw]
        if self.weight is not None:
            weight = self.weight.numpy()[_ranges(start[must_draw], size)[1]]
            draw = weighted_repeated if replace else weighted_distinct
            chosen = draw(weight, size, count, random)
        elif replace:
            chosen = random.integers(0, np.broadcast_to(size[:, None], (size.size, count)))
        else:
            chosen = distinct(size, count, random)
        offset[must_draw[owner]] = chosen.ravel()
        return owner, start[owner] + offset

    def _span(self, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        r"""Returns the id of the first edge into each of the nodes ``[F]`` and the number of edges
        into each node ``[F]``.

        Raises:
            ValueError: If the pointers descend or leave the range from 0 to :math:`E`.
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
    r"""Collects the sampled nodes of one type, one row for each, in the order in which nodes are
    added.

    If each seed has a separate subgraph, a row belongs to the subgraph with the number of its seed.
    A node may then occur in several subgraphs. Otherwise all rows belong to subgraph 0. A seed that
    occurs again in its subgraph is a separate row; edges start at its first row.

    Args:
        nodes: Ids of the seed nodes in the full graph.
        batch: The subgraph number of each seed.
        num_nodes: The number of nodes of this type in the full graph.
    """

    def __init__(self, nodes: np.ndarray, batch: np.ndarray, num_nodes: int) -> None:
        self.num_nodes, self.key = num_nodes, batch * num_nodes + nodes
        self._order = np.argsort(self.key, kind='stable')
        self._sorted = self.key[self._order]

    @property
    def node(self) -> np.ndarray:
        r"""Returns the id of each row in the full graph."""
        return self.key % self.num_nodes

    @property
    def batch(self) -> np.ndarray:
        r"""Returns the subgraph number of each row."""
        return self.key // self.num_nodes

    def positions(self, nodes: np.ndarray, batch: np.ndarray) -> np.ndarray:
        r"""Returns the row ``[M]`` of each node id ``[M]`` in the subgraph :obj:`batch` ``[M]``, or
        -1 for a node that was not sampled."""
        key = batch * self.num_nodes + nodes
        index = np.searchsorted(self._sorted, key)
        out = np.full(key.size, -1)
        inside = np.flatnonzero(index < self._sorted.size)
        known = inside[self._sorted[index[inside]] == key[inside]]
        out[known] = self._order[index[known]]
        return out

    def add(self, nodes: np.ndarray, batch: np.ndarray) -> np.ndarray:
        r"""Appends rows for the nodes ``[M]`` of the subgraphs :obj:`batch` ``[M]`` that have none
        yet, and returns the rows ``[M]`` of all these nodes."""
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


def seed_ids(nodes: Tensor, num_nodes: int) -> np.ndarray:
    r"""Returns the ids of seed nodes in int64.

    Raises:
        ValueError: If an id is outside the :obj:`num_nodes` nodes.
    """
    seeds = nodes.cpu().numpy().astype(np.int64)
    check_ids('input_nodes', seeds, num_nodes)
    return seeds


def induced_edges(
    edges: NeighborEdges, sources: SampledNodes, targets: SampledNodes, times: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    r"""Returns all edges between sampled nodes: the rows of their sources and targets, and the ids
    of the edges, ``[M]`` each. With :obj:`times`, those of the subgraphs, edges in a subgraph are
    those up to its time.

    Rows are positions in :obj:`sources` and :obj:`targets`. If a node has several rows, each gets
    the incoming edges, and the outgoing edges start at the first one.
    """
    until = None if times is None else times[targets.batch]
    owner, edge = edges.incoming(targets.node, until)
    source = sources.positions(edges.sources(edge, sources.num_nodes), targets.batch[owner])
    inside = source >= 0
    return source[inside], owner[inside], edge[inside]


def _ranges(start: np.ndarray, length: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Lists the numbers ``start[i]`` to ``start[i] + length[i] - 1`` of each range :obj:`i`.
    Returns :obj:`i` for each number ``[M]``, and the numbers ``[M]``."""
    owner, number = ranges(torch.from_numpy(start), torch.from_numpy(length))
    return owner.numpy(), number.numpy()
