from typing import Annotated, Any, TypeAlias, cast

import torch_geometric.typing
from torch import Tensor

Adj: TypeAlias = Any
"""An edge list ``[2, E]``, a sparse tensor or any other format that PyG accepts."""
SparseTensor: Any = cast(Any, torch_geometric.typing).SparseTensor
"""The class of torch-sparse, or PyG's stand-in for it."""
PairTensor: TypeAlias = tuple[Tensor, Tensor]
"""Features of the sources and features of the targets of a bipartite layer."""
Batch: TypeAlias = Tensor | tuple[Tensor | None, Tensor | None] | None
"""Graph ids ``[N]`` of the nodes, or a pair for sources and targets; :obj:`None` for one graph."""

GRADIENT = 'gradient'
Differentiable: TypeAlias = Annotated[Tensor, GRADIENT]
"""A tensor argument of an operator for which the operator returns a gradient."""
DifferentiableOrNone: TypeAlias = Annotated[Tensor | None, GRADIENT]
"""Like :obj:`Differentiable`, for an argument that may be :obj:`None`."""
