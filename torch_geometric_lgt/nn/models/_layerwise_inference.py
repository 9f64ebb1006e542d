# N nodes, D hidden channels, L layers.
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor
from torch.nn import Module

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.neighbors.edges import sorted_edges
from torch_geometric_lgt.nn._layers.linear_parts import reference
from torch_geometric_lgt.nn.models._graph_context import Edges, GraphContext
from torch_geometric_lgt.nn.models._streaming.stream import Part, Stream, evaluation, to_device
from torch_geometric_lgt.nn.models.attention_memory import AttentionMemory
from torch_geometric_lgt.typing import PairTensor


class LayerwiseInference(Module):
    r"""Computes the layers of a model for a graph that need not fit into memory: the base class of
    models with :meth:`inference`.

    Each layer builds its state in one pass over parts of the nodes, and reads the state in a second
    pass. A state is the sums over the keys of all nodes. A subclass defines :meth:`input_layer`,
    :meth:`layer` and :meth:`readout`. The attribute :obj:`uses_edges` tells whether layers read
    edges. The attribute :obj:`takes_pairs` tells whether layers take a pair (sources, targets)."""

    lin_in: Module
    lin_out: Module
    convs: Any
    hidden_channels: int
    out_channels: int
    num_layers: int
    uses_edges = takes_pairs = False

    def input_layer(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def layer(
        self,
        index: int,
        x: Tensor | PairTensor,
        x_0: Tensor,
        context: GraphContext,
        state: AttentionState | None,
    ) -> Tensor:
        raise NotImplementedError

    def readout(self, layers: list[Tensor], local: Tensor | None = None) -> Tensor:
        raise NotImplementedError

    def degree_edges(self, part: Part) -> tuple[Tensor, Tensor | None]:
        r"""Returns the edges into the nodes of :obj:`part` that count for the degrees of a layer:
        (sources and targets ``[2, E]``, weights ``[E]`` or :obj:`None`).

        Ids are positions in ``part.n_id``."""
        return part.edge_index, part.edge_weight

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

    def inference(
        self, loader: Any, folder: str | Path | None = None, progress_bar: bool = False
    ) -> Tensor:
        r"""Computes the scores of all nodes of a graph that need not fit into memory. They equal
        the scores of :meth:`forward` in evaluation.

        Each layer builds its state in one pass over batches, and reads the state in a second pass
        with all neighbours. A state is the sums over the keys of all nodes. If :obj:`folder` is
        given and the graph and its features are memory-mapped, memory holds the parameters, the
        states and one batch with its neighbours.

        Args:
            loader (torch_geometric.loader.NeighborLoader): A loader of one graph with
                ``num_neighbors=[-1]``. Its data, batch size and workers are used.
            folder (str or Path, optional): A folder for the outputs of all layers. In the end it
                has the file of the scores only, which the returned tensor memory-maps. An
                interrupted run with the same model and data resumes there. (default: :obj:`None`,
                in memory)
            progress_bar (bool, optional): If :obj:`True`, shows progress. (default: :obj:`False`)

        Returns:
            The scores ``[N, F_out]``, on the CPU.

        Raises:
            ValueError: If the loader does not take all neighbours of one hop, or the folder belongs
                to another model or graph. Also if a layer cannot be evaluated in parts.
        """
        with evaluation(self):
            stream = Stream(loader, folder, self, progress_bar)
            dtype = reference(self.lin_out).dtype
            return stream.result(self.out_channels, dtype, lambda: self._stream_scores(stream))

    def attention_memory(
        self, loader: Any, folder: str | Path | None = None, progress_bar: bool = False
    ) -> AttentionMemory:
        r"""Builds an :class:`AttentionMemory` of a graph: for each layer the state (sums over the
        keys) of all nodes, with which a batch attends to the whole graph.

        Arguments and errors are those of :meth:`inference`. An earlier memory in the same folder is
        overwritten."""
        with evaluation(self):
            stream = Stream(loader, folder, self, progress_bar, resume=False)
            inputs = self._stream_layers(stream, self.num_layers - 1)
        return AttentionMemory(self.convs, inputs, stream)

    def _stream_scores(self, stream: Stream) -> Callable[[Part], Tensor]:
        layers = self._stream_layers(stream, self.num_layers)
        local = self.stream_local_branch(stream, layers[0])
        device = reference(self.lin_out).device

        def scores(part: Part) -> Tensor:
            rows = [z[part.nodes].to(device) for z in layers]
            return self.readout(rows, None if local is None else local[part.nodes].to(device))

        return scores

    def _stream_layers(self, stream: Stream, num_layers: int) -> list[Tensor]:
        r"""Computes the outputs of the input layer and of the first :obj:`num_layers` attention
        layers for all nodes. Returns a list of tensors ``[N, D]``, on the CPU or memory-mapped."""
        weight = reference(self.lin_in)

        def rows(part: Part) -> Tensor:
            x = to_device(stream.node_values('x', part.nodes), weight.device)
            return self.input_layer(x.to(weight.dtype))

        layers = [stream.fill('layer-0', self.hidden_channels, weight.dtype, rows)]
        needs_degrees = self.uses_edges and num_layers > 0
        degree = stream.degrees('degrees', self.degree_edges) if needs_degrees else None
        for index in range(num_layers):
            layers.append(self._stream_layer(stream, index, layers[-1], layers[0], degree))
        return layers

    def _stream_layer(
        self, stream: Stream, index: int, x: Tensor, x_0: Tensor, degree: Tensor | None
    ) -> Tensor:
        device, conv = reference(self.lin_in).device, self.convs[index]
        state = stream.state(
            f'state-{index}',
            lambda part: conv.attention_state(to_device(x[part.nodes], device)),
        )

        def rows(part: Part) -> Tensor:
            x_dst, x_0_dst = (to_device(z[part.nodes], device) for z in (x, x_0))
            if degree is None:
                return self.layer(index, x_dst, x_0_dst, GraphContext(None), state)
            edges = self.layer_edges(part.to(device))
            x_src = to_device(x[part.n_id], device)
            if not self.takes_pairs:
                return self.layer(index, x_src, x_0_dst, GraphContext(edges), state)[: part.size]
            out_degree = degree[part.n_id, 0].to(device)
            in_degree = degree[part.nodes, 1].to(device)
            context = GraphContext(edges, degree=(out_degree, in_degree))
            return self.layer(index, (x_src, x_dst), x_0_dst, context, state)

        width, uses_edges = self.hidden_channels, degree is not None
        return stream.fill(f'layer-{index + 1}', width, x.dtype, rows, uses_edges)
