r"""Checks layers and networks that a user passes as arguments of a layer or model."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

WRAPPED = ('_orig_mod', '_checkpoint_wrapped_module', '_fsdp_wrapped_module', 'module')
ANY_ARGUMENTS = [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]


def original(layer: torch.nn.Module) -> Any:
    r"""Returns the layer within wrappers of PyTorch, such as those of :meth:`torch.compile`,
    checkpoints and FSDP, or :obj:`layer` if it is no wrapper.

    A wrapper has one part with one of the names :obj:`WRAPPED`, and passes any arguments on."""
    while len(layer._modules) == 1:
        ((name, part),) = layer._modules.items()
        if part is None or name not in WRAPPED:
            return layer
        arguments = inspect.signature(layer.forward).parameters.values()
        if name != '_orig_mod' and [each.kind for each in arguments] != ANY_ARGUMENTS:
            return layer
        layer = part
    return layer


def forward_arguments(layer: torch.nn.Module) -> Mapping[str, inspect.Parameter]:
    r"""Returns the arguments of :meth:`forward` of :obj:`layer` by name, or for a wrapper those of
    the :meth:`original` layer."""
    return inspect.signature(original(layer).forward).parameters


def check_takes_edges(name: str, layer: torch.nn.Module) -> None:
    r"""Raises a ValueError, which starts with the argument :obj:`name`, if :meth:`forward` of
    :obj:`layer` would take edges for a batch vector."""
    if [*forward_arguments(layer)][1:2] == ['batch']:
        raise ValueError(
            f"'{name}' must take edges as its second argument (got {type(layer).__name__}, which "
            'takes a batch vector there); put it into a module that takes both'
        )


def check_batch_arguments(name: str, layer: torch.nn.Module) -> None:
    r"""Raises a ValueError, which starts with the argument :obj:`name`, unless :meth:`forward` of
    :obj:`layer` takes :obj:`batch` and :obj:`batch_size`."""
    if not {'batch', 'batch_size'} <= forward_arguments(layer).keys():
        raise ValueError(
            f"'{name}' must take 'batch' and 'batch_size' to tell the graphs of a batch apart (got "
            f'{type(layer).__name__}); use KernelAttentionConv, DegreeMaskedAttention, '
            'SGFormerConv or DIFFormerConv'
        )


def check_output(argument: str, layer: torch.nn.Module, out: Any, width: int, name: str) -> None:
    r"""Raises a ValueError unless the output :obj:`out` of :obj:`layer`, which is the
    :obj:`argument` of another layer or of a model, is a tensor of :obj:`width` columns, the
    argument :obj:`name` of that layer or model."""
    columns = out.size(-1) if isinstance(out, Tensor) else type(out).__name__
    if columns != width:
        sizes = {'conv': 'input and output channels', 'attn_type': 'channels and heads'}
        is_made = name != 'channels' and argument in sizes
        fix = f'; give a function of the {sizes[argument]}' if is_made else ''
        raise ValueError(
            f"'{argument}' must return '{name}' = {width} channels (got {columns} from "
            f'{layer}){fix}'
        )
