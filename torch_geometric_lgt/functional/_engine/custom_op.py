r"""Registers operators of PyTorch. This module handles tensors and schemas and contains no
attention."""

import functools
from collections import namedtuple
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar, cast

import torch
from torch import Tensor
from torch.library import custom_op
from torch.nn import Parameter
from torch.utils.flop_counter import register_flop_formula

from torch_geometric_lgt.functional._engine.arguments import Arguments
from torch_geometric_lgt.functional._engine.second_order import (
    differentiable,
    raise_second_order,
    recorded_grads,
)
from torch_geometric_lgt.functional.numerics import without_autocast
from torch_geometric_lgt.functional.tracing import is_portable, is_transformed, is_watched

PLAIN_TYPES = {Tensor, Parameter, type(None), bool, int, float, str}

A = TypeVar('A', bound=Arguments)


class Operator(Generic[A]):
    r"""Registers a function of an :class:`Arguments` object as a custom operator of PyTorch; see
    :meth:`operator`. The backward pass is a second operator, :attr:`gradient`.

    Plain tensors in eager mode do not pass through PyTorch's dispatcher, which takes longer than
    the work of a small graph: :attr:`function` runs at once, recorded by :attr:`recorded`."""

    gradient: Any
    recorded: type[torch.autograd.Function] | None = None
    recorded_formula: Callable[[A, Any], Sequence[Any]] | None = None
    transformed: Callable[..., Sequence[Any]] | None = None

    def __init__(
        self, function: Callable[[A], Any], arguments: type[A], returns: tuple[str, ...]
    ) -> None:
        self.name, self.arguments, self.returns = function.__name__.strip('_'), arguments, returns
        tensors = 'Tensor' if len(returns) == 1 else f'({", ".join(["Tensor"] * len(returns))})'
        self.function = _without_autocast(lambda *values: function(arguments.unpack(values)))
        self.forward = _custom_op(self.name, arguments.schema, tensors, self.function)
        functools.update_wrapper(self, function)

    def __call__(self, arguments: A) -> Any:
        r"""Runs the operator and records it for automatic differentiation in reverse mode. Forward
        mode, :mod:`torch.func` and :meth:`torch.onnx.export` get the :meth:`formula` in its place.
        Returns the tensor, or a tuple if there are several."""
        values = arguments.pack()
        takes_formula = is_portable() if torch.compiler.is_compiling() else is_transformed(values)
        if takes_formula and self.transformed is not None:
            results = self.transformed(*values)
            return results if len(self.returns) > 1 else results[0]
        if not is_eager(values):
            return self.forward(*values)
        if self.recorded is None or not torch.is_grad_enabled():
            return self.function(*values)
        return self.recorded.apply(*values)

    def fake(self, function: Callable[[A], Any]) -> Callable[[A], Any]:
        r"""Decorates a function of the arguments that returns empty outputs of the right shape and
        dtype. :meth:`torch.compile` runs it in place of the operator while it traces."""
        self.forward.register_fake(lambda *values: function(self.arguments.unpack(values)))
        return function

    def backward(self, outputs: tuple[str, ...], saved: tuple[str, ...] = ()) -> Callable:
        r"""Returns a decorator that registers a function as the backward pass.

        The function gets the arguments, the gradients of :obj:`outputs`, and the forward results
        :obj:`saved`, both as named tuples. It returns a dict of gradients by argument name, with a
        dict for a record. A backward pass that autograd records takes the :meth:`formula`.
        """

        def decorate(function: Callable[[A, Any, Any], dict[str, Any]]) -> Callable:
            cls = self.arguments
            num_grads = len(outputs)
            num_results = num_grads + len(saved)
            Gradients, Saved = namedtuple('Gradients', outputs), namedtuple('Saved', saved)
            slots = [position for position, slot in enumerate(cls.slots) if slot.has_gradient]

            def run(*values: Any) -> list[Tensor]:
                arguments = cls.unpack(values[num_results:])
                grads = Gradients(*values[:num_grads])
                results = Saved(*values[num_grads:num_results])
                return cls.pack_gradients(function(arguments, grads, results), values[0])

            def fake(*values: Any) -> list[Tensor]:
                inputs = values[num_results:]
                return [
                    values[0].new_empty(0)
                    if inputs[slot] is None
                    else torch.empty_like(inputs[slot])
                    for slot in slots
                ]

            grad_schema = [f'Tensor grad_{name}' for name in outputs]
            saved_schema = [f'Tensor saved_{name}' for name in saved]
            schema = ', '.join([*grad_schema, *saved_schema, cls.schema])
            compute = _without_autocast(run)
            self.gradient = _custom_op(f'{self.name}_backward', schema, 'Tensor[]', compute)
            self.gradient.register_fake(fake)
            differentiated, stored = (
                [self.returns.index(name) for name in names] for names in (outputs, saved)
            )

            def run_formula(ctx: Any, tensors: Sequence[Tensor], *grads: Tensor) -> Any:
                results, values = _restored(ctx, tensors, len(saved))
                formula = cast(Callable, self.recorded_formula)

                def results_of(*values: Any) -> list[Tensor]:
                    computed = formula(cls.unpack(values), Saved(*results))
                    return [computed[i] for i in differentiated]

                needed = [i in slots and need for i, need in enumerate(ctx.needs_input_grad)]
                return recorded_grads(
                    results_of, values, needed, [grads[i] for i in differentiated]
                )

            save = _setup_context(differentiated, stored)
            by_dispatcher, by_function = (
                _backward(call, slots, differentiated, len(saved))
                for call in (self.gradient, compute)
            )
            self.forward.register_autograd(
                lambda ctx, *grads: by_dispatcher(ctx, ctx.saved_tensors, *grads),
                setup_context=save,
            )
            self.gradient.register_autograd(lambda *_: raise_second_order(self.name))
            backward = differentiable(self.name, run_formula)(by_function)
            self.recorded = _recorded(self.name, self.function, save, backward)
            return function

        return decorate

    def formula(self, function: Callable[[A, Any], Sequence[Any]]) -> Callable:
        r"""Decorates a function that computes the results by operations that autograd records, from
        the arguments and the saved results, which are :obj:`None` if there are none yet. It serves
        gradients of gradients, forward mode and :mod:`torch.func`. Results that no caller of the
        operator uses may be :obj:`None`."""
        self.recorded_formula = function
        self.transformed = _without_autocast(
            lambda *values: function(self.arguments.unpack(values), None)
        )
        return function

    def flops(self, forward: Callable[[A], int], backward: Callable[[A], int]) -> None:
        r"""Registers functions that return the number of flops of the forward and of the backward
        pass, given the arguments."""
        _count(self.name, self.arguments, forward)
        _count(f'{self.name}_backward', self.arguments, backward)


