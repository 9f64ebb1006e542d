from typing import Annotated, Any, TypeAlias, cast

import torch_geometric.typing
from torch import Tensor

Adj: TypeAlias = Any
"""An edge list ``[2, E]``, a sparse tensor or any other format that PyG accepts."""
SparseTensor: Any = cast(Any, torch_geometric.typing).SparseTensor
"""The class of torch-sparse, or PyG's stand-in for it."""
PairTensor: TypeAlias = tuple[Tensor, Tensor]
"""Features of sources and of targets."""
Batch: TypeAlias = Tensor | tuple[Tensor | None, Tensor | None] | None
"""Graph ids of the nodes, or those of sources and of targets; :obj:`None` for one graph."""

GRADIENT = 'gradient'
Differentiable: TypeAlias = Annotated[Tensor, GRADIENT]
"""An argument of an operator that has a gradient."""
DifferentiableOrNone: TypeAlias = Annotated[Tensor | None, GRADIENT]
"""An optional argument of an operator that has a gradient."""
