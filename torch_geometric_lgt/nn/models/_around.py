# N nodes, L layers.
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor
from torch.distributed import ProcessGroup

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.neighbors.edges import SortedEdges
from torch_geometric_lgt.typing import Adj, PairTensor

Edges = Adj | SortedEdges | Sequence[Adj | SortedEdges] | None
Degree = Tensor | PairTensor | None
States = Sequence[AttentionState] | None


class Around(NamedTuple):
    r"""What a layer sees beside its input: edges, graph ids, the degrees in the whole graph, the
    states of nodes that are not at hand, one for each layer, the processes that have the others,
    and how many nodes, the first of the input, are keys (:obj:`None`: all)."""

    edges: Edges
    batch: Tensor | None = None
    batch_size: int | None = None
    degree: Degree = None
    states: States = None
    num_keys: int | None = None
    process_group: ProcessGroup | None = None
