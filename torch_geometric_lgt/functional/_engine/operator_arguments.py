from typing import ClassVar

from torch import Tensor

from torch_geometric_lgt.functional._engine.arguments import Arguments
from torch_geometric_lgt.functional._engine.dispatch import are_alike, has_formula, is_plain
from torch_geometric_lgt.functional.inputs import KernelInput, LinearInput
from torch_geometric_lgt.functional.segment import Segments
from torch_geometric_lgt.typing import Differentiable, DifferentiableOrNone


class BuildArguments(Arguments):
    r"""Holds the arguments of :obj:`build_state`: how keys and values are computed, and which node
    belongs to which graph."""

    keys: KernelInput
    values: LinearInput
    nodes: Segments
    shares: ClassVar = {'values.x': 'keys.x'}


class ReadArguments(Arguments):
    r"""Holds the arguments of :obj:`read_state`: how queries are computed, which node belongs to
    which graph, and two results of :obj:`build_state`."""

    queries: KernelInput
    nodes: Segments
    sums: Differentiable
    maximum: Tensor


class AttendArguments(Arguments):
    r"""Holds the arguments of :obj:`attend`: how queries, keys and values are computed, and which
    node belongs to which graph.

    :obj:`factor` ``[B, H, M]`` multiplies the features of the states (sums over all keys of a
    graph) before queries read them. If :obj:`store_states`, the states without this factor are
    outputs, which the backward pass uses; otherwise it builds them again.
    """

    queries: KernelInput
    targets: Segments
    keys: KernelInput
    values: LinearInput
    sources: Segments
    factor: DifferentiableOrNone
    store_states: bool
    shares: ClassVar = {'keys.x': 'queries.x', 'values.x': 'keys.x'}

    def is_plain(self) -> bool:
        r"""Returns whether the graphs are small (:meth:`dispatch.is_plain`)."""
        channels = self.values.channels(self.keys.heads)
        return is_plain(self.queries, self.keys, channels, self.targets, self.sources)

    def has_formula(self) -> bool:
        r"""Returns whether autograd can record the attention (:meth:`dispatch.has_formula`)."""
        return has_formula(self.queries, self.keys)

    def are_alike(self) -> bool:
        r"""Returns whether the graphs have about as many nodes as each other
        (:meth:`dispatch.are_alike`)."""
        channels = self.values.channels(self.keys.heads)
        return are_alike(self.queries, self.keys, channels, self.targets, self.sources)
