# N nodes, E edges.
import math
from collections.abc import Mapping
from functools import partial
from typing import Any, cast

import numpy as np
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    NegativeSampling,
    NodeSamplerInput,
    NumNeighbors,
)
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample

from torch_geometric_lgt._arguments import check_choice, check_counts, check_flags, check_ids
from torch_geometric_lgt.loader._draws import drawn_generator
from torch_geometric_lgt.loader._edge_order import (
    SINGLE_EDGE_TYPE,
    SINGLE_NODE_TYPE,
    Output,
    check_edges,
    order_edges,
)
from torch_geometric_lgt.loader._neighborhoods import SampledNodes, induced_edges, seed_ids
from torch_geometric_lgt.loader._sampler_output import Edges, of_type, sampler_output
from torch_geometric_lgt.loader._sorted_edges import (
    pair_of_stores,
    sorted_graph,
    stored_edges,
    stored_graph,
)
from torch_geometric_lgt.loader._temporal import check_attributes, check_strategy, seed_times

NO_EDGES = (np.empty(0, np.int64),) * 3  # rows, columns and ids


def checked_subgraph_type(subgraph_type: SubgraphType | str) -> SubgraphType:
    r"""Returns the type of subgraphs that :obj:`subgraph_type` names.

    Raises:
        ValueError: If the name is unknown.
    """
    if not isinstance(subgraph_type, SubgraphType):
        check_choice('subgraph_type', subgraph_type, [kind.value for kind in SubgraphType])
    return SubgraphType(subgraph_type)


