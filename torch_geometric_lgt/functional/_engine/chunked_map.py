# E rows of the result, K channels of a row.
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torch_geometric_lgt.functional._engine.custom_op import first_order, reverse_mode_only

Parts = tuple[Tensor | None, ...]


def chunked_map(
    function: Callable[..., Tensor],
    step: int,
    gathered: Sequence[tuple[Tensor | None, Tensor]],
    whole: Sequence[Tensor | None] = (),
) -> Tensor:
    r"""``[E, K]``: what :obj:`function` makes of :obj:`step` rows at a time. It gets the slice of
    rows, the rows that each tensor of :obj:`gathered` has at its indices ``[E]``, and the tensors
    of :obj:`whole`. What it computes on the way is not kept, and gradients are added up in place:
    the backward pass makes nothing of the size of a tensor for each chunk. Rows that are fewer than
    a chunk are summed chunk by chunk, which keeps the sum of very many precise. Compiled code has
    one chunk of all rows: a loop over chunks would be another program for each number of them."""
    indices, tensors = (
        [index for _, index in gathered],
        [*(tensor for tensor, _ in gathered), *whole],
    )
    reverse_mode_only(*tensors)
    if not torch.compiler.is_compiling():
        return _ChunkedMap.apply(function, step, len(indices), *indices, *tensors)

    def run(*parts: Tensor) -> Tensor:
        return function(slice(0, parts[0].numel()), *_rows(tensors, parts))

    return cast(Tensor, checkpoint(run, *indices, use_reentrant=False, preserve_rng_state=False))


class _ChunkedMap(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        function: Callable[..., Tensor],
        step: int,
        num_indices: int,
        *parts: Tensor | None,
    ) -> Tensor:
        indices, tensors = cast(list[Tensor], list(parts[:num_indices])), parts[num_indices:]
        ctx.function, ctx.step, ctx.num_indices = function, step, num_indices
        ctx.save_for_backward(*parts)
        with torch.autocast(indices[0].device.type, enabled=False):
            return torch.cat(
                [function(at, *_rows(tensors, parts)) for at, parts in _chunks(indices, step)]
            )

    @staticmethod
    @first_order('edge_scores')
    def backward(ctx: Any, grad: Tensor) -> Parts:
        indices, tensors = (
            list(ctx.saved_tensors[: ctx.num_indices]),
            ctx.saved_tensors[ctx.num_indices :],
        )
        needed = ctx.needs_input_grad[3 + ctx.num_indices :]
        totals = [
            torch.zeros_like(tensor) if need else None
            for tensor, need in zip(tensors, needed, strict=True)
        ]
        for at, parts in _chunks(indices, ctx.step):
            rows = [None if row is None else row.detach() for row in _rows(tensors, parts)]
            leaves = [
                row.requires_grad_()
                for row, need in zip(rows, needed, strict=True)
                if row is not None and need
            ]
            with torch.enable_grad(), torch.autocast(grad.device.type, enabled=False):
                out = ctx.function(at, *rows)
            found = iter(torch.autograd.grad(out, leaves, grad[at], materialize_grads=True))
            for place, total in enumerate(totals):
                if total is not None:
                    _add(total, parts[place] if place < len(parts) else None, next(found))
        return *[None] * (3 + ctx.num_indices), *totals


def _add(total: Tensor, index: Tensor | None, rows: Tensor) -> None:
    if index is None:
        total += rows
    elif total.size(0) > index.numel():
        total.index_add_(0, index, rows)
    else:
        total += torch.zeros_like(total).index_add_(0, index, rows)


def _chunks(indices: list[Tensor], step: int) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
    start = 0
    for parts in zip(*(index.split(step) for index in indices), strict=True):
        yield slice(start, start + parts[0].numel()), parts
        start += parts[0].numel()


def _rows(tensors: Sequence[Tensor | None], parts: tuple[Tensor, ...]) -> Parts:
    first, rest = tensors[: len(parts)], tensors[len(parts) :]
    return *(
        None if tensor is None else tensor.index_select(0, index)
        for tensor, index in zip(first, parts, strict=True)
    ), *rest
