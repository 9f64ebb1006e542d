# N nodes (N_s source, N_t target), E edges, H heads, C channels per head.
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import linear

from torch_geometric_lgt.functional.neighbors.edge_attention import (
    edge_attention,
    edge_distances,
    edge_softmax,
    mean_weight,
    row_normalized,
)
from torch_geometric_lgt.functional.neighbors.edges import (
    SortedEdges,
    check_not_negative,
    sorted_edges,
)
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.nn._attention_layer import AttentionLayer, check_devices, check_features
from torch_geometric_lgt.nn._neighbor_sum import NeighborSum
from torch_geometric_lgt.nn._parts import linear_part, make_linear
from torch_geometric_lgt.typing import Adj, PairTensor

KERNELS, SCORED = ('softmax', 'jaccard', 'subtractor', 'mean'), ('softmax', 'subtractor')


Part = tuple[Tensor, Tensor | None, Tensor | None]


class JaccardSubtractorConv(AttentionLayer):
    r"""The two-branch attention over the neighbours from the `"LiteGT: Efficient and Lightweight
    Graph Transformers" <https://doi.org/10.1145/3459637.3482272>`_ paper: the first half of the
    heads have a softmax kernel on the edges into the nodes that were sampled beforehand, and a
    plain mean elsewhere (Eq. 3 and 4)

    .. math::
        \mathbf{x}^{\prime}_i = \sum_{j \in \mathcal{N}_i} \underset{j \in
            \mathcal{N}_i}{\mathrm{softmax}} \left(
        \frac{\mathbf{q}_i^{\top} \mathbf{k}_j}{\sqrt{C}} \right) \mathbf{v}_j
        \quad \text{or} \quad \frac{1}{|\mathcal{N}_i|} \sum_{j \in \mathcal{N}_i} \mathbf{v}_j,

    the second half a kernel that is cheaper (Eq. 6)

    .. math::
        \mathbf{x}^{\prime}_i = \frac{\sum_{j \in \mathcal{N}_i} s_{ij} \mathbf{v}_j}{\sum_{j \in
            \mathcal{N}_i} s_{ij}}, \qquad
        s_{ij} = \frac{|\mathcal{N}_i \cap \mathcal{N}_j|}{|\mathcal{N}_i \cup \mathcal{N}_j|}
            \quad \text{or} \quad
        s_{ij} = \|\mathbf{q}_i - \mathbf{k}_j\|_1,

    the Jaccard index of the neighbourhoods (Eq. 7), to be computed by
    :class:`~torch_geometric_lgt.transforms.JaccardScores`, or the subtractor (Eq. 8). Queries, keys
    and scores are computed for the nodes and edges that need them only.

    Edges run from :math:`j` to :math:`i`; those that occur again count again, self loops count
    where they are given. The weight of an edge, if there is one, multiplies its exponential, its
    share of the mean, or its :math:`s_{ij}`, before they are normalised. A node without neighbours
    gets 0. Differs from the paper: its weights of the second branch are not normalised, see
    :obj:`normalize`; from the authors' code, which clamps logits to :math:`[-5, 5]` and divides by
    a sum that is 0 for a node without a triangle.

    Args:
        in_channels (int or tuple): Size of each input sample, or those of sources and targets;
            :obj:`-1` takes that of the first input.
        out_channels (int): Size of each output sample, over all heads.
        heads (int, optional): Number of attention heads, an even one. (default: :obj:`8`)
        kernel (str or tuple, optional): Kernel of the second half, :obj:`"jaccard"` or
            :obj:`"subtractor"`, or those of both halves, of which :obj:`"softmax"` and
            :obj:`"mean"` are others: :obj:`("softmax", "softmax")` is the graph transformer.
            (default: :obj:`"jaccard"`)
        concat (bool, optional): If :obj:`False`, every head has :obj:`out_channels` channels, and
            the heads are averaged. (default: :obj:`True`)
        normalize (bool, optional): If :obj:`True`, Jaccard and subtractor weights are divided by
            their sum over the neighbours; where it is 0, the neighbours have equal weights. If
            :obj:`False`, they are taken as they are. (default: :obj:`True`)
        bias (bool, optional): If :obj:`False`, the linear parts have no bias. (default:
            :obj:`True`)

    Shapes:
        - **input:** node features :math:`(N, F_{in})` or the pair :math:`((N_s, F_s), (N_t, F_t))`;
          edges; Jaccard indices :math:`(E)`; mask of the sampled nodes :math:`(N_t)` *(optional)*;
          weights of the edges :math:`(E)` *(optional)*
        - **output:** node features :math:`(N_t, F_{out})`

    Raises:
        ValueError: If :obj:`heads` is odd or does not divide :obj:`out_channels`, a kernel is
            unknown, or a weight is negative.
    """

    lin_value: Linear

    def __init__(
        self,
        in_channels: int | tuple[int, int],
        out_channels: int,
        heads: int = 8,
        kernel: str | tuple[str, str] = 'jaccard',
        concat: bool = True,
        normalize: bool = True,
        bias: bool = True,
    ) -> None:
        kernels = ('softmax', kernel) if isinstance(kernel, str) else tuple(kernel)
        if len(kernels) != 2 or any(name not in KERNELS for name in kernels):
            raise ValueError(
                f"'kernel' must be one or two of {', '.join(map(repr, KERNELS))} (got {kernel!r})"
            )
        if heads % 2 != 0:
            raise ValueError(f"'heads' must be even: each branch has half of them (got {heads})")
        super().__init__(in_channels, out_channels, heads, concat, True, bias)
        self.kernels, self.normalize, self.neighbor_sum = kernels, normalize, NeighborSum()
        scored = sum(name in SCORED for name in kernels) * heads // 2
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

    def forward(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj | SortedEdges,
        edge_jaccard: Tensor | None = None,
        sampled_mask: Tensor | None = None,
        *,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""Runs the layer. :obj:`edge_jaccard` holds an index for each edge, those of a sparse
        matrix row by row, and so does :obj:`edge_weight` its weights (default: the values of a
        sparse matrix); without :obj:`sampled_mask` all nodes attend. Several layers over one graph
        can share its ``sorted_edges``."""
        x_src, x_dst, edges, edge_jaccard = self._inputs(
            x, edge_index, edge_jaccard, sampled_mask, edge_weight
        )
        if self.neighbor_sum.explain:
            weight = self._weights(x_src, x_dst, edges, edge_jaccard, sampled_mask)
            return self._heads_merged(
                self.neighbor_sum(self.lin_value(x_src), edges, weight, x_dst.size(0))
            )
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
                parts = _evaluated(query, scored), _evaluated(key, scored)
                out.append(
                    self.neighbor_sum(
                        v,
                        edges,
                        self._weight(kernel, *parts, edges, edge_jaccard, x_dst),
                        x_dst.size(0),
                    )
                )
        return self._heads_merged(out[0] if len(out) == 1 else torch.cat(out, 1))

    def attention_scores(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj | SortedEdges,
        edge_jaccard: Tensor | None = None,
        sampled_mask: Tensor | None = None,
        *,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""The weight ``[E, H]`` of each edge, as :meth:`forward` applies it."""
        x_src, x_dst, edges, edge_jaccard = self._inputs(
            x, edge_index, edge_jaccard, sampled_mask, edge_weight
        )
        return self._weights(x_src, x_dst, edges, edge_jaccard, sampled_mask)

    def _weights(
        self,
        x_src: Tensor,
        x_dst: Tensor,
        edges: SortedEdges,
        edge_jaccard: Tensor,
        sampled_mask: Tensor | None,
    ) -> Tensor:
        r"""``[E, H]``: the weights of all heads."""
        edge_index, out = edges.edge_index, []
        query, key = self._queries_and_keys(x_src, x_dst)
        for kernel, heads, scored in self._branches():
            count, q, k = (
                heads.stop - heads.start,
                _evaluated(query, scored),
                _evaluated(key, scored),
            )
            if kernel == 'softmax':
                weight = edge_softmax(k, q, edge_index, count, edges.weight)
                if sampled_mask is not None:
                    mean = mean_weight(
                        edge_index, x_dst.size(0), weight.dtype, edge_weight=edges.weight
                    )
                    weight = torch.where(sampled_mask[edge_index[1], None], weight, mean)
            else:
                weight = self._weight(kernel, q, k, edges, edge_jaccard, x_dst)
            out.append(weight.expand(-1, count))
        return torch.cat(out, 1)

    def _branches(self) -> Iterator[tuple[str, slice, slice]]:
        r"""The kernel of each branch, its heads, and the rows of :obj:`lin_query` and
        :obj:`lin_key` that belong to it. Two branches of one kernel are one."""
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

    def _queries_and_keys(self, x_src: Tensor, x_dst: Tensor) -> tuple[Part, Part]:
        r"""Input, weight and bias of queries and keys; the input alone if no kernel needs them."""
        if self.lin_query is None or self.lin_key is None:
            return (x_dst[:, :0], None, None), (x_src[:, :0], None, None)
        return linear_part(self.lin_query, x_dst), linear_part(self.lin_key, x_src)

    def _weight(
        self,
        kernel: str,
        q: Tensor,
        k: Tensor,
        edges: SortedEdges,
        edge_jaccard: Tensor,
        x_dst: Tensor,
    ) -> Tensor:
        r"""``[E, 1]`` or ``[E, H / 2]``: the weights of a kernel other than the softmax."""
        edge_index, num_targets, dtype = edges.edge_index, x_dst.size(0), compute_dtype(x_dst.dtype)
        if kernel == 'mean':
            return mean_weight(edge_index, num_targets, dtype, edge_weight=edges.weight)
        heads = q.size(1) // self.head_channels
        score = (
            edge_jaccard.to(dtype).view(-1, 1)
            if kernel == 'jaccard'
            else edge_distances(k, q, edge_index, heads)
        )
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
        r"""Sources, targets, edges and their Jaccard indices, 0 for a layer without the Jaccard
        kernel."""
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
        check_not_negative(edges.weight)
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


def _rows(part: Part, rows: slice) -> Part:
    r"""The part of a linear part that makes some of its outputs."""
    x, weight, bias = part
    return (
        (x[:, rows], None, None)
        if weight is None
        else (x, weight[rows], None if bias is None else bias[rows])
    )


def _evaluated(part: Part, rows: slice) -> Tensor:
    x, weight, bias = _rows(part, rows)
    return x if weight is None else linear(x, weight, bias)
