# N nodes (N_s source, N_t target), E edges, D channels.
from typing import cast

from torch import Tensor
from torch.nn import BatchNorm1d, Linear, Module, ModuleList
from torch.nn.functional import dropout
from torch_geometric.nn import MLP

from torch_geometric_lgt._arguments import check_whole
from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.nn.conv.jaccard_subtractor_conv import JaccardSubtractorConv
from torch_geometric_lgt.typing import Adj, PairTensor


class LiteGTLayer(Module):
    r"""Applies one layer of LiteGT: attention to the neighbours and a feed-forward network, each
    with a residual and a batch normalisation. The output has as many channels as the input.

    Args:
        channels (int): :math:`D`.
        heads (int): The number of attention heads.
        kernel (str or tuple): The kernel or kernels of
            :class:`~torch_geometric_lgt.nn.JaccardSubtractorConv`.
        normalize (bool): If :obj:`False`, the scores of the second branch are not divided by their
            sum.
        dropout (float): Dropout probability.
        edge_channels (int): Size of the features of each edge; 0 for none.
        updates_edges (bool): If :obj:`True`, the layer updates the features of the edges by the
            scores.
    """

    def __init__(
        self,
        channels: int,
        heads: int,
        kernel: str | tuple[str, str],
        normalize: bool,
        dropout: float,
        edge_channels: int,
        updates_edges: bool,
    ) -> None:
        super().__init__()
        self.dropout = dropout
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
        self.edge_update = EdgeUpdate(edge_channels, channels, dropout) if updates_edges else None

    def forward(
        self,
        x: Tensor | PairTensor,
        edges: Adj | SortedEdges,
        edge_jaccard: Tensor | None,
        sampled_mask: Tensor | None,
        e: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        r"""Computes the features of the targets ``[N_t, D]`` and of the edges ``[E, D_e]`` after
        the layer. :obj:`x` and :obj:`e` are the features before it."""
        arguments = x, edges, edge_jaccard, sampled_mask
        if self.edge_update is None:
            out = self.conv(*arguments, edge_attr=e)
        else:
            out, scores = self.conv(*arguments, edge_attr=e, return_edge_scores=True)
            e = self.edge_update(e, scores)
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
        r"""Computes the features of the edges ``[E, D_e]`` after the layer, without those of the
        nodes."""
        scores = self.conv.edge_scores(x, edges, edge_jaccard, sampled_mask, edge_attr=e)
        return cast(Module, self.edge_update)(e, scores.to(x[0].dtype))


class EdgeUpdate(Module):
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

    def forward(self, e: Tensor, scores: Tensor) -> Tensor:
        out = self.lin_scores(dropout(scores, self.dropout, self.training))
        e = self.norms[0](e + dropout(out, self.dropout, self.training))
        return self.norms[1](e + self.feed_forward(e))


def layer_widths(hidden_channels: int, num_layers: int, heads: int, reduce: bool) -> list[int]:
    r"""Returns the number of channels of each layer. With :obj:`reduce` the fourth-last and
    third-last layers have half of the channels, and the last two layers three tenths.

    Raises:
        ValueError: If there are too few layers, or :obj:`heads` does not divide a reduced number.
    """
    check_whole('num_layers', num_layers, 4 if reduce else 1)
    if not reduce:
        return [hidden_channels] * num_layers
    half, last = hidden_channels // 2, hidden_channels * 3 // 10
    if any(width == 0 or width % heads != 0 for width in (half, last)):
        raise ValueError(
            "'heads' must divide the channels of all layers, which reduce=True makes "
            f"{half} and {last} of 'hidden_channels' (got {heads} and {hidden_channels})"
        )
    return [hidden_channels] * (num_layers - 4) + [half, half, last, last]
