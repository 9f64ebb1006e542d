# N nodes, D hidden channels, H heads, K samples, L layers.
import copy
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import ModuleList

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.nn._parts import reference
from torch_geometric_lgt.nn.models._streaming import Part, Stream


class AttentionMemory:
    r"""The states of all nodes of a graph in each layer of a model, as its parameters were when it
    was made, to be read by batches:

    .. math::
        \mathbf{S} = \mathbf{S}_{\mathrm{all}} - \sum_{j \in \mathcal{B}} \phi(\bar{\mathbf{k}}_j)
            \bar{\mathbf{v}}_j^{\top}
        + \sum_{j \in \mathcal{B}} \phi(\mathbf{k}_j) \mathbf{v}_j^{\top}

    where :math:`\bar{\mathbf{k}}_j` are the keys of the nodes :math:`\mathcal{B}` of a batch as
    they were, a constant, and :math:`\mathbf{k}_j` as they are, with gradients: every node counts
    once. Until a parameter changes, :math:`\mathbf{S}` is the state of the whole graph; then all
    nodes outside the batch are as old as the memory, which is to be made anew every so many steps.

    Made by the method :obj:`attention_memory` of a model, in training with samples of NodeFormer's
    noise for each node. What a batch needs is :meth:`without` its nodes::

        memory = model.attention_memory(NeighborLoader(data, [-1], batch_size=4096))
        for batch in NeighborLoader(data, [10, 10], batch_size=1024, input_nodes=data.train_mask):
            nodes = batch.n_id[:batch.batch_size]
            out = model(batch.x, batch.edge_index, states=memory.without(nodes),
            num_keys=nodes.numel())

    Attributes:
        states (list): The state of all nodes in each layer, in double precision.
        inputs (list): The input ``[N, D]`` of each layer.
    """

    def __init__(self, convs: ModuleList, inputs: list[Tensor], stream: Stream) -> None:
        # weights that pruning and norms of weights make anew in each call are no leaves, which
        # cannot be copied
        made = [
            value
            for module in convs.modules()
            for value in vars(module).values()
            if isinstance(value, Tensor) and not value.is_leaf
        ]
        self.convs: Any = (
            copy.deepcopy(convs, {id(value): value.detach() for value in made})
            .double()
            .requires_grad_(False)
        )
        self.inputs = inputs
        stream.keep_folder(self)
        layers = range(len(inputs))
        self._noise = [self._drawn(layer, stream) for layer in layers]
        self.states = [
            stream.state(f'memory-{layer}', partial(self._state, layer)) for layer in layers
        ]

    def without(self, nodes: Tensor) -> list[AttentionState]:
        r"""The state in each layer of all nodes but :obj:`nodes`, distinct ids."""
        if nodes.unique().numel() != nodes.numel():
            raise ValueError("'nodes' must be distinct, they leave the state once (got some twice)")
        return [state.without(self._state(layer, nodes)) for layer, state in enumerate(self.states)]

    def _drawn(self, layer: int, stream: Stream) -> Tensor | None:
        def noise(part: Part) -> Tensor:
            return self.convs[layer].key_noise(self.inputs[layer][part.nodes])

        drawn = getattr(self.convs[layer], 'num_gumbel_samples', 0) * self.convs[layer].heads
        return (
            stream.fill(f'noise-{layer}', drawn, self.inputs[layer].dtype, noise)
            if drawn > 0 and self.convs.training
            else None
        )

    @torch.no_grad()
    def _state(self, layer: int, nodes: slice | Tensor) -> AttentionState:
        conv, noise = self.convs[layer], self._noise[layer]
        x = self.inputs[layer][nodes].to(reference(conv.lin_key).device, torch.double)
        return (
            conv.attention_state(x)
            if noise is None
            else conv.attention_state(x, noise=noise[nodes].to(x.device, torch.double))
        )

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.inputs[0].size(0)} nodes, {len(self.states)} layers)'
        )
