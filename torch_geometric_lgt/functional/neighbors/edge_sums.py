# N nodes (N_s source, N_t target), E edges, H heads, C channels per head.
import functools
import warnings
from collections.abc import Callable

import torch
from torch import Tensor
from torch_geometric.utils import scatter, softmax

from torch_geometric_lgt.functional.neighbors.edge_rows import Rows
from torch_geometric_lgt.functional.numerics import (
    chunk_elements,
    compute_dtype,
    has_kernels,
    is_complete,
)
from torch_geometric_lgt.functional.tracing import is_portable

CHUNK_ELEMENTS = 1 << 20


def sums(x: Tensor, rows: Rows, weight: Tensor) -> Tensor:
    r"""Computes weighted sums of :obj:`x` ``[N_s, H * C]`` over the sources of each target,
    ``[N_t, H * C]``. :obj:`rows` has the edges sorted by target; :obj:`weight` ``[E, H]`` is in the
    order of the unsorted edges."""
    num_edges, heads = weight.shape
    num_targets = rows.pointer.numel() - 1
    if num_edges == 0:
        return x.new_zeros(num_targets, x.size(1))
    if has_kernels(x):
        from torch_geometric_lgt.functional._engine import fused_edges

        return fused_edges.edge_sums(x, *rows, weight)
    weight = weight if rows.order is None else weight.index_select(0, rows.order)
    if not is_complete(x.device):
        return _added(x, rows, weight)
    hide_csr_warning()
    dtype = compute_dtype(x.dtype)
    shape = (num_targets, x.size(0))
    out = []
    channels = x.to(dtype).chunk(heads, 1)
    values = weight.to(dtype).unbind(1)
    for part, value in zip(channels, values, strict=True):
        matrix = torch.sparse_csr_tensor(
            rows.pointer,
            rows.source,
            value.contiguous(),
            shape,
            device=value.device,
            check_invariants=False,
        )
        out.append(matrix @ part.contiguous())
    return (torch.cat(out, 1) if heads > 1 else out[0]).to(x.dtype)


def _added(x: Tensor, rows: Rows, weight: Tensor) -> Tensor:
    r"""Computes the result of :meth:`sums` without a sparse matrix, some edges at a time. The
    weights :obj:`weight` ``[E, H]`` are in the order of :obj:`rows`."""
    dtype, heads = compute_dtype(x.dtype), weight.size(1)
    out = x.new_zeros((rows.pointer.numel() - 1, x.size(1)), dtype=dtype)
    edges = torch.stack([rows.source, torch.repeat_interleave(rows.pointer.diff())])
    start = 0
    for source, target in _chunks(x, edges):
        stop = start + source.numel()
        values = _by_head(x.index_select(0, source).to(dtype), heads)
        out.index_add_(0, target, (values * weight[start:stop, :, None].to(dtype)).flatten(1))
        start = stop
    return out.to(x.dtype)


@functools.cache
def hide_csr_warning() -> None:
    r"""Makes a CSR matrix without showing the warning that PyTorch gives with the first one of a
    process. To catch warnings in each call would make Python forget which others it has shown, and
    is not safe in threads."""
    with warnings.catch_warnings():
        for text in ('Sparse CSR tensor support is in beta', 'Sparse invariant checks are'):
            warnings.filterwarnings('ignore', text)
        pointer, source = torch.zeros(2, 1, dtype=torch.long, device='cpu')
        torch.sparse_csr_tensor(pointer, source[:0], source[:0], (0, 1), check_invariants=False)


def recorded_sums(x: Tensor, edge_index: Tensor, weight: Tensor, num_targets: int) -> Tensor:
    r"""Computes :meth:`sums` by operations that autograd records, over the edges
    :obj:`edge_index` ``[2, E]``. A tensor ``[E, H * C]`` is stored."""
    source, target = edge_index
    dtype = compute_dtype(x.dtype)
    rows = x[source].to(dtype).unflatten(1, (weight.size(1), -1)) * weight.to(dtype)[..., None]
    return scatter(rows.flatten(1), target, 0, num_targets, 'sum').to(x.dtype)


