r"""Defines what replaces the attention of SGFormer and DIFFormer, for their ablations."""

# N nodes, D channels, H heads.
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from torch_geometric.nn import GATConv, LGConv

from torch_geometric_lgt.nn import DIFFormer, DIFFormerConv, KernelAttentionConv, SGFormer
from torch_geometric_lgt.nn._layers.linear_parts import make_linear

# Makes a layer from the channels, the heads, whether values are projected, and the edges.
Maker = Callable[[int, int, bool, Tensor], torch.nn.Module]


class SoftmaxAttention(torch.nn.Module):
    r"""Applies the softmax attention over all nodes of one graph, in :math:`O(N^2)` time:

    .. math::
        \mathbf{x}^{\prime}_i = \sum_{j=1}^{N} \mathrm{softmax}_j \left( \mathbf{q}_i^{\top}
            \mathbf{k}_j / \sqrt{C} \right) \mathbf{v}_j

    Args:
        channels (int): :math:`D`, of inputs and outputs.
        heads (int): :math:`H`, which divides the channels.
        value_projection (bool): If :obj:`False`, the values are the input.
    """

    def __init__(self, channels: int, heads: int, value_projection: bool) -> None:
        super().__init__()
        self.heads = heads
        self.lin_query = make_linear(channels, channels)
        self.lin_key = make_linear(channels, channels)
        self.lin_value = _value_layer(channels, value_projection)

    def forward(self, x: Tensor, *_, state: None = None) -> Tensor:
        q, k, v = (
            lin(x).unflatten(1, (self.heads, -1)).transpose(0, 1)  # [H, N, C]
            for lin in (self.lin_query, self.lin_key, self.lin_value)
        )
        return scaled_dot_product_attention(q, k, v).transpose(0, 1).flatten(1)


class EdgeAttention(torch.nn.Module):
    r"""Applies PyG's :class:`GATConv` to the edges of one graph. It attends to the neighbours and
    to the node itself."""

    def __init__(self, channels: int, heads: int, edge_index: Tensor) -> None:
        super().__init__()
        self.conv = GATConv(channels, channels // heads, heads)
        self.register_buffer('edge_index', edge_index, persistent=False)

    def forward(self, x: Tensor, *_, state: None = None) -> Tensor:
        return self.conv(x, self.edge_index)


class GraphSum(torch.nn.Module):
    r"""Sums over the edges of one undirected graph as DIFFormer does, with the mean of all nodes or
    nothing in place of the attention:

    .. math::
        \mathbf{x}^{\prime}_i = \mathbf{m} + \sum_{j \in \mathcal{N}(i)} \frac{\mathbf{v}_j}
            {\sqrt{d_i d_j}}, \qquad
        \mathbf{m} = \frac{1}{N} \sum_{j=1}^{N} \mathbf{v}_j \quad \textrm{or} \quad \mathbf{0}

    Args:
        channels (int): :math:`D`, of inputs and outputs.
        value_projection (bool): If :obj:`False`, the values are the input.
        edge_index (torch.Tensor): The edges ``[2, E]``.
        mean (bool): Adds the mean of all nodes.
    """

    def __init__(
        self, channels: int, value_projection: bool, edge_index: Tensor, mean: bool
    ) -> None:
        super().__init__()
        self.mean, self.conv = mean, LGConv()
        self.lin_value = _value_layer(channels, value_projection)
        self.register_buffer('edge_index', edge_index, persistent=False)

    def forward(self, x: Tensor, *_, state: None = None, degree: None = None) -> Tensor:
        v = self.lin_value(x)
        out = self.conv(v, self.edge_index)
        return out + v.mean(0, keepdim=True) if self.mean else out


def _value_layer(channels: int, value_projection: bool) -> torch.nn.Module:
    return make_linear(channels, channels) if value_projection else torch.nn.Identity()


def _sigmoid(channels: int, heads: int, value_projection: bool, _: Tensor) -> torch.nn.Module:
    return DIFFormerConv(
        channels,
        channels,
        heads,
        kernel='sigmoid',
        use_graph=False,
        value_projection=value_projection,
    )


def _nodeformer(channels: int, heads: int, value_projection: bool, _: Tensor) -> torch.nn.Module:
    return KernelAttentionConv(
        channels,
        channels,
        heads,
        feature_map='orthogonal',
        num_features=30,
        temperature=0.25,
        num_gumbel_samples=10,
        value_projection=value_projection,
    )


REPLACEMENTS: dict[str, dict[str, Maker]] = {
    'sgformer': {
        'sigmoid': _sigmoid,
        'softmax': lambda channels, heads, value_projection, _: SoftmaxAttention(
            channels, heads, value_projection
        ),
        'gat': lambda channels, heads, _, edge_index: EdgeAttention(channels, heads, edge_index),
        'nodeformer': _nodeformer,
    },
    'difformer': {
        'mean': lambda channels, _, value_projection, edge_index: GraphSum(
            channels, value_projection, edge_index, mean=True
        ),
        'no-attention': lambda channels, _, value_projection, edge_index: GraphSum(
            channels, value_projection, edge_index, mean=False
        ),
    },
}


def replace_attention(
    model: SGFormer | DIFFormer,
    make: Maker,
    heads: int,
    value_projection: bool,
    edge_index: Tensor,
) -> None:
    r"""Replaces the layers that attend by those that :obj:`make` returns. Residuals, norms and the
    local branch stay."""
    for index in range(model.num_layers):
        model.convs[index] = make(model.hidden_channels, heads, value_projection, edge_index)
