r"""Dense definitions (``dense``) and the checks of layers, models, transforms and loaders
(``checks``), imported when they are used."""

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
