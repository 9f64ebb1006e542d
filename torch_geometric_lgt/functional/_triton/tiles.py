# A program serves one head of one graph; all sums are in float32. CP, DP and RP are sizes padded to
# a power of 2, BN and BM nodes and features of a block, BK channels that are read at a time; w is
# the projection.
import triton
import triton.language as tl

TINY = tl.constexpr(2.0**-126)  # the smallest normal number


@triton.jit
def load_tile(x, rows, stride, columns, is_row, width):
    r"""Returns the entries of the matrix :obj:`x` in some rows and columns as float32. Entries are
    0 where :obj:`is_row` is false or the column is beyond :obj:`width`; :obj:`stride` is the
    distance of rows."""
    return tl.load(
        x + rows[:, None] * stride + columns[None, :],
        mask=is_row[:, None] & (columns < width)[None, :],
        other=0.0,
    ).to(tl.float32)


@triton.jit
def mask_weight(mask, rows, is_row, r, R: tl.constexpr, MASKED: tl.constexpr):
    r"""Returns mask weight :obj:`r` of some rows as float32: 1 without a mask, and 0 where
    :obj:`is_row` is false."""
    return (
        tl.load(mask + rows * R + r, mask=is_row, other=0.0).to(tl.float32)
        if MASKED
        else is_row.to(tl.float32)
    )


@triton.jit
def products(
    x, x_rows, x_stride, is_x, y, y_rows, y_stride, is_y,
    WIDTH: tl.constexpr, PADDED: tl.constexpr, BX: tl.constexpr, BY: tl.constexpr,
    BK: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""Returns the inner products ``[BX, BY]`` of rows of :obj:`x` and of :obj:`y`, and the sums of
    squares ``[BX]`` of the former.

    Rows of :obj:`WIDTH` entries are read in parts of :obj:`BK`, so that no row is held in
    registers. Rows are 0 where :obj:`is_x` or :obj:`is_y` is false.
    """
    product, square = tl.zeros((BX, BY), tl.float32), tl.zeros((BX,), tl.float32)
    for start in range(0, PADDED, BK):
        columns = start + tl.arange(0, BK)
        left = load_tile(x, x_rows, x_stride, columns, is_x, WIDTH)
        right = load_tile(y, y_rows, y_stride, columns, is_y, WIDTH)
        product = tl.dot(left, tl.trans(right), product, input_precision=PRECISION)
        square += tl.sum(left * left, 1)
    return product, square


@triton.jit
def exponentials(logits, maximum, m, M, LOG_TINY: tl.constexpr):
    r"""Returns the exponentials of :obj:`logits` minus :obj:`maximum`, 0 where they would be
    denormal or the feature number :obj:`m` is beyond :obj:`M`."""
    # rows without a node may be above their maximum
    below = tl.minimum(logits - maximum, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.where((m >= M)[None, :] | (below <= LOG_TINY), 0.0, tl.exp(below))


@triton.jit
def column(x, columns, r):
    r"""Returns :obj:`x` ``[BN]`` as column :obj:`r` of a matrix that is 0 elsewhere."""
    return tl.where((columns == r)[None, :], x[:, None], 0.0)


@triton.jit
def inverse_of(denominator):
    r"""Returns reciprocal denominators. A denominator below the smallest normal number, as in a
    graph without keys, gives 0."""
    is_zero = tl.abs(denominator) < TINY
    return tl.where(is_zero, 0.0, 1.0 / tl.where(is_zero, 1.0, denominator))


@triton.jit
def bounded(
    q, rows, stride, is_node, w, maximum, m, M,
    C: tl.constexpr, CP: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    r"""Returns the logits ``[BN, BM]`` of queries for the features :obj:`m`, with the
    :obj:`maximum` of the keys' log-features added."""
    logits = products(q, rows, stride, is_node, w, m, C, m < M, C, CP, BN, BM, BK, PRECISION)[0]
    return logits + tl.load(maximum + m, mask=m < M, other=0.0)[None, :]


@triton.jit
def raised(row_maximum, logits, m, M, LEAST: tl.constexpr):
    r"""Returns for each query the largest of :obj:`row_maximum` ``[BN]`` and the :obj:`logits`
    ``[BN, BM]`` of the features :obj:`m`, and the factor that divides sums by its exponential in
    place of that of :obj:`row_maximum`."""
    maximum = tl.maximum(row_maximum, tl.max(tl.where((m < M)[None, :], logits, LEAST), 1))
    return maximum, tl.exp(row_maximum - maximum)
