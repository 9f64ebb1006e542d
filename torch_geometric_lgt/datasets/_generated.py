# G graphs.
import dis
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from tqdm import tqdm

from torch_geometric_lgt._arguments import check_choice, check_whole
from torch_geometric_lgt._io import DTYPES, cached_tensors, raw_bytes
from torch_geometric_lgt.datasets._split import check_seed

SPLITS = ('train', 'val', 'test')
CONSTANTS = (bool, int, float, str, tuple, list, dict, set, frozenset, Tensor, np.ndarray)
SCALARS = (bool, int, float, complex, str, bytes, type(None), np.generic)


class GeneratedDataset(InMemoryDataset):
    r"""Stores a split of a generated data set in ``root/name`` as safetensors, and reads the split
    from there later.

    The name of the file is a checksum of all arguments. For :obj:`pre_transform` and
    :obj:`pre_filter` these are names, representations, attributes and the code of their functions,
    and the constants of its module that a plain function reads. A subclass generates the graphs in
    :meth:`graphs`, and sets :obj:`sizes`, the default number of graphs by split.
    """

    version: int | str = 1
    sizes: dict[str, int]

    def __init__(
        self,
        root: str | os.PathLike[str],
        name: str,
        split: str,
        num_graphs: int | None,
        seed: int,
        transform: Callable | None,
        pre_transform: Callable | None,
        pre_filter: Callable | None,
    ) -> None:
        check_choice('split', split, SPLITS)
        if num_graphs is not None:
            check_whole('num_graphs', num_graphs, 1)
        check_seed(seed)
        self.name, self.split, self.seed = name, split, int(seed)
        self.num_graphs = self.sizes[split] if num_graphs is None else int(num_graphs)
        super().__init__(str(root), transform, pre_transform, pre_filter)
        changes = [
            _described(*pair)
            for pair in (('pre_transform', pre_transform), ('pre_filter', pre_filter))
        ]
        if pre_transform is not None:  # which may compute in it
            changes.append(str(torch.get_default_dtype()))
        settings = [self.version, name, split, self.num_graphs, self.seed, *changes]
        key = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]
        path = Path(self.root) / name / f'{split}-{key}.safetensors'
        tensors = cached_tensors(path, type(self).__name__, self._tensors)
        self._data = Data()
        slices = {}
        for full, value in tensors.items():
            kind, _, attribute = full.partition('.')
            (slices if kind == 'slices' else self._data)[attribute] = value
        if len(self._data) == 0 or (slices and slices.keys() != {*self._data.keys()}):
            raise ValueError(
                f"'root' must hold slices of each attribute (got {sorted(tensors)} in "
                f'{str(path)!r}); remove the file'
            )
        self.slices = slices or None

    def graphs(self, generator: np.random.Generator) -> Iterator[Data]:
        r"""Yields :obj:`num_graphs` new graphs of the split. :obj:`generator` is seeded by the seed
        and the split. A subclass must implement this method."""
        raise NotImplementedError

    def _tensors(self) -> dict[str, Tensor]:
        r"""Generates the graphs and returns their collated attributes, named ``data.x`` and so on,
        and slices, named ``slices.x`` and so on.

        Raises:
            ValueError: If :obj:`pre_filter` drops all graphs.
        """
        generator = np.random.default_rng([self.seed, SPLITS.index(self.split)])
        graphs = [
            *self._processed(
                tqdm(self.graphs(generator), f'{self.name}, {self.split}', self.num_graphs)
            )
        ]
        if not graphs:
            raise ValueError(
                f"'pre_filter' must keep a graph at least (it keeps none of {self.num_graphs})"
            )
        data, slices = self.collate(graphs)
        out = {f'data.{name}': value for name, value in data.to_dict().items()}
        return out | {f'slices.{name}': value for name, value in (slices or {}).items()}

    def _processed(self, graphs: Iterable[Data]) -> Iterator[Data]:
        r"""Yields the graphs that :obj:`pre_filter` keeps, changed by :obj:`pre_transform`.

        Raises:
            ValueError: If :obj:`pre_transform` returns anything else than a :class:`Data` object of
                dense tensors.
        """
        for graph in graphs:
            if self.pre_filter is None or self.pre_filter(graph):
                graph = graph if self.pre_transform is None else self.pre_transform(graph)
                if type(graph) is not Data:
                    raise ValueError(
                        f"'pre_transform' must return a Data object (got {type(graph).__name__}); "
                        "give it as 'transform'"
                    )
                for name, value in graph.to_dict().items():
                    if not isinstance(value, Tensor) or value.layout != torch.strided:
                        raise ValueError(
                            f"'pre_transform' must leave dense tensors only ({name!r} is none); "
                            "give it as 'transform'"
                        )
                    if value.dtype not in DTYPES:
                        raise ValueError(
                            f"'pre_transform' must leave dtypes that files can store ({name!r} has "
                            f"{value.dtype}); give it as 'transform'"
                        )
                yield graph

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}({self.name!r}, {self.split!r}, {len(self)})'


