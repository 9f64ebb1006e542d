# N nodes (N_s source, N_t target), E edges, H heads, C channels per head.
import warnings

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula
from torch_geometric.utils import degree

from torch_geometric_lgt.functional._ops import call, differentiable, given, operator
from torch_geometric_lgt.functional._sides import compute_dtype

EDGES = 'Tensor x, Tensor edge_index, Tensor weight, int num_targets, bool learned'
CHUNK_ELEMENTS = 1 << 20


def neighbor_sum(x: Tensor, edge_index: Tensor, weight: Tensor, num_targets: int) -> Tensor:
    r"""The weighted sums over the neighbours

    .. math::
        \mathbf{h}_i = \sum_{(j, i) \in \mathcal{E}} w_{ji} \, \mathbf{x}_j

    head by head, as products with a sparse matrix: nothing of the size ``[E, C]`` is kept. Edges that occur again count again.

    Args:
        x (torch.Tensor): ``[N_s, H * C]``.
        edge_index (torch.Tensor): ``[2, E]``, sources and targets, in int64.
        weight (torch.Tensor): ``[E, H]``.
        num_targets (int): :math:`N_t`.

    Returns:
        ``[N_t, H * C]``
    """
    return call(_sum, x, edge_index, weight, num_targets, weight.requires_grad)


def symmetric_weight(edge_index: Tensor, num_src: int, num_dst: int, dtype: torch.dtype) -> Tensor:
    r"""``[E, 1]``: :math:`1 / \sqrt{d_j d_i}` with the out-degrees of the sources and the in-degrees of the targets."""
    source, target = (degree(ids, num, dtype).rsqrt()[ids] for ids, num in zip(edge_index, (num_src, num_dst), strict=True))
    return (source * target)[:, None]


def _product(x: Tensor, edge_index: Tensor, weight: Tensor, num_targets: int) -> Tensor:
    (row, col), order = edge_index, None
    if col.numel() > 1 and not bool((col[1:] >= col[:-1]).all()):
        col, order = col.sort()
        row, weight = row[order], weight[order]
    pointer = torch.searchsorted(col.contiguous(), torch.arange(num_targets + 1, device=x.device))
    dtype, heads = compute_dtype(x.dtype), weight.size(1)
    out = []
    with warnings.catch_warnings():
        warnings.filterwarnings('ignore', 'Sparse CSR tensor support is in beta')
        for part, value in zip(x.to(dtype).chunk(heads, 1), weight.to(dtype).unbind(1), strict=True):
            matrix = torch.sparse_csr_tensor(pointer, row, value.contiguous(), (num_targets, x.size(0)), check_invariants=False)
            out.append(matrix @ part.contiguous())
    return (torch.cat(out, 1) if heads > 1 else out[0]).to(x.dtype)


@operator('neighbor_sum', EDGES, 'Tensor')
def _sum(x, edge_index, weight, num_targets, _learned):
    return _product(x, edge_index, weight, num_targets)


@operator('neighbor_sum_backward', f'Tensor grad, {EDGES}', 'Tensor[]')
def _sum_backward(grad, x, edge_index, weight, _num_targets, learned):
    grad_x = _product(grad, edge_index.flip(0), weight, x.size(0))
    if not learned:
        return given([grad_x, None], grad)
    grad_weight, step = torch.empty_like(weight), max(1, CHUNK_ELEMENTS // max(1, x.size(1)))
    for edges, out in zip(edge_index.split(step, 1), grad_weight.split(step), strict=True):
        out.copy_((x[edges[0]] * grad[edges[1]]).unflatten(1, (weight.size(1), -1)).sum(-1))
    return [grad_x, grad_weight]


@_sum.register_fake
def _(x, _edge_index, _weight, num_targets, _learned):
    return x.new_empty((num_targets, x.shape[1]))


@_sum_backward.register_fake
def _(grad, x, _edge_index, weight, _num_targets, learned):
    return given([torch.empty_like(x), torch.empty_like(weight) if learned else None], grad)


differentiable(_sum, _sum_backward, (0, 2), (0,), ())


@register_flop_formula(torch.ops.torch_geometric_lgt.neighbor_sum, get_raw=True)
def _flops(x, edge_index, *_args, **_):
    return 2 * edge_index.shape[1] * x.shape[1]


@register_flop_formula(torch.ops.torch_geometric_lgt.neighbor_sum_backward, get_raw=True)
def _backward_flops(_grad, *args, **_):
    return _flops(*args) * (1 + args[-1])
