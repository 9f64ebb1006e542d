# N nodes, D hidden channels, H heads.
import copy
from typing import Any, cast

import torch
from torch import Tensor
from torch.distributed import ProcessGroup
from torch.nn import Module
from torch_geometric.nn import GCN
from torch_geometric.nn.models import SGFormer as PyGSGFormer

from torch_geometric_lgt._arguments import check_choice, check_flags, check_number
from torch_geometric_lgt.convert import from_pyg_sgformer
from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.segment import count_graphs
from torch_geometric_lgt.nn._layers.input_checks import (
    check_heads,
    check_rates,
    check_sizes,
    require_edges,
)
from torch_geometric_lgt.nn._layers.layer_checks import (
    check_output,
    check_takes_edges,
    original,
)
from torch_geometric_lgt.nn.conv import SGFormerConv
from torch_geometric_lgt.nn.models._backbone import Backbone
from torch_geometric_lgt.nn.models._batch_norm import Processes, check_statistics
from torch_geometric_lgt.nn.models._graph_context import Degree, GraphContext, States
from torch_geometric_lgt.nn.models._local_branch import local_edges, stream_local_branch
from torch_geometric_lgt.nn.models._message_input import takes
from torch_geometric_lgt.nn.models._out_of_memory import with_advice
from torch_geometric_lgt.nn.models._sparse_gcn import SparseGCN, counts_degrees
from torch_geometric_lgt.nn.models._streaming.stream import Stream
from torch_geometric_lgt.typing import Adj


