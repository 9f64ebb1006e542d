r"""Describes the arguments of an operator by a dataclass. The schema of the operator, the order of
its values and its gradients follow from the fields."""

import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from operator import attrgetter
from types import NoneType
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, cast

import torch
from torch import Tensor
from typing_extensions import Self, dataclass_transform

from torch_geometric_lgt.typing import GRADIENT

K = TypeVar('K')
Size = Annotated[int, 'SymInt']
SCHEMAS = {Tensor: 'Tensor', int: 'int', float: 'float', bool: 'bool', str: 'str'}


class Slot(NamedTuple):
    r"""Describes one value of an operator: its path in the arguments, its type in the schema, and
    whether it has a gradient."""

    path: str
    schema: str
    has_gradient: bool


class Record(NamedTuple):
    r"""Describes one field of the arguments: its type, its first slot, and the names of its values,
    none for a plain value."""

    field: str
    kind: Any
    first: int
    names: tuple[str, ...]


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Arguments:
    r"""Makes each subclass a frozen dataclass with keywords: the arguments of one operator.

    A field is a tensor, a number, a text, or a record of such values, a dataclass or a named tuple.
    :obj:`shares` maps paths of tensors to other paths, as ``{'keys.x': 'queries.x'}``. If both are
    the same object, the tensor is passed once and has one gradient.
    """

    shares: ClassVar[Mapping[str, str]] = {}
    slots: ClassVar[tuple[Slot, ...]]
    schema: ClassVar[str]
    _records: ClassVar[tuple[Record, ...]]
    _shared: ClassVar[tuple[tuple[int, int], ...]]
    _values: ClassVar[Any]
    _gradients: ClassVar[frozenset[str]]
    _gradient_places: ClassVar[tuple[tuple[str, str, str], ...]]

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)
        cls.slots = tuple(_slots_of(cls, cls.shares))
        cls.schema = ', '.join(f'{slot.schema} {slot.path.replace(".", "_")}' for slot in cls.slots)
        paths = [slot.path for slot in cls.slots]
        cls._records = tuple(_records_of(cls, paths))
        cls._shared = tuple(
            (paths.index(path), paths.index(other)) for path, other in cls.shares.items()
        )
        cls._values = attrgetter(*paths)
        cls._gradients = frozenset(slot.path for slot in cls.slots if slot.has_gradient)
        places = (slot.path.partition('.') for slot in cls.slots if slot.has_gradient)
        cls._gradient_places = tuple(places)

    def pack(self) -> list[Any]:
        r"""Returns the values in the order of the slots."""
        values = list(self._traced() if torch.compiler.is_compiling() else type(self)._values(self))
        for position, other in reversed(self._shared):
            if values[position] is values[other]:
                values[position] = None
        return values

    def _traced(self) -> tuple[Any, ...]:
        r"""Returns the values in a way that torch.compile traces."""
        return tuple(_at(self, slot.path) for slot in self.slots)

    @classmethod
    def unpack(cls, values: Sequence[Any]) -> Self:
        r"""Returns the arguments with these values, the inverse of :meth:`pack`."""
        values = list(values)
        for position, other in cls._shared:
            if values[position] is None:
                values[position] = values[other]
        return _filled(cls, {record.field: _made(record, values) for record in cls._records})

    @classmethod
    def pack_gradients(cls, gradients: Mapping[str, Any], like: Tensor) -> list[Tensor]:
        r"""Sorts gradients by the order of their slots. An operator cannot return :obj:`None`: an
        empty tensor replaces it.

        Raises:
            KeyError: If an argument without a gradient gets one.
        """
        unknown = set(_paths_of(gradients)) - cls._gradients
        if unknown:
            raise KeyError(f'{cls.__name__} has no gradient for {sorted(unknown)}')
        out = []
        for field, _, name in cls._gradient_places:
            part = gradients.get(field)
            gradient = part.get(name) if name and part is not None else part
            out.append(like.new_empty(0) if gradient is None else gradient)
        return out


def _made(record: Record, values: list[Any]) -> Any:
    r"""Returns the value of one field."""
    if not record.names:
        return values[record.first]
    part = values[record.first : record.first + len(record.names)]
    if issubclass(record.kind, tuple):
        return record.kind(*part)
    return _filled(record.kind, dict(zip(record.names, part, strict=True)))


def _filled(kind: type[K], values: dict[str, Any]) -> K:
    r"""Returns a frozen dataclass with these values, without the cost of its constructor."""
    made = object.__new__(kind)
    made.__dict__.update(values)
    return made


def _types(record: type) -> dict[str, Any]:
    r"""Returns the type hints of a dataclass or named tuple by name."""
    hints = typing.get_type_hints(record, include_extras=True)
    if is_dataclass(record):
        return {field.name: hints[field.name] for field in fields(record)}
    return {name: hints[name] for name in cast(Any, record)._fields}


def _kind(hint: Any) -> tuple[Any, bool, tuple[str, ...]]:
    r"""Returns the type in a hint, whether it may be None, and the marks of the hint."""
    marks = getattr(hint, '__metadata__', ())
    plain = hint.__origin__ if marks else hint
    choices = set(typing.get_args(plain))
    (kind,) = choices - {NoneType} or {plain}
    return kind, NoneType in choices, marks


def _slots_of(record: type, shares: Mapping[str, str], above: str = '') -> Iterator[Slot]:
    r"""Iterates over the slots of a record; :obj:`above` is the path of the record."""
    for name, hint in _types(record).items():
        path = above + name
        kind, optional, marks = _kind(hint)
        if kind not in SCHEMAS:
            yield from _slots_of(kind, shares, f'{path}.')
            continue
        schema = 'SymInt' if 'SymInt' in marks else SCHEMAS[kind]
        yield Slot(path, schema + ('?' if optional or path in shares else ''), GRADIENT in marks)


def _records_of(arguments: type, paths: list[str]) -> Iterator[Record]:
    r"""Iterates over the fields of arguments."""
    fields_of_paths = [path.partition('.')[0] for path in paths]
    for name, hint in _types(arguments).items():
        names = [path.partition('.')[2] for path in paths if path.partition('.')[0] == name]
        first = fields_of_paths.index(name)
        yield Record(name, _kind(hint)[0], first, () if names == [''] else tuple(names))


def _at(value: Any, path: str) -> Any:
    r"""Returns the attribute at a path."""
    for name in path.split('.'):
        value = getattr(value, name)
    return value


def _paths_of(gradients: Mapping[str, Any]) -> Iterator[str]:
    r"""Iterates over the paths of gradients."""
    for field, value in gradients.items():
        if isinstance(value, Mapping):
            yield from (f'{field}.{name}' for name in value)
        else:
            yield field
