# N = U + I nodes (U users, I items), E edges, P pairs, D embedding size, S size of the structural
# encoding.
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Embedding, ModuleList
from torch.nn.functional import normalize
from torch_geometric.data import HeteroData
from torch_geometric.nn.inits import reset

from torch_geometric_lgt._arguments import check_choice, check_flags, check_number, check_whole
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.attention.state_checks import check_states
from torch_geometric_lgt.functional.ranking import rule_bits
from torch_geometric_lgt.nn._layers.input_checks import (
    check_edge_index,
    check_not_negative,
    check_sizes,
    check_unused,
)
from torch_geometric_lgt.nn._layers.linear_parts import embedding_rows, reference
from torch_geometric_lgt.nn.attention import AdjacencyMaskedAttention, DegreeMaskedAttention
from torch_geometric_lgt.nn.conv import KernelAttentionConv
from torch_geometric_lgt.nn.models._evaluation import evaluation
from torch_geometric_lgt.nn.models._mgformer_data import (
    ENCODING,
    check_node_rows,
    joint_degrees,
    joint_encoding,
    users_and_items,
)
from torch_geometric_lgt.nn.models._mgformer_neighbors import neighbor_embedding
from torch_geometric_lgt.nn.models._mgformer_stream import stream_layers
from torch_geometric_lgt.nn.models._out_of_memory import with_advice
from torch_geometric_lgt.nn.models._recommender import Recommender
from torch_geometric_lgt.nn.models._streaming.stream import Stream
from torch_geometric_lgt.typing import Adj

MASKS = ('degree', 'adjacency', 'none')
MAX_DEGREE = 512