class NeighborSampler(BaseSampler):
    r"""Samples neighbours as :class:`torch_geometric.sampler.NeighborSampler` does, with NumPy
    instead of a compiled library.

    Each hop draws ``num_neighbors[hop]`` incoming edges for each node added by the previous hop.
    Each draw is uniform, or in proportion to the weights of the edges. The nodes of a subgraph are
    the seeds, then the other nodes in the order in which they were added. If the data has an
    :obj:`adj_t`, sampled edges and their attributes are sorted by target, then by source, like the
    :obj:`adj_t` of the batch.

    With times, each seed has a separate subgraph and a time: that of its node, unless the loader
    passes other times. Edges with a later time are left out. The time of an edge is its own, or
    that of its source if the times belong to nodes.

    Random numbers come from a seed that torch's global generator draws for each batch:
    :meth:`torch.manual_seed` determines them. Torch seeds each worker of a loader differently, so
    workers draw different numbers. The sampler of a graph store is pickled without the sorted
    edges; another process reads them from the store.

    Differs from :class:`torch_geometric.sampler.NeighborSampler`: it sorts the edges itself,
    without :obj:`is_sorted`, and draws incoming edges only, without :obj:`sample_direction`.

    Args:
        data (Data, HeteroData or tuple): The graph, or a pair of a feature store and a graph store,
            which may have node types. A :class:`~torch_geometric_lgt.data.MappedGraph` may be
            passed alone.
        num_neighbors (list or dict): Number of edges that each hop draws for a node, negative for
            all. For a heterogeneous graph it may be a dictionary of such lists by edge type.
        subgraph_type (str, optional): :obj:`"directional"` for the drawn edges,
            :obj:`"bidirectional"` for the drawn edges and their reverse, or :obj:`"induced"` for
            all edges between the sampled nodes, with times those up to the time of the seed.
            (default: :obj:`"directional"`)
        replace (bool, optional): If :obj:`True`, an edge may be drawn again. (default:
            :obj:`False`)
        disjoint (bool, optional): If :obj:`True`, each seed has a separate subgraph, and the
            output's :obj:`batch` has the subgraph number of each node. (default: :obj:`False`)
        temporal_strategy (str, optional): Which of the edges up to the time of a seed are drawn:
            :obj:`"uniform"` for any, or :obj:`"last"` for the latest, which needs
            :obj:`time_attr`. (default: :obj:`"uniform"`)
        time_attr (str, optional): Name of the times, an attribute of nodes ``[N]`` or of edges
            ``[E]``. In a graph with as many nodes as edges, PyG takes the attribute for a node
            attribute unless its name contains ``edge``. In a heterogeneous graph, edges without
            times (or from nodes without times) are drawn regardless of times. (default:
            :obj:`None`, no times)
        weight_attr (str, optional): Name of the weights, an edge attribute ``[E]``. Without
            :obj:`replace`, a node's edges are drawn one after another in proportion to the weights;
            edges of weight 0 come last. With times only edges up to the time of the seed count. In
            a heterogeneous graph, edges without weights are drawn uniformly. (default: :obj:`None`,
            uniform draws)
        share_memory (bool, optional): If :obj:`True`, the sorted edges are in memory that workers
            share. (default: :obj:`False`)

    Raises:
        ValueError: If :obj:`num_neighbors` is no list of whole numbers, or names an edge type that
            the data does not have. If :obj:`subgraph_type` is unknown. If :obj:`replace` is set and
            all edges into a node have the weight 0. If a node does not exist, or a sampled edge has
            no valid source. If edges of a type are neither in :obj:`edge_index` nor in a
            :class:`torch_sparse.SparseTensor` :obj:`adj_t`, or those two list them in different
            orders. If :obj:`temporal_strategy` is unknown. If :obj:`time_attr` or
            :obj:`weight_attr` names no attribute of valid numbers, or is set for a pair of stores.
            If only some of the edges of a graph store have a type, or one of its edge types has no
            size. If ``temporal_strategy='last'`` is set without :obj:`time_attr`, or with
            :obj:`weight_attr`.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric.loader import NodeLoader
        >>> from torch_geometric_lgt.loader import NeighborSampler
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> data = Data(x=torch.arange(4.0)[:, None], edge_index=ring)
        >>> sampler = NeighborSampler(data, num_neighbors=[1], disjoint=True)
        >>> batch = next(iter(NodeLoader(data, sampler, batch_size=2)))
        >>> batch.n_id  # the seeds 0 and 1, then one neighbour of each
        tensor([0, 1, 3, 0])
        >>> batch.batch
        tensor([0, 1, 0, 1])
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: NumNeighbors | list[int] | dict,
        subgraph_type: SubgraphType | str = 'directional',
        replace: bool = False,
        disjoint: bool = False,
        temporal_strategy: str = 'uniform',
        time_attr: str | None = None,
        weight_attr: str | None = None,
        *,
        share_memory: bool = False,
    ) -> None:
        check_flags(replace=replace, disjoint=disjoint)
        data = pair_of_stores(data)
        self.replace, self.subgraph_type = replace, checked_subgraph_type(subgraph_type)
        self.is_temporal, self.last = time_attr is not None, temporal_strategy == 'last'
        self.disjoint = disjoint or self.is_temporal
        check_strategy(temporal_strategy, time_attr)
        check_attributes(data, temporal_strategy, time_attr, weight_attr)
        self.sparse_types = check_edges(data) if isinstance(data, (Data, HeteroData)) else []
        self.graph_store = data[1] if isinstance(data, tuple) else None
        self.sizes, self.edges, self.permutation, self.node_time = (
            stored_graph(*data)
            if isinstance(data, tuple)
            else sorted_graph(data, time_attr, weight_attr, share_memory)
        )
        self.homogeneous = set(self.edges) == {SINGLE_EDGE_TYPE}
        self.num_neighbors = num_neighbors

    @property
    def num_neighbors(self) -> dict[Any, list[int]]:
        r"""Returns the number of edges that each hop draws for a node, by edge type. It may be set
        to what the argument of this name takes, as PyG's ``LightningNodeData`` does for
        evaluation."""
        return self._num_neighbors

    @num_neighbors.setter
    def num_neighbors(self, num_neighbors: NumNeighbors | list[int] | dict) -> None:
        num_neighbors = _as_list(num_neighbors)
        if isinstance(num_neighbors, Mapping):
            num_neighbors = {kind: _as_list(counts) for kind, counts in num_neighbors.items()}
        if not isinstance(num_neighbors, NumNeighbors):
            lists = [num_neighbors]
            if isinstance(num_neighbors, dict) and not self.homogeneous:
                lists = [*num_neighbors.values()]
            for counts in lists:
                check_counts('num_neighbors', counts)
        numbers = (
            num_neighbors
            if isinstance(num_neighbors, NumNeighbors)
            else NumNeighbors(num_neighbors)
        )
        values = numbers.get_values(None if self.homogeneous else list(self.edges))
        self._num_neighbors: dict[Any, Any] = (
            {SINGLE_EDGE_TYPE: values} if self.homogeneous else dict(cast(Mapping, values))
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | (
            {} if self.graph_store is None else {'edges': None, 'permutation': None}
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self.graph_store is not None:
            self.edges, self.permutation = stored_edges(self.graph_store)

    def sample_from_nodes(self, index: NodeSamplerInput, **_) -> Output:
        r"""Samples the subgraph around seed nodes, the ids in :obj:`index`.

        Returns:
            PyG's :class:`SamplerOutput` or :class:`HeteroSamplerOutput`. Nodes are ids of the full
            graph. Sources and targets are positions among these nodes. Edge ids are positions among
            the edges sorted by target (see :attr:`edge_permutation`). The numbers of nodes and
            edges per hop are :obj:`None` for induced subgraphs.

        Raises:
            ValueError: If a seed node does not exist, or has no time.
        """
        return self._completed(node_sample(index, self._sample))

    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> Output:
        r"""Samples the subgraph around the end nodes of the seed edges in :obj:`index`, and of
        negative edges if :obj:`neg_sampling` is set.

        Returns:
            The same as :meth:`sample_from_nodes`, with PyG's :obj:`metadata` of the seed edges.

        Raises:
            ValueError: If a seed node does not exist, or has no time.
        """
        sizes = self.sizes[SINGLE_NODE_TYPE] if self.homogeneous else self.sizes
        times = of_type(self.node_time, SINGLE_NODE_TYPE) if self.homogeneous else self.node_time
        kinds = index.input_type or (SINGLE_NODE_TYPE,) * 3
        check_ids('edge_label_index', index.row, self.sizes[kinds[0]])
        check_ids('edge_label_index', index.col, self.sizes[kinds[2]])
        sample = self._sample
        if self.disjoint and neg_sampling is not None and neg_sampling.is_binary():
            num_links = index.row.numel()
            num_pairs = num_links + math.ceil(num_links * neg_sampling.amount)
            sample = partial(self._sample_pairs, num_pairs, num_links)
        return self._completed(
            edge_sample(index, sample, sizes, self.disjoint, times, neg_sampling)
        )

    @property
    def edge_permutation(self) -> Any:
        r"""Returns the permutation ``[E]`` that sorts the edges of the data by target. Entry
        :math:`e` is the edge id, in the data, of edge :math:`e` of the sampler. It is :obj:`None`
        if the edges are sorted already. A graph with several edge types has a dictionary by edge
        type."""
        return self.permutation[SINGLE_EDGE_TYPE] if self.homogeneous else self.permutation

    def _sample_pairs(
        self,
        num_pairs: int,
        num_links: int,
        seed: Tensor | dict[str, Tensor],
        time: Tensor | dict[str, Tensor] | None = None,
    ) -> Output:
        r"""Samples the subgraph of the ends of :obj:`num_pairs` pairs, all first ends before all
        second ones. Both ends of a pair get one number, from 0 to :obj:`num_links` - 1: the pairs
        after the links are negative ones, in the order of the links again and again. PyG's number
        is another for both ends unless there are equally many negative pairs for each link."""
        out = self._sample(seed, time)
        batches = out.batch if isinstance(out.batch, dict) else {None: out.batch}
        for batch in batches.values():
            cast(Tensor, batch).remainder_(num_pairs).remainder_(num_links)
        return out

    def _completed(self, out: Output) -> Output:
        r"""Adds reverse edges to a sampled subgraph if :obj:`subgraph_type` is bidirectional, and
        sorts the edges of types with an :obj:`adj_t` by target and source."""
        out = out.to_bidirectional() if self.subgraph_type == SubgraphType.bidirectional else out
        return order_edges(out, self.sparse_types)

    def _sample(
        self, seed: Tensor | dict[str, Tensor], time: Tensor | dict[str, Tensor] | None = None
    ) -> Output:
        r"""Samples the subgraph of seed nodes hop by hop. Seeds are node ids, or a dictionary of
        node ids by node type; :obj:`time` has their times. Returns PyG's output class, without
        reverse edges and unsorted.

        Raises:
            ValueError: If a seed node does not exist, or has no time.
        """
        seed = seed if isinstance(seed, dict) else {SINGLE_NODE_TYPE: seed}
        draws = any(count >= 0 for counts in self.num_neighbors.values() for count in counts)
        random = drawn_generator() if draws else np.random.default_rng(0)
        sampled = self._seed_nodes(seed)
        times = seed_times(seed, time, self.node_time) if self.is_temporal else None
        drawn_edges, node_counts = self._expand(sampled, times, random)
        edge_counts = {kind: [hop[2].size for hop in hops] for kind, hops in drawn_edges.items()}
        if self.subgraph_type == SubgraphType.induced:
            edges = {
                kind: induced_edges(edges, sampled[kind[0]], sampled[kind[2]], times)
                for kind, edges in self.edges.items()
            }
            node_counts = edge_counts = None
        else:
            edges = {
                kind: tuple(map(np.concatenate, zip(NO_EDGES, *hops, strict=True)))
                for kind, hops in drawn_edges.items()
            }
        return sampler_output(
            sampled,
            edges,
            node_counts,
            edge_counts,
            homogeneous=self.homogeneous,
            disjoint=self.disjoint,
        )

    def _seed_nodes(self, seed: dict[str, Tensor]) -> dict[str, SampledNodes]:
        r"""Returns the sampled nodes of each node type before the first hop: its seeds, if any.

        Raises:
            ValueError: If a seed node does not exist.
        """
        sampled, num_seeds = {}, 0
        for kind, nodes in seed.items():
            batch = np.zeros(nodes.numel(), np.int64)
            if self.disjoint:
                batch += num_seeds + np.arange(nodes.numel())
            size = self.sizes[kind]
            sampled[kind] = SampledNodes(seed_ids(nodes, size), batch, size)
            num_seeds += nodes.numel()
        none = np.empty(0, np.int64)
        for kind, size in self.sizes.items():
            if kind not in sampled:
                sampled[kind] = SampledNodes(none, none, size)
        return sampled

    def _expand(
        self,
        sampled: dict[str, SampledNodes],
        times: np.ndarray | None,
        random: np.random.Generator,
    ) -> tuple[dict[Any, list[Edges]], dict[str, list[int]]]:
        r"""Draws edges into the sampled nodes hop by hop, and adds the sources to the sampled
        nodes.

        Returns:
            The drawn edges of each hop by edge type, and the numbers of seeds and of nodes that
            each hop added by node type.
        """
        drawn_edges = {kind: [] for kind in self.edges}
        node_counts = {kind: [nodes.key.size] for kind, nodes in sampled.items()}
        num_expanded = dict.fromkeys(sampled, 0)
        for hop in range(max(map(len, self.num_neighbors.values()), default=0)):
            num_sampled = {kind: nodes.key.size for kind, nodes in sampled.items()}
            for kind, hops in drawn_edges.items():
                frontier = slice(num_expanded[kind[2]], num_sampled[kind[2]])
                count = self.num_neighbors[kind][hop]
                hops.append(self._draw_edges(kind, count, frontier, sampled, times, random))
            for kind, nodes in sampled.items():
                node_counts[kind].append(nodes.key.size - num_sampled[kind])
            num_expanded = num_sampled
        return drawn_edges, node_counts

    def _draw_edges(
        self,
        kind: Any,
        count: int,
        frontier: slice,
        sampled: dict[str, SampledNodes],
        times: np.ndarray | None,
        random: np.random.Generator,
    ) -> Edges:
        r"""Draws edges of the type :obj:`kind` into the rows :obj:`frontier` of the sampled nodes,
        and adds the sources to the sampled nodes."""
        source, _, target = kind
        edges, targets = self.edges[kind], sampled[target]
        nodes, batch = targets.node[frontier], targets.batch[frontier]
        until = None if times is None else times[batch]
        owner, edge = edges.sample(nodes, count, self.replace, random, until, self.last)
        row = sampled[source].add(edges.sources(edge, self.sizes[source]), batch[owner])
        return row, frontier.start + owner, edge


def _as_list(counts: Any) -> Any:
    r"""Returns a tensor or an array as a list, and anything else as it is."""
    return counts.tolist() if isinstance(counts, (Tensor, np.ndarray)) else counts
