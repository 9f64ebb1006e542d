# E edges.
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric import EdgeIndex

from torch_geometric_lgt._arguments import check_flags
from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges, sorted_rows
from torch_geometric_lgt.functional.tracing import (
    is_jit_tracing,
    is_tracing,
    may_read_values,
    to_list,
)
from torch_geometric_lgt.typing import Adj


def edge_list(edge_index: Adj, num_src: int, num_dst: int, argument: str = 'edge_index') -> Tensor:
    r"""Returns edges ``[2, E]`` (sources, targets) in int64 from any format of PyG's layers.

    The formats are a dense :obj:`edge_index`, a :class:`torch_geometric.EdgeIndex`, a transposed
    :class:`torch_sparse.SparseTensor`, a transposed sparse :class:`torch.Tensor`, and
    :class:`SortedEdges`. Error messages call the edges by the name :obj:`argument`.

    Raises:
        TypeError: If :obj:`edge_index` has none of these formats.
        ValueError: If the shape is not ``[2, E]``, the ids are neither int64 nor int32, or an id
            lies outside the :obj:`num_src` sources or :obj:`num_dst` targets. Also if edges were
            sorted for other numbers of nodes, or have weights other than 1.
    """
    edges, weight = weighted_edges(edge_index, num_src, num_dst, argument=argument)
    # in compiled code values of a matrix may be 1, and sorted edges have weights that are not
    traced = is_tracing()
    if weight is not None and (not traced or isinstance(edge_index, SortedEdges)):
        bounds = ''
        if not traced and weight.numel() > 0:
            bounds = f' (got {float(weight.min()):g} to {float(weight.max()):g})'
        raise ValueError(
            f'{argument!r} must have no weights other than 1, which are not used here{bounds}; '
            'give the edges [2, E] alone'
        )
    return edges


def weighted_edges(
    edge_index: Adj,
    num_src: int,
    num_dst: int,
    edge_weight: Tensor | None = None,
    argument: str = 'edge_index',
) -> tuple[Tensor, Tensor | None]:
    r"""Returns edges ``[2, E]`` like :meth:`edge_list`, and their weights ``[E]`` or :obj:`None`.

    The weights are :obj:`edge_weight`, the values of a sparse matrix or the weights of
    :class:`SortedEdges`. Edges of a sparse matrix are read row by row. Its values become
    :obj:`None` if they are all 1 and need no gradient.

    Raises:
        TypeError: As :meth:`edge_list`.
        ValueError: As :meth:`edge_list`, or if :obj:`edge_weight` does not hold a floating-point
            number for each edge, or the edges have weights already.
    """
    edges, value = _read(edge_index, num_src, num_dst, argument)
    if edge_weight is None:
        return edges, value
    if value is not None:
        raise ValueError(
            f"'edge_weight' must be None where {argument!r} has values (got both); multiply them, "
            'or give the edges alone'
        )
    is_tensor = isinstance(edge_weight, Tensor)
    if not is_tensor or edge_weight.shape != edges.shape[1:]:
        shape = tuple(edge_weight.shape) if is_tensor else type(edge_weight).__name__
        raise ValueError(
            f"'edge_weight' must have shape ({edges.size(1)},), one number for each edge (got "
            f'{shape})'
        )
    if not edge_weight.is_floating_point():
        raise ValueError(
            f"'edge_weight' must hold floating-point numbers (got {edge_weight.dtype}); convert it "
            'with edge_weight.float()'
        )
    if edge_weight.device != edges.device:
        raise ValueError(
            f"'edge_weight' must be on the device of {argument!r}, {edges.device} (got "
            f'{edge_weight.device})'
        )
    return edges, edge_weight


def check_edge_type(edge_index: Any, argument: str, hint: str = '') -> None:
    r"""Raises a TypeError, which ends in the :obj:`hint`, unless :obj:`edge_index` is in one of
    PyG's formats of edges: a tensor, a SparseTensor or sorted edges."""
    if not (isinstance(edge_index, (Tensor, SortedEdges)) or _is_sparse_tensor(edge_index)):
        name = 'None' if edge_index is None else type(edge_index).__name__
        if hasattr(edge_index, 'tocoo'):
            hint = '; convert it with torch_geometric.utils.from_scipy_sparse_matrix'
        elif isinstance(edge_index, (list, np.ndarray)):
            hint = '; convert it with torch.as_tensor'
        raise TypeError(
            f'{argument!r} must be a tensor [2, E] or a sparse matrix (got {name}){hint}'
        )


