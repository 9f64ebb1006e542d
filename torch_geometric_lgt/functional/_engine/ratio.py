# P pairs of a graph and a head, n nodes of a graph, D channels of a value.
from typing import Any, cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional.numerics import inverse_of, without_cancellation
from torch_geometric_lgt.functional.tracing import is_transformed
from torch_geometric_lgt.functional.unit_rows import has_row_kernels, may_launch


def ratio(
    numerator: Tensor, added: Tensor | None, denominator: Tensor, least: Tensor | float
) -> Tensor:
    r"""Returns :obj:`numerator` ``[P, n, D]``, which may be overwritten, plus :obj:`added`
    ``[P, 1 or n, D]``, divided by :obj:`denominator` ``[P, n, 1]``. The result is 0 where the
    absolute value of a denominator is at most :obj:`least` or below the smallest normal number."""
    if has_row_kernels(numerator) and not is_transformed((added, denominator)):
        if isinstance(least, Tensor):
            denominator, least = without_cancellation(denominator, least), 0.0
        return cast(tuple[Tensor, ...], Ratio.apply(numerator, added, denominator, least))[0]
    numerator = numerator if added is None else numerator + added
    return numerator * inverse_of(denominator, least)


class Ratio(torch.autograd.Function):
    r"""Computes :meth:`ratio` by one Triton kernel, and its gradient by another. The gradient
    contains the sum in the numerator and the inverse denominators, which are outputs so that it has
    derivatives itself."""

    @staticmethod
    def forward(
        ctx: Any, numerator: Tensor, added: Tensor | None, denominator: Tensor, least: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        from torch_geometric_lgt.functional._triton import rows

        # the result is not saved, which the caller may change in place
        out, total, inverse = rows.ratio(numerator, added, denominator, least)
        total = total.view_as(total)
        ctx.save_for_backward(total, inverse)
        ctx.set_materialize_grads(False)
        ctx.added_nodes = 0 if added is None else added.size(1)
        return out, total, inverse

    @staticmethod
    def backward(
        ctx: Any, grad: Tensor | None, grad_total: Tensor | None, grad_inverse: Tensor | None
    ) -> tuple[Tensor, Tensor | None, Tensor, None]:
        from torch_geometric_lgt.functional._triton import rows

        total, inverse = ctx.saved_tensors
        grad = torch.zeros_like(total) if grad is None else grad
        if may_launch(grad):
            grad_numerator, grad_denominator = rows.ratio_grads(total, inverse, grad)
        else:
            grad_numerator = grad * inverse
            grad_denominator = -(grad_numerator * total).sum(-1, keepdim=True) * inverse
        if grad_inverse is not None:
            grad_denominator = grad_denominator - grad_inverse * inverse * inverse
        if grad_total is not None:
            grad_numerator = grad_numerator + grad_total
        grad_added = None
        if ctx.needs_input_grad[1]:
            is_shared = ctx.added_nodes < total.size(1)
            grad_added = grad_numerator.sum(1, keepdim=True) if is_shared else grad_numerator
        return grad_numerator, grad_added, grad_denominator, None
