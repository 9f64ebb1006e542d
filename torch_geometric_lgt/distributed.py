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
    r"""The sum over the processes of :obj:`group`, differentiable: the gradient of the sum of all
    processes' losses.

    Every process must take part, in forward and in backward, in the same order.
    """
    return cast(Tensor, _Sum.apply(value, group))


def all_reduce_max(value: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    r"""The maximum over the processes of :obj:`group`, without gradient."""
    top = value.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(top, dist.ReduceOp.MAX, group)
    return top


def all_reduce_moments(
    x: Tensor, group: dist.ProcessGroup | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Returns the number of rows ``[N, D]`` of all processes of :obj:`group`, their mean and the
    mean of their squared deviations from it, ``[D]`` each, differentiable, by two sums. Without
    rows both are 0.

    Every process must take part, one without rows included, in forward and in backward, in the same
    order.
    """
    # whole numbers up to 2^36 pass a float32 sum exactly in two parts
    rows = x.new_tensor([x.size(0) // 4096, x.size(0) % 4096])
    total, high, low = all_reduce_sum(torch.cat([x.sum(0), rows]), group).split([x.size(1), 1, 1])
    count = (high.detach().round().long() * 4096 + low.detach().round().long()).squeeze(0)
    mean = total / count.clamp(min=1)
    return count, mean, all_reduce_sum((x - mean).square().sum(0), group) / count.clamp(min=1)
