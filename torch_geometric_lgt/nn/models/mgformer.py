# N = U + I nodes (U users, I items), E edges, P pairs, D embedding size, S size of the structural
# encoding.
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Embedding, ModuleList
from torch.nn.functional import normalize
from torch_geometric.data import HeteroData
from torch_geometric.nn.inits import reset

from torch_geometric_lgt._arguments import check_choice, check_whole
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.neighbors.edges import weighted_edges
from torch_geometric_lgt.functional.neighbors.hops import degrees, edges_into
from torch_geometric_lgt.functional.ranking import rule_bits
from torch_geometric_lgt.nn._layers.input_checks import (
    check_devices,
    check_edge_index,
    check_not_negative,
    check_sizes,
    check_tensor,
    check_unused,
)
from torch_geometric_lgt.nn._layers.linear_parts import embedding_rows, reference
from torch_geometric_lgt.nn.attention import AdjacencyMaskedAttention, DegreeMaskedAttention
from torch_geometric_lgt.nn.conv import KernelAttentionConv
from torch_geometric_lgt.nn.models._out_of_memory import with_advice
from torch_geometric_lgt.nn.models._recommender import Recommender
from torch_geometric_lgt.nn.models._streaming.stream import Part, Stream, evaluation, to_device
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

    Differs from the paper, which names neither the residual nor the length :math:`s`, nor a bias of
    queries and keys, which the projections have here. Without the residual, the rows of an
    untrained layer are close to the mean of all rows.

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
        self.num_users, self.num_items, self.num_nodes = num_users, num_items, num_users + num_items
        self.embedding_dim, self.num_layers = embedding_dim, num_layers
        self.mask, self.residual, self.max_degree = mask, residual, max_degree
        self.embedding = Embedding(self.num_nodes, embedding_dim)
        for name, value, dim in (
            ('structural_encoding', structural_encoding, 2),
            ('degree', degree, 1),
        ):
            if value is not None:
                check_tensor(value, name)
            if value is not None and (value.dim() != dim or value.size(0) != self.num_nodes):
                shape = f'[{self.num_nodes}, S]' if dim == 2 else f'[{self.num_nodes}]'
                raise ValueError(
                    f"'{name}' must have shape {shape}, users before items (got "
                    f'{tuple(value.shape)})'
                )
        encoding = (
            None
            if structural_encoding is None
            else structural_encoding.to(self.embedding.weight.dtype)
        )
        if encoding is not None and encoding_scale is not None:
            encoding = encoding_scale * normalize(encoding)
        self.register_buffer('structural_encoding', encoding)
        self.register_buffer('degree', degree)
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
        *args,
        attr_name: str = 'svd_pe',
        user_type: str | None = None,
        **kwargs,
    ) -> 'MGFormer':
        r"""Creates the model for :obj:`data`, which has two node types: users and items.

        Users are the type :obj:`user_type`, by default the first node type. Without
        :obj:`user_type`, the first edges between the types must lead from users to items, so that
        data such as PyG's ``MovieLens``, whose first node type is ``'movie'``, needs
        ``user_type='user'``. The nodes of the model are then users before items; those of
        ``data.to_homogeneous()`` have the order of the node types.

        The numbers of users and items, the degrees, and the structural encodings (node attribute
        :obj:`attr_name`, if there is one) are read from the data. The degree of a node is the
        number of its distinct neighbours over all edge types in either direction. If a degree is
        above 512, the default of :obj:`max_degree`, then :obj:`max_degree` is the largest degree
        instead. Positional arguments begin with :obj:`embedding_dim`. All arguments go to the
        constructor: a keyword such as ``max_degree=64`` replaces the value read from the data.

        A server that does not have the data calls the constructor. It needs :attr:`num_users`,
        :attr:`num_items` and :attr:`max_degree` of the trained model, the same further arguments,
        and from the model's ``state_dict`` the tensors ``degree=state['degree']`` and, if there is
        one, ``structural_encoding=state['structural_encoding']``. Then it loads the
        ``state_dict``.

        Raises:
            ValueError: If :obj:`data` is not a HeteroData, the number of its node types is not two,
                a type has no nodes, or there are no edges. If an edge names a node that does not
                exist, or only one node type has the encodings. If :obj:`user_type` is no node type,
                or is missing where the first edges do not start at the first node type.
        """
        if not isinstance(data, HeteroData):
            raise ValueError(
                "'data' must be a HeteroData of users and items, as InteractionDataset makes (got "
                f'{type(data).__name__})'
            )
        names = list(data.node_types)
        ends = {name for source, _, target in data.edge_types for name in (source, target)}
        hint = '; set num_nodes of both node types' if len(names) < 2 and len(ends) == 2 else ''
        if len(names) != 2 or not ends or not ends <= set(names):
            raise ValueError(
                "'data' must have two node types, users and items, and edges of these types only "
                f'(got {names} and {data.edge_types}){hint}'
            )
        first = next((s for s, _, t in data.edge_types if s != t), names[0])
        if user_type is None and first != names[0]:
            raise ValueError(
                f"'user_type' must name the users where the first node type, {names[0]!r}, is not "
                f'the source of the first edges (got {data.edge_types}); give one of {names}'
            )
        if user_type is not None:
            check_choice('user_type', user_type, names)
            names.sort(key=lambda name: name != user_type)
        sizes = {name: data[name].num_nodes for name in names}
        if not all(sizes.values()):
            raise ValueError(
                f"'data' must have users and items (got {sizes}); set num_nodes of both node types"
            )
        encoded = [name for name in names if attr_name in data[name]]
        if len(encoded) == 1:
            raise ValueError(
                f"'attr_name' must be an attribute of both node types, or of neither (got "
                f'{attr_name!r}, which only {encoded[0]!r} has)'
            )
        num_users, num_items = sizes.values()
        degree = _degrees(data, sizes)
        encoding = torch.cat([data[name][attr_name] for name in names]) if encoded else None
        kwargs = {
            'structural_encoding': encoding,
            'degree': degree,
            'max_degree': max(MAX_DEGREE, int(degree.max())),
            **kwargs,
        }
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
            edge_index (torch.Tensor or SparseTensor, optional): The graph, needed by the mask
                :obj:`"adjacency"`, and by the mask :obj:`"degree"` of a model without
                :obj:`degree`. (default: :obj:`None`)
            nodes (torch.Tensor or list, optional): The ids ``[n]``, or a bool for each node.
                (default: :obj:`None`, all)
            states (list, optional): For each layer the sums over the keys of all nodes, from
                :meth:`attention_states`, which the queries read instead of the keys of the present
                parameters. (default: :obj:`None`, the keys are computed)
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]`` for the mask
                :obj:`"adjacency"`. (default: :obj:`None`, the values of a sparse matrix, else 1)

        Raises:
            TypeError: If :obj:`states` is no list, or :obj:`edge_index` in no format of edges.
            ValueError: If :obj:`nodes` contains neither ids nor one bool per node. If
                :obj:`edge_weight` is given with another mask than :obj:`"adjacency"`, or
                :obj:`states` with the mask :obj:`"adjacency"`. If :obj:`states` does not have one
                state for each layer, or :obj:`edge_index` is missing where it is needed.
        """
        check_edge_index(edge_index, "; give nodes as 'nodes'")
        nodes = None if nodes is None else self._ids(nodes, 'nodes')
        self._check_states(states)
        if self.mask == 'adjacency':
            edges = self._edges(edge_index, edge_weight)
            if nodes is not None and not any(
                cast(Any, layer).neighbor_sum.explain for layer in self.layers
            ):
                return self._near(self.num_layers, nodes, *edges)
            x = self.tokens()
            for layer in self.layers:
                out = layer(x, edges[0], edge_weight=edges[1])
                x = out + x if self.residual else out
            return x if nodes is None else x[nodes]
        check_unused(edge_weight, "unless 'mask' is 'adjacency'")
        x = self.tokens(None if states is None and self.num_layers > 0 else nodes)
        for index, layer in enumerate(self.layers):
            queries = None if states is None and index < self.num_layers - 1 else nodes
            x = self.layer_rows(
                layer, x, edge_index, queries, None if states is None else states[index]
            )
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
            return stream.result(width, weight.dtype, lambda: self._stream_rows(stream))

    def _stream_rows(self, stream: Stream) -> Callable[[Part], Tensor]:
        device = reference(self.embedding).device
        x = self.tokens
        stream_layer = self._stream_near if self.mask == 'adjacency' else self._stream_far
        for index in range(self.num_layers):
            x = partial(_rows_of, stream_layer(stream, index, x), device)
        return lambda part: x(part.ids(device))

    def _stream_near(self, stream: Stream, index: int, x: Callable[[Tensor], Tensor]) -> Tensor:
        r"""Computes the output ``[N, D + S]`` of layer :obj:`index`, which attends to neighbours,
        part by part. The function :obj:`x` returns the rows of its input for a tensor of ids."""
        layer = cast(Any, self.layers[index])
        weight = reference(self.embedding)

        def rows(part: Part) -> Tensor:
            x_dst = x(part.ids(weight.device))
            x_src = x(part.n_id.to(weight.device))
            part = part.to(weight.device)
            out = layer((x_src, x_dst), part.edge_index, edge_weight=part.edge_weight)
            return out + x_dst if self.residual else out

        name = f'layer-{index + 1}'
        width = layer.in_channels
        return stream.fill(name, width, weight.dtype, rows, neighbors=True)

    def _stream_far(self, stream: Stream, index: int, x: Callable[[Tensor], Tensor]) -> Tensor:
        r"""Computes the output ``[N, D + S]`` of layer :obj:`index`, which attends to all nodes,
        part by part. The function :obj:`x` returns the rows of its input for a tensor of ids."""
        layer = cast(Any, self.layers[index])
        weight = reference(self.embedding)

        def state_of(part: Part) -> AttentionState:
            nodes = part.ids(weight.device)
            return self.layer_state(layer, x(nodes), None, nodes)

        state = stream.state(f'state-{index}', state_of)

        def rows(part: Part) -> Tensor:
            nodes = part.ids(weight.device)
            return self.layer_rows(layer, x(nodes), None, nodes, state)

        return stream.fill(f'layer-{index + 1}', layer.in_channels, weight.dtype, rows)

    def tokens(self, nodes: Tensor | None = None) -> Tensor:
        r"""Returns the rows of :math:`\mathbf{X}` for the ids :obj:`nodes` ``[n]`` (default: all
        nodes), ``[n, D + S]``."""
        rows = embedding_rows(self.embedding, self.num_nodes, nodes)
        if self.structural_encoding is None:
            return rows
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

    def _check_states(self, states: Sequence[AttentionState] | None) -> None:
        if states is None:
            return
        self._check_mask_of_states()
        if not isinstance(states, Sequence):
            raise TypeError(f"'states' must be a list of states (got {type(states).__name__})")
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

    def _near(self, depth: int, nodes: Tensor, edges: Tensor, weight: Tensor | None) -> Tensor:
        r"""Computes the rows of :obj:`nodes` after the first :obj:`depth` layers with the mask
        :obj:`"adjacency"`, ``[n, D + S]``, from the nodes within :obj:`depth` hops.

        Args:
            depth (int): The number of layers; 0 returns :meth:`tokens`.
            nodes (torch.Tensor): The ids ``[n]``.
            edges (torch.Tensor): All edges of the graph ``[2, E]``.
            weight (torch.Tensor, optional): Their weights ``[E]``.
        """
        if depth == 0:
            return self.tokens(nodes)
        (source, target), near_weight = edges_into(nodes, edges, weight)
        n_id = torch.cat([nodes, source]).unique()
        x_src = self._near(depth - 1, n_id, edges, weight)
        x_dst = x_src[torch.searchsorted(n_id, nodes)]
        near_edges = torch.stack([torch.searchsorted(n_id, source), target])
        out = self.layers[depth - 1]((x_src, x_dst), near_edges, edge_weight=near_weight)
        return out + x_dst if self.residual else out

    def _edges(
        self, edge_index: Adj | None, edge_weight: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        if edge_index is None:
            raise ValueError(
                "'edge_index' must be given to a model with 'mask' = 'adjacency' (got None)"
            )
        check_devices(
            reference(self.embedding).device, edge_index=edge_index, edge_weight=edge_weight
        )
        return weighted_edges(edge_index, self.num_nodes, self.num_nodes, edge_weight)

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.num_users}, {self.num_items}, '
            f'{self.embedding_dim}, num_layers={self.num_layers})'
        )


def _degrees(data: HeteroData, sizes: dict[str, int]) -> Tensor:
    r"""Counts the distinct neighbours of each node over all edge types in either direction,
    ``[N]``, for two node types of the given :obj:`sizes`.

    Raises:
        TypeError: If an edge type has neither :obj:`edge_index` nor :obj:`adj_t`.
        ValueError: If an id is outside the nodes of its type.
    """
    first, second = sizes
    start = {first: 0, second: sizes[first]}
    pairs = []
    for (source, _, target), store in zip(data.edge_types, data.edge_stores, strict=True):
        name = 'adj_t' if 'adj_t' in store and 'edge_index' not in store else 'edge_index'
        edges, _ = weighted_edges(store.get(name), sizes[source], sizes[target], argument=name)
        pairs.append(edges + edges.new_tensor([[start[source]], [start[target]]]))
    return degrees(torch.cat(pairs, 1), sum(sizes.values()))


def _rows_of(array: Tensor, device: torch.device, nodes: Tensor) -> Tensor:
    return to_device(array[nodes.cpu()], device)
