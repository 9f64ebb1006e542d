# N nodes (N_s source, N_t target), E edges, H heads.
from typing import Any

import torch
from torch import Tensor

from torch_geometric_lgt.functional.neighbors.adjacency_attention import (
    adjacency_attention,
    adjacency_scores,
)
from torch_geometric_lgt.functional.neighbors.edges import check_edge_weight, weighted_edges
from torch_geometric_lgt.nn._layers.input_checks import check_devices, check_heads, feature_pair
from torch_geometric_lgt.nn._layers.kernel_layer import KernelLayer
from torch_geometric_lgt.nn._layers.neighbor_sum import NeighborSum, explained_edges
from torch_geometric_lgt.typing import Adj, PairTensor


class AdjacencyMaskedAttention(KernelLayer):
    r"""Attends from each node to its neighbours with kernelised weights (Eq. 8 of `"Masked Graph
    Transformer for Large-Scale Recommendation" <https://arxiv.org/abs/2405.04028>`_):

    .. math::
        \mathbf{x}^{\prime}_i = \frac{\sum_{j \in \mathcal{N}(i)} w_{ij} \,
            \phi(\mathbf{q}_i)^{\top} \phi(\mathbf{k}_j) \, \mathbf{v}_j}
        {\sum_{j \in \mathcal{N}(i)} w_{ij} \, \phi(\mathbf{q}_i)^{\top} \phi(\mathbf{k}_j)}

    with :math:`\mathcal{N}(i)` the sources of the edges into :math:`i`. Queries and keys are
    learned linear maps of the features, split among the heads. There is no map after the heads,
    whose outputs are concatenated. The mask is the adjacency matrix, as in the paper's ablation
    study. The mask entry :math:`w_{ij}` of an edge is its weight, 1 by default, and repeated edges
    count repeatedly. The paper does not say whether a node is a neighbour of itself; the layer adds
    no self loops. A node gets 0 if its denominator is 0, such as a node without an incoming edge.
    Differs from the paper: queries and keys have biases.

    Args:
        channels (int): Size :math:`F` of each input and output sample.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        feature_map (str or torch.nn.Module, optional): :math:`\phi`, one of those of
            :class:`~torch_geometric_lgt.nn.KernelAttentionConv`. (default: :obj:`"simplex"`, random
            features that estimate a softmax over :math:`\mathbf{q}_i^{\top} \mathbf{k}_j /
            \sqrt{C}` for :math:`C` channels of a key)
        num_features (int, optional): Number of features per head, as in
            :class:`~torch_geometric_lgt.nn.KernelAttentionConv`. (default: :obj:`None`, as many as
            channels of a key)
        value_projection (bool, optional): If :obj:`True`, the values are a learned linear map of
            the inputs, else the inputs themselves. (default: :obj:`False`)
        key_channels (int, optional): Channels of queries and keys over all heads. (default:
            :obj:`None`, as many as :obj:`channels`)

    Shapes:
        - **input:** node features :math:`(N, F)`, or a pair :math:`((N_s, F), (N_t, F))` of sources
          and targets; edges; their weights :math:`(E)` *(optional)*
        - **output:** node features :math:`(N_t, F)`

    Raises:
        ValueError: If :obj:`heads` does not divide :obj:`channels` or :obj:`key_channels`, or the
            feature map is unknown.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.nn import AdjacencyMaskedAttention
        >>> attention = AdjacencyMaskedAttention(16, heads=4)
        >>> attention(torch.randn(3, 16), torch.tensor([[0, 1, 2], [1, 2, 0]])).shape
        torch.Size([3, 16])
    """

    attends_to_neighbors = True

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        feature_map: str | torch.nn.Module = 'simplex',
        num_features: int | None = None,
        value_projection: bool = False,
        key_channels: int | None = None,
    ) -> None:
        check_heads(heads, channels, 'channels')
        super().__init__(
            channels,
            channels,
            heads=heads,
            feature_map=feature_map,
            num_features=num_features,
            value_projection=value_projection,
            key_channels=key_channels,
        )
        self.neighbor_sum = NeighborSum()

    def forward(
        self, x: Tensor | PairTensor, edge_index: Adj, *, edge_weight: Tensor | None = None
    ) -> Tensor:
        r"""Computes the output ``[N_t, F]`` of the targets.

        Args:
            x (torch.Tensor or tuple): The node features ``[N, F]``, or a pair of the features of
                sources and targets.
            edge_index (torch.Tensor or SparseTensor): The edges ``[2, E]``, or a sparse matrix
                whose rows are the targets, such as :obj:`adj_t`.
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]``. (default:
                :obj:`None`, the values of a sparse matrix, else 1)

        Raises:
            TypeError: If :obj:`x` or :obj:`edge_index` has another type.
            ValueError: If a shape, dtype or device does not fit the layer, or a weight is negative,
                infinite or NaN.
        """
        q, k, edges, options = self._inputs(x, edge_index, edge_weight)
        x_src = feature_pair(x)[0]
        v = self.project_values(x_src).unflatten(-1, (self.heads, -1))
        edge_mask = explained_edges(self.neighbor_sum, edges.size(1))
        return adjacency_attention(q, k, v, edges, **options, edge_mask=edge_mask).flatten(1)

    def attention_scores(
        self, x: Tensor | PairTensor, edge_index: Adj, *, edge_weight: Tensor | None = None
    ) -> Tensor:
        r"""Computes the attention weight ``[E, H]`` of each edge: the share of its source in the
        output of its target. The arguments are those of :meth:`forward`."""
        q, k, edges, options = self._inputs(x, edge_index, edge_weight)
        return adjacency_scores(q, k, edges, **options)

    def _inputs(
        self, x: Tensor | PairTensor, edge_index: Adj, edge_weight: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, dict[str, Any]]:
        r"""Checks the arguments of :meth:`forward` and returns queries ``[N_t, H, C]``, keys
        ``[N_s, H, C]``, edges ``[2, E]`` and the other arguments of the tensor functions."""
        x_src, x_dst = feature_pair(x)
        self._check_sources(x_src)
        self._check_targets(x_dst)
        check_devices(x_dst.device, edge_index=edge_index)
        edges, weight = weighted_edges(edge_index, x_src.size(0), x_dst.size(0), edge_weight)
        check_edge_weight(weight)
        q, k = (
            part.unflatten(-1, (self.heads, -1))
            for part in (self.lin_query(x_dst), self.lin_key(x_src))
        )
        options: dict[str, Any] = {'edge_weight': weight}
        phi = self._read_feature_map
        if phi is None:
            q, k = self._module_features(q), self._module_features(k)
            return q, k, edges, options | {'feature_map': 'values'}
        if phi.is_learned:
            q, k = phi.logits(q), phi.logits(k)
        options |= {
            'feature_map': phi.map.name,
            'projection': phi.projection,
            'scale': self.data_normalizer(sampling=False),
            'power': phi.power,
        }
        return q, k, edges, options

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}({self.in_channels}, heads={self.heads})'
