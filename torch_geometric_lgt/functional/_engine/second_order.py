r"""Computes gradients of gradients by formulas that autograd records."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor
from torch._C._functorch import is_legacy_batchedtensor

from torch_geometric_lgt.functional.numerics import without_autocast

Grads = tuple[Tensor | None, ...]


def recorded_grads(
    function: Callable[..., Sequence[Tensor]],
    inputs: Sequence[Any],
    needed: Sequence[bool],
    grads: Sequence[Tensor],
) -> Grads:
    r"""Computes gradients of :obj:`inputs` that autograd can differentiate again.

    Args:
        function (callable): Gets the inputs and computes the outputs by operations that autograd
            records.
        inputs (sequence): Tensors and other values.
        needed (sequence): Which of the inputs need a gradient; the others get :obj:`None`.
        grads (sequence): The gradient of each output.

    Returns:
        The gradients, 0 for inputs that no output depends on
    """
    values = list(inputs)
    chosen = [i for i, is_needed in enumerate(needed) if is_needed]
    with torch.enable_grad(), without_autocast(grads[0].device.type):
        for i in chosen:  # a tensor that is two of the inputs has two gradients
            values[i] = values[i].view_as(values[i])
        leaves = [values[i] for i in chosen]
        results = zip(function(*values), grads, strict=True)
        pairs = [(result, grad) for result, grad in results if result.requires_grad]
        if pairs:
            outputs, grads = zip(*pairs, strict=True)
            input_grads = torch.autograd.grad(
                outputs, leaves, grads, create_graph=True, materialize_grads=True
            )
        else:  # no output depends on an input: zeros that autograd records
            input_grads = [
                leaf.masked_fill(leaf.new_ones((), dtype=torch.bool), 0) for leaf in leaves
            ]
    out: list[Tensor | None] = [None] * len(values)
    for i, grad in zip(chosen, input_grads, strict=True):
        out[i] = grad
    return tuple(out)


def differentiable(name: str, again: Callable[..., Grads]) -> Callable[[Callable], Callable]:
    r"""Returns a decorator for the backward method of an autograd function. The method gets the
    saved tensors before the gradients of the outputs and runs without recording gradients.

    Where autograd records the backward pass (``create_graph=True``), :obj:`again` takes the place
    of the method, with the same arguments and operations that autograd records. Batches of
    gradients raise a NotImplementedError that names the operator :obj:`name`.
    """

    def decorate(backward: Callable) -> Callable:
        @functools.wraps(backward)
        def run(ctx: Any, *grads: Tensor) -> Any:
            refuse_batches(name, grads)
            saved = ctx.saved_tensors  # read once: checkpointing makes them for one reading
            if torch.is_grad_enabled():
                return again(ctx, saved, *grads)
            with torch.no_grad():
                return backward(ctx, saved, *grads)

        return run

    return decorate


def raise_second_order(name: str) -> NoReturn:
    r"""Raises a RuntimeError which says that the operator :obj:`name` of PyTorch's dispatcher has
    first derivatives only."""
    raise RuntimeError(
        f'{name!r} of torch_geometric_lgt has first derivatives only within a mode that watches '
        'operators, such as FlopCounterMode: compute gradients of gradients (create_graph=True) '
        'outside of it'
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
