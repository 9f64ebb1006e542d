r"""Computes gradients of gradients, by formulas that autograd records, or refuses them."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from torch_geometric_lgt.functional.numerics import without_autocast

Grads = tuple[Tensor | None, ...]


def recorded_grads(
    function: Callable[..., Sequence[Tensor] | None],
    inputs: Sequence[Any],
    needed: Sequence[bool],
    grads: Sequence[Tensor],
) -> Grads | None:
    r"""Computes gradients of :obj:`inputs` that autograd can differentiate again. Returns
    :obj:`None` if :obj:`function` has no formula.

    Args:
        function (callable): Gets the inputs and computes the outputs by operations that autograd
            records, or returns :obj:`None`.
        inputs (sequence): Tensors and other values.
        needed (sequence): Which of the inputs need a gradient; the others get :obj:`None`.
        grads (sequence): The gradient of each output.
    """
    values = list(inputs)
    chosen = [i for i, is_needed in enumerate(needed) if is_needed]
    with torch.enable_grad(), without_autocast(grads[0].device.type):
        for i in chosen:  # a tensor that is two of the inputs has two gradients
            values[i] = values[i].view_as(values[i])
        outputs = function(*values)
        if outputs is None:
            return None
        found = torch.autograd.grad(
            outputs, [values[i] for i in chosen], grads, create_graph=True, allow_unused=True
        )
    out: list[Tensor | None] = [None] * len(values)
    for i, grad in zip(chosen, found, strict=True):
        out[i] = grad
    return tuple(out)


def differentiable(
    name: str, again: Callable[..., Grads | None] | None = None
) -> Callable[[Callable], Callable]:
    r"""Returns a decorator for the backward method of an autograd function. The method gets the
    saved tensors before the gradients of the outputs and runs without recording gradients.

    Where autograd records the backward pass (``create_graph=True``), :obj:`again` takes the place
    of the method, with the same arguments and operations that autograd records. If there is no such
    function, or it returns :obj:`None`, differentiating the result raises a RuntimeError that names
    the operator :obj:`name`. Batches of gradients raise a NotImplementedError.
    """

    def decorate(backward: Callable) -> Callable:
        @functools.wraps(backward)
        def run(ctx: Any, *grads: Tensor) -> Any:
            refuse_batches(name, grads)
            saved = ctx.saved_tensors  # read once: checkpointing makes them for one reading
            is_recorded = torch.is_grad_enabled()
            if is_recorded and again is not None:
                input_grads = again(ctx, saved, *grads)
                if input_grads is not None:
                    return input_grads
            with torch.no_grad():
                input_grads = backward(ctx, saved, *grads)
            if not is_recorded:
                return input_grads
            return FirstOrder.apply(name, len(input_grads), *input_grads, *grads, *saved)

        return run

    return decorate


class FirstOrder(torch.autograd.Function):
    r"""Returns the first :obj:`number` of :obj:`tensors`, gradients, unchanged in the forward pass.
    Differentiating them raises a RuntimeError that names the operator :obj:`name`. The other
    tensors are those that the gradients depend on: autograd leaves out what leads to none of the
    tensors whose derivatives it computes."""

    @staticmethod
    def forward(ctx: Any, name: str, number: int, *tensors: Tensor | None) -> Grads:
        ctx.name = name
        return tuple(None if grad is None else grad.view_as(grad) for grad in tensors[:number])

    @staticmethod
    def backward(ctx: Any, *_grads: Tensor | None) -> NoReturn:
        raise_second_order(ctx.name)


def raise_second_order(name: str) -> NoReturn:
    r"""Raises a RuntimeError which says that the operator :obj:`name` has first derivatives
    only."""
    raise RuntimeError(
        f'{name!r} of torch_geometric_lgt has first derivatives only, no gradients of gradients '
        '(create_graph=True). Where a loss needs them, as gradient penalties and forces do, write '
        'the attention with torch_geometric_lgt.testing.dense, whose formulas autograd '
        'differentiates twice, or take finite differences of gradients in float64'
    )


def refuse_batches(name: str, grads: Sequence[Any]) -> None:
    r"""Raises an error if the gradients :obj:`grads` of the outputs of the operator :obj:`name` are
    batches that are computed at once. Its backward pass writes into tensors without them.

    Raises:
        NotImplementedError: Within ``is_grads_batched=True`` of :func:`torch.autograd.grad`,
            ``vectorize=True`` of :func:`torch.autograd.functional.jacobian`, and
            :func:`torch.vmap`.
    """
    tensors = (grad for grad in grads if isinstance(grad, Tensor))
    is_batched = any(map(is_legacy_batchedtensor, tensors))
    if is_batched or torch._C._are_functorch_transforms_active():
        raise NotImplementedError(
            f'{name!r} of torch_geometric_lgt has one gradient at a time, no batches of them '
            '(is_grads_batched=True, vectorize=True or vmap): call torch.autograd.grad for each, '
            'as torch.autograd.functional.jacobian does with vectorize=False'
        )
