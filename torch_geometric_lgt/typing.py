from typing import Annotated, Any, TypeAlias, cast

import torch_geometric.typing
from torch import Tensor

Adj: TypeAlias = Any
"""An edge list ``[2, E]``, a sparse tensor or any other format that PyG accepts."""
SparseTensor: Any = cast(Any, torch_geometric.typing).SparseTensor
"""The class of torch-sparse, or PyG's stand-in for it."""
PairTensor: TypeAlias = tuple[Tensor, Tensor]
Batch: TypeAlias = Tensor | tuple[Tensor | None, Tensor | None] | None

GRADIENT = 'gradient'
Differentiable: TypeAlias = Annotated[Tensor, GRADIENT]
"""An argument of an operator that has a gradient."""
DifferentiableOrNone: TypeAlias = Annotated[Tensor | None, GRADIENT]
