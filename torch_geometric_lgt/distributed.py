from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

__all__ = [
    'all_reduce_max',
    'all_reduce_moments',
    'all_reduce_sum',
]


class _Sum(torch.autograd.Function):
    r"""Sums a tensor over the processes of :obj:`group`, and in backward the gradient over the same
    processes."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, group: dist.ProcessGroup | None) -> Tensor:
        ctx.group = group
        total = value.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, dist.ReduceOp.SUM, group)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return cast(Tensor, _Sum.apply(grad, ctx.group)), None


def all_reduce_sum(value: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    r"""Sums a tensor over the processes of a group, differentiably, and returns a new tensor.

    In backward, the gradients of all processes are summed, too: this is the gradient of the sum of
    all processes' losses. Every process must take part, in forward and in backward, in the same
    order.

    Args:
        value (torch.Tensor): The tensor of this process. All processes give the same shape and
            dtype; others that take as many bytes give wrong numbers without an error.
        group (ProcessGroup, optional): The processes. (default: :obj:`None`, all)

    Returns:
        The sum, the same in all processes.

    Raises:
        TypeError: If :obj:`group` is no group that has this process.
        ValueError: If :mod:`torch.distributed` is not initialised.

    Example:
        >>> import torch
        >>> import torch.distributed as dist
        >>> from torch_geometric_lgt.distributed import all_reduce_sum
        >>> dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
        >>> x = torch.tensor([1.0, 2.0], requires_grad=True)
        >>> all_reduce_sum(x).sum().backward()
        >>> x.grad
        tensor([1., 1.])
        >>> dist.destroy_process_group()
    """
    check_group(group)
    return cast(Tensor, _Sum.apply(value, group))


def all_reduce_max(value: Tensor, group: dist.ProcessGroup | None = None) -> Tensor:
    r"""Computes the elementwise maximum over the processes of a group, without gradient.

    Args:
        value (torch.Tensor): The tensor of this process. All processes give the same shape and
            dtype; others that take as many bytes give wrong numbers without an error.
        group (ProcessGroup, optional): The processes. (default: :obj:`None`, all)

    Returns:
        The maximum, the same in all processes.

    Raises:
        TypeError: If :obj:`group` is no group that has this process.
        ValueError: If :mod:`torch.distributed` is not initialised.

    Example:
        >>> import torch
        >>> import torch.distributed as dist
        >>> from torch_geometric_lgt.distributed import all_reduce_max
        >>> dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
        >>> all_reduce_max(torch.tensor([1.0, 2.0], requires_grad=True))
        tensor([1., 2.])
        >>> dist.destroy_process_group()
    """
    check_group(group)
    top = value.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(top, dist.ReduceOp.MAX, group)
    return top


def all_reduce_moments(
    x: Tensor, group: dist.ProcessGroup | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Computes the number, the mean and the biased variance of the rows of all processes,
    differentiably.

    In backward, :obj:`x` gets the gradient of the sum of all processes' losses, as in
    :meth:`all_reduce_sum`. Every process must take part, also one without rows, in forward and in
    backward, in the same order. Forward calls all-reduce twice, and so does backward.

    Args:
        x (torch.Tensor): The rows of this process, ``[N, D]``. :math:`N` may differ between
            processes.
        group (ProcessGroup, optional): The processes. (default: :obj:`None`, all)

    Returns:
        The number of rows of all processes (int64), the mean ``[D]``, and the mean ``[D]`` of the
        squared deviations from the mean. If no process has rows, both means are 0.

    Raises:
        TypeError: If :obj:`group` is no group that has this process.
        ValueError: If :mod:`torch.distributed` is not initialised.

    Example:
        >>> import torch
        >>> import torch.distributed as dist
        >>> from torch_geometric_lgt.distributed import all_reduce_moments
        >>> dist.init_process_group('gloo', store=dist.HashStore(), rank=0, world_size=1)
        >>> all_reduce_moments(torch.tensor([[1.0, 2.0], [3.0, 6.0]]))
        (tensor(2), tensor([2., 4.]), tensor([1., 4.]))
        >>> dist.destroy_process_group()
    """
    dtype, x = x.dtype, x.to(torch.promote_types(x.dtype, torch.float32))
    rows = count_parts(torch.tensor(x.size(0), device=x.device), x.dtype)
    total, rows = all_reduce_sum(torch.cat([x.sum(0), rows]), group).split([x.size(1), 2])
    count = count_from_parts(rows)
    mean = total / count.clamp(min=1)
    variance = all_reduce_sum((x - mean).square().sum(0), group) / count.clamp(min=1)
    dtype = dtype if dtype.is_floating_point else mean.dtype
    return count, mean.to(dtype), variance.to(dtype)


def check_group(group: Any, argument: str = 'group') -> None:
    r"""Raises a TypeError, which calls :obj:`group` by the name :obj:`argument`, if it is a text or
    a number. A number is what :meth:`torch.distributed.new_group` returns in a process outside of
    the new group, and PyTorch then adds up nothing, with a warning."""
    if isinstance(group, (str, int)):
        raise TypeError(
            f"'{argument}' must be a group, such as dist.group.WORLD, that has this process (got "
            f'{group!r}); dist.new_group returns a number in the other processes'
        )


def count_parts(count: Tensor, dtype: torch.dtype) -> Tensor:
    r"""Splits whole numbers into two parts ``[2, ...]``, which a sum in a floating-point dtype
    keeps exact up to a total of :math:`2^{36}`."""
    return torch.stack([count // 4096, count % 4096]).to(dtype)


def count_from_parts(parts: Tensor) -> Tensor:
    r"""Computes whole numbers (int64) from the sums of their two parts ``[2, ...]``."""
    high, low = parts.detach().round().long()
    return high * 4096 + low
