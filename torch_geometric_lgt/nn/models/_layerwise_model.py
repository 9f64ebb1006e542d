# N nodes, F input width, D hidden channels, P pairs, H heads, L layers.
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import ModuleList

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.neighbors.edges import sorted_edges, weighted_edges
from torch_geometric_lgt.nn._layers.linear_parts import reference
from torch_geometric_lgt.nn.models._context_states import (
    check_context,
    state_of_all_keys,
    with_state,
)
from torch_geometric_lgt.nn.models._evaluation import evaluation
from torch_geometric_lgt.nn.models._graph_context import Edges, GraphContext
from torch_geometric_lgt.nn.models._streamed_model import StreamedModel
from torch_geometric_lgt.nn.models._streaming.stream import (
    Part,
    Stream,
    node_rows,
    to_device,
)
from torch_geometric_lgt.nn.models.attention_memory import AttentionMemory
from torch_geometric_lgt.typing import PairTensor


class LayerwiseModel(StreamedModel):
    r"""Applies an input layer, attention layers and an output layer to a graph in memory, or to a
    graph that need not fit into memory: the base class of models with :meth:`inference`.

    For the latter each layer builds its state in one pass over parts of the nodes, and reads the
    state in a second pass. A state is the sums over the keys of all nodes. A subclass defines
    :meth:`input_layer` and :meth:`layer`. The other public attributes and methods are hooks with a
    default, which :obj:`docs/extend/model.rst` lists.

    Attributes:
        uses_edges (bool): Whether layers read edges.
        takes_pairs (bool): Whether layers take a pair (sources, targets).
        input_names (tuple): The node attributes that the input layer reads.
    """

    convs: Any
    uses_edges = takes_pairs = False
    input_names: tuple[str, ...] = ('x',)

    @property
    def attentions(self) -> list[Any]:
        r"""Returns the attention of each layer; :obj:`None` for a layer without attention."""
        return list(self.convs)

    @property
    def layer_channels(self) -> int:
        r"""Returns the width of a layer's output."""
        return self.hidden_channels

    @property
    def uses_degrees(self) -> bool:
        r"""Tells whether layers read the degrees of the whole graph."""
        return self.uses_edges

    def input_layer(self, x: Tensor, *encodings: Tensor) -> Tensor:
        r"""Computes the input ``[N, D]`` of the first layer from the node attributes
        :attr:`input_names`, of which the features :obj:`x` ``[N, F]`` are the first."""
        raise NotImplementedError

    def layer(
        self,
        index: int,
        x: Tensor | PairTensor,
        x_0: Tensor,
        context: GraphContext,
        state: AttentionState | None,
    ) -> Tensor:
        r"""Computes the output ``[N, D]`` of layer :obj:`index`, for a pair that of the targets.

        Args:
            index (int): The number of the layer, from 0.
            x (torch.Tensor or tuple): The input of the layer ``[N, D]``, or if it
                :attr:`takes_pairs` a pair (sources, targets) whose first sources are the targets.
            x_0 (torch.Tensor): The output of the input layer for the targets, ``[N, D]``.
            context (GraphContext): The edges, the batch vector and what else the layers read.
            state (AttentionState, optional): Sums over all keys, which replace the keys of
                :obj:`x`.
        """
        raise NotImplementedError

    def readout(self, layers: list[Tensor], local: Tensor | None = None) -> Tensor:
        r"""Computes the scores ``[N, F_out]`` from the outputs :obj:`layers` of all layers and the
        output :obj:`local` ``[N, D]`` of a local branch, if the model has one."""
        return self.lin_out(layers[-1])

    def layers(self, x: Tensor, context: GraphContext, *encodings: Tensor) -> list[Tensor]:
        r"""Computes the outputs of all layers from the features :obj:`x` ``[N, F]`` and the
        encodings of a model that takes some: a list of
        :math:`\mathbf{Z}^{(0)}, \dots, \mathbf{Z}^{(L)}`, ``[N, D]`` each."""
        attentions = self.attentions
        check_context(context, x.size(0), [conv for conv in attentions if conv is not None])
        reads_states = context.states is not None or context.process_group is not None
        layers, number = [self.input_layer(x, *encodings)], 0
        for index, attention in enumerate(attentions):
            state = None
            if reads_states and attention is not None:
                state = state_of_all_keys(attention, layers[-1], context, number)
                number += 1
            layers.append(self.layer(index, layers[-1], layers[0], context, state))
        return layers

    def attention_scores(
        self,
        x: Tensor,
        edge_index: Edges,
        pairs: Tensor,
        batch: Tensor | None = None,
        *,
        edge_weight: Tensor | None = None,
    ) -> list[Tensor]:
        r"""Computes for each layer with attention the attention weight ``[P, H]`` of each pair of
        nodes, and returns a list of tensors. Call it in evaluation: in training dropout changes the
        inputs of the layers.

        The weight is the share of source ``pairs[0]`` in the output of target ``pairs[1]``. The
        pairs need not be edges.

        Args:
            x (torch.Tensor): The node features ``[N, F_in]``.
            edge_index (torch.Tensor or SparseTensor): The edges of the graph, as in
                :meth:`forward`.
            pairs (torch.Tensor): The ids of sources and targets ``[2, P]``.
            batch (torch.Tensor, optional): The graph id of each node. (default: :obj:`None`, one
                graph)
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]``, as in
                :meth:`forward`. (default: :obj:`None`)
        """
        self.check_inputs(x, edge_index)
        edges = self.prepare_edges(edge_index, x.size(0), edge_weight)
        inputs = self.layers(x, GraphContext(edges, batch=batch))[:-1]
        return self.scores_of_pairs(inputs, pairs, batch)

    def scores_of_pairs(
        self, inputs: list[Tensor], pairs: Tensor, batch: Tensor | None
    ) -> list[Tensor]:
        r"""Computes the :meth:`attention_scores` of :obj:`pairs` from the :obj:`inputs` ``[N, D]``
        of all layers."""
        attentions = self.attentions
        for attention in attentions:
            if attention is not None and not hasattr(attention, 'attention_scores'):
                raise ValueError(
                    "'attn_type' must be an attention with the method 'attention_scores' (got "
                    f'{type(attention).__name__})'
                )
        num_nodes = inputs[0].size(0)
        pairs = weighted_edges(pairs, num_nodes, num_nodes, argument='pairs')[0]
        return [
            attention.attention_scores(z, pairs, batch)
            for attention, z in zip(attentions, inputs, strict=True)
            if attention is not None
        ]

    def prepare_edges(
        self, edge_index: Edges, num_nodes: int, edge_weight: Tensor | None = None
    ) -> Edges:
        r"""Converts the edges, once for all layers, to the format that the layers read fastest;
        here returns :obj:`edge_index` unchanged."""
        return edge_index

    def degree_edges(self, part: Part) -> tuple[Tensor, Tensor | None]:
        r"""Returns the edges into the nodes of :obj:`part` that count for the degrees of a layer:
        (sources and targets ``[2, E]``, weights ``[E]`` or :obj:`None`).

        Ids are positions in ``part.n_id``."""
        return part.edge_index, part.edge_weight

    def part_context(self, stream: Stream, part: Part, degree: Tensor | None) -> GraphContext:
        r"""Returns what the layers read for :obj:`part`: its edges, and for a pair the degrees of
        sources and targets, which are rows of :obj:`degree` ``[N, 2]``."""
        device = reference(self).device
        edges = self.layer_edges(part.to(device))
        if not self.takes_pairs or degree is None:
            return GraphContext(edges)
        out_degree = to_device(degree[part.n_id, 0], device)
        in_degree = to_device(degree[part.nodes, 1], device)
        return GraphContext(edges, degree=(out_degree, in_degree))

    def layer_edges(self, part: Part) -> Edges:
        r"""Returns the edges into the nodes of :obj:`part` in the format that the layers read, here
        sorted edges. Ids are positions in ``part.n_id``."""
        return sorted_edges(
            part.edge_index, part.n_id.numel(), part.size, edge_weight=part.edge_weight
        )

    def stream_local_branch(self, stream: Stream, x_0: Tensor) -> Tensor | None:
        r"""Computes the output ``[N, D]`` of a local branch (a network beside the attention layers)
        for all nodes, part by part.

        Here returns :obj:`None`, the model has no such branch.

        Args:
            stream (Stream): Reads the parts and stores the outputs.
            x_0 (torch.Tensor): The output ``[N, D]`` of the input layer.
        """
        return None

    def attention_memory(
        self, loader: Any, folder: str | Path | None = None, progress_bar: bool = False
    ) -> AttentionMemory:
        r"""Builds an :class:`AttentionMemory` of a graph: for each layer the state (sums over the
        keys) of all nodes, with which a batch attends to the whole graph.

        If :obj:`folder` is given, the inputs of the layers are stored in its files, which the
        memory maps. New files replace an earlier memory in the folder, also one of other
        parameters. As long as an :class:`AttentionMemory` of the earlier files exists, it keeps its
        values and the disk keeps its files. :meth:`AttentionMemory.save` writes a memory to a file
        of its own.

        A later :meth:`inference` of the same parameters in this folder reads the files, and leaves
        its scores in their place; the memory keeps its values. The scores are never overwritten:
        for the next memory delete the folder, or give another one.

        Args:
            loader (torch_geometric.loader.NeighborLoader): As in :meth:`inference`.
            folder (str or Path, optional): A folder for the inputs of all layers, empty or of an
                earlier memory. (default: :obj:`None`, in memory)
            progress_bar (bool, optional): If :obj:`True`, shows progress. (default: :obj:`False`)

        Raises:
            ValueError: If the loader or a layer is one that :meth:`inference` refuses, or no layer
                has attention. If the folder contains scores of :meth:`inference` or files that no
                run has created, or another process uses it.
        """
        with evaluation(self):
            stream = Stream(loader, folder, self, progress_bar, resume=False)
            attentions = self.attentions
            with_attention = [i for i, conv in enumerate(attentions) if conv is not None]
            for index in with_attention:
                with_state(attentions[index])
            if not with_attention:
                raise ValueError(f'the model has no layer with attention to remember (got {self})')
            inputs = self.stream_layers(stream, with_attention[-1])
        pairs = [(conv, z) for conv, z in zip(attentions, inputs, strict=False) if conv is not None]
        convs, inputs = ModuleList(c for c, _ in pairs), [z for _, z in pairs]
        return AttentionMemory.from_stream(convs, inputs, stream)

    def stream_scores(self, stream: Stream) -> Callable[[Part], Tensor]:
        layers = self.stream_layers(stream, len(self.attentions))
        local = self.stream_local_branch(stream, layers[0])
        device = reference(self).device

        def scores(part: Part) -> Tensor:
            rows = [z[part.nodes].to(device) for z in layers]
            return self.readout(rows, None if local is None else local[part.nodes].to(device))

        return scores

    def score_of_zeros(self) -> Tensor:
        r"""Computes the scores ``[1, F_out]`` by :meth:`readout` of zeros."""
        weight = reference(self)
        row = torch.zeros(1, self.layer_channels, dtype=weight.dtype, device=weight.device)
        return self.readout([row] * (len(self.attentions) + 1), row[:, : self.hidden_channels])

    def stream_layers(self, stream: Stream, num_layers: int) -> list[Tensor]:
        r"""Computes the outputs of the input layer and of the first :obj:`num_layers` attention
        layers for all nodes. Returns a list of tensors ``[N, D]``, on the CPU or memory-mapped."""
        weight = reference(self)
        if any(attention is not None for attention in self.attentions):
            stream.check_one_graph()

        def rows(part: Part) -> Tensor:
            values = (stream.node_values(name, part.nodes) for name in self.input_names)
            return self.input_layer(*(to_device(z, weight.device).to(weight.dtype) for z in values))

        layers = [stream.fill('layer-0', self.layer_channels, weight.dtype, rows)]
        needs_degrees = self.uses_degrees and num_layers > 0
        degree = stream.degrees('degrees', self.degree_edges) if needs_degrees else None
        for index in range(num_layers):
            layers.append(self._stream_layer(stream, index, layers[-1], layers[0], degree))
        return layers

    def _stream_layer(
        self, stream: Stream, index: int, x: Tensor, x_0: Tensor, degree: Tensor | None
    ) -> Tensor:
        device = reference(self).device
        conv = self.attentions[index]
        state = None
        if conv is not None:
            state = stream.state(
                f'state-{index}',
                lambda part: with_state(conv).attention_state(to_device(x[part.nodes], device)),
            )

        def rows(part: Part) -> Tensor:
            x_dst, x_0_dst = (to_device(z[part.nodes], device) for z in (x, x_0))
            if not self.uses_edges:
                return self.layer(index, x_dst, x_0_dst, GraphContext(None), state)
            context = self.part_context(stream, part, degree)
            x_src = to_device(node_rows(x, part.n_id), device)
            inputs = (x_src, x_dst) if self.takes_pairs else x_src
            return self.layer(index, inputs, x_0_dst, context, state)[: part.size]

        return stream.fill(
            f'layer-{index + 1}', self.layer_channels, x.dtype, rows, self.uses_edges
        )
