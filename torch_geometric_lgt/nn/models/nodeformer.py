# N nodes, D hidden channels, H heads, L layers.
from typing import Literal, cast, overload

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import Linear, Module, ModuleList
from torch_geometric.nn import MLP
from torch_geometric.utils import coalesce, remove_self_loops

from torch_geometric_lgt._arguments import check_flags
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.losses import edge_loss
from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edges import edge_list, sorted_edges
from torch_geometric_lgt.functional.neighbors.hops import first_hop
from torch_geometric_lgt.functional.segment import count_graphs
from torch_geometric_lgt.nn._layers.input_checks import check_sizes, check_unused
from torch_geometric_lgt.nn._layers.linear_parts import reference
from torch_geometric_lgt.nn.conv import KernelAttentionConv
from torch_geometric_lgt.nn.models._backbone import Backbone
from torch_geometric_lgt.nn.models._graph_context import Degree, Edges, GraphContext, States
from torch_geometric_lgt.nn.models._out_of_memory import with_advice
from torch_geometric_lgt.nn.models._streaming.stream import Part
from torch_geometric_lgt.typing import Adj, PairTensor


class NodeFormer(Backbone):
    r"""Scores nodes with the model of `"NodeFormer: A Scalable Graph Structure Learning Transformer
    for Node Classification" <https://arxiv.org/abs/2306.08385>`_: layers of kernelised
    Gumbel-softmax attention with a relational bias,

    .. math::
        \mathbf{Z}^{(l)} = \mathrm{LayerNorm} \left( \mathrm{Attention}(\mathbf{Z}^{(l-1)})
            \mathbf{W}_O + \mathbf{Z}^{(l-1)} \right),

    where each head has :obj:`hidden_channels` channels, see
    :class:`~torch_geometric_lgt.nn.KernelAttentionConv`. Repeated edges count once. The input layer
    :math:`\mathbf{Z}^{(0)}` is a linear map of the features, then LayerNorm and the activation. The
    edge loss is :meth:`~torch_geometric_lgt.functional.edge_regularization`, averaged over the
    layers.

    Differs from the authors' code: random projections are drawn once instead of from a seed that
    the data determine. Graphs of a batch do not attend to each other, and weights are computed in
    the log domain, without a constant beside the exponentials. Evaluation has no :math:`\tau`
    unless ``gumbel_evaluation='tempered'``. The third order of the relational bias reaches three
    hops, not four. In the edge loss logits are not divided by :math:`\tau`, and the sum is divided
    by the number of nodes, not of edges, both as in the paper.

    Differs from the paper, as the authors' code does. Its Algorithm 1 begins with
    :math:`\mathbf{Z}^{(0)} = \mathbf{X}` and has neither :math:`\mathbf{W}_O` nor residuals nor
    LayerNorm. Here logits are divided by :math:`\sqrt{C}`, the relational bias sums the values, and
    the output layer is a linear map of the last :math:`\mathbf{Z}^{(l)}`. With ``scale=1`` logits
    before the division by :math:`\tau` are :math:`\mathbf{q}_i^{\top} \mathbf{k}_j`, as in the
    paper (Theorem 2), and with ``relational_input='output'`` its bias is used. With
    ``jumping_knowledge=True`` and ``num_readout_layers=2`` the scores are
    :math:`\mathrm{MLP}(\{\mathbf{Z}^{(l)}\}_{l=0}^{L})`, the output of its Algorithm 1.

    Args:
        in_channels (int): Size of each input sample; :obj:`-1` takes the size of the first input.
        hidden_channels (int): Size of each hidden sample, and of each head.
        out_channels (int): Size of each output sample.
        num_layers (int, optional): Number of layers. (default: :obj:`2`)
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        feature_map (str or torch.nn.Module, optional): As in
            :class:`~torch_geometric_lgt.nn.KernelAttentionConv`. A map other than
            :obj:`"positive"`, :obj:`"orthogonal"` and :obj:`"simplex"` needs
            ``num_gumbel_samples=0``, and one without random or learned features also
            ``num_features=None``. All layers share a module and its parameters. For separate
            parameters, set the :attr:`feature_map` of each of :attr:`convs` to a copy. (default:
            :obj:`"orthogonal"`)
        num_features (int, optional): Random or learned features per head, as in
            :class:`~torch_geometric_lgt.nn.KernelAttentionConv`. (default: :obj:`30`)
        temperature (float, optional): :math:`\tau`, the temperature of the attention. (default:
            :obj:`0.25`)
        num_gumbel_samples (int, optional): :math:`K`, the number of samples of Gumbel noise; 0
            trains without noise. (default: :obj:`10`)
        gumbel_evaluation (str, optional): As in
            :class:`~torch_geometric_lgt.nn.KernelAttentionConv`. (default: :obj:`"softmax"`)
        relational_order (int, optional): The largest number of hops of the relational bias; 0 omits
            the bias. (default: :obj:`1`)
        relational_input (str, optional): As in
            :class:`~torch_geometric_lgt.nn.KernelAttentionConv`. (default: :obj:`"value"`)
        relational_weight (str, optional): As in
            :class:`~torch_geometric_lgt.nn.KernelAttentionConv`. (default: :obj:`"sigmoid"`)
        residual (bool, optional): If :obj:`False`, :math:`\mathbf{Z}^{(l-1)}` is not added.
            (default: :obj:`True`)
        layer_norm (bool, optional): If :obj:`False`, neither the input layer nor the layers have a
            LayerNorm. (default: :obj:`True`)
        activate_layers (bool, optional): If :obj:`True`, layers end in the activation, as the input
            layer does. (default: :obj:`False`)
        jumping_knowledge (bool, optional): If :obj:`True`, the output layer reads
            :math:`\mathbf{Z}^{(0)}, \dots, \mathbf{Z}^{(L)}` concatenated, else the last one.
            (default: :obj:`False`)
        act (str or torch.nn.Module, optional): The activation. (default: :obj:`"elu"`)
        dropout (float, optional): Dropout probability of the input layer, each layer, and between
            the linear maps of the output layer. (default: :obj:`0.0`)
        scale (float, optional): The factor of inner products in the logits, as in
            :class:`~torch_geometric_lgt.nn.KernelAttentionConv`. (default: :obj:`None`,
            :math:`1 / \sqrt{C}`)
        num_readout_layers (int, optional): Number of linear maps of the output layer. The
            activation and dropout stand between two of them, with :obj:`hidden_channels` channels.
            (default: :obj:`1`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or CSR; edges or :obj:`None`; batch
          vector *(optional)*; weights of the edges :math:`(E)` *(optional)*
        - **output:** scores :math:`(N, F_{out})`, and the edge loss, a scalar, with
          ``return_edge_loss=True``

    Raises:
        ValueError: If a size, probability or number is out of range, a name is unknown, or
            :obj:`feature_map` does not fit :obj:`num_features` or :obj:`num_gumbel_samples`.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.nn import NodeFormer
        >>> model = NodeFormer(16, 32, 3)
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> model(x, edge_index).shape
        torch.Size([4, 3])
        >>> out, edge_loss = model(x, edge_index, return_edge_loss=True)
        >>> loss = out.square().mean() + 0.1 * edge_loss  # a scalar to add to the loss of the task
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        heads: int = 1,
        feature_map: str | torch.nn.Module = 'orthogonal',
        num_features: int | None = 30,
        temperature: float = 0.25,
        num_gumbel_samples: int = 10,
        gumbel_evaluation: str = 'softmax',
        relational_order: int = 1,
        relational_input: str = 'value',
        relational_weight: str = 'sigmoid',
        residual: bool = True,
        layer_norm: bool = True,
        activate_layers: bool = False,
        jumping_knowledge: bool = False,
        act: str | Module = 'elu',
        dropout: float = 0.0,
        scale: float | None = None,
        num_readout_layers: int = 1,
    ) -> None:
        def make_conv() -> KernelAttentionConv:
            return KernelAttentionConv(
                hidden_channels,
                heads * hidden_channels,
                heads,
                feature_map=feature_map,
                num_features=num_features,
                temperature=temperature,
                num_gumbel_samples=num_gumbel_samples,
                gumbel_evaluation=gumbel_evaluation,
                relational_order=relational_order,
                relational_input=relational_input,
                relational_weight=relational_weight,
                scale=scale,
            )

        check_sizes(
            hidden_channels=hidden_channels,
            heads=heads,
            num_layers=num_layers,
            num_readout_layers=num_readout_layers,
        )
        check_flags(residual=residual, jumping_knowledge=jumping_knowledge)
        read_channels = hidden_channels * (num_layers + 1) if jumping_knowledge else hidden_channels
        super().__init__(
            in_channels,
            hidden_channels,
            out_channels,
            num_layers,
            make_conv,
            act=act,
            dropout=dropout,
            layer_norm=layer_norm,
            activate_layers=activate_layers,
            read_channels=read_channels,
        )
        if num_readout_layers > 1:
            widths = [read_channels, *[hidden_channels] * (num_readout_layers - 1), out_channels]
            self.lin_out = MLP(widths, act=act, norm=None, dropout=dropout)
        self.lin_heads = ModuleList(
            Linear(heads * hidden_channels, hidden_channels) for _ in range(num_layers)
        )
        self.relational_order, self.jumping_knowledge = relational_order, jumping_knowledge
        self.residual_weight = 1.0 if residual else 0.0
        self.uses_edges, self.takes_pairs = relational_order > 0, relational_input == 'value'

    @property
    def uses_degrees(self) -> bool:
        r"""Tells whether layers read the degrees of the whole graph, which they do only with
        ``relational_input='value'``."""
        return self.uses_edges and self.takes_pairs

    @overload
    def forward(
        self,
        x: Tensor,
        edge_index: Edges,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        *,
        degree: Degree = None,
        states: States = None,
        num_keys: int | None = None,
        process_group: ProcessGroup | None = None,
        return_edge_loss: Literal[False] = False,
        edge_weight: Tensor | None = None,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        x: Tensor,
        edge_index: Edges,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        *,
        degree: Degree = None,
        states: States = None,
        num_keys: int | None = None,
        process_group: ProcessGroup | None = None,
        return_edge_loss: Literal[True],
        edge_weight: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]: ...

    @with_advice()
    def forward(
        self,
        x: Tensor,
        edge_index: Edges,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        *,
        degree: Degree = None,
        states: States = None,
        num_keys: int | None = None,
        process_group: ProcessGroup | None = None,
        return_edge_loss: bool = False,
        edge_weight: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        r"""Computes the scores ``[N, F_out]`` of all nodes, with the edge loss if
        :obj:`return_edge_loss` is set.

        Args:
            x (torch.Tensor): The node features ``[N, F_in]``.
            edge_index (torch.Tensor, SparseTensor or list): The edges ``[2, E]``, or a sparse
                matrix whose rows are the targets, such as :obj:`adj_t`, or a list with the edges of
                each order of the relational bias from :meth:`hops`. If :obj:`relational_order` is
                above 1, ``torch.compile`` and ``torch.export`` need the list. With :obj:`None` the
                bias and the edge loss are 0.
            batch (torch.Tensor, optional): The graph id of each node. (default: :obj:`None`, one
                graph)
            batch_size (int, optional): The number of graphs. (default: :obj:`None`, one more than
                the largest graph id)
            degree, states, num_keys, process_group: For a sampled subgraph or a part of the nodes
                in each process, with the meaning of :meth:`DIFFormer.forward`; degrees count
                distinct neighbours.
            return_edge_loss (bool, optional): If :obj:`True`, returns the pair (scores, edge loss).
                The loss, a scalar, is
                :meth:`~torch_geometric_lgt.functional.edge_regularization` averaged over the
                layers. It uses the edges of the first order, or without a bias the distinct edges
                of the graph. With ``relational_input='value'`` the first order contains a self loop
                of each node, which the loss counts as an edge. Its probabilities are shares among
                the nodes of :obj:`x`, also with :obj:`states` or :obj:`process_group`: the loss of
                a part is not that of the whole graph. (default: :obj:`False`)
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]``. (default:
                :obj:`None`, the values of a sparse matrix, else 1)

        Raises:
            TypeError: If :obj:`x`, :obj:`edge_index`, :obj:`batch`, :obj:`states` or
                :obj:`process_group` has another type.
            ValueError: If edges have weights although the bias has more than one order or the edge
                loss is requested. If a self loop has another weight than 1 with
                ``relational_input='value'``. If the edge loss is requested and the feature map is
                none of the random exponentials. If another argument does not fit the model.
        """
        batch_size = count_graphs(batch, batch_size, states, process_group)
        self.check_inputs(x, edge_index)
        edges = self.prepare_edges(edge_index, x.size(0), edge_weight)
        context = GraphContext(edges, batch, batch_size, degree, states, num_keys, process_group)
        layers = self.layers(x, context)
        out = self.readout(layers)
        return (out, self._edge_loss(layers, edges, batch, batch_size)) if return_edge_loss else out

    def readout(self, layers: list[Tensor], local: Tensor | None = None) -> Tensor:
        r"""Computes the scores ``[N, F_out]`` from the output of the last layer, or with
        :obj:`jumping_knowledge` from the outputs of all :obj:`layers`; :obj:`local` is ignored."""
        return self.lin_out(torch.cat(layers, 1) if self.jumping_knowledge else layers[-1])

    def degree_edges(self, part: Part) -> tuple[Tensor, Tensor | None]:
        r"""Returns the edges into :obj:`part` that count for degrees, without self loops: (sources
        and targets ``[2, E']``, weights ``[E']`` or :obj:`None`). Ids are positions in
        ``part.n_id``.

        Without weights the edges are distinct. With weights repeated edges stay, and their weights
        add up to the mean weight."""
        if part.edge_weight is None:
            return remove_self_loops(coalesce(part.edge_index))[0], None
        return remove_self_loops(
            *self.convs[0].relational_bias.weighted_hop(
                part.edge_index, part.n_id.numel(), part.edge_weight
            )
        )

    def layer_edges(self, part: Part) -> Edges:
        r"""Returns the edges of the relational bias into the nodes of :obj:`part`, a list with
        sorted edges. Ids are positions in ``part.n_id``.

        Raises:
            ValueError: If the bias has more than one order.
        """
        if self.relational_order > 1:
            raise ValueError(
                "'relational_order' must be at most 1 where neighbours of one hop are at hand "
                f'(got {self.relational_order})'
            )
        if not self.takes_pairs:
            return self.hops(part.edge_index, part.n_id.numel(), part.edge_weight)
        edges, weight = self.degree_edges(part)
        self_loops = torch.arange(part.size, device=edges.device).expand(2, -1)
        weight = None if weight is None else torch.cat([weight, weight.new_ones(part.size)])
        edges = torch.cat([edges, self_loops], 1)
        return [sorted_edges(edges, part.n_id.numel(), part.size, edge_weight=weight)]

    def step(
        self,
        index: int,
        x: Tensor | PairTensor,
        x_0: Tensor,
        context: GraphContext,
        state: AttentionState | None,
    ) -> Tensor:
        r"""Applies :class:`~torch_geometric_lgt.nn.KernelAttentionConv` number :obj:`index` to
        :obj:`x` and maps its heads to ``[N, D]``. Arguments are those of :meth:`DIFFormer.step`."""
        out = self.convs[index](
            x,
            context.edges,
            context.batch,
            context.batch_size,
            state=state,
            degree=context.degree,
        )
        return self.lin_heads[index](out)

    def hops(
        self, edge_index: Edges, num_nodes: int, edge_weight: Tensor | None = None
    ) -> list[SortedEdges]:
        r"""Finds the edges of each order :math:`p` of the relational bias: the pairs of nodes that
        walks of :math:`p` edges join, as :meth:`KernelAttentionConv.hops` does.

        Compute the list once and pass it to many calls of :meth:`forward` as :obj:`edge_index`. The
        list is empty for a model without a relational bias.

        Args:
            edge_index (torch.Tensor or SparseTensor): The edges of the graph.
            num_nodes (int): :math:`N`.
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]`` for a relational
                bias of order 1. (default: :obj:`None`)

        Returns:
            A list with :class:`~torch_geometric_lgt.functional.SortedEdges` of each order, which
            include their weights.
        """
        return self.convs[0].hops(edge_index, num_nodes, edge_weight)

    def prepare_edges(
        self, edge_index: Edges, num_nodes: int, edge_weight: Tensor | None = None
    ) -> Edges:
        r"""Finds the edges of each order of the relational bias once for all layers, as
        :meth:`hops` does. Returns :obj:`edge_index` unchanged to a model without a bias."""
        if edge_index is None or self.relational_order == 0:
            check_unused(edge_weight, "without 'edge_index' or with relational_order=0")
        if edge_index is None:
            device = reference(self).device
            no_edges = torch.empty(2, 0, dtype=torch.long, device=device)
            edges = sorted_edges(no_edges, num_nodes, num_nodes, backward=True)
            return [edges] * self.relational_order if self.relational_order > 0 else edges
        if self.relational_order == 0:
            return edge_index
        if self.convs[0].relational_bias.neighbor_sum.explain and not isinstance(edge_index, list):
            # the mask of an explainer has one entry for each edge of the graph
            return sorted_edges(edge_index, num_nodes, num_nodes, edge_weight=edge_weight)
        return self.hops(edge_index, num_nodes, edge_weight)

    def _edge_loss(
        self, layers: list[Tensor], edges: Edges, batch: Tensor | None, batch_size: int | None
    ) -> Tensor:
        num_nodes = layers[0].size(0)
        edges = self._edges_of_loss(edges, num_nodes)
        losses = []
        for conv, z in zip(self.convs, layers[:-1], strict=True):
            log_probability = conv.log_edge_probability(z, edges, batch, batch_size)
            losses.append(edge_loss(log_probability, edges.edge_index, num_nodes, edges.first))
        return torch.stack(losses).mean()

    def _edges_of_loss(self, edges: Edges, num_nodes: int) -> SortedEdges:
        r"""Returns the edges that the loss counts, each once: those of the first order of the
        relational bias, or without a bias the distinct ones of the graph.

        Raises:
            ValueError: If the edges have weights.
        """
        if isinstance(edges, SortedEdges) and self.relational_order > 0:  # in an explanation
            edges = self.hops(edges, num_nodes)
        edges = edges[0] if isinstance(edges, list) else edges
        if isinstance(edges, SortedEdges) and edges.weight is not None:
            raise ValueError(
                "'edge_weight' must be None with return_edge_loss=True: the edge loss has no "
                'weights (got some)'
            )
        if self.relational_order > 0:
            return cast(SortedEdges, edges)
        pairs = edge_list(cast(Adj, edges), num_nodes, num_nodes)
        pairs, first = first_hop(pairs, num_nodes, self_loops=False)
        return sorted_edges(pairs, num_nodes, num_nodes)._replace(first=first)
