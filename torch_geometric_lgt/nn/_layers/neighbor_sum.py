# N nodes (N_s source, N_t target), E edges, H heads, C channels per head.
from torch import Tensor
from torch_geometric.nn import MessagePassing

from torch_geometric_lgt.functional.neighbors.edges import SortedEdges
from torch_geometric_lgt.functional.neighbors.neighbor_sum import neighbor_sum


class NeighborSum(MessagePassing):
    r"""Sums the values of the neighbours, see
    :meth:`~torch_geometric_lgt.functional.neighbors.neighbor_sum.neighbor_sum`.

    As a message passing layer it receives the edge masks of PyG's explainers. The mask multiplies
    the weight of an edge after all normalisation."""

    def forward(
        self,
        x: Tensor,
        edges: Tensor | SortedEdges,
        weight: Tensor,
        num_targets: int,
        edge_mask: Tensor | None = None,
    ) -> Tensor:
        r"""Returns the sums ``[N_t, H * C]``. A mask :obj:`edge_mask` ``[E]`` replaces the mask of
        an explainer if :obj:`edges` differ from the edges that the explainer has."""
        mask = self.edge_mask(weight.size(0)) if edge_mask is None else edge_mask
        if mask is not None:
            weight = weight * mask[:, None].to(weight.dtype)
        return neighbor_sum(x, edges, weight, num_targets)

    def edge_mask(self, num_edges: int) -> Tensor | None:
        r"""Returns the mask ``[E]`` of an explainer, :obj:`None` outside explanations.

        Raises:
            ValueError: If the mask belongs to other edges.
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
