# G graphs.
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, InMemoryDataset
from tqdm import tqdm

from torch_geometric_lgt._arguments import check_choice, check_whole
from torch_geometric_lgt._identity import text_of
from torch_geometric_lgt._io import DTYPES, cached_tensors
from torch_geometric_lgt.datasets._split import check_seed

SPLITS = ('train', 'val', 'test')


class GeneratedDataset(InMemoryDataset):
    r"""Stores a split of a generated data set in ``root/name`` as safetensors, and reads the split
    from there later.

    The name of the file is a checksum of all arguments. For :obj:`pre_transform` and
    :obj:`pre_filter` these are names, representations, attributes and the code of their functions
    and methods, and what each of these reads of its module (:meth:`text_of`). A subclass generates
    the graphs in :meth:`graphs`, and sets :obj:`sizes`, the default number of graphs by split.
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
    text = text_of(change)
    if ' at 0x' in text:
        raise ValueError(
            f"'{name}' must say what it does in its representation (got {change!r}); use a named "
            'function outside of other functions and without a decorator, or add a __repr__'
        )
    return text


def one_hot(tokens: np.ndarray, number: int) -> Tensor:
    r"""Encodes integer tokens ``[N]`` as one-hot rows ``[N, number]`` in float32."""
    return torch.nn.functional.one_hot(torch.from_numpy(tokens).long(), number).float()
