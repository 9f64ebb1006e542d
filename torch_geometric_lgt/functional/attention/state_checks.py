# M features, C channels of a key. A state holds the sums over all keys of each graph.
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torch_geometric_lgt.functional.inputs import KernelInput
from torch_geometric_lgt.functional.numerics import compute_dtype
from torch_geometric_lgt.functional.segment import Segments
from torch_geometric_lgt.functional.tracing import is_watched, may_read_values

if TYPE_CHECKING:
    from torch_geometric_lgt.functional.attention.state import AttentionState


def check_state(name: str, value: Any) -> None:
    r"""Raises a TypeError, which calls :obj:`value` by :obj:`name`, unless it is a state."""
    if not hasattr(value, 'sums'):
        raise TypeError(
            f"'{name}' must be an AttentionState, which 'attention_state' of a layer returns (got "
            f"{type(value).__name__}); AttentionState.from_state_dict takes a 'state_dict'"
        )


def check_states(states: Any, fix: str = '') -> None:
    r"""Raises a TypeError, which ends in :obj:`fix`, unless :obj:`states` is a list of states."""
    if not isinstance(states, Sequence):
        raise TypeError(f"'states' must be a list of states (got {type(states).__name__}){fix}")
    for index, state in enumerate(states):
        check_state(f'states[{index}]', state)


def check_mergeable(
    name: str, value: 'AttentionState', state: 'AttentionState', fix: str = ''
) -> None:
    r"""Raises a ValueError, which calls :obj:`value` by :obj:`name` and ends in :obj:`fix`, unless
    it has the sizes of :obj:`state`. A TypeError is raised if it is no state."""
    check_state(name, value)
    expected, actual = ((each.sums.shape, each.rank, each.samples) for each in (state, value))
    if actual != expected:
        raise ValueError(
            f"'{name}' must have the graphs, heads, features, channels and samples of {state} "
            f'(got {value}){fix}'
        )


def check_mode(
    name: str, state: 'AttentionState', draws_noise: bool, of: str = '', fix: str = ''
) -> None:
    r"""Raises a ValueError, which calls the states by :obj:`name` and ends in :obj:`fix`, if only
    one of the keys of :obj:`state` and those of the layer have NodeFormer's noise. The text
    :obj:`of` says in the message of what the states are."""
    if state.has_noise not in (None, draws_noise):
        built, read = ('training', 'evaluation') if state.has_noise else ('evaluation', 'training')
        raise ValueError(
            f"'{name}' must be {of}built in {read}, the mode of the layer (got one of {built}): "
            f'noise and temperature of the keys differ{fix}'
        )


def check_projection(
    name: str, state: 'AttentionState', projection: Tensor | None, fix: str = ''
) -> None:
    r"""Raises a ValueError, which calls the states by :obj:`name` and ends in :obj:`fix`, if the
    keys of :obj:`state` have other random vectors than the :obj:`projection` ``[M, C]`` of the
    layer. The vectors may be rounded to half precision."""
    other = state.projection
    if other is None or projection is None or len(other) != len(projection):
        return
    if is_watched() or other.is_meta or projection.is_meta or not may_read_values(projection):
        return
    if other.shape != projection.shape or not torch.allclose(
        other.to(projection), projection, rtol=0.01, atol=0.01
    ):
        raise ValueError(
            f"'{name}' must be of keys with the random features of the layer (got those of another "
            f"'feature_map.projection', from before it was drawn anew or of another model){fix}"
        )


def check_readable(state: 'AttentionState', queries: KernelInput, nodes: Segments) -> None:
    r"""Raises a ValueError unless the queries fit the state in sizes, dtype and device."""
    check_fit(queries, nodes, (*state.sums.shape[:3], state.rank, state.samples))
    dtype, device = compute_dtype(queries.x.dtype), queries.x.device
    if (state.sums.dtype, state.sums.device) != (dtype, device):
        raise ValueError(
            f"'state' must be of {dtype} on {device} (got {state.sums.dtype} on "
            f'{state.sums.device}); use state.to({str(device)!r}, {dtype})'
        )


def check_fit(queries: KernelInput, nodes: Segments, state_sizes: tuple[int, ...]) -> None:
    r"""Raises a ValueError unless the queries have the sizes of a state: the numbers
    :obj:`state_sizes` of graphs, heads, features, rank and samples."""
    num_graphs, num_features = nodes.sizes.size(0), queries.num_features()
    sizes = (num_graphs, queries.heads, num_features, queries.rank(), queries.samples)
    if sizes != state_sizes:
        raise ValueError(
            "'state' must have the graphs, heads, features, rank and samples of the queries, "
            f'{sizes} (got {state_sizes})'
        )
