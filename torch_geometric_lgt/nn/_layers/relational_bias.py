# N nodes, E edges, H heads, C channels per head, P orders.
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.utils import scatter

from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edges import sorted_edges, weighted_edges
from torch_geometric_lgt.functional.neighbors.hops import first_hop, hops, weighted_hop
from torch_geometric_lgt.functional.neighbors.neighbor_sum import degree_pair, symmetric_weight
from torch_geometric_lgt.functional.numerics import compute_dtype, widest_dtype
from torch_geometric_lgt.functional.tracing import may_read_values
from torch_geometric_lgt.nn._layers.input_checks import is_hop_list
from torch_geometric_lgt.nn._layers.neighbor_sum import NeighborSum, explained_edges
from torch_geometric_lgt.typing import Adj, PairTensor


class RelationalBias(torch.nn.Module):
    r"""Computes NodeFormer's relational bias, a weighted sum over the neighbours of each node.

    Neighbours of order :math:`p` are the nodes from which a path of :math:`p` edges leads to the
    node. Their sum is multiplied by a learned weight for each order and head.

    Args:
        order (int): :math:`P`, the number of orders.
        heads (int): :math:`H`.
        source (str): What is summed: :obj:`"value"`, the values with the weights of GCN, or
            :obj:`"output"`, the outputs of the attention with weight 1. With :obj:`"value"` each
            node is its own neighbour, and paths of fewer than :math:`p` edges count too.
        weight (str): :obj:`"sigmoid"` or :obj:`"identity"`, the function of the learned weights
            ``[P, H]``.
    """

    def __init__(self, order: int, heads: int, source: str, weight: str) -> None:
        super().__init__()
        self.order, self.source, self.kind = order, source, weight
        self.weight = Parameter(torch.empty(order, heads))
        self.neighbor_sum = NeighborSum()
        self.reset_parameters()

    def reset_parameters(self) -> None:
        r"""Sets all weights to the initial value of the authors' code, 0.1 before the sigmoid or 1
        without it."""
        torch.nn.init.constant_(self.weight, 0.1 if self.kind == 'sigmoid' else 1.0)

    def forward(
        self,
        value: Tensor,
        out: Tensor,
        edge_index: Adj | Sequence[Adj | SortedEdges] | None,
        degree: Tensor | PairTensor | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""Computes the bias ``[N, H * C]`` that is added to the output of the attention.

        Args:
            value (torch.Tensor): The values of the sources ``[N_s, H * C]``.
            out (torch.Tensor): The output of the attention ``[N, H * C]``.
            edge_index (torch.Tensor or list): The edges of the graph, or a list with the edges of
                each order as :meth:`hops` returns it.
            degree (torch.Tensor or tuple, optional): For a part of a graph, the degrees in the
                whole graph, ``[N]`` or a pair (sources, targets). They count distinct neighbours
                without the node itself, or sum their weights. (default: :obj:`None`, counted in the
                edges)
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]``. (default:
                :obj:`None`)
        """
        x = value if self.source == 'value' else out
        weight = self.weight.sigmoid() if self.kind == 'sigmoid' else self.weight
        total = torch.zeros_like(out)
        heads = weight.size(1)
        degree = None if degree is None else self._degree(degree)
        mask = None
        if self.neighbor_sum.explain:
            edge_index, mask = self._explained(edge_index, x.size(0), out.size(0), edge_weight)
            edge_weight = None
        sizes, dtype = (x.size(0), out.size(0)), compute_dtype(x.dtype)
        orders = self.hops(edge_index, *sizes, edge_weight)
        for edges, head_weight in zip(orders, weight, strict=True):
            edge_weights = self._weights(edges, sizes, degree, dtype)
            order_sum = self.neighbor_sum(x, edges, edge_weights, sizes[1], mask)
            by_head = order_sum.unflatten(1, (heads, -1)) * head_weight[:, None]
            total = total + by_head.flatten(1)
        return total

    def hops(
        self,
        edge_index: Adj | Sequence[Adj | SortedEdges] | None,
        num_src: int,
        num_dst: int,
        edge_weight: Tensor | None = None,
    ) -> list[SortedEdges]:
        r"""Returns one set of sorted edges for each order :math:`p`, the pairs of nodes that
        :math:`p` edges connect.

        A list :obj:`edge_index` of such edges is sorted and returned, without repeated edges. Edge
        weights exist for the first order only, see :meth:`weighted_hop`.

        Args:
            edge_index (torch.Tensor or list): The edges of the graph, or a list with the edges of
                each order.
            num_src (int): The number of sources.
            num_dst (int): The number of targets; with the edges of a graph it equals
                :obj:`num_src`.
            edge_weight (torch.Tensor, optional): The weights ``[E]`` of the edges of the graph.
                (default: :obj:`None`)

        Raises:
            ValueError: If :obj:`edge_index` is :obj:`None`, or a list of another length than the
                number of orders, or a list beside weights.
        """
        if edge_index is None:
            raise ValueError(
                f"'edge_index' must be given for the relational bias of order {self.order}; for "
                'attention alone make the layer with relational_order=0'
            )
        if not is_hop_list(edge_index):
            edges, weight = weighted_edges(edge_index, num_src, num_src, edge_weight)
            if weight is not None:
                edges, weight = self.weighted_hop(edges, num_src, weight)
                return [sorted_edges(edges, num_src, num_dst, backward=True, edge_weight=weight)]
            self_loops = self.source == 'value'
            if self.order == 1:
                return [_distinct_edges(edges, num_src, num_dst, self_loops)]
            orders = hops(edges, num_src, self.order, self_loops)
            return [sorted_edges(pairs, num_src, num_dst, backward=True) for pairs in orders]
        if edge_weight is not None:
            raise ValueError(
                "'edge_weight' must be None where 'edge_index' is a list; give the weights to "
                "'hops', which makes such lists"
            )
        if len(edge_index) != self.order:
            raise ValueError(
                f"'edge_index' must hold the edges of {self.order} orders (got {len(edge_index)})"
            )
        return [_edges_of_order(edges, num_src, num_dst) for edges in edge_index]

    def weighted_hop(
        self, edge_index: Tensor, num_nodes: int, weight: Tensor
    ) -> tuple[Tensor, Tensor]:
        r"""Returns the edges ``[2, E']`` of the first order and their weights ``[E']``.

        If :math:`k` edges lead from one node to another, the weight of each is divided by
        :math:`k`: together they have the mean weight. With the source :obj:`"value"` a self loop of
        weight 1 is appended for each node, and self loops among the edges get 0.

        Raises:
            ValueError: If the bias has more than one order. With the source :obj:`"value"`, also if
                a self loop among the edges has another weight than 1.
        """
        if self.order > 1:
            raise ValueError(
                "'relational_order' must be 1 with weights of edges: they say nothing of longer "
                f'walks (got {self.order})'
            )
        adds_loops = self.source == 'value'
        is_loop = edge_index[0] == edge_index[1]
        if adds_loops and may_read_values() and bool((weight[is_loop] != 1).any()):
            raise ValueError(
                "'edge_weight' must be 1 for self loops with relational_input='value', in which "
                'each node is its own neighbour with the weight 1; leave self loops out'
            )
        return weighted_hop(edge_index, num_nodes, adds_loops, weight)

    def _explained(
        self,
        edge_index: Adj | Sequence[Adj | SortedEdges] | None,
        num_src: int,
        num_dst: int,
        edge_weight: Tensor | None,
    ) -> tuple[list[SortedEdges], Tensor]:
        r"""Prepares an explanation: returns a list with the edges of the first order, and the
        explainer's mask for them ``[E']``.

        The edges are those of :meth:`weighted_hop`: all edges of the graph in their order, one
        entry of the mask each, and then appended self loops, whose entry is 1.

        Raises:
            ValueError: If the bias has more than one order, :obj:`edge_index` is a list, or sources
                and targets differ in number.
        """
        if self.order > 1 or is_hop_list(edge_index) or num_src != num_dst:
            raise ValueError(
                "'relational_order' must be 1, and 'edge_index' the graph, for a mask of edges to "
                'explain, which says nothing of longer walks '
                f'(got {self.order} and {type(edge_index).__name__})'
            )
        edges, weight = weighted_edges(edge_index, num_src, num_src, edge_weight)
        mask = cast(Tensor, explained_edges(self.neighbor_sum, edges.size(1)))
        if weight is None:
            weight = torch.ones_like(mask, dtype=widest_dtype(mask.device))
        pairs, weight = self.weighted_hop(edges, num_src, weight)
        mask = torch.cat([mask, mask.new_ones(pairs.size(1) - edges.size(1))])
        return [sorted_edges(pairs, num_src, num_dst, backward=True, edge_weight=weight)], mask

    def _degree(self, degree: Tensor | PairTensor) -> PairTensor:
        if self.order > 1 and self.source == 'value':
            raise ValueError(
                f"'degree' must be None with a relational bias of order {self.order}: it says "
                'nothing of longer walks'
            )
        # each node is a neighbour of itself
        out_degree, in_degree = degree_pair(degree)
        return out_degree + 1, in_degree + 1

    def _weights(
        self,
        edges: SortedEdges,
        sizes: tuple[int, int],
        degree: Tensor | PairTensor | None,
        dtype: torch.dtype,
    ) -> Tensor:
        r"""Computes the weights ``[E, 1]`` of the edges of one order, before the learned ones, for
        :obj:`sizes`, the numbers of sources and targets. Where an edge is repeated, only the one
        that :meth:`_distinct_edges` marks counts."""
        counted = None if edges.first is None else edges.first.to(dtype)
        if self.source == 'output':
            weight = counted if edges.weight is None else edges.weight.to(dtype)
            if weight is None:
                weight = torch.ones_like(edges.edge_index[0], dtype=dtype)
            return weight[:, None]
        if counted is not None and degree is None:
            source, target = (
                scatter(counted, ids, 0, size, 'sum')
                for ids, size in zip(edges.edge_index, sizes, strict=True)
            )
            degree = source, target
        weight = symmetric_weight(edges.edge_index, *sizes, dtype, degree, edges.weight)
        return weight if counted is None else weight * counted[:, None]


def _edges_of_order(edge_index: Adj | SortedEdges, num_src: int, num_dst: int) -> SortedEdges:
    r"""Returns the sorted edges of one order for an entry of a list that the caller made. Repeated
    edges count once, or have their mean weight; :class:`SortedEdges` stay as they are."""
    if isinstance(edge_index, SortedEdges):
        return sorted_edges(edge_index, num_src, num_dst)
    edges, weight = weighted_edges(edge_index, num_src, num_dst)
    if weight is None:
        return _distinct_edges(edges, num_src, num_dst, self_loops=False)
    edges, weight = weighted_hop(edges, num_src, self_loops=False, weight=weight)
    return sorted_edges(edges, num_src, num_dst, backward=True, edge_weight=weight)


def _distinct_edges(
    edge_index: Tensor, num_src: int, num_dst: int, self_loops: bool
) -> SortedEdges:
    r"""Returns the distinct edges of :obj:`edge_index` ``[2, E]``, with :obj:`self_loops` also a
    self loop of each node, sorted by target and by source. Compiled code, which cannot drop edges,
    marks the first of equal ones."""
    if torch.compiler.is_compiling():
        pairs, first = first_hop(edge_index, num_src, self_loops)
        return sorted_edges(pairs, num_src, num_dst, backward=True)._replace(first=first)
    (pairs,) = hops(edge_index, num_src, 1, self_loops)
    return sorted_edges(pairs, num_src, num_dst, backward=True)
