# N nodes (N_s source, N_t target), E edges, H heads, C channels per head.
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from torch_geometric_lgt.functional.neighbors.edges import Rows
from torch_geometric_lgt.functional.numerics import compute_dtype

CHUNK_ELEMENTS = 1 << 20


def sums(x: Tensor, rows: Rows, weight: Tensor) -> Tensor:
    r"""``[N_t, H * C]``: the weighted sums of the sources ``[N_s, H * C]``, head by head, with
    weights ``[E, H]``."""
    dtype, (num_edges, heads), num_targets = (
        compute_dtype(x.dtype),
        weight.shape,
        rows.pointer.numel() - 1,
    )
    weight, out = weight if rows.order is None else weight[rows.order], []
    if num_edges == 0:
        return x.new_zeros(num_targets, x.size(1))
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'Sparse CSR tensor support is in beta')
        for part, value in zip(
            x.to(dtype).chunk(heads, 1), weight.to(dtype).unbind(1), strict=True
        ):
            value = value.contiguous()
            matrix = torch.sparse_csr_tensor(
                rows.pointer, rows.source, value, (num_targets, x.size(0)), check_invariants=False
            )
            out.append(matrix @ part.contiguous())
    return (torch.cat(out, 1) if heads > 1 else out[0]).to(x.dtype)


def products(x: Tensor, y: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    r"""``[E, H]``: the inner product of each edge's source in :obj:`x` ``[N_s, H * C]`` and target
    in :obj:`y` ``[N_t, H * C]``, head by head."""
    return _summed(torch.mul, x, y, edge_index, heads)


def distances(x: Tensor, y: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    r"""As :meth:`products`, the sums of absolute differences."""
    return _summed(lambda one, other: (one - other).abs_(), x, y, edge_index, heads)


def distance_grads(grad: Tensor, x: Tensor, y: Tensor, edge_index: Tensor) -> tuple[Tensor, Tensor]:
    r"""The gradients of :meth:`distances` with respect to :obj:`x` and :obj:`y`."""
    grad_x, grad_y = (
        part.new_zeros(part.shape, dtype=compute_dtype(part.dtype)) for part in (x, y)
    )
    start = 0
    for source, target in _chunks(x, edge_index):
        part = grad[start : start + source.numel(), :, None]
        sign = (
            _by_head(
                (x.index_select(0, source).to(part.dtype) - y.index_select(0, target)).sign_(),
                grad.size(1),
            )
            .mul_(part)
            .flatten(1)
        )
        grad_x.index_add_(0, source, sign)
        grad_y.index_add_(0, target, sign.neg_())
        start += source.numel()
    return grad_x.to(x.dtype), grad_y.to(y.dtype)


def _summed(
    combine: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    y: Tensor,
    edge_index: Tensor,
    heads: int,
) -> Tensor:
    dtype, out = compute_dtype(x.dtype), []
    for source, target in _chunks(x, edge_index):
        out.append(
            _by_head(
                combine(x.index_select(0, source).to(dtype), y.index_select(0, target)), heads
            ).sum(2)
        )
    return torch.cat(out)


def _by_head(x: Tensor, heads: int) -> Tensor:
    return x.unflatten(1, (heads, -1))


def _chunks(x: Tensor, edge_index: Tensor) -> tuple[Tensor, ...]:
    return edge_index.split(max(1, CHUNK_ELEMENTS // max(1, x.size(1))), 1)
