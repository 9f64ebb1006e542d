# E edges, W columns of a row: H heads with C channels each. BE edges, BN targets, BH heads and BC
# columns of a block.
# Sums have the dtype of the weights or of the products.
import triton
import triton.language as tl


@triton.jit
def load_heads(
    x, rows, is_row, heads, columns, C: tl.constexpr, H: tl.constexpr, DTYPE: tl.constexpr
):  # fmt: skip
    r"""Returns the entries of some rows of :obj:`x` ``[N, W]`` at some :obj:`columns` of some
    :obj:`heads`, in :obj:`DTYPE`. Entries are 0 where :obj:`is_row` is false, or the head or the
    column is beyond the last."""
    columns, heads = columns[None, None, :], heads[None, :, None]
    return tl.load(
        x + rows[:, None, None] * (C * H) + heads * C + columns,
        mask=is_row[:, None, None] & (heads < H) & (columns < C),
        other=0.0,
    ).to(DTYPE)


@triton.jit
def edge_products(
    x, y, source, target, out, E,
    C: tl.constexpr, H: tl.constexpr, BE: tl.constexpr, BH: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    r"""Writes the inner products of one block of edges and heads: the source's row of :obj:`x`
    ``[N_s, W]`` with the target's row of :obj:`y` ``[N_t, W]``, to :obj:`out` ``[E, H]``."""
    edge = tl.program_id(0).to(tl.int64) * BE + tl.arange(0, BE)
    heads = tl.program_id(1) * BH + tl.arange(0, BH)
    is_edge = edge < E
    one = tl.load(source + edge, mask=is_edge, other=0)
    other = tl.load(target + edge, mask=is_edge, other=0)
    dtype: tl.constexpr = out.dtype.element_ty
    total = tl.zeros((BE, BH), dtype)
    for start in range(0, C, BC):
        columns = start + tl.arange(0, BC)
        left = load_heads(x, one, is_edge, heads, columns, C, H, dtype)
        total += tl.sum(left * load_heads(y, other, is_edge, heads, columns, C, H, dtype), 2)
    is_inside = is_edge[:, None] & (heads < H)[None, :]
    tl.store(out + edge[:, None] * H + heads[None, :], total, mask=is_inside)


@triton.jit
def row_sums(
    x, pointer, source, order, weight, out, N,
    C: tl.constexpr, H: tl.constexpr, BN: tl.constexpr, BE: tl.constexpr, BC: tl.constexpr,
    ORDERED: tl.constexpr,
):  # fmt: skip
    r"""Writes the weighted sums of the rows of :obj:`x` ``[N_s, W]`` over the sources of each of
    :obj:`BN` targets, for one block of columns, to :obj:`out` ``[N, W]``.

    Edges into target ``i`` are at ``pointer[i] : pointer[i + 1]`` in :obj:`source` ``[E]`` and, if
    :obj:`ORDERED`, in :obj:`order` ``[E]``, which has their positions in :obj:`weight`
    ``[E, H]``.
    """
    row = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    columns = tl.program_id(1) * BC + tl.arange(0, BC)
    is_row, is_column = row < N, columns < C * H
    dtype: tl.constexpr = weight.dtype.element_ty
    total = tl.zeros((BN, BC), dtype)
    first = tl.load(pointer + row, mask=is_row, other=0)
    last = tl.load(pointer + row + 1, mask=is_row, other=0)
    for start in range(0, tl.max(last - first, 0), BE):
        position = first[:, None] + start + tl.arange(0, BE)[None, :]
        is_edge = position < last[:, None]
        ids = tl.load(source + position, mask=is_edge, other=0)
        edge = tl.load(order + position, mask=is_edge, other=0) if ORDERED else position
        is_entry = is_edge[:, :, None] & is_column[None, None, :]
        head = (columns // C)[None, None, :]
        factor = tl.load(weight + edge[:, :, None] * H + head, mask=is_entry, other=0.0)
        entry = tl.load(
            x + ids[:, :, None] * (C * H) + columns[None, None, :], mask=is_entry, other=0.0
        )
        total += tl.sum(factor * entry.to(dtype), 1)
    is_inside = is_row[:, None] & is_column[None, :]
    tl.store(out + row[:, None] * (C * H) + columns[None, :], total, mask=is_inside)
