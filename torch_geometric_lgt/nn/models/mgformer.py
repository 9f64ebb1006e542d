# N = U + I nodes (U users, I items), E edges, P pairs, D embedding size, S size of the structural
# encoding.
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import Embedding, ModuleList
from torch.nn.functional import binary_cross_entropy_with_logits, normalize
from torch_geometric.data import HeteroData
from torch_geometric.nn.inits import reset
from torch_geometric.nn.models.lightgcn import BPRLoss

from torch_geometric_lgt._arguments import check_whole
from torch_geometric_lgt.functional import AttentionState
from torch_geometric_lgt.functional.neighbors.edges import (
    degrees,
    edge_list,
    edges_into,
    weighted_edges,
)
from torch_geometric_lgt.functional.ranking import (
    History,
    Scoring,
    checked_rule,
    cosine_scores,
    item_factor,
    rank,
    rule_bits,
    rule_of,
)
from torch_geometric_lgt.functional.tracing import may_read_values
from torch_geometric_lgt.nn._attention_layer import check_devices, check_unused
from torch_geometric_lgt.nn._parts import embedding_rows, reference
from torch_geometric_lgt.nn.attention import AdjacencyMaskedAttention, DegreeMaskedAttention
from torch_geometric_lgt.nn.conv import KernelAttentionConv
from torch_geometric_lgt.nn.models._layerwise import evaluation, stream_mgformer
from torch_geometric_lgt.nn.models._out_of_memory import with_advice
from torch_geometric_lgt.nn.models._streaming import Stream
from torch_geometric_lgt.typing import Adj

MASKS = ('degree', 'adjacency', 'none')


