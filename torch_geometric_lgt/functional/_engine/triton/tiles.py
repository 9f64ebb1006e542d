# G graphs of n nodes each, H heads, C channels of a key, D of a value, M features, R rank, W = R *
# (D + 1). A program serves one head of one graph; all sums are in float32; CP, DP, RP are sizes
# padded to a power of 2, BN and BM nodes and features of a block.
# and features of a block.
import triton
import triton.language as tl

TINY = tl.constexpr(2.0**-126)  # the smallest normal number


@triton.jit
def load_tile(x, rows, stride, columns, there, width):
    return tl.load(
        x + rows[:, None] * stride + columns[None, :],
        mask=there[:, None] & (columns < width)[None, :],
        other=0.0,
    ).to(tl.float32)


@triton.jit
def mask_weight(mask, rows, there, r, R: tl.constexpr, MASKED: tl.constexpr):
    return (
        tl.load(mask + rows * R + r, mask=there, other=0.0).to(tl.float32)
        if MASKED
        else there.to(tl.float32)
    )


@triton.jit
def logits_of(x, w, columns, first, M, C: tl.constexpr, BM: tl.constexpr, PRECISION: tl.constexpr):
    m = first + tl.arange(0, BM)
    tile = load_tile(w, m.to(tl.int64), C, columns, m < M, C)
    return tl.dot(x, tl.trans(tile), input_precision=PRECISION), tile, m


@triton.jit
def exponentials(logits, maximum, m, M, LOG_TINY: tl.constexpr):
    below = tl.minimum(
        logits - maximum, 0.0, propagate_nan=tl.PropagateNan.ALL
    )  # above 0: rows of no node
    return tl.where((m >= M)[None, :] | (below <= LOG_TINY), 0.0, tl.exp(below))


@triton.jit
def state_columns(sums, rows, there, columns, r, D: tl.constexpr, R: tl.constexpr):
    r"""The values and the weights of some features of a state under one mask weight."""
    row = rows * (R * (D + 1))
    return load_tile(sums + r * D, row, 1, columns, there, D), tl.load(
        sums + row + R * D + r, mask=there, other=0.0
    )


@triton.jit
def inverse_of(weights):
    r"""0 where there is no key, or where the smallest normal number exceeds the weights."""
    none = tl.abs(weights) < TINY
    return tl.where(none, 0.0, 1.0 / tl.where(none, 1.0, weights))


@triton.jit
def bounded(
    x, w, maximum, columns, first, M, C: tl.constexpr, BM: tl.constexpr, PRECISION: tl.constexpr
):
    logits, tile, m = logits_of(x, w, columns, first, M, C, BM, PRECISION)
    return logits + tl.load(maximum + m, mask=m < M, other=0.0)[None, :], tile, m


@triton.jit
def largest(
    x, w, maximum, columns, M, C: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, LEAST: tl.constexpr, PRECISION: tl.constexpr
):  # fmt: skip
    r"""The largest logarithm of each row."""
    peak = tl.full((BN,), LEAST, tl.float32)
    for first in range(0, M, BM):
        logits, _, m = bounded(x, w, maximum, columns, first, M, C, BM, PRECISION)
        peak = tl.maximum(peak, tl.max(tl.where((m < M)[None, :], logits, LEAST), 1))
    return peak
