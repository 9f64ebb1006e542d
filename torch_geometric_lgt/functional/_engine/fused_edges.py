# N nodes (N_s source, N_t target), E edges, H heads, C channels per head.
from torch import Tensor

from torch_geometric_lgt.functional._engine.fused import ceil_div, power_of_2
from torch_geometric_lgt.functional._engine.triton import edges
from torch_geometric_lgt.functional._engine.triton.blocks import INTERPRETED
from torch_geometric_lgt.functional.numerics import compute_dtype

TILE, EDGES, COLUMNS = 1024, 32, 128  # entries, most edges and most columns of a block
# Targets of a block. Triton's interpreter needs some time for each operation of each block.
TARGETS = 64 if INTERPRETED else 1


def edge_products(x: Tensor, y: Tensor, edge_index: Tensor, heads: int) -> Tensor:
    r"""Computes inner products ``[E, H]`` per edge and head by a Triton kernel: the source's row of
    :obj:`x` ``[N_s, H * C]`` with the target's row of :obj:`y` ``[N_t, H * C]``."""
    num_edges, channels = edge_index.size(1), x.size(1) // heads
    out = x.new_empty((num_edges, heads), dtype=compute_dtype(x.dtype))
    columns = min(COLUMNS, power_of_2(channels))
    head_block = min(power_of_2(heads), COLUMNS // columns)
    edge_block = EDGES * TARGETS
    source, target = edge_index.contiguous()
    if out.numel() > 0:
        edges.edge_products[ceil_div(num_edges, edge_block), ceil_div(heads, head_block)](
            x.contiguous(),
            y.contiguous(),
            source,
            target,
            out,
            num_edges,
            C=channels,
            H=heads,
            BE=edge_block,
            BH=head_block,
            BC=columns,
        )
    return out


def edge_sums(
    x: Tensor, pointer: Tensor, source: Tensor, order: Tensor | None, weight: Tensor
) -> Tensor:
    r"""Computes weighted sums of :obj:`x` ``[N_s, H * C]`` over the sources of each target,
    ``[N_t, H * C]``, by a Triton kernel. :obj:`pointer` ``[N_t + 1]``, :obj:`source` ``[E]`` and
    :obj:`order` ``[E]`` are the edges sorted by target (see :class:`Rows`), :obj:`weight`
    ``[E, H]`` is in the order of the unsorted edges."""
    (num_targets, width), heads = (pointer.numel() - 1, x.size(1)), weight.size(1)
    out = x.new_empty((num_targets, width), dtype=compute_dtype(x.dtype))
    columns = min(COLUMNS, power_of_2(width))
    if out.numel() > 0:
        edges.row_sums[ceil_div(num_targets, TARGETS), ceil_div(width, columns)](
            x.contiguous(),
            pointer,
            source,
            source if order is None else order,
            weight.to(out.dtype).contiguous(),
            out,
            num_targets,
            C=width // heads,
            H=heads,
            BN=TARGETS,
            BE=min(EDGES, TILE // columns),
            BC=columns,
            ORDERED=order is not None,
            num_warps=1,
        )
    return out.to(x.dtype)
