# N nodes (N_s source, N_t target), E pairs, H heads.
from typing import Any

from torch import Tensor

from torch_geometric_lgt._arguments import check_choice, check_flags, check_number
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.attention.kernel import node_pair
from torch_geometric_lgt.functional.attention.sigmoid import sigmoid_attention, sigmoid_scores
from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edges import sorted_edges, weighted_edges
from torch_geometric_lgt.functional.neighbors.neighbor_sum import symmetric_weight
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.functional.segment import count_graphs, node_to_graph
from torch_geometric_lgt.nn._layers.attention_layer import position_pair
from torch_geometric_lgt.nn._layers.input_checks import (
    check_devices,
    check_edge_index,
    check_unused,
    feature_pair,
    require_edges,
)
from torch_geometric_lgt.nn._layers.linear_layer import LinearLayer
from torch_geometric_lgt.nn._layers.neighbor_sum import NeighborSum
from torch_geometric_lgt.typing import Adj, Batch, PairTensor


class DIFFormerConv(LinearLayer):
    r"""Attends from each node to all nodes and to its neighbours, with the diffusion operator of
    `"DIFFormer: Scalable (Graph) Transformers Induced by Energy Constrained Diffusion"
    <https://arxiv.org/abs/2301.09474>`_.

    With ``use_graph=False`` **edges are ignored**, and the layer attends to all nodes alone.

    .. math::
        \mathbf{X}^{\prime} = \mathbf{S} \mathbf{V} + w \, \mathbf{D}_t^{-1/2} \mathbf{A}
            \mathbf{D}_s^{-1/2} \mathbf{V}, \qquad
        S_{ij} = \frac{f(\mathbf{q}_i, \mathbf{k}_j)}{\sum_l f(\mathbf{q}_i, \mathbf{k}_l)}

    over the nodes :math:`j` and :math:`l` of the graph that contains :math:`i`, with :math:`f = 1 +
    \tilde{\mathbf{q}}_i^{\top} \tilde{\mathbf{k}}_j` (:obj:`"simple"`, in :math:`O(N)`) or :math:`f
    = \sigma(\mathbf{q}_i^{\top} \mathbf{k}_j)` (:obj:`"sigmoid"`, in :math:`O(N^2)` time, memory
    :math:`O(N)`). No self loops are added, and repeated edges count repeatedly. Weights of edges
    are the entries of :math:`\mathbf{A}`, whose rows are targets. :math:`\mathbf{D}_t` and
    :math:`\mathbf{D}_s` hold the row and column sums of :math:`\mathbf{A}`. An edge counts 0 if one
    of its two sums is 0, and NaN if one is negative, as in :class:`torch_geometric.nn.GCNConv`. A
    node gets 0 from the attention if its graph has no source or its denominator is 0 up to rounding
    errors.

    Differs from the paper: queries and keys are learned linear maps of the input, as in the
    authors' code. So are the values unless ``value_projection=False``.

    Differs from the authors' code with several heads: here heads are concatenated and each has its
    own Frobenius norm (:obj:`norm`); there heads are averaged and share one norm. The published
    settings for node classification have one head. Differs from the authors' code with directed or
    weighted edges, too: there the degrees of both ends are in-degrees, which count edges.

    Args:
        in_channels (int or tuple): Size of each input sample, or a pair of the sizes of sources and
            targets; :obj:`-1` takes the size of the first input.
        out_channels (int): Size of each output sample, divided among the heads.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        kernel (str, optional): :obj:`"simple"` or :obj:`"sigmoid"`. (default: :obj:`"simple"`)
        norm (str, optional): Norm of the simple kernel: :math:`\tilde{\mathbf{q}}_i = \mathbf{q}_i
            / \|\mathbf{q}_i\|` (:obj:`"row"`, the paper's; likewise keys) or
            :math:`\tilde{\mathbf{Q}} = \mathbf{Q} / \|\mathbf{Q}\|_F` of each graph and head
            (:obj:`"frobenius"`, the authors' code). In a large graph the attention with Frobenius
            norms is close to the plain mean of the values, with a difference of order :math:`1 /
            N`. (default: :obj:`"row"`)
        use_graph (bool, optional): If :obj:`False`, the second term, over the edges, is left out.
            (default: :obj:`True`)
        graph_weight (float, optional): :math:`w`. (default: :obj:`1.0`)
        bias (bool, optional): If :obj:`False`, the linear maps of queries, keys and values have no
            bias. (default: :obj:`True`)
        value_projection (bool, optional): If :obj:`False`, the values are the input, as in the
            paper. (default: :obj:`True`)
        position_channels (int, optional): If positive, queries and keys are linear maps of
            positions of this size instead of the input: nodes attend by where they are, for
            example by a Laplacian encoding. (default: :obj:`0`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, or a pair :math:`((N_s, F_s), (N_t, F_t))`
          of sources and targets; edges if :obj:`use_graph` is set; batch vector, or a pair of them
          *(optional)*
        - **output:** node features :math:`(N_t, F_{out})`

    Raises:
        ValueError: If :obj:`heads` does not divide :obj:`out_channels`, :obj:`kernel` or
            :obj:`norm` is unknown. If ``value_projection=False`` comes with unequal
            :obj:`in_channels` and :obj:`out_channels`, or with :obj:`position_channels`.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.nn import DIFFormerConv
        >>> conv = DIFFormerConv(16, 32, heads=4)
        >>> x, edge_index = torch.randn(4, 16), torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
        >>> conv(x, edge_index).shape
        torch.Size([4, 32])
    """

    neighbor_sum: Any

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
        position_channels: int = 0,
    ) -> None:
        check_choice('kernel', kernel, ('simple', 'sigmoid'))
        check_flags(use_graph=use_graph)
        check_number('graph_weight', graph_weight)
        super().__init__(
            in_channels,
            out_channels,
            heads=heads,
            norm=norm,
            value_projection=value_projection,
            bias=bias,
            position_channels=position_channels,
        )
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
        position: Tensor | PairTensor | None = None,
    ) -> Tensor:
        r"""Computes the output ``[N_t, F_out]`` of the targets. Ignores :obj:`edge_index` with
        ``use_graph=False``.

        Args:
            x (torch.Tensor or tuple): The node features ``[N, F]``, or a pair of the features of
                sources and targets.
            edge_index (torch.Tensor or SparseTensor, optional): The edges ``[2, E]``, or a sparse
                matrix whose rows are the targets, such as :obj:`adj_t`, or
                :class:`~torch_geometric_lgt.functional.SortedEdges`. A layer with
                ``use_graph=False`` ignores them, and :obj:`degree`. (default: :obj:`None`)
            batch (torch.Tensor or tuple, optional): The graph id of each node, in any order, or a
                pair of such vectors for sources and targets. (default: :obj:`None`, one graph)
            batch_size (int, optional): The number of graphs. (default: :obj:`None`, one more than
                the largest graph id)
            state (AttentionState, optional): Sums over all keys of each graph, from
                :meth:`attention_state`. The attention then reads these sums, with their Frobenius
                norms, instead of the keys of :obj:`x`; the sum over edges does not change.
                (default: :obj:`None`)
            degree (torch.Tensor or tuple, optional): For a sampled subgraph, the degrees ``[N]`` in
                the full graph, or sums of edge weights; or a pair of the out-degrees of sources
                and the in-degrees of targets. A pair :obj:`x` needs such a pair, and so does a
                directed graph. (default: :obj:`None`, counted in the edges)
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]``. (default:
                :obj:`None`, the values of a sparse matrix, else 1)
            position (torch.Tensor or tuple, optional): The positions ``[N, position_channels]``,
                from which a layer with :obj:`position_channels` makes queries and keys, or a pair
                of those of sources and targets. (default: :obj:`None`)

        Raises:
            TypeError: If :obj:`x`, :obj:`edge_index`, :obj:`batch`, :obj:`state` or :obj:`position`
                has another type.
            ValueError: If a shape, dtype or device does not fit the layer, or edges are missing. If
                :obj:`degree` is not positive for a node with edges. If the sigmoid kernel gets a
                :obj:`state` or more than :math:`2^{33}` pairs of nodes. If edges have weights in a
                sparse matrix and in :obj:`edge_weight`, or :obj:`edge_weight` is given with
                ``use_graph=False``. If :obj:`position` is missing in a layer with
                :obj:`position_channels`, or given to another one.
        """
        batch_size = count_graphs(batch, batch_size, state)
        check_edge_index(edge_index)
        if not self.use_graph:
            check_unused(edge_weight, 'with use_graph=False')
        if self.kernel == 'sigmoid' and state is not None:
            raise ValueError(
                "'state' must be None with the sigmoid kernel, which has none; use kernel='simple'"
            )
        x_src, x_dst = feature_pair(x)
        self._check_sources(x_src)
        if self.kernel == 'simple' and not self.use_graph:
            return self._attend((x_src, x_dst), batch, batch_size, state, position=position)
        value = self.project_values(x_src)
        if self.kernel == 'simple':
            out = self._attend(
                (x_src, x_dst), batch, batch_size, state, value=value, position=position
            )
        else:
            self._check_targets(x_dst)
            graphs = node_pair(batch, x_src.size(0), x_dst.size(0), batch_size, x_dst.device)
            q, k = self._query_and_key(x_src, x_dst, position)
            out = sigmoid_attention(q, k, value, self.heads, *graphs)[0]
        if not self.use_graph:
            return out
        return out + self._sum_over_edges(value, x_dst, edge_index, degree, edge_weight)

    def _sum_over_edges(
        self,
        value: Tensor,
        x_dst: Tensor,
        edge_index: Adj | SortedEdges | None,
        degree: Tensor | PairTensor | None,
        edge_weight: Tensor | None,
    ) -> Tensor:
        r"""Computes the sums ``[N_t, F_out]`` of the values ``[N_s, F_out]`` of neighbours, with
        the weights of GCN times :obj:`graph_weight`. The other arguments are those of
        :meth:`forward`."""
        fix = 'for attention alone make the layer with use_graph=False'
        edge_index = require_edges(edge_index, fix)
        check_devices(x_dst.device, edge_index=edge_index, degree=degree)
        sizes = value.size(0), x_dst.size(0)
        edges = sorted_edges(edge_index, *sizes, edge_weight=edge_weight)
        weight = self.graph_weight * symmetric_weight(
            edges.edge_index, *sizes, compute_dtype(value.dtype), degree, edges.weight
        )
        return self.neighbor_sum(value, edges, weight, sizes[1])

    def _query_and_key(
        self, x_src: Tensor, x_dst: Tensor, position: Tensor | PairTensor | None
    ) -> tuple[Tensor, Tensor]:
        p_src, p_dst = position_pair(position)
        return (
            self.lin_query(self._key_input(x_dst, p_dst)),
            self.lin_key(self._key_input(x_src, p_src)),
        )

    def attention_state(
        self,
        x: Tensor,
        batch: Tensor | None = None,
        batch_size: int | None = None,
        *,
        position: Tensor | None = None,
    ) -> AttentionState:
        r"""Builds the state of each graph: the sums over the keys of all its nodes, whose features
        are :obj:`x`. Give it to :meth:`forward` in place of keys. Arguments have the meaning they
        have in :meth:`SGFormerConv.attention_state`.

        Raises:
            ValueError: If the kernel is :obj:`"sigmoid"`, which cannot be computed from such sums.
        """
        if self.kernel == 'sigmoid':
            raise ValueError(
                f"'kernel' must be 'simple' for an attention state (got {self.kernel!r}, which "
                'cannot be computed from sums over the keys)'
            )
        return super().attention_state(x, batch, batch_size, position=position)

    def attention_scores(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj,
        batch: Batch = None,
        *,
        position: Tensor | PairTensor | None = None,
    ) -> Tensor:
        r"""Computes the attention weight :math:`S_{ij}`, ``[P, H]``, of each pair of nodes: the
        share of source ``edge_index[0]`` in the attention's output at target ``edge_index[1]``.

        The pairs :obj:`edge_index` ``[2, P]`` need not be edges. The weight of a pair in different
        graphs is 0. The sum over the edges with the factor :math:`w` is not included. The other
        arguments are those of :meth:`forward`."""
        if self.kernel == 'simple':
            return super().attention_scores(x, edge_index, batch, position=position)
        x_src, x_dst = feature_pair(x)
        self._check_sources(x_src)
        self._check_targets(x_dst)
        pairs = weighted_edges(edge_index, x_src.size(0), x_dst.size(0))[0]
        sources, targets = node_pair(batch, x_src.size(0), x_dst.size(0), None, x_dst.device)
        q, k = self._query_and_key(x_src, x_dst, position)
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
