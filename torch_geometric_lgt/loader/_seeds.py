r"""Checks the nodes and links around which a loader samples."""

# S seeds, E links.
import reprlib
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.remote_backend_utils import num_nodes
from torch_geometric.sampler import EdgeSamplerInput

from torch_geometric_lgt._arguments import check_ids, check_no_mask_of_numbers, nearest_name
from torch_geometric_lgt.functional.neighbors.edges import check_edge_shape
from torch_geometric_lgt.loader._sorted_edges import stored_node_types


def checked_seeds(data: Any, input_nodes: Any) -> Any:
    r"""Checks that seed nodes have a node type if, and only if, the graph has node types, and that
    they are ids or a mask. Returns them with lists, tuples, arrays and columns of a table as
    tensors, for PyG takes their bools for ids.

    Raises:
        ValueError: If the seeds of a graph without node types are a text, which PyG's loader would
            take for a node type, or those of a graph with node types name none of them. If they
            are numbers with fractions, or a mask of another number of nodes.
    """
    kinds = _node_types(data)
    if kinds or isinstance(data, HeteroData):
        is_pair = isinstance(input_nodes, (tuple, list)) and len(input_nodes) == 2
        kind = input_nodes[0] if is_pair else input_nodes
        if not isinstance(kind, str) or kind not in kinds:
            shown = kind if is_pair or isinstance(kind, str) else type(kind).__name__
            raise ValueError(
                f"'input_nodes' must be one of the node types {kinds}, or a pair of a "
                f'node type and ids or a mask (got {shown!r}){nearest_name(kind, kinds)}'
            )
        if not is_pair or input_nodes[1] is None:
            return kind
        is_hetero = isinstance(data, HeteroData)
        size = data[kind].num_nodes if is_hetero else num_nodes(data[0], data[1], kind)
        return kind, _ids_or_mask(input_nodes[1], size)
    if isinstance(input_nodes, str):
        raise ValueError(
            "'input_nodes' must be ids or a mask of nodes in a graph without node types (got "
            f'{input_nodes!r}); for an attribute give data[{input_nodes!r}]'
        )
    if isinstance(data, Data):
        return _ids_or_mask(input_nodes, data.num_nodes)
    size = data[1].get_all_edge_attrs()[0].size
    return _ids_or_mask(input_nodes, None if size is None or None in size else max(size))


def checked_index(index: Any, num_inputs: int) -> Any:
    r"""Checks the positions among :obj:`num_inputs` seed nodes with which a loader is called, or
    the mask of these nodes, and returns the positions.

    Raises:
        ValueError: If they are neither.
    """
    index = _ids_or_mask(index, num_inputs, 'index')
    if isinstance(index, Tensor):
        index = index.nonzero().view(-1) if index.dtype == torch.bool else index
        check_ids('index', index, num_inputs)
    return index


def _ids_or_mask(seeds: Any, num_nodes: int | None, argument: str = 'input_nodes') -> Any:
    if hasattr(seeds, '__len__') and not isinstance(seeds, Tensor):
        array = np.asarray(seeds)
        if array.size > 0 and array.dtype.kind not in 'biu':
            raise ValueError(
                f"'{argument}' must have whole numbers, ids of nodes (got {reprlib.repr(seeds)})"
            )
        seeds = torch.from_numpy(array if array.dtype.kind == 'b' else array.astype(np.int64))
    if not isinstance(seeds, Tensor):
        return seeds
    if seeds.dim() != 1 or seeds.is_floating_point():
        raise ValueError(
            f"'{argument}' must be a tensor of whole numbers [S], ids of nodes, or a mask (got "
            f'shape {tuple(seeds.shape)} in {seeds.dtype})'
        )
    if seeds.dtype == torch.bool and num_nodes not in (None, seeds.numel()):
        raise ValueError(
            f"'{argument}' must have a bool for each of {num_nodes} nodes (got {seeds.numel()})"
        )
    check_no_mask_of_numbers(argument, seeds, num_nodes)
    return seeds


def check_links(data: Any, edge_label_index: Any, edge_label: Any) -> None:
    r"""Checks the links that are the seeds of a loader, that they have an edge type in a graph with
    node types, and that labels are a tensor. The ids of links that an edge type names, and
    :obj:`None`, are not checked.

    Raises:
        ValueError: If links are no ids ``[2, E]``, or labels no tensor. If the links of a graph
            with node types have no edge type, or one of unknown nodes.
    """
    if not isinstance(edge_label, Tensor | None):
        raise ValueError(
            f"'edge_label' must be a tensor (got {type(edge_label).__name__}); convert it with "
            'torch.as_tensor'
        )
    node_types = _node_types(data)
    if node_types or isinstance(data, HeteroData):
        _check_link_type(data, node_types, edge_label_index)
    is_pair = isinstance(edge_label_index, (tuple, list)) and len(edge_label_index) == 2
    index = edge_label_index[1] if is_pair else edge_label_index
    if index is None or (isinstance(edge_label_index, tuple) and not isinstance(index, Tensor)):
        return
    if not isinstance(index, Tensor) or index.is_floating_point() or index.dtype == torch.bool:
        form = index.dtype if isinstance(index, Tensor) else type(index).__name__
        raise ValueError(f"'edge_label_index' must be a tensor of node ids [2, E] (got {form})")
    check_edge_shape(index, 'edge_label_index')


def check_labels(links: EdgeSamplerInput) -> None:
    r"""Raises a ValueError unless each of the links has a label, if there are labels."""
    if links.label is not None and links.label.size(0) != links.row.numel():
        raise ValueError(
            f"'edge_label' must have a label for each of {links.row.numel()} links (got "
            f'{links.label.size(0)})'
        )


def _check_link_type(data: Any, node_types: list[str], edge_label_index: Any) -> None:
    kind, links = edge_label_index, None
    if isinstance(kind, (tuple, list)) and len(kind) == 2 and not isinstance(kind[0], str):
        kind, links = kind
    is_kind = isinstance(kind, (tuple, list)) and all(isinstance(name, str) for name in kind)
    if isinstance(data, HeteroData):
        kinds, lengths, canonical = data.edge_types, (2, 3), data._to_canonical
    else:
        kinds = [attribute.edge_type for attribute in data[1].get_all_edge_attrs()]
        lengths, canonical = (3,), lambda *kind: kind
    if (
        not is_kind
        or len(kind) not in lengths
        or not {kind[0], kind[-1]} <= {*node_types}
        or (links is None and canonical(*kind) not in kinds)
    ):
        shown = kind if is_kind or kind is None else type(kind).__name__
        raise ValueError(
            f"'edge_label_index' must be one of the edge types {kinds}, or a pair of an edge type "
            f'and ids [2, E] (got {shown})'
        )


def _node_types(data: Any) -> list[str]:
    r"""Returns the node types of a graph, none for a graph without types."""
    if isinstance(data, HeteroData):
        return data.node_types
    return stored_node_types(*data) if isinstance(data, tuple) else []
