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
    r"""Computes the layers of a model for a graph that need not fit into memory: each layer builds
    the state of all nodes in one pass over them, and reads it in a second pass."""

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
        r"""Returns the edges into a part that count for the degrees of a layer, and their
        weights."""
        return part.edge_index, part.edge_weight

    def layer_edges(self, part: Part) -> Edges:
        r"""Returns all edges into the nodes of a part, as a layer takes them."""
        return sorted_edges(
            part.edge_index, part.n_id.numel(), part.size, edge_weight=part.edge_weight
        )

    def stream_local_branch(self, stream: Stream, x_0: Tensor) -> Tensor | None:
        r"""Computes the output ``[N, D]`` of a branch beside the attention layers; most models
        have none."""
        return None

    def inference(
        self, loader: Any, folder: str | Path | None = None, progress_bar: bool = False
    ) -> Tensor:
        r"""Computes the scores of all nodes of a graph that need not fit into memory. The scores
        are those of :meth:`forward` in evaluation.

        Each layer builds the state of its attention in one pass over the nodes, and reads it in a
        second pass with all neighbours. With :obj:`folder`, and with features and a graph mapped
        from files, memory holds the parameters, the states and one batch with its neighbours.

        Args:
            loader (torch_geometric.loader.NeighborLoader): Has the data, one graph, and the size of
                a batch, with ``num_neighbors=[-1]``.
            folder (str or Path, optional): A folder for the outputs of all layers. It ends with the
                scores, which the returned tensor maps. An interrupted run with the same model and
                data resumes there. (default: :obj:`None`, in memory)
            progress_bar (bool, optional): If :obj:`True`, shows progress. (default: :obj:`False`)

        Returns:
            ``[N, F_out]``

        Raises:
            ValueError: If the loader does not take all neighbours of one hop, the folder belongs to
                another model or graph, or a layer cannot be evaluated in parts.
        """
        with evaluation(self):
            stream = Stream(loader, folder, self, progress_bar)
            dtype = reference(self.lin_out).dtype
            return stream.result(self.out_channels, dtype, lambda: self._stream_scores(stream))

    def attention_memory(
        self, loader: Any, folder: str | Path | None = None, progress_bar: bool = False
    ) -> AttentionMemory:
        r"""Builds the states of all nodes in each layer, which a batch needs to attend to the whole
        graph; see :class:`AttentionMemory`. Arguments and errors are those of :meth:`inference`.
        An earlier memory in the same folder is overwritten."""
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
        r"""Computes :math:`\mathbf{Z}^{(0)}, \dots, \mathbf{Z}^{(l)}` of all nodes, ``[N, D]``
        each."""
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
