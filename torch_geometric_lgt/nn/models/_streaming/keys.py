from collections.abc import Mapping
from functools import partial
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
)
from typing import Any

import numpy as np
from torch import Tensor
from torch.jit import ScriptFunction
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch_geometric.data import Data
from torch_geometric.utils import is_sparse, is_torch_sparse_tensor

from torch_geometric_lgt._identity import (
    code_text,
    globals_text,
    is_constant,
    text_of,
    without_addresses,
)
from torch_geometric_lgt._io import checksum
from torch_geometric_lgt.nn._layers.linear_parts import is_plain_tensor

SETTINGS = (bool, int, float, str, tuple)
NO_SETTINGS = ('training', '_compiled_call_impl')
PACKAGES = ('torch', 'torch_geometric', 'torch_geometric_lgt')


def model_key(model: Module) -> tuple[str, str]:
    r"""Identifies a model: returns a checksum of its parameters and buffers, and a text of its
    :meth:`plain_settings` and of the code of its modules that are not from :obj:`PACKAGES`.

    Raises:
        ValueError: If a lazy parameter has no size yet, or the state dict has more than plain
            tensors.
    """
    if any(is_lazy(parameter) for parameter in model.parameters()):
        raise ValueError(
            "'in_channels' = -1 is not known before the first input; run the model once before it "
            'writes to a folder'
        )
    state = model.state_dict()
    quantized = quantized_value(state)
    if quantized is not None:
        raise ValueError(
            "'folder' must be None for a model with more than tensors in its state dict, such as a "
            f'quantized one (got {quantized!r})'
        )
    tensors = {name: tensor.cpu() for name, tensor in state.items()}
    kinds = {type(module) for module in model.modules()}
    kinds = {kind for kind in kinds if kind.__module__.partition('.')[0] not in PACKAGES}
    code = sorted(without_addresses(text_of(kind)) for kind in kinds)
    return checksum(tensors), f'{plain_settings(model)}{code or ""}'


def quantized_value(state: Mapping[str, Any]) -> str | None:
    r"""Returns the name of a value in a state dict that is no plain tensor, as quantized layers
    have them, or :obj:`None`."""
    return next((name for name, value in state.items() if not is_plain_tensor(value)), None)


def plain_settings(model: Module) -> dict[str, str]:
    r"""Returns the class of each module in :obj:`model` and its plain settings (numbers, texts,
    tuples, functions), as texts by the name of the module and the setting. The training mode does
    not count, nor that a module is compiled."""
    settings = {}
    for name, module in model.named_modules():
        settings[name] = type(module).__name__
        settings |= {f'{name}.{key}': text for key, text in _texts(vars(module)).items()}
    return settings


def _texts(attributes: Mapping[str, Any], outer: tuple[Any, ...] = ()) -> dict[str, str]:
    r"""Returns the :meth:`_text` of each plain setting among the attributes of an object."""
    texts = {key: _text(value, outer) for key, value in sorted(attributes.items())}
    return {key: text for key, text in texts.items() if key not in NO_SETTINGS and text is not None}


def _text(value: Any, outer: tuple[Any, ...] = ()) -> str | None:
    r"""Returns a text that identifies a plain setting in every process, or :obj:`None` for other
    values. A number of NumPy counts as one of Python. A function contributes its name, its code and
    what it reads, an object that is called like a function its class, the code of the call and its
    plain settings. Of the functions and objects :obj:`outer`, whose text the value is a part of,
    only the place is named."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, FunctionType):  # that a function is compiled does not count
        value = getattr(value, '_torchdynamo_orig_callable', value)
    if isinstance(value, SETTINGS):
        return repr(value)
    for index, each in enumerate(outer):
        if value is each:
            return f'outer {index}'
    if isinstance(value, ScriptFunction):
        return str(value.code)
    if isinstance(value, (BuiltinFunctionType, MethodDescriptorType)):
        return f'{getattr(value, "__module__", None)}.{value.__qualname__}'
    outer = (*outer, value)
    if isinstance(value, partial):
        parts = [*value.args, *value.keywords.values()]
        texts = [_text(part, outer) or text_of(part) for part in parts]
        return f'{_text(value.func, outer)} of {texts}, the last {[*value.keywords]}'
    if isinstance(value, FunctionType):
        return _function_text(value, outer)
    owner, call = value, type(value).__call__ if callable(value) else None
    if isinstance(value, MethodType):
        owner, call = value.__self__, value.__func__
    if not isinstance(call, FunctionType):
        return None
    if isinstance(owner, type):
        return f'{text_of(owner)} of {call.__qualname__}'
    texts = _texts(vars(owner) if hasattr(owner, '__dict__') else {}, outer)
    return f'{type(owner).__qualname__} of {_function_text(call, outer)} and {texts}'


def _function_text(function: FunctionType, outer: tuple[Any, ...]) -> str:
    r"""Returns a text with the name of a function, its code, and the constants and functions that
    it reads of its module, its defaults and the functions around it."""
    name = f'{function.__module__}.{function.__qualname__}'
    cells = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
    parts = [*cells, *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    texts = [text_of(part) if is_constant(part) else _text(part, outer) for part in parts]
    return f'{name} of {code_text(function.__code__)}, {globals_text(function)} and {texts}'


def graph_key(store: Any) -> str:
    r"""Identifies a graph by a text: a checksum of all tensors of a
    :class:`~torch_geometric.data.Data`, or the list :obj:`files` of a memory-mapped graph.

    Raises:
        ValueError: If :obj:`store` is neither.
    """
    if isinstance(store, Data):
        tensors = {
            f'{name}-{part}': tensor.cpu().contiguous()
            for name, value in store.to_dict().items()
            for part, tensor in enumerate(_strided(value))
        }
        return checksum(tensors)
    if not hasattr(store, 'files'):
        raise ValueError(
            "'folder' must be None for a graph that neither is a Data nor has files (got "
            f'{type(store).__name__})'
        )
    return repr(store.files)


def _strided(value: Any) -> list[Tensor]:
    r"""Returns the dense tensors that determine :obj:`value`: a tensor itself, the indices and
    values of a sparse matrix, none for other types."""
    if is_torch_sparse_tensor(value):
        value = value.to_sparse_coo().coalesce()
        return [value.indices(), value.values()]
    if is_sparse(value):
        return [part for part in value.coo() if part is not None]
    return [value] if isinstance(value, Tensor) else []
