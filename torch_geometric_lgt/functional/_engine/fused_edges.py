# N nodes (N_s source, N_t target), E edges, H heads, C channels per head.
from typing import Any

from torch import Tensor

from torch_geometric_lgt.functional._engine.fused import ceil_div, power_of_2
from torch_geometric_lgt.functional._triton import edges
from torch_geometric_lgt.functional._triton.blocks import INTERPRETED
from torch_geometric_lgt.functional.numerics import compute_dtype

COLUMNS = 128  # the most columns of a block
# Triton's interpreter takes the same time for a block of any size.
EDGES = 1024 if INTERPRETED else 32  # edges of a block of inner products
ROWS, TILE = (64, 1 << 14) if INTERPRETED else (2, 256)  # fewest rows, and entries of their block
LONG = 1024  # rows with more edges have blocks of one row
LONG_TILE, LONG_WARPS, LONG_ROWS = 1 << 14, 8, 32  # a program has the long rows of 32,768 edges


def edge_products(x: Tensor, y: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    r"""Computes inner products ``[E, H]`` per edge and head by a Triton kernel: the source's row of
    :obj:`x` ``[N_s, H * C]`` with the target's row of :obj:`y` ``[N_t, H * C]``."""
    return _by_edges(edges.edge_products, x, y, edge_index, heads)


def edge_logsumexp(x: Tensor, y: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    r"""Computes the logarithm ``[E, H]`` of the sum of exponentials over the channels of each head
    by a Triton kernel, for the sum of the source's row of :obj:`x` ``[N_s, H * C]`` and the
    target's row of :obj:`y` ``[N_t, H * C]``."""
    return _by_edges(edges.edge_logsumexp, x, y, edge_index, heads)


def edge_shares(
    x: Tensor, y: Tensor, rows: tuple[Tensor, Tensor, Tensor | None], log_sum: Tensor, grad: Tensor
) -> Tensor:
    r"""Computes the gradient ``[N_t, H * C]`` of :obj:`y` by a Triton kernel from the result
    :obj:`log_sum` ``[E, H]`` of :meth:`edge_logsumexp` and its gradient :obj:`grad`. :obj:`rows`
    are the first three arguments of :meth:`edge_sums` after its :obj:`x`."""
    (pointer, source, order), heads = rows, grad.size(1)
    out = y.new_empty(y.shape, dtype=grad.dtype)
    inputs = x.contiguous(), y.contiguous(), source, log_sum, grad.contiguous()
    sizes = {'C': y.size(1) // heads, 'H': heads}
    _by_rows(edges.row_shares, pointer, order, out, inputs, 'BC', sizes)
    return out.to(y.dtype)


def edge_sums(
    x: Tensor, pointer: Tensor, source: Tensor, order: Tensor | None, weight: Tensor
) -> Tensor:
    r"""Computes weighted sums of :obj:`x` ``[N_s, H * C]`` over the sources of each target,
    ``[N_t, H * C]``, by a Triton kernel. :obj:`pointer` ``[N_t + 1]``, :obj:`source` ``[E]`` and
    :obj:`order` ``[E]`` are the edges sorted by target (see :class:`Rows`), :obj:`weight`
    ``[E, H]`` is in the order of the unsorted edges."""
    width, heads = x.size(1), weight.size(1)
    out = x.new_empty((pointer.numel() - 1, width), dtype=compute_dtype(x.dtype))
    inputs = x.contiguous(), source, weight.to(out.dtype).contiguous()
    sizes = {'C': width // heads, 'H': heads}
    _by_rows(edges.row_sums, pointer, order, out, inputs, 'BC', sizes)
    return out.to(x.dtype)


def edge_softmax(logits: Tensor, pointer: Tensor, order: Tensor | None) -> Tensor:
    r"""Computes the softmax of :obj:`logits` ``[E, H]`` over the edges into each target by a Triton
    kernel. :obj:`pointer` and :obj:`order` are those of :meth:`edge_sums`."""
    out, inputs = logits.new_empty(logits.shape), (logits.contiguous(),)
    _by_rows(edges.row_softmax, pointer, order, out, inputs, 'BH', {'H': logits.size(1)})
    return out


def edge_centered(x: Tensor, weight: Tensor, pointer: Tensor, order: Tensor | None) -> Tensor:
    r"""Subtracts from :obj:`x` ``[E, H]`` its sum over the edges into the same target, weighted by
    :obj:`weight` ``[E, H]``, by a Triton kernel. :obj:`pointer` and :obj:`order` are those of
    :meth:`edge_sums`."""
    out, inputs = x.new_empty(x.shape), (x.contiguous(), weight.contiguous())
    _by_rows(edges.row_centered, pointer, order, out, inputs, 'BH', {'H': x.size(1)})
    return out


def _by_edges(kernel: Any, x: Tensor, y: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    num_edges, channels = edge_index.size(1), x.size(1) // heads
    out = x.new_empty((num_edges, heads), dtype=compute_dtype(x.dtype))
    columns = min(COLUMNS, power_of_2(channels))
    head_block = min(power_of_2(heads), COLUMNS // columns)
    source, target = edge_index.contiguous()
    if out.numel() > 0:
        kernel[ceil_div(num_edges, EDGES), ceil_div(heads, head_block)](
            x.contiguous(),
            y.contiguous(),
            source,
            target,
            out,
            num_edges,
            C=channels,
            H=heads,
            BE=EDGES,
            BH=head_block,
            BC=columns,
        )
    return out


def _by_rows(
    kernel: Any,
    pointer: Tensor,
    order: Tensor | None,
    out: Tensor,
    inputs: tuple[Tensor, ...],
    block: str,
    sizes: dict[str, int],
) -> None:
    r"""Runs a kernel for the rows of :obj:`pointer`: some rows at a time if they are short, and
    each long row with more threads. :obj:`block` is the name of the size of its columns'
    block."""
    num_rows, width = pointer.numel() - 1, out.size(1)
    if out.numel() == 0:
        return
    columns = min(COLUMNS, power_of_2(width))
    constants = {**sizes, block: columns, 'ORDERED': order is not None, 'LONG': LONG}
    arguments = pointer, inputs[0] if order is None else order, out, *inputs, num_rows
    parts, num_edges = ceil_div(width, columns), inputs[-1].size(0)
    length = 4 if columns > 16 else 8
    rows = max(ROWS, TILE // (length * columns))
    kernel[ceil_div(num_rows, rows), parts](
        *arguments, **constants, BN=rows, BE=length, IS_LONG=False, num_warps=1
    )
    if num_edges > LONG:
        length = min(LONG, LONG_TILE // columns)
        kernel[ceil_div(num_edges, LONG * LONG_ROWS), parts](
            *arguments, **constants, BN=LONG_ROWS, BE=length, IS_LONG=True, num_warps=LONG_WARPS
        )
