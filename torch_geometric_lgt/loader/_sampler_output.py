# M sampled edges.
from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

from torch_geometric_lgt.loader._edge_order import SINGLE_EDGE_TYPE, SINGLE_NODE_TYPE, Output
from torch_geometric_lgt.loader._neighborhoods import SampledNodes

Edges = tuple[np.ndarray, ...]  # rows of sources, rows of targets and edge ids, [M] each


def sampler_output(
    sampled: Mapping[str, SampledNodes],
    edges: Mapping[Any, Edges],
    node_counts: dict[str, list[int]] | None,
    edge_counts: dict[Any, list[int]] | None,
    *,
    homogeneous: bool,
    disjoint: bool,
) -> Output:
    r"""Converts the arrays of a subgraph to tensors in PyG's output class.

    Args:
        sampled: The sampled nodes by node type.
        edges: The sampled edges by edge type.
        node_counts: The number of nodes that each hop added, by node type, if known.
        edge_counts: The number of edges that each hop added, by edge type, if known.
        homogeneous: Whether the graph has no types.
        disjoint: Whether the output has the subgraph number of each node.
    """

    def tensors(arrays: Iterable[tuple[Any, np.ndarray]]) -> dict[Any, Tensor]:
        return {kind: torch.from_numpy(array) for kind, array in arrays}

    row, col, edge = (tensors((kind, part[i]) for kind, part in edges.items()) for i in range(3))
    node = tensors((kind, nodes.node) for kind, nodes in sampled.items())
    batch = tensors((kind, nodes.batch) for kind, nodes in sampled.items()) if disjoint else None
    if not homogeneous:
        return HeteroSamplerOutput(
            node, row, col, cast(dict, edge), cast(dict | None, batch), node_counts, edge_counts
        )
    return SamplerOutput(
        node[SINGLE_NODE_TYPE],
        row[SINGLE_EDGE_TYPE],
        col[SINGLE_EDGE_TYPE],
        edge[SINGLE_EDGE_TYPE],
        of_type(batch, SINGLE_NODE_TYPE),
        of_type(node_counts, SINGLE_NODE_TYPE),
        of_type(edge_counts, SINGLE_EDGE_TYPE),
    )


def of_type(values: Mapping | None, kind: Any) -> Any:
    r"""Returns ``values[kind]``, or :obj:`None` if :obj:`values` is :obj:`None`."""
    return None if values is None else values[kind]
