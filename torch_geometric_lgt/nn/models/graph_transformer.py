# N nodes, E edges, B graphs, D hidden channels, H heads, L layers, F_e edge features.
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import Linear, Module, ModuleDict
from torch.nn.functional import dropout
from torch_geometric.nn import MLP
from torch_geometric.nn.aggr import Aggregation

from torch_geometric_lgt._arguments import check_flags, check_keywords
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edges import weighted_edges
from torch_geometric_lgt.functional.segment import check_batch, count_graphs, segments
from torch_geometric_lgt.nn._layers.input_checks import (
    check_edge_attr,
    check_features,
    check_heads,
    check_not_negative,
    check_rates,
    check_sizes,
    check_unused,
    check_width,
    require_edges,
)
from torch_geometric_lgt.nn._layers.linear_parts import initialize, make_linear, reference
from torch_geometric_lgt.nn.models._batch_norm import Processes, check_statistics
from torch_geometric_lgt.nn.models._conv_trials import check_one_hop
from torch_geometric_lgt.nn.models._encodings import (
    check_encoding,
    check_encodings,
    check_position,
    sorted_encodings,
)
from torch_geometric_lgt.nn.models._graph_context import Degree, Edges, GraphContext, States
from torch_geometric_lgt.nn.models._layerwise_model import LayerwiseModel
from torch_geometric_lgt.nn.models._levels import check_level, check_node_level, read_level
from torch_geometric_lgt.nn.models._make_blocks import (
    check_attention_type,
    check_branches,
    make_block_attention,
    make_blocks,
)
from torch_geometric_lgt.nn.models._message_input import (
    MessageInput,
    message_input,
    name_of,
    part_input,
    takes,
)
from torch_geometric_lgt.nn.models._message_passing_layers import make_conv
from torch_geometric_lgt.nn.models._out_of_memory import with_advice
from torch_geometric_lgt.nn.models._sparse_gcn import gcn_degree_edges, is_sparse_gcn
from torch_geometric_lgt.nn.models._streaming.stream import Part, Stream
from torch_geometric_lgt.nn.models.attention_memory import AttentionMemory
from torch_geometric_lgt.typing import Adj, PairTensor

NODE_NORM = "make the model with norm='layer_norm', which the MLPs of named layers have, too"


