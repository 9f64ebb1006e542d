# N nodes, E edges.
import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from torch_geometric_lgt.typing import Adj


def edge_list(edge_index: Adj, num_src: int, num_dst: int) -> Tensor:
    r"""The edges ``[2, E]`` (sources, targets) in int64, from a dense :obj:`edge_index`, a :class:`torch_geometric.EdgeIndex`, a transposed
    :class:`torch_sparse.SparseTensor` or a transposed sparse :class:`torch.Tensor`, as PyG's layers take them.

    Raises:
        TypeError: If it is none of these.
        ValueError: If the shape is not ``[2, E]``, the ids are no int64 or int32 numbers, or an id lies outside the nodes.
    """
    if hasattr(edge_index, 'storage') and hasattr(edge_index, 'coo'):
        target, source, _ = edge_index.coo()
        edge_index = torch.stack([source, target])
    if isinstance(edge_index, EdgeIndex):
        edge_index = edge_index.as_tensor()
    if not isinstance(edge_index, Tensor):
        raise TypeError(f"'edge_index' must be a tensor [2, E] or a sparse matrix (got {type(edge_index).__name__})")
    if edge_index.layout != torch.strided:
        target, source = edge_index.to_sparse_coo().coalesce().indices()
        edge_index = torch.stack([source, target])
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        hint = '; transpose it' if edge_index.dim() == 2 and edge_index.size(1) == 2 else ''
        raise ValueError(f"'edge_index' must have shape [2, E] (got {tuple(edge_index.shape)}){hint}")
    if edge_index.dtype not in (torch.long, torch.int32):
        raise ValueError(f"'edge_index' must hold int64 node ids (got {edge_index.dtype}); convert it with edge_index.long()")
    edge_index = edge_index.long()
    if edge_index.numel() > 0 and not torch.compiler.is_compiling():
        low, high = edge_index.amin(1).tolist(), edge_index.amax(1).tolist()
        for name, least, most, bound in zip(('source', 'target'), low, high, (num_src, num_dst), strict=True):
            if least < 0 or most >= bound:
                hint = '; are the ids one-based?' if least == 1 and most == bound else ''
                raise ValueError(f"'edge_index' must hold {name} ids from 0 to {bound - 1} (got {least} to {most}){hint}")
    return edge_index


def degrees(edge_index: Tensor, num_nodes: int) -> Tensor:
    r"""The number of distinct neighbours of each node ``[N]``, either direction counted, without itself."""
    row, col = edge_index
    row, col = torch.cat([row, col]), torch.cat([col, row])
    pairs = torch.unique(row * num_nodes + col)
    row, col = pairs // max(num_nodes, 1), pairs % max(num_nodes, 1)
    return torch.bincount(row[row != col], minlength=num_nodes)


def edges_into(nodes: Tensor, edge_index: Tensor, num_nodes: int) -> Tensor:
    r"""The edges whose target is one of :obj:`nodes`; targets become places in :obj:`nodes`, where a node may stand more than once."""
    source, target = edge_index[:, edge_index[1].argsort()]
    count = torch.bincount(target, minlength=num_nodes)
    start, own = (count.cumsum(0) - count)[nodes], count[nodes]
    place = torch.arange(nodes.numel(), device=nodes.device).repeat_interleave(own)
    within = torch.arange(place.numel(), device=nodes.device) - (own.cumsum(0) - own)[place]
    return torch.stack([source[start[place] + within], place])
