# U users, I items, E pairs.
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch_geometric.metrics import LinkPredMetricCollection, LinkPredNDCG, LinkPredRecall

from torch_geometric_lgt.functional.edges import ranges

Scores = Callable[[Tensor], Tensor]
CHUNK_ELEMENTS = {'cpu': 1 << 20, 'other': 1 << 26}  # scores at once


class History(NamedTuple):
    r"""The items of each user: those of user :obj:`u` are ``item[ptr[u] : ptr[u + 1]]``."""

    ptr: Tensor
    item: Tensor

    @classmethod
    def of(cls, pairs: Tensor, num_users: int) -> 'History':
        user, item = pairs[:, pairs[0].argsort(stable=True)]
        return cls(torch.searchsorted(user, torch.arange(num_users + 1, device=user.device)), item)

    def __getitem__(self, users: Tensor) -> Tensor:
        r"""The pairs ``[2, E]`` of users, counted from 0 in their order."""
        row, position = ranges(self.ptr[users], self.ptr[users + 1] - self.ptr[users])
        return torch.stack([row, self.item[position]])


class Scoring(NamedTuple):
    r"""Scores ``[B, I]`` of items for users, and the ways to weigh the items by a factor ``[I]`` each, by their names: the score of an item
    is the product of both."""

    scores: Scores
    factors: Mapping[float, Tensor]

    def only(self, *ways: float) -> 'Scoring':
        return Scoring(self.scores, {way: factor for way, factor in self.factors.items() if way in ways})


def rank(scoring: Scoring, users: Tensor, seen: History, k: int) -> dict[float, Tensor]:
    r"""By each way to weigh the items, the :obj:`k` items ``[B, k]`` with the highest scores for each user, without those the user has
    seen. Scores are made for as many users at once as a cache holds.

    Raises:
        ValueError: If there are fewer than :obj:`k` items.
    """
    num_items = min(factor.numel() for factor in scoring.factors.values())
    if k > num_items:
        raise ValueError(f"'k' must be at most {num_items}, the number of items (got {k})")
    tops: dict[float, list[Tensor]] = {way: [users.new_empty((0, k))] for way in scoring.factors}
    size = CHUNK_ELEMENTS['cpu' if users.device.type == 'cpu' else 'other'] // num_items
    weighted = None
    for part in users.split(max(1, size)):
        score = scoring.scores(part)
        row, item = seen[part]
        weighted = torch.empty_like(score) if weighted is None else weighted
        for way, factor in scoring.factors.items():
            product = torch.mul(score, factor, out=weighted[: part.numel()])
            product[row, item] = -torch.inf
            tops[way].append(product.topk(k).indices)
    return {way: torch.cat(parts) for way, parts in tops.items()}


def evaluate(
    scoring: Scoring, pairs: Tensor, seen: Tensor, num_users: int, k: int = 20, groups: dict[str, Tensor] | None = None
) -> dict[float, dict[str, float]]:
    r"""Recall and NDCG of the full ranking, means over the users with a pair, by each way to weigh the items. Items of :obj:`seen` pairs
    are not ranked. For each of :obj:`groups`, masks of items ``[I]``, only its items are wanted, in the same ranking."""
    parts = {'': pairs} | {f'_{name}': pairs[:, mask[pairs[1]]] for name, mask in (groups or {}).items()}
    wanted = {name: History.of(part, num_users) for name, part in parts.items()}
    metrics = {
        (way, name): LinkPredMetricCollection({'recall': LinkPredRecall(k), 'ndcg': LinkPredNDCG(k)}).to(pairs.device)
        for way in scoring.factors
        for name in parts
    }
    users = wanted[''].ptr.diff().nonzero().flatten()
    tops = rank(scoring, users, History.of(seen, num_users), k)
    for (way, name), metric in metrics.items():
        metric.update(tops[way], wanted[name][users])
    found: dict[float, dict[str, float]] = {way: {} for way in scoring.factors}
    for (way, name), metric in metrics.items():
        found[way] |= {f'{key}@{k}{name}': float(value) for key, value in metric.compute().items()}
    return found
