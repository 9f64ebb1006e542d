# G graphs of n nodes each, H heads, C channels of a key, D of a value, M features, R rank, W = R *
# (D + 1). A program serves one head of one graph; all sums are in float32; CP, DP, RP are sizes
# padded to a power of 2, BN and BM nodes and features of a block.
# and features of a block.
import triton
import triton.language as tl

from torch_geometric_lgt.functional._engine.triton.tiles import (
    exponentials,
    load_tile,
    logits_of,
    mask_weight,
    state_columns,
)


@triton.jit
def build(
    k, v, mask, w, sums, maximum, squares, n, span, H, M,
    C: tl.constexpr, D: tl.constexpr, R: tl.constexpr, CP: tl.constexpr, DP: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr,
    MASKED: tl.constexpr, LEAST: tl.constexpr, LOG_TINY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""The sums of the nodes of one span under one mask weight, for one block of features, divided
    by the exponential of their maximum."""
    part, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2) // R
    r = tl.program_id(2) % R
    base, h = (head // H).to(tl.int64) * n, head % H
    c, d, m = tl.arange(0, CP), tl.arange(0, DP), block * BM + tl.arange(0, BM)
    total, weights, top = (
        tl.zeros((BM, DP), tl.float32),
        tl.zeros((BM,), tl.float32),
        tl.full((BM,), LEAST, tl.float32),
    )
    squared = 0.0
    last = tl.minimum((part + 1) * span, n)
    for start in range(part * span, last, BN):
        place = start + tl.arange(0, BN)
        there, rows = place < last, base + place
        x = load_tile(k + h * C, rows, H * C, c, there, C)
        square = tl.sum(x * x, 1)
        squared += tl.sum(square, 0)
        logits = logits_of(x, w, c, block * BM, M, C, BM, PRECISION)[0] - 0.5 * square[:, None]
        new = tl.maximum(top, tl.max(tl.where(there[:, None], logits, LEAST), 0))
        feature = exponentials(logits, new[None, :], m, M, LOG_TINY)
        feature *= mask_weight(mask, rows, there, r, R, MASKED)[:, None]
        shrink = tl.exp(top - new)
        value = load_tile(v + h * D, rows, H * D, d, there, D)
        total = total * shrink[:, None] + tl.dot(
            tl.trans(feature), value, input_precision=PRECISION
        )
        weights = weights * shrink + tl.sum(feature, 0)
        top = new
    place = (part * tl.num_programs(1) + head).to(tl.int64)
    row = (place * M + m) * (R * (D + 1))
    tl.store(
        sums + row[:, None] + r * D + d[None, :], total, mask=(m < M)[:, None] & (d < D)[None, :]
    )
    tl.store(sums + row + R * D + r, weights, mask=m < M)
    if r == 0:
        tl.store(maximum + place * M + m, top, mask=m < M)
        if block == 0:
            tl.store(squares + place, squared)


@triton.jit
def key_grads(
    k, v, mask, w, maximum, grad_sums, grad_k, grad_v, grad_mask, n, H, M,
    C: tl.constexpr, D: tl.constexpr, R: tl.constexpr, CP: tl.constexpr, DP: tl.constexpr, RP: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr,
    MASKED: tl.constexpr, LOG_TINY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""The gradients of the keys and values of one block of nodes and of their mask weights, ``[N,
    H, R]``."""
    head = tl.program_id(1)
    base, h = (head // H).to(tl.int64) * n, head % H
    c, d, ranks = tl.arange(0, CP), tl.arange(0, DP), tl.arange(0, RP)
    place = tl.program_id(0) * BN + tl.arange(0, BN)
    there, rows, state = place < n, base + place, head.to(tl.int64) * M
    x, value = (
        load_tile(k + h * C, rows, H * C, c, there, C),
        load_tile(v + h * D, rows, H * D, d, there, D),
    )
    square = tl.sum(x * x, 1)
    total, total_v, along = (
        tl.zeros((BN, CP), tl.float32),
        tl.zeros((BN, DP), tl.float32),
        tl.zeros((BN, RP), tl.float32),
    )
    for first in range(0, M, BM):
        logits, tile, m = logits_of(x, w, c, first, M, C, BM, PRECISION)
        bound = tl.load(maximum + state + m, mask=m < M, other=0.0)
        feature = exponentials(logits - 0.5 * square[:, None], bound[None, :], m, M, LOG_TINY)
        grad_feature = tl.zeros((BN, BM), tl.float32)
        for r in tl.static_range(R):
            grad_value, grad_weight = state_columns(grad_sums, state + m, m < M, d, r, D, R)
            b = mask_weight(mask, rows, there, r, R, MASKED)
            column = tl.dot(feature, grad_value, input_precision=PRECISION)
            total_v += b[:, None] * column
            held = tl.sum(column * value, 1) + tl.sum(feature * grad_weight[None, :], 1)
            along += tl.where((ranks == r)[None, :], held[:, None], 0.0)
            grad_feature += b[:, None] * (
                tl.dot(value, tl.trans(grad_value), input_precision=PRECISION)
                + grad_weight[None, :]
            )
        grad_log = feature * grad_feature
        total += (
            tl.dot(grad_log, tile, input_precision=PRECISION) - tl.sum(grad_log, 1)[:, None] * x
        )
    tl.store(
        grad_k + (rows * H + h)[:, None] * C + c[None, :],
        total,
        mask=there[:, None] & (c < C)[None, :],
    )
    tl.store(
        grad_v + (rows * H + h)[:, None] * D + d[None, :],
        total_v,
        mask=there[:, None] & (d < D)[None, :],
    )
    if MASKED:
        place = (rows * H + h)[:, None] * R + ranks[None, :]
        tl.store(grad_mask + place, along, mask=there[:, None] & (ranks < R)[None, :])
