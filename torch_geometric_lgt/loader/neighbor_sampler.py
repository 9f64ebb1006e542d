# N nodes, E edges.
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    NumNeighbors,
    SamplerOutput,
)
from torch_geometric.sampler.base import SubgraphType
from torch_geometric.sampler.neighbor_sampler import edge_sample, node_sample
from torch_geometric.sampler.utils import to_csc, to_hetero_csc

from torch_geometric_lgt.loader._edge_order import ONLY, Output, check_edges, order_edges
from torch_geometric_lgt.loader._neighborhoods import Edges, Found, induced

ALONE = ''


class NeighborSampler(BaseSampler):
    r"""Samples neighbours as :class:`torch_geometric.sampler.NeighborSampler` does, with NumPy
    instead of the compiled ``pyg-lib`` or ``torch-sparse``: hop by hop, a number of the edges into
    each node that the hop before has found. Each draw is uniform. The nodes of a subgraph are the
    seeds and then the others in the order they were found. The edges of an :obj:`adj_t` are sorted
    by target and source, as the :obj:`adj_t` of the batch is, so that their attributes follow them.

    Random numbers come from a seed that torch's global generator draws for each batch:
    :meth:`torch.manual_seed` fixes them, and the workers of a loader, which torch seeds
    differently, draw different ones. A sampler of a graph store is pickled without the sorted
    edges: another process reads them from the store again.

    Args:
        data (Data, HeteroData or tuple): The graph, or a feature store and a graph store.
        num_neighbors (list or dict): The number of edges for each hop, negative ones for all; of a
            heterogeneous graph also by edge type.
        replace (bool, optional): If :obj:`True`, an edge may be drawn again. (default:
            :obj:`False`)
        subgraph_type (str, optional): :obj:`"directional"`, the edges that were drawn,
            :obj:`"bidirectional"`, those and their reverse, or :obj:`"induced"`, all edges between
            the nodes found. (default: :obj:`"directional"`)
        disjoint (bool, optional): If :obj:`True`, each seed has a subgraph of its own, told by
            :obj:`batch`. (default: :obj:`False`)
        share_memory (bool, optional): If :obj:`True`, the sorted edges lie where workers can read
            them. (default: :obj:`False`)

    Raises:
        ValueError: If a node does not exist, a sampled edge begins at none, the edges are neither
            in :obj:`edge_index` nor in a :class:`torch_sparse.SparseTensor` called :obj:`adj_t`, or
            those two list them in different orders.
    """

    def __init__(
        self,
        data: Any,
        num_neighbors: NumNeighbors | list[int] | dict,
        replace: bool = False,
        subgraph_type: SubgraphType | str = 'directional',
        disjoint: bool = False,
        share_memory: bool = False,
    ) -> None:
        self.replace, self.disjoint, self.subgraph_type = (
            replace,
            disjoint,
            SubgraphType(subgraph_type),
        )
        self.sparse_types = check_edges(data) if isinstance(data, (Data, HeteroData)) else []
        self.graph_store = data[1] if isinstance(data, tuple) else None
        self.sizes, self.edges, self.permutation = _sorted_edges(data, share_memory)
        self.homogeneous = set(self.edges) == {ONLY}
        numbers = (
            num_neighbors
            if isinstance(num_neighbors, NumNeighbors)
            else NumNeighbors(num_neighbors)
        )
        values = numbers.get_values(None if self.homogeneous else list(self.edges))
        self.num_neighbors: dict[Any, Any] = (
            {ONLY: values} if self.homogeneous else dict(cast(Mapping, values))
        )

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | (
            {} if self.graph_store is None else {'edges': None, 'permutation': None}
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if self.graph_store is not None:
            _, self.edges, self.permutation = _stored_edges(self.graph_store)

    def sample_from_nodes(self, index: NodeSamplerInput, **_) -> Output:
        return self._completed(node_sample(index, self._sample))

    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> Output:
        sizes = self.sizes[ALONE] if self.homogeneous else self.sizes
        return self._completed(
            edge_sample(index, self._sample, sizes, self.disjoint, None, neg_sampling)
        )

    @property
    def edge_permutation(self) -> Any:
        return self.permutation[ONLY] if self.homogeneous else self.permutation

    def _completed(self, out: Output) -> Output:
        out = out.to_bidirectional() if self.subgraph_type == SubgraphType.bidirectional else out
        return order_edges(out, self.sparse_types)

    def _sample(self, seed: Tensor | dict[str, Tensor], _time: Any = None) -> Output:
        draws = any(count >= 0 for counts in self.num_neighbors.values() for count in counts)
        random = np.random.default_rng(int(torch.randint(1 << 62, ())) if draws else 0)
        found, first = {}, 0
        for kind, nodes in (seed if isinstance(seed, dict) else {ALONE: seed}).items():
            batch = (
                np.arange(first, first + nodes.numel())
                if self.disjoint
                else np.zeros(nodes.numel(), np.int64)
            )
            seeds, size = nodes.cpu().numpy().astype(np.int64), self.sizes[kind]
            if seeds.size > 0 and not 0 <= seeds.min() <= seeds.max() < size:
                raise ValueError(
                    f"'input_nodes' must hold ids of nodes, from 0 to {size - 1} (got "
                    f'{seeds.min()} to {seeds.max()})'
                )
            found[kind] = Found(seeds, batch, size)
            first += nodes.numel() if self.disjoint else 0
        none = np.empty(0, np.int64)
        found |= {
            kind: Found(none, none, size) for kind, size in self.sizes.items() if kind not in found
        }
        parts, edge_counts = {kind: [] for kind in self.edges}, {kind: [] for kind in self.edges}
        node_counts, done = (
            {kind: [nodes.key.size] for kind, nodes in found.items()},
            dict.fromkeys(found, 0),
        )
        for hop in range(max(map(len, self.num_neighbors.values()), default=0)):
            reached = {kind: nodes.key.size for kind, nodes in found.items()}
            for kind, edges in self.edges.items():
                source, _, target = kind
                frontier = slice(done[target], reached[target])
                nodes, batch = found[target].node[frontier], found[target].batch[frontier]
                owner, edge = edges.sample(
                    nodes, self.num_neighbors[kind][hop], self.replace, random
                )
                row = found[source].add(edges.sources(edge, self.sizes[source]), batch[owner])
                parts[kind].append((row, done[target] + owner, edge))
                edge_counts[kind].append(edge.size)
            for kind, nodes in found.items():
                node_counts[kind].append(nodes.key.size - reached[kind])
            done = reached
        if self.subgraph_type == SubgraphType.induced:
            edges = {
                kind: induced(edges, found[kind[0]], found[kind[2]])
                for kind, edges in self.edges.items()
            }
            return self._output(found, edges, None, None)
        edges = {
            kind: tuple(map(np.concatenate, zip(*part, strict=True)))
            for kind, part in parts.items()
            if part
        }
        return self._output(found, edges, node_counts, edge_counts)

    def _output(
        self, found: dict, edges: dict, node_counts: dict | None, edge_counts: dict | None
    ) -> Output:
        def tensors(arrays: Iterable[tuple[Any, np.ndarray]]) -> dict[Any, Tensor]:
            return {kind: torch.from_numpy(array) for kind, array in arrays}

        row, col, edge = (
            tensors((kind, part[i]) for kind, part in edges.items()) for i in range(3)
        )
        node = tensors((kind, nodes.node) for kind, nodes in found.items())
        batch = (
            tensors((kind, nodes.batch) for kind, nodes in found.items()) if self.disjoint else None
        )
        if not self.homogeneous:
            return HeteroSamplerOutput(
                node, row, col, cast(dict, edge), cast(dict | None, batch), node_counts, edge_counts
            )
        per_hop = _of(node_counts, ALONE), _of(edge_counts, ONLY)
        return SamplerOutput(
            node[ALONE], row[ONLY], col[ONLY], edge[ONLY], _of(batch, ALONE), *per_hop
        )


def _of(values: dict | None, kind: Any) -> Any:
    return None if values is None else values[kind]


def _sorted_edges(
    data: Any, share_memory: bool
) -> tuple[dict[str, int], dict[Any, Edges], dict[Any, Tensor | None]]:
    r"""The number of nodes by type, and the edges by type with the permutation that sorts them; of
    a graph of one type under ``ALONE`` and ``ONLY``."""
    if isinstance(data, Data):
        pointer, row, permutation = to_csc(
            data, device=torch.device('cpu'), share_memory=share_memory
        )
        return {ALONE: data.num_nodes or 0}, {ONLY: Edges(pointer, row)}, {ONLY: permutation}
    if isinstance(data, HeteroData):
        pointers, rows, permutations = to_hetero_csc(
            data, device=torch.device('cpu'), share_memory=share_memory
        )
        sizes = {kind: data[kind].num_nodes or 0 for kind in data.node_types}
        return sizes, {kind: Edges(pointers[kind], rows[kind]) for kind in pointers}, permutations
    return _stored_edges(data[1])


def _stored_edges(store: Any) -> tuple[dict[str, int], dict[Any, Edges], dict[Any, Tensor | None]]:
    r"""The same of a :class:`torch_geometric.data.GraphStore` of one node type."""
    attributes = store.get_all_edge_attrs()
    if any(isinstance(attribute.edge_type, tuple) for attribute in attributes):
        raise ValueError(
            "'data' must be a Data, a HeteroData or stores of one node type; for stores of several "
            'install pyg-lib'
        )
    row, pointer, permutation = store.csc()
    return {ALONE: max(attributes[0].size)}, {ONLY: Edges(pointer, row)}, {ONLY: permutation}
