# N rows of C columns, n rows of a graph and head; BN rows and BC columns of a block. TINY is the
# smallest normal number of the dtype.
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from torch_geometric_lgt.functional._triton.blocks import INTERPRETED

ENTRIES = 1 << (14 if INTERPRETED else 11)  # of a block


@triton.jit
def block(N, C: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr):
    r"""Returns the rows ``[BN]`` of this program and which of them exist, then the positions
    ``[BN, BC]`` of their entries and which of these exist."""
    rows, columns = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN), tl.arange(0, BC)
    is_row = rows < N
    at = rows[:, None] * C + columns[None, :]
    return rows, is_row, at, is_row[:, None] & (columns < C)[None, :]


@triton.jit
def quotient(x, y):
    r"""Returns :obj:`x` / :obj:`y`, rounded to the nearest number. By default a quotient of numbers
    in single precision is not, and that of a number and itself may differ from 1."""
    return tl.div_rn(x, y) if x.dtype == tl.float32 else x / y


@triton.jit
def root(x):
    r"""Returns the square root, likewise."""
    return tl.sqrt_rn(x) if x.dtype == tl.float32 else tl.sqrt(x)


@triton.jit(do_not_specialize=['N'])
def unit_forward(
    x, unit, inverse, N,
    TINY: tl.constexpr, C: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    r"""Writes the rows of :obj:`x` ``[N, C]`` divided by their lengths to :obj:`unit`, and the
    inverse lengths to :obj:`inverse` ``[N]``. No square overflows or vanishes, because rows are
    divided by their largest entry first."""
    rows, is_row, at, is_inside = block(N, C, BN, BC)
    entries = tl.load(x + at, mask=is_inside, other=0.0)
    peak = tl.max(tl.abs(entries), 1)
    peak = tl.where(peak < TINY, 1.0, peak)
    entries = quotient(entries, peak[:, None])
    length = root(tl.sum(entries * entries, 1))
    is_zero = length < TINY
    length = tl.where(is_zero, 1.0, length)
    entries = tl.where(is_zero[:, None], 0.0, quotient(entries, length[:, None]))
    tl.store(unit + at, entries, mask=is_inside)
    tl.store(inverse + rows, tl.where(is_zero, 0.0, 1.0 / (length * peak)), mask=is_row)


@triton.jit(do_not_specialize=['N'])
def unit_backward(
    unit, inverse, grad, out, N, C: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    r"""Writes the gradient of the argument of :meth:`unit_forward` to :obj:`out` ``[N, C]`` from
    its results and the gradient :obj:`grad` of the first."""
    rows, is_row, at, is_inside = block(N, C, BN, BC)
    entries = tl.load(unit + at, mask=is_inside, other=0.0)
    grads = tl.load(grad + at, mask=is_inside, other=0.0)
    factor = tl.load(inverse + rows, mask=is_row, other=0.0)
    inner_product = tl.sum(entries * grads, 1)
    grads = (grads - entries * inner_product[:, None]) * factor[:, None]
    tl.store(out + at, grads, mask=is_inside)


@triton.jit(do_not_specialize=['N', 'n'])
def ratio_forward(
    numerator, added, denominator, out, inverse, least, N, n,
    HAS_ADDED: tl.constexpr, TINY: tl.constexpr,
    C: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    r"""Adds the row of :obj:`added` ``[N / n, C]`` to each row of :obj:`numerator` ``[N, C]``, if
    there is one. Writes the rows times the reciprocals of :obj:`denominator` ``[N]`` to :obj:`out`,
    and the reciprocals to :obj:`inverse`. They are 0 where the absolute value of a denominator is
    at most :obj:`least`, a number in single precision, or below :obj:`TINY`."""
    rows, is_row, at, is_inside = block(N, C, BN, BC)
    total = tl.load(denominator + rows, mask=is_row, other=0.0)
    is_zero = (tl.abs(total) <= least) | (tl.abs(total) < TINY)
    factor = tl.where(is_zero, 0.0, 1.0 / tl.where(is_zero, 1.0, total))
    entries = tl.load(numerator + at, mask=is_inside, other=0.0)
    if HAS_ADDED:
        columns = tl.arange(0, BC)
        where = (rows // n)[:, None] * C + columns[None, :]
        entries += tl.load(added + where, mask=is_inside, other=0.0)
        tl.store(numerator + at, entries, mask=is_inside)
    tl.store(out + at, entries * factor[:, None], mask=is_inside)
    tl.store(inverse + rows, factor, mask=is_row)


@triton.jit(do_not_specialize=['N'])
def ratio_backward(
    numerator, inverse, grad, grad_numerator, grad_denominator, N,
    C: tl.constexpr, BN: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    r"""Writes the gradients of numerators and denominators from the :obj:`numerator` that
    :meth:`ratio_forward` leaves, its second result and the gradient :obj:`grad` of its first."""
    rows, is_row, at, is_inside = block(N, C, BN, BC)
    factor = tl.load(inverse + rows, mask=is_row, other=0.0)
    grads = tl.load(grad + at, mask=is_inside, other=0.0)
    grads *= factor[:, None]
    products = tl.sum(grads * tl.load(numerator + at, mask=is_inside, other=0.0), 1)
    tl.store(grad_numerator + at, grads, mask=is_inside)
    tl.store(grad_denominator + rows, -products * factor, mask=is_row)


def unit_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    r"""Divides the rows of :obj:`x` ``[..., C]`` by their lengths. Returns the result and the
    inverse lengths ``[..., 1]``; both are 0 for rows without a normal number."""
    x = x.contiguous()
    unit, inverse = x.new_empty(x.shape), x.new_empty((*x.shape[:-1], 1))
    _launch(unit_forward, x, unit, inverse, TINY=_tiny(x))
    return unit, inverse


def unit_rows_grad(unit: Tensor, inverse: Tensor, grad: Tensor) -> Tensor:
    r"""Returns the gradient ``[..., C]`` of the argument of :meth:`unit_rows` from its results and
    the gradient :obj:`grad` of the first."""
    unit, grad = unit.contiguous(), grad.contiguous()
    out = unit.new_empty(unit.shape)
    _launch(unit_backward, unit, inverse.contiguous(), grad, out)
    return out


def ratio(
    numerator: Tensor, added: Tensor | None, denominator: Tensor, least: float
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Adds :obj:`added` ``[P, 1 or n, D]`` to :obj:`numerator` ``[P, n, D]``, if there is one, and
    divides by :obj:`denominator` ``[P, n, 1]``. Returns the result, the sum, which may have
    overwritten the numerator, and the reciprocals of the denominators. Result and reciprocals are 0
    where the absolute value of a denominator is at most :obj:`least`, or below the smallest normal
    number."""
    numerator, denominator = numerator.contiguous(), denominator.contiguous()
    out, inverse = torch.empty_like(numerator), torch.empty_like(denominator)
    others = (numerator if added is None else added.contiguous()), denominator, out, inverse
    nodes = 1 if added is None else numerator.size(1) // added.size(1)
    sizes = {'n': nodes, 'HAS_ADDED': added is not None, 'TINY': _tiny(out)}
    _launch(ratio_forward, numerator, *others, least, **sizes)
    return out, numerator, inverse


def ratio_grads(total: Tensor, inverse: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    r"""Returns the gradients of numerator and denominator of :meth:`ratio` from its last two
    results and the gradient :obj:`grad` of the first."""
    grads = torch.empty_like(total), torch.empty_like(inverse)
    _launch(ratio_backward, total, inverse, grad.contiguous(), *grads)
    return grads


def _tiny(x: Tensor) -> float:
    r"""Returns the smallest normal number of the dtype."""
    return torch.finfo(x.dtype).tiny


def _launch(kernel: Any, first: Tensor, *arguments: Tensor | float, **sizes: float) -> None:
    r"""Runs a kernel for the rows of its first argument ``[..., C]``."""
    num_columns = first.size(-1)
    if first.numel() > 0:
        num_rows, columns = first.numel() // num_columns, triton.next_power_of_2(num_columns)
        rows = max(1, ENTRIES // columns)
        with torch.cuda.device_of(first):
            kernel[(triton.cdiv(num_rows, rows),)](
                first, *arguments, num_rows, **sizes, C=num_columns, BN=rows, BC=columns
            )
