# N nodes, B graphs. The only module that reads batch vectors.
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from torch_geometric_lgt.functional.tracing import is_capturing, is_portable, is_tracing, to_list

NEEDS_BATCH_SIZE = (
    "'batch_size' is needed with 'batch' under torch.compile or torch.jit.trace; pass the number "
    'of graphs'
)


class Segments(NamedTuple):
    r"""Stores which rows (nodes) belong to which graph: the :obj:`sizes` ``[B]`` of the graphs and
    the :obj:`order` ``[N]`` that sorts the nodes by graph. The order is :obj:`None` if the nodes
    are sorted."""

    sizes: Tensor
    order: Tensor | None


def split_graphs(x: Tensor, nodes: Segments) -> tuple[Tensor, ...]:
    r"""Returns the rows of :obj:`x` ``[N, *]`` that belong to each graph."""
    rows = x if nodes.order is None else x[nodes.order]
    return rows.split(to_list(nodes.sizes))


def join_graphs(parts: Sequence[Tensor], nodes: Segments) -> Tensor:
    r"""Returns the rows ``[N, *]`` in the order of the nodes, the inverse of
    :meth:`split_graphs`."""
    rows = torch.cat([*parts])
    if nodes.order is None:
        return rows
    return torch.zeros_like(rows).index_copy(0, nodes.order, rows)


class Group(NamedTuple):
    r"""Stores graphs that are computed together: their ids :obj:`graphs` ``[G]``, and a list of
    chunks for each node axis (such as targets and sources). A chunk is a slice or tensor of node
    positions, equally many of each graph, graph by graph."""

    graphs: Tensor
    chunks: tuple[list[Tensor | slice], ...]


def segments(
    batch: Tensor | None,
    num_nodes: int,
    batch_size: int | None = None,
    device: torch.device | None = None,
    is_of_state: bool = False,
) -> Segments:
    r"""Computes the sizes of the graphs and the order of the nodes from a :obj:`batch` vector
    ``[N]``.

    The vector may be unsorted, skip ids or leave graphs empty; :obj:`None` is one graph of
    :obj:`num_nodes` nodes. :obj:`batch_size` is the number of graphs, by default one more than the
    largest id. :obj:`device` is the device that the vector must be on. :obj:`is_of_state` says in
    errors that :obj:`batch_size` is the number of graphs of a state.

    Raises:
        TypeError: If :obj:`batch` is not a tensor.
        ValueError: If :obj:`batch` has the wrong shape, dtype, device or length, a negative id, or
            an id of at least :obj:`batch_size`. Also if :obj:`batch_size` is no whole number, if
            traced code has none, or :meth:`torch.onnx.export` traces several graphs.
        RuntimeError: If a CUDA graph is captured, as the sizes of the graphs must be copied from
            the device.
    """
    if isinstance(batch_size, float):
        raise ValueError(f"'batch_size' must be a whole number (got {batch_size})")
    if batch is None:
        if batch_size is not None and batch_size != 1:
            raise ValueError(
                f"'batch_size' must be 1 without 'batch' (got {batch_size}); pass the 'batch' "
                'vector, or leave out the number of seed nodes of a NeighborLoader'
            )
        return Segments(torch.full((1,), num_nodes, dtype=torch.long, device=device), None)
    check_batch(batch, num_nodes, device)
    batch = batch.long()
    if is_tracing():
        if batch_size is None:
            raise ValueError(NEEDS_BATCH_SIZE)
        if batch_size != 1 and is_portable():
            raise ValueError(
                "'batch' must be left out under torch.onnx.export: its program takes one graph at "
                'a time'
            )
        sizes = torch.zeros(batch_size, dtype=torch.long, device=batch.device)
        sizes = sizes.scatter_add_(0, batch, torch.ones_like(batch))
        return Segments(sizes, None if batch_size == 1 else batch.argsort(stable=True))
    if is_capturing():
        raise RuntimeError(
            "a CUDA graph cannot be captured with 'batch', whose graphs have unknown sizes: "
            'capture a step over one graph'
        )
    if num_nodes > 0 and int(batch.min()) < 0:
        raise ValueError(f"'batch' must hold graph ids of at least 0 (got {int(batch.min())})")
    top = int(batch.max()) + 1 if num_nodes > 0 else 0
    if batch_size is not None and top > batch_size:
        limit = f"'batch_size' is {batch_size}; raise 'batch_size' to"
        if is_of_state:
            limit = f"'state' has {batch_size} graphs; build it with a 'batch_size' of"
        raise ValueError(f"'batch' holds the graph id {top - 1} but {limit} at least {top}")
    sizes = torch.bincount(batch, minlength=top if batch_size is None else batch_size)
    is_sorted = num_nodes < 2 or bool((batch[1:] >= batch[:-1]).all())
    return Segments(sizes, None if is_sorted else batch.argsort(stable=True))


