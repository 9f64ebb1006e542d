from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import BaseStorage


def check_layouts(data: Data | HeteroData, arguments: dict[str, Any]) -> None:
    r"""Checks that a loader with the keyword :obj:`arguments` can select rows of all attributes of
    nodes and edges.

    Raises:
        ValueError: If an attribute is a sparse tensor of which PyG selects no rows: one in another
            layout than COO, or any in a worker.
    """
    num_workers = arguments.get('num_workers', 0)
    in_workers = num_workers > 0 and arguments.get('filter_per_worker') is not False
    for store in data.stores:
        for name, value in store.items():
            if not _is_sparse(value) or not _has_rows(store, name):
                continue
            if value.layout != torch.sparse_coo:
                raise ValueError(
                    f"'{name}' must be dense or COO in a loader (got {value.layout}); use "
                    'to_dense() or to_sparse_coo()'
                )
            if in_workers and value.is_cpu:
                raise ValueError(
                    f"'{name}' must be dense with 'num_workers' = {num_workers} (got "
                    f'{value.layout}); use to_dense(), or num_workers=0'
                )


def _is_sparse(value: object) -> bool:
    return isinstance(value, Tensor) and value.layout != torch.strided


def _has_rows(store: BaseStorage, name: str) -> bool:
    r"""Returns whether an attribute of :obj:`store` has a row for each node or edge, so that a
    batch gets some of them."""
    return store.is_node_attr(name) or store.is_edge_attr(name)
