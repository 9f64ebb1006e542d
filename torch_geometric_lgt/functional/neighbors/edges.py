# N nodes (N_s source, N_t target), E edges.
from typing import NamedTuple

import numpy as np
import torch
from scipy.sparse import coo_array, csr_array, eye_array
from torch import Tensor
from torch_geometric import EdgeIndex

from torch_geometric_lgt.functional._engine.arguments import Arguments, Size
from torch_geometric_lgt.functional._engine.custom_op import operator
from torch_geometric_lgt.functional.tracing import may_read_values
from torch_geometric_lgt.typing import Adj


class Rows(NamedTuple):
    r"""Stores edges sorted by target: :obj:`source` ``[E]`` has the sources in this order, and
    edges into target ``i`` are at ``pointer[i] : pointer[i + 1]``. Entry ``e`` was edge
    ``order[e]`` before; :obj:`order` is :obj:`None` if the edges were sorted already."""

    pointer: Tensor
    source: Tensor
    order: Tensor | None


class EdgeOrders(NamedTuple):
    r"""Stores edges sorted by target and by source (see :class:`Rows`), as arguments of an
    operator. An operator sorts the edges itself if a pointer is :obj:`None`."""

    target_pointer: Tensor | None = None
    target_source: Tensor | None = None
    target_order: Tensor | None = None
    source_pointer: Tensor | None = None
    source_target: Tensor | None = None
    source_order: Tensor | None = None


class SortedEdges(NamedTuple):
    r"""Stores edges together with the edges sorted by target and by source, the result of
    :meth:`sorted_edges`.

    Attributes:
        edge_index (torch.Tensor): ``[2, E]``, sources and targets.
        by_target (Rows): The edges sorted by target. Its :obj:`source` ``[E]`` has the sources,
            and ``pointer[i] : pointer[i + 1]`` are the edges into target ``i``. Its :obj:`order`
            ``[E]`` sorts the edges; it is :obj:`None` if they are sorted already.
        by_source (Rows, optional): The edges sorted by source, in the same form with sources and
            targets exchanged. If :obj:`None`, backward passes sort the edges.
        weight (torch.Tensor, optional): ``[E]``, in the order of :obj:`edge_index`.
        first (torch.Tensor, optional): Bools ``[E]``, :obj:`True` for the first of equal edges,
            which alone counts. Only compiled code sets it, because it does not know the number of
            distinct edges.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.functional import sorted_edges
        >>> edges = sorted_edges(torch.tensor([[0, 1, 2], [2, 0, 2]]), num_src=3, num_dst=3)
        >>> edges.by_target.pointer
        tensor([0, 1, 1, 3])
        >>> edges.by_target.source
        tensor([1, 0, 2])
    """

    edge_index: Tensor
    by_target: Rows
    by_source: Rows | None
    weight: Tensor | None = None
    first: Tensor | None = None

    def orders(self) -> EdgeOrders:
        r"""Returns the edges sorted by target and by source, as arguments of an operator.

        Example:
            >>> import torch
            >>> from torch_geometric_lgt.functional import sorted_edges
            >>> edges = sorted_edges(torch.tensor([[0, 1], [1, 0]]), 2, 2, backward=False)
            >>> edges.orders().target_source
            tensor([1, 0])
            >>> edges.orders().source_target is None
            True
        """
        return EdgeOrders(*self.by_target, *(self.by_source or ()))

    def fit(self, num_src: int, num_dst: int) -> bool:
        r"""Returns whether the edges were sorted for these numbers of sources and targets.

        Example:
            >>> import torch
            >>> from torch_geometric_lgt.functional import sorted_edges
            >>> edges = sorted_edges(torch.tensor([[0, 1], [1, 0]]), num_src=2, num_dst=3)
            >>> edges.fit(2, 3), edges.fit(3, 3)
            (True, False)
        """
        sizes = (num_dst, num_src)
        return all(
            rows is None or rows.pointer.size(0) == size + 1
            for rows, size in zip((self.by_target, self.by_source), sizes, strict=True)
        )


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
    traced = torch.compiler.is_compiling()
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