class MGFormer(Recommender):
    r"""Recommends items to users with the model of `"Masked Graph Transformer for Large-Scale
    Recommendation" <https://arxiv.org/abs/2405.04028>`_. Users and items are the tokens of one
    attention:

    .. math::
        \mathbf{X} = \left[\mathbf{E}, s \, \mathbf{P} / \|\mathbf{P}\|\right], \qquad
        \mathbf{H} = \mathrm{Attention}(\mathbf{X} \mathbf{W}_Q, \mathbf{X} \mathbf{W}_K,
            \mathbf{X}) + \mathbf{X}

    (Eq. 2-12) with learned embeddings :math:`\mathbf{E}` and structural encodings
    :math:`\mathbf{P}` from :class:`~torch_geometric_lgt.transforms.SVDEncoding`. The model scales
    each row of :math:`\mathbf{P}` to the length :math:`s`. The attention is
    :class:`~torch_geometric_lgt.nn.DegreeMaskedAttention`,
    :class:`~torch_geometric_lgt.nn.AdjacencyMaskedAttention` or
    :class:`~torch_geometric_lgt.nn.KernelAttentionConv`, by the :obj:`mask`, without a projection
    of the values. The values are split among the heads, whose outputs are concatenated. Each
    further layer reads the :math:`\mathbf{H}` of the layer before it. The score of a user and an
    item is the inner product of their rows in :math:`\mathbf{H}`. The method :meth:`recommend`
    ranks by these scores unless :attr:`scoring` is set to another rule.

    Differs from the paper, which does not mention three parts: the residual, the length :math:`s`,
    and the biases of queries and keys. Without the residual, the rows of an untrained layer are
    close to the mean of all rows.

    The class has the methods of :class:`torch_geometric.nn.LightGCN`, with additional arguments
    such as :obj:`nodes` and :obj:`states` of :meth:`get_embedding`. Nodes 0 to U - 1 are users, and
    nodes U to U + I - 1 are items. Edge weights are given by name, in contrast to ``LightGCN``, and
    need the mask :obj:`"adjacency"`, which counts repeated edges repeatedly; degrees count them
    once.

    Args:
        num_users (int): U, the number of users.
        num_items (int): I, the number of items.
        embedding_dim (int, optional): D, the size of :math:`\mathbf{E}`. (default: :obj:`64`)
        structural_encoding (torch.Tensor, optional): :math:`\mathbf{P}`, ``[N, S]``. (default:
            :obj:`None`, none)
        degree (torch.Tensor, optional): Degrees ``[N]`` in the training graph for the degree mask.
            (default: :obj:`None`, each call counts the distinct neighbours of each node along
            :obj:`edge_index` in either direction: one direction of the edges is enough)
        num_layers (int, optional): Number of layers; with 0, :math:`\mathbf{H} = \mathbf{X}`.
            (default: :obj:`1`)
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        mask (str, optional): :obj:`"degree"` (Eq. 10), :obj:`"adjacency"` (attention to the
            sources of the edges into a node only, so :obj:`edge_index` must have both directions)
            or :obj:`"none"` (Eq. 6). (default: :obj:`"degree"`)
        feature_map (str or torch.nn.Module, optional): :math:`\phi`, one of those of
            :class:`~torch_geometric_lgt.nn.KernelAttentionConv`, with the default logits
            :math:`\mathbf{q}_i^{\top} \mathbf{k}_j / \sqrt{C}`. All layers share a module and its
            parameters. For separate parameters, assign a copy to the :attr:`feature_map` of each of
            :attr:`layers`. (default: :obj:`"simplex"`)
        num_features (int, optional): Number of random or learned features per head of a map that
            :obj:`feature_map` names. (default: :obj:`None`, as many as channels of a key)
        residual (bool, optional): If :obj:`False`, :math:`\mathbf{X}` is not added. (default:
            :obj:`True`)
        encoding_scale (float, optional): :math:`s`, the length of the rows of :math:`\mathbf{P}`;
            :obj:`None` leaves them as they are. (default: :obj:`0.6`)
        max_degree (int, optional): The largest degree with an embedding of its own in the degree
            mask; larger degrees use the embedding of :obj:`max_degree`, with a warning. (default:
            :obj:`512`)
        key_channels (int, optional): Channels of queries and keys over all heads. (default:
            :obj:`None`, as many as :math:`\mathbf{X}` has, as in the paper)

    Raises:
        ValueError: If a size is out of range, or :obj:`heads` does not divide :math:`D + S` or
            :obj:`key_channels`. If :obj:`mask` is unknown, or an encoding or degree does not have
            one row per node.

    Example:
        >>> import torch
        >>> from torch_geometric_lgt.nn import MGFormer
        >>> edge_index = torch.tensor([[0, 0, 1], [2, 3, 4]])  # users 0 and 1, items 2, 3 and 4
        >>> encoding = torch.randn(5, 4)  # SVDEncoding computes such
        >>> model = MGFormer(2, 3, embedding_dim=16, structural_encoding=encoding)
        >>> model.get_embedding(edge_index).shape
        torch.Size([5, 20])
        >>> model.recommend(edge_index, [0], k=1, exclude=edge_index)  # user 0 has 2 and 3
        tensor([[4]])
    """

    structural_encoding: Tensor | None

    def __init__(
        self,
        num_users: int,
        num_items: int,
        embedding_dim: int = 64,
        structural_encoding: Tensor | None = None,
        degree: Tensor | None = None,
        num_layers: int = 1,
        heads: int = 1,
        mask: str = 'degree',
        feature_map: str | torch.nn.Module = 'simplex',
        num_features: int | None = None,
        residual: bool = True,
        encoding_scale: float | None = 0.6,
        max_degree: int = MAX_DEGREE,
        key_channels: int | None = None,
    ) -> None:
        super().__init__()
        check_sizes(num_users=num_users, num_items=num_items, embedding_dim=embedding_dim)
        check_not_negative(num_layers=num_layers, max_degree=max_degree)
        check_choice('mask', mask, MASKS)
        check_flags(residual=residual)
        if encoding_scale is not None:
            check_number('encoding_scale', encoding_scale)
        self.num_users, self.num_items, self.num_nodes = num_users, num_items, num_users + num_items
        self.embedding_dim, self.num_layers = embedding_dim, num_layers
        self.mask, self.residual, self.max_degree = mask, residual, max_degree
        self.embedding = Embedding(self.num_nodes, embedding_dim)
        check_node_rows('structural_encoding', structural_encoding, self.num_nodes, 2)
        check_node_rows('degree', degree, self.num_nodes, 1)
        encoding = None
        if structural_encoding is not None:
            encoding = structural_encoding.to(self.embedding.weight.dtype, copy=True)
            if encoding_scale is not None:
                encoding = encoding_scale * normalize(encoding)
        self.register_buffer('structural_encoding', encoding)
        self.register_buffer('degree', None if degree is None else degree.clone())
        channels = embedding_dim + (0 if encoding is None else encoding.size(1))
        check_whole('heads', heads, 1)
        if channels % heads != 0:
            columns = '' if encoding is None else " plus the columns of 'structural_encoding'"
            raise ValueError(
                f"'heads' must divide 'embedding_dim'{columns} (got {heads} and {channels})"
            )
        arguments: dict[str, Any] = {
            'heads': heads,
            'feature_map': feature_map,
            'num_features': num_features,
            'key_channels': key_channels,
            'value_projection': False,
        }
        make = {
            'degree': partial(DegreeMaskedAttention, channels, max_degree=max_degree),
            'adjacency': partial(AdjacencyMaskedAttention, channels),
            'none': partial(KernelAttentionConv, channels, channels),
        }[mask]
        self.layers = ModuleList([make(**arguments) for _ in range(num_layers)])
        self.register_buffer('scoring_rule', rule_bits('inner'))
        self.reset_parameters()

    @classmethod
    def from_data(
        cls,
        data: HeteroData,
        *args: Any,
        attr_name: str = ENCODING,
        user_type: str | None = None,
        **kwargs: Any,
    ) -> 'MGFormer':
        r"""Creates the model for :obj:`data`, which has two node types: users and items.

        Users are the type :obj:`user_type`, by default the first node type. Without
        :obj:`user_type`, the first edges between the types must lead from users to items, so that
        data such as PyG's ``MovieLens``, whose first node type is ``'movie'``, needs
        ``user_type='user'``. The nodes of the model are then users before items; those of
        ``data.to_homogeneous()`` have the order of the node types.

        The numbers of users and items, the degrees, and the structural encodings (node attribute
        :obj:`attr_name`; none if the data lacks the default one) are read from the data. The degree
        of a node is the number of its distinct neighbours over all edge types in either direction.
        If a degree is above 512, the default of :obj:`max_degree`, then :obj:`max_degree` is the
        largest degree instead. Positional arguments begin with :obj:`embedding_dim`. All arguments
        go to the constructor: a keyword such as ``max_degree=64`` or ``structural_encoding=None``
        replaces the value read from the data.

        A server that does not have the data calls the constructor. It needs :attr:`num_users`,
        :attr:`num_items` and :attr:`max_degree` of the trained model, the same further arguments,
        and from the model's ``state_dict`` the tensors ``degree=state['degree']`` and, if there is
        one, ``structural_encoding=state['structural_encoding']``. Then it loads the
        ``state_dict``.

        Raises:
            ValueError: If :obj:`data` is not a HeteroData, the number of its node types is not two,
                a type has no nodes, or there are no edges. If an edge names a node that does not
                exist, or only one node type has the encodings, or neither has those of another
                name than the default. If :obj:`user_type` is no node type, or is missing where the
                first edges do not start at the first node type.
        """
        sizes = users_and_items(data, user_type)
        encoding = joint_encoding(data, sizes, attr_name)
        degree = joint_degrees(data, sizes)
        kwargs = {
            'structural_encoding': encoding,
            'degree': degree,
            'max_degree': max(MAX_DEGREE, int(degree.max())),
            **kwargs,
        }
        num_users, num_items = sizes.values()
        return cls(num_users, num_items, *args, **kwargs)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters, draws the random projections anew, and sets
        :attr:`scoring`, which is chosen for the trained parameters, back to :obj:`"inner"`."""
        torch.nn.init.xavier_uniform_(self.embedding.weight)
        reset(self.layers)
        self.scoring = 'inner'

    @with_advice("train on pairs that read detached 'attention_states'")
    def get_embedding(
        self,
        edge_index: Adj | None = None,
        nodes: Tensor | Sequence[int] | None = None,
        states: Sequence[AttentionState] | None = None,
        *,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""Computes the rows of :math:`\mathbf{H}` for :obj:`nodes` (default: all), ``[n, D + S]``.

        All nodes are keys. Only :obj:`nodes` are queries in the last layer, and in every layer if
        :obj:`states` are given. With the mask :obj:`"adjacency"` only :obj:`nodes` and their
        neighbours within as many hops as the model has layers are computed, fastest if the columns
        of :obj:`edge_index` are sorted by target.

        Args:
            edge_index (torch.Tensor or SparseTensor, optional): The graph. The mask
                :obj:`"adjacency"` needs it with both directions of each edge: without edges into
                users no user attends to an item, and no error is raised. The mask :obj:`"degree"`
                needs it in a model without :obj:`degree`. (default: :obj:`None`)
            nodes (torch.Tensor or list, optional): The ids ``[n]``, or a bool for each node.
                (default: :obj:`None`, all)
            states (list, optional): For each layer the sums over the keys of all nodes, from
                :meth:`attention_states`, which the queries read instead of the keys of the present
                parameters. (default: :obj:`None`, the keys are computed)
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]`` for the mask
                :obj:`"adjacency"`. (default: :obj:`None`, the values of a sparse matrix, else 1)

        Raises:
            TypeError: If :obj:`states` is no list of states, or :obj:`edge_index` in no format of
                edges.
            ValueError: If :obj:`nodes` contains neither ids nor one bool per node. If
                :obj:`edge_weight` is given with another mask than :obj:`"adjacency"`, or
                :obj:`states` with the mask :obj:`"adjacency"`. If :obj:`states` does not have one
                state for each layer, or :obj:`edge_index` is missing where it is needed, or joins
                no users and items there because the ids of items begin at 0.
        """
        check_edge_index(edge_index, "; give nodes as 'nodes'")
        nodes = None if nodes is None else self._ids(nodes, 'nodes')
        if states is not None:
            self._check_states(states)
        if self.mask == 'adjacency':
            return neighbor_embedding(self, edge_index, nodes, edge_weight)
        check_unused(edge_weight, "unless 'mask' is 'adjacency'")
        if states is not None or self.num_layers == 0:
            x = self.tokens(nodes)
            for layer, state in zip(self.layers, states or (), strict=True):
                x = self.layer_rows(layer, x, edge_index, nodes, state)
            return x
        x = self.tokens()
        for index, layer in enumerate(self.layers):
            is_last = index == self.num_layers - 1
            x = self.layer_rows(layer, x, edge_index, nodes if is_last else None)
        return x

    def attention_states(self, edge_index: Adj | None = None) -> list[AttentionState]:
        r"""Builds for each layer the state of all nodes (sums over their keys), and returns a list.

        With these states :meth:`get_embedding` returns the same rows as without. If it also gets
        :obj:`nodes`, it computes the rows of these nodes only. Use states to serve a trained model.
        Use detached states to train with keys that are a few steps old.

        Args:
            edge_index (torch.Tensor or SparseTensor, optional): The graph, needed by the mask
                :obj:`"degree"` of a model without :obj:`degree`. (default: :obj:`None`)

        Raises:
            ValueError: If the mask is :obj:`"adjacency"`.
        """
        check_edge_index(edge_index, '; the states are those of all nodes')
        self._check_mask_of_states()
        x = self.tokens()
        out = []
        for index, layer in enumerate(self.layers):
            out.append(self.layer_state(layer, x, edge_index))
            if index < self.num_layers - 1:
                x = self.layer_rows(layer, x, edge_index, None, out[-1])
        return out

    def inference(
        self, loader: Any, folder: str | Path | None = None, progress_bar: bool = False
    ) -> Tensor:
        r"""Computes the rows of :math:`\mathbf{H}` for all nodes, ``[N, D + S]``, batch by batch,
        with the arguments of :meth:`NodeFormer.inference`. The data of the loader is a graph with
        users and items as nodes of one type. The degree mask needs :obj:`degree` in the model.

        Raises:
            ValueError: If the graph and the model differ in the number of nodes, or for the reasons
                of :meth:`NodeFormer.inference`.
        """
        with evaluation(self):
            stream = Stream(loader, folder, self, progress_bar)
            weight = reference(self.embedding)
            if stream.num_nodes != self.num_nodes:
                raise ValueError(
                    f"'loader' must have the {self.num_nodes} users and items of the model as its "
                    f'nodes (got {stream.num_nodes}); set num_nodes={self.num_nodes} in the data'
                )
            width = self.tokens(torch.arange(1, device=weight.device)).size(1)
            return stream.result(width, weight.dtype, lambda: stream_layers(self, stream))

    def tokens(self, nodes: Tensor | None = None) -> Tensor:
        r"""Returns the rows of :math:`\mathbf{X}` for the ids :obj:`nodes` ``[n]`` (default: all
        nodes), ``[n, D + S]``."""
        rows = embedding_rows(self.embedding, self.num_nodes, nodes)
        if self.structural_encoding is None:
            # without layers they are the output, which a caller may change in place
            return rows if self.num_layers > 0 else rows.clone()
        return torch.cat(
            [rows, self.structural_encoding if nodes is None else self.structural_encoding[nodes]],
            1,
        )

    def layer_state(
        self,
        layer: torch.nn.Module,
        x: Tensor,
        edge_index: Adj | None = None,
        nodes: Tensor | None = None,
    ) -> AttentionState:
        r"""Builds the state (sums over the keys) of some nodes for one layer.

        Args:
            layer (torch.nn.Module): The layer.
            x (torch.Tensor): Its input ``[n, D + S]``, one row for each of :obj:`nodes`.
            edge_index (torch.Tensor or SparseTensor, optional): The graph, needed by the mask
                :obj:`"degree"` of a model without :obj:`degree`. (default: :obj:`None`)
            nodes (torch.Tensor, optional): The ids ``[n]``. (default: :obj:`None`, all nodes)
        """
        if self.mask == 'none':
            return cast(Any, layer).attention_state(x)
        degree = self._degree(edge_index)
        return cast(Any, layer).attention_state(x, degree if nodes is None else degree[nodes])

    def layer_rows(
        self,
        layer: torch.nn.Module,
        x: Tensor,
        edge_index: Adj | None,
        nodes: Tensor | None = None,
        state: AttentionState | None = None,
    ) -> Tensor:
        r"""Computes the output of one layer for some nodes, with the residual, ``[n, D + S]``.

        Args:
            layer (torch.nn.Module): The layer.
            x (torch.Tensor): Its input: the rows of all nodes, or with :obj:`state` the rows of
                :obj:`nodes` only.
            edge_index (torch.Tensor or SparseTensor, optional): The graph, needed by the mask
                :obj:`"degree"` of a model without :obj:`degree`.
            nodes (torch.Tensor, optional): The ids ``[n]``. (default: :obj:`None`, all nodes)
            state (AttentionState, optional): Sums over the keys of all nodes. (default:
                :obj:`None`, computed from :obj:`x`)
        """
        x_dst = x if nodes is None or state is not None else x[nodes]
        pair = x if x_dst is x else (x, x_dst)
        if self.mask == 'none':
            out = layer(pair, state=state)
        else:
            degree_src = self._degree(edge_index)
            degree_dst = degree_src if nodes is None else degree_src[nodes]
            degree = degree_dst if x_dst is x else (degree_src, degree_dst)
            out = layer(pair, degree, state=state)
        return out + x_dst if self.residual else out

    def _check_states(self, states: Sequence[AttentionState]) -> None:
        self._check_mask_of_states()
        check_states(states)
        if len(states) != self.num_layers:
            raise ValueError(
                f"'states' must be one for each of {self.num_layers} layers (got {len(states)})"
            )

    def _check_mask_of_states(self) -> None:
        if self.mask == 'adjacency':
            raise ValueError(
                "'mask' must be 'degree' or 'none' for states: the keys of 'adjacency' differ from "
                'node to node'
            )

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.num_users}, {self.num_items}, '
            f'{self.embedding_dim}, num_layers={self.num_layers})'
        )
