from typing import Any, TypeAlias

from torch import Tensor

Adj: TypeAlias = Any
"""An edge list ``[2, E]``, a sparse tensor or any other format that PyG accepts."""
PairTensor: TypeAlias = tuple[Tensor, Tensor]
Batch: TypeAlias = Tensor | tuple[Tensor | None, Tensor | None] | None
