# N nodes, E edges, B graphs, D hidden channels, H heads, L layers.
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Identity, Linear, Module, ModuleList
from torch_geometric.nn import MLP
from torch_geometric.nn.aggr import Aggregation

from torch_geometric_lgt._arguments import check_flags
from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edges import sorted_edges
from torch_geometric_lgt.functional.segment import count_graphs, segments
from torch_geometric_lgt.nn._layers.input_checks import (
    check_devices,
    check_edge_attr,
    check_features,
    check_heads,
    check_laplacian_pe,
    check_not_negative,
    check_rates,
    check_sizes,
    check_width,
    require_edges,
)
from torch_geometric_lgt.nn._layers.linear_parts import initialize, make_linear, reference
from torch_geometric_lgt.nn.conv._branches import check_edge_channels, kernel_pair, query_channels
from torch_geometric_lgt.nn.models._levels import check_level, check_node_level, read_level
from torch_geometric_lgt.nn.models._litegt_layer import LiteGTLayer, layer_widths
from torch_geometric_lgt.nn.models._litegt_stream import stream_layers
from torch_geometric_lgt.nn.models._out_of_memory import with_advice
from torch_geometric_lgt.nn.models._streamed_model import StreamedModel
from torch_geometric_lgt.nn.models._streaming.stream import Part, Stream, to_device
from torch_geometric_lgt.typing import Adj


