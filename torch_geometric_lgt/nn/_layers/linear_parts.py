# N nodes.
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Embedding, LazyLinear, Linear, Module, Parameter
from torch.nn.modules import module as torch_module
from torch.nn.modules.lazy import LazyModuleMixin
from torch.utils.module_tracker import ModuleTracker

from torch_geometric_lgt.functional.inputs import LinearInput

HOOKS = ('_forward_hooks', '_forward_pre_hooks', '_backward_hooks', '_backward_pre_hooks')


def remove_parts(module: Module, *names: str) -> None:
    r"""Replaces parts of :obj:`module` by :obj:`None`. A part that is only set to :obj:`None` stays
    registered, and ``load_state_dict`` would drop its parameters without an error."""
    for name in names:
        delattr(module, name)
        setattr(module, name, None)


def is_exact_linear(part: Module | None, kind: type[Module] = Linear) -> bool:
    r"""Tells whether the layer :obj:`part` computes no more than its class :obj:`kind` does, so
    that its weight and bias may be used without calling it.

    :obj:`False` for another class of layers, a replaced :obj:`forward`, a parametrisation, hooks of
    this layer or of all modules, and a weight with operations of its own, such as a quantized one.
    :obj:`None`, an absent layer, counts as such."""
    if part is None:
        return True
    is_replaced = (
        type(part).forward is not kind.forward
        or 'forward' in part.__dict__
        or 'parametrizations' in part._modules
    )
    if is_replaced or has_hooks(part):
        return False
    weight = part._parameters.get('weight')
    return weight is None or type(weight) is Parameter or is_plain_tensor(weight)


def is_plain_tensor(value: Any) -> bool:
    r"""Tells whether :obj:`value` is a tensor that PyTorch's own operations take. Quantized weights
    are of subclasses of tensors, which may define only the operation of their layer."""
    kind: Any = type(value)
    if kind is Tensor:
        return True
    is_tensor = isinstance(value, Tensor)
    return is_tensor and kind.__torch_function__ is torch._C._disabled_torch_function_impl


def has_hooks(part: Module) -> bool:
    r"""Tells whether a call of :obj:`part` runs hooks of it or of all modules. Pruning is one of
    them: it computes the weight before each call. The hooks of PyTorch's flop counter only record
    names and do not count."""
    if (
        part._forward_hooks
        or part._forward_pre_hooks
        or part._backward_hooks
        or part._backward_pre_hooks
    ):
        return True
    if not torch_module._has_any_global_hook():
        return False
    hooks = [hook for name in HOOKS for hook in getattr(torch_module, f'_global{name}').values()]
    return any(not isinstance(getattr(hook, '__self__', None), ModuleTracker) for hook in hooks)


def linear_part(part: Module, x: Tensor) -> LinearInput:
    r"""Describes the output of a layer for the input :obj:`x` ``[N, F]``, to be computed later,
    some rows at a time.

    The description has :obj:`x` with the weight and bias of a plain Linear layer. Any other module,
    or a layer with hooks, is called now, and the description has its output alone."""
    if is_exact_linear(part) and isinstance(part, Linear):
        return LinearInput(x=x, weight=part.weight, bias=part.bias)
    return LinearInput(x=part(x))


def embedding_rows(embedding: Module, num_rows: int, nodes: Tensor | None = None) -> Tensor:
    r"""Returns the rows ``[n, D]`` of the embedding for the ids :obj:`nodes` ``[n]`` (default: all
    :obj:`num_rows` rows). The weight is indexed directly, unless calling the module would do more,
    for example run hooks."""
    if isinstance(embedding, Embedding) and _is_table(embedding):
        return embedding.weight if nodes is None else embedding.weight[nodes]
    if nodes is None:
        nodes = torch.arange(num_rows, device=reference(embedding).device)
    return embedding(nodes)


def _is_table(embedding: Embedding) -> bool:
    r"""Tells whether reading an embedding is the same as indexing its weight. :obj:`False` with
    hooks, :obj:`max_norm`, :obj:`padding_idx`, :obj:`scale_grad_by_freq` or :obj:`sparse`, which
    change the weight or its gradient."""
    has_rules = (
        embedding.max_norm is not None
        or embedding.padding_idx is not None
        or embedding.scale_grad_by_freq
        or embedding.sparse
    )
    return is_exact_linear(embedding, Embedding) and not has_rules


def make_linear(in_channels: int, out_channels: int, bias: bool = True) -> Linear:
    r"""Creates a Linear layer. With :obj:`in_channels` -1 it is a LazyLinear, which takes its input
    channels from the first input."""
    if in_channels == -1:
        return LazyLinear(out_channels, bias)
    return Linear(in_channels, out_channels, bias)


def initialize(x: Tensor, *parts: Module | None) -> None:
    r"""Creates the parameters of those :obj:`parts` that are lazy modules, for inputs like :obj:`x`
    ``[N, F]``; :obj:`None` and other modules are skipped."""
    for part in parts:
        if isinstance(part, LazyModuleMixin):
            # parameters that are made in inference mode have no gradients
            with torch.inference_mode(False), torch.no_grad():
                cast(Module, part)(torch.empty(0, x.size(1), dtype=x.dtype, device=x.device))


def reference(part: Module) -> Tensor:
    r"""Returns a floating-point parameter of the module :obj:`part`, whose dtype and device its
    inputs must have.

    This is the weight if there is one, else the first such parameter, else an empty tensor."""
    weight: Any = part._parameters.get('weight')
    if weight is not None and weight.is_floating_point():
        return weight
    return next(
        (parameter for parameter in part.parameters() if parameter.is_floating_point()),
        torch.empty(0),
    )