class GraphTransformer(LayerwiseModel):
    r"""Scores nodes, edges or graphs with layers of message passing and, in parallel, all-pair
    attention: the network of `"Recipe for a General, Powerful, Scalable Graph Transformer"
    <https://arxiv.org/abs/2205.12454>`_, with attention in linear time.

    .. math::
        \mathbf{Z}^{(0)} = \mathbf{W}_0 \mathbf{X} + \sum_p \mathbf{W}_p \mathbf{P}_p, \qquad
        \mathbf{Z}^{(l)} = \mathrm{GPSConv}(\mathbf{Z}^{(l-1)}, \mathbf{A}), \qquad
        \mathbf{Y} = f(\mathbf{Z}^{(L)})

    with the encodings :math:`\mathbf{P}_p`, layers :class:`~torch_geometric_lgt.nn.GPSConv`, and as
    :math:`f` a linear map of each node, or an MLP of each edge or graph (:obj:`level`). The MLP is
    two linear maps with ReLU and :obj:`hidden_channels` between them. With :obj:`num_local_layers`
    other layers come first, which have no attention: local before global, as in `"Polynormer"
    <https://arxiv.org/abs/2403.01232>`_. Edges count as in the layer :obj:`conv`; in GCN repeated
    edges count repeatedly.

    For the nodes of one graph, also try seven local layers before one gated layer:
    ``num_layers=1, num_local_layers=7, gate=True, input_dropout=0.15``. :doc:`/gps` has the whole
    training to copy, and what it reaches. For the nodes of many graphs start with
    ``dropout=0.0``.

    Is the attention worth its cost on your data? Train the model a second time with
    ``attn_type='mean'``, the plain mean of the graph, and a third time with ``attn_type=None``.

    Args:
        in_channels (int): Size of each input sample; :obj:`-1` takes the size of the first input.
        hidden_channels (int): Size of each hidden sample.
        out_channels (int): Size of each output sample.
        num_layers (int, optional): Number of layers with attention. (default: :obj:`4`)
        heads (int, optional): Number of attention heads. (default: :obj:`4`)
        num_local_layers (int, optional): Number of layers before them, which have message passing
            but neither attention nor a feed-forward network: :math:`\mathbf{Z} +
            \mathrm{act}(\mathrm{Norm}( \mathrm{MPNN}(\mathbf{Z}, \mathbf{A}) + \mathbf{W}
            \mathbf{Z}))` with :obj:`norm`. With :obj:`gate` a LayerNorm follows the last one, also
            if ``attn_type=None``. (default: :obj:`0`)
        gate (bool, optional): If :obj:`True`, the layers with attention have no message passing and
            no feed-forward network. They multiply the output of the attention, after a LayerNorm
            whatever :obj:`norm` is, by 1 plus a linear map of their input, as below. Dropout
            follows, and there is no residual. With ``attn_type=None`` there are no such layers.
            (default: :obj:`False`)

            :math:`\mathbf{Z}^{(l)} = \mathrm{act}(\mathbf{W}_2 ((1 + \mathbf{W}_1
            \mathbf{Z}^{(l-1)}) \odot \mathrm{LayerNorm}(\mathrm{Attention}(
            \mathbf{Z}^{(l-1)}))))`
        conv (str or callable, optional): The message passing: the name of a layer of
            :mod:`torch_geometric.nn`, or a function of its input and output channels. :obj:`None`
            for none. A layer that takes a :obj:`batch` gets it. A named layer is tried on a small
            graph when the model is made: layers that need more than features and edges are refused.
            (default: :obj:`"GCNConv"`)
        conv_kwargs (dict, optional): Further arguments of the layer that :obj:`conv` names.
            :obj:`"GINConv"` and other layers with an argument :obj:`nn` get an MLP of two layers
            without it, that of :obj:`"GINConv"` and :obj:`"GINEConv"` with :obj:`norm`. Other
            required arguments must be here, such as :obj:`aggregators`, :obj:`scalers` and
            :obj:`deg` of :obj:`"PNAConv"`. All layers share a module in this dictionary; give
            a function as :obj:`conv` to make one for each layer. (default: :obj:`None`, none)
        attn_type (str or callable, optional): The attention: a name as in
            :class:`~torch_geometric_lgt.nn.GPSConv` except :obj:`"degree_masked"`, :obj:`None` for
            none, or a function of channels and heads that returns a layer. With :obj:`"sgformer"`
            the nodes of a large graph hardly attend to each other, unless :obj:`attn_kwargs` has
            ``'norm': 'row'``. (default: :obj:`"kernel"`)
        attn_kwargs (dict, optional): Further arguments of the attention that :obj:`attn_type`
            names. If one of them is a module, such as a :obj:`feature_map`, all layers use this
            module and its parameters; give a function as :obj:`attn_type` to make one for each
            layer. A dictionary replaces the default as a whole: without the key ``feature_map`` the
            layers of :obj:`"kernel"` have random features, as in
            :class:`~torch_geometric_lgt.nn.GPSConv`, not learned ones. (default: :obj:`None`:
            ``{'feature_map': 'learned', 'num_features': 32}`` for :obj:`"kernel"`, else none)
        encodings (dict, optional): The channels of each positional or structural encoding by a
            name of your choice, such as ``{'laplacian_pe': 10}``: by this name :meth:`forward`
            takes it. (default: :obj:`None`, none)
        position (str, optional): The name of one of the :obj:`encodings`, from which the attention
            makes queries and keys, instead of from the hidden features: nodes attend by where they
            are. The encoding is still added to :math:`\mathbf{Z}^{(0)}`. For
            :obj:`"kernel"`, :obj:`"difformer"` and :obj:`"sgformer"`. (default: :obj:`None`, none)
        edge_channels (int, optional): Size :math:`F_e` of the features of each edge. They go to the
            message passing as :obj:`edge_attr`, which it must take (:obj:`"GCNConv"` does not). A
            layer of PyG with an argument :obj:`edge_dim`, :obj:`in_edge_channels` or :obj:`dim`
            gets it, too. (default: :obj:`0`, none)
        level (str, optional): Scores each :obj:`"node"`, each :obj:`"edge"` by its source and
            target, or each :obj:`"graph"` by its nodes together. (default: :obj:`"node"`)
        dropout (float, optional): Dropout probability within the layers, and of the input layer
            with :obj:`input_norm`. (default: :obj:`None`: 0.5 for ``level='node'``, where without
            dropout the model learns the labelled nodes of one graph by heart, else 0)
        input_dropout (float, optional): Dropout probability of the node features. (default:
            :obj:`0.0`)
        input_norm (bool, optional): If :obj:`True`, normalisation, activation and dropout follow
            the input layer, and this is the first of the :obj:`blocks`. (default: :obj:`True`)
        norm (str, optional): The normalisation of the layers, :obj:`"batch_norm"`,
            :obj:`"layer_norm"` of each node, or :obj:`None`. In training :obj:`"batch_norm"` mixes
            the graphs of a batch. With ``level='graph'`` train it with at least two graphs in a
            batch: in a batch of one, the mean of the nodes is constant, so all graphs (with
            :obj:`aggr` :obj:`"sum"` all of as many nodes) have one score, and nothing is learned.
            (default: :obj:`"batch_norm"`)
        act (str or torch.nn.Module, optional): The activation of the layers and of
            :obj:`input_norm`. MLPs, of :math:`f` and of named layers, have ReLU. (default:
            :obj:`"relu"`)
        aggr (str or torch_geometric.nn.aggr.Aggregation, optional): How a graph's score reads its
            nodes: by their :obj:`"mean"`, :obj:`"sum"` (or :obj:`"add"`) or :obj:`"max"`, or by a
            module that keeps the number of channels. With PyG's ``LSTMAggregation`` and
            ``PatchTransformerAggregation`` the score of a graph depends on the largest graph of
            the batch, to which they pad. Another value than :obj:`"mean"` needs ``level='graph'``.
            (default: :obj:`"mean"`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or CSR; edges; batch vector
          *(optional)*; encodings :math:`(N, F_p)`; edge features :math:`(E, F_e)`; edge weights
          :math:`(E)`
        - **output:** scores :math:`(N, F_{out})`, :math:`(E, F_{out})` or :math:`(B, F_{out})`

    Raises:
        ValueError: If an argument of the model or of its layers is out of range or unknown.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.nn import GraphTransformer
        >>> model = GraphTransformer(16, 32, 3, encodings={'laplacian_pe': 2})
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> model(x, edge_index, laplacian_pe=torch.randn(4, 2)).shape
        torch.Size([4, 3])
    """

    takes_pairs = True

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 4,
        heads: int = 4,
        num_local_layers: int = 0,
        gate: bool = False,
        conv: str | Callable[[int, int], Module] | None = 'GCNConv',
        conv_kwargs: dict[str, Any] | None = None,
        attn_type: str | Callable[[int, int], Module] | None = 'kernel',
        attn_kwargs: dict[str, Any] | None = None,
        encodings: dict[str, int] | None = None,
        position: str | None = None,
        edge_channels: int = 0,
        level: str = 'node',
        dropout: float | None = None,
        input_dropout: float = 0.0,
        input_norm: bool = True,
        norm: str | None = 'batch_norm',
        act: str | Module = 'relu',
        aggr: str | Aggregation = 'mean',
    ) -> None:
        super().__init__()
        check_encodings(encodings, GraphTransformer.forward)
        check_width(in_channels)
        check_sizes(
            hidden_channels=hidden_channels,
            out_channels=out_channels,
            num_layers=num_layers,
            heads=heads,
            **{f"encodings['{name}']": channels for name, channels in (encodings or {}).items()},
        )
        check_level(level, aggr)
        if dropout is None:
            dropout = 0.5 if level == 'node' else 0.0
        check_rates(dropout=dropout, input_dropout=input_dropout)
        check_flags(gate=gate, input_norm=input_norm)
        check_keywords(conv_kwargs=conv_kwargs, attn_kwargs=attn_kwargs)
        check_not_negative(num_local_layers=num_local_layers, edge_channels=edge_channels)
        check_attention_type(attn_type)
        check_branches(conv, attn_type, num_local_layers, norm, gate)
        if isinstance(attn_type, str) and attn_type != 'mean':
            check_heads(heads, hidden_channels)
        if attn_type == 'kernel' and attn_kwargs is None:
            attn_kwargs = {'feature_map': 'learned', 'num_features': 32}
        check_position(position, encodings or {}, attn_type, attn_kwargs)
        self.in_channels, self.hidden_channels = in_channels, hidden_channels
        self.out_channels, self.level, self.aggr = out_channels, level, aggr
        self.num_layers, self.num_local_layers = num_layers, num_local_layers
        self.position = position
        self.encodings = dict(encodings or {})
        self.edge_channels = edge_channels
        self.input_dropout = input_dropout
        self.input_names = ('x', *self.encodings)
        self.gate = gate
        self.lin_in = make_linear(in_channels, hidden_channels)
        self.lin_encodings = ModuleDict(
            {name: Linear(channels, hidden_channels) for name, channels in self.encodings.items()}
        )
        self.norm = norm
        self.blocks: Any = make_blocks(
            hidden_channels,
            num_local_layers,
            0 if gate and attn_type is None else num_layers,
            partial(make_conv, conv, hidden_channels, heads, edge_channels, conv_kwargs, norm),
            partial(
                make_block_attention,
                hidden_channels,
                heads,
                attn_type,
                attn_kwargs,
                self.encodings[position] if position else None,
            ),
            heads=heads,
            gate=gate,
            dropout=dropout,
            input_norm=input_norm,
            norm=norm,
            act=act,
        )
        self.uses_edges = self.conv is not None
        if edge_channels > 0 and not self.uses_edges:
            raise ValueError(
                "'edge_channels' must be 0 without message passing, which alone reads the features "
                f'of edges (got {edge_channels})'
            )
        read = hidden_channels * (2 if level == 'edge' else 1)
        self.lin_out = (
            Linear(read, out_channels)
            if level == 'node'
            else MLP([read, hidden_channels, out_channels], norm=None)
        )

    @property
    def attentions(self) -> list[Any]:
        r"""Returns the attention of each layer; :obj:`None` for a layer without attention."""
        return [block.attn for block in self.blocks]

    @property
    def conv(self) -> Any:
        r"""Returns the message passing layer of the first layer that has one, or :obj:`None` if no
        layer has one.

        Raises:
            ValueError: If the message passing of some layers, but not of all, is that of
                ``conv='GCNConv'``.
        """
        convs = [block.conv for block in self.blocks if block.conv is not None]
        if len({is_sparse_gcn(conv) for conv in convs}) > 1:
            names = ', '.join(name_of(conv) for conv in convs)
            raise ValueError(
                "'conv' must be 'GCNConv' in all layers or in none, because the edges are prepared "
                f"once for all (got {names}); replace the 'conv' of all 'blocks' that have one"
            )
        return convs[0] if convs else None

    @property
    def uses_degrees(self) -> bool:
        r"""Tells whether layers read the degrees of the whole graph, as those of GCN do."""
        return is_sparse_gcn(self.conv)

    @with_advice()
    def forward(
        self,
        x: Tensor,
        edge_index: Adj | SortedEdges | None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        *,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
        degree: Degree = None,
        states: States = None,
        num_keys: int | None = None,
        process_group: ProcessGroup | None = None,
        **encodings: Tensor,
    ) -> Tensor:
        r"""Computes the scores of all nodes ``[N, F_out]``, edges ``[E, F_out]`` or graphs
        ``[B, F_out]``.

        Features, weights and scores of edges are in the order of :obj:`edge_index`, which
        :class:`~torch_geometric_lgt.functional.SortedEdges` keep. For a sparse matrix they are in
        the order of its rows: by target, then by source.

        Args:
            x (torch.Tensor): The node features ``[N, F_in]``.
            edge_index (torch.Tensor or SparseTensor): The edges ``[2, E]``, or a sparse matrix
                whose rows are the targets, such as :obj:`adj_t`, or
                :class:`~torch_geometric_lgt.functional.SortedEdges`; :obj:`None` only with
                ``conv=None`` and another :obj:`level` than :obj:`"edge"`.
            batch (torch.Tensor, optional): The graph id of each node. (default: :obj:`None`, one
                graph)
            batch_size (int, optional): The number of graphs. (default: :obj:`None`, one more than
                the largest graph id)
            edge_attr (torch.Tensor, optional): The edge features ``[E, F_e]``. (default:
                :obj:`None`)
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]``, for a
                :obj:`conv` that takes them. (default: :obj:`None`, the values of a sparse matrix,
                else 1)
            degree (torch.Tensor or tuple, optional): For a sampled subgraph, the degrees ``[N]`` in
                the whole graph, or the pair of out- and in-degrees of a directed one. Only
                ``conv='GCNConv'`` reads them, and of a pair the in-degrees, as
                :meth:`SGFormer.forward` describes. (default: :obj:`None`, counted in the edges)
            states, num_keys, process_group: What the attention to nodes outside the input needs, as
                in :meth:`DIFFormer.forward`; :class:`AttentionMemory` says which scores of edges
                are valid. In training with :obj:`process_group`, batch normalisation uses the first
                :obj:`num_keys` nodes of each process.
            **encodings: Each encoding ``[N, F_p]`` by its name.

        Raises:
            TypeError: If an argument has another type, such as an array of NumPy in the place of a
                tensor.
            ValueError: If an argument does not fit the model: an encoding is missing, edges have
                weights or features that :obj:`conv` does not take, or the score of a graph is
                requested from a part of its nodes.
        """
        batch_size = count_graphs(batch, batch_size, states, process_group)
        self.check_inputs(x, edge_index)
        if batch is not None:
            check_batch(batch, x.size(0), x.device)
        if states is not None or process_group is not None:
            self._check_part("'states' or 'process_group'")
        if process_group is not None:
            for block in self.blocks:
                check_statistics(block, 'conv', fix=NODE_NORM)
        edges = self._message_input(edge_index, x, edge_attr, edge_weight, degree, batch)
        context = GraphContext(edges, batch, batch_size, degree, states, num_keys, process_group)
        ordered = sorted_encodings(encodings, self.encodings, GraphTransformer.forward)
        layers = self.layers(x, context, *ordered)
        if self.level == 'node':
            return self.readout(layers)
        z = layers[-1][:, : self.hidden_channels]
        num_nodes = x.size(0)
        num_graphs = segments(batch, num_nodes, batch_size, x.device).sizes.numel()
        pairs = None
        if self.level == 'edge':
            pairs = weighted_edges(cast(Adj, edge_index), num_nodes, num_nodes)[0]
        return self.lin_out(read_level(self.level, z, pairs, batch, num_graphs, self.aggr))

    def inference(
        self, loader: Any, folder: str | Path | None = None, progress_bar: bool = False
    ) -> Tensor:
        r"""Computes the scores ``[N, F_out]`` of all nodes of a graph that need not fit into
        memory, with the arguments of :meth:`NodeFormer.inference`.

        The data has the encodings as attributes, by their names, and :obj:`edge_attr` for a model
        with :obj:`edge_channels`. The output of the message passing at a node must depend on the
        node and its neighbours only.

        Raises:
            ValueError: If the model scores edges or graphs, the attention or the message passing
                cannot be evaluated in parts, or for the reasons of :meth:`NodeFormer.inference`.
        """
        check_node_level(self.level)
        return super().inference(loader, folder, progress_bar)

    def attention_memory(
        self, loader: Any, folder: str | Path | None = None, progress_bar: bool = False
    ) -> AttentionMemory:
        r"""Builds an :class:`AttentionMemory` of a graph, with the arguments of
        :meth:`NodeFormer.attention_memory`.

        Raises:
            ValueError: If the model scores graphs, or for the reasons of
                :meth:`NodeFormer.attention_memory`.
        """
        self._check_part("an 'AttentionMemory'")
        return super().attention_memory(loader, folder, progress_bar)

    def attention_scores(
        self,
        x: Tensor,
        edge_index: Edges,
        pairs: Tensor,
        batch: Tensor | None = None,
        *,
        edge_attr: Tensor | None = None,
        edge_weight: Tensor | None = None,
        **encodings: Tensor,
    ) -> list[Tensor]:
        r"""Computes for each layer with attention the attention weight ``[P, H]`` of each pair of
        nodes :obj:`pairs` ``[2, P]`` (sources, targets), and returns a list of tensors. Call it in
        evaluation: in training dropout changes the inputs of the layers. The other arguments are
        those of :meth:`forward`."""
        self.check_inputs(x, edge_index)
        edges = self._message_input(edge_index, x, edge_attr, edge_weight, None, batch)
        context = GraphContext(edges, batch=batch)
        ordered = sorted_encodings(encodings, self.encodings, GraphTransformer.forward)
        inputs = self.layers(x, context, *ordered)[:-1]
        return self.scores_of_pairs(inputs, pairs, batch)

    @property
    def layer_channels(self) -> int:
        r"""Returns the width of a layer's output, :math:`D` and the channels of the positions."""
        return self.hidden_channels + (self.encodings[self.position] if self.position else 0)

    def input_layer(self, x: Tensor, *encodings: Tensor) -> Tensor:
        r"""Computes :math:`\mathbf{Z}^{(0)}` ``[N, D]`` from the features :obj:`x` ``[N, F]`` and
        the encodings, in the order of the argument :obj:`encodings` of the model. With
        :obj:`position` the positions follow, ``[N, D + P]``, here and in the output of each
        layer."""
        check_features(x, self.lin_in, self.in_channels)
        initialize(x, self.lin_in)
        z = self.lin_in(self._dropped_features(x))
        for (name, lin), encoding in zip(self.lin_encodings.items(), encodings, strict=True):
            check_encoding(name, encoding, x, self.encodings[name])
            z = z + lin(encoding.to(z.dtype))
        if self.position is None:
            return z
        position = encodings[list(self.encodings).index(self.position)]
        return torch.cat([z, position.to(z.dtype)], 1)

    def layer(
        self,
        index: int,
        x: Tensor | PairTensor,
        x_0: Tensor,
        context: GraphContext,
        state: AttentionState | None,
    ) -> Tensor:
        r"""Computes the output :math:`\mathbf{Z}^{(l)}` ``[N, D]`` of layer :math:`l`, which is one
        more than :obj:`index`.

        Args:
            index (int): The number of the layer, from 0.
            x (torch.Tensor or tuple): The input of the layer ``[N, D]``, or a pair (sources,
                targets) whose first sources are the targets.
            x_0 (torch.Tensor): The output of the input layer; not used.
            context (GraphContext): The edges, the batch vector and what else the layers read.
            state (AttentionState, optional): Sums over all keys, which replace the keys of
                :obj:`x`.
        """
        norm_arguments = {}
        if context.process_group is not None and self.norm == 'batch_norm':
            norm_arguments['processes'] = Processes(context.process_group, context.num_keys)
        out = self.blocks[index](x, context, state, norm_arguments)
        if self.position is None:
            return out
        x_dst = x if isinstance(x, Tensor) else x[1]
        return torch.cat([out, x_dst[:, self.hidden_channels :]], 1)

    def readout(self, layers: list[Tensor], local: Tensor | None = None) -> Tensor:
        r"""Computes the scores ``[N, F_out]`` of all nodes from the outputs :obj:`layers` of all
        layers."""
        return self.lin_out(layers[-1][:, : self.hidden_channels])

    def stream_layers(self, stream: Stream, num_layers: int) -> list[Tensor]:
        r"""Computes the outputs of the input layer and of the first :obj:`num_layers` layers for
        all nodes.

        Raises:
            ValueError: If a message passing layer reads more than the neighbours of a node.
        """
        weight = reference(self)
        for conv in (block.conv for block in self.blocks):
            if conv is not None and not is_sparse_gcn(conv):
                check_one_hop(conv, self.hidden_channels, self.edge_channels, weight)
        return super().stream_layers(stream, num_layers)

    def degree_edges(self, part: Part) -> tuple[Tensor, Tensor | None]:
        r"""Returns the edges into the nodes of :obj:`part` that count for the degrees of GCN."""
        return gcn_degree_edges(part)

    def part_context(self, stream: Stream, part: Part, degree: Tensor | None) -> GraphContext:
        r"""Returns the edges into :obj:`part` as the message passing reads them."""
        weight = reference(self)
        edges = part_input(self.conv, stream, part, degree, self.edge_channels, weight)
        return GraphContext(edges)

    def _check_part(self, where: str) -> None:
        r"""Raises a ValueError if the model scores graphs, where it would get a part of the
        nodes."""
        if self.level == 'graph':
            raise ValueError(
                f"'level' must be 'node' or 'edge' with {where}: the score of a graph needs all of "
                "its nodes (got 'graph')"
            )

    def _message_input(
        self,
        edge_index: Edges,
        x: Tensor,
        edge_attr: Tensor | None,
        edge_weight: Tensor | None,
        degree: Degree,
        batch: Tensor | None,
    ) -> MessageInput | None:
        if not self.uses_edges:
            check_unused(edge_weight, 'without message passing')
            check_edge_attr(edge_attr, 0, self.edge_channels)
            return None
        conv = self.conv
        edges = require_edges(edge_index, 'for attention alone make the model with conv=None')
        channels, size = self.edge_channels, x.size(0)
        inputs = message_input(conv, edges, size, x.dtype, channels, degree, edge_weight, edge_attr)
        if batch is None or not takes(conv, 'batch'):
            return inputs
        return inputs._replace(arguments={**inputs.arguments, 'batch': batch})

    def _dropped_features(self, x: Tensor) -> Tensor:
        if x.layout == torch.strided:
            return dropout(x, self.input_dropout, self.training)
        x = x.to_sparse_csr()
        values = dropout(x.values(), self.input_dropout, self.training)
        indices = x.crow_indices(), x.col_indices()
        return torch.sparse_csr_tensor(*indices, values, x.shape, device=values.device)

    def __repr__(self) -> str:
        return f'{super().__repr__()[:-1]}, num_local_layers={self.num_local_layers})'
