# N nodes (N_s source, N_t target), E edges, H heads, C channels per head.
from typing import Literal, overload

import torch
from torch import Tensor
from torch.nn import Linear

from torch_geometric_lgt._arguments import check_flags
from torch_geometric_lgt.functional.inputs import LinearInput
from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edges import check_edge_weight, sorted_edges
from torch_geometric_lgt.nn._layers.attention_layer import AttentionLayer
from torch_geometric_lgt.nn._layers.input_checks import (
    check_devices,
    check_edge_attr,
    check_features,
    check_sizes,
    feature_pair,
)
from torch_geometric_lgt.nn._layers.linear_parts import linear_part, make_linear, remove_parts
from torch_geometric_lgt.nn._layers.neighbor_sum import NeighborSum
from torch_geometric_lgt.nn.conv._branch_outputs import (
    BranchInputs,
    branch_edge_scores,
    branch_output,
    branch_weight,
    check_jaccard,
    check_sampled_mask,
)
from torch_geometric_lgt.nn.conv._branches import (
    check_edge_channels,
    kernel_pair,
    make_branches,
    query_channels,
)
from torch_geometric_lgt.typing import Adj, PairTensor


class JaccardSubtractorConv(AttentionLayer):
    r"""Attends to the neighbours with the two branches of `"LiteGT: Efficient and Lightweight Graph
    Transformers" <https://doi.org/10.1145/3459637.3482272>`_.

    The first half of the heads uses a softmax for sampled nodes and the mean of the neighbours for
    other nodes (Eq. 3 and 4). The argument :obj:`sampled_mask` of :meth:`forward` marks the sampled
    nodes, as the attribute :obj:`attention_mask` from
    :class:`~torch_geometric_lgt.transforms.AttentionNodeSampling`; without it all nodes are
    sampled.

    .. math::
        \mathbf{x}^{\prime}_i = \sum_{j \in \mathcal{N}_i} \underset{j \in
            \mathcal{N}_i}{\mathrm{softmax}} \left(
        \frac{\mathbf{q}_i^{\top} \mathbf{k}_j}{\sqrt{C}} \right) \mathbf{v}_j
        \quad \text{or} \quad \frac{1}{|\mathcal{N}_i|} \sum_{j \in \mathcal{N}_i} \mathbf{v}_j,

    and the second half uses a cheaper kernel (Eq. 6)

    .. math::
        \mathbf{x}^{\prime}_i = \frac{\sum_{j \in \mathcal{N}_i} \kappa_{ij} \mathbf{v}_j}{\sum_{j
            \in \mathcal{N}_i} \kappa_{ij}}, \qquad
        \kappa_{ij} = \frac{|\mathcal{S}_i \cap \mathcal{S}_j|}{|\mathcal{S}_i \cup \mathcal{S}_j|}
            \quad \text{or} \quad
        \kappa_{ij} = \|\mathbf{q}_i - \mathbf{k}_j\|_1,

    the Jaccard index of the neighbourhoods (Eq. 7) or the subtractor (Eq. 8). The subtractor gives
    larger differences larger weights, as Eq. 8 does. Here :math:`C` is the number of channels per
    head, and :math:`\mathcal{N}_i` are the sources of the edges into :math:`i`.
    :math:`\mathcal{S}_i` is the set of neighbours that
    :class:`~torch_geometric_lgt.transforms.JaccardScores` counts, by default along edges in both
    directions and without :math:`i`. Queries, keys and scores are computed only for the nodes and
    edges that need them.

    With :obj:`edge_channels`, features :math:`\mathbf{e}_{ij}` of the edges multiply into the
    scores, channel by channel, as in the layer with edge features of `"A Generalization of
    Transformer Networks to Graphs" <https://arxiv.org/abs/2012.09699>`_,

    .. math::
        \mathbf{s}_{ij} = \frac{\mathbf{q}_i \odot \mathbf{k}_j}{\sqrt{C}} \odot \mathbf{W}_E
            \mathbf{e}_{ij}
        \quad \text{or} \quad
        \mathbf{s}_{ij} = \frac{|\mathbf{q}_i - \mathbf{k}_j|}{\sqrt{C}} \odot \mathbf{W}_E
            \mathbf{e}_{ij}.

    The logit of the softmax is the sum of :math:`\mathbf{s}_{ij}` over the channels of a head. The
    weight :math:`\kappa_{ij}` of the subtractor is then :math:`\|\mathbf{s}_{ij}\|_1`; its factor
    :math:`1 / \sqrt{C}`, which :math:`\kappa_{ij}` does not have without :obj:`edge_channels`,
    cancels unless ``normalize=False``. A node that is not sampled takes the plain mean. It has no
    query, so for the edges into it :obj:`return_edge_scores` returns :math:`\mathbf{s}_{ij} =
    \mathbf{W}_E \mathbf{e}_{ij}` in the heads with softmax.

    Edges run from :math:`j` to :math:`i`. Repeated edges count repeatedly in all heads, and self
    loops are not added. The weight of an edge multiplies its term before the normalisation: the
    exponential, the 1 of the mean, or :math:`\kappa_{ij}`. A node without neighbours gets 0.

    Differs from the paper, whose second branch is not normalised, see :obj:`normalize`. Differs
    from the authors' code, which clamps logits to :math:`[-5, 5]`, and which adds 1e-6 to each
    Jaccard index after the division by their sum. If all indices of a node are 0, its neighbours
    are averaged there, too. The paper has no equation for features of edges: the form here is that
    of the cited graph transformer, and the subtractor and the nodes that are not sampled are as in
    the authors' code.

    Args:
        in_channels (int or tuple): Size of each input sample, or a pair of the sizes of sources and
            targets; :obj:`-1` takes the size of the first input.
        out_channels (int): Size of each output sample, divided among the heads, unlike in
            :class:`torch_geometric.nn.GATConv`.
        heads (int, optional): Number of attention heads, an even one. (default: :obj:`8`)
        kernel (str or tuple, optional): Kernel of the second half of the heads, or a pair with the
            kernels of both halves: :obj:`"jaccard"`, :obj:`"subtractor"`, :obj:`"softmax"` or
            :obj:`"mean"`. The pair :obj:`("softmax", "softmax")` makes a graph transformer. The
            mask of sampled nodes changes the heads with a softmax only. (default:
            :obj:`"jaccard"`)
        concat (bool, optional): If :obj:`False`, every head has :obj:`out_channels` channels, and
            the heads are averaged. (default: :obj:`True`)
        normalize (bool, optional): If :obj:`True`, Jaccard and subtractor weights are divided by
            their sum over the neighbours. If this sum is 0, the neighbours are averaged. If
            :obj:`False`, the weights are not divided. (default: :obj:`True`)
        bias (bool, optional): If :obj:`False`, the linear maps of queries, keys and values have no
            bias. (default: :obj:`True`)
        edge_channels (int, optional): Size of the features of each edge. (default: :obj:`0`, none)

    Shapes:
        - **input:** node features :math:`(N, F_{in})`, or a pair :math:`((N_s, F_s), (N_t, F_t))`
          of sources and targets; edges; Jaccard indices :math:`(E)` for the kernel
          :obj:`"jaccard"`; mask of the sampled nodes :math:`(N_t)` *(optional)*; weights of
          the edges :math:`(E)` *(optional)*; features of the edges :math:`(E, F_e)` with
          :obj:`edge_channels`
        - **output:** node features :math:`(N_t, F_{out})`; with ``return_edge_scores=True`` a pair
          of these and of the scores :math:`\mathbf{s}_{ij}` :math:`(E, F_q)`, where :math:`F_q` is
          the number of channels of the heads with queries and keys: all channels if both kernels
          are :obj:`"softmax"` or :obj:`"subtractor"`, half of them if one is

    Raises:
        ValueError: If :obj:`heads` is odd or does not divide :obj:`out_channels`, a kernel is
            unknown, or :obj:`edge_channels` is positive without a softmax or subtractor.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_lgt.nn import JaccardSubtractorConv
        >>> from torch_geometric_lgt.transforms import AttentionNodeSampling, JaccardScores
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 0, 2, 3], [1, 0, 2, 1, 0, 2, 3, 2]])
        >>> data = Data(x=torch.randn(4, 16), edge_index=edge_index)
        >>> data = AttentionNodeSampling(factor=1)(JaccardScores()(data))
        >>> data.attention_mask
        tensor([ True, False, False,  True])
        >>> conv = JaccardSubtractorConv(16, 32, heads=4)
        >>> inputs = data.x, data.edge_index, data.edge_jaccard, data.attention_mask
        >>> conv(*inputs).shape
        torch.Size([4, 32])
        >>> into_1 = edge_index[1] == 1  # from 0 and 2, with the Jaccard indices 1/3 and 1/4
        >>> conv.attention_scores(*inputs)[into_1].detach()  # two heads each: mean, Jaccard
        tensor([[0.5000, 0.5000, 0.5714, 0.5714],
                [0.5000, 0.5000, 0.4286, 0.4286]])
    """

    attends_to_neighbors = True
    lin_value: Linear
    lin_edge: Linear | None

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 8,
        kernel: str | tuple[str, str] = 'jaccard',
        concat: bool = True,
        normalize: bool = True,
        bias: bool = True,
        edge_channels: int = 0,
    ) -> None:
        kernels = kernel_pair(kernel)
        check_sizes(heads=heads)
        check_flags(normalize=normalize)
        if heads % 2 != 0:
            raise ValueError(f"'heads' must be even: each branch has half of them (got {heads})")
        super().__init__(in_channels, out_channels, heads=heads, concat=concat, bias=bias)
        self.kernels = kernels
        self.normalize = normalize
        self.neighbor_sum = NeighborSum()
        self.branches = make_branches(kernels, heads, self.head_channels)
        channels = query_channels(kernels, heads * self.head_channels)
        if channels < heads * self.head_channels:
            sizes = {'lin_query': self.target_channels, 'lin_key': self.source_channels}
            for name, size in sizes.items():
                if channels > 0:
                    setattr(self, name, make_linear(size, channels, bias))
                else:
                    remove_parts(self, name)
        check_edge_channels(kernels, edge_channels)
        self.edge_channels = edge_channels
        self.lin_edge = None
        if edge_channels > 0:
            self.lin_edge = Linear(edge_channels, channels, bias)

    @overload
    def forward(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj | SortedEdges,
        edge_jaccard: Tensor | None = None,
        sampled_mask: Tensor | None = None,
        *,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        return_edge_scores: Literal[False] = False,
    ) -> Tensor: ...

    @overload
    def forward(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj | SortedEdges,
        edge_jaccard: Tensor | None = None,
        sampled_mask: Tensor | None = None,
        *,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        return_edge_scores: Literal[True],
    ) -> PairTensor: ...

    def forward(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj | SortedEdges,
        edge_jaccard: Tensor | None = None,
        sampled_mask: Tensor | None = None,
        *,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
        return_edge_scores: bool = False,
    ) -> Tensor | PairTensor:
        r"""Computes the output ``[N_t, F_out]`` of the targets, with :obj:`return_edge_scores` a
        pair of it and of the scores :math:`\mathbf{s}_{ij}` ``[E, F_q]`` of the heads with queries
        and keys.

        Values and scores of edges are in the order of :obj:`edge_index`.
        :class:`~torch_geometric_lgt.functional.SortedEdges` keep this order. For a sparse matrix
        they are in the order of its rows: by target, then by source.

        Args:
            x (torch.Tensor or tuple): The node features ``[N, F]``, or a pair of the features of
                sources and targets.
            edge_index (torch.Tensor or SparseTensor): The edges ``[2, E]``, or a sparse matrix
                whose rows are the targets, such as :obj:`adj_t`, or the result of
                :meth:`~torch_geometric_lgt.functional.sorted_edges`, which several layers over one
                graph can share.
            edge_jaccard (torch.Tensor, optional): The Jaccard index of each edge ``[E]``, from
                :class:`~torch_geometric_lgt.transforms.JaccardScores`. The Jaccard kernel needs it;
                others ignore it. (default: :obj:`None`)
            sampled_mask (torch.Tensor, optional): A bool for each target ``[N_t]``: :obj:`True`
                attends with softmax, :obj:`False` takes the mean of the neighbours. (default:
                :obj:`None`, all attend with softmax)
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]``. (default:
                :obj:`None`, the values of a sparse matrix, else 1)
            edge_attr (torch.Tensor, optional): The features of the edges ``[E, edge_channels]``,
                which a layer with :obj:`edge_channels` needs. (default: :obj:`None`)
            return_edge_scores (bool, optional): If :obj:`True`, the scores, before softmax and
                normalisation, are returned, too. The layer must have :obj:`edge_channels`.
                (default: :obj:`False`)

        Raises:
            TypeError: If :obj:`x`, :obj:`edge_index`, :obj:`edge_jaccard`, :obj:`sampled_mask` or
                :obj:`edge_attr` has another type.
            ValueError: If a shape, dtype or device does not fit the layer. If a weight is negative,
                infinite or NaN, :obj:`edge_jaccard` is missing for the Jaccard kernel or not from 0
                to 1, or :obj:`edge_attr` is missing with :obj:`edge_channels` or given without.
        """
        inputs = self._inputs(x, edge_index, edge_jaccard, sampled_mask, edge_weight)
        edge_scores = self._edge_scores(inputs, edge_attr)
        if return_edge_scores and edge_scores is None:
            raise ValueError(
                "'return_edge_scores' must be False for a layer with 'edge_channels' = 0 (got True)"
            )
        if self.neighbor_sum.explain or edge_scores is not None:
            weight, value = self._weights(inputs, edge_scores), self.lin_value(inputs.x_src)
            out = self.neighbor_sum(value, inputs.edges, weight, inputs.num_targets)
        else:
            value = self.lin_value(inputs.x_src).unflatten(1, (self.heads, -1))
            out = _joined(
                [
                    branch_output(branch, value, inputs, self.normalize, self.neighbor_sum)
                    for branch in self.branches
                ]
            )
        out = self._merge_heads(out)
        if edge_scores is None or not return_edge_scores:
            return out
        return out, edge_scores.to(out.dtype)

    def attention_scores(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj | SortedEdges,
        edge_jaccard: Tensor | None = None,
        sampled_mask: Tensor | None = None,
        *,
        edge_weight: Tensor | None = None,
        edge_attr: Tensor | None = None,
    ) -> Tensor:
        r"""Computes the attention weight ``[E, H]`` that :meth:`forward` gives each edge in each
        head, after all normalisation. The arguments and errors are those of :meth:`forward`."""
        inputs = self._inputs(x, edge_index, edge_jaccard, sampled_mask, edge_weight)
        return self._weights(inputs, self._edge_scores(inputs, edge_attr))

    def edge_scores(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj | SortedEdges,
        edge_jaccard: Tensor | None = None,
        sampled_mask: Tensor | None = None,
        *,
        edge_attr: Tensor,
    ) -> Tensor:
        r"""Computes the scores :math:`\mathbf{s}_{ij}` ``[E, F_q]`` that :meth:`forward` returns
        with :obj:`return_edge_scores`, without its output. The arguments are those of
        :meth:`forward`.

        Raises:
            ValueError: If the layer has no :obj:`edge_channels`, or as in :meth:`forward`.
        """
        inputs = self._inputs(x, edge_index, edge_jaccard, sampled_mask, None)
        edge_scores = self._edge_scores(inputs, edge_attr)
        if edge_scores is None:
            raise ValueError(
                "'edge_channels' must be positive in a layer with scores of edges (got 0)"
            )
        return edge_scores

    def query_scales(self) -> list[float]:
        r"""Returns the factor of queries and keys for each head that has them:
        :math:`C^{-1/4}` in heads with a softmax, whose logits are the inner products of queries and
        keys that are both multiplied by the factor, and 1 in heads with the subtractor.

        Example:
            >>> from torch_geometric_lgt.nn import JaccardSubtractorConv
            >>> conv = JaccardSubtractorConv(4, 4, heads=2, kernel=('softmax', 'subtractor'))
            >>> conv.query_scales()
            [0.8408964152537145, 1.0]
        """
        scales = {'softmax': self.head_channels**-0.25, 'subtractor': 1.0}
        return [
            scales[branch.kernel]
            for branch in self.branches
            if branch.has_queries
            for _ in range(branch.num_heads)
        ]

    def _weights(self, inputs: BranchInputs, edge_scores: Tensor | None) -> Tensor:
        r"""Computes the weight of each edge in each head ``[E, H]``, after all normalisation.
        :obj:`edge_scores` is the result of :meth:`_edge_scores`."""
        weights = [
            branch_weight(branch, inputs, self.normalize, edge_scores).expand(-1, branch.num_heads)
            for branch in self.branches
        ]
        return torch.cat(weights, 1)

    def _edge_scores(self, inputs: BranchInputs, edge_attr: Tensor | None) -> Tensor | None:
        r"""Computes the scores of the edges ``[E, F_q]`` in all branches with queries, or returns
        :obj:`None` for a layer without :obj:`edge_channels`.

        Raises:
            ValueError: If :obj:`edge_attr` is missing, not expected, or of another shape or device.
        """
        num_edges = inputs.edges.edge_index.size(1)
        x_dst = inputs.x_dst
        check_edge_attr(edge_attr, num_edges, self.edge_channels, 'layer')
        check_devices(x_dst.device, edge_attr=edge_attr)
        if self.lin_edge is None or edge_attr is None:
            return None
        features = self.lin_edge(edge_attr.to(x_dst.dtype))
        with_queries = (branch for branch in self.branches if branch.has_queries)
        return _joined([branch_edge_scores(each, inputs, features) for each in with_queries])

    def _check_targets(self, x: Tensor) -> None:
        if self.lin_query is not None:
            super()._check_targets(x)
        elif self.target_channels != -1:
            check_features(x, self.lin_value, self.target_channels)

    def _inputs(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj | SortedEdges,
        edge_jaccard: Tensor | None,
        sampled_mask: Tensor | None,
        edge_weight: Tensor | None,
    ) -> BranchInputs:
        r"""Checks the arguments of :meth:`forward` and returns what the branches read.

        Raises:
            ValueError: If an argument has a wrong shape, dtype or device, a weight is negative, or
                the Jaccard kernel has no indices.
        """
        x_src, x_dst = feature_pair(x)
        self._check_sources(x_src)
        self._check_targets(x_dst)
        check_devices(
            x_dst.device,
            edge_index=edge_index,
            edge_jaccard=edge_jaccard,
            sampled_mask=sampled_mask,
        )
        edges = sorted_edges(edge_index, x_src.size(0), x_dst.size(0), edge_weight=edge_weight)
        check_edge_weight(edges.weight)
        if 'jaccard' in self.kernels:
            check_jaccard(edge_jaccard, edges.edge_index.size(1))
        check_sampled_mask(sampled_mask, x_dst.size(0))
        if self.lin_query is None or self.lin_key is None:  # no kernel has queries
            queries, keys = LinearInput(x=x_dst[:, :0]), LinearInput(x=x_src[:, :0])
        else:
            queries, keys = linear_part(self.lin_query, x_dst), linear_part(self.lin_key, x_src)
        return BranchInputs(
            x_src=x_src,
            x_dst=x_dst,
            queries=queries,
            keys=keys,
            edges=edges,
            edge_jaccard=edge_jaccard,
            sampled_mask=sampled_mask,
        )

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.in_channels}, {self.out_channels}, '
            f'heads={self.heads}, kernels={self.kernels})'
        )


def _joined(outputs: list[Tensor]) -> Tensor:
    r"""Concatenates the outputs of branches along the channels."""
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)
