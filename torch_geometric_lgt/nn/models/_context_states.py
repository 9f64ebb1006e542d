# N nodes. The state of a layer holds the sums over all keys of each graph.
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torch_geometric_lgt._arguments import is_whole
from torch_geometric_lgt.distributed import check_group
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.attention.state_checks import (
    check_mergeable,
    check_mode,
    check_projection,
    check_states,
)
from torch_geometric_lgt.nn.models._graph_context import GraphContext


def check_context(context: GraphContext, num_nodes: int, attentions: Sequence[Any]) -> None:
    r"""Checks what a :obj:`context` says of nodes outside an input of :obj:`num_nodes` nodes, which
    all layers with attention, :obj:`attentions`, read.

    Raises:
        TypeError: If the states or the processes are of a wrong type.
        ValueError: If they do not fit the layers, the input or each other.
    """
    states, group, num_keys = context.states, context.process_group, context.num_keys
    number = len(attentions)
    if states is not None:
        fix = '; pass memory.without(nodes) of an AttentionMemory, for the nodes that are keys'
        check_states(states, fix)
    if states is not None and len(states) != number:
        raise ValueError(
            f"'states' must be one for each of {number} layers with attention (got {len(states)})"
        )
    if num_keys is not None and states is None and group is None:
        raise ValueError(
            f"'num_keys' must be None without 'states' or 'process_group' (got {num_keys}); "
            'dist.group.WORLD is None before init_process_group'
        )
    check_group(group, 'process_group')
    if num_keys is not None:
        is_number = torch.compiler.is_compiling() or is_whole(num_keys, 0)
        if not (is_number and 0 <= num_keys <= num_nodes):
            raise ValueError(
                "'num_keys' must be a whole number between 0 and the number of nodes, "
                f'{num_nodes} (got {num_keys!r})'
            )
    if states and not torch.compiler.is_compiling():
        if group is None:
            _check_left_out(states[0].num_left_out, num_nodes if num_keys is None else num_keys)
        for attention, state in zip(attentions, states, strict=True):
            draws_noise = attention.training and getattr(attention, 'num_gumbel_samples', 0) > 0
            fix = '; call attention_memory again in this mode'
            check_mode('states', state, draws_noise, 'of a memory that was ', fix)
            projection = getattr(attention, 'random_projection', None)
            fix = '; call attention_memory again, or load the parameters of its model'
            check_projection('states', state, projection, fix)
    if group is not None and context.batch is not None and context.batch_size is None:
        raise ValueError(
            "'batch_size' must be given with 'batch' and 'process_group': each process has a "
            'state for every graph'
        )


def _check_left_out(num_left_out: int | None, num_keys: int) -> None:
    r"""Raises a ValueError if states leave out another number of nodes than the input has keys."""
    if num_left_out not in (None, num_keys):
        raise ValueError(
            f"'num_keys' must be {num_left_out}, the number of nodes that 'states' leave "
            f"out, the first rows of 'x' (got {num_keys}): every other node is in 'states'"
        )


def state_of_all_keys(
    attention: Any, x: Tensor, context: GraphContext, number: int
) -> AttentionState:
    r"""Builds the state that a layer reads in place of the keys of its input.

    It adds up the keys of the input, of all processes, and of the nodes outside the input, as
    :obj:`context` demands.

    Args:
        attention (torch.nn.Module): The attention of the layer.
        x (torch.Tensor): The input of the layer ``[N, D]``.
        context (GraphContext): The batch vector, the processes and the states.
        number (int): The number of the layer among those with attention, from 0.
    """
    batch = None if context.batch is None else context.batch[: context.num_keys]
    keys = x[: context.num_keys]
    state = with_state(attention).attention_state(keys, batch, context.batch_size)
    if context.process_group is not None:
        state = state.all_reduce(context.process_group)
    if context.states is not None:
        other = context.states[number]
        fix = '; give states that attention_memory of this model builds'
        check_mergeable(f'states[{number}]', other, state, fix)
        device, dtype = state.sums.device, state.sums.dtype
        if other.sums.device != device:  # the device lacks the double precision of a memory
            state = state.to(other.sums.device)
        state = other.merge(state).to(device, dtype)
    state.projection = None  # that of the layer, with which check_context has compared the states
    return state


def with_state(attention: Any) -> Any:
    r"""Returns the layer :obj:`attention`.

    Raises:
        ValueError: If the layer has no state, such as :class:`torch.nn.MultiheadAttention`.
    """
    if not hasattr(attention, 'attention_state'):
        raise ValueError(
            "'attn_type' must have sums over keys (a method 'attention_state') for a part of a "
            f'graph (got {type(attention).__name__})'
        )
    return attention
