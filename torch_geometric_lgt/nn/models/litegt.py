# N nodes, E edges, B graphs, D hidden channels, H heads, L layers.
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Module, ModuleDict, ModuleList
from torch.nn.functional import dropout
from torch_geometric.nn import MLP
from torch_geometric.nn.aggr import Aggregation
from torch_geometric.nn.inits import reset

from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edges import sorted_edges
from torch_geometric_lgt.functional.segment import segments
from torch_geometric_lgt.nn._layers.input_checks import (
    check_devices,
    check_edge_attr,
    check_features,
    check_not_negative,
    check_rates,
    check_sizes,
    check_width,
)
from torch_geometric_lgt.nn._layers.linear_parts import make_linear, reference
from torch_geometric_lgt.nn.conv._branches import (
    check_edge_channels,
    kernel_pair,
    query_channels,
)
from torch_geometric_lgt.nn.conv.jaccard_subtractor_conv import JaccardSubtractorConv
from torch_geometric_lgt.nn.models._levels import check_level, check_node_level, read_level
from torch_geometric_lgt.nn.models._out_of_memory import with_advice
from torch_geometric_lgt.nn.models._streaming.stream import Part, Stream, evaluation, to_device
from torch_geometric_lgt.typing import Adj, PairTensor


class LiteGT(Module):
    r"""Scores nodes, edges or graphs with the model of `"LiteGT: Efficient and Lightweight Graph
    Transformers" <https://doi.org/10.1145/3459637.3482272>`_: layers of two-branch attention over
    the neighbours with a residual, batch normalisation and a feed-forward part,

    .. math::
        \hat{\mathbf{H}} = \mathrm{BN} \left( \mathbf{H} + \mathrm{Attention}(\mathbf{H})
            \mathbf{W}_O \right), \qquad
        \mathbf{H}^{\prime} = \mathrm{BN} \left( \hat{\mathbf{H}} + \mathrm{FFN}(\hat{\mathbf{H}})
            \right),

    see :class:`~torch_geometric_lgt.nn.JaccardSubtractorConv`. With :obj:`reduce`, the fourth-last
    and third-last layers have half the channels, and the last two layers three tenths, both rounded
    down (Figure 4). All layers have :obj:`heads` heads, so each of the sizes must be a multiple of
    it. The paper calls the change of channels a pooling without a definition; here it is a linear
    map.

    Differs from the text of the paper, where the last two layers have a quarter of the channels.
    The parameter counts of its Table 4 and the authors' code have three tenths, 24 of 80.

    With :obj:`edge_channels`, edges have hidden features :math:`\mathbf{e}_{ij}` beside those of
    the nodes. A layer first computes the scores :math:`\mathbf{s}_{ij}` of an edge, a number for
    each channel of the branches with queries and keys, of which the features are factors
    (:class:`~torch_geometric_lgt.nn.JaccardSubtractorConv`). Then it updates the features by the
    scores,

    .. math::
        \hat{\mathbf{e}}_{ij} = \mathrm{BN} \left( \mathbf{e}_{ij} + \mathbf{W}_{O_e}
            \mathbf{s}_{ij} \right), \qquad
        \mathbf{e}_{ij}^{\prime} = \mathrm{BN} \left( \hat{\mathbf{e}}_{ij} + \mathrm{FFN}_e
            (\hat{\mathbf{e}}_{ij}) \right).

    An edge has as many hidden features as scores: half of the channels if one branch is
    :obj:`"jaccard"`, which has no queries and keys, else all. The paper gives no equation; the
    graph transformer that the next paragraph names updates edges like this. The output reads nodes
    alone, as in the authors' code, so the last layer does not update the edges.

    With ``kernel=('softmax', 'softmax')`` it is the graph transformer of `"A Generalization of
    Transformer Networks to Graphs" <https://arxiv.org/abs/2012.09699>`_.

    Args:
        in_channels (int): Size of each input sample; :obj:`-1` takes the size of the first input.
        hidden_channels (int): Size of each hidden sample.
        out_channels (int): Size of each output sample.
        num_layers (int, optional): Number of layers. (default: :obj:`12`)
        heads (int, optional): Number of attention heads. (default: :obj:`8`)
        kernel (str or tuple, optional): The second branch beside one with softmax,
            :obj:`"jaccard"` or :obj:`"subtractor"`, or the names of both branches, see
            :class:`~torch_geometric_lgt.nn.JaccardSubtractorConv`. (default: :obj:`"jaccard"`)
        normalize (bool, optional): If :obj:`False`, the scores of the second branch are not divided
            by their sum over the neighbours. (default: :obj:`True`)
        reduce (bool, optional): If :obj:`True`, the last layers have fewer channels. (default:
            :obj:`False`)
        pe_channels (int, optional): Number of positional encodings per node; a linear map of them
            is added to the output of the input layer. (default: :obj:`0`, none)
        level (str, optional): Scores each :obj:`"node"`, each :obj:`"edge"` by its source and
            target, or each :obj:`"graph"` by its nodes together. (default: :obj:`"node"`)
        dropout (float, optional): Dropout probability. (default: :obj:`0.0`)
        edge_channels (int, optional): Size of the features of each edge. (default: :obj:`0`, none)
        aggr (str or torch_geometric.nn.aggr.Aggregation, optional): How a graph's score reads its
            nodes: by their :obj:`"mean"`, :obj:`"sum"` (or :obj:`"add"`) or :obj:`"max"`, or by a
            module that keeps the number of channels. (default: :obj:`"mean"`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`; edges; batch vector *(optional)*; positional
          encodings :math:`(N, F_{pe})` with :obj:`pe_channels`; Jaccard indices :math:`(E)` for a
          branch :obj:`"jaccard"`; mask of the sampled nodes :math:`(N)` *(optional)*; weights of
          the edges :math:`(E)` *(optional)*; features of the edges :math:`(E, F_e)` with
          :obj:`edge_channels`
        - **output:** scores :math:`(N, F_{out})`, :math:`(E, F_{out})` or :math:`(B, F_{out})`

    Raises:
        ValueError: If an argument of the model or of its layers is out of range.

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
        check_level(level, aggr)
        if num_layers < (4 if reduce else 1):
            raise ValueError(
                f"'num_layers' must be at least {4 if reduce else 1} (got {num_layers})"
            )
        check_rates(dropout=dropout)
        half, last = hidden_channels // 2, hidden_channels * 3 // 10
        if reduce and any(part == 0 or part % heads != 0 for part in (half, last)):
            raise ValueError(
                "'heads' must divide the channels of all layers, which reduce=True makes "
                f"{half} and {last} of 'hidden_channels' (got {heads} and {hidden_channels})"
            )
        self.in_channels, self.hidden_channels = in_channels, hidden_channels
        self.out_channels, self.num_layers = out_channels, num_layers
        self.level, self.aggr, self.dropout = level, aggr, dropout
        self.kernel, self.pe_channels, self.edge_channels = kernel, pe_channels, edge_channels
        self.lin_in = make_linear(in_channels, hidden_channels)
        self.lin_pe = Linear(pe_channels, hidden_channels) if pe_channels > 0 else None
        self.reductions, self.layers, width = ModuleDict(), ModuleList(), hidden_channels
        self.edge_reductions = ModuleDict()
        kernels = kernel_pair(kernel)
        check_edge_channels(kernels, edge_channels)
        has_edges, edge_width = edge_channels > 0, query_channels(kernels, width)
        self.lin_edge = Linear(edge_channels, edge_width) if has_edges else None
        for layer in range(num_layers):
            if reduce and num_layers - layer in (4, 2):
                reduced = half if num_layers - layer == 4 else last
                edge_reduced = query_channels(kernels, reduced)
                self.reductions[str(layer)] = Linear(width, reduced)
                if has_edges:
                    self.edge_reductions[str(layer)] = Linear(edge_width, edge_reduced)
                width, edge_width = reduced, edge_reduced
            added = _Layer(width, heads, kernel, normalize, dropout, edge_width if has_edges else 0)
            if has_edges and layer < num_layers - 1:
                added.edge_update = _EdgeUpdate(edge_width, width, dropout)
            self.layers.append(added)
        read = 2 * width if level == 'edge' else width
        self.lin_out = MLP([read, max(1, read // 2), max(1, read // 4), out_channels], norm=None)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters."""
        for module in self.children():
            reset(module)

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

        Values of edges are in the order of :obj:`edge_index`, also if it is sorted
        (:class:`~torch_geometric_lgt.functional.SortedEdges`). Those of a sparse matrix are in the
        order of its rows.

        Args:
            x (torch.Tensor): The node features ``[N, F_in]``.
            edge_index (torch.Tensor or SparseTensor): The edges.
            batch (torch.Tensor, optional): The graph id of each node. It changes graph-level scores
                only, because no attention crosses graphs. (default: :obj:`None`, one graph)
            batch_size (int, optional): The number of graphs. (default: :obj:`None`)
            laplacian_pe (torch.Tensor, optional): The positional encodings ``[N, pe_channels]``,
                which a model with :obj:`pe_channels` needs. (default: :obj:`None`)
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
        """
        check_features(x, self.lin_in, self.in_channels)
        check_devices(reference(self.lin_in).device, edge_index=edge_index)
        num_graphs = segments(batch, x.size(0), batch_size, x.device).sizes.numel()
        edges = sorted_edges(edge_index, x.size(0), x.size(0), edge_weight=edge_weight)
        x, e = self.inputs(x, laplacian_pe), self.edge_inputs(edge_attr, edges)
        for index, layer in enumerate(self.layers):
            x, e = self.reduced(index, x), self.reduced_edges(index, e)
            x, e = layer(x, edges, edge_jaccard, sampled_mask, e)
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
        r"""Computes the weight ``[E, H]`` of each edge in each head as :meth:`forward` applies it,
        and returns a list with one tensor per layer. The arguments are those of :meth:`forward`."""
        edges = sorted_edges(edge_index, x.size(0), x.size(0), edge_weight=edge_weight)
        out = []
        x, e = self.inputs(x, laplacian_pe), self.edge_inputs(edge_attr, edges)
        for index, layer in enumerate(self.layers):
            x, e = self.reduced(index, x), self.reduced_edges(index, e)
            arguments = x, edges, edge_jaccard, sampled_mask
            out.append(layer.conv.attention_scores(*arguments, edge_attr=e))
            x, e = layer(*arguments, e)
        return out

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
            ValueError: If the model scores edges or graphs, the data lack an attribute, or for the
                reasons of :meth:`NodeFormer.inference`.
        """
        check_node_level(self.level)
        with evaluation(self):
            stream = Stream(loader, folder, self, progress_bar)
            dtype = reference(self.lin_in).dtype
            return stream.result(self.out_channels, dtype, lambda: self._stream_scores(stream))

    def _stream_scores(self, stream: Stream) -> Callable[[Part], Tensor]:
        weight = reference(self.lin_in)
        names = ('x',) if self.lin_pe is None else ('x', 'laplacian_pe')

        def rows(part: Part) -> Tensor:
            values = (to_device(stream.node_values(n, part.nodes), weight.device) for n in names)
            return self.inputs(*(value.to(weight.dtype) for value in values))

        inputs = [stream.fill('layer-0', self.hidden_channels, weight.dtype, rows)]
        for index in range(self.num_layers):
            x = self._stream_layer(stream, index, inputs)
            inputs = [*inputs, x] if self.edge_channels > 0 else [x]
        return lambda part: self.lin_out(to_device(inputs[-1][part.nodes], weight.device))

    def _stream_layer(self, stream: Stream, index: int, inputs: list[Tensor]) -> Tensor:
        r"""Computes the output ``[N, D]`` of layer number :obj:`index` for all nodes, part by part.
        The list :obj:`inputs` ends with the input of the layer. For a model with features of edges
        it begins with the inputs of all layers before, which update these features."""
        layer, device = self.layers[index], reference(self.lin_in).device
        is_sampled = stream.has('attention_mask')

        def rows(part: Part) -> Tensor:
            jaccard = stream.edge_values('edge_jaccard', part)
            jaccard = None if jaccard is None else jaccard.to(device)
            mask = None
            if is_sampled:
                mask = stream.node_values('attention_mask', part.nodes).to(device)
            has_features = self.edge_channels > 0
            edge_attr = stream.edge_values('edge_attr', part) if has_features else None
            ids = part.n_id, part.nodes
            part = part.to(device)
            edges = sorted_edges(
                part.edge_index, part.n_id.numel(), part.size, edge_weight=part.edge_weight
            )
            e = self.edge_inputs(None if edge_attr is None else edge_attr.to(device), edges)
            for number, x in enumerate(inputs, index + 1 - len(inputs)):
                pair = [self.reduced(number, to_device(x[nodes], device)) for nodes in ids]
                e = self.reduced_edges(number, e)
                if number < index:
                    e = self.layers[number].updated_edges(tuple(pair), edges, jaccard, mask, e)
            return layer(tuple(pair), edges, jaccard, mask, e)[0]

        width, dtype = layer.conv.out_channels, inputs[-1].dtype
        return stream.fill(f'layer-{index + 1}', width, dtype, rows, neighbors=True)

    def inputs(self, x: Tensor, laplacian_pe: Tensor | None = None) -> Tensor:
        r"""Computes the input ``[N, D]`` of the first layer from the features :obj:`x`
        ``[N, F_in]`` and the positional encodings ``[N, pe_channels]``.

        Raises:
            ValueError: If the encodings are missing, not expected, or of another shape.
        """
        check_features(x, self.lin_in, self.in_channels)
        if self.lin_pe is None:
            if laplacian_pe is not None:
                raise ValueError(
                    "'laplacian_pe' must be None for a model with 'pe_channels' = 0 (got "
                    f'{tuple(laplacian_pe.shape)})'
                )
            return self.lin_in(x)
        shape = (x.size(0), self.pe_channels)
        if laplacian_pe is None or laplacian_pe.shape != shape:
            actual = None if laplacian_pe is None else tuple(laplacian_pe.shape)
            raise ValueError(
                f"'laplacian_pe' must have shape {shape} (got {actual}); add it to the data with "
                f'LaplacianPE({shape[1]})'
            )
        check_devices(x.device, laplacian_pe=laplacian_pe)
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

    def reduced_edges(self, layer: int, e: Tensor | None) -> Tensor | None:
        r"""Maps edge features :obj:`e` ``[E, F]`` linearly to the smaller size ``[E, F_e]`` that
        layer number :obj:`layer`, from 0, has with :obj:`reduce`. Returns :obj:`e` itself if the
        layer has as many features as the one before, or if :obj:`e` is :obj:`None`."""
        reductions = self.edge_reductions
        return reductions[str(layer)](e) if str(layer) in reductions else e

    def reduced(self, layer: int, x: Tensor) -> Tensor:
        r"""Maps node features :obj:`x` ``[N, F]`` linearly to the smaller size that layer number
        :obj:`layer`, from 0, has with :obj:`reduce`. Returns :obj:`x` itself if the layer has as
        many channels as the one before."""
        return self.reductions[str(layer)](x) if str(layer) in self.reductions else x

    def __repr__(self) -> str:
        sizes = (
            f'{self.in_channels}, {self.hidden_channels}, {self.out_channels}, '
            f'num_layers={self.num_layers}'
        )
        return f'{self.__class__.__name__}({sizes}, kernel={self.kernel!r})'


