from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

from torch_geometric_lgt.functional._engine import plain, recorded
from torch_geometric_lgt.functional._engine.chunked_keys import Keys
from torch_geometric_lgt.functional._engine.chunked_queries import Queries
from torch_geometric_lgt.functional._engine.custom_op import operator
from torch_geometric_lgt.functional._engine.dispatch import (
    backend_of,
    chunk_rows,
    is_fused,
    is_paired,
)
from torch_geometric_lgt.functional._engine.flops import build_flops, pair_flops, read_flops
from torch_geometric_lgt.functional._engine.layout import count_nodes, fewest_deferred
from torch_geometric_lgt.functional._engine.operator_arguments import (
    AttendArguments,
    BuildArguments,
    ReadArguments,
)
from torch_geometric_lgt.functional._engine.pairwise import PairwiseBackend
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput
from torch_geometric_lgt.functional.numerics import chunk_elements, compute_dtype
from torch_geometric_lgt.functional.segment import Group, Segments, iterate_groups

STATE_ELEMENTS = 1 << 20
MAX_PROGRAMS = (1 << 16) - 1  # of a GPU along its second axis


def scaled_sums(sums: Tensor, factor: Tensor | None, graphs: Tensor) -> Tensor:
    r"""Returns the sums ``[G, H, M, W]`` of the graphs with the ids :obj:`graphs` ``[G]``, times
    their :obj:`factor` ``[B, H, M]`` if there is one."""
    return sums if factor is None else sums * factor[graphs].unsqueeze(-1)


