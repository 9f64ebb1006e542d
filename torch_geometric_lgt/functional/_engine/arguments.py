r"""Describes the arguments of an operator by a dataclass. The operator's schema, the order of its
values and its gradients follow from the fields of the dataclass."""

import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType
from typing import Annotated, Any, ClassVar, NamedTuple, TypeVar, cast

from torch import Tensor
from typing_extensions import Self, dataclass_transform

from torch_geometric_lgt.typing import GRADIENT

K = TypeVar('K')
Size = Annotated[int, 'SymInt']
SCHEMAS = {Tensor: 'Tensor', int: 'int', float: 'float', bool: 'bool', str: 'str'}


class Slot(NamedTuple):
    r"""Describes one value that an operator takes: its path in the arguments such as
    ``'keys.weight'``, its type in the operator's schema such as ``'Tensor?'``, and whether it gets
    a gradient."""

    path: str
    schema: str
    has_gradient: bool


class Record(NamedTuple):
    r"""Describes one field of an :class:`Arguments` class: its name, its type, the index of its
    first slot (a value that the operator takes) and the names of its values. A field that is one
    plain value has no names."""

    field: str
    kind: Any
    first: int
    names: tuple[str, ...]


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Arguments:
    r"""Makes each subclass a frozen, keyword-only dataclass: the arguments of one operator.

    A field is a tensor, a number, a text, or a record of these (a dataclass or named tuple). Each
    such value has a slot: a position in the flat list that the operator takes.

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
        # attrgetter is not traced, and a loop over the paths takes long to trace
        cls._values = eval(f'lambda self: [{", ".join(f"self.{path}" for path in paths)}]')
        cls._gradients = frozenset(slot.path for slot in cls.slots if slot.has_gradient)
        places = (slot.path.partition('.') for slot in cls.slots if slot.has_gradient)
        cls._gradient_places = tuple(places)

    def pack(self) -> list[Any]:
        r"""Returns the flat list of values that the operator takes, one for each slot. A tensor
        that is the same object as its partner in :obj:`shares` is replaced by :obj:`None`."""
        values = self._values()
        for position, other in self._shared[::-1]:
            if values[position] is values[other]:
                values[position] = None
        return values

    @classmethod
    def unpack(cls, values: Sequence[Any]) -> Self:
        r"""Returns the arguments from the flat list that :meth:`pack` returned."""
        values = list(values)
        for position, other in cls._shared:
            if values[position] is None:
                values[position] = values[other]
        return _filled(cls, {record.field: _made(record, values) for record in cls._records})

    @classmethod
    def pack_gradients(cls, gradients: Mapping[str, Any], like: Tensor) -> list[Tensor]:
        r"""Returns a list with the gradient of each slot (value of the operator) that is
        differentiable, in the order of the slots.

        :obj:`gradients` maps names of fields to gradients, and names of records to such mappings. A
        gradient that is missing or :obj:`None` becomes an empty tensor of the dtype and device of
        :obj:`like`, because operators return tensors only.

        Raises:
            KeyError: If :obj:`gradients` names an argument that is not differentiable.
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
    r"""Returns the value of the field :obj:`record` from the flat list :obj:`values` of an
    operator."""
    if not record.names:
        return values[record.first]
    part = values[record.first : record.first + len(record.names)]
    if issubclass(record.kind, tuple):
        return record.kind(*part)
    return _filled(record.kind, dict(zip(record.names, part, strict=True)))


def _filled(kind: type[K], values: dict[str, Any]) -> K:
    r"""Returns an object of the frozen dataclass :obj:`kind` with the fields :obj:`values`. The
    slow constructor is not called."""
    made = object.__new__(kind)
    made.__dict__.update(values)
    return made


def _types(record: type) -> dict[str, Any]:
    r"""Returns the type hints of the fields of a dataclass or named tuple, by field name."""
    hints = typing.get_type_hints(record, include_extras=True)
    if is_dataclass(record):
        return {field.name: hints[field.name] for field in fields(record)}
    return {name: hints[name] for name in cast(Any, record)._fields}


def _kind(hint: Any) -> tuple[Any, bool, tuple[str, ...]]:
    r"""Returns the type in a type hint, whether the value may be :obj:`None`, and the hint's
    :obj:`Annotated` metadata."""
    marks = getattr(hint, '__metadata__', ())
    plain = hint.__origin__ if marks else hint
    choices = set(typing.get_args(plain))
    (kind,) = choices - {NoneType} or {plain}
    return kind, NoneType in choices, marks


def _slots_of(record: type, shares: Mapping[str, str], above: str = '') -> Iterator[Slot]:
    r"""Yields a :class:`Slot` for each value in the class :obj:`record`, records in it included.
    :obj:`above` is the path of the record with a final dot, empty for the arguments themselves."""
    for name, hint in _types(record).items():
        path = above + name
        kind, optional, marks = _kind(hint)
        if kind not in SCHEMAS:
            yield from _slots_of(kind, shares, f'{path}.')
            continue
        schema = 'SymInt' if 'SymInt' in marks else SCHEMAS[kind]
        yield Slot(path, schema + ('?' if optional or path in shares else ''), GRADIENT in marks)


def _records_of(arguments: type, paths: list[str]) -> Iterator[Record]:
    r"""Yields a :class:`Record` for each field of the class :obj:`arguments`; :obj:`paths` are the
    paths of all its slots (the values of the operator)."""
    fields_of_paths = [path.partition('.')[0] for path in paths]
    for name, hint in _types(arguments).items():
        names = [path.partition('.')[2] for path in paths if path.partition('.')[0] == name]
        first = fields_of_paths.index(name)
        yield Record(name, _kind(hint)[0], first, () if names == [''] else tuple(names))


def _paths_of(gradients: Mapping[str, Any]) -> Iterator[str]:
    r"""Yields the paths such as ``'keys.weight'`` of gradients that are given by field, and inside
    a record by name."""
    for field, value in gradients.items():
        if isinstance(value, Mapping):
            yield from (f'{field}.{name}' for name in value)
        else:
            yield field