def check_not_negative(weight: Tensor | None) -> None:
    r"""Raises a ValueError if a weight ``[E]`` is negative, infinite or NaN. Code that is compiled
    or captured is not checked."""
    if weight is None or not may_read_values():
        return
    if not bool(((weight >= 0) & (weight < torch.inf)).all()):
        bounds = f'{float(weight.min())} to {float(weight.max())}'
        raise ValueError(
            "'edge_weight' must not be negative where neighbours are averaged, and finite (got "
            f'{bounds})'
        )


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
    value = None
    if hasattr(edge_index, 'storage') and hasattr(edge_index, 'coo'):
        target, source, value = edge_index.coo()
        edge_index = torch.stack([source, target])
    if isinstance(edge_index, EdgeIndex):
        edge_index = edge_index.as_tensor()
    if not isinstance(edge_index, Tensor):
        raise TypeError(
            f'{argument!r} must be a tensor [2, E] or a sparse matrix (got '
            f'{type(edge_index).__name__})'
        )
    if edge_index.layout != torch.strided:
        matrix = edge_index.to_sparse_coo().coalesce()
        (target, source), value = matrix.indices(), matrix.values()
        edge_index = torch.stack([source, target])
    edges = _checked(edge_index, num_src, num_dst, argument)
    return edges, None if value is None else _weights_of(value, argument)


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
    if edge_index.dim() != 2 or edge_index.size(0) != 2:
        hint = '; transpose it' if edge_index.dim() == 2 and edge_index.size(1) == 2 else ''
        raise ValueError(
            f'{argument!r} must have shape [2, E] (got {tuple(edge_index.shape)}){hint}'
        )
    if edge_index.dtype not in (torch.long, torch.int32):
        raise ValueError(
            f'{argument!r} must hold int64 node ids (got {edge_index.dtype}); convert it with '
            f'{argument}.long()'
        )
    edge_index = edge_index.long()
    if edge_index.numel() > 0 and may_read_values():
        low, high = edge_index.amin(1).tolist(), edge_index.amax(1).tolist()
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
    :obj:`edge_index`, so that many steps over one graph sort only once.

    Args:
        edge_index (torch.Tensor or SparseTensor): ``[2, E]``, sources and targets, or any other
            format of PyG's layers. Sorted edges are returned as they are.
        num_src (int): The number of sources.
        num_dst (int): The number of targets.
        backward (bool, optional): Whether the edges are also sorted by source. If :obj:`False`,
            each backward pass sorts them. (default: :obj:`None`, whether gradients are enabled)
        edge_weight (torch.Tensor, optional): The weights ``[E]`` of the edges; the edges of a
            sparse matrix count row by row. (default: :obj:`None`, the values of a sparse matrix if
            it has some)

    Returns:
        SortedEdges

    Raises:
        TypeError: If the format of :obj:`edge_index` is unknown.
        ValueError: If an id lies outside the nodes, or :obj:`edge_index` has a wrong shape or
            dtype. Also if :obj:`edge_weight` does not fit, or the edges have weights already.

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
    backward = torch.is_grad_enabled() if backward is None else backward
    by_source = _sort(edges.flip(0), num_src) if backward else None
    return SortedEdges(edges, _sort(edges, num_dst), by_source, weight=weight)


def rows_of(edge_index: Tensor, num_targets: int) -> Rows:
    r"""Returns edges ``[2, E]`` sorted by target as :class:`Rows`, for :obj:`num_targets`
    targets."""
    (source, target), order = edge_index, None
    if target.numel() > 1 and not bool((target[1:] >= target[:-1]).all()):
        target, order = target.sort()
        source = source[order]
    nodes = torch.arange(num_targets + 1, device=target.device)
    return Rows(torch.searchsorted(target.contiguous(), nodes), source, order)


def stored_rows(
    orders: EdgeOrders, edge_index: Tensor, num_targets: int, by_source: bool = False
) -> Rows:
    r"""Returns the edges sorted by target, or by source, as :class:`Rows`: from :obj:`orders` if it
    has them, otherwise by sorting :obj:`edge_index`. :obj:`num_targets` is the number of nodes that
    they are sorted by."""
    pointer, source, order = orders[3:] if by_source else orders[:3]
    if pointer is None or source is None:
        return rows_of(edge_index.flip(0) if by_source else edge_index, num_targets)
    return Rows(pointer, source, order)


class SortArguments(Arguments):
    r"""Holds the arguments of the operator that sorts edges in compiled code."""

    edge_index: Tensor
    num_targets: Size


@operator(SortArguments, returns=('pointer', 'source', 'order'))
def _sorted_edges(arguments: SortArguments) -> tuple[Tensor, Tensor, Tensor]:
    pointer, source, order = rows_of(arguments.edge_index, arguments.num_targets)
    if order is None:
        order = torch.arange(source.numel(), device=source.device)
    return pointer, source.clone(), order


@_sorted_edges.fake
def _(arguments: SortArguments):
    edge_index = arguments.edge_index
    source, order = (edge_index.new_empty(edge_index.shape[1]) for _ in range(2))
    return edge_index.new_empty(arguments.num_targets + 1), source, order


def _sort(edge_index: Tensor, num_targets: int) -> Rows:
    r"""Returns edges ``[2, E]`` sorted by target as :class:`Rows`. Compiled code calls an operator,
    whose result always has an order."""
    if torch.compiler.is_compiling():
        return Rows(*_sorted_edges(SortArguments(edge_index=edge_index, num_targets=num_targets)))
    return rows_of(edge_index, num_targets)


def degrees(edge_index: Tensor, num_nodes: int) -> Tensor:
    r"""Counts the distinct neighbours of each node along edges ``[2, E]`` in either direction,
    without the node itself, ``[N]``."""
    (row, col), first = distinct_pairs(torch.cat([edge_index, edge_index.flip(0)], 1), num_nodes)
    return row.new_zeros(num_nodes).scatter_add_(0, row, (first & (row != col)).long())


