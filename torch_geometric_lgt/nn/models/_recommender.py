# N = U + I nodes (U users, I items), P pairs, D embedding size.
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import Embedding, Module
from torch.nn.functional import binary_cross_entropy_with_logits
from torch_geometric.nn.models.lightgcn import BPRLoss

from torch_geometric_lgt._arguments import check_whole
from torch_geometric_lgt.functional.neighbors.edges import degrees, edge_list, weighted_edges
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
from torch_geometric_lgt.nn._layers.input_checks import check_devices
from torch_geometric_lgt.nn._layers.linear_parts import embedding_rows, reference
from torch_geometric_lgt.nn.models._streaming.stream import evaluation
from torch_geometric_lgt.typing import Adj


class Recommender(Module):
    r"""Scores and ranks pairs of nodes by their rows of :meth:`get_embedding`, with the methods of
    :class:`torch_geometric.nn.LightGCN`."""

    num_users: int
    num_nodes: int
    embedding: Embedding
    degree: Tensor | None
    scoring_rule: Tensor

    def get_embedding(
        self,
        edge_index: Adj | None = None,
        nodes: Tensor | Sequence[int] | None = None,
        *,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        raise NotImplementedError

    @property
    def scoring(self) -> str | float:
        r"""The rule by which :meth:`recommend` ranks. Set the rule that is best on validation data;
        ``state_dict`` contains it.

        * :obj:`"inner"` (default): :math:`\mathbf{H}_u^{\top} \mathbf{H}_i`
        * :obj:`"cosine"`: :math:`\cos(\mathbf{H}_u, \mathbf{H}_i)`
        * a number :math:`\alpha`: :math:`\cos(\mathbf{H}_u, \mathbf{H}_i) \, d_i^{\alpha}` with the
          item's degree :math:`d_i`, at least 1
        """
        return rule_of(self.scoring_rule)

    @scoring.setter
    def scoring(self, rule: str | float) -> None:
        self.scoring_rule.copy_(rule_bits(rule))

    def forward(
        self,
        edge_index: Adj | None = None,
        edge_label_index: Tensor | None = None,
        *,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        r"""Scores the pairs :obj:`edge_label_index` ``[2, P]`` (default: :obj:`edge_index`), and
        returns ``[P]``."""
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
        r"""Predicts whether each pair is an edge: the sigmoid of its score, rounded unless
        :obj:`prob` is set."""
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
        r"""Ranks the nodes of :obj:`dst_index` (default: all items) for each node of
        :obj:`src_index` (default: all users), in evaluation and without gradients. It scores some
        users at a time, so that memory does not grow with users times items.

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
        r"""Computes the binary cross entropy of scores."""
        return binary_cross_entropy_with_logits(pred, edge_label.to(pred.dtype), **kwargs)

    def recommendation_loss(
        self,
        pos_edge_rank: Tensor,
        neg_edge_rank: Tensor,
        node_id: Tensor | None = None,
        lambda_reg: float = 1e-4,
    ) -> Tensor:
        r"""Computes the Bayesian personalised ranking loss, plus :obj:`lambda_reg` times the
        squared norms of the embeddings of :obj:`node_id` (default: all)."""
        return BPRLoss(lambda_reg)(
            pos_edge_rank, neg_edge_rank, embedding_rows(self.embedding, self.num_nodes, node_id)
        )

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
        r"""Finds for each node the positions among :obj:`items` of the nodes to exclude.

        Raises:
            ValueError: If one of the :obj:`users` has fewer than :obj:`k` items left, or a pair
                joins two users while :obj:`items` has none.
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
        r"""Returns the ids of nodes that are named by their ids or by a mask of all nodes."""
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
        r"""Returns pairs of nodes as a list; errors name the :obj:`argument`."""
        check_devices(reference(self.embedding).device, **{argument: pairs})
        return weighted_edges(pairs, self.num_nodes, self.num_nodes, argument=argument)[0]
