r"""Node-level data sets of the Open Graph Benchmark through its own package: no question asked, no server asked, nothing unpickled that is
not an array."""

import contextlib
import shutil
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.storage import GlobalStorage

MULTIARRAY = import_module('numpy.core.multiarray' if np.__version__ < '2' else 'numpy._core.multiarray')
ARRAYS = [MULTIARRAY._reconstruct, MULTIARRAY.scalar, np.ndarray, np.dtype]
KINDS = [type(np.dtype(kind)) for kind in ('bool', 'int32', 'int64', 'float32', 'float64')]
SAFE: list[Any] = [*ARRAYS, *KINDS, Data, DataEdgeAttr, DataTensorAttr, GlobalStorage]


class NodeTask(NamedTuple):
    r"""A graph with labels ``[N, T]``, the nodes of each part of the split, and what scores ``[n, O]`` of nodes with labels are worth."""

    data: Any
    split: dict[str, Tensor]
    num_outputs: int
    binary: bool
    metric: str
    measure: Callable[[Tensor, Tensor], float]


def node_task(name: str, root: str | Path, download: bool = False) -> NodeTask:
    r"""The data set :obj:`name` in :obj:`root`, laid out as ogb's download leaves it, or as its ``DatasetSaver`` wrote it, with the
    ``meta_dict.pt`` beside it.

    Raises:
        FileNotFoundError: If it is not there, or of another version, and :obj:`download` is not set.
        RuntimeError: If the download fails; nothing of it is left.
    """
    root, nodeproppred = Path(root), _package()
    with torch.serialization.safe_globals(SAFE), warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'The given NumPy array is not writable')  # ogb, of tables it reads and does not write to
        own = root / 'meta_dict.pt'
        meta = torch.load(own, weights_only=True) if own.exists() else None
        if meta is None:
            _require(name, root, download)
        else:
            meta |= {'dir_path': str(root / Path(meta['dir_path']).name)}
        dataset = nodeproppred.PygNodePropPredDataset(name, str(root), meta_dict=meta)
        split = {part: torch.as_tensor(nodes) for part, nodes in dataset.get_idx_split().items()}
    binary = dataset.task_type == 'binary classification'
    evaluator = nodeproppred.Evaluator(name)

    def measure(scores: Tensor, labels: Tensor) -> float:
        found = scores if binary else scores.argmax(1, keepdim=True)
        return evaluator.eval({'y_true': labels, 'y_pred': found})[dataset.eval_metric]

    outputs = dataset.num_tasks if binary else dataset.num_classes
    return NodeTask(dataset[0], split, outputs, binary, {'acc': 'accuracy'}.get(dataset.eval_metric, dataset.eval_metric), measure)


def _package() -> Any:
    with _without('outdated'):  # with this one ogb asks a server for newer versions when it is imported
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


def _require(name: str, root: Path, download: bool) -> None:
    meta, folders = _listed(name), [root / f'{name.replace("-", "_")}{end}' for end in ('_pyg', '')]
    if any((folder / f'RELEASE_v{meta["version"]}.txt').exists() for folder in folders):
        return
    folder, url = folders[1], meta['url']
    manual = f'unpack {url} and name the folder so'
    if not download or folder.exists():
        raise FileNotFoundError(
            f'{folder} does not hold version {meta["version"]} of {name}: {manual}, or remove an older one and pass --download'
        )
    archive, unpacked = (root / f'.{folder.name}.{end}' for end in ('zip', 'unpacked'))
    root.mkdir(parents=True, exist_ok=True)
    try:
        torch.hub.download_url_to_file(url, str(archive))
        shutil.unpack_archive(archive, unpacked, 'zip')
        (unpacked / meta['download_name']).rename(folder)
    except (OSError, zipfile.BadZipFile) as error:
        raise RuntimeError(
            f'{folder} cannot be downloaded ({error}): run again, or fetch it with a program that goes on after a break, {manual}'
        ) from error
    finally:
        archive.unlink(missing_ok=True)
        shutil.rmtree(unpacked, ignore_errors=True)


def _listed(name: str) -> dict[str, str]:
    r"""What the ogb package says of a data set."""
    import pandas as pd

    master = pd.read_csv(Path(_package().__file__).with_name('master.csv'), index_col=0, keep_default_na=False)
    if name not in master:
        raise ValueError(f"'name' must be one of {', '.join(master)} (got {name!r})")
    meta = master[name].to_dict()
    return meta | {'url': meta['url'].replace('http://', 'https://')}
