# N = U + I nodes (U users, I items), P pairs, D embedding size.
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Embedding, Module
from torch.nn.functional import binary_cross_entropy_with_logits
from torch_geometric.nn.models.lightgcn import BPRLoss

from torch_geometric_lgt._arguments import (
    check_flags,
    check_ids,
    check_no_mask_of_numbers,
    check_whole,
)
from torch_geometric_lgt.functional.neighbors.edges import edge_list, weighted_edges
from torch_geometric_lgt.functional.neighbors.hops import degrees
from torch_geometric_lgt.functional.ranking import (
    History,
    checked_rule,
    cosine_scores,
    item_factor,
    rank,
    rule_bits,
    rule_of,
)
from torch_geometric_lgt.functional.tracing import may_read_values
from torch_geometric_lgt.nn._layers.input_checks import check_devices, check_edge_index
from torch_geometric_lgt.nn._layers.linear_parts import embedding_rows, reference
from torch_geometric_lgt.nn.models._evaluation import evaluation
from torch_geometric_lgt.typing import Adj


class Recommender(Module):
    r"""Scores and ranks pairs of users and items by their embeddings: the base class of
    recommenders, with the methods of :class:`torch_geometric.nn.LightGCN`.

    Users are the nodes 0 to U - 1, items are the nodes U to N - 1. A subclass defines
    :meth:`get_embedding`, which returns the embeddings ``[N, D]`` of all nodes or those of the ids
    :obj:`nodes`."""

    num_users: int
    num_nodes: int
    embedding: Embedding
    degree: Tensor | None
    scoring_rule: Tensor

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        r"""Loads the buffers. Whole numbers that were converted to half precision with the
        parameters are an error: other degrees, and another rule in the bits of the scoring."""
        *_, errors = args
        for name in ('scoring_rule', 'degree'):
            value = state_dict.get(prefix + name)
            if isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16):
                errors.append(
                    f"'state_dict' must hold {prefix + name!r} in int64 (got {value.dtype}, which "
                    'rounds it); convert a tensor only if is_floating_point() of it is true'
                )
        super()._load_from_state_dict(state_dict, prefix, *args)

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
        r"""The rule by which :meth:`recommend` ranks item :math:`i` for user :math:`u` with
        embeddings :math:`\mathbf{H}`. Set the rule that is best on validation data; ``state_dict``
        contains it.

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
        r"""Computes the scores ``[P]`` of pairs of nodes, the inner products of their embeddings.

        Args:
            edge_index (torch.Tensor or SparseTensor, optional): The graph, if the embeddings depend
                on it. (default: :obj:`None`)
            edge_label_index (torch.Tensor, optional): The pairs of ids ``[2, P]``. (default:
                :obj:`None`, the edges)
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]``. (default:
                :obj:`None`, the values of a sparse matrix, else 1)

        Raises:
            ValueError: If there are neither edges nor pairs, an id is none of the graph, or in
                training the ids of items in the pairs begin at 0.
        """
        argument = 'edge_index' if edge_label_index is None else 'edge_label_index'
        pairs = edge_index if edge_label_index is None else edge_label_index
        if pairs is None:
            raise ValueError("'edge_label_index' must be given without 'edge_index' (got neither)")
        edge_label_index = self._pairs(pairs, argument)
        if self.training:
            check_item_ids(edge_label_index, self.num_users, self.num_nodes, argument)
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
        r"""Predicts whether each of the pairs ``[2, P]`` is an edge. Returns ``[P]``: the sigmoid
        of each score with :obj:`prob`, else this number rounded to 0 or 1. The other arguments are
        those of :meth:`forward`."""
        check_flags(prob=prob)
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
        r"""Finds the :obj:`k` best nodes of :obj:`dst_index` (default: all items) for each node of
        :obj:`src_index` (default: all users).

        The method runs the model in evaluation mode, without gradients. It scores some users at a
        time, so that memory does not grow with users times items.

        Args:
            edge_index (torch.Tensor or SparseTensor, optional): The graph, if the embeddings or the
                degrees of :obj:`scoring` depend on it. (default: :obj:`None`)
            src_index (torch.Tensor or list, optional): The users: ids, or a bool for each node.
                With :obj:`dst_index` they may be items. (default: :obj:`None`, all users)
            dst_index (torch.Tensor or list, optional): The nodes to choose from: ids, of which
                repeated ones count once, or a bool for each node. The ids of items begin at U;
                smaller ones are users, who are then recommended. (default: :obj:`None`, all items)
            k (int, optional): The number of nodes for each user. (default: :obj:`1`)
            sorted (bool, optional): If :obj:`True`, the best node comes first. If :obj:`False`, the
                order is arbitrary; nodes of equal score always have an arbitrary order. (default:
                :obj:`True`)
            exclude (torch.Tensor or SparseTensor, optional): Pairs of ids, in either direction,
                that are not recommended, such as the :obj:`edge_index` of past purchases. The ids
                of items begin at U. (default: :obj:`None`)
            scoring (str or float, optional): The rule of ranking, see :attr:`scoring`. (default:
                :obj:`None`, the rule of the model)
            batch_size (int, optional): Number of users at once. (default: :obj:`None`, as many as a
                cache holds)
            edge_weight (torch.Tensor, optional): The weights of the edges ``[E]``, if the
                embeddings depend on them. (default: :obj:`None`, the values of a sparse matrix,
                else 1)

        Returns:
            The ids of the best nodes ``[P, k]``, one row for each of :math:`P` users. The ids of
            items begin at U.

        Raises:
            TypeError: If an index is neither a tensor nor a list of ids, or :obj:`edge_index` is
                in no format of edges.
            ValueError: If fewer than :obj:`k` nodes can be recommended to a user, :obj:`exclude`
                joins two users, or no edge leads to an item. If :obj:`src_index` contains an item
                without :obj:`dst_index`. If an index contains neither ids nor one bool per node. If
                the rule is unknown, or a count is not a whole number. If an embedding or a power of
                a degree is not finite.
        """
        check_edge_index(edge_index, "; give users as 'src_index'")
        pairs = None if edge_index is None else self._pairs(edge_index)
        if pairs is not None:
            check_item_ids(pairs, self.num_users, self.num_nodes)
        users, items = self._users_and_items(src_index, dst_index)
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
            _check_finite(out, torch.cat([users, items]))
            degree = None if isinstance(rule, str) else self._degree(pairs)[items]
            item_rows = out[items]
            scores = cosine_scores(out, item_rows)
            factor = item_factor(rule, item_rows, degree)
            best = rank(scores, factor, users, history, k, ordered=sorted, batch_size=batch_size)
            return items[best]

    def link_pred_loss(self, pred: Tensor, edge_label: Tensor, **kwargs: Any) -> Tensor:
        r"""Computes the binary cross entropy of scores :obj:`pred` ``[P]`` (logits, before the
        sigmoid) and labels :obj:`edge_label` ``[P]``, averaged over the pairs.

        Other keywords go to :meth:`~torch.nn.functional.binary_cross_entropy_with_logits`.

        Raises:
            ValueError: If a label is not from 0 to 1.
        """
        if may_read_values(edge_label) and bool(((edge_label < 0) | (edge_label > 1)).any()):
            raise ValueError(
                f"'edge_label' must be from 0 to 1 (got {edge_label.min()} to {edge_label.max()}); "
                "PyG's loaders add 1 to labels where they draw negative pairs, whose label is 0"
            )
        return binary_cross_entropy_with_logits(pred, edge_label.to(pred.dtype), **kwargs)

    def recommendation_loss(
        self,
        pos_edge_rank: Tensor,
        neg_edge_rank: Tensor,
        node_id: Tensor | None = None,
        lambda_reg: float = 1e-4,
    ) -> Tensor:
        r"""Computes the Bayesian personalised ranking loss, a scalar, with a penalty on the
        embeddings.

        Args:
            pos_edge_rank (torch.Tensor): The scores ``[P]`` of positive pairs.
            neg_edge_rank (torch.Tensor): The scores ``[P]`` of negative pairs, one for each
                positive pair.
            node_id (torch.Tensor, optional): The ids of nodes whose squared norms of learned
                embeddings are added, or a bool for each node. (default: :obj:`None`, all nodes)
            lambda_reg (float, optional): The factor of these squared norms, divided by :math:`P`.
                (default: :obj:`1e-4`)

        Raises:
            ValueError: If the scores are not those of as many positive as negative pairs, which
                would be compared each with each. If :obj:`node_id` contains neither ids nor one
                bool per node.
        """
        sizes = [(scores.dim(), scores.shape[:1]) for scores in (pos_edge_rank, neg_edge_rank)]
        if sizes[0] != sizes[1]:
            raise ValueError(
                "'neg_edge_rank' must hold a score for each of the positive pairs, as "
                f"'pos_edge_rank' {tuple(pos_edge_rank.shape)} (got "
                f'{tuple(neg_edge_rank.shape)})'
            )
        if node_id is not None:
            node_id = self._ids(
                node_id.flatten() if isinstance(node_id, Tensor) else node_id, 'node_id'
            )
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
        edges = edge_list(edge_index, self.num_nodes, self.num_nodes)
        check_item_ids(edges, self.num_users, self.num_nodes)
        return degrees(edges, self.num_nodes)

    def _history(self, exclude: Adj | None, users: Tensor, items: Tensor, k: int) -> History:
        r"""Collects for each user the partners to exclude from :obj:`items`, as positions in
        :obj:`items`.

        Args:
            exclude (torch.Tensor or SparseTensor, optional): Pairs of ids ``[2, E]``, in either
                direction.
            users (torch.Tensor): The ids of the users to rank for.
            items (torch.Tensor): The distinct ids to choose from.
            k (int): The number of nodes that each user needs.

        Raises:
            ValueError: If a user has fewer than :obj:`k` items left, or a pair joins two users
                although :obj:`items` contains no user.
        """
        pairs = items.new_empty((2, 0)) if exclude is None else self._pairs(exclude, 'exclude')
        joins_users = (pairs < self.num_users).all(0) & (pairs[0] != pairs[1])
        if bool((items >= self.num_users).all()) and bool(joins_users.any()):
            users_of_pair = pairs[:, joins_users][:, 0].tolist()
            raise ValueError(
                "'exclude' must hold pairs of a user and an item, whose ids begin at "
                f'{self.num_users} (got {users_of_pair})'
            )
        is_asked = torch.zeros(self.num_nodes, dtype=torch.bool, device=users.device)
        is_asked[users] = True
        history = History.among(items, pairs[:, is_asked[pairs].any(0)], self.num_nodes)
        left = items.numel() - history.ptr.diff()[users]
        if bool((left < k).any()):
            least = int(left.argmin())
            raise ValueError(
                f"'k' must be at most {int(left[least])}, the number of nodes that 'exclude' "
                f'leaves to node {int(users[least])} (got {k}); '
                "leave such nodes out of 'src_index'"
            )
        return history

    def _users_and_items(
        self,
        src_index: Tensor | Sequence[int] | None,
        dst_index: Tensor | Sequence[int] | None,
    ) -> tuple[Tensor, Tensor]:
        r"""Returns the ids of the nodes that :meth:`recommend` ranks nodes for, and the distinct
        ids of the nodes to choose from: by default all users and all items.

        Raises:
            TypeError: If an index is neither a tensor nor a list of ids.
            ValueError: If an index contains neither ids nor one bool per node. If :obj:`src_index`
                contains an item without :obj:`dst_index`.
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
        if dst_index is None and users.numel() > 0 and int(users.max()) >= self.num_users:
            raise ValueError(
                f"'src_index' must hold ids of users, from 0 to {self.num_users - 1}, unless "
                f"'dst_index' is given (got {int(users.max())}, an item); for a new user, average "
                "the rows of get_embedding(nodes=items) with the user's items, and score all items "
                "with this average by the rule in 'scoring'"
            )
        return users, items.long().unique()

    def _ids(self, nodes: Tensor | Sequence[int], argument: str) -> Tensor:
        r"""Returns ids ``[n]`` on the model's device for :obj:`nodes`, a tensor or list of ids or a
        bool tensor with one entry per node.

        Raises:
            TypeError: If :obj:`nodes` is neither a tensor nor a list; errors name the
                :obj:`argument`.
            ValueError: If the shape or dtype is wrong, or an id does not exist. If there is a 0 or
                1 for each node in place of a bool.
        """
        device = reference(self.embedding).device
        if not isinstance(nodes, Tensor):
            try:
                dtype = None if len(nodes) > 0 else torch.long
                nodes = torch.as_tensor(nodes, dtype=dtype, device=device)
            except (TypeError, ValueError, RuntimeError) as error:
                got, hint = type(nodes).__name__, ''
                if isinstance(nodes, (list, tuple)) and isinstance(nodes[0], str):
                    got = f'{got} with {nodes[0]!r}'
                    hint = '; look up the number of each id of the data'
                raise TypeError(
                    f"'{argument}' must be a tensor or a list of ids of nodes, numbers from 0 to "
                    f'{self.num_nodes - 1} (got {got}){hint}'
                ) from error
        nodes = nodes.to(device)
        if nodes.dtype == torch.bool and nodes.shape == (self.num_nodes,):
            return nodes.nonzero().view(-1)
        if nodes.dim() != 1 or nodes.dtype not in (torch.int32, torch.int64):
            raise ValueError(
                f"'{argument}' must hold ids of nodes or be a mask of all (got {nodes.dtype} "
                f'{tuple(nodes.shape)})'
            )
        if may_read_values():
            check_ids(argument, nodes, self.num_nodes)
            check_no_mask_of_numbers(argument, nodes, self.num_nodes)
            sizes = {'src_index': self.num_users, 'dst_index': self.num_nodes - self.num_users}
            fix = 'give the ids, those of items from the number of users on'
            check_no_mask_of_numbers(argument, nodes, sizes.get(argument), fix)
        return nodes

    def _pairs(self, pairs: Adj, argument: str = 'edge_index') -> Tensor:
        r"""Returns pairs of nodes ``[2, P]`` in int64 from any format of edges in PyG. A ValueError
        that names the :obj:`argument` is raised if they do not fit the nodes or the device."""
        check_devices(reference(self.embedding).device, **{argument: pairs})
        return weighted_edges(pairs, self.num_nodes, self.num_nodes, argument=argument)[0]


