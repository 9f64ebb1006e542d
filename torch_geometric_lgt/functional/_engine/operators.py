# N nodes, B graphs, H heads, F input width, C channels of a key, D of a value, M features, R rank
# of the mask, W = R * (D + 1), K samples.
from collections.abc import Iterator, Sequence
from typing import ClassVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

from torch_geometric_lgt.functional._engine.arguments import Arguments
from torch_geometric_lgt.functional._engine.chunked import Keys, Queries
from torch_geometric_lgt.functional._engine.custom_op import operator
from torch_geometric_lgt.functional._engine.dispatch import backend_of, chunk_rows, is_paired
from torch_geometric_lgt.functional._engine.flops import build_flops, pair_flops, read_flops
from torch_geometric_lgt.functional._engine.layout import Nodes
from torch_geometric_lgt.functional._engine.pairwise import Pairs
from torch_geometric_lgt.functional.inputs import KernelInput, ValueInput
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.functional.segment import Group, Segments, iterate_groups
from torch_geometric_lgt.typing import Differentiable, DifferentiableOrNone

STATE_ELEMENTS = 1 << 20
MAX_PROGRAMS = (1 << 16) - 1  # of a GPU along its second axis


class BuildArguments(Arguments):
    r"""The arguments of :obj:`build_state`."""

    keys: KernelInput
    values: ValueInput
    nodes: Segments
    shares: ClassVar = {'values.x': 'keys.x'}


class ReadArguments(Arguments):
    r"""The arguments of :obj:`read_state`."""

    queries: KernelInput
    nodes: Segments
    sums: Differentiable
    maximum: Tensor


class AttendArguments(Arguments):
    r"""The arguments of :obj:`attend`. The features of the states are multiplied by the
    :obj:`factor` ``[B, H, M]`` before they are read; with :obj:`store_states` they are stored,
    without it, for the backward pass."""

    queries: KernelInput
    targets: Segments
    keys: KernelInput
    values: ValueInput
    sources: Segments
    factor: DifferentiableOrNone
    store_states: bool
    shares: ClassVar = {'keys.x': 'queries.x', 'values.x': 'keys.x'}

    def groups(self) -> Iterator[Group]:
        r"""Iterates over graphs that are computed together, with their targets and sources."""
        width = self.keys.rank() * (self.values.channels(self.keys.heads) + 1)
        return iterate_state_groups(
            self.keys,
            width,
            (self.queries.x.size(0), self.keys.x.size(0)),
            self.targets,
            self.sources,
        )


def scaled_sums(sums: Tensor, factor: Tensor | None, graphs: Tensor) -> Tensor:
    return sums if factor is None else sums * factor[graphs].unsqueeze(-1)


