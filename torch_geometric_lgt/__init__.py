r"""Linear-complexity graph transformers for PyTorch Geometric.

In their layers and models, every node attends to all nodes of its graph, with time and memory in
:math:`O(N)`.

=================  ================================================================================
submodule          contents
=================  ================================================================================
``nn``             layers and the models GraphTransformer, NodeFormer, DIFFormer, SGFormer, LiteGT
                   and MGFormer
``functional``     attention, its mergeable state, Jaccard indices and losses of tensors
``transforms``     encodings, degrees, Jaccard indices and sampled nodes, added to ``Data`` and
                   ``HeteroData``
``loader``         batches of neighbours and of random parts of a graph
``data``           graphs in memory-mapped files
``convert``        parameters of models of other packages, renamed for this package's models
``datasets``       user-item interactions, stochastic block models, travelling salesman problems
``distributed``    differentiable reductions over processes
``diagnostics``    measures of what attention layers do, and searches for NaN and stale features
``visualization``  plots (the extra ``visualization``)
``info``           versions, devices and kernels of this machine
``init``           k-means for the start of learned feature maps
``graphgym``       registration with GraphGym (the extra ``graphgym``)
``testing``        dense definitions, and checks of layers, models, transforms and loaders
=================  ================================================================================

Submodules are imported when they are first used, by ``import torch_geometric_lgt.nn`` or as
``torch_geometric_lgt.nn``.
"""

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch_geometric_lgt import convert as convert
    from torch_geometric_lgt import data as data
    from torch_geometric_lgt import datasets as datasets
    from torch_geometric_lgt import diagnostics as diagnostics
    from torch_geometric_lgt import distributed as distributed
    from torch_geometric_lgt import functional as functional
    from torch_geometric_lgt import graphgym as graphgym
    from torch_geometric_lgt import info as info
    from torch_geometric_lgt import init as init
    from torch_geometric_lgt import loader as loader
    from torch_geometric_lgt import nn as nn
    from torch_geometric_lgt import testing as testing
    from torch_geometric_lgt import transforms as transforms
    from torch_geometric_lgt import visualization as visualization

__version__ = '0.2.0.dev0'
SUBMODULES = (
    'convert',
    'data',
    'datasets',
    'diagnostics',
    'distributed',
    'functional',
    'graphgym',
    'info',
    'init',
    'loader',
    'nn',
    'testing',
    'transforms',
    'visualization',
)


def __getattr__(name: str) -> ModuleType:
    r"""Imports the submodule :obj:`name` when it is first used, and returns the submodule.

    Raises:
        AttributeError: If there is no such submodule.
    """
    if name in SUBMODULES:
        return importlib.import_module(f'{__name__}.{name}')
    raise AttributeError(f'module {__name__!r} has no attribute {name!r}')


def __dir__() -> list[str]:
    r"""Returns the sorted names of this module: all submodules, imported or not, and the other
    names."""
    return sorted({*globals(), *SUBMODULES})
