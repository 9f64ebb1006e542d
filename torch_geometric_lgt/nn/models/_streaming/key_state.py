# n nodes, D channels, H heads, K samples.
import copy
from typing import Any

import torch
from torch import Tensor
from torch.nn import ModuleList

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.numerics import complete_device
from torch_geometric_lgt.nn._layers.linear_parts import reference
from torch_geometric_lgt.nn.models._streaming.keys import quantized_value
from torch_geometric_lgt.nn.models._streaming.stream import node_rows


def frozen_double(convs: ModuleList) -> ModuleList:
    r"""Copies the layers :obj:`convs` in double precision, with constant parameters. The copies are
    on the device of the layers, or on the CPU if that device has no double precision.

    Raises:
        ValueError: If a layer is quantized, and has no double precision.
    """
    quantized = quantized_value(convs.state_dict())
    if quantized is not None:
        raise ValueError(
            'the layers of an AttentionMemory must have plain tensors in their state dict (got '
            f'{quantized!r} of a quantized layer); build or load it with the model before it is '
            'quantized, and pass its states to the quantized one'
        )
    # deepcopy refuses tensors that are no leaves: weights that pruning or parametrisations
    # compute in each call
    computed = [
        value
        for module in convs.modules()
        for value in vars(module).values()
        if isinstance(value, Tensor) and not value.is_leaf
    ]
    copies = copy.deepcopy(convs, {id(value): value.detach() for value in computed})
    for conv in copies:
        conv.to(complete_device(reference(conv).device), torch.double)
    return copies.requires_grad_(False)


@torch.no_grad()
def key_state(conv: Any, x: Tensor, noise: Tensor | None, nodes: slice | Tensor) -> AttentionState:
    r"""Builds the state (sums over the keys) of some :obj:`nodes` in double precision, on the
    device of the layer :obj:`conv`, from the input :obj:`x` ``[N, D]`` of the layer and the
    :obj:`noise` ``[N, H * K]`` of its keys."""
    rows = node_rows(x, nodes).to(reference(conv).device, torch.double)
    if noise is None:
        return conv.attention_state(rows)
    noise = node_rows(noise, nodes).to(rows.device, torch.double)
    return conv.attention_state(rows, noise=noise)
