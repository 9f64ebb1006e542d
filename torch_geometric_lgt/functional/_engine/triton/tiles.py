# A program serves one head of one graph; all sums are in float32. CP, DP and RP are sizes padded to
# a power of 2, BN and BM nodes and features of a block; w is the projection.
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
def logits_of(x, w, columns, first, M, C: tl.constexpr, BM: tl.constexpr, PRECISION: tl.constexpr):
    r"""Returns the products of the rows :obj:`x` with the rows of the projection :obj:`w` from
    :obj:`first` on, these rows ``[BM, CP]`` and their numbers ``[BM]``."""
    m = first + tl.arange(0, BM)
    tile = load_tile(w, m.to(tl.int64), C, columns, m < M, C)
    return tl.dot(x, tl.trans(tile), input_precision=PRECISION), tile, m


@triton.jit
def exponentials(logits, maximum, m, M, LOG_TINY: tl.constexpr):
    r"""Returns the exponentials of :obj:`logits` minus :obj:`maximum`, 0 where they would be
    denormal or the feature number :obj:`m` is beyond :obj:`M`."""
    # rows without a node may be above their maximum
    below = tl.minimum(logits - maximum, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return tl.where((m >= M)[None, :] | (below <= LOG_TINY), 0.0, tl.exp(below))


@triton.jit
def state_columns(sums, rows, is_row, columns, r, D: tl.constexpr, R: tl.constexpr):
    r"""Returns the value sums S_r and weights z_r for the features :obj:`rows` of a state (sums
    over all keys of a graph). They are 0 where :obj:`is_row` is false."""
    row = rows * (R * (D + 1))
    z = tl.load(sums + row + R * D + r, mask=is_row, other=0.0)
    return load_tile(sums + r * D, row, 1, columns, is_row, D), z


@triton.jit
def inverse_of(denominator):
    r"""Returns reciprocal denominators. A denominator below the smallest normal number, as in a
    graph without keys, gives 0."""
    is_zero = tl.abs(denominator) < TINY
    return tl.where(is_zero, 0.0, 1.0 / tl.where(is_zero, 1.0, denominator))


@triton.jit
def bounded(
    x, w, maximum, columns, first, M, C: tl.constexpr, BM: tl.constexpr, PRECISION: tl.constexpr
):
    r"""Returns the results of :meth:`logits_of` for queries, with the :obj:`maximum` of the keys'
    log-features added to the logits."""
    logits, tile, m = logits_of(x, w, columns, first, M, C, BM, PRECISION)
    return logits + tl.load(maximum + m, mask=m < M, other=0.0)[None, :], tile, m


@triton.jit
def largest(
    x, w, maximum, columns, M, C: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, LEAST: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""Returns ``[BN]``: for each query the largest sum of a logit and the :obj:`maximum` of the
    keys' log-features."""
    row_maximum = tl.full((BN,), LEAST, tl.float32)
    for first in range(0, M, BM):
        logits, _, m = bounded(x, w, maximum, columns, first, M, C, BM, PRECISION)
        block_maximum = tl.max(tl.where((m < M)[None, :], logits, LEAST), 1)
        row_maximum = tl.maximum(row_maximum, block_maximum)
    return row_maximum
