# N nodes (N_s source, N_t target), E edges, H heads, C channels per head.
import warnings
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.utils import scatter

from torch_geometric_lgt.functional._ops import operator
from torch_geometric_lgt.functional._sides import compute_dtype

CHUNK_ELEMENTS = 1 << 20
ROWS = ', '.join(f'Tensor? {side}_{part}' for side in ('forth', 'back') for part in ('pointer', 'source', 'order'))
NO_ROWS = (None,) * 6


class Rows(NamedTuple):
    r"""Edges by their target: where each target's edges begin ``[N_t + 1]``, their sources ``[E]``, and the :obj:`order` ``[E]`` of the
    edges unless they already lie so."""

    pointer: Tensor
    source: Tensor
    order: Tensor | None


class SortedEdges(NamedTuple):
    r"""Edges ``[2, E]`` and both their orders, by target and by source, for many products with one graph."""

    edge_index: Tensor
    forth: Rows
    back: Rows

    @property
    def rows(self) -> tuple[Tensor | None, ...]:
        r"""What operators take."""
        return *self.forth, *self.back


def sorted_edges(edge_index: Tensor, num_sources: int, num_targets: int) -> SortedEdges:
    return SortedEdges(edge_index, Rows(*_sorted(edge_index, num_targets)), Rows(*_sorted(edge_index.flip(0), num_sources)))


def rows_of(edge_index: Tensor, num_targets: int) -> Rows:
    (source, target), order = edge_index, None
    if target.numel() > 1 and not bool((target[1:] >= target[:-1]).all()):
        target, order = target.sort()
        source = source[order]
    return Rows(torch.searchsorted(target.contiguous(), torch.arange(num_targets + 1, device=target.device)), source, order)


def given_rows(rows: tuple[Tensor | None, ...], edge_index: Tensor, num_targets: int, back: bool = False) -> Rows:
    r"""The order that an operator was given, or one found now."""
    pointer, source, order = rows[3:] if back else rows[:3]
    if pointer is None or source is None:
        return rows_of(edge_index.flip(0) if back else edge_index, num_targets)
    return Rows(pointer, source, order)


@operator('sorted_edges', 'Tensor edge_index, SymInt num_targets', '(Tensor, Tensor, Tensor)')
def _sorted(edge_index, num_targets):
    pointer, source, order = rows_of(edge_index, num_targets)
    return pointer, source.clone(), torch.arange(source.numel(), device=source.device) if order is None else order


@_sorted.register_fake
def _(edge_index, num_targets):
    return edge_index.new_empty(num_targets + 1), *(edge_index.new_empty(edge_index.shape[1]) for _ in range(2))


def sums(x: Tensor, rows: Rows, weight: Tensor) -> Tensor:
    r"""``[N_t, H * C]``: the weighted sums of the sources ``[N_s, H * C]``, head by head, with weights ``[E, H]``."""
    dtype, (num_edges, heads), num_targets = compute_dtype(x.dtype), weight.shape, rows.pointer.numel() - 1
    weight, out = weight if rows.order is None else weight[rows.order], []
    if num_edges == 0:
        return x.new_zeros(num_targets, x.size(1))
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'Sparse CSR tensor support is in beta')
        for part, value in zip(x.to(dtype).chunk(heads, 1), weight.to(dtype).unbind(1), strict=True):
            value = value.contiguous()
            matrix = torch.sparse_csr_tensor(rows.pointer, rows.source, value, (num_targets, x.size(0)), check_invariants=False)
            out.append(matrix @ part.contiguous())
    return (torch.cat(out, 1) if heads > 1 else out[0]).to(x.dtype)


def products(x: Tensor, y: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    r"""``[E, H]``: the inner product of each edge's source in :obj:`x` ``[N_s, H * C]`` and target in :obj:`y` ``[N_t, H * C]``, head by
    head."""
    return _summed(torch.mul, x, y, edge_index, heads)


def distances(x: Tensor, y: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    r"""As :meth:`products`, the sums of absolute differences."""
    return _summed(lambda one, other: (one - other).abs_(), x, y, edge_index, heads)


def distance_grads(grad: Tensor, x: Tensor, y: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    r"""The gradients of :meth:`distances` with respect to :obj:`x` and :obj:`y`."""
    grad_x, grad_y = (part.new_zeros(part.shape, dtype=compute_dtype(part.dtype)) for part in (x, y))
    start = 0
    for source, target in _chunks(x, edge_index):
        part = grad[start : start + source.numel(), :, None]
        sign = _by_head((x.index_select(0, source).to(part.dtype) - y.index_select(0, target)).sign_(), grad.size(1)).mul_(part).flatten(1)
        grad_x += scatter(sign, source, 0, x.size(0), 'sum')
        grad_y -= scatter(sign, target, 0, y.size(0), 'sum')
        start += source.numel()
    return grad_x.to(x.dtype), grad_y.to(y.dtype)


def _summed(combine: Callable[[Tensor, Tensor], Tensor], x: Tensor, y: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    dtype, out = compute_dtype(x.dtype), []
    for source, target in _chunks(x, edge_index):
        out.append(_by_head(combine(x.index_select(0, source).to(dtype), y.index_select(0, target)), heads).sum(2))
    return torch.cat(out)


def _by_head(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(1, (heads, -1))


def _chunks(x: Tensor, edge_index: Tensor) -> tuple[Tensor, ...]:
    return edge_index.split(max(1, CHUNK_ELEMENTS // max(1, x.size(1))), 1)
