r"""Contains dense definitions of the formulas (``dense``) and checks of layers, models, transforms
and loaders (``checks``). Each module is imported at its first use.

Example:
    >>> import torch
    >>> from torch_geometric_lgt import testing
    >>> testing.dense.jaccard(torch.tensor([[0., 1.], [1., 0.]]))
    tensor([[1., 0.],
            [0., 1.]])
    >>> testing.checks.__all__
    ['check_layer', 'check_loader', 'check_model', 'check_transform']
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_geometric_lgt.testing import checks as checks
    from torch_geometric_lgt.testing import dense as dense


def __getattr__(name: str) -> ModuleType:
    if name in ('checks', 'dense'):
        return importlib.import_module(f'{__name__}.{name}')
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
