# N nodes, D hidden channels, L layers.
import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.neighbors.edges import sorted_edges
from torch_geometric_lgt.nn._parts import reference
from torch_geometric_lgt.nn.models._around import Around
from torch_geometric_lgt.nn.models._streaming import Part, Stream

if TYPE_CHECKING:
    from torch_geometric_lgt.nn.models._backbone import Backbone
    from torch_geometric_lgt.nn.models.litegt import LiteGT
    from torch_geometric_lgt.nn.models.mgformer import MGFormer


@contextlib.contextmanager
def evaluation(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    r"""The model in evaluation and without gradients, then as it was."""
    modes = [(part, part.training) for part in model.modules()]
    try:
        with torch.no_grad():
            yield model.eval()
    finally:
        for part, mode in modes:
            part.training = mode


def stream_layers(model: 'Backbone', stream: Stream, last: int) -> list[Tensor]:
    r""":math:`\mathbf{Z}^{(0)}, \dots, \mathbf{Z}^{(l)}` of all nodes, ``[N, D]`` each."""
    weight = reference(model.lin_in)

    def first(part: Part) -> Tensor:
        return model.input_layer(
            to_device(stream.node_values('x', part.nodes), weight.device).to(weight.dtype)
        )

    found = [stream.fill('layer-0', model.hidden_channels, weight.dtype, first)]
    counted = model.reads_edges and last > 0
    degree = stream.degrees('degrees', model.counted_edges) if counted else None
    for layer in range(last):
        found.append(_stream_layer(model, stream, layer, found[-1], found[0], degree))
    return found


def _stream_layer(
    model: 'Backbone', stream: Stream, layer: int, x: Tensor, first: Tensor, degree: Tensor | None
) -> Tensor:
    device, conv = reference(model.lin_in).device, model.convs[layer]
    state = stream.state(
        f'state-{layer}', lambda nodes: conv.attention_state(to_device(x[nodes], device))
    )

    def rows(part: Part) -> Tensor:
        here, own = to_device(x[part.nodes], device), to_device(first[part.nodes], device)
        if degree is None:
            return model.layer(layer, here, own, Around(None), state)
        edges = model.layer_edges(part.to(device))
        there, ends = (
            to_device(x[part.n_id], device),
            (degree[part.n_id, 0].to(device), degree[part.nodes, 1].to(device)),
        )
        around = Around(edges, degree=ends if model.reads_pairs else None)
        return model.layer(
            layer, (there, here) if model.reads_pairs else there, own, around, state
        )[: part.size]

    return stream.fill(
        f'layer-{layer + 1}', model.hidden_channels, x.dtype, rows, degree is not None
    )


def stream_litegt(model: 'LiteGT', stream: Stream) -> Callable[[Part], Tensor]:
    r"""The scores of each part."""
    weight = reference(model.lin_in)

    def first(part: Part) -> Tensor:
        values = (
            stream.node_values(name, part.nodes)
            for name in ('x', *(['laplacian_pe'] if model.lin_pe is not None else []))
        )
        return model.inputs(*(to_device(value, weight.device).to(weight.dtype) for value in values))

    x = stream.fill('layer-0', model.hidden_channels, weight.dtype, first)
    for index in range(model.num_layers):
        x = _stream_edge_layer(model, stream, index, x)
    return lambda part: model.lin_out(to_device(x[part.nodes], weight.device))


def _stream_edge_layer(model: 'LiteGT', stream: Stream, index: int, x: Tensor) -> Tensor:
    layer, device = model.layers[index], reference(model.lin_in).device
    sampled = stream.has('attention_mask')

    def rows(part: Part) -> Tensor:
        here, there = (
            model.reduced(index, to_device(x[nodes], device)) for nodes in (part.nodes, part.n_id)
        )
        jaccard = stream.edge_values('edge_jaccard', part)
        mask = stream.node_values('attention_mask', part.nodes).to(device) if sampled else None
        part = part.to(device)
        edges = sorted_edges(
            part.edge_index, part.n_id.numel(), part.size, edge_weight=part.edge_weight
        )
        return layer((there, here), edges, None if jaccard is None else jaccard.to(device), mask)

    return stream.fill(f'layer-{index + 1}', layer.conv.out_channels, x.dtype, rows, True)


def stream_mgformer(model: 'MGFormer', stream: Stream) -> Callable[[Part], Tensor]:
    r"""The rows of the last layer of each part."""
    device, x = reference(model.embedding).device, model.tokens
    for index in range(model.num_layers):
        array = _stream_masked_layer(model, stream, index, x)
        x = partial(_rows, array, device)
    return lambda part: x(_ids(part.nodes, device))


def _stream_masked_layer(
    model: 'MGFormer', stream: Stream, index: int, x: Callable[[Tensor], Tensor]
) -> Tensor:
    layer, weight = cast(Any, model.layers[index]), reference(model.embedding)

    def near(part: Part) -> Tensor:
        here = x(_ids(part.nodes, weight.device))
        part = part.to(weight.device)
        out = layer(
            (x(part.n_id.to(weight.device)), here), part.edge_index, edge_weight=part.edge_weight
        )
        return out + here if model.residual else out

    def far(part: Part) -> Tensor:
        nodes = _ids(part.nodes, weight.device)
        return model.layer_rows(layer, x(nodes), None, nodes, state)

    def of(nodes: slice) -> AttentionState:
        own = _ids(nodes, weight.device)
        return model.layer_state(layer, x(own), None, own)

    adjacent = model.mask == 'adjacency'
    state = None if adjacent else stream.state(f'state-{index}', of)
    return stream.fill(
        f'layer-{index + 1}', layer.in_channels, weight.dtype, near if adjacent else far, adjacent
    )


def to_device(x: Tensor, device: torch.device) -> Tensor:
    r"""Copies rows to a device. Copies to a GPU come from pinned memory, so that the host goes on
    with the next part meanwhile."""
    return (
        x.to(device)
        if device.type != 'cuda' or x.is_cuda
        else x.pin_memory().to(device, non_blocking=True)
    )


def _ids(nodes: slice, device: torch.device) -> Tensor:
    return torch.arange(nodes.start, nodes.stop, device=device)


def _rows(array: Tensor, device: torch.device, nodes: Tensor) -> Tensor:
    return to_device(array[nodes.cpu()], device)
