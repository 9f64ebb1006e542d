from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.storage import EdgeStorage, NodeStorage

from torch_geometric_lgt.functional.edges import edge_list


def homogeneous(data: Data) -> Data:
    r"""The data, of one type of nodes and edges.

    Raises:
        ValueError: If they have several.
    """
    if not isinstance(data, Data):
        raise ValueError(f"'data' must be a Data (got {type(data).__name__}); use to_homogeneous()")
    return data


def num_nodes_of(store: NodeStorage) -> int:
    r"""The number of nodes of a store.

    Raises:
        ValueError: If it is not known.
    """
    if store.num_nodes is None:
        raise ValueError("'data' must know its number of nodes (got None); set 'num_nodes'")
    return store.num_nodes


def edges_of(store: EdgeStorage, num_src: int, num_dst: int) -> Tensor:
    r"""The edges ``[2, E]`` of a store.

    Raises:
        ValueError: If there are none, or they do not fit the nodes.
    """
    for name in ('edge_index', 'adj_t'):
        if name in store:
            return edge_list(store[name], num_src, num_dst)
    raise ValueError("'data' must have an 'edge_index' or an 'adj_t' (got neither)")
