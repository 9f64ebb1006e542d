# N nodes (N_s source, N_t target), E edges, H heads, C channels per head.
from torch import Tensor
from torch_geometric.nn import MessagePassing

from torch_geometric_lgt.functional.neighbors.edges import SortedEdges
from torch_geometric_lgt.functional.neighbors.neighbor_sum import neighbor_sum


class NeighborSum(MessagePassing):
    r"""Sums up the neighbours, see
    :meth:`~torch_geometric_lgt.functional.neighbors.neighbor_sum.neighbor_sum`. As a layer of
    message passing it gets the masks of PyG's explainers: the mask of an edge multiplies what comes
    over the edge, after all normalisation."""

    def forward(
        self,
        x: Tensor,
        edges: Tensor | SortedEdges,
        weight: Tensor,
        num_targets: int,
        edge_mask: Tensor | None = None,
    ) -> Tensor:
        r"""``[N_t, H * C]``; :obj:`edge_mask` ``[E]`` stands in for the mask of an explainer where
        :obj:`edges` are not those it sees."""
        mask = self.edge_mask(weight.size(0)) if edge_mask is None else edge_mask
        return neighbor_sum(
            x,
            edges,
            weight if mask is None else weight * mask[:, None].to(weight.dtype),
            num_targets,
        )

    def edge_mask(self, num_edges: int) -> Tensor | None:
        r"""The mask ``[E]`` of an explainer, :obj:`None` where nothing is explained.

        Raises:
            ValueError: If the mask is one of other edges.
        """
        if not self.explain:
            return None
        mask = self._edge_mask
        if mask is None or mask.shape != (num_edges,):
            shape = None if mask is None else tuple(mask.shape)
            raise ValueError(
                f'the mask of an explanation must have shape ({num_edges},), a number for each '
                f'edge (got {shape})'
            )
        return mask.sigmoid() if self._apply_sigmoid else mask
