# N nodes (N_s source, N_t target), E edges, H heads, C channels per head.
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import Linear

from torch_geometric_lgt.functional.inputs import LinearInput
from torch_geometric_lgt.functional.neighbors.edge_attention import (
    edge_attention,
    edge_distances,
    edge_logits,
    mean_weight,
    row_normalized,
    softmax_weight,
)
from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edge_scores import edge_scores
from torch_geometric_lgt.functional.neighbors.edges import check_edge_weight, sorted_edges
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.nn._layers import input_checks
from torch_geometric_lgt.nn._layers.attention_layer import AttentionLayer
from torch_geometric_lgt.nn._layers.input_checks import (
    check_devices,
    check_edge_attr,
    check_features,
)
from torch_geometric_lgt.nn._layers.linear_parts import linear_part, make_linear
from torch_geometric_lgt.nn._layers.neighbor_sum import NeighborSum
from torch_geometric_lgt.typing import Adj, PairTensor

KERNELS = ('softmax', 'jaccard', 'subtractor', 'mean')
SCORED = ('softmax', 'subtractor')  # the kernels with queries and keys


class JaccardSubtractorConv(AttentionLayer):
    r"""Attends to the neighbours with the two branches of `"LiteGT: Efficient and Lightweight Graph
    Transformers" <https://doi.org/10.1145/3459637.3482272>`_.

    The first half of the heads uses a softmax for sampled nodes and the mean of the neighbours for
    other nodes (Eq. 3 and 4). The mask :obj:`sampled_mask`, from
    :class:`~torch_geometric_lgt.transforms.AttentionNodeSampling`, marks the sampled nodes; without
    it all nodes are sampled.

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
    weight of the subtractor is the sum of the absolute values of :math:`\mathbf{s}_{ij}`, whose
    factor :math:`1 / \sqrt{C}` Eq. 8 lacks; it cancels unless ``normalize=False``. A node that is
    not sampled takes the plain mean. It has no query, so for the edges into it
    :obj:`return_edge_scores` returns :math:`\mathbf{s}_{ij} = \mathbf{W}_E \mathbf{e}_{ij}` in the
    heads with softmax.

    Edges run from :math:`j` to :math:`i`. Repeated edges count repeatedly, and self loops are not
    added. The weight of an edge multiplies its term before the normalisation: the exponential, the
    1 of the mean, or :math:`\kappa_{ij}`. A node without neighbours gets 0.

    Differs from the paper, whose second branch is not normalised, see :obj:`normalize`. Differs
    from the authors' code, which clamps logits to :math:`[-5, 5]` and divides by a sum that is 0
    for a node without a triangle. The paper has no equation for features of edges. The form here is
    that of the cited graph transformer; the subtractor and the nodes that are not sampled follow
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
          of these and of the scores :math:`\mathbf{s}_{ij}` :math:`(E, F_s)`, where :math:`F_s` is
          the number of channels of the heads with queries and keys

    Raises:
        ValueError: If :obj:`heads` is odd or does not divide :obj:`out_channels`, a kernel is
            unknown, :obj:`edge_channels` is positive without a softmax or subtractor, or a weight
            is negative.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_lgt.nn import JaccardSubtractorConv
        >>> from torch_geometric_lgt.transforms import AttentionNodeSampling, JaccardScores
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
        >>> data = Data(x=torch.randn(3, 16), edge_index=edge_index)
        >>> data = AttentionNodeSampling()(JaccardScores()(data))
        >>> conv = JaccardSubtractorConv(16, 32, heads=4)
        >>> conv(data.x, data.edge_index, data.edge_jaccard, data.attention_mask).shape
        torch.Size([3, 32])
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
        if heads % 2 != 0:
            raise ValueError(f"'heads' must be even: each branch has half of them (got {heads})")
        super().__init__(in_channels, out_channels, heads=heads, concat=concat, bias=bias)
        self.kernels, self.normalize, self.neighbor_sum = kernels, normalize, NeighborSum()
        scored = score_channels(kernels, heads)
        if scored < heads:
            for name, channels in (
                ('lin_query', self.target_channels),
                ('lin_key', self.source_channels),
            ):
                self.register_module(
                    name,
                    make_linear(channels, scored * self.head_channels, bias)
                    if scored > 0
                    else None,
                )
        check_edge_channels(kernels, edge_channels)
        self.edge_channels, self.lin_edge = edge_channels, None
        if edge_channels > 0:
            self.lin_edge = Linear(edge_channels, scored * self.head_channels, bias)

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
        r"""Computes the output ``[N_t, F_out]`` of the targets, with
        :obj:`return_edge_scores` a pair of it and of the scores :math:`\mathbf{s}_{ij}`
        ``[E, F_s]`` of the heads with queries and keys.

        Values and scores of edges are in the order of :obj:`edge_index`, also if it is sorted
        (:class:`~torch_geometric_lgt.functional.SortedEdges`). Those of a sparse matrix are in the
        order of its rows.

        Args:
            x (torch.Tensor or tuple): The node features ``[N, F]``, or a pair of the features of
                sources and targets.
            edge_index (torch.Tensor or SparseTensor): The edges, or the result of
                :meth:`~torch_geometric_lgt.functional.sorted_edges`, which several layers over one
                graph can share.
            edge_jaccard (torch.Tensor, optional): The Jaccard index of each edge ``[E]``, needed by
                the Jaccard kernel only. (default: :obj:`None`)
            sampled_mask (torch.Tensor, optional): A bool for each target ``[N_t]``: :obj:`True`
                attends with softmax, :obj:`False` takes the mean of the neighbours. (default:
                :obj:`None`, all attend with softmax)
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]``. (default:
                :obj:`None`, the values of a sparse matrix, else 1)
            edge_attr (torch.Tensor, optional): The features of the edges ``[E, edge_channels]``.
                (default: :obj:`None`)
            return_edge_scores (bool, optional): If :obj:`True`, the scores are returned, too. The
                layer must have :obj:`edge_channels`. (default: :obj:`False`)
        """
        x_src, x_dst, edges, edge_jaccard = self._inputs(
            x, edge_index, edge_jaccard, sampled_mask, edge_weight
        )
        score = self._edge_scores(x_src, x_dst, edges, sampled_mask, edge_attr)
        if return_edge_scores and score is None:
            raise ValueError(
                "'return_edge_scores' must be False for a layer with 'edge_channels' = 0 (got True)"
            )
        if self.neighbor_sum.explain or score is not None:
            weight = self._weights(x_src, x_dst, edges, edge_jaccard, sampled_mask, score)
            out = self._merge_heads(
                self.neighbor_sum(self.lin_value(x_src), edges, weight, x_dst.size(0))
            )
            if score is None or not return_edge_scores:
                return out
            return out, score.to(out.dtype)
        query, key = self._queries_and_keys(x_src, x_dst)
        value, out = self.lin_value(x_src).unflatten(1, (self.heads, -1)), []
        for kernel, heads, scored in self._branches():
            v = value[:, heads].flatten(1)
            if kernel == 'softmax':
                parts = _rows(query, scored), _rows(key, scored)
                out.append(edge_attention(*parts, v, edges, sampled_mask, heads.stop - heads.start))
                if sampled_mask is None:
                    continue
                weight = mean_weight(
                    edges.edge_index,
                    x_dst.size(0),
                    compute_dtype(v.dtype),
                    sampled_mask,
                    edges.weight,
                )
                out[-1] = out[-1] + self.neighbor_sum(v, edges, weight, x_dst.size(0))
            else:
                score = self._pair_scores(kernel, query, key, scored, edges, edge_jaccard)
                weight = self._weight(kernel, score, edges, x_dst)
                out.append(self.neighbor_sum(v, edges, weight, x_dst.size(0)))
        return self._merge_heads(out[0] if len(out) == 1 else torch.cat(out, 1))

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
        r"""Computes the weight ``[E, H]`` that :meth:`forward` gives each edge in each head, after
        all normalisation. The arguments are those of :meth:`forward`."""
        x_src, x_dst, edges, edge_jaccard = self._inputs(
            x, edge_index, edge_jaccard, sampled_mask, edge_weight
        )
        score = self._edge_scores(x_src, x_dst, edges, sampled_mask, edge_attr)
        return self._weights(x_src, x_dst, edges, edge_jaccard, sampled_mask, score)

    def _edge_scores(
        self,
        x_src: Tensor,
        x_dst: Tensor,
        edges: SortedEdges,
        sampled_mask: Tensor | None,
        edge_attr: Tensor | None,
    ) -> Tensor | None:
        r"""Computes the scores of the edges ``[E, F_s]`` in all heads with queries and keys, or
        returns :obj:`None` for a layer without :obj:`edge_channels`.

        Raises:
            ValueError: If :obj:`edge_attr` is missing, not expected, or of another shape or device.
        """
        check_edge_attr(edge_attr, edges.edge_index.size(1), self.edge_channels, 'layer')
        check_devices(x_dst.device, edge_attr=edge_attr)
        if self.lin_edge is None or edge_attr is None:
            return None
        query, key = self._queries_and_keys(x_src, x_dst)
        value, out = self.lin_edge(edge_attr.to(x_dst.dtype)), []
        for kernel, heads, scored in self._branches():
            if kernel in SCORED:
                is_softmax = kernel == 'softmax'
                out.append(
                    edge_scores(
                        _rows(query, scored),
                        _rows(key, scored),
                        value[:, scored],
                        edges.edge_index,
                        sampled_mask if is_softmax else None,
                        heads.stop - heads.start,
                        not is_softmax,
                    )
                )
        return out[0] if len(out) == 1 else torch.cat(out, 1)

    def _weights(
        self,
        x_src: Tensor,
        x_dst: Tensor,
        edges: SortedEdges,
        edge_jaccard: Tensor,
        sampled_mask: Tensor | None,
        score: Tensor | None,
    ) -> Tensor:
        r"""Computes the weight of each edge in each head ``[E, H]``, the heads of the first branch
        before the heads of the second. The arguments are checked already, see :meth:`_inputs`;
        :obj:`score` is the result of :meth:`_edge_scores`."""
        edge_index, out = edges.edge_index, []
        query, key = self._queries_and_keys(x_src, x_dst)
        for kernel, heads, scored in self._branches():
            pair_score = self._pair_scores(kernel, query, key, scored, edges, edge_jaccard, score)
            if kernel == 'softmax':
                weight = softmax_weight(pair_score, edge_index, x_dst.size(0), edges.weight)
                if sampled_mask is not None:
                    mean = mean_weight(
                        edge_index, x_dst.size(0), weight.dtype, edge_weight=edges.weight
                    )
                    weight = torch.where(sampled_mask[edge_index[1], None], weight, mean)
            else:
                weight = self._weight(kernel, pair_score, edges, x_dst)
            out.append(weight.expand(-1, heads.stop - heads.start))
        return torch.cat(out, 1)

    def _pair_scores(
        self,
        kernel: str,
        query: LinearInput,
        key: LinearInput,
        scored: slice,
        edges: SortedEdges,
        edge_jaccard: Tensor,
        score: Tensor | None = None,
    ) -> Tensor:
        r"""Computes the scores of the edges in one branch before any normalisation, ``[E, H / 2]``
        (or ``[E, H]`` for both branches), or ``[E, 1]`` if they are the same for all heads.

        These are the logits of the softmax, the Jaccard indices, the distances of the subtractor,
        or 1 for the mean. :obj:`scored` are the channels of the branch in queries and keys;
        :obj:`score` is the result of :meth:`_edge_scores`."""
        if kernel not in SCORED:
            index = edge_jaccard if kernel == 'jaccard' else torch.ones_like(edge_jaccard)
            return index.to(compute_dtype(query.x.dtype)).view(-1, 1)
        if score is not None:
            by_head = score[:, scored].unflatten(1, (-1, self.head_channels))
            return by_head.sum(2) if kernel == 'softmax' else by_head.abs().sum(2)
        q, k = _outputs(query, scored), _outputs(key, scored)
        compute = edge_logits if kernel == 'softmax' else edge_distances
        return compute(k, q, edges.edge_index, q.size(1) // self.head_channels)

    def _branches(self) -> Iterator[tuple[str, slice, slice]]:
        r"""Yields for each branch its kernel, the slice of its heads, and the slice of its output
        channels in :obj:`lin_query` and :obj:`lin_key`.

        The last slice is empty for a kernel without queries and keys. Two branches with the same
        kernel are yielded as one."""
        half, start, scored = self.heads // 2, 0, 0
        alike = self.kernels[0] == self.kernels[1]
        for kernel in self.kernels[: 1 if alike else 2]:
            count = self.heads if alike else half
            rows = count * self.head_channels if kernel in SCORED else 0
            yield kernel, slice(start, start + count), slice(scored, scored + rows)
            start, scored = start + count, scored + rows

    def _check_targets(self, x: Tensor) -> None:
        if self.lin_query is not None:
            super()._check_targets(x)
        elif self.target_channels != -1:
            check_features(x, self.lin_value, self.target_channels)

    def _queries_and_keys(self, x_src: Tensor, x_dst: Tensor) -> tuple[LinearInput, LinearInput]:
        r"""Returns the linear parts of queries and keys, which are computed later. Both have 0
        channels if no kernel needs queries."""
        if self.lin_query is None or self.lin_key is None:
            return LinearInput(x=x_dst[:, :0]), LinearInput(x=x_src[:, :0])
        return linear_part(self.lin_query, x_dst), linear_part(self.lin_key, x_src)

    def _weight(
        self,
        kernel: str,
        score: Tensor,
        edges: SortedEdges,
        x_dst: Tensor,
    ) -> Tensor:
        r"""Computes the normalised weights of the edges for a kernel other than the softmax.

        Args:
            kernel (str): :obj:`"mean"`, :obj:`"jaccard"` or :obj:`"subtractor"`.
            score (torch.Tensor): The result of :meth:`_pair_scores`, ``[E, 1]`` or ``[E, H']``.
            edges (SortedEdges): The edges.
            x_dst (torch.Tensor): The features of the targets, for their number and dtype.

        Returns:
            The shape of :obj:`score`
        """
        edge_index, num_targets, dtype = edges.edge_index, x_dst.size(0), compute_dtype(x_dst.dtype)
        if kernel == 'mean':
            return mean_weight(edge_index, num_targets, dtype, edge_weight=edges.weight)
        if self.normalize:
            return row_normalized(score, edge_index, num_targets, edges.weight)
        return score if edges.weight is None else score * edges.weight.to(dtype)[:, None]

    def _inputs(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj | SortedEdges,
        edge_jaccard: Tensor | None,
        sampled_mask: Tensor | None,
        edge_weight: Tensor | None,
    ) -> tuple[Tensor, Tensor, SortedEdges, Tensor]:
        r"""Checks the arguments of :meth:`forward` and returns (source features, target features,
        sorted edges, Jaccard indices ``[E]``).

        The Jaccard indices are 0 if :obj:`edge_jaccard` is :obj:`None` and no kernel needs it.

        Raises:
            ValueError: If an argument has a wrong shape, dtype or device, a weight is negative, or
                the Jaccard kernel has no indices.
        """
        x_src, x_dst = (x, x) if isinstance(x, Tensor) else x
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
        num_edges = edges.edge_index.size(1)
        if 'jaccard' in self.kernels:
            if edge_jaccard is None:
                raise ValueError(
                    "'edge_jaccard' must be given for the Jaccard kernel; add it to the data with "
                    'JaccardScores()'
                )
            if edge_jaccard.numel() != num_edges:
                raise ValueError(
                    f"'edge_jaccard' must hold one index for each of {num_edges} edges (got "
                    f'{tuple(edge_jaccard.shape)})'
                )
        if sampled_mask is not None and (
            sampled_mask.dtype != torch.bool or sampled_mask.shape != x_dst.shape[:1]
        ):
            raise ValueError(
                f"'sampled_mask' must be a bool for each of {x_dst.size(0)} nodes (got "
                f'{sampled_mask.dtype}, {tuple(sampled_mask.shape)}); '
                f'make it with AttentionNodeSampling()'
            )
        return (
            x_src,
            x_dst,
            edges,
            x_src.new_zeros(num_edges) if edge_jaccard is None else edge_jaccard,
        )

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.in_channels}, {self.out_channels}, '
            f'heads={self.heads}, kernels={self.kernels})'
        )


def kernel_pair(kernel: str | tuple[str, str]) -> tuple[str, str]:
    r"""Returns the kernels of both halves of the heads; a name stands for the second half beside a
    softmax.

    Raises:
        ValueError: If there are not two kernels, or one is unknown.
    """
    kernels = ('softmax', kernel) if isinstance(kernel, str) else tuple(kernel)
    if len(kernels) != 2 or any(name not in KERNELS for name in kernels):
        raise ValueError(
            f"'kernel' must be one or two of {', '.join(map(repr, KERNELS))} (got {kernel!r})"
        )
    return kernels


def score_channels(kernels: tuple[str, str], size: int) -> int:
    r"""Returns the part of :obj:`size`, heads or channels over all heads, whose half of the heads
    has queries and keys."""
    return sum(name in SCORED for name in kernels) * size // 2


def check_edge_channels(kernels: tuple[str, str], edge_channels: int) -> None:
    r"""Raises a ValueError if the size :obj:`edge_channels` of the features of edges is negative,
    or positive for kernels without scores that the features could multiply."""
    input_checks.check_not_negative(edge_channels=edge_channels)
    if edge_channels > 0 and score_channels(kernels, 2) == 0:
        raise ValueError(
            f"'edge_channels' must be 0 for kernels without queries and keys, {kernels} (got "
            f'{edge_channels})'
        )


def _rows(part: LinearInput, rows: slice) -> LinearInput:
    r"""Selects the output channels :obj:`rows` of a linear part."""
    if part.weight is None:
        return LinearInput(x=part.x[:, rows])
    bias = None if part.bias is None else part.bias[rows]
    return LinearInput(x=part.x, weight=part.weight[rows], bias=bias)


def _outputs(part: LinearInput, rows: slice) -> Tensor:
    r"""Computes the output channels :obj:`rows` of a linear part, in at least single precision:
    rounded queries and keys would give the difference of close numbers the wrong sign, and the
    distance of the subtractor a gradient of the wrong sign."""
    with torch.autocast(part.x.device.type, enabled=False):
        return _rows(part, rows).output()
