from typing import Any

from torch import Tensor
from torch_geometric.data import Data, HeteroData, TemporalData


def check_node_types(data: HeteroData) -> None:
    r"""Checks that the data knows the number of nodes at both ends of each edge type. PyG makes no
    store for a node type without attributes.

    Raises:
        ValueError: If the number of nodes of an end is unknown.
    """
    for source, _, target in data.edge_types:
        for kind in (source, target):
            store = data[kind] if kind in data.node_types else None
            if not store or (store.num_nodes is None and not store.can_infer_num_nodes):
                raise ValueError(
                    f"'data' must know the number of nodes of {kind!r} (got None); set "
                    f'data[{kind!r}].num_nodes'
                )


def has_several_graphs(data: Data) -> bool:
    r"""Tells whether :obj:`data` is a batch of several graphs, by its batch vector."""
    batch = data.get('batch')
    return isinstance(batch, Tensor) and bool((batch != batch[:1]).any())


def graph_of_events(data: Any) -> str:
    r"""Returns the end of a message about :obj:`data` that are no graph: how to make one of a
    :class:`~torch_geometric.data.TemporalData`, an empty text for anything else."""
    if not isinstance(data, TemporalData):
        return ''
    return (
        '; make the graph of its events, Data(edge_index=data.edge_index, edge_time=data.t, '
        'num_nodes=data.num_nodes)'
    )
