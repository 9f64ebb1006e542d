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
    r"""Whether a linear part or an embedding is no more than its weight and bias: no module of
    another kind, no parametrisation, and no hook of this module or of all modules."""
    if part is None:
        return True
    is_replaced = (
        type(part).forward is not kind.forward
        or 'forward' in part.__dict__
        or 'parametrizations' in part._modules
    )
    return not (is_replaced or any(getattr(part, hooks) for hooks in HOOKS) or _has_global_hooks())


def _has_global_hooks() -> bool:
    r"""Whether hooks of all modules are registered. Hooks that count flops do not matter, because
    they only record names."""
    if not torch_module._has_any_global_hook():
        return False
    hooks = [hook for name in HOOKS for hook in getattr(torch_module, f'_global{name}').values()]
    return any(not isinstance(getattr(hook, '__self__', None), ModuleTracker) for hook in hooks)


def linear_part(part: Module, x: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None]:
    r"""Returns the input, weight and bias of a linear part, which is then evaluated chunk by chunk;
    or its output, without weight and bias, if the part has to run as a module."""
    if is_plain(part) and isinstance(part, Linear):
        return x, part.weight, part.bias
    return part(x), None, None


def embedding_rows(embedding: Module, num_rows: int, nodes: Tensor | None = None) -> Tensor:
    r"""Returns the rows of :obj:`nodes` (default: all) of an embedding. An embedding that is more
    than its weight runs as a module."""
    if isinstance(embedding, Embedding) and _is_table(embedding):
        return embedding.weight if nodes is None else embedding.weight[nodes]
    if nodes is None:
        nodes = torch.arange(num_rows, device=reference(embedding).device)
    return embedding(nodes)


def _is_table(embedding: Embedding) -> bool:
    r"""Whether an embedding is no more than its weight, and neither changes its weight nor the
    gradients when it is read."""
    has_rules = (
        embedding.max_norm is not None
        or embedding.padding_idx is not None
        or embedding.scale_grad_by_freq
        or embedding.sparse
    )
    return is_plain(embedding, Embedding) and not has_rules


def make_linear(in_channels: int, out_channels: int, bias: bool = True) -> Linear:
    r"""Creates a linear part. With -1, its first input determines the input channels, as in PyG's
    layers."""
    if in_channels == -1:
        return LazyLinear(out_channels, bias)
    return Linear(in_channels, out_channels, bias)


def initialize(x: Tensor, *parts: Module | None) -> None:
    r"""Initialises the parts without a known number of input channels for the input :obj:`x`."""
    for part in parts:
        if isinstance(part, LazyModuleMixin):
            cast(Module, part)(x[:0])


def reference(part: Module) -> Tensor:
    r"""Returns a parameter with the dtype and the device of a module, an empty tensor if the module
    has none."""
    weight: Any = part._parameters.get('weight')
    if weight is not None and weight.is_floating_point():
        return weight
    return next(
        (parameter for parameter in part.parameters() if parameter.is_floating_point()),
        torch.empty(0),
    )
