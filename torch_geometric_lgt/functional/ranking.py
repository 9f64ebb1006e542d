# U users, I items, E pairs, B users of a chunk, D embedding size.
import math
from collections.abc import Callable
from numbers import Real
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.linalg import vector_norm
from torch.nn.functional import normalize

from torch_geometric_lgt._arguments import check_choice
from torch_geometric_lgt.functional.neighbors.hops import ranges
from torch_geometric_lgt.functional.numerics import (
    chunk_elements,
    compute_dtype,
    without_autocast,
)

Scores = Callable[[Tensor], Tensor]
CHUNK_ELEMENTS = 1 << 20  # scores at once
SHORTEST = 1e-12  # as in normalize


class History(NamedTuple):
    r"""Stores the items of each user in compressed rows: user :obj:`u` has the items
    ``item[ptr[u] : ptr[u + 1]]``. :obj:`ptr` is ``[U + 1]``, :obj:`item` is ``[E]``."""

    ptr: Tensor
    item: Tensor

    @classmethod
    def of(cls, pairs: Tensor, num_users: int) -> 'History':
        r"""Builds the history from :obj:`pairs` ``[2, E]`` of user ids and item ids."""
        user, item = pairs[:, pairs[0].argsort(stable=True)]
        return cls(torch.searchsorted(user, torch.arange(num_users + 1, device=user.device)), item)

    @classmethod
    def among(cls, items: Tensor, pairs: Tensor, num_nodes: int) -> 'History':
        r"""Builds a history of all nodes from :obj:`pairs` ``[2, E]`` of node ids, in either
        direction. The items of a node are its distinct partners among the distinct node ids
        :obj:`items` ``[I]``, as positions in :obj:`items`."""
        place = torch.full((num_nodes,), -1, device=items.device)
        place[items] = torch.arange(items.numel(), device=items.device)
        node, item = torch.cat([pairs, pairs.flip(0)], 1)
        item, width = place[item], max(1, items.numel())
        cells = (node * width + item)[item >= 0].unique()
        return cls.of(torch.stack([cells // width, cells % width]), num_nodes)

    def __getitem__(self, users: Tensor) -> Tensor:
        r"""Returns pairs ``[2, E]`` of the history of the user ids :obj:`users` ``[B]``: the
        position of each user in :obj:`users`, and the item."""
        row, position = ranges(self.ptr[users], self.ptr[users + 1] - self.ptr[users])
        return torch.stack([row, self.item[position]])


def checked_rule(rule: str | float) -> str | float:
    r"""Returns the rule of a ranking: :obj:`"inner"`, :obj:`"cosine"` or the exponent of the items'
    degrees as a float. The exponent 0 becomes :obj:`"cosine"`.

    Raises:
        ValueError: If the rule is unknown.
    """
    if rule in ('inner', 'cosine'):
        return rule
    if isinstance(rule, bool) or not isinstance(rule, Real) or not math.isfinite(rule):
        others = ", or a finite exponent of the items' degrees"
        check_choice('scoring', rule, ('inner', 'cosine'), others)
    return float(rule) or 'cosine'


def rule_bits(rule: str | float) -> Tensor:
    r"""Encodes a rule as an int64 scalar tensor that :meth:`rule_of` decodes. It has the bits of a
    float64: the exponent, 0 for :obj:`"cosine"` or NaN for :obj:`"inner"`. Converting a module to
    another floating-point dtype does not round it."""
    rule = checked_rule(rule)
    exponent = {'inner': math.nan, 'cosine': 0.0}[rule] if isinstance(rule, str) else rule
    return torch.tensor(exponent, dtype=torch.float64, device='cpu').view(torch.int64)


def rule_of(bits: Tensor) -> str | float:
    r"""Decodes the rule from the tensor that :meth:`rule_bits` returned."""
    exponent = float(bits.cpu().view(torch.float64))
    return 'inner' if math.isnan(exponent) else exponent or 'cosine'


def cosine_scores(users: Tensor, items: Tensor) -> Scores:
    r"""Returns a function from row numbers ``[B]`` of :obj:`users` ``[U, D]`` to the cosines
    ``[B, I]`` with all rows of :obj:`items` ``[I, D]``. They are in at least single precision,
    because half precision makes the cosines of many items equal."""
    unit_users, unit_items = (
        normalize(rows.to(compute_dtype(rows.dtype)), eps=SHORTEST) for rows in (users, items)
    )

    def scores(part: Tensor) -> Tensor:
        with without_autocast(items.device.type):
            return unit_users[part] @ unit_items.t()

    return scores


def item_factor(rule: str | float, items: Tensor, degree: Tensor | None = None) -> Tensor:
    r"""Returns the factors ``[I]`` that turn cosines with :obj:`items` ``[I, D]`` into the scores
    of a rule, in the dtype of these cosines.

    For :obj:`"inner"` they are the lengths of the rows of :obj:`items`, and the scores rank as
    inner products do. For :obj:`"cosine"` they are 1. For a number they are this power of
    :obj:`degree` ``[I]``, with degrees of at least 1.

    Raises:
        ValueError: If a power of a degree is 0 or infinite in this dtype.
    """
    items = items.to(compute_dtype(items.dtype))
    if rule == 'inner':
        return vector_norm(items, dim=1).clamp(min=SHORTEST)
    if isinstance(rule, str):
        return torch.ones_like(items[:, 0])
    factor = cast(Tensor, degree).clamp(min=1).to(items.dtype) ** rule
    if not bool(((factor > 0) & factor.isfinite()).all()):
        raise ValueError(
            f"'scoring' must be an exponent whose powers of the items' degrees {items.dtype} can "
            f'represent (got {rule} and degrees up to {int(cast(Tensor, degree).max())})'
        )
    return factor


def rank(
    scores: Scores,
    factor: Tensor,
    users: Tensor,
    seen: History,
    k: int,
    *,
    ordered: bool = True,
    batch_size: int | None = None,
) -> Tensor:
    r"""Ranks all items for each user by their scores times their factors, and returns the :obj:`k`
    best items ``[B, k]``.

    Args:
        scores (callable): Computes scores ``[B, I]`` from user ids ``[B]``. The scores are
            overwritten.
        factor (torch.Tensor): The factors ``[I]`` of the items.
        users (torch.Tensor): User ids ``[B]``.
        seen (History): The items that each user has seen, which are ranked last.
        k (int): The number of items.
        ordered (bool): Whether the items are sorted by falling score.
        batch_size (int, optional): How many users are scored at once, by default as many as fit
            into the cache.

    Raises:
        ValueError: If :obj:`k` exceeds the number of items.
    """
    best = [users.new_empty((0, k))]
    for chunk in user_chunks(users, factor.numel(), batch_size):
        product = scores(chunk).mul_(factor)
        best.append(best_items(product, seen[chunk], k, ordered))
    return torch.cat(best)


def user_chunks(users: Tensor, num_items: int, batch_size: int | None = None) -> tuple[Tensor, ...]:
    r"""Splits user ids ``[B]`` into chunks of :obj:`batch_size`, by default as many as have scores
    that fit into the cache."""
    if batch_size is None:
        batch_size = chunk_elements(CHUNK_ELEMENTS, users.device) // max(1, num_items)
    return users.split(int(max(1, batch_size)))  # of NumPy, too


def best_items(scores: Tensor, seen: Tensor, k: int, ordered: bool = True) -> Tensor:
    r"""Returns the :obj:`k` items ``[B, k]`` with the largest scores in each row of :obj:`scores`
    ``[B, I]``, which is overwritten: the scores of the pairs :obj:`seen` ``[2, E]`` of a row and an
    item become minus infinity.

    Raises:
        ValueError: If :obj:`k` exceeds the number of items.
    """
    num_items = scores.size(1)
    if k > num_items:
        raise ValueError(f"'k' must be at most {num_items}, the number of items (got {k})")
    row, item = seen
    scores[row, item] = -torch.inf
    return scores.topk(k, sorted=ordered).indices
