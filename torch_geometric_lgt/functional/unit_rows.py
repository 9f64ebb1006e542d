# Rows of queries and keys, divided by their lengths.
from typing import Any, cast

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor
from torch.linalg import vector_norm

from torch_geometric_lgt.functional.numerics import has_kernels
from torch_geometric_lgt.functional.tracing import is_transformed, is_watched

FUSED_COLUMNS = 1024  # the most columns of a row that one program of a Triton kernel reads


def unit_rows(x: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    r"""Divides the rows of :obj:`x` ``[..., C]`` by their lengths. Returns the result and the
    inverse lengths ``[..., 1]``; both are 0 for rows of zeros. Lengths are computed in
    :obj:`dtype`, by default that of :obj:`x`.

    Autograd does not record what a Triton kernel computes on a GPU; see :meth:`to_unit_rows`.
    """
    if dtype is None and has_row_kernels(x):
        from torch_geometric_lgt.functional._triton import rows

        return rows.unit_rows(x)
    return unit_rows_formula(x, dtype)


def unit_rows_formula(x: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    r"""Computes the results of :meth:`unit_rows` by operations that autograd records."""
    length = vector_norm(x, dim=-1, keepdim=True, dtype=dtype).to(x.dtype)
    length = length.masked_fill(length == 0, torch.inf)
    inverse = length.reciprocal()
    if x.size(-1) == 1:  # x / length is exactly a sign
        return x / length, inverse
    return x * inverse, inverse


def unit_rows_grad(unit: Tensor, inverse: Tensor, grad: Tensor) -> Tensor:
    r"""Returns the gradient ``[..., C]`` of the argument of :meth:`unit_rows` from its results and
    the gradient :obj:`grad` of the first."""
    if has_row_kernels(grad) and may_launch(grad):
        from torch_geometric_lgt.functional._triton import rows

        return rows.unit_rows_grad(unit, inverse, grad)
    inner_product = (unit * grad).sum(-1, keepdim=True)
    return torch.addcmul(grad, unit, inner_product, value=-1).mul_(inverse)


def to_unit_rows(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    r"""Returns the first result of :meth:`unit_rows`, recorded by autograd. Where
    :meth:`torch.compile` traces the code, it joins the passes of the gradient, and forward mode and
    :mod:`torch.func` take single operations; rows are divided by their largest entry first, so that
    no product in it overflows."""
    if torch.compiler.is_compiling() or is_transformed((x,)):
        if x.size(-1) == 0:
            return x
        peak = x.detach().abs().amax(-1, keepdim=True)
        return unit_rows_formula(x / peak.masked_fill(peak == 0, 1), dtype)[0]
    if not (x.requires_grad and torch.is_grad_enabled()):
        return unit_rows(x, dtype)[0]
    return cast(tuple[Tensor, Tensor], UnitRows.apply(x, dtype))[0]


class UnitRows(torch.autograd.Function):
    r"""Returns the results of :meth:`unit_rows`. The gradient takes fewer passes than that of the
    single operations. It contains the inverse lengths, which are an output so that it has
    derivatives itself."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
        unit, inverse = unit_rows(x, dtype)
        ctx.save_for_backward(unit, inverse)
        ctx.set_materialize_grads(False)
        return unit, inverse

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, grad_inverse: Tensor | None
    ) -> tuple[Tensor | None, None]:
        unit, inverse = ctx.saved_tensors
        out = None if grad is None else unit_rows_grad(unit, inverse, grad)
        if grad_inverse is not None:
            change = -unit * (grad_inverse * inverse * inverse)
            out = change if out is None else out + change
        return out, None


def has_row_kernels(x: Tensor) -> bool:
    r"""Returns whether Triton kernels compute the rows of :obj:`x`: on their devices, in eager
    mode, for rows of at most :obj:`FUSED_COLUMNS` numbers in single or double precision."""
    is_row = 0 < x.size(-1) <= FUSED_COLUMNS and x.dtype in (torch.float, torch.double)
    return is_row and has_kernels(x) and not (is_watched() or is_transformed((x,)))


def may_launch(grad: Tensor) -> bool:
    r"""Returns whether a Triton kernel may compute a gradient from :obj:`grad`. It may not where
    autograd records the computation, nor for a batch of gradients (``is_grads_batched=True``)."""
    return not torch.is_grad_enabled() and not is_legacy_batchedtensor(grad)
