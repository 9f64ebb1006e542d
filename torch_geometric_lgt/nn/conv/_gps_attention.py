# N nodes, F channels.
import inspect
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module, MultiheadAttention
from torch_geometric.nn.inits import reset
from torch_geometric.utils import to_dense_batch

from torch_geometric_lgt._arguments import check_choice, nearest_name
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.segment import segments
from torch_geometric_lgt.nn._layers.layer_checks import check_batch_arguments
from torch_geometric_lgt.nn.attention.degree_masked_attention import DegreeMaskedAttention
from torch_geometric_lgt.nn.attention.mean_attention import MeanAttention
from torch_geometric_lgt.nn.conv.difformer_conv import DIFFormerConv
from torch_geometric_lgt.nn.conv.kernel_attention_conv import KernelAttentionConv
from torch_geometric_lgt.nn.conv.sgformer_conv import SGFormerConv

ATTENTIONS: dict[str, type[Module]] = {
    'kernel': KernelAttentionConv,
    'degree_masked': DegreeMaskedAttention,
    'difformer': DIFFormerConv,
    'sgformer': SGFormerConv,
    'mean': MeanAttention,
    'multihead': MultiheadAttention,
}

# the names that attentions give to the number of channels and of heads
CHANNELS = ('in_channels', 'out_channels', 'channels', 'embed_dim')
HEADS = ('heads', 'num_heads')
FIXED = {'difformer': {'use_graph': False}, 'multihead': {'batch_first': True}}


def make_attention(
    channels: int,
    heads: int,
    attn_type: str | Module | None,
    attn_kwargs: dict[str, Any] | None = None,
) -> Module | None:
    r"""Creates the all-pair attention of :class:`GPSConv` from its arguments.

    Raises:
        ValueError: If the type is unknown or has no argument of a name in :obj:`attn_kwargs`, or a
            layer comes with :obj:`attn_kwargs` or takes no batch vector.
    """
    if attn_type is None or isinstance(attn_type, Module):
        if attn_kwargs:
            raise ValueError(
                "'attn_kwargs' must be None unless 'attn_type' is a name (got "
                f'{attn_kwargs} and {attn_type!r})'
            )
        if isinstance(attn_type, MultiheadAttention):
            if not attn_type.batch_first:
                raise ValueError(
                    "'attn_type' must be a MultiheadAttention with batch_first=True (got False)"
                )
        elif attn_type is not None:
            check_batch_arguments('attn_type', attn_type)
        return attn_type
    check_attention(attn_type, ATTENTIONS, ', None or a layer')
    return _named_attention(channels, heads, attn_type, attn_kwargs or {})


def _named_attention(
    channels: int, heads: int, attn_type: str, attn_kwargs: dict[str, Any]
) -> Module:
    known = inspect.signature(ATTENTIONS[attn_type]).parameters
    arguments = {name: channels for name in CHANNELS if name in known}
    arguments |= {name: heads for name in HEADS if name in known}
    arguments |= FIXED.get(attn_type, {})
    names = [name for name in known if name not in arguments]
    for name in attn_kwargs:
        if name not in names:
            hint = nearest_name(name, names)
            if name == 'dropout':
                hint = (
                    '; a linear attention has no weights to drop: set dropout=.. of the layer or '
                    'model, for the output of the attention'
                )
            raise ValueError(
                f"'attn_kwargs' must have names among {', '.join(map(repr, names))} with "
                f'attn_type={attn_type!r} (got {name!r}){hint}'
            )
    return ATTENTIONS[attn_type](**arguments, **attn_kwargs)


def reset_layer(module: Module) -> None:
    r"""Resets all learnable parameters of :obj:`module`.
    :class:`torch.nn.MultiheadAttention` has no public method for this."""
    if isinstance(module, MultiheadAttention):
        module.out_proj.reset_parameters()  # of which the method leaves the weight as it is
        module._reset_parameters()
    else:
        reset(module)


def check_attention(attn_type: Any, names: Iterable[str], others: str) -> None:
    r"""Checks that a type of attention is one of :obj:`names`. The message puts :obj:`others` after
    them, and asks for ``'kernel'`` in place of PyG's ``'performer'``.

    Raises:
        ValueError: If it is anything else.
    """
    is_performer = attn_type == 'performer'
    hint = "; did you mean 'kernel', the linear attention of this package?" if is_performer else ''
    check_choice('attn_type', attn_type, names, others, hint)


def attend(
    attention: Any,
    x: Tensor,
    batch: Tensor | None,
    batch_size: int | None,
    state: AttentionState | None,
    **arguments: Any,
) -> Tensor:
    r"""Computes the output ``[N, F]`` of an all-pair attention, which
    :class:`torch.nn.MultiheadAttention` computes on padded graphs. The arguments after
    :obj:`attention` are those of :meth:`GPSConv.attend`.

    Raises:
        ValueError: If :class:`torch.nn.MultiheadAttention` gets a state or further arguments, or
            :class:`DegreeMaskedAttention` no degrees.
    """
    is_masked = isinstance(attention, DegreeMaskedAttention)
    if is_masked and 'degree' not in arguments and 'edge_index' not in arguments:
        raise ValueError(
            "'attn_arguments' must have the degrees of the nodes for DegreeMaskedAttention, "
            "{'degree': degree}, which the NodeDegree transform adds to the data (got none)"
        )
    if not isinstance(attention, MultiheadAttention):
        if state is not None:
            arguments['state'] = state
        return attention(x, batch=batch, batch_size=batch_size, **arguments)
    check_none(state, arguments, "with attn_type='multihead', which reads neither sums nor degrees")
    sizes, order = segments(batch, x.size(0), batch_size, x.device)
    if x.size(0) == 0:
        return x
    graph = None if batch is None else torch.repeat_interleave(sizes, output_size=x.size(0))
    rows = x if order is None else x[order]  # PyG pads sorted graphs only
    padded, mask = to_dense_batch(rows, graph, batch_size=sizes.numel())
    out, _ = attention(padded, padded, padded, key_padding_mask=~mask, need_weights=False)
    return out[mask] if order is None else out[mask][order.argsort()]


def check_none(state: AttentionState | None, arguments: dict[str, Any], reason: str) -> None:
    r"""Raises a ValueError, which ends with the :obj:`reason`, if there is a :obj:`state` or there
    are further :obj:`arguments`."""
    for name in arguments if state is None else ('state', *arguments):
        raise ValueError(f"'{name}' must be left out {reason}")
