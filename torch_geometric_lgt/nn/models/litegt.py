# N nodes, E edges, B graphs, D hidden channels, H heads, L layers.
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Module, ModuleDict, ModuleList
from torch.nn.functional import dropout
from torch_geometric.nn import MLP, global_mean_pool
from torch_geometric.nn.inits import reset

from torch_geometric_lgt.functional.neighbors.edges import SortedEdges, sorted_edges
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.functional.segment import segments
from torch_geometric_lgt.nn._attention_layer import (
    check_devices,
    check_features,
    check_sizes,
    check_width,
)
from torch_geometric_lgt.nn._parts import make_linear, reference
from torch_geometric_lgt.nn.conv import JaccardSubtractorConv
from torch_geometric_lgt.nn.models._layerwise import evaluation, stream_litegt
from torch_geometric_lgt.nn.models._out_of_memory import with_advice
from torch_geometric_lgt.nn.models._streaming import Stream
from torch_geometric_lgt.typing import Adj, PairTensor

LEVELS = ('node', 'edge', 'graph')


class LiteGT(Module):
    r"""The model of `"LiteGT: Efficient and Lightweight Graph Transformers"
    <https://doi.org/10.1145/3459637.3482272>`_: layers of two-branch attention over the neighbours
    with a residual, batch normalisation and a feed-forward part,

    .. math::
        \hat{\mathbf{H}} = \mathrm{BN} \left( \mathbf{H} + \mathrm{Attention}(\mathbf{H})
            \mathbf{W}_O \right), \qquad
        \mathbf{H}^{\prime} = \mathrm{BN} \left( \hat{\mathbf{H}} + \mathrm{FFN}(\hat{\mathbf{H}})
            \right),

    see :class:`~torch_geometric_lgt.nn.JaccardSubtractorConv`. With :obj:`reduce` the layers from
    the fourth-last on have half the channels and half the heads, and from the second-last on a
    quarter (Figure 4). The paper calls the step a pooling and does not define it: here it is a
    linear map. With both branches softmax, ``kernel=('softmax', 'softmax')``, it is the graph
    transformer of `"A Generalization of Transformer Networks to Graphs"
    <https://arxiv.org/abs/2012.09699>`_.

    Args:
        in_channels (int): Size of each input sample; :obj:`-1` takes that of the first input.
        hidden_channels (int): Size of each hidden sample.
        out_channels (int): Size of each output sample.
        num_layers (int, optional): Number of layers. (default: :obj:`12`)
        heads (int, optional): Number of attention heads. (default: :obj:`8`)
        kernel (str or tuple, optional): As in the layer. (default: :obj:`"jaccard"`)
        normalize (bool, optional): As in the layer. (default: :obj:`True`)
        reduce (bool, optional): If :obj:`True`, the last layers have fewer channels. (default:
            :obj:`False`)
        pe_channels (int, optional): Number of positional encodings, which a linear map adds to the
            input layer. (default: :obj:`0`)
        level (str, optional): What is scored: each :obj:`"node"`, each :obj:`"edge"` by its source
            and target, or each :obj:`"graph"` by the mean of its nodes. (default: :obj:`"node"`)
        dropout (float, optional): Dropout probability. (default: :obj:`0.0`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`; edges; batch vector *(optional)*; positional
          encodings :math:`(N, F_{pe})`; Jaccard indices :math:`(E)`; mask of the sampled nodes
          :math:`(N)`; weights of the edges :math:`(E)`
        - **output:** scores :math:`(N, F_{out})`, :math:`(E, F_{out})` or :math:`(B, F_{out})`

    Raises:
        ValueError: If an argument is out of range, or one of the layer is.
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
    ) -> None:
        super().__init__()
        check_width(in_channels)
        check_sizes(hidden_channels=hidden_channels, out_channels=out_channels)
        if pe_channels < 0:
            raise ValueError(f"'pe_channels' must not be negative (got {pe_channels})")
        if level not in LEVELS:
            raise ValueError(
                f"'level' must be one of {', '.join(map(repr, LEVELS))} (got {level!r})"
            )
        if num_layers < (4 if reduce else 1):
            raise ValueError(
                f"'num_layers' must be at least {4 if reduce else 1} (got {num_layers})"
            )
        if not 0 <= dropout < 1:
            raise ValueError(f"'dropout' must be at least 0 and below 1 (got {dropout})")
        if reduce and (hidden_channels % 4 != 0 or heads % 8 != 0):
            raise ValueError(
                "'hidden_channels' and 'heads' must be multiples of 4 and 8 with reduce=True, "
                'which halves both twice '
                f'(got {hidden_channels} and {heads})'
            )
        self.in_channels, self.hidden_channels, self.out_channels, self.num_layers = (
            in_channels,
            hidden_channels,
            out_channels,
            num_layers,
        )
        self.level, self.dropout, self.kernel, self.pe_channels = (
            level,
            dropout,
            kernel,
            pe_channels,
        )
        self.lin_in = make_linear(in_channels, hidden_channels)
        self.lin_pe = Linear(pe_channels, hidden_channels) if pe_channels > 0 else None
        self.reductions, self.layers, width = ModuleDict(), ModuleList(), hidden_channels
        for layer in range(num_layers):
            if reduce and num_layers - layer in (4, 2):
                self.reductions[str(layer)] = Linear(width, width // 2)
                width, heads = width // 2, heads // 2
            self.layers.append(_Layer(width, heads, kernel, normalize, dropout))
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
    ) -> Tensor:
        r"""Runs the model. The batch vector matters to graph-level scores only, since no attention
        leaves a graph; it is checked at all levels. The weights of the edges are :obj:`edge_weight`
        ``[E]`` or the values of a sparse matrix."""
        check_devices(reference(self.lin_in).device, edge_index=edge_index)
        num_graphs = segments(batch, x.size(0), batch_size, x.device).sizes.numel()
        edges = sorted_edges(edge_index, x.size(0), x.size(0), edge_weight=edge_weight)
        x = self.inputs(x, laplacian_pe)
        for index, layer in enumerate(self.layers):
            x = layer(self.reduced(index, x), edges, edge_jaccard, sampled_mask)
        if self.level == 'edge':
            x = torch.cat([x[nodes] for nodes in edges.edge_index], 1)
        if self.level == 'graph':
            graph = edges.edge_index.new_zeros(x.size(0)) if batch is None else batch.long()
            x = global_mean_pool(x.to(compute_dtype(x.dtype)), graph, num_graphs).to(x.dtype)
        return self.lin_out(x)

    def attention_scores(
        self,
        x: Tensor,
        edge_index: Adj,
        *,
        laplacian_pe: Tensor | None = None,
        edge_jaccard: Tensor | None = None,
        sampled_mask: Tensor | None = None,
        edge_weight: Tensor | None = None,
    ) -> list[Tensor]:
        r"""The weights ``[E, H]`` of each edge in each layer, as they are applied."""
        edges, out = sorted_edges(edge_index, x.size(0), x.size(0), edge_weight=edge_weight), []
        x = self.inputs(x, laplacian_pe)
        for index, layer in enumerate(self.layers):
            x = self.reduced(index, x)
            out.append(layer.conv.attention_scores(x, edges, edge_jaccard, sampled_mask))
            x = layer(x, edges, edge_jaccard, sampled_mask)
        return out

    def inference(
        self, loader: Any, folder: str | Path | None = None, progress_bar: bool = False
    ) -> Tensor:
        r"""The scores of all nodes, layer by layer and batch by batch, see
        :meth:`NodeFormer.inference`. What :meth:`forward` takes beside features and edges are the
        attributes :obj:`laplacian_pe`, :obj:`edge_jaccard` and, if there, :obj:`attention_mask` and
        :obj:`edge_weight` of the data.

        Raises:
            ValueError: As there, or if edges or graphs are scored.
        """
        if self.level != 'node':
            raise ValueError(f"'level' must be 'node' for scores of all nodes (got {self.level!r})")
        with evaluation(self):
            stream = Stream(loader, folder, self, progress_bar)
            return stream.result(
                self.out_channels, reference(self.lin_in).dtype, lambda: stream_litegt(self, stream)
            )

    def inputs(self, x: Tensor, laplacian_pe: Tensor | None = None) -> Tensor:
        r"""The input ``[N, D]`` of the first layer."""
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
            given = None if laplacian_pe is None else tuple(laplacian_pe.shape)
            raise ValueError(
                f"'laplacian_pe' must have shape {shape} (got {given}); add it to the data with "
                f'LaplacianPE({shape[1]})'
            )
        check_devices(x.device, laplacian_pe=laplacian_pe)
        return self.lin_in(x) + self.lin_pe(laplacian_pe.to(x.dtype))

    def reduced(self, layer: int, x: Tensor) -> Tensor:
        r"""The input of a layer, with fewer channels where its layer has."""
        return self.reductions[str(layer)](x) if str(layer) in self.reductions else x

    def __repr__(self) -> str:
        sizes = (
            f'{self.in_channels}, {self.hidden_channels}, {self.out_channels}, '
            f'num_layers={self.num_layers}'
        )
        return f'{self.__class__.__name__}({sizes}, kernel={self.kernel!r})'


class _Layer(Module):
    def __init__(
        self,
        channels: int,
        heads: int,
        kernel: str | tuple[str, str],
        normalize: bool,
        dropout: float,
    ) -> None:
        super().__init__()
        self.dropout = dropout
        self.conv = JaccardSubtractorConv(
            channels, channels, heads, kernel, normalize=normalize, bias=False
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
    ) -> Tensor:
        attention = self.lin_attention(
            dropout(self.conv(x, edges, edge_jaccard, sampled_mask), self.dropout, self.training)
        )
        own = x if isinstance(x, Tensor) else x[1]
        x = self.norms[0](own + dropout(attention, self.dropout, self.training))
        return self.norms[1](x + self.feed_forward(x))
