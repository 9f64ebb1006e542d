r"""Node-level data sets of the Open Graph Benchmark through its own package: no question asked, no
server asked, nothing unpickled that is not an array."""

import contextlib
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

from benchmarks.common.arrays_only import arrays_only, require_regular
from torch_geometric_lgt.datasets._download import download as download_file

CLASSES = (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage)


class NodeTask(NamedTuple):
    r"""A graph with labels ``[N, T]``, the nodes of each part of the split, and what scores ``[n,
    O]`` of nodes with labels are worth."""

    data: Any
    split: dict[str, Tensor]
    num_outputs: int
    binary: bool
    metric: str
    measure: Callable[[Tensor, Tensor], float]


def node_task(name: str, root: str | Path, download: bool = False) -> NodeTask:
    r"""The data set :obj:`name` in :obj:`root`, laid out as ogb's download leaves it, or as its
    ``DatasetSaver`` wrote it, with the ``meta_dict.pt`` beside it.

    Raises:
        FileNotFoundError: If it is not there, or of another version, and :obj:`download` is not
            set, or a file of it is missing.
        RuntimeError: If the download fails; nothing of it is left.
        pickle.UnpicklingError: If a file holds more than arrays and PyG's graphs, which has not
        run.
    """
    root, nodeproppred = Path(root), _package()
    with arrays_only(root, CLASSES), warnings.catch_warnings():
        warnings.filterwarnings(
            'ignore', 'The given NumPy array is not writable'
        )  # ogb, of tables it reads and does not write to
        own = root / 'meta_dict.pt'
        require_regular(own)
        meta = torch.load(own, weights_only=True) if own.exists() else None
        if meta is None:
            folder = _require(name, root, download)
        else:
            meta |= {'dir_path': str(root / Path(meta['dir_path']).name)}
            folder = Path(meta['dir_path'])
            _check_version(folder, name, meta['version'])
        require_regular(folder)
        dataset = _local(nodeproppred.PygNodePropPredDataset)(name, str(root), meta_dict=meta)
        split = {part: torch.as_tensor(nodes) for part, nodes in dataset.get_idx_split().items()}
    binary = dataset.task_type == 'binary classification'
    evaluator = nodeproppred.Evaluator(name)

    def measure(scores: Tensor, labels: Tensor) -> float:
        found = scores if binary else scores.argmax(1, keepdim=True)
        return evaluator.eval({'y_true': labels, 'y_pred': found})[dataset.eval_metric]

    outputs = dataset.num_tasks if binary else dataset.num_classes
    return NodeTask(
        dataset[0],
        split,
        outputs,
        binary,
        {'acc': 'accuracy'}.get(dataset.eval_metric, dataset.eval_metric),
        measure,
    )


def _local(dataset: type) -> type:
    r"""ogb's class, which fetches nothing itself: it would ask a question and follow the address in
    ``meta_dict.pt``."""

    def refuse(self: Any) -> None:
        raise FileNotFoundError(
            f'{self.root} lacks one of {self.raw_paths}; remove the folder and pass --download'
        )

    return type(dataset.__name__, (dataset,), {'download': refuse})


def _check_version(folder: Path, name: str, version: Any) -> None:
    if not (folder / f'RELEASE_v{version}.txt').exists():
        raise FileNotFoundError(
            f'{folder} does not hold version {version} of {name}, which meta_dict.pt describes; '
            'write both again'
        )


def _package() -> Any:
    with _without(
        'outdated'
    ):  # with this one ogb asks a server for newer versions when it is imported
        import ogb.nodeproppred
    return ogb.nodeproppred


@contextlib.contextmanager
def _without(name: str) -> Iterator[None]:
    held = sys.modules.get(name)
    sys.modules[name] = cast(Any, None)
    try:
        yield
    finally:
        del sys.modules[name]
        if held is not None:
            sys.modules[name] = held


def _require(name: str, root: Path, download: bool) -> Path:
    meta, folders = _listed(name), [root / f'{name.replace("-", "_")}{end}' for end in ('_pyg', '')]
    for folder in folders:
        if (folder / f'RELEASE_v{meta["version"]}.txt').exists():
            return folder
    folder, url = folders[1], meta['url']
    manual = f'unpack {url} and name the folder so'
    if not download or folder.exists():
        raise FileNotFoundError(
            f'{folder} does not hold version {meta["version"]} of {name}: {manual}, or remove an '
            'older one and pass --download'
        )
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f'.{folder.name}.', dir=root) as place:
        archive, unpacked = Path(place, 'archive.zip'), Path(place, 'unpacked')
        try:
            with open(archive, 'xb') as file:
                download_file(url, file, folder.name)
            shutil.unpack_archive(archive, unpacked, 'zip')
            (unpacked / meta['download_name']).rename(folder)
        except (OSError, zipfile.BadZipFile) as error:
            raise RuntimeError(
                f'{folder} cannot be downloaded ({error}): run again, or fetch it with a program '
                f'that goes on after a break, {manual}'
            ) from error
    return folder


def _listed(name: str) -> dict[str, str]:
    r"""What the ogb package says of a data set."""
    import pandas as pd

    master = pd.read_csv(
        Path(_package().__file__).with_name('master.csv'), index_col=0, keep_default_na=False
    )
    if name not in master:
        raise ValueError(f"'name' must be one of {', '.join(master)} (got {name!r})")
    meta = master[name].to_dict()
    return meta | {'url': meta['url'].replace('http://', 'https://')}
