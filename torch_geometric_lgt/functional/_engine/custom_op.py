# N nodes, B graphs, H heads, F input width, C channels of a key, D of a value, M features, R rank of the mask, W = R * (D + 1), K samples.
import functools
from collections.abc import Callable
from typing import Any, NoReturn, cast

import torch
from torch import Tensor
from torch.autograd.forward_ad import unpack_dual
from torch.library import custom_op
from torch.utils.flop_counter import register_flop_formula


def operator(name: str, arguments: str, returns: str) -> Callable:
    make = custom_op(f'torch_geometric_lgt::{name}', mutates_args=(), schema=f'({arguments}) -> {returns}')

    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def run(*args):
            first = next(value for value in args if isinstance(value, Tensor))
            with torch.autocast(first.device.type, enabled=False), torch.cuda.device_of(first):
                return function(*args)

        return make(run)

    return decorate


def call(operator: Callable, *args):
    r"""Runs an operator with automatic differentiation."""
    reverse_mode_only(*args)
    return operator(*args)


def reverse_mode_only(*args) -> None:
    r"""Refuses what would drop a tangent.

    Raises:
        NotImplementedError: Under forward mode, :func:`torch.vmap` and the other :mod:`torch.func` transforms.
    """
    if not torch.compiler.is_compiling():
        tensors = [value for value in args if isinstance(value, Tensor)]
        if torch._C._are_functorch_transforms_active() or any(unpack_dual(value).tangent is not None for value in tensors):
            raise NotImplementedError('attention states have derivatives in reverse mode only: use autograd, no vmap or torch.func')


def raise_second_order(name: str) -> NoReturn:
    r"""Raises a RuntimeError: the operator :obj:`name` has first derivatives only."""
    raise RuntimeError(
        f'{name!r} of torch_geometric_lgt has first derivatives only, no gradients of gradients (create_graph=True). Where a loss needs '
        'them, as gradient penalties and forces do, write the attention with torch_geometric_lgt.testing.dense, whose formulas autograd '
        'differentiates twice, or take finite differences of gradients in float64'
    )


class FirstOrder(torch.autograd.Function):
    r"""Passes gradients through, and refuses gradients of them, whatever they depend on."""

    @staticmethod
    def forward(ctx: Any, name: str, _anchor: Tensor, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        ctx.name = name
        return tuple(None if grad is None else grad.view_as(grad) for grad in grads)

    @staticmethod
    def backward(ctx: Any, *_grads: Tensor | None) -> NoReturn:
        raise_second_order(ctx.name)


def first_order(name: str) -> Callable:
    r"""Decorates the backward pass of an autograd function :obj:`name` that cannot be differentiated."""

    def decorate(backward: Callable) -> Callable:
        @functools.wraps(backward)
        def run(ctx, *grads):
            with torch.no_grad():
                found = backward(ctx, *grads)
            if not torch.is_grad_enabled():
                return found
            return FirstOrder.apply(name, torch.empty(0, requires_grad=True), *found)

        return run

    return decorate


def given(grads: list[Tensor | None], like: Tensor) -> list[Tensor]:
    r"""An operator returns no :obj:`None`: an empty tensor stands for it."""
    return [like.new_empty(0) if grad is None else grad for grad in grads]


def differentiable(
    forward: Callable, backward: Callable, inputs: tuple[int, ...], outputs: tuple[int, ...], saved: tuple[int, ...]
) -> None:
    r"""Registers :obj:`backward`: from the gradients of :obj:`outputs`, the outputs :obj:`saved` and all arguments to the gradients of the
    arguments :obj:`inputs`. Gradients of gradients are refused."""
    name = cast(Any, forward)._name

    def setup_context(ctx, inputs, output) -> None:
        output = output if isinstance(output, tuple) else (output,)
        ctx.others = [None if isinstance(value, Tensor) else (value,) for value in inputs]
        ctx.save_for_backward(*(output[i] for i in saved), *(value for value in inputs if isinstance(value, Tensor)))
        ctx.mark_non_differentiable(*(value for i, value in enumerate(output) if i not in outputs))

    def run(ctx, *grads):
        kept, tensors = ctx.saved_tensors[: len(saved)], iter(ctx.saved_tensors[len(saved) :])
        args = [next(tensors) if other is None else other[0] for other in ctx.others]
        found = dict(zip(inputs, backward(*(grads[i].contiguous() for i in outputs), *kept, *args), strict=True))
        return tuple(None if value is None else found.get(i) for i, value in enumerate(args))

    def refuse(_ctx, *_grads):
        raise_second_order(name)

    cast(Any, forward).register_autograd(run, setup_context=setup_context)
    cast(Any, backward).register_autograd(refuse)


def count(name: str, formula: Callable[[tuple], int]) -> None:
    register_flop_formula(getattr(torch.ops.torch_geometric_lgt, name), get_raw=True)(lambda *args, **_: formula(args))
