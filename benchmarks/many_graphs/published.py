r"""Reads the published graphs of stochastic block models from the file of PyG's
``GNNBenchmarkDataset``."""

import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.datasets import GNNBenchmarkDataset

from benchmarks.common.arrays_only import arrays_only, require_regular
from torch_geometric_lgt.data._files import digest
from torch_geometric_lgt.datasets import SBMDataset
from torch_geometric_lgt.datasets._download import download as download_file
from torch_geometric_lgt.datasets._generated import SPLITS

ATTRIBUTES = ('x', 'edge_index', 'y')


class PublishedSBM(SBMDataset):
    r"""Reads the published graphs of ``PATTERN`` or ``CLUSTER``.

    They are in ``root/NAME/raw/NAME_v2.pt``, where ``GNNBenchmarkDataset`` of PyG has them, and are
    downloaded if they are not there. The graphs with their attributes are stored beside it, as
    :class:`SBMDataset` does; a file of other content is read again.

    Args:
        root (str): Folder of data sets.
        name (str): :obj:`"PATTERN"` or :obj:`"CLUSTER"`.
        split (str): :obj:`"train"`, :obj:`"val"` or :obj:`"test"`.
        num_graphs (int, optional): Number of graphs, the first of the split. (default: :obj:`None`,
            all)
        transform (callable, optional): Applied at every access. (default: :obj:`None`)
        pre_transform (callable, optional): Applied once. (default: :obj:`None`)

    Raises:
        ValueError: If the file does not hold as many graphs.
        RuntimeError: If the download fails; it leaves no file.
        pickle.UnpicklingError: If the file holds more than arrays. No code in it runs.
    """

    def __init__(
        self,
        root: str | os.PathLike,
        name: str,
        split: str,
        num_graphs: int | None = None,
        transform: Callable | None = None,
        pre_transform: Callable | None = None,
    ) -> None:
        self.path = Path(root) / name / 'raw' / f'{name}_v2.pt'
        if not self.path.exists():
            _download(GNNBenchmarkDataset.urls[name], self.path)
        require_regular(self.path)
        self.version = digest(self.path)
        super().__init__(
            root, name, split, num_graphs, transform=transform, pre_transform=pre_transform
        )

    def graphs(self, generator: np.random.Generator) -> Iterator[Data]:
        r"""Yields the first :obj:`num_graphs` graphs of the split."""
        with arrays_only(self.path.parent):
            splits = torch.load(self.path, weights_only=True)
        graphs = splits[SPLITS.index(self.split)]
        if len(graphs) < self.num_graphs:
            raise ValueError(
                f'{self.path} must hold {self.num_graphs} graphs of the split {self.split!r} (got '
                f'{len(graphs)}); remove it, and it is downloaded again'
            )
        for values in graphs[: self.num_graphs]:
            yield Data(**{name: values[name] for name in ATTRIBUTES})


def _download(url: str, path: Path) -> None:
    r"""Downloads an archive and moves the file in it that is called as :obj:`path` there.

    Raises:
        RuntimeError: If the download fails, or the archive has no such file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f'.{path.stem}.', dir=path.parent) as place:
        archive = Path(place, 'archive.zip')
        try:
            with open(archive, 'xb') as file:
                download_file(url, file, path.stem)
            with zipfile.ZipFile(archive) as content:
                Path(content.extract(path.name, place)).rename(path)
        except (OSError, zipfile.BadZipFile, KeyError) as error:
            raise RuntimeError(
                f'{path} cannot be downloaded ({error}): run again, or unpack {url} into '
                f'{str(path.parent)!r}'
            ) from error
