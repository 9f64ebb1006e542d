# N nodes (N_s source, N_t target), E edges, H heads, M features.
from typing import Any

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine.chunked_map import add_rows, chunked_map
from torch_geometric_lgt.functional._engine.custom_op import is_eager
from torch_geometric_lgt.functional._engine.second_order import differentiable, recorded_grads
from torch_geometric_lgt.functional.neighbors.edge_rows import EdgeOrders, stored_rows
from torch_geometric_lgt.functional.numerics import has_kernels
from torch_geometric_lgt.functional.tracing import is_transformed


def edge_logsumexp(
    q: Tensor, k: Tensor, edge_index: Tensor, step: int, orders: EdgeOrders
) -> Tensor:
    r"""Computes :math:`\log \sum_m \exp(q_{im} + k_{jm})` of each edge from :math:`j` to :math:`i`,
    head by head, ``[E, H]``. No tensor of the size ``[E, M]`` is stored.

    Args:
        q (torch.Tensor): ``[N_t, H, M]``.
        k (torch.Tensor): ``[N_s, H, M]``.
        edge_index (torch.Tensor): ``[2, E]``, sources and targets.
        step (int): The most edges that are computed together without a kernel.
        orders (EdgeOrders): The edges sorted by target and by source, for kernels.
    """
    if is_transformed((q, k)) or not is_eager((q, k, edge_index)):
        return chunked_map(_logsumexp, step, [(q, edge_index[1]), (k, edge_index[0])])
    with torch.cuda.device_of(q):  # Triton launches on the current device
        return _EdgeLogsumexp.apply(step, q, k, edge_index, *orders)


def _logsumexp(_span: slice, q: Tensor, k: Tensor) -> Tensor:
    return (q + k).logsumexp(-1)


def _again(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
    _, q, k, (source, target), *orders = saved

    def run(q: Tensor, k: Tensor) -> tuple[Tensor]:
        return (_logsumexp(slice(None), q[target], k[source]),)

    grads = recorded_grads(run, (q, k), ctx.needs_input_grad[1:3], [grad])
    return None, *grads, *[None] * (1 + len(orders))


class _EdgeLogsumexp(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, step: int, q: Tensor, k: Tensor, edge_index: Tensor, *orders: Tensor | None
    ) -> Tensor:
        if has_kernels(q):
            from torch_geometric_lgt.functional._engine import fused_edges

            out = fused_edges.edge_logsumexp(k.flatten(1), q.flatten(1), edge_index, q.size(1))
        else:
            chunks = edge_index.split(step, 1)
            out = torch.cat([_sums(q, k, *chunk).logsumexp(-1) for chunk in chunks])
        ctx.step = step
        ctx.save_for_backward(out, q, k, edge_index, *orders)
        return out

    @staticmethod
    @differentiable('edge_scores', _again)
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> tuple[Tensor | None, ...]:
        out, q, k, edge_index, *orders = saved
        if has_kernels(q):
            grads = _fused_grads(q, k, edge_index, out, grad, EdgeOrders(*orders))
        else:
            grads = _grads(q, k, edge_index, out, grad, ctx.step)
        return None, *grads, *[None] * (1 + len(orders))


def _sums(q: Tensor, k: Tensor, source: Tensor, target: Tensor) -> Tensor:
    return q.index_select(0, target).add_(k.index_select(0, source))


def _grads(
    q: Tensor, k: Tensor, edge_index: Tensor, out: Tensor, grad: Tensor, step: int
) -> tuple[Tensor, Tensor]:
    grad_q, grad_k = torch.zeros_like(q), torch.zeros_like(k)
    columns = out[..., None].split(step), grad[..., None].split(step)
    for (source, target), log_sum, factor in zip(edge_index.split(step, 1), *columns, strict=True):
        share = _sums(q, k, source, target).sub_(log_sum).exp_().mul_(factor)
        add_rows(grad_q, target, share)
        add_rows(grad_k, source, share)
    return grad_q, grad_k


def _fused_grads(
    q: Tensor, k: Tensor, edge_index: Tensor, out: Tensor, grad: Tensor, orders: EdgeOrders
) -> tuple[Tensor, Tensor]:
    from torch_geometric_lgt.functional._engine import fused_edges

    by_target = stored_rows(orders, edge_index, q.size(0))
    by_source = stored_rows(orders, edge_index, k.size(0), by_source=True)
    q_rows, k_rows = q.flatten(1), k.flatten(1)
    grad_q = fused_edges.edge_shares(k_rows, q_rows, by_target, out, grad)
    grad_k = fused_edges.edge_shares(q_rows, k_rows, by_source, out, grad)
    return grad_q.view_as(q), grad_k.view_as(k)
