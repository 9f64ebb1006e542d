# N nodes.
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Embedding, LazyLinear, Linear, Module
from torch.nn.modules import module as torch_module
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils.module_tracker import ModuleTracker

HOOKS = ('_forward_hooks', '_forward_pre_hooks', '_backward_hooks', '_backward_pre_hooks')


def is_plain(part: Module | None, kind: type[Module] = Linear) -> bool:
    r"""Whether a linear part, or an embedding, is its weight and its bias alone: no module of
    another kind in its place, no parametrisation, and no hook, be it its own or one of all
    modules."""
    if part is None:
        return True
    replaced = (
        type(part).forward is not kind.forward
        or 'forward' in part.__dict__
        or 'parametrizations' in part._modules
    )
    return not (replaced or any(getattr(part, hooks) for hooks in HOOKS) or _has_global_hooks())


def _has_global_hooks() -> bool:
    r"""Whether hooks of all modules are registered; those that count flops only note names."""
    if not torch_module._has_any_global_hook():
        return False
    hooks = [hook for name in HOOKS for hook in getattr(torch_module, f'_global{name}').values()]
    return any(not isinstance(getattr(hook, '__self__', None), ModuleTracker) for hook in hooks)


def linear_part(part: Module, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
    r"""The input, weight and bias of a linear part, to be evaluated chunk by chunk, or its output
    where it has to run as a module."""
    return (
        (x, part.weight, part.bias)
        if is_plain(part) and isinstance(part, Linear)
        else (part(x), None, None)
    )


def embedding_rows(embedding: Module, num_rows: int, nodes: Tensor | None = None) -> Tensor:
    r"""The rows of :obj:`nodes` (default: all) of an embedding, which runs as a module where it is
    more than its weight."""
    if (
        is_plain(embedding, Embedding)
        and isinstance(embedding, Embedding)
        and not _has_rules(embedding)
    ):
        return embedding.weight if nodes is None else embedding.weight[nodes]
    return embedding(
        torch.arange(num_rows, device=reference(embedding).device) if nodes is None else nodes
    )


def _has_rules(embedding: Embedding) -> bool:
    r"""Whether an embedding changes its weights, or their gradients, where they are read."""
    return (
        embedding.max_norm is not None
        or embedding.padding_idx is not None
        or embedding.scale_grad_by_freq
        or embedding.sparse
    )


def make_linear(in_channels: int, out_channels: int, bias: bool = True) -> Linear:
    r"""Makes a linear part; with -1 input channels they are those of the first input, as in PyG's
    layers."""
    return (
        LazyLinear(out_channels, bias)
        if in_channels == -1
        else Linear(in_channels, out_channels, bias)
    )


def initialize(x: Tensor, *parts: Module | None) -> None:
    r"""Initialises the parts whose number of input channels is not known yet for the input
    :obj:`x`."""
    for part in parts:
        if isinstance(part, LazyModuleMixin):
            cast(Module, part)(x[:0])


def reference(part: Module) -> Tensor:
    r"""A parameter that has the dtype and the device of a part, of whatever it consists; an empty
    tensor if it has none."""
    weight: Any = part._parameters.get('weight')
    if weight is not None and weight.is_floating_point():
        return weight
    return next(
        (parameter for parameter in part.parameters() if parameter.is_floating_point()),
        torch.empty(0),
    )