def count_graphs(batch: Any, batch_size: int | None, *alternatives: Any) -> int | None:
    r"""Returns :obj:`batch_size`, or the number of graphs in :obj:`batch` where code compiled by
    :meth:`torch.compile` has no :obj:`batch_size`.

    Compiled code cannot read that number. PyTorch breaks the graph at this call, so that a layer
    or model that starts with it is compiled as one graph after the break. :obj:`alternatives`
    are arguments that tell the number of graphs, such as a state: with one of them it is not
    counted.
    """
    if batch is None or batch_size is not None or not torch.compiler.is_dynamo_compiling():
        return batch_size
    if any(argument is not None for argument in alternatives):
        return batch_size
    return _count_uncompiled(*(batch if isinstance(batch, tuple) else (batch,)))


def number_of_graphs(*batches: Any) -> int:
    r"""Returns one more than the largest graph id in the batch vectors."""
    ids = (part for part in batches if isinstance(part, Tensor) and part.numel() > 0)
    return max((int(part.max()) + 1 for part in ids), default=0)


_count_uncompiled: Any = torch.compiler.disable(number_of_graphs, reason=NEEDS_BATCH_SIZE)


def check_pair(batch: tuple[Tensor | None, ...]) -> tuple[Tensor | None, Tensor | None]:
    r"""Returns :obj:`batch` if it has two entries, the batch vectors of the sources and the
    targets; raises a ValueError otherwise."""
    if len(batch) != 2:
        raise ValueError(
            f"'batch' must be one vector, or a pair of sources and targets (got {len(batch)} "
            'vectors)'
        )
    return batch


def node_to_graph(nodes: Segments, num_nodes: int) -> Tensor:
    r"""Returns the graph id of every node ``[N]``. This is the batch vector from which
    :meth:`segments` made :obj:`nodes`."""
    graph = torch.repeat_interleave(nodes.sizes, output_size=num_nodes)
    if nodes.order is None:
        return graph
    return torch.empty_like(graph).scatter_(0, nodes.order, graph)


