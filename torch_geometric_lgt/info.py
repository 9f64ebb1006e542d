r"""The versions, devices and kernels of this machine, for reports of errors.

``python -m torch_geometric_lgt.info`` prints them."""

import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from importlib.util import find_spec

from torch_geometric_lgt import __version__

__all__ = ['environment', 'environment_report']
REQUIRED = (
    'torch',
    'torch-geometric',
    'numpy',
    'scipy',
    'safetensors',
    'filelock',
    'threadpoolctl',
    'tqdm',
)
OPTIONAL = (
    'pyg-lib',
    'torch-scatter',
    'torch-sparse',
    'numba',
    'pyamg',
    'faiss-cpu',
    'pyarrow',
    'matplotlib',
    'yacs',
    'ogb',
    'scikit-learn',
    'optuna',
    'elkai',
    'joblib',
)
MISSING = 'not installed'


def environment() -> dict[str, dict[str, str]]:
    r"""Collects what decides how this package computes: versions, extras, devices and backends.

    Versions are read without an import of the packages, except PyTorch. If a part cannot be read,
    the text of the error stands in its place.

    Returns:
        A dictionary of four dictionaries. ``versions`` and ``extras`` have the versions of the
        packages that are needed and of those that are optional, and ``machine`` has the system and
        its devices. ``kernels`` has for each task the implementation that this machine uses
        (compute kernels or a library), and what is missing for a faster one.

    Example:
        >>> import torch_geometric_lgt
        >>> from torch_geometric_lgt.info import environment
        >>> found = environment()
        >>> list(found)
        ['versions', 'extras', 'machine', 'kernels']
        >>> found['versions']['torch-geometric-lgt'] == torch_geometric_lgt.__version__
        True
    """
    extras = {'triton': _triton(), **{name: _version(name) for name in OPTIONAL}}
    versions = {'python': platform.python_version(), 'torch-geometric-lgt': __version__}
    return {
        'versions': versions | {name: _version(name) for name in REQUIRED},
        'extras': extras,
        'machine': {'system': platform.platform(), **_or_error(_devices)},
        'kernels': _or_error(lambda: _kernels(extras)),
    }


def environment_report() -> str:
    r"""Returns the result of :meth:`environment` as text, one line for each entry.

    Example:
        >>> from torch_geometric_lgt.info import environment_report
        >>> print(environment_report())
        versions
          python                ...
        extras
          ...
    """
    lines = []
    for title, entries in environment().items():
        lines += [title, *(f'  {name:21} {value}' for name, value in entries.items())]
    return '\n'.join(lines)


def _version(name: str) -> str:
    try:
        return str(version(name))
    except PackageNotFoundError:
        return MISSING


def _triton() -> str:
    r"""Returns the version of the module ``triton``, and the name of its distribution if that is
    another, such as ``pytorch-triton`` or ``triton-windows``."""
    if find_spec('triton') is None:
        return MISSING
    names = packages_distributions().get('triton', ())
    if not names:
        return 'of unknown version'
    return _version('triton') if 'triton' in names else f'{_version(names[0])} ({names[0]})'


def _or_error(collect: Callable[[], dict[str, str]]) -> dict[str, str]:
    r"""Returns what :obj:`collect` returns, or its error: a report of a broken installation is
    most needed there."""
    try:
        return collect()
    except Exception as error:
        return {'error': f'{type(error).__name__}: {error}'}


def _devices() -> dict[str, str]:
    import torch

    cuda = [torch.cuda.get_device_properties(i) for i in range(torch.cuda.device_count())]
    devices = {
        'processors': str(os.cpu_count()),
        'threads of torch': str(torch.get_num_threads()),
        'CUDA of torch': str(torch.version.cuda or 'none: built without CUDA'),
    }
    for index, device in enumerate(cuda):
        memory, capability = device.total_memory / 2**30, f'{device.major}.{device.minor}'
        devices[f'cuda:{index}'] = f'{device.name}, {memory:.0f} GiB, capability {capability}'
    return devices


def _kernels(extras: dict[str, str]) -> dict[str, str]:
    return {
        'attention, small': 'plain PyTorch, up to 2^21 features (32,768 nodes with 64 each)',
        'attention, large': 'chunks of nodes, which need less memory',
        'attention, CUDA': _cuda_attention(),
        'Jaccard indices': _first(extras, 'numba', 'NumPy'),
        'Laplacian encodings': _first(extras, 'pyamg', 'SciPy') + ', for large graphs',
        'neighbour sampling': _first(extras, 'pyg-lib', 'NumPy'),
    }


def _cuda_attention() -> str:
    import torch

    from torch_geometric_lgt._kernels import missing_for_kernels

    if not torch.cuda.is_available():
        return 'unused: no CUDA device'
    missing = missing_for_kernels()
    if missing:
        return f'operators over chunks: {missing}'
    return (
        'Triton kernels of edges, of rows, and of random softmax features on large graphs, '
        'else PyTorch'
    )


def _first(extras: dict[str, str], name: str, other: str) -> str:
    return name if extras[name] != MISSING else f'{other}: {name} is not installed'


if __name__ == '__main__':
    try:
        print(environment_report(), flush=True)
    except BrokenPipeError:  # of a reader that closes early, such as head; Python would print it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
