from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        ctx.group = group
        total = value.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, dist.ReduceOp.SUM, group)
        return total

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        grad = grad.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(grad, dist.ReduceOp.SUM, ctx.group)
        return grad, None


def all_reduce_sum(value: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    r"""The sum over the processes of :obj:`group`, differentiable: the gradient of the sum of all processes' losses.

    Every process must take part, in forward and in backward, in the same order.
    """
    return cast(Tensor, _Sum.apply(value, group))


def all_reduce_max(value: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    r"""The maximum over the processes of :obj:`group`, without gradient."""
    top = value.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(top, dist.ReduceOp.MAX, group)
    return top
