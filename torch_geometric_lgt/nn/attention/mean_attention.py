# N nodes (N_s source, N_t target).
from typing import Any

import torch
from torch import Tensor

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.inputs import KernelInput
from torch_geometric_lgt.functional.segment import count_graphs, segments
from torch_geometric_lgt.nn._layers.input_checks import check_edge_index, check_features
from torch_geometric_lgt.nn._layers.kernel_layer import KernelLayer
from torch_geometric_lgt.nn._layers.linear_parts import remove_parts
from torch_geometric_lgt.nn.feature_map import FeatureMap
from torch_geometric_lgt.typing import Adj, Batch, PairTensor


class MeanAttention(KernelLayer):
    r"""Gives each node the plain mean of the values of its graph: attention with equal weights.

    **Edges are ignored.** To use the graph too, put the layer beside message passing, as
    :class:`~torch_geometric_lgt.nn.GPSConv` does.

    .. math::
        \mathbf{x}^{\prime}_i = \frac{1}{|\mathcal{B}(i)|} \sum_{j \in \mathcal{B}(i)}
            \left( \mathbf{W} \mathbf{x}_j + \mathbf{b} \right)

    with :math:`\mathcal{B}(i)` the nodes, for a pair the sources, of the graph that contains
    :math:`i`. A virtual node (`"Neural Message Passing for Quantum Chemistry"
    <https://arxiv.org/abs/1704.01212>`_, Section 5.2) without a state of its own sends the same
    message. Use the layer as the control of an experiment: attention that is no better than this
    mean does not justify its cost.

    Args:
        in_channels (int): Size of each input sample; :obj:`-1` takes the size of the first input.
        out_channels (int): Size of each output sample.
        bias (bool, optional): If :obj:`False`, the linear map has no bias. (default: :obj:`True`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, or a pair :math:`((N_s, F_{in}), (N_t,
          F_{in}))` of sources and targets; batch vector, or a pair of them *(optional)*
        - **output:** node features :math:`(N_t, F_{out})`, 0 in a graph without sources

    Raises:
        ValueError: If a size is not positive.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.nn import MeanAttention
        >>> mean = MeanAttention(16, 32)
        >>> x, batch = torch.randn(5, 16), torch.tensor([0, 0, 0, 1, 1])  # two graphs
        >>> out = mean(x, batch=batch)
        >>> bool((out[0] == out[2]).all()), bool((out[0] == out[3]).all())
        (True, False)
    """

    lin_query: Any
    lin_key: Any
    lin_value: Any
    feature_map: Any

    def __init__(self, in_channels: int, out_channels: int, bias: bool = True) -> None:
        super().__init__(in_channels, out_channels, feature_map=torch.nn.Identity(), bias=bias)
        remove_parts(self, 'lin_query', 'lin_key', 'feature_map')

    def forward(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj | None = None,
        batch: Batch = None,
        batch_size: int | None = None,
        *,
        state: AttentionState | None = None,
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
            state (AttentionState, optional): Sums over the nodes of each graph, from
                :meth:`attention_state`, in place of those of :obj:`x`. (default: :obj:`None`)

        Raises:
            TypeError: If :obj:`x`, :obj:`batch` or :obj:`state` has another type.
            ValueError: If a shape, dtype or device does not fit the layer.
        """
        batch_size = count_graphs(batch, batch_size, state)
        check_edge_index(edge_index)
        return self._attend(x, batch, batch_size, state)

    def attention_state(
        self, x: Tensor, batch: Tensor | None = None, batch_size: int | None = None
    ) -> AttentionState:
        r"""Builds the state of each graph: the sum of the values of its nodes, a linear map of
        their features :obj:`x` ``[N, F]``, and the number of nodes.

        For the arguments and the use of states see
        :meth:`KernelAttentionConv.attention_state`."""
        self._check_sources(x)
        return self._state(x, segments(batch, x.size(0), batch_size, x.device))

    def attention_scores(
        self, x: Tensor | PairTensor, edge_index: Adj, batch: Batch = None
    ) -> Tensor:
        r"""Computes the attention weight ``[P, 1]`` of each pair of nodes in :obj:`edge_index`
        ``[2, P]``, which need not be edges: one over the number of sources in the graph, and 0 for
        two nodes of different graphs."""
        return self._scores(x, edge_index, batch)

    def _check_targets(self, x: Tensor) -> None:
        check_features(x, self.lin_value, self.target_channels)

    def _kernel_input(
        self,
        x: Tensor,
        lin: torch.nn.Module,
        phi: FeatureMap | None,
        mask: Tensor | None,
        sampling: bool,
        noise: Tensor | None = None,
    ) -> KernelInput:
        return KernelInput(x=x.new_ones(x.size(0), 1), heads=1, kind='values')

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}({self.in_channels}, {self.out_channels})'
