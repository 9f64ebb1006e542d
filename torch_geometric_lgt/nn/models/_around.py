# N nodes, L layers.
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.typing import Adj, PairTensor

Edges = Adj | Sequence[Tensor] | None
Degree = Tensor | PairTensor | None
States = Sequence[AttentionState] | None


class Around(NamedTuple):
    r"""What a layer sees beside its input: edges, graph ids, the degrees in the whole graph, the states of nodes outside the batch, one for
    each layer, and how many nodes of the batch, its first, join them with their keys."""

    edges: Edges
    batch: Tensor | None = None
    batch_size: int | None = None
    degree: Degree = None
    states: States = None
    num_keys: int = 0
