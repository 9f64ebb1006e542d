# B graphs, N nodes, H heads, D channels of a value, K samples, M features of one, W columns.
r"""Builds and reads states graph by graph, by operations that autograd records."""

from typing import cast

import torch
from torch import Tensor

from torch_geometric_lgt.functional._engine import plain
from torch_geometric_lgt.functional._engine.chunked_keys import Keys
from torch_geometric_lgt.functional._engine.chunked_queries import Queries
from torch_geometric_lgt.functional._engine.features import largest, sampled
from torch_geometric_lgt.functional._engine.layout import join, mask_of, noise_of
from torch_geometric_lgt.functional._engine.operator_arguments import AttendArguments
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput
from torch_geometric_lgt.functional.segment import Segments, join_graphs, split_graphs
from torch_geometric_lgt.functional.tracing import is_portable


def attend(arguments: AttendArguments) -> Tensor:
    r"""Computes the outputs ``[N_t, H * D]`` of :meth:`operators.attend`, by the formulas of small
    graphs if there are some and the graphs are about as large as each other, otherwise from
    states."""
    if arguments.has_formula() and (is_portable() or arguments.are_alike()):
        return plain.attend(arguments)
    sums, maximum, _ = build(arguments.keys, arguments.values, arguments.sources)
    if arguments.factor is not None:
        sums = sums * arguments.factor.unsqueeze(-1)
    return read(arguments.queries, arguments.targets, sums, maximum)


def build(
    inputs: KernelInput, values: LinearInput, nodes: Segments, maximum: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Computes the results of :meth:`operators.build_state`. The :obj:`maximum` ``[B, H, K * M]``
    is the one by whose exponential the sums are divided, by default that of the log-features."""
    keys = Keys(inputs, values)
    num_graphs = nodes.sizes.size(0)
    maxima = [None] * num_graphs if maximum is None else maximum.split([1] * num_graphs)
    parts = [
        _build_graph(keys, positions, top)
        for positions, top in zip(_positions(inputs.x, nodes), maxima, strict=True)
    ]
    empty = keys.empty_state(0)  # the result without graphs
    sums, tops, squares = (torch.cat(results) for results in zip(empty, *parts, strict=True))
    return sums, tops, squares


def read(queries: KernelInput, nodes: Segments, sums: Tensor, maximum: Tensor) -> Tensor:
    r"""Computes the outputs ``[N, H * D]`` of :meth:`operators.read_state`: with samples the mean
    of those of each."""
    reader, num_features = Queries(queries), sums.size(2) // queries.samples
    one_each = [1] * nodes.sizes.size(0)
    states = sums.split(one_each), maximum.split(one_each), _positions(queries.x, nodes)
    channels = sums.size(3) // queries.rank() - 1
    parts = [sums.new_zeros(0, queries.heads * channels)]  # the result without nodes
    for graph_sums, top, positions in zip(*states, strict=True):
        if positions.numel() == 0:
            continue
        samples = graph_sums.split(num_features, 2), top.split(num_features, 2)
        outs = [reader.outputs(*state, positions)[0] for state in zip(*samples, strict=True)]
        parts.append(join(torch.stack(outs).mean(0)))
    return join_graphs(parts, nodes).to(queries.x.dtype)


def _positions(x: Tensor, nodes: Segments) -> tuple[Tensor, ...]:
    r"""Returns the positions of the nodes of each graph."""
    return split_graphs(torch.arange(x.size(0), device=nodes.sizes.device), nodes)


def _build_graph(keys: Keys, nodes: Tensor, maximum: Tensor | None) -> tuple[Tensor, ...]:
    r"""Computes the results of :meth:`build` for the nodes of one graph."""
    inputs = keys.inputs
    if nodes.numel() == 0:
        return keys.empty_state(1)
    _, k, _, v = keys.evaluate(nodes, 1)
    _, squared, log, value = keys.log_features(k)
    if maximum is None:
        weighted = sampled(log, noise_of(inputs, nodes, 1))
        maximum = keys.empty_state(1)[1]
        if weighted is not None:
            maximum = largest(weighted, 2).squeeze(2).expand_as(maximum)
    mask = mask_of(inputs, nodes, 1)
    mask = v.new_ones(()) if mask is None else mask
    mask = mask.expand(*v.shape[:-1], mask.size(-1) if mask.dim() > 0 else 1)
    columns = torch.cat([(v[..., None, :] * mask[..., None]).flatten(-2), mask], -1)
    feature = keys.weighed(log, value, nodes, maximum)
    return feature.transpose(2, 3) @ columns, maximum, cast(Tensor, squared).sum((2, 3))
