r"""Loads node classification tasks on one large graph.

The package of the Open Graph Benchmark reads its own data sets. Here it asks no question and no
server, and unpickles nothing but arrays and PyG's graphs.
"""

# N nodes, T labels and O outputs of a node, n nodes that are measured.

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
from benchmarks.common.classes import predicted_classes
from benchmarks.common.files import DataError, writing
from torch_geometric_lgt.data import MappedGraph, write_graph
from torch_geometric_lgt.datasets._download import download as download_file

CLASSES = (Data, DataEdgeAttr, DataTensorAttr, GlobalStorage)


class NodeTask(NamedTuple):
    r"""Holds a graph with labels ``[N, T]``, the nodes of each part of the split, and the metric.
    :obj:`measure` computes the metric from scores ``[n, O]`` and labels ``[n, T]``."""

    data: Any
    split: dict[str, Tensor]
    num_outputs: int
    binary: bool
    metric: str
    measure: Callable[[Tensor, Tensor], float]


def random_split(
    num_nodes: int, shares: tuple[float, float], generator: torch.Generator
) -> dict[str, Tensor]:
    r"""Splits nodes at random: shares for training and validation, the rest for the test."""
    sizes = [int(share * num_nodes) for share in shares]
    parts = torch.randperm(num_nodes, generator=generator).split([*sizes, num_nodes - sum(sizes)])
    return dict(zip(('train', 'valid', 'test'), parts, strict=True))


def accuracy(scores: Tensor, labels: Tensor) -> float:
    r"""Computes the share of the nodes whose class has the largest score."""
    return float((predicted_classes(scores)[:, None] == labels).double().mean())


def load_ogb_task(name: str, root: str | Path, download: bool = False) -> NodeTask:
    r"""Loads the data set :obj:`name` of the Open Graph Benchmark from :obj:`root`. Its layout is
    that of ogb's download, or of ogb's ``DatasetSaver`` with ``meta_dict.pt`` in :obj:`root`.

    Raises:
        FileNotFoundError: If the data set or one of its files is missing or has another version,
            and :obj:`download` is not set, or ``meta_dict.pt`` describes another data set.
        RuntimeError: If the download fails; it leaves no file.
        pickle.UnpicklingError: If a file holds more than arrays and PyG's graphs. No code in it
            runs.
    """
    root, nodeproppred = Path(root), _package()
    with arrays_only(root, CLASSES), warnings.catch_warnings():
        # ogb makes tensors of tables that it only reads.
        warnings.filterwarnings('ignore', 'The given NumPy array is not writable')
        meta_path = root / 'meta_dict.pt'
        require_regular(meta_path)
        meta = torch.load(meta_path, weights_only=True) if meta_path.exists() else None
        if meta is None:
            folder = _require(name, root, download)
        else:
            meta |= {'dir_path': str(root / Path(meta['dir_path']).name)}
            folder = Path(meta['dir_path'])
            if folder.name != name.partition('-')[2].replace('-', '_'):
                raise FileNotFoundError(
                    f'{meta_path} describes the data set {folder.name}, not {name}; give the '
                    f'folder of {name}, or remove the file'
                )
            _check_version(folder, name, meta['version'])
        require_regular(folder)
        dataset = _local(nodeproppred.PygNodePropPredDataset)(name, str(root), meta_dict=meta)
        split = {part: torch.as_tensor(nodes) for part, nodes in dataset.get_idx_split().items()}
    binary, metric = dataset.task_type == 'binary classification', dataset.eval_metric
    evaluator = nodeproppred.Evaluator(name)

    def measure(scores: Tensor, labels: Tensor) -> float:
        # ogb's ROC-AUC fails on numbers that are not finite, as after a training that diverged
        prediction = scores.nan_to_num() if binary else predicted_classes(scores)[:, None]
        return evaluator.eval({'y_true': labels, 'y_pred': prediction})[metric]

    outputs = dataset.num_tasks if binary else dataset.num_classes
    return NodeTask(
        dataset[0],
        split,
        outputs,
        binary,
        {'acc': 'accuracy'}.get(metric, metric),
        measure,
    )


def map_graph(task: NodeTask, folder: str | Path) -> NodeTask:
    r"""Writes the graph of a task to :obj:`folder` unless it is there, with its edges in both
    directions and its features in half precision, and returns the task with the graph in files.

    Raises:
        DataError: If the folder has something else, another graph or other labels, or cannot be
            written.
    """
    data, folder = task.data, Path(folder)
    try:
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            with writing(folder):
                write_graph(
                    folder,
                    data.edge_index,
                    data.num_nodes,
                    {'x': data.x.half(), 'y': data.y},
                    undirected=True,
                    progress_bar=True,
                )
        graph = MappedGraph(folder)
    except FileNotFoundError as error:
        raise DataError(f'{folder} holds no graph in files; give another folder') from error
    except ValueError as error:
        raise DataError(f'{error}; give another folder') from error
    nodes = torch.cat([*task.split.values()])
    sizes = graph.num_nodes, graph.num_edges
    if sizes != (data.num_nodes, 2 * data.num_edges) or not torch.equal(
        graph['y'][nodes], data.y[nodes]
    ):
        raise DataError(
            f'{folder} has another graph or other labels than the data; give another folder'
        )
    return task._replace(data=graph)


def _local(dataset: type) -> type:
    r"""Derives a class from ogb's that downloads nothing. The download of ogb asks a question and
    follows the address in ``meta_dict.pt``."""

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
    # With the package outdated the import of ogb asks a server for newer versions.
    with _without('outdated'):
        import ogb.nodeproppred
    return ogb.nodeproppred


@contextlib.contextmanager
def _without(name: str) -> Iterator[None]:
    module = sys.modules.get(name)
    sys.modules[name] = cast(Any, None)
    try:
        yield
    finally:
        del sys.modules[name]
        if module is not None:
            sys.modules[name] = module


def _require(name: str, root: Path, download: bool) -> Path:
    meta = _listed_properties(name)
    folders = [root / f'{name.replace("-", "_")}{ending}' for ending in ('_pyg', '')]
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


def _listed_properties(name: str) -> dict[str, str]:
    r"""Returns the properties of a data set that the ogb package lists."""
    import pandas as pd

    master = pd.read_csv(
        Path(_package().__file__).with_name('master.csv'), index_col=0, keep_default_na=False
    )
    if name not in master:
        raise ValueError(f"'name' must be one of {', '.join(master)} (got {name!r})")
    meta = master[name].to_dict()
    return meta | {'url': meta['url'].replace('http://', 'https://')}
