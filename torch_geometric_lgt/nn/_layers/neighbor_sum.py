# N nodes (N_s source, N_t target), E edges, H heads, C channels per head.
from torch import Tensor
from torch_geometric.nn import MessagePassing

from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.neighbor_sum import neighbor_sum, scaled_weight


class NeighborSum(MessagePassing):
    r"""Sums the rows of the sources of all edges into each target, times the weights of the edges.

    As a message passing layer it receives the edge mask of PyG's explainers, one factor for each
    edge. The mask multiplies the weights after all normalisation."""

    def forward(
        self,
        x: Tensor,
        edges: Tensor | SortedEdges,
        weight: Tensor,
        num_targets: int,
        edge_mask: Tensor | None = None,
    ) -> Tensor:
        r"""Computes the weighted sums ``[N_t, H * C]`` over the edges into each target.

        Args:
            x (torch.Tensor): The rows of the sources ``[N_s, H * C]``.
            edges (torch.Tensor or SortedEdges): The edges, sources and targets ``[2, E]``.
            weight (torch.Tensor): The weights of the edges, ``[E, 1]`` or ``[E, H]``.
            num_targets (int): :math:`N_t`.
            edge_mask (torch.Tensor, optional): A factor ``[E]`` for each edge in place of the
                explainer's mask, if :obj:`edges` are not the edges of the explained graph.
                (default: :obj:`None`, the explainer's mask)
        """
        mask = explained_edges(self, weight.size(0)) if edge_mask is None else edge_mask
        return neighbor_sum(x, edges, scaled_weight(weight, mask), num_targets)


def explained_edges(layer: MessagePassing, num_edges: int) -> Tensor | None:
    r"""Returns the edge mask ``[E]`` that a PyG explainer has set for :obj:`layer`, after its
    sigmoid, or :obj:`None` if no explanation is running.

    Raises:
        ValueError: If the mask does not have :obj:`num_edges` entries.
    """
    if not layer.explain:
        return None
    mask = layer._edge_mask
    if mask is None or mask.shape != (num_edges,):
        shape = None if mask is None else tuple(mask.shape)
        raise ValueError(
            f'the mask of an explanation must have shape ({num_edges},), a number for each '
            f'edge (got {shape})'
        )
    return mask.sigmoid() if layer._apply_sigmoid else mask
