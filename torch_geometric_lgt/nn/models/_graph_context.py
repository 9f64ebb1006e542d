# N nodes, L layers.
from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor
from torch.distributed import ProcessGroup

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.neighbors.edge_rows import SortedEdges
from torch_geometric_lgt.typing import Adj, PairTensor

Edges = Adj | SortedEdges | Sequence[Adj | SortedEdges] | None
Degree = Tensor | PairTensor | None
States = Sequence[AttentionState] | None


class GraphContext(NamedTuple):
    r"""Collects what the layers of a model read beside the node features.

    Attributes:
        edges: The edges of the graph, in a format of the layers.
        batch (torch.Tensor, optional): The graph id of each node ``[N]``.
        batch_size (int, optional): The number of graphs.
        degree (torch.Tensor or tuple, optional): The degrees ``[N]`` in the whole graph, or a pair
            (sources, targets).
        states (list, optional): For each layer the sums over the keys of all nodes outside the
            input.
        num_keys (int, optional): The number of first nodes of the input that are keys beside
            :obj:`states` or :obj:`process_group`. (default: :obj:`None`, all)
        process_group (ProcessGroup, optional): The processes that have the other nodes.
    """

    edges: Edges
    batch: Tensor | None = None
    batch_size: int | None = None
    degree: Degree = None
    states: States = None
    num_keys: int | None = None
    process_group: ProcessGroup | None = None
