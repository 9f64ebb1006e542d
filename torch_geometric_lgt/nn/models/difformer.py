# N nodes, D hidden channels, H heads, L layers.
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import Module

from torch_geometric_lgt._arguments import check_flags, check_number
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edges import sorted_edges
from torch_geometric_lgt.functional.segment import count_graphs
from torch_geometric_lgt.nn._layers.input_checks import check_heads, check_unused
from torch_geometric_lgt.nn.conv import DIFFormerConv
from torch_geometric_lgt.nn.models._backbone import Backbone
from torch_geometric_lgt.nn.models._graph_context import Degree, Edges, GraphContext, States
from torch_geometric_lgt.nn.models._out_of_memory import with_advice
from torch_geometric_lgt.typing import Adj, PairTensor


class DIFFormer(Backbone):
    r"""Scores nodes with the model of `"DIFFormer: Scalable (Graph) Transformers Induced by Energy
    Constrained Diffusion" <https://arxiv.org/abs/2301.09474>`_: each layer is a step of a diffusion
    over all nodes of a graph and over its edges,

    .. math::
        \mathbf{Z}^{(l)} = \mathrm{LayerNorm} \left( (1 - \tau) \, \mathbf{Z}^{(l-1)}
        + \tau \, \mathrm{DIFFormerConv}(\mathbf{Z}^{(l-1)}, \mathbf{A}) \right).

    The input layer :math:`\mathbf{Z}^{(0)}` is a linear map of the features, then LayerNorm and the
    activation. Dropout follows the input layer and each step. The scores are a linear map of the
    last :math:`\mathbf{Z}^{(l)}`.

    The paper's step :math:`(1 - \tau) \, \mathbf{z}_i + \tau \sum_j S_{ij} \mathbf{z}_j` is that of
    ``use_graph=False``, ``layer_norm=False`` and ``value_projection=False``, but for the learned
    maps of queries and keys. The input layer, these maps and the LayerNorm are as in the authors'
    code.

    Repeated edges count repeatedly. Differs from the authors' code in five points. Each query and
    key is divided by its own length, unless ``norm='frobenius'``. With several heads a Frobenius
    norm is that of one head, not of all heads together. :obj:`hidden_channels` is split among the
    heads, which are concatenated, not averaged. Graphs of a batch do not attend to each other. The
    degree of a source is its out-degree, not its in-degree, and degrees add up weights of edges.
    The published settings for node classification have one head.

    Args:
        in_channels (int): Size of each input sample; :obj:`-1` takes the size of the first input.
        hidden_channels (int): Size of each hidden sample.
        out_channels (int): Size of each output sample.
        num_layers (int, optional): Number of steps, one per layer. (default: :obj:`2`)
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        kernel (str, optional): :obj:`"simple"`, linear in the number of nodes, or :obj:`"sigmoid"`,
            quadratic. (default: :obj:`"simple"`)
        norm (str, optional): :obj:`"row"` or :obj:`"frobenius"`, see
            :class:`~torch_geometric_lgt.nn.DIFFormerConv`. (default: :obj:`"row"`)
        use_graph (bool, optional): If :obj:`False`, edges are not used. (default: :obj:`True`)
        graph_weight (float, optional): Factor of the sum over the edges, which is added to the
            attention. (default: :obj:`1.0`)
        tau (float, optional): :math:`\tau` in (0, 1], the step size of the diffusion, no
            temperature; with 1 the step has no residual. (default: :obj:`0.5`)
        use_source (bool, optional): If :obj:`True`, each step adds :math:`\tau \mathbf{Z}^{(0)}`
            before its LayerNorm. (default: :obj:`False`)
        layer_norm (bool, optional): If :obj:`False`, neither the input layer nor the steps have a
            LayerNorm; :obj:`norm` still divides queries and keys. (default: :obj:`True`)
        act (str or torch.nn.Module, optional): The activation of the input layer. (default:
            :obj:`"relu"`)
        dropout (float, optional): Dropout probability of the input layer and the steps. (default:
            :obj:`0.0`)
        value_projection (bool, optional): If :obj:`True`, the values are a linear map of a layer's
            input, as in the authors' code; otherwise they are the input itself, as in the paper.
            (default: :obj:`True`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or CSR; edges; batch vector
          *(optional)*; weights of the edges :math:`(E)` *(optional)*
        - **output:** scores :math:`(N, F_{out})`

    Raises:
        ValueError: If a size, :obj:`tau` or an argument of
            :class:`~torch_geometric_lgt.nn.DIFFormerConv` is out of range.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.nn import DIFFormer
        >>> model = DIFFormer(16, 32, 3)
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> model(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 2,
        heads: int = 1,
        kernel: str = 'simple',
        norm: str = 'row',
        use_graph: bool = True,
        graph_weight: float = 1.0,
        tau: float = 0.5,
        use_source: bool = False,
        layer_norm: bool = True,
        act: str | Module = 'relu',
        dropout: float = 0.0,
        value_projection: bool = True,
    ) -> None:
        check_flags(use_source=use_source)
        check_number('tau', tau)
        if not 0 < tau <= 1:
            raise ValueError(f"'tau' must be above 0 and at most 1 (got {tau})")

        def make_conv() -> DIFFormerConv:
            return DIFFormerConv(
                hidden_channels,
                hidden_channels,
                heads,
                kernel,
                norm,
                use_graph,
                graph_weight,
                value_projection=value_projection,
            )

        check_heads(heads, hidden_channels)
        super().__init__(
            in_channels,
            hidden_channels,
            out_channels,
            num_layers,
            make_conv,
            act=act,
            dropout=dropout,
            layer_norm=layer_norm,
            activate_layers=False,
            read_channels=hidden_channels,
        )
        self.step_weight = tau
        self.residual_weight = 1 - tau
        self.use_source = use_source
        self.uses_edges = self.takes_pairs = use_graph

    @with_advice()
    def forward(
        self,
        x: Tensor,
        edge_index: Adj | SortedEdges | None,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        *,
        degree: Degree = None,
        states: States = None,
        num_keys: int | None = None,
        process_group: ProcessGroup | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""Computes the scores ``[N, F_out]`` of all nodes.

        Args:
            x (torch.Tensor): The node features ``[N, F_in]``.
            edge_index (torch.Tensor or SparseTensor): The edges ``[2, E]``, or a sparse matrix
                whose rows are the targets, such as :obj:`adj_t`, or
                :class:`~torch_geometric_lgt.functional.SortedEdges`; :obj:`None` only with
                ``use_graph=False``.
            batch (torch.Tensor, optional): The graph id of each node. (default: :obj:`None`, one
                graph)
            batch_size (int, optional): The number of graphs. (default: :obj:`None`, one more than
                the largest graph id)
            degree (torch.Tensor or tuple, optional): For a sampled subgraph, the degrees ``[N]`` of
                its nodes in the full graph, or sums of edge weights, which
                :class:`~torch_geometric_lgt.transforms.NodeDegree` computes for an undirected
                graph. For a directed graph, a pair of the out-degrees and the in-degrees, which
                :func:`torch_geometric.utils.degree` counts. (default: :obj:`None`, counted in the
                edges)
            states (list, optional): For each layer the sums over the keys of all nodes of the graph
                except the first :obj:`num_keys` rows of :obj:`x`. The model adds the keys of these
                rows, so that the batch attends to the whole graph. :meth:`AttentionMemory.without`
                returns the list for the seed nodes. (default: :obj:`None`, :obj:`x` is the whole
                graph)
            num_keys (int, optional): With :obj:`states` or :obj:`process_group`: the number of seed
                nodes, the first rows of :obj:`x`. Only they are keys of the attention. The sampled
                neighbours after them serve message passing: :obj:`states` contain them, so as keys
                they would count twice. (default: :obj:`None`, all rows, for a batch without other
                nodes)
            process_group (torch.distributed.ProcessGroup, optional): The processes that have the
                other nodes; the sums over keys are added up over all processes. (default:
                :obj:`None`, one process)
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]``. (default:
                :obj:`None`, the values of a sparse matrix, else 1)

        Raises:
            TypeError: If :obj:`x`, :obj:`edge_index`, :obj:`batch`, :obj:`states` or
                :obj:`process_group` has another type.
            ValueError: If an argument has another shape, dtype or device than the model and
                :obj:`x` need, or edges are missing. If :obj:`degree` is not positive for a node
                with edges. If :obj:`states` does not have one state for each layer, leaves out
                another number of nodes than :obj:`num_keys`, or is given with
                ``kernel='sigmoid'``. If :obj:`num_keys` is given without :obj:`states` and
                :obj:`process_group`, or :obj:`batch` with :obj:`process_group` but without
                :obj:`batch_size`.
        """
        batch_size = count_graphs(batch, batch_size, states, process_group)
        self.check_inputs(x, edge_index)
        edges = self.prepare_edges(edge_index, x.size(0), edge_weight)
        context = GraphContext(edges, batch, batch_size, degree, states, num_keys, process_group)
        return self.readout(self.layers(x, context))

    def prepare_edges(
        self, edge_index: Edges, num_nodes: int, edge_weight: Tensor | None = None
    ) -> Edges:
        r"""Sorts the edges once for all layers. Returns :obj:`edge_index` unchanged to a model
        without edges."""
        if not self.uses_edges:
            check_unused(edge_weight, 'with use_graph=False')
        if not self.uses_edges or edge_index is None:
            return edge_index
        return sorted_edges(edge_index, num_nodes, num_nodes, edge_weight=edge_weight)

    def step(
        self,
        index: int,
        x: Tensor | PairTensor,
        x_0: Tensor,
        context: GraphContext,
        state: AttentionState | None,
    ) -> Tensor:
        r"""Applies :class:`~torch_geometric_lgt.nn.DIFFormerConv` number :obj:`index` to :obj:`x`,
        plus :obj:`x_0` with :obj:`use_source`, and returns ``[N, D]`` without residual and
        normalisation.

        Args:
            index (int): The number of the layer, from 0.
            x (torch.Tensor or tuple): The input of the layer ``[N, D]``, or a pair of the inputs of
                sources and targets.
            x_0 (torch.Tensor): The output ``[N, D]`` of the input layer for the targets.
            context (GraphContext): The edges, the batch vector and the degrees.
            state (AttentionState, optional): Sums over all keys, which replace the keys of
                :obj:`x`.
        """
        out = self.convs[index](
            x,
            context.edges,
            context.batch,
            context.batch_size,
            state=state,
            degree=context.degree,
        )
        return out + x_0 if self.use_source else out
