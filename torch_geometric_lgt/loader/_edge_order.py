# E edges.
import copy
import sys

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import BaseStorage
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput
from torch_geometric.typing import EdgeType
from torch_geometric.utils import lexsort

from torch_geometric_lgt.functional.neighbors.edges import edge_list
from torch_geometric_lgt.typing import SparseTensor

# the keys of a homogeneous graph in dictionaries by node type and by edge type
SINGLE_NODE_TYPE = ''
SINGLE_EDGE_TYPE = ('', '', '')
Output = SamplerOutput | HeteroSamplerOutput


def check_edges(data: Data | HeteroData) -> list[EdgeType]:
    r"""Checks that loaders can read the edges of a graph, and that edge attributes refer to one
    order of the edges.

    Returns:
        The edge types that have an :obj:`adj_t`. For a homogeneous graph this is
        ``[SINGLE_EDGE_TYPE]`` or an empty list.

    Raises:
        ValueError: If an edge names a node that does not exist, an edge type of several has no
            edges, or the data has an attribute :obj:`adj`. If :obj:`adj_t` is no
            :class:`torch_sparse.SparseTensor`, or :obj:`edge_index` lists its edges in another
            order.
    """
    if any('adj' in store for store in data.edge_stores):
        raise ValueError(
            "'data' must have its edges in 'edge_index' or 'adj_t' (got 'adj', which PyG reads "
            'before them); rename it'
        )
    if isinstance(data, Data):
        check_store(data._store, data.num_nodes, data.num_nodes)
        return [SINGLE_EDGE_TYPE] if 'adj_t' in data else []
    for (source, _, target), store in data.edge_items():
        if 'edge_index' not in store and 'adj_t' not in store:
            raise ValueError(
                "'data' must have an 'edge_index' or an 'adj_t' for each edge type (got neither "
                f'for {store._key})'
            )
        check_store(store, data[source].num_nodes, data[target].num_nodes)
    return [kind for kind, store in data.edge_items() if 'adj_t' in store]


def order_edges(out: Output, types: list[EdgeType]) -> Output:
    r"""Sorts the edges of a sampler's output by target, then by source, and returns a copy of the
    output.

    Only the edge :obj:`types` with an :obj:`adj_t` are sorted; without such types :obj:`out` is
    returned. The :obj:`adj_t` of a batch has this order, so the ids and attributes of edges follow
    it. The edges of each hop stay consecutive, because targets are numbered hop by hop.
    """
    if not types:
        return out
    out = copy.copy(out)
    if isinstance(out, SamplerOutput):
        out.row, out.col, out.edge = sort_by_target(out.row, out.col, out.edge)
        return out
    out.row, out.col, out.edge = dict(out.row), dict(out.col), dict(out.edge or {})
    for kind in out.row.keys() & types:
        out.row[kind], out.col[kind], out.edge[kind] = sort_by_target(
            out.row[kind], out.col[kind], out.edge.get(kind)
        )
    return out


def check_store(store: BaseStorage, num_src: int | None, num_dst: int | None) -> None:
    r"""Checks the :obj:`edge_index` and the :obj:`adj_t` of one edge type between :obj:`num_src`
    sources and :obj:`num_dst` targets. A number of :obj:`None` is unknown and not checked.

    Raises:
        ValueError: If an id is out of range, or :obj:`adj_t` is no
            :class:`torch_sparse.SparseTensor` of shape ``[num_dst, num_src]``. If both list the
            edges in different orders.
    """
    limits = [sys.maxsize if size is None else size for size in (num_src, num_dst)]
    edge_index = (
        None
        if store.get('edge_index') is None
        else edge_list(store['edge_index'], limits[0], limits[1])
    )
    if 'adj_t' not in store:
        return
    adj_t = store['adj_t']
    if not isinstance(adj_t, SparseTensor):
        form = adj_t.layout if isinstance(adj_t, Tensor) else type(adj_t).__name__
        has_edges = "remove it, 'edge_index' has the edges"
        fix = "give its edges as 'edge_index'" if edge_index is None else has_edges
        raise ValueError(
            f"'adj_t' must be a torch_sparse.SparseTensor in a loader (got {form}); {fix}"
        )
    size = (adj_t.size(1), adj_t.size(0))
    if any(
        expected not in (None, actual)
        for expected, actual in zip((num_src, num_dst), size, strict=True)
    ):
        raise ValueError(
            "'adj_t' must have a row for each target and a column for each source, "
            f'{(num_dst, num_src)} (got {size[::-1]})'
        )
    target, source, _ = adj_t.coo()
    if edge_index is not None and not torch.equal(edge_index, torch.stack([source, target])):
        raise ValueError(
            "'edge_index' must list the edges of 'adj_t' in the same order (got another "
            'order); remove one, or apply ToSparseTensor'
        )


def sort_by_target(
    row: Tensor, col: Tensor, edge: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    r"""Sorts edges by target :obj:`col` ``[E]``, then by source :obj:`row` ``[E]``, and returns
    sources, targets and edge ids ``[E]`` in this order. Ids of :obj:`None` stay :obj:`None`."""
    order = lexsort([row, col])
    return row[order], col[order], None if edge is None else edge[order]
