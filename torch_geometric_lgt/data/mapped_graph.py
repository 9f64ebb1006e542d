# N nodes, E edges.
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from torch_geometric_lgt.data._files import POINTER, ROW, description, digest, mapped


class MappedGraph(FeatureStore, GraphStore):
    r"""A graph in the files that :meth:`write_graph` wrote, as PyG's feature store and graph store:
    nothing is read before it is used, and what is not used for a while leaves the memory. Pass it
    twice, as both stores, to a loader, the nodes to start from as :obj:`input_nodes`::

        graph = MappedGraph('papers')
        loader = NeighborLoader((graph, graph), [15, 10], input_nodes=graph['train_mask'],
        batch_size=1024)

    Batches have the attributes of their nodes in the dtypes they were written in. The files cannot
    be changed through it. Pickling it, as workers that are spawned need, stores the folder only:
    the other process maps the same files.

    Args:
        folder (str or Path): What :meth:`write_graph` wrote.

    Raises:
        FileNotFoundError: If there is no graph.
        ValueError: If it is of another version, or a file is missing or of another length.
    """

    def __init__(self, folder: str | Path) -> None:
        FeatureStore.__init__(self)
        GraphStore.__init__(self)
        self.folder = Path(folder).absolute()
        self.files = description(self.folder)
        self._tensors = {
            name: torch.from_numpy(mapped(self.folder / name, held.dtype, held.shape, 'c'))
            for name, held in self.files.items()
        }
        self.num_nodes, self.num_edges = (
            self._tensors[POINTER].numel() - 1,
            self._tensors[ROW].numel(),
        )

    def __getstate__(self) -> dict[str, Any]:
        return {'folder': self.folder, 'files': self.files}

    def __setstate__(self, state: dict[str, Any]) -> None:
        MappedGraph.__init__(self, state['folder'])
        if self.files != state['files']:
            raise ValueError(
                "'folder' must hold the graph that was pickled (got another one in "
                f'{str(self.folder)!r}); open it again'
            )

    @property
    def attributes(self) -> list[str]:
        r"""The names of the attributes of the nodes."""
        return [name for name in self.files if name not in (ROW, POINTER)]

    def __getitem__(self, name: str) -> Tensor:
        r"""An attribute of all nodes, mapped."""
        if name not in self.attributes:
            raise KeyError(f"'name' must be one of {self.attributes} (got {name!r})")
        return self._tensors[name]

    def verify(self) -> None:
        r"""Reads all files and compares their checksums.

        Raises:
            ValueError: If the content of a file is another than what was written.
        """
        for name, held in self.files.items():
            if digest(self.folder / name) != held.sha256:
                raise ValueError(
                    f"'folder' is damaged: the checksum of {name!r} does not fit its content; "
                    'write the graph again'
                )

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        return [TensorAttr(group_name=None, attr_name=name) for name in self.attributes]

    def _get_tensor(self, attr: TensorAttr) -> Tensor | None:
        name: Any = attr.attr_name
        value = self._tensors[name] if name in self.attributes else None
        index: Any = attr.index
        if value is None or index is None:
            return value
        if isinstance(index, slice):
            return value[index]
        ids = torch.as_tensor(index)
        if (
            ids.dtype != torch.bool
            and ids.numel() > 0
            and not 0 <= ids.min() <= ids.max() < len(value)
        ):
            raise ValueError(
                f"'index' must hold rows from 0 to {len(value) - 1} of {name!r} (got "
                f'{int(ids.min())} to {int(ids.max())})'
            )
        return value[ids]

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        name: Any = attr.attr_name
        return self.files[name].shape if name in self.attributes else None

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        only_type: Any = None
        return [
            EdgeAttr(
                only_type, EdgeLayout.CSC, is_sorted=True, size=(self.num_nodes, self.num_nodes)
            )
        ]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor]:
        return self._tensors[ROW], self._tensors[POINTER]

    def _refuse(self, *_: Any) -> bool:
        raise TypeError('a MappedGraph cannot be changed; write another one with write_graph')

    _put_tensor: Any = _refuse
    _remove_tensor: Any = _refuse
    _put_edge_index: Any = _refuse
    _remove_edge_index: Any = _refuse

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.num_nodes} nodes, {self.num_edges} edges, '
            f'attributes={self.attributes})'
        )
