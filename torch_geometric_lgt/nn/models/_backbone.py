# N nodes, F input width, D hidden channels, P pairs, H heads, L layers.
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import LayerNorm, Linear, Module, ModuleList
from torch.nn.functional import dropout
from torch_geometric.nn.inits import reset
from torch_geometric.nn.resolver import activation_resolver

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.neighbors.edges import sorted_edges
from torch_geometric_lgt.nn._attention_layer import check_features, check_sizes, check_width
from torch_geometric_lgt.nn._parts import make_linear, reference
from torch_geometric_lgt.nn.models._around import Around, Edges
from torch_geometric_lgt.nn.models._layerwise import evaluation, stream_layers
from torch_geometric_lgt.nn.models._streaming import Part, Stream
from torch_geometric_lgt.nn.models.attention_memory import AttentionMemory
from torch_geometric_lgt.typing import PairTensor


class Backbone(Module):
    r"""What the node-level models share: an input layer, attention layers with normalisation and
    dropout, and an output layer.

    .. math::
        \mathbf{Z}^{(0)} = f(\mathbf{X}), \qquad
        \mathbf{Z}^{(l)} = \mathrm{LayerNorm} \left( a \, \mathrm{step}_l(\mathbf{Z}^{(l-1)}) + b
            \, \mathbf{Z}^{(l-1)} \right)

    A model defines :meth:`step` and what is made of the layers."""

    convs: Any
    shares: tuple[float, float] = (1.0, 1.0)
    reads_edges = reads_pairs = False

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int,
        make_conv: Callable[[], Module],
        act: str,
        dropout: float,
        layer_norm: bool,
        activate_layers: bool,
        read_channels: int,
    ) -> None:
        super().__init__()
        check_width(in_channels)
        check_sizes(
            hidden_channels=hidden_channels, out_channels=out_channels, num_layers=num_layers
        )
        if not 0 <= dropout < 1:
            raise ValueError(f"'dropout' must be at least 0 and below 1 (got {dropout})")
        self.in_channels, self.hidden_channels, self.out_channels, self.num_layers = (
            in_channels,
            hidden_channels,
            out_channels,
            num_layers,
        )
        self.dropout, self.activate_layers, self.act = (
            dropout,
            activate_layers,
            activation_resolver(act),
        )
        self.lin_in = make_linear(in_channels, hidden_channels)
        self.convs = ModuleList(make_conv() for _ in range(num_layers))
        self.norms = ModuleList(
            LayerNorm(hidden_channels) if layer_norm else torch.nn.Identity()
            for _ in range(num_layers + 1)
        )
        self.lin_out = Linear(read_channels, out_channels)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters and redraws the projections."""
        for module in self.children():
            reset(module)

    def step(
        self,
        layer: int,
        x: Tensor | PairTensor,
        first: Tensor,
        around: Around,
        state: AttentionState | None,
    ) -> Tensor:
        r"""What layer number :obj:`layer` makes of its input :obj:`x`, or for the second of a pair;
        :obj:`first` is that of the first layer."""
        return self.convs[layer](x, around.edges, around.batch, around.batch_size, state=state)

    def input_layer(self, x: Tensor) -> Tensor:
        r""":math:`\mathbf{Z}^{(0)}`."""
        check_features(x, self.lin_in, self.in_channels)
        return dropout(self.act(self.norms[0](self.lin_in(x))), self.dropout, self.training)

    def layer(
        self,
        layer: int,
        x: Tensor | PairTensor,
        first: Tensor,
        around: Around,
        state: AttentionState | None,
    ) -> Tensor:
        r""":math:`\mathbf{Z}^{(l)}` with :math:`l` one more than :obj:`layer`."""
        new, old = self.shares
        z = self.norms[layer + 1](
            new * self.step(layer, x, first, around, state)
            + old * (x if isinstance(x, Tensor) else x[1])
        )
        return dropout(self.act(z) if self.activate_layers else z, self.dropout, self.training)

    def layers(self, x: Tensor, around: Around) -> list[Tensor]:
        r""":math:`\mathbf{Z}^{(0)}, \dots, \mathbf{Z}^{(L)}`."""
        if around.states is not None and len(around.states) != self.num_layers:
            raise ValueError(
                f"'states' must be one for each of {self.num_layers} layers (got "
                f'{len(around.states)})'
            )
        if around.num_keys is not None and around.states is None and around.process_group is None:
            raise ValueError(
                "'num_keys' must be None without 'states' or 'process_group' (got "
                f'{around.num_keys})'
            )
        if around.num_keys is not None and not 0 <= around.num_keys <= x.size(0):
            raise ValueError(
                f"'num_keys' must be between 0 and the number of nodes, {x.size(0)} (got "
                f'{around.num_keys})'
            )
        out = [self.input_layer(x)]
        for layer in range(self.num_layers):
            out.append(
                self.layer(layer, out[-1], out[0], around, self._state(layer, out[-1], around))
            )
        return out

    def _state(self, layer: int, x: Tensor, around: Around) -> AttentionState | None:
        if around.states is None and around.process_group is None:
            return None
        if (
            around.process_group is not None
            and around.batch is not None
            and around.batch_size is None
        ):
            raise ValueError(
                "'batch_size' must be given with 'batch' and 'process_group': each process has a "
                'state for every graph'
            )
        batch = None if around.batch is None else around.batch[: around.num_keys]
        own = self.convs[layer].attention_state(x[: around.num_keys], batch, around.batch_size)
        own = own if around.process_group is None else own.all_reduce(around.process_group)
        return own if around.states is None else around.states[layer].merge(own).to(own.sums.dtype)

    def counted_edges(self, part: Part) -> tuple[Tensor, Tensor | None]:
        r"""Those of the edges into some nodes that count for the degrees of a layer, and their
        weights."""
        return part.edge_index, part.edge_weight

    def layer_edges(self, part: Part) -> Edges:
        r"""All edges into the nodes of a part, as a layer takes them."""
        return sorted_edges(
            part.edge_index, part.n_id.numel(), part.size, edge_weight=part.edge_weight
        )

    def local_branch(self, stream: Stream, first: Tensor) -> Tensor | None:
        r"""The output ``[N, D]`` of what a model has beside its layers."""
        return None

    def readout(self, layers: list[Tensor], local: Tensor | None = None) -> Tensor:
        r"""The scores."""
        return self.lin_out(layers[-1])

    def inference(
        self, loader: Any, folder: str | Path | None = None, progress_bar: bool = False
    ) -> Tensor:
        r"""The scores of all nodes, as :meth:`forward` in evaluation gives them, for a graph that
        need not fit into memory: layer by layer, one pass over the nodes sums up the state of the
        attention, and one reads it, with all neighbours. With a folder, features and a graph that
        are mapped from files, memory is that of the parameters, the states and one batch with its
        neighbours.

        Args:
            loader (torch_geometric.loader.NeighborLoader): Has the data, one graph, and the size of
                a batch, with ``num_neighbors=[-1]``.
            folder (str or Path, optional): Where the outputs of all layers lie in files until the
                scores are there, which stay, mapped. A run that was killed goes on there with the
                same model and data. (default: :obj:`None`, in memory)
            progress_bar (bool, optional): If :obj:`True`, progress is shown. (default:
                :obj:`False`)

        Returns:
            ``[N, F_out]``

        Raises:
            ValueError: If the loader does not take all neighbours of one hop, the folder is that of
                another model or graph, or a layer cannot be evaluated in parts.
        """
        with evaluation(self):
            stream = Stream(loader, folder, self, progress_bar)
            return stream.result(
                self.out_channels,
                reference(self.lin_out).dtype,
                lambda: self._stream_scores(stream),
            )

    def _stream_scores(self, stream: Stream) -> Callable[[Part], Tensor]:
        layers = stream_layers(self, stream, self.num_layers)
        local, device = self.local_branch(stream, layers[0]), reference(self.lin_out).device

        def scores(part: Part) -> Tensor:
            own = [z[part.nodes].to(device) for z in layers]
            return self.readout(own, None if local is None else local[part.nodes].to(device))

        return scores

    def attention_memory(
        self, loader: Any, folder: str | Path | None = None, progress_bar: bool = False
    ) -> AttentionMemory:
        r"""What a batch needs to attend to all nodes of the graph, as they are now; see
        :class:`AttentionMemory`. Arguments and errors are those of :meth:`inference`, of which it
        is the first part; a memory that was made in the same folder before is written over."""
        with evaluation(self):
            stream = Stream(loader, folder, self, progress_bar, resume=False)
            inputs = stream_layers(self, stream, self.num_layers - 1)
        return AttentionMemory(self.convs, inputs, stream)

    def attention_scores(
        self,
        x: Tensor,
        edge_index: Edges,
        pairs: Tensor,
        batch: Tensor | None = None,
        *,
        edge_weight: Tensor | None = None,
    ) -> list[Tensor]:
        r"""The weights ``[P, H]`` that each layer's target ``pairs[1]`` puts on source
        ``pairs[0]``; :obj:`edge_index` and :obj:`edge_weight` are the graph, as in
        :meth:`forward`."""
        inputs = self.layers(x, Around(self._edges(edge_index, x.size(0), edge_weight), batch))
        return [
            conv.attention_scores(z, pairs, batch)
            for conv, z in zip(self.convs, inputs, strict=False)
        ]

    def _edges(self, edge_index: Edges, num_nodes: int, edge_weight: Tensor | None = None) -> Edges:
        return edge_index

    def __repr__(self) -> str:
        sizes = (
            f'{self.in_channels}, {self.hidden_channels}, {self.out_channels}, '
            f'num_layers={self.num_layers}'
        )
        return f'{self.__class__.__name__}({sizes})'