def _described(name: str, change: Callable | None) -> str:
    r"""Returns a text that identifies a transform, or :obj:`None`, in every process. :obj:`name` is
    the name of the argument in error messages.

    The text has the type, its code, the representation and all attributes: most representations in
    PyG lack arguments, and representations of long tensors lack numbers.

    Raises:
        ValueError: If the text has a memory address, as for a ``lambda``.
    """
    text = _text(change)
    if ' at 0x' in text:
        raise ValueError(
            f"'{name}' must say what it does in its representation (got {change!r}); use a named "
            'function or add a __repr__'
        )
    return text


def _text(value: Any) -> str:
    r"""Returns a text that identifies a value. Tensors and arrays contribute a checksum or all
    numbers, functions their name, code and what they read of their module, other objects their
    type, representation and attributes."""
    if isinstance(value, Tensor) and value.layout != torch.strided:
        matrix = value.detach().to_sparse_coo().coalesce()
        return _text([matrix.indices(), matrix.values(), *matrix.shape])
    if isinstance(value, Tensor):
        return f'{value.dtype}{_text(raw_bytes(value))}{tuple(value.shape)}'
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f'{value.dtype}{value.shape}{digest}'
    if isinstance(value, np.ndarray):
        return f'{value.dtype}{value.shape}{_text(value.ravel().tolist())}'
    if (
        isinstance(value, FunctionType)
        and value.__name__ != '<lambda>'
        and value.__closure__ is None
    ):
        defaults = (
            _text([value.__defaults__, value.__kwdefaults__])
            if value.__defaults__ or value.__kwdefaults__
            else ''
        )
        name = f'{value.__module__}.{value.__qualname__}'
        return f'{name}{defaults}{_code(value.__code__)}{_globals(value)}'
    if isinstance(value, type):
        return _class(value)
    if isinstance(value, MethodType):
        return f'{value.__func__.__qualname__}({_text(value.__self__)})'
    if isinstance(value, (set, frozenset)):
        return f'{{{", ".join(sorted(map(_text, value)))}}}'
    if isinstance(value, (list, tuple)):
        return f'[{", ".join(map(_text, value))}]'
    if isinstance(value, dict):
        return f'{{{", ".join(sorted(f"{key!r}: {_text(part)}" for key, part in value.items()))}}}'
    attributes = getattr(value, '__dict__', {})
    has_parts = bool({'transforms', 'filters'} & attributes.keys())  # which are described below
    name = '' if has_parts else repr(value)
    if type(value).__module__ == 'builtins':
        return f'{name}[]'
    return f'{name}{_class(type(value))}{_text(attributes)}'


def _class(value: type) -> str:
    r"""Returns a text with the name of a class, and the code of its methods and the constants of
    the class, inherited ones too."""
    parts = []
    for base in value.__mro__:
        for name, part in vars(base).items():
            function = getattr(part, '__func__', getattr(part, 'fget', part))
            if isinstance(function, FunctionType):
                parts.append(f'{name}{_code(function.__code__)}')
            elif isinstance(part, CONSTANTS) and not name.startswith('__'):
                parts.append(f'{name}{_text(part)}')
    return f'{value.__module__}.{value.__qualname__}{"".join(parts)}'


def _globals(function: FunctionType) -> str:
    r"""Returns a text with the constants of its module that a function reads, the code of the
    functions of this module that it calls, and what these read. It is empty if there are none.
    Lists and other objects, which may change while the function runs, are left out."""
    space, unread = function.__globals__, [function.__code__]
    texts: dict[str, str] = {}
    while unread:
        code = unread.pop()
        unread += [part for part in code.co_consts if isinstance(part, CodeType)]
        loaded = (step for step in dis.get_instructions(code) if step.opname == 'LOAD_GLOBAL')
        for name in {step.argval for step in loaded} & space.keys() - texts.keys():
            value = space[name]
            if name.startswith('__'):
                continue
            if _is_constant(value):
                texts[name] = f'{name}={_text(value)}'
            elif isinstance(value, FunctionType) and value.__globals__ is space:
                texts[name] = f'{name}={_code(value.__code__)}'
                unread.append(value.__code__)
    return ''.join(texts[name] for name in sorted(texts))


def _is_constant(value: Any) -> bool:
    r"""Returns whether a value is a number, a text, a tensor, an array, or a tuple of these."""
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, (*SCALARS, Tensor, np.ndarray))


def _code(code: CodeType) -> str:
    r"""Returns a checksum of the instructions, names and constants of a function."""
    parts = [_code(part) if isinstance(part, CodeType) else _text(part) for part in code.co_consts]
    text = repr([code.co_code, code.co_names, parts])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def one_hot(tokens: np.ndarray, number: int) -> Tensor:
    r"""Encodes integer tokens ``[N]`` as one-hot rows ``[N, number]`` in float32."""
    return torch.nn.functional.one_hot(torch.from_numpy(tokens).long(), number).float()
