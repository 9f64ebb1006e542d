# N nodes, D channels of an input, H heads, K samples.
import json
import os
from typing import Any

import torch
from torch import Tensor
from torch.nn import ModuleList

from torch_geometric_lgt._io import raw_bytes, read_tensors, write_tensors
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.attention.state import ENTRIES
from torch_geometric_lgt.nn._layers.linear_parts import reference
from torch_geometric_lgt.nn.models._streaming.key_state import key_state
from torch_geometric_lgt.nn.models._streaming.keys import plain_settings

KIND = 'attention_memory'
NAMED = 3
REBUILD = 'build the memory again and save it'
ADVICE = 'pass the model of the memory, or build the memory again'


def write_memory(
    path: str | os.PathLike[str],
    convs: Any,
    inputs: list[Tensor],
    noise: list[Tensor | None],
    states: list[AttentionState],
) -> None:
    r"""Writes the layers :obj:`convs` (settings, parameters, buffers) with their inputs
    ``[N, D]``, noise ``[N, H * K]`` or :obj:`None`, and states to a safetensors file."""
    settings = json.dumps(_settings(convs)).encode()
    tensors = {'settings': torch.tensor(list(settings), dtype=torch.uint8, device='cpu')}
    for index, (conv, x, draws, state) in enumerate(zip(convs, inputs, noise, states, strict=True)):
        layer = {f'conv.{name}': value for name, value in conv.state_dict().items()}
        layer |= {f'state.{name}': value for name, value in state.state_dict().items()}
        layer |= {'input': x} if draws is None else {'input': x, 'noise': draws}
        tensors |= {f'{index}.{name}': value for name, value in layer.items()}
    write_tensors(path, tensors, KIND)


def read_memory(
    path: str | os.PathLike[str], convs: Any
) -> tuple[list[Tensor], list[Tensor | None], list[AttentionState]]:
    r"""Reads a file of :meth:`write_memory`: copies parameters and buffers to the layers
    :obj:`convs`, and returns the inputs, the noise and the states.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is damaged or lacks a tensor, or the layers have other settings or
            sizes than those in the file.
    """
    try:
        tensors = read_tensors(path, KIND, mapped=True)
    except FileNotFoundError as error:
        message = f"'path' must be a file that 'save' wrote; {REBUILD}"
        raise FileNotFoundError(error.errno, message, str(path)) from error
    _check_settings(tensors['settings'], convs, path)
    inputs = [tensors[f'{index}.input'] for index in range(len(convs))]
    noise = [tensors.get(f'{index}.noise') for index in range(len(convs))]
    states = []
    for index, conv in enumerate(convs):
        parameters = {name: tensors[f'{index}.conv.{name}'] for name in conv.state_dict()}
        state = {name: tensors[f'{index}.state.{name}'] for name in ENTRIES}
        try:
            conv.load_state_dict(parameters)
            conv.train(noise[index] is not None)
            _check_state(state, key_state(conv, inputs[index], noise[index], slice(0, 0)))
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            raise ValueError(
                f"'model' must have layers with the sizes of those in {str(path)!r} (got layer "
                f'{index}: {error}); {ADVICE}'
            ) from error
        states.append(AttentionState.from_state_dict(state).to(reference(conv).device))
    sizes = {len(x) for x in (*inputs, *noise) if x is not None}
    sizes |= {count for state in states for count in state.count.tolist()}
    if len(sizes) != 1:
        raise ValueError(
            f"'path' must be of one number of nodes in all layers (got {sorted(sizes)} in "
            f'{str(path)!r}); {REBUILD}'
        )
    return inputs, noise, states


def _settings(convs: ModuleList) -> dict[str, str]:
    r"""Returns the settings of the layers by name, without private ones, which depend on the
    version of PyG."""
    settings = plain_settings(convs)
    return {name: settings[name] for name in settings if '._' not in name}


def _check_settings(settings: Tensor, convs: ModuleList, path: str | os.PathLike[str]) -> None:
    r"""Raises a ValueError that names the first differences unless the layers :obj:`convs` have the
    :obj:`settings` (bytes of JSON) in the file :obj:`path`."""
    ours = _settings(convs)
    try:
        theirs = dict(json.loads(raw_bytes(settings).tobytes()))
    except (RecursionError, TypeError, ValueError) as error:
        raise ValueError(
            f"'path' must hold settings in JSON (got {str(path)!r}: {error}); {REBUILD}"
        ) from error
    layers = [
        len({name.split('.')[0] for name in settings if name.split('.')[0].isdigit()})
        for settings in (theirs, ours)
    ]
    if layers[0] != layers[1]:
        raise ValueError(
            f"'model' must have {layers[0]} layers with attention, as that of {str(path)!r} (got "
            f'{layers[1]}); {ADVICE}'
        )
    names = [name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name)]
    if names:
        differences = ', '.join(
            f'{name}: {theirs.get(name)} (got {ours.get(name)})' for name in names[:NAMED]
        )
        raise ValueError(
            f"'model' must have the layers and settings of those in {str(path)!r}, {differences}; "
            f'{ADVICE}'
        )


def _check_state(state: dict[str, Tensor], empty: AttentionState) -> None:
    r"""Raises a ValueError unless the tensors of a :obj:`state` have the dtypes, shapes, rank and
    samples of the state that the layer builds of no node."""
    for name, tensor in empty.state_dict().items():
        expected = tensor.dtype, tuple(tensor.shape)
        actual = state[name].dtype, tuple(state[name].shape)
        if expected != actual or (name in ('rank', 'samples') and int(state[name]) != int(tensor)):
            raise ValueError(f'{name} of {actual} in place of {expected}')