def iterate_state_groups(
    inputs: KernelInput, width: int, lengths: Sequence[int], *axes: Segments
) -> Iterator[Group]:
    r"""Yields groups of graphs of equal size that are computed together, with chunks of node
    positions for each axis.

    The states (sums over all keys) of a group have at most :obj:`STATE_ELEMENTS` numbers, unless it
    is a single graph. :obj:`width` are the columns of a state, :obj:`lengths` and :obj:`axes` the
    nodes as in :meth:`iterate_groups`.
    """
    elements = chunk_elements(STATE_ELEMENTS, inputs.x.device)
    max_states = elements // (inputs.heads * inputs.num_features() * width)
    max_graphs = max(1, min(max_states, MAX_PROGRAMS // inputs.heads))
    rows = chunk_rows(inputs, width // inputs.rank() - 1)
    return iterate_groups(rows, max_graphs, lengths, *axes)


def attend_groups(arguments: AttendArguments) -> Iterator[Group]:
    r"""Yields groups of graphs that are computed together, with chunks of the positions of targets,
    then of sources."""
    keys, values = arguments.keys, arguments.values
    width = keys.rank() * (values.channels(keys.heads) + 1)
    lengths = arguments.queries.x.size(0), keys.x.size(0)
    return iterate_state_groups(keys, width, lengths, arguments.targets, arguments.sources)


def pairwise_backend(
    queries: Queries, keys: Keys, group: Group, factor: Tensor | None
) -> PairwiseBackend | None:
    r"""Returns an object that computes the attention of the graphs in :obj:`group` from the weights
    of all pairs of nodes. Returns :obj:`None` if states (sums over all keys of a graph) take less
    work."""
    graphs, (targets, sources) = group
    channels = keys.values.channels(keys.inputs.heads)
    num_graphs = graphs.numel()
    sizes = count_nodes(targets) // num_graphs, count_nodes(sources) // num_graphs
    if not is_paired(keys.inputs, channels, chunk_rows(keys.inputs, channels), *sizes):
        return None
    factor = None if factor is None else factor[graphs]
    return PairwiseBackend(queries, keys, targets[0], sources[0], num_graphs, factor)


def empty_read(queries: KernelInput, channels: int) -> tuple[Tensor, Tensor]:
    r"""Returns uninitialized tensors for the outputs ``[N, H * D]`` and the denominators
    ``[N, H * K]`` of queries, for values of :obj:`channels` = D channels per head."""
    x, heads = queries.x, queries.heads
    out = x.new_empty((x.shape[0], heads * channels))
    dtype = compute_dtype(x.dtype)
    return out, x.new_empty((x.shape[0], heads * queries.samples), dtype=dtype)


@operator(BuildArguments, returns=('sums', 'maximum', 'squares'))
def build_state(arguments: BuildArguments) -> tuple[Tensor, Tensor, Tensor]:
    r"""Builds the state of each graph: the sums ``[B, H, M, W]`` over its keys, the maximum
    ``[B, H, M]`` of their log-features and the sums of their squares ``[B, H]``. The sums are
    divided by the exponential of the maximum."""
    inputs, values, nodes = arguments.keys, arguments.values, arguments.nodes
    keys = backend_of(inputs, values.channels(inputs.heads)).keys(inputs, values)
    sums, maximum, squares = keys.empty_state(nodes.sizes.numel())
    for graphs, (chunks,) in iterate_state_groups(inputs, sums.size(3), inputs.x.shape[:1], nodes):
        sums[graphs], maximum[graphs], squares[graphs] = keys.build(graphs.numel(), chunks)
    return sums, maximum, squares


@build_state.backward(outputs=('sums', 'squares'), saved=('maximum',))
def _(arguments: BuildArguments, grad, saved):
    inputs, values, nodes = arguments.keys, arguments.values, arguments.nodes
    keys = backend_of(inputs, values.channels(inputs.heads)).key_grads(inputs, values)
    width = grad.sums.size(3)
    for graphs, (chunks,) in iterate_state_groups(inputs, width, inputs.x.shape[:1], nodes):
        keys.add(saved.maximum[graphs], chunks, grad.sums[graphs], grad.squares[graphs])
    return {'keys': keys.result(), 'values': keys.value_result()}


@build_state.formula
def _(arguments: BuildArguments, saved):
    maximum = None if saved is None else saved.maximum
    return recorded.build(arguments.keys, arguments.values, arguments.nodes, maximum)


@build_state.fake
def _(arguments: BuildArguments):
    return Keys(arguments.keys, arguments.values).empty_state(arguments.nodes.sizes.shape[0])


@operator(ReadArguments, returns=('out', 'denominator'))
def read_state(arguments: ReadArguments) -> tuple[Tensor, Tensor]:
    r"""Computes the outputs ``[N, H * D]`` of all queries from the states (sums over all keys) of
    their graphs. Also returns the denominators ``[N, H * K]``."""
    inputs, nodes = arguments.queries, arguments.nodes
    sums, maximum = arguments.sums, arguments.maximum
    width = sums.size(3)
    channels = width // inputs.rank() - 1
    queries = backend_of(inputs, channels).queries(inputs)
    out, denominator = empty_read(inputs, channels)
    for graphs, (chunks,) in iterate_state_groups(inputs, width, inputs.x.shape[:1], nodes):
        queries.read(sums[graphs], maximum[graphs], chunks, out, denominator)
    return out, denominator


@read_state.backward(outputs=('out',), saved=('denominator',))
def _(arguments: ReadArguments, grad, saved):
    inputs, nodes = arguments.queries, arguments.nodes
    sums, maximum = arguments.sums, arguments.maximum
    width = sums.size(3)
    queries = backend_of(inputs, width // inputs.rank() - 1).query_grads(inputs)
    grad_sums = torch.zeros_like(sums)
    for graphs, (chunks,) in iterate_state_groups(inputs, width, inputs.x.shape[:1], nodes):
        grad_sums[graphs] = queries.add(
            sums[graphs], maximum[graphs], chunks, saved.denominator, grad.out
        )
    return {'queries': queries.result(), 'sums': grad_sums}


@read_state.formula
def _(arguments: ReadArguments, _saved):
    state = arguments.sums, arguments.maximum
    return recorded.read(arguments.queries, arguments.nodes, *state), None


@read_state.fake
def _(arguments: ReadArguments):
    return empty_read(arguments.queries, arguments.sums.shape[3] // arguments.queries.rank() - 1)


def empty_attend(arguments: AttendArguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Returns uninitialized tensors for the results of :meth:`attend`."""
    values = arguments.values
    num_states = arguments.sources.sizes.shape[0] if arguments.store_states else 0
    state = Keys(arguments.keys, values).empty_state(num_states)
    return *empty_read(arguments.queries, values.channels(arguments.queries.heads)), *state[:2]


@operator(AttendArguments, returns=('out', 'denominator', 'sums', 'maximum'))
def attend(arguments: AttendArguments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    r"""Computes the attention outputs of all queries over the keys of their graphs, some graphs at
    a time to bound memory. Small graphs (:meth:`is_plain`) are computed at once.

    Returns:
        The outputs ``[N_t, H * D]`` and denominators ``[N_t, H * K]``, then the sums
        ``[B, H, M, W]`` and maxima ``[B, H, M]`` of the states, which are empty unless
        :obj:`store_states`. Only the outputs are set for small graphs.
    """
    if arguments.is_plain():
        return plain.attend(arguments), *empty_attend(arguments)[1:]
    query_inputs, key_inputs = arguments.queries, arguments.keys
    values, factor = arguments.values, arguments.factor
    channels = values.channels(query_inputs.heads)
    queries = backend_of(query_inputs, channels).queries(query_inputs)
    keys = backend_of(key_inputs, channels).keys(key_inputs, values)
    out, denominator = empty_read(query_inputs, channels)
    num_states = arguments.sources.sizes.numel() if arguments.store_states else 0
    sums, maximum, _ = keys.empty_state(num_states)
    for group in attend_groups(arguments):
        graphs, (targets, sources) = group
        pairs = pairwise_backend(queries, keys, group, factor)
        if pairs is not None:
            pairs.read(out, denominator)
            continue
        local_sums, local_maximum, _ = keys.build(graphs.numel(), sources)
        read_sums = scaled_sums(local_sums, factor, graphs)
        queries.read(read_sums, local_maximum, targets, out, denominator)
        if arguments.store_states:
            sums[graphs], maximum[graphs] = local_sums, local_maximum
    return out, denominator, sums, maximum


@attend.backward(outputs=('out',), saved=('denominator', 'sums', 'maximum'))
def _(arguments: AttendArguments, grad, saved):
    if arguments.is_plain():
        return plain.attend_grads(arguments, grad.out)
    query_inputs, key_inputs = arguments.queries, arguments.keys
    values, factor = arguments.values, arguments.factor
    channels = values.channels(query_inputs.heads)
    queries = backend_of(query_inputs, channels).query_grads(query_inputs)
    shared = queries.grad.x if key_inputs.x is query_inputs.x else None
    keys = backend_of(key_inputs, channels).key_grads(key_inputs, values, shared)
    grad_factor = None if factor is None else torch.zeros_like(factor)
    for group in attend_groups(arguments):
        graphs, (targets, sources) = group
        pairs = pairwise_backend(queries, keys, group, factor)
        if pairs is not None:
            local_grad = pairs.add_grads(queries, keys, saved.denominator, grad.out)
            if grad_factor is not None and local_grad is not None:
                grad_factor[graphs] = local_grad
            continue
        if arguments.store_states:
            local_sums, local_maximum = saved.sums[graphs], saved.maximum[graphs]
        else:
            local_sums, local_maximum, _ = keys.build(graphs.numel(), sources)
        read_sums = scaled_sums(local_sums, factor, graphs)
        grad_sums = queries.add(read_sums, local_maximum, targets, saved.denominator, grad.out)
        if grad_factor is not None:
            grad_factor[graphs] = (grad_sums * local_sums).sum(-1)
        keys.add(local_maximum, sources, scaled_sums(grad_sums, factor, graphs), None)
    return {
        'queries': queries.result(),
        'keys': keys.result(),
        'values': keys.value_result(),
        'factor': grad_factor,
    }


@attend.formula
def _(arguments: AttendArguments, _saved):
    return recorded.attend(arguments), None, None, None


attend.fake(empty_attend)


def count_deferred(keys: KernelInput, values: LinearInput, sizes: Tensor) -> tuple[int, int]:
    r"""Returns the number of graphs with :obj:`sizes` ``[B]`` whose values are not evaluated
    (:meth:`fewest_deferred`), and the number of their nodes."""
    if is_fused(keys, values.channels(keys.heads)) or is_fake(sizes) or sizes.is_meta:
        return 0, 0
    is_deferred = sizes >= fewest_deferred(keys, values)
    return int(is_deferred.sum()), int((sizes * is_deferred).sum())


def attend_flops(arguments: AttendArguments, backward: bool = False) -> int:
    r"""Returns the flops of the matrix products in the forward or backward pass of :obj:`attend`.
    Graphs that are computed pair by pair count with their pairs."""
    queries, keys, values = arguments.queries, arguments.keys, arguments.values
    channels = values.channels(queries.heads)
    num_targets, num_sources = arguments.targets.sizes, arguments.sources.sizes
    reads = queries.x.shape[0]
    builds = keys.x.shape[0]
    pair_sizes = [0, 0, 0]
    deferred = 0, 0
    if not (is_fake(num_targets) or num_targets.is_meta):  # whose values are unknown
        sizes = num_targets, num_sources
        paired = is_paired(keys, channels, chunk_rows(keys, channels), *sizes)
        pair_sizes = [int((size * paired).sum()) for size in (*sizes, num_targets * num_sources)]
        reads, builds = reads - pair_sizes[0], builds - pair_sizes[1]
        deferred = count_deferred(keys, values, num_sources - num_sources * paired)
    flops = read_flops(queries, queries.rank() * (channels + 1), backward, reads)
    flops += build_flops(keys, values, backward, builds, (0, 0) if backward else deferred)
    if backward and not arguments.store_states:
        flops += build_flops(keys, values, nodes=builds, deferred=deferred)
    return flops + pair_flops(queries, keys, values, backward, *pair_sizes)


build_state.flops(
    lambda arguments: build_flops(
        arguments.keys,
        arguments.values,
        deferred=count_deferred(arguments.keys, arguments.values, arguments.nodes.sizes),
    ),
    lambda arguments: build_flops(arguments.keys, arguments.values, backward=True),
)
read_state.flops(
    lambda arguments: read_flops(arguments.queries, arguments.sums.shape[3]),
    lambda arguments: read_flops(arguments.queries, arguments.sums.shape[3], backward=True),
)
attend.flops(attend_flops, lambda arguments: attend_flops(arguments, backward=True))
