# D hidden channels, H heads.
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from torch.nn import LayerNorm, Module, ModuleList

from torch_geometric_lgt._arguments import check_choice, check_function
from torch_geometric_lgt.nn.conv._gps_attention import ATTENTIONS, check_attention, make_attention
from torch_geometric_lgt.nn.models._batch_norm import ProcessBatchNorm
from torch_geometric_lgt.nn.models._blocks import (
    GatedLayer,
    GPSLayer,
    InputLayer,
    LocalLayer,
    PositionedAttention,
)

NORMS: dict[str | None, Callable[[int], Module | None]] = {
    'batch_norm': ProcessBatchNorm,
    'layer_norm': LayerNorm,
    None: lambda channels: None,
}


def check_attention_type(attn_type: Any) -> None:
    r"""Raises a ValueError if :obj:`attn_type` is a layer, or a name that a model cannot have."""
    if isinstance(attn_type, Module):
        raise ValueError(
            "'attn_type' must be a function, which is called for each layer of the model, such as "
            f'lambda channels, heads: {type(attn_type).__name__}(..) (got {attn_type})'
        )
    if isinstance(attn_type, type) and 'out_channels' in inspect.signature(attn_type).parameters:
        name = attn_type.__name__
        raise ValueError(
            "'attn_type' must be a function of channels and heads, such as lambda channels, heads: "
            f'{name}(channels, channels, heads=heads) (got the class {name})'
        )
    if attn_type == 'degree_masked':
        raise ValueError(
            "'attn_type' must not be 'degree_masked', which reads degrees; build the model of "
            "layers GPSConv(attn_type='degree_masked') (got 'degree_masked')"
        )
    names = [name for name in ATTENTIONS if name != 'degree_masked']
    if isinstance(attn_type, str):
        check_attention(attn_type, names, ', None or a function of channels and heads')


def check_branches(
    conv: Any, attn_type: Any, num_local_layers: int, norm: str | None, gate: bool
) -> None:
    r"""Raises a ValueError if a layer would have neither message passing nor attention, or the
    model cannot have the norm."""
    if conv is None and (attn_type is None or num_local_layers > 0):
        raise ValueError("'conv' must not be None in a layer without attention (got None)")
    if gate and attn_type is None and num_local_layers == 0:
        raise ValueError(
            "'num_local_layers' must be at least 1 with 'gate' and without attention (got 0)"
        )
    check_choice('norm', norm, NORMS)


def make_blocks(
    channels: int,
    num_local_layers: int,
    num_layers: int,
    make_local: Callable[[], Module | None],
    make_global: Callable[[], Module | None],
    *,
    heads: int,
    gate: bool,
    dropout: float,
    input_norm: bool,
    norm: str | None,
    act: str | Module,
) -> ModuleList:
    r"""Creates the layers of a :class:`GraphTransformer` in their order: that of the input with
    :obj:`input_norm`, those without attention, and those with attention.

    Args:
        channels (int): :math:`D`.
        num_local_layers (int): Number of layers without attention.
        num_layers (int): Number of layers with attention.
        make_local (callable): Creates the message passing of a layer.
        make_global (callable): Creates the attention of a layer.
        heads, gate, dropout, input_norm, norm, act: The arguments of the model.
    """
    make_norm = partial(NORMS[norm], channels)
    blocks = ModuleList()
    if input_norm:
        blocks.append(InputLayer(channels, dropout, act, make_norm()))
    for index in range(num_local_layers):
        conv = cast(Module, make_local())
        has_output_norm = gate and index == num_local_layers - 1
        blocks.append(LocalLayer(channels, conv, dropout, act, make_norm(), has_output_norm))
    for _ in range(num_layers):
        if gate:
            block = GatedLayer(channels, cast(Module, make_global()), dropout, act)
        else:
            conv, attn = make_local(), make_global()
            block = GPSLayer(channels, conv, attn, heads, dropout, act, make_norm)
        blocks.append(block)
    return blocks


def make_block_attention(
    channels: int,
    heads: int,
    attn_type: Any,
    attn_kwargs: dict[str, Any] | None,
    position_channels: int | None,
) -> Module | None:
    r"""Creates the attention of one layer. With :obj:`position_channels` its queries and keys are
    of positions, the last columns of its input."""
    if callable(attn_type):
        check_function('attn_type', attn_type, 'channels and heads', channels, heads)
        attn_type = attn_type(channels, heads)
    if position_channels is None:
        return make_attention(channels, heads, attn_type, attn_kwargs)
    options = {**(attn_kwargs or {}), 'position_channels': position_channels}
    return PositionedAttention(make_attention(channels, heads, attn_type, options), channels)
