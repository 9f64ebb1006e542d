# N nodes (N_s source, N_t target), E pairs, H heads.
from torch import Tensor

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.attention.kernel import node_pair
from torch_geometric_lgt.functional.attention.sigmoid import sigmoid_attention, sigmoid_scores
from torch_geometric_lgt.functional.neighbors.edges import SortedEdges, sorted_edges, weighted_edges
from torch_geometric_lgt.functional.neighbors.neighbor_sum import symmetric_weight
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.functional.segment import node_to_graph
from torch_geometric_lgt.nn._layers.input_checks import check_devices, check_unused
from torch_geometric_lgt.nn._layers.linear_layer import LinearLayer
from torch_geometric_lgt.nn._layers.neighbor_sum import NeighborSum
from torch_geometric_lgt.typing import Adj, Batch, PairTensor


class DIFFormerConv(LinearLayer):
    r"""Attends from each node to all nodes and to its neighbours, with the diffusion operator of
    `"DIFFormer: Scalable (Graph) Transformers Induced by Energy Constrained Diffusion"
    <https://arxiv.org/abs/2301.09474>`_:

    .. math::
        \mathbf{X}^{\prime} = \mathbf{S} \mathbf{V} + w \, \mathbf{D}^{-1/2} \mathbf{A}
            \mathbf{D}^{-1/2} \mathbf{V}, \qquad
        S_{ij} = \frac{f(\mathbf{q}_i, \mathbf{k}_j)}{\sum_l f(\mathbf{q}_i, \mathbf{k}_l)}

    over the nodes of each graph, with :math:`f = 1 + \tilde{\mathbf{q}}_i^{\top}
    \tilde{\mathbf{k}}_j` (:obj:`"simple"`, in :math:`O(N)`) or :math:`f =
    \sigma(\mathbf{q}_i^{\top} \mathbf{k}_j)` (:obj:`"sigmoid"`, in :math:`O(N^2)` time, memory
    :math:`O(N)`). No self loops are added, and repeated edges count repeatedly. Weights of edges
    are the entries of :math:`\mathbf{A}`, and :math:`\mathbf{D}` has their sums.

    Differs from the paper: queries and keys have linear parts, as in the authors' code, and values
    too unless ``value_projection=False``.

    Args:
        in_channels (int or tuple): Size of each input sample, or those of sources and targets;
            :obj:`-1` takes that of the first input.
        out_channels (int): Size of each output sample, over all heads.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        kernel (str, optional): :obj:`"simple"` or :obj:`"sigmoid"`. (default: :obj:`"simple"`)
        norm (str, optional): Norm of the simple kernel: :math:`\tilde{\mathbf{q}}_i = \mathbf{q}_i
            / \|\mathbf{q}_i\|` (:obj:`"row"`, the paper's) or :math:`\tilde{\mathbf{Q}} =
            \mathbf{Q} / \|\mathbf{Q}\|_F` of each graph and head (:obj:`"frobenius"`, the authors'
            code: the weights tend to those of a plain mean as :math:`1 / N`). (default:
            :obj:`"row"`)
        use_graph (bool, optional): If :obj:`False`, the second term is left out. (default:
            :obj:`True`)
        graph_weight (float, optional): :math:`w`. (default: :obj:`1.0`)
        bias (bool, optional): If :obj:`False`, the linear parts have no bias. (default:
            :obj:`True`)
        value_projection (bool, optional): If :obj:`False`, the values are the input, as in the
            paper. (default: :obj:`True`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})` or the pair :math:`((N_s, F_s), (N_t, F_t))`;
          edges with :obj:`use_graph`; batch vector(s) *(optional)*
        - **output:** node features :math:`(N_t, F_{out})`

    Raises:
        ValueError: If :obj:`heads` does not divide :obj:`out_channels`, :obj:`kernel` or
            :obj:`norm` is unknown, edges are missing, or the sigmoid kernel meets more than
            :math:`2^{33}` pairs.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.nn import DIFFormerConv
        >>> conv = DIFFormerConv(16, 32, heads=4)
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> conv(x, edge_index).shape
        torch.Size([4, 32])
    """

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 1,
        kernel: str = 'simple',
        norm: str = 'row',
        use_graph: bool = True,
        graph_weight: float = 1.0,
        bias: bool = True,
        value_projection: bool = True,
    ) -> None:
        if kernel not in ('simple', 'sigmoid'):
            raise ValueError(f"'kernel' must be 'simple' or 'sigmoid' (got {kernel!r})")
        super().__init__(in_channels, out_channels, heads, norm, value_projection, bias)
        self.kernel, self.use_graph, self.graph_weight = kernel, use_graph, graph_weight
        self.neighbor_sum = NeighborSum() if use_graph else None

    def forward(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj | SortedEdges | None = None,
        batch: Batch = None,
        batch_size: int | None = None,
        *,
        state: AttentionState | None = None,
        degree: Tensor | PairTensor | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""Runs the layer.

        Args:
            x (torch.Tensor or tuple): The node features ``[N, F]``, or those of sources and
                targets.
            edge_index (torch.Tensor or SparseTensor, optional): The edges, unless the layer has
                ``use_graph=False``. (default: :obj:`None`)
            batch (torch.Tensor or tuple, optional): The graph id of each node. (default:
                :obj:`None`, one graph)
            batch_size (int, optional): The number of graphs. (default: :obj:`None`)
            state (AttentionState, optional): The state that all queries read, see
                :meth:`attention_state`; the keys of :obj:`x` are not evaluated. (default:
                :obj:`None`)
            degree (torch.Tensor or tuple, optional): The degrees ``[N]`` in the whole graph, with
                weights their sums, for a sampled part of a graph; a pair has the out-degrees of
                sources and the in-degrees of targets. (default: :obj:`None`)
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]``. (default:
                :obj:`None`, the values of a sparse matrix, else 1)
        """
        if not self.use_graph:
            check_unused(edge_weight, 'with use_graph=False')
        if self.kernel == 'sigmoid' and state is not None:
            raise ValueError(
                "'state' must be None with the sigmoid kernel, which has none; use kernel='simple'"
            )
        x_src, x_dst = (x, x) if isinstance(x, Tensor) else x
        self._check_sources(x_src)
        if self.kernel == 'simple' and not self.use_graph:
            return self._attend((x_src, x_dst), batch, batch_size, state)
        value = self._value(x_src)
        if self.kernel == 'simple':
            out = self._attend((x_src, x_dst), batch, batch_size, state, value)
        else:
            self._check_targets(x_dst)
            graphs = node_pair(batch, x_src.size(0), x_dst.size(0), batch_size, x_dst.device)
            out = sigmoid_attention(
                self.lin_query(x_dst), self.lin_key(x_src), value, self.heads, *graphs
            )[0]
        if not self.use_graph:
            return out
        if edge_index is None or self.neighbor_sum is None:
            raise ValueError(
                "'edge_index' must be given; for attention alone make the layer with "
                'use_graph=False'
            )
        check_devices(x_dst.device, edge_index=edge_index, degree=degree)
        sizes = x_src.size(0), x_dst.size(0)
        edges = sorted_edges(edge_index, *sizes, edge_weight=edge_weight)
        weight = self.graph_weight * symmetric_weight(
            edges.edge_index, *sizes, compute_dtype(value.dtype), degree, edges.weight
        )
        return out + self.neighbor_sum(value, edges, weight, x_dst.size(0))

    def attention_state(
        self, x: Tensor, batch: Tensor | None = None, batch_size: int | None = None
    ) -> AttentionState:
        r"""Builds the state of the nodes :obj:`x`, see :meth:`SGFormerConv.attention_state`.

        Raises:
            ValueError: With the sigmoid kernel, which has none.
        """
        if self.kernel == 'sigmoid':
            raise ValueError(
                "'kernel' = 'sigmoid' has no state: it is no sum over features; use 'simple'"
            )
        return super().attention_state(x, batch, batch_size)

    def attention_scores(
        self, x: Tensor | PairTensor, edge_index: Adj, batch: Batch = None
    ) -> Tensor:
        r"""Returns the weight ``[E, H]``, :math:`S_{ij}`, that target :obj:`edge_index[1]` puts on
        source :obj:`edge_index[0]`, 0 across graphs."""
        if self.kernel == 'simple':
            return super().attention_scores(x, edge_index, batch)
        x_src, x_dst = (x, x) if isinstance(x, Tensor) else x
        self._check_sources(x_src)
        self._check_targets(x_dst)
        pairs = weighted_edges(edge_index, x_src.size(0), x_dst.size(0))[0]
        sources, targets = node_pair(batch, x_src.size(0), x_dst.size(0), None, x_dst.device)
        q, k = self.lin_query(x_dst), self.lin_key(x_src)
        _, maximum, total = sigmoid_attention(q, k, x_src[:, :0], self.heads, sources, targets)
        same_graph = (
            node_to_graph(sources, x_src.size(0))[pairs[0]]
            == node_to_graph(targets, x_dst.size(0))[pairs[1]]
        )
        return sigmoid_scores(q, k, maximum, total, self.heads, pairs, same_graph)

    def __repr__(self) -> str:
        sizes = (
            f'{self.in_channels}, {self.out_channels}, heads={self.heads}, kernel={self.kernel!r}'
        )
        return f'{self.__class__.__name__}({sizes})'