def check_edge_shape(edge_index: Tensor, argument: str, vector_hint: str = '') -> None:
    r"""Raises a ValueError unless the tensor :obj:`edge_index` has the shape ``[2, E]``. For a
    vector that is not empty the message ends in :obj:`vector_hint`."""
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        is_transposed = edge_index.dim() == 2 and edge_index.size(1) == 2
        is_square = edge_index.dim() == 2 and edge_index.size(0) == edge_index.size(1)
        hint = '; transpose it' if is_transposed else vector_hint if edge_index.dim() == 1 else ''
        if is_square:
            hint = '; a dense matrix becomes edges by torch_geometric.utils.dense_to_sparse'
        if edge_index.size() == (0,):
            hint = '; a graph without edges has torch.empty(2, 0, dtype=torch.long)'
        raise ValueError(
            f'{argument!r} must have shape [2, E] (got {tuple(edge_index.shape)}){hint}'
        )


def check_edge_weight(weight: Tensor | None) -> None:
    r"""Raises a ValueError if a weight ``[E]`` is negative, infinite or NaN. Code that is compiled
    or captured is not checked."""
    if weight is None or not may_read_values():
        return
    if not bool(((weight >= 0) & (weight < torch.inf)).all()):
        bounds = f'{float(weight.min())} to {float(weight.max())}'
        raise ValueError(
            "'edge_weight' must be finite and not negative, because neighbours are averaged (got "
            f'{bounds})'
        )


def sparse_entries(matrix: Any) -> tuple[Tensor, Tensor, Tensor | None] | None:
    r"""Returns the rows, columns and values ``[E]`` of a sparse matrix, row by row.

    The matrix is a :class:`torch_sparse.SparseTensor`, whose values may be :obj:`None`, or a sparse
    :class:`torch.Tensor`, whose repeated entries are added up. For anything else the result is
    :obj:`None`."""
    if _is_sparse_tensor(matrix):
        return matrix.coo()
    if not isinstance(matrix, Tensor) or matrix.layout == torch.strided or matrix.sparse_dim() != 2:
        return None
    matrix = matrix.to_sparse_coo().coalesce()
    row, column = matrix.indices()
    return row, column, matrix.values()


def _is_sparse_tensor(matrix: Any) -> bool:
    r"""Tells whether :obj:`matrix` is a :class:`torch_sparse.SparseTensor`, by its methods."""
    return hasattr(matrix, 'storage') and hasattr(matrix, 'coo')


def _read(
    edge_index: Adj, num_src: int, num_dst: int, argument: str
) -> tuple[Tensor, Tensor | None]:
    if isinstance(edge_index, SortedEdges):
        if not edge_index.fit(num_src, num_dst):
            raise ValueError(
                f"'edge_index' must be sorted for {num_src} sources and {num_dst} targets; sort it "
                'again with sorted_edges'
            )
        edges = edge_index.edge_index
        if edge_index.by_source is None:
            edges = _checked(edges, num_src, num_dst, argument)
        return edges, edge_index.weight
    entries = sparse_entries(edge_index)
    if entries is not None:
        target, source, value = entries
        sizes = cast(Any, edge_index).size(0), cast(Any, edge_index).size(1)
        if sizes[0] > num_dst or sizes[1] > num_src:
            raise ValueError(
                f'{argument!r} must have {num_dst} rows (targets) and {num_src} columns (sources) '
                f'at most (got {sizes[0]} x {sizes[1]})'
            )
        edges = _checked(torch.stack([source, target]), num_src, num_dst, argument)
        return edges, None if value is None else _weights_of(value, argument)
    if isinstance(edge_index, EdgeIndex):
        edge_index = edge_index.as_tensor()
    check_edge_type(edge_index, argument)
    return _checked(cast(Tensor, edge_index), num_src, num_dst, argument), None


