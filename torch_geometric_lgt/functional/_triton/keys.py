# A program serves one head of one graph; all sums are in float32. CP, DP and RP are sizes padded to
# a power of 2, BN and BM nodes and features of a block, BK channels that are read at a time; w is
# the projection. What does not change in a loop is computed in each step: outside of the loop it
# would take registers that the sums need.
import triton
import triton.language as tl

from torch_geometric_lgt.functional._triton.tiles import (
    column,
    exponentials,
    load_tile,
    mask_weight,
    products,
)


@triton.jit
def build(
    k, v, mask, w, sums, maximum, squares, n, span, H, M,
    C: tl.constexpr, D: tl.constexpr, R: tl.constexpr, CP: tl.constexpr, DP: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    MASKED: tl.constexpr, LEAST: tl.constexpr, LOG_TINY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""Writes the part of one span of nodes to the sums, for one block of features and one mask
    weight.

    The sums are divided by the exponential of the largest log-feature of the span. :obj:`k`
    ``[N, H, C]``, :obj:`v` ``[N, H, D]``, :obj:`mask` ``[N, R]``, :obj:`w` ``[M, C]``; results for
    each span: :obj:`sums` ``[G, H, M, W]``, :obj:`maximum` ``[G, H, M]`` and :obj:`squares`
    ``[G, H]``.
    """
    part, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2) // R
    r = tl.program_id(2) % R
    base, h = (head // H).to(tl.int64) * n, head % H
    d, m = tl.arange(0, DP), block * BM + tl.arange(0, BM)
    s, z = tl.zeros((BM, DP), tl.float32), tl.zeros((BM,), tl.float32)
    c_m = tl.full((BM,), LEAST, tl.float32)
    squared = 0.0
    last = tl.minimum((part + 1) * span, n)
    for start in tl.range(part * span, last, BN, disable_licm=True):
        position = start + tl.arange(0, BN)
        is_node, rows = position < last, base + position
        product, square = products(
            k + h * C, rows, H * C, is_node, w, m, C, m < M, C, CP, BN, BM, BK, PRECISION
        )  # fmt: skip
        squared += tl.sum(square, 0)
        logits = product - 0.5 * square[:, None]
        new_c_m = tl.maximum(c_m, tl.max(tl.where(is_node[:, None], logits, LEAST), 0))
        feature = exponentials(logits, new_c_m[None, :], m, M, LOG_TINY)
        feature *= mask_weight(mask, rows, is_node, r, R, MASKED)[:, None]
        rescale = tl.exp(c_m - new_c_m)
        value = load_tile(v + h * D, rows, H * D, d, is_node, D)
        s = tl.dot(tl.trans(feature), value, s * rescale[:, None], input_precision=PRECISION)
        z = z * rescale + tl.sum(feature, 0)
        c_m = new_c_m
    position = (part * tl.num_programs(1) + head).to(tl.int64)
    row = (position * M + m) * (R * (D + 1))
    is_inside = (m < M)[:, None] & (d < D)[None, :]
    tl.store(sums + row[:, None] + r * D + d[None, :], s, mask=is_inside)
    tl.store(sums + row + R * D + r, z, mask=m < M)
    if r == 0:
        tl.store(maximum + position * M + m, c_m, mask=m < M)
        if block == 0:
            tl.store(squares + position, squared)


@triton.jit
def key_grads(
    k, v, mask, w, maximum, grad_sums, grad_k, grad_v, grad_mask, n, H, M,
    C: tl.constexpr, D: tl.constexpr, R: tl.constexpr, CP: tl.constexpr, DP: tl.constexpr,
    RP: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    MASKED: tl.constexpr, LOG_TINY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""Writes the gradients of the keys, values and mask weights of one block of nodes.

    Values come first and keys second, each with features of its own: sums for both would not fit
    the registers.

    Inputs are as in :meth:`build`, with :obj:`maximum` ``[G, H, M]`` and :obj:`grad_sums`
    ``[G, H, M, W]``. Results: :obj:`grad_k` ``[N, H, C]``, :obj:`grad_v` ``[N, H, D]`` and
    :obj:`grad_mask` ``[N, H, R]``.
    """
    head = tl.program_id(1)
    base, h = (head // H).to(tl.int64) * n, head % H
    c, d, ranks = tl.arange(0, CP), tl.arange(0, DP), tl.arange(0, RP)
    position = tl.program_id(0) * BN + tl.arange(0, BN)
    is_node, rows, state = position < n, base + position, head.to(tl.int64) * M
    head_rows = (rows * H + h)[:, None]
    grad_value = tl.zeros((BN, DP), tl.float32)
    for first in tl.range(0, M, BM, disable_licm=True):
        m = first + tl.arange(0, BM)
        feature = key_features(
            k + h * C, rows, H * C, is_node, w, maximum + state, m, M,
            C, CP, BN, BM, BK, LOG_TINY, PRECISION,
        )  # fmt: skip
        for r in range(R):
            grad_s = load_tile(grad_sums + r * D, (state + m) * (R * (D + 1)), 1, d, m < M, D)
            b = mask_weight(mask, rows, is_node, r, R, MASKED)
            grad_value = tl.dot(feature * b[:, None], grad_s, grad_value, input_precision=PRECISION)
    is_value = is_node[:, None] & (d < D)[None, :]
    tl.store(grad_v + head_rows * D + d[None, :], grad_value, mask=is_value)
    grad_x, totals = tl.zeros((BN, CP), tl.float32), tl.zeros((BN,), tl.float32)
    grad_b = tl.zeros((BN, RP), tl.float32)
    for first in tl.range(0, M, BM, disable_licm=True):
        m = first + tl.arange(0, BM)
        feature = key_features(
            k + h * C, rows, H * C, is_node, w, maximum + state, m, M,
            C, CP, BN, BM, BK, LOG_TINY, PRECISION,
        )  # fmt: skip
        row = (state + m) * (R * (D + 1))
        grad_feature = tl.zeros((BN, BM), tl.float32)
        for r in range(R):
            product = products(
                v + h * D, rows, H * D, is_node, grad_sums + r * D, row, 1, m < M,
                D, DP, BN, BM, BK, PRECISION,
            )[0]  # fmt: skip
            product += tl.load(grad_sums + row + R * D + r, mask=m < M, other=0.0)[None, :]
            grad_b += column(tl.sum(feature * product, 1), ranks, r)
            grad_feature += mask_weight(mask, rows, is_node, r, R, MASKED)[:, None] * product
        grad_log = feature * grad_feature
        totals += tl.sum(grad_log, 1)
        tile = load_tile(w, m, C, c, m < M, C)
        grad_x = tl.dot(grad_log, tile, grad_x, input_precision=PRECISION)
    grad_x -= totals[:, None] * load_tile(k + h * C, rows, H * C, c, is_node, C)
    is_key = is_node[:, None] & (c < C)[None, :]
    tl.store(grad_k + head_rows * C + c[None, :], grad_x, mask=is_key)
    if MASKED:
        is_mask = is_node[:, None] & (ranks < R)[None, :]
        tl.store(grad_mask + head_rows * R + ranks[None, :], grad_b, mask=is_mask)


@triton.jit
def key_features(
    k, rows, stride, is_node, w, maximum, m, M,
    C: tl.constexpr, CP: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    LOG_TINY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""Returns the features :obj:`m` ``[BN, BM]`` of the keys :obj:`k`, divided by the exponential
    of the :obj:`maximum` ``[M]`` of their logarithms."""
    product, square = products(
        k, rows, stride, is_node, w, m, C, m < M, C, CP, BN, BM, BK, PRECISION
    )  # fmt: skip
    c_m = tl.load(maximum + m, mask=m < M, other=0.0)
    return exponentials(product - 0.5 * square[:, None], c_m[None, :], m, M, LOG_TINY)
