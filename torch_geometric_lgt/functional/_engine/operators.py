# N nodes, B graphs, H heads, F input width, C channels of a key, D of a value, M features, R rank of the mask, W = R * (D + 1), K samples.
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

from torch_geometric_lgt.functional._engine.chunked import Keys, Queries
from torch_geometric_lgt.functional._engine.custom_op import count, differentiable, given, operator
from torch_geometric_lgt.functional._engine.dispatch import chunk_rows, is_paired, key_grads_of, keys_of, queries_of, query_grads_of
from torch_geometric_lgt.functional._engine.flops import build_flops, pair_flops, read_flops
from torch_geometric_lgt.functional._engine.layout import Nodes
from torch_geometric_lgt.functional._engine.pairwise import Pairs
from torch_geometric_lgt.functional.inputs import Side, Values
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.functional.segment import Group, Segments, groups

STATE_ELEMENTS = 1 << 20

MAX_PROGRAMS = (1 << 16) - 1  # of a GPU along its second axis

SIDE = 'Tensor? {0}x, Tensor? {0}weight, Tensor? {0}bias, Tensor? {0}mask, Tensor? {0}projection, str {0}kind'

SIDE += ', float {0}scale, float {0}power, int {0}heads, int {0}samples, Tensor? {0}noise, Tensor? {0}own'

QUERIES = f'{SIDE.format("q_")}, Tensor q_sizes, Tensor? q_order'

KEYS = f'{SIDE.format("k_")}, Tensor? v_x, Tensor? v_weight, Tensor? v_bias, Tensor k_sizes, Tensor? k_order'

STATE = 'Tensor sums, Tensor maximum'

ATTEND = 'Tensor? factor, bool keep'

NUM_SIDE = len(Side._fields)

NUM_QUERIES, NUM_KEYS = NUM_SIDE + 2, NUM_SIDE + 5

QUERY_GRADS = (0, 1, 2, 3, NUM_SIDE - 1)

KEY_GRADS = (0, 1, 2, 3, NUM_SIDE, NUM_SIDE + 1, NUM_SIDE + 2)


def query_arguments(args: tuple) -> tuple[Side, Segments]:
    return Side(*args[:NUM_SIDE]), Segments(*args[NUM_SIDE:NUM_QUERIES])


def key_arguments(args: tuple, x: Tensor | None = None) -> tuple[Side, Values, Segments]:
    side = Side(*args[:NUM_SIDE])
    return (
        side if side.x is not None else side._replace(x=x),
        Values(*args[NUM_SIDE : NUM_SIDE + 3]),
        Segments(*args[NUM_SIDE + 3 : NUM_KEYS]),
    )


def both_arguments(args: tuple) -> tuple[Side, Segments, Side, Values, Segments, Tensor | None, bool]:
    r"""Those of :obj:`attend`: keys without an input have that of the queries."""
    queries, targets = query_arguments(args)
    return queries, targets, *key_arguments(args[NUM_QUERIES:], queries.x), *args[NUM_QUERIES + NUM_KEYS :]


def scaled_sums(sums: Tensor, factor: Tensor | None, graphs: Tensor) -> Tensor:
    return sums if factor is None else sums * factor[graphs].unsqueeze(-1)


