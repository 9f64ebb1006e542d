from typing import Any

import torch
from torch_geometric.nn.resolver import activation_resolver

from torch_geometric_lgt._arguments import nearest_name


def make_activation(act: Any, **options: Any) -> Any:
    r"""Returns the activation that :obj:`act` names, with the arguments :obj:`options`, as PyG's
    layers do. A module or function is returned as it is.

    Raises:
        ValueError: If the name is unknown, :obj:`act` is a class of modules, or it is neither a
            name nor can be called. If there are :obj:`options` and it is no name.
    """
    if isinstance(act, type) and issubclass(act, torch.nn.Module):
        raise ValueError(
            f"'act' must be a name or a module, such as {act.__name__}() (got a class)"
        )
    if options and not isinstance(act, str):
        raise ValueError(
            f"'act_kwargs' must be None unless 'act' is a name (got {options} and {act}); set them "
            'in the module'
        )
    try:
        activation = activation_resolver(act, **options)
    except ValueError as error:
        raise ValueError(_message(act)) from error
    if not callable(activation):
        raise ValueError(_message(act))
    return activation


def _message(act: Any) -> str:
    hint = nearest_name(act, torch.nn.modules.activation.__all__)
    hint = '; for none give torch.nn.Identity()' if act is None else hint
    return (
        "'act' must be the name of an activation of torch.nn, such as 'relu', or a module (got "
        f'{act!r}){hint}'
    )