def iterate_state_groups(
    side: KernelInput, width: int, lengths: Sequence[int], *axes: Segments
) -> Iterator[Group]:
    most = max(
        1,
        min(
            STATE_ELEMENTS // (side.heads * side.num_features() * width), MAX_PROGRAMS // side.heads
        ),
    )
    return iterate_groups(chunk_rows(side, width // side.rank() - 1), most, lengths, *axes)


def nodes_of(chunks: list[Nodes]) -> int:
    return sum(
        nodes.stop - nodes.start if isinstance(nodes, slice) else nodes.numel() for nodes in chunks
    )


def pairs_of(queries: Queries, keys: Keys, group: Group, factor: Tensor | None) -> Pairs | None:
    r"""The pairs of nodes of some graphs, where they take less work than states."""
    graphs, (targets, sources) = group
    width, count = keys.values.channels(keys.side.heads), graphs.numel()
    if not is_paired(
        keys.side,
        width,
        chunk_rows(keys.side, width),
        nodes_of(targets) // count,
        nodes_of(sources) // count,
    ):
        return None
    return Pairs(
        queries, keys, targets[0], sources[0], count, None if factor is None else factor[graphs]
    )


def empty_read(side: KernelInput, width: int) -> tuple[Tensor, Tensor]:
    r"""The output ``[N, H * D]`` and the denominators ``[N, H * K]``."""
    (num_nodes, _), dtype, reads = (
        side.x.shape,
        compute_dtype(side.x.dtype),
        side.heads * side.samples,
    )
    return side.x.new_empty((num_nodes, side.heads * width)), side.x.new_empty(
        (num_nodes, reads), dtype=dtype
    )


@operator(BuildArguments, returns=('sums', 'maximum', 'squares'))
def build_state(arguments: BuildArguments) -> tuple[Tensor, Tensor, Tensor]:
    side, nodes = arguments.keys, arguments.nodes
    keys = backend_of(side, arguments.values.channels(side.heads)).keys(side, arguments.values)
    sums, maximum, squares = keys.empty_state(nodes.sizes.numel())
    for graphs, (chunks,) in iterate_state_groups(side, sums.size(3), side.x.shape[:1], nodes):
        sums[graphs], maximum[graphs], squares[graphs] = keys.build(graphs.numel(), chunks)
    return sums, maximum, squares


@build_state.backward(outputs=('sums', 'squares'), saved=('maximum',))
def _(arguments: BuildArguments, grad, saved):
    side, values = arguments.keys, arguments.values
    keys = backend_of(side, values.channels(side.heads)).key_grads(side, values)
    for graphs, (chunks,) in iterate_state_groups(
        side, grad.sums.size(3), side.x.shape[:1], arguments.nodes
    ):
        keys.add(saved.maximum[graphs], chunks, grad.sums[graphs], grad.squares[graphs])
    return {'keys': keys.result(), 'values': keys.value_result()}


@build_state.fake
def _(arguments: BuildArguments):
    return Keys(arguments.keys, arguments.values).empty_state(arguments.nodes.sizes.shape[0])


@operator(ReadArguments, returns=('out', 'denominator'))
def read_state(arguments: ReadArguments) -> tuple[Tensor, Tensor]:
    side, sums, maximum = arguments.queries, arguments.sums, arguments.maximum
    width = sums.size(3) // side.rank() - 1
    queries, (out, denominator) = backend_of(side, width).queries(side), empty_read(side, width)
    for graphs, (chunks,) in iterate_state_groups(
        side, sums.size(3), side.x.shape[:1], arguments.nodes
    ):
        queries.read(sums[graphs], maximum[graphs], chunks, out, denominator)
    return out, denominator


@read_state.backward(outputs=('out',), saved=('denominator',))
def _(arguments: ReadArguments, grad, saved):
    side, sums, maximum = arguments.queries, arguments.sums, arguments.maximum
    queries, grad_sums = (
        backend_of(side, sums.size(3) // side.rank() - 1).query_grads(side),
        torch.zeros_like(sums),
    )
    for graphs, (chunks,) in iterate_state_groups(
        side, sums.size(3), side.x.shape[:1], arguments.nodes
    ):
        grad_sums[graphs] = queries.add(
            sums[graphs], maximum[graphs], chunks, saved.denominator, grad.out
        )
    return {'queries': queries.result(), 'sums': grad_sums}


@read_state.fake
def _(arguments: ReadArguments):
    return empty_read(arguments.queries, arguments.sums.shape[3] // arguments.queries.rank() - 1)


@operator(AttendArguments, returns=('out', 'denominator', 'sums', 'maximum'))
def attend(arguments: AttendArguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Builds and reads the states of a few graphs at a time."""
    side, values, factor = arguments.queries, arguments.values, arguments.factor
    width = values.channels(side.heads)
    queries, keys = (
        backend_of(side, width).queries(side),
        backend_of(arguments.keys, width).keys(arguments.keys, values),
    )
    out, denominator = empty_read(side, width)
    sums, maximum, _ = keys.empty_state(
        arguments.sources.sizes.numel() if arguments.store_states else 0
    )
    for group in arguments.groups():
        pairs, (graphs, (targets, sources)) = pairs_of(queries, keys, group, factor), group
        if pairs is not None:
            pairs.read(out, denominator)
            continue
        local_sums, local_maximum, _ = keys.build(graphs.numel(), sources)
        queries.read(
            scaled_sums(local_sums, factor, graphs), local_maximum, targets, out, denominator
        )
        if arguments.store_states:
            sums[graphs], maximum[graphs] = local_sums, local_maximum
    return out, denominator, sums, maximum


@attend.backward(outputs=('out',), saved=('denominator', 'sums', 'maximum'))
def _(arguments: AttendArguments, grad, saved):
    side, key_side, values, factor = (
        arguments.queries,
        arguments.keys,
        arguments.values,
        arguments.factor,
    )
    width = values.channels(side.heads)
    queries = backend_of(side, width).query_grads(side)
    shared = queries.grad.x if key_side.x is side.x else None
    keys = backend_of(key_side, width).key_grads(key_side, values, shared)
    grad_factor = None if factor is None else torch.zeros_like(factor)
    for group in arguments.groups():
        pairs, (graphs, (targets, sources)) = pairs_of(queries, keys, group, factor), group
        if pairs is not None:
            local_grad = pairs.add_grads(queries, keys, saved.denominator, grad.out)
            if grad_factor is not None and local_grad is not None:
                grad_factor[graphs] = local_grad
            continue
        if arguments.store_states:
            local_sums, local_maximum = saved.sums[graphs], saved.maximum[graphs]
        else:
            local_sums, local_maximum, _ = keys.build(graphs.numel(), sources)
        grad_sums = queries.add(
            scaled_sums(local_sums, factor, graphs),
            local_maximum,
            targets,
            saved.denominator,
            grad.out,
        )
        if grad_factor is not None:
            grad_factor[graphs] = (grad_sums * local_sums).sum(-1)
        keys.add(local_maximum, sources, scaled_sums(grad_sums, factor, graphs), None)
    return {
        'queries': queries.result(),
        'keys': keys.result(),
        'values': keys.value_result(),
        'factor': grad_factor,
    }


@attend.fake
def _(arguments: AttendArguments):
    values, num_graphs = arguments.values, arguments.sources.sizes.shape[0]
    state = Keys(arguments.keys, values).empty_state(num_graphs if arguments.store_states else 0)
    return *empty_read(arguments.queries, values.channels(arguments.queries.heads)), *state[:2]


def attend_flops(arguments: AttendArguments, backward: bool = False) -> int:
    side, key_side, values = arguments.queries, arguments.keys, arguments.values
    width, sizes = values.channels(side.heads), (arguments.targets.sizes, arguments.sources.sizes)
    reads, builds, pairs = side.x.shape[0], key_side.x.shape[0], (0, 0, 0)
    if not (is_fake(sizes[0]) or sizes[0].is_meta):  # whose numbers are not known
        paired = is_paired(key_side, width, chunk_rows(key_side, width), *sizes)
        pairs = [int((part * paired).sum()) for part in (*sizes, sizes[0] * sizes[1])]
        reads, builds = reads - pairs[0], builds - pairs[1]
    again = (
        build_flops(key_side, values, nodes=builds)
        if backward and not arguments.store_states
        else 0
    )
    states = (
        read_flops(side, side.rank() * (width + 1), backward, reads)
        + build_flops(key_side, values, backward, builds)
        + again
    )
    return states + pair_flops(side, key_side, values, backward, *pairs)


build_state.flops(
    lambda arguments: build_flops(arguments.keys, arguments.values),
    lambda arguments: build_flops(arguments.keys, arguments.values, backward=True),
)
read_state.flops(
    lambda arguments: read_flops(arguments.queries, arguments.sums.shape[3]),
    lambda arguments: read_flops(arguments.queries, arguments.sums.shape[3], backward=True),
)
attend.flops(attend_flops, lambda arguments: attend_flops(arguments, backward=True))