def walk(side: Side, width: int, lengths: Sequence[int], *axes: Segments) -> Iterator[Group]:
    most = max(1, min(STATE_ELEMENTS // (side.heads * side.num_features() * width), MAX_PROGRAMS // side.heads))
    return groups(chunk_rows(side, width // side.rank() - 1), most, lengths, *axes)


def nodes_of(chunks: list[Nodes]) -> int:
    return sum(nodes.stop - nodes.start if isinstance(nodes, slice) else nodes.numel() for nodes in chunks)


def pairs_of(queries: Queries, keys: Keys, group: Group, factor: Tensor | None) -> Pairs | None:
    r"""The pairs of nodes of some graphs, where they take less work than states."""
    graphs, (to, of) = group
    width, count = keys.values.channels(keys.side), graphs.numel()
    if not is_paired(keys.side, width, chunk_rows(keys.side, width), nodes_of(to) // count, nodes_of(of) // count):
        return None
    return Pairs(queries, keys, to[0], of[0], count, None if factor is None else factor[graphs])


def empty_read(side: Side, width: int) -> tuple[Tensor, Tensor]:
    r"""The output ``[N, H * D]`` and the denominators ``[N, H * K]``."""
    (num_nodes, _), dtype, reads = side.x.shape, compute_dtype(side.x.dtype), side.heads * side.samples
    return side.x.new_empty((num_nodes, side.heads * width)), side.x.new_empty((num_nodes, reads), dtype=dtype)


@operator('build_state', KEYS, '(Tensor, Tensor, Tensor)')
def build_state(*args):
    side, values, nodes = key_arguments(args)
    keys = keys_of(side, values)
    sums, maximum, squares = keys.empty_state(nodes.sizes.numel())
    for graphs, (chunks,) in walk(side, sums.size(3), side.x.shape[:1], nodes):
        sums[graphs], maximum[graphs], squares[graphs] = keys.build(graphs.numel(), chunks)
    return sums, maximum, squares


@operator('build_state_backward', f'Tensor grad_sums, Tensor grad_squares, Tensor maximum, {KEYS}', 'Tensor[]')
def build_state_backward(grad_sums, grad_squares, maximum, *args):
    side, values, nodes = key_arguments(args)
    keys = key_grads_of(side, values)
    for graphs, (chunks,) in walk(side, grad_sums.size(3), side.x.shape[:1], nodes):
        keys.add(maximum[graphs], chunks, grad_sums[graphs], grad_squares[graphs])
    return given(keys.result(), grad_sums)


@operator('read_state', f'{QUERIES}, {STATE}', '(Tensor, Tensor)')
def read_state(*args):
    (side, nodes), (sums, maximum) = query_arguments(args), args[NUM_QUERIES:]
    width = sums.size(3) // side.rank() - 1
    queries, (out, normaliser) = queries_of(side, width), empty_read(side, width)
    for graphs, (chunks,) in walk(side, sums.size(3), side.x.shape[:1], nodes):
        queries.read(sums[graphs], maximum[graphs], chunks, out, normaliser)
    return out, normaliser


@operator('read_state_backward', f'Tensor grad, Tensor normaliser, {QUERIES}, {STATE}', 'Tensor[]')
def read_state_backward(grad, normaliser, *args):
    (side, nodes), (sums, maximum) = query_arguments(args), args[NUM_QUERIES:]
    queries, grad_sums = query_grads_of(side, sums.size(3) // side.rank() - 1), torch.zeros_like(sums)
    for graphs, (chunks,) in walk(side, sums.size(3), side.x.shape[:1], nodes):
        grad_sums[graphs] = queries.add(sums[graphs], maximum[graphs], chunks, normaliser, grad)
    return given([*queries.result(), grad_sums], grad)


@operator('attend', f'{QUERIES}, {KEYS}, {ATTEND}', '(Tensor, Tensor, Tensor, Tensor)')
def attend(*args):
    r"""Builds and reads the states of a few graphs at a time, their features multiplied by the :obj:`factor` ``[B, H, M]`` in between;
    :obj:`keep` returns all of them, without it, for the way back."""
    side, targets, key_side, values, sources, factor, keep = both_arguments(args)
    width = values.channels(key_side)
    queries, keys = queries_of(side, width), keys_of(key_side, values)
    out, normaliser = empty_read(side, width)
    sums, maximum, _ = keys.empty_state(sources.sizes.numel() if keep else 0)
    for group in walk(key_side, sums.size(3), (side.x.size(0), key_side.x.size(0)), targets, sources):
        pairs, (graphs, (to, of)) = pairs_of(queries, keys, group, factor), group
        if pairs is not None:
            pairs.read(out, normaliser)
            continue
        own_sums, own_maximum, _ = keys.build(graphs.numel(), of)
        queries.read(scaled_sums(own_sums, factor, graphs), own_maximum, to, out, normaliser)
        if keep:
            sums[graphs], maximum[graphs] = own_sums, own_maximum
    return out, normaliser, sums, maximum


@operator('attend_backward', f'Tensor grad, Tensor normaliser, {STATE}, {QUERIES}, {KEYS}, {ATTEND}', 'Tensor[]')
def attend_backward(grad, normaliser, sums, maximum, *args):
    side, targets, key_side, values, sources, factor, keep = both_arguments(args)
    queries = query_grads_of(side, values.channels(key_side))
    keys = key_grads_of(key_side, values, queries.grad.x if args[NUM_QUERIES] is None else None)
    grad_factor = None if factor is None else torch.zeros_like(factor)
    for group in walk(key_side, sums.size(3), (side.x.size(0), key_side.x.size(0)), targets, sources):
        pairs, (graphs, (to, of)) = pairs_of(queries, keys, group, factor), group
        if pairs is not None:
            own_grad = pairs.add_grads(queries, keys, normaliser, grad)
            if grad_factor is not None and own_grad is not None:
                grad_factor[graphs] = own_grad
            continue
        own_sums, own_maximum = (sums[graphs], maximum[graphs]) if keep else keys.build(graphs.numel(), of)[:2]
        grad_sums = queries.add(scaled_sums(own_sums, factor, graphs), own_maximum, to, normaliser, grad)
        if grad_factor is not None:
            grad_factor[graphs] = (grad_sums * own_sums).sum(-1)
        keys.add(own_maximum, of, scaled_sums(grad_sums, factor, graphs), None)
    return given([*queries.result(), *keys.result(), grad_factor], grad)


@build_state.register_fake
def _(*args):
    side, values, nodes = key_arguments(args)
    return Keys(side, values).empty_state(nodes.sizes.shape[0])


@read_state.register_fake
def _(*args):
    side, sums = query_arguments(args)[0], args[NUM_QUERIES]
    return empty_read(side, sums.shape[3] // side.rank() - 1)


@attend.register_fake
def _(*args):
    side, _, key_side, values, sources, _, keep = both_arguments(args)
    state = Keys(key_side, values).empty_state(sources.sizes.shape[0] if keep else 0)
    return *empty_read(side, values.channels(key_side)), *state[:2]


@build_state_backward.register_fake
def _(grad_sums, _grad_squares, _maximum, *args):
    return given([args[i] if args[i] is None else torch.empty_like(args[i]) for i in KEY_GRADS], grad_sums)


@read_state_backward.register_fake
def _(grad, _normaliser, *args):
    return given([args[i] if args[i] is None else torch.empty_like(args[i]) for i in (*QUERY_GRADS, NUM_QUERIES)], grad)


ATTEND_GRADS = (*QUERY_GRADS, *(NUM_QUERIES + i for i in KEY_GRADS), NUM_QUERIES + NUM_KEYS)


@attend_backward.register_fake
def _(grad, _normaliser, _sums, _maximum, *args):
    return given([args[i] if args[i] is None else torch.empty_like(args[i]) for i in ATTEND_GRADS], grad)


differentiable(build_state, build_state_backward, KEY_GRADS, (0, 2), (1,))


differentiable(read_state, read_state_backward, (*QUERY_GRADS, NUM_QUERIES), (0,), (1,))


differentiable(attend, attend_backward, ATTEND_GRADS, (0,), (1, 2, 3))


def attend_flops(args: tuple, backward: bool = False) -> int:
    side, targets, key_side, values, sources, _, keep = both_arguments(args)
    width, sizes = values.channels(key_side), (targets.sizes, sources.sizes)
    reads, builds, pairs = side.x.shape[0], key_side.x.shape[0], (0, 0, 0)
    if not (is_fake(targets.sizes) or targets.sizes.is_meta):  # whose numbers are not known
        paired = is_paired(key_side, width, chunk_rows(key_side, width), *sizes)
        pairs = [int((part * paired).sum()) for part in (*sizes, targets.sizes * sources.sizes)]
        reads, builds = reads - pairs[0], builds - pairs[1]
    again = build_flops(key_side, values, nodes=builds) if backward and not keep else 0
    states = read_flops(side, side.rank() * (width + 1), backward, reads) + build_flops(key_side, values, backward, builds) + again
    return states + pair_flops(side, key_side, values, backward, *pairs)


count('build_state', lambda args: build_flops(*key_arguments(args)[:2]))


count('build_state_backward', lambda args: build_flops(*key_arguments(args[3:])[:2], backward=True))


count('read_state', lambda args: read_flops(query_arguments(args)[0], args[NUM_QUERIES].shape[3]))


count('read_state_backward', lambda args: read_flops(query_arguments(args[2:])[0], args[2 + NUM_QUERIES].shape[3], backward=True))


count('attend', attend_flops)


count('attend_backward', lambda args: attend_flops(args[4:], backward=True))
