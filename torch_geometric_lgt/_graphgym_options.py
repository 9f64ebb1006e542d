import inspect
from typing import Any

from torch.nn import Module
from torch_geometric.nn import GPSConv

from torch_geometric_lgt._arguments import nearest_name
from torch_geometric_lgt.nn.models._message_passing_layers import CONVS, EDGE_CHANNELS, pyg_conv


def check_options(
    kind: Any, options: dict[str, Any], fixed: dict[str, str], kinds: dict[str, Any]
) -> None:
    r"""Raises a ValueError unless the names of the :obj:`options`, those of ``cfg.lgt``, are
    arguments of the class :obj:`kind`.

    Args:
        kind (type): A layer or model.
        options (dict): The options by name.
        fixed (dict): The settings of GraphGym by the arguments that they set.
        kinds (dict): All layers and models by their names in GraphGym.
    """
    known = _arguments(kind)
    for name, value in options.items():
        if name in fixed:
            raise ValueError(
                f"'lgt.{name}' must not be set (got {value!r}); set {fixed[name]!r} in its place"
            )
        if name not in known:
            owners = [key for key, each in kinds.items() if name in _arguments(each)]
            hint = f'; remove it, it belongs to {", ".join(owners)}' if owners else ''
            raise ValueError(
                f"'lgt.{name}' must be an argument of {kind.__name__.lstrip('_')} (got {value!r})"
                f'{hint or nearest_name(name, known)}'
            )


def _arguments(kind: Any) -> set[str]:
    r"""Returns the names of the arguments of a class of a layer or model."""
    known = {*inspect.signature(kind).parameters}
    if 'kwargs' in known:
        known |= {*inspect.signature(GPSConv).parameters}
    if 'conv' in known:  # arguments of the message passing
        known |= {'conv_kwargs', 'edge_channels'}
    return known - {'kwargs'}


def named_message_passing(channels: int, options: dict[str, Any]) -> Module | None:
    r"""Creates the message passing of a GPS layer that ``options['conv']`` names, and removes
    its arguments from the options.

    Raises:
        ValueError: If the name is unknown, or the arguments do not fit.
    """
    name, arguments = options.pop('conv', 'GCNConv'), options.pop('conv_kwargs', {})
    edge_channels = options.pop('edge_channels', 0)
    for width in EDGE_CHANNELS:
        if width in arguments:
            raise ValueError(
                f"'lgt.conv_kwargs' must not have {width!r} (got {arguments[width]}); set "
                "'lgt.edge_channels' in its place, for the layer to get 'edge_attr'"
            )
    if name is None:
        if edge_channels > 0:
            raise ValueError(
                "'lgt.edge_channels' must be 0 without message passing, which alone reads the "
                f'features of edges (got {edge_channels})'
            )
        return None
    if name not in CONVS:
        raise ValueError(
            "'conv' must be None or the name of a layer of torch_geometric.nn "
            f'(got {name!r}){nearest_name(name, CONVS)}'
        )
    return pyg_conv(name, channels, options.get('heads', 1), edge_channels, arguments)
