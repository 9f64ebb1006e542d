# N nodes (N_s source, N_t target), E pairs, H heads.
import math
import warnings

import torch
from torch import Tensor
from torch.nn import Embedding, Linear

from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.neighbors.edges import edge_list
from torch_geometric_lgt.functional.neighbors.hops import degrees
from torch_geometric_lgt.functional.numerics import without_autocast
from torch_geometric_lgt.functional.segment import count_graphs, segments
from torch_geometric_lgt.functional.tracing import may_read_values
from torch_geometric_lgt.nn._layers.input_checks import (
    check_devices,
    check_heads,
    check_not_negative,
    check_tensor,
    feature_pair,
)
from torch_geometric_lgt.nn._layers.kernel_layer import KernelLayer
from torch_geometric_lgt.nn._layers.linear_parts import embedding_rows, linear_part
from torch_geometric_lgt.typing import Adj, Batch, PairTensor


class DegreeMaskedAttention(KernelLayer):
    r"""Attends from each node to all nodes of its graph in :math:`O(N)`, with a learnable degree
    mask.

    **Edges are ignored** beyond the degrees: they are only counted, and only without
    :obj:`degree`. :class:`~torch_geometric_lgt.nn.GPSConv` puts message passing beside the layer.

    This is Eq. 8-12 of `"Masked Graph Transformer for Large-Scale Recommendation"
    <https://arxiv.org/abs/2405.04028>`_:

    .. math::
        \mathbf{x}^{\prime}_i = \frac{\sum_j M_{ij} \, \phi(\mathbf{q}_i)^{\top} \phi(\mathbf{k}_j)
            \, \mathbf{v}_j}
        {\sum_j M_{ij} \, \phi(\mathbf{q}_i)^{\top} \phi(\mathbf{k}_j)}, \qquad
        M_{ij} = \sin \left( \frac{\pi}{2} \cdot \frac{z_i + z_j}{2} \right), \qquad
        z_i = \sigma(\mathbf{w}^{\top} \mathbf{e}_{\deg(i)} + b)

    over the nodes :math:`j` of the graph that contains :math:`i`. Here :math:`\mathbf{e}_d` is a
    learned embedding of the degree :math:`d`. The vector :math:`\mathbf{w}` and :math:`b` are
    learned, too, and :math:`\sigma` is the sigmoid; all heads share the mask. Queries and keys are
    learned linear maps of the features, split among the heads. The sine of a sum splits into two
    products, so the mask is separable with rank 2. As in the paper, nothing is added to
    :math:`\phi` or to the denominator; an output whose denominator is 0 is 0. Differs from the
    paper: queries and keys have biases.

    The degree of a node is its number of distinct neighbours along edges in either direction, as
    :class:`~torch_geometric_lgt.transforms.NodeDegree` counts it.

    Args:
        channels (int): Size :math:`F` of each input and output sample.
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        feature_map (str or torch.nn.Module, optional): As in
            :class:`~torch_geometric_lgt.nn.KernelAttentionConv`. (default: :obj:`"simplex"`, random
            features that estimate a softmax over :math:`\mathbf{q}_i^{\top} \mathbf{k}_j /
            \sqrt{C}` for :math:`C` channels of a key)
        num_features (int, optional): Number of features per head, as in
            :class:`~torch_geometric_lgt.nn.KernelAttentionConv`. (default: :obj:`None`, as many as
            channels of a key)
        max_degree (int, optional): Largest degree with an embedding of its own; larger degrees use
            the embedding of :obj:`max_degree`, with a warning. (default: :obj:`512`)
        value_projection (bool, optional): If :obj:`True`, the values are a learned linear map of
            the inputs. Otherwise they are the inputs themselves, as in the paper. (default:
            :obj:`False`)
        key_channels (int, optional): Channels of queries and keys over all heads. (default:
            :obj:`None`, as many as :obj:`channels`)

    Shapes:
        - **input:** node features :math:`(N, F)`, or a pair :math:`((N_s, F), (N_t, F))` of sources
          and targets; degrees :math:`(N)` or a pair, or the edges of the graph to count them;
          batch vector, or a pair of them *(optional)*
        - **output:** node features :math:`(N_t, F)`

    Raises:
        ValueError: If :obj:`heads` does not divide :obj:`channels` or :obj:`key_channels`, the
            feature map is unknown, or :obj:`max_degree` is negative.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.nn import DegreeMaskedAttention
        >>> attention = DegreeMaskedAttention(16, heads=4)
        >>> attention(torch.randn(3, 16), degree=torch.tensor([1, 2, 1])).shape
        torch.Size([3, 16])
    """

    def __init__(
        self,
        channels: int,
        heads: int = 1,
        feature_map: str | torch.nn.Module = 'simplex',
        num_features: int | None = None,
        max_degree: int = 512,
        value_projection: bool = False,
        key_channels: int | None = None,
    ) -> None:
        check_not_negative(max_degree=max_degree)
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
        self.max_degree = max_degree
        self.degree_embedding = Embedding(max_degree + 1, channels)
        self.lin_degree = Linear(channels, 1)

    def forward(
        self,
        x: Tensor | PairTensor,
        degree: Tensor | PairTensor | None = None,
        batch: Batch = None,
        *,
        edge_index: Adj | None = None,
        state: AttentionState | None = None,
        batch_size: int | None = None,
    ) -> Tensor:
        r"""Computes the output ``[N_t, F]`` of the targets. Ignores :obj:`edge_index` if there is
        a :obj:`degree`.

        Args:
            x (torch.Tensor or tuple): The node features ``[N, F]``, or a pair of the features of
                sources and targets.
            degree (torch.Tensor or tuple, optional): The degrees of the nodes, ``[N]`` of an
                integer dtype. A pair :obj:`x` needs a pair of them, also with a :obj:`state`,
                which reads the degrees of targets only. A batch vector in this place would be taken
                for degrees: give it as ``batch=batch``. (default: :obj:`None`, counted in
                :obj:`edge_index`)
            batch (torch.Tensor or tuple, optional): The graph id of each node, in any order, or a
                pair of such vectors for sources and targets. (default: :obj:`None`, one graph)
            edge_index (torch.Tensor or SparseTensor, optional): The edges ``[2, E]``, or a sparse
                matrix, in which the distinct neighbours of each node are counted, in either
                direction; needed if :obj:`degree` is :obj:`None`, else ignored. (default:
                :obj:`None`)
            state (AttentionState, optional): Sums over all keys of each graph, from
                :meth:`attention_state`. The targets then read these sums instead of the keys of
                :obj:`x`. (default: :obj:`None`)
            batch_size (int, optional): The number of graphs. (default: :obj:`None`, one more than
                the largest graph id)

        Raises:
            TypeError: If :obj:`x`, :obj:`degree`, :obj:`batch`, :obj:`edge_index` or :obj:`state`
                has another type.
            ValueError: If neither :obj:`degree` nor :obj:`edge_index` is given, or :obj:`x` is a
                pair and :obj:`degree` is not. If :obj:`degree` has another dtype or a negative
                number, or another argument does not fit the layer.
        """
        batch_size = count_graphs(batch, batch_size, state)
        masks = self.mask_weights(x, degree, edge_index)
        return self._merge_heads(self._attend(x, batch, batch_size, state, masks=masks))

    def attention_state(
        self, x: Tensor, degree: Tensor, batch: Tensor | None = None, batch_size: int | None = None
    ) -> AttentionState:
        r"""Builds the state of each graph, the sums over the keys of all its nodes :obj:`x`.

        States of parts of the data can be merged, summed over processes and saved, and
        :meth:`forward` takes a state in place of keys. All parts of one data set need the same
        :obj:`batch_size`.

        Args:
            x (torch.Tensor): The node features ``[N, F]``.
            degree (torch.Tensor): The degrees ``[N]``.
            batch (torch.Tensor, optional): The graph id of each node. (default: :obj:`None`, one
                graph)
            batch_size (int, optional): The number of graphs in all parts of the data. (default:
                :obj:`None`, one more than the largest graph id)

        Returns:
            AttentionState: Sums ``[B, H, M, 2 * (D + 1)]`` for :math:`B` graphs, :math:`M` features
            of a key and :math:`D` channels of a value.
        """
        self._check_sources(x)
        nodes = segments(batch, x.size(0), batch_size, x.device)
        mask, _ = self.mask_weights(x, degree, edge_index=None)
        return self._state(x, nodes, mask=mask)

    def attention_scores(
        self,
        x: Tensor | PairTensor,
        edge_index: Adj,
        batch: Batch = None,
        degree: Tensor | PairTensor | None = None,
    ) -> Tensor:
        r"""Computes the attention weight ``[P, H]`` of each pair of nodes: the share of source
        ``edge_index[0]`` in the output of target ``edge_index[1]``.

        The pairs :obj:`edge_index` ``[2, P]`` need not be edges if :obj:`degree` is given. Without
        :obj:`degree`, degrees are counted in :obj:`edge_index`, which must then hold all edges of
        the graph: some of them would give other degrees and weights. The weight of a pair in
        different graphs is 0. The other arguments are those of :meth:`forward`."""
        masks = self.mask_weights(x, degree, edge_index)
        return self._scores(x, edge_index, batch, masks=masks)

    def mask_weights(
        self, x: Tensor | PairTensor, degree: Tensor | PairTensor | None, edge_index: Adj | None
    ) -> tuple[Tensor, Tensor]:
        r"""Computes the weights of the two terms of the mask for the keys ``[N_s, 2]`` and the
        queries ``[N_t, 2]``; their inner product is :math:`M_{ij}`.

        The arguments are those of :meth:`forward`.

        Raises:
            ValueError: If :obj:`degree` is missing and cannot be counted in :obj:`edge_index`, or
                does not fit :obj:`x`.
        """
        x_src, x_dst = feature_pair(x)
        degree = self._degree(x, degree, edge_index)
        if isinstance(degree, Tensor):
            angle = self._angle(degree, x_src)
            return _mask_weights(angle, angle)
        return _mask_weights(self._angle(degree[0], x_src), self._angle(degree[1], x_dst))

    def _degree(
        self, x: Tensor | PairTensor, degree: Tensor | PairTensor | None, edge_index: Adj | None
    ) -> Tensor | PairTensor:
        r"""Returns :obj:`degree`, or if it is :obj:`None` the degrees of the nodes :obj:`x`,
        counted in :obj:`edge_index`.

        Raises:
            ValueError: If both are missing, or :obj:`x` is a pair and :obj:`degree` is not.
        """
        if degree is None:
            if edge_index is None:
                raise ValueError(
                    "'degree' or 'edge_index' must be given (got neither); the NodeDegree "
                    'transform computes degrees'
                )
            if not isinstance(x, Tensor):
                raise ValueError(
                    "'degree' must be given for a pair 'x'; the NodeDegree transform computes "
                    'degrees'
                )
            self._check_sources(x)
            check_devices(x.device, edge_index=edge_index)
            degree = degrees(edge_list(edge_index, x.size(0), x.size(0)), x.size(0))
        if isinstance(degree, Tensor) and not isinstance(x, Tensor):
            raise ValueError(
                "'degree' must be a pair for a pair 'x', of sources and targets (got one tensor)"
            )
        return degree

    def _angle(self, degree: Tensor, x: Tensor) -> Tensor:
        r"""Computes the angles :math:`\pi z_i / 4` ``[N]`` of the mask from the degrees ``[N]`` of
        the nodes :obj:`x` ``[N, F]``."""
        degree = self._checked_degree(degree, x)
        with without_autocast(x.device.type):
            embedding = embedding_rows(self.degree_embedding, self.max_degree + 1)
            output = linear_part(self.lin_degree, embedding).output()
            table = output.sigmoid().squeeze(1)  # one value per degree, not per node
        return math.pi / 4 * table[degree.clamp(max=self.max_degree)]

    def _checked_degree(self, degree: Tensor, x: Tensor) -> Tensor:
        r"""Returns the degrees ``[N]`` of the nodes :obj:`x` ``[N, F]`` in int64. Warns if one
        exceeds :obj:`max_degree`, whose embedding it then has.

        Raises:
            TypeError: If :obj:`degree` is no tensor.
            ValueError: If :obj:`degree` does not hold one whole number of at least 0 per node, or
                lies on another device than :obj:`x`.
        """
        check_tensor(degree, 'degree')
        is_whole = not (degree.is_floating_point() or degree.dtype == torch.bool)
        if degree.shape != x.shape[:1] or not is_whole:
            hint = '; give edges as edge_index=edge_index' if degree.dim() == 2 else ''
            if degree.is_floating_point():  # as torch_geometric.utils.degree counts them
                hint = '; convert whole numbers with degree.long()'
            raise ValueError(
                f"'degree' must hold one whole number per node (got {degree.dtype} "
                f'{tuple(degree.shape)} for {x.size(0)} nodes){hint}'
            )
        check_devices(x.device, degree=degree)
        degree = degree.long()
        if not may_read_values() or degree.numel() == 0:
            return degree
        least = int(degree.min())
        if least < 0:
            raise ValueError(f"'degree' must be at least 0 (got {least})")
        above = int((degree > self.max_degree).sum())
        if above > 0:
            warnings.warn(
                f"{above} nodes have a degree above 'max_degree' = {self.max_degree} and count as "
                'that',
                stacklevel=5,
            )
        return degree

    def __repr__(self) -> str:
        return f'{self.__class__.__name__}({self.in_channels}, heads={self.heads})'


def _mask_weights(angle_src: Tensor, angle_dst: Tensor) -> tuple[Tensor, Tensor]:
    r"""Splits :math:`\sin(\alpha_i + \alpha_j)` into an inner product (Eq. 11): returns
    :math:`(\cos, \sin)` of the sources' angles ``[N_s, 2]`` and :math:`(\sin, \cos)` of the
    targets' angles ``[N_t, 2]``."""
    sources = torch.stack([angle_src.cos(), angle_src.sin()], 1)
    return sources, torch.stack([angle_dst.sin(), angle_dst.cos()], 1)