def check_item_ids(
    pairs: Tensor, num_users: int, num_nodes: int, argument: str = 'edge_index'
) -> None:
    r"""Checks that the ids of items in :obj:`pairs` ``[2, P]`` begin at :obj:`num_users`, not at 0.
    Code that is compiled or captured is not checked.

    Raises:
        ValueError: If no pair has an item, or a pair joins two users and all ids fit the numbers of
            users and items. The latter counts for edges, and for other pairs if all begin or all
            end at users: random negative pairs of a graph may join two users, too.
    """
    if pairs.numel() == 0 or not may_read_values(pairs):
        return
    largest, num_ids = int(pairs.max()), num_users
    got = f'ids up to {largest}'
    is_user = pairs < num_users
    joins_users = is_user.all(0)
    shows_slip = argument == 'edge_index' or bool(is_user.all(1).any())
    if shows_slip and bool(joins_users.any()):
        num_ids = max(num_users, num_nodes - num_users)
        got = f'{pairs[:, joins_users][:, 0].tolist()} and {got}'
    if largest < num_ids:
        raise ValueError(
            f'{argument!r} must join users and items, whose ids begin at {num_users} (got {got}); '
            'add the number of users to the ids of items'
        )


def _check_finite(out: Tensor, nodes: Tensor) -> None:
    r"""Raises a ValueError unless the rows :obj:`nodes` ``[n]`` of embeddings :obj:`out` ``[N, D]``
    are finite."""
    wrong = nodes[~out[nodes].isfinite().all(1)]
    if wrong.numel() > 0:
        raise ValueError(
            "'embedding' must be finite in all rows, as all other weights (the output of node "
            f'{int(wrong[0])} is not)'
        )
