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
    r"""Stores the items of each user :obj:`u`, ``item[ptr[u] : ptr[u + 1]]``."""

    ptr: Tensor
    item: Tensor

    @classmethod
    def of(cls, pairs: Tensor, num_users: int) -> 'History':
        r"""Sorts the pairs ``[2, E]`` of users and items by user."""
        user, item = pairs[:, pairs[0].argsort(stable=True)]
        return cls(torch.searchsorted(user, torch.arange(num_users + 1, device=user.device)), item)

    @classmethod
    def among(cls, items: Tensor, pairs: Tensor, num_nodes: int) -> 'History':
        r"""Collects the distinct partners of each node in either direction, as positions in the
        distinct :obj:`items`."""
        place = torch.full((num_nodes,), -1, device=items.device)
        place[items] = torch.arange(items.numel(), device=items.device)
        node, item = torch.cat([pairs, pairs.flip(0)], 1)
        item, width = place[item], max(1, items.numel())
        cells = (node * width + item)[item >= 0].unique()
        return cls.of(torch.stack([cells // width, cells % width]), num_nodes)

    def __getitem__(self, users: Tensor) -> Tensor:
        r"""Returns the pairs ``[2, E]`` of some users, with their positions in :obj:`users`."""
        row, position = ranges(self.ptr[users], self.ptr[users + 1] - self.ptr[users])
        return torch.stack([row, self.item[position]])


class Scoring(NamedTuple):
    r"""Stores a function of users to scores ``[B, I]``, and by name the factors ``[I]`` of the
    items. The score of an item is the product of both."""

    scores: Scores
    factors: Mapping[float, Tensor]

    def only(self, *names: float) -> 'Scoring':
        r"""Returns the same scores with the factors of these names."""
        factors = {name: factor for name, factor in self.factors.items() if name in names}
        return Scoring(self.scores, factors)


def checked_rule(rule: str | float) -> str | float:
    r"""Returns the rule of a ranking, :obj:`"cosine"` for the exponent 0.

    Raises:
        ValueError: If the rule is unknown.
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
    rows, which rank as the inner product does; for :obj:`"cosine"` 1; for a number this power of
    the items' degrees, which count as at least 1."""
    if rule == 'inner':
        return items.norm(dim=1).clamp(min=SHORTEST)
    if isinstance(rule, str):
        return torch.ones_like(items[:, 0])
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
    r"""Ranks the items for each user. By the name of each factor, returns the :obj:`k` items
    ``[B, k]`` with the highest scores; the items that the user has seen come last. Scores are
    computed for :obj:`batch_size` users at once, by default as many as fit into the cache.

    Raises:
        ValueError: If :obj:`k` exceeds the number of items.
    """
    num_items = min(factor.numel() for factor in scoring.factors.values())
    if k > num_items:
        raise ValueError(f"'k' must be at most {num_items}, the number of items (got {k})")
    tops: dict[float, list[Tensor]] = {name: [users.new_empty((0, k))] for name in scoring.factors}
    if batch_size is None:
        elements = CHUNK_ELEMENTS['cpu' if users.device.type == 'cpu' else 'other']
        batch_size = elements // max(1, num_items)
    buffer = None
    for chunk in users.split(max(1, batch_size)):
        score = scoring.scores(chunk)
        row, item = seen[chunk]
        buffer = torch.empty_like(score) if buffer is None else buffer
        for name, factor in scoring.factors.items():
            product = torch.mul(score, factor, out=buffer[: chunk.numel()])
            product[row, item] = -torch.inf
            tops[name].append(product.topk(k, sorted=ordered).indices)
    return {name: torch.cat(chunks) for name, chunks in tops.items()}