def iterate_groups(
    rows: int, max_graphs: int, lengths: Sequence[int], *axes: Segments
) -> Iterator[Group]:
    r"""Iterates over :class:`Group` objects that cover all nodes without padding: graphs that are
    computed together.

    Graphs of equal size form groups of at most :obj:`rows` nodes and :obj:`max_graphs` graphs. A
    graph of more than :obj:`rows` nodes is a group of its own, with chunks of at most :obj:`rows`
    nodes. Graphs without nodes on all axes are left out.

    The number of groups is at most the number of distinct sizes plus :math:`N` / :obj:`rows` plus
    :math:`B` / :obj:`max_graphs`. For a single graph the sizes are taken from :obj:`lengths`, so
    that nothing is copied from the device.

    Args:
        rows (int): The most nodes of a chunk.
        max_graphs (int): The most graphs of a group.
        lengths (sequence): The number of nodes of each axis.
        *axes (Segments): The graphs of the nodes of each axis, for example of targets and of
            sources.
    """
    device = axes[0].sizes.device
    if axes[0].sizes.numel() == 1:
        if any(lengths):
            graph = torch.zeros(1, dtype=torch.long, device=device)
            spans = tuple(_spans(axis, 0, n, rows) for axis, n in zip(axes, lengths, strict=True))
            yield Group(graph, spans)
        return
    sizes = np.stack([axis.sizes.cpu().numpy() for axis in axes], 1)
    starts = [torch.from_numpy(np.concatenate([[0], np.cumsum(column)[:-1]])) for column in sizes.T]
    occupied = np.flatnonzero(sizes.any(1))
    ordered = occupied[np.lexsort(sizes[occupied].T[::-1])]
    is_first = np.ones(len(ordered), dtype=bool)
    is_first[1:] = (sizes[ordered[1:]] != sizes[ordered[:-1]]).any(1)
    distinct = sizes[ordered[is_first]]
    count = np.diff(np.flatnonzero(is_first), append=len(ordered))
    ids, first = torch.from_numpy(ordered), 0
    for per_graph, graphs in zip(distinct.tolist(), count.tolist(), strict=True):
        largest = max(per_graph)
        step = max(1, min(max_graphs, rows // largest, graphs))
        for start in range(first, first + graphs, step):
            group = ids[start : min(start + step, first + graphs)]
            chunks = tuple(
                _chunks(axis, begin[group], n, rows)
                for axis, begin, n in zip(axes, starts, per_graph, strict=True)
            )
            yield Group(group.to(device), chunks)
        first += graphs


def check_batch(batch: Any, num_nodes: int, device: torch.device | None) -> None:
    r"""Checks that :obj:`batch` is a tensor of one id for each of :obj:`num_nodes` nodes, on the
    :obj:`device`. The ids are not read.

    Raises:
        TypeError: If it is not a tensor.
        ValueError: If it has another shape, dtype or device.
    """
    if not isinstance(batch, Tensor):
        raise TypeError(
            "'batch' must be a tensor of graph ids, or a pair of them for a pair 'x' (got "
            f'{type(batch).__name__})'
        )
    if batch.dtype not in (torch.long, torch.int32):
        hint = 'convert it with batch.long()'
        if batch.is_floating_point() and batch.dim() > 1 and batch.size(0) != num_nodes:
            hint = "give features of edges as 'edge_attr'"
        elif batch.is_floating_point() and batch.numel() != num_nodes:
            hint = "give weights of edges as 'edge_weight'"
        raise ValueError(f"'batch' must hold int64 graph ids (got {batch.dtype}); {hint}")
    if batch.dim() != 1 or batch.numel() != num_nodes:
        hint = "; give edges as 'edge_index'" if batch.dim() == 2 and batch.size(0) == 2 else ''
        raise ValueError(
            f"'batch' must hold one graph id per node (got shape {tuple(batch.shape)} for "
            f'{num_nodes} nodes){hint}'
        )
    if device is not None and batch.device != device:
        raise ValueError(
            f"'batch' must be on the device of 'x' (got {batch.device} and {device}); move it with "
            'batch.to(x.device)'
        )


def _spans(axis: Segments, begin: int, n: int, rows: int) -> list[Tensor | slice]:
    r"""Returns the positions of the :obj:`n` nodes of one graph as chunks of at most :obj:`rows`
    nodes. After sorting by graph, :obj:`begin` is the position of the first node."""
    end = begin + n
    spans = [slice(start, min(start + rows, end)) for start in range(begin, end, rows)]
    return list(spans) if axis.order is None else [axis.order[span] for span in spans]


def _chunks(axis: Segments, begin: Tensor, n: int, rows: int) -> list[Tensor | slice]:
    r"""Returns the positions of the nodes of graphs with :obj:`n` nodes each as chunks.
    :obj:`begin` ``[G]`` has the first position of each graph after sorting. Several graphs make one
    chunk; a single graph makes chunks of at most :obj:`rows` nodes."""
    if n == 0:
        return []
    if begin.numel() == 1:
        return _spans(axis, int(begin), n, rows)
    first, end = int(begin[0]), int(begin[-1]) + n
    if axis.order is None and end - first == n * begin.numel():
        return [slice(first, end)]
    nodes = (begin[:, None] + torch.arange(n, device=begin.device)).view(-1).to(axis.sizes.device)
    return [nodes if axis.order is None else axis.order[nodes]]
