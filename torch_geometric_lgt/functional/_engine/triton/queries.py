# G graphs of n nodes each, H heads, C channels of a key, D of a value, M features, R rank, W = R *
# (D + 1). A program serves one head of one graph; all sums are in float32; CP, DP, RP are sizes
# padded to a power of 2, BN and BM nodes and features of a block.
# and features of a block.
import triton
import triton.language as tl

from torch_geometric_lgt.functional._engine.triton.tiles import (
    bounded,
    exponentials,
    inverse_of,
    largest,
    load_tile,
    logits_of,
    mask_weight,
    state_columns,
)


@triton.jit
def read(
    q, mask, w, sums, maximum, out, normaliser, n, H, M,
    C: tl.constexpr, D: tl.constexpr, R: tl.constexpr, CP: tl.constexpr, DP: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr,
    MASKED: tl.constexpr, LEAST: tl.constexpr, LOG_TINY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""The rows of one block of nodes and their denominators."""
    head = tl.program_id(1)
    base, h = (head // H).to(tl.int64) * n, head % H
    c, d, place = tl.arange(0, CP), tl.arange(0, DP), tl.program_id(0) * BN + tl.arange(0, BN)
    there, rows, state = place < n, base + place, head.to(tl.int64) * M
    x = load_tile(q + h * C, rows, H * C, c, there, C)
    peak = largest(x, w, maximum + state, c, M, C, BN, BM, LEAST, PRECISION)
    total, weights = tl.zeros((BN, DP), tl.float32), tl.zeros((BN,), tl.float32)
    for first in range(0, M, BM):
        logits, _, m = bounded(x, w, maximum + state, c, first, M, C, BM, PRECISION)
        feature = exponentials(logits, peak[:, None], m, M, LOG_TINY)
        for r in tl.static_range(R):
            value, weight = state_columns(sums, state + m, m < M, d, r, D, R)
            a = mask_weight(mask, rows, there, r, R, MASKED)
            total += a[:, None] * tl.dot(feature, value, input_precision=PRECISION)
            weights += a * tl.sum(feature * weight[None, :], 1)
    inverse = inverse_of(weights)
    tl.store(
        out + (rows * H + h)[:, None] * D + d[None, :],
        total * inverse[:, None],
        mask=there[:, None] & (d < D)[None, :],
    )
    tl.store(normaliser + rows * H + h, weights, mask=there)


@triton.jit
def query_grads(
    q, grad, mask, w, sums, maximum, normaliser, grad_q, grad_mask, peaks, slopes, n, H, M,
    C: tl.constexpr, D: tl.constexpr, R: tl.constexpr, CP: tl.constexpr, DP: tl.constexpr, RP: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr,
    MASKED: tl.constexpr, LEAST: tl.constexpr, LOG_TINY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""The gradients of the queries of one block of nodes and of their mask weights, ``[N, H, R]``,
    and for :meth:`sums_grads` the largest logarithm and the gradient of the denominator of each."""
    head = tl.program_id(1)
    base, h = (head // H).to(tl.int64) * n, head % H
    c, d, ranks = tl.arange(0, CP), tl.arange(0, DP), tl.arange(0, RP)
    place = tl.program_id(0) * BN + tl.arange(0, BN)
    there, rows, state = place < n, base + place, head.to(tl.int64) * M
    x, g = (
        load_tile(q + h * C, rows, H * C, c, there, C),
        load_tile(grad + h * D, rows, H * D, d, there, D),
    )
    weights = tl.load(normaliser + rows * H + h, mask=there, other=0.0)
    inverse = inverse_of(weights)
    g *= inverse[:, None]
    peak = largest(x, w, maximum + state, c, M, C, BN, BM, LEAST, PRECISION)
    along, held, slope = (
        tl.zeros((BN, RP), tl.float32),
        tl.zeros((BN, RP), tl.float32),
        tl.zeros((BN,), tl.float32),
    )
    for first in range(0, M, BM):
        logits, _, m = bounded(x, w, maximum + state, c, first, M, C, BM, PRECISION)
        feature = exponentials(logits, peak[:, None], m, M, LOG_TINY)
        for r in tl.static_range(R):
            value, weight = state_columns(sums, state + m, m < M, d, r, D, R)
            part = tl.sum(feature * tl.dot(g, tl.trans(value), input_precision=PRECISION), 1)
            a = mask_weight(mask, rows, there, r, R, MASKED)
            slope -= a * part * inverse
            along += tl.where((ranks == r)[None, :], part[:, None], 0.0)
            held += tl.where(
                (ranks == r)[None, :], tl.sum(feature * weight[None, :], 1)[:, None], 0.0
            )
    total = tl.zeros((BN, CP), tl.float32)
    for first in range(0, M, BM):
        logits, tile, m = bounded(x, w, maximum + state, c, first, M, C, BM, PRECISION)
        feature = exponentials(logits, peak[:, None], m, M, LOG_TINY)
        grad_feature = tl.zeros((BN, BM), tl.float32)
        for r in tl.static_range(R):
            value, weight = state_columns(sums, state + m, m < M, d, r, D, R)
            a = mask_weight(mask, rows, there, r, R, MASKED)
            read_along = (
                tl.dot(g, tl.trans(value), input_precision=PRECISION)
                + slope[:, None] * weight[None, :]
            )
            grad_feature += a[:, None] * read_along
        total += tl.dot(feature * grad_feature, tile, input_precision=PRECISION)
    tl.store(
        grad_q + (rows * H + h)[:, None] * C + c[None, :],
        total,
        mask=there[:, None] & (c < C)[None, :],
    )
    tl.store(peaks + rows * H + h, peak, mask=there)
    tl.store(slopes + rows * H + h, slope, mask=there)
    if MASKED:
        place = (rows * H + h)[:, None] * R + ranks[None, :]
        tl.store(
            grad_mask + place,
            along + held * slope[:, None],
            mask=there[:, None] & (ranks < R)[None, :],
        )


@triton.jit
def sums_grads(
    q, grad, mask, w, maximum, normaliser, peaks, slopes, grad_sums, n, span, H, M,
    C: tl.constexpr, D: tl.constexpr, R: tl.constexpr, CP: tl.constexpr, DP: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr,
    MASKED: tl.constexpr, LOG_TINY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""The gradient of a state from the nodes of one span, under one mask weight, for one block of
    features."""
    part, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2) // R
    r = tl.program_id(2) % R
    base, h = (head // H).to(tl.int64) * n, head % H
    c, d = tl.arange(0, CP), tl.arange(0, DP)
    m = block * BM + tl.arange(0, BM)
    bound = tl.load(maximum + head.to(tl.int64) * M + m, mask=m < M, other=0.0)
    total, weights = tl.zeros((BM, DP), tl.float32), tl.zeros((BM,), tl.float32)
    last = tl.minimum((part + 1) * span, n)
    for start in range(part * span, last, BN):
        place = start + tl.arange(0, BN)
        there, rows = place < last, base + place
        x = load_tile(q + h * C, rows, H * C, c, there, C)
        logits = logits_of(x, w, c, block * BM, M, C, BM, PRECISION)[0] + bound[None, :]
        peak = tl.load(peaks + rows * H + h, mask=there, other=0.0)
        feature = exponentials(logits, peak[:, None], m, M, LOG_TINY)
        feature *= mask_weight(mask, rows, there, r, R, MASKED)[:, None]
        den = tl.load(normaliser + rows * H + h, mask=there, other=0.0)
        g = load_tile(grad + h * D, rows, H * D, d, there, D) * inverse_of(den)[:, None]
        total += tl.dot(tl.trans(feature), g, input_precision=PRECISION)
        weights += tl.sum(
            feature * tl.load(slopes + rows * H + h, mask=there, other=0.0)[:, None], 0
        )
    row = ((part * tl.num_programs(1) + head).to(tl.int64) * M + m) * (R * (D + 1))
    tl.store(
        grad_sums + row[:, None] + r * D + d[None, :],
        total,
        mask=(m < M)[:, None] & (d < D)[None, :],
    )
    tl.store(grad_sums + row + R * D + r, weights, mask=m < M)
