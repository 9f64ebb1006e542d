# N nodes (N_s source, N_t target), E edges, H heads of a branch, C channels per head.
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional.inputs import LinearInput
from torch_geometric_lgt.functional.neighbors.edge_attention import (
    edge_attention,
    edge_distances,
    edge_logits,
)
from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edge_scores import edge_scores
from torch_geometric_lgt.functional.neighbors.edge_weights import (
    mean_weight,
    row_normalized,
    softmax_weight,
)
from torch_geometric_lgt.functional.neighbors.neighbor_sum import scaled_weight
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.functional.tracing import may_read_values
from torch_geometric_lgt.nn._layers.input_checks import check_tensor
from torch_geometric_lgt.nn._layers.neighbor_sum import NeighborSum
from torch_geometric_lgt.nn.conv._branches import Branch


@dataclass(frozen=True, kw_only=True)
class BranchInputs:
    r"""Collects what the branches of a layer read.

    Attributes:
        x_src (torch.Tensor): The features of the sources ``[N_s, F_s]``.
        x_dst (torch.Tensor): The features of the targets ``[N_t, F_t]``.
        queries (LinearInput): The linear part of the queries in all branches.
        keys (LinearInput): The linear part of the keys in all branches.
        edges (SortedEdges): The edges, with weights if there are any.
        edge_jaccard (torch.Tensor, optional): The Jaccard index of each edge ``[E]``.
        sampled_mask (torch.Tensor, optional): Bools ``[N_t]``, the targets with a softmax;
            :obj:`None` means all.
    """

    x_src: Tensor
    x_dst: Tensor
    queries: LinearInput
    keys: LinearInput
    edges: SortedEdges
    edge_jaccard: Tensor | None
    sampled_mask: Tensor | None

    @property
    def num_targets(self) -> int:
        return self.x_dst.size(0)

    @property
    def dtype(self) -> torch.dtype:
        r"""Returns the dtype of the weights of edges."""
        return compute_dtype(self.x_dst.dtype)


def check_jaccard(edge_jaccard: Tensor | None, num_edges: int) -> None:
    r"""Raises an error unless :obj:`edge_jaccard` is a tensor with an index from 0 to 1 for each of
    the :obj:`num_edges` edges. The range is not checked in code that is compiled, captured or
    transformed by :mod:`torch.func`."""
    if edge_jaccard is None:
        raise ValueError(
            "'edge_jaccard' must be given for the Jaccard kernel; add it to the data with "
            'JaccardScores()'
        )
    check_tensor(edge_jaccard, 'edge_jaccard')
    if edge_jaccard.numel() != num_edges:
        raise ValueError(
            f"'edge_jaccard' must hold one index for each of {num_edges} edges (got "
            f'{tuple(edge_jaccard.shape)})'
        )
    if num_edges == 0 or not may_read_values(edge_jaccard):
        return
    least, most = map(float, edge_jaccard.detach().aminmax())  # in one pass
    if not 0 <= least <= most <= 1:
        raise ValueError(
            f"'edge_jaccard' must be from 0 to 1 (got {least:g} to {most:g}); give weights of "
            "edges as 'edge_weight', and apply JaccardScores after transforms that merge edges"
        )


def check_sampled_mask(sampled_mask: Tensor | None, num_targets: int) -> None:
    r"""Raises an error unless :obj:`sampled_mask` is :obj:`None` or a tensor with a bool for each
    of the :obj:`num_targets` targets."""
    if sampled_mask is None:
        return
    check_tensor(sampled_mask, 'sampled_mask')
    if sampled_mask.dtype != torch.bool or sampled_mask.shape != (num_targets,):
        raise ValueError(
            f"'sampled_mask' must be a bool for each of {num_targets} nodes (got "
            f'{sampled_mask.dtype}, {tuple(sampled_mask.shape)}); '
            f'make it with AttentionNodeSampling()'
        )


