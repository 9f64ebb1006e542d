from torch_geometric.data import Data, HeteroData
from torch_geometric.data.datapipes import functional_transform
from torch_geometric.transforms import BaseTransform
from torch_geometric.typing import EdgeType

from torch_geometric_lgt._arguments import check_choice, check_number
from torch_geometric_lgt.functional.neighbors.jaccard import NEIGHBORS
from torch_geometric_lgt.functional.neighbors.node_sampling import (
    MEASURES,
    attention_distance,
    largest_per_graph,
)
from torch_geometric_lgt.functional.numerics import complete_device
from torch_geometric_lgt.transforms._attributes import add_attr, check_name, check_no_input
from torch_geometric_lgt.transforms._stores import (
    check_edge_type,
    edges_of,
    homogeneous,
    num_nodes_of,
    type_repr,
)


@functional_transform('attention_node_sampling')
class AttentionNodeSampling(BaseTransform):
    r"""Marks the nodes that attend by a softmax in
    :class:`~torch_geometric_lgt.nn.JaccardSubtractorConv` (Eq. 10 of `LiteGT
    <https://doi.org/10.1145/3459637.3482272>`_; functional name: :obj:`attention_node_sampling`).

    In each graph of :math:`N` nodes it marks the :math:`\min(N, \max(1, \lceil c \ln N \rceil))`
    nodes with the largest :meth:`~torch_geometric_lgt.functional.attention_distance`. This distance
    estimates how far the attention of a node is from a plain mean. Nodes of equal distance are
    taken in the order of their ids, and nodes without neighbours last. Repeated edges count once.
    Loaders slice the attribute, so a sampled batch carries the mask of the full graph. Apply it
    after the transforms that change nodes or edges: PyG's ``VirtualNode`` leaves its node unmarked.

    Args:
        factor (float, optional): The factor :math:`c` of the number of marked nodes. The default
            marks all nodes of a graph with at most 14. (default: :obj:`5`)
        measure (str, optional): The distance, of the Jaccard indices of a node :math:`i` with its
            neighbours: their maximum minus their mean minus :math:`\log |\mathcal{N}_i|`
            (:obj:`"jaccard"`, Eq. 10). This nearly marks the nodes of the lowest degrees. With
            :obj:`"lse"` (Eq. 9) the logarithm of the sum of their exponentials takes the place of
            the maximum. (default: :obj:`"jaccard"`)
        attr_name (str, optional): Name of the mask, a node attribute ``[N]`` in bool. (default:
            :obj:`"attention_mask"`)
        neighbors (str, optional): Which nodes are neighbours in a directed graph, in the mean and
            in the Jaccard indices. :obj:`"in"`: sources of a node's incoming edges, to which the
            node attends. :obj:`"out"`: targets of its outgoing edges. :obj:`"all"`: both. (default:
            :obj:`"in"`)
        edge_type (tuple, optional): The edges to use in :class:`~torch_geometric.data.HeteroData`,
            such as ``('user', 'knows', 'user')``. They must join nodes of one type. The
            store of these nodes gets the mask.
            (default: :obj:`None`, for :class:`~torch_geometric.data.Data`)

    Raises:
        TypeError: If the data is no graph of PyG.
        ValueError: If :obj:`factor` is not positive, :obj:`measure` or :obj:`neighbors` is unknown,
            or :obj:`attr_name` is no name. If the data has neither edges nor ``adj_t``, or an edge
            names a node that does not exist. If ``adj_t`` has values other than 1, which are not
            used: apply the transform to the edges. If :obj:`edge_type` is bipartite, not in the
            data, or not set for :class:`~torch_geometric.data.HeteroData`.

    Example:
        >>> import torch
        >>> from torch_geometric.data import Data
        >>> from torch_geometric_lgt.transforms import AttentionNodeSampling
        >>> edge_index = torch.tensor([[0, 1, 1, 2, 2, 0, 2, 3], [1, 0, 2, 1, 0, 2, 3, 2]])
        >>> data = Data(edge_index=edge_index, num_nodes=4)
        >>> AttentionNodeSampling(factor=1)(data).attention_mask
        tensor([ True, False, False,  True])
    """

    def __init__(
        self,
        factor: float = 5,
        measure: str = 'jaccard',
        attr_name: str = 'attention_mask',
        neighbors: str = 'in',
        edge_type: EdgeType | None = None,
    ) -> None:
        check_number('factor', factor)
        if not factor > 0:
            raise ValueError(f"'factor' must be positive (got {factor})")
        check_choice('measure', measure, MEASURES)
        check_choice('neighbors', neighbors, NEIGHBORS)
        check_name(attr_name, optional=False)
        check_edge_type(edge_type)
        self.factor, self.measure, self.edge_type = factor, measure, edge_type
        self.attr_name, self.neighbors = attr_name, neighbors

    def forward(self, data: Data | HeteroData) -> Data | HeteroData:
        r"""Marks the nodes with the largest distances in each graph: adds the attribute
        :obj:`attr_name`, bools ``[N]``, and returns the graph. In
        :class:`~torch_geometric.data.HeteroData` the attribute belongs to the nodes that
        :obj:`edge_type` joins. No random numbers are drawn."""
        check_no_input(data, self.attr_name)
        nodes, edge_store = homogeneous(data, self.edge_type)
        num_nodes = num_nodes_of(nodes)
        edges = edges_of(edge_store, num_nodes, num_nodes)
        device = complete_device(edges.device)  # close distances differ in double precision only
        distance = attention_distance(edges.to(device), num_nodes, self.measure, self.neighbors)
        batch = nodes.get('batch')
        batch = None if batch is None else batch.to(device)
        mask = largest_per_graph(distance, batch, self.factor)
        add_attr(data, nodes, mask.to(edges.device), self.attr_name, 'node')
        return data

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.factor}, measure={self.measure!r}, '
            f'attr_name={self.attr_name!r}, neighbors={self.neighbors!r}'
            f'{type_repr(self.edge_type)})'
        )
