# N nodes (N_s source, N_t target), E edges, H heads of a branch, C channels per head.
from dataclasses import dataclass
from typing import NamedTuple, cast

import torch
from torch import Tensor

from torch_geometric_lgt._arguments import check_choice
from torch_geometric_lgt.functional.inputs import LinearInput
from torch_geometric_lgt.functional.neighbors.edge_attention import (
    edge_distances,
    edge_logits,
    mean_weight,
    row_normalized,
    softmax_weight,
)
from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.functional.neighbors.edge_scores import edge_scores
from torch_geometric_lgt.functional.numerics import compute_dtype, without_autocast
from torch_geometric_lgt.nn._layers.input_checks import check_not_negative

KERNELS = ('softmax', 'jaccard', 'subtractor', 'mean')
KERNELS_WITH_QUERIES = ('softmax', 'subtractor')


class Branch(NamedTuple):
    r"""Describes consecutive heads with the same kernel.

    Attributes:
        kernel (str): A kernel in :obj:`KERNELS`.
        heads (slice): The heads of the branch among all heads.
        channels (slice): The channels of the branch in queries and keys, none for a kernel without
            queries.
        num_heads (int): :math:`H`.
    """

    kernel: str
    heads: slice
    channels: slice
    num_heads: int

    @property
    def has_queries(self) -> bool:
        return self.kernel in KERNELS_WITH_QUERIES

    def select(self, part: LinearInput) -> LinearInput:
        r"""Selects the channels of the branch from the linear part :obj:`part` of all queries or
        keys, which is that of the branch if no other has any."""
        if self.channels == slice(0, part.channels(1)):
            return part
        if part.weight is None:
            return LinearInput(x=part.x[:, self.channels])
        bias = None if part.bias is None else part.bias[self.channels]
        return LinearInput(x=part.x, weight=part.weight[self.channels], bias=bias)

    def output(self, part: LinearInput) -> Tensor:
        r"""Computes the queries or keys of the branch, ``[N, H * C]``, in at least single
        precision. Rounded ones would give the difference of close numbers the wrong sign, and the
        distance of the subtractor a gradient of the wrong sign."""
        with without_autocast(part.x.device.type):
            return self.select(part).output()


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


def kernel_pair(kernel: str | tuple[str, str]) -> tuple[str, str]:
    r"""Returns the kernels of both halves of the heads; a name stands for the second half beside a
    softmax.

    Raises:
        ValueError: If there are not two kernels, or one is unknown.
    """
    kernels = ('softmax', kernel) if isinstance(kernel, str) else tuple(kernel)
    if len(kernels) != 2:
        raise ValueError(
            f"'kernel' must be one or two of {', '.join(map(repr, KERNELS))} (got {kernel!r})"
        )
    for name in kernels:
        check_choice('kernel', name, KERNELS, ', or two of them')
    return kernels


def query_channels(kernels: tuple[str, str], channels: int) -> int:
    r"""Returns how many of the :obj:`channels` of all heads belong to kernels with queries."""
    return sum(name in KERNELS_WITH_QUERIES for name in kernels) * channels // 2


def make_branches(kernels: tuple[str, str], heads: int, head_channels: int) -> tuple[Branch, ...]:
    r"""Splits the :obj:`heads` of a layer, with :obj:`head_channels` each, into branches. Each
    kernel has half of the heads; twice the same kernel is one branch."""
    kernels_of_branches = dict.fromkeys(kernels)
    num_heads = heads // len(kernels_of_branches)
    out = []
    stop = 0
    for index, kernel in enumerate(kernels_of_branches):
        start = stop
        stop += num_heads * head_channels if kernel in KERNELS_WITH_QUERIES else 0
        branch_heads = slice(index * num_heads, (index + 1) * num_heads)
        out.append(Branch(kernel, branch_heads, slice(start, stop), num_heads))
    return tuple(out)


def check_edge_channels(kernels: tuple[str, str], edge_channels: int) -> None:
    r"""Raises a ValueError if the size :obj:`edge_channels` of the features of edges is negative,
    or positive for kernels without scores that the features could multiply."""
    check_not_negative(edge_channels=edge_channels)
    if edge_channels > 0 and query_channels(kernels, 2) == 0:
        raise ValueError(
            f"'edge_channels' must be 0 for kernels without queries and keys, {kernels} (got "
            f'{edge_channels})'
        )


def check_jaccard(edge_jaccard: Tensor | None, num_edges: int) -> None:
    r"""Raises a ValueError unless :obj:`edge_jaccard` has an index for each of the :obj:`num_edges`
    edges."""
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


def check_sampled_mask(sampled_mask: Tensor | None, num_targets: int) -> None:
    r"""Raises a ValueError unless :obj:`sampled_mask` is :obj:`None` or has a bool for each of the
    :obj:`num_targets` targets."""
    if sampled_mask is not None and (
        sampled_mask.dtype != torch.bool or sampled_mask.shape != (num_targets,)
    ):
        raise ValueError(
            f"'sampled_mask' must be a bool for each of {num_targets} nodes (got "
            f'{sampled_mask.dtype}, {tuple(sampled_mask.shape)}); '
            f'make it with AttentionNodeSampling()'
        )


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
    if edge_weight is None:
        return kernel_value
    return kernel_value * edge_weight.to(inputs.dtype)[:, None]


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