class LiteGT(StreamedModel):
    r"""Scores nodes, edges or graphs with the model of `"LiteGT: Efficient and Lightweight Graph
    Transformers" <https://doi.org/10.1145/3459637.3482272>`_: layers of two-branch attention over
    the neighbours with a residual, batch normalisation and a feed-forward part,

    .. math::
        \hat{\mathbf{H}} = \mathrm{BN} \left( \mathbf{H} + \mathrm{Attention}(\mathbf{H})
            \mathbf{W}_O \right), \qquad
        \mathbf{H}^{\prime} = \mathrm{BN} \left( \hat{\mathbf{H}} + \mathrm{FFN}(\hat{\mathbf{H}})
            \right),

    see :class:`~torch_geometric_lgt.nn.JaccardSubtractorConv`, whose linear maps have no biases
    here. The input layer is a linear map. FFN is two linear maps with ReLU and twice the channels
    between them. An MLP computes the scores from the last :math:`\mathbf{H}`: from the row of a
    node, from those of source and target of an edge concatenated, or from those of a graph
    aggregated. It is three linear maps with ReLU; the channels between them are half and a quarter
    of those it reads, rounded down.

    With :obj:`reduce`, the fourth-last and third-last layers have half the channels, and the last
    two layers three tenths, both rounded down (Figure 4). All layers have :obj:`heads` heads, so
    each of the sizes must be a multiple of it. The paper calls the change of channels a pooling and
    does not define it; here it is a linear map, of the features of edges too.

    Differs from the text of the paper, where the last two layers have a quarter of the channels.
    The parameter counts of its Table 4 and the authors' code have three tenths, 24 of 80. The
    weights of a Jaccard or subtractor branch are divided by their sum, as in the authors' code;
    ``normalize=False`` is the paper's form (Eq. 7 and 8).

    With :obj:`edge_channels`, edges have hidden features :math:`\mathbf{e}_{ij}`. A layer first
    computes the scores :math:`\mathbf{s}_{ij}` of an edge, a number for each channel of the
    branches with queries and keys, of which the features are factors
    (:class:`~torch_geometric_lgt.nn.JaccardSubtractorConv`). Then it updates the features by the
    scores,

    .. math::
        \hat{\mathbf{e}}_{ij} = \mathrm{BN} \left( \mathbf{e}_{ij} + \mathbf{W}_{O_e}
            \mathbf{s}_{ij} \right), \qquad
        \mathbf{e}_{ij}^{\prime} = \mathrm{BN} \left( \hat{\mathbf{e}}_{ij} + \mathrm{FFN}_e
            (\hat{\mathbf{e}}_{ij}) \right).

    The first :math:`\mathbf{e}_{ij}` are a linear map of the features, and :math:`\mathrm{FFN}_e`
    has as many channels between its maps as FFN. An edge has as many hidden features as scores:
    half of the channels if one branch is :obj:`"jaccard"` or :obj:`"mean"`, which have no queries
    and keys, else all. The paper gives no equation; `"A Generalization of Transformer Networks to
    Graphs" <https://arxiv.org/abs/2012.09699>`_ updates edges like this. The output reads nodes
    alone, as in the authors' code, so the last layer does not update the edges.

    With ``kernel=('softmax', 'softmax')`` the model is the graph transformer of that paper.
    Repeated edges count repeatedly.

    Args:
        in_channels (int): Size of each input sample; :obj:`-1` takes the size of the first input.
        hidden_channels (int): Size of each hidden sample.
        out_channels (int): Size of each output sample.
        num_layers (int, optional): Number of layers. (default: :obj:`12`)
        heads (int, optional): Number of attention heads. (default: :obj:`8`)
        kernel (str or tuple, optional): The second branch, :obj:`"jaccard"` or :obj:`"subtractor"`,
            the first being :obj:`"softmax"`, or the names of both branches, see
            :class:`~torch_geometric_lgt.nn.JaccardSubtractorConv`. (default: :obj:`"jaccard"`)
        normalize (bool, optional): If :obj:`False`, the weights of a branch :obj:`"jaccard"` or
            :obj:`"subtractor"` are not divided by their sum over the neighbours. (default:
            :obj:`True`)
        reduce (bool, optional): If :obj:`True`, the last layers have fewer channels. (default:
            :obj:`False`)
        pe_channels (int, optional): Number of positional encodings per node; a linear map of them
            is added to the output of the input layer. (default: :obj:`0`, none)
        level (str, optional): Scores each :obj:`"node"`, each :obj:`"edge"` by its source and
            target, or each :obj:`"graph"` by its nodes together. Train :obj:`"graph"` with at least
            two graphs in a batch: in a batch of one, batch normalisation gives all graphs of as
            many nodes one score, unless :obj:`aggr` is :obj:`"max"` or a module. (default:
            :obj:`"node"`)
        dropout (float, optional): Dropout probability of the attention's output, before and after
            :math:`\mathbf{W}_O`, and after both linear maps of the feed-forward part; likewise for
            the scores of edges. (default: :obj:`0.0`)
        edge_channels (int, optional): Size of the features of each edge. (default: :obj:`0`, none)
        aggr (str or torch_geometric.nn.aggr.Aggregation, optional): How a graph's score reads its
            nodes: by their :obj:`"mean"`, :obj:`"sum"` (or :obj:`"add"`) or :obj:`"max"`, or by a
            module that keeps the number of channels. With PyG's ``LSTMAggregation`` and
            ``PatchTransformerAggregation`` the score of a graph depends on the largest graph of
            the batch, to which they pad. Another value than :obj:`"mean"` needs ``level='graph'``.
            (default: :obj:`"mean"`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`; edges; batch vector *(optional)*; positional
          encodings :math:`(N, F_{pe})` with :obj:`pe_channels`; Jaccard indices :math:`(E)` for a
          branch :obj:`"jaccard"`; mask of the sampled nodes :math:`(N)` *(optional)*; weights of
          the edges :math:`(E)` *(optional)*; features of the edges :math:`(E, F_e)` with
          :obj:`edge_channels`
        - **output:** scores :math:`(N, F_{out})`, :math:`(E, F_{out})` or :math:`(B, F_{out})`

    Raises:
        ValueError: If a size or probability is out of range, a name is unknown, or :obj:`heads`
            does not divide the channels of a layer. If :obj:`reduce` is set with fewer than 4
            layers. If :obj:`edge_channels` is positive without a softmax or subtractor.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_lgt.nn import LiteGT
        >>> from torch_geometric_lgt.transforms import JaccardScores
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
        >>> data = JaccardScores()(Data(x=torch.randn(3, 16), edge_index=edge_index))
        >>> model = LiteGT(16, 32, 3, num_layers=2)
        >>> model(data.x, data.edge_index, edge_jaccard=data.edge_jaccard).shape
        torch.Size([3, 3])
    """

    layers: Any

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        out_channels: int,
        num_layers: int = 12,
        heads: int = 8,
        kernel: str | tuple[str, str] = 'jaccard',
        normalize: bool = True,
        reduce: bool = False,
        pe_channels: int = 0,
        level: str = 'node',
        dropout: float = 0.0,
        edge_channels: int = 0,
        aggr: str | Aggregation = 'mean',
    ) -> None:
        super().__init__()
        check_width(in_channels)
        check_sizes(hidden_channels=hidden_channels, out_channels=out_channels)
        check_not_negative(pe_channels=pe_channels)
        check_heads(heads, hidden_channels)
        check_flags(normalize=normalize, reduce=reduce)
        check_level(level, aggr)
        widths = [hidden_channels, *layer_widths(hidden_channels, num_layers, heads, reduce)]
        check_rates(dropout=dropout)
        self.in_channels, self.hidden_channels = in_channels, hidden_channels
        self.out_channels, self.num_layers = out_channels, num_layers
        self.level, self.aggr, self.dropout = level, aggr, dropout
        self.kernel, self.pe_channels, self.edge_channels = kernel, pe_channels, edge_channels
        self.lin_in = make_linear(in_channels, hidden_channels)
        self.lin_pe = Linear(pe_channels, hidden_channels) if pe_channels > 0 else None
        self.reductions, self.layers = ModuleList(), ModuleList()
        self.edge_reductions = ModuleList()
        kernels = kernel_pair(kernel)
        check_edge_channels(kernels, edge_channels)
        has_edges = edge_channels > 0
        edge_widths = [query_channels(kernels, width) if has_edges else 0 for width in widths]
        self.lin_edge = Linear(edge_channels, edge_widths[0]) if has_edges else None
        for index in range(num_layers):
            width, edge_width = widths[index + 1], edge_widths[index + 1]
            self.reductions.append(_reduction(widths[index], width))
            self.edge_reductions.append(_reduction(edge_widths[index], edge_width))
            updates_edges = has_edges and index < num_layers - 1
            self.layers.append(
                LiteGTLayer(width, heads, kernel, normalize, dropout, edge_width, updates_edges)
            )
        read = 2 * widths[-1] if level == 'edge' else widths[-1]
        self.lin_out = MLP([read, max(1, read // 2), max(1, read // 4), out_channels], norm=None)

    @with_advice()
    def forward(
        self,
        x: Tensor,
        edge_index: Adj,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        *,
        laplacian_pe: Tensor | None = None,
        edge_jaccard: Tensor | None = None,
        sampled_mask: Tensor | None = None,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        r"""Computes the scores of all nodes ``[N, F_out]``, edges ``[E, F_out]`` or graphs
        ``[B, F_out]``, by the :obj:`level` of the model.

        Values of edges are in the order of :obj:`edge_index`, which
        :class:`~torch_geometric_lgt.functional.SortedEdges` keep. For a sparse matrix they are in
        the order of its rows: by target, then by source.

        Args:
            x (torch.Tensor): The node features ``[N, F_in]``.
            edge_index (torch.Tensor or SparseTensor): The edges ``[2, E]``, or a sparse matrix
                whose rows are the targets, such as :obj:`adj_t`, or
                :class:`~torch_geometric_lgt.functional.SortedEdges`.
            batch (torch.Tensor, optional): The graph id of each node. It changes graph-level scores
                only, because no attention crosses graphs. (default: :obj:`None`, one graph)
            batch_size (int, optional): The number of graphs. (default: :obj:`None`, one more than
                the largest graph id)
            laplacian_pe (torch.Tensor, optional): The positional encodings ``[N, pe_channels]`` of
                any kind, which a model with :obj:`pe_channels` needs. (default: :obj:`None`)
            edge_jaccard (torch.Tensor, optional): The Jaccard index of each edge ``[E]``, from
                :class:`~torch_geometric_lgt.transforms.JaccardScores`, which a Jaccard branch
                needs. (default: :obj:`None`)
            sampled_mask (torch.Tensor, optional): A bool for each node ``[N]``, :obj:`True` if it
                attends with softmax, :obj:`False` if it takes the mean of its neighbours, from
                :class:`~torch_geometric_lgt.transforms.AttentionNodeSampling`. (default:
                :obj:`None`, all attend)
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]``. (default:
                :obj:`None`, the values of a sparse matrix, else 1)
            edge_attr (torch.Tensor, optional): The features of the edges ``[E, edge_channels]``,
                which a model with :obj:`edge_channels` needs. (default: :obj:`None`)

        Raises:
            TypeError: If an argument has another type, such as an array of NumPy in the place of a
                tensor.
            ValueError: If an argument has another shape, dtype or device than the model and
                :obj:`x` need, a weight is negative, or an argument that the model needs is missing.
        """
        batch_size = count_graphs(batch, batch_size)
        edges = self._sorted_edges(x, edge_index, edge_weight)
        num_graphs = segments(batch, x.size(0), batch_size, x.device).sizes.numel()
        x, e = self.inputs(x, laplacian_pe), self.edge_inputs(edge_attr, edges)
        x = self._apply_layers(x, e, edges, edge_jaccard, sampled_mask)
        out = read_level(self.level, x, edges.edge_index, batch, num_graphs, self.aggr)
        return self.lin_out(out)

    def attention_scores(
        self,
        x: Tensor,
        edge_index: Adj,
        *,
        laplacian_pe: Tensor | None = None,
        edge_jaccard: Tensor | None = None,
        sampled_mask: Tensor | None = None,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> list[Tensor]:
        r"""Computes the attention weight ``[E, H]`` of each edge in each head as :meth:`forward`
        applies it, and returns a list with one tensor per layer. The arguments are those of
        :meth:`forward`."""
        edges = self._sorted_edges(x, edge_index, edge_weight)
        scores: list[Tensor] = []
        x, e = self.inputs(x, laplacian_pe), self.edge_inputs(edge_attr, edges)
        self._apply_layers(x, e, edges, edge_jaccard, sampled_mask, scores)
        return scores

    def _sorted_edges(self, x: Tensor, edge_index: Adj, edge_weight: Tensor | None) -> SortedEdges:
        r"""Checks the features and the edges, and sorts the edges once for all layers."""
        self.check_inputs(x, edge_index)
        fix = (
            'each node attends to its neighbours; for attention to all nodes take '
            'GraphTransformer(conv=None)'
        )
        edge_index = require_edges(edge_index, fix)
        return sorted_edges(edge_index, x.size(0), x.size(0), edge_weight=edge_weight)

    def _apply_layers(
        self,
        x: Tensor,
        e: Tensor | None,
        edges: SortedEdges,
        edge_jaccard: Tensor | None,
        sampled_mask: Tensor | None,
        scores: list[Tensor] | None = None,
    ) -> Tensor:
        r"""Applies all layers to the features of nodes :obj:`x` ``[N, D]`` and of edges :obj:`e`
        ``[E, D_e]``, and returns the last features of the nodes. The attention scores ``[E, H]`` of
        each layer are appended to the list :obj:`scores`, if it is given."""
        parts = zip(self.reductions, self.edge_reductions, self.layers, strict=True)
        for reduction, edge_reduction, layer in parts:
            x, e = reduction(x), edge_reduction(e)
            arguments = x, edges, edge_jaccard, sampled_mask
            if scores is not None:
                scores.append(layer.conv.attention_scores(*arguments, edge_attr=e))
            x, e = layer(*arguments, e)
        return x

    def inference(
        self, loader: Any, folder: str | Path | None = None, progress_bar: bool = False
    ) -> Tensor:
        r"""Computes the scores ``[N, F_out]`` of all nodes, layer by layer and batch by batch, with
        the arguments of :meth:`NodeFormer.inference`. The other arguments of :meth:`forward` are
        read from the attributes :obj:`laplacian_pe`, :obj:`edge_jaccard`, :obj:`attention_mask`
        (the argument :obj:`sampled_mask`), :obj:`edge_weight` and :obj:`edge_attr` of the data, if
        the model needs them.

        Features of edges are not stored, because edges may be many. Each layer computes those of a
        batch anew from the stored nodes of all layers before it. With :math:`L` layers, the work
        for edge features grows as :math:`L^2`.

        Raises:
            ValueError: If the model scores edges or graphs, the data has no attribute that the
                model needs, or for the reasons of :meth:`NodeFormer.inference`.
        """
        check_node_level(self.level)
        return super().inference(loader, folder, progress_bar)

    def stream_scores(self, stream: Stream) -> Callable[[Part], Tensor]:
        r"""Computes all layers for the graph of :obj:`stream`, and returns a function that computes
        the scores ``[n, F_out]`` of the nodes of a part."""
        x = stream_layers(self, stream)
        device = reference(self).device
        return lambda part: self.lin_out(to_device(x[part.nodes], device))

    def score_of_zeros(self) -> Tensor:
        r"""Computes the scores ``[1, F_out]`` of a node whose output of the last layer is 0."""
        weight, width = reference(self), self.layers[-1].conv.out_channels
        return self.lin_out(torch.zeros(1, width, dtype=weight.dtype, device=weight.device))

    def inputs(self, x: Tensor, laplacian_pe: Tensor | None = None) -> Tensor:
        r"""Computes the input ``[N, D]`` of the first layer from the features :obj:`x`
        ``[N, F_in]`` and the positional encodings ``[N, pe_channels]``.

        Raises:
            ValueError: If the encodings are missing, not expected, or of another shape.
        """
        check_features(x, self.lin_in, self.in_channels)
        initialize(x, self.lin_in)
        check_laplacian_pe(laplacian_pe, x.size(0), self.pe_channels)
        check_devices(x.device, laplacian_pe=laplacian_pe)
        if self.lin_pe is None or laplacian_pe is None:
            return self.lin_in(x)
        return self.lin_in(x) + self.lin_pe(laplacian_pe.to(x.dtype))

    def edge_inputs(self, edge_attr: Tensor | None, edges: SortedEdges) -> Tensor | None:
        r"""Computes the edge features ``[E, D_e]`` of the first layer from the features
        :obj:`edge_attr` ``[E, edge_channels]``, or returns :obj:`None` for a model without.

        Raises:
            ValueError: If the features are missing, not expected, or of another shape.
        """
        check_edge_attr(edge_attr, edges.edge_index.size(1), self.edge_channels)
        if self.lin_edge is None or edge_attr is None:
            return None
        weight = reference(self.lin_edge)
        check_devices(weight.device, edge_attr=edge_attr)
        return self.lin_edge(edge_attr.to(weight.dtype))

    def __repr__(self) -> str:
        return f'{super().__repr__()[:-1]}, kernel={self.kernel!r})'


def _reduction(in_channels: int, out_channels: int) -> Module:
    return Identity() if in_channels == out_channels else Linear(in_channels, out_channels)
