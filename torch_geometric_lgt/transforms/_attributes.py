# N nodes, E edges, B graphs.
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.data.storage import BaseStorage, NodeStorage

from torch_geometric_lgt._arguments import check_attribute_name
from torch_geometric_lgt.functional.neighbors.edges import sparse_entries
from torch_geometric_lgt.transforms._stores import check_graph

# names of PyG that transforms store values under only where the data has none
INPUTS = ('x', 'y', 'pos', 'edge_attr', 'edge_weight', 'train_mask', 'val_mask', 'test_mask')


def check_name(attr_name: str | None, optional: bool) -> None:
    r"""Checks that :obj:`attr_name` is a string that is not empty, or :obj:`None` if
    :obj:`optional`.

    Raises:
        ValueError: If :obj:`attr_name` is neither, or a name from which PyG reads a meaning.
    """
    if not (optional and attr_name is None) and not (isinstance(attr_name, str) and attr_name):
        raise ValueError(
            f"'attr_name' must be a name{', or None for columns of x' if optional else ''} (got "
            f'{attr_name!r})'
        )
    if attr_name is not None:
        check_attribute_name("'attr_name'", attr_name)


def check_no_input(data: Data | HeteroData, attr_name: str | None, has_mask: bool = False) -> None:
    r"""Checks that a transform does not replace an input of the user, such as features or labels.
    With :obj:`has_mask`, the transform also stores a mask, whose name ends in ``_mask``.

    Raises:
        ValueError: If :obj:`attr_name` or the name of the mask is a usual name of inputs, and the
            data has this attribute.
    """
    check_graph(data)
    for name in (attr_name, f'{attr_name}_mask') if has_mask else (attr_name,):
        if name in INPUTS and any(name in store for store in data.stores):
            mask = '' if name == attr_name else f' with the mask {name!r}'
            raise ValueError(
                f"'attr_name' must be no input of the data (got {attr_name!r}{mask}, which the "
                'data has already); choose another name'
            )


def add_attr(
    data: Data | HeteroData, store: Any, value: Tensor, attr_name: str, level: str
) -> None:
    r"""Stores the values of a transform in :obj:`store` under the name :obj:`attr_name`.

    In a batch it also notes which values belong to which graph, so that :meth:`to_data_list` and an
    index return them.

    Args:
        data (Data or HeteroData): The graph or batch.
        store: The store of the attribute, or :obj:`data` itself.
        value (torch.Tensor): The values.
        attr_name (str): The name.
        level (str): What has a value: a :obj:`"node"`, an :obj:`"edge"` or a :obj:`"graph"`.
    """
    store[attr_name] = value
    _split_in_batch(data, store, attr_name, level)


def add_node_attr(
    data: Data | HeteroData, store: NodeStorage, value: Tensor, attr_name: str | None
) -> None:
    r"""Stores node values, ``[N]`` or ``[N, K]``, in :obj:`store` under a name, as :meth:`add_attr`
    does, or as columns of :obj:`x`.

    If the name is :obj:`None`, the values are appended to :obj:`x` in the dtype of :obj:`x`. If the
    store has no :obj:`x`, they become :obj:`x`, in floating point.
    :meth:`torch_geometric.transforms.add_positional_encoding.add_node_attr` does the same.

    Raises:
        ValueError: If :obj:`x` is sparse, has more than two dimensions or other rows than there are
            nodes, or its dtype cannot hold the values.
    """
    if attr_name is None:
        attr_name, value = 'x', _with_columns(store.get('x'), value)
    add_attr(data, store, value, attr_name, 'node')


def _with_columns(x: Any, value: Tensor) -> Tensor:
    r"""Returns the features :obj:`x` of nodes, or :obj:`None`, with the columns :obj:`value`
    ``[N]`` or ``[N, K]`` at the end."""
    value = value if value.dim() == 2 else value[:, None]
    if x is None:
        return value if value.is_floating_point() else value.to(torch.get_default_dtype())
    if (
        not isinstance(x, Tensor)
        or x.layout != torch.strided
        or x.dim() > 2
        or not (x.is_floating_point() or not value.is_floating_point())
    ):
        form = type(x).__name__
        if isinstance(x, Tensor):
            form = f'{x.layout} of shape {tuple(x.shape)} in {x.dtype}'
        raise ValueError(
            "'x' must be dense, of at most two dimensions and of a dtype that holds "
            f"{value.dtype} to append columns (got {form}); set 'attr_name'"
        )
    if x.size(0) != value.size(0):
        raise ValueError(
            f"'x' must have a row for each of {value.size(0)} nodes of the data (got {x.size(0)}); "
            "correct 'x' or 'num_nodes'"
        )
    columns = value.to(x.device, x.dtype)
    restored = columns.to(value.device)
    changed = (
        value.isfinite() & ~restored.isfinite()
        if x.is_floating_point()
        else restored.to(value.dtype) != value
    )
    if bool(changed.any()):
        raise ValueError(
            f"'x' must have a dtype that holds the new columns (got {x.dtype} for "
            f"{value[changed][0].item()}); set 'attr_name'"
        )
    return torch.cat([x if x.dim() > 1 else x[:, None], columns], 1)


def _split_in_batch(data: Data | HeteroData, store: Any, attr_name: str, level: str) -> None:
    r"""Notes which values of the attribute :obj:`attr_name` belong to which graph of a batch. The
    arguments are those of :meth:`add_attr`. Does nothing for one graph."""
    batch: Any = data
    if not isinstance(data, Batch) or not hasattr(batch, '_slice_dict'):
        return
    num_graphs, key = data.num_graphs, store._key if isinstance(store, BaseStorage) else None
    # the input of a transform has the same dictionaries
    slices, steps = batch._slice_dict, batch._inc_dict = {**batch._slice_dict}, {**batch._inc_dict}
    if key is not None:
        slices[key], steps[key] = {**slices.get(key, {})}, {**steps.get(key, {})}
        slices, steps = slices[key], steps[key]
    pointer = {
        'node': lambda: store.get('ptr'),
        'edge': lambda: _edge_pointer(store, slices),
        'graph': lambda: torch.arange(num_graphs + 1, device='cpu'),
    }[level]()
    if pointer is not None:
        slices[attr_name] = pointer.cpu()
        steps[attr_name] = torch.zeros(num_graphs, dtype=torch.long, device='cpu')


def _edge_pointer(store: Any, slices: dict[str, Any]) -> Tensor | None:
    r"""Returns the positions ``[B + 1]`` at which the edges of each graph of a batch begin and end:
    the :obj:`slices` of :obj:`edge_index`, or the rows of :obj:`adj_t`, which are the targets.
    Returns :obj:`None` if the batch knows neither."""
    if 'edge_index' in slices or 'adj_t' not in slices:
        return slices.get('edge_index')
    entries = sparse_entries(store['adj_t'])
    first_rows = slices['adj_t'][:, 0].contiguous()
    return None if entries is None else torch.searchsorted(entries[0].cpu(), first_rows)
