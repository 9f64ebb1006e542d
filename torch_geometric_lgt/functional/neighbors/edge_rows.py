# E edges.
from typing import NamedTuple

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.arguments import Arguments, Size
from torch_geometric_lgt.functional._engine.custom_op import operator
from torch_geometric_lgt.functional.tracing import is_portable, may_read_values


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
            ``[E]`` makes ``edge_index[:, order]`` sorted by target; it is :obj:`None` if the edges
            are sorted already.
        by_source (Rows, optional): The edges sorted by source, in the same form with both ends
            exchanged: its field :obj:`source` has the targets, and ``pointer[j] : pointer[j + 1]``
            are the edges out of source ``j``. If :obj:`None`, backward passes sort the edges.
        weight (torch.Tensor, optional): ``[E]``, in the order of :obj:`edge_index`.
        first (torch.Tensor, optional): Bools ``[E]`` in the order of :obj:`edge_index`, only in
            edges that :meth:`KernelAttentionConv.hops` finds in compiled code. Such code cannot
            drop repeated edges. The first of equal edges has :obj:`True`, and the others do not
            count. (otherwise :obj:`None`)

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
        r"""Returns :attr:`by_target` and :attr:`by_source` as one flat tuple, for the custom
        operators of this package, whose arguments are tensors.

        Its fields :obj:`target_pointer`, :obj:`target_source` and :obj:`target_order` are those of
        :attr:`by_target`. The fields :obj:`source_pointer`, :obj:`source_target` and
        :obj:`source_order` are those of :attr:`by_source`, and :obj:`None` without it.

        Example:
            >>> import torch
            >>> from torch_geometric_lgt.functional import sorted_edges
            >>> edges = sorted_edges(
            ...     torch.tensor([[0, 2], [1, 0]]), num_src=3, num_dst=3, backward=False
            ... )
            >>> edges.orders().target_source
            tensor([2, 0])
            >>> edges.orders().source_target is None
            True
        """
        return EdgeOrders(*self.by_target, *(self.by_source or ()))

    def fit(self, num_src: int, num_dst: int) -> bool:
        r"""Tells whether the edges were sorted for these numbers of sources and targets.

        Example:
            >>> import torch
            >>> from torch_geometric_lgt.functional import sorted_edges
            >>> edges = sorted_edges(torch.tensor([[0, 1], [1, 0]]), num_src=2, num_dst=3)
            >>> edges.fit(2, 3), edges.fit(3, 3)
            (True, False)
        """
        fits_source = self.by_source is None or self.by_source.pointer.size(0) == num_src + 1
        return fits_source and self.by_target.pointer.size(0) == num_dst + 1


def rows_of(edge_index: Tensor, num_targets: int, is_sorted: bool = False) -> Rows:
    r"""Returns edges ``[2, E]`` sorted by target as :class:`Rows`, for :obj:`num_targets`
    targets. All results are contiguous, because a sparse matrix on a GPU reads others wrongly.
    Edges that are sorted already stay as they are, without a look at them if :obj:`is_sorted`;
    code that is traced or captured sorts all others."""
    source, target = edge_index.contiguous()
    order = None
    if not is_sorted and may_read_values():
        is_sorted = bool((target[1:] >= target[:-1]).all())
    if target.numel() > 1 and not is_sorted:
        target, order = target.sort()
        source = source[order]
    nodes = torch.arange(num_targets + 1, device=target.device)
    return Rows(torch.searchsorted(target, nodes), source, order)


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


def sorted_rows(edge_index: Tensor, num_targets: int) -> Rows:
    r"""Returns edges ``[2, E]`` sorted by target as :class:`Rows`. Compiled code calls an operator,
    whose result always has an order."""
    if torch.compiler.is_compiling() and not is_portable():
        return Rows(*_sorted_edges(SortArguments(edge_index=edge_index, num_targets=num_targets)))
    return rows_of(edge_index, num_targets)
