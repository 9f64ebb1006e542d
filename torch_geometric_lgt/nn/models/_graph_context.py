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


class GraphContext(NamedTuple):
    r"""Collects what the layers of a model read beside their input.

    Attributes:
        edges: The edges of the graph, as the layers take them.
        batch (torch.Tensor, optional): The graph ids ``[N]``.
        batch_size (int, optional): The number of graphs.
        degree (torch.Tensor, optional): The degrees ``[N]`` in the whole graph.
        states (list, optional): The state of all nodes outside the input, one for each layer.
        num_keys (int, optional): The number of nodes, the first of the input, that are keys.
            (default: :obj:`None`, all)
        process_group (ProcessGroup, optional): The processes that hold the other nodes.
    """

    edges: Edges
    batch: Tensor | None = None
    batch_size: int | None = None
    degree: Degree = None
    states: States = None
    num_keys: int | None = None
    process_group: ProcessGroup | None = None