def operator(
    arguments: type[A], returns: tuple[str, ...]
) -> Callable[[Callable[[A], Any]], Operator[A]]:
    r"""Returns a decorator that makes a function an :class:`Operator`. The function takes an object
    of the class :obj:`arguments` and returns the tensors named :obj:`returns`, a tuple if there are
    several."""
    return lambda function: Operator(function, arguments, returns)


def is_eager(values: Sequence[Any]) -> bool:
    r"""Returns whether an operator of :obj:`values` may run without PyTorch's dispatcher: in eager
    mode, outside of modes that watch or replace operators, and with plain tensors only."""
    if is_watched():
        return False
    return not any(issubclass(kind, Tensor) for kind in {*map(type, values)} - PLAIN_TYPES)


def _without_autocast(function: Callable) -> Callable:
    def run(*values: Any) -> Any:
        first = next(value for value in values if isinstance(value, Tensor))
        with without_autocast(first.device.type), torch.cuda.device_of(first):
            return function(*values)

    return run


def _custom_op(name: str, schema: str, returns: str, function: Callable) -> Any:
    return custom_op(
        f'torch_geometric_lgt::{name}', mutates_args=(), schema=f'({schema}) -> {returns}'
    )(function)


def _setup_context(differentiated: list[int], stored: list[int]) -> Callable:
    r"""Returns the function that saves the inputs of an operator for its backward pass, and its
    results at the positions :obj:`stored`. Those at the positions :obj:`differentiated` have
    gradients."""

    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        results = output if isinstance(output, tuple) else (output,)
        ctx.others = [None if isinstance(value, Tensor) else (value,) for value in inputs]
        tensors = (value for value in inputs if isinstance(value, Tensor))
        ctx.save_for_backward(*(results[i] for i in stored), *tensors)
        constants = (result for i, result in enumerate(results) if i not in differentiated)
        ctx.mark_non_differentiable(*constants)

    return setup_context


def _backward(
    call: Any, slots: list[int], differentiated: list[int], num_saved: int
) -> Callable[..., tuple[Tensor | None, ...]]:
    r"""Returns the backward pass of an operator for automatic differentiation. It calls
    :obj:`call` with the gradients of the results at the positions :obj:`differentiated`, the
    :obj:`num_saved` saved results and the inputs, which returns the gradients of the inputs at the
    positions :obj:`slots`."""

    def run(ctx: Any, tensors: Sequence[Tensor], *grads: Tensor) -> tuple[Tensor | None, ...]:
        results, values = _restored(ctx, tensors, num_saved)
        output_grads = (grads[i].contiguous() for i in differentiated)
        input_grads = dict(zip(slots, call(*output_grads, *results, *values), strict=True))
        return tuple(
            None if value is None else input_grads.get(i) for i, value in enumerate(values)
        )

    return run


def _restored(
    ctx: Any, tensors: Sequence[Tensor], num_saved: int
) -> tuple[Sequence[Tensor], list[Any]]:
    r"""Returns the saved results and the values of the operator from the saved :obj:`tensors`."""
    inputs = iter(tensors[num_saved:])
    values = [next(inputs) if other is None else other[0] for other in ctx.others]
    return tensors[:num_saved], values


def _recorded(
    name: str, forward: Callable, setup_context: Callable, backward: Callable
) -> type[torch.autograd.Function]:
    r"""Returns a class that records :obj:`forward` for automatic differentiation."""

    def run(ctx: Any, *values: Any) -> Any:  # PyTorch inspects the signature of other forms
        output = forward(*values)
        setup_context(ctx, values, output)
        return output

    methods = {
        'forward': staticmethod(run),
        'backward': staticmethod(backward),
    }
    return type(f'Recorded_{name}', (torch.autograd.Function,), methods)


def _count(name: str, arguments: type[A], formula: Callable[[A], int]) -> None:
    num_values = len(arguments.slots)
    packet = getattr(torch.ops.torch_geometric_lgt, name)
    register_flop_formula(packet, get_raw=True)(
        lambda *values, **_: formula(arguments.unpack(values[-num_values:]))
    )
