# N nodes, F input width.
import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Embedding, Linear, Module
from torch.nn.utils.parametrize import register_parametrization
from torch.testing import assert_close
from torch_geometric.nn import Linear as PyGLinear

from torch_geometric_lgt.testing._promises import Call, promise

IN_ITS_PLACE = 'another module in its place'
REPLACED_FIX = (
    '; call the part as a module and read no attribute of it, for a user may put an adapter in its '
    'place; torch_geometric_lgt.nn.check_features compares the input with the parameters of any '
    'module'
)


class Scaled(Module):
    r"""Multiplies its input, or the output of :obj:`module` for its input, by the learned parameter
    :obj:`factor`."""

    factor: Tensor

    def __init__(self, factor: Tensor, module: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        self.module, self.factor = module, torch.nn.Parameter(factor.clone())

    def forward(self, x: Tensor) -> Tensor:
        return (x if self.module is None else self.module(x)) * self.factor


def check_wrapped(layer: Module, call: Call, x: Tensor, edge_index: Tensor, batch: Tensor) -> None:
    r"""Asserts that hooks and parametrisations of each Linear layer and embedding of :obj:`layer`,
    and a module in place of it, act and have gradients.

    Each of them multiplies by a factor. Outputs and gradients must equal the results of a layer
    whose weights are multiplied by this factor, and the factor must have a gradient."""
    for name, part in layer.named_modules():
        if isinstance(part, (Linear, PyGLinear, Embedding)):
            expected = _results(_multiplied(layer, name), call, x, edge_index, batch)
            for how, wrap in (
                ('a hook', _hooked),
                ('a parametrisation', _parametrised),
                (IN_ITS_PLACE, _replaced),
            ):
                wrapped = _copy(layer, part)
                fix = REPLACED_FIX if how == IN_ITS_PLACE else ''
                with promise(f'{how} at {name!r}', fix=fix):
                    results = _results(wrapped, call, x, edge_index, batch, wrap(wrapped, name))
                if results[2] is None:
                    raise AssertionError(f'no gradient reaches {how} at {name!r}')
                for actual, wanted in zip(results[:2], expected[:2], strict=True):
                    assert_close(
                        actual,
                        wanted,
                        rtol=1e-8,
                        atol=1e-8,
                        msg=lambda text, at=(how, name): f'{at[0]} at {at[1]!r}: {text}',
                    )


def _copy(layer: Module, part: Module) -> Module:
    r"""Returns a copy of :obj:`layer` in which :obj:`part`, one of its submodules, and all modules
    that contain it are new; other modules are shared with the original."""
    return copy.deepcopy(
        layer,
        {
            id(module): module
            for module in layer.modules()
            if all(inner is not part for inner in module.modules())
        },
    )


def _factor(part: Any) -> Tensor:
    r"""Returns one factor from 1 to 2 for each output channel of :obj:`part`, a Linear layer or
    embedding."""
    size = part.weight.size(1 if isinstance(part, Embedding) else 0)
    return 1 + torch.arange(size, dtype=part.weight.dtype) / size


def _multiplied(layer: Module, name: str) -> Module:
    layer = _copy(layer, layer.get_submodule(name))
    part: Any = layer.get_submodule(name)
    factor = _factor(part)
    with torch.no_grad():
        part.weight.mul_(factor if isinstance(part, Embedding) else factor[:, None])
        bias: Tensor | None = getattr(part, 'bias', None)
        if bias is not None:
            bias.mul_(factor)
    return layer


def _hooked(layer: Module, name: str) -> None:
    part = layer.get_submodule(name)
    factor = _factor(part)

    def multiply(_module: Module, _inputs: Any, output: Tensor) -> Tensor:
        return output * factor

    part.register_forward_hook(multiply)


def _parametrised(layer: Module, name: str) -> Tensor:
    part: Any = layer.get_submodule(name)
    factor = _factor(part)
    scaled = Scaled(factor if isinstance(part, Embedding) else factor[:, None])
    if getattr(part, 'bias', None) is not None:
        register_parametrization(part, 'bias', Scaled(factor))
    register_parametrization(part, 'weight', scaled)
    return scaled.factor


def _replaced(layer: Module, name: str) -> Tensor:
    parent, _, last = name.rpartition('.')
    part = layer.get_submodule(name)
    scaled = Scaled(_factor(part), part)
    setattr(layer.get_submodule(parent), last, scaled)
    return scaled.factor


def _results(
    layer: Module,
    call: Call,
    x: Tensor,
    edge_index: Tensor,
    batch: Tensor,
    learned: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor | None]:
    r"""Runs the layer and returns (output, gradient of the features ``[N, F]``, gradient of
    :obj:`learned`); the loss is the sum of the squared outputs.

    The last gradient is :obj:`None` if :obj:`learned` has no effect. Without :obj:`learned` it is
    the gradient of the output."""
    x = x.clone().requires_grad_()
    out = call(layer, x, edge_index, batch)
    grad, reached = torch.autograd.grad(
        out.square().sum(), (x, out if learned is None else learned), allow_unused=True
    )
    return out.detach(), torch.zeros_like(x) if grad is None else grad, reached
