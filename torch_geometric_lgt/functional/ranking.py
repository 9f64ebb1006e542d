# U users, I items, E pairs, B users of a chunk, D embedding size.
import math
from collections.abc import Callable, Mapping
from numbers import Real
from typing import NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import normalize

from torch_geometric_lgt.functional.neighbors.edges import ranges

Scores = Callable[[Tensor], Tensor]
CHUNK_ELEMENTS = {'cpu': 1 << 20, 'other': 1 << 26}  # scores at once
SHORTEST = 1e-12  # as in normalize


class History(NamedTuple):
    r"""The items of each user: those of user :obj:`u` are ``item[ptr[u] : ptr[u + 1]]``."""

    ptr: Tensor
    item: Tensor

    @classmethod
    def of(cls, pairs: Tensor, num_users: int) -> 'History':
        user, item = pairs[:, pairs[0].argsort(stable=True)]
        return cls(torch.searchsorted(user, torch.arange(num_users + 1, device=user.device)), item)

    @classmethod
    def among(cls, items: Tensor, pairs: Tensor, num_nodes: int) -> 'History':
        r"""The places among distinct :obj:`items` of the nodes that each node is paired with, in
        either direction, each once."""
        place = torch.full((num_nodes,), -1, device=items.device)
        place[items] = torch.arange(items.numel(), device=items.device)
        node, item = torch.cat([pairs, pairs.flip(0)], 1)
        item, width = place[item], max(1, items.numel())
        cells = (node * width + item)[item >= 0].unique()
        return cls.of(torch.stack([cells // width, cells % width]), num_nodes)

    def __getitem__(self, users: Tensor) -> Tensor:
        r"""The pairs ``[2, E]`` of users, counted from 0 in their order."""
        row, position = ranges(self.ptr[users], self.ptr[users + 1] - self.ptr[users])
        return torch.stack([row, self.item[position]])


class Scoring(NamedTuple):
    r"""Scores ``[B, I]`` of items for users, and the ways to weigh the items by a factor ``[I]``
    each, by their names: the score of an item is the product of both."""

    scores: Scores
    factors: Mapping[float, Tensor]

    def only(self, *ways: float) -> 'Scoring':
        return Scoring(
            self.scores, {way: factor for way, factor in self.factors.items() if way in ways}
        )


def checked_rule(rule: str | float) -> str | float:
    r"""Returns the rule of a ranking, the exponent 0 by its name.

    Raises:
        ValueError: If it is unknown.
    """
    if rule in ('inner', 'cosine'):
        return rule
    if isinstance(rule, bool) or not isinstance(rule, Real) or not math.isfinite(rule):
        raise ValueError(
            "'scoring' must be 'inner', 'cosine' or a finite exponent of the items' degrees (got "
            f'{rule!r})'
        )
    return float(rule) or 'cosine'


def rule_bits(rule: str | float) -> Tensor:
    r"""Encodes a rule: the exponent of the degrees, 0 for the cosine and NaN for the inner product,
    as the bits of a double, which no conversion of a module's weights rounds."""
    rule = checked_rule(rule)
    exponent = {'inner': math.nan, 'cosine': 0.0}[rule] if isinstance(rule, str) else rule
    return torch.tensor(exponent, dtype=torch.float64).view(torch.int64)


def rule_of(bits: Tensor) -> str | float:
    r"""Decodes a rule."""
    exponent = float(bits.cpu().view(torch.float64))
    return 'inner' if math.isnan(exponent) else exponent or 'cosine'


def cosine_scores(users: Tensor, items: Tensor) -> Scores:
    r"""Returns the cosines of the rows of :obj:`users`, by their numbers, and all :obj:`items`."""
    unit_users, unit_items = normalize(users, eps=SHORTEST), normalize(items, eps=SHORTEST)
    return lambda part: unit_users[part] @ unit_items.t()


def item_factor(rule: str | float, items: Tensor, degree: Tensor | None = None) -> Tensor:
    r"""Returns the factors ``[I]`` of the cosines: for :obj:`"inner"` the lengths of the items'
    rows, which rank as the inner product does, for :obj:`"cosine"` 1, and for a number this power
    of the items' degrees, which count as at least 1."""
    if isinstance(rule, str):
        return (
            items.norm(dim=1).clamp(min=SHORTEST)
            if rule == 'inner'
            else torch.ones_like(items[:, 0])
        )
    return cast(Tensor, degree).clamp(min=1).to(items.dtype) ** rule


def rank(
    scoring: Scoring,
    users: Tensor,
    seen: History,
    k: int,
    *,
    ordered: bool = True,
    batch_size: int | None = None,
) -> dict[float, Tensor]:
    r"""By each way to weigh the items, the :obj:`k` items ``[B, k]`` with the highest scores for
    each user, without those the user has seen, which come last. Scores are made for
    :obj:`batch_size` users at once, by default as many as a cache holds.

    Raises:
        ValueError: If there are fewer than :obj:`k` items.
    """
    num_items = min(factor.numel() for factor in scoring.factors.values())
    if k > num_items:
        raise ValueError(f"'k' must be at most {num_items}, the number of items (got {k})")
    tops: dict[float, list[Tensor]] = {way: [users.new_empty((0, k))] for way in scoring.factors}
    size = (
        CHUNK_ELEMENTS['cpu' if users.device.type == 'cpu' else 'other'] // max(1, num_items)
        if batch_size is None
        else batch_size
    )
    weighted = None
    for part in users.split(max(1, size)):
        score = scoring.scores(part)
        row, item = seen[part]
        weighted = torch.empty_like(score) if weighted is None else weighted
        for way, factor in scoring.factors.items():
            product = torch.mul(score, factor, out=weighted[: part.numel()])
            product[row, item] = -torch.inf
            tops[way].append(product.topk(k, sorted=ordered).indices)
    return {way: torch.cat(parts) for way, parts in tops.items()}