def products(x: Tensor, y: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    r"""Computes inner products ``[E, H]`` per edge and head: the source's row in :obj:`x`
    ``[N_s, H * C]`` with the target's row in :obj:`y` ``[N_t, H * C]``."""
    if has_kernels(x):
        from torch_geometric_lgt.functional._engine import fused_edges

        return fused_edges.edge_products(x, y, edge_index, heads)
    return recorded_products(x, y, edge_index, heads)


def recorded_products(x: Tensor, y: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    r"""Computes :meth:`products` by operations that autograd records."""
    return _summed(torch.mul, x, y, edge_index, heads)


def softmax_over(logits: Tensor, target: Tensor, rows: Rows) -> Tensor:
    r"""Computes the softmax of :obj:`logits` ``[E, H]`` over the edges into each target.
    :obj:`target` ``[E]`` has the targets, and :obj:`rows` has the edges sorted by them."""
    if has_kernels(logits):
        from torch_geometric_lgt.functional._engine import fused_edges

        return fused_edges.edge_softmax(logits, rows.pointer, rows.order)
    return softmax(logits, target, num_nodes=rows.pointer.numel() - 1)


def centered(x: Tensor, weight: Tensor, target: Tensor, rows: Rows) -> Tensor:
    r"""Subtracts from :obj:`x` ``[E, H]`` its sum over the edges into the same target, weighted by
    :obj:`weight` ``[E, H]``. :obj:`target` and :obj:`rows` are those of :meth:`softmax_over`."""
    if has_kernels(x):
        from torch_geometric_lgt.functional._engine import fused_edges

        return fused_edges.edge_centered(x, weight, rows.pointer, rows.order)
    return x - scatter(x * weight, target, 0, rows.pointer.numel() - 1, 'sum')[target]


def distances(x: Tensor, y: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    r"""Computes the sums of absolute differences ``[E, H]`` per edge and head: the source's row in
    :obj:`x` ``[N_s, H * C]`` minus the target's row in :obj:`y` ``[N_t, H * C]``."""
    return _summed(lambda one, other: (one - other).abs_(), x, y, edge_index, heads)


def distance_grads(grad: Tensor, x: Tensor, y: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    r"""Returns the gradients of :obj:`x` and :obj:`y` from the gradient :obj:`grad` ``[E, H]`` of
    :meth:`distances`."""
    grad_x, grad_y = (
        part.new_zeros(part.shape, dtype=compute_dtype(part.dtype)) for part in (x, y)
    )
    start = 0
    for source, target in _chunks(x, edge_index):
        grad_rows = grad[start : start + source.numel(), :, None]
        difference = x.index_select(0, source).to(grad.dtype) - y.index_select(0, target)
        sign = _by_head(difference.sign_(), grad.size(1))
        grad_source = sign.mul_(grad_rows).flatten(1)
        grad_x.index_add_(0, source, grad_source)
        grad_y.index_add_(0, target, grad_source.neg_())
        start += source.numel()
    return grad_x.to(x.dtype), grad_y.to(y.dtype)


def multiplied(
    x: Tensor, y: Tensor, value: Tensor, edge_index: Tensor, scale: float, is_distance: bool
) -> Tensor:
    r"""Multiplies :obj:`value` ``[E, D]`` by :obj:`scale` and by the product of the source's row in
    :obj:`x` ``[N_s, D]`` with the target's row in :obj:`y` ``[N_t, D]``, channel by channel. With
    :obj:`is_distance` the absolute difference of the rows replaces their product."""
    out = x.new_empty(value.shape)
    start = 0
    for source, target in _chunks(x, edge_index):
        rows = slice(start, start + source.numel())
        one, other = x.index_select(0, source), y.index_select(0, target)
        factor = one.sub_(other).abs_() if is_distance else one.mul_(other)
        torch.mul(factor.mul_(scale), value[rows], out=out[rows])
        start = rows.stop
    return out


def factor_grads(
    grad: Tensor,
    x: Tensor,
    y: Tensor,
    value: Tensor,
    edge_index: Tensor,
    scale: float,
    is_distance: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Returns the gradients of :obj:`x`, :obj:`y` and :obj:`value` from the gradient :obj:`grad`
    ``[E, D]`` of :meth:`multiplied`."""
    grad_x, grad_y = torch.zeros_like(x), torch.zeros_like(y)
    grad_value = torch.empty_like(value)
    start = 0
    for source, target in _chunks(x, edge_index):
        rows = slice(start, start + source.numel())
        one, other = x.index_select(0, source), y.index_select(0, target)
        scaled = grad[rows] * scale
        grad_factor = scaled * value[rows]
        if is_distance:
            difference = one.sub_(other)
            grad_value[rows] = scaled.mul_(difference.abs())
            grad_source = grad_factor.mul_(difference.sign_())
            grad_target = -grad_source
        else:
            grad_value[rows] = scaled.mul_(one).mul_(other)
            grad_source, grad_target = other.mul_(grad_factor), one.mul_(grad_factor)
        grad_x.index_add_(0, source, grad_source)
        grad_y.index_add_(0, target, grad_target)
        start = rows.stop
    return grad_x, grad_y, grad_value


def _summed(
    combine: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    edge_index: Tensor,
    heads: int,
) -> Tensor:
    r"""Applies :obj:`combine` to the source's row of :obj:`x` and the target's row of :obj:`y` for
    each edge. Returns the sums of the result over the channels of each head, ``[E, H]``."""
    dtype = compute_dtype(x.dtype)
    out = []
    for source, target in _chunks(x, edge_index):
        rows = combine(x.index_select(0, source).to(dtype), y.index_select(0, target))
        out.append(_by_head(rows, heads).sum(2))
    return torch.cat(out)


def _by_head(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(1, (heads, -1))


def _chunks(x: Tensor, edge_index: Tensor) -> tuple[Tensor, ...]:
    if is_portable():
        return (edge_index,)
    elements = chunk_elements(CHUNK_ELEMENTS, x.device)
    return edge_index.split(max(1, elements // max(1, x.size(1))), 1)