def _weights_of(value: Tensor, argument: str) -> Tensor | None:
    r"""Returns the values ``[E]`` of a sparse matrix as floating-point weights, :obj:`None` if all
    are 1 and need no gradient. Raises a ValueError unless each edge has one value."""
    if value.dim() != 1:
        raise ValueError(
            f'{argument!r} must have one value for each edge (got values of shape '
            f'{tuple(value.shape)}); leave them out'
        )
    if not value.requires_grad and may_read_values() and bool((value == 1).all()):
        return None
    return value if value.is_floating_point() else value.to(torch.get_default_dtype())


def _checked(edge_index: Tensor, num_src: int, num_dst: int, argument: str) -> Tensor:
    r"""Returns edges ``[2, E]`` in int64. Raises a ValueError if the shape, the dtype or an id is
    wrong."""
    check_edge_shape(edge_index, argument)
    if edge_index.dtype not in (torch.long, torch.int32):
        raise ValueError(
            f'{argument!r} must hold int64 node ids (got {edge_index.dtype}); convert it with '
            f'{argument}.long()'
        )
    edge_index = edge_index.long()
    if edge_index.numel() > 0 and may_read_values():
        low, high = to_list(torch.stack(edge_index.aminmax(dim=1)))
        for name, least, most, bound in zip(
            ('source', 'target'), low, high, (num_src, num_dst), strict=True
        ):
            if least < 0 or most >= bound:
                hint = '; are the ids one-based?' if least == 1 and most == bound else ''
                raise ValueError(
                    f'{argument!r} must hold {name} ids from 0 to {bound - 1} (got {least} to '
                    f'{most}){hint}'
                )
    return edge_index


def sorted_edges(
    edge_index: Adj,
    num_src: int,
    num_dst: int,
    backward: bool | None = None,
    edge_weight: Tensor | None = None,
) -> SortedEdges:
    r"""Sorts edges by target and by source. Layers and models take the result in place of
    :obj:`edge_index`, so that many steps over one graph sort only once. The result has
    :obj:`edge_index` itself, without a copy: do not change it in place.

    Args:
        edge_index (torch.Tensor or SparseTensor): The edges ``[2, E]``, sources and targets, a
            :class:`torch_geometric.EdgeIndex`, or a sparse matrix, of PyTorch or torch-sparse,
            whose rows are the targets, such as :obj:`adj_t`. Repeated edges stay.
            :class:`SortedEdges` are returned as they are, with :obj:`edge_weight` if that is given.
        num_src (int): The number of sources.
        num_dst (int): The number of targets.
        backward (bool, optional): Whether the edges are also sorted by source. If :obj:`False`,
            each backward pass sorts them. (default: :obj:`None`, whether gradients are enabled)
        edge_weight (torch.Tensor, optional): The weights ``[E]`` of the edges. For a sparse matrix,
            which must have no values then, they are in the order of its rows. (default:
            :obj:`None`, the values of a sparse matrix if it has some)

    Returns:
        SortedEdges

    Raises:
        TypeError: If the format of :obj:`edge_index` is unknown.
        ValueError: If an id lies outside the nodes, or :obj:`edge_index` has a wrong shape or
            dtype. If :obj:`backward` is no boolean. Also if :obj:`edge_weight` does not have one
            floating-point number for each edge, or the matrix or the :class:`SortedEdges` have
            weights already.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.functional import sorted_edges
        >>> edge_index = torch.tensor([[0, 1, 2], [2, 0, 2]])
        >>> edges = sorted_edges(edge_index, 3, 3, edge_weight=torch.tensor([1.0, 2.0, 3.0]))
        >>> edges.by_target.order
        tensor([1, 0, 2])
        >>> sorted_edges(edges, 3, 3) is edges
        True
    """
    edges, weight = weighted_edges(edge_index, num_src, num_dst, edge_weight)
    if isinstance(edge_index, SortedEdges):
        return edge_index if edge_weight is None else edge_index._replace(weight=edge_weight)
    if backward is not None:
        check_flags(backward=backward)
    else:
        backward = torch.is_grad_enabled() and not is_jit_tracing()
    by_source = sorted_rows(edges.flip(0), num_src) if backward else None
    return SortedEdges(edges, sorted_rows(edges, num_dst), by_source, weight=weight)
