# N nodes, E edges.
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.graph_store import EdgeLayout

from torch_geometric_lgt.data._files import POINTER, ROW, description, digest, mapped


class MappedGraph(FeatureStore, GraphStore):
    r"""Memory-maps a homogeneous graph from the files that the function
    :func:`~torch_geometric_lgt.data.write_graph` has written, as PyG's feature store and graph
    store.

    Data is read from disk when it is used, and the system may drop unused parts from memory.
    :class:`~torch_geometric_lgt.loader.NeighborLoader` and
    :class:`~torch_geometric_lgt.loader.LinkNeighborLoader` take the graph as their data. They need
    no compiled sampler, and those of PyG's own loaders refuse the node ids in int32 of these files.

    Attributes of nodes keep the dtypes they were written in. The files cannot be changed through
    this class. A pickled graph has the folder and the checksums, not the data: a process that
    unpickles it maps the same files, and raises a ValueError if another graph was written there.

    Args:
        folder (str or Path): The folder that was given to
            :func:`~torch_geometric_lgt.data.write_graph`.

    Raises:
        FileNotFoundError: If the folder has no graph.
        ValueError: If the files have an unsupported format version, or a file is missing, or is
            longer or shorter than when it was written.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.data import MappedGraph, write_graph
        >>> from torch_geometric_lgt.loader import NeighborLoader
        >>> ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        >>> x = torch.arange(4.0)[:, None]
        >>> graph = MappedGraph(write_graph('directed-ring', ring, 4, {'x': x}))
        >>> loader = NeighborLoader(graph, [-1], input_nodes=torch.tensor([2]))
        >>> next(iter(loader)).x  # of node 2 and its neighbour 1
        tensor([[2.],
                [1.]])
    """

    def __init__(self, folder: str | Path) -> None:
        FeatureStore.__init__(self)
        GraphStore.__init__(self)
        self.folder = Path(folder).absolute()
        self.files = description(self.folder)
        self._tensors = {
            name: torch.from_numpy(mapped(self.folder / name, file.dtype, file.shape, 'c'))
            for name, file in self.files.items()
        }
        self.num_nodes = self._tensors[POINTER].numel() - 1
        self.num_edges = self._tensors[ROW].numel()

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
        r"""Returns the names of the node attributes."""
        return [name for name in self.files if name not in (ROW, POINTER)]

    def __contains__(self, name: object) -> bool:
        return name in self.attributes

    def __getitem__(self, name: Any) -> Any:
        r"""Returns a node attribute as a memory-mapped tensor with a row for each node of the
        graph. Any other key than a name has the meaning it has in PyG's feature stores.

        Raises:
            KeyError: If the graph has no such attribute.
        """
        if not isinstance(name, str):
            return super().__getitem__(name)
        if name not in self.attributes:
            raise KeyError(f"'name' must be one of {self.attributes} (got {name!r})")
        return self._tensors[name]

    def __getattr__(self, name: str) -> Any:
        r"""Raises an error that says how to read node attributes, as items.

        Raises:
            AttributeError: Always.
        """
        names = [other for other in self.__dict__.get('files', ()) if other not in (ROW, POINTER)]
        hint = f'; read a node attribute as graph[{names[0]!r}], one of {names}' if names else ''
        raise AttributeError(f'{type(self).__name__!r} has no attribute {name!r}{hint}')

    def verify(self) -> None:
        r"""Reads all files and compares their checksums with the checksums that were written.

        Raises:
            ValueError: If the content of a file has changed since it was written.
        """
        for name, file in self.files.items():
            if digest(self.folder / name) != file.sha256:
                raise ValueError(
                    f"'folder' is damaged: the checksum of {name!r} does not fit its content; "
                    'write the graph again'
                )

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        r"""Returns a :class:`torch_geometric.data.TensorAttr` for each node attribute, with its
        name as :obj:`attr_name` and without a :obj:`group_name`, as PyG's feature stores do."""
        return [TensorAttr(group_name=None, attr_name=name) for name in self.attributes]

    def _get_tensor(self, attr: TensorAttr) -> Tensor | None:
        r"""Returns the rows ``attr.index`` of an attribute, or all rows without an index, or
        :obj:`None` if the graph does not have the attribute or the group.

        The index is a slice, ids or a mask. Ids and a mask copy the rows; a slice and all rows stay
        memory-mapped.

        Raises:
            ValueError: If an id is outside the rows.
        """
        name, index = self._name(attr), cast(Any, attr.index)
        value = None if name is None else self._tensors[name]
        if value is None or index is None:
            return value
        if isinstance(index, slice):
            return value[index]
        ids = torch.as_tensor(index).cpu()
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
        r"""Returns the shape of an attribute, or :obj:`None` if the graph does not have the
        attribute or the group."""
        name = self._name(attr)
        return None if name is None else self.files[name].shape

    def _name(self, attr: TensorAttr) -> str | None:
        name: Any = attr.attr_name
        return name if attr.group_name is None and name in self.attributes else None

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        r"""Returns a list with one :class:`torch_geometric.data.EdgeAttr`: CSC format and size
        ``(N, N)``, as PyG's graph stores do."""
        only_type: Any = None
        return [
            EdgeAttr(
                only_type, EdgeLayout.CSC, is_sorted=True, size=(self.num_nodes, self.num_nodes)
            )
        ]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        r"""Returns the edges in CSC format as memory-mapped tensors: the sources ``[E]``, sorted by
        target, and the pointers ``[N + 1]``. Returns :obj:`None` for another layout or an edge
        type."""
        if edge_attr.layout != EdgeLayout.CSC or edge_attr.edge_type is not None:
            return None
        return self._tensors[ROW], self._tensors[POINTER]

    def _refuse(self, *_: Any) -> bool:
        r"""Raises an error in place of every method that would change the graph.

        Raises:
            TypeError: Always.
        """
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
