# N nodes (N_s source, N_t target), H heads.
from torch import Tensor

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.segment import count_graphs
from torch_geometric_lgt.nn._layers.input_checks import check_edge_index, feature_pair
from torch_geometric_lgt.nn._layers.linear_layer import LinearLayer
from torch_geometric_lgt.typing import Adj, Batch, PairTensor

ONE_WIDTH = "because targets have values of their own from 'lin_value'"
PROJECT = 'project sources or targets before, or use DIFFormerConv'


class SGFormerConv(LinearLayer):
    r"""Attends from each node to all nodes of its graph in :math:`O(N)`, with the simple global
    attention of `"SGFormer: Simplifying and Empowering Transformers for Large-Graph
    Representations" <https://arxiv.org/abs/2306.10759>`_.

    **Edges are ignored.** To use the graph too, put the layer beside message passing, as
    :class:`~torch_geometric_lgt.nn.GPSConv` does.

    .. math::
        \mathbf{X}^{\prime} = \mathbf{D}^{-1} \left[ \mathbf{V} + \frac{1}{N} \tilde{\mathbf{Q}}
            (\tilde{\mathbf{K}}^{\top} \mathbf{V})
        \right], \qquad
        \mathbf{D} = \mathrm{diag} \left( \mathbf{1} + \frac{1}{N} \tilde{\mathbf{Q}}
            (\tilde{\mathbf{K}}^{\top} \mathbf{1}) \right)

    over the :math:`N` nodes of each graph, with :math:`\tilde{\mathbf{Q}} = \mathbf{Q} /
    \|\mathbf{Q}\|_F` and :math:`\tilde{\mathbf{K}} = \mathbf{K} / \|\mathbf{K}\|_F` of each graph
    and head. Frobenius norms are the default because the authors' code has them. With Frobenius
    norms all other nodes together have on average at most a share of order :math:`1 / N` in an
    output: the layer hardly attends. With ``norm='row'``, which divides each query and key by its
    length, this share does not fall with :math:`N`.

    Differs from :class:`torch_geometric.nn.attention.SGFormerAttention`, which has row norms only,
    by default no biases, and averages its heads. PyG's layer also replaces entries of queries and
    keys that are exactly 0 by 1e-6. In a batch it sets :math:`N` to the size of the largest graph,
    so its output for a graph depends on the other graphs. The output of this layer does not.

    Differs from the authors' code with several heads: here heads are concatenated and each has its
    own Frobenius norm; there heads are averaged and share one norm. The published settings for node
    classification have one head.

    Args:
        in_channels (int or tuple): Size of each input sample, or a pair of the sizes of sources and
            targets, which must be equal; :obj:`-1` takes the size of the first input.
        out_channels (int): Size of each output sample, divided among the heads.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        norm (str, optional): :obj:`"frobenius"` or :obj:`"row"`. An output whose denominator is 0
            up to rounding errors is 0. With row norms this happens if all keys have the direction
            opposite to the query; with Frobenius norms it can happen only in a graph of one node.
            (default: :obj:`"frobenius"`)
        bias (bool, optional): If :obj:`False`, the linear maps of queries, keys and values have no
            bias. (default: :obj:`True`)
        value_projection (bool, optional): If :obj:`False`, the values are the input, as in the
            authors' code for small graphs. (default: :obj:`True`)
        position_channels (int, optional): If positive, queries and keys are linear maps of
            positions of this size instead of the input: nodes attend by where they are, for
            example by a Laplacian encoding. (default: :obj:`0`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, or a pair :math:`((N_s, F_{in}), (N_t,
          F_{in}))` of sources and targets; batch vector, or a pair of them *(optional)*; positions
          :math:`(N, F_p)`, or a pair of them, with :obj:`position_channels`. For a pair, :math:`N`
          is the number of sources, and the first :math:`\mathbf{V}` has the values of the targets
        - **output:** node features :math:`(N_t, F_{out})`

    Raises:
        ValueError: If :obj:`heads` does not divide :obj:`out_channels`, :obj:`norm` is unknown, or
            sources and targets have unequal sizes. If ``value_projection=False`` comes with unequal
            :obj:`in_channels` and :obj:`out_channels`, or with :obj:`position_channels`.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.nn import SGFormerConv
        >>> conv = SGFormerConv(16, 32, heads=4, norm='row')
        >>> conv(torch.randn(5, 16), batch=torch.tensor([0, 0, 0, 1, 1])).shape
        torch.Size([5, 32])
    """

    self_term = True

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        norm: str = 'frobenius',
        bias: bool = True,
        value_projection: bool = True,
        position_channels: int = 0,
    ) -> None:
        super().__init__(
            in_channels,
            out_channels,
            heads=heads,
            norm=norm,
            value_projection=value_projection,
            bias=bias,
            position_channels=position_channels,
        )
        if self.source_channels != self.target_channels:
            raise ValueError(
                f"'in_channels' must be one size, {ONE_WIDTH} (got {in_channels}); {PROJECT}"
            )

    def forward(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj | None = None,
        batch: Batch = None,
        batch_size: int | None = None,
        *,
        state: AttentionState | None = None,
        position: Tensor | PairTensor | None = None,
    ) -> Tensor:
        r"""Computes the output ``[N_t, F_out]`` of the targets. Ignores :obj:`edge_index`.

        Args:
            x (torch.Tensor or tuple): The node features ``[N, F]``, or a pair of the features of
                sources and targets.
            edge_index (torch.Tensor, optional): Ignored; other layers have this argument too.
                (default: :obj:`None`)
            batch (torch.Tensor or tuple, optional): The graph id of each node, in any order, or a
                pair of such vectors for sources and targets. (default: :obj:`None`, one graph)
            batch_size (int, optional): The number of graphs. (default: :obj:`None`, one more than
                the largest graph id)
            state (AttentionState, optional): Sums over all keys of each graph, from
                :meth:`attention_state`. The targets then read these sums, with their number of
                nodes and Frobenius norms, instead of the keys of :obj:`x`. (default: :obj:`None`)
            position (torch.Tensor or tuple, optional): The positions ``[N, position_channels]``,
                from which a layer with :obj:`position_channels` makes queries and keys, or a pair
                of those of sources and targets. (default: :obj:`None`)

        Raises:
            TypeError: If :obj:`x`, :obj:`batch`, :obj:`state` or :obj:`position` has another type.
            ValueError: If a shape, dtype or device does not fit the layer. If :obj:`position` is
                missing in a layer with :obj:`position_channels`, or given to another one.
        """
        batch_size = count_graphs(batch, batch_size, state)
        check_edge_index(edge_index)
        x_src, x_dst = feature_pair(x)
        if x_src is not x_dst and x_src.shape[1:] != x_dst.shape[1:]:
            raise ValueError(
                f"'x' must have one width, {ONE_WIDTH} (got {tuple(x_src.shape)} and "
                f'{tuple(x_dst.shape)}); {PROJECT}'
            )
        return self._attend(x, batch, batch_size, state, position=position)

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.in_channels}, {self.out_channels}, '
            f'heads={self.heads}, norm={self.norm!r})'
        )
