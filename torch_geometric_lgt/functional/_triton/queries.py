# A program serves one head of one graph; all sums are in float32. CP, DP and RP are sizes padded to
# a power of 2, BN and BM nodes and features of a block, BK channels that are read at a time; w is
# the projection.
import triton
import triton.language as tl

from torch_geometric_lgt.functional._triton.tiles import (
    bounded,
    column,
    exponentials,
    inverse_of,
    load_tile,
    mask_weight,
    products,
    raised,
)


@triton.jit
def read(
    q, mask, w, sums, maximum, out, denominators, n, H, M,
    C: tl.constexpr, D: tl.constexpr, R: tl.constexpr, CP: tl.constexpr, DP: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    MASKED: tl.constexpr, LEAST: tl.constexpr, LOG_TINY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""Writes the outputs and denominators of the queries of one block of nodes.

    Inputs: :obj:`q` ``[N, H, C]``, :obj:`mask` ``[N, R]``, :obj:`w` ``[M, C]``, :obj:`sums`
    ``[G, H, M, W]`` and :obj:`maximum` ``[G, H, M]``. Results: :obj:`out` ``[N, H, D]`` and
    :obj:`denominators` ``[N, H]``.
    """
    head = tl.program_id(1)
    base, h = (head // H).to(tl.int64) * n, head % H
    d = tl.arange(0, DP)
    position = tl.program_id(0) * BN + tl.arange(0, BN)
    is_node, rows, state = position < n, base + position, head.to(tl.int64) * M
    row_maximum = tl.full((BN,), LEAST, tl.float32)
    numerator, denominator = tl.zeros((BN, DP), tl.float32), tl.zeros((BN,), tl.float32)
    for first in range(0, M, BM):
        m = first + tl.arange(0, BM)
        logits = bounded(
            q + h * C, rows, H * C, is_node, w, maximum + state, m, M, C, CP, BN, BM, BK, PRECISION
        )  # fmt: skip
        row_maximum, rescale = raised(row_maximum, logits, m, M, LEAST)
        feature = exponentials(logits, row_maximum[:, None], m, M, LOG_TINY)
        numerator, denominator = numerator * rescale[:, None], denominator * rescale
        row = (state + m) * (R * (D + 1))
        for r in range(R):
            z = tl.load(sums + row + R * D + r, mask=m < M, other=0.0)
            weighed = feature * mask_weight(mask, rows, is_node, r, R, MASKED)[:, None]
            denominator += tl.sum(weighed * z[None, :], 1)
            s = load_tile(sums + r * D, row, 1, d, m < M, D)
            numerator = tl.dot(weighed, s, numerator, input_precision=PRECISION)
    value = numerator * inverse_of(denominator)[:, None]
    is_value = is_node[:, None] & (d < D)[None, :]
    tl.store(out + (rows * H + h)[:, None] * D + d[None, :], value, mask=is_value)
    tl.store(denominators + rows * H + h, denominator, mask=is_node)


@triton.jit
def query_grads(
    q, grad_out, mask, w, sums, maximum, denominators,
    grad_q, grad_mask, row_maxima, grad_denominators, n, H, M,
    C: tl.constexpr, D: tl.constexpr, R: tl.constexpr, CP: tl.constexpr, DP: tl.constexpr,
    RP: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    MASKED: tl.constexpr, LEAST: tl.constexpr, LOG_TINY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""Writes the gradients of the queries and mask weights of one block of nodes.

    Inputs are as in :meth:`read` with its denominators and :obj:`grad_out` ``[N, H, D]``. Results:
    :obj:`grad_q` ``[N, H, C]``, :obj:`grad_mask` ``[N, H, R]``, and for :meth:`sums_grads` the
    largest logarithm of each query and the gradient of its denominator, ``[N, H]``.
    """
    head = tl.program_id(1)
    base, h = (head // H).to(tl.int64) * n, head % H
    c, ranks = tl.arange(0, CP), tl.arange(0, RP)
    position = tl.program_id(0) * BN + tl.arange(0, BN)
    is_node, rows, state = position < n, base + position, head.to(tl.int64) * M
    inverse = inverse_of(tl.load(denominators + rows * H + h, mask=is_node, other=0.0))
    row_maximum = tl.full((BN,), LEAST, tl.float32)
    # the gradient of a_r is a part from the numerator and one from the denominator
    grad_a, z_products = tl.zeros((BN, RP), tl.float32), tl.zeros((BN, RP), tl.float32)
    grad_denominator = tl.zeros((BN,), tl.float32)
    for first in range(0, M, BM):
        m = first + tl.arange(0, BM)
        logits = bounded(
            q + h * C, rows, H * C, is_node, w, maximum + state, m, M, C, CP, BN, BM, BK, PRECISION
        )  # fmt: skip
        row_maximum, rescale = raised(row_maximum, logits, m, M, LEAST)
        feature = exponentials(logits, row_maximum[:, None], m, M, LOG_TINY)
        grad_a, z_products = grad_a * rescale[:, None], z_products * rescale[:, None]
        grad_denominator *= rescale
        row = (state + m) * (R * (D + 1))
        for r in range(R):
            product = products(
                grad_out + h * D, rows, H * D, is_node, sums + r * D, row, 1, m < M,
                D, DP, BN, BM, BK, PRECISION,
            )[0]  # fmt: skip
            grad_a_r = tl.sum(feature * product, 1) * inverse
            z = tl.load(sums + row + R * D + r, mask=m < M, other=0.0)
            a = mask_weight(mask, rows, is_node, r, R, MASKED)
            grad_denominator -= a * grad_a_r * inverse
            grad_a += column(grad_a_r, ranks, r)
            z_products += column(tl.sum(feature * z[None, :], 1), ranks, r)
    grad_x = tl.zeros((BN, CP), tl.float32)
    for first in range(0, M, BM):
        m = first + tl.arange(0, BM)
        logits = bounded(
            q + h * C, rows, H * C, is_node, w, maximum + state, m, M, C, CP, BN, BM, BK, PRECISION
        )  # fmt: skip
        feature = exponentials(logits, row_maximum[:, None], m, M, LOG_TINY)
        row = (state + m) * (R * (D + 1))
        grad_feature = tl.zeros((BN, BM), tl.float32)
        for r in range(R):
            product = products(
                grad_out + h * D, rows, H * D, is_node, sums + r * D, row, 1, m < M,
                D, DP, BN, BM, BK, PRECISION,
            )[0]  # fmt: skip
            z = tl.load(sums + row + R * D + r, mask=m < M, other=0.0)
            product = product * inverse[:, None] + grad_denominator[:, None] * z[None, :]
            grad_feature += mask_weight(mask, rows, is_node, r, R, MASKED)[:, None] * product
        tile = load_tile(w, m, C, c, m < M, C)
        grad_x = tl.dot(feature * grad_feature, tile, grad_x, input_precision=PRECISION)
    head_rows = (rows * H + h)[:, None]
    is_query = is_node[:, None] & (c < C)[None, :]
    tl.store(grad_q + head_rows * C + c[None, :], grad_x, mask=is_query)
    tl.store(row_maxima + rows * H + h, row_maximum, mask=is_node)
    tl.store(grad_denominators + rows * H + h, grad_denominator, mask=is_node)
    if MASKED:
        grad_a += z_products * grad_denominator[:, None]
        is_mask = is_node[:, None] & (ranks < R)[None, :]
        tl.store(grad_mask + head_rows * R + ranks[None, :], grad_a, mask=is_mask)


@triton.jit
def sums_grads(
    q, grad_out, mask, w, maximum, denominators, row_maxima, grad_denominators,
    grad_sums, n, span, H, M,
    C: tl.constexpr, D: tl.constexpr, R: tl.constexpr, CP: tl.constexpr, DP: tl.constexpr,
    BN: tl.constexpr, BM: tl.constexpr, BK: tl.constexpr,
    MASKED: tl.constexpr, LOG_TINY: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    r"""Writes the part of one span of nodes to the gradient of the sums, for one block of features
    and one mask weight.

    Inputs are as in :meth:`query_grads` with its last two results. Result for each span:
    :obj:`grad_sums` ``[G, H, M, W]``.
    """
    part, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2) // R
    r = tl.program_id(2) % R
    base, h = (head // H).to(tl.int64) * n, head % H
    d = tl.arange(0, DP)
    m = block * BM + tl.arange(0, BM)
    grad_s, grad_z = tl.zeros((BM, DP), tl.float32), tl.zeros((BM,), tl.float32)
    last = tl.minimum((part + 1) * span, n)
    for start in range(part * span, last, BN):
        position = start + tl.arange(0, BN)
        is_node, rows = position < last, base + position
        logits = bounded(
            q + h * C, rows, H * C, is_node, w, maximum + head.to(tl.int64) * M, m, M,
            C, CP, BN, BM, BK, PRECISION,
        )  # fmt: skip
        row_maximum = tl.load(row_maxima + rows * H + h, mask=is_node, other=0.0)
        feature = exponentials(logits, row_maximum[:, None], m, M, LOG_TINY)
        feature *= mask_weight(mask, rows, is_node, r, R, MASKED)[:, None]
        inverse = inverse_of(tl.load(denominators + rows * H + h, mask=is_node, other=0.0))
        grad_numerator = load_tile(grad_out + h * D, rows, H * D, d, is_node, D)
        grad_denominator = tl.load(grad_denominators + rows * H + h, mask=is_node, other=0.0)
        grad_z += tl.sum(feature * grad_denominator[:, None], 0)
        weighed = tl.trans(feature * inverse[:, None])
        grad_s = tl.dot(weighed, grad_numerator, grad_s, input_precision=PRECISION)
    row = ((part * tl.num_programs(1) + head).to(tl.int64) * M + m) * (R * (D + 1))
    is_inside = (m < M)[:, None] & (d < D)[None, :]
    tl.store(grad_sums + row[:, None] + r * D + d[None, :], grad_s, mask=is_inside)
    tl.store(grad_sums + row + R * D + r, grad_z, mask=m < M)
