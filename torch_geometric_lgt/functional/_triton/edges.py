# E edges, W columns of a row: H heads with C channels each. BE edges, BN targets, BH heads and BC
# columns of a block.
# Sums have the dtype of the weights or of the products. One program serves any number of edges.
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
def block_pairs(source, target, E, H: tl.constexpr, BE: tl.constexpr, BH: tl.constexpr):
    r"""Returns the sources and targets ``[BE]`` of the edges of this program, which of them exist,
    and its heads ``[BH]``; then the positions ``[BE, BH]`` of both in a tensor ``[E, H]``, and
    which of these exist."""
    edge = tl.program_id(0).to(tl.int64) * BE + tl.arange(0, BE)
    heads = tl.program_id(1) * BH + tl.arange(0, BH)
    is_edge = edge < E
    one = tl.load(source + edge, mask=is_edge, other=0)
    other = tl.load(target + edge, mask=is_edge, other=0)
    at, is_inside = edge[:, None] * H + heads[None, :], is_edge[:, None] & (heads < H)[None, :]
    return one, other, is_edge, heads, at, is_inside


@triton.jit(do_not_specialize=['E'])
def edge_products(
    x, y, source, target, out, E,
    C: tl.constexpr, H: tl.constexpr, BE: tl.constexpr, BH: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    r"""Writes the inner products of one block of edges and heads: the source's row of :obj:`x`
    ``[N_s, W]`` with the target's row of :obj:`y` ``[N_t, W]``, to :obj:`out` ``[E, H]``."""
    one, other, is_edge, heads, at, is_inside = block_pairs(source, target, E, H, BE, BH)
    dtype: tl.constexpr = out.dtype.element_ty
    total = tl.zeros((BE, BH), dtype)
    for start in range(0, C, BC):
        columns = start + tl.arange(0, BC)
        left = load_heads(x, one, is_edge, heads, columns, C, H, dtype)
        total += tl.sum(left * load_heads(y, other, is_edge, heads, columns, C, H, dtype), 2)
    tl.store(out + at, total, mask=is_inside)


@triton.jit(do_not_specialize=['E'])
def edge_logsumexp(
    x, y, source, target, out, E,
    C: tl.constexpr, H: tl.constexpr, BE: tl.constexpr, BH: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    r"""Writes the logarithms of the sums of exponentials over the channels of a head to :obj:`out`
    ``[E, H]``, for the sum of the source's row of :obj:`x` and the target's row of :obj:`y`.
    Arguments are as in :meth:`edge_products`."""
    one, other, is_edge, heads, at, is_inside = block_pairs(source, target, E, H, BE, BH)
    dtype: tl.constexpr = out.dtype.element_ty
    top, total = tl.full((BE, BH), -float('inf'), dtype), tl.zeros((BE, BH), dtype)
    for start in range(0, C, BC):
        columns = start + tl.arange(0, BC)
        left = load_heads(x, one, is_edge, heads, columns, C, H, dtype)
        logit = left + load_heads(y, other, is_edge, heads, columns, C, H, dtype)
        logit = tl.where((columns < C)[None, None, :], logit, -float('inf'))
        top, total = added_powers(top, total, logit, 2)
    tl.store(out + at, top + tl.log(total), mask=is_inside)


@triton.jit
def added_powers(top, total, logit, axis: tl.constexpr):
    r"""Adds the exponentials of :obj:`logit` along an axis to :obj:`total`, a sum that is divided
    by the exponential of :obj:`top`. Returns the new largest logarithm and the new sum."""
    new_top = tl.maximum(top, tl.max(logit, axis), propagate_nan=tl.PropagateNan.ALL)
    base = tl.where(new_top == -float('inf'), 0.0, new_top)  # of no logarithm yet
    power = tl.exp(logit - tl.expand_dims(base, axis))
    return new_top, total * tl.exp(top - base) + tl.sum(power, axis)


@triton.jit
def rows_at(pointer, edges, N):
    r"""Returns the rows of :obj:`pointer` ``[N + 1]`` that have the positions :obj:`edges`."""
    low, high = edges * 0, edges * 0 + N
    while tl.max(high - low, 0) > 1:
        middle = (low + high) // 2
        is_before = tl.load(pointer + middle) <= edges
        low, high = tl.where(is_before, middle, low), tl.where(is_before, high, middle)
    return low


@triton.jit
def block_rows(pointer, N, BN: tl.constexpr, LONG: tl.constexpr, IS_LONG: tl.constexpr):
    r"""Returns the rows ``[BN]`` of this program, how many blocks it computes, and the block of
    each row. Rows are one block or, if :obj:`IS_LONG`, each row with more than :obj:`LONG` edges
    is a block. A program then has the rows in which :obj:`BN` multiples of :obj:`LONG` are the
    first."""
    rows = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    num_blocks, blocks = 1, tl.zeros((BN,), tl.int32)
    if IS_LONG:
        start = rows * LONG
        rows = rows_at(pointer, start, N)
        first, last = tl.load(pointer + rows), tl.load(pointer + rows + 1)
        is_long = ((last - first > LONG) & (start - first < LONG)).to(tl.int32)
        num_blocks = tl.sum(is_long, 0)
        blocks = tl.where(is_long == 1, tl.cumsum(is_long, 0) - 1, -1)
    return rows, num_blocks, blocks


@triton.jit
def row_edges(pointer, rows, blocks, block, N, LONG: tl.constexpr, IS_LONG: tl.constexpr):
    r"""Returns the rows of one block of :meth:`block_rows`, their first and last positions, and
    which of them have at most :obj:`LONG` edges or, if :obj:`IS_LONG`, are the long one."""
    if IS_LONG:
        row = tl.sum(tl.where(blocks == block, rows, 0), 0) + tl.arange(0, 1)
        is_row = row < N
    else:
        row, is_row = rows, rows < N
    first = tl.load(pointer + row, mask=is_row, other=0)
    last = tl.load(pointer + row + 1, mask=is_row, other=0)
    if not IS_LONG:
        is_row = is_row & (last - first <= LONG)
    return row, first, tl.where(is_row, last, first), is_row


@triton.jit
def block_edges(order, first, last, start, BE: tl.constexpr, ORDERED: tl.constexpr):
    r"""Returns the positions of :obj:`BE` edges of each row from its edge :obj:`start` on, their
    positions before sorting, and which of them are before :obj:`last`."""
    position = first[:, None] + start + tl.arange(0, BE)[None, :]
    is_edge = position < last[:, None]
    edge = tl.load(order + position, mask=is_edge, other=0) if ORDERED else position
    return position, edge, is_edge


@triton.jit(do_not_specialize=['N'])
def row_sums(
    pointer, order, out, x, source, weight, N,
    C: tl.constexpr, H: tl.constexpr, BN: tl.constexpr, BE: tl.constexpr, BC: tl.constexpr,
    ORDERED: tl.constexpr, LONG: tl.constexpr, IS_LONG: tl.constexpr,
):  # fmt: skip
    r"""Writes the weighted sums of the rows of :obj:`x` ``[N_s, W]`` over the sources of each of
    :obj:`BN` targets, for one block of columns, to :obj:`out` ``[N, W]``.

    Edges into target ``i`` are at ``pointer[i] : pointer[i + 1]`` in :obj:`source` ``[E]`` and, if
    :obj:`ORDERED`, in :obj:`order` ``[E]``, which has their positions in :obj:`weight`
    ``[E, H]``.
    """
    rows, num_blocks, blocks = block_rows(pointer, N, BN, LONG, IS_LONG)
    columns = tl.program_id(1) * BC + tl.arange(0, BC)
    is_column, head = columns < C * H, (columns // C)[None, None, :]
    dtype: tl.constexpr = weight.dtype.element_ty
    for block in range(0, num_blocks):
        row, first, last, is_row = row_edges(pointer, rows, blocks, block, N, LONG, IS_LONG)
        total = tl.zeros((1 if IS_LONG else BN, BC), dtype)
        for start in range(0, tl.max(last - first, 0), BE):
            position, edge, is_edge = block_edges(order, first, last, start, BE, ORDERED)
            ids = tl.load(source + position, mask=is_edge, other=0)
            is_entry = is_edge[:, :, None] & is_column[None, None, :]
            factor = tl.load(weight + edge[:, :, None] * H + head, mask=is_entry, other=0.0)
            at = ids[:, :, None] * (C * H) + columns[None, None, :]
            total += tl.sum(factor * tl.load(x + at, mask=is_entry, other=0.0).to(dtype), 1)
        is_inside = is_row[:, None] & is_column[None, :]
        tl.store(out + row[:, None] * (C * H) + columns[None, :], total, mask=is_inside)


@triton.jit(do_not_specialize=['N'])
def row_shares(
    pointer, order, out, x, y, source, log_sum, weight, N,
    C: tl.constexpr, H: tl.constexpr, BN: tl.constexpr, BE: tl.constexpr, BC: tl.constexpr,
    ORDERED: tl.constexpr, LONG: tl.constexpr, IS_LONG: tl.constexpr,
):  # fmt: skip
    r"""Writes the weighted sums of the shares of each channel in the exponentials that
    :meth:`edge_logsumexp` adds up, over the sources of each of :obj:`BN` targets, to :obj:`out`
    ``[N, W]``. :obj:`log_sum` ``[E, H]`` are its results; other arguments are as in
    :meth:`row_sums`, with the rows :obj:`y` ``[N, W]`` of targets."""
    rows, num_blocks, blocks = block_rows(pointer, N, BN, LONG, IS_LONG)
    columns = tl.program_id(1) * BC + tl.arange(0, BC)
    is_column, head = columns < C * H, (columns // C)[None, None, :]
    dtype: tl.constexpr = weight.dtype.element_ty
    for block in range(0, num_blocks):
        row, first, last, is_row = row_edges(pointer, rows, blocks, block, N, LONG, IS_LONG)
        mine_at = row[:, None] * (C * H) + columns[None, :]
        is_inside = is_row[:, None] & is_column[None, :]
        mine = tl.load(y + mine_at, mask=is_inside, other=0.0).to(dtype)
        total = tl.zeros((1 if IS_LONG else BN, BC), dtype)
        for start in range(0, tl.max(last - first, 0), BE):
            position, edge, is_edge = block_edges(order, first, last, start, BE, ORDERED)
            ids = tl.load(source + position, mask=is_edge, other=0)
            is_entry = is_edge[:, :, None] & is_column[None, None, :]
            entry = edge[:, :, None] * H + head
            factor = tl.load(weight + entry, mask=is_entry, other=0.0)
            base = tl.load(log_sum + entry, mask=is_entry, other=0.0)
            at = ids[:, :, None] * (C * H) + columns[None, None, :]
            other = tl.load(x + at, mask=is_entry, other=0.0).to(dtype)
            logit = tl.where(is_entry, mine[:, None, :] + other - base, -float('inf'))
            total += tl.sum(factor * tl.exp(logit), 1)
        tl.store(out + mine_at, total, mask=is_inside)


@triton.jit(do_not_specialize=['N'])
def row_softmax(
    pointer, order, out, logits, N,
    H: tl.constexpr, BN: tl.constexpr, BE: tl.constexpr, BH: tl.constexpr,
    ORDERED: tl.constexpr, LONG: tl.constexpr, IS_LONG: tl.constexpr,
):  # fmt: skip
    r"""Writes the softmax of :obj:`logits` ``[E, H]`` over the edges into each of :obj:`BN`
    targets, for one block of heads, to :obj:`out` ``[E, H]``. Edges are as in :meth:`row_sums`."""
    rows, num_blocks, blocks = block_rows(pointer, N, BN, LONG, IS_LONG)
    heads = tl.program_id(1) * BH + tl.arange(0, BH)
    dtype: tl.constexpr = out.dtype.element_ty
    for block in range(0, num_blocks):
        _row, first, last, _is_row = row_edges(pointer, rows, blocks, block, N, LONG, IS_LONG)
        top = tl.full((1 if IS_LONG else BN, BH), -float('inf'), dtype)
        total = tl.zeros((1 if IS_LONG else BN, BH), dtype)
        longest = tl.max(last - first, 0)
        for start in range(0, longest, BE):
            at, is_entry = block_entries(order, first, last, start, heads, H, BE, ORDERED)
            logit = tl.load(logits + at, mask=is_entry, other=-float('inf'))
            top, total = added_powers(top, total, logit, 1)
        for start in range(0, longest, BE):
            at, is_entry = block_entries(order, first, last, start, heads, H, BE, ORDERED)
            power = tl.exp(tl.load(logits + at, mask=is_entry, other=0.0) - top[:, None, :])
            tl.store(out + at, power / total[:, None, :], mask=is_entry)


@triton.jit(do_not_specialize=['N'])
def row_centered(
    pointer, order, out, x, weight, N,
    H: tl.constexpr, BN: tl.constexpr, BE: tl.constexpr, BH: tl.constexpr,
    ORDERED: tl.constexpr, LONG: tl.constexpr, IS_LONG: tl.constexpr,
):  # fmt: skip
    r"""Writes :obj:`x` ``[E, H]`` minus its weighted sum over the edges into the same target to
    :obj:`out` ``[E, H]``. :obj:`weight` is ``[E, H]``; edges are as in :meth:`row_sums`."""
    rows, num_blocks, blocks = block_rows(pointer, N, BN, LONG, IS_LONG)
    heads = tl.program_id(1) * BH + tl.arange(0, BH)
    for block in range(0, num_blocks):
        _row, first, last, _is_row = row_edges(pointer, rows, blocks, block, N, LONG, IS_LONG)
        total = tl.zeros((1 if IS_LONG else BN, BH), out.dtype.element_ty)
        longest = tl.max(last - first, 0)
        for start in range(0, longest, BE):
            at, is_entry = block_entries(order, first, last, start, heads, H, BE, ORDERED)
            entry = tl.load(x + at, mask=is_entry, other=0.0)
            total += tl.sum(entry * tl.load(weight + at, mask=is_entry, other=0.0), 1)
        for start in range(0, longest, BE):
            at, is_entry = block_entries(order, first, last, start, heads, H, BE, ORDERED)
            entry = tl.load(x + at, mask=is_entry, other=0.0) - total[:, None, :]
            tl.store(out + at, entry, mask=is_entry)


@triton.jit
def block_entries(
    order, first, last, start, heads, H: tl.constexpr, BE: tl.constexpr, ORDERED: tl.constexpr
):  # fmt: skip
    r"""Returns the positions of the entries of the edges of :meth:`block_edges` in a tensor
    ``[E, H]``, and which of them exist."""
    _position, edge, is_edge = block_edges(order, first, last, start, BE, ORDERED)
    is_entry = is_edge[:, :, None] & (heads < H)[None, None, :]
    return edge[:, :, None] * H + heads[None, None, :], is_entry
