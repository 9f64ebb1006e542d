# N nodes, n of a part, D channels.
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torch_geometric_lgt.functional.neighbors.edges import sorted_edges
from torch_geometric_lgt.nn._layers.linear_parts import reference
from torch_geometric_lgt.nn.models._streaming.stream import Part, Stream, node_rows, to_device

if TYPE_CHECKING:
    from torch_geometric_lgt.nn.models.litegt import LiteGT


def stream_layers(model: 'LiteGT', stream: Stream) -> Tensor:
    r"""Computes the output ``[N, D]`` of the last layer for all nodes, layer by layer and part by
    part."""
    weight = reference(model)
    names = ('x',) if model.lin_pe is None else ('x', 'laplacian_pe')

    def rows(part: Part) -> Tensor:
        values = (stream.node_values(name, part.nodes) for name in names)
        return model.inputs(*(to_device(z, weight.device).to(weight.dtype) for z in values))

    inputs = [stream.fill('layer-0', model.hidden_channels, weight.dtype, rows)]
    for index in range(model.num_layers):
        x = _stream_layer(model, stream, index, inputs)
        inputs = [*inputs, x] if model.edge_channels > 0 else [x]
    return inputs[-1]


def _stream_layer(model: 'LiteGT', stream: Stream, index: int, inputs: list[Tensor]) -> Tensor:
    r"""Computes the output ``[N, D]`` of layer number :obj:`index` for all nodes, part by part. The
    list :obj:`inputs` ends with the input of the layer. For a model with features of edges it
    begins with the inputs of all layers before, which update these features."""
    layer = model.layers[index]
    device = reference(model).device
    is_sampled = stream.has('attention_mask')

    def rows(part: Part) -> Tensor:
        jaccard = _moved(stream.edge_values('edge_jaccard', part), device)
        mask = stream.node_values('attention_mask', part.nodes).to(device) if is_sampled else None
        edge_attr = None
        if model.edge_channels > 0:
            edge_attr = _moved(stream.edge_values('edge_attr', part), device)
        part = part.to(device)
        edges = sorted_edges(
            part.edge_index, part.n_id.numel(), part.size, edge_weight=part.edge_weight
        )
        e = model.edge_inputs(edge_attr, edges)
        for number, x in enumerate(inputs, index + 1 - len(inputs)):
            reduction = model.reductions[number]
            rows_of_pair = (node_rows(x, ids) for ids in (part.n_id, part.nodes))
            pair = tuple(reduction(to_device(z, device)) for z in rows_of_pair)
            e = model.edge_reductions[number](e)
            if number < index:
                e = model.layers[number].updated_edges(pair, edges, jaccard, mask, e)
        return layer(pair, edges, jaccard, mask, e)[0]

    width = layer.conv.out_channels
    dtype = inputs[-1].dtype
    return stream.fill(f'layer-{index + 1}', width, dtype, rows, neighbors=True)


def _moved(x: Tensor | None, device: torch.device) -> Tensor | None:
    return None if x is None else to_device(x, device)
