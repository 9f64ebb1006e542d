r"""Texts that identify values and functions in every process."""

import dis
import hashlib
from functools import lru_cache
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from torch_geometric_lgt._io import raw_bytes

CONSTANTS = (bool, int, float, str, tuple, list, dict, set, frozenset, Tensor, np.ndarray)
SCALARS = (bool, int, float, complex, str, bytes, type(None), np.generic)


def text_of(value: Any) -> str:
    r"""Returns a text that identifies a value. Tensors and arrays contribute a checksum or all
    numbers, functions their name, code and what they read of their module, other objects their
    type, representation and attributes."""
    if isinstance(value, Tensor) and value.layout != torch.strided:
        matrix = value.detach().to_sparse_coo().coalesce()
        return text_of([matrix.indices(), matrix.values(), *matrix.shape])
    if isinstance(value, Tensor):
        return f'{value.dtype}{text_of(raw_bytes(value))}{tuple(value.shape)}'
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f'{value.dtype}{value.shape}{digest}'
    if isinstance(value, np.ndarray):
        return f'{value.dtype}{value.shape}{text_of(value.ravel().tolist())}'
    if (
        isinstance(value, FunctionType)
        and value.__name__ != '<lambda>'
        and value.__closure__ is None
    ):
        defaults = (
            text_of([value.__defaults__, value.__kwdefaults__])
            if value.__defaults__ or value.__kwdefaults__
            else ''
        )
        name = f'{value.__module__}.{value.__qualname__}'
        return f'{name}{defaults}{code_text(value.__code__)}{globals_text(value)}'
    if isinstance(value, type):
        return _class(value)
    if isinstance(value, MethodType):
        return f'{value.__func__.__qualname__}({text_of(value.__self__)})'
    if isinstance(value, (set, frozenset)):
        return f'{{{", ".join(sorted(map(text_of, value)))}}}'
    if isinstance(value, (list, tuple)):
        return f'[{", ".join(map(text_of, value))}]'
    if isinstance(value, dict):
        return (
            f'{{{", ".join(sorted(f"{key!r}: {text_of(part)}" for key, part in value.items()))}}}'
        )
    attributes = getattr(value, '__dict__', {})
    has_parts = bool({'transforms', 'filters'} & attributes.keys())  # which are described below
    name = '' if has_parts else repr(value)
    if type(value).__module__ == 'builtins':
        return f'{name}[]'
    return f'{name}{_class(type(value))}{text_of(attributes)}'


def _class(value: type) -> str:
    r"""Returns a text with the name of a class, the code of its methods, what these read of their
    modules, and the constants of the class, inherited ones too."""
    parts = []
    for base in value.__mro__:
        for name, part in vars(base).items():
            function = getattr(part, '__func__', getattr(part, 'fget', part))
            if isinstance(function, FunctionType):
                parts.append(f'{name}{code_text(function.__code__)}{globals_text(function)}')
            elif isinstance(part, CONSTANTS) and not name.startswith('__'):
                parts.append(f'{name}{text_of(part)}')
    return f'{value.__module__}.{value.__qualname__}{"".join(parts)}'


def globals_text(function: FunctionType) -> str:
    r"""Returns a text with the constants of its module that a function reads, the code of the
    functions of this module that it calls, and what these read. It is empty if there are none.
    Lists and other objects, which may change while the function runs, are left out."""
    space, unread = function.__globals__, [function.__code__]
    texts: dict[str, str] = {}
    while unread:
        code = unread.pop()
        unread += [part for part in code.co_consts if isinstance(part, CodeType)]
        for name in _names_of_globals(code) & space.keys() - texts.keys():
            value = space[name]
            if name.startswith('__'):
                continue
            if is_constant(value):
                texts[name] = f'{name}={text_of(value)}'
            elif isinstance(value, FunctionType) and value.__globals__ is space:
                texts[name] = f'{name}={code_text(value.__code__)}'
                unread.append(value.__code__)
    return ''.join(texts[name] for name in sorted(texts))


@lru_cache(4096)  # a class has as many methods as its parents together
def _names_of_globals(code: CodeType) -> frozenset[str]:
    loaded = (step for step in dis.get_instructions(code) if step.opname == 'LOAD_GLOBAL')
    return frozenset(step.argval for step in loaded)


def is_constant(value: Any) -> bool:
    r"""Returns whether a value is a number, a text, a tensor, an array, or a tuple of these."""
    if isinstance(value, tuple):
        return all(map(is_constant, value))
    return isinstance(value, (*SCALARS, Tensor, np.ndarray))


@lru_cache(4096)
def code_text(code: CodeType) -> str:
    r"""Returns a checksum of the instructions, names and constants of a function."""
    parts = [
        code_text(part) if isinstance(part, CodeType) else text_of(part) for part in code.co_consts
    ]
    text = repr([code.co_code, code.co_names, parts])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