def branch_output(
    branch: Branch,
    value: Tensor,
    inputs: BranchInputs,
    normalize: bool,
    neighbor_sum: NeighborSum,
) -> Tensor:
    r"""Computes the output ``[N_t, H * C]`` of a branch from the values of all heads,
    ``[N_s, H', C]``. A softmax is that of sampled targets; others get the mean of the neighbours.

    Args:
        branch (Branch): The branch.
        value (torch.Tensor): The values.
        inputs (BranchInputs): What the branches of the layer read.
        normalize (bool): If :obj:`False`, weights of Jaccard and subtractor are not divided by
            their sum.
        neighbor_sum (NeighborSum): Adds up the weighted values of the neighbours.
    """
    v = value[:, branch.heads].flatten(1)
    edges, num_targets = inputs.edges, inputs.num_targets
    if branch.kernel != 'softmax':
        weight = branch_weight(branch, inputs, normalize)
        return neighbor_sum(v, edges, weight, num_targets)
    queries, keys = branch.select(inputs.queries), branch.select(inputs.keys)
    mask = inputs.sampled_mask
    attention = edge_attention(queries, keys, v, edges, mask, branch.num_heads)
    if mask is None:
        return attention
    dtype = compute_dtype(v.dtype)
    weight = mean_weight(edges.edge_index, num_targets, dtype, mask, edges.weight)
    return attention + neighbor_sum(v, edges, weight, num_targets)


def branch_edge_scores(branch: Branch, inputs: BranchInputs, edge_features: Tensor) -> Tensor:
    r"""Computes the scores :math:`\mathbf{s}_{ij}` ``[E, H * C]`` of edges with features in a
    branch with queries. :obj:`edge_features` are the projected features in all branches."""
    is_softmax = branch.kernel == 'softmax'
    return edge_scores(
        branch.select(inputs.queries),
        branch.select(inputs.keys),
        edge_features[:, branch.channels],
        inputs.edges.edge_index,
        inputs.sampled_mask if is_softmax else None,
        branch.num_heads,
        not is_softmax,
    )


def branch_weight(
    branch: Branch, inputs: BranchInputs, normalize: bool, scores: Tensor | None = None
) -> Tensor:
    r"""Computes the weights ``[E, H]`` of the edges in a branch after all normalisation, or
    ``[E, 1]`` if all heads have the same.

    Args:
        branch (Branch): The branch.
        inputs (BranchInputs): What the branches of the layer read.
        normalize (bool): If :obj:`False`, weights of Jaccard and subtractor are not divided by
            their sum.
        scores (torch.Tensor, optional): The scores of edges with features in all branches with
            queries.
    """
    edge_index, edge_weight = inputs.edges.edge_index, inputs.edges.weight
    if branch.kernel == 'mean':
        return mean_weight(edge_index, inputs.num_targets, inputs.dtype, edge_weight=edge_weight)
    kernel_value = _kernel_value(branch, inputs, scores)
    if branch.kernel == 'softmax':
        return _sampled_softmax(kernel_value, inputs)
    if normalize:
        return row_normalized(kernel_value, edge_index, inputs.num_targets, edge_weight)
    return scaled_weight(kernel_value, edge_weight)


def _kernel_value(branch: Branch, inputs: BranchInputs, scores: Tensor | None) -> Tensor:
    r"""Computes the logits of a softmax, the distances of the subtractor, both ``[E, H]``, or the
    Jaccard indices ``[E, 1]``, before any normalisation. The arguments are those of
    :meth:`branch_weight`."""
    is_softmax = branch.kernel == 'softmax'
    if branch.kernel == 'jaccard':
        return cast(Tensor, inputs.edge_jaccard).to(inputs.dtype).view(-1, 1)
    if scores is not None:
        by_head = scores[:, branch.channels].unflatten(1, (branch.num_heads, -1))
        return by_head.sum(2) if is_softmax else by_head.abs().sum(2)
    q, k = branch.output(inputs.queries), branch.output(inputs.keys)
    if is_softmax:
        return edge_logits(k, q, inputs.edges, branch.num_heads)
    return edge_distances(k, q, inputs.edges.edge_index, branch.num_heads)


def _sampled_softmax(logits: Tensor, inputs: BranchInputs) -> Tensor:
    r"""Computes the softmax of :obj:`logits` ``[E, H]`` over the edges into each sampled target,
    and equal weights over the edges into each other target."""
    edge_index, edge_weight = inputs.edges.edge_index, inputs.edges.weight
    weight = softmax_weight(logits, edge_index, inputs.num_targets, edge_weight)
    if inputs.sampled_mask is None:
        return weight
    mean = mean_weight(edge_index, inputs.num_targets, weight.dtype, edge_weight=edge_weight)
    return torch.where(inputs.sampled_mask[edge_index[1], None], weight, mean)
