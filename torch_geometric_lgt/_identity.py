r"""Texts that identify values and functions in every process."""

import dis
import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from logging import Logger
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.transforms import BaseTransform

from torch_geometric_lgt._io import raw_bytes

CONSTANTS = (bool, int, float, str, tuple, list, dict, set, frozenset, Tensor, np.ndarray)
SCALARS = (bool, int, float, complex, str, bytes, type(None), np.generic)
DECORATORS = 50  # of one function, at most: unittest.mock.call claims to decorate without an end


def text_of(value: Any, known: dict[int, int] | None = None) -> str:
    r"""Returns a text that identifies a value. Tensors and arrays contribute a checksum or all
    numbers, functions their name, code and what they read of their module, other objects their
    type, representation and attributes. Each class and object is described once; where it occurs
    again, the text has its number in :obj:`known`, whose keys are results of :meth:`id`."""
    known = {} if known is None else known
    if isinstance(value, Tensor) and value.layout != torch.strided:
        matrix = value.detach().to_sparse_coo().coalesce()
        return text_of([matrix.indices(), matrix.values(), *matrix.shape])
    if isinstance(value, Tensor):
        return f'{value.dtype}{text_of(raw_bytes(value))}{tuple(value.shape)}'
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f'{value.dtype}{value.shape}{digest}'
    if isinstance(value, np.ndarray):
        return f'{value.dtype}{value.shape}{text_of(value.ravel().tolist(), known)}'
    if id(value) in known:
        return f'known {known[id(value)]}'
    if (
        isinstance(value, FunctionType)
        and value.__name__ != '<lambda>'
        and value.__closure__ is None
    ):
        defaults = (
            text_of([value.__defaults__, value.__kwdefaults__], known)
            if value.__defaults__ or value.__kwdefaults__
            else ''
        )
        name = f'{value.__module__}.{value.__qualname__}'
        return f'{name}{defaults}{code_text(value.__code__)}{globals_text(value, known)}'
    if isinstance(value, type):
        return _class(value, known)
    if isinstance(value, Logger):  # has all loggers of the process among its attributes
        return f'Logger {value.name}'
    if isinstance(value, MethodType):
        return f'{value.__func__.__qualname__}({text_of(value.__self__, known)})'
    if isinstance(value, (set, frozenset)):
        # a set has no order, so each part is described as if it were the first one
        return f'{{{", ".join(sorted(text_of(part, {**known}) for part in value))}}}'
    if isinstance(value, (list, tuple)):
        return f'[{", ".join(text_of(part, known) for part in value)}]'
    if isinstance(value, dict):
        items = sorted(value.items(), key=lambda item: repr(item[0]))
        return f'{{{", ".join(f"{key!r}: {text_of(part, known)}" for key, part in items)}}}'
    attributes = getattr(value, '__dict__', {})
    has_parts = bool({'transforms', 'filters'} & attributes.keys())  # which are described below
    name = '' if has_parts else repr(value)
    if type(value).__module__ == 'builtins':
        return f'{name}[]'
    known[id(value)] = len(known)
    return f'{name}{text_of(type(value), known)}{text_of(attributes, known)}'


def _class(value: type, known: dict[int, int]) -> str:
    r"""Returns a text with the name of a class, the code of its methods, what these read of their
    modules, and the constants of the class, inherited ones too."""
    known[id(value)] = len(known)
    parts = []
    for name, part in _parts(value):
        functions = _functions(part)
        code = [f'{code_text(each.__code__)}{globals_text(each, known)}' for each in functions]
        parts.append(f'{name}{"".join(code) if functions else text_of(part, known)}')
    return f'{value.__module__}.{value.__qualname__}{"".join(parts)}'


def _parts(value: type) -> Iterator[tuple[str, Any]]:
    r"""Yields the functions and constants of a class by name, inherited ones too."""
    for base in value.__mro__:
        for name, part in vars(base).items():
            function = getattr(part, '__func__', getattr(part, 'fget', part))
            if isinstance(function, FunctionType):
                yield name, function
            elif isinstance(part, CONSTANTS) and not name.startswith('__'):
                yield name, part


def globals_text(function: FunctionType, known: dict[int, int] | None = None) -> str:
    r"""Returns a text with what a function reads of its module: constants, transforms, objects of
    classes of the module, and the code of its functions and classes and what these read. It is
    empty if there are none. Lists and other objects, which may change while the function runs, are
    left out, and so are memory addresses."""
    known = {} if known is None else known
    space, unread = function.__globals__, [function.__code__]
    texts: dict[str, str] = {}
    while unread:
        code = unread.pop()
        unread += [part for part in code.co_consts if isinstance(part, CodeType)]
        for name in sorted(_names_of_globals(code) & space.keys() - texts.keys()):
            if name.startswith('__'):
                continue
            codes = [part.__code__ for part in _functions(space[name]) if part.__globals__ is space]
            text = ''.join(map(code_text, codes)) + _settings(space[name], space, known)
            if text:
                texts[name] = f'{name}={text}'
            unread += codes
    return ''.join(texts[name] for name in sorted(texts))


def _functions(value: Any) -> list[FunctionType]:
    r"""Returns a function and the functions that it decorates, for a class those of its methods."""
    if isinstance(value, type):
        return [function for _, part in _parts(value) for function in _functions(part)]
    chain = [value]
    while callable(chain[-1]) and hasattr(chain[-1], '__wrapped__') and len(chain) < DECORATORS:
        chain.append(chain[-1].__wrapped__)
    return [part for part in chain if isinstance(part, FunctionType)]


def _settings(value: Any, space: dict[str, Any], known: dict[int, int]) -> str:
    r"""Returns a text with a constant, a transform, an object of a class of the module
    :obj:`space`, or the constants of such a class. It is empty for other values."""
    is_class = isinstance(value, type)
    is_own = (value if is_class else type(value)).__module__ == space.get('__name__')
    if is_class and is_own:
        known, value = {**known, id(value): len(known)}, [*_parts(value)]
        value = [part for part in value if not isinstance(part[1], FunctionType)]
    elif is_class or not (is_constant(value) or is_own or isinstance(value, BaseTransform)):
        return ''
    return without_addresses(text_of(value, known))


def without_addresses(text: str) -> str:
    r"""Removes memory addresses, which differ from process to process, from the text of a value."""
    return re.sub(' at 0x[0-9a-fA-F]+', '', text)


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