def distinct_pairs(pairs: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    r"""Returns the pairs ``[2, E]`` of node ids sorted by first, then by second node, and bools
    ``[E]`` that mark the first of equal pairs. The shapes do not depend on the ids."""
    key = (pairs[0] * num_nodes + pairs[1]).sort().values
    first = key != torch.cat([key.new_full((1,), -1), key])[:-1]
    return torch.stack([key // max(num_nodes, 1), key % max(num_nodes, 1)]), first


def hops(edge_index: Tensor, num_nodes: int, order: int, self_loops: bool = True) -> list[Tensor]:
    r"""Returns a list with the pairs ``[2, E_p]`` (sources, targets) that paths of :math:`p` edges
    connect, for :math:`p` from 1 to :obj:`order`.

    Pairs are distinct and sorted by target. With :obj:`self_loops` shorter paths count, too, and
    each node is paired with itself. The number of pairs may grow fast with :math:`p`.

    Raises:
        ValueError: If a program with a higher order than 1 is exported.
    """
    if order > 1:
        return _paths(edge_index, num_nodes, order, self_loops)
    pairs, first = first_hop(edge_index, num_nodes, self_loops)
    return [pairs[:, first]] * order


def first_hop(edge_index: Tensor, num_nodes: int, self_loops: bool = True) -> tuple[Tensor, Tensor]:
    r"""Returns the edges ``[2, E]`` sorted by target, and bools ``[E]`` that mark the first of
    equal edges. With :obj:`self_loops` both include a self loop of each node: they have N more
    entries."""
    loops = torch.arange(num_nodes if self_loops else 0, device=edge_index.device).expand(2, -1)
    pairs, first = distinct_pairs(torch.cat([edge_index.flip(0), loops], 1), num_nodes)
    return pairs.flip(0), first


@torch.compiler.disable(
    reason=(
        "the pairs of 'hops' are found by SciPy; give a compiled model what its method 'hops' "
        'returns'
    )
)
def _paths(edge_index: Tensor, num_nodes: int, order: int, self_loops: bool) -> list[Tensor]:
    r"""Returns the result of :meth:`hops` for an order above 1, computed by products of the
    adjacency matrix on the CPU."""
    if torch.compiler.is_compiling():
        raise ValueError(
            "'relational_order' must be at most 1 to be exported with edges: pass what the method "
            "'hops' returns"
        )
    row, col = edge_index.cpu().numpy()
    adjacency = csr_array((np.ones(row.size, bool), (row, col)), shape=(num_nodes, num_nodes))
    if self_loops:
        adjacency = csr_array(adjacency + eye_array(num_nodes, dtype=bool))
    power, orders = adjacency, []
    for p in range(order):
        power = power if p == 0 else csr_array(power @ adjacency)
        by_target = coo_array(csr_array(power.T))
        pairs = torch.from_numpy(np.stack([by_target.col, by_target.row]))
        orders.append(pairs.long().to(edge_index.device))
    return orders


def weighted_hop(
    edge_index: Tensor, num_nodes: int, self_loops: bool, weight: Tensor
) -> tuple[Tensor, Tensor]:
    r"""Returns edges ``[2, E]`` and weights ``[E]`` of the weighted adjacency matrix: the pairs
    that one edge connects, :math:`p = 1` in :meth:`hops`.

    If a pair of nodes has several edges, each weight is divided by their number; together they have
    the mean weight. If :obj:`self_loops`, a self loop of weight 1 is appended for each node, and
    self loops among :obj:`edge_index` get the weight 0.
    """
    source, target = edge_index
    pair = target * num_nodes + source
    known = pair.sort().values
    count = torch.searchsorted(known, pair, right=True) - torch.searchsorted(known, pair)
    weight = weight / count
    if not self_loops:
        return edge_index, weight
    loops = torch.arange(num_nodes, device=edge_index.device).expand(2, -1)
    weight = weight.masked_fill(source == target, 0)
    weight = torch.cat([weight, weight.new_ones(num_nodes)])
    return torch.cat([edge_index, loops], 1), weight


def edges_into(
    nodes: Tensor, edge_index: Tensor, weight: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    r"""Returns the edges into some nodes, ``[2, E']``, and their weights ``[E']``.

    Sources are node ids, and targets are positions in :obj:`nodes`, in which an id may occur
    several times. If :obj:`edge_index` is sorted by target, it is not sorted again.
    """
    if not bool((edge_index[1, 1:] >= edge_index[1, :-1]).all()):
        order = edge_index[1].argsort()
        edge_index, weight = edge_index[:, order], None if weight is None else weight[order]
    source, target = edge_index.contiguous()
    start = torch.searchsorted(target, nodes)
    index, edge = ranges(start, torch.searchsorted(target, nodes, right=True) - start)
    return torch.stack([source[edge], index]), None if weight is None else weight[edge]


def ranges(start: Tensor, length: Tensor) -> tuple[Tensor, Tensor]:
    r"""Concatenates the integers from :math:`s` to :math:`s + l - 1` for each :math:`s` in
    :obj:`start` and :math:`l` in :obj:`length`. Returns for each integer the index of its range,
    then the integers."""
    index = torch.repeat_interleave(length)
    first = length.cumsum(0) - length
    return index, torch.arange(index.numel(), device=index.device) + (start - first)[index]
