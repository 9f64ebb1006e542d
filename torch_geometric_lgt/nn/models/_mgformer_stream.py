# N nodes, n of a part, D embedding size, S size of the structural encoding.
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.nn._layers.linear_parts import reference
from torch_geometric_lgt.nn.models._mgformer_neighbors import neighbor_rows
from torch_geometric_lgt.nn.models._streaming.stream import Part, Stream, node_rows, to_device

if TYPE_CHECKING:
    from torch_geometric_lgt.nn.models.mgformer import MGFormer

Rows = Callable[[Tensor], Tensor]  # returns the rows of an array for a tensor of ids


def stream_layers(model: 'MGFormer', stream: Stream) -> Callable[[Part], Tensor]:
    r"""Computes the outputs of all layers for all nodes, part by part, and returns a function that
    returns the last rows ``[n, D + S]`` of a part."""
    device = reference(model.embedding).device
    stream_layer = _stream_neighbors if model.mask == 'adjacency' else _stream_all_pairs
    x = model.tokens
    for index in range(model.num_layers):
        x = partial(_rows_of, stream_layer(model, stream, index, x), device)
    return lambda part: x(part.ids(device))


def _stream_neighbors(model: 'MGFormer', stream: Stream, index: int, x: Rows) -> Tensor:
    r"""Computes the output ``[N, D + S]`` of layer :obj:`index`, which attends to neighbours, part
    by part from the rows :obj:`x` of its input."""
    layer = cast(Any, model.layers[index])
    weight = reference(model.embedding)

    def rows(part: Part) -> Tensor:
        pair = x(part.n_id.to(weight.device)), x(part.ids(weight.device))
        part = part.to(weight.device)
        return neighbor_rows(model, layer, pair, part.edge_index, part.edge_weight)

    name = f'layer-{index + 1}'
    return stream.fill(name, layer.in_channels, weight.dtype, rows, neighbors=True)


def _stream_all_pairs(model: 'MGFormer', stream: Stream, index: int, x: Rows) -> Tensor:
    r"""Computes the output ``[N, D + S]`` of layer :obj:`index`, which attends to all nodes, part
    by part from the rows :obj:`x` of its input."""
    layer = cast(Any, model.layers[index])
    weight = reference(model.embedding)

    def state_of(part: Part) -> AttentionState:
        nodes = part.ids(weight.device)
        return model.layer_state(layer, x(nodes), None, nodes)

    state = stream.state(f'state-{index}', state_of)

    def rows(part: Part) -> Tensor:
        nodes = part.ids(weight.device)
        return model.layer_rows(layer, x(nodes), None, nodes, state)

    return stream.fill(f'layer-{index + 1}', layer.in_channels, weight.dtype, rows)


def _rows_of(array: Tensor, device: torch.device, nodes: Tensor) -> Tensor:
    return to_device(node_rows(array, nodes), device)