class MGFormer(torch.nn.Module):
    r"""The recommender of "Masked Graph Transformer for Large-Scale Recommendation": users and
    items are the tokens of one attention,

    .. math::
        \mathbf{X} = \left[\mathbf{E}, s \, \mathbf{P} / \|\mathbf{P}\|\right], \qquad
        \mathbf{H} = \mathrm{Attention}(\mathbf{X} \mathbf{W}_Q, \mathbf{X} \mathbf{W}_K,
            \mathbf{X}) + \mathbf{X}

    (Eq. 2-12) with learned embeddings :math:`\mathbf{E}` and structural encodings
    :math:`\mathbf{P}`, those of :class:`~torch_geometric_lgt.transforms.SVDEncoding`, whose rows
    are brought to one length. A pair is scored by the inner product of its rows of
    :math:`\mathbf{H}`, and :meth:`recommend` ranks by the rule :attr:`scoring`. Differs from the
    paper, which names neither: the residual (without it every row starts as the mean of all rows)
    and the length :math:`s` of the encodings (``None`` leaves them as they are).

    The methods are those of :class:`torch_geometric.nn.LightGCN`, with edge weights for the mask
    :obj:`"adjacency"` only and with more arguments: nodes 0 to U - 1 are users, U to U + I - 1
    items.

    Args:
        num_users (int): U.
        num_items (int): I.
        embedding_dim (int, optional): Size of :math:`\mathbf{E}`. (default: :obj:`64`)
        structural_encoding (torch.Tensor, optional): :math:`\mathbf{P}`, ``[N, S]``. (default:
            :obj:`None`, without)
        degree (torch.Tensor, optional): Degrees in the training graph ``[N]`` for the degree mask;
            without them they are counted from :obj:`edge_index` in each call. (default:
            :obj:`None`)
        num_layers (int, optional): Number of layers; none leaves :math:`\mathbf{H} = \mathbf{X}`.
            (default: :obj:`1`)
        heads (int, optional): Number of attention heads. (default: :obj:`1`)
        mask (str, optional): :obj:`"degree"` (Eq. 10), :obj:`"adjacency"` (attention to the
            neighbours in :obj:`edge_index` only) or :obj:`"none"` (Eq. 6). (default:
            :obj:`"degree"`)
        feature_map (str or torch.nn.Module, optional): :math:`\phi`, see
            :class:`~torch_geometric_lgt.nn.KernelAttentionConv`. (default: :obj:`"simplex"`)
        num_features (int, optional): Random features per head. (default: :obj:`None`, as many as
            channels of a key)
        residual (bool, optional): If :obj:`False`, :math:`\mathbf{X}` is not added. (default:
            :obj:`True`)
        encoding_scale (float, optional): :math:`s`, the length of the rows of :math:`\mathbf{P}`;
            :obj:`None` leaves them as they are. (default: :obj:`0.6`)
        max_degree (int, optional): The largest degree with an embedding of its own. (default:
            :obj:`512`)
        key_channels (int, optional): Channels of queries and keys over all heads. (default:
            :obj:`None`, as many as :math:`\mathbf{X}` has, as in the paper)

    Raises:
        ValueError: If a size is out of range, :obj:`mask` is unknown, or an encoding or degree does
            not have one row per node.
    """

    structural_encoding: Tensor | None
    degree: Tensor | None
    scoring_rule: Tensor

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
        max_degree: int = 512,
        key_channels: int | None = None,
    ) -> None:
        super().__init__()
        for name, size in {
            'num_users': num_users,
            'num_items': num_items,
            'embedding_dim': embedding_dim,
        }.items():
            if size < 1:
                raise ValueError(f"'{name}' must be at least 1 (got {size})")
        if num_layers < 0:
            raise ValueError(f"'num_layers' must be at least 0 (got {num_layers})")
        if mask not in MASKS:
            raise ValueError(f"'mask' must be one of {MASKS} (got {mask!r})")
        self.num_users, self.num_items, self.num_nodes = num_users, num_items, num_users + num_items
        self.embedding_dim, self.num_layers, self.mask, self.residual = (
            embedding_dim,
            num_layers,
            mask,
            residual,
        )
        self.embedding = Embedding(self.num_nodes, embedding_dim)
        for name, value, dim in (
            ('structural_encoding', structural_encoding, 2),
            ('degree', degree, 1),
        ):
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
        arguments = {
            'heads': heads,
            'feature_map': feature_map,
            'num_features': num_features,
            'key_channels': key_channels,
        }
        arguments['value_projection'] = False
        make = {
            'degree': partial(DegreeMaskedAttention, channels, max_degree=max_degree),
            'adjacency': partial(AdjacencyMaskedAttention, channels),
            'none': partial(KernelAttentionConv, channels, channels),
        }[mask]
        self.layers = ModuleList([make(**arguments) for _ in range(num_layers)])
        self.register_buffer('scoring_rule', rule_bits('inner'))
        self.reset_parameters()

    @classmethod
    def from_data(cls, data: HeteroData, *args, attr_name: str = 'svd_pe', **kwargs) -> 'MGFormer':
        r"""The model of a data object with users as its first and items as its second node type:
        sizes, degrees over all edge types, and the structural encodings :obj:`attr_name` if there
        are any. The other arguments are passed on.

        Raises:
            ValueError: If there are not two node types.
        """
        if len(data.node_types) != 2:
            raise ValueError(
                f"'data' must have two node types, users and items (got {data.node_types})"
            )
        num_users, num_items = (data[name].num_nodes for name in data.node_types)
        num_nodes = num_users + num_items
        degree = degrees(
            edge_list(data.to_homogeneous(node_attrs=[]).edge_index, num_nodes, num_nodes),
            num_nodes,
        )
        encoding = (
            torch.cat([data[name][attr_name] for name in data.node_types])
            if attr_name in data.node_attrs()
            else None
        )
        kwargs = {
            'structural_encoding': encoding,
            'degree': degree,
            'max_degree': int(degree.max()),
            **kwargs,
        }
        return cls(num_users, num_items, *args, **kwargs)

    def reset_parameters(self) -> None:
        r"""Resets all learnable parameters and redraws the projections."""
        torch.nn.init.xavier_uniform_(self.embedding.weight)
        reset(self.layers)
        self.scoring = 'inner'

    @property
    def scoring(self) -> str | float:
        r"""The rule of :meth:`recommend`, a part of the weights: set what validation chose, and
        ``state_dict`` keeps it.

        * :obj:`"inner"` (default): :math:`\mathbf{H}_u^{\top} \mathbf{H}_i`
        * :obj:`"cosine"`: :math:`\cos(\mathbf{H}_u, \mathbf{H}_i)`
        * a number :math:`\alpha`: :math:`\cos(\mathbf{H}_u, \mathbf{H}_i) \, d_i^{\alpha}` with the
          item's degree :math:`d_i`, at least 1
        """
        return rule_of(self.scoring_rule)

    @scoring.setter
    def scoring(self, rule: str | float) -> None:
        self.scoring_rule.copy_(rule_bits(rule))

    @with_advice("train on pairs that read detached 'attention_states'")
    def get_embedding(
        self,
        edge_index: Adj | None = None,
        nodes: Tensor | Sequence[int] | None = None,
        states: Sequence[AttentionState] | None = None,
        *,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""The rows of :math:`\mathbf{H}` of :obj:`nodes` (default: all). All nodes are keys, but
        in the last layer only :obj:`nodes` are queries, and in every layer if they read the
        :obj:`states` of :meth:`attention_states`. With the mask :obj:`"adjacency"` only
        :obj:`nodes` and their neighbours are looked at; edges sorted by target are fastest. The
        weights of its edges are :obj:`edge_weight` ``[E]`` or the values of a sparse matrix.

        Raises:
            ValueError: If :obj:`nodes` are neither ids of nodes nor a mask of all, or there are
                weights and another mask.
        """
        nodes = None if nodes is None else self._ids(nodes, 'nodes')
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
        r"""The state of all nodes' keys in each layer. Reading from them, :meth:`get_embedding`
        computes the same rows, and for some of the nodes nothing but theirs: to serve a trained
        model, or, detached, to train with keys that are a few steps old."""
        if self.mask == 'adjacency':
            raise ValueError(
                "'mask' must be 'degree' or 'none' for states: the keys of 'adjacency' differ from "
                'node to node'
            )
        x, out = self.tokens(), []
        for layer in self.layers:
            out.append(self.layer_state(layer, x, edge_index))
            if layer is not self.layers[-1]:
                x = self.layer_rows(layer, x, edge_index, None, out[-1])
        return out

    def inference(
        self, loader: Any, folder: str | Path | None = None, progress_bar: bool = False
    ) -> Tensor:
        r"""The rows of :math:`\mathbf{H}` of all nodes, batch by batch, see
        :meth:`NodeFormer.inference`; the loader's data are the graph with users and items as nodes
        of one type. The degree mask needs :obj:`degree` in the model."""
        with evaluation(self):
            stream = Stream(loader, folder, self, progress_bar)
            width = self.tokens(torch.arange(1, device=reference(self.embedding).device)).size(1)
            return stream.result(
                width, reference(self.embedding).dtype, lambda: stream_mgformer(self, stream)
            )

    def forward(
        self,
        edge_index: Adj | None = None,
        edge_label_index: Tensor | None = None,
        *,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""The scores ``[P]`` of the pairs :obj:`edge_label_index` ``[2, P]`` (default: those of
        :obj:`edge_index`)."""
        if edge_label_index is None:
            if edge_index is None:
                raise ValueError(
                    "'edge_label_index' must be given without 'edge_index' (got neither)"
                )
            edge_label_index = self._pairs(edge_index)
        else:
            edge_label_index = self._pairs(edge_label_index, 'edge_label_index')
        if torch.compiler.is_compiling():  # when the number of distinct nodes must be known
            source, target = self.get_embedding(edge_index, edge_weight=edge_weight)[
                edge_label_index
            ]
            return (source * target).sum(-1)
        nodes, index = edge_label_index.unique(return_inverse=True)
        out = self.get_embedding(edge_index, nodes, edge_weight=edge_weight)
        return (out[index[0]] * out[index[1]]).sum(-1)

    def predict_link(
        self,
        edge_index: Adj | None = None,
        edge_label_index: Tensor | None = None,
        prob: bool = False,
        *,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""The sigmoid of the scores, rounded unless :obj:`prob` is set."""
        out = self(edge_index, edge_label_index, edge_weight=edge_weight).sigmoid()
        return out if prob else out.round()

    def recommend(
        self,
        edge_index: Adj | None = None,
        src_index: Tensor | Sequence[int] | None = None,
        dst_index: Tensor | Sequence[int] | None = None,
        k: int = 1,
        sorted: bool = True,
        *,
        exclude: Adj | None = None,
        scoring: str | float | None = None,
        batch_size: int | None = None,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""Ranks the nodes of :obj:`dst_index` (default: all items) for each of :obj:`src_index`
        (default: all users), in evaluation and without gradients, for some users at once: scores of
        all users and items never exist together.

        Args:
            edge_index (torch.Tensor or SparseTensor, optional): The graph, where the mask or the
                degrees need it. (default: :obj:`None`)
            src_index (torch.Tensor or list, optional): The users, ids or a mask of all nodes.
                (default: :obj:`None`, all users)
            dst_index (torch.Tensor or list, optional): The nodes to choose from, each of which
                counts once. (default: :obj:`None`, all items)
            k (int, optional): How many of them. (default: :obj:`1`)
            sorted (bool, optional): If :obj:`False`, the :obj:`k` nodes are in no particular order.
                Equal scores always are. (default: :obj:`True`)
            exclude (torch.Tensor or SparseTensor, optional): Pairs of nodes, in either direction,
                that are not returned, such as the :obj:`edge_index` of the users' history: edges of
                the whole graph, with items from U on. (default: :obj:`None`)
            scoring (str or float, optional): The rule, see :attr:`scoring`. (default: :obj:`None`,
                that of the model)
            batch_size (int, optional): Number of users at once. (default: :obj:`None`, as many as a
                cache holds)

        Returns:
            Ids of nodes ``[P, k]``.

        Raises:
            TypeError: If an index is neither a tensor nor a list of ids.
            ValueError: If there are fewer than :obj:`k` nodes to choose from, or :obj:`exclude`
                leaves fewer to a user, an index holds neither ids of nodes nor a mask of all,
                :obj:`exclude` joins two users, the rule is unknown, a count is no whole number, or
                the output of a node is not finite.
        """
        device = reference(self.embedding).device
        users = (
            torch.arange(self.num_users, device=device)
            if src_index is None
            else self._ids(src_index, 'src_index')
        )
        items = (
            torch.arange(self.num_users, self.num_nodes, device=device)
            if dst_index is None
            else self._ids(dst_index, 'dst_index')
        )
        items = items.long().unique()
        check_whole('k', k, 0)
        if k > items.numel():
            raise ValueError(
                f"'k' must be at most {items.numel()}, the number of nodes to choose from (got {k})"
            )
        if batch_size is not None:
            check_whole('batch_size', batch_size, 1)
        rule = self.scoring if scoring is None else checked_rule(scoring)
        history = self._history(exclude, users, items, k)
        with evaluation(self):
            out = self.get_embedding(edge_index, edge_weight=edge_weight)
            ranked = torch.cat([users, items])
            wrong = ranked[~out[ranked].isfinite().all(1)]
            if wrong.numel() > 0:
                raise ValueError(
                    "'embedding' must be finite in all rows, as all other weights (the output of "
                    f'node {int(wrong[0])} is not)'
                )
            degree = None if isinstance(rule, str) else self._degree(edge_index)[items]
            scores = Scoring(
                cosine_scores(out, out[items]), {0.0: item_factor(rule, out[items], degree)}
            )
            return items[
                rank(scores, users, history, k, ordered=sorted, batch_size=batch_size)[0.0]
            ]

    def link_pred_loss(self, pred: Tensor, edge_label: Tensor, **kwargs) -> Tensor:
        r"""The binary cross entropy of scores."""
        return binary_cross_entropy_with_logits(pred, edge_label.to(pred.dtype), **kwargs)

    def recommendation_loss(
        self,
        pos_edge_rank: Tensor,
        neg_edge_rank: Tensor,
        node_id: Tensor | None = None,
        lambda_reg: float = 1e-4,
    ) -> Tensor:
        r"""The Bayesian personalised ranking loss, with the squared norms of the embeddings of
        :obj:`node_id` (default: all)."""
        return BPRLoss(lambda_reg)(
            pos_edge_rank, neg_edge_rank, embedding_rows(self.embedding, self.num_nodes, node_id)
        )

    def tokens(self, nodes: Tensor | None = None) -> Tensor:
        r"""The rows of :math:`\mathbf{X}` of :obj:`nodes` (default: all)."""
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
        r"""The state of the keys of :obj:`nodes` (default: all), whose rows :obj:`x` are, in a
        layer."""
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
        r"""The output of :obj:`nodes`. The rows of :obj:`x` are all nodes, or :obj:`nodes` alone if
        the keys are in :obj:`state`."""
        target = x if nodes is None or state is not None else x[nodes]
        pair = x if target is x else (x, target)
        if self.mask == 'none':
            out = layer(pair, state=state)
        else:
            degree = self._degree(edge_index)
            own = degree if nodes is None else degree[nodes]
            out = layer(pair, own if target is x else (degree, own), state=state)
        return out + target if self.residual else out

    def _near(self, depth: int, nodes: Tensor, edges: Tensor, weight: Tensor | None) -> Tensor:
        r"""The rows of :obj:`nodes` after the first :obj:`depth` layers, from their neighbours
        alone."""
        if depth == 0:
            return self.tokens(nodes)
        (source, target), near_weight = edges_into(nodes, edges, weight)
        found = torch.cat([nodes, source]).unique()
        x = self._near(depth - 1, found, edges, weight)
        here = x[torch.searchsorted(found, nodes)]
        near_edges = torch.stack([torch.searchsorted(found, source), target])
        out = self.layers[depth - 1]((x, here), near_edges, edge_weight=near_weight)
        return out + here if self.residual else out

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

    def _degree(self, edge_index: Adj | None) -> Tensor:
        if self.degree is not None:
            return self.degree
        if edge_index is None:
            raise ValueError(
                "'degree' must be in the model, from MGFormer.from_data or as an argument, or "
                "'edge_index' be given (got neither)"
            )
        check_devices(reference(self.embedding).device, edge_index=edge_index)
        return degrees(edge_list(edge_index, self.num_nodes, self.num_nodes), self.num_nodes)

    def _history(self, exclude: Adj | None, users: Tensor, items: Tensor, k: int) -> History:
        r"""Finds for each node the places among :obj:`items` of the nodes that it is paired with.

        Raises:
            ValueError: If one of the :obj:`users` has fewer than :obj:`k` items left, or a pair
                joins two users in vain.
        """
        pairs = items.new_empty((2, 0)) if exclude is None else self._pairs(exclude, 'exclude')
        joins_users = (pairs < self.num_users).all(0) & (pairs[0] != pairs[1])
        if bool((items >= self.num_users).all()) and bool(joins_users.any()):
            users_of_pair = pairs[:, joins_users][:, 0].tolist()
            raise ValueError(
                "'exclude' must hold pairs of a user and an item, whose ids begin at "
                f'{self.num_users} (got {users_of_pair})'
            )
        history = History.among(items, pairs, self.num_nodes)
        left = items.numel() - history.ptr.diff()[users]
        if bool((left < k).any()):
            least = int(left.argmin())
            raise ValueError(
                f"'k' must be at most {int(left[least])}, the number of nodes that 'exclude' "
                f'leaves to node {int(users[least])} (got {k}); '
                "leave such nodes out of 'src_index'"
            )
        return history

    def _ids(self, nodes: Tensor | Sequence[int], argument: str) -> Tensor:
        r"""Ids of nodes, also where a mask of all nodes is given."""
        if not isinstance(nodes, Tensor):
            try:
                nodes = (
                    torch.as_tensor(nodes) if len(nodes) > 0 else torch.empty(0, dtype=torch.long)
                )
            except (TypeError, ValueError, RuntimeError) as error:
                raise TypeError(
                    f"'{argument}' must be a tensor or a list of ids of nodes (got "
                    f'{type(nodes).__name__})'
                ) from error
        nodes = nodes.to(reference(self.embedding).device)
        if nodes.dtype == torch.bool and nodes.shape == (self.num_nodes,):
            return nodes.nonzero().view(-1)
        if nodes.dim() != 1 or nodes.dtype not in (torch.int32, torch.int64):
            raise ValueError(
                f"'{argument}' must hold ids of nodes or be a mask of all (got {nodes.dtype} "
                f'{tuple(nodes.shape)})'
            )
        if (
            may_read_values()
            and nodes.numel() > 0
            and not 0 <= int(nodes.min()) <= int(nodes.max()) < self.num_nodes
        ):
            raise ValueError(
                f"'{argument}' must hold ids from 0 to {self.num_nodes - 1} (got "
                f'{int(nodes.min())} to {int(nodes.max())})'
            )
        return nodes

    def _pairs(self, pairs: Adj, argument: str = 'edge_index') -> Tensor:
        r"""A list of pairs of nodes; errors name the :obj:`argument`."""
        check_devices(reference(self.embedding).device, **{argument: pairs})
        return weighted_edges(pairs, self.num_nodes, self.num_nodes, argument=argument)[0]

    def __repr__(self) -> str:
        return (
            f'{self.__class__.__name__}({self.num_users}, {self.num_items}, '
            f'{self.embedding_dim}, num_layers={self.num_layers})'
        )
