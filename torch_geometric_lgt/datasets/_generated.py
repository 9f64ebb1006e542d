# G graphs.
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from tqdm import tqdm

from torch_geometric_lgt._io import cached_tensors

SPLITS = ('train', 'val', 'test')


class GeneratedDataset(InMemoryDataset):
    r"""A split of a data set that is made on the spot, kept in ``root/name`` as safetensors under a name that all arguments and the
    representation of :obj:`pre_transform` and :obj:`pre_filter` give. A subclass makes the graphs."""

    version = 1
    sizes: dict[str, int]

    def __init__(
        self,
        root: str | os.PathLike,
        name: str,
        split: str,
        num_graphs: int | None,
        seed: int,
        transform: Callable | None,
        pre_transform: Callable | None,
        pre_filter: Callable | None,
    ) -> None:
        if split not in SPLITS:
            raise ValueError(f"'split' must be one of {', '.join(map(repr, SPLITS))} (got {split!r})")
        if num_graphs is not None and num_graphs < 1:
            raise ValueError(f"'num_graphs' must be positive (got {num_graphs})")
        self.name, self.split, self.seed = name, split, seed
        self.num_graphs = self.sizes[split] if num_graphs is None else num_graphs
        super().__init__(str(root), transform, pre_transform, pre_filter)
        changes = [_described(*pair) for pair in (('pre_transform', pre_transform), ('pre_filter', pre_filter))]
        settings = [self.version, name, split, self.num_graphs, seed, *changes]
        key = hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]
        path = Path(self.root) / name / f'{split}-{key}.safetensors'
        tensors = cached_tensors(path, type(self).__name__, self._tensors)
        self._data, slices = Data(), {}
        for full, value in tensors.items():
            kind, _, attribute = full.partition('.')
            (slices if kind == 'slices' else self._data)[attribute] = value
        self.slices = slices or None

    def graphs(self, generator: np.random.Generator) -> Iterator[Data]:
        r"""Makes the graphs of the split. The generator is that of the seed and the split."""
        raise NotImplementedError

    def _tensors(self) -> dict[str, Tensor]:
        generator = np.random.default_rng([self.seed, SPLITS.index(self.split)])
        graphs = tqdm(self.graphs(generator), f'{self.name}, {self.split}', self.num_graphs)
        graphs = [graph for graph in graphs if self.pre_filter is None or self.pre_filter(graph)]
        data, slices = self.collate([graph if self.pre_transform is None else self.pre_transform(graph) for graph in graphs])
        out = {f'data.{name}': value for name, value in data.to_dict().items()}
        return out | {f'slices.{name}': value for name, value in (slices or {}).items()}

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}({self.name!r}, {self.split!r}, {len(self)})'


def _described(name: str, change: Callable | None) -> str:
    r"""What tells a transform apart from others in the next process, too. The representation of most of PyG's transforms lacks arguments;
    their attributes have them."""
    if isinstance(change, FunctionType) and change.__name__ != '<lambda>' and change.__closure__ is None:
        return f'{change.__module__}.{change.__qualname__}'
    for parts in ('transforms', 'filters'):
        if hasattr(change, parts):
            return f'{type(change).__name__}({", ".join(_described(name, part) for part in getattr(change, parts))})'
    text = repr(change) + repr(sorted(getattr(change, '__dict__', {}).items()))
    if ' at 0x' in text:
        raise ValueError(f"'{name}' must say what it does in its representation (got {change!r}); use a named function or add a __repr__")
    return text


def one_hot(tokens: np.ndarray, number: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.from_numpy(tokens).long(), number).float()
