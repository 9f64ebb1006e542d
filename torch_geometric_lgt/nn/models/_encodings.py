# N nodes.
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.nn import ModuleDict

from torch_geometric_lgt._arguments import check_attribute_name, nearest_name
from torch_geometric_lgt.nn._layers.input_checks import check_devices, check_tensor

TRANSFORMS = {'laplacian_pe': 'LaplacianPE', 'svd_pe': 'SVDEncoding'}
SYNONYMS = {'num_graphs': 'batch_size'}  # the name in PyG's Batch
PAIRS = '; score pairs by the outputs of their nodes, as in (out[source] * out[target]).sum(1)'
WITH_POSITIONS = ('kernel', 'difformer', 'sgformer')


def check_encodings(encodings: dict[str, int] | None, forward: Callable) -> None:
    r"""Checks the channels of the encodings of a model, by name, against the arguments of its
    method :obj:`forward`.

    Raises:
        ValueError: If :obj:`encodings` is no dictionary, or a name cannot be a keyword of
            :obj:`forward` or a name in the state dict.
    """
    if encodings is None:
        return
    if not isinstance(encodings, Mapping):
        raise ValueError(
            "'encodings' must be a dictionary with the channels of each name, such as "
            f"{{'laplacian_pe': 10}} (got {encodings!r})"
        )
    arguments = inspect.signature(forward).parameters
    for name in encodings:
        if name in arguments or hasattr(ModuleDict, str(name)):
            raise ValueError(
                "'encodings' must have names that are no arguments of 'forward' or methods of a "
                f"ModuleDict (got {name!r}); choose another, such as 'encoding'"
            )
        check_attribute_name("each name in 'encodings'", name)


def check_position(
    position: str | None,
    encodings: dict[str, int],
    attn_type: Any,
    attn_kwargs: dict[str, Any] | None,
) -> None:
    r"""Checks from which encoding the attention makes queries and keys.

    Raises:
        ValueError: If :obj:`position` is none of the :obj:`encodings`, the attention takes none, or
            :obj:`attn_kwargs` have a size of positions.
    """
    if 'position_channels' in (attn_kwargs or {}):
        raise ValueError(
            "'attn_kwargs' must not have 'position_channels' in a model, which passes one of its "
            "'encodings' to the attention; give its name as 'position'"
        )
    if position is None:
        return
    if position not in encodings:
        raise ValueError(
            f"'position' must be one of 'encodings', {list(encodings)} (got {position!r})"
            f'{nearest_name(position, encodings)}'
        )
    if attn_type not in WITH_POSITIONS:
        raise ValueError(
            f"'attn_type' must be one of {', '.join(map(repr, WITH_POSITIONS))} with 'position' "
            f'(got {attn_type!r}); leave out position={position!r}, or choose one of these'
        )


def sorted_encodings(
    encodings: dict[str, Tensor], channels: dict[str, int], forward: Callable
) -> list[Tensor]:
    r"""Returns the encodings that the method :obj:`forward` of a model got by name, in the order of
    the model's :obj:`channels`.

    Raises:
        ValueError: If an encoding is unknown or missing.
    """
    for name, value in encodings.items():
        if isinstance(value, Mapping):
            raise ValueError(
                f"'{name}' must be a tensor (got a dictionary); give each encoding by its name, "
                f'such as laplacian_pe=.., or all of them by **{name}'
            )
        if name not in channels:
            arguments = [*inspect.signature(forward).parameters][1:-1]
            hint = nearest_name(SYNONYMS.get(name, name), [*channels, *arguments]) or (
                f'; for an encoding make the model with encodings={{{name!r}: channels}}'
            )
            hint = PAIRS if name == 'edge_label_index' else hint
            raise ValueError(
                f"'{name}' must be one of the 'encodings' of the model, "
                f'{list(channels)}, or one of {", ".join(arguments)} (got {name}=..){hint}'
            )
    for name, width in channels.items():
        if encodings.get(name) is None:
            raise ValueError(
                f"'{name}' must be given, [N, {width}], for the model has it in 'encodings' "
                f'(got None); pass {name}=data.{name}, which '
                f'{TRANSFORMS.get(name, "a transform")} adds to the data'
            )
    return [encodings[name] for name in channels]


def check_encoding(name: str, encoding: Tensor, x: Tensor, channels: int) -> None:
    r"""Raises an error unless the encoding called :obj:`name` is a tensor ``[N, channels]`` on the
    device of the features :obj:`x` ``[N, F]``."""
    check_tensor(encoding, name)
    shape = x.size(0), channels
    if encoding.shape != shape:
        fix = f'; give {name}[:, None]' if (*encoding.shape, 1) == shape else ''
        raise ValueError(f"'{name}' must have shape {shape} (got {tuple(encoding.shape)}){fix}")
    check_devices(x.device, **{name: encoding})