class SGFormer(Backbone):
    r"""Scores nodes with the model of `"SGFormer: Simplifying and Empowering Transformers for
    Large-Graph Representations" <https://arxiv.org/abs/2306.10759>`_: a layer of simple global
    attention and, in parallel, a graph neural network, the local branch,

    .. math::
        \mathbf{Z} = \beta \, \mathrm{SGFormerConv}(\mathbf{Z}^{(0)}) + (1 - \beta) \,
            \mathbf{Z}^{(0)}, \qquad
        \mathbf{Y} = f \left( (1 - \alpha) \, \mathbf{Z} + \alpha \, \mathrm{GNN}(\mathbf{Z}^{(0)},
            \mathbf{A}) \right).

    Here :math:`\mathbf{Z}^{(0)}` is the output of the input layer: a linear map of the features, a
    normalisation and the activation. :math:`f` is a linear map, and :math:`\mathbf{Z}` is
    normalised, as in the authors' code. Each further attention layer reads the :math:`\mathbf{Z}`
    of the layer before it in place of :math:`\mathbf{Z}^{(0)}`.

    Differs from :class:`torch_geometric.nn.models.SGFormer`: its attention has row norms and no
    biases, an activation follows each attention layer, and the residual has fixed weights. PyG's
    local branch is another network and reads the features. PyG's outputs are logarithms of
    probabilities, and depend on the other graphs of the batch; the attention here does not.

    Differs from the authors' code: both branches read one input layer, as in the paper, unless
    ``gnn_input="input"``. With several heads, the Frobenius norms are those of each head, not of
    all heads together, and :obj:`hidden_channels` are split among the heads, which are concatenated
    and not averaged. The published settings have one head. The residual of the authors' local
    branch for large graphs is ``gnn_residual="initial"``.

    Args:
        in_channels (int): Size of each input sample; :obj:`-1` takes the size of the first input.
        hidden_channels (int): Size of each hidden sample.
        out_channels (int): Size of each output sample.
        num_layers (int, optional): Number of attention layers. (default: :obj:`1`)
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        norm (str, optional): What queries and keys are divided by, :obj:`"frobenius"` or
            :obj:`"row"`, see :class:`~torch_geometric_lgt.nn.SGFormerConv`. With the authors'
            :obj:`"frobenius"` a node of a large graph attends almost only to itself; try
            :obj:`"row"`. (default: :obj:`"frobenius"`)
        alpha (float, optional): :math:`\alpha`, the share of the local branch. (default:
            :obj:`0.5`)
        beta (float, optional): :math:`\beta`, the share of the attention. (default: :obj:`0.5`)
        aggregate (str, optional): :obj:`"add"`, the sum above, or :obj:`"cat"`: :math:`f` reads
            both branches concatenated, without :math:`\alpha`. (default: :obj:`"add"`)
        gnn (torch.nn.Module, optional): The local branch, a network from features and edges to
            ``[N, hidden_channels]``. For a :class:`torch_geometric.nn.GCN` with ``normalize=False``
            this model computes the normalised edge weights, from :obj:`degree` in a batch that has
            it. A GCN that normalises by itself counts the degrees of its input and refuses
            :obj:`degree`. Any other network receives the weights of the edges as its third
            argument, which must have ``weight`` in its name, and :obj:`batch` and :obj:`batch_size`
            if it has arguments of these names, as those of PyG's
            :mod:`~torch_geometric.nn.models` have for their norms. (default: :obj:`None`, a GCN
            that computes with sparse matrix products, with batch normalisation unless
            ``layer_norm=False``)
        gnn_num_layers (int, optional): Number of layers of the default local branch. (default:
            :obj:`2`)
        gnn_dropout (float, optional): Dropout probability of the default local branch. (default:
            :obj:`None`, as :obj:`dropout`)
        gnn_residual (bool or str, optional): If :obj:`True`, layers of the default local branch add
            their input, after normalisation, activation and dropout. The first layer does not if
            its input has another width, with ``gnn_input='input'``. With :obj:`"initial"` all
            layers add :math:`\mathbf{Z}^{(0)}`, as in the authors' code for large graphs. With
            either, the last layer of the branch is normalised and activated too. (default:
            :obj:`False`)
        gnn_input (str, optional): What the local branch reads: :obj:`"hidden"`,
            :math:`\mathbf{Z}^{(0)}`, or :obj:`"input"`, the features :obj:`x`, as in the authors'
            code. (default: :obj:`"hidden"`)
        layer_norm (bool, optional): If :obj:`False`, the model has no layer norms, and its default
            local branch no batch norms; :obj:`norm` still divides queries and keys. (default:
            :obj:`True`)
        activate_layers (bool, optional): If :obj:`True`, attention layers end in the activation.
            (default: :obj:`False`)
        act (str or torch.nn.Module, optional): The activation of the input layer, and of attention
            layers with :obj:`activate_layers`; the default local branch has ReLU. (default:
            :obj:`"relu"`)
        dropout (float, optional): Dropout probability of the input layer and of each attention
            layer. (default: :obj:`0.0`)
        value_projection (bool, optional): If :obj:`False`, the values are the input of a layer
            instead of a linear map of it. (default: :obj:`True`)
        gnn_use_init (bool, optional): If :obj:`True`, each layer of the default local branch
            concatenates the weighted sums over the neighbours with :math:`\mathbf{Z}^{(0)}` before
            its linear map: :math:`[\hat{\mathbf{A}} \mathbf{H}, \mathbf{Z}^{(0)}] \, \mathbf{W}`.
            :math:`\mathbf{H}` is the input of the layer, and :math:`\hat{\mathbf{A}}` the
            normalised adjacency matrix of GCN. The authors' settings for Amazon2M, pokec and
            ogbn-papers100M do so. The last layer is then normalised and activated too. (default:
            :obj:`False`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, dense or CSR; edges; batch vector
          *(optional)*; weights of the edges :math:`(E)` *(optional)*
        - **output:** scores :math:`(N, F_{out})`

    Raises:
        ValueError: If a size, share or probability is out of range, :obj:`heads` does not divide
            :obj:`hidden_channels`, or a name is unknown. If ``gnn_input='input'`` comes with
            ``gnn_residual='initial'`` or :obj:`gnn_use_init`.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.nn import SGFormer
        >>> model = SGFormer(16, 32, 3)
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> model(x, edge_index).shape
        torch.Size([4, 3])
    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 1,
        heads: int = 1,
        norm: str = 'frobenius',
        alpha: float = 0.5,
        beta: float = 0.5,
        aggregate: str = 'add',
        gnn: torch.nn.Module | None = None,
        gnn_num_layers: int = 2,
        gnn_dropout: float | None = None,
        gnn_residual: bool | str = False,
        gnn_input: str = 'hidden',
        layer_norm: bool = True,
        activate_layers: bool = False,
        act: str | Module = 'relu',
        dropout: float = 0.0,
        value_projection: bool = True,
        gnn_use_init: bool = False,
    ) -> None:
        for name, share in (('alpha', alpha), ('beta', beta)):
            check_number(name, share)
            if not 0 <= share <= 1:
                raise ValueError(f"'{name}' must be from 0 to 1 (got {share})")
        check_flags(gnn_use_init=gnn_use_init)
        check_choice('aggregate', aggregate, ('add', 'cat'))
        check_choice('gnn_input', gnn_input, ('hidden', 'input'))
        check_choice('gnn_residual', gnn_residual, (False, True, 'initial'))
        if gnn_input == 'input' and (gnn_residual == 'initial' or gnn_use_init):
            raise ValueError(
                "'gnn_input' must be 'hidden' with gnn_residual='initial' or gnn_use_init=True, "
                f'whose layers read the output of the input layer (got {gnn_input!r})'
            )

        def make_conv() -> SGFormerConv:
            return SGFormerConv(
                hidden_channels, hidden_channels, heads, norm, value_projection=value_projection
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
            activate_layers=activate_layers,
            read_channels=hidden_channels * (2 if aggregate == 'cat' else 1),
        )
        self.alpha, self.aggregate, self.gnn_input = alpha, aggregate, gnn_input
        self.step_weight, self.residual_weight = beta, 1 - beta
        width = in_channels if gnn_input == 'input' else hidden_channels
        if not (gnn is None or isinstance(gnn, Module)):
            raise ValueError(
                f"'gnn' must be a network, such as GCN({width}, {hidden_channels}, 2, "
                f'normalize=False), or None for the default one (got {gnn!r})'
            )
        if gnn is not None:
            check_takes_edges('gnn', gnn)
        else:
            check_sizes(gnn_num_layers=gnn_num_layers)
            rate = dropout if gnn_dropout is None else gnn_dropout
            check_rates(gnn_dropout=rate)
            gnn = SparseGCN(
                width,
                hidden_channels,
                gnn_num_layers,
                hidden_channels,
                rate,
                layer_norm,
                gnn_residual,
                gnn_use_init,
            )
        self.gnn: Any = gnn

    @property
    def takes_gcn_weights(self) -> bool:
        r"""Tells whether the local branch is a GCN that gets normalised weights of the edges."""
        gnn = original(self.gnn)
        return isinstance(gnn, GCN) and not counts_degrees(gnn)

    @classmethod
    def from_pyg(cls, model: Module) -> 'SGFormer':
        r"""Creates the model with the settings and parameters of
        :class:`torch_geometric.nn.models.SGFormer` with one head, in its mode (training or
        evaluation), dtype and device. See
        :meth:`~torch_geometric_lgt.convert.from_pyg_sgformer` for what is equal.

        Args:
            model (torch.nn.Module): PyG's model, which stays as it is.

        Raises:
            ValueError: If :obj:`model` is not PyG's SGFormer, or has several heads, whose outputs
                PyG averages.

        Example:
            >>> import torch
            >>> import torch_geometric
            >>> from torch_geometric_lgt.nn import SGFormer
            >>> theirs = torch_geometric.nn.SGFormer(16, 32, 3, graph_weight=0.8).eval()
            >>> ours = SGFormer.from_pyg(theirs)
            >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
            >>> expected = theirs(x, edge_index, torch.zeros(4, dtype=torch.long))
            >>> torch.allclose(ours(x, edge_index).log_softmax(1), expected, atol=1e-5)
            True
        """
        if not isinstance(model, PyGSGFormer):
            raise ValueError(
                f"'model' must be a torch_geometric.nn.models.SGFormer (got {type(model).__name__})"
            )
        state_dict = from_pyg_sgformer(model.state_dict())
        attention = model.trans_conv
        first: Any = attention.fcs[0]
        ours = cls(
            first.in_features,
            first.out_features,
            model.out_channels,
            num_layers=len(attention.attns),
            dropout=attention.dropout,
            norm='row',
            alpha=model.graph_weight,
            aggregate=model.aggregate,
            gnn=copy.deepcopy(model.graph_conv),
            gnn_input='input',
            activate_layers=True,
        ).to(first.weight.device, first.weight.dtype)
        ours.load_state_dict(state_dict)
        return ours.train(model.training)

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

        The default local branch adds self loops and normalises by the in-degrees, which are sums of
        weights, as :class:`torch_geometric.nn.GCNConv` does; repeated edges count repeatedly. If
        :obj:`degree` is given, the in-degrees are :obj:`degree` plus the weight of the self loop, 1
        by default. For a directed graph give the in-degrees, ``NodeDegree(weighted=True)``, or a
        pair, of which the second is used. In training with :obj:`process_group`, the batch
        normalisation of the local branch uses the first :obj:`num_keys` nodes of each process.

        Args:
            x (torch.Tensor): The node features ``[N, F_in]``.
            edge_index (torch.Tensor or SparseTensor): The edges ``[2, E]``, or a sparse matrix
                whose rows are the targets, such as :obj:`adj_t`, or the result of
                :meth:`~torch_geometric_lgt.functional.sorted_edges`.
            batch (torch.Tensor, optional): The graph id of each node. (default: :obj:`None`, one
                graph)
            batch_size (int, optional): The number of graphs in :obj:`batch`, not that of seed
                nodes. (default: :obj:`None`, one more than the largest graph id)
            degree, states, num_keys, process_group: For a part of a graph, see
                :meth:`DIFFormer.forward`.
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]``. (default:
                :obj:`None`, the values of a sparse matrix, else 1)

        Raises:
            TypeError: If :obj:`x`, :obj:`edge_index`, :obj:`batch`, :obj:`states` or
                :obj:`process_group` has another type.
            ValueError: If an argument has another shape, dtype or device than the model and
                :obj:`x` need, or edges have weights although the local branch takes none. If
                :obj:`degree` is given although :obj:`gnn` counts degrees itself, or :obj:`gnn`
                returns another number of channels than :obj:`hidden_channels`. With
                :obj:`process_group`, also if :obj:`gnn` normalises over the nodes of one process.
        """
        batch_size = count_graphs(batch, batch_size, states, process_group)
        self.check_inputs(x, edge_index)
        edge_index = require_edges(
            edge_index,
            'the local branch reads the edges, whatever alpha is; for attention alone take '
            "GraphTransformer(conv=None, attn_type='sgformer')",
        )
        if process_group is not None:
            check_statistics(self.gnn)
        context = GraphContext(None, batch, batch_size, degree, states, num_keys, process_group)
        # before the layers, in which processes wait for each other
        edges = local_edges(self, edge_index, x.size(0), degree, x.dtype, edge_weight)
        layers = self.layers(x, context)
        x_gnn = x if self.gnn_input == 'input' else layers[0]
        return self.readout(layers, self.gnn(x_gnn, *edges, **self._gnn_arguments(context)))

    def _gnn_arguments(self, context: GraphContext) -> dict[str, Any]:
        r"""Returns the arguments with names for a call of the local branch: the processes that
        share the graph for the default network, else what it takes of the graphs of a batch."""
        if isinstance(original(self.gnn), SparseGCN):
            group = context.process_group
            return {} if group is None else {'processes': Processes(group, context.num_keys)}
        if context.batch is None:
            return {}
        graphs = {'batch': context.batch, 'batch_size': context.batch_size}
        return {name: value for name, value in graphs.items() if takes(self.gnn, name)}

    def readout(self, layers: list[Tensor], local: Tensor | None = None) -> Tensor:
        r"""Computes the scores ``[N, F_out]`` from the last of :obj:`layers` and the output
        :obj:`local` ``[N, D]`` of the local branch."""
        local = cast(Tensor, local)
        check_output('gnn', self.gnn, local, self.hidden_channels, 'hidden_channels')
        if self.aggregate == 'cat':
            return self.lin_out(torch.cat([layers[-1], local], 1))
        return self.lin_out((1 - self.alpha) * layers[-1] + self.alpha * local)

    def stream_local_branch(self, stream: Stream, x_0: Tensor) -> Tensor:
        r"""Computes the output ``[N, D]`` of the local branch for all nodes, layer by layer and
        part by part.

        Args:
            stream (Stream): Reads the parts and stores the outputs.
            x_0 (torch.Tensor): The output ``[N, D]`` of the input layer.

        Raises:
            ValueError: If the local branch cannot be evaluated in parts.
        """
        return stream_local_branch(self, stream, x_0)
