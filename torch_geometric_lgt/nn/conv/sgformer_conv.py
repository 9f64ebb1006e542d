# N nodes (N_s source, N_t target), H heads.
from torch import Tensor

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.nn._layers.linear_layer import LinearLayer
from torch_geometric_lgt.typing import Adj, Batch, PairTensor


class SGFormerConv(LinearLayer):
    r"""Attends from each node to all nodes of its graph in :math:`O(N)`, with the simple global
    attention of `"SGFormer: Simplifying and Empowering Transformers for Large-Graph
    Representations" <https://arxiv.org/abs/2306.10759>`_:

    .. math::
        \mathbf{X}^{\prime} = \mathbf{D}^{-1} \left[ \mathbf{V} + \frac{1}{N} \tilde{\mathbf{Q}}
            (\tilde{\mathbf{K}}^{\top} \mathbf{V})
        \right], \qquad
        \mathbf{D} = \mathrm{diag} \left( \mathbf{1} + \frac{1}{N} \tilde{\mathbf{Q}}
            (\tilde{\mathbf{K}}^{\top} \mathbf{1}) \right)

    over the :math:`N` nodes of each graph, with :math:`\tilde{\mathbf{Q}} = \mathbf{Q} /
    \|\mathbf{Q}\|_F` and :math:`\tilde{\mathbf{K}} = \mathbf{K} / \|\mathbf{K}\|_F` of each graph
    and head. With Frobenius norms the share of the output that comes from other nodes falls as
    :math:`1 / N` or faster. With ``norm='row'``, which divides each query and key by its length,
    the share does not fall.

    Differs from :class:`torch_geometric.nn.attention.SGFormerAttention`, which has row norms only,
    averages its heads, and takes for :math:`N` the nodes of the largest graph of the batch, so that
    an output changes with what else is in the batch.

    Args:
        in_channels (int): Size of each input sample, of sources and targets alike; :obj:`-1` takes
            that of the first input.
        out_channels (int): Size of each output sample, over all heads.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        norm (str, optional): :obj:`"frobenius"` or :obj:`"row"`. A row whose denominator is 0 up to
            rounding errors gives 0: where all keys are the opposite of the query, with Frobenius
            norms in graphs of one node only. (default: :obj:`"frobenius"`)
        bias (bool, optional): If :obj:`False`, the linear parts have no bias. (default:
            :obj:`True`)
        value_projection (bool, optional): If :obj:`False`, the values are the input, as the
            authors' code has on small graphs. (default: :obj:`True`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})` or the pair :math:`((N_s, F_{in}), (N_t,
          F_{in}))`, where the first :math:`\mathbf{V}` is that of the targets; batch vector(s)
          *(optional)*
        - **output:** node features :math:`(N_t, F_{out})`

    Raises:
        ValueError: If :obj:`heads` does not divide :obj:`out_channels`, or :obj:`norm` is unknown,
            or sources and targets have unequal sizes.

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
    ) -> None:
        super().__init__(in_channels, out_channels, heads, norm, value_projection, bias)
        if self.source_channels != self.target_channels:
            raise ValueError(
                "'in_channels' must be one size, because targets have values of their own from "
                f"'lin_value' (got {in_channels}); "
                'project sources or targets before, or use DIFFormerConv'
            )

    def forward(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj | None = None,
        batch: Batch = None,
        batch_size: int | None = None,
        *,
        state: AttentionState | None = None,
    ) -> Tensor:
        r"""Runs the layer.

        Args:
            x (torch.Tensor or tuple): The node features ``[N, F]``, or those of sources and
                targets.
            edge_index (torch.Tensor, optional): Unused, for the interface of PyG's layers.
                (default: :obj:`None`)
            batch (torch.Tensor or tuple, optional): The graph id of each node. (default:
                :obj:`None`, one graph)
            batch_size (int, optional): The number of graphs. (default: :obj:`None`)
            state (AttentionState, optional): The state that all queries read, see
                :meth:`attention_state`; the keys of :obj:`x` are not evaluated. (default:
                :obj:`None`)
        """
        return self._attend(x, batch, batch_size, state)

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.in_channels}, {self.out_channels}, '
            f'heads={self.heads}, norm={self.norm!r})'
        )
