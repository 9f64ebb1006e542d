# E rows of the result, K columns.
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from torch_geometric_lgt.functional._engine.second_order import differentiable, recorded_grads
from torch_geometric_lgt.functional.numerics import without_autocast
from torch_geometric_lgt.functional.tracing import is_exporting, is_tracing, is_transformed

RowTensors = tuple[Tensor | None, ...]


def chunked_map(
    function: Callable[..., Tensor],
    step: int,
    gathered: Sequence[tuple[Tensor | None, Tensor]],
    whole: Sequence[Tensor | None] = (),
) -> Tensor:
    r"""Applies :obj:`function` to at most :obj:`step` rows at a time (a chunk) and returns the
    results of all rows, ``[E, K]``.

    The backward pass computes each chunk again. Gradients are added up in place, so that no chunk
    allocates a tensor of full size. The gradient of a tensor with fewer rows than a chunk is first
    summed per chunk, which keeps the rounding error small.

    Compiled code has one chunk of all rows, because each number of chunks would be another program,
    and so have forward mode and :mod:`torch.func`.
    Exported and traced programs also store what the backward pass needs.

    Args:
        function (callable): Gets the slice of the rows, the rows of each gathered tensor, then the
            whole tensors. Returns ``[n, K]``.
        step (int): The most rows of a chunk.
        gathered (sequence): Pairs of a tensor and an index ``[E]``, which says the row of the
            tensor for each row of the result.
        whole (sequence): Tensors that :obj:`function` gets undivided.
    """
    indices = [index for _, index in gathered]
    tensors = [*(tensor for tensor, _ in gathered), *whole]
    is_whole = is_tracing() or is_transformed(tensors)
    if not is_whole:
        return _ChunkedMap.apply(function, step, len(indices), *indices, *tensors)

    def run(*indices: Tensor) -> Tensor:
        return function(slice(0, indices[0].numel()), *_rows(tensors, indices))

    if is_exporting() or not torch.compiler.is_compiling():  # takes no checkpoint
        return run(*indices)
    return cast(Tensor, checkpoint(run, *indices, use_reentrant=False, preserve_rng_state=False))


def _map_again(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> RowTensors:
    indices, tensors = saved[: ctx.num_indices], saved[ctx.num_indices :]
    needed = ctx.needs_input_grad[3 + ctx.num_indices :]

    def run(*tensors: Tensor) -> tuple[Tensor]:
        span = slice(0, indices[0].numel())
        return (ctx.function(span, *_rows(tensors, indices)),)

    return *[None] * (3 + ctx.num_indices), *recorded_grads(run, tensors, needed, [grad])


class _ChunkedMap(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        function: Callable[..., Tensor],
        step: int,
        num_indices: int,
        *inputs: Tensor | None,
    ) -> Tensor:
        indices, tensors = cast(list[Tensor], list(inputs[:num_indices])), inputs[num_indices:]
        ctx.function, ctx.step, ctx.num_indices = function, step, num_indices
        ctx.save_for_backward(*inputs)
        with without_autocast(indices[0].device.type):
            chunks = [function(span, *_rows(tensors, at)) for span, at in _chunks(indices, step)]
            return torch.cat(chunks)

    @staticmethod
    @differentiable('edge_scores', _map_again)
    def backward(ctx: Any, saved: tuple[Tensor, ...], grad: Tensor) -> RowTensors:
        indices, tensors = list(saved[: ctx.num_indices]), saved[ctx.num_indices :]
        needed = ctx.needs_input_grad[3 + ctx.num_indices :]
        totals = [
            torch.zeros_like(tensor) if need else None
            for tensor, need in zip(tensors, needed, strict=True)
        ]
        for span, at in _chunks(indices, ctx.step):
            rows = [None if row is None else row.detach() for row in _rows(tensors, at)]
            leaves = [
                row.requires_grad_()
                for row, need in zip(rows, needed, strict=True)
                if row is not None and need
            ]
            with torch.enable_grad(), without_autocast(grad.device.type):
                out = ctx.function(span, *rows)
            grads = iter(torch.autograd.grad(out, leaves, grad[span], materialize_grads=True))
            for position, total in enumerate(totals):
                if total is not None:
                    add_rows(total, at[position] if position < len(at) else None, next(grads))
        return *[None] * (3 + ctx.num_indices), *totals


def add_rows(total: Tensor, index: Tensor | None, rows: Tensor) -> None:
    r"""Adds the gradients :obj:`rows` to the rows :obj:`index` of :obj:`total` in place, or to all
    of it if :obj:`index` is :obj:`None`."""
    if index is None:
        total += rows
    elif total.size(0) > index.numel():
        total.index_add_(0, index, rows)
    else:
        total += torch.zeros_like(total).index_add_(0, index, rows)


def _chunks(indices: list[Tensor], step: int) -> Iterator[tuple[slice, tuple[Tensor, ...]]]:
    r"""Yields the slice of at most :obj:`step` rows of the result, and the entries of each index
    ``[E]`` in it."""
    start = 0
    for at in zip(*(index.split(step) for index in indices), strict=True):
        span = slice(start, start + at[0].numel())
        yield span, at
        start = span.stop


def _rows(tensors: Sequence[Tensor | None], indices: tuple[Tensor, ...]) -> RowTensors:
    r"""Returns the rows of the first tensors at their :obj:`indices`, then the other tensors
    unchanged."""
    gathered, whole = tensors[: len(indices)], tensors[len(indices) :]
    rows = (
        None if tensor is None else tensor.index_select(0, index)
        for tensor, index in zip(gathered, indices, strict=True)
    )
    return *rows, *whole