class _Layer(Module):
    r"""Applies one layer: attention to the neighbours and a feed-forward network, each with a
    residual and a batch normalisation. The output has as many channels as the input. If
    :obj:`edge_update` is given, it updates the features of the edges by the scores."""

    edge_update: Module | None

    def __init__(
        self,
        channels: int,
        heads: int,
        kernel: str | tuple[str, str],
        normalize: bool,
        dropout: float,
        edge_channels: int,
    ) -> None:
        super().__init__()
        self.dropout, self.edge_update = dropout, None
        self.conv = JaccardSubtractorConv(
            channels,
            channels,
            heads,
            kernel,
            normalize=normalize,
            bias=False,
            edge_channels=edge_channels,
        )
        self.lin_attention = Linear(channels, channels)
        self.norms = ModuleList(BatchNorm1d(channels) for _ in range(2))
        self.feed_forward = MLP(
            [channels, 2 * channels, channels], dropout=[dropout, dropout], norm=None
        )

    def forward(
        self,
        x: Tensor | PairTensor,
        edges: Adj | SortedEdges,
        edge_jaccard: Tensor | None,
        sampled_mask: Tensor | None,
        e: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        arguments = x, edges, edge_jaccard, sampled_mask
        if self.edge_update is None:
            out = self.conv(*arguments, edge_attr=e)
        else:
            out, score = self.conv(*arguments, edge_attr=e, return_edge_scores=True)
            e = self.edge_update(e, score)
        attention = self.lin_attention(dropout(out, self.dropout, self.training))
        x_dst = x if isinstance(x, Tensor) else x[1]
        x = self.norms[0](x_dst + dropout(attention, self.dropout, self.training))
        return self.norms[1](x + self.feed_forward(x)), e

    def updated_edges(
        self,
        x: PairTensor,
        edges: SortedEdges,
        edge_jaccard: Tensor | None,
        sampled_mask: Tensor | None,
        e: Tensor,
    ) -> Tensor:
        r"""Computes the features of the edges after this layer, without those of the nodes."""
        score = self.conv.edge_scores(x, edges, edge_jaccard, sampled_mask, edge_attr=e)
        return cast(Module, self.edge_update)(e, score.to(x[0].dtype))


class _EdgeUpdate(Module):
    r"""Updates features of edges by the scores of the attention: a linear map of the scores and a
    feed-forward network, each with a residual and a batch normalisation."""

    def __init__(self, channels: int, node_channels: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.lin_scores = Linear(channels, channels)
        self.norms = ModuleList(BatchNorm1d(channels) for _ in range(2))
        self.feed_forward = MLP(
            [channels, 2 * node_channels, channels], dropout=[dropout, dropout], norm=None
        )

    def forward(self, e: Tensor, score: Tensor) -> Tensor:
        out = self.lin_scores(dropout(score, self.dropout, self.training))
        e = self.norms[0](e + dropout(out, self.dropout, self.training))
        return self.norms[1](e + self.feed_forward(e))
