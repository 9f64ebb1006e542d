# N nodes of a type, M edges.
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from torch_geometric.data import HeteroData
from torch_geometric.sampler import BaseSampler, HeteroSamplerOutput, NodeSamplerInput

from torch_geometric_lgt._arguments import check_counts
from torch_geometric_lgt.loader._draws import drawn_generator, weighted_distinct
from torch_geometric_lgt.loader._edge_order import check_edges, order_edges
from torch_geometric_lgt.loader._neighborhoods import SampledNodes, seed_ids
from torch_geometric_lgt.loader._sorted_edges import sorted_graph

MAX_NEIGHBORS = 50


class Budget:
    r"""Sums up, for each node of a type that was not sampled yet, the shares of the sampled nodes'
    edges that come from it."""

    def __init__(self) -> None:
        self.node, self.share = np.empty(0, np.int64), np.empty(0)

    def add(self, nodes: np.ndarray, shares: np.ndarray) -> None:
        r"""Adds shares ``[M]`` of the nodes ``[M]``, which may occur several times."""
        self.node, index = np.unique(np.concatenate([self.node, nodes]), return_inverse=True)
        self.share = np.bincount(index, np.concatenate([self.share, shares]), self.node.size)

    def take(self, count: int, random: np.random.Generator) -> np.ndarray:
        r"""Removes up to :obj:`count` nodes, drawn one after another in proportion to the squares
        of their shares, and returns them."""
        size = np.array([self.node.size])
        drawn = (
            np.arange(self.node.size)
            if count >= self.node.size
            else weighted_distinct(self.share**2, size, count, random)[0]
        )
        nodes = self.node[drawn]
        self.node, self.share = np.delete(self.node, drawn), np.delete(self.share, drawn)
        return nodes


class HGTSampler(BaseSampler):
    r"""Samples nodes of each type as :class:`torch_geometric.sampler.HGTSampler` does, with NumPy
    instead of ``torch-sparse``. See :class:`~torch_geometric_lgt.loader.HGTLoader`."""

    def __init__(self, data: Any, num_samples: Any, share_memory: bool = False) -> None:
        if not isinstance(data, HeteroData):
            raise ValueError(
                f"'data' must be a HeteroData (got {type(data).__name__}); use NeighborLoader"
            )
        if not isinstance(num_samples, Mapping):
            num_samples = dict.fromkeys(data.node_types, num_samples)
        for counts in num_samples.values():
            check_counts('num_samples', counts)
        hops = {len(num_samples.get(kind, ())) for kind in data.node_types}
        if set(num_samples) != set(data.node_types) or len(hops) != 1:
            raise ValueError(
                "'num_samples' must have a list for each node type, all of one length (got "
                f'{num_samples} for {data.node_types})'
            )
        if min((count for counts in num_samples.values() for count in counts), default=0) < 0:
            raise ValueError(f"'num_samples' must not be negative (got {num_samples})")
        self.num_samples, self.num_hops = num_samples, max(hops)
        self.sparse_types = check_edges(data)
        self.sizes, self.edges, self.permutation, _ = sorted_graph(data, None, None, share_memory)

    @property
    def edge_permutation(self) -> Any:
        r"""Returns, by edge type, the edge id in the data for each position ``[E]`` in the edges
        sorted by target, or :obj:`None` if the data is sorted."""
        return self.permutation

    def sample_from_nodes(self, index: NodeSamplerInput, **_) -> HeteroSamplerOutput:
        r"""Samples the subgraph around the seed nodes :obj:`index`.

        Raises:
            ValueError: If a seed node does not exist.
        """
        random = drawn_generator()
        none, input_type = np.empty(0, np.int64), cast(str, index.input_type)
        seeds = seed_ids(index.node, self.sizes[input_type])
        latest = dict.fromkeys(self.sizes, none) | {input_type: seeds}
        sampled = {
            kind: SampledNodes(nodes, np.zeros_like(nodes), self.sizes[kind])
            for kind, nodes in latest.items()
        }
        budgets = {kind: Budget() for kind in self.sizes}
        for hop in range(self.num_hops):
            self._spread(latest, sampled, budgets, random)
            for kind, budget in budgets.items():
                latest[kind] = budget.take(self.num_samples[kind][hop], random)
                sampled[kind].add(latest[kind], np.zeros_like(latest[kind]))
        return self._output(sampled, random, index)

    def sample_from_edges(self, index: Any, neg_sampling: Any = None) -> Any:
        r"""Raises an error: the method samples around nodes only.

        Raises:
            ValueError: Always.
        """
        raise ValueError("'HGTSampler' must sample from nodes (got edges); use LinkNeighborLoader")

    def _spread(
        self,
        latest: dict[str, np.ndarray],
        sampled: dict[str, SampledNodes],
        budgets: dict[str, Budget],
        random: np.random.Generator,
    ) -> None:
        r"""Gives each source of the incoming edges of the :obj:`latest` nodes an equal share of
        each edge type, unless the source was sampled."""
        for kind, edges in self.edges.items():
            source, _, target = kind
            owner, edge = edges.sample(latest[target], MAX_NEIGHBORS, False, random)
            nodes = edges.sources(edge, self.sizes[source])
            new = sampled[source].positions(nodes, np.zeros_like(nodes)) < 0
            share = 1 / np.bincount(owner, minlength=latest[target].size)[owner]
            budgets[source].add(nodes[new], share[new])

    def _output(
        self, sampled: dict[str, SampledNodes], random: np.random.Generator, index: NodeSamplerInput
    ) -> Any:
        r"""Collects the edges between sampled nodes, and returns PyG's output class."""
        row, col, ids = {}, {}, {}
        for kind, edges in self.edges.items():
            source, _, target = kind
            owner, edge = edges.sample(sampled[target].node, MAX_NEIGHBORS, False, random)
            nodes = edges.sources(edge, self.sizes[source])
            position = sampled[source].positions(nodes, np.zeros_like(nodes))
            inside = position >= 0
            row[kind], col[kind], ids[kind] = (
                torch.from_numpy(part[inside]) for part in (position, owner, edge)
            )
        nodes = {kind: torch.from_numpy(part.node) for kind, part in sampled.items()}
        out = HeteroSamplerOutput(nodes, row, col, ids, None)
        out.metadata = (index.input_id, index.time)
        return order_edges(out, self.sparse_types)
