r"""Normalises the weights of edges over the edges into each target."""

# N_t targets, E edges, H heads.
import torch
from torch import Tensor
from torch_geometric.utils import scatter, softmax

from torch_geometric_lgt.functional._engine.arguments import Arguments, Size
from torch_geometric_lgt.functional._engine.custom_op import operator
from torch_geometric_lgt.functional.neighbors.edge_rows import rows_of
from torch_geometric_lgt.functional.neighbors.edge_sums import centered, softmax_over
from torch_geometric_lgt.functional.neighbors.neighbor_sum import scaled_weight, weighted_degree
from torch_geometric_lgt.functional.numerics import has_kernels, inverse_of, largest_power
from torch_geometric_lgt.functional.tracing import is_tracing
from torch_geometric_lgt.typing import Differentiable


class SoftmaxArguments(Arguments):
    r"""Holds the arguments of the operator behind :meth:`softmax_weight`."""

    logits: Differentiable
    edge_index: Tensor
    num_targets: Size


def softmax_weight(
    logits: Tensor, edge_index: Tensor, num_targets: int, edge_weight: Tensor | None = None
) -> Tensor:
    r"""Computes the softmax of :obj:`logits` ``[E, H]`` over the edges into each target. The
    weights :obj:`edge_weight` ``[E]`` multiply the exponentials."""
    if edge_weight is None:
        if has_kernels(logits) and not is_tracing():
            arguments = SoftmaxArguments(
                logits=logits, edge_index=edge_index, num_targets=num_targets
            )
            return _edge_softmax(arguments)
        return softmax(logits, edge_index[1], num_nodes=num_targets)
    share = softmax_share(logits, edge_index[1], num_targets, edge_weight)
    return scaled_weight(share, edge_weight)


def mean_weight(
    edge_index: Tensor,
    num_targets: int,
    dtype: torch.dtype,
    left_out: Tensor | None = None,
    edge_weight: Tensor | None = None,
) -> Tensor:
    r"""Divides the weight of each edge (default: 1) by the sum of the weights into its target,
    ``[E, 1]``. The result is 0 if the sum is 0, or if the target is marked in :obj:`left_out`,
    bools ``[N_t]``."""
    target = edge_index[1]
    weight = None if edge_weight is None else edge_weight.to(dtype)
    total = weighted_degree(target, num_targets, dtype, weight)
    is_zero = total == 0 if left_out is None else (total == 0) | left_out
    total = total.masked_fill(is_zero, torch.inf)[target]
    return ((1.0 if weight is None else weight) / total)[:, None]


def row_normalized(
    score: Tensor, edge_index: Tensor, num_targets: int, edge_weight: Tensor | None = None
) -> Tensor:
    r"""Multiplies scores ``[E, H]`` by the weights ``[E]`` of the edges, and divides them by their
    sum over the edges into each target. If the sum is 0, the result is :meth:`mean_weight`."""
    score = scaled_weight(score, edge_weight)
    total = scatter(score, edge_index[1], 0, num_targets, 'sum')[edge_index[1]]
    is_zero = total == 0
    mean = mean_weight(edge_index, num_targets, score.dtype, edge_weight=edge_weight)
    return torch.where(is_zero, mean, score / total.masked_fill(is_zero, 1))


def softmax_share(logits: Tensor, target: Tensor, num_targets: int, edge_weight: Tensor) -> Tensor:
    r"""Divides the exponential of each edge's logit by the weighted sum of exponentials into its
    target, ``[E, H]``.

    The result is 0 if all weights into the target are 0. The maximum that is subtracted from logits
    includes the logarithms of the weights, so that edges of weight 0 do not count.
    """
    weight = edge_weight.to(logits.dtype)[:, None]
    with torch.no_grad():
        top = scatter(logits + weight.log(), target, 0, num_targets, 'max')[target]
        top = top.masked_fill(top == -torch.inf, 0)
    power = (logits - top).clamp(max=largest_power(logits.dtype)).exp()
    total = scatter(power * weight, target, 0, num_targets, 'sum')[target]
    return power * inverse_of(total)


@operator(SoftmaxArguments, returns=('weight',))
def _edge_softmax(arguments: SoftmaxArguments) -> Tensor:
    edge_index = arguments.edge_index
    rows = rows_of(edge_index, arguments.num_targets)
    return softmax_over(arguments.logits, edge_index[1], rows)


@_edge_softmax.backward(outputs=('weight',), saved=('weight',))
def _(arguments: SoftmaxArguments, grad, saved):
    edge_index, weight = arguments.edge_index, saved.weight
    rows = rows_of(edge_index, arguments.num_targets)
    return {'logits': centered(grad.weight, weight, edge_index[1], rows).mul_(weight)}


@_edge_softmax.formula
def _(arguments: SoftmaxArguments, _saved):
    target = arguments.edge_index[1]
    return (softmax(arguments.logits, target, num_nodes=arguments.num_targets),)


@_edge_softmax.fake
def _(arguments: SoftmaxArguments):
    return torch.empty_like(arguments.logits)
