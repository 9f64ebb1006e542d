from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.storage import EdgeStorage, NodeStorage

from torch_geometric_lgt.functional.edges import edge_list, weighted_edges


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
        ValueError: If there are none, they do not fit the nodes, or an adjacency matrix has values other than 1.
    """
    name = _name_of(store)
    return edge_list(store[name], num_src, num_dst, name)


def weighted_edges_of(store: EdgeStorage, num_src: int, num_dst: int) -> tuple[Tensor, Tensor | None]:
    r"""The edges ``[2, E]`` of a store and their weights ``[E]``: the attribute :obj:`edge_weight`, or the values of an adjacency matrix.

    Raises:
        ValueError: If there are no edges, they do not fit the nodes, or the weights do not fit the edges.
    """
    name = _name_of(store)
    return weighted_edges(store[name], num_src, num_dst, store.get('edge_weight'), name)


def _name_of(store: EdgeStorage) -> str:
    for name in ('edge_index', 'adj_t'):
        if name in store:
            return name
    raise ValueError("'data' must have an 'edge_index' or an 'adj_t' (got neither)")
